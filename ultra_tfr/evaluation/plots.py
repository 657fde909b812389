"""Plots of bias estimates, as PNG or any format that matplotlib writes."""

from matplotlib import figure


def formats():
  """The file endings that a plot can be written to, a list of strings.

  >>> "png" in formats()
  True
  """
  return list(figure.Figure().canvas.get_supported_filetypes())


def plot_examination(path, estimated, true_examination=None, title=None):
  """Draws examination curves by display position.

  Args:
    path: the file; its ending chooses the format.
    estimated: a dict from method name to `[K]`, relative to position 1.
    true_examination: `[K]`, relative to position 1, or None.
    title: of the plot.

  Raises:
    ValueError: if there is no curve, or the format is unknown.

  >>> plot_examination("curve.png", {"unbiased": [1.0, 0.6]}, [1.0, 0.5])
  """
  if not estimated and true_examination is None:
    raise ValueError(
        "There is no examination curve to plot: none of the methods estimates "
        "one; train one that does, such as 'unbiased'.")
  # Not `pyplot`: that would choose a window system.
  chart = figure.Figure(figsize=(6, 4), layout="constrained")
  axes = chart.subplots()
  if true_examination is not None:
    axes.plot(range(1, len(true_examination) + 1), true_examination,
              color="black", linewidth=2, label="true")
  for name, curve in estimated.items():
    axes.plot(range(1, len(curve) + 1), curve, marker="o", markersize=4,
              linestyle="--", label=name)
  axes.set_xlabel("display position")
  axes.set_ylabel("examination, relative to position 1")
  axes.set_ylim(bottom=0)
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  axes.legend()
  if title:
    axes.set_title(title)
  chart.savefig(path, dpi=120)
