"""The bootstrap over requests: how different an estimate might have come out.

Items of one request are shown and clicked together, so requests are drawn
again, and not rows.
"""

import dataclasses
import math
from typing import Optional

import numpy as np
from scipy import stats

from ultra_tfr import checks
from ultra_tfr import hashing

# How often a request is drawn, by 16 random bits.
_DRAWS = np.searchsorted(
    stats.poisson.cdf(np.arange(8), 1.0),
    (np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.uint8)


def resample(num_requests, replicates=200, seed=0):
  """How often each request is drawn, in each replicate.

  The Poisson bootstrap: counts are independent Poisson(1) numbers, which for
  many requests is what drawing with replacement gives (Chamandy et al.,
  "Estimating Uncertainty for Massive Data Streams", 2012).

  Args:
    num_requests: N.
    replicates: B.
    seed: of the draws.

  Returns:
    `[B, N]` uint8.

  >>> resample(4, replicates=2).shape
  (2, 4)
  """
  generator = np.random.default_rng(seed)
  return generator.poisson(1.0, (replicates, num_requests)).astype(np.uint8)


def draws_of(requests, replicates=200, seed=0):
  """How often requests are drawn, told by each one's number alone.

  What `resample` does for a log whose rows are in many places: those of a
  request are drawn alike in all of them.

  Args:
    requests: `[R]` int, any number for each request.
    replicates: B.
    seed: of the draws.

  Returns:
    `[R, B]` uint8.

  >>> draws = draws_of([70, 5, 70])
  >>> draws.shape, bool((draws[0] == draws[2]).all())
  ((3, 200), True)
  """
  numbers = np.asarray(requests).astype(np.uint64)
  # Four draws of 16 bits in each word.
  words = hashing.mixed(np.arange(-(-replicates // 4), dtype=np.uint64) + (
      hashing.mixed(np.array([seed], np.uint64))))
  bits = hashing.mixed(hashing.mixed(numbers)[:, np.newaxis] ^ words)
  return _DRAWS[bits.astype("<u8").view("<u2")[:, :replicates]]


def interval(estimates, level=0.9):
  """The percentile interval of replicated estimates.

  Args:
    estimates: `[B, ..]`; NaN where a replicate has no estimate.
    level: the share of replicates inside.

  Returns:
    A tuple (low, high) of arrays `[..]`; NaN where fewer than half of the
    replicates have an estimate.

  >>> low, high = interval(np.arange(101.0), level=0.9)
  >>> round(float(low), 6), round(float(high), 6)
  (5.0, 95.0)
  """
  estimates = np.asarray(estimates, np.float64)
  tail = 50.0 * (1.0 - level)
  known = np.isfinite(estimates).mean(axis=0) >= 0.5
  filled = np.where(known, estimates, 0.0)
  low, high = np.nanpercentile(filled, [tail, 100.0 - tail], axis=0)
  return np.where(known, low, np.nan), np.where(known, high, np.nan)


def cautious_level(level, replicates):
  """The level whose percentiles are a standard error further out.

  With few replicates, percentiles themselves are known with an error only.

  Args:
    level: the share of replicates that would be inside.
    replicates: B.

  Returns:
    A level of at most 1, for `interval`.

  >>> round(cautious_level(0.9, 200), 4), round(cautious_level(0.9, 10**6), 4)
  (0.9308, 0.9004)
  """
  tail = (1.0 - level) / 2.0
  return min(1.0, level + 2.0 * math.sqrt(tail * (1.0 - tail) / replicates))


def widened(value, low, high, effective_size, level):
  """A percentile interval made as wide as a small sample needs it.

  Replicates spread as the sample does, but few observations say little of their
  own spread. So the ends move away from the value by the ratio of the quantile
  of Student's t to that of the normal.

  Args:
    value: `[..]`, the estimate.
    low: `[..]`, the lower percentile of its replicates.
    high: `[..]`, the upper one.
    effective_size: `[..]`, how many observations the estimate rests on; fewer
      than two are taken for two.
    level: of the interval.

  Returns:
    A tuple (low, high), with the value between them.

  >>> low, high = widened(0.0, -1.0, 2.0, np.array([2.0, 10.0, 1e6]), 0.9)
  >>> low.round(2).tolist(), high.round(2).tolist()
  ([-3.84, -1.11, -1.0], [7.68, 2.23, 2.0])
  """
  share = (1.0 + level) / 2.0
  factor = stats.t.ppf(share, np.maximum(effective_size - 1.0, 1.0)) / (
      stats.norm.ppf(share))
  return (value - factor * np.maximum(value - low, 0.0),
          value + factor * np.maximum(high - value, 0.0))


def effective_size(contributions):
  """How many equal contributions would have as much noise: Kish's size.

  Args:
    contributions: `[N, ..]`.

  Returns:
    `[..]`, (sum x)^2 / sum x^2; 0 where all are 0.

  Source: Kish, "Survey Sampling", 1965.

  >>> float(effective_size(np.array([1.0, 1.0, 0.0, 2.0])).round(2))
  2.67
  """
  squares = np.square(contributions).sum(axis=0)
  return np.square(np.sum(contributions, axis=0)) / np.where(
      squares > 0, squares, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
  """An estimate, and its bootstrap interval.

  Attributes:
    value: an array, or a number; NaN where the log does not tell.
    low: the lower end, likewise.
    high: the upper end, likewise.
    standard_error: by the bootstrap, likewise; None where only the interval was
      asked for.
  """

  value: np.ndarray
  low: np.ndarray
  high: np.ndarray
  standard_error: Optional[np.ndarray] = None


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
  low, high = interval(replicated, level)
  return Estimate(value, low, np.where(low == 0, np.nan, high))


def draw_requests(requests, replicates, level, seed):
  """Bootstrap counts of the requests of some rows.

  Args:
    requests: `[R]` int, any number for each request.
    replicates: B.
    level: of the intervals to come; only checked here, before the work.
    seed: of the bootstrap.

  Returns:
    Counts `[B, N]` of the N requests, and `[R]` the index of each row's request
    in them.

  Raises:
    ValueError: if `replicates` is no whole number of at least 1, or `level` is
      not between 0 and 1.

  >>> draw_requests([70, 70, 5], replicates=2, level=0.9, seed=0)[1].tolist()
  [1, 1, 0]
  """
  replicates = checks.check_count("replicates", replicates)
  checks.check_level(level)
  ids, request = np.unique(requests, return_inverse=True)
  return resample(len(ids), replicates, seed), request


def centred_ranks(groups, values):
  """Ranks within each group minus their mean; equal values share a rank.

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
