"""Tests of ultra_tfr.losses: weights of lists and items."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import oracles
from small_losses import inverse_loss
from small_losses import learning_loss
from small_losses import plain_loss
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

# The losses that take weights, by what makes one.
MAKE = {"pairwise": plain_loss,
        "inverse_propensity": lambda: inverse_loss([.5, .25])}


@pytest.mark.parametrize("name, first, second", [
    ("pairwise", oracles.softplus(-1.), oracles.softplus(2.)),
    ("inverse_propensity", 2 * oracles.softplus(-1.),
     4 * oracles.softplus(2.))])
def test_shapes_of_weights(name, first, second):
  """Users could not tell which shapes of weights there are, nor of what."""
  # As many lists as items, so that a wrong broadcast has the right shape.
  clicks, scores = [[1., 0.], [0., 1.]], tf.constant([[1., 0.], [2., 0.]])
  for weights, expected in (
      (None, first + second),
      (3., 3 * (first + second)),
      ([2., 5.], 2 * first + 5 * second),
      ([[2.], [5.]], 2 * first + 5 * second),
      ([[2., 3.], [4., 5.]], 2 * first + 5 * second)):
    np.testing.assert_allclose(
        MAKE[name]()(clicks, scores, weights).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("shape", [
    [3], [3, 1], [1, 3], [1, 2, 2], [2, 3], [1, 2]])
def test_other_shapes_of_weights_are_errors(name, shape):
  """Weights of a wrong shape were broadcast without a word."""
  with pytest.raises(ValueError, match=(
      r"`sample_weight` must be a number or .*\[2\] or \[2, 2\], but ")):
    MAKE[name]()([[1., 0.], [0., 1.]], tf.zeros([2, 2]), tf.ones(shape))


def test_lists_of_weight_zero():
  """A mean over all lists shrinks with each that has the weight 0."""
  clicks, scores = [[1., 0.], [0., 1.]], [[1., 0.], [2., 0.]]
  alone = oracles.softplus(2.) / 2
  for normalize, expected in ((True, alone), (False, alone / 2)):
    loss = plain_loss(reduction="auto", normalize_weights=normalize)
    np.testing.assert_allclose(
        loss(clicks, scores, [0., 1.]).numpy(), expected, rtol=1e-6)
  assert plain_loss(reduction="auto", normalize_weights=True)(
      clicks, scores, [0., 0.]).numpy() == 0


def test_weights_move_with_their_documents():
  """A metric took the weights of the new ranks, which undid the correction."""
  rng = np.random.default_rng(0)
  labels = (rng.random([3, 6]) < .4).astype(np.float32)
  labels[:, 0] = 1.
  scores = rng.normal(size=[3, 6]).astype(np.float32)
  weights = rng.uniform(.5, 3., size=[3, 6]).astype(np.float32)
  positions = np.tile(np.arange(6) + 1, [3, 1])
  loss = learning_loss(lambda_weight=tfr.keras.losses.NDCGLambdaWeight())
  results = []
  for order in ([0, 1, 2, 3, 4, 5], [4, 2, 0, 5, 1, 3]):
    y, s, w = labels[:, order], scores[:, order], weights[:, order]
    values = [loss(pack_feedback(y, positions[:, order]), s, w).numpy()]
    for metric in (tfr.keras.metrics.MRRMetric(),
                   tfr.keras.metrics.NDCGMetric()):
      metric = on_ranking(metric)
      metric.update_state(y, s, w)
      values.append(metric.result().numpy())
    results.append(values)
  np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.parametrize("batches, power", [(0, 1.), (5, .5), (10, 1.)])
def test_weights_grow_from_flat_while_em_is_young(batches, power):
  """What EM says at first is far off: rankers learned relevance upside down."""
  bias = PositionBias(2, trust_bias=None, initial_examination=[.5, .25])
  bias.num_updates.assign(float(batches))
  clicks, scores = [[1., 1.], [0., 1.]], tf.zeros([2, 2])
  value = UnbiasedPairwiseLoss(bias, annealing=10, reduction="sum")(
      clicks, scores)
  # Of the pair (2, 1): P(e_1 | c_1 = 0) = .5 / 1.5 at beta = .5, 1 / .25 and
  # 1 / .5 for examination, and the scale .5 squared.
  weight = 1 / 3 / (.25 * .5) * .25
  np.testing.assert_allclose(value, weight**power * np.log(2), rtol=1e-5)


def test_weights_of_known_propensities_are_full_at_once():
  bias = PositionBias(2, examination=[.5, .25])
  bias.num_updates.assign(1.)
  data = [[0., 1.]], tf.zeros([1, 2])
  values = [float(UnbiasedPairwiseLoss(bias, annealing=n)(*data))
            for n in (0, 10)]
  assert values[0] == values[1]


def _stops_at_a_click():
  """A layer of users who never look below a click."""
  bias = PositionBias(4, trust_bias=None, examination_model="browsing")
  bias.examination.assign(np.tile([1., 0., 0., 0.], 4)[np.newaxis])
  return bias


def _pull(clicks, relevance, sample_weight=None):
  """What one step does to equal scores, `[L]`; above 0 an item rises."""
  heads = tf.stack([tf.zeros([1, 4]), tf.constant([relevance])], axis=2)
  loss = UnbiasedPairwiseLoss(_stops_at_a_click(), head_weight=0., annealing=0)
  with tf.GradientTape() as tape:
    tape.watch(heads)
    value = loss([clicks], heads, sample_weight)
  return -tape.gradient(value, heads)[0, :, 0].numpy()


def test_what_nobody_sees_goes_by_the_relevance_head():
  """Below a click all looked irrelevant, and the order shown came back."""
  pull = _pull([0., 1., 0., 0.], [0., 0., -3., 3.])
  assert pull[0] < 0 < pull[1]
  assert pull[2] < 0 < pull[3]
  # Seen without a click it is irrelevant, whatever the head says.
  assert _pull([0., 0., 0., 1.], [0., 0., 9., 0.])[2] < 0


def test_equal_items_that_nobody_sees_stay_equal():
  for weights in (None, [[1., 1., 3., .5]]):
    pull = _pull([1., 0., 0., 0.], [0., -1., -1., -1.], weights)
    np.testing.assert_allclose(pull[1:], pull[1], rtol=1e-5)


def test_with_scores_alone_no_head_stands_in():
  bias = _stops_at_a_click()
  loss = UnbiasedPairwiseLoss(bias, head_weight=0., reduction="sum")
  scores = tf.constant([[0., 0., 5., -5.]])
  found = loss([[1., 0., 0., 0.]], scores).numpy()
  # Pairs with the click alone, by 1 - beta of what nobody sees.
  beta = 1 / (1 + np.exp(-scores.numpy()[0]))
  np.testing.assert_allclose(found, sum(
      (1 - beta[j]) * oracles.softplus(scores.numpy()[0, j])
      for j in (1, 2, 3)), rtol=1e-4)
