"""Tests of ultra_tfr.baselines.pairwise_debiasing."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import baseline_oracles
import oracles
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.core import em
from ultra_tfr.feedback import pack_feedback

K = 4
CLICKED = [1.0, 0.7, 0.4, 0.3]
UNCLICKED = [1.0, 1.2, 1.5, 1.9]


def _layer(regularization=0.0):
  layer = ClickRatios(K, regularization=regularization)
  layer.clicked_ratio.assign([CLICKED])
  layer.unclicked_ratio.assign([UNCLICKED])
  return layer


def _batch(seed=0, num_lists=5):
  lists = oracles.random_lists(seed, num_lists, num_positions=K)
  y_true = pack_feedback(
      np.where(oracles.column(lists, "valid"),
               oracles.column(lists, "feedback"), -1.0),
      oracles.column(lists, "position"))
  return (lists, y_true, np.array(oracles.column(lists, "score"), np.float32),
          np.array(oracles.column(lists, "weight"), np.float32))


@pytest.mark.parametrize("max_weight", [None, 2.0])
def test_loss_equals_the_double_loop(max_weight):
  lists, y_true, y_pred, _ = _batch()
  loss = PairwiseDebiasingLoss(
      _layer(), max_weight=max_weight, reduction="none")

  def weight(items, a, b):
    i, j = items["position"][a] - 1, items["position"][b] - 1
    return min(1.0 / (CLICKED[i] * UNCLICKED[j]), max_weight or math.inf)

  expected = [oracles.pair_loss_sums(
      items, lambda a, b, items=items: weight(items, a, b)) for items in lists]
  np.testing.assert_allclose(loss(y_true, y_pred), expected, rtol=1e-5)


def test_ratios_of_one_are_the_plain_pairwise_loss():
  y_true, y_pred = [[1.0, 0.0, 0.0, 1.0]], [[0.2, 0.5, -0.3, 0.1]]
  assert float(PairwiseDebiasingLoss(ClickRatios(K))(y_true, y_pred)) == (
      pytest.approx(float(
          tfr.keras.losses.PairwiseLogisticLoss()(y_true, y_pred)), rel=1e-6))


@pytest.mark.parametrize("regularization", [0.0, 1.0, 2.5])
def test_the_first_update_is_that_of_the_loop(regularization):
  lists, y_true, y_pred, weights = _batch()
  layer = _layer(regularization)
  layer.start_collecting()
  PairwiseDebiasingLoss(layer)(y_true, y_pred, weights)
  layer.update()
  sums = np.array(baseline_oracles.ratio_sums(lists, CLICKED, UNCLICKED))
  found = layer.ratios()
  for column, name, now in ((0, "clicked_ratio", CLICKED),
                            (1, "unclicked_ratio", UNCLICKED)):
    np.testing.assert_allclose(found[name], baseline_oracles.ratios(
        sums[:, column], now, regularization, 1e-3), rtol=1e-4)


def test_pairs_of_the_whole_batch_are_summed():
  """An implementation assigned where it should add: the last pair counted."""
  layer = ClickRatios(3)
  layer.start_collecting()
  PairwiseDebiasingLoss(layer)([[1.0, 0.0, 0.0]] * 2, [[0.0] * 3] * 2)
  sums = layer.take_sums()["tables"].numpy()
  np.testing.assert_allclose(sums[0, 0], 2 * 1.386294, rtol=1e-5)
  np.testing.assert_allclose(sums[1:, 1], 2 * 0.693147, rtol=1e-5)


def test_sums_are_averaged_over_batches_and_divided_afterwards():
  layer = ClickRatios(K)
  loss = PairwiseDebiasingLoss(layer)
  layer.start_collecting()
  average, clicked, unclicked = np.zeros([K, 2]), np.ones(K), np.ones(K)
  for step in range(4):
    lists, y_true, y_pred, weights = _batch(seed=step, num_lists=2)
    loss(y_true, y_pred, weights)
    layer.update(step_size=0.4, step_decay=0.1)
    sums = np.array(baseline_oracles.ratio_sums(lists, clicked, unclicked))
    # A young average is the plain mean.
    rate = max(em.step_size(float(step), 0.4, 0.1).numpy(), 1 / (step + 1))
    average = (1 - rate) * average + rate * sums
    # Nothing moves in a batch that says nothing of the first position.
    clicked, unclicked = (np.array(baseline_oracles.ratios(
        average[:, i], now, 0.0, 1e-3)) if sums[0, i] > 0 else now
                          for i, now in enumerate((clicked, unclicked)))
    np.testing.assert_allclose(layer.clicked_ratio[0], clicked, rtol=1e-4)
    np.testing.assert_allclose(layer.unclicked_ratio[0], unclicked, rtol=1e-4)
  assert np.ptp(clicked) > 0.1


def test_a_batch_without_a_pair_at_position_one():
  layer = _layer()
  layer.start_collecting()
  loss = PairwiseDebiasingLoss(layer)
  y_true = pack_feedback([[1.0, 0.0]], [[2, 3]])
  assert float(loss(y_true, [[0.0, 0.0]])) > 0
  layer.update()
  np.testing.assert_allclose(layer.clicked_ratio, [CLICKED])
  np.testing.assert_allclose(layer.unclicked_ratio, [UNCLICKED])
  # No pair at all.
  loss([[1.0, 1.0, 1.0, 1.0]], [[0.0] * K])
  layer.update()
  np.testing.assert_allclose(layer.clicked_ratio, [CLICKED])


def test_a_banner_takes_the_place_of_position_one():
  """t+ of the others grew without end, and the loss vanished."""
  layer = ClickRatios(3)
  loss = PairwiseDebiasingLoss(layer)
  layer.start_collecting()
  scores = np.zeros([4, 3])
  loss(np.eye(4, 3), scores)
  layer.update()
  before = layer.clicked_ratio.numpy()
  y_true = pack_feedback(
      [[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]] * 2, [[1, 2, 3]] * 4)
  for _ in range(200):
    loss(y_true, scores)
    layer.update(step_size=0.5, step_decay=0.0)
  np.testing.assert_array_equal(layer.clicked_ratio, before)
  assert float(loss(y_true, scores)) > 0.1
  # When it is back, ratios stay bounded.
  loss(np.eye(4, 3), scores)
  layer.update()
  assert np.isfinite(layer.clicked_ratio).all()
  assert layer.clicked_ratio.numpy().max() <= 1e3


def test_weights_carry_no_gradient():
  y_true, y_pred = [[1.0, 0.0, 0.0, 0.0]], tf.constant([[0.2, 0.5, -0.3, 0.1]])
  layer = _layer()
  layer.start_collecting()
  loss = PairwiseDebiasingLoss(layer, reduction="sum")
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred)
  slope = [oracles.sigmoid(y_pred[0, b] - y_pred[0, 0]) / UNCLICKED[b]
           for b in range(1, K)]
  np.testing.assert_allclose(
      tape.gradient(value, y_pred), [[-sum(slope), *slope]], rtol=1e-5)


def test_the_floor_is_an_argument():
  layer = ClickRatios(3, min_ratio=0.5)
  layer.start_collecting()
  y_true = [[1.0, 0.0, 0.0]] * 9 + [[0.0, 1.0, 0.0]]
  PairwiseDebiasingLoss(layer)(y_true, [[0.0] * 3] * 10)
  layer.update()
  np.testing.assert_allclose(layer.clicked_ratio, [[1.0, 0.5, 1.0]])
