"""Tests of ultra_tfr.experiments.checkpoints."""

import types

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr.data.lists import RankingLists
from ultra_tfr.experiments import checkpoints

# Scores are the feature times the only weight: 1 ranks the first item first.
FIRST, SECOND = [np.array([[1.0]])], [np.array([[-1.0]])]
FLAT, STEEP = np.array([1.0, 1.0]), np.array([0.9, 0.27])


class _Keeper:
  """A `KeepBest` before two validations, with a curve for each."""

  def __init__(self, curves, folder=None, slack=2.0):
    features = np.array([[[1.0], [0.0]]], np.float32)
    stream = types.SimpleNamespace(
        features=features, labels=np.array([[1.0, 1.0]], np.float32),
        # Of 128 visits 95 end at the first item, some of them for long, and 38
        # at the second.
        draw=lambda epoch: np.array(
            [[epoch * (epoch < 95) + (epoch == 0), epoch >= 90]], np.float32))
    valid = RankingLists(features[0], [1.0, 0.0], [0, 2], ["q"])
    inputs = tf.keras.Input([None, 1])
    scores = tf.keras.layers.Dense(1, use_bias=False)(inputs)
    self.model = tf.keras.Model(inputs, scores[..., 0])
    self.model.compile("sgd", "mse")
    self._curves, self.curve = list(curves), None
    self.keeper = checkpoints.KeepBest(
        valid, stream,
        lambda feedback: checkpoints.by_examination(self.curve)(feedback),
        folder, slack)
    self.keeper.set_model(self.model)

  def validate(self, step, weights):
    self.model.optimizer.iterations.assign(step)
    self.model.set_weights(weights)
    self.curve, logs = self._curves[step - 1], {}
    self.keeper.on_epoch_end(step, logs)
    return logs["val_snips_dcg@10"]

  def picked(self, pick):
    self.keeper.restore(pick)
    return self.model.get_weights()


@pytest.mark.parametrize("is_resumed", [False, True])
def test_clicks_of_all_validations_count_by_the_last_curve(
    is_resumed, tmp_path):
  folder = str(tmp_path) if is_resumed else None
  run = _Keeper([FLAT, STEEP], folder)
  values = [run.validate(1, FIRST)]
  if is_resumed:
    run = _Keeper([FLAT, STEEP], folder)
  values.append(run.validate(2, SECOND))
  # (5 + 2/log2(3)) / 7 by a curve that was wrong then, and with the inverse
  # of .3 for the second position (6.667 + 5/log2(3)) / 11.667.
  np.testing.assert_allclose(values, [.8945, .8418], atol=1e-4)
  run.keeper.on_train_end()
  assert not run.keeper.picks_agree()
  assert run.picked("labels") == FIRST
  assert run.picked("clicks") == SECOND


def test_without_a_curve_feedback_counts_as_it_is():
  run = _Keeper([None, None, None])
  run.validate(1, SECOND)
  run.validate(2, FIRST)
  run.validate(3, SECOND)
  run.keeper.on_train_end()
  assert run.keeper.picks_agree()
  assert run.picked("clicks") == FIRST


@pytest.mark.parametrize("slack, expected", [(2.0, SECOND), (0.0, FIRST)])
def test_clicks_prefer_the_later_of_weights_that_are_about_as_good(
    slack, expected):
  # 100 lists like the other, and 95 in which the second item is the better one.
  run = _Keeper([None, None], slack=slack)
  (features, _), = run.keeper.held_out
  run.keeper.held_out = [
      (np.repeat(features, count, axis=0),
       [np.tile(np.float32(feedback), [count, 1])])
      for feedback, count in (([5.0, 2.0], 100), ([2.0, 5.0], 95))]
  run.validate(1, FIRST)
  run.validate(2, SECOND)
  run.keeper.on_train_end()
  assert run.picked("clicks") == expected
