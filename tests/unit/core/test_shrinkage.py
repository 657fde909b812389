"""Tests of ultra_tfr.core.shrinkage."""

import numpy as np
import tensorflow as tf

from ultra_tfr.core import em
from ultra_tfr.core import shrinkage


def test_a_smooth_curve_follows_power_laws_and_exponentials():
  k = np.arange(1., 11.)
  for curve in (.6 * k**-.8, .6 * .8**k):
    found = shrinkage.smooth_curve(
        tf.constant([1e5 * curve], tf.float32),
        tf.constant([curve], tf.float32), 20.).numpy()[0]
    np.testing.assert_allclose(found, curve, rtol=.03)


def test_a_smooth_curve_through_few_clicks_is_nearly_flat():
  found = shrinkage.smooth_curve(
      tf.constant([[2., 0., 1.]]), tf.constant([[.02, .001, .5]]), 100.)
  assert found.numpy().max() < 1.3 * found.numpy().min()


def _statistics(clicks, count, relevance):
  """Sums `[1, K, 5]` in which the share of clicks that is relevant is given."""
  clicks = np.asarray(clicks, float)
  columns = np.zeros([1, len(clicks), 5], np.float32)
  columns[0, :, 0], columns[0, :, 1] = count, clicks
  columns[0, :, 2] = .1 * count
  columns[0, :, 3] = relevance * clicks
  return tf.constant(columns)


def test_noise_does_not_run_away_where_there_are_few_clicks():
  """25, 37 and 30 clicks gave 1, 747 and 462 as examination."""
  statistics = _statistics([25., 37., 30.], 5000., [.01, 1., .5])
  p1, p0 = shrinkage.shrink_to_evidence(
      em.click_estimates(statistics[..., :], tf.ones([1, 3]),
                         tf.zeros([1, 3])), statistics, 20.)
  plain = np.array([.25, 37., 15.]) / 500.
  assert plain.max() / plain.min() > 100
  assert p1.numpy().max() / p1.numpy().min() < 3.2
  assert np.all(p0.numpy() < .9 * np.array([24.75, .1, 15.]) / 4500.)


def test_many_clicks_are_believed():
  statistics = _statistics([5e4, 2e4, 3e4], 1e5, [.9, .8, .7])
  found = em.click_estimates(statistics, tf.ones([1, 3]), tf.zeros([1, 3]))
  for drawn, plain in zip(
      shrinkage.shrink_to_evidence(found, statistics, 20.), found):
    np.testing.assert_allclose(drawn, plain, rtol=.01)
