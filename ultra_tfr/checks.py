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


def check_max_weight(value, least=0.0):
  """Raises a `ValueError` unless weights can be clipped at the value.

  Args:
    value: a number, or None for no clipping.
    least: the least value; 0 itself, which leaves no weight, is never one.
  """
  if value is None or value > 0 and value >= least:
    return
  expected = f"at least {least}" if least else "greater than 0"
  raise ValueError(
      f"`max_weight` must be {expected}, but is {value}; None leaves weights "
      "as they are.")


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


def check_rows(positions, requests, num_positions=None):
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
  positions = as_int64("positions", positions)
  if positions.ndim != 1:
    raise ValueError(
        "`positions` must have one dimension, one entry for each row, but has "
        f"the shape {list(positions.shape)}; flatten the lists.")
  in_range("positions", positions, 0, num_positions,
           "positions count from 1 to `num_positions`, and 0 is unknown")
  requests = as_int64("requests", requests)
  check_shape(
      "requests", requests, positions.shape, "one for each row")
  return positions, requests


def in_range(name, values, low, high, remedy):
  """Raises a `ValueError` unless values lie in a range; NaN never does.

  Args:
    name: of the argument.
    values: `[R]`.
    low: the least value.
    high: the greatest value, or None for any finite one.
    remedy: the end of the sentence.

  >>> in_range("levels", np.array([2.0]), 0, 1, "divide by 100")
  Traceback (most recent call last):
  ...
  ValueError: `levels` must be in 0 to 1, but row 0 has 2.0; divide by 100.
  """
  good = (values >= low) & (values < np.inf if high is None else values <= high)
  if not good.all():
    limit = "any finite value" if high is None else high
    row = np.argmin(good)
    raise ValueError(
        f"`{name}` must be in {low} to {limit}, but row {row} has "
        f"{values[row]}; {remedy}.")


def check_booleans(name, values, shape):
  """Booleans `[R]` as an array, or a `ValueError`.

  >>> check_booleans("clicked", [True], (1,)).tolist()
  [True]
  """
  values = np.asarray(values)
  if values.dtype != bool:
    raise ValueError(
        f"`{name}` must hold booleans, but has the dtype {values.dtype}; "
        "compare with 0.")
  check_shape(name, values, shape, "one for each row")
  return values


def check_weights(weights, shape):
  """Weights `[R]` as an array, ones for None, or a `ValueError`.

  >>> check_weights(None, (2,)).tolist()
  [1.0, 1.0]
  """
  if weights is None:
    return np.ones(shape)
  weights = np.asarray(weights, np.float64)
  check_shape("weights", weights, shape, "one for each row")
  in_range("weights", weights, 0, None, "give numbers of displays")
  return weights


def lists(name, values, shape=None):
  """A float64 array of the shape [requests, items], or a `ValueError`.

  Args:
    name: of the argument.
    values: array-like.
    shape: the shape that it must have, that of the feedback; None for any.

  Returns:
    A float64 array.

  >>> lists("feedback", [[1, 0]])
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


def _broadcast(name, values, shape):
  array = np.asarray(values, np.float64)
  if array.shape not in ((), (shape[0], 1), shape):
    raise ValueError(
        f"`{name}` must be a number or have the shape {[shape[0], 1]} or "
        f"{list(shape)}, but has the shape {list(array.shape)}; add an axis of "
        "1 to values of requests.")
  return np.broadcast_to(array, shape)


def check_values(name, values, is_wrong, expected, remedy):
  """Raises a `ValueError` that names the first wrong value, if there is one.

  Args:
    name: of the argument.
    values: an array.
    is_wrong: booleans of its shape.
    expected: what comes after "must".
    remedy: what to do about it.
  """
  if np.any(is_wrong):
    index = tuple(np.argwhere(is_wrong)[0].tolist())
    raise ValueError(f"`{name}` must {expected}, but {name}{list(index)} is "
                     f"{values[index]}; {remedy}.")


def probabilities(name: str, values) -> np.ndarray:
  """Checks that all values are in [0, 1]."""
  values = np.asarray(values, dtype=np.float64)
  if not np.all((values >= 0.) & (values <= 1.)):
    raise ValueError(
        f"`{name}` must be in [0, 1], but is {values.tolist()}; give "
        "probabilities.")
  return values


def vector(name: str, values) -> np.ndarray:
  """Checks that values are a vector of at least one probability."""
  values = probabilities(name, values)
  if values.ndim != 1 or not values.size:
    raise ValueError(
        f"`{name}` must be a vector with a probability a position, but has the "
        f"shape {list(values.shape)}; give at least one.")
  return values


def not_negative(name: str, value) -> float:
  """Checks that a number is finite and at least 0."""
  if not 0. <= value < np.inf:
    raise ValueError(
        f"`{name}` must be finite and at least 0, but is {value}; give another "
        "number.")
  return float(value)
