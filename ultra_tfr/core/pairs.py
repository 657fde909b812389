"""Pairs of a list: which ones count, their loss, and display-order ranks."""

import math

import tensorflow as tf


def differences(values):
  """`values_a - values_b` for every ordered pair.

  Args:
    values: `[B, L]`.

  Returns:
    `[B, L, L]`.

  >>> differences(tf.constant([[3.0, 1.0]])).numpy()
  array([[[ 0.,  2.],
          [-2.,  0.]]], dtype=float32)
  """
  return values[:, :, tf.newaxis] - values[:, tf.newaxis, :]


def preferred(feedback, mask, min_gap=0.0):
  """Pairs (a, b) in which a got more feedback than b.

  Args:
    feedback: `[B, L]`, finite.
    mask: `[B, L]` booleans, the items that count.
    min_gap: differences up to this are ties.

  Returns:
    `[B, L, L]` booleans.

  >>> preferred(tf.constant([[0.8, 0.8001, 0.1]]), tf.constant([[True] * 3]),
  ...           min_gap=0.01).numpy().astype(int)
  array([[[0, 0, 1],
          [0, 0, 1],
          [0, 0, 0]]])
  """
  # What is no item wins against nothing, and nothing wins against it. So pairs
  # need no mask, which would be several more tensors of their size.
  infinite = tf.fill(tf.shape(feedback), tf.constant(math.inf, feedback.dtype))
  first = tf.where(mask, feedback, -infinite)[:, :, tf.newaxis]
  second = tf.where(mask, feedback, infinite)[:, tf.newaxis, :]
  return first - second > min_gap if min_gap else first > second


def logistic_loss(scores):
  """`log(1 + exp(-(s_a - s_b)))` for every ordered pair, without overflow.

  Args:
    scores: `[B, L]`.

  Returns:
    `[B, L, L]`.

  >>> logistic_loss(tf.constant([[0.0, 1000.0]])).numpy()
  array([[[6.931472e-01, 1.000000e+03],
          [0.000000e+00, 6.931472e-01]]], dtype=float32)
  """
  return tf.nn.softplus(differences(-scores))


def hinge_loss(scores):
  """`max(0, 1 - (s_a - s_b))` for every ordered pair.

  Args:
    scores: `[B, L]`.

  Returns:
    `[B, L, L]`.

  >>> hinge_loss(tf.constant([[0.25, 0.0]])).numpy()
  array([[[1.  , 0.75],
          [1.25, 1.  ]]], dtype=float32)
  """
  return tf.nn.relu(1.0 + differences(-scores))


def weighted_losses(weights, scores, pair_loss="logistic"):
  """`sum_b w_ab l(s_a - s_b)` of each item, l one of the two losses above.

  The gradient is written out: spread over the pairs of each item and added up
  again by both of them, as derived, it takes twice as many passes over tensors
  of pairs.

  Args:
    weights: `[B, L, L]`, to which no gradient flows.
    scores: `[B, L]`.
    pair_loss: `"logistic"` or `"hinge"`.

  Returns:
    `[B, L]`.

  >>> weighted_losses(tf.constant([[[0.0, 2.0], [0.0, 0.0]]]),
  ...                 tf.zeros([1, 2])).numpy()
  array([[1.3862944, 0.       ]], dtype=float32)
  """
  losses = {"logistic": logistic_loss, "hinge": hinge_loss}[pair_loss]

  @tf.custom_gradient
  def summed(scores):

    def gradient(upstream):
      behind = differences(-scores)
      slopes = weights * (
          tf.sigmoid(behind) if pair_loss == "logistic" else
          tf.cast(behind > -1.0, behind.dtype))
      received = tf.matmul(upstream[:, tf.newaxis, :], slopes)[:, 0, :]
      return received - upstream * tf.reduce_sum(slopes, axis=2)

    return tf.reduce_sum(weights * losses(scores), axis=2), gradient

  return summed(scores)


def ranks(scores, positions, mask):
  """1-based ranks by descending score, the same on every device.

  Ties go to the smaller display position and then to the smaller index, so
  the ranks move with the items when a list is permuted together with its
  positions. Items outside the mask rank behind all others. Ranks mean nothing
  in a list with a score that is NaN: see `unordered`.

  Args:
    scores: `[B, L]`.
    positions: `[B, L]` display positions, or what else decides ties.
    mask: `[B, L]` booleans.

  Returns:
    `[B, L]` int32 ranks, each of 1..L once.

  >>> ranks(tf.constant([[1.0, 2.0, 2.0]]), tf.constant([[1.0, 3.0, 2.0]]),
  ...       tf.constant([[True] * 3])).numpy()
  array([[3, 2, 1]], dtype=int32)
  """
  # Infinite scores tie, and are still ahead of what is no item.
  scores = tf.where(
      mask, tf.maximum(scores, scores.dtype.min),
      tf.fill(tf.shape(scores), tf.constant(-math.inf, scores.dtype)))
  index = tf.range(tf.shape(scores)[1])
  before = index[tf.newaxis, :] < index[:, tf.newaxis]
  gap = differences(positions)
  before = tf.logical_or(gap > 0, tf.logical_and(tf.equal(gap, 0), before))
  own, other = scores[:, :, tf.newaxis], scores[:, tf.newaxis, :]
  before = tf.logical_or(
      own < other, tf.logical_and(tf.equal(own, other), before))
  return 1 + tf.reduce_sum(tf.cast(before, tf.int32), axis=2)


def unordered(scores, mask):
  """Whether a list has no order by its scores, since one of them is NaN.

  Args:
    scores: `[B, L]`.
    mask: `[B, L]` booleans, the items that count.

  Returns:
    `[B, 1]` booleans.

  >>> scores = tf.constant([[1.0, float("nan")]] * 2)
  >>> unordered(scores, tf.constant([[True, True], [True, False]])).numpy()
  array([[ True],
         [False]])
  """
  return tf.reduce_any(
      tf.logical_and(mask, tf.math.is_nan(scores)), axis=1, keepdims=True)
