"""The table of a comparison, for a terminal and as Markdown."""

import numpy as np

from ultra_tfr.comparison import statistics
from ultra_tfr.evaluation.ranking import TOPN
from ultra_tfr.experiments import tables

REFERENCE = "unbiased"
# Upper bounds: never the best of a table.
ORACLES = ("oracle-pairwise", "oracle-pointwise", "oracle-clicks")
_SIGNIFICANT = 0.05
_HEADINGS = ["method", *(f"NDCG@{n}" for n in TOPN), "gap closed",
             f"minus {REFERENCE}", "p seeds", "p queries", "s"]


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
    """The share of the way from naive-pairwise to oracle-pairwise, or None."""
    low, high, value = (self._mean(name) for name in (
        "naive-pairwise", "oracle-pairwise", method))
    if None in (low, high, value):
      return None
    return tables.share_of_gap(low, high, value)

  def difference(self, method):
    """The `statistics.Difference` to the reference, or None."""
    if method == REFERENCE or not {method, REFERENCE} <= set(self._results):
      return None
    by_query = [{seed: run[self._select]["by_query"]
                 for seed, run in self._results[name].items()}
                for name in (method, REFERENCE)]
    return statistics.difference(*by_query)

  def _best(self, key):
    means = {name: self._mean(name, key) for name in self._methods
             if name not in ORACLES and self._results.get(name)}
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
    """Lines for a terminal; the best value of a column has a star."""
    return "\n".join(tables.align(self.rows("*{}")))

  def to_markdown(self):
    """A Markdown table."""
    head, *body = self.rows("**{}**")
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _mean_and_spread(values):
  text = f"{np.mean(values):.4f}"
  if len(values) > 1:
    text += f" ± {np.std(values, ddof=1):.4f}"
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
