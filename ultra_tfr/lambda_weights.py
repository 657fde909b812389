"""TF-Ranking's lambda weights, made deterministic and blind to padding."""

import copy

import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import losses_impl

from ultra_tfr.core import pairs

# 2^31 - 1 is the largest exponential gain that is taken at its word.
_MAX_GRADE = 31.0


def pair_weights(lambda_weight, feedback, scores, positions, mask,
                 linear_gain=False):
  """|delta Z|: the metric's change when two items swap, for all pairs.

  Unlike in TF-Ranking's own losses, ties of scores go by display position
  instead of by chance, and the weights of a list do not change with the
  padding it gets.

  Args:
    lambda_weight: a TF-Ranking lambda weight.
    feedback: `[B, L]`, finite.
    scores: `[B, L]`.
    positions: `[B, L]`, which break ties.
    mask: `[B, L]` booleans.
    linear_gain: make an exponential gain, 2^c - 1, linear in the feedback: it
      overflows for continuous feedback such as seconds. Otherwise the gain
      stops growing at grade 31.

  Returns:
    `[B, L, L]`, always finite.
  """
  ranks = pairs.ranks(scores, positions, mask)
  if getattr(lambda_weight, "_gain_fn", None) is tfr.keras.utils.pow_minus_1:
    # 2^log2(1 + c) - 1 = c.
    feedback = (tf.math.log1p(feedback) / tf.math.log(2.0) if linear_gain else
                tf.minimum(feedback, _MAX_GRADE))
  labels = tf.where(mask, feedback, -tf.ones_like(feedback))
  weights = lambda_weight.pair_weights(labels, ranks)
  if isinstance(lambda_weight, losses_impl.AbstractDCGLambdaWeight):
    # These multiply by the padded size of the list; the real one is meant.
    size = tf.cast(tf.shape(labels)[1], tf.float32)
    valid = tf.reduce_sum(tf.cast(mask, tf.float32), axis=1)
    weights *= valid[:, tf.newaxis, tf.newaxis] / size
  return weights


def serialize(lambda_weight):
  """A JSON-able description; TF-Ranking's own, for its own classes."""
  return tfr.keras.utils.serialize_keras_object(lambda_weight)


def deserialize(description):
  """The lambda weight that `serialize` described."""
  # TF-Ranking puts functions into the description that it is given.
  return tfr.keras.utils.deserialize_keras_object(copy.deepcopy(description))
