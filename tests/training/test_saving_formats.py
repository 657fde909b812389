"""All that is learned is saved, or saving it is refused: one table."""

import json
import re

import pytest
import tensorflow as tf

import process_groups
import saving_program
from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import CounterfactualMetric

# What cannot hold the layers, and what to do instead.
_REFUSED = {
    ".h5": "A whole model in HDF5 .* cannot hold the propensities .*`.keras`",
    "_weights.h5": "Weights in the old HDF5 format .* ends with `.weights.h5`"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
  folder = tmp_path_factory.mktemp("saving")
  process_groups.run(
      [[saving_program.__file__, str(folder / "out.json")]], folder)
  return json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("kind", saving_program.FORMATS)
@pytest.mark.parametrize("layers", saving_program.LAYERS)
@pytest.mark.parametrize("strategy", saving_program.STRATEGIES)
def test_all_is_kept_or_refused(outcomes, strategy, layers, kind):
  """Users lost what was learned without a word.

  `.keras` files could not be loaded in a strategy's scope, or where two losses
  had one layer; old HDF5 files and checkpoints lacked layers.
  """
  found = outcomes[f"{strategy} {layers} {kind}"]
  assert re.match(_REFUSED.get(kind, "kept$"), found), found


@pytest.mark.parametrize("name", ["model.keras", "model"])
def test_the_metrics_of_a_loaded_model_read_the_layer_of_its_loss(
    tmp_path, name):
  """They had one of their own, with the values that EM starts from."""
  bias = PositionBias(2, trust_bias=None)
  model = scorers.build_model(3, hidden_units=[])
  model.compile("sgd", UnbiasedPairwiseLoss(bias),
                metrics=[CounterfactualMetric(bias)])
  model(tf.zeros([1, 2, 3]))
  bias.examination.assign([[.8, .2]])
  PropensityEM().set_model(model)
  model.save(tmp_path / name)
  again = tf.keras.models.load_model(tmp_path / name)
  data = tf.ones([4, 2, 3]), tf.constant([[0., 1.]] * 4)
  assert again.evaluate(*data, verbose=0) == pytest.approx(
      model.evaluate(*data, verbose=0))


@pytest.mark.parametrize("path, options", [
    ("w.h5", {}), ("w.hdf5", {}), ("w", {"save_format": "h5"})])
def test_weights_in_old_hdf5_are_refused(tmp_path, path, options):
  model = scorers.build_model(3, hidden_units=[])
  model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(2, name="mine")))
  PropensityEM().set_model(model)
  with pytest.raises(ValueError, match=(
      "cannot hold the propensities of 'mine'; give the file a name that ends "
      "with `.weights.h5`")):
    model.save_weights(str(tmp_path / path), **options)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model.keras", "model"])
def test_a_loaded_model_refuses_old_hdf5_before_it_is_fitted(tmp_path, name):
  """It saved its weights without the propensities that it had loaded."""
  model = scorers.build_model(3, hidden_units=[])
  model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(2, name="mine")))
  model(tf.zeros([1, 2, 3]))
  PropensityEM().set_model(model)
  model.save(tmp_path / name)

  def load(model):
    return tf.keras.models.load_model(tmp_path / name), model

  again, other = load(scorers.build_model(3, hidden_units=[]))
  with pytest.raises(ValueError, match="the propensities of 'mine'; give"):
    again.save_weights(str(tmp_path / "w.h5"))
  # No loss of ours, but at hand while the model was loaded.
  other.save_weights(str(tmp_path / "other.h5"))
  again.save_weights(str(tmp_path / "w.weights.h5"))
