"""Plots of a diagnosis, as matplotlib figures."""

from matplotlib import figure
import numpy as np

# How each curve is drawn: label, colour, marker. All but "trained" get bars.
CURVES = {
    "trained": ("EM, end of training", "tab:blue", "o"),
    "em": ("EM, relevance fixed", "tab:cyan", "s"),
    "all_pairs": ("harvesting, all pairs", "tab:orange", "^"),
    "adjacent": ("harvesting, adjacent", "tab:brown", "v"),
    "pivot": ("harvesting, pivot", "tab:olive", "D"),
    "randomized": ("randomised rows", "black", "*"),
}
MOST_CONTEXTS = 6
# Larger matrices have no room for numbers.
_MOST_NUMBERS = 12


def curves(positions, contexts, level=0.9):
  """Examination by position, a panel for each context.

  Args:
    positions: as in the log, in order.
    contexts: `Diagnosis.contexts`; the first six are drawn.
    level: of the intervals.

  Returns:
    A matplotlib figure.
  """
  shown = list(contexts.items())[:MOST_CONTEXTS]
  columns, rows = min(2, len(shown)), (len(shown) + 1) // 2
  chart = figure.Figure(figsize=(_width(positions) * columns, 4.2 * rows),
                        layout="constrained")
  panels = chart.subplots(rows, columns, squeeze=False).ravel()
  for axes in panels[len(shown):]:
    axes.set_axis_off()
  places, keys = np.arange(len(positions)), {}
  for axes, (name, found) in zip(panels, shown):
    for i, (kind, curve) in enumerate(found.items()):
      label, color, marker = CURVES[kind]
      value, low, high = (
          np.array(curve[part] or curve["value"], np.float64)
          for part in ("value", "low", "high"))
      # A percentile interval need not hold the value.
      bars = np.maximum(np.nan_to_num([value - low, high - value]), 0.0)
      # A little aside, so that bars do not hide each other.
      keys[label] = axes.errorbar(
          places + 0.08 * (i - 1), value, bars, color=color, marker=marker,
          markersize=4, capsize=2,
          linestyle="-" if kind == "trained" else "none")
    axes.set_title(name, parse_math=False)
    axes.set_ylim(bottom=0)
    _name_positions(axes, positions)
    axes.set_ylabel("examination, relative to the first")
    axes.grid(alpha=0.3)
  panels[0].legend(keys.values(), keys, fontsize="small",
                   title=f"bars: {level:.0%} intervals",
                   title_fontsize="small")
  return chart


def rates(positions, by_position):
  """Share of rows with feedback by position, a line for each context.

  Args:
    positions: as in the log, in order.
    by_position: `by_position` of a log's summary; the first six are drawn.

  Returns:
    A matplotlib figure.
  """
  chart = figure.Figure(figsize=(_width(positions), 4), layout="constrained")
  axes = chart.subplots()
  shown = list(by_position.items())[:MOST_CONTEXTS]
  for _, cells in shown:
    axes.plot(np.array(cells["with_feedback"], np.float64), marker="o",
              markersize=4)
  axes.set_ylim(bottom=0)
  axes.set_ylabel("share of rows with feedback")
  _name_positions(axes, positions)
  axes.grid(alpha=0.3)
  legend = axes.legend(axes.lines, range(len(shown)), fontsize="small")
  for text, (name, _) in zip(legend.get_texts(), shown):
    # Afterwards, as a legend leaves out names that begin with "_".
    text.set_parse_math(False)
    text.set_text(name)
  return chart


def swaps(positions, counts):
  """How many items were seen at both of two positions.

  Args:
    positions: as in the log, in order.
    counts: `[K, K]`.

  Returns:
    A matplotlib figure.
  """
  return matrices({"items seen at both positions": counts}, positions,
                  logarithmic=True)


def matrices(tables, positions, logarithmic=False):
  """Tables by pair of positions, a panel each, without the diagonal.

  Args:
    tables: a dict of `[K, K]` by title.
    positions: as in the log, in order.
    logarithmic: the tables are counts: colour by the logarithm of 1 + value.

  Returns:
    A matplotlib figure.
  """
  columns, rows = min(2, len(tables)), (len(tables) + 1) // 2
  size = 5.2 if len(positions) <= 20 else 7.5
  chart = figure.Figure(figsize=(size * columns, 0.87 * size * rows),
                        layout="constrained")
  panels = chart.subplots(rows, columns, squeeze=False).ravel()
  for axes, (title, values) in zip(panels, tables.items()):
    values = np.array(values, np.float64)
    np.fill_diagonal(values, np.nan)
    image = axes.imshow(np.log10(1 + values) if logarithmic else values,
                        vmin=0)
    _name_positions(axes, positions)
    axes.set_yticks(axes.get_xticks(), [text.get_text() for text in
                                        axes.get_xticklabels()],
                    parse_math=False)
    axes.set_ylabel("position")
    axes.set_title(title, parse_math=False)
    bar = chart.colorbar(image, ax=axes)
    if logarithmic:
      ticks = 10 ** np.arange(1 + int(image.norm.vmax))
      bar.set_ticks([0, *np.log10(1 + ticks)], labels=[0, *ticks])
    if len(positions) <= _MOST_NUMBERS:
      _write_numbers(axes, image, values, logarithmic)
  return chart


def history(values, steps_between=None):
  """Numbers that training logged, a panel each.

  Args:
    values: a dict of lists: a number for each validation.
    steps_between: steps between two validations, or None.

  Returns:
    A matplotlib figure.
  """
  chart = figure.Figure(figsize=(4.5 * len(values), 3.4), layout="constrained")
  panels = chart.subplots(1, len(values), squeeze=False)[0]
  for axes, (name, line) in zip(panels, values.items()):
    steps = (np.arange(len(line)) + 1) * (steps_between or 1)
    axes.plot(steps, np.array(line, np.float64), marker="o", markersize=3)
    axes.set_title(name)
    axes.set_xlabel("training step" if steps_between else "validation")
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(alpha=0.3)
  return chart


def _write_numbers(axes, image, values, are_counts):
  middle = image.norm.vmax / 2
  shades = image.get_array()
  for i, j in zip(*np.nonzero(np.isfinite(values))):
    value = values[i, j]
    text = f"{value:.2f}" if not are_counts else (
        f"{value:.0f}" if value < 10000 else f"{value / 1000:.0f}k")
    axes.text(j, i, text, ha="center", va="center", fontsize=7,
              color="black" if shades[i, j] > middle else "white")


def _width(positions):
  """Inches of a plot with so many positions."""
  return float(np.clip(0.3 * len(positions), 6.5, 16.0))


def _name_positions(axes, positions):
  """Ticks with the positions' names, as many as can be read."""
  every = -(-len(positions) // 20)
  names = [str(position) for position in positions[::every]]
  axes.set_xticks(np.arange(len(positions))[::every], names)
  if max(map(len, names)) > 4:
    axes.tick_params(axis="x", labelrotation=45)
  for text in axes.get_xticklabels():
    text.set_parse_math(False)
  axes.set_xlabel("position")
