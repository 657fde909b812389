"""Results as tables for people and as JSON for programs."""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import output
from ultra_tfr.evaluation import plots
from ultra_tfr.evaluation.ranking import TOPN
from ultra_tfr.version import __version__


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
      outcome: a `experiments.run.Outcome`.
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
        "versions": versions(),
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
    """Draws true and estimated examination curves of all kinds of feedback.

    Args:
      path: the file, whose ending chooses the format.
    """
    estimated, true_curve = {}, None
    for feedback, by_method in self._outcomes.items():
      true_curve = _relative(self._true[feedback])
      suffix = f" ({feedback})" if len(self._outcomes) > 1 else ""
      estimated.update({name + suffix: curve
                        for name, curve in _curves(by_method).items()})
    plots.plot_examination(path, estimated, true_curve,
                           f"Position bias, {self._dataset}")

  def to_text(self):
    """Tables of NDCG, of the gap closed, and of examination curves."""
    lines = []
    for feedback, by_method in self._outcomes.items():
      lines += [f"{feedback} feedback, NDCG on true labels", ""]
      lines += _ndcg_table(by_method)
      lines += ["", *_curve_table(by_method, self._true[feedback]), ""]
    return "\n".join(lines)


def gap_closed(by_method, name, key="ndcg@10"):
  """The share of the way from naive to oracle that a method goes.

  Args:
    by_method: outcomes by method name, lists of `experiments.run.Outcome`.
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
  """How far a value is on the way from one to another.

  Args:
    low: where the way begins.
    high: where it ends.
    value: a number.

  Returns:
    A float, or None where there is no way.

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
    cells = []
    for key in keys:
      values = [run.metrics[key] for run in runs]
      spread = f" +- {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
      cells.append(f"{np.mean(values):.4f}{spread}")
    gap = gap_closed(by_method, name)
    rows.append([name, *cells, "-" if gap is None else f"{gap:.0%}",
                 f"{np.mean([run.seconds for run in runs]):.0f}"])
  return align(rows)


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
  return align(rows)


def versions():
  """The versions that results were made with, ready for JSON."""
  peers = {name: sys.modules[name].__version__
           for name in ("lightgbm", "xgboost") if name in sys.modules}
  return {"ultra_tfr": __version__, "tensorflow": tf.__version__,
          "tensorflow_ranking": tfr.__version__, **peers,
          "python": sys.version.split()[0]}


def align(rows):
  """Lines of a table, from rows of cells of text; the first cell goes left.

  >>> align([["a", "1"], ["bc", "10"]])
  ['a    1', 'bc  10']
  """
  widths = [max(map(len, column)) for column in zip(*rows)]
  return ["  ".join([row[0].ljust(widths[0]),
                     *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
          for row in rows]
