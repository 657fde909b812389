"""Tests of the command line: ultra_tfr.cli and ultra_tfr.commands."""

import gzip
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from command_line import Calls
from ultra_tfr.commands import train
from ultra_tfr.version import __version__

_TINY = ["--steps=4", "--validate_every=2", "--batch_size=8",
         "--hidden_units=8", "--num_positions=4"]
# Where a wrong call is not noticed, it shall not take long.
_SHORT = ["--steps=1", "--train_queries=20", "--valid_queries=2",
          "--test_queries=2", "--hidden_units=4", "--method=naive-pairwise"]


def _run(words, folder, timeout=900):
  """Calls the command line in a folder, as a user does."""
  return subprocess.run(
      [sys.executable, "-m", "ultra_tfr.cli", *words], cwd=folder,
      capture_output=True, text=True, timeout=timeout, check=False)


def _letor(num_lists=20, size=8, seed=0, num_features=5):
  """A small LETOR file's text."""
  rng = np.random.default_rng(seed)
  lines = []
  for qid in range(1, num_lists + 1):
    for grade in rng.integers(0, 3, size):
      values = rng.normal(size=num_features) + grade
      pairs = " ".join(f"{i}:{value:.4f}"
                       for i, value in enumerate(values, start=1))
      lines.append(f"{grade} qid:{qid} {pairs} #docid = D{len(lines)}\n")
  return "".join(lines)


def _write(path, text):
  opener = gzip.open if str(path).endswith(".gz") else open
  with opener(path, "wt") as file:
    file.write(text)


def _check_shape(written, dataset, runs, feedback, names, num_positions):
  """The JSON has the public shape, and no more and no less."""
  assert list(written) == [
      "dataset", "runs", "seconds", "versions", "results"]
  assert (written["dataset"], written["runs"]) == (dataset, runs)
  assert written["seconds"] > 0
  assert {"ultra_tfr", "tensorflow", "tensorflow_ranking", "python"} == set(
      written["versions"])
  assert list(written["results"]) == [feedback]
  found = written["results"][feedback]
  assert list(found) == ["methods", "examination"]
  assert list(found["methods"]) == names
  for metrics in found["methods"].values():
    assert list(metrics) == ["ndcg@3", "ndcg@5", "ndcg@10"]
    for metric in metrics.values():
      assert list(metric) == ["mean", "std", "runs"]
      assert len(metric["runs"]) == runs
      assert metric["mean"] == pytest.approx(np.mean(metric["runs"]))
      spread = np.std(metric["runs"], ddof=1) if runs > 1 else 0.0
      assert metric["std"] == pytest.approx(spread)
      assert all(0 <= value <= 1 for value in metric["runs"])
  curves = found["examination"]
  assert list(curves) == ["true", "estimated"]
  learners = [name for name in names if name.startswith(("unbiased", "paper"))]
  assert list(curves["estimated"]) == learners
  for curve in [*curves["estimated"].values(),
                *([curves["true"]] if curves["true"] else [])]:
    assert len(curve) == num_positions
    assert curve[0] == pytest.approx(1.0)
    assert all(value >= 0 for value in curve)


# Calls that work.


@pytest.mark.smoke
def test_demo(tmp_path):
  done = _run(
      ["demo", "--steps", "4", "--validate_every", "2", "--train_queries",
       "80", "--valid_queries", "20", "--test_queries", "20", "--json",
       "out.json", "--plot", "curves.png", "--seed", "3"], tmp_path)
  assert done.returncode == 0, done.stderr[-2000:]
  written = json.loads((tmp_path / "out.json").read_text())
  _check_shape(written, "synthetic", 1, "click",
               ["oracle-pairwise", "naive-pairwise", "unbiased"], 10)
  true = written["results"]["click"]["examination"]["true"]
  assert true[:2] == pytest.approx([1.0, 0.61 / 0.68])
  assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
  for words in ("click feedback, NDCG on true labels", "ndcg@10",
                "gap closed", "mean error", "oracle-pairwise"):
    assert words in done.stdout
  # Numbers in the table are those of the file.
  mean = written["results"]["click"]["methods"]["unbiased"]["ndcg@10"]["mean"]
  assert f"{mean:.4f}" in done.stdout
  assert sorted(os.listdir(tmp_path)) == ["curves.png", "out.json"]


_GOOD = {
    "click": ["train", "--train=train.txt.gz", "--test=test.txt.gz",
              "--method=naive-pairwise,unbiased-ipw", "--runs=2", "--seed=5",
              "--json=click.json", "--model_dir=models", *_TINY],
    "dwell": ["train", "--train=train.txt.gz", "--test=test.txt.gz",
              "--valid=valid.txt.gz", "--feedback=dwell", "--json=dwell.json",
              "--method=unbiased-ipw", "--model_dir=dwell", *_TINY],
    "again": ["train", "--train=train.txt.gz", "--test=test.txt.gz",
              "--model_dir=dwell", *_TINY],
    # The second run of "click".
    "second": ["train", "--train=train.txt.gz", "--test=test.txt.gz",
               "--method=naive-pairwise", "--seed=6", "--json=second.json",
               *_TINY],
    "over": ["train", "--train=train.txt.gz", "--test=test.txt.gz",
             "--click_model=cascade", "--valid_queries=5", "--logger=random",
             "--model_dir=dwell", "--overwrite", "--method=unbiased-ipw",
             "--json=over.json", *_TINY],
    "help": ["--help"],
    "nothing": [],
    "version": ["--version"],
    "help demo": ["demo", "--help"],
    "help train": ["train", "--help"],
}
_REAL = {
    "mq2008": ("mq2008_fold1_vali.txt.gz", "mq2008_fold1_test.txt.gz"),
    "lgb": ("lgb_rank_train.txt.gz", "lgb_rank_test.txt.gz"),
}


# Calls that are wrong: one sentence with the flag, or the file and line.

_FILES = {
    "good.txt": _letor(),
    "halves.txt": _letor().replace("2 qid", "1.5 qid"),
    "high.txt": "128 qid:1 1:1\n0 qid:1 1:2\n",
    "words.txt": "1 qid:1 1:1\nhello world\n",
    "no_qid.txt": "1 qid:1 1:1\n1 1:0.5\n",
    "scattered.txt": "1 qid:1 1:1\n0 qid:2 1:1\n1 qid:1 1:2\n",
    "empty.txt": "",
    "zero.txt": "1 qid:1 1:1\n1 qid:1 0:1\n",
    "nan.txt": "1 qid:1 1:1\n1 qid:1 1:nan\n",
    "one.txt": "1 qid:1 1:1\n0 qid:1 1:2\n",
}


def _train(train="good.txt", test="good.txt", *more):
  return ["train", f"--train={train}", f"--test={test}", *more, *_TINY]


# Name -> (words, pattern of the message, status).
_BAD = {
    "no file": (_train("missing.txt"), r"There is no file .*missing\.txt", 1),
    "no test file": (
        _train(test="missing.txt"), r"There is no file .*missing\.txt", 1),
    "no validation file": (
        _train("good.txt", "good.txt", "--valid=missing.txt"),
        r"There is no file .*missing\.txt", 1),
    "folder": (_train("."), "There is no file ", 1),
    "not svmlight": (
        _train("words.txt"), r"words\.txt, line 2: the label 'hello'", 1),
    "no qid": (_train("no_qid.txt"), r"no_qid\.txt, line 2: expected `qid:", 1),
    "no qid in the test file": (
        _train(test="no_qid.txt"), r"no_qid\.txt, line 2: expected `qid:", 1),
    "scattered qid": (
        _train("scattered.txt"), r"scattered\.txt, line 3: .* in one block.*"
        "sort the file by qid", 1),
    "empty": (_train("empty.txt"), r"empty\.txt holds no document", 1),
    "feature 0": (
        _train("zero.txt"), r"zero\.txt, line 2: expected feature indexes "
        "from 1, but there is '0:1'", 1),
    # It is read then, and has no query to hold out.
    "feature 0 and its flag": (
        _train("zero.txt", "zero.txt", "--index_base=0"),
        r"--valid_queries 0.2 of the 1 queries of zero\.txt leaves nothing", 1),
    "feature beyond": (
        _train("good.txt", "good.txt", "--num_features=3"),
        r"good\.txt, line 1: expected indexes from 1 to 3.* index 4; give a "
        "larger `num_features`", 1),
    "not finite": (
        _train("nan.txt"), r"nan\.txt, line 2: .* feature 1 is 'nan'.*"
        'non_finite="zero"', 1),
    "method": (
        _train("good.txt", "good.txt", "--method=unbaised"),
        "There is no method 'unbaised'; the methods are oracle-pairwise, .*"
        "unbiased", 1),
    "no method": (
        _train("good.txt", "good.txt", "--method="), "--method", 1),
    "a method twice": (
        _train("good.txt", "good.txt",
               "--method=naive-pairwise,unbiased,naive-pairwise"),
        "--method.*naive-pairwise", 1),
    "a method without its curve": (
        _train("good.txt", "good.txt", "--method=naive-pairwise,ipw-known",
               "--click_model=dbn"),
        "needs the true examination by position", 1),
    "learning rate": (
        _train("good.txt", "good.txt", "--learning_rate=nan"),
        "--learning_rate.*nan", 1),
    "fractional grades": (
        _train("halves.txt"), r"halves\.txt.*1\.5", 1),
    "a grade too high": (
        _train("good.txt", "high.txt"),
        r"high\.txt: labels must be grades of at most 100, .* there is 128", 1),
    "model_dir is a file": (
        _train("good.txt", "good.txt", "--model_dir=words.txt"),
        r"--model_dir.*words\.txt", 1),
    "model_dir of somebody else": (
        _train("good.txt", "good.txt", "--model_dir=.", "--overwrite"),
        r"--model_dir: \. holds files that ultra-tfr train did not write; give",
        1),
    "json folder": (
        _train("good.txt", "good.txt", "--json=none/x.json"),
        r"--json none/x\.json: the folder .*/none does not exist; create it",
        1),
    "plot folder": (
        ["demo", "--plot=none/x.png"],
        r"--plot none/x\.png: the folder .*/none does not exist; create it",
        1),
    "json is a folder": (
        ["demo", *_SHORT, "--json=."], r"--json \.", 1),
    "json over the training file": (
        _train("good.txt", "one.txt", "--json=./good.txt"),
        r"--json \./good\.txt would change good\.txt, which is needed", 1),
    "plot over the test file": (
        _train("good.txt", "one.txt", "--plot=one.txt"),
        r"--plot one\.txt would change one\.txt, which is needed", 1),
    "plot format": (
        ["demo", *_SHORT, "--plot=x.abc"], r"--plot x\.abc", 1),
    "plot without a curve": (
        _train("good.txt", "good.txt", "--plot=x.png", "--click_model=dbn",
               "--method=naive-pairwise"),
        "--plot.*no examination curve|no examination curve.*--plot", 1),
    "nothing to train on": (
        _train("good.txt", "good.txt", "--valid_queries=20"),
        "--valid_queries 20 of the 20 queries of good.txt leaves nothing", 1),
    "nothing to validate": (
        _train("one.txt"),
        "--valid_queries 0.2 of the 1 queries of one.txt leaves nothing", 1),
    "hidden units": (
        ["demo", "--hidden_units=abc"],
        "--hidden_units must be whole numbers of at least 1, .* holds 'abc'",
        1),
    "hidden units of 0": (
        ["demo", "--hidden_units=64,0"], "--hidden_units .* holds '0'", 1),
    "steps": (
        ["demo", "--steps=150"],
        r"steps.* \(150\) must be a multiple of .*validate_every.* \(100\)",
        1),
    "negative steps": (["demo", "--steps=-1"], "flag --steps=-1: ", 1),
    "a fraction for another logger": (
        _train("good.txt", "good.txt", "--logger=strong",
               "--initial_fraction=0.5"),
        "--initial_fraction is for --logger weak, which sees few labels, but "
        "--logger is strong; leave one of them out.", 1),
    "feedback": (
        _train("good.txt", "good.txt", "--feedback=views"),
        "flag --feedback=views: value should be one of <click|dwell>", 1),
    "click model": (
        _train("good.txt", "good.txt", "--click_model=x"),
        "flag --click_model=x: value should be one of", 1),
    "no flag for the training file": (
        ["train", "--test=good.txt"], "--train", 1),
    "unknown flag": (
        ["demo", "--step=3"], "Unknown command line flag 'step'", 1),
    "a word": (["demo", "now"], "takes flags only, but got 'now'", 1),
    "unknown command": (
        ["trian"], "^ultra-tfr: there is no command 'trian'", 2),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
  """What came of all calls."""
  folder = tmp_path_factory.mktemp("calls")
  _write(folder / "train.txt.gz", _letor())
  _write(folder / "valid.txt.gz", _letor(6, seed=1))
  _write(folder / "test.txt.gz", _letor(6, seed=2))
  for name, text in _FILES.items():
    _write(folder / name, text)
  bad = {name: call[0] for name, call in _BAD.items()}
  return Calls(folder, {**_GOOD, **bad})


def test_train_on_clicks(calls):
  _check_shape(calls.json("click"), "train.txt.gz", 2, "click",
               ["naive-pairwise", "unbiased-ipw"], 4)
  assert "+-" in calls.read("click", "out")


def test_train_on_dwell_times(calls):
  _check_shape(calls.json("dwell"), "train.txt.gz", 1, "dwell",
               ["unbiased-ipw"], 4)


@pytest.mark.parametrize("folder", [
    "dwell", *(f"models/{name}/seed-{seed}" for seed in (5, 6)
               for name in ("naive-pairwise", "unbiased-ipw"))])
def test_model_dir_has_all(calls, folder):
  path = calls.folder / folder
  assert (path / "model" / "saved_model.pb").is_file()
  assert (path / "checkpoints" / "best.index").is_file()
  assert list((path / "logs").rglob("events*"))
  assert "--model_dir=" in (path / "flags.txt").read_text()


def test_a_model_is_not_overwritten(calls):
  assert calls.read("again", "status") == "1"
  message = calls.read("again", "err")
  assert re.search("^ultra-tfr train: --model_dir: dwell holds a training with "
                   r"--valid valid.txt.gz \(\d+ bytes, sha256 [0-9a-f]{16}\), "
                   "but now it is None; "
                   "call with the same flags to go on with it, or give another "
                   "folder, or --overwrite to start anew.$", message,
                   re.MULTILINE), message


def test_a_model_is_overwritten_on_demand(calls):
  _check_shape(calls.json("over"), "train.txt.gz", 1, "click", ["unbiased-ipw"],
               4)


def test_a_click_model_without_a_curve(calls):
  found = calls.json("over")["results"]["click"]
  assert found["examination"]["true"] is None
  assert len(found["examination"]["estimated"]["unbiased-ipw"]) == 4


def test_the_same_seed_gives_the_same_result(calls):
  runs, second = (
      [values["runs"] for values in calls.json(name)["results"]["click"][
          "methods"]["naive-pairwise"].values()]
      for name in ("click", "second"))
  assert [[values[1]] for values in runs] == second
  assert runs[0][0] != runs[0][1]


def test_help_lists_the_commands(calls):
  assert calls.read("help", "status") == "0"
  assert calls.read("nothing", "status") == "2"
  assert calls.read("version", "out").splitlines()[0] == (
      f"ultra-tfr {__version__}")
  for name in ("help", "nothing"):
    for command in ("demo", "train"):
      assert re.search(rf"^  {command} ", calls.read(name, "out"), re.MULTILINE)


def test_help_of_a_command_lists_its_flags(calls):
  text = calls.read("help demo", "out") + calls.read("help demo", "err")
  for flag in ("--train_queries", "--json", "--seed", "--method", "--steps"):
    assert flag in text


def test_each_flag_of_train_is_a_setting_or_known_to_be_none(calls):
  """A new flag that were forgotten would mix two trainings in one folder."""
  flags = re.findall(r"^ +--(?:\[no\])?(\w+):", calls.out("help train"),
                     re.MULTILINE)
  assert {"train", "overwrite", "steps", "index_base"} <= set(flags)
  assert sorted(flags) == sorted(train.SETTINGS + train.NO_SETTINGS)


@pytest.fixture(scope="module")
def real(shared_data, tmp_path_factory):
  folder = tmp_path_factory.mktemp("real")
  return Calls(folder, {
      name: ["train", f"--train={shared_data / train}",
             f"--test={shared_data / test}", "--valid_queries=40",
             "--steps=4", "--validate_every=2", "--hidden_units=16",
             "--batch_size=32", f"--json={name}.json"]
      for name, (train, test) in _REAL.items()})


@pytest.mark.slow
@pytest.mark.parametrize("name", _REAL)
def test_real_data(real, name):
  _check_shape(real.json(name), _REAL[name][0], 1, "click", ["unbiased"], 10)


@pytest.mark.parametrize("name", _BAD)
def test_wrong_calls(calls, name):
  _, pattern, status = _BAD[name]
  # absl shows how to call a command on the one or on the other.
  shown = calls.read(name, "err") + calls.read(name, "out")
  assert "Traceback" not in shown, shown
  assert calls.read(name, "status") == str(status), shown
  lines = [line for line in shown.splitlines() if re.search(pattern, line)]
  assert len(lines) == 1, shown
  # It is noticed before anything takes long.
  assert "\nTraining " not in f"\n{calls.read(name, 'out')}"
