"""Base of layers with tables by position that move after each batch."""

import warnings

import numpy as np
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr.core import em


class PositionTables(base.EMLayer):
  """Tables by position that belong to a loss, and not to the model.

  They learn beside the model as a `PositionBias` does: the loss adds sums of
  each training step to an accumulator, and a callback,
  `ultra_tfr.position_updates.PositionUpdates`, moves the tables after each
  batch. So no optimizer has to know them, and they are saved with the model.

  Args:
    num_positions: K, the positions of a table.
    num_contexts: C, one table for each context id of the packed feedback.
    overflow: positions beyond K: `"mask"` leaves those items out, `"pool"` lets
      them share the last position, `"error"` makes the callback raise.
    tables: the starting value of each table by its name, an attribute of the
      layer: a variable `[C, K]`.
    num_sums: columns of the sums that a training step adds.
    is_averaged: keep running means of the sums, `averages` `[C * K, num_sums]`.
    name: the layer's name.

  Raises:
    ValueError: if an argument is out of range.
  """

  def __init__(self, num_positions, num_contexts, overflow, tables, num_sums,
               name, is_averaged=False):
    super().__init__(name, num_positions, num_contexts, overflow)
    for table, value in tables.items():
      setattr(self, table, self._parameter(
          table, np.full([num_contexts, num_positions], value)))
    shapes = {"tables": (num_contexts * num_positions, num_sums),
              "counters": (base.NUM_COUNTERS,)}
    self._create_sums(shapes, {"tables"} if is_averaged else set())

  def update(self, step_size=0.05, step_decay=0.05):
    """Moves the tables by what was collected since the last time.

    Args:
      step_size: alpha_0 of the step size alpha_0 (1 + t)^-step_decay.
      step_decay: its exponent.

    Returns:
      The counters as a numpy array, or None if no batch was collected.
    """
    sums = self.take_sums()
    counters = sums["counters"].numpy()
    num_batches = sums["counters"][base.BATCHES]
    if num_batches < 0.5:
      return None
    step = tf.convert_to_tensor(self.num_updates)
    rate = em.compound_step(
        em.step_size(step, step_size, step_decay), num_batches)
    self._move(sums["tables"], num_batches, rate)
    self.num_updates.assign(step + num_batches)
    return counters

  def _move(self, sums, num_batches, rate):
    """Assigns new values to the tables.

    Args:
      sums: `[C * K, num_sums]`.
      num_batches: how many batches they are of.
      rate: the share of a full step to take.
    """
    raise NotImplementedError

  def _by_position(self, column):
    """`[C * K]` as `[C, K]`."""
    return tf.reshape(column, [self.num_contexts, self.num_positions])

  def curves(self):
    """What to watch: a dict of `[C, K]` numpy arrays by name."""
    raise NotImplementedError

  def _learned(self, values):
    """`[C, K]` values for users: `[K]` if there is but one context."""
    if self.num_updates.numpy() == 0:
      warnings.warn(
          f"These values of {self.name!r} are where it starts: nothing has "
          "moved them. Pass `ultra_tfr.position_updates.PositionUpdates()` to "
          "`fit`.", stacklevel=3)
    return values[0] if self.num_contexts == 1 else values

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {"name": self.name, "num_positions": self.num_positions,
            "num_contexts": self.num_contexts, "overflow": self.overflow}

  @classmethod
  def from_config(cls, config):
    """Builds a layer with the same arguments; learned values are not in it."""
    return cls(**config)
