"""The callback that moves the tables by position of a `PositionLoss`."""

import numpy as np
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import callbacks
from ultra_tfr import keras_guards
from ultra_tfr.position_losses import PositionLoss


class PositionUpdates(callbacks.PropensityEM):
  """Moves a loss's tables by position after each training batch.

  What `PropensityEM` is to a `PositionBias`: the loss has added sums of the
  training step to accumulators of its layer, and this callback takes a step on
  them. Validation, inside `fit` or not, never reaches the tables.

  At the end of each epoch the logs get the layer's curves, such as
  `examination_1` .. `examination_K`, with `.._change`, the largest change in
  the epoch; and for a loss with weights `weight_clipped`, the share of the
  weight that `max_weight` took away.

  Args:
    step_size: alpha_0 of the step size alpha_0 (1 + t)^-step_decay, the share
      of a full step that is taken.
    step_decay: its exponent.

  Raises:
    ValueError: if an argument is out of range, the model has no such loss, or
      the layer was created outside of the strategy's scope.
  """

  def __init__(self, *, step_size=0.05, step_decay=0.05):
    super().__init__(step_size=step_size, step_decay=step_decay)
    self._rule = {"step_size": step_size, "step_decay": step_decay}

  def set_model(self, model):
    """Finds the loss's layer and attaches it to the model, for saving."""
    # Not that of `PropensityEM`, which looks for its own kind of loss.
    tf.keras.callbacks.Callback.set_model(self, model)
    found = [loss.position_bias for loss in tf.nest.flatten(model.loss)
             if isinstance(loss, PositionLoss)]
    if not found:
      raise ValueError(
          "`PositionUpdates` needs a model compiled with a loss that has "
          "tables by position, such as "
          "`ultra_tfr.baselines.dual_learning.DualLearningLoss`, "
          f"but its loss is {model.loss!r}.")
    self._attach(found[0])

  def on_train_begin(self, logs=None):
    """Applies what a restored checkpoint left pending."""
    del logs
    keras_guards.refuse_class_weight()
    self._totals = np.zeros(base.NUM_COUNTERS)
    self._update()
    self._bias.is_updated_by_em = True

  def on_epoch_begin(self, epoch, logs=None):
    """Remembers where the epoch starts."""
    del epoch, logs
    self._epoch_start = self._bias.curves()

  def on_epoch_end(self, epoch, logs=None):
    """Puts the curves of the epoch into the logs."""
    del epoch
    curves, totals = self._bias.curves(), self._totals
    entries = {}
    for name, tables in curves.items():
      entries.update(_by_position(name, tables))
      entries[f"{name}_change"] = float(
          abs(tables - self._epoch_start[name]).max())
    whole = totals[base.WEIGHT] + totals[base.CLIPPED]
    if whole:
      entries["weight_clipped"] = float(totals[base.CLIPPED] / whole)
    if logs is not None:
      logs.update(entries)
    if totals[base.BATCHES] and not totals[base.PAIRS]:
      self._warn_once(
          "No list of this epoch had feedback to learn from; check the "
          "feedback, and that lists have more than one item.")
    self._totals = np.zeros(base.NUM_COUNTERS)


def _by_position(name, tables):
  """Log entries of a `[C, K]` table."""
  prefix = name if len(tables) == 1 else f"{name}_context_{{}}"
  return {f"{prefix.format(context)}_{rank}": float(value)
          for context, row in enumerate(tables)
          for rank, value in enumerate(row, start=1)}
