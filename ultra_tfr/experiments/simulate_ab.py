"""A simulated A/B test: what users do with one ranker's order and another's.

It stands in for an online test where there is no live traffic. Users visit for
some days; each visit is a new user with a query of the labelled lists, sent to
arm A or B by a fair coin, who sees the top of that arm's order, clicks by a
click model and stays by `simulate_dwell`. As in a live test, metrics are means
over visits, with the uplift of B over A, its interval, a p-value, and the days.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import numpy as np
from scipy import stats

from ultra_tfr import checks
from ultra_tfr.data.labels import LabelSynthesis
from ultra_tfr.data.labels import from_function
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import plots
from ultra_tfr.simulation.dwell import simulate_dwell

# What is measured, and its name in words; each is a mean over visits.
METRICS = {
    "clicks": "clicks a visit",
    "click_through": "visits with a click",
    "dwell": "dwell time a visit",
    "label": "synthesised label a visit",
}
# The normal quantile of a two-sided 95 % interval.
_Z = stats.norm.ppf(.975)
_CLICK_AND_DWELL = LabelSynthesis("weighted_sum", {"click": 1., "dwell": 1.})


class Comparison(NamedTuple):
  """Both arms' means of one metric, and the uplift of B over A.

  What too few visits, or too few events in A, leave open is NaN.

  Attributes:
    mean: `[.., 2]`, of A and B.
    half_width: `[.., 2]`, of the means' 95 % intervals.
    uplift: `[..]`, mean of B / mean of A - 1.
    low: `[..]`, lower end of the uplift's 95 % interval.
    high: `[..]`, upper end.
    p_value: `[..]`, of equal means, two-sided, by Welch's statistic, taken as
      normal.
  """

  mean: np.ndarray
  half_width: np.ndarray
  uplift: np.ndarray
  low: np.ndarray
  high: np.ndarray
  p_value: np.ndarray


def compare(visits, sums, squares):
  """Compares two arms by what their visits add up to.

  The uplift's interval is Fieller's, for a ratio of two independent normal
  means. With many visits it is that of the delta method; it excludes 0 exactly
  where the p-value is below 5 %, which the delta method's does not.

  Args:
    visits: `[.., 2]` numbers of visits of A and B.
    sums: `[.., 2]` sums over visits of a metric.
    squares: `[.., 2]` sums of its squares.

  Returns:
    A `Comparison`.

  Source: Fieller, "Some Problems in Interval Estimation", JRSS B 1954; Welch,
  "The Generalization of 'Student's' Problem", Biometrika 1947.

  Example:
    >>> found = compare([400, 400], [400., 440.], [800., 880.])
    >>> float(found.uplift.round(3)), float(found.p_value.round(3))
    (0.1, 0.157)
    >>> float(found.low.round(3)), float(found.high.round(3))
    (-0.036, 0.257)
  """
  visits, sums, squares = (
      np.asarray(array, np.float64) for array in (visits, sums, squares))
  with np.errstate(divide="ignore", invalid="ignore"):
    mean = sums / visits
    # Rounding must not make it negative where all visits are the same.
    variance = np.maximum(squares / visits - mean ** 2, 0.) / (visits - 1.)
    a, b = mean[..., 0], mean[..., 1]
    of_a, of_b = variance[..., 0], variance[..., 1]
    score = (b - a) / np.sqrt(of_a + of_b)
    ratio = b / a
    spread = _Z ** 2 * of_a / a ** 2
    # If A's mean may be 0, any uplift is possible.
    spread = np.where(spread < 1., spread, np.nan)
    margin = _Z / a * np.sqrt((1. - spread) * of_b + ratio ** 2 * of_a)
    low, high = ((ratio + side * margin) / (1. - spread) - 1.
                 for side in (-1., 1.))
    uplift = np.where(np.isfinite(ratio), ratio - 1., np.nan)
  return Comparison(mean, _Z * np.sqrt(variance), uplift, low, high,
                    2. * stats.norm.sf(np.abs(score)))


@dataclasses.dataclass(frozen=True, eq=False)
class ABTest:
  """The results of a test, by day and arm.

  Attributes:
    names: what A and B are.
    visits: int64 `[days, 2]`, of A and B.
    sums: float64 `[days, 2]`, sums over visits, by a key of `METRICS`.
    squares: sums of the squares, likewise.
  """

  names: tuple[str, str]
  visits: np.ndarray
  sums: Mapping[str, np.ndarray]
  squares: Mapping[str, np.ndarray]

  def total(self, metric="clicks") -> Comparison:
    """The whole test: a `Comparison` of numbers."""
    return self._compare(metric, lambda values: values.sum(axis=0))

  def daily(self, metric="clicks") -> Comparison:
    """Each day by itself: a `Comparison` of `[days]`."""
    return self._compare(metric, lambda values: values)

  def cumulative(self, metric="clicks") -> Comparison:
    """All days up to each: a `Comparison` of `[days]`."""
    return self._compare(metric, lambda values: values.cumsum(axis=0))

  def _compare(self, metric, over_days):
    checks.check_choice("metric", metric, tuple(METRICS))
    return compare(*map(over_days, (
        self.visits, self.sums[metric], self.squares[metric])))

  def verdict(self) -> str:
    """One sentence: whether B gets more clicks than A, and by how much."""
    found = self.total()
    if not np.isfinite(found.low):
      return "No uplift can be given: A has too few clicks to compare with."
    interval = (
        f"(95 % interval {_percent(found.low)} to {_percent(found.high)})")
    if not found.p_value < .05:
      return ("No difference shown: the uplift of B in clicks a visit is "
              f"{_percent(found.uplift)} {interval}.")
    change = "more" if found.uplift > 0 else "fewer"
    return (f"B gives {_percent(abs(found.uplift))} {change} clicks a visit "
            f"{interval}.")

  def to_json(self):
    """The test as nested dicts ready for JSON; None where there is no number.

    Uplifts are shares, .05 for 5 %.
    """
    return {
        "arms": dict(zip("AB", self.names)),
        "verdict": self.verdict(),
        "visits": self.visits.sum(axis=0).tolist(),
        "visits_by_day": self.visits.tolist(),
        "metrics": {
            metric: {
                "total": _as_json(self.total(metric)),
                "daily": _as_json(self.daily(metric)),
                "cumulative": _as_json(self.cumulative(metric))}
            for metric in METRICS}}

  def to_text(self):
    """Tables of the whole test and of its days, and the verdict."""
    lines = [f"{arm}: {name}, {count} visits" for arm, name, count in zip(
        "AB", self.names, self.visits.sum(axis=0))]
    lines += ["", f"{'95 % intervals':26}{'A':>18}{'B':>18}"
              f"{'uplift of B':>29}{'p':>9}"]
    for metric, what in METRICS.items():
      found = self.total(metric)
      means = "".join(f"{f'{mean:.4f} +- {half:.4f}':>18}"
                      for mean, half in zip(found.mean, found.half_width))
      lines.append(f"{what:26}{means}{_uplift(found):>29}"
                   f"{found.p_value:>9.2g}")
    daily, cumulative = self.daily(), self.cumulative()
    lines += ["", f"{'day':>5}{'visits A':>10}{'visits B':>10}{'clicks A':>10}"
              f"{'clicks B':>10}{'uplift':>10}{'uplift so far':>29}"]
    for day, counts in enumerate(self.visits):
      so_far = Comparison(*(values[day] for values in cumulative))
      lines.append(
          f"{day + 1:5}{counts[0]:10}{counts[1]:10}{daily.mean[day, 0]:10.4f}"
          f"{daily.mean[day, 1]:10.4f}{_percent(daily.uplift[day]):>10}"
          f"{_uplift(so_far):>29}")
    return "\n".join([*lines, "", self.verdict()])

  def plot(self, path):
    """Draws the uplift in clicks by day and so far.

    Args:
      path: the file, whose ending chooses the format.
    """
    daily, cumulative = (
        np.stack([found.uplift, found.low, found.high], axis=1)
        for found in (self.daily(), self.cumulative()))
    plots.plot_uplift(path, daily, cumulative, METRICS["clicks"],
                      " against ".join(reversed(self.names)))


def run_ab_test(lists: RankingLists, scores_a, scores_b, click_model, *,
                days=7, visits_per_day=1000, num_positions=10, seed=0,
                synthesis=_CLICK_AND_DWELL, names=("A", "B")) -> ABTest:
  """Sends simulated users to two orders of the same lists.

  Args:
    lists: what users ask for, each list as often as another, with true labels.
    scores_a: `[D]` scores of arm A, in the order of `lists`.
    scores_b: `[D]` scores of arm B.
    click_model: a `simulation.click_models` model.
    days: how long the test runs.
    visits_per_day: of both arms together.
    num_positions: K, how many documents a user sees.
    seed: of visits and feedback.
    synthesis: makes one label from the actions `click` and `dwell`, each a
      `[visits, K]` array: a `data.labels.LabelSynthesis`, or a function as in
      `data.labels.from_function`. By default click + dwell.
    names: what A and B are, for the tables.

  Returns:
    An `ABTest`.

  Raises:
    ValueError: if an argument has the wrong shape or is out of range.

  Example:
    >>> from ultra_tfr.simulation.click_models import PositionBasedModel
    >>> lists = RankingLists(np.zeros([2, 1]), [0, 4], [0, 2], [7])
    >>> test = run_ab_test(lists, [2., 1.], [1., 2.], PositionBasedModel(),
    ...                    days=2, seed=1)
    >>> test.verdict()
    'B gives 8.2 % more clicks a visit (95 % interval 1.0 % to 15.9 %).'
  """
  if not len(lists):
    raise ValueError("`lists` must hold at least one list, but is empty; give "
                     "the queries that users have.")
  days = checks.check_count("days", days)
  visits_per_day = checks.check_count("visits_per_day", visits_per_day)
  num_positions = checks.check_count("num_positions", num_positions)
  shown = []
  # The click model needs no features, which may be large.
  bare = dataclasses.replace(lists, features=lists.features[:, :0])
  for name, scores in (("scores_a", scores_a), ("scores_b", scores_b)):
    checks.check_shape(name, np.asarray(scores), lists.labels.shape,
                          "one score a document")
    shown.append(
        bare.sort_by(scores, top=num_positions).pad(num_positions)[1])
  shown, visits, sums, squares = np.stack(shown), [], [], []
  for day in range(days):
    # With a third number, so that it is not (seed, epoch), as in training.
    stream = (seed, day, 1)
    rng = np.random.default_rng(np.random.SeedSequence(stream, spawn_key=(2,)))
    query = rng.integers(len(lists), size=visits_per_day)
    arm = rng.integers(2, size=visits_per_day)
    values = _visit(shown[arm, query], click_model, stream, synthesis)
    in_arm = arm == np.arange(2)[:, np.newaxis]
    visits.append(in_arm.sum(axis=1))
    sums.append(values @ in_arm.T)
    squares.append(values ** 2 @ in_arm.T)
  return ABTest(
      tuple(names), np.stack(visits),
      dict(zip(METRICS, np.stack(sums, axis=1))),
      dict(zip(METRICS, np.stack(squares, axis=1))))


def _visit(labels, click_model, seed, synthesis):
  """The `METRICS` of visits to labels `[V, K]`: `[4, V]`."""
  clicks = click_model.sample(labels, seed).clicks
  dwell = simulate_dwell(labels, clicks, seed, max_grade=click_model.max_grade)
  label = from_function({"click": clicks, "dwell": dwell}, synthesis)
  return np.stack([
      clicks.sum(axis=1), clicks.max(axis=1), dwell.sum(axis=1),
      np.where(labels < 0, 0., label).sum(axis=1)]).astype(np.float64)


def _percent(share):
  return f"{100. * share:.1f} %"


def _uplift(found):
  if not np.isfinite(found.low):
    return "-"
  return (f"{_percent(found.uplift)} ({_percent(found.low)} to "
          f"{_percent(found.high)})")


def _as_json(found):
  """A `Comparison` as a dict; JSON has no NaN."""
  parts = {
      "mean_a": found.mean[..., 0], "mean_b": found.mean[..., 1],
      "half_width_a": found.half_width[..., 0],
      "half_width_b": found.half_width[..., 1],
      "uplift": found.uplift, "low": found.low, "high": found.high,
      "p_value": found.p_value}
  return {name: np.where(np.isfinite(values), values, None).tolist()
          for name, values in parts.items()}
