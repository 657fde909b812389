"""Tests of ultra_tfr.callbacks: saved and restored propensities."""

import numpy as np
import pytest
import tensorflow as tf

from callback_fits import NUM_POSITIONS
from callback_fits import fit
from callback_fits import make_data
from callback_fits import make_model
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["weights", "model.weights.h5"])
def test_weights_bring_the_propensities_back(name, tmp_path):
  bias, path = PositionBias(NUM_POSITIONS), str(tmp_path / name)
  model = make_model(bias)
  fit(model, make_data())
  model.save_weights(path)
  again = PositionBias(NUM_POSITIONS)
  other = make_model(again, seed=1)
  PropensityEM().set_model(other)
  assert np.abs(again.examination - bias.examination).max() > .01
  other.load_weights(path)
  np.testing.assert_array_equal(again.examination, bias.examination)
  assert again.num_updates.numpy() == bias.num_updates.numpy() == 6


@pytest.mark.parametrize("attach_first", [True, False])
def test_a_checkpoint_brings_the_propensities_back(attach_first, tmp_path):
  bias = PositionBias(NUM_POSITIONS, trust_bias="pairwise")
  model = make_model(bias)
  fit(model, make_data())
  path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
  again = PositionBias(NUM_POSITIONS, trust_bias="pairwise")
  other = make_model(again, seed=1)
  if attach_first:
    PropensityEM().set_model(other)
  status = tf.train.Checkpoint(model=other).restore(path)
  if not attach_first:
    PropensityEM().set_model(other)
  status.assert_existing_objects_matched()
  for table in ("examination", "trust_positive", "trust_negative"):
    np.testing.assert_array_equal(
        getattr(again, table), getattr(bias, table))


def test_a_saved_model_brings_the_propensities_back(tmp_path):
  bias = PositionBias(NUM_POSITIONS)
  model = make_model(bias)
  features, feedback = make_data()
  fit(model, (features, feedback))
  for name in ("saved_model", "model.keras"):
    model.save(str(tmp_path / name))
    again = tf.keras.models.load_model(str(tmp_path / name))
    np.testing.assert_allclose(
        again.predict(features, verbose=0), model.predict(features, verbose=0),
        rtol=1e-5)
    assert isinstance(again.loss, UnbiasedPairwiseLoss)


def test_pending_sums_are_applied_and_not_cleared():
  # As after a restore in the middle of an execution.
  features, feedback = make_data(num_lists=8)
  bias = PositionBias(NUM_POSITIONS)
  model = make_model(bias)
  bias.start_collecting()
  model.loss(feedback, model(features))
  callback = PropensityEM()
  callback.set_model(model)
  assert bias.num_updates.numpy() == 0
  callback.on_train_begin()
  assert bias.num_updates.numpy() == 1
