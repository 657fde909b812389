"""What the README shows works: its code, its commands, its files."""

import importlib
import re
import shlex

from absl import flags
import numpy as np
import pytest
import tensorflow as tf

import program_files
from ultra_tfr import cli
from ultra_tfr import scorers

_TEXT = (program_files.ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language):
  return re.findall(rf"^```{language}\n(.*?)^```", _TEXT, re.M | re.S)


def _words(text):
  """Words of the calls of `ultra-tfr` in a shell block."""
  lines = text.replace("\\\n", " ").replace("&&", "\n").splitlines()
  calls = [shlex.split(line) for line in lines]
  return [words[1:] for words in calls if words[:1] == ["ultra-tfr"]]


_CALLS = [words for block in _blocks("shell") for words in _words(block)]
# In sentences they may be cut short, as `ultra-tfr train --model_dir`.
_MENTIONS = [
    (name, re.findall(r"--(\w+)", rest)) for name, rest in
    re.findall(r"`ultra-tfr\s+([a-z][\w-]*)([^`]*)`", _TEXT)]


@pytest.fixture
def define():
  """Defines the flags of a command; what it defined goes afterwards."""
  # Those of programs that other tests have loaded would be in the way.
  others = [(module, flag) for module, defined in
            flags.FLAGS.flags_by_module_dict().items()
            if not module.startswith("absl") for flag in defined]
  for _, flag in others:
    delattr(flags.FLAGS, flag.name)
  before = set(flags.FLAGS)

  def define_flags(name):
    assert name in cli.COMMANDS
    importlib.import_module(
        f"ultra_tfr.commands.{name.replace('-', '_')}").define_flags()

  yield define_flags
  for name in set(flags.FLAGS) - before:
    delattr(flags.FLAGS, name)
  for module, flag in others:
    flags.FLAGS[flag.name] = flag
    flags.FLAGS.register_flag_by_module(module, flag)
  flags.FLAGS.unparse_flags()


@pytest.mark.parametrize("code", _blocks("python"))
def test_code_runs(code):
  rng = np.random.default_rng(0)
  features = rng.normal(size=[8, 10, 3]).astype(np.float32)
  clicks = (rng.random([8, 10]) < .3).astype(np.float32)
  model = scorers.build_model(3, hidden_units=[4])
  before = [np.array(values) for values in model.get_weights()]
  names = {"model": model, "dataset": tf.data.Dataset.from_tensors(
      (features, clicks)).repeat(2)}
  exec(code, names)
  assert any(np.any(a != b) for a, b in zip(before, model.get_weights()))
  assert names["bias"].tables()["examination"].shape == (1, 10)


@pytest.mark.parametrize("words", _CALLS, ids=" ".join)
def test_commands_parse(words, define):
  define(words[0])
  assert flags.FLAGS(["ultra-tfr", *words[1:]]) == ["ultra-tfr"]


@pytest.mark.parametrize("name, names", _MENTIONS)
def test_mentioned_flags_are_there(name, names, define):
  define(name)
  assert set(names) <= set(flags.FLAGS)


def test_code_and_commands_are_found():
  assert len(_blocks("python")) == 1
  assert {words[0] for words in _CALLS} >= {
      "demo", "fit-log", "train", "compare"}
  assert {name for name, _ in _MENTIONS} >= {
      "evaluate-log", "diagnose", "simulate-ab"}


def test_files_are_there():
  paths = set(re.findall(r"\b(?:examples|tests)/[\w./-]*\w", _TEXT))
  assert len(paths) > 5
  assert not {path for path in paths
              if not (program_files.ROOT / path).exists()}
