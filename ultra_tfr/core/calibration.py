"""Scores as relevance logits: scale and shift, fitted beside the M step.

A model with one score per item has no relevance head. Its score is right in
order but not in size, so sigmoid(scale * s + shift) is fitted to the posterior
of the E step by Newton's method (Platt, 1999).
"""

import tensorflow as tf

from ultra_tfr.core import masking

# The columns of the calibration sums, in this order: gradient and curvature of
# the cross-entropy of sigmoid(scale * s + shift) against the E step's targets.
(GRADIENT_SCALE, GRADIENT_SHIFT, CURVATURE_SCALE, CURVATURE_BOTH,
 CURVATURE_SHIFT) = range(5)
NUM_SUMS = 5


def calibration_sums(scores, relevance_logits, targets, weights):
  """Sums for one Newton step on scale and shift (Platt, 1999).

  Args:
    scores: `[B, L]`, s.
    relevance_logits: `[B, L]`, scale * s + shift.
    targets: `[B, L]`, P(r > 0 | c).
    weights: `[B, L]`, zeros for padding.

  Returns:
    `[5]`.
  """
  beta = tf.sigmoid(relevance_logits)
  error = weights * (targets - beta)
  curvature = weights * beta * (1.0 - beta)
  return tf.stack([
      tf.reduce_sum(error * scores), tf.reduce_sum(error),
      tf.reduce_sum(curvature * scores * scores),
      tf.reduce_sum(curvature * scores), tf.reduce_sum(curvature)])


def calibrate(scale, shift, sums, rate):
  """A damped Newton step on the calibration of scores to relevance.

  Args:
    scale: a scalar, kept in [0.1, 10].
    shift: a scalar, kept in [-30, 30].
    sums: `[5]`, see `calibration_sums`.
    rate: the share of the full Newton step to take.

  Returns:
    The new scale and shift.
  """
  # A ridge of one observation: without data the step is 0, not 0/0.
  a = sums[CURVATURE_SCALE] + 1.0
  b = sums[CURVATURE_BOTH]
  c = sums[CURVATURE_SHIFT] + 1.0
  determinant = tf.maximum(a * c - b * b, 1.0)
  by_scale = (c * sums[GRADIENT_SCALE] - b * sums[GRADIENT_SHIFT])
  by_shift = (a * sums[GRADIENT_SHIFT] - b * sums[GRADIENT_SCALE])

  def limit(step):
    return tf.clip_by_value(rate * step / determinant, -0.5, 0.5)

  return (tf.clip_by_value(scale + limit(by_scale), 0.1, 10.0),
          tf.clip_by_value(shift + limit(by_shift), -masking.MAX_LOGIT,
                           masking.MAX_LOGIT))
