"""Results as tables for people and as JSON for programs."""

import dataclasses

import numpy as np
from scipy import stats

from ultra_tfr import output
from ultra_tfr.evaluation import plots
from ultra_tfr.evaluation.ranking import TOPN
from ultra_tfr.methods import METHODS

REFERENCE = "unbiased"
_SIGNIFICANT = 0.05
_HEADINGS = ["method", *(f"NDCG@{n}" for n in TOPN), "gap closed",
             f"minus {REFERENCE}", "p seeds", "p queries", "s"]


class Results:
  """Collects outcomes by kind of feedback and method.

  Args:
    dataset: its name.
  """

  def __init__(self, dataset):
    self._dataset = dataset
    self._outcomes = {}
    self._true = {}

  def add(self, feedback, method, outcome, true_examination=None):
    """Adds one run.

    Args:
      feedback: `"click"` or `"dwell"`.
      method: its name.
      outcome: an `Outcome`.
      true_examination: `[K]`, or None.
    """
    runs = self._outcomes.setdefault(feedback, {}).setdefault(method, [])
    runs.append(outcome)
    self._true[feedback] = true_examination

  def to_json(self, seconds):
    """The results as nested dicts.

    Args:
      seconds: wall time of everything.

    Returns:
      A dict ready for JSON.
    """
    return {
        "dataset": self._dataset,
        "runs": max((len(runs) for by_method in self._outcomes.values()
                     for runs in by_method.values()), default=0),
        "seconds": round(seconds, 1),
        "versions": output.versions(),
        "results": {
            feedback: {
                "methods": {name: _summary(runs)
                            for name, runs in by_method.items()},
                "examination": {
                    "true": _relative(self._true[feedback]),
                    "estimated": _curves(by_method)}}
            for feedback, by_method in self._outcomes.items()}}

  def write_json(self, path, seconds):
    """Writes `to_json` to a file.

    Args:
      path: the file.
      seconds: wall time of everything.
    """
    output.write(path, self.to_json(seconds))

  def plot(self, path):
    """Draws examination curves and NDCG@10 of all kinds of feedback.

    Args:
      path: the file, whose ending chooses the format.
    """
    estimated, ndcg, true_curve = {}, {}, None
    for feedback, by_method in self._outcomes.items():
      true_curve = _relative(self._true[feedback])
      suffix = f" ({feedback})" if len(self._outcomes) > 1 else ""
      estimated.update({name + suffix: curve
                        for name, curve in _curves(by_method).items()})
      ndcg.update({name + suffix: [run.metrics["ndcg@10"] for run in runs]
                   for name, runs in by_method.items()})
    plots.plot_examination(path, estimated, true_curve,
                           f"Position bias, {self._dataset}", ndcg)

  def to_text(self):
    """Tables of NDCG, of the gap closed, and of examination curves."""
    lines = []
    for feedback, by_method in self._outcomes.items():
      lines += [f"{feedback} feedback, NDCG on true labels", ""]
      lines += _ndcg_table(by_method)
      lines += ["", *_curve_table(by_method, self._true[feedback]), ""]
    return "\n".join(lines)


def gap_closed(by_method, name, key="ndcg@10"):
  """The share of the gap from naive to oracle that a method closes.

  Args:
    by_method: outcomes by method name, lists of `Outcome`.
    name: the method.
    key: the metric.

  Returns:
    A float, or None where naive or oracle is missing or there is no gap.
  """
  if not {"naive-pairwise", "oracle-pairwise"} <= set(by_method):
    return None
  low, high, value = (
      np.mean([run.metrics[key] for run in by_method[n]])
      for n in ("naive-pairwise", "oracle-pairwise", name))
  return share_of_gap(low, high, value)


def share_of_gap(low, high, value):
  """The share of the gap between two values that a third one closes.

  Args:
    low: the lower end of the gap.
    high: its upper end.
    value: the third value.

  Returns:
    A float, or None where there is no gap.

  >>> share_of_gap(0.5, 0.75, 0.625), share_of_gap(0.5, 0.5, 0.5)
  (0.5, None)
  """
  return None if high <= low else float((value - low) / (high - low))


def _summary(runs):
  summary = {}
  for n in TOPN:
    values = [run.metrics[f"ndcg@{n}"] for run in runs]
    summary[f"ndcg@{n}"] = {
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "runs": values}
  return summary


def _relative(curve):
  if curve is None:
    return None
  return [float(value) for value in np.asarray(curve) / curve[0]]


def _curves(by_method):
  """Estimated curves, the mean over runs, of methods that estimate one."""
  curves = {}
  for name, runs in by_method.items():
    found = [run.examination for run in runs if run.examination is not None]
    if found:
      curves[name] = [float(value) for value in np.mean(found, axis=0)]
  return curves


def _ndcg_table(by_method):
  keys = [f"ndcg@{n}" for n in TOPN]
  rows = [["method", *keys, "gap closed", "seconds"]]
  for name, runs in by_method.items():
    cells = [_mean_and_spread([run.metrics[key] for run in runs], "+-")
             for key in keys]
    gap = gap_closed(by_method, name)
    rows.append([name, *cells, "-" if gap is None else f"{gap:.0%}",
                 f"{np.mean([run.seconds for run in runs]):.0f}"])
  return output.align(rows)


def _curve_table(by_method, true_curve):
  curves = _curves(by_method)
  true_curve = _relative(true_curve)
  if not curves:
    return []
  size = len(next(iter(curves.values())))
  rows = [["examination / position 1",
           *map(str, range(1, size + 1)), "mean error"]]
  if true_curve is not None:
    rows.append(["true", *(f"{v:.2f}" for v in true_curve), ""])
  for name, curve in curves.items():
    error = "-" if true_curve is None else format(
        np.abs(np.subtract(curve, true_curve)).mean(), ".3f")
    rows.append([name, *(f"{v:.2f}" for v in curve), error])
  return output.align(rows)


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

  The two tests ask different things: whether other clicks and initialisations
  would show the difference on these queries, and whether other queries would
  show it with these runs.

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


class Table:
  """Results of one kind of feedback.

  Args:
    results: a dict by method of dicts by seed of what
      `experiments.comparison.execute` gave.
    methods: the rows, in order; those without a result get "-".
    select: the pick of the checkpoint that counts, `"labels"` or `"clicks"`;
      the other one is shown in a column of its own.
  """

  def __init__(self, results, methods, select="labels"):
    self._results, self._methods = results, list(methods)
    self._select = select
    self._other = "clicks" if select == "labels" else "labels"

  def _mean(self, method, key="ndcg@10"):
    runs = self._results.get(method)
    if not runs:
      return None
    return float(np.mean([run[self._select]["metrics"][key]
                          for run in runs.values()]))

  def gap_closed(self, method):
    """The share of the gap from naive-pairwise to oracle-pairwise, or None."""
    low, high, value = (self._mean(name) for name in (
        "naive-pairwise", "oracle-pairwise", method))
    if None in (low, high, value):
      return None
    return share_of_gap(low, high, value)

  def difference(self, method):
    """The `Difference` to the reference, or None."""
    if method == REFERENCE or not {method, REFERENCE} <= set(self._results):
      return None
    by_query = [{seed: run[self._select]["by_query"]
                 for seed, run in self._results[name].items()}
                for name in (method, REFERENCE)]
    return difference(*by_query)

  def _best(self, key):
    # Oracles do not compete; names may also be those of other libraries.
    oracles = {name for name, method in METHODS.items() if method.is_oracle}
    means = {name: self._mean(name, key) for name in self._methods
             if name not in oracles and self._results.get(name)}
    return max(means, key=means.get) if means else None

  def rows(self, bold="{}"):
    """The cells, with a heading.

    Args:
      bold: how the best value of a column is written; oracles do not compete.

    Returns:
      A list of lists of text.
    """
    best = {n: self._best(f"ndcg@{n}") for n in TOPN}
    rows = [[*_HEADINGS[:4], f"@10 by {self._other}", *_HEADINGS[4:]]]
    for name in self._methods:
      runs = list(self._results.get(name, {}).values())
      if not runs:
        rows.append([name, *["-"] * (len(rows[0]) - 1)])
        continue
      cells = []
      for n in TOPN:
        text = _mean_and_spread(
            [run[self._select]["metrics"][f"ndcg@{n}"] for run in runs])
        cells.append(bold.format(text) if best[n] == name else text)
      cells.append(_mean_and_spread(
          [run[self._other]["metrics"]["ndcg@10"] for run in runs]))
      gap = self.gap_closed(name)
      cells.append("-" if gap is None else f"{gap:.0%}")
      found = self.difference(name)
      cells += ["", "", ""] if found is None else [
          f"{found.value:+.4f}", _p(found.p_seeds), _p(found.p_queries)]
      cells.append(f"{np.mean([run['seconds'] for run in runs]):.0f}")
      rows.append([name, *cells])
    return rows

  def to_text(self):
    """A text for terminals; the best value of a column has a star."""
    return "\n".join(output.align(self.rows("*{}")))

  def to_markdown(self):
    """A Markdown table."""
    return to_markdown(self.rows("**{}**"))


def to_markdown(rows):
  """A Markdown table of rows of text, the first of which is the heading.

  >>> print(to_markdown([["a", "b"], ["1", "2"]]))
  | a | b |
  | --- | --- |
  | 1 | 2 |
  """
  head, *body = rows
  lines = [head, ["---"] * len(head), *body]
  return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _mean_and_spread(values, sign="±"):
  text = f"{np.mean(values):.4f}"
  if len(values) > 1:
    text += f" {sign} {np.std(values, ddof=1):.4f}"
  return text


def _p(value):
  """A p-value; those below 5 % have a mark.

  >>> _p(0.2), _p(0.0004), _p(float("nan"))
  ('0.200', '<0.001 !', '-')
  """
  if not np.isfinite(value):
    return "-"
  text = "<0.001" if value < 0.001 else f"{value:.3f}"
  return f"{text} !" if value < _SIGNIFICANT else text
