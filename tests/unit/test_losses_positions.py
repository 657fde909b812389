"""Tests of ultra_tfr.losses: what the positions of items mean."""

import numpy as np
import pytest
import tensorflow as tf

from small_losses import NONE
from small_losses import SUM
from small_losses import linear_towers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import examination as examination_lib
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss


def count_by_position(bias, packed, scores):
  """How many items an E step counts at each position."""
  bias.start_collecting()
  bias.take_sums()
  UnbiasedPairwiseLoss(bias)(packed, scores)
  return bias.take_sums()["pointwise"].numpy()[
      :, examination_lib.COUNT].tolist()


def test_positions_count_from_one():
  """Is 0 the first position, or a filler? Items moved to a wrong place."""
  bias = PositionBias(3, initial_examination=.5, trust_bias=None)
  clicks, scores = [[1., 0., 1.]], tf.zeros([1, 3])
  assert count_by_position(
      bias, pack_feedback(clicks, [[1, 2, 3]]), scores) == [1., 1., 1.]
  # 0 is unknown: the item is left out, the others stay where they are.
  assert count_by_position(
      bias, pack_feedback(clicks, [[0, 1, 2]]), scores) == [1., 1., 0.]
  loss = UnbiasedPairwiseLoss(bias, reduction=NONE)
  losses = loss(pack_feedback(clicks, [[0, 1, 2]]), scores).numpy()
  assert losses[0, 0] == 0
  assert losses[0, 2] > 0


def test_negative_positions_are_errors():
  """A filler of -1 was taken for an index, and so for a position."""
  with pytest.raises(ValueError, match=(
      r"`positions` must be whole numbers, 1 for the first position and 0 for "
      r"unknown, but positions\[0, 2\] is -1.0")):
    pack_feedback([[1., 0., 1.]], [[1, 2, -1]])
  # Where values are not known, in a graph, such an item is left out.
  bias = PositionBias(3, initial_examination=.5, trust_bias=None)
  packed = tf.stack([[[1., 0., 1.]], [[1., 2., -1.]]], -1)
  assert count_by_position(bias, packed, tf.zeros([1, 3])) == [1., 1., 0.]


@pytest.mark.parametrize("overflow, expected", [
    ("mask", [1., 1., 1.]), ("pool", [1., 1., 3.]), ("error", [1., 1., 1.])])
def test_positions_beyond_the_table(overflow, expected):
  """Some tools clamp them and others skip them; a GPU may read zeros.

  One policy holds, the user's own, however the step is run.
  """
  bias = PositionBias(
      3, initial_examination=[.8, .5, .3], overflow=overflow, trust_bias=None)
  bias.start_collecting()
  packed = pack_feedback([[0., 1., 0., 1., 0.]], [[1, 2, 3, 4, 50]])
  scores = tf.constant([[.5, .1, -.3, .2, -.1]])
  loss = UnbiasedPairwiseLoss(bias)

  def step(y_true, y_pred):
    with tf.GradientTape() as tape:
      tape.watch(y_pred)
      value = loss(y_true, y_pred)
    return value, tape.gradient(value, y_pred)

  results = []
  for run in (step, tf.function(step), tf.function(step, jit_compile=True)):
    bias.take_sums()
    value, gradient = run(packed, scores)
    sums = bias.take_sums()
    assert sums["pointwise"][:, examination_lib.COUNT].numpy(
        ).tolist() == expected
    assert sums["counters"][1].numpy() == (0 if overflow == "pool" else 2)
    results.append([value, gradient, sums["pointwise"]])
  for other in results[1:]:
    for a, b in zip(results[0], other):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  if overflow != "pool":
    assert not np.any(results[0][1].numpy()[0, 3:])
    shorter = pack_feedback([[0., 1., 0.]], [[1, 2, 3]])
    np.testing.assert_allclose(
        loss(shorter, scores[:, :3]), results[0][0], rtol=1e-6)


def test_positions_may_be_codes_of_slots():
  """Codes of slots were mapped in silence: whose propensity is which?"""
  bias = PositionBias(57, examination=np.linspace(1., .1, 57))
  loss = UnbiasedPairwiseLoss(bias, reduction=NONE)
  codes = [3, 4, 1, 57]
  clicks = 1. - np.eye(4)[[2]]
  losses = loss(pack_feedback(clicks, [codes]), tf.zeros([1, 4])).numpy()[0]
  # A code is its index in what the user reads, counted from 1.
  propensity = bias.propensities()["examination"][np.array(codes) - 1]
  np.testing.assert_allclose(propensity, np.linspace(1., .1, 57)[
      [2, 3, 0, 56]], rtol=1e-6)
  # Against the item of code 1, at a score of 0, beta = 1/2: 1 / theta.
  np.testing.assert_allclose(
      losses, clicks[0] * np.log(2.) / propensity, rtol=1e-5)


def test_gaps_between_positions_are_kept():
  """Logs lack some documents, and then the row is not the position."""
  theta = [.9, .8, .6, .5, .2]
  loss = UnbiasedPairwiseLoss(
      PositionBias(5, examination=theta), reduction=NONE)
  losses = loss(
      pack_feedback([[0., 0., 1.]], [[1, 2, 5]]), tf.zeros([1, 3])).numpy()
  # beta = 1/2: 1/theta_5 * (1/2 / (1 - theta_j / 2)), times theta_1^2.
  expected = .9 ** 2 / .2 * sum(
      .5 / (1. - t / 2) for t in (.9, .8)) * np.log(2.)
  np.testing.assert_allclose(losses, [[0., 0., expected]], rtol=1e-5)
  bias = PositionBias(5, initial_examination=theta, trust_bias=None)
  assert count_by_position(
      bias, pack_feedback([[0., 0., 1.]], [[1, 2, 5]]),
      tf.zeros([1, 3])) == [1., 1., 0., 0., 1.]


def test_a_shuffle_keeps_the_display_order():
  """Readers shuffle the items of a list, and the order shown was lost."""
  loss = UnbiasedPairwiseLoss(
      PositionBias(4, examination=[.9, .6, .4, .2]), reduction=SUM)
  clicks, scores = np.array([[1., 0., 0., 1.]]), np.array([[.1, .5, -.3, .2]])
  order = [2, 0, 3, 1]
  expected = loss(clicks, scores).numpy()
  shuffled = pack_feedback(
      clicks[:, order], positions=np.array([[1, 2, 3, 4]])[:, order])
  np.testing.assert_allclose(
      loss(shuffled, scores[:, order]).numpy(), expected, rtol=1e-6)
  # Without them it would be another one.
  assert abs(loss(clicks[:, order], scores[:, order]).numpy() -
             expected) > 1e-3


def test_without_positions_the_order_is_that_of_display():
  """Without a file of positions a program crashed and did not say why."""
  loss = UnbiasedPairwiseLoss(PositionBias(4, examination=[.9, .6, .4, .2]))
  clicks, scores = [[0., 1., 0., 1.]], [[.4, .3, .2, .1]]
  explicit = loss(pack_feedback(clicks, [[1, 2, 3, 4]]), scores)
  assert loss(clicks, scores).numpy() == explicit.numpy()
  assert loss(pack_feedback(clicks), scores).numpy() == explicit.numpy()
  with_context = pack_feedback(clicks, contexts=[0])
  np.testing.assert_array_equal(with_context[0, :, 1], [1, 2, 3, 4])
  with pytest.raises(ValueError, match=(
      r"`positions` must have the shape of `feedback`, \(1, 4\), but has the "
      r"shape \(1, 3\); give one")):
    pack_feedback(clicks, [[1, 2, 3]])


def test_positions_do_not_reach_predictions():
  """Positions are for training only: at serving there are none."""
  features = np.random.default_rng(0).normal(size=[8, 3, 2])
  clicks = np.eye(8, 3)
  model = linear_towers(2, heads=2)
  model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(3, trust_bias=None)))
  packed = pack_feedback(clicks, np.tile([[2, 1, 3]], [8, 1]))
  model.fit(features, packed, verbose=0, callbacks=[PropensityEM()])
  assert [i.name.split(":")[0] for i in model.inputs] == ["features"]
  expected = model.predict(features, verbose=0)
  for positions in ([1, 2, 3], [3, 2, 1], [1, 1, 1]):
    packed = pack_feedback(clicks, np.tile([positions], [8, 1]))
    data = tf.data.Dataset.from_tensor_slices((features, packed)).batch(8)
    np.testing.assert_array_equal(model.predict(data, verbose=0), expected)
