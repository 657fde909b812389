"""The folder of one training: its settings, its backup and its result."""

import json
import os
import shutil

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
  found = _read(os.path.join(folder, _SETTINGS))
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
    _write(os.path.join(folder, _SETTINGS), settings)


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
  _write(os.path.join(folder, _RESULT), output.plain(result))
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
  return _read(os.path.join(folder, _RESULT))


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


def _read(path):
  if not os.path.exists(path):
    return None
  with open(path, encoding="utf-8") as file:
    return json.load(file)


def _write(path, value):
  """Writes all of a file or nothing of it."""
  output.write(f"{path}.part", value)
  os.replace(f"{path}.part", path)


def _text(value):
  """The value of a flag as one writes it."""
  return ",".join(value) if isinstance(value, list) else str(value)
