"""Tests of ultra_tfr.losses: sizes and types of labels and scores."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from small_losses import LN2
from small_losses import learning_loss
from small_losses import linear_model
from small_losses import plain_loss
from small_losses import value_and_gradient
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import pairs
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss


@pytest.mark.parametrize("temperature, expected", [
    (1., .798139), (.1, 2.126928)])
def test_temperature_scales_the_scores(temperature, expected):
  """A pairwise loss accepted a temperature and never used it."""
  loss = plain_loss(temperature=temperature)
  np.testing.assert_allclose(
      loss([[1., 0.]], [[.6, .8]]).numpy(), expected, rtol=1e-5)
  again = UnbiasedPairwiseLoss.from_config(loss.get_config())
  np.testing.assert_allclose(
      again([[1., 0.]], [[.6, .8]]).numpy(), expected, rtol=1e-5)


def test_the_size_of_labels_does_not_leak_into_the_loss():
  """Labels a hundred times as large made the loss as much larger."""
  scores = [[.3, -.2, .5]]
  for make in (plain_loss, learning_loss):
    small = value_and_gradient(make(), [[2., 1., 0.]], scores)
    large = value_and_gradient(make(), [[200., 100., 0.]], scores)
    assert small[0] > 0
    np.testing.assert_allclose(large[0], small[0], rtol=1e-6)
    np.testing.assert_allclose(large[1], small[1], rtol=1e-6)
  # A lambda weight asks for values, and gets them.
  loss = plain_loss(lambda_weight=tfr.keras.losses.DCGLambdaWeight())
  assert (loss([[4., 2., 0.]], scores).numpy() >
          1.5 * loss([[2., 1., 0.]], scores).numpy())


@pytest.mark.parametrize("dtype", [
    "bool", "int32", "int64", "float32", "float64", "uint8"])
@pytest.mark.parametrize("score_dtype", ["float32", "float64"])
def test_feedback_and_scores_of_any_type(dtype, score_dtype):
  """Integer labels crashed, and float64 did not go with float32."""
  clicks, scores = np.array([[1, 0, 1, 0]]), [[.3, -.2, .1, .7]]
  loss = learning_loss()
  expected = loss(clicks.astype("float32"), tf.constant(scores)).numpy()
  value, gradient = value_and_gradient(
      loss, tf.constant(clicks.astype(dtype)),
      tf.constant(scores, score_dtype))
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  assert value.dtype == np.float32
  assert gradient.dtype == score_dtype


def test_packed_feedback_of_any_type():
  """Clicks and positions are integers in most logs."""
  clicks, positions = np.array([[1, 0, 1]]), np.array([[3, 1, 2]])
  packed = np.stack([clicks, positions], -1)
  loss, scores = learning_loss(), tf.constant([[.3, -.2, .1]])
  expected = loss(pack_feedback(clicks, positions), scores).numpy()
  for dtype in ("int32", "int64", "float64"):
    np.testing.assert_allclose(
        loss(tf.constant(packed, dtype), scores).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
  """Losses in half precision overflowed, or crashed on mixed types."""
  loss = learning_loss()
  clicks = tf.constant([[1., 0., -1.]])
  value, gradient = value_and_gradient(
      loss, clicks, tf.constant([[60000., -60000., 0.]], dtype))
  assert value.dtype == np.float32
  assert value == 0
  # While EM runs the score learns relevance too; at these scores it is sure.
  np.testing.assert_allclose(gradient.astype(np.float32), 0., atol=1e-6)
  # The wrong way round: past what half precision can hold.
  value, gradient = value_and_gradient(
      plain_loss(), clicks, tf.constant([[-60000., 60000., 0.]], dtype))
  np.testing.assert_allclose(value, 120000., rtol=.01)
  gradient = gradient.astype(np.float32)
  assert np.all(np.isfinite(gradient))
  assert gradient[0, 0] < 0 < gradient[0, 1]
  for total in loss.position_bias.take_sums().values():
    assert total.dtype == tf.float32
    assert np.all(np.isfinite(total))


def test_labels_and_scores_up_to_999():
  """Ranks as labels overflowed exponential gains: the loss was inf or NaN."""
  labels = np.arange(1000, dtype=np.float32)[np.newaxis]
  positions = labels + 1
  packed = pack_feedback(labels, positions)
  arguments = {"num_positions": 1000, "reduction": "auto"}
  for lambda_weight in (None, tfr.keras.losses.NDCGLambdaWeight()):
    for feedback in ("binary", "graded"):
      loss = plain_loss(
          **arguments, lambda_weight=lambda_weight, feedback=feedback)
      for scores in (labels, -labels):
        value, gradient = value_and_gradient(loss, packed, scores)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))
      assert value > 0  # The reversed order.


def test_continuous_feedback_orders_pairs():
  """Dwell times as labels were refused, or all predictions became equal."""
  dwell = tf.constant([[12.3, .4, 55.]])
  np.testing.assert_array_equal(
      np.argwhere(pairs.preferred(dwell, dwell >= 0)[0]),
      [[0, 1], [2, 0], [2, 1]])
  model = linear_model(num_features=3)
  model.compile(tf.keras.optimizers.Adam(.1), UnbiasedPairwiseLoss(
      PositionBias(3, initial_examination=.9,
          trust_bias=None), feedback="graded"))
  features = np.eye(3)[np.newaxis]
  model.fit(features, dwell, epochs=20, verbose=0, callbacks=[PropensityEM()])
  scores = model.predict(features, verbose=0)[0]
  assert np.argsort(-scores).tolist() == [2, 0, 1]
  assert np.ptp(scores) > .1


def test_there_is_no_highest_label():
  """Labels above 31 were rejected, whatever the gain."""
  labels, scores = [[0., 72., 285.]], [[0., 0., 0.]]
  np.testing.assert_allclose(
      plain_loss()(labels, scores).numpy(), 3 * LN2, rtol=1e-6)
  for feedback in ("binary", "graded"):
    loss = plain_loss(feedback=feedback,
                      lambda_weight=tfr.keras.losses.NDCGLambdaWeight())
    value = loss(labels, scores).numpy()
    assert np.isfinite(value) and value > 0


def test_near_equal_labels_are_ties_within_the_gap():
  """Labels of click models are never quite equal: which of them are a pair?"""
  labels, scores = [[.8, .8001, .1]], [[0., 0., 0.]]
  np.testing.assert_allclose(
      plain_loss()(labels, scores).numpy(), 3 * LN2, rtol=1e-6)
  np.testing.assert_allclose(
      plain_loss(min_gap=.01)(labels, scores).numpy(), 2 * LN2, rtol=1e-6)
