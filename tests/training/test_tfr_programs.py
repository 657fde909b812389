"""TF-Ranking's programs, made unbiased: examples/tfr."""

import re
import sys

from absl import app
from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow as tf

import program_files
from ultra_tfr.data import elwc

_FOLDER = program_files.ROOT / "examples" / "tfr"
_PROGRAMS = ("keras_dnn_tfrecord", "antique_kpl_din", "antique_ragged")
_TINY = {"queries": 40, "num_train_steps": 10, "num_epochs": 1}


@pytest.fixture
def load(monkeypatch):
  """Imports a program; its flags are gone after the test."""
  monkeypatch.syspath_prepend(str(_FOLDER))
  monkeypatch.delitem(
      sys.modules, "simulated_elwc", raising=False)
  with flagsaver.flagsaver():
    yield lambda name: program_files.load(_FOLDER / f"{name}.py")


def _run(load, name, folder, **values):
  program = load(name)
  flags.FLAGS(["program", f"--model_dir={folder}"])
  with flagsaver.flagsaver(**_TINY, **values):
    program.main([])


def _curve(text):
  """The estimate that a program prints."""
  found = re.search(r"^examination, estimated: +\[([\d. ]+)\]$", text, re.M)
  return [float(word) for word in found[1].split()]


def _check(path, capsys, signature="serving_default"):
  """The curve has been learned, and what is exported scores lists."""
  curve = _curve(capsys.readouterr().out)
  assert curve[0] == 1 and len(curve) == 10
  assert min(curve) < .9
  folder = path.parent
  while not (folder / "data").exists():
    folder = folder.parent
  records = list(tf.data.TFRecordDataset(str(folder / "data/valid.tfrecord")))
  scores = tf.saved_model.load(str(path)).signatures[signature](
      tf.stack(records[:4]))["outputs"].numpy()
  sizes = np.diff(elwc.read_elwc(str(folder / "data/valid.tfrecord"))
                  .row_splits)[:4]
  for size, row in zip(sizes, scores):
    assert np.ptp(row[:size]) > 0


@pytest.mark.slow
def test_the_network_of_numbers(load, tmp_path, capsys):
  _run(load, "keras_dnn_tfrecord", tmp_path, num_features=3, num_valid_steps=2,
       hidden_layer_dims="4", use_log1p=True)
  _check(tmp_path / "export" / "latest_model", capsys)


@pytest.mark.slow
def test_the_attention_to_other_documents(load, tmp_path, capsys):
  _run(load, "antique_kpl_din", tmp_path, head_size=4, list_size=10,
       hidden_layer_dims=["4"], vocab_size=70)
  _check(tmp_path / "export", capsys, "tensorflow/serving/predict")


@pytest.mark.parametrize("use_pipeline, path", [
    pytest.param(False, "export", marks=pytest.mark.slow),
    pytest.param(True, "export/latest_model", marks=pytest.mark.release)])
def test_ragged_documents(load, tmp_path, capsys, use_pipeline, path):
  _run(load, "antique_ragged", tmp_path, use_pipeline=use_pipeline,
       hidden_layer_dims=[16], vocab_size=70, num_valid_steps=1)
  assert len(_curve(capsys.readouterr().out)) == 10
  model = tf.saved_model.load(str(tmp_path / path))
  query = tf.ragged.constant([["word01"]], row_splits_dtype=tf.int64)
  documents = tf.ragged.constant(
      [[["word01", "word02"], ["word40"]]], row_splits_dtype=tf.int64)
  scores = model({"query_tokens": query, "document_tokens": documents},
                 training=False)
  assert np.ptp(scores.flat_values.numpy()) > 0


def test_the_files_are_those_of_a_log(load, tmp_path):
  """Clicks come from positions and relevance; grades are for validation."""
  module = load("simulated_elwc")
  paths = module.write_numbers(str(tmp_path), 2000, 3, "utility")
  train, valid = (elwc.read_elwc(path).examples for path in paths)
  assert {"click", "position"} <= set(train) - set(valid)
  assert "utility" in set(valid) - set(train)
  rate = [train["click"][train["position"] == k].mean() for k in (1, 5, 10)]
  assert rate[0] > 1.5 * rate[1] > 3 * rate[2] > 0
  for columns, name in ((train, "click"), (valid, "utility")):
    appeal = sum(columns[f"custom_features_{i}"] for i in (1, 2, 3))
    assert np.corrcoef(appeal, columns[name])[0, 1] > .15


def test_some_files_without_the_others_are_refused(load, tmp_path):
  module = load("simulated_elwc")
  flags.DEFINE_string("train", "a", "")
  flags.DEFINE_string("valid", None, "")
  flags.FLAGS.mark_as_parsed()
  with pytest.raises(app.UsageError, match="^--valid is missing; give all of"):
    module.find_or_make(["train", "valid"], None, tmp_path)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_lines_that_differ_are_those_of_the_docstring(name):
  text = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
  docstring, code = text.split('"""', 2)[1:]
  new = re.findall(r"^    \+ +(.*)$", docstring, re.M)
  assert len(new) > 2
  assert not [line for line in new if line not in code]
