"""Tests of ultra_tfr.losses.InversePropensityLoss."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import oracles
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss

THETA = (0.9, 0.6, 0.4, 0.25)
NUM_POSITIONS = len(THETA)


def _bias(examination=THETA, **arguments):
  return PositionBias(len(examination), examination=list(examination),
                      **arguments)


def _pairwise(reduction="sum"):
  return tfr.keras.losses.PairwiseLogisticLoss(reduction=reduction)


def _loss(bias=None, reduction="sum"):
  return InversePropensityLoss(bias or _bias(), _pairwise(reduction))


def _tensors(lists):
  """`y_true` with positions, and `y_pred`, of lists of the oracle."""
  feedback = np.where(oracles.column(lists, "valid"),
                      oracles.column(lists, "feedback"), -1.0)
  positions = np.where(feedback < 0, 0, oracles.column(lists, "position"))
  return (pack_feedback(feedback, positions),
          tf.constant(oracles.column(lists, "score"), tf.float32))


def _oracle(lists):
  """The sum over pairs, each weighted by its preferred item."""
  def inverse_propensity(a, b, items):
    del b  # The weight is that of the preferred item.
    return 1.0 / THETA[items["position"][a] - 1]

  return sum(
      sum(oracles.pair_loss_sums(
          items, functools.partial(inverse_propensity, items=items)))
      for items in lists)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("padding", [0.0, 0.3])
def test_equals_the_double_loop(seed, padding):
  lists = oracles.random_lists(
      seed, num_positions=NUM_POSITIONS, padding=padding)
  np.testing.assert_allclose(
      float(_loss()(*_tensors(lists))), _oracle(lists), rtol=1e-5)


@pytest.mark.parametrize("shape", [[2, 1], [1, 2], [2, 3, 2]])
def test_scores_of_other_lists(shape):
  # The first two would be broadcast, and be wrong without a word.
  with pytest.raises(ValueError, match="`y_pred` must score the items of "):
    _loss(_bias([0.5, 0.25]))([[1.0, 0.0]] * 2, tf.zeros(shape))


def test_everything_examined_is_the_inner_loss():
  lists = oracles.random_lists(0, num_positions=NUM_POSITIONS)
  y_true, y_pred = _tensors(lists)
  for reduction in ("sum", "auto"):
    np.testing.assert_allclose(
        float(_loss(_bias([1.0] * NUM_POSITIONS), reduction)(y_true, y_pred)),
        float(_pairwise(reduction)(y_true[..., 0], y_pred)), rtol=1e-5)


@pytest.mark.parametrize("inner, label", [
    (tfr.keras.losses.SoftmaxLoss, "softmax"),
    (tfr.keras.losses.SigmoidCrossEntropyLoss, "sigmoid")])
def test_other_inner_losses(inner, label):
  y_true = tf.constant([[0.0, 1.0, 0.0, 0.0]])
  y_pred = tf.constant([[0.3, -0.2, 0.1, 0.5]])
  found = float(InversePropensityLoss(_bias(), inner(reduction="sum"))(
      y_true, y_pred))
  scores = y_pred.numpy()[0].tolist()
  if label == "softmax":
    total = sum(math.exp(s) for s in scores)
    expected = -math.log(math.exp(scores[1]) / total) / THETA[1]
  else:
    expected = sum(oracles.softplus(-s if k == 1 else s) / THETA[k]
                   for k, s in enumerate(scores))
  assert found == pytest.approx(expected, rel=1e-5)


def test_heads_other_than_the_ranking_are_ignored():
  y_true, y_pred = [[1.0, 0.0, 0.0]], tf.constant([[0.1, 0.2, 0.3]])
  heads = tf.stack([y_pred, 9.0 * y_pred, -y_pred], axis=-1)
  assert float(_loss()(y_true, heads)) == float(_loss()(y_true, y_pred))


def test_contexts_have_curves_of_their_own():
  bias = PositionBias(2, num_contexts=2, examination=[[1.0, 0.5], [0.5, 0.1]])
  y_pred = tf.constant([[1.0, 0.0]])
  for context, weight in ((0, 1.0), (1, 2.0)):
    y_true = pack_feedback([[1.0, 0.0]], contexts=[context])
    assert float(_loss(bias)(y_true, y_pred)) == pytest.approx(
        weight * oracles.softplus(-1.0), rel=1e-5)


def test_items_beyond_the_curve_are_left_out():
  y_pred = tf.constant([[0.3, 0.2, 0.1]])
  y_true = pack_feedback([[0.0, 1.0, 1.0]], [[1, 2, NUM_POSITIONS + 1]])
  cut = pack_feedback([[0.0, 1.0]], [[1, 2]])
  assert float(_loss()(y_true, y_pred)) == pytest.approx(
      float(_loss()(cut, y_pred[:, :2])), rel=1e-6)


def test_a_position_that_nobody_examines_gives_no_infinite_weight():
  y_pred = tf.zeros([1, 2])
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = _loss(_bias([1.0, 0.0]))([[0.0, 1.0]], y_pred)
  assert np.isfinite(value)
  assert np.isfinite(tape.gradient(value, y_pred)).all()


def test_a_learned_bias():
  with pytest.raises(
      ValueError, match="needs known propensities, but the bias layer 'mine' "
      "learns its own; give it `examination`, or use `UnbiasedPairwiseLoss`"):
    InversePropensityLoss(PositionBias(2, name="mine",
        trust_bias=None), _pairwise())


def test_a_misspelt_argument():
  with pytest.raises(TypeError, match="max_wait"):
    InversePropensityLoss(_bias(), _pairwise(), max_wait=1.0)
