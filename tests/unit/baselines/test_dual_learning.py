"""Tests of ultra_tfr.baselines.dual_learning."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import baseline_oracles
import oracles
from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.callbacks import PositionUpdates
from ultra_tfr.feedback import pack_feedback

K = 4
LOGITS = [0.3, -0.2, -0.9, -1.6]


def _layer(logits=LOGITS):
  layer = PropensityLogits(len(logits))
  layer.propensity_logits.assign([logits])
  return layer


def _batch(seed=0):
  lists = oracles.random_lists(seed, num_positions=K)
  y_true = pack_feedback(
      np.where(oracles.column(lists, "valid"),
               oracles.column(lists, "feedback"), -1.0),
      oracles.column(lists, "position"))
  return lists, y_true, tf.constant(oracles.column(lists, "score"), tf.float32)


@pytest.mark.parametrize("max_weight", [None, 1.5, 10.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_loss_equals_the_loop(seed, max_weight):
  lists, y_true, y_pred = _batch(seed)
  loss = DualLearningLoss(_layer(), max_weight=max_weight, reduction="none")
  expected = [np.sum(baseline_oracles.dual_losses(items, LOGITS, max_weight), 0)
              for items in lists]
  np.testing.assert_allclose(loss(y_true, y_pred), expected, rtol=1e-5)


@pytest.mark.parametrize("max_weight", [None, 1.5])
def test_gradients_are_those_of_fixed_weights(max_weight):
  lists, y_true, y_pred = _batch()
  layer = _layer()
  loss = DualLearningLoss(layer, max_weight=max_weight, reduction="sum")
  weights = np.array(oracles.column(lists, "weight"), np.float32)
  layer.start_collecting()
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred, weights)
  found = tape.gradient(value, y_pred)
  moved = layer.take_sums()["tables"].numpy()[:, 0]
  scores_gradient, logits_gradient = [], np.zeros(K)
  for items in lists:
    by_item = [LOGITS[k - 1] for k in items["position"]]
    slopes = []
    for values, other in ((items["score"], by_item), (by_item, items["score"])):
      # The sum over clicks of w (softmax - indicator).
      slope = np.zeros(len(values))
      for a in baseline_oracles.valid_items(items):
        if items["feedback"][a] > 0:
          weight = items["weight"][a] * baseline_oracles.relative_weight(
              items, other, a, max_weight)
          slope += weight * (np.array(
              baseline_oracles.softmax(items, values)) - np.eye(len(values))[a])
      slopes.append(slope)
    scores_gradient.append(slopes[0])
    np.add.at(logits_gradient, np.array(items["position"]) - 1, slopes[1])
  np.testing.assert_allclose(found, scores_gradient, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(moved, logits_gradient, rtol=1e-4, atol=1e-5)


def test_the_ranking_term_is_a_weighted_softmax_loss():
  clicks = tf.constant([[1.0, 0.0, 1.0, 0.0]])
  scores = tf.constant([[0.3, 0.1, -0.2, 0.6]])
  layer = _layer()
  layer.start_collecting()
  loss = DualLearningLoss(layer, max_weight=None, reduction="sum")

  def gradient(function):
    with tf.GradientTape() as tape:
      tape.watch(scores)
      value = function(scores)
    return tape.gradient(value, scores)

  weights = tf.exp(LOGITS[0] - tf.constant(LOGITS))
  softmax = tfr.keras.losses.SoftmaxLoss(reduction="sum")
  np.testing.assert_allclose(
      gradient(lambda s: loss(clicks, s)),
      gradient(lambda s: softmax(clicks * weights, s)), rtol=1e-5)


def test_the_first_displayed_item_is_not_the_first_position():
  # Of a list that begins at position 2 the weights are relative to that.
  y_true = pack_feedback([[0.0, 1.0]], [[2, 4]])
  loss = DualLearningLoss(_layer(), max_weight=None, reduction="sum")
  expected = np.log(2) * (np.exp(LOGITS[1] - LOGITS[3]) + 1) + np.log(
      (np.exp(LOGITS[1]) + np.exp(LOGITS[3])) / np.exp(LOGITS[3])) - np.log(2)
  assert float(loss(y_true, [[0.0, 0.0]])) == pytest.approx(expected, rel=1e-5)


def test_any_feedback_above_zero_is_a_click():
  loss = DualLearningLoss(_layer(), reduction="sum")
  scores = [[0.3, 0.1, -0.2, 0.6]]
  assert float(loss([[7.0, 0.0, 0.2, 0.0]], scores)) == float(
      loss([[1.0, 0.0, 1.0, 0.0]], scores))


def test_a_step_raises_what_is_clicked_and_keeps_the_level():
  layer = PropensityLogits(3)
  loss = DualLearningLoss(layer)
  layer.start_collecting()
  loss(np.tile([[1.0, 0.0, 0.0]], [3000, 1]), np.zeros([3000, 3]))
  counters = layer.update(step_size=0.3, step_decay=0.0)
  # Expected and seen are 1/3 and 1, 0, 0 of the clicks; the ridge is small.
  np.testing.assert_allclose(
      layer.propensity_logits, [[0.6, -0.3, -0.3]], atol=1e-3)
  assert counters[0] == 1
  assert layer.num_updates.numpy() == 1
  assert not np.any(layer.update())


def test_propensities_are_relative_to_position_one():
  layer = _layer()
  layer.num_updates.assign(1.0)
  expected = np.exp(np.array(LOGITS) - LOGITS[0])
  np.testing.assert_allclose(
      layer.propensities()["examination"], expected, rtol=1e-6)
  np.testing.assert_allclose(layer.examination, [expected], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("max_weight", [10.0, None])
def test_scores_stay_finite_over_5000_steps(max_weight):
  rng = np.random.default_rng(0)
  # Few lists, again and again: nothing but the weights' own dynamics counts.
  features = rng.normal(size=[64, 6, 4]).astype(np.float32)
  clicks = (rng.random([64, 6]) < .7 / np.arange(1, 7)).astype(np.float32)
  inputs = tf.keras.Input([6, 4])
  hidden = tf.keras.layers.Dense(16, "elu")(inputs)
  model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden)[..., 0])
  layer = PropensityLogits(6)
  model.compile(tf.keras.optimizers.Adam(0.01),
                DualLearningLoss(layer, max_weight=max_weight),
                steps_per_execution=50)
  data = tf.data.Dataset.from_tensor_slices((features, clicks))
  history = model.fit(
      data.shuffle(64, seed=0).repeat().batch(32), steps_per_epoch=1000,
      epochs=5, callbacks=[PositionUpdates()], verbose=0).history
  assert model.optimizer.iterations.numpy() == 5000
  assert np.isfinite(history["loss"]).all()
  scores = model.predict(features, verbose=0)
  assert np.isfinite(scores).all()
  assert np.ptp(scores) > 0.1
  curve = layer.propensities()["examination"]
  assert np.isfinite(curve).all()
  assert (curve > 0).all()
