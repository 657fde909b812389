"""What the estimates from flat log rows share: checks, draws, intervals.

A row is one displayed item. Rows of one request carry the same number.
"""

import dataclasses

import numpy as np

from ultra_tfr import checks
from ultra_tfr.evaluation import bootstrap


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
  """What was estimated, and its bootstrap interval.

  Attributes:
    value: an array, or a number; NaN where the log does not tell.
    low: likewise, the lower end.
    high: likewise, the upper end.
  """

  value: np.ndarray
  low: np.ndarray
  high: np.ndarray


def ratio_estimate(value, replicated, level):
  """An `Estimate` of ratios of click rates.

  With fewer than about three clicks some replicates have none, and the others
  do not show how many there might have been.

  Args:
    value: `[..]`.
    replicated: `[B, ..]`.
    level: the share of replicates in the interval.

  Returns:
    An `Estimate` by percentiles, with NaN for `high` where `low` is 0.

  >>> ratio_estimate(np.array([0.0]), np.zeros((9, 1)), 0.9).high.tolist()
  [nan]
  """
  low, high = bootstrap.interval(replicated, level)
  return Estimate(value, low, np.where(low == 0, np.nan, high))


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
  positions = checks.as_int64("positions", positions)
  if positions.ndim != 1:
    raise ValueError(
        "`positions` must have one dimension, one entry for each row, but has "
        f"the shape {list(positions.shape)}; flatten the lists.")
  in_range("positions", positions, 0, num_positions,
           "positions count from 1 to `num_positions`, and 0 is unknown")
  requests = checks.as_int64("requests", requests)
  checks.check_shape(
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
  checks.check_shape(name, values, shape, "one for each row")
  return values


def check_weights(weights, shape):
  """Weights `[R]` as an array, ones for None, or a `ValueError`.

  >>> check_weights(None, (2,)).tolist()
  [1.0, 1.0]
  """
  if weights is None:
    return np.ones(shape)
  weights = np.asarray(weights, np.float64)
  checks.check_shape("weights", weights, shape, "one for each row")
  in_range("weights", weights, 0, None, "give numbers of displays")
  return weights


def draw_requests(requests, replicates, level, seed):
  """Bootstrap counts of the requests that there are.

  Args:
    requests: `[R]` int, any number for each request.
    replicates: B.
    level: of the intervals to come; only checked here, before the work.
    seed: of the bootstrap.

  Returns:
    Counts `[B, N]`, and the column of each row `[R]`.

  Raises:
    ValueError: if `replicates` is no whole number of at least 1, or `level` is
      not between 0 and 1.

  >>> draw_requests([70, 70, 5], replicates=2, level=0.9, seed=0)[1].tolist()
  [1, 1, 0]
  """
  replicates = checks.positive("replicates", replicates)
  if not 0 < level < 1:
    raise ValueError(
        f"`level` must be between 0 and 1, but is {level}; 0.9 keeps 90 % of "
        "the replicates.")
  ids, request = np.unique(requests, return_inverse=True)
  return bootstrap.resample(len(ids), replicates, seed), request


def centred_ranks(groups, values):
  """Ranks within each group, equal values sharing theirs, minus their mean.

  Args:
    groups: `[R]` int from 0.
    values: `[R]`.

  Returns:
    `[R]` float64.

  >>> centred_ranks(np.array([0, 0, 1]), np.array([5.0, 3.0, 1.0])).tolist()
  [0.5, -0.5, 0.0]
  """
  order = np.lexsort((values, groups))
  sorted_groups, sorted_values = groups[order], values[order]
  starts = np.ones(len(order), bool)
  starts[1:] = ((np.diff(sorted_groups) != 0) | (np.diff(sorted_values) != 0))
  run = np.cumsum(starts) - 1
  place = np.bincount(run, np.arange(len(order))) / np.bincount(run)
  ranks = np.empty(len(order))
  ranks[order] = place[run]
  return ranks - (np.bincount(groups, ranks) / np.bincount(groups))[groups]
