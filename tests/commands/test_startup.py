"""The command line answers what needs no TensorFlow without loading it."""

import json
import os
import re
import subprocess
import sys

import pytest

import program_files
from ultra_tfr import cli

# Calls it as the console script does, and tells whether TensorFlow came along.
_PROGRAM = """
import atexit, sys
atexit.register(lambda: print("tensorflow" in sys.modules, file=sys.stderr))
import ultra_tfr_start
ultra_tfr_start.run()
"""


def _run(words, folder, program=_PROGRAM, **environment):
  return subprocess.run(
      [sys.executable, "-c", program, *words], cwd=folder, check=False,
      capture_output=True, text=True, timeout=600, env={
          **os.environ, **environment, "PYTHONPATH": str(program_files.ROOT)})


def _answer(words, folder, **environment):
  """Status, stdout and stderr of a call that loads no TensorFlow."""
  done = _run(words, folder, **environment)
  *lines, loaded = done.stderr.splitlines()
  assert loaded == "False", done.stderr
  return done.returncode, done.stdout, "\n".join(lines)


_LOG = ["--query=q", "--position=p", "--feedback=c", "--features=f"]
_WRONG = {
    "unknown command": (
        ["trian"], 2, r"there is no command 'trian'; did you mean 'train'\?"),
    "a command like no other": (["xyz"], 2, "there is no command 'xyz'\\."),
    "unknown flag": (["demo", "--step=3"], 1, "Did you mean: steps"),
    "required flag": (["train", "--test=a"], 1, "--train must have a value"),
    "value of a flag": (
        ["fit-log", "--log=a", *_LOG, "--model_dir=m", "--method=best"], 1,
        "--method=best: value should be one of <unbiased"),
    "method": (["demo", "--method=best"], 1, "There is no method 'best'"),
    "methods": (["compare", "--methods=best"], 1, "There is no method 'best'"),
    "steps": (["demo", "--steps=150"], 1, r"`steps` \(150\) must be a multip"),
    "LETOR file": (
        ["train", "--train=none.txt", "--test=a"], 1, "no file none.txt; give"),
    "log": (
        ["fit-log", "--log=none.csv", *_LOG, "--model_dir=m"], 1,
        "--log none.csv: there is no such file or folder; give a click log"),
    "neither a log nor a prepared one": (
        ["fit-log", "--model_dir=m"], 1, "--log is missing; give --log, --q"),
    "prepared log": (
        ["fit-log", "--prepared=none", "--model_dir=m"], 1,
        "--prepared none: there is no such file or folder; give the --out of"),
    "workers without a cluster": (
        ["fit-log", "--prepared=.", "--model_dir=m",
         "--distribution=multi_worker"], 1,
        "multi_worker needs the environment variable TF_CONFIG in each worker"),
    "workers without shards": (
        ["fit-log", "--log=a", *_LOG, "--model_dir=m",
         "--distribution=mirrored"], 1,
        "--distribution mirrored needs shards to read; prepare the log by"),
    "log to prepare": (
        ["prepare-log", "--log=none.csv", *_LOG, "--out=o"], 1,
        "--log none.csv: there is no such file or folder; give a click log"),
    "log to diagnose": (
        ["diagnose", "--log=none.csv", *_LOG[:3]], 1, "--log none.csv: there"),
    "model": (
        ["evaluate-log", "--log=a", "--model_dir=none"], 1,
        "none: there is no log.json, so this is no --model_dir of `ultra-tfr"),
    "model to score": (
        ["score", "--log=a", "--model_dir=none", "--out=a.csv"], 1,
        "none: there is no log.json, so this is no --model_dir"),
    "ranker": (
        ["simulate-ab", "--model_a=none"], 1,
        "--model_a none holds no exported ranker"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_call_gets_one_sentence_at_once(name, tmp_path):
  """Each typo cost 5 to 30 seconds, which TensorFlow took to load."""
  words, status, pattern = _WRONG[name]
  code, out, err = _answer(words, tmp_path)
  assert code == status and not out
  first, *more = err.splitlines()
  assert re.search(pattern, first), err
  assert all(line.startswith("See `ultra-tfr ") for line in more), err
  assert not os.listdir(tmp_path)


def test_workers_that_cannot_share_a_batch(tmp_path):
  cluster = {"cluster": {"worker": ["a:1", "b:1"]},
             "task": {"type": "worker", "index": 1}}
  code, _, err = _answer(
      ["fit-log", "--prepared=.", "--model_dir=m", "--batch_size=5",
       "--distribution=multi_worker"], tmp_path, TF_CONFIG=json.dumps(cluster))
  assert code == 1
  assert "--batch_size 5 is no multiple of the 2 workers, which share" in err


def test_help_and_versions_come_at_once(tmp_path):
  code, out, err = _answer(["--help"], tmp_path)
  assert code == 0 and not err
  for name in cli.COMMANDS:
    assert f"\n  {name} " in out and f"\n  ultra-tfr {name} " in out
  code, out, err = _answer(["--version"], tmp_path)
  assert code == 0 and not err
  for name in ("ultra-tfr", "Python", "tensorflow", "tensorflow-ranking",
               "keras", "numpy"):
    assert re.search(rf"^{name} \d+\.\d+", out, re.MULTILINE), out
  assert re.search(r"^platform \w+-", out, re.MULTILINE), out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_a_command_is_for_people(name, tmp_path):
  """It listed flags by module of Python, those that are needed among others."""
  code, out, err = _answer([name, "--help"], tmp_path)
  assert code == 0 and not err
  assert out.startswith(f"ultra-tfr {name}: ")
  assert f"\nExample:\n  ultra-tfr {name} " in out
  assert "ultra_tfr." not in out
  titles = re.findall(r"^([A-Z][a-z ]+):$", out, re.MULTILINE)
  assert "Other" not in titles, (
      "name the new flag in a group of ultra_tfr.commands.help_text")
  assert titles[0] == "Example" and titles[-1] == "Output"
  required = re.findall(r"^  --(\w+): (?:<.*>: )?\(required\)", out,
                        re.MULTILINE)
  assert ("log" in required) == (name in (
      "prepare-log", "score", "diagnose", "evaluate-log"))


_WARNS = """
import logging, os, sys, warnings
from ultra_tfr import startup
from ultra_tfr.commands import demo
def main():
  startup.load_package()
  os.write(2, b"from a library: a real problem\\n")
  from absl import logging as absl_logging
  absl_logging.info("a note")
  logging.getLogger("tensorflow").warning("a real warning")
  logging.getLogger("tensorflow").warning(
      "Callback method `x` is slow compared to the batch time (batch ..)")
demo.main = main
"""


# The package as the console script begins with it.
_EMPTY = """
import importlib.util, sys
sys.modules["ultra_tfr"] = importlib.util.module_from_spec(
    importlib.util.find_spec("ultra_tfr"))
"""


def _program():
  return ("import ultra_tfr_start\n" + _EMPTY + _WARNS
          + "ultra_tfr_start.run()")


def test_stderr_has_what_matters_and_all_on_demand(tmp_path):
  """Ten lines of TensorFlow's own stood above each message."""
  level = {"TF_CPP_MIN_LOG_LEVEL": "1"}
  quiet = _run(["demo"], tmp_path, _program(), **level)
  assert quiet.returncode == 0
  assert "a real warning" in quiet.stderr
  assert "a real problem" in quiet.stderr
  assert len(quiet.stderr.splitlines()) == 2, quiet.stderr
  loud = _run(["demo", "--verbosity=0"], tmp_path, _program(), **level)
  assert loud.returncode == 0
  assert "is slow compared to the batch time" in loud.stderr
  assert "a real warning" in loud.stderr and "a note" in loud.stderr


def test_workers_tell_what_matters_when_they_say_it(tmp_path):
  """Beam's workers wrote a hundred lines above the summary of a log."""
  program = """
import os, subprocess, sys
from ultra_tfr import startup
startup.be_quiet()
def say(*lines):
  subprocess.run(["echo", "\\n".join(lines)], stdout=2, check=True)
with startup.workers_without_noise():
  say("INFO:apache_beam.runners: Data channel established.",
      "WARNING:root:apitools not found, and ..", "a real problem")
  # Not only at the end: it may be hours away.
  print(sys.stdin.readline(), file=sys.stderr, end="")
say("INFO: ours")
"""
  with subprocess.Popen(
      [sys.executable, "-c", _EMPTY + program], cwd=tmp_path, text=True,
      stdin=subprocess.PIPE, stderr=subprocess.PIPE,
      env={**os.environ, "PYTHONPATH": str(program_files.ROOT)}) as process:
    assert process.stderr.readline() == "a real problem\n"
    process.stdin.write("go on\n")
    process.stdin.flush()
    assert process.stderr.read() == "go on\nINFO: ours\n"
