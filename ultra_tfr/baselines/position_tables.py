"""The layer of the losses that learn tables by display position."""

from typing import Any
from typing import Literal
import warnings

import numpy as np
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr.core import em


class PositionTables(base.LearningLayer):
  """Tables by position that a loss learns, such as a baseline's.

  They are not the model's, so no optimizer trains them, but they are saved
  with it.

  Args:
    num_positions: K, the positions of a table.
    num_contexts: C, one table for each context id of the packed feedback.
    overflow: positions beyond K: `"mask"` leaves those items out, `"pool"` lets
      them share the last position, `"error"` raises when the epoch ends.
    tables: the starting value of each table by its name. The layer has a
      variable `[C, K]` of that name as an attribute.
    num_sums: columns of the sums that a training step adds.
    name: the layer's name.
    is_averaged: keep running means of the sums, `[C * K, num_sums]`.

  Raises:
    ValueError: if an argument is out of range.
  """

  def __init__(self, num_positions: int, num_contexts: int,
               overflow: Literal["mask", "pool", "error"],
               tables: dict[str, float], num_sums: int, name: str,
               is_averaged: bool = False):
    super().__init__(name, num_positions, num_contexts, overflow)
    self._tables = tuple(tables)
    for table, value in tables.items():
      setattr(self, table, self._parameter(
          table, np.full([self.num_contexts, self.num_positions], value)))
    shapes = {"tables": (self.num_contexts * self.num_positions, num_sums),
              "counters": (base.NUM_COUNTERS,)}
    self._create_sums(shapes, {"tables"} if is_averaged else set())

  def _learned_variables(self):
    return {name: getattr(self, name) for name in self._tables}

  def _move(self, sums, steps):
    if steps.averaging != "statistics":
      raise ValueError(
          f"`averaging` must be 'statistics' for the layer {self.name!r}, but "
          f"is {steps.averaging!r}; leave it out.")
    num_batches = sums["counters"][base.BATCHES]
    step = tf.convert_to_tensor(self.num_updates)
    rate = em.compound_step(
        em.step_size(step, steps.step_size, steps.step_decay), num_batches)
    return [*self._move_tables(sums["tables"], num_batches, rate),
            (self.num_updates, step + num_batches)]

  def _move_tables(self, sums, num_batches, rate):
    """New values of the tables.

    Args:
      sums: `[C * K, num_sums]`.
      num_batches: how many batches they add up.
      rate: the share of a full step to take.

    Returns:
      Pairs of a variable and its value.
    """
    raise NotImplementedError

  def _by_position(self, column):
    """`[C * K]` as `[C, K]`."""
    return tf.reshape(column, [self.num_contexts, self.num_positions])

  def _learned(self, values):
    """`[C, K]` values for users: `[K]` if there is a single context.

    Warns if nothing has been learned yet.
    """
    if self.num_updates.numpy() == 0:
      warnings.warn(
          f"These values of {self.name!r} are where it starts: nothing has "
          "moved them. Pass `ultra_tfr.callbacks.PropensityEM()` to "
          "`fit`.", stacklevel=3)
    return values[0] if self.num_contexts == 1 else values

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {"name": self.name, "num_positions": self.num_positions,
            "num_contexts": self.num_contexts, "overflow": self.overflow}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds a layer with the same arguments; learned values are not in it."""
    return cls(**config)
