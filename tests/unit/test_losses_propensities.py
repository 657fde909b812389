"""Tests of ultra_tfr.losses: what propensities and trust do to pair weights."""

import numpy as np
import pytest
import tensorflow as tf

from eye_tracking import CURVE
import oracles
from small_losses import LN2
from small_losses import NONE
from small_losses import SUM
from small_losses import inverse_loss
from small_losses import value_and_gradient
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss


def test_no_nan_from_an_item_that_cannot_be_seen():
  """Where a weight is masked away, its 1 / 0 still made the gradient NaN."""
  loss = UnbiasedPairwiseLoss(
      PositionBias(2, examination=[1., 0.]), reduction=NONE)
  # Not clicked: as the better one of a pair it has no weight; against it the
  # weight is the limit (1 - beta) / (1 - theta beta) = 1/2 at a score of 0.
  value, gradient = value_and_gradient(loss, [[1., 0.]], [[0., 0.]])
  np.testing.assert_allclose(value, [[LN2 / 2, 0.]], rtol=1e-6)
  assert np.all(np.isfinite(gradient))
  # Clicked all the same: the weight is one over the smallest probability.
  value, gradient = value_and_gradient(loss, [[0., 1.]], [[0., 0.]])
  np.testing.assert_allclose(value, [[0., 1e6 * LN2]], rtol=1e-4)
  assert np.all(np.isfinite(gradient))


def pairwise_loss(examination):
  return UnbiasedPairwiseLoss(
      PositionBias(2, examination=examination), reduction=SUM)


@pytest.mark.parametrize("make, examination, y_true, weights", [
    # Feedback and position of each item: the clicked one was the second.
    (pairwise_loss, [1., .5], [[[1., 2.], [0., 1.]]], None),
    (inverse_loss, [1., .5], [[[1., 2.], [0., 1.]]], None),
    (inverse_loss, [.5, 1.], [[1., 0.]], None),
    # The same as a weight of the preferred item.
    (pairwise_loss, [1., 1.], [[1., 0.]], [[2., 1.]])])
def test_a_click_that_is_seen_half_as_often_counts_twice(
    make, examination, y_true, weights):
  """Users want to give known propensities, or weights, to a Keras loss."""
  expected = 2. * oracles.softplus(-1.)
  assert expected == pytest.approx(.626523, abs=1e-6)
  found = make(examination)(y_true, tf.constant([[1., 0.]]), weights)
  assert float(found) == pytest.approx(expected, abs=1e-6)


def test_the_scale_is_that_of_position_one():
  """Clicks tell propensities up to a factor, and weights must not need it."""
  bias = PositionBias(10, examination=CURVE)
  relative = bias.propensities()["examination"]
  assert relative[0] == 1
  np.testing.assert_allclose(1. / relative[9], 11.3333, rtol=1e-5)
  # Both clicked, so the weight is one over two propensities: a scale of theta
  # changes neither it nor where it is clipped.
  packed = pack_feedback([[2., 1.]], [[10, 1]])
  for max_weight, expected in ((None, 11.3333), (5., 5.)):
    for factor in (1., .5):
      loss = UnbiasedPairwiseLoss(
          PositionBias(10, examination=CURVE * factor),
          max_weight=max_weight, reduction=SUM)
      np.testing.assert_allclose(
          loss(packed, tf.zeros([1, 2])).numpy() / np.log(2.), expected,
          rtol=1e-5)


def _expected_pair_weight(bias, beta):
  """E[weight of (a, b)] over the clicks of two items at positions 1 and 2."""
  loss = UnbiasedPairwiseLoss(bias, head_weight=0., reduction=NONE)
  logits = np.log(beta / (1 - beta))
  heads = tf.constant([np.stack([np.zeros(2), logits], -1)], tf.float32)
  p1 = bias.examination.numpy()[0].astype(np.float64)
  p0 = (bias.click_irrelevant.numpy()[0] if bias.trust_bias == "position"
        else np.zeros(2))
  chance = p1 * beta + p0 * (1. - beta)
  weight = loss([[1., 0.]], heads).numpy()[0, 0] / np.log(2.)
  return chance[0] * (1. - chance[1]) * weight / bias.scale().numpy()


def test_trust_in_positions_is_corrected_by_an_affine_map():
  """Where users trust positions, dividing by a propensity is not enough."""
  beta = np.array([.4, .7])
  bias = PositionBias(2, trust_bias="position", examination=[.5, .5],
                      trust_positive=.9, trust_negative=.1)
  # P(click) = .4 relevance + .05.
  propensities = bias.propensities()
  p1, p0 = propensities["click_relevant"], propensities["click_irrelevant"]
  np.testing.assert_allclose(p1 - p0, [.4, .4], rtol=1e-6)
  np.testing.assert_allclose(p0, [.05, .05], rtol=1e-6)
  np.testing.assert_allclose((1. - p0[0]) / (p1 - p0)[0], 2.375, rtol=1e-6)
  np.testing.assert_allclose(-p0[0] / (p1 - p0)[0], -.125, rtol=1e-5)
  np.testing.assert_allclose(
      _expected_pair_weight(bias, beta), .4 * .3, rtol=1e-5)
  # What ignores the trust is off.
  plain = PositionBias(2, examination=[.45, .45])
  loss = UnbiasedPairwiseLoss(plain, head_weight=0., reduction=NONE)
  heads = tf.constant([np.stack([np.zeros(2), np.log(beta / (1 - beta))], -1)],
                      tf.float32)
  weight = loss([[1., 0.]], heads).numpy()[0, 0] / np.log(2.) / .45 ** 2
  chance = .4 * beta + .05
  assert abs(chance[0] * (1 - chance[1]) * weight - .12) > .01


def test_limits_of_trust_in_positions():
  """Noise-free trust is plain examination, and no trust divides by zero."""
  beta = np.array([.4, .7])
  full = PositionBias(2, trust_bias="position", examination=[.5, .3],
                      trust_positive=1., trust_negative=0.)
  plain = PositionBias(2, examination=[.5, .3])
  np.testing.assert_allclose(
      _expected_pair_weight(full, beta), _expected_pair_weight(plain, beta),
      rtol=1e-6)
  # Clicks that say nothing of relevance: finite, and nothing is learned.
  blind = PositionBias(2, trust_bias="position", examination=[.5, .3],
                       trust_positive=.6, trust_negative=.6)
  assert np.isfinite(_expected_pair_weight(blind, beta))
  heads = tf.constant([[[0., -.4], [0., .8]]])
  with tf.GradientTape() as tape:
    tape.watch(heads)
    value = UnbiasedPairwiseLoss(blind)([[1., 0.]], heads)
  assert np.isfinite(value)
  np.testing.assert_allclose(
      tape.gradient(value, heads)[..., 1], [[0., 0.]], atol=1e-6)
