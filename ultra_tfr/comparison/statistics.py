"""Whether methods differ by more than chance."""

import dataclasses

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Difference:
  """A method minus another, paired.

  Attributes:
    value: mean difference of NDCG@10.
    p_seeds: of a paired t-test over seeds; NaN with fewer than two, or where
      all differences are equal.
    p_queries: of a paired t-test over test queries, whose NDCG@10 is first
      averaged over seeds; NaN likewise.
  """

  value: float
  p_seeds: float
  p_queries: float


def difference(runs, others):
  """Compares two methods run with the same seeds on the same test queries.

  The two tests ask different things: whether another choice of clicks and
  initialisation would show the difference on these queries, and whether other
  queries would show it with these runs.

  Args:
    runs: a dict from seed to `[Q]` NDCG@10 by test query.
    others: the same of the other method.

  Returns:
    A `Difference` over the seeds that both have, or None if there is none.

  Raises:
    ValueError: if the queries differ.

  >>> found = difference({0: [.5, .7], 1: [.6, .7]}, {0: [.4, .6], 1: [.4, .6]})
  >>> round(found.value, 3), round(found.p_seeds, 3)
  (0.125, 0.126)
  """
  seeds = sorted(set(runs) & set(others))
  if not seeds:
    return None
  first, second = (np.array([found[seed] for seed in seeds], np.float64)
                   for found in (runs, others))
  if first.shape != second.shape:
    raise ValueError(
        "The methods must be judged by the same test queries, but there are "
        f"{first.shape[1]} and {second.shape[1]}; run them on the same data.")
  gaps = first - second
  return Difference(float(gaps.mean()), _p_value(gaps.mean(axis=1)),
                    _p_value(gaps.mean(axis=0)))


def _p_value(gaps):
  if len(gaps) < 2 or np.ptp(gaps) == 0:
    return float("nan")
  return float(stats.ttest_1samp(gaps, 0.0).pvalue)
