"""Tests of ultra_tfr.baselines.shallow_tower."""

import numpy as np
import pytest
import tensorflow as tf

import baseline_oracles
import oracles
from ultra_tfr import scorers
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.callbacks import PositionUpdates
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.feedback import ranking_head

K = 4
EFFECTS = [[0.4, 0.1, -0.3, -0.8], [1.0, 0.2, -0.5, -0.6]]
TWO = [["additive", None], ["product", None], ["product", "additive"],
       [None, None]]


def _tower(modes):
  tower = ShallowTower(K, modes)
  for i, _ in enumerate(modes):
    tower.effects(i).assign([EFFECTS[i]])
  return tower


def _batch(seed=0):
  lists = oracles.random_lists(seed, num_positions=K)
  for items in lists:
    # Click plus a dwell time.
    items["feedback"] = [c * 1.3 for c in items["feedback"]]
  y_true = pack_feedback(
      np.where(oracles.column(lists, "valid"),
               oracles.column(lists, "feedback"), -1.0),
      oracles.column(lists, "position"))
  return lists, y_true, tf.constant(oracles.column(lists, "score"), tf.float32)


def _expected(lists, item_loss):
  """`item_loss(items, a)` of valid items, 0 elsewhere."""
  return [[item_loss(items, a) if valid else 0.0
           for a, valid in enumerate(items["valid"])] for items in lists]


def _effect(items, a, i=0):
  return EFFECTS[i][items["position"][a] - 1]


@pytest.mark.parametrize("mode", ["additive", "product", None])
def test_click_loss_equals_the_loop(mode):
  lists, y_true, y_pred = _batch()
  loss = ShallowTowerLoss(_tower([mode]), reduction="none")
  np.testing.assert_allclose(loss(y_true, y_pred), _expected(
      lists, lambda items, a: baseline_oracles.click_loss(
          mode, items["feedback"][a] > 0, items["score"][a],
          _effect(items, a))), rtol=1e-4)


@pytest.mark.parametrize("mode", ["additive", None])
def test_value_loss_equals_the_loop(mode):
  lists, y_true, y_pred = _batch()
  loss = ShallowTowerLoss(
      _tower([mode]), predicts="value", reduction="none")
  np.testing.assert_allclose(loss(y_true, y_pred), _expected(
      lists, lambda items, a: baseline_oracles.value_loss(
          mode, items["feedback"][a], items["score"][a],
          _effect(items, a))), rtol=1e-4)


@pytest.mark.parametrize("modes", TWO)
def test_click_and_value_loss_equals_the_loop(modes):
  lists, y_true, scores = _batch()
  logits = np.random.default_rng(1).normal(size=scores.shape)
  for items, row in zip(lists, logits):
    items["logit"] = list(row)
  y_pred = tf.stack([scores, tf.cast(logits, tf.float32)], axis=-1)
  loss = ShallowTowerLoss(
      _tower(modes), predicts="click+value", reduction="none")

  def item_loss(items, a):
    c, z = items["feedback"][a], items["logit"][a]
    value = c - 1.0 if c > 0 else 0.0
    predicted = items["score"][a] - oracles.sigmoid(z)
    return (
        baseline_oracles.click_loss(modes[0], c > 0, z, _effect(items, a)) +
        baseline_oracles.value_loss(modes[1], value, predicted,
                                    _effect(items, a, 1)))

  np.testing.assert_allclose(
      loss(y_true, y_pred), _expected(lists, item_loss), rtol=1e-4)


@pytest.mark.parametrize("modes", TWO)
def test_gradients_are_those_of_two_networks(modes):
  # As if the value had a network of its own, s - sigmoid(z): the click's loss
  # reaches z alone, and the value's loss s alone.
  _, y_true, scores = _batch()
  logits = tf.constant(np.random.default_rng(1).normal(size=scores.shape),
                       tf.float32)

  def gradients(loss, y_true, tensors, combine):
    loss.position_bias.start_collecting()
    with tf.GradientTape() as tape:
      tape.watch(tensors)
      value = loss(y_true, combine(*tensors))
    return tape.gradient(value, tensors)

  both = gradients(
      ShallowTowerLoss(_tower(modes), predicts="click+value", reduction="sum"),
      y_true, [scores, logits], lambda s, z: tf.stack([s, z], -1))
  click = gradients(
      ShallowTowerLoss(_tower(modes[:1]), reduction="sum"), y_true, [logits],
      lambda z: z)
  values = ShallowTower(K, modes[1:])
  values.effects(0).assign([EFFECTS[1]])
  dwell = tf.where(y_true[..., 0] > 0, y_true[..., 0] - 1.0, y_true[..., 0])
  value = gradients(
      ShallowTowerLoss(values, predicts="value", reduction="sum"),
      tf.concat([dwell[..., tf.newaxis], y_true[..., 1:]], -1),
      [scores - tf.sigmoid(logits)], lambda d: d)
  np.testing.assert_allclose(both[0], value[0], rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(both[1], click[0], rtol=1e-4, atol=1e-5)


def _clicks_and_dwell(num_lists, rng):
  """Three kinds of items at random positions; the effects are the modes'."""
  kinds = rng.integers(0, 3, [num_lists, K])
  chance = np.array([.8, .5, .2])[kinds]
  dwell = np.array([.2, 1.5, .4])[kinds]
  seen = rng.random(kinds.shape) < np.array([.9, .7, .5, .3])
  clicks = seen & (rng.random(kinds.shape) < chance)
  return (np.eye(3, dtype=np.float32)[kinds],
          (clicks * (1.0 + dwell)).astype(np.float32))


@pytest.mark.parametrize("modes", TWO[:3])
def test_the_ranking_score_is_the_sum_of_two_predictions(modes):
  rng = np.random.default_rng(0)
  features, feedback = _clicks_and_dwell(20000, rng)
  model = scorers.build_model(3, num_heads=2, hidden_units=[])
  tower = ShallowTower(K, modes)
  model.compile(tf.keras.optimizers.Adam(.03),
                ShallowTowerLoss(tower, predicts="click+value"))
  model.fit(features, feedback, batch_size=200, epochs=2,
            callbacks=[PositionUpdates()], verbose=0)
  items = np.eye(3, dtype=np.float32)[np.newaxis]
  # No position anywhere: neither in the model nor in what is exported.
  y_pred = model(items)
  score, click = y_pred.numpy()[0, :, 0], tf.sigmoid(y_pred[0, :, 1]).numpy()
  np.testing.assert_array_equal(ranking_head(y_pred)[0], score)
  np.testing.assert_allclose(
      scorers.ranking_model(model)(items)[0], score, rtol=1e-6)
  # Items 0 and 1 have nearly the same mean feedback, by different ways.
  seen = np.mean([.9, .7, .5, .3])
  dwell = seen * np.array([.8, .5, .2]) * np.array([.2, 1.5, .4])
  effect = tower.effects(1).numpy().mean() if modes[1] else 0.0
  np.testing.assert_allclose(score - click, dwell - effect, atol=0.05)
  if modes[0] == "product":
    np.testing.assert_allclose(click / click[0], [1.0, .625, .25], atol=0.05)
    np.testing.assert_allclose(
        tower.propensities()["examination"],
        np.array([.9, .7, .5, .3]) / .9, atol=0.05)
  else:
    assert click[0] > click[1] > click[2]


@pytest.mark.parametrize("predicts, modes, message", [
    ("click", ["additive", None], "must have 1 mode.* has .'additive', None"),
    ("click+value", ["product"], "must have 2 mode.*; give one a prediction"),
    ("value", ["product"], "but a product is for clicks; take 'additive'"),
    ("click+value", ["product", "product"], "but a product is for clicks")])
def test_arguments_that_do_not_fit(predicts, modes, message):
  with pytest.raises(ValueError, match=message):
    ShallowTowerLoss(ShallowTower(K, modes), predicts=predicts)


def test_a_prediction_without_a_position_does_not_move():
  tower = ShallowTower(K, ["product", None])
  tower.start_collecting()
  loss = ShallowTowerLoss(tower, predicts="click+value")
  loss([[2.0, 0.0, 0.0, 0.0]], np.zeros([1, K, 2]))
  tower.update()
  assert tower.effects(0).numpy().any()
  assert not tower.effects(1).numpy().any()
  assert list(tower.curves()) == ["examination"]
