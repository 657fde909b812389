"""The callback of all that learns: when it moves, and by how much."""

from typing import Any
from typing import Literal
from typing import Optional
import warnings

import numpy as np
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr import keras_guards

_AVERAGING = ("statistics", "parameters")


class PropensityEM(tf.keras.callbacks.Callback):
  """Rewrites the propensities after each training batch.

  The loss has added the sums of its E step to accumulators of the bias layer;
  this callback runs the M step on them, so bias estimation and training share
  one `fit`. Validation, inside `fit` or not, never reaches the estimates, nor
  does a training step that was interrupted. It serves every loss whose layer
  learns so, those of `ultra_tfr.baselines` too.

  The M step is one compiled call, and nothing is read from the device before
  the end of an epoch. With `steps_per_execution=n` of the model, or
  `update_every=n`, it runs after n batches: the E step of each of them sees
  tables that are up to n batches old, and the M step goes as far as n smaller
  ones would together.

  At the end of each epoch the logs, and so `History` and TensorBoard, get the
  curves of the layer, as `examination_1` .. `examination_K` (relative to
  position 1), with `examination_change` (the largest change of theta in the
  epoch), the share of each hypothesis about the users if there are several
  (`hypothesis_trust` and so on), for a loss with weights `weight_clipped`
  (the share of them that `max_weight` took away), and `batches_skipped`: those
  whose loss or sums were not finite. They are left out of the estimates, with
  one warning; what becomes of the model is up to the optimizer, as with any
  loss. (Of replicas only those with such values are left out, so there may be
  parts of a batch.) A loss that hardly falls
  while these still move is no failure: the loss moves with the propensities.
  Watch these and a ranking metric instead.

  Args:
    position_bias: the bias layer of the loss; by default it is found in
      `model.loss`.
    step_size: alpha_0 of the step size alpha_0 (1 + t)^-step_decay, equation
      (20).
    step_decay: its exponent.
    averaging: `"statistics"` averages the sums and divides afterwards;
      `"parameters"` moves each parameter towards the estimate of the last
      batch, as the paper does.
    warmup: batches over which a click-rate start is gathered.
    update_every: batches between M steps; the end of an epoch brings one, too.
    partial_restore: whether parameters that a restored checkpoint lacks, such
      as those of trust bias, keep their starting values; else it is an error.

  Raises:
    ValueError: if an argument is out of range, or the bias layer is not that
      of the model's loss, or was created outside of the strategy's scope, or
      the strategy is a `ParameterServerStrategy`.

  Without `fit` a loop does the same (examples/custom_loop.py):

      for features, feedback in batches:
        bias.start_collecting()  # The gate: the loss's E step counts.
        train_step(features, feedback)
        bias.stop_collecting()  # Evaluation must not.
        bias.update()  # The M step; arguments as here.

  Its checkpoint is `tf.train.Checkpoint(model=model, optimizer=optimizer,
  position_bias=bias)`.
  """

  def __init__(self, position_bias: Optional[base.LearningLayer] = None, *,
               step_size: float = 0.05, step_decay: float = 0.05,
               averaging: Literal["statistics", "parameters"] = "statistics",
               warmup: int = 20, update_every: int = 1,
               partial_restore: bool = False):
    super().__init__()
    checks.check_choice("averaging", averaging, _AVERAGING)
    self._update_every = checks.check_count("update_every", update_every)
    if position_bias is not None:
      checks.check_instance("position_bias", position_bias, base.LearningLayer,
                            "pass that of the loss, or leave it out")
    self._given, self._partial_restore = position_bias, partial_restore
    self._bias: Any = None
    self._has_weights = False
    self._rule = {
        "step_size": checks.check_share("step_size", step_size),
        "step_decay": checks.check_not_negative("step_decay", step_decay),
        "averaging": averaging,
        "warmup": checks.check_not_negative("warmup", warmup)}
    self._warned: set[str] = set()
    # Of the epoch, on the device: the counters' sums, and their largest values.
    self._totals, self._largest = _no_counters(), _no_counters()
    # The last batch of the epoch that was learned from.
    self._last_batch = -1
    self._is_within_step = False

  def set_model(self, model: tf.keras.Model) -> None:
    """Finds the bias layer and attaches it to the model, for saving."""
    super().set_model(model)
    losses = [loss for loss in tf.nest.flatten(model.loss)
              if isinstance(loss, base.LearningLoss)]
    found = [loss.position_bias for loss in losses]
    if not found:
      raise ValueError(
          "`PropensityEM` needs a model compiled with a loss that learns "
          "propensities, such as `ultra_tfr.losses.UnbiasedPairwiseLoss`, but "
          f"its loss is {model.loss!r}.")
    bias = found[0] if self._given is None else self._given
    if not any(bias is candidate for candidate in found):
      raise ValueError(
          f"The bias layer {bias.name!r} given to `PropensityEM` is not that "
          f"of the model's loss, {found[0].name!r}: its estimates would change "
          "nothing. Give both the same object.")
    self._has_weights = any(loss.has_weights for loss in losses)
    self._attach(bias)
    # Otherwise no checkpoint and no saved model would hold what is learned, be
    # it by this callback or by another one.
    keras_guards.attach(self.model, list(dict.fromkeys(found)))
    if bias.is_collecting and keras_guards.running_fits(self.model) == 1:
      # A `fit` before this one was interrupted within a step, and who knows
      # what came through the gate since.
      bias.stop_collecting()
      bias.take_sums()

  def _attach(self, layer):
    """Takes a loss's layer, if it fits the model's strategy."""
    strategy = self.model.distribute_strategy
    # Without this Keras would refuse a few lines later, without a remedy.
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
      raise ValueError(
          f"`{type(self).__name__}` needs all workers to train in step, and "
          "those of `ParameterServerStrategy` do not; use "
          "`MirroredStrategy` or `MultiWorkerMirroredStrategy`.")
    if not strategy.extended.variable_created_in_scope(layer.num_updates):
      raise ValueError(
          f"The layer {layer.name!r} was created outside of the scope of the "
          "model's distribution strategy; create it inside "
          "`with strategy.scope():`, as the model.")
    self._bias = layer

  def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
    """Applies what a restored checkpoint left pending."""
    del logs
    keras_guards.refuse_class_weight(self.model)
    missing = self._bias.not_restored()
    if missing and not self._partial_restore:
      raise ValueError(
          f"The checkpoint that was restored lacks {', '.join(missing)} of the "
          f"layer {self._bias.name!r}; restore one of the same kind of trust "
          "bias, or let them start anew with "
          "`PropensityEM(partial_restore=True)`.")
    self._totals, self._largest = _no_counters(), _no_counters()
    # A step of a `fit` around this one, in which it was called.
    self._is_within_step = self._bias.is_collecting
    self._bias.stop_collecting()
    self._update()
    self._bias.is_updated_by_em = True

  def on_train_end(self, logs: Optional[dict[str, Any]] = None) -> None:
    """Lets a training step go on in which this `fit` was called."""
    del logs
    if self._is_within_step:
      self._bias.start_collecting()

  def on_epoch_begin(self, epoch: int,
                     logs: Optional[dict[str, Any]] = None) -> None:
    """Remembers where the epoch starts, after any backup was restored."""
    del epoch, logs
    self._last_batch = -1
    self._epoch_start = self._bias.tables()

  def on_train_batch_begin(self, batch: int,
                           logs: Optional[dict[str, Any]] = None) -> None:
    """Opens the gate, for training steps alone."""
    del batch, logs
    self._bias.start_collecting()

  def on_train_batch_end(self, batch: int,
                         logs: Optional[dict[str, Any]] = None) -> None:
    """Closes the gate, since any callback may evaluate now; the M step."""
    del logs
    self._bias.stop_collecting()
    if batch - self._last_batch >= self._update_every:
      self._last_batch = batch
      self._update()

  def on_epoch_end(self, epoch: int,
                   logs: Optional[dict[str, Any]] = None) -> None:
    """Puts the propensities of the epoch into the logs."""
    del epoch
    # A data set that ends within an execution leaves the gate open, and sums.
    self._bias.stop_collecting()
    self._update()
    totals, largest = self._totals.numpy(), self._largest.numpy()
    self._totals, self._largest = _no_counters(), _no_counters()
    if logs is not None:
      tables = self._bias.tables()
      for name, curves in self._bias.curves().items():
        logs.update(_by_position(name, curves))
        logs[f"{name}_change"] = float(
            abs(tables[name] - self._epoch_start[name]).max())
      logs.update(self._bias.scalars())
      if self._has_weights:
        kept, cut = totals[base.WEIGHT], totals[base.CLIPPED]
        logs["weight_clipped"] = float(cut / max(kept + cut, 1e-12))
      logs["batches_skipped"] = float(totals[base.SKIPPED])
      if not np.isfinite(logs.get("loss", 0.0)):
        self._tell_divergence()
    self._tell(totals, int(largest[base.OVERFLOW]))

  def _tell_divergence(self):
    """Warns if it is not just a batch that the loss was no number of."""
    if not all(np.all(np.isfinite(weight.numpy()))
               for weight in self.model.trainable_weights):
      self._warn_once(
          "The training diverged: weights of the model are no numbers any "
          "more, and neither will its scores be; lower the learning rate, or "
          "clip gradients (`clipnorm` of the optimizer).")

  def _update(self):
    counters = self._bias.update(**self._rule)
    self._totals += counters
    self._largest = tf.maximum(self._largest, counters)

  def _tell(self, totals, beyond):
    """Says what was wrong in an epoch.

    Args:
      totals: its counters.
      beyond: items outside of the tables, in the batch with the most of them.
    """
    if totals[base.SKIPPED]:
      self._warn_once(
          "Batches whose loss or sums are not finite are left out of the "
          f"estimates of {self._bias.name!r} ({totals[base.SKIPPED]:g} in this "
          "epoch); check features, weights and the learning rate.")
    if totals[base.BATCHES] and not totals[base.PAIRS]:
      self._warn_once(
          "No list of this epoch had feedback to learn from, such as two items "
          "with different feedback; check the feedback, and that lists have "
          "more than one item.")
    if not beyond:
      return
    tables = f"{self._bias.num_positions} positions"
    if self._bias.num_contexts > 1:
      tables += f" and {self._bias.num_contexts} contexts"
    if self._bias.overflow == "error":
      raise ValueError(
          f"{beyond} items of one batch are outside of the bias layer's "
          f"{tables}; raise `num_positions` or `num_contexts`, or choose "
          "`overflow='mask'` or `'pool'`.")
    self._warn_once(
        f"Items outside of the bias layer's {tables} are left out ({beyond} in "
        "one batch); raise `num_positions` or `num_contexts`, or choose "
        "`overflow='pool'`.")

  def _warn_once(self, message):
    key = message.split("(")[0]
    if key not in self._warned:
      self._warned.add(key)
      warnings.warn(message, stacklevel=3)


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
