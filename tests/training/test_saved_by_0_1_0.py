"""Models that 0.1.0 saved still load, and score the same."""

import numpy as np
import pytest
import tensorflow as tf

import program_files
import ultra_tfr
from ultra_tfr import fit_log
from ultra_tfr import scorers

_FOLDER = program_files.ROOT / "tests" / "support" / "saved_0_1_0"


def _check(model, bias):
  expected = np.load(_FOLDER / "expected.npz")
  np.testing.assert_allclose(
      model(expected["features"]), expected["scores"], rtol=1e-5, atol=1e-6)
  for name in ("examination", "click_irrelevant"):
    np.testing.assert_array_equal(getattr(bias, name), expected[name])


def test_a_keras_file():
  model = tf.keras.models.load_model(str(_FOLDER / "model.keras"))
  _check(model, model.loss.position_bias)
  assert model.loss.options.max_weight == 10.


@pytest.mark.smoke
def test_a_checkpoint():
  bias = ultra_tfr.layers.PositionBias(
      5, trust_bias="position", logged_order_weight=1.)
  model = scorers.build_model(3, num_heads=2, hidden_units=[4])
  model.compile("adam", ultra_tfr.losses.UnbiasedPairwiseLoss(bias))
  model._track_trackable(bias, "position_bias")
  tf.train.Checkpoint(model=model).restore(
      str(_FOLDER / "checkpoint")).expect_partial()
  _check(model, bias)
  assert float(bias.logged_order_weight) == .0625


def test_a_folder_of_fit_log():
  expected = np.load(_FOLDER / "model_dir_expected.npz")
  fitted = fit_log.load(str(_FOLDER / "model_dir"))
  np.testing.assert_array_equal(
      fitted.bias.click_relevant, expected["click_relevant"])
  heads = fitted.model({
      name: tf.constant(expected[f"input_{name}"].astype(
          object if name == "texts" else np.float32))
      for name in ("numeric", "texts")})
  np.testing.assert_allclose(
      heads[..., 0], expected["scores"], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
      tf.sigmoid(heads[..., 1]), expected["relevance"], rtol=1e-5, atol=1e-6)
