"""Variables, accumulators and M step of a layer that EM updates."""

import numpy as np
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr.core import m_step
from ultra_tfr.core import positions as positions_lib

# The columns of the counters: batches, items outside of the tables, pairs with
# different feedback, pair weight, and what clipping took away from it.
BATCHES, OVERFLOW, PAIRS, WEIGHT, CLIPPED = range(5)
NUM_COUNTERS = 5
_OVERFLOW = ("mask", "pool", "error")


class EMLayer(tf.keras.layers.Layer):
  """A layer whose parameters move by EM instead of by gradients.

  A training step adds the sums of its E step to accumulators, through a gate
  that is open only while `fit` trains; `update` is the M step. Accumulators are
  summed over replicas when they are read, so there is one estimate for all.

  Args:
    name: the layer's name.
    num_positions: K, the positions of its tables.
    num_contexts: C, one table for each context id of the packed feedback.
    overflow: positions beyond K: `"mask"` leaves those items out, `"pool"` lets
      them share the last position, `"error"` makes the callback raise.

  Raises:
    ValueError: if an argument is out of range.
  """

  def __init__(self, name, num_positions, num_contexts, overflow):
    checks.check_count("num_positions", num_positions)
    checks.check_count("num_contexts", num_contexts)
    checks.check_choice("overflow", overflow, _OVERFLOW)
    super().__init__(name=name, trainable=False, dtype=tf.float32)
    self.num_positions, self.num_contexts = num_positions, num_contexts
    self.overflow = overflow
    # Set when something promises to call `update`; the loss looks at it when it
    # is traced, to notice a forgotten callback.
    self.is_updated_by_em = False
    self.built = True
    self.num_updates = self._parameter("num_updates", 0.0)
    self._collect = self._parameter("collect", 0.0)

  def _parameter(self, name, value):
    value = np.asarray(value, np.float32)
    return self.add_weight(
        name=name, shape=value.shape, dtype=tf.float32, trainable=False,
        initializer=tf.keras.initializers.Constant(value),
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

  def _create_sums(self, shapes, averaged):
    """Creates an accumulator for each shape, and averages of those named."""
    # In the same order in all processes, which a set of strings is not: workers
    # exchange the initial values of their variables one by one.
    self._averages = {
        key: self._parameter(f"average_{key}", np.zeros(shapes[key]))
        for key in sorted(averaged)}
    self._sums = {
        key: self.add_weight(
            name=f"sum_{key}", shape=shape, dtype=tf.float32,
            initializer="zeros", trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM)
        for key, shape in shapes.items()}

  def find_slots(self, positions, contexts):
    """`core.positions.Slots` of the items, by this layer's overflow rule."""
    return positions_lib.find_slots(
        positions, contexts, self.num_positions, self.num_contexts,
        pool=self.overflow == "pool")

  def collect(self, sums):
    """Adds the sums of an E step, if a training step is under way.

    Args:
      sums: a dict of tensors: "pointwise" `[C * K, 5]`, "calibration" `[2]`,
        "counters" `[5]`, and with learned pairwise trust bias "trust"
        `[C * K, K, 4]`.
    """
    for key, value in sums.items():
      # A select, since a product would let a NaN through a closed gate.
      self._sums[key].assign_add(self.only_while_collecting(value))

  def only_while_collecting(self, values):
    """The tensor while EM runs, zeros otherwise."""
    return tf.where(self._collect > 0, values, tf.zeros_like(values))

  def not_restored(self):
    """Names of the parameters that the last restored checkpoint lacked.

    Empty without a checkpoint, and for one without anything of this layer.
    """
    # TensorFlow numbers restores, and marks what each of them filled.
    restored = self.num_updates._update_uid
    return [name for name in self._updated_parameters()
            if getattr(self, name)._update_uid < restored]

  def start_collecting(self):
    """Opens the gate: E steps from now on are counted."""
    self.is_updated_by_em = True
    self._collect.assign(1.0)

  def stop_collecting(self):
    """Closes the gate: evaluation must not reach the estimates."""
    self._collect.assign(0.0)

  def take_sums(self):
    """Reads the sums over all replicas and clears them.

    Returns:
      A dict of tensors, as given to `collect`.
    """
    sums = {key: tf.convert_to_tensor(v) for key, v in self._sums.items()}
    for _key, variable in self._sums.items():
      variable.assign(tf.zeros(variable.shape))
    return sums

  def prepare_update(self, step_size=0.05, step_decay=0.05,
                     averaging="statistics", warmup=20):
    """Compiles the M step, so that the first batch does not wait for it.

    Args:
      step_size: as in `update`.
      step_decay: as in `update`.
      averaging: as in `update`.
      warmup: as in `update`.
    """
    sums = {key: tf.convert_to_tensor(v) for key, v in self._sums.items()}
    m_step.run.get_concrete_function(
        *self._m_step_inputs(sums, step_size, step_decay, averaging, warmup))

  def update(self, step_size=0.05, step_decay=0.05, averaging="statistics",
             warmup=20):
    """The M step: new parameters from the sums collected so far.

    Args:
      step_size: alpha_0 of equation (20).
      step_decay: kappa.
      averaging: `"statistics"` or `"parameters"`, see `core.em`.
      warmup: batches over which a click-rate start is gathered.

    Returns:
      The counters as a numpy array, or None if no batch was collected.
    """
    sums = self.take_sums()
    counters = sums["counters"].numpy()
    if counters[BATCHES] < 0.5:
      return None
    state, averages = m_step.run(
        *self._m_step_inputs(sums, step_size, step_decay, averaging, warmup))
    for name, value in state.items():
      getattr(self, name).assign(value)
    for key, value in averages.items():
      self._averages[key].assign(value)
    return counters

  def _m_step_inputs(self, sums, step_size, step_decay, averaging, warmup):
    """The arguments of `m_step.run`."""
    names = ["num_updates", *self._updated_parameters()]
    state = {name: tf.convert_to_tensor(getattr(self, name)) for name in names}
    averages = {k: tf.convert_to_tensor(v) for k, v in self._averages.items()}
    return (self._update_rule(averaging), state, averages, sums,
            sums["counters"][BATCHES], tf.constant(step_size, tf.float32),
            tf.constant(step_decay, tf.float32),
            tf.constant(warmup, tf.float32))

  def _updated_parameters(self):
    """Names of the attributes that the M step moves."""
    raise NotImplementedError

  def _update_rule(self, averaging):
    """The `core.m_step.UpdateRule` of this layer."""
    raise NotImplementedError
