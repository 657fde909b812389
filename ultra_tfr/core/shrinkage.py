"""Shrinkage in the M step: few observations are drawn to what many say."""

import tensorflow as tf

from ultra_tfr.core import examination
from ultra_tfr.core import masking


def shrink_to_position(statistics, observations, num_distances):
  """Lets each slot borrow from all slots of its position.

  Args:
    statistics: `[C * K * D, M]`, sums of which the first column is the count.
    observations: how many pseudo-observations each slot gets, with the mean of
      its position.
    num_distances: D. With 1 a slot is a position, and nothing is borrowed.

  Returns:
    `[C * K * D, M]`.

  >>> shrink_to_position(tf.constant([[9.0, 3.0], [0.0, 0.0]]), 3.0, 2).numpy()
  array([[12.,  4.],
         [ 3.,  1.]], dtype=float32)
  """
  if num_distances == 1:
    return statistics
  slots = tf.reshape(
      statistics, [-1, num_distances, tf.shape(statistics)[-1]])
  total = tf.reduce_sum(slots, axis=1, keepdims=True)
  mean = tf.math.divide_no_nan(total, total[..., :1])
  return tf.reshape(slots + observations * mean, tf.shape(statistics))


def smooth_curve(clicks, rates, strength):
  """A smooth curve by position through rates, weighted by their clicks.

  log(rate) is fitted as a linear function of log(k) and k, which covers power
  laws and exponentials, by weighted least squares. The slopes are drawn to 0, a
  flat curve.

  Args:
    clicks: `[C, K]`, the clicks that each rate rests on.
    rates: `[C, K]`, greater than 0.
    strength: as many clicks speak for a flat curve; greater than 0.

  Returns:
    `[C, K]`.

  >>> clicks = tf.constant([[9e6, 9e6, 0.0]])
  >>> smooth_curve(clicks, tf.constant([[1.0, 0.5, 0.9]]), 1.0).numpy().round(1)
  array([[1. , 0.5, 0.3]], dtype=float32)
  """
  k = tf.range(1.0, tf.cast(tf.shape(rates)[1], tf.float32) + 1.0)
  terms = tf.stack([tf.math.log(k), k])
  # Standardised, so that both slopes are drawn to 0 with the same strength.
  terms -= tf.reduce_mean(terms, axis=1, keepdims=True)
  terms = tf.math.divide_no_nan(
      terms, tf.math.reduce_std(terms, axis=1, keepdims=True))
  logs = tf.math.log(rates)
  total = tf.reduce_sum(clicks, axis=1) + 1e-6 * strength

  def mean(values):
    return tf.reduce_sum(clicks * values, axis=1) / total

  center = [mean(term) for term in tf.unstack(terms, num=2)]
  height = mean(logs)
  first, second = (term - middle[:, tf.newaxis]
                   for term, middle in zip(tf.unstack(terms, num=2), center))
  rest = logs - height[:, tf.newaxis]
  # The floor keeps the equations solvable in single precision where only two
  # positions were seen.
  prior = tf.maximum(strength / total, 1e-3)
  a, b, c = (mean(first * first) + prior, mean(first * second),
             mean(second * second) + prior)
  x, y = mean(first * rest), mean(second * rest)
  # Greater than 0, by the Cauchy-Schwarz inequality and the prior.
  determinant = a * c - b * b
  slopes = ((c * x - b * y) / determinant, (a * y - b * x) / determinant)
  return tf.exp(height[:, tf.newaxis] + slopes[0][:, tf.newaxis] * first +
                slopes[1][:, tf.newaxis] * second)


def shrink_to_evidence(estimates, statistics, clicks, num_distances=1):
  """p1^ and p0^, drawn to a smooth curve and to 0 where clicks are few.

  To p1^, each slot gets `clicks` more clicks on relevant items, at the rate of
  its position's curve, see `smooth_curve`. To p0^, it gets as many displays of
  irrelevant items as would have that many clicks at the rate p1, and no click
  on them. So p0 does not run away on few clicks, and stays as it is with many.

  Args:
    estimates: (p1^, p0^), `[C, K * D]` each.
    statistics: `[C, K * D, 5]`, see `examination.pointwise_statistics`.
    clicks: how many clicks to add, 0 for none.
    num_distances: D.

  Returns:
    p1^ and p0^, `[C, K * D]` each.

  >>> few = tf.constant([[[100.0, 4.0, 50.0, 2.0, 0.0]]])
  >>> p1, p0 = shrink_to_evidence(
  ...     (tf.constant([[0.04]]), tf.constant([[0.04]])), few, 6.0)
  >>> p1.numpy().round(3), p0.numpy().round(3)
  (array([[0.04]], dtype=float32), array([[0.01]], dtype=float32))
  """
  relevant, irrelevant = estimates
  shape = tf.shape(statistics)
  by_position = tf.reduce_sum(tf.reshape(
      statistics, [shape[0], -1, num_distances, shape[2]]), axis=2)
  both = by_position[..., examination.RELEVANT_CLICKED]
  overall = masking.safe_ratio(
      tf.reduce_sum(both, 1, keepdims=True),
      tf.reduce_sum(by_position[..., examination.RELEVANT], 1, keepdims=True),
      1.0)
  # A few clicks at the overall rate keep the logarithm of a rate finite.
  some = 0.05 * clicks
  rates = (both + some) / (by_position[..., examination.RELEVANT] +
                           some / masking.floor_probability(overall))
  curve = tf.repeat(tf.minimum(
      smooth_curve(both, rates, clicks), 1.0), num_distances, axis=1)
  curve = masking.floor_probability(curve)
  count, clicked, of_relevant, both = (
      statistics[..., column] for column in (
          examination.COUNT, examination.CLICKED, examination.RELEVANT,
          examination.RELEVANT_CLICKED))
  relevant = masking.safe_ratio(
      both + clicks, of_relevant + clicks / curve, relevant)
  irrelevant = masking.safe_ratio(
      tf.nn.relu(clicked - both), tf.nn.relu(count - of_relevant) +
      clicks / masking.floor_probability(relevant), irrelevant)
  return relevant, irrelevant
