"""The callback that runs the M step of every layer that learns by EM."""

from typing import Any
from typing import Literal
from typing import Optional
import warnings

import numpy as np
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr import keras_guards
from ultra_tfr.core import em

_AVERAGING = ("statistics", "parameters")
# Counters of so many M steps are added up at once.
_MANY = 64


class PropensityEM(tf.keras.callbacks.Callback):
  """Rewrites the propensities after each training batch.

  The loss has added the sums of its E step to accumulators of the bias layer;
  this callback runs the M step on them, so bias estimation and training share
  one `fit`. Validation, inside `fit` or not, never reaches the estimates, nor
  does a training step that was interrupted. The callback serves every loss with
  such a layer, also those of `ultra_tfr.baselines`.

  The M step is part of the compiled training step, or where that is not Keras's
  own a compiled call after it, and nothing is read from the device before the
  end of an epoch. With `steps_per_execution=n` of the model, or
  `update_every=n`, it runs after n batches: the E step of each of them sees
  tables that are up to n batches old, and one M step goes as far as n M steps
  of one batch each.

  At the end of each epoch the logs, and so `History` and TensorBoard, get:

  *   the curves of the layer, as `examination_1` .. `examination_K` (relative
      to position 1), and `examination_change`, the largest change of theta in
      the epoch;
  *   the share of each hypothesis about the users, if there are several
      (`hypothesis_trust` and so on);
  *   for a loss with weights `weight_clipped`, the share of their sum that
      `max_weight` took away;
  *   `batches_skipped`, the batches whose loss or sums were not finite. They
      are left out of the estimates, with one warning; what becomes of the model
      is up to the optimizer, as with any loss. Of several replicas only those
      with such values are left out, so the number may be a fraction.

  The loss moves with the propensities, so while they move a loss that hardly
  falls is no failure. Watch them and a ranking metric instead.

  Where several losses of a model have bias layers, all are updated, and the
  names in the logs begin with those of the layers. `EarlyStopping` with
  `restore_best_weights` takes the propensities back to its best epoch, too.
  What else sets the weights of the model (`set_weights`, an optimizer that
  averages them) leaves the propensities as they are.

  Args:
    position_bias: the bias layer to update, needed if the loss is called in a
      `train_step` of one's own; by default those of the losses in `model.loss`.
    step_size: alpha_0 of the step size alpha_0 (1 + t)^-step_decay, equation
      (20).
    step_decay: its exponent.
    averaging: `"statistics"` averages the sums and divides afterwards;
      `"parameters"` moves each parameter towards the estimate of the last
      batch, as the paper does.
    warmup: batches over which a click-rate start is gathered.
    update_every: batches between M steps; the end of an epoch brings one, too.
    partial_restore: whether parameters that a restored checkpoint lacks, such
      as those of trust bias, keep their starting values; if False, a checkpoint
      that lacks some is an error.

  Raises:
    ValueError: if an argument is out of range, or the bias layer is not that
      of the model's loss, or was created outside of the strategy's scope, or
      the strategy is a `ParameterServerStrategy`.

  Without `fit` a loop does the same (examples/custom_loop.py):

      for features, feedback in batches:
        bias.start_collecting()  # From here on E steps of the loss count,
        train_step(features, feedback)
        bias.stop_collecting()  # and from here on not: evaluation must not.
        bias.update()  # The M step; arguments as here.

  Its checkpoint is `tf.train.Checkpoint(model=model, optimizer=optimizer,
  position_bias=bias)`.
  """

  def __init__(self, position_bias: Optional[base.LearningLayer] = None, *,
               step_size: float = em.STEP_SIZE,
               step_decay: float = em.STEP_DECAY,
               averaging: Literal["statistics", "parameters"] = "statistics",
               warmup: int = 20, update_every: int = 1,
               partial_restore: bool = False):
    super().__init__()
    keras_guards.keep_logs_on_device(self)
    checks.check_choice("averaging", averaging, _AVERAGING)
    self._update_every = checks.check_count("update_every", update_every)
    if position_bias is not None:
      checks.check_instance("position_bias", position_bias, base.LearningLayer,
                            "pass that of the loss, or leave it out")
    self.position_bias = position_bias
    self._partial_restore = checks.check_flag(
        "partial_restore", partial_restore)
    self._updates: list[_Updates] = []
    self._rule = {
        "step_size": checks.check_share("step_size", step_size),
        "step_decay": checks.check_not_negative("step_decay", step_decay),
        "averaging": averaging,
        "warmup": checks.check_not_negative("warmup", warmup)}
    self._warned: set[str] = set()
    # The batch of this epoch after which the last M step ran.
    self._last_batch = -1
    # Whether M steps may be part of the graph of the training steps.
    self._is_in_graph = False

  def set_model(self, model: tf.keras.Model) -> None:
    """Finds the bias layers and attaches them to the model, for saving."""
    super().set_model(model)
    losses = base.learning_losses(model.loss)
    found = list(dict.fromkeys(loss.position_bias for loss in losses))
    own = found if self.position_bias is None else [self.position_bias]
    if not own:
      raise ValueError(
          "`PropensityEM` needs a model compiled with a loss that learns "
          "propensities, such as `ultra_tfr.losses.UnbiasedPairwiseLoss`, but "
          f"its loss is {model.loss!r}; if the model calls such a loss in a "
          "`train_step` of its own, give `PropensityEM` the loss's layer.")
    if found and own[0] not in found:
      raise ValueError(
          f"The bias layer {own[0].name!r} given to `PropensityEM` is not that "
          f"of the model's loss, {found[0].name!r}: its estimates would change "
          "nothing. Give both the same object.")
    self._check_strategy(own)
    # All layers that learn are attached to the model, also those of another
    # callback of this `fit`: otherwise checkpoints and saved models lack them.
    given = [other.position_bias
             for other in keras_guards.callbacks_of_fit(model)
             if isinstance(other, PropensityEM) and other.position_bias]
    together = list(dict.fromkeys([*found, *given, *own]))
    if len({layer.name for layer in together}) < len(together):
      raise ValueError(
          f"The model has {len(together)} bias layers with the names "
          f"{', '.join(layer.name for layer in together)}, by which logs tell "
          "them apart; give each a `name` of its own.")
    keras_guards.attach(model, together)
    self._updates = []
    for layer in own:
      users = [loss for loss in losses if loss.position_bias is layer]
      self._updates.append(_Updates(
          layer, self._rule, f"{layer.name}_" if len(together) > 1 else "",
          not users or any(loss.has_weights for loss in users)))
      if layer.is_collecting and keras_guards.running_fits(model) == 1:
        # An earlier `fit` was interrupted within a step and left the gate open,
        # so the sums may hold anything.
        layer.stop_collecting()
        layer.take_sums()

  def _check_strategy(self, layers):
    """Raises a `ValueError` if layers do not fit the model's strategy."""
    strategy = self.model.distribute_strategy
    # Keras would refuse this strategy, too, but without naming a remedy.
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
      raise ValueError(
          f"`{type(self).__name__}` needs all workers to train in step, and "
          "those of `ParameterServerStrategy` do not; use "
          "`MirroredStrategy` or `MultiWorkerMirroredStrategy`.")
    for layer in layers:
      if not strategy.extended.variable_created_in_scope(layer.num_updates):
        raise ValueError(
            f"The layer {layer.name!r} was created outside of the scope of the "
            "model's distribution strategy; create it inside "
            "`with strategy.scope():`, as the model.")

  def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
    """Checks a restored checkpoint, and learns from sums that it left pending.
    """
    del logs
    keras_guards.refuse_class_weight(self.model)
    # By a step of a `fit` around this one, or one that was interrupted.
    keras_guards.forget_train_once(self.model)
    self._is_in_graph = (self._update_every == 1 and
                         keras_guards.running_fits(self.model) > 0)
    for updates in self._updates:
      missing = updates.layer.not_restored()
      if missing and not self._partial_restore:
        raise ValueError(
            f"The checkpoint that was restored lacks {', '.join(missing)} of "
            f"the layer {updates.layer.name!r}; restore one of the same kind "
            "of trust bias, or let them start anew with "
            "`PropensityEM(partial_restore=True)`.")
      updates.begin()
    self._build_optimizer()
    restorers = [other for other in keras_guards.callbacks_of_fit(self.model)
                 if getattr(other, "restore_best_weights", False)]
    if restorers:
      keras_guards.call_last(self.model, _FollowBestWeights(
          [updates.layer for updates in self._updates], restorers))

  def _build_optimizer(self):
    """Makes the optimizer's variables.

    Keras makes them in the first step, and traces the step again for that: with
    a large loss each `fit` would begin with seconds of waiting for nothing.
    """
    model = self.model
    # A step of the user's own may train other variables than the model's.
    steps_as_keras = getattr(
        model.train_step, "__func__", None) is tf.keras.Model.train_step
    # Optimizers of `tf.keras.optimizers.legacy` have no `build`.
    if steps_as_keras and model.built and hasattr(model.optimizer, "build"):
      with model.distribute_strategy.scope():
        model.optimizer.build(model.trainable_variables)

  def on_train_end(self, logs: Optional[dict[str, Any]] = None) -> None:
    """Opens the gate again if a training step of an outer `fit` goes on."""
    del logs
    for updates in self._updates:
      if updates.is_within_step:
        updates.layer.start_collecting()

  def on_epoch_begin(self, epoch: int,
                     logs: Optional[dict[str, Any]] = None) -> None:
    """Remembers where the epoch starts, after any backup was restored."""
    del epoch, logs
    self._last_batch = -1
    for updates in self._updates:
      updates.epoch_start = updates.layer.tables()

  def on_train_batch_begin(self, batch: int,
                           logs: Optional[dict[str, Any]] = None) -> None:
    """Opens the gate for the training step alone, or has the step do it all."""
    del batch, logs
    train = self.model.train_function if self._is_in_graph else None
    if not isinstance(train, tf.types.experimental.GenericFunction):
      for updates in self._updates:
        updates.layer.start_collecting()
      return
    for updates in self._updates:
      updates.layer.mark_collecting(True)
    train_and_update = base.with_m_steps(
        train, [updates.layer for updates in self._updates], self._rule)

    def step(iterator):
      result, counters = train_and_update(iterator)
      for updates, new in zip(self._updates, counters):
        updates.layer.mark_collecting(False)
        updates.count(new)
      return result

    keras_guards.train_once_by(self.model, step)

  def on_train_batch_end(self, batch: int,
                         logs: Optional[dict[str, Any]] = None) -> None:
    """Closes the gate, and runs the M step, unless the step has done so."""
    del logs
    open_ones = [updates for updates in self._updates
                 if updates.layer.is_collecting]
    for updates in open_ones:
      updates.layer.stop_collecting()
    if open_ones and batch - self._last_batch >= self._update_every:
      self._last_batch = batch
      for updates in open_ones:
        updates.update()

  def on_epoch_end(self, epoch: int,
                   logs: Optional[dict[str, Any]] = None) -> None:
    """Puts the propensities of the epoch into the logs."""
    del epoch
    for updates in self._updates:
      found, problems = updates.end_epoch()
      if logs is not None:
        logs.update(found)
      for problem in problems:
        self._warn_once(updates.layer, problem)
    if logs is not None and not np.isfinite(logs.get("loss", 0.0)):
      self._tell_divergence()

  def _tell_divergence(self):
    """Warns if weights of the model, and not just a loss, are not finite."""
    if not all(np.all(np.isfinite(weight.numpy()))
               for weight in self.model.trainable_weights):
      self._warn_once(None, (
          "The training diverged: weights of the model are no numbers any "
          "more, and neither will its scores be; lower the learning rate, or "
          "clip gradients (`clipnorm` of the optimizer)."))

  def _warn_once(self, layer, message):
    key = layer, message.split("(")[0]
    if key not in self._warned:
      self._warned.add(key)
      warnings.warn(message, stacklevel=3)


class _Updates:
  """Runs the M steps of one layer, and reports on each epoch of them.

  Args:
    layer: a `base.LearningLayer`.
    rule: the arguments of its `update`.
    prefix: of the names in logs.
    has_weights: whether its losses have weights, of which some may be clipped.
  """

  def __init__(self, layer, rule, prefix, has_weights):
    self.layer = layer
    self.epoch_start = {}
    # Whether a step of a `fit` around this one is under way.
    self.is_within_step = False
    self._rule, self._prefix, self._has_weights = rule, prefix, has_weights
    # The epoch's counters, on the device: sums, largest values, and those of
    # the last M steps, since to add them one by one would cost more.
    self._totals = self._largest = _no_counters()
    self._last = []

  def begin(self):
    """Learns from sums that are pending, such as those of a checkpoint."""
    self._totals = self._largest = _no_counters()
    self._last = []
    self.is_within_step = self.layer.is_collecting
    self._update_pending()
    self.layer.is_updated_by_em = True

  def update(self):
    """The M step."""
    self.count(self.layer.update(**self._rule))

  def _update_pending(self):
    """The M step on what is left, if anything is: it has to be compiled."""
    self.layer.stop_collecting()
    if self.layer.has_sums():
      self.update()

  def count(self, counters):
    """Keeps what `update` of the layer returned."""
    self._last.append(counters)
    if len(self._last) >= _MANY:
      self._add_up()

  def _add_up(self):
    """Takes the counters of the last M steps into those of the epoch."""
    last = tf.stack([*self._last, _no_counters()])
    self._last = []
    self._totals += tf.reduce_sum(last, axis=0)
    self._largest = tf.maximum(self._largest, tf.reduce_max(last, axis=0))

  def end_epoch(self):
    """The last M step of an epoch.

    Returns:
      A tuple of a dict for the logs and the sentences of `_problems`.
    """
    # A data set that ends within an execution of several steps leaves the gate
    # open and sums pending.
    self._update_pending()
    self._add_up()
    totals, largest = self._totals.numpy(), self._largest.numpy()
    self._totals = self._largest = _no_counters()
    tables, logs = self.layer.tables(), dict(self.layer.scalars())
    for name, curves in self.layer.curves().items():
      logs.update(_by_position(name, curves))
      logs[f"{name}_change"] = float(
          abs(tables[name] - self.epoch_start[name]).max())
    if self._has_weights:
      kept, cut = totals[base.WEIGHT], totals[base.CLIPPED]
      logs["weight_clipped"] = float(cut / max(kept + cut, 1e-12))
    logs["batches_skipped"] = float(totals[base.SKIPPED])
    return ({self._prefix + name: value for name, value in logs.items()},
            self._problems(totals, int(largest[base.OVERFLOW])))

  def _problems(self, totals, beyond):
    """Sentences on what was wrong with the batches of an epoch.

    Args:
      totals: its counters.
      beyond: items outside of the tables, in the batch with the most of them.

    Yields:
      Strings.

    Raises:
      ValueError: if items are outside of the tables, where that is an error.
    """
    if totals[base.SKIPPED]:
      yield (
          "Batches whose loss or sums are not finite are left out of the "
          f"estimates of {self.layer.name!r} ({totals[base.SKIPPED]:g} in this "
          "epoch); check features, weights and the learning rate.")
    elif not totals[base.BATCHES]:
      yield (
          f"No batch of this epoch reached the bias layer {self.layer.name!r}: "
          "no loss that was called in a training step uses it; give it to the "
          "loss of the training step.")
    if totals[base.BATCHES] and not totals[base.PAIRS]:
      yield (
          "No list of this epoch had feedback to learn from, such as two items "
          "with different feedback; check the feedback, and that lists have "
          "more than one item.")
    if not beyond:
      return
    tables = f"{self.layer.num_positions} positions"
    if self.layer.num_contexts > 1:
      tables += f" and {self.layer.num_contexts} contexts"
    if self.layer.overflow == "error":
      raise ValueError(
          f"{beyond} items of one batch are outside of the bias layer's "
          f"{tables}; raise `num_positions` or `num_contexts`, or choose "
          "`overflow='mask'` or `'pool'`.")
    yield (
        f"Items outside of the bias layer's {tables} are left out ({beyond} in "
        "one batch); raise `num_positions` or `num_contexts`, or choose "
        "`overflow='pool'`.")


class _FollowBestWeights(tf.keras.callbacks.Callback):
  """Takes layers back to the epoch whose weights another callback restores.

  `EarlyStopping(restore_best_weights=True)` knows the model's own weights only:
  the ranker would be that of the best epoch, its propensities of the last.

  Args:
    layers: a list of `base.LearningLayer`.
    restorers: callbacks with `best_weights` and `best_epoch`.
  """

  def __init__(self, layers, restorers):
    super().__init__()
    self._layers, self._restorers = layers, restorers
    self._values = {}

  def on_epoch_end(self, epoch, logs=None):
    """Keeps the values of this epoch, and of those that may be the best."""
    del logs
    self._values[epoch] = [layer.get_weights() for layer in self._layers]
    first = min(restorer.best_epoch for restorer in self._restorers)
    self._values = {
        kept: values for kept, values in self._values.items() if kept >= first}

  def on_train_end(self, logs=None):
    """Follows the callback that has restored its best weights."""
    del logs
    for restorer in self._restorers:
      values = self._values.get(restorer.best_epoch)
      if values and restorer.best_weights is not None and all(map(
          np.array_equal, self.model.get_weights(), restorer.best_weights)):
        for layer, value in zip(self._layers, values):
          layer.set_weights(value)


# The name that 0.1.0 had for the callback of the baselines.
PositionUpdates = PropensityEM


def _no_counters():
  """Counters as `LearningLayer.update` returns them."""
  return tf.zeros([base.NUM_COUNTERS + 1])


def _by_position(name, tables):
  """Log entries of a `[C, K]` table."""
  prefix = name if len(tables) == 1 else f"{name}_context_{{}}"
  return {f"{prefix.format(context)}_{rank}": float(value)
          for context, row in enumerate(tables)
          for rank, value in enumerate(row, start=1)}
