"""Cases that users ran into: weights, and the order of items."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from case_models import SUM
from case_models import learning_loss
from case_models import linear_model
from case_models import plain_loss
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking


def softplus(x):
  return np.log1p(np.exp(x))


def test_case_a17_an_inverse_propensity():
  # The clicked item was at a position seen half as often as the first.
  loss = UnbiasedPairwiseLoss(
      PositionBias(2, examination=[1., .5]), reduction=SUM)
  np.testing.assert_allclose(
      loss(pack_feedback([[1., 0.]], [[2, 1]]), [[1., 0.]]).numpy(),
      .626523, rtol=1e-5)
  # The same as a weight of the preferred item.
  np.testing.assert_allclose(
      plain_loss()([[1., 0.]], [[1., 0.]], [[2., 1.]]).numpy(),
      .626523, rtol=1e-5)


def test_case_a17_shapes_of_weights():
  loss = plain_loss(reduction=SUM)
  clicks, scores = [[1., 0.], [0., 1.]], [[1., 0.], [2., 0.]]
  first, second = softplus(-1.), softplus(2.)
  for weights, expected in (
      (None, first + second),
      (3., 3 * (first + second)),
      ([2., 5.], 2 * first + 5 * second),
      ([[2.], [5.]], 2 * first + 5 * second),
      ([[2., 3.], [4., 5.]], 2 * first + 5 * second)):
    np.testing.assert_allclose(
        loss(clicks, scores, weights).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [[3], [3, 1], [1, 2, 2], [2, 3], [1, 2]])
def test_case_a17_other_shapes_of_weights_are_errors(shape):
  with pytest.raises(
      ValueError, match=r"`sample_weight` must be .*\[2\] or \[2, 2\], but "):
    plain_loss()([[1., 0.], [0., 1.]], tf.zeros([2, 2]), tf.ones(shape))


def test_case_a18_lists_of_weight_zero():
  clicks, scores = [[1., 0.], [0., 1.]], [[1., 0.], [2., 0.]]
  alone = softplus(2.) / 2
  for normalize, expected in ((True, alone), (False, alone / 2)):
    loss = plain_loss(reduction="auto", normalize_weights=normalize)
    np.testing.assert_allclose(
        loss(clicks, scores, [0., 1.]).numpy(), expected, rtol=1e-6)
  assert plain_loss(reduction="auto", normalize_weights=True)(
      clicks, scores, [0., 0.]).numpy() == 0


def test_case_a19_weights_move_with_their_documents():
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


def test_case_a20_a_shuffle_keeps_the_display_order():
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


def test_case_a21_constant_scores_are_not_rewarded():
  worst = (1. / np.log2([3, 4, 5]) @ [1., 3., 7.]) / (
      [7., 3., 1.] @ (1. / np.log2([2, 3, 4])))
  for labels in ([3., 2., 1., 0.], [0., 1., 2., 3.], [2., 0., 3., 1.]):
    metric = on_ranking(tfr.keras.metrics.NDCGMetric())
    metric.update_state([labels], [[.5] * 4])
    # Less than the .749981 of random ties: least relevant first.
    np.testing.assert_allclose(metric.result().numpy(), worst, rtol=1e-6)
  assert worst < .749981


def test_case_a21_training_does_not_depend_on_the_order_of_items():
  rng = np.random.default_rng(0)
  features = rng.normal(size=[32, 5, 2]).astype(np.float32)
  clicks = (rng.random([32, 5]) < .4).astype(np.float32)
  positions = np.argsort(rng.random([32, 5]), axis=1) + 1
  weights = []
  for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
    model = linear_model()
    model.compile("sgd", UnbiasedPairwiseLoss(
        PositionBias(5), lambda_weight=tfr.keras.losses.NDCGLambdaWeight()))
    model.fit(
        features[:, order], pack_feedback(clicks, positions).numpy()[:, order],
        batch_size=8, epochs=2, shuffle=False, verbose=0,
        callbacks=[PropensityEM()])
    weights.append(model.get_weights()[0])
  assert np.abs(weights[0]).max() > 1e-3
  np.testing.assert_allclose(weights[0], weights[1], atol=1e-6)
