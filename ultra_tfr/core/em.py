"""Parts of the M step: step sizes, estimates from sums, and constraints.

Mini-batch EM, equation (20), in two forms. `"parameters"` is the paper's: it
moves each parameter towards the estimate of the last batch. `"statistics"`
(Cappe and Moulines, 2009) averages numerators and denominators and divides
afterwards, so a position that was seen twice does not move as far as one that
was seen two thousand times.
"""

import tensorflow as tf

from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import trust

# Learned trust probabilities keep this distance from each other and from the
# ends, so that no posterior is ever fixed at 0 or 1 for good.
TRUST_GAP = 1e-3


def step_size(step, initial, decay):
  """alpha_t = alpha_0 (1 + t)^-kappa of equation (20).

  Args:
    step: t, the batches already used.
    initial: alpha_0.
    decay: kappa.

  Returns:
    A scalar.

  >>> float(step_size(tf.constant(3.0), 0.5, 0.5))
  0.25
  """
  return initial * tf.pow(1.0 + step, -decay)


def compound_step(alpha, num_batches):
  """The single step that equals `num_batches` steps of size alpha.

  >>> round(float(compound_step(0.5, tf.constant(2.0))), 4)
  0.75
  """
  return 1.0 - tf.pow(1.0 - alpha, num_batches)


def average_statistics(running, batch_sum, num_batches, alpha):
  """running <- (1 - alpha) running + alpha * (mean sum of a batch).

  Args:
    running: the averaged sums so far.
    batch_sum: the sums over `num_batches` batches.
    num_batches: a scalar > 0.
    alpha: the step, already compounded.

  Returns:
    The new averages.
  """
  return (1.0 - alpha) * running + alpha * batch_sum / num_batches


def move(parameters, estimates, alpha):
  """p <- (1 - alpha) p + alpha p^, equation (20)."""
  return (1.0 - alpha) * parameters + alpha * estimates


def examination_estimates(statistics, current, current_unclicked):
  """theta^ and theta-^ of the position-based model.

  Args:
    statistics: `[..., 5]`, see `examination.pointwise_statistics`.
    current: `[...]`, kept by positions without observations.
    current_unclicked: `[...]`, likewise.

  Returns:
    theta^ and theta-^, each `[...]`.
  """
  count = statistics[..., examination.COUNT]
  clicked = statistics[..., examination.CLICKED]
  unclicked = statistics[..., examination.EXAMINED_UNCLICKED]
  return (masking.safe_ratio(clicked + unclicked, count, current),
          masking.safe_ratio(unclicked, count - clicked, current_unclicked))


def click_estimates(statistics, current_relevant, current_irrelevant):
  """p1^ = sum c q / sum q and p0^ = sum c (1-q) / sum (1-q).

  Args:
    statistics: `[..., 5]`, see `examination.pointwise_statistics`.
    current_relevant: `[...]`, kept by positions without observations.
    current_irrelevant: `[...]`, likewise.

  Returns:
    p1^ and p0^, each `[...]`.
  """
  count = statistics[..., examination.COUNT]
  clicked = statistics[..., examination.CLICKED]
  relevant = statistics[..., examination.RELEVANT]
  both = statistics[..., examination.RELEVANT_CLICKED]
  return (masking.safe_ratio(both, relevant, current_relevant),
          masking.safe_ratio(tf.nn.relu(clicked - both),
                             tf.nn.relu(count - relevant), current_irrelevant))


def trust_estimates(statistics, current_positive, current_negative):
  """eps+^ and eps-^ of the pairwise E step.

  Args:
    statistics: `[..., 4]`, see `trust.trust_statistics`.
    current_positive: `[...]`, kept by pairs without observations.
    current_negative: `[...]`, likewise.

  Returns:
    eps+^ and eps-^, each `[...]`.
  """
  positive = statistics[..., trust.GREATER_PREFERRED]
  negative = statistics[..., trust.GREATER_NOT_PREFERRED]
  return (
      masking.safe_ratio(
          positive, positive + statistics[..., trust.OTHER_PREFERRED],
          current_positive),
      masking.safe_ratio(
          negative, negative + statistics[..., trust.OTHER_NOT_PREFERRED],
          current_negative))


def click_rate_start(count, clicked, scale, smoothing):
  """theta from the smoothed click rate by position, largest = `scale`.

  Started here the EM arrives in hundreds of steps; from a constant it crawls.
  Smoothing towards the mean rate keeps a position without clicks alive, since
  theta = 0 is a fixed point of EM.

  Args:
    count: `[C, K]`, items shown.
    clicked: `[C, K]`, items with feedback.
    scale: theta of the position with the largest rate.
    smoothing: how many observations the mean rate counts for.

  Returns:
    `[C, K]`.

  >>> click_rate_start(tf.constant([[100.0, 100.0]]),
  ...                  tf.constant([[20.0, 5.0]]), 0.8, 0.0).numpy()
  array([[0.8, 0.2]], dtype=float32)
  """
  mean = masking.safe_ratio(
      tf.reduce_sum(clicked, -1, keepdims=True),
      tf.reduce_sum(count, -1, keepdims=True), 1.0)
  rate = masking.safe_ratio(
      clicked + smoothing * mean, count + smoothing, mean)
  largest = tf.reduce_max(rate, axis=-1, keepdims=True)
  return scale * masking.safe_ratio(rate, largest, 1.0)


def constrain_examination(values, minimum):
  """0 < minimum <= theta <= 1.

  >>> constrain_examination(tf.constant([0.0, 2.0]), 0.01).numpy()
  array([0.01, 1.  ], dtype=float32)
  """
  return tf.clip_by_value(values, minimum, 1.0)


def constrain_click_irrelevant(click_irrelevant, click_relevant):
  """0 <= p0 < p1.

  >>> constrain_click_irrelevant(tf.constant([0.9, -1.0]),
  ...                            tf.constant([0.5, 0.5])).numpy().round(4)
  array([0.495, 0.   ], dtype=float32)
  """
  return tf.clip_by_value(click_irrelevant, 0.0, 0.99 * click_relevant)


def constrain_trust(trust_positive, trust_negative):
  """0 < eps- < eps+ < 1 and eps+_ij + eps-_ji <= 1.

  Both orders of a pair are one draw, hence the second constraint.

  Args:
    trust_positive: `[..., K, K]`.
    trust_negative: `[..., K, K]`.

  Returns:
    The two tables inside the constraints.

  >>> plus, minus = constrain_trust(tf.constant([[1.0]]), tf.constant([[0.5]]))
  >>> plus.numpy().round(2), minus.numpy().round(2)
  (array([[0.67]], dtype=float32), array([[0.33]], dtype=float32))
  """
  positive = tf.clip_by_value(trust_positive, 3 * TRUST_GAP, 1.0 - TRUST_GAP)
  negative = tf.clip_by_value(trust_negative, TRUST_GAP, 1.0)
  total = positive + tf.linalg.matrix_transpose(negative)
  shrink = 1.0 / tf.maximum(total, 1.0)
  positive = positive * shrink
  negative = negative * tf.linalg.matrix_transpose(shrink)
  # Lowering eps- can only loosen the constraint on the sum.
  return positive, tf.minimum(negative, positive - TRUST_GAP)
