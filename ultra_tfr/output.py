"""What is written: JSON, aligned tables, and the versions behind them."""

import json
import os
import sys

import numpy as np

from ultra_tfr.version import __version__


def plain(value):
  """Arrays as lists and NaN as None, all the way down.

  Args:
    value: dicts, lists and arrays of numbers, texts, booleans and None.

  Returns:
    The same of Python's own types, ready for JSON.

  >>> plain({"curve": np.array([1.0, np.nan]), "count": np.int64(3)})
  {'curve': [1.0, None], 'count': 3}
  """
  if isinstance(value, dict):
    return {name: plain(part) for name, part in value.items()}
  if isinstance(value, (list, tuple, np.ndarray)):
    return [plain(part) for part in value]
  if isinstance(value, (bool, np.bool_)):
    return bool(value)
  if isinstance(value, (int, np.integer)):
    return int(value)
  if isinstance(value, (float, np.floating)):
    return float(value) if np.isfinite(value) else None
  return value


def write(path, value):
  """Writes a file of JSON: all of it, or nothing.

  Args:
    path: the file.
    value: ready for JSON.

  >>> write("results.json", {"seconds": 1.5})
  """
  # Renamed at the end: a file that is there is whole.
  part = f"{path}.{os.getpid()}.part"
  with open(part, "w", encoding="utf-8") as file:
    json.dump(value, file, indent=2)
    file.write("\n")
  os.replace(part, path)


def read(path):
  """The value that a file of JSON holds, or None if there is no file.

  Args:
    path: the file.

  >>> read("none.json") is None
  True
  """
  if not os.path.exists(path):
    return None
  with open(path, encoding="utf-8") as file:
    return json.load(file)


def versions():
  """The versions that results were made with, ready for JSON."""
  # Of what is loaded, so that writing a file loads nothing.
  libraries = {
      name: sys.modules[name].__version__
      for name in ("tensorflow", "tensorflow_ranking", "lightgbm", "xgboost")
      if name in sys.modules}
  return {"ultra_tfr": __version__, **libraries,
          "python": sys.version.split()[0]}


def align(rows):
  """Lines of a table, from rows of cells of text; the first cell goes left.

  >>> align([["a", "1"], ["bc", "10"]])
  ['a    1', 'bc  10']
  """
  widths = [max(map(len, column)) for column in zip(*rows)]
  return ["  ".join([row[0].ljust(widths[0]),
                     *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
          for row in rows]
