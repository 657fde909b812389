"""Pairwise debiasing: ratios t+ and t- by position (Hu et al., WWW 2019).

    loss   sum_{a, b: c_a > c_b} L_ab / (t+_i t-_j)
    t+_i = (S+_i / S+_1)^(1 / (1 + p)),   S+_i = sum_{c_a > c_b} L_ab / t-_j
    t-_j = (S-_j / S-_1)^(1 / (1 + p)),   S-_j = sum_{c_a > c_b} L_ab / t+_i

with a at position i, b at position j, and p >= 0 a regularisation.
"""

import tensorflow as tf

from ultra_tfr.core import masking

# The columns of the sums: S+ of the preferred items' positions, S- of the
# others'.
CLICKED, UNCLICKED = range(2)
NUM_SUMS = 2


def pair_weights(clicked_ratio, unclicked_ratio):
  """1 / (t+_i t-_j).

  Args:
    clicked_ratio: `[B, L]`, t+ of each item's position.
    unclicked_ratio: `[B, L]`, t- of each item's position.

  Returns:
    `[B, L, L]`, meaningful where c_a > c_b.

  >>> pair_weights(tf.constant([[0.5, 1.0]]),
  ...              tf.constant([[1.0, 0.25]])).numpy()[0, 0, 1]
  8.0
  """
  first = 1.0 / masking.floor_probability(clicked_ratio)
  second = 1.0 / masking.floor_probability(unclicked_ratio)
  return first[:, :, tf.newaxis] * second[:, tf.newaxis, :]


def ratio_sums(pair_losses, clicked_ratio, unclicked_ratio, slots):
  """S+ and S- by position, over all pairs of the batch.

  Args:
    pair_losses: `[B, L, L]`, L_ab times the weight of a, 0 for pairs that do
      not count.
    clicked_ratio: `[B, L]`, t+ of each item's position.
    unclicked_ratio: `[B, L]`, t- of each item's position.
    slots: `positions.Slots` of the items.

  Returns:
    `[C * K, 2]`.

  >>> from ultra_tfr.core import positions
  >>> sums = ratio_sums(
  ...     tf.constant([[[0.0, 0.5, 0.25], [0.0] * 3, [0.0] * 3]]),
  ...     tf.ones([1, 3]), tf.ones([1, 3]),
  ...     positions.find_slots(tf.constant([[1.0, 2.0, 3.0]]), None, 3, 1))
  >>> sums.numpy().tolist()
  [[0.75, 0.0], [0.0, 0.5], [0.0, 0.25]]
  """
  first = 1.0 / masking.floor_probability(clicked_ratio)
  second = 1.0 / masking.floor_probability(unclicked_ratio)
  won = tf.einsum("bac,bc->ba", pair_losses, second)
  lost = tf.einsum("bac,ba->bc", pair_losses, first)
  return slots.sums(tf.stack([won, lost], axis=-1))


def ratios(sums, current, regularization, minimum, latest=None):
  """t = (S / S_1)^(1 / (1 + p)), clipped to `minimum` and its inverse.

  Args:
    sums: `[C, K]`, S+ or S-, averaged.
    current: `[C, K]`, kept by positions without a pair, and by all positions
      of a context while the first of them has none.
    regularization: p >= 0.
    minimum: the floor of t; its inverse is the ceiling.
    latest: `[C, K]`, the sums of the latest batches alone; None if that is what
      `sums` are. While the first position gets nothing new, its average fades,
      and ratios to it would grow without end: so no ratio of the context moves.

  Returns:
    `[C, K]`.

  >>> ratios(tf.constant([[4.0, 1.0, 0.0]]), tf.ones([1, 3]), 1.0,
  ...        1e-3).numpy().tolist()
  [[1.0, 0.5, 1.0]]
  """
  first = sums[:, :1] + tf.zeros_like(sums)
  is_seen = (sums if latest is None else latest)[:, :1] > 0
  relative = masking.safe_ratio(sums, first, tf.ones_like(sums))
  new = tf.clip_by_value(
      tf.pow(relative, 1.0 / (1.0 + regularization)), minimum, 1.0 / minimum)
  return tf.where(is_seen & (sums > 0) & (first > 0), new, current)
