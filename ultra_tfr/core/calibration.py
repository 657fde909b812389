"""The shift between a score and a relevance logit, fitted beside the M step.

A model with one score per item has no relevance head: its score doubles as
relevance logit. For independent binary relevance the log odds of r_a > r_b
against r_b > r_a are the difference of the two logits, so a score can serve
both, up to a constant that pairs do not see. That constant is fitted to the
posterior of the E step by Newton's method, for scorers without a bias term.
"""

import tensorflow as tf

from ultra_tfr.core import masking

# The columns of the sums: gradient and curvature of the cross-entropy of
# sigmoid(s + shift) against the targets of the E step.
GRADIENT, CURVATURE = range(2)
NUM_SUMS = 2


def calibration_sums(relevance_logits, targets, weights):
  """Sums for one Newton step on the shift.

  Args:
    relevance_logits: `[B, L]`, s + shift.
    targets: `[B, L]`, P(r > 0 | c).
    weights: `[B, L]`, zeros for padding.

  Returns:
    `[2]`.

  >>> calibration_sums(tf.zeros([1, 2]), tf.ones([1, 2]),
  ...                  tf.constant([[1.0, 0.0]])).numpy()
  array([0.5 , 0.25], dtype=float32)
  """
  beta = tf.sigmoid(relevance_logits)
  return tf.stack([tf.reduce_sum(weights * (targets - beta)),
                   tf.reduce_sum(weights * beta * (1.0 - beta))])


def newton_step(shift, sums, rate):
  """A damped Newton step: shift + rate sum(P(r) - beta) / sum(beta (1 - beta)).

  Args:
    shift: a scalar.
    sums: `[2]`, see `calibration_sums`.
    rate: the share of the full step to take.

  Returns:
    The new shift, in [-30, 30].

  >>> float(newton_step(tf.constant(0.0), tf.constant([4.0, 7.0]), 1.0))
  0.5
  """
  # One observation of ridge: without data the step is 0, not 0/0.
  step = rate * sums[GRADIENT] / (sums[CURVATURE] + 1.0)
  return masking.clip_logits(shift + tf.clip_by_value(step, -0.5, 0.5))
