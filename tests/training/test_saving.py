"""Propensities come back from each kind of file, in a fresh process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss

NUM_POSITIONS = 4
WHOLE = (".keras", "_saved_model")
PARTS = ("_weights", ".weights.h5", "_checkpoint-1")

# Another order of hashes too; all files of all kinds, to import only once.
_LOAD = """
import sys
import numpy as np
import ultra_tfr
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

data = np.load("data.npz", allow_pickle=False)


def fit(model):
  model.fit(data["features"], data["feedback"], batch_size=8, shuffle=False,
            callbacks=[PropensityEM()], verbose=0)


def state(model, bias):
  state = {v.name: v.numpy() for v in bias.weights}
  state["scores"] = model.predict(data["features"], verbose=0)
  return state


trust = sys.argv[1]
for kind in (".keras", "_saved_model"):
  model = tf.keras.models.load_model(f"{trust}{kind}")
  assert isinstance(model.loss, UnbiasedPairwiseLoss)
  bias = model.loss.position_bias
  np.savez(f"{kind}.npz", **state(model, bias))
  fit(model)
  assert model.loss.position_bias is bias
  np.savez(f"{kind}.more.npz", **state(model, bias))
for kind in ("_weights", ".weights.h5", "_checkpoint-1"):
  tf.keras.utils.set_random_seed(1)
  bias = PositionBias(4, trust_bias=trust)
  model = scorers.build_model(3, num_heads=2, hidden_units=[4])
  model.compile("adam", UnbiasedPairwiseLoss(bias))
  PropensityEM().set_model(model)
  # HDF5 files fill what is there, and an optimizer is empty at first.
  model.optimizer.build(model.trainable_variables)
  if kind == "_checkpoint-1":
    checkpoint = tf.train.Checkpoint(model=model)
    checkpoint.restore(f"{trust}{kind}").assert_existing_objects_matched()
  else:
    model.load_weights(f"{trust}{kind}")
  np.savez(f"{kind}.npz", **state(model, bias))
  fit(model)
  np.savez(f"{kind}.more.npz", **state(model, bias))
"""


def _data():
  rng = np.random.default_rng(0)
  shape = [32, NUM_POSITIONS]
  clicks = rng.random(shape) < .8 / np.arange(1, NUM_POSITIONS + 1)
  return rng.normal(size=[*shape, 3]).astype(np.float32), np.float32(clicks)


def _model(trust_bias, seed=0, num_positions=NUM_POSITIONS):
  tf.keras.utils.set_random_seed(seed)
  bias = PositionBias(num_positions, trust_bias=trust_bias)
  model = scorers.build_model(3, num_heads=2, hidden_units=[4])
  model.compile("adam", UnbiasedPairwiseLoss(bias))
  return model, bias


def _fit(model, partial_restore=False):
  model.fit(*_data(), batch_size=8, shuffle=False, verbose=0,
            callbacks=[PropensityEM(partial_restore=partial_restore)])


def _state(model, bias):
  state = {v.name: v.numpy() for v in bias.weights}
  state["scores"] = model.predict(_data()[0], verbose=0)
  return state


def _save(folder, trust):
  """Saves the weights of a model that was trained a little.

  Returns:
    The model and its bias layer.
  """
  model, bias = _model(trust)
  _fit(model)
  for kind in PARTS[:2]:
    model.save_weights(str(folder / f"{trust}{kind}"))
  tf.train.Checkpoint(model=model).save(str(folder / f"{trust}_checkpoint"))
  return model, bias


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """A folder of weights, and the states when saved by kind of trust bias."""
  folder = tmp_path_factory.mktemp("saved")
  return folder, {
      trust: _state(*_save(folder, trust)) for trust in ("pairwise", None)}


@pytest.fixture(scope="module")
def loaded(request, tmp_path_factory):
  """A folder, and states of a model when saved and after more training.

  Another process has loaded all that is in the folder, whole models too, and
  written what it found.
  """
  folder, trust = tmp_path_factory.mktemp("loaded"), request.param
  np.savez(folder / "data.npz", **dict(zip(("features", "feedback"), _data())))
  model, bias = _save(folder, trust)
  for kind in WHOLE:
    model.save(str(folder / f"{trust}{kind}"))
  states = [_state(model, bias)]
  _fit(model)
  states.append(_state(model, bias))
  environment = {**os.environ, "PYTHONHASHSEED": "7"}
  done = subprocess.run(
      [sys.executable, "-c", _LOAD, trust], cwd=folder, env=environment,
      capture_output=True, text=True, timeout=900, check=False)
  assert done.returncode == 0, done.stderr[-3000:]
  return folder, *states


def _assert_same(path, expected, **tolerance):
  """The tables are those expected, and so are the scores, computed again."""
  with np.load(path, allow_pickle=False) as found:
    assert set(found) == set(expected)
    for name, value in expected.items():
      allowed = {"rtol": 1e-5, "atol": 1e-6} if name == "scores" else tolerance
      np.testing.assert_allclose(found[name], value, err_msg=name, **allowed)


@pytest.mark.parametrize("loaded", [
    pytest.param("position", marks=pytest.mark.slow),
    pytest.param("pairwise", marks=pytest.mark.release)], indirect=True)
@pytest.mark.parametrize("kind", WHOLE + PARTS)
@pytest.mark.smoke
def test_a_fresh_process_has_the_propensities(loaded, kind):
  folder, expected, _ = loaded
  assert np.ptp(expected["examination:0"]) > .01
  assert expected["num_updates:0"] == 4
  _assert_same(folder / f"{kind}.npz", expected, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("loaded", ["position"], indirect=True)
@pytest.mark.parametrize("kind", WHOLE + PARTS)
def test_training_goes_on_in_a_fresh_process(loaded, kind):
  folder, _, expected = loaded
  assert expected["num_updates:0"] == 8
  if kind == "_saved_model":
    # Keras gives its optimizer a new start; propensities go on all the same.
    with np.load(folder / f"{kind}.more.npz") as found:
      assert found["num_updates:0"] == 8
      assert np.abs(found["examination:0"] - expected["examination:0"]
                    ).max() < 1e-3
    return
  _assert_same(folder / f"{kind}.more.npz", expected, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_may_be_restored_before_the_callback_is_there(saved):
  folder, states = saved
  model, bias = _model("pairwise", seed=1)
  status = tf.train.Checkpoint(model=model).restore(
      str(folder / "pairwise_checkpoint-1"))
  PropensityEM().set_model(model)
  status.assert_existing_objects_matched()
  for name in ("examination", "trust_positive", "trust_negative"):
    np.testing.assert_array_equal(
        getattr(bias, name), states["pairwise"][f"{name}:0"])


def test_pending_sums_are_applied_and_not_cleared():
  # As after a restore in the middle of an execution.
  features, feedback = _data()
  model, bias = _model(None)
  bias.start_collecting()
  model.loss(feedback, model(features))
  callback = PropensityEM()
  callback.set_model(model)
  assert bias.num_updates.numpy() == 0
  callback.on_train_begin()
  assert bias.num_updates.numpy() == 1


# A checkpoint without trust bias, and a layer with it.

_MISSING = "trust_positive|trust_negative|average_trust|sum_trust"


def test_weights_in_hdf5_lack_trust_bias(saved):
  model, _ = _model("pairwise")
  PropensityEM().set_model(model)
  with pytest.raises(ValueError, match=(
      "expected 13 variables, but received 9 .*trust_positive")):
    model.load_weights(str(saved[0] / "None.weights.h5"))


@pytest.mark.parametrize("load", [
    lambda model, folder: model.load_weights(str(folder / "None_weights")),
    lambda model, folder: tf.train.Checkpoint(model=model).restore(
        str(folder / "None_checkpoint-1"))])
def test_a_checkpoint_lacks_trust_bias(saved, load):
  folder, states = saved
  model, bias = _model("pairwise")
  PropensityEM().set_model(model)
  status = load(model, folder)
  with pytest.raises(AssertionError, match=f"(?s)4 of 4 .*({_MISSING})"):
    status.assert_existing_objects_matched()
  # The choice: examination from the file, trust from its start.
  status.expect_partial()
  np.testing.assert_array_equal(
      bias.examination, states[None]["examination:0"])
  np.testing.assert_allclose(bias.trust_positive, .9)
  with pytest.raises(ValueError, match=(
      "lacks trust_positive, trust_negative of the layer 'position_bias'; .*"
      "partial_restore=True")):
    _fit(model)
  _fit(model, partial_restore=True)
  assert bias.num_updates.numpy() == states[None]["num_updates:0"] + 4
  assert np.ptp(bias.trust_positive) > 0


def test_nothing_is_missed_without_a_checkpoint_or_with_all_of_it(saved):
  model, _ = _model("pairwise")
  _fit(model)
  model.load_weights(str(saved[0] / "pairwise_weights"))
  _fit(model)


@pytest.mark.parametrize("loss", [
    lambda bias: UnbiasedPairwiseLoss(bias),
    lambda bias: InversePropensityLoss(
        bias, tfr.keras.losses.PairwiseLogisticLoss())])
def test_whole_models_in_hdf5_are_refused(tmp_path, loss):
  model = scorers.build_model(3, hidden_units=[4])
  model.compile("adam", loss(PositionBias(4, examination=[1., .5, .3, .2])))
  with pytest.warns(UserWarning), pytest.raises(ValueError, match=(
      r"HDF5 \(`.h5`\) cannot hold the propensities of 'position_bias'; save "
      "it as `.keras`")):
    model.save(tmp_path / "model.h5")
  model.save_weights(tmp_path / "model.weights.h5")


def test_tables_of_another_size(saved):
  model, _ = _model(None, num_positions=NUM_POSITIONS + 1)
  PropensityEM().set_model(model)
  with pytest.raises(ValueError, match="(?i)shape"):
    model.load_weights(str(saved[0] / "None_weights"))


# Together with Keras's own callback.


def test_a_backup_brings_back_a_model_that_was_built_first(tmp_path):
  """An interrupted run goes on from Keras's backup, propensities too.

  Before `build` there is nothing to restore, and Keras only warns of it.
  """
  features, feedback = _data()
  tf.keras.utils.set_random_seed(0)
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  model = tf.keras.Sequential(
      [tf.keras.layers.Dense(1), tf.keras.layers.Reshape([-1])])
  model.compile("adam", UnbiasedPairwiseLoss(bias))
  model.build([None, NUM_POSITIONS, 3])
  end = tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: (
      epoch == 2 and (_ for _ in ()).throw(KeyboardInterrupt)))

  def fit(callbacks):
    model.fit(features, feedback, batch_size=8, epochs=4, verbose=0,
              shuffle=False, callbacks=callbacks)

  fresh, table = model.get_weights(), bias.get_weights()
  fit([PropensityEM()])
  expected = [*model.get_weights(), bias.examination.numpy()]

  def restart():
    model.set_weights(fresh)
    bias.set_weights(table)
    model.compile("adam", model.loss)

  restart()
  backup = tf.keras.callbacks.BackupAndRestore(str(tmp_path))
  with pytest.raises(KeyboardInterrupt):
    fit([PropensityEM(), backup, end])
  restart()
  fit([PropensityEM(), tf.keras.callbacks.BackupAndRestore(str(tmp_path))])
  assert bias.num_updates.numpy() == 16
  for found, value in zip([*model.get_weights(), bias.examination.numpy()],
                          expected):
    np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-6)


# Losses as configurations.


@pytest.mark.parametrize("reduction", ["auto", "sum", "none"])
@pytest.mark.parametrize("lambda_weight", [
    None, tfr.keras.losses.NDCGLambdaWeight(topn=3)])
def test_a_loss_survives_json(lambda_weight, reduction):
  """Losses could not be loaded again: their configuration was no JSON."""
  bias = PositionBias(NUM_POSITIONS, trust_bias="pairwise", smoothing=3.)
  loss = UnbiasedPairwiseLoss(
      bias, lambda_weight=lambda_weight, max_weight=5., min_gap=.5, seed=3,
      reduction=reduction, name="mine")
  config = json.loads(json.dumps(loss.get_config()))
  again = UnbiasedPairwiseLoss.from_config(config)
  assert again.get_config() == loss.get_config()
  assert (again.lambda_weight is None) == (lambda_weight is None)
  scores, feedback = _data()[0][..., :2], _data()[1]
  np.testing.assert_allclose(
      again(feedback, scores), loss(feedback, scores), rtol=1e-6)
  serialized = json.loads(json.dumps(tf.keras.losses.serialize(loss)))
  assert tf.keras.losses.deserialize(
      serialized).get_config() == loss.get_config()
