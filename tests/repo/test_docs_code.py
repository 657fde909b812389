"""What the README and docs/ show works: code, commands, names of files."""

import importlib
import re
import shlex

from absl import flags
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import program_files
import ultra_tfr
from ultra_tfr import cli
from ultra_tfr import scorers

_TEXTS = {
    str(path.relative_to(program_files.ROOT)): path.read_text(encoding="utf-8")
    for path in (program_files.ROOT / "README.md",
                 *sorted((program_files.ROOT / "docs").rglob("*.md")))}
_TEXT = _TEXTS["README.md"]


def _blocks(language, text=_TEXT):
  return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def _words(text):
  """Words of the calls of `ultra-tfr` in a shell block."""
  lines = text.replace("\\\n", " ").replace("&&", "\n").splitlines()
  calls = [shlex.split(line) for line in lines]
  return [words[1:] for words in calls if words[:1] == ["ultra-tfr"]]


_CALLS = [words for text in _TEXTS.values()
          for block in _blocks("shell", text) for words in _words(block)]
# In sentences they may be cut short, as `ultra-tfr train --model_dir`.
_MENTIONS = [
    (name, re.findall(r"--(\w+)", rest)) for name, rest in
    re.findall(r"`ultra-tfr\s+([a-z][\w-]*)([^`]*)`",
               "\n".join(_TEXTS.values()))]
# Pages that a newcomer follows alone: they import and make all that they use.
_WHOLE = ("docs/tutorial.md", "docs/click_logs.md")
_PAGES = [name for name, text in _TEXTS.items()
          if name != "README.md" and _blocks("python", text)]


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


@pytest.fixture
def names():
  """What a reader has at hand: a model, and lists with clicks."""
  rng = np.random.default_rng(0)
  features = rng.normal(size=[8, 10, 3]).astype(np.float32)
  clicks = (rng.random([8, 10]) < .3).astype(np.float32)
  return {
      "np": np, "tf": tf, "tfr": tfr, "ultra_tfr": ultra_tfr,
      "model": scorers.build_model(3, hidden_units=[4]),
      "dataset": tf.data.Dataset.from_tensors((features, clicks)).repeat(2)}


@pytest.mark.parametrize("code", _blocks("python"))
@pytest.mark.usefixtures("eagerly")
def test_code_runs(code):
  """As written, with nothing at hand: a newcomer's first program."""
  names = {}
  exec(code, names)
  model, bias = names["model"], names["bias"]
  assert model.optimizer.iterations.numpy() == bias.num_updates.numpy() > 0
  assert np.any(model.get_weights()[-2] != 0)
  examination = bias.propensities()["examination"]
  assert examination.shape == (10,) and np.ptp(examination) > 0


@pytest.mark.parametrize("page", _PAGES)
@pytest.mark.usefixtures("eagerly")
def test_code_of_a_page_runs(page, names, tmp_path, monkeypatch):
  """Its blocks are one program, from top to bottom."""
  monkeypatch.chdir(tmp_path)
  if page in _WHOLE:
    names = {}
  for number, code in enumerate(_blocks("python", _TEXTS[page]), start=1):
    exec(compile(code, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize("name", _TEXTS)
def test_links_have_words(name):
  """Sphinx puts a title in; elsewhere a link without words is not seen."""
  assert "[](" not in _TEXTS[name]


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
  assert len(_PAGES) > 3
  assert set(_WHOLE) <= set(_PAGES)
  assert {words[0] for words in _CALLS} >= {
      "demo", "fit-log", "train", "compare"}
  assert {name for name, _ in _MENTIONS} >= {
      "evaluate-log", "diagnose", "simulate-ab"}


@pytest.mark.parametrize("page", _TEXTS)
def test_files_are_there(page):
  paths = re.findall(r"(?<![\w/])(?:docs|examples|tests|ultra_tfr)/[\w./-]*\w",
                     _TEXTS[page])
  assert not {path for path in paths
              if not (program_files.ROOT / path).exists()}
