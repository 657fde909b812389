"""Checks of constructor arguments, with errors that name argument and value."""

import numpy as np


def listed(value):
  """Arrays as nested lists, for JSON."""
  if value is None or isinstance(value, (str, int, float)):
    return value
  return np.asarray(value).tolist()


def check_count(argument, value):
  """Raises a `ValueError` unless the value is a whole number >= 1."""
  if isinstance(value, bool) or not isinstance(value, int) or value < 1:
    raise ValueError(
        f"`{argument}` must be a whole number of at least 1, but is {value!r}.")


def check_choice(argument, value, choices):
  """Raises a `ValueError` unless the value is one of the choices."""
  if value not in choices:
    raise ValueError(
        f"`{argument}` must be one of {choices}, but is {value!r}.")


def table(argument, value, shape):
  """Broadcasts probabilities to a table, or says what does not fit."""
  value = np.asarray(value, np.float32)
  if value.ndim and value.shape != shape[-value.ndim:]:
    raise ValueError(
        f"`{argument}` must be a number or have the shape {list(shape[1:])} or "
        f"{list(shape)}, but has the shape {list(value.shape)}; give one value "
        "for each of the `num_positions`.")
  if not (np.isfinite(value).all() and (value >= 0).all() and
          (value <= 1).all()):
    raise ValueError(
        f"`{argument}` must hold probabilities in [0, 1], but holds "
        f"{value[~((value >= 0) & (value <= 1))].ravel()[0]}.")
  return np.broadcast_to(value, shape)


def as_int64(name, values) -> np.ndarray:
  """An int64 array, or a `ValueError` if the values are no integers."""
  array = np.asarray(values)
  if not np.issubdtype(array.dtype, np.integer):
    raise ValueError(
        f"`{name}` must hold integers, but has the dtype {array.dtype}; "
        "convert it.")
  return array.astype(np.int64)


def positive(name, value) -> int:
  """An int, of NumPy's integers too, or a `ValueError` if it is below 1."""
  if isinstance(value, bool) or value != int(value) or value < 1:
    raise ValueError(
        f"`{name}` must be an integer of at least 1, but is {value!r}.")
  return int(value)


def check_shape(name, array, expected, meaning):
  """Raises a `ValueError` unless the array has the expected shape."""
  if array.shape != expected:
    raise ValueError(
        f"`{name}` must have the shape {list(expected)}, {meaning}, but has "
        f"the shape {list(array.shape)}; bring it to that length.")
