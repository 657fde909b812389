"""Checks of arguments: each gives the value as it is used, or an error.

Errors are a `ValueError` that reads "`name` must be .., but is ..; remedy."
"""

import os
from typing import Any
from typing import Optional

import numpy as np

# The files of a saved `FittedLog`: its description, and its weights.
FITTED_FILES = ("log.json", "training_model.keras")


def memory() -> int:
  """Bytes of memory of this machine; 16 GiB if the system does not tell."""
  try:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  except (AttributeError, OSError, ValueError):
    return 1 << 34


def check_file(path: Any, kind: str) -> None:
  """Raises a `FileNotFoundError` unless a path is that of a file.

  Args:
    path: the path.
    kind: what the file should be.

  >>> check_file("none.txt", "LETOR file")
  Traceback (most recent call last):
  FileNotFoundError: There is no file none.txt; give the path of an existing ...
  """
  if not os.path.isfile(path):
    raise FileNotFoundError(
        f"There is no file {path}; give the path of an existing {kind}.")


def check_fitted(folder: str) -> None:
  """Raises a `ValueError` unless a folder holds what `FittedLog.save` wrote."""
  for name in FITTED_FILES:
    if not os.path.exists(os.path.join(folder, name)):
      raise ValueError(
          f"{folder}: there is no {name}, so this is no --model_dir of "
          "`ultra-tfr fit-log`; train one first.")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
  """Raises a `ValueError` unless the value is one of the choices."""
  if value not in choices:
    raise ValueError(f"`{name}` must be one of {choices}, but is {value!r}.")


def check_instance(name: str, value: Any, cls: type, remedy: str) -> None:
  """Raises a `ValueError` unless the value is of the class."""
  if not isinstance(value, cls):
    raise ValueError(
        f"`{name}` must be a `{cls.__name__}`, but is {value!r}; {remedy}.")


def plain(value: Any) -> Any:
  """Arguments as JSON has them: numbers and arrays of NumPy as Python's.

  Args:
    value: anything; dicts, lists and tuples are gone through.

  Returns:
    The value; tuples and arrays are lists.

  >>> plain({"max_weight": np.float32(20), "shape": (np.int64(3), None)})
  {'max_weight': 20.0, 'shape': [3, None]}
  """
  if isinstance(value, dict):
    return {key: plain(part) for key, part in value.items()}
  if isinstance(value, (list, tuple)):
    return [plain(part) for part in value]
  if hasattr(value, "__array__"):
    return np.asarray(value).tolist()
  return value


def is_number(value: Any) -> bool:
  """Whether a value is one real number, of Python or NumPy; no boolean is.

  >>> is_number(np.float16(2)), is_number("2"), is_number(True)
  (True, False, False)
  """
  return (isinstance(value, (int, float, np.integer, np.floating)) and
          not isinstance(value, bool))


def check_count(name: str, value: Any, least: int = 1) -> int:
  """A whole number as an int, be it of Python or NumPy or written as 3.0.

  Args:
    name: of the argument.
    value: what was given for it.
    least: the least value.

  Returns:
    An int.

  Raises:
    ValueError: if the value is anything else.

  >>> check_count("topn", np.int64(3))
  3
  """
  is_whole = (
      is_number(value) and np.isfinite(value) and value == int(value))
  if not is_whole or value < least:
    raise ValueError(
        f"`{name}` must be a whole number of at least {least}, but is "
        f"{value!r}.")
  return int(value)


def check_not_negative(name: str, value: Any) -> float:
  """A finite number of at least 0 as a float, or a `ValueError`."""
  if not is_number(value) or not 0 <= value < np.inf:
    raise ValueError(
        f"`{name}` must be at least 0, but is {value!r}; give a finite number.")
  return float(value)


def check_share(name: str, value: Any) -> float:
  """A number above 0 and up to 1 as a float, or a `ValueError`."""
  if not is_number(value) or not 0 < value <= 1:
    raise ValueError(f"`{name}` must be in (0, 1], but is {value!r}.")
  return float(value)


def check_flag(name: str, value: Any) -> bool:
  """A boolean, of NumPy too, or a `ValueError`: the text "False" is true."""
  if not isinstance(value, (bool, np.bool_)):
    raise ValueError(f"`{name}` must be True or False, but is {value!r}.")
  return bool(value)


def check_seed(value: Any) -> Optional[int]:
  """None, or a whole number as an int, or a `ValueError`."""
  if value is None:
    return None
  if not is_number(value) or not np.isfinite(value) or value != int(value):
    raise ValueError(
        f"`seed` must be a whole number or None, but is {value!r}.")
  return int(value)


def check_max_weight(value: Any, least: float = 0.0) -> Optional[float]:
  """A cap of weights, or a `ValueError`.

  Args:
    value: a number, or None for no clipping.
    least: the least value; 0 itself, which leaves no weight, is never one.

  Returns:
    A float, or None.
  """
  if value is None:
    return None
  if not is_number(value) or not value > 0 or value < least:
    expected = f"at least {least}" if least else "greater than 0"
    raise ValueError(
        f"`max_weight` must be {expected}, but is {value!r}; None leaves "
        "weights as they are.")
  return float(value)


def check_level(value: Any) -> None:
  """Raises a `ValueError` unless the value is the level of an interval."""
  if not is_number(value) or not 0 < value < 1:
    raise ValueError(
        f"`level` must be between 0 and 1, but is {value!r}; 0.9 keeps 90 % of "
        "the replicates.")


def check_values(name: str, values: np.ndarray, is_wrong: np.ndarray,
                 expected: str, remedy: str) -> None:
  """Raises a `ValueError` that names the first wrong value, if there is one.

  Args:
    name: of the argument.
    values: an array.
    is_wrong: booleans of its shape.
    expected: what comes after "must".
    remedy: what to do about it.
  """
  if np.any(is_wrong):
    index = np.argwhere(is_wrong)[0].tolist()
    where = f"{name}{index} " if index else ""
    raise ValueError(f"`{name}` must {expected}, but {where}is "
                     f"{values[tuple(index)]}; {remedy}.")


def check_range(name: str, values: np.ndarray, low: float,
                high: Optional[float], remedy: str) -> None:
  """Raises a `ValueError` unless values lie in a range; NaN never does.

  Args:
    name: of the argument.
    values: an array.
    low: the least value.
    high: the greatest value, or None for any finite one.
    remedy: the end of the sentence.

  >>> check_range("levels", np.array([2.0]), 0, 1, "divide by 100")
  Traceback (most recent call last):
  ...
  ValueError: `levels` must be in 0 to 1, but levels[0] is 2.0; divide by 100.
  """
  good = (values >= low) & (values < np.inf if high is None else values <= high)
  limit = "any finite value" if high is None else high
  check_values(name, values, ~good, f"be in {low} to {limit}", remedy)


def check_shape(name: str, array: np.ndarray, expected: tuple[int, ...],
                meaning: str) -> None:
  """Raises a `ValueError` unless the array has the expected shape."""
  if array.shape != expected:
    raise ValueError(
        f"`{name}` must have the shape {list(expected)}, {meaning}, but has "
        f"the shape {list(array.shape)}; bring it to that length.")


def check_probabilities(name: str, values: Any,
                        dtype: Any = np.float64) -> np.ndarray:
  """Probabilities of any shape as an array, or a `ValueError`."""
  given = np.asarray(values)
  if given.dtype.kind not in "iuf":
    raise ValueError(
        f"`{name}` must be in [0, 1], but is {given.tolist()!r}; give numbers.")
  values = given.astype(dtype)
  check_values(name, values, ~((values >= 0) & (values <= 1)),
               "be in [0, 1]", "give probabilities")
  return values


def check_curve(name: str, values: Any) -> np.ndarray:
  """Probabilities `[K]` by position, at least one, or a `ValueError`."""
  values = check_probabilities(name, values)
  if values.ndim != 1 or not values.size:
    raise ValueError(
        f"`{name}` must be a vector with a probability a position, but has the "
        f"shape {list(values.shape)}; give at least one.")
  return values


def check_table(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
  """Probabilities as a float32 table `[C, K]`, or pairs' `[C, K, K]`.

  Args:
    name: of the argument.
    values: a number for all, or an array of the shape or its last axes.
    shape: that of the table.

  Returns:
    The table, a read-only view.

  Raises:
    ValueError: if the values do not fit, or are no probabilities.

  >>> check_table("examination", [1.0, 0.5], (2, 2)).tolist()
  [[1.0, 0.5], [1.0, 0.5]]
  """
  values = np.asarray(values)
  if values.ndim and values.shape != shape[-values.ndim:]:
    raise ValueError(
        f"`{name}` must be a number or have the shape {list(shape[1:])} or "
        f"{list(shape)}, but has the shape {list(values.shape)}; give one "
        "value for each of the `num_positions`.")
  return np.broadcast_to(check_probabilities(name, values, np.float32), shape)


def check_integers(name: str, values: Any) -> np.ndarray:
  """Integers of any shape as an int64 array, or a `ValueError`."""
  array = np.asarray(values)
  if not np.issubdtype(array.dtype, np.integer):
    raise ValueError(
        f"`{name}` must hold integers, but has the dtype {array.dtype}; "
        "convert it.")
  return array.astype(np.int64)


def check_rows(
    positions: Any, requests: Any,
    num_positions: Optional[int] = None) -> tuple[np.ndarray, np.ndarray]:
  """The columns that every click log has, as arrays.

  Args:
    positions: `[R]` int, 1-based; 0 for unknown.
    requests: `[R]` int.
    num_positions: K, or None for no limit.

  Returns:
    The two arrays.

  Raises:
    ValueError: if one of them is not as above.

  >>> check_rows([1, 2], [0, 0])[0].tolist()
  [1, 2]
  """
  positions = check_integers("positions", positions)
  if positions.ndim != 1:
    raise ValueError(
        "`positions` must have one dimension, one entry for each row, but has "
        f"the shape {list(positions.shape)}; flatten the lists.")
  check_range("positions", positions, 0, num_positions,
              "positions count from 1 to `num_positions`, and 0 is unknown")
  requests = check_integers("requests", requests)
  check_shape("requests", requests, positions.shape, "one for each row")
  return positions, requests


def check_booleans(name: str, values: Any,
                   shape: tuple[int, ...]) -> np.ndarray:
  """Booleans `[R]` of rows as an array, or a `ValueError`."""
  values = np.asarray(values)
  if values.dtype != bool:
    raise ValueError(
        f"`{name}` must hold booleans, but has the dtype {values.dtype}; "
        "compare with 0.")
  check_shape(name, values, shape, "one for each row")
  return values


def check_weights(weights: Any, shape: tuple[int, ...]) -> np.ndarray:
  """Weights `[R]` of rows as an array, ones for None, or a `ValueError`."""
  if weights is None:
    return np.ones(shape)
  weights = np.asarray(weights, np.float64)
  check_shape("weights", weights, shape, "one for each row")
  check_range("weights", weights, 0, None, "give numbers of displays")
  return weights


def check_lists(name: str, values: Any,
                shape: Optional[tuple[int, ...]] = None) -> np.ndarray:
  """Values of requests' items as a float64 array, or a `ValueError`.

  Args:
    name: of the argument.
    values: `[N, L]`.
    shape: the shape of the feedback, which they must have; None for any.

  Returns:
    A float64 array `[N, L]`.

  >>> check_lists("feedback", [[1, 0]])
  array([[1., 0.]])
  """
  array = np.asarray(values, np.float64)
  if shape is None and array.ndim != 2:
    raise ValueError(
        f"`{name}` must have the shape [requests, items], but has the shape "
        f"{list(array.shape)}; pad the requests to one length with -1.")
  if shape is not None:
    check_shape(name, array, shape, "that of `feedback`")
  return array


def check_lists_or_number(name: str, values: Any,
                          shape: tuple[int, ...]) -> np.ndarray:
  """Like `check_lists`; values may be one number or one a request.

  Args:
    name: of the argument.
    values: a number, `[N, 1]` or `[N, L]`.
    shape: (N, L).

  Returns:
    A float64 array `[N, L]`, a read-only view.
  """
  array = np.asarray(values, np.float64)
  if array.shape not in ((), (shape[0], 1), shape):
    raise ValueError(
        f"`{name}` must be a number or have the shape {[shape[0], 1]} or "
        f"{list(shape)}, but has the shape {list(array.shape)}; add an axis of "
        "1 to values of requests.")
  return np.broadcast_to(array, shape)
