"""Damaged folders of `fit-log`, `train` and `compare`."""

import json
import os
import pathlib
import shutil

from hypothesis import strategies as st
import pytest

import fuzzing
from ultra_tfr.experiments import runs
from ultra_tfr.fit_log import saved_model
from ultra_tfr.fit_log import training

_MODEL_DIR = (pathlib.Path(__file__).parents[1] / "support" / "saved_0_1_0" /
              "model_dir")
_RESULT = {"metrics": {"ndcg@3": .3, "ndcg@5": .4, "ndcg@10": .5},
           "examination": [1., .5], "seconds": 1.5}


@fuzzing.SECONDS
def test_damaged_descriptions_of_models(tmp_path, seconds):
  path = tmp_path / "log.json"
  content = (_MODEL_DIR / "log.json").read_bytes()

  def check(example):
    path.write_bytes(example if isinstance(example, bytes) else
                     json.dumps(example).encode(errors="surrogatepass"))
    found = fuzzing.outcome(lambda: saved_model.read_description(path), path)
    assert found is None or found["schema"]["contexts"]

  fuzzing.fuzz(st.one_of(fuzzing.with_changes(json.loads(content)),
                         fuzzing.damaged(content)), check, seconds)


@fuzzing.SECONDS
def test_damaged_folders_of_models(tmp_path, seconds):
  folder = tmp_path / "model"
  shutil.copytree(_MODEL_DIR, folder)
  contents = {name: (folder / name).read_bytes() for name in os.listdir(folder)}

  def check(example):
    name, content = example
    (folder / name).write_bytes(content)
    try:
      fitted = fuzzing.outcome(lambda: training.load(str(folder)), folder)
      assert fitted is None or fitted.model.get_weights()
    finally:
      (folder / name).write_bytes(contents[name])

  fuzzing.fuzz(st.one_of(*(
      st.tuples(st.just(name), fuzzing.damaged(content))
      for name, content in contents.items())), check, seconds)


@pytest.mark.parametrize("name", ["settings.json", "result.json"])
@fuzzing.SECONDS
def test_damaged_trainings(tmp_path, seconds, name):
  settings = {"seed": 3, "method": ["unbiased"], "train": "a.txt"}
  with runs.open_folder(tmp_path / "one") as folder:
    runs.write_settings(folder, settings)
    runs.begin(folder)
    runs.finish(folder, _RESULT)
  path = tmp_path / "one" / name
  content = path.read_bytes()

  def check(example):
    path.write_bytes(example if isinstance(example, bytes) else
                     json.dumps(example).encode(errors="surrogatepass"))
    fuzzing.outcome(lambda: runs.check(tmp_path / "one", settings),
                    tmp_path / "one")
    found = fuzzing.outcome(lambda: runs.result(tmp_path / "one"), path)
    assert found is None or found["metrics"].keys() >= {"ndcg@3"}

  fuzzing.fuzz(st.one_of(fuzzing.with_changes(json.loads(content)),
                         fuzzing.damaged(content)), check, seconds)


@fuzzing.SECONDS
def test_damaged_stores_of_runs(tmp_path, seconds):
  run = runs.Run("click", "unbiased", 0)
  store = runs.RunStore(tmp_path, {"steps": 10})
  store.write(run, _RESULT)
  path = pathlib.Path(store.path(run))
  content = path.read_bytes()

  def check(example):
    path.write_bytes(example if isinstance(example, bytes) else
                     json.dumps(example).encode(errors="surrogatepass"))
    fuzzing.outcome(lambda: store.read(run), path)

  fuzzing.fuzz(st.one_of(fuzzing.with_changes(json.loads(content)),
                         fuzzing.damaged(content)), check, seconds)
