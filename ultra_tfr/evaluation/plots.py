"""Plots of results, as PNG or any format that matplotlib writes."""

import io
import os

from matplotlib import figure
import numpy as np

from ultra_tfr import output


def formats():
  """The file endings that a plot can be written to, a list of strings.

  >>> "png" in formats()
  True
  """
  return list(figure.Figure().canvas.get_supported_filetypes())


def plot_examination(path, estimated, true_examination=None, title=None,
                     ndcg=None):
  """Draws examination curves by display position.

  Args:
    path: the file; its ending chooses the format.
    estimated: a dict from method name to `[K]`, relative to position 1.
    true_examination: `[K]`, relative to position 1, or None.
    title: of the plot.
    ndcg: a dict from method name to NDCG@10 of its runs, for a panel of its
      own; None for none.

  Raises:
    ValueError: if there is no curve, or the format is unknown.

  >>> plot_examination("curve.png", {"unbiased": [1.0, 0.6]}, [1.0, 0.5])
  """
  if not estimated and true_examination is None:
    raise ValueError(
        "There is no examination curve to plot: none of the methods estimates "
        "one; train one that does, such as 'unbiased'.")
  # Not `pyplot`: that would choose a window system.
  chart = figure.Figure(figsize=(6 if ndcg is None else 10, 4),
                        layout="constrained")
  axes, *others = chart.subplots(
      1, 1 if ndcg is None else 2, squeeze=False)[0]
  _draw_curves(axes, estimated, true_examination)
  axes.set_ylabel("examination, relative to position 1")
  if title:
    axes.set_title(title, parse_math=False)
  if others:
    _draw_ndcg(others[0], ndcg)
  _save(chart, path)


def curves_png(curves):
  """A picture of curves by display position.

  Args:
    curves: a dict from name to `[K]`.

  Returns:
    The bytes of a PNG file.

  >>> curves_png({"examination": [1.0, 0.6]})[1:4]
  b'PNG'
  """
  file = io.BytesIO()
  chart = figure.Figure(figsize=(6, 4), layout="constrained")
  _draw_curves(chart.subplots(), curves)
  chart.savefig(file, format="png")
  return file.getvalue()


def _draw_curves(axes, curves, true_curve=None):
  """Curves by position, whose names are shown as they are."""
  if true_curve is not None:
    axes.plot(range(1, len(true_curve) + 1), true_curve,
              color="black", linewidth=2, label="true")
  for name, curve in curves.items():
    axes.plot(range(1, len(curve) + 1), curve, marker="o", markersize=4,
              linestyle="--", label=name)
  axes.set_xlabel("display position")
  axes.set_ylim(bottom=0)
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  for text in axes.legend().get_texts():
    text.set_parse_math(False)


def _draw_ndcg(axes, ndcg):
  """A row for each method, the best one on top: a point for each run."""
  names = sorted(ndcg, key=lambda name: np.mean(ndcg[name]))
  for row, name in enumerate(names):
    axes.plot(ndcg[name], [row] * len(ndcg[name]), "o", color="tab:blue")
    axes.annotate(f"{np.mean(ndcg[name]):.3f}", (np.mean(ndcg[name]), row),
                  (0, 8), textcoords="offset points", ha="center")
  axes.set_yticks(range(len(names)), names, parse_math=False)
  axes.margins(x=0.15, y=0.25)
  axes.set_title("NDCG@10 on true labels")
  axes.grid(axis="x", alpha=0.3)


def plot_uplift(path, daily, cumulative, quantity, title=None):
  """Draws how much better B does than A, day by day and so far.

  Args:
    path: the file; its ending chooses the format.
    daily: `[days, 3]` uplift of each day and the ends of its interval, as
      shares; NaN is not drawn.
    cumulative: `[days, 3]` the same of all days up to each.
    quantity: of what B has more or less, in words.
    title: of the plot.

  Raises:
    ValueError: if the format is unknown.

  >>> plot_uplift("uplift.png", [[.1, -.1, .3], [.2, 0., .4]],
  ...             [[.1, -.1, .3], [.15, .01, .29]], "clicks a visit")
  """
  daily, cumulative = (
      100.0 * np.asarray(values, np.float64) for values in (daily, cumulative))
  days = np.arange(len(daily)) + 1
  chart = figure.Figure(figsize=(6, 4), layout="constrained")
  axes = chart.subplots()
  axes.axhline(0.0, color="black", linewidth=1)
  axes.errorbar(days, daily[:, 0], np.abs(daily[:, 1:] - daily[:, :1]).T,
                fmt="o", markersize=4, color="gray", label="day")
  axes.plot(days, cumulative[:, 0], marker=".", label="all days so far")
  axes.fill_between(days, cumulative[:, 1], cumulative[:, 2], alpha=0.2)
  axes.set_xlabel("day")
  axes.set_ylabel(f"uplift of B in {quantity}, %\nwith 95 % interval")
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  axes.legend()
  if title:
    axes.set_title(title, parse_math=False)
  _save(chart, path)


def _save(chart, path):
  """Writes a figure as the ending of the path says."""
  with output.new_file(path, "wb") as file:
    chart.savefig(file, dpi=120, format=os.path.splitext(path)[1][1:] or None)
