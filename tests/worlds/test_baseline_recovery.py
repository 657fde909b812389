"""Worlds in which the baselines must find the click model's curve."""

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.callbacks import PositionUpdates
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias

# Six kinds of items, which the features tell, at random positions.
THETA = np.array([.9, .7, .5, .35, .25])
BETA = np.array([.05, .15, .3, .5, .7, .9])
MINUS = np.array([.4, .3, .2, .15, .1])
K, KINDS = len(THETA), len(BETA)


def _logs(seed, num_lists=64000, trust_negative=None, random_order=True):
  rng = np.random.default_rng(seed)
  kinds = rng.integers(0, KINDS, [num_lists, K])
  if not random_order:
    kinds = np.sort(kinds, axis=1)[:, ::-1]
  chance = THETA * BETA[kinds]
  if trust_negative is not None:
    chance += THETA * trust_negative * (1 - BETA[kinds])
  clicks = rng.random(kinds.shape) < chance
  return np.eye(KINDS, dtype=np.float32)[kinds], clicks.astype(np.float32)


def _fit(loss, callback, logs, seed=0):
  """Scores of the six kinds after one pass."""
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(KINDS, hidden_units=[])
  model.compile(tf.keras.optimizers.Adam(.02), loss)
  model.fit(*logs, batch_size=256, callbacks=[callback], verbose=0)
  return model(np.eye(KINDS, dtype=np.float32)[np.newaxis]).numpy()[0]


def _assert_curve(curve, expected=THETA / THETA[0]):
  print("curve:", np.round(curve, 3), "errors:", np.round(curve - expected, 3))
  assert curve[0] == 1
  np.testing.assert_allclose(curve, expected, atol=0.05)


seeds = pytest.mark.parametrize("seed", [
    pytest.param(0, marks=pytest.mark.slow),
    pytest.param(1, marks=pytest.mark.release)])


@seeds
def test_dual_learning(seed):
  layer = PropensityLogits(K)
  scores = _fit(DualLearningLoss(layer), PositionUpdates(), _logs(seed), seed)
  _assert_curve(layer.propensities()["examination"])
  assert (np.diff(scores) > 0).all()
  # A softmax of unbiased clicks is the relevance, up to a constant.
  np.testing.assert_allclose(
      scores - scores.mean(), np.log(BETA) - np.log(BETA).mean(), atol=.3)


@seeds
def test_regression_em(seed):
  bias = PositionBias(K, trust_bias=None)
  scores = _fit(RegressionEMLoss(bias), PropensityEM(), _logs(seed), seed)
  _assert_curve(bias.propensities()["examination"])
  np.testing.assert_allclose(tf.sigmoid(scores), BETA, atol=.1)


@seeds
@pytest.mark.parametrize("regularization", [0.0, 1.0])
def test_pairwise_debiasing(regularization, seed):
  layer = ClickRatios(K, regularization=regularization)
  scores = _fit(
      PairwiseDebiasingLoss(layer), PositionUpdates(), _logs(seed), seed)
  expected = (THETA / THETA[0])**(1 / (1 + regularization))
  _assert_curve(layer.ratios()["clicked_ratio"], expected)
  assert (np.diff(scores) > 0).all()
  # An unclicked item further down says less.
  assert (np.diff(layer.ratios()["unclicked_ratio"]) > 0).all()


@seeds
def test_pairwise_debiasing_needs_random_order(seed):
  layer = ClickRatios(K)
  logs = _logs(seed, random_order=False)
  _fit(PairwiseDebiasingLoss(layer), PositionUpdates(), logs, seed)
  found = layer.ratios()["clicked_ratio"]
  assert np.abs(found - THETA / THETA[0]).max() > 0.05


@seeds
def test_affine_correction(seed):
  bias = PositionBias(K, trust_bias="position", initial_click_irrelevant=.3)
  scores = _fit(AffineCorrectionLoss(bias), PropensityEM(),
                _logs(seed, trust_negative=MINUS), seed)
  found = bias.propensities()
  _assert_curve(found["examination"])
  np.testing.assert_allclose(found["click_relevant"], THETA, atol=.06)
  np.testing.assert_allclose(
      found["click_irrelevant"], THETA * MINUS, atol=.05)
  np.testing.assert_allclose(tf.sigmoid(scores), BETA, atol=.1)


@seeds
def test_product_tower(seed):
  tower = ShallowTower(K, ["product"])
  scores = _fit(ShallowTowerLoss(tower), PositionUpdates(), _logs(seed), seed)
  _assert_curve(tower.propensities()["examination"])
  relevance = tf.sigmoid(scores).numpy()
  np.testing.assert_allclose(
      relevance / relevance[-1], BETA / BETA[-1], atol=.06)
