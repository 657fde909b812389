"""Tests of ultra_tfr.losses.UnbiasedLoss."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import oracles
import small_losses
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedLoss

SoftmaxLoss = tfr.keras.losses.SoftmaxLoss
CURVE = [0.8, 0.4, 0.2]


def _loss(bias=None, inner=None, **arguments):
  return UnbiasedLoss(bias or PositionBias(3, examination=CURVE),
                      inner or SoftmaxLoss(), **arguments)


@pytest.mark.parametrize("inner", [
    SoftmaxLoss(), tfr.keras.losses.PairwiseLogisticLoss(),
    tfr.keras.losses.MeanSquaredLoss(reduction="sum")])
def test_everything_examined_is_the_inner_loss(inner):
  """With nothing to debias the value is what TF-Ranking's users know."""
  y_true, y_pred = [[1.0, 0.0, 1.0, 0.0]], tf.constant([[0.3, 0.1, -1.0, 2.0]])
  loss = _loss(PositionBias(4, examination=[1.0] * 4), inner)
  assert float(loss(y_true, y_pred)) == pytest.approx(
      float(inner(y_true, y_pred)), rel=1e-5)


def test_weights_of_clicked_and_unclicked_items():
  """beta / pi and (1 - beta) / (1 - pi), relative to position 1."""
  beta, labels = [0.3, 0.6, 0.5], [1.0, 0.0, 1.0]
  heads = tf.constant([[[0.1, oracles.logit(b)] for b in beta]])
  inner = tfr.keras.losses.SigmoidCrossEntropyLoss(reduction="sum")
  found = _loss(inner=inner, head_weight=0.0)([labels], heads)
  weights = [1.0 / theta if c else (1 - b) / (1 - theta * b)
             for c, b, theta in zip(labels, beta, CURVE)]
  expected = inner([labels], heads[..., 0], CURVE[0] * np.array([weights]))
  assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_weights_are_mixed_by_belief():
  """Of several hypotheses each counts as far as it is believed."""
  bias = PositionBias(3, trust_bias="auto", initial_examination=CURVE)
  support = tf.math.log([0.1, 0.6, 0.1, 0.2])
  bias.evidence.assign(bias.evidence + support - bias._support())
  np.testing.assert_allclose(bias.shares(), [0.1, 0.6, 0.1, 0.2], rtol=1e-5)
  logits = tf.constant([[[0.0, 1.0, -1.0, 0.5, 0.2]] * 3])
  found = _loss(bias, head_weight=0.0)([[0.0, 0.0, 1.0]], logits)
  factors = [
      CURVE[0] / (CURVE[2] * (1 + model.hypothesis.click_irrelevant *
                              np.exp(-float(logits[0, 0, 1 + i]))))
      for i, model in enumerate(bias.models)]
  expected = np.dot([0.1, 0.6, 0.1, 0.2], factors) * np.log(3)
  assert float(found) == pytest.approx(expected, rel=1e-4)


def test_weights_are_capped_and_what_that_takes_is_counted():
  loss = _loss(max_weight=2.5, head_weight=0.0)
  loss.position_bias.start_collecting()
  found = float(loss([[0.0, 1.0, 1.0]], tf.zeros([1, 3])))
  assert found == pytest.approx((2.0 + 2.5) * np.log(3), rel=1e-5)
  counters = loss.position_bias.take_sums()["counters"].numpy()
  np.testing.assert_allclose(counters[2:], [2.0, 4.5, 1.5], rtol=1e-5)


def test_relevance_heads_learn_as_those_of_the_pairwise_loss():
  """The E step is the same one, whatever the ranking head is trained with."""
  heads = tf.constant([[[0.1, 0.4], [0.2, -0.3], [0.3, 1.0]]])
  bias = PositionBias(3, initial_examination=CURVE, trust_bias=None)
  y_true = [[0.0, 1.0, 0.0]]
  by_loss = []
  for loss in (_loss(bias), small_losses.UnbiasedPairwiseLoss(bias)):
    bias.start_collecting()
    _, gradient = small_losses.value_and_gradient(loss, y_true, heads)
    sums = bias.take_sums()
    by_loss.append((gradient[..., 1], sums["pointwise"], sums["calibration"]))
  for ours, others in zip(*by_loss):
    np.testing.assert_allclose(ours, others, rtol=1e-5)


@pytest.mark.parametrize("inner, bias, message", [
    (SoftmaxLoss(reduction="none"), {},
     "`reduction` is 'none'; take 'auto' or 'sum'"),
    (SoftmaxLoss(), {"trust_bias": "pairwise"},
     "weighs items, but `position_bias` has `trust_bias='pairwise'`")])
def test_what_does_not_fit(inner, bias, message):
  with pytest.raises(ValueError, match=message):
    _loss(PositionBias(3, **{"trust_bias": None, **bias}), inner)


@pytest.mark.parametrize("heads, bias", [
    (1, None), pytest.param(2, None, marks=pytest.mark.slow),
    pytest.param(5, "auto", marks=pytest.mark.slow)])
def test_em_finds_the_curve_in_fit(heads, bias):
  """Under the callback alone, with and without heads for relevance."""
  rng = np.random.default_rng(0)
  features = rng.normal(size=[2000, 3, 2]).astype(np.float32)
  relevant = rng.random([2000, 3]) < 1 / (1 + np.exp(-2 * features[..., 0]))
  clicks = relevant & (rng.random([2000, 3]) < CURVE)
  layer = PositionBias(3, trust_bias=bias)
  tf.keras.utils.set_random_seed(0)
  inputs = tf.keras.Input([3, 2])
  outputs = tf.keras.layers.Dense(heads)(inputs)
  if heads == 1:
    outputs = tf.keras.layers.Reshape([3])(outputs)
  model = tf.keras.Model(inputs, outputs)
  model.compile(tf.keras.optimizers.Adam(0.05), _loss(layer))
  model.fit(features, clicks.astype(np.float32), 50, 4, verbose=0,
            callbacks=[PropensityEM()])
  np.testing.assert_allclose(
      layer.propensities()["examination"], np.divide(CURVE, CURVE[0]),
      atol=0.12)
