"""Two contexts with biases of their own: both curves are found."""

import numpy as np
import pytest
import tensorflow as tf

import ultra_tfr
from ultra_tfr import scorers
from ultra_tfr.simulation.click_models import PositionBasedModel

# A list on a desk is read further down than one on a phone.
CURVES = np.array([[1.0, .85, .7, .6, .5], [.9, .5, .3, .2, .1]])
# Clicks on what is irrelevant: only one of the models knows of them.
NOISE = {None: 0.0, "position": .05}


def _batches(noise, seed, num_lists=256):
  """Endless batches: relevance follows from a feature, contexts alternate."""
  rng = np.random.default_rng(seed)
  models = [PositionBasedModel(curve, click_noise=noise, max_grade=1)
            for curve in CURVES]
  contexts = np.arange(num_lists) % 2
  positions = np.broadcast_to(1 + np.arange(5), [num_lists, 5])
  batch = 0
  while True:
    x = rng.normal(size=[num_lists, 5, 2]).astype(np.float32)
    # A fair logging policy: relevant items stand higher, not always.
    x = np.take_along_axis(x, np.argsort(
        -x[..., 0] - rng.normal(size=[num_lists, 5]), axis=1)[..., None], 1)
    labels = (rng.random([num_lists, 5]) < 1 / (
        1 + np.exp(-3 * x[..., 0]))).astype(np.float32)
    clicks = np.where(
        contexts[:, None] == 0,
        *(model.sample(labels, (seed, batch)).clicks for model in models))
    yield x, ultra_tfr.pack_feedback(clicks, positions, contexts)
    batch += 1


@pytest.mark.parametrize("trust_bias", [None, "position"])
@pytest.mark.parametrize("seed", [
    pytest.param(0, marks=pytest.mark.slow),
    pytest.param(1, marks=pytest.mark.release)])
def test_each_context_has_its_curve(trust_bias, seed):
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(2, num_heads=2, hidden_units=[8])
  bias = ultra_tfr.layers.PositionBias(
      5, num_contexts=2, trust_bias=trust_bias)
  model.compile(tf.keras.optimizers.Adam(.01),
                ultra_tfr.losses.UnbiasedPairwiseLoss(bias))
  dataset = tf.data.Dataset.from_generator(
      lambda: _batches(NOISE[trust_bias], seed), output_signature=(
          tf.TensorSpec([256, 5, 2]), tf.TensorSpec([256, 5, 3])))
  history = model.fit(
      dataset, steps_per_epoch=700, verbose=0,
      callbacks=[ultra_tfr.callbacks.PropensityEM()]).history
  found = bias.propensities()["examination"]
  expected = CURVES / CURVES[:, :1]
  print(np.abs(found - expected).max(axis=1).round(3))
  np.testing.assert_allclose(found, expected, atol=.05)
  # One curve for both would be off by far more.
  assert np.abs(expected[0] - expected[1]).max() > .3
  assert history["examination_context_1_5"] == [pytest.approx(found[1, 4])]
