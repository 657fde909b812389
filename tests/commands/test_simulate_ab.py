"""Tests of `ultra-tfr simulate-ab`: ultra_tfr.commands.simulate_ab."""

import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from command_line import Calls
from ultra_tfr import scorers

_TINY = ["--train_queries=40", "--valid_queries=10", "--test_queries=20",
         "--steps=4", "--validate_every=2", "--hidden_units=8",
         "--visits_per_day=200"]
_SERVE = ["--model_a=worse", "--model_b=better", "--test=test.txt"]


def _serve(*changes):
  """The words of a call with exported rankers, but for some."""
  keep = [word for word in _SERVE if not any(
      change.startswith(word.partition("=")[0]) for change in changes)]
  return [*keep, *changes]


_GOOD = {
    "train": [*_TINY, "--json=train.json", "--plot=train.png", "--days=3",
              "--method=naive-pairwise,unbiased-ipw", "--seed=2",
              "--click_model=ubm", "--num_positions=5"],
    **{name: [*_TINY, f"--json={name}.json",
              "--method=naive-pairwise,naive-pairwise", "--seed=3"]
       for name in ("twice", "again")},
    "serve": _serve("--json=serve.json", "--visits_per_day=1000"),
    "turned": _serve("--model_a=better", "--model_b=worse"),
    "same": _serve("--model_b=worse", "--json=same.json"),
    "exported": _serve("--model_a=exported", "--json=exported.json"),
}
# Name -> (words, pattern of the message).
_BAD = {
    "one method": (["--method=unbiased"],
                   "--method must name two methods.* is 'unbiased'"),
    "three methods": (["--method=a,b,c"],
                      "--method must name two methods.* is 'a,b,c'"),
    "no such method": (["--method=unbiased,best"],
                       "There is no method 'best'; the methods are oracle"),
    "method without its curve": (
        ["--method=ipw-known,unbiased", "--click_model=dbn"],
        "needs the true examination by position"),
    "steps": (["--steps=150"], "must be a multiple of"),
    "learning rate": (["--learning_rate=0"], "--learning_rate must be a pos"),
    "days": (["--days=0"], "flag --days=0: "),
    "json folder": (_serve("--json=none/x.json"),
                    r"--json none/x\.json: the folder .* does not exist"),
    "json over the queries": (_serve("--json=test.txt"),
                              r"--json test\.txt would change test\.txt"),
    "plot into a model": (
        _serve("--plot=worse/assets/x.png"),
        r"--plot worse/assets/x\.png would change worse, which is needed"),
    "plot over json": (_serve("--json=x.png", "--plot=./x.png"),
                       r"--plot \./x\.png would change x\.png"),
    "plot format": (_serve("--plot=x.abc"), r"--plot x\.abc: the file must"),
    "one model": (["--model_a=worse"],
                  "--model_a needs --model_b and --test, too"),
    "no queries": (["--model_a=worse", "--model_b=better"],
                   "--model_a needs --test, too"),
    "queries alone": (["--test=test.txt"],
                      "--test needs --model_a and --model_b, too"),
    "models and methods": (_serve("--method=naive-pairwise,unbiased"),
                           "--method is for training, but --model_a"),
    "models and steps": (_serve("--steps=100"),
                         "--steps is for training, but --model_a"),
    "letor without files": (
        ["--index_base=0"],
        "--index_base is for LETOR files, but without --test there are none"),
    "no model": (_serve("--model_b=nothing"),
                 "--model_b nothing holds no exported ranker; give the folder"),
    "half a model": (
        _serve("--model_b=half"),
        r"--model_b half: is damaged \(.*\); export it again"),
    "a model without weights": (
        _serve("--model_b=bare"),
        r"--model_b bare: is damaged \(.*\); export it again"),
    "another signature": (
        _serve("--model_a=other"),
        r"--model_a other must have a signature `serving_default` from "
        r"`features` to `scores`, but has it from \['x'\] to \['y'\]"),
    "no file": (_serve("--test=nothing.txt"), r"no file .*nothing\.txt"),
    "too many features": (_serve("--test=wide.txt"),
                          r"worse ranks by 3 features, but wide\.txt has 4"),
    "fractional grades": (_serve("--test=halves.txt"),
                          r"halves\.txt: labels must be whole grades.* 1\.5"),
}


def _export(path, function, shape, name="features", output="scores"):
  """Writes a SavedModel of a function."""
  module = tf.Module()
  module.serve = tf.function(
      lambda **inputs: {output: function(inputs[name])},
      input_signature=None)
  signature = module.serve.get_concrete_function(
      **{name: tf.TensorSpec(shape, tf.float32, name=name)})
  tf.saved_model.save(module, str(path), {"serving_default": signature})


def _letor(features, change=str):
  """Lists of 5 documents whose grade is the first feature; 0 to 2."""
  rng = np.random.default_rng(0)
  lines = []
  for qid in range(1, 31):
    for grade in rng.permutation([0, 0, 1, 1, 2]):
      rest = "".join(f" {i}:{rng.normal():.3f}" for i in range(2, features + 1))
      lines.append(f"{change(grade)} qid:{qid} 1:{grade}{rest}\n")
  return "".join(lines)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
  """What came of all calls."""
  folder = tmp_path_factory.mktemp("calls")
  shape = [None, None, 3]
  _export(folder / "better", lambda x: x[..., 0], shape)
  _export(folder / "worse", lambda x: -x[..., 0] + x[..., 2], shape)
  _export(folder / "other", lambda x: x[..., 0], shape, "x", "y")
  model = scorers.build_model(3, num_heads=2, hidden_units=(4,))
  scorers.export_ranker(model, str(folder / "exported"))
  for name in ("half", "bare"):
    shutil.copytree(folder / "exported", folder / name)
  program = folder / "half" / "saved_model.pb"
  program.write_bytes(program.read_bytes()[:1000])
  shutil.rmtree(folder / "bare" / "variables")
  (folder / "test.txt").write_text(_letor(2))
  (folder / "wide.txt").write_text(_letor(4))
  (folder / "halves.txt").write_text(
      _letor(2, lambda grade: "1.5" if grade == 1 else str(grade)))
  return Calls(folder, {name: ["simulate-ab", *words] for name, words in {
      **_GOOD, **{name: words for name, (words, _) in _BAD.items()}}.items()})


def test_two_methods(calls):
  text, written = calls.out("train"), calls.json("train")
  lines = text.splitlines()
  assert lines[0].startswith("Making 40 training queries")
  assert lines[1:4] == [
      "Training naive-pairwise ...", "Training unbiased-ipw ...",
      "Sending 200 visits a day to A and B, for 3 days ..."]
  assert written["arms"] == {"A": "naive-pairwise", "B": "unbiased-ipw"}
  assert sum(written["visits"]) == 600
  assert len(written["visits_by_day"]) == 3
  assert (written["click_model"], written["seed"]) == ("ubm", 2)
  assert written["seconds"] > 0
  quality = written["ndcg@10"]
  assert (f"NDCG@10 on true labels: A {quality['A']:.4f}, "
          f"B {quality['B']:.4f}") in text
  assert f"{written['metrics']['clicks']['total']['mean_b']:.4f}" in text
  assert lines[-1] == written["verdict"]
  png = (calls.folder / "train.png").read_bytes()
  assert png.startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_result(calls):
  first, again = calls.json("twice"), calls.json("again")
  del first["seconds"], again["seconds"]
  assert first == again


def test_a_method_against_itself_is_trained_once(calls):
  assert calls.out("twice").count("Training naive-pairwise ...") == 1
  written = calls.json("twice")
  assert written["arms"] == {"A": "naive-pairwise", "B": "naive-pairwise"}
  assert written["ndcg@10"]["A"] == written["ndcg@10"]["B"]
  total = written["metrics"]["clicks"]["total"]
  assert total["low"] < 0 < total["high"]


def test_two_exported_rankers(calls):
  written = calls.json("serve")
  assert written["arms"] == {"A": "worse", "B": "better"}
  assert written["ndcg@10"]["B"] == 1. > written["ndcg@10"]["A"]
  total = written["metrics"]["clicks"]["total"]
  # Grades 2, 1, 1, 0, 0 and the other way round, at five positions.
  curve, attraction = [.68, .61, .48, .34, .28], [1., .4, .4, .1, .1]
  for mean, half, expected in (
      (total["mean_a"], total["half_width_a"], attraction[::-1]),
      (total["mean_b"], total["half_width_b"], attraction)):
    assert abs(mean - np.dot(curve, expected)) < 2 * half
  assert "Training" not in calls.out("serve")
  assert re.search(r"^B gives \d+\.\d % more clicks a visit ",
                   calls.out("serve"), re.MULTILINE)
  assert re.search(r"^B gives \d+\.\d % fewer clicks a visit ",
                   calls.out("turned"), re.MULTILINE)


def test_a_ranker_against_itself(calls):
  assert calls.out("same").count("Loading") == 1
  total = calls.json("same")["metrics"]["clicks"]["total"]
  assert total["low"] < 0 < total["high"]
  assert "\nNo difference shown: " in calls.out("same")


def test_what_train_exports_can_be_served(calls):
  written = calls.json("exported")
  assert written["arms"]["A"] == "exported"
  assert 0 < written["ndcg@10"]["A"] <= 1


@pytest.mark.parametrize("name", _BAD)
def test_wrong_calls(calls, name):
  calls.check_wrong(name, _BAD[name][1], "Training|Making|Sending")


def test_no_other_files_are_written(calls):
  written = {name for name in os.listdir(calls.folder)
             if name.endswith((".json", ".png"))}
  assert written == {"calls.json", "train.json", "train.png", "again.json",
                     "twice.json", "serve.json", "same.json", "exported.json"}
