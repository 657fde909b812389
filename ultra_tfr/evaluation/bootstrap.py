"""The bootstrap over requests: how far an estimate could have come out else.

Items of one request are shown and clicked together, so requests are what is
drawn again, not rows.
"""

import numpy as np


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
