"""Results as JSON: what every command writes."""

import json

import numpy as np


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
  """Writes a file of JSON.

  Args:
    path: the file.
    value: ready for JSON.

  >>> write("results.json", {"seconds": 1.5})
  """
  with open(path, "w", encoding="utf-8") as file:
    json.dump(value, file, indent=2)
    file.write("\n")
