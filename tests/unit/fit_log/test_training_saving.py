"""Tests of saving and loading by ultra_tfr.fit_log.training."""

import json

import numpy as np
import pytest

import click_logs
from ultra_tfr.fit_log import scoring
from ultra_tfr.fit_log import training

_OTHER_PROCESS = """
import json, sys
import numpy as np
import tensorflow as tf
given = np.load("batch.npz")
served = tf.saved_model.load("saved/model").signatures["serving_default"]
inputs = {name: tf.constant(given[name].tolist()) for name in given}
scores = served(**inputs)["scores"].numpy()
assert not {"ultra_tfr", "tensorflow_ranking"} & set(sys.modules)
from ultra_tfr.fit_log import training as log_training
fitted = log_training.load("saved")
np.savez("out.npz", served=scores, bias=fitted.bias.click_relevant,
         **{str(i): w for i, w in enumerate(fitted.model.get_weights())})
"""


def test_saved_models_are_the_same_in_another_process(
    plain_tensorflow, tmp_path):
  log, fitted = click_logs.easy()
  for _ in range(2):  # The second one over the first.
    fitted.save(str(tmp_path / "saved"))
  with open(tmp_path / "saved" / "log.json") as file:
    written = json.load(file)
  batch = next(log.parts["test"].batches(50))
  names = log.statistics["numeric"], log.statistics["text"]
  arrays = {written["inputs"][feature["name"]]: values[..., i]
            for features, values in zip(names, (batch.numeric, batch.texts))
            for i, feature in enumerate(features)}
  np.savez(tmp_path / "batch.npz", **{
      name: values.astype(str if values.dtype == object else np.float32)
      for name, values in arrays.items()})
  done = plain_tensorflow(
      _OTHER_PROCESS, tmp_path, TF_USE_LEGACY_KERAS="1")
  assert done.returncode == 0, done.stderr[-2000:]
  found = np.load(tmp_path / "out.npz")
  scores, _ = scoring.predict(fitted.model, batch)
  np.testing.assert_allclose(found["served"], scores, rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(found["bias"], fitted.bias.click_relevant)
  again = training.load(str(tmp_path / "saved"))
  np.testing.assert_array_equal(
      scoring.predict(again.model, batch)[0], scores)
  assert again.bias.to_config() == fitted.bias.to_config()
  assert again.history == fitted.history
  with click_logs.read(click_logs.small(), schema=again.schema) as other:
    assert other.schema()["statistics"] == log.statistics


@pytest.mark.parametrize("missing", ["all", "log.json",
                                     "training_model.keras"])
def test_no_saved_model(tmp_path, missing):
  for name in ("log.json", "training_model.keras"):
    if missing not in ("all", name):
      (tmp_path / name).write_text("{}")
  with pytest.raises(ValueError, match=(
      f"{tmp_path}: there is no .*, so this is no --model_dir of `ultra-tfr "
      "fit-log`; train one first")):
    training.load(str(tmp_path))
