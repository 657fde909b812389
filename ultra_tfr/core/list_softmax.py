"""The softmax over a displayed list, and weights relative to its first item.

The parts of the dual learning algorithm (Ai et al., SIGIR 2018): a softmax of
scores f says which item is relevant, a softmax of propensity logits g which
position is examined, and each is learned with weights from the other.
"""

import math

import tensorflow as tf

from ultra_tfr.core import masking


def log_softmax(values, mask):
  """The logarithm of the softmax over the valid items of each list.

  Args:
    values: `[B, L]`, finite.
    mask: `[B, L]` booleans.

  Returns:
    `[B, L]`, 0 outside the mask.

  >>> log_softmax(tf.constant([[5.0, 5.0, 9.0]]),
  ...             tf.constant([[True, True, False]])).numpy().round(4)
  array([[-0.6931, -0.6931,  0.    ]], dtype=float32)
  """
  lowest = tf.fill(tf.shape(values), values.dtype.min)
  peak = tf.stop_gradient(
      tf.reduce_max(tf.where(mask, values, lowest), axis=1, keepdims=True))
  shifted = masking.zero_where_invalid(mask, values - peak)
  total = tf.reduce_sum(
      masking.zero_where_invalid(mask, tf.exp(shifted)), axis=1, keepdims=True)
  # A list of nothing but padding has no sum.
  total = tf.where(total > 0, total, tf.ones_like(total))
  return masking.zero_where_invalid(mask, shifted - tf.math.log(total))


def of_first(values, positions, mask):
  """The value of the first displayed item of each list.

  Args:
    values: `[B, L]`.
    positions: `[B, L]` display positions.
    mask: `[B, L]` booleans.

  Returns:
    `[B, 1]`: that at the smallest position, the mean where several items share
    it, and 0 for a list of nothing but padding.

  >>> of_first(tf.constant([[7.0, 8.0, 9.0]]), tf.constant([[4.0, 2.0, 1.0]]),
  ...          tf.constant([[True, True, False]])).numpy().tolist()
  [[8.0]]
  """
  beyond = tf.fill(tf.shape(positions), positions.dtype.max)
  places = tf.where(mask, positions, beyond)
  is_first = tf.logical_and(
      mask, tf.equal(places, tf.reduce_min(places, axis=1, keepdims=True)))
  count = tf.reduce_sum(tf.cast(is_first, values.dtype), axis=1, keepdims=True)
  total = tf.reduce_sum(
      masking.zero_where_invalid(is_first, values), axis=1, keepdims=True)
  return masking.safe_ratio(total, count, tf.zeros_like(total))


def relative_weights(logits, positions, mask, max_weight=None):
  """exp(v_1 - v_a): the inverse of an item's odds against the first item's.

  Args:
    logits: `[B, L]`, v.
    positions: `[B, L]` display positions, which say what "first" is.
    mask: `[B, L]` booleans.
    max_weight: the cap, or None. Without it a weight is at most exp(30).

  Returns:
    The weights, and the amount that the cap took away, `[B, L]` and 0 outside
    the mask; without gradient.

  >>> kept, cut = relative_weights(
  ...     tf.math.log([[0.8, 0.4, 0.1]]), tf.constant([[1.0, 2.0, 3.0]]),
  ...     tf.constant([[True] * 3]), max_weight=5.0)
  >>> kept.numpy().round(4), cut.numpy().round(4)
  (array([[1., 2., 5.]], dtype=float32), array([[0., 0., 3.]], dtype=float32))
  """
  # Both clips act before `exp`, which could overflow.
  gaps = masking.clip_logits(
      tf.stop_gradient(of_first(logits, positions, mask) - logits))
  weights = tf.exp(gaps)
  kept = weights if max_weight is None else tf.exp(
      tf.minimum(gaps, math.log(max_weight)))
  return (masking.zero_where_invalid(mask, kept),
          masking.zero_where_invalid(mask, weights - kept))


def weighted_cross_entropy(logits, weights, mask):
  """`- sum_a w_a log softmax(v)_a`, item by item, and its slope in the logits.

  Args:
    logits: `[B, L]`, v.
    weights: `[B, L]`, w >= 0, 0 outside the mask.
    mask: `[B, L]` booleans.

  Returns:
    Three `[B, L]` tensors: the losses; the gradient of their sum with respect
    to v; and an upper bound of its curvature, the diagonal of a matrix that
    exceeds the Hessian.

  >>> losses, gradient, curvature = weighted_cross_entropy(
  ...     tf.zeros([1, 2]), tf.constant([[3.0, 0.0]]),
  ...     tf.constant([[True, True]]))
  >>> losses.numpy().round(4), gradient.numpy()
  (array([[2.0794, 0.    ]], dtype=float32),
   array([[-1.5,  1.5]], dtype=float32))
  """
  log_probabilities = log_softmax(logits, mask)
  total = tf.reduce_sum(weights, axis=1, keepdims=True)
  expected = total * masking.zero_where_invalid(
      mask, tf.exp(log_probabilities))
  return -weights * log_probabilities, expected - weights, expected
