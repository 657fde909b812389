"""From display positions and context ids to rows of the bias tables.

The only place where a 1-based position becomes an index.
"""

from typing import NamedTuple

import tensorflow as tf


class Slots(NamedTuple):
  """Where each item of a batch finds its bias parameters.

  Attributes:
    index: `[B, L]` int32, `context * num_positions + position - 1`, and 0 where
      `valid` is false.
    valid: `[B, L]` booleans: position and context are inside the tables.
    overflow: `[B, L]` booleans: a real position beyond the table, or a context
      id outside it. Position 0, which means unknown, is no overflow.
    num_positions: K.
    num_contexts: C.
  """

  index: tf.Tensor
  valid: tf.Tensor
  overflow: tf.Tensor
  num_positions: int
  num_contexts: int

  def lookup(self, table):
    """Values of a `[C, K]` table for every item, `[B, L]`.

    No gradient reaches the table, whatever a loss does with its values.
    """
    return tf.gather(tf.reshape(tf.stop_gradient(table), [-1]), self.index)

  def sums(self, values):
    """Sums of item values by slot; items that are not valid count nowhere.

    It costs as much as there are items, however many slots there are.

    Args:
      values: `[B, L, ...]`.

    Returns:
      `[C * K, ...]`.
    """
    size = self.num_contexts * self.num_positions
    # Items that are not valid go to one more slot, since XLA and devices differ
    # in what they do with indexes out of range.
    index = tf.where(self.valid, self.index, size)
    return tf.math.unsorted_segment_sum(values, index, size + 1)[:size]

  def position_one_hot(self, dtype=tf.float32):
    """`[B, L, K]` indicator of each item's position; zeros where not valid."""
    index = tf.where(self.valid, self.index % self.num_positions, -1)
    return tf.one_hot(index, self.num_positions, dtype=dtype)

  def lookup_pairs(self, table):
    """Values of a `[C, K, K]` table for every ordered pair, `[B, L, L]`.

    The context is that of the first item of the pair; the two share a list.
    """
    table = tf.stop_gradient(table)
    size = self.num_contexts * self.num_positions
    rows = tf.gather(tf.reshape(table, [size, self.num_positions]), self.index)
    return tf.einsum("bak,bck->bac", rows, self.position_one_hot(table.dtype))


def find_slots(positions, contexts, num_positions, num_contexts, pool=False):
  """Turns positions and contexts into slots of the bias tables.

  Args:
    positions: `[B, L]` display positions, 1-based; 0 is unknown or padding.
    contexts: `[B, L]` context ids from 0, or None for a single context.
    num_positions: K, the positions of a table.
    num_contexts: C, the number of tables.
    pool: whether positions beyond K share the last slot. If not they are
      marked as overflow and are not valid.

  Returns:
    `Slots`.

  >>> slots = find_slots(tf.constant([[1.0, 3.0, 0.0, 9.0]]), None, 3, 1)
  >>> slots.index.numpy(), slots.valid.numpy(), slots.overflow.numpy()
  (array([[0, 2, 0, 0]], dtype=int32),
   array([[ True,  True, False, False]]),
   array([[False, False, False,  True]]))
  """
  # A NaN has no defined integer value: it becomes 0, unknown. Rounding undoes
  # what a float representation may have lost.
  finite = tf.math.is_finite(positions)
  ranks = tf.where(finite, positions, tf.zeros_like(positions))
  ranks = tf.cast(tf.round(tf.clip_by_value(ranks, -1.0, 2.0**24)), tf.int32)
  overflow = ranks > num_positions
  valid = ranks >= 1
  if pool:
    overflow = tf.zeros_like(overflow)
    ranks = tf.minimum(ranks, num_positions)
  if contexts is None:
    tables = tf.zeros_like(ranks)
  else:
    finite = tf.math.is_finite(contexts)
    tables = tf.where(finite, contexts, -tf.ones_like(contexts))
    tables = tf.cast(tf.round(tf.clip_by_value(tables, -1.0, 2.0**24)),
                     tf.int32)
    outside = tf.logical_or(tables < 0, tables >= num_contexts)
    overflow = tf.logical_or(overflow, tf.logical_and(valid, outside))
  valid = tf.logical_and(valid, tf.logical_not(overflow))
  index = tf.where(valid, tables * num_positions + ranks - 1, 0)
  return Slots(index, valid, overflow, num_positions, num_contexts)


def browsing_slots(slots, clicked, num_distances):
  """Splits the slot of each item by the distance to the last click above it.

  What users look at next depends on where they clicked before. The slot is
  known once the clicks are, and given the clicks above it the click on an item
  is independent of the rest.

  Args:
    slots: `Slots` by position.
    clicked: `[B, L]` booleans, c > 0.
    num_distances: D, rows for each position: the first one for items without a
      click above, one for each distance 1 .. D - 2, and the last one for all
      that are larger.

  Returns:
    `Slots` of tables `[C, K * D]`.

  Source: the user browsing model of Dupret & Piwowarski, SIGIR 2008.

  >>> slots = find_slots(tf.constant([[1.0, 2.0, 3.0]]), None, 3, 1)
  >>> browsing_slots(slots, tf.constant([[True, False, False]]), 3).index
  <tf.Tensor: shape=(1, 3), dtype=int32, numpy=array([[0, 4, 8]], dtype=int32)>
  """
  ranks = slots.index % slots.num_positions + 1
  clicks = tf.where(tf.logical_and(slots.valid, clicked), ranks, 0)
  is_above = clicks[:, tf.newaxis, :] < ranks[:, :, tf.newaxis]
  last = tf.reduce_max(
      tf.where(is_above, clicks[:, tf.newaxis, :], 0), axis=2)
  distance = tf.where(
      last > 0, tf.minimum(ranks - last, num_distances - 1), 0)
  return slots._replace(
      index=slots.index * num_distances + distance,
      num_positions=slots.num_positions * num_distances)
