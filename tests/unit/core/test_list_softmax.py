"""Tests of ultra_tfr.core.list_softmax."""

import math

import numpy as np
import pytest
import tensorflow as tf

import baseline_oracles
import oracles
from ultra_tfr.core import list_softmax

LISTS = oracles.random_lists(seed=3, num_lists=8)
POSITIONS = tf.constant(oracles.column(LISTS, "position"), tf.float64)
SCORES = tf.constant(oracles.column(LISTS, "score"), tf.float64)
MASK = tf.constant(oracles.column(LISTS, "valid"))


def test_lists_have_padding_and_shared_positions():
  assert not all(map(all, oracles.column(LISTS, "valid")))
  assert any(
      len({items["position"][a] for a in baseline_oracles.valid_items(items)})
      < sum(items["valid"]) for items in LISTS)


def test_log_softmax_equals_the_loop():
  values = list_softmax.log_softmax(SCORES, MASK)
  expected = [
      [math.log(p) if p else 0.0
       for p in baseline_oracles.softmax(items, items["score"])]
      for items in LISTS]
  np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
def test_log_softmax_of_extreme_scores_is_finite(scale):
  scores = tf.constant([[scale, -scale, 0.0]])
  mask = tf.constant([[True, True, False]])
  with tf.GradientTape() as tape:
    tape.watch(scores)
    values = list_softmax.log_softmax(scores, mask)
  lost = math.log1p(math.exp(-2 * scale))
  np.testing.assert_allclose(
      values[0, :2], [-lost, -2 * scale - lost], rtol=1e-6)
  assert np.isfinite(tape.gradient(values, scores)).all()


def test_a_list_of_padding():
  scores, mask = tf.constant([[1.0, 2.0]]), tf.constant([[False, False]])
  with tf.GradientTape() as tape:
    tape.watch(scores)
    values = list_softmax.log_softmax(scores, mask)
  assert values.numpy().tolist() == [[0.0, 0.0]]
  assert tape.gradient(values, scores).numpy().tolist() == [[0.0, 0.0]]
  assert list_softmax.of_first(scores, scores, mask).numpy().tolist() == [[0.0]]
  weights, cut = list_softmax.relative_weights(scores, scores, mask)
  assert not weights.numpy().any()
  assert not cut.numpy().any()


def test_of_first_equals_the_loop():
  values = list_softmax.of_first(SCORES, POSITIONS, MASK)
  expected = [[baseline_oracles.first_value(items, items["score"])]
              for items in LISTS]
  np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("max_weight", [None, 1.5])
def test_relative_weights_equal_the_loop(max_weight):
  kept, cut = list_softmax.relative_weights(
      SCORES, POSITIONS, MASK, max_weight)
  for row, items in enumerate(LISTS):
    for a, valid in enumerate(items["valid"]):
      if not valid:
        assert kept[row, a] == cut[row, a] == 0
        continue
      capped, whole = (
          baseline_oracles.relative_weight(items, items["score"], a, cap)
          for cap in (max_weight, None))
      np.testing.assert_allclose(kept[row, a], capped, rtol=1e-12)
      np.testing.assert_allclose(cut[row, a], whole - capped, atol=1e-12)
  assert (cut.numpy() > 0).any() == (max_weight is not None)


def test_relative_weights_do_not_overflow_and_have_no_gradient():
  logits = tf.constant([[500.0, -500.0]])
  positions, mask = tf.constant([[1.0, 2.0]]), tf.constant([[True, True]])
  with tf.GradientTape() as tape:
    tape.watch(logits)
    weights, _ = list_softmax.relative_weights(logits, positions, mask)
  np.testing.assert_allclose(weights, [[1.0, math.exp(30)]], rtol=1e-5)
  assert tape.gradient(weights, logits) is None


def test_slope_of_the_cross_entropy():
  weights = tf.constant(oracles.column(LISTS, "weight"), tf.float64)
  with tf.GradientTape() as outer:
    outer.watch(SCORES)
    with tf.GradientTape() as tape:
      tape.watch(SCORES)
      losses, gradient, curvature = list_softmax.weighted_cross_entropy(
          SCORES, weights, MASK)
    slope = tape.gradient(losses, SCORES)
  hessian = outer.batch_jacobian(slope, SCORES)
  np.testing.assert_allclose(gradient, slope, atol=1e-12)
  # A matrix with this diagonal exceeds the Hessian, so that a whole step never
  # goes too far.
  excess = np.linalg.eigvalsh(tf.linalg.diag(curvature) - hessian)
  assert excess.min() > -1e-12
  for row, items in enumerate(LISTS):
    chances = baseline_oracles.softmax(items, items["score"])
    np.testing.assert_allclose(losses[row], [
        -w * math.log(p) if p else 0.0
        for w, p in zip(items["weight"], chances)], rtol=1e-12)
