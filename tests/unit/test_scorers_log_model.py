"""Tests of ultra_tfr.scorers: models of click logs."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.data.click_log import requests
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

NAN = float("nan")
# Column names that TensorFlow would not take, some alike.
NAMES = ["price [$]", "price ($)", "größe", "1st", "_x", "a.b/c", "a b"]


@pytest.fixture(scope="module")
def frame():
  """A log with features of odd names."""
  rng = np.random.default_rng(0)
  size = 400
  numbers = {name: np.exp(3 * rng.normal(size=size)) for name in NAMES[:5]}
  numbers["price [$]"][::7] = NAN
  return pd.DataFrame({
      "q": np.arange(size) // 4, "p": np.arange(size) % 4 + 1,
      "c": rng.integers(2, size=size), **numbers,
      "a.b/c": rng.choice(["x", "y", None, "[UNK]", "日本"], size),
      "a b": [f"t{i}" for i in rng.integers(30, size=size)]})


@pytest.fixture(scope="module")
def log(frame):
  columns = LogColumns("q", "p", "c", ("*",))
  with read_click_log(frame, columns, valid=0, test=0,
                      max_vocabulary=20) as log:
    yield log


@pytest.fixture
def batch(log):
  return next(log.parts["train"].batches(5))


def _inputs(batch):
  return {name: tf.constant(value)
          for name, value in requests.model_inputs(batch).items()}


# Numbers.


def _number(value, mean, variance):
  """Signed log and standardisation, in plain Python."""
  if math.isnan(value):
    return 0.
  return (math.copysign(math.log1p(abs(value)), value) - mean) / variance**.5


def test_numbers():
  features = [{"mean": 1., "variance": 4., "missing": 0.},
              {"mean": -.5, "variance": 1., "missing": .1},
              {"mean": 0., "variance": .25, "missing": 1.}]
  values = [[3., -20., 1e30], [NAN, NAN, NAN], [0., 1e6, -3e38]]
  expected = [
      [_number(v, f["mean"], f["variance"]) for v, f in zip(row, features)] +
      # Where it can be missing, a feature says whether it is.
      [float(math.isnan(v)) for v in row[1:]] for row in values]
  found = scorers.NumericFeatures(features)(tf.constant([values]))
  np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_what_training_never_saw_hardly_moves_a_score():
  """A constant that changes once it is served, or a value that is infinite."""
  features = [{"name": "a", "mean": 2., "variance": 1., "missing": 0.,
               "constant": True},
              {"name": "b", "mean": 1., "variance": 4., "missing": 0.}]
  layer = scorers.NumericFeatures(features)
  for value in (0., -1e30, np.inf, NAN):
    np.testing.assert_array_equal(layer(tf.constant([[value, 3.]]))[:, 0], 0)
  for value in (np.inf, -np.inf, NAN):
    np.testing.assert_array_equal(layer(tf.constant([[1., value]])), [[0, 0]])


def test_numbers_of_the_log_are_standardised(log):
  layer = scorers.NumericFeatures(log.statistics["numeric"])
  batch = next(log.parts["train"].batches(1000))
  outputs = layer(tf.constant(batch.numeric)).numpy().reshape(400, -1)
  assert outputs.shape == (400, 5 + 1)
  missing = np.isnan(batch.numeric[..., 0]).ravel()
  assert missing.sum() == 58
  np.testing.assert_array_equal(outputs[:, 5], missing)
  assert (outputs[missing, 0] == 0).all()
  known = np.where(missing[:, np.newaxis] & (np.arange(5) == 0), NAN,
                   outputs[:, :5])
  np.testing.assert_allclose(np.nanmean(known, axis=0), 0, atol=1e-6)
  np.testing.assert_allclose(np.nanstd(known, axis=0), 1, rtol=1e-5)


def test_half_precision_keeps_large_counts():
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    layer = scorers.NumericFeatures([{"mean": 0, "variance": 1,
                                        "missing": 0}])
    found = layer(tf.constant([[1e6], [1.001e6], [3e38]]))
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  assert found.dtype == tf.float16
  np.testing.assert_allclose(found[:, 0], np.log1p([1e6, 1.001e6, 3e38]),
                             rtol=1e-3)


# Texts.


def test_texts():
  layer = scorers.TextFeatures([
      {"vocabulary": ["b", "", "[UNK]"]}, {"bins": 1000}])
  texts = [["b", "x"], ["", "y"], ["[UNK]", "x"], ["new", ""], ["newer", "z"]]
  first, second = np.split(layer(tf.constant(texts)).numpy(), [4], axis=-1)
  # Each value has its own embedding, and all new ones share one.
  assert len({tuple(row) for row in first.tolist()}) == 4
  assert (first[3] == first[4]).all()
  assert (second[0] == second[2]).all()
  assert len({tuple(row) for row in second.tolist()}) == 4


@pytest.mark.parametrize("size, units", [(2, 4), (11, 6), (1000, 16)])
def test_embeddings_grow_with_the_vocabulary(size, units):
  vocabulary = [str(i) for i in range(size)]
  layer = scorers.TextFeatures([{"vocabulary": vocabulary}])
  assert layer(tf.constant([[["1"]]])).shape == (1, 1, units)
  small = scorers.TextFeatures([{"vocabulary": vocabulary}], max_units=3)
  assert small(tf.constant([[["1"]]])).shape == (1, 1, 3)


@pytest.mark.parametrize("layer, inputs", [
    (scorers.NumericFeatures([{"mean": 1., "variance": 2., "missing": .5}],
                               name="n"), [[3.], [NAN]]),
    (scorers.TextFeatures([{"vocabulary": ["a", "b"]}, {"bins": 3}],
                            max_units=5, name="t"), [["a", "b"], ["c", ""]])])
def test_config_survives_json(layer, inputs):
  config = json.loads(json.dumps(layer.get_config()))
  again = type(layer).from_config(config)
  assert again.get_config() == config and again.name == layer.name
  expected, found = layer(tf.constant(inputs)), again(tf.constant(inputs))
  again.set_weights(layer.get_weights())
  np.testing.assert_array_equal(again(tf.constant(inputs)), expected)
  assert found.shape == expected.shape


# Models.


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_scores_do_not_depend_on_padding(log, batch, heads):
  tf.keras.utils.set_random_seed(heads)
  model = scorers.build_log_model(log.statistics, heads, [4])
  scores = model(_inputs(batch)).numpy()
  assert scores.shape == ((5, 4) if heads == 1 else (5, 4, heads))
  assert np.isfinite(scores).all()
  padded = {name: tf.pad(value, [[0, 0], [0, 3], [0, 0]])
            for name, value in _inputs(batch).items()}
  np.testing.assert_allclose(model(padded)[:, :4], scores, rtol=1e-5)


@pytest.mark.parametrize("kind", ["numeric", "text"])
def test_features_of_one_kind(log, batch, kind):
  other = {"numeric": "text", "text": "numeric"}[kind]
  model = scorers.build_log_model({**log.statistics, other: []}, 1, [4])
  name = {"numeric": "numeric", "text": "texts"}[kind]
  assert list(model.input) == [name]
  assert model({name: _inputs(batch)[name]}).shape == (5, 4)


def test_no_feature():
  with pytest.raises(ValueError, match="no feature to rank by; name some by "
                     "`features`"):
    scorers.build_log_model({"numeric": [], "text": []})


def test_a_model_learns_from_a_missing_value(frame):
  frame = frame.assign(c=frame["price [$]"].isna().astype(int))
  with read_click_log(frame, LogColumns("q", "p", "c", ("price*",)), valid=0,
                      test=0) as log:
    model = scorers.build_log_model(log.statistics, 1, [8])
    model.compile(tf.keras.optimizers.Adam(.02), "mse")
    dataset = log.parts["train"].dataset(50).map(
        lambda inputs, packed, weights: (inputs, packed[..., 0]))
    history = model.fit(dataset, steps_per_epoch=100, verbose=0).history
  assert history["loss"][0] < .03 < frame["c"].var()


# Names, saving and serving.


def test_input_names():
  statistics = {"numeric": [{"name": name} for name in NAMES[:5]],
                "text": [{"name": name} for name in [*NAMES[5:], "a_b", ""]]}
  names = scorers.input_names(statistics)
  assert names == {
      "price [$]": "price____", "price ($)": "price_____", "größe": "gr__e",
      "1st": "f1st", "_x": "f_x", "a.b/c": "a_b_c", "a b": "a_b",
      "a_b": "a_b_", "": "f"}


_PLAIN = """
import json, sys
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
signature = tf.saved_model.load(f"{folder}/model").signatures["serving_default"]
assert not {"ultra_tfr", "tensorflow_ranking"} & set(sys.modules)
with open(f"{folder}/inputs.json") as file:
  inputs = json.load(file)
scores = signature(**{name: tf.constant(value) for name, value in
                      inputs.items()})
assert list(scores) == ["scores"]
np.save(f"{folder}/served.npy", scores["scores"])
"""
_KERAS = """
import sys
import numpy as np
import ultra_tfr
import tensorflow as tf

folder = sys.argv[1]
model = tf.keras.models.load_model(f"{folder}/model.keras", compile=False)
inputs = {"numeric": np.load(f"{folder}/numeric.npy"),
          "texts": np.load(f"{folder}/texts.npy")}
np.save(f"{folder}/loaded.npy", model(
    {name: tf.constant(value) for name, value in inputs.items()}))
"""


@pytest.fixture
def run(plain_tensorflow, tmp_path):
  """Runs a program that is given the folder of the test."""
  def run_program(code):
    done = plain_tensorflow(code, tmp_path, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]

  return run_program


def test_a_model_is_loaded_elsewhere(log, batch, run, tmp_path):
  model = scorers.build_log_model(log.statistics, 2, [4])
  model.save(tmp_path / "model.keras")
  np.save(tmp_path / "numeric.npy", batch.numeric)
  np.save(tmp_path / "texts.npy", batch.texts.astype(str))
  run(_KERAS)
  np.testing.assert_allclose(np.load(tmp_path / "loaded.npy"),
                             model(_inputs(batch)), rtol=1e-6)


def test_the_exported_ranker_needs_tensorflow_only(log, batch, run, tmp_path):
  model = scorers.build_log_model(log.statistics, 2, [4])
  scorers.export_log_ranker(model, log.statistics, str(tmp_path / "model"))
  names = scorers.input_names(log.statistics)
  inputs = {}
  for kind, values in (("numeric", batch.numeric), ("text", batch.texts)):
    for i, feature in enumerate(log.statistics[kind]):
      inputs[names[feature["name"]]] = values[..., i].tolist()
  assert len(inputs) == len(NAMES)
  (tmp_path / "inputs.json").write_text(json.dumps(inputs))
  run(_PLAIN)
  scores = model(_inputs(batch))[..., 0]
  assert np.ptp(scores) > .01
  np.testing.assert_allclose(np.load(tmp_path / "served.npy"), scores,
                             rtol=1e-5, atol=1e-6)
