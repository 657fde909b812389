"""Tests of `ultra-tfr prepare-log` and `fit-log --prepared`."""

import json
import os

import numpy as np
from pyarrow import csv
import pytest

import click_logs
from command_line import Calls

pytest.importorskip("apache_beam")
_COLUMNS = [
    "--query=request_id", "--position=rank", "--feedback=click",
    "--features=f_*,category", "--context=device", "--item=item_id",
    "--timestamp=timestamp"]
_TINY = ["--steps=4", "--validate_every=2", "--batch_size=64",
         "--hidden_units=8", "--relevance_units=8", "--seed=3"]
# Without a bias to diagnose, which is what takes the time.
_NAIVE = ["--method=naive-pairwise", "--steps=2"]


def _prepare(out, *more, log="a.csv,b.csv"):
  return ["prepare-log", f"--log={log}", *_COLUMNS, f"--out={out}", *more]


_GOOD = {
    "prepare": _prepare("prepared", "--json=prepare.json"),
    "prepared": ["fit-log", "--prepared=prepared", *_TINY, *_NAIVE,
                 "--model_dir=model", "--json=prepared.json"],
}
_BOTH = {
    "prepare": [*_GOOD["prepare"], "--seed=3"],
    **{name: ["fit-log", *log, *_TINY, f"--model_dir={name}",
              f"--json={name}.json"] for name, log in (
                  ("log", ["--log=a.csv,b.csv", *_COLUMNS]),
                  ("shards", ["--prepared=prepared"]))},
}
_BAD = {
    "no columns": (["prepare-log", "--log=a.csv", *_COLUMNS[1:], "--out=new"],
                   "--query must have a value"),
    "a wrong file": (_prepare("new", log="a.csv,wrong.csv"),
                     "wrong.csv: there is no column"),
    "too many rejected": (
        _prepare("new", "--max_rejected=0"),
        r"3 of 2003 rows are rejected \(new/rejected/ lists them"),
    "out exists": (_prepare("prepared"), "--out: prepared already holds a res"),
    "quotes": (_prepare("new", "--beam_options='a"), "close the quotes"),
    "json over the log": (_prepare("new", "--json=a.csv"),
                          "--json a.csv would change a.csv"),
    "no prepared": (["fit-log", "--prepared=none", "--model_dir=new"],
                    "--prepared none: there is no such file or folder; give"),
    "nothing prepared": (["fit-log", "--prepared=model", "--model_dir=other"],
                         "model: there is no manifest.json, so this is no --o"),
    "log and prepared": (
        ["fit-log", "--prepared=prepared", "--test=.2", "--model_dir=new"],
        "--test is given beside --prepared, whose log is settled; leave"),
    "neither": (["fit-log", "--model_dir=new"],
                "--log is missing; give --log, .* by --prepared"),
    "json over prepared": (
        ["fit-log", "--prepared=prepared", "--model_dir=new",
         "--json=prepared/manifest.json"], "would change prepared, which is"),
}


def _write_log(folder):
  table = click_logs.small()
  table = table.take(np.random.default_rng(0).permutation(len(table)))
  csv.write_csv(table[:900], folder / "a.csv")
  csv.write_csv(table[900:], folder / "b.csv")
  with open(folder / "b.csv", "a") as file:
    file.writelines(f'"x",{rank},"i","mobile",1,0,0\n'.replace("\n", ",,,\n")
                    for rank in range(3))


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
  """What came of all calls."""
  folder = tmp_path_factory.mktemp("calls")
  _write_log(folder)
  (folder / "wrong.csv").write_text("a,b\n1,2\n")
  bad = {name: words for name, (words, _) in _BAD.items()}
  return Calls(folder, {**_GOOD, **bad})


def test_preparing(calls):
  text = calls.out("prepare")
  assert ("The log is in prepared, 3 shards; train from it by `ultra-tfr "
          "fit-log --prepared prepared`.") in text.splitlines()
  assert "prepared/rejected/ lists the 3 rejected rows." in text.splitlines()
  assert sorted({*os.listdir(calls.folder / "prepared")}) == [
      ".ultra_tfr.json", "manifest.json", "rejected", "shards"]


def test_training_from_shards(calls):
  text, written = calls.out("prepared"), calls.json("prepared")
  assert written["summary"] == calls.json("prepare")["summary"]
  assert written["history"]["step"] == [2] and written["evaluation"]
  assert "The ranking model is in model/model." in text.splitlines()


@pytest.mark.slow
def test_training_from_shards_is_training_from_the_log(tmp_path):
  """The same summary, training, curves, evaluation and diagnosis."""
  _write_log(tmp_path)
  calls = Calls(tmp_path, _BOTH)
  log, prepared = calls.json("log"), calls.json("shards")
  for key in ("summary", "history", "validation", "bias", "evaluation",
              "diagnosis"):
    _check_close(log[key], prepared[key], key)
  with open(calls.folder / "log" / "log.json") as a, open(
      calls.folder / "shards" / "log.json") as b:
    assert json.load(a)["schema"] == json.load(b)["schema"]


def _check_close(a, b, where):
  if isinstance(a, dict):
    assert a.keys() == b.keys(), where
    for name in a:
      _check_close(a[name], b[name], f"{where} {name}")
  elif isinstance(a, list):
    assert len(a) == len(b), where
    for first, second in zip(a, b):
      _check_close(first, second, where)
  elif isinstance(a, float):
    assert b == pytest.approx(a, rel=1e-6, abs=1e-6), where
  else:
    assert a == b, where


@pytest.mark.parametrize("name", _BAD)
def test_wrong_calls(calls, name):
  calls.check_wrong(name, _BAD[name][1], "Training|Diagnosing|The log is in")
  assert not os.path.exists(calls.folder / "new" / "manifest.json")
