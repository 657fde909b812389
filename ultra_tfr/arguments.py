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
