"""Lists as `fit` gets them: of any length, ragged, and in any order."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from small_losses import linear_model
from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

LENGTHS = (1, 7, 120)


def _lists():
  rng = np.random.default_rng(0)
  splits = np.cumsum([0, *LENGTHS])
  clicks = (rng.random(splits[-1]) < .3).astype(np.float32)
  clicks[[0, 1, 2]] = [1, 1, 0]
  features = rng.normal(size=[splits[-1], 3]).astype(np.float32)
  return [tf.RaggedTensor.from_row_splits(values, splits)
          for values in (features, clicks)]


@pytest.mark.parametrize("jit_compile", [
    False, pytest.param(True, marks=pytest.mark.slow)])
def test_lists_of_any_length(jit_compile):
  """Lists of 1, 7 and 120 items are in one log; TPUs want one size."""
  features, clicks = _lists()
  losses, curves = [], []
  # Padded to the longest of a batch, and to a static length as TPUs need it.
  for size in (None, 150):
    x = features.to_tensor(0.0, [None, size, 3])
    y = clicks.to_tensor(-1.0, [None, size])
    tf.keras.utils.set_random_seed(1)
    model = scorers.build_model(3, num_heads=2, hidden_units=[4])
    bias = PositionBias(120, trust_bias=None)
    model.compile(
        "sgd", UnbiasedPairwiseLoss(bias), jit_compile=jit_compile)
    history = model.fit(
        tf.data.Dataset.from_tensors((x, y)).repeat(3), verbose=0,
        callbacks=[PropensityEM(warmup=0)])
    losses.append(history.history["loss"])
    curves.append(bias.examination.numpy())
    assert model.predict(x[:1, :1], verbose=0).shape == (1, 1, 2)
  np.testing.assert_allclose(*losses, rtol=1e-5)
  np.testing.assert_allclose(*curves, rtol=1e-5)
  assert curves[0].std() > .01


@pytest.mark.parametrize("heads", [
    1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("eagerly")
def test_fit_and_metrics_on_ragged_lists(heads):
  """Ragged inputs and labels must train as the padded ones do."""
  features, clicks = _lists()
  results = []
  for is_ragged in (True, False):
    tf.keras.utils.set_random_seed(1)
    inputs = tf.keras.Input([None, 3], ragged=is_ragged)
    scores = tf.keras.layers.Dense(heads)(inputs)
    if heads == 1:
      scores = tf.keras.layers.Lambda(lambda x: tf.squeeze(x, -1))(scores)
    model = tf.keras.Model(inputs, scores)
    bias = PositionBias(120, trust_bias=None)
    model.compile("sgd", UnbiasedPairwiseLoss(bias), metrics=[
        on_ranking(tfr.keras.metrics.NDCGMetric("ndcg"))])
    batch = (features, clicks) if is_ragged else (
        features.to_tensor(), clicks.to_tensor(-1.0))
    history = model.fit(
        tf.data.Dataset.from_tensors(batch).repeat(2), verbose=0,
        callbacks=[PropensityEM()])
    results.append([history.history["loss"], history.history["ndcg"],
                    *model.get_weights(), bias.examination.numpy()])
  for ragged, padded in zip(*results):
    np.testing.assert_allclose(ragged, padded, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_training_does_not_depend_on_the_order_of_items():
  """Another order of the rows gave another model."""
  rng = np.random.default_rng(0)
  features = rng.normal(size=[32, 5, 2]).astype(np.float32)
  clicks = (rng.random([32, 5]) < .4).astype(np.float32)
  positions = np.argsort(rng.random([32, 5]), axis=1) + 1
  weights = []
  for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
    model = linear_model()
    model.compile("sgd", UnbiasedPairwiseLoss(
        PositionBias(5, trust_bias=None),
        lambda_weight=tfr.keras.losses.NDCGLambdaWeight()))
    model.fit(
        features[:, order], pack_feedback(clicks, positions).numpy()[:, order],
        batch_size=8, epochs=2, shuffle=False, verbose=0,
        callbacks=[PropensityEM()])
    weights.append(model.get_weights()[0])
  assert np.abs(weights[0]).max() > 1e-3
  np.testing.assert_allclose(weights[0], weights[1], atol=1e-6)
