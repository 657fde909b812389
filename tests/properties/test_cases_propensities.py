"""Cases that users ran into: propensities and their EM."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from case_models import NONE
from case_models import SUM
from case_models import linear_towers
from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import examination as examination_lib
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking
from ultra_tfr.simulation import click_models

# The curve of eye tracking that the simulations use.
CURVE = [.68, .61, .48, .34, .28, .20, .11, .10, .08, .06]


def identity_model(heads=1):
  """The input is the output, so that tests decide on scores."""
  inputs = tf.keras.Input([None] if heads == 1 else [None, heads])
  return tf.keras.Model(inputs, tf.identity(inputs))


def position_based_clicks(num_lists, size=5, seed=0):
  """Relevance probabilities, positions and clicks of independent sessions."""
  rng = np.random.default_rng(seed)
  beta = rng.uniform(.05, .95, [num_lists, size])
  positions = np.argsort(rng.random([num_lists, size]), axis=1) + 1
  examined = rng.random([num_lists, size]) < np.array(CURVE)[positions - 1]
  clicks = examined & (rng.random([num_lists, size]) < beta)
  return beta, positions, clicks.astype(np.float32)


def test_case_a29_the_e_step():
  relevance = tf.fill([1, 2], np.float32(np.log(.4 / .6)))
  theta, zero = tf.fill([1, 2], .5), tf.zeros([1, 2])
  clicked = tf.constant([[False, True]])
  examined = examination_lib.examination_posterior(clicked, relevance, theta)
  relevant = examination_lib.relevance_posterior(
      clicked, relevance, theta, zero)
  np.testing.assert_allclose(examined, [[.375, 1.]], rtol=1e-6)
  np.testing.assert_allclose(relevant, [[.25, 1.]], rtol=1e-6)
  # Without a click it was not both, so "neither" makes up the rest.
  np.testing.assert_allclose(
      1. - examined[0, 0] - relevant[0, 0], .375, rtol=1e-6)


def test_case_a30_the_estimate_comes_closer_over_epochs():
  beta, positions, clicks = position_based_clicks(2000)
  logits = np.log(beta / (1. - beta))
  heads = np.stack([logits, logits], -1).astype(np.float32)
  model = identity_model(heads=2)
  bias = PositionBias(5, initial_examination=.9)
  model.compile("sgd", UnbiasedPairwiseLoss(bias))
  history = model.fit(
      heads, pack_feedback(clicks, positions), batch_size=100, epochs=5,
      verbose=0, callbacks=[PropensityEM(averaging="parameters")]).history
  estimates = np.stack([
      history[f"examination_{k}"] for k in range(1, 6)], axis=1)
  errors = np.abs(estimates - np.array(CURVE[:5]) / CURVE[0]).max(axis=1)
  assert errors[0] > errors[1] > errors[4]
  assert errors[0] > 2 * errors[4]
  # Nothing starts over between epochs, nor when `fit` is called again.
  assert bias.num_updates.numpy() == 100
  before = bias.examination.numpy()
  model.fit(heads, pack_feedback(clicks, positions), batch_size=2000,
            verbose=0, callbacks=[PropensityEM(averaging="parameters")])
  assert np.abs(bias.examination.numpy() - before).max() < .05
  assert bias.num_updates.numpy() == 101


@pytest.mark.parametrize("averaging", ["statistics", "parameters"])
def test_case_a33_batches_without_clicks(averaging):
  bias = PositionBias(3, initial_examination=[.9, .5, .1])
  bias.start_collecting()
  loss = UnbiasedPairwiseLoss(bias)
  scores = tf.zeros([4, 3])
  last = bias.examination.numpy()
  first_step = None
  for _ in range(100):
    assert loss(tf.zeros([4, 3]), scores).numpy() == 0
    bias.update(averaging=averaging)
    theta = bias.examination.numpy()
    assert np.all(theta > 0) and np.all(theta < last)
    first_step = last - theta if first_step is None else first_step
    last = theta
  if averaging == "parameters":
    # alpha_0 = .05 of the way to theta (1 - beta) / (1 - theta beta).
    start = np.array([[.9, .5, .1]])
    target = start * .5 / (1. - start / 2)
    np.testing.assert_allclose(
        first_step, .05 * (start - target), rtol=1e-3)


def test_case_a33_a_start_from_clicks_without_clicks():
  bias = PositionBias(3)
  bias.start_collecting()
  loss = UnbiasedPairwiseLoss(bias)
  for _ in range(30):
    assert loss(tf.zeros([4, 3]), tf.zeros([4, 3])).numpy() == 0
    bias.update(warmup=20)
    theta = bias.examination.numpy()
    assert np.all(np.isfinite(theta)) and np.all((theta > 0) & (theta <= 1))


def test_case_a34_the_scale_is_that_of_position_one():
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
          PositionBias(10, examination=np.array(CURVE) * factor),
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


def test_case_a35_trust_bias_is_affine():
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


def test_case_a35_limits_of_trust():
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


def test_case_a36_each_epoch_tells_the_propensities(tmp_path):
  beta, positions, clicks = position_based_clicks(64)
  model = linear_towers(1)
  bias = PositionBias(5)
  model.compile("sgd", UnbiasedPairwiseLoss(bias, max_weight=1.))
  log = tmp_path / "log.csv"
  history = model.fit(
      beta[..., np.newaxis], pack_feedback(clicks, positions), epochs=3,
      verbose=0, callbacks=[
          PropensityEM(), tf.keras.callbacks.CSVLogger(str(log))]).history
  names = [f"examination_{k}" for k in range(1, 6)]
  assert {"examination_change", "weight_clipped", *names} <= set(history)
  np.testing.assert_allclose(
      [history[n][-1] for n in names], bias.propensities()["examination"],
      rtol=1e-6)
  assert history["examination_1"] == [1.] * 3
  assert history["examination_change"][0] > 0
  assert 0 < history["weight_clipped"][0] < 1
  header = log.read_text().splitlines()[0]
  assert all(name in header.split(",") for name in names)


def _true_ndcg(model, features, labels):
  metric = on_ranking(tfr.keras.metrics.NDCGMetric(topn=10))
  metric.update_state(tf.constant(labels, tf.float32), model(features))
  return float(metric.result())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_case_a38_the_gain_shows_on_true_labels(seed):
  # Lists were ordered by relevance mixed with something that is unrelated to
  # it; clicks, drawn afresh each epoch, hand it on to whoever believes them.
  rng = np.random.default_rng(seed)
  num_train, epochs, size, num_features = 1000, 25, 10, 6
  features = rng.normal(
      size=[num_train + 500, size, num_features]).astype(np.float32)
  relevant, unrelated = np.linalg.qr(rng.normal(size=[num_features, 2]))[0].T
  value = features @ relevant
  labels = np.digitize(
      value + .2 * rng.normal(size=value.shape), [.3, 1., 1.6, 2.2])
  order = np.argsort(-(value + 1.5 * features @ unrelated), axis=1)
  features = np.take_along_axis(features, order[..., np.newaxis], axis=1)
  labels = np.take_along_axis(labels, order, axis=1)
  clicks = np.concatenate([
      click_models.PositionBasedModel().sample(
          labels[:num_train], seed=(seed, epoch)).clicks
      for epoch in range(epochs)])
  repeated = np.tile(features[:num_train], [epochs, 1, 1])

  def true_ndcg(bias, callbacks, heads):
    tf.keras.utils.set_random_seed(seed)
    model = scorers.build_model(
        num_features, num_heads=heads, hidden_units=[16], layer_norm=False)
    model.compile(
        tf.keras.optimizers.Adam(.01), UnbiasedPairwiseLoss(bias))
    model.fit(repeated, clicks, batch_size=64, shuffle=False, verbose=0,
              callbacks=callbacks)
    return _true_ndcg(model, features[num_train:], labels[num_train:])

  naive = true_ndcg(PositionBias(size, examination=[1.] * size), [], 1)
  unbiased = true_ndcg(PositionBias(size), [PropensityEM()], 2)
  assert unbiased > naive + .01
