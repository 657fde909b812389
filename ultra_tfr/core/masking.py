"""Item and pair masks, masked sums and safe ratios.

Every rule about padding and every epsilon of the library is in this file.
"""

import tensorflow as tf

# Logits are clipped to +-30 before they meet a ratio: sigmoid(30) differs from
# 1 by 1e-13, and exp(30) squared is far from overflow in float32.
MAX_LOGIT = 30.0

# The smallest probability by which anything is ever divided.
MIN_PROBABILITY = 1e-6


def to_dense(values, padding=0.0):
  """Pads ragged lists at their ends; other values become a tensor.

  Args:
    values: a `tf.RaggedTensor` `[B, (L)]` or `[B, (L), n]`, or anything that
      `tf.convert_to_tensor` takes.
    padding: a number, or one for each of the n values of an item.

  Returns:
    A tensor, ragged lists as long as the longest of them.

  >>> to_dense(tf.ragged.constant([[1.0], [0.0, 2.0]]), -1.0).numpy()
  array([[ 1., -1.],
         [ 0.,  2.]], dtype=float32)
  """
  if isinstance(values, tf.RaggedTensor):
    return values.to_tensor(tf.cast(padding, values.dtype))
  return tf.convert_to_tensor(values)


def valid_items(feedback):
  """Tells real items from padding and missing feedback.

  Args:
    feedback: `[B, L]` floats; negative, NaN or infinite marks padding.

  Returns:
    `[B, L]` booleans.

  >>> valid_items(tf.constant([[1.0, 0.0, -1.0, float("nan")]])).numpy()
  array([[ True,  True, False, False]])
  """
  return tf.logical_and(tf.math.is_finite(feedback), feedback >= 0)


def valid_pairs(mask):
  """Ordered pairs (a, b) of two different valid items of one list.

  Args:
    mask: `[B, L]` booleans.

  Returns:
    `[B, L, L]` booleans, false on the diagonal.

  >>> valid_pairs(tf.constant([[True, True, False]])).numpy().astype(int)
  array([[[0, 1, 0],
          [1, 0, 0],
          [0, 0, 0]]])
  """
  both = tf.logical_and(mask[:, :, tf.newaxis], mask[:, tf.newaxis, :])
  size = tf.shape(mask)[1]
  return tf.logical_and(both, tf.logical_not(tf.eye(size, dtype=tf.bool)))


def zero_where_invalid(mask, values):
  """Replaces values outside the mask by 0 *before* anything is computed.

  Selecting afterwards is not enough: the gradient of the branch that was not
  selected would still be NaN where its value is.

  Args:
    mask: booleans, of the shape of `values`.
    values: a float tensor.

  Returns:
    `values` with zeros outside the mask.

  >>> zero_where_invalid(tf.constant([True, False]),
  ...                    tf.constant([2.0, float("nan")])).numpy()
  array([2., 0.], dtype=float32)
  """
  return tf.where(mask, values, tf.zeros_like(values))


def safe_ratio(numerator, denominator, otherwise):
  """Divides where the denominator is positive, else takes `otherwise`.

  Args:
    numerator: a float tensor.
    denominator: a float tensor, >= 0.
    otherwise: what a cell without observations keeps.

  Returns:
    The ratio, of the common shape; finite for finite input.

  >>> safe_ratio(tf.constant([1.0, 1.0]), tf.constant([4.0, 0.0]), 0.5).numpy()
  array([0.25, 0.5 ], dtype=float32)
  """
  return tf.where(denominator > 0,
                  tf.math.divide_no_nan(numerator, denominator), otherwise)


def clip_logits(logits):
  """Clips logits to the range in which ratios of probabilities are safe.

  >>> clip_logits(tf.constant([-1e9, 0.0, 1e9])).numpy()
  array([-30.,   0.,  30.], dtype=float32)
  """
  return tf.clip_by_value(logits, -MAX_LOGIT, MAX_LOGIT)


def floor_probability(probabilities):
  """Keeps a probability that is about to divide away from 0.

  >>> floor_probability(tf.constant([0.0, 0.5])).numpy()
  array([1.e-06, 5.e-01], dtype=float32)
  """
  return tf.maximum(probabilities, MIN_PROBABILITY)
