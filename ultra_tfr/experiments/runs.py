"""Trainings that are kept: the folder of one, and a store of many."""

import dataclasses
import hashlib
import json
import os
import re
from typing import Any

from ultra_tfr import output
from ultra_tfr.evaluation.ranking import TOPN

BACKUP = "backup"
BEST = "best.npz"
_SETTINGS = "settings.json"
_RESULT = "result.json"
_COMMAND = "ultra-tfr train"
_REMEDY = "give another folder, or --overwrite to start anew"
_FORM = {"metrics": {f"ndcg@{n}": float for n in TOPN},
         "examination": ([float], None), "seconds": float}


def open_folder(path):
  """The `output.Folder` of one training; other processes keep out of it.

  Args:
    path: made if need be.
  """
  return output.Folder(path, _COMMAND, "--model_dir")


def digest(path):
  """A short text that differs between files of different content.

  Args:
    path: the file.
  """
  found = hashlib.sha256()
  with open(path, "rb") as file:
    while block := file.read(1 << 20):
      found.update(block)
  return found.hexdigest()[:16]


def check(folder, settings):
  """Makes sure that a folder holds no other training than the one to come.

  Args:
    folder: of one training; it need not exist.
    settings: a dict ready for JSON of the values of flags by name, and of the
      "version" of the package.

  Raises:
    ValueError: if the folder holds a training with other settings.
  """
  path = os.path.join(folder, _SETTINGS)
  found = output.read(path)
  if found is None:
    return
  if not isinstance(found, dict):
    raise damaged(path, "it holds no settings")
  # The version first: flags may differ because it does.
  for name in ["version", *settings, *found]:
    was, now = found.get(name), settings.get(name)
    if was == now:
      continue
    if name == "version":
      what = f"ultra_tfr {was or '0.1.0'}"  # Which kept no version.
      remedy = "install that version"
    else:
      what, remedy = f"--{name} {_text(was)}", "call with the same flags"
    raise ValueError(
        f"--model_dir: {folder} holds a training with {what}, but now it is "
        f"{_text(now)}; {remedy} to go on with it, or {_REMEDY}.")


def write_settings(folder, settings):
  """Writes what `check` compares with, where that is still missing.

  Args:
    folder: what `open_folder` gave.
    settings: a dict ready for JSON, by name of a flag.
  """
  path = folder.claim(_SETTINGS)
  if not os.path.exists(path):
    output.write(path, settings)


def begin(folder):
  """Readies a folder for a training, and removes an older result.

  Args:
    folder: what `open_folder` gave.
  """
  folder.remove(_RESULT)
  folder.claim(_RESULT, f"{BACKUP}/", BEST, "logs/", "checkpoints/")


def finish(folder, result):
  """Writes the result, and removes the backup, which has done its duty.

  Args:
    folder: what `open_folder` gave.
    result: a dict of numbers, arrays and dicts of them.
  """
  output.write(os.path.join(folder, _RESULT), result)
  folder.remove(BACKUP, BEST)


def result(folder):
  """The result of a training that came to its end, or None.

  Args:
    folder: of one training; it need not exist.

  Returns:
    What `finish` was given, with lists for arrays.

  Raises:
    ValueError: if the file holds anything else.

  >>> with open_folder("models") as folder:
  ...   begin(folder)
  ...   print(result("models"))
  ...   finish(folder, {
  ...       "metrics": {"ndcg@3": 0.3, "ndcg@5": 0.4, "ndcg@10": 0.5},
  ...       "examination": None, "seconds": 1.5})
  None
  >>> result("models")["seconds"]
  1.5
  """
  path = os.path.join(folder, _RESULT)
  found = output.read(path)
  if found is not None and not output.has_form(found, _FORM):
    raise damaged(path, "it holds no result")
  return found


def damaged(path, reason):
  """The error of a damaged file or folder of a training.

  Args:
    path: of it.
    reason: a few words.
  """
  return ValueError(f"{path}: is damaged ({reason}); {_REMEDY}.")


def _text(value):
  """The value of a flag as one writes it."""
  return ",".join(map(str, value)) if isinstance(value, list) else str(value)


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
    with self.opened() as opened:
      output.write(opened.claim(_SETTINGS), settings)

  def opened(self):
    """The `output.Folder` of these settings; other processes keep out of it."""
    return output.Folder(self.folder, "ultra-tfr compare", "--runs_dir")

  def _name(self, run):
    name = f"{run.feedback}-{run.method}-seed-{run.seed}.json"
    return re.sub(r"[^\w.-]", "_", name)

  def read(self, run):
    """The result of a run, or None if it has not finished."""
    return output.read(self.path(run))

  def path(self, run):
    """The file of a run's result."""
    return os.path.join(self.folder, self._name(run))

  def write(self, run, result):
    """Keeps a result, all of it or nothing."""
    with self.opened() as opened:
      output.write(opened.claim(self._name(run)), result)
