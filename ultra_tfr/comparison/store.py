"""Runs as files, one each, so that a comparison can be stopped and resumed."""

import dataclasses
import hashlib
import json
import os
import re
from typing import Any

_SETTINGS = "settings.json"


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
      _write(path, settings)

  def _path(self, run):
    name = f"{run.feedback}-{run.method}-seed-{run.seed}.json"
    return os.path.join(self.folder, re.sub(r"[^\w.-]", "_", name))

  def read(self, run):
    """The result of a run, or None if it has not finished."""
    path = self._path(run)
    if not os.path.exists(path):
      return None
    with open(path, encoding="utf-8") as file:
      return json.load(file)

  def write(self, run, result):
    """Keeps a result, all of it or nothing."""
    _write(self._path(run), result)


def _write(path, value):
  # Renamed at the end: a file that is there is whole.
  part = f"{path}.{os.getpid()}.part"
  with open(part, "w", encoding="utf-8") as file:
    json.dump(value, file, indent=1)
    file.write("\n")
  os.replace(part, path)
