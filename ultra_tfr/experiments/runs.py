"""Trainings that are kept: the folder of one, and a store of many."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
from typing import Any

from ultra_tfr import output

BACKUP = "backup"
BEST = "best.npz"
_SETTINGS = "settings.json"
_RESULT = "result.json"
# What only matters until the end.
_WHILE_TRAINING = (BACKUP, BEST)
# The settings last: as long as anything is left, it is known what of.
_ALL = (_RESULT, *_WHILE_TRAINING, "logs", "checkpoints", "model", _SETTINGS)


def check(folder, settings):
  """Makes sure that a training into a folder would be the one it holds.

  Args:
    folder: of one training; it need not exist.
    settings: a dict ready for JSON, by name of a flag.

  Raises:
    ValueError: if the folder holds a training with other settings, or a model
      and no settings.
  """
  found = output.read(os.path.join(folder, _SETTINGS))
  if found is None:
    if os.path.exists(os.path.join(folder, "model")):
      raise ValueError(
          f"--model_dir: {folder} already holds a model; give another folder, "
          "or --overwrite.")
    return
  for name in [*settings, *found]:
    was, now = found.get(name), settings.get(name)
    if was != now:
      raise ValueError(
          f"--model_dir: {folder} holds a training with --{name} {_text(was)}, "
          f"but now it is {_text(now)}; call with the same flags to go on with "
          "it, or give another folder, or --overwrite to start anew.")


def write_settings(folder, settings):
  """Writes what `check` compares with, where that is still missing.

  Args:
    folder: of one training, made if need be.
    settings: a dict ready for JSON, by name of a flag.
  """
  os.makedirs(folder, exist_ok=True)
  if not os.path.exists(os.path.join(folder, _SETTINGS)):
    output.write(os.path.join(folder, _SETTINGS), settings)


def begin(folder):
  """Makes the folder, without a result until there is one.

  Args:
    folder: of one training.
  """
  os.makedirs(folder, exist_ok=True)
  _remove(folder, [_RESULT])


def finish(folder, result):
  """Writes the result, with which the backup has done its duty.

  Args:
    folder: of one training.
    result: a dict of numbers, arrays and dicts of them.
  """
  output.write(os.path.join(folder, _RESULT), output.plain(result))
  _remove(folder, _WHILE_TRAINING)


def result(folder):
  """The result of a training that came to its end, or None.

  Args:
    folder: of one training; it need not exist.

  Returns:
    What `finish` was given, with lists for arrays.

  >>> begin("models")
  >>> result("models")
  >>> finish("models", {"metrics": {"ndcg@10": 0.5}})
  >>> result("models")
  {'metrics': {'ndcg@10': 0.5}}
  """
  return output.read(os.path.join(folder, _RESULT))


def clear(folder):
  """Removes what a training wrote, and nothing else.

  Args:
    folder: of one training; it need not exist.
  """
  _remove(folder, _ALL)


def _remove(folder, names):
  for name in names:
    path = os.path.join(folder, name)
    if os.path.isdir(path):
      shutil.rmtree(path)
    elif os.path.exists(path):
      os.remove(path)


def _text(value):
  """The value of a flag as one writes it."""
  return ",".join(value) if isinstance(value, list) else str(value)


@dataclasses.dataclass(frozen=True)
class Run:
  """One training.

  Attributes:
    feedback: `"click"` or `"dwell"`.
    method: its name.
    seed: of clicks, initial ranker and initialisation.
  """

  feedback: str
  method: str
  seed: int

  def __str__(self):
    return f"{self.method}, {self.feedback} feedback, seed {self.seed}"


class RunStore:
  """Keeps results of runs that share all settings.

  Runs with other settings are kept in another subfolder, named by a digest, so
  that they never mix.

  Args:
    folder: where all runs are kept.
    settings: a dict, ready for JSON, of everything but the `Run`.

  >>> store = RunStore("runs", {"steps": 10})
  >>> store.write(Run("click", "unbiased", 0), {"metrics": {"ndcg@10": 0.5}})
  >>> store.read(Run("click", "unbiased", 0))
  {'metrics': {'ndcg@10': 0.5}}
  >>> store.read(Run("click", "unbiased", 1)) is None
  True
  """

  def __init__(self, folder, settings: dict[str, Any]):
    text = json.dumps(settings, sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:10]
    self.folder = os.path.join(folder, digest)
    os.makedirs(self.folder, exist_ok=True)
    path = os.path.join(self.folder, _SETTINGS)
    if not os.path.exists(path):
      output.write(path, settings)

  def _path(self, run):
    name = f"{run.feedback}-{run.method}-seed-{run.seed}.json"
    return os.path.join(self.folder, re.sub(r"[^\w.-]", "_", name))

  def read(self, run):
    """The result of a run, or None if it has not finished."""
    return output.read(self._path(run))

  def write(self, run, result):
    """Keeps a result, all of it or nothing."""
    output.write(self._path(run), result)
