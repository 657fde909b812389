"""What is unbiased in TF-Ranking's losses: every pattern of clicks enumerated.

A list of three items with independent binary relevance. The expectation of the
debiased loss over all patterns of clicks is compared with that of TF-Ranking's
own loss over all patterns of true relevance. `ranking_losses.TREATMENTS` says
of each loss whether all of it is unbiased or only its numerator; the tests hold
each loss to that, and check that none with "numerator" is unbiased as a whole.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import losses_impl

import oracles
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.ranking_losses import TREATMENTS

LOSSES = tfr.keras.losses
PATTERNS = np.array(list(itertools.product([0, 1], repeat=3)), np.float32)
# A list once by each of two rankers: training sees the difference.
SCORES = np.array([[0.3, -1.1, 0.8], [0.9, 0.2, -0.4]])
BETA = np.array([0.3, 0.7, 0.5])
THETA = np.array([0.8, 0.5, 0.2])
# Users with much trust in what stands high.
TRUST = {"trust_bias": "position", "examination": [.8, .6, .4],
         "trust_positive": [.9, .9, .8], "trust_negative": [.4, .2, .1]}
P1 = np.multiply(TRUST["examination"], TRUST["trust_positive"])
P0 = np.multiply(TRUST["examination"], TRUST["trust_negative"])

# The last item is hardly seen: labels of it are the model's.
UNSEEN = np.array([0.8, 0.5, 0.002])

worlds = pytest.mark.parametrize("bias, p1, p0", [
    pytest.param({"examination": THETA}, THETA, 0.0 * THETA, id="examination"),
    pytest.param({"examination": UNSEEN}, UNSEEN, 0.0 * UNSEEN, id="unseen"),
    pytest.param(TRUST, P1, P0, id="trust")])


def _having(attribute, value):
  return pytest.mark.parametrize("cls", [
      cls for cls, treatment in TREATMENTS.items()
      if getattr(treatment, attribute) == value])


@pytest.fixture(autouse=True)
def _same_noise(monkeypatch):
  """Gumbel noise that is the same for all lists."""
  monkeypatch.setattr(
      losses_impl, "_sample_gumbel",
      lambda shape, **_: tf.broadcast_to([0.5, -0.2, 0.1], shape))


def _chances(rates):
  """The probability of each pattern, of independent items."""
  return np.prod(np.where(PATTERNS == 1, rates, 1.0 - rates), axis=1)


def _clicks(p1, p0):
  return _chances(p1 * BETA + p0 * (1.0 - BETA))


def _expectation(loss, chances, patterns=PATTERNS, weights=1.0):
  """The mean over patterns for one ranker less that for the other."""
  def value(scores):
    heads = np.stack([scores, [oracles.logit(b) for b in BETA]], axis=-1)
    heads = np.tile(heads.astype(np.float32), [len(patterns), 1, 1])
    if not isinstance(loss, (UnbiasedLoss, InversePropensityLoss)):
      heads = heads[..., 0]
    sample_weight = np.reshape(chances, [-1, 1]) * weights
    return float(loss(patterns, tf.constant(heads),
                      tf.constant(sample_weight, tf.float32)))
  return value(SCORES[1]) - value(SCORES[0])


def _learned(cls, bias):
  return UnbiasedLoss(
      PositionBias(3, **{"trust_bias": None, **bias}), cls(reduction="sum"),
      head_weight=0.0)


def _known(cls):
  return InversePropensityLoss(
      PositionBias(3, examination=THETA), cls(reduction="sum"))


@worlds
@_having("learned", "whole")
def test_the_whole_loss_is_unbiased(cls, bias, p1, p0):
  found = _expectation(_learned(cls, bias), _clicks(p1, p0)) / p1[0]
  if TREATMENTS[cls].enters == "weights":
    true = _expectation(cls(reduction="sum"), _chances(BETA))
  else:
    # Labels are what they are at position 1, with linear gain.
    labels = p1[0] * BETA[np.newaxis]
    if TREATMENTS[cls].has_exponential_gain:
      labels = np.log2(1.0 + labels)
    true = _expectation(
        cls(reduction="sum"), 1.0 / p1[0], labels.astype(np.float32))
  np.testing.assert_allclose(found, true, rtol=1e-4)


@_having("known", "whole")
def test_the_whole_loss_is_unbiased_by_a_known_curve(cls):
  found = _expectation(_known(cls), _chances(THETA * BETA))
  true = _expectation(cls(reduction="sum"), _chances(BETA))
  np.testing.assert_allclose(found, true, rtol=1e-4)


@worlds
@pytest.mark.parametrize("cls", [
    LOSSES.PairwiseLogisticLoss, LOSSES.PairwiseHingeLoss,
    LOSSES.PairwiseSoftZeroOneLoss, LOSSES.YetiLogisticLoss])
def test_the_preferred_item_of_pairs_is_unbiased(cls, bias, p1, p0):
  found = _expectation(_learned(cls, bias), _clicks(p1, p0)) / p1[0]
  # The loss of each pair by itself: b alone is irrelevant, only a has weight.
  unit = np.eye(3, dtype=np.float32)
  clicked = p1 * BETA + p0 * (1.0 - BETA)
  true = sum(
      BETA[a] * (1.0 - clicked[b]) * _expectation(
          cls(reduction="sum"), 1.0, 1.0 - unit[b:b + 1], unit[a:a + 1])
      for a, b in itertools.permutations(range(3), 2))
  np.testing.assert_allclose(found, true, rtol=1e-4)


@pytest.mark.parametrize("cls", [
    LOSSES.ApproxNDCGLoss, LOSSES.GumbelApproxNDCGLoss, LOSSES.ApproxMRRLoss])
def test_the_gains_of_clicks_are_unbiased_by_a_known_curve(cls):
  """Times what the loss divides by, it is linear in true relevance."""
  ranks = np.arange(1, 4)
  divisor = (PATTERNS.sum(axis=1) if cls is LOSSES.ApproxMRRLoss else
             np.sum(np.sort(PATTERNS)[:, ::-1] / np.log1p(ranks), axis=1))
  found = _expectation(_known(cls), _chances(THETA * BETA) * divisor)
  true = _expectation(cls(reduction="sum"), _chances(BETA) * divisor)
  np.testing.assert_allclose(found, true, rtol=1e-4)


@worlds
@_having("learned", "numerator")
def test_no_more_than_the_numerator_is(cls, bias, p1, p0):
  scale = 1.0 if TREATMENTS[cls].enters == "label" else p1[0]
  found = _expectation(_learned(cls, bias), _clicks(p1, p0)) / scale
  true = _expectation(cls(reduction="sum"), _chances(BETA))
  assert abs(found / true - 1.0) > 0.01


@_having("known", "numerator")
def test_no_more_than_the_numerator_is_by_a_known_curve(cls):
  found = _expectation(_known(cls), _chances(THETA * BETA))
  true = _expectation(cls(reduction="sum"), _chances(BETA))
  assert abs(found / true - 1.0) > 0.01


@pytest.mark.parametrize("cls", TREATMENTS)
def test_feedback_as_it_is_is_biased(cls):
  naive = _expectation(cls(reduction="sum"), _clicks(P1, P0)) / P1[0]
  true = _expectation(cls(reduction="sum"), _chances(BETA))
  assert abs(naive / true - 1.0) > 0.01
