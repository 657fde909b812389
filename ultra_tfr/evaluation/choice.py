"""The choice among rankers of which only feedback says how good they are."""

import numpy as np


def last_as_good(dcg, gain, slack=2.0):
  """The last of several rankers that is not clearly worse than the best.

  Feedback judges with much noise, and the best of many values is the luckiest:
  where the steps of a training fall towards 0, a later checkpoint that looks a
  little worse is mostly the better one. One is clearly worse if its value
  sum(DCG) / sum(gain), SNIPS DCG, is below the best by more than so many
  standard errors of the difference, paired by request.

  Args:
    dcg: `[V, N]`, of each ranker for each request, see
      `core.counterfactual.RequestTotals`.
    gain: `[N]`, of each request, whatever the ranker.
    slack: standard errors; with 0 it is the last of the best ones.

  Returns:
    An index in 0 .. V - 1, the last one where no value is a number.

  >>> dcg = np.array([[0.0, 0.0, 0.1], [0.5, 0.9, 0.8], [0.9, 0.2, 0.9]])
  >>> last_as_good(dcg, np.ones(3)), last_as_good(dcg, np.ones(3), slack=0.0)
  (2, 1)
  """
  dcg, gain = np.asarray(dcg, np.float64), np.asarray(gain, np.float64)
  values, _ = lead(dcg, 0.0, gain)
  if not np.isfinite(values).any():
    return len(values) - 1
  best = int(np.nanargmax(values))
  behind, errors = lead(dcg[best], dcg, gain)
  return int(np.flatnonzero(behind <= slack * errors)[-1])


def lead(dcg, other, gain):
  """How far one ranker is ahead of another in SNIPS DCG, sum(DCG) / sum(gain).

  Args:
    dcg: `[.., N]`, of the ranker for each request.
    other: of the other one.
    gain: `[N]`, of each request, whatever the ranker.

  Returns:
    The difference and its standard error, paired by request, each `[..]`; NaN
    without gain.

  >>> lead([1.0, 3.0], [1.0, 2.0], [2.0, 2.0])
  (0.25, 0.25)
  """
  ahead, gain = np.subtract(dcg, other), np.asarray(gain, np.float64)
  total, count = gain.sum(), len(gain)
  with np.errstate(divide="ignore", invalid="ignore"):
    values = ahead.sum(axis=-1) / total
    # What a request adds to the difference beyond its share: the delta method.
    residuals = ahead - np.expand_dims(values, -1) * gain
    errors = np.sqrt((residuals**2).sum(axis=-1) * count / max(count - 1, 1))
    return values, errors / abs(total)
