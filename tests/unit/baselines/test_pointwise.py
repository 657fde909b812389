"""Tests of ultra_tfr.baselines.pointwise."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import baseline_oracles
import oracles
from ultra_tfr import base
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias

K = 4
THETA = [0.9, 0.6, 0.4, 0.25]
PLUS = [0.95, 0.9, 0.85, 0.8]
MINUS = [0.5, 0.3, 0.2, 0.1]
P1 = [t * e for t, e in zip(THETA, PLUS)]
P0 = [t * e for t, e in zip(THETA, MINUS)]


def _bias(trust=True):
  if not trust:
    return PositionBias(K, examination=THETA)
  return PositionBias(K, trust_bias="position", examination=THETA,
                      trust_positive=PLUS, trust_negative=MINUS)


def _batch(seed=0):
  """Lists, packed feedback, and scores that are the logits of relevance."""
  lists = oracles.random_lists(seed, num_positions=K)
  y_true = pack_feedback(
      np.where(oracles.column(lists, "valid"),
               oracles.column(lists, "feedback"), -1.0),
      oracles.column(lists, "position"))
  logits = np.vectorize(oracles.logit)(oracles.column(lists, "beta"))
  return lists, y_true, tf.constant(logits, tf.float32)


def _losses(lists, target):
  """Cross-entropy against `target(clicked, beta, index of the position)`."""
  return [[baseline_oracles.cross_entropy(
      target(c > 0, beta, k - 1), beta) if valid else 0.0
           for valid, c, beta, k in zip(
               items["valid"], items["feedback"], items["beta"],
               items["position"])] for items in lists]


@pytest.mark.parametrize("trust", [True, False])
def test_regression_em_equals_the_loop(trust):
  lists, y_true, y_pred = _batch()
  loss = RegressionEMLoss(_bias(trust), reduction="none")
  p1, p0 = (P1, P0) if trust else (THETA, [0.0] * K)
  np.testing.assert_allclose(loss(y_true, y_pred), _losses(
      lists, lambda clicked, beta, i: oracles.relevance_posterior(
          clicked, beta, p1[i], p0[i])), rtol=1e-4)


@pytest.mark.parametrize("trust", [True, False])
def test_affine_correction_equals_the_loop(trust):
  lists, y_true, y_pred = _batch()
  loss = AffineCorrectionLoss(_bias(trust), reduction="none")
  p1, p0 = (P1, P0) if trust else (THETA, [0.0] * K)
  np.testing.assert_allclose(loss(y_true, y_pred), _losses(
      lists, lambda clicked, beta, i: baseline_oracles.corrected_click(
          clicked, p1[i], p0[i])), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss_class", [RegressionEMLoss, AffineCorrectionLoss])
def test_the_statistics_of_em_are_those_of_the_loop(loss_class):
  lists, y_true, y_pred = _batch()
  bias = _bias()
  bias.start_collecting()
  weights = np.array(oracles.column(lists, "weight"), np.float32)
  loss_class(bias)(y_true, y_pred, weights)
  expected = oracles.pointwise_statistics(
      lists, P1, P0, K, lambda context, position: position - 1)
  found = bias.take_sums()
  # The last column, of theta, is for a layer without trust bias.
  np.testing.assert_allclose(
      found["pointwise"][:, :4], np.array(expected)[:, :4], rtol=1e-4)
  assert found["counters"][0] == 1
  # Pairs count for the callback's warning, also where there are no weights.
  assert found["counters"][2] > 0
  assert (found["counters"][base.WEIGHT] > 0) == loss_class.has_weights
  assert found["counters"][base.CLIPPED] == 0


def test_the_gradient_of_regression_em_is_that_of_a_fixed_posterior():
  lists, y_true, y_pred = _batch()
  bias = _bias()
  bias.start_collecting()
  loss = RegressionEMLoss(bias, reduction="sum")
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred)
  expected = [[beta - oracles.relevance_posterior(
      c > 0, beta, P1[k - 1], P0[k - 1]) if valid else 0.0
               for valid, c, beta, k in zip(
                   items["valid"], items["feedback"], items["beta"],
                   items["position"])] for items in lists]
  np.testing.assert_allclose(
      tape.gradient(value, y_pred), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("loss_class", [RegressionEMLoss, AffineCorrectionLoss])
def test_the_shift_of_the_bias_layer_makes_a_score_a_logit(loss_class):
  _, y_true, y_pred = _batch()
  expected = loss_class(_bias())(y_true, y_pred)
  bias = _bias()
  bias.relevance_shift.assign(0.7)
  found = loss_class(bias)(y_true, y_pred - 0.7)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def _expected_gradient(bias, beta, chance):
  """E[gradient in the scores] over all click patterns of one list."""
  loss = AffineCorrectionLoss(bias, reduction="sum")
  scores = tf.constant([[0.3, -0.7, 1.1]])
  bias.start_collecting()
  total = np.zeros(3)
  for clicks in itertools.product((0.0, 1.0), repeat=3):
    weight = np.prod(np.where(clicks, chance, 1 - chance))
    with tf.GradientTape() as tape:
      tape.watch(scores)
      value = loss([clicks], scores)
    total += weight * tape.gradient(value, scores).numpy()[0]
  return total, tf.sigmoid(scores).numpy()[0] - beta


def test_affine_correction_is_unbiased_by_enumeration():
  beta = np.array([0.2, 0.7, 0.4])
  p1, p0 = np.array(P1[:3]), np.array(P0[:3])
  chance = p1 * beta + p0 * (1 - beta)
  # The expected gradient is that of the cross-entropy with beta itself.
  found, expected = _expected_gradient(_bias(), beta, chance)
  np.testing.assert_allclose(found, expected, atol=1e-6)
  # What ignores the trust is off.
  found, expected = _expected_gradient(_bias(trust=False), beta, chance)
  assert np.abs(found - expected).max() > 0.1


def _corrected(bias, clicked):
  """c' of a clicked or unclicked item at position 1, from the slope."""
  scores = tf.constant([[0.0] * bias.num_positions])
  bias.start_collecting()
  with tf.GradientTape() as tape:
    tape.watch(scores)
    value = AffineCorrectionLoss(bias, reduction="sum")(
        [[float(clicked)] * bias.num_positions], scores)
  return 0.5 - tape.gradient(value, scores).numpy()[0, 0]


def test_a_click_is_corrected_by_an_affine_map():
  """Where users trust positions, dividing by a propensity is not enough."""
  bias = PositionBias(1, trust_bias="position", examination=[0.5],
                      trust_positive=0.9, trust_negative=0.1)
  click, none = _corrected(bias, True), _corrected(bias, False)
  assert click == pytest.approx(2.375, rel=1e-6)
  assert none == pytest.approx(-0.125, rel=1e-6)
  chance = 0.5 * (0.9 * 0.4 + 0.1 * 0.6)
  assert chance * click + (1 - chance) * none == pytest.approx(0.4, rel=1e-6)


@pytest.mark.parametrize("theta", [0.9, 0.25])
def test_trust_that_is_never_wrong_leaves_inverse_propensities(theta):
  """Without noise the correction must be the one that users know."""
  trusting = PositionBias(1, trust_bias="position", examination=[theta],
                          trust_positive=1.0, trust_negative=0.0)
  for bias in (trusting, PositionBias(1, examination=[theta])):
    assert _corrected(bias, True) == pytest.approx(1 / theta, rel=1e-6)
    assert _corrected(bias, False) == 0


@pytest.mark.parametrize("max_weight", [None, 5.0])
def test_equal_trust_is_clipped(max_weight):
  """Clicks that say nothing of relevance would divide by zero."""
  bias = PositionBias(1, trust_bias="position", examination=[0.5],
                      trust_positive=0.4, trust_negative=0.4)
  bias.start_collecting()
  loss = AffineCorrectionLoss(bias, max_weight=max_weight)
  value = float(loss([[1.0]], [[1.0]]))
  assert np.isfinite(value)
  weight = 1e6 if max_weight is None else max_weight
  assert value == pytest.approx(
      oracles.softplus(1.0) - weight * (1 - 0.2), rel=1e-5)


def test_the_loss_is_convex_whatever_the_corrected_click():
  scores = np.linspace(-6.0, 6.0, 49, dtype=np.float32)
  for clicked in (0.0, 1.0):
    bias = PositionBias(1, trust_bias="position", examination=[0.1],
                        trust_positive=0.9, trust_negative=0.5)
    values = AffineCorrectionLoss(bias, reduction="none")(
        np.full([49, 1], clicked), scores[:, np.newaxis]).numpy()[:, 0]
    assert (np.diff(values, 2) > -1e-5).all()


@pytest.mark.slow
def test_sampled_targets_have_the_mean_of_the_expected_ones():
  lists, y_true, y_pred = _batch()
  expected = RegressionEMLoss(_bias(), reduction="none")(y_true, y_pred)
  loss = RegressionEMLoss(_bias(), targets="sample", seed=1, reduction="none")
  draws = np.stack([loss(y_true, y_pred) for _ in range(400)])
  assert draws.std(axis=0).max() > 0.1
  np.testing.assert_allclose(draws.mean(axis=0), expected, atol=0.3)
  assert abs((draws.mean(axis=0) - expected).numpy().mean()) < 0.02


@pytest.mark.parametrize("loss_class", [RegressionEMLoss, AffineCorrectionLoss])
def test_the_callback_finds_the_layer_and_saves_it(loss_class, tmp_path):
  rng = np.random.default_rng(0)
  features = rng.normal(size=[64, K, 2]).astype(np.float32)
  clicks = (rng.random([64, K]) < .8 / np.arange(1, K + 1)).astype(np.float32)

  def make():
    bias = PositionBias(K, trust_bias="position")
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1), tf.keras.layers.Reshape([K])])
    model.compile("sgd", loss_class(bias))
    model.build([None, K, 2])
    return model, bias

  model, bias = make()
  history = model.fit(features, clicks, batch_size=16, epochs=2,
                      callbacks=[PropensityEM()], verbose=0).history
  assert bias.num_updates.numpy() == 8
  assert history[f"examination_{K}"][-1] < 0.6
  model.save_weights(str(tmp_path / "weights"))
  other, again = make()
  PropensityEM().set_model(other)
  other.load_weights(str(tmp_path / "weights"))
  np.testing.assert_array_equal(again.examination, bias.examination)


@pytest.mark.parametrize("make, message", [
    (lambda: RegressionEMLoss(PositionBias(K, trust_bias="pairwise")),
     "`RegressionEMLoss` is pointwise, but `position_bias` has"),
    (lambda: AffineCorrectionLoss(PositionBias(K, trust_bias="pairwise")),
     "`AffineCorrectionLoss` is pointwise, .*take None or 'position'")])
def test_bad_arguments(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_what_the_cap_of_affine_weights_takes_away_is_counted():
  """`weight_clipped` in the logs was always 0."""
  bias = PositionBias(2, trust_bias="position", initial_examination=[.8, .2])
  loss = AffineCorrectionLoss(bias, max_weight=2.0)
  bias.start_collecting()
  loss([[1.0, 1.0], [1.0, 0.0]], tf.zeros([2, 2]))
  counters = bias.take_sums()["counters"].numpy()
  weights = [1 / (.98 * .8), 1 / (.98 * .2)]  # p0 is .02 p1.
  np.testing.assert_allclose(
      counters[base.WEIGHT], 2 * weights[0] + 2.0, rtol=1e-5)
  np.testing.assert_allclose(counters[base.CLIPPED], weights[1] - 2, rtol=1e-5)


def test_a_loss_without_weights_says_nothing_of_them():
  model = tf.keras.Sequential([tf.keras.layers.Reshape([2])])
  model.compile("sgd", RegressionEMLoss(PositionBias(2, trust_bias=None)))
  history = model.fit(tf.zeros([2, 2]), tf.constant([[1.0, 0.0]] * 2),
                      verbose=0, callbacks=[PropensityEM()]).history
  assert "examination_2" in history and "weight_clipped" not in history
