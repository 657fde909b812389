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
  total = gain.sum()
  with np.errstate(divide="ignore", invalid="ignore"):
    values = dcg.sum(axis=1) / total
  if not np.isfinite(values).any():
    return len(values) - 1
  best = int(np.nanargmax(values))
  behind = values[best] - values
  # What a request adds to the difference beyond its share, by the delta method.
  residuals = dcg[best] - dcg - behind[:, np.newaxis] * gain
  count = len(gain)
  errors = np.sqrt(
      (residuals**2).sum(axis=1) * count / max(count - 1, 1)) / abs(total)
  return int(np.flatnonzero(behind <= slack * errors)[-1])
