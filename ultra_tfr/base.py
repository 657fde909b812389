"""The contract of everything that learns beside the model.

A `LearningLayer` holds what is learned and gathers sums. A `LearningLoss` reads
a batch once, computes its losses, and adds to the sums. The callback
`ultra_tfr.callbacks.PropensityEM` updates the layer after each batch.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr import feedback as feedback_lib
from ultra_tfr import keras_guards
from ultra_tfr.core import em
from ultra_tfr.core import masking
from ultra_tfr.core import positions as positions_lib
from ultra_tfr.feedback import TensorLike

# The columns of the counters: batches, items outside of the tables, pairs (or
# clicks) to learn from, the sum of their weights, and the weight that clipping
# took away. What `update` returns has one more: batches that were left out,
# since they were not finite.
BATCHES, OVERFLOW, PAIRS, WEIGHT, CLIPPED, SKIPPED = range(6)
NUM_COUNTERS = 5
_OVERFLOW = ("mask", "pool", "error")


class Steps(NamedTuple):
  """The arguments of `LearningLayer.update`, which explains them."""

  step_size: tf.Tensor
  step_decay: tf.Tensor
  warmup: tf.Tensor
  averaging: str


class _Unsaved(NamedTuple):
  """The state of a layer that is not saved with it.

  Attributes:
    gate: a variable, 1 while E steps count and 0 otherwise.
    skipped: a variable, the batches left out since the last update.
    update: a function from the kind of averaging to the compiled M step.
    constant: the tensor of plain numbers, kept from call to call, since to make
      one and copy it to the device takes a good part of an M step.
  """

  gate: tf.Variable
  skipped: tf.Variable
  update: Callable[..., Callable[[tf.Tensor], tf.Tensor]]
  constant: Callable[..., tf.Tensor]


class LearningLayer(tf.keras.layers.Layer):
  """A layer whose parameters move by EM instead of by gradients.

  A training step adds the sums of its E step to accumulators, through a gate
  that is open only while `fit` trains; `update` is the M step. Accumulators are
  summed over replicas when they are read, so there is one estimate for all. A
  batch whose loss or sums are not finite is left out, and counted.

  Args:
    name: the layer's name.
    num_positions: K, the positions of its tables.
    num_contexts: C, one table for each context id of the packed feedback.
    overflow: positions beyond K: `"mask"` leaves those items out, `"pool"` lets
      them share the last position, `"error"` raises when the epoch ends.

  Raises:
    ValueError: if an argument is out of range.
  """

  def __init__(self, name: str, num_positions: int, num_contexts: int,
               overflow: Literal["mask", "pool", "error"]):
    checks.check_choice("overflow", overflow, _OVERFLOW)
    super().__init__(name=name, trainable=False, dtype=tf.float32)
    self.num_positions = checks.check_count("num_positions", num_positions)
    self.num_contexts = checks.check_count("num_contexts", num_contexts)
    self.overflow = overflow
    # Set by whatever will call `update`. The loss reads it while its gradient
    # is traced, to warn of a forgotten callback.
    self.is_updated_by_em = False
    # Whether the gate is open, known without waiting for the device.
    self.is_collecting = False
    self.built = True
    self.num_updates = self._parameter("num_updates", 0.0)
    # Unused: earlier versions saved the gate here, and their files must load.
    # The gate itself is not saved any more, so no file can restore it open.
    self._parameter("collect", 0.0)
    # Wrapped in a function: in a tuple, Keras would find and save variables.
    self._unsaved = functools.partial(_Unsaved, tf.Variable(
        0.0, trainable=False, name="gate",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA), tf.Variable(
            0.0, trainable=False, name="skipped",
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM),
        functools.cache(self._compile_update),
        functools.lru_cache(8)(_constant))

  def _parameter(self, name, value):
    value = np.asarray(value, np.float32)
    return self.add_weight(
        name=name, shape=value.shape, dtype=tf.float32, trainable=False,
        initializer=tf.keras.initializers.Constant(value),
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

  def _create_sums(self, shapes, averaged):
    """Creates an accumulator a shape, and running means of those `averaged`."""
    # Sorted, since a set of strings has another order in each process, and
    # workers exchange the initial values of their variables one by one.
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

  def load_own_variables(self, store: Any) -> None:
    """Fills the layer from a Keras file.

    Args:
      store: the arrays by name, as Keras has them.
    """
    # Assigning an accumulator divides the value by the number of replicas,
    # which arrays can do, and data sets of HDF5 cannot.
    super().load_own_variables(
        {key: np.asarray(store[key]) for key in store.keys()})

  def find_slots(self, positions: tf.Tensor,
                 contexts: Optional[tf.Tensor]) -> positions_lib.Slots:
    """`core.positions.Slots` of the items, by this layer's overflow rule."""
    return positions_lib.find_slots(
        positions, contexts, self.num_positions, self.num_contexts,
        pool=self.overflow == "pool")

  def collect(self, sums: dict[str, tf.Tensor],
              loss: Optional[tf.Tensor] = None) -> None:
    """Adds the sums of an E step, if a training step is under way.

    A batch is left out if its loss, one of its sums or the sum of their squares
    is not finite: one NaN would stay in all later averages.

    Args:
      sums: a dict of tensors, with names and shapes of the layer's
        accumulators, of which "counters" `[5]` is always one. A `PositionBias`
        has "pointwise" `[C * K * D, 5]` and "calibration" `[2]` (with
        `trust_bias="auto"` both for each of S hypotheses, named by their
        suffix, and "log_likelihood" `[S]`), and with learned pairwise trust
        bias "trust" `[C * K, K, 4]`. A `PositionTables` has "tables".
      loss: the loss of the batch, a scalar; None to look at the sums only.
    """
    size = tf.linalg.global_norm(list(sums.values()))
    size = size if loss is None else size + loss
    is_finite, is_open = tf.math.is_finite(size), self._unsaved().gate > 0
    counts = tf.logical_and(is_open, is_finite)
    for key, value in sums.items():
      # A select, since a product would let a NaN through a closed gate.
      self._sums[key].assign_add(tf.where(counts, value, tf.zeros_like(value)))
    self._unsaved().skipped.assign_add(tf.where(
        tf.logical_and(is_open, tf.logical_not(is_finite)),
        1.0 / num_replicas(), 0.0))

  def only_while_collecting(self, values: tf.Tensor) -> tf.Tensor:
    """The tensor while the gate is open, zeros otherwise."""
    return tf.where(self._unsaved().gate > 0, values, tf.zeros_like(values))

  def not_restored(self) -> list[str]:
    """Names of the parameters that the last restored checkpoint lacked.

    Empty if no checkpoint was restored, or one that does not have this layer.
    """
    return keras_guards.not_restored(
        self.num_updates, self._learned_variables())

  def start_collecting(self) -> None:
    """Opens the gate: E steps from now on are counted."""
    self.mark_collecting(True)
    self.move_gate(True)

  def stop_collecting(self) -> None:
    """Closes the gate: evaluation must not reach the estimates."""
    self.mark_collecting(False)
    self.move_gate(False)

  def mark_collecting(self, is_collecting: bool) -> None:
    """Notes that the gate is open, or that a graph is about to open it."""
    # Past `__setattr__`: Keras looks for variables in whatever it is given, and
    # takes as long for two flags as the gate takes to move.
    self.__dict__.update(
        is_collecting=is_collecting,
        is_updated_by_em=self.is_updated_by_em or is_collecting)

  def move_gate(self, is_open: bool) -> None:
    """Opens or closes the gate, without a note of it, so also in a graph."""
    unsaved = self._unsaved()
    unsaved.gate.assign(unsaved.constant(float(is_open)), read_value=False)

  def take_sums(self) -> dict[str, tf.Tensor]:
    """Reads the sums over all replicas and clears them.

    Returns:
      A dict of tensors, as given to `collect`.
    """
    sums = {key: tf.convert_to_tensor(v) for key, v in self._sums.items()}
    for variable in self._sums.values():
      variable.assign(tf.zeros(variable.shape))
    return sums

  def has_sums(self) -> bool:
    """Whether batches were counted or left out since the last update."""
    return bool(tf.convert_to_tensor(self._sums["counters"])[BATCHES] > 0 or
                tf.convert_to_tensor(self._unsaved().skipped) > 0)

  @property
  def is_fixed(self) -> bool:
    """Whether everything is given, so that there is nothing to update."""
    return False

  def update(self, step_size: float = em.STEP_SIZE,
             step_decay: float = em.STEP_DECAY,
             averaging: str = "statistics", warmup: int = 20) -> tf.Tensor:
    """The M step: new values from the sums collected so far.

    It is one call of a compiled function, and reads nothing from the device.
    Sums of several batches give one step as long as a step for each of them.

    Args:
      step_size: alpha_0 of the step size alpha_0 (1 + t)^-step_decay, (20).
      step_decay: its exponent, kappa.
      averaging: `"statistics"`, or for a `PositionBias` also `"parameters"`,
        see `core.em`.
      warmup: batches over which a click-rate start is gathered.

    Returns:
      The counters as a tensor `[6]`: batches, items outside of the tables,
      pairs (or clicks) to learn from, weight, weight that was clipped, and
      batches that were left out; zeros if none was collected.
    """
    scope = () if not tf.executing_eagerly() else (
        tf.distribute.get_strategy(), tf.distribute.in_cross_replica_context())
    unsaved = self._unsaved()
    return unsaved.update(averaging, *scope)(
        unsaved.constant(step_size, step_decay, warmup))

  def _compile_update(self, averaging, *scope):
    """Compiles the M step, which is bound to the variables of this layer.

    Within a `scope` it gives the graph itself, since `tf.function` looks for
    the right one at each call, which takes as long as an M step.
    """
    compiled = tf.function(
        functools.partial(self._update, averaging),
        input_signature=[tf.TensorSpec([3])], autograph=False)
    return compiled if not scope else keras_guards.plain_call(
        compiled.get_concrete_function())

  def _update(self, averaging, rates):
    sums = self.take_sums()
    skipped = self._unsaved().skipped
    counters = tf.concat(
        [sums["counters"], [tf.convert_to_tensor(skipped)]], axis=0)
    skipped.assign(0.0)
    # No branch: all that is in one waits for the condition, constants too, and
    # that takes as long again as an M step.
    has_batches = counters[BATCHES] > 0
    for variable, value in self._move(
        sums, Steps(*tf.unstack(rates), averaging)):
      variable.assign(tf.where(has_batches, value, variable))
    return counters

  def curves(self) -> dict[str, np.ndarray]:
    """The curves for the logs: `[C, K]` numpy arrays by name."""
    raise NotImplementedError

  def tables(self) -> dict[str, np.ndarray]:
    """The tables behind `curves`, by the same names.

    Logs tell how far they moved in an epoch: relative curves would change in
    all places where position 1 changes.
    """
    return self.curves()

  def scalars(self) -> dict[str, float]:
    """Further numbers for the logs, by name."""
    return {}

  def _learned_variables(self):
    """The variables that an update moves, by name."""
    raise NotImplementedError

  def _move(self, sums, steps):
    """New values of variables.

    Args:
      sums: a dict of tensors, as given to `collect`.
      steps: `Steps`.

    Returns:
      Pairs of a variable and its value, which is not used if no batch counts.
    """
    raise NotImplementedError


def with_m_steps(train: Any, layers: Sequence[LearningLayer],
                 rule: dict[str, Any]) -> Any:
  """A training function whose graph opens the gates and runs the M steps, too.

  A call of its own takes as long as an M step, or longer: after a training step
  nothing that it needs is in the processor's caches.

  Args:
    train: a `tf.function` of an iterator that runs training steps.
    layers: the layers whose gates are open meanwhile.
    rule: the arguments of their `update`.

  Returns:
    A `tf.function` that gives what `train` gives, and a list of what `update`
    gives. It is kept with `train`, and the same one for the same arguments.
  """
  kept = vars(train).setdefault("with_m_steps", {})
  key = (*layers, *rule.values())
  if key not in kept:
    @functools.partial(tf.function, autograph=False, reduce_retracing=True)
    def train_and_update(iterator):
      for layer in layers:
        layer.move_gate(True)
      result = train(iterator)
      for layer in layers:
        layer.move_gate(False)
      return result, [layer.update(**rule) for layer in layers]
    kept[key] = train_and_update
  return kept[key]


class Learned(NamedTuple):
  """What a loss computes of a batch.

  Attributes:
    losses: `[B, L]`, before item weights.
    sums: a function without arguments that gives what the batch adds to the
      layer's accumulators, a dict of tensors without "counters". It is called
      after the losses are computed, when the memory of their pairs is free.
    pairs: how many observations there were to learn from: clicks, or pairs of
      different feedback.
    weight: the sum of the debiasing weights, 0 for a loss without any.
    clipped: the weight that clipping took away.
    reduced: a part of the loss that is already reduced to a scalar, and is
      added to the reduced `losses`; or None.
  """

  losses: tf.Tensor
  sums: Callable[[], dict[str, tf.Tensor]]
  pairs: tf.Tensor
  weight: tf.Tensor
  clipped: tf.Tensor
  reduced: Optional[tf.Tensor] = None


class LearningLoss(tf.keras.losses.Loss):
  """A loss with a layer that learns from the same batches.

  A subclass implements `_learn`, and `_options` for its config.

  Args:
    position_bias: a `LearningLayer`.
    layer_class: the class that it must have.
    reduction: as in Keras; the mean is over valid items of all replicas.
    name: the loss's name.

  Raises:
    ValueError: if the layer is none of that class.
  """

  # How many heads `y_pred` must have; None for any number.
  num_heads: Optional[int] = 1
  # Whether the mean divides by the sum of item weights, and not by the number
  # of valid items.
  normalize_weights = False
  # Whether there are debiasing weights, of which some may be clipped.
  has_weights = True
  # Whether `logged_order_weight` of a layer counts in losses of this kind.
  heeds_logged_order = False

  def __init__(self, position_bias: LearningLayer, layer_class: type,
               reduction: str, name: str):
    super().__init__(reduction=reduction, name=name)
    checks.check_instance("position_bias", position_bias, layer_class,
                          "create one and pass it to the loss")
    self.position_bias = position_bias
    if self.uses_logged_order and not self.heeds_logged_order:
      refuse_logged_order(self)

  def __call__(self, y_true, y_pred, sample_weight=None):
    """The reduced loss.

    Args:
      y_true: `[B, L]` feedback with item l shown at position l + 1, or packed
        by `ultra_tfr.pack_feedback`.
      y_pred: `[B, L]` scores, or with more heads on a last axis.
      sample_weight: None, a number, `[B]`, `[B, 1]` or `[B, L]` weights.

    Returns:
      A scalar, or `[B, L]` with the reduction NONE.
    """
    with tf.name_scope(self.name or type(self).__name__):
      batch, losses, reduced = self._item_losses(y_true, y_pred, sample_weight)
      loss = reduce(losses, batch.mask, batch.weights, self.reduction,
                    self.normalize_weights)
      if reduced is not None:
        loss += reduced
      if self.position_bias.is_fixed:
        return loss
      return keras_guards.watch(loss, self.position_bias)

  def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
    """Losses per item, `[B, L]`, before item weights."""
    return self._item_losses(y_true, y_pred, None)[1]

  @property
  def uses_logged_order(self) -> bool:
    """Whether the layer has a weight for the logged order."""
    return getattr(self.position_bias, "logged_order_weight", None) is not None

  def _item_losses(self, y_true, y_pred, sample_weight):
    """Reads a batch, computes its losses, and collects what is learned."""
    batch = feedback_lib.read_batch(
        y_true, y_pred, sample_weight, self.position_bias)
    if self.num_heads not in (None, len(batch.heads)):
      shape = "[lists, items" + (
          f", {self.num_heads}]" if self.num_heads > 1 else "]")
      raise ValueError(
          f"`{type(self).__name__}` needs `y_pred` of the shape {shape}, but "
          f"`y_pred` has {len(batch.heads)} head(s); build the model with "
          f"`num_heads={self.num_heads}`.")
    learned = self._learn(batch)
    losses = masking.zero_where_invalid(batch.mask, learned.losses)
    if keras_guards.is_evaluating():
      return batch, losses, learned.reduced
    with tf.control_dependencies([losses]):
      counters = tf.stack([
          # Each replica adds its share, so that a global batch counts once.
          tf.constant(1.0 / num_replicas()), batch.overflow, learned.pairs,
          learned.weight, learned.clipped])
      sums = {name: tf.stop_gradient(value) for name, value in
              {**learned.sums(), "counters": counters}.items()}
      total = tf.reduce_sum(tf.stop_gradient(losses))
      if learned.reduced is not None:
        total += tf.reduce_sum(tf.stop_gradient(learned.reduced))
      self.position_bias.collect(sums, total)
    return batch, losses, learned.reduced

  def _learn(self, batch: feedback_lib.Batch) -> Learned:
    """What the loss computes of a batch."""
    raise NotImplementedError

  def _options(self) -> dict[str, Any]:
    """The constructor's own arguments, ready for JSON."""
    raise NotImplementedError

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {"name": self.name, "reduction": self.reduction,
            "position_bias": keras_guards.serialize_layer(self.position_bias),
            **checks.plain(self._options())}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds the loss again, with a layer of the same arguments."""
    config = dict(config)
    layer = tf.keras.layers.deserialize(config.pop("position_bias"))
    return cls(keras_guards.loaded(layer), **config)


def _constant(*values):
  """Numbers as a tensor that graphs can use, too."""
  with tf.init_scope():
    return tf.constant(values[0] if len(values) == 1 else values, tf.float32)


def refuse_logged_order(loss: tf.keras.losses.Loss) -> None:
  """Raises a `ValueError`, since the loss has no pairs for such a weight."""
  raise ValueError(
      f"`{type(loss).__name__}` does not heed the logged order, but its layer "
      "has a `logged_order_weight`; leave that out, or take "
      "`UnbiasedPairwiseLoss`.")


def learning_losses(loss: Any) -> list[LearningLoss]:
  """Finds the losses that learn among those that a model was compiled with.

  Args:
    loss: a Keras loss, or lists and dicts of them. Losses that are attributes
      of a loss are found, too.

  Returns:
    A list; dicts are searched in the order of their sorted keys.

  >>> learning_losses({"click": "mse"})
  []
  """
  if isinstance(loss, LearningLoss):
    return [loss]
  parts: Any = ()
  if isinstance(loss, tf.keras.losses.Loss):
    parts = vars(loss).values()
  elif isinstance(loss, Mapping):
    parts = [loss[key] for key in sorted(loss, key=str)]
  elif isinstance(loss, (list, tuple)):
    parts = loss
  return [found for part in parts for found in learning_losses(part)]


def num_replicas() -> int:
  """Replicas that train in step: 1 without a distribution strategy.

  >>> num_replicas()
  1
  """
  replica = tf.distribute.get_replica_context()
  return 1 if replica is None else replica.num_replicas_in_sync


def reduce(losses: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor,
           reduction: str, normalize_weights: bool = False) -> tf.Tensor:
  """Reduces `[B, L]` losses; mean and sum are over items of all replicas.

  Args:
    losses: `[B, L]`.
    mask: `[B, L]` booleans, the valid items.
    weights: `[B, L]`, zeros outside the mask.
    reduction: a `tf.keras.losses.Reduction`.
    normalize_weights: divide by the sum of the weights rather than by the
      number of valid items.

  Returns:
    A scalar, or `[B, L]` with NONE. On each of several replicas the scalar has
    the gradient of its own items, and as value the mean over all replicas, or
    an equal part of the sum over all of them.

  >>> mask = tf.constant([[True, False]])
  >>> float(reduce(tf.constant([[4.0, 9.0]]), mask, tf.cast(mask, tf.float32),
  ...              "sum_over_batch_size"))
  4.0
  """
  losses = losses * weights
  if reduction == tf.keras.losses.Reduction.NONE:
    return losses
  total = tf.reduce_sum(losses)
  count = tf.reduce_sum(
      weights if normalize_weights else tf.cast(mask, tf.float32))
  is_sum = reduction == tf.keras.losses.Reduction.SUM
  replicas = num_replicas()
  if replicas == 1:
    return total if is_sum else tf.math.divide_no_nan(total, count)
  # Keras divides a mean by the number of replicas and adds them up; it reports
  # a sum times the number of replicas, averaged over them. With the global
  # total and count below, values and gradients are those of one device, also
  # where the batch is split unevenly.
  all_total, all_count = tf.distribute.get_replica_context().all_reduce(
      tf.distribute.ReduceOp.SUM, [tf.stop_gradient(total), count])
  if is_sum:
    return total + tf.stop_gradient(all_total / replicas - total)
  local = tf.math.divide_no_nan(replicas * total, all_count)
  mean = tf.math.divide_no_nan(all_total, all_count)
  return local + tf.stop_gradient(mean - local)
