"""A diagnosis as text, as plots, and as one HTML file that needs no other."""

import base64
import datetime
import html
import io
import os
import shlex

from matplotlib import figure
import numpy as np

from ultra_tfr import output
from ultra_tfr import version
from ultra_tfr.data.click_log import summary as summary_lib
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import evaluation
from ultra_tfr.fit_log import findings

PAGE = "report.html"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; color: #222;
       margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
img { max-width: 100%; }
pre { overflow-x: auto; background: #f6f6f6; padding: .8rem; font-size: 13px; }
table { border-collapse: collapse; font-size: 14px; display: block;
        overflow-x: auto; margin: .8rem 0; white-space: nowrap; }
th, td { border: 1px solid #ccc; padding: .2rem .5rem; text-align: right; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.warning { background: #fff3d6; border-left: 4px solid #e0a000;
           padding: .6rem .8rem; margin: .6rem 0; }
.alarm { background: #fdecea; border-left: 4px solid #c62828;
         padding: .6rem .8rem; margin: .6rem 0; }
.good { background: #e8f5e9; border-left: 4px solid #4caf50;
        padding: .6rem .8rem; }
"""
# Heading and explanation of each plot.
_ABOUT = {
    "curves": ("Examination by position",
               "Relative to the first position. Curves that agree support each "
               "other; EM's bars are sampling error only."),
    "rates": ("Feedback by position",
              "The share of rows with feedback: examination and relevance "
              "mixed."),
    "swaps": ("Items that changed positions",
              "Where items changed positions the log tells examination; dark "
              "pairs tell little."),
    "trust": ("Trust in positions",
              "The chance that of two examined items the one at the position "
              "of the row gets more feedback than that at the position of the "
              "column: trust_positive if it is the better one, trust_negative "
              "if it is not."),
    "history": ("Training",
                "By step: the log-likelihood of held-out clicks, and the "
                "ranker's self-normalised DCG on them."),
}
# The names of curves that are printed as text.
_PRINTED = {"trained": "EM", "em": "EM on this log", "all_pairs": "harvested",
            "randomized": "randomised"}
# The same, where the model was trained on another log.
_OF_ANOTHER_LOG = {"trained": "EM, the model's log"}
# The name of a curve that was given.
_FIXED = "given"
# There is room for so many positions in a line of text.
_MOST_PRINTED = 20
# So many positions side by side keep a table below 1,000 px.
_MOST_COLUMNS = 6
# An axis with larger values is logarithmic, or they would flatten the others.
_FLATTENS = 4.0
_BY_CONTEXT = ("curves", "rates", "trust")
# How each curve is drawn: label, colour, marker. All but "trained" get bars.
CURVES = {
    "trained": ("EM", "tab:blue", "o"),
    "em": ("EM, unsmoothed", "tab:cyan", "s"),
    "all_pairs": ("harvesting, all pairs", "tab:orange", "^"),
    "adjacent": ("harvesting, adjacent", "tab:brown", "v"),
    "pivot": ("harvesting, pivot", "tab:olive", "D"),
    "randomized": ("randomised rows", "black", "*"),
}
MOST_CONTEXTS = 6
# Larger matrices have no room for numbers.
_MOST_NUMBERS = 12


def write(folder, diagnosis, summary, level=0.9, heading=None):
  """Writes `report.html`, `diagnosis.json` and a PNG of each plot.

  Args:
    folder: a directory, made if need be.
    diagnosis: a `fit_log.diagnosis.Diagnosis`.
    summary: of the log, see `data.click_log.summary`.
    level: of its intervals.
    heading: the top of the page, a dict of texts by heading, see `about`.

  Returns:
    The path of the HTML file.
  """
  os.makedirs(folder, exist_ok=True)
  plots = _plots(diagnosis, summary, level)
  images = {}
  for name, chart in plots.items():
    buffer = io.BytesIO()
    chart.savefig(buffer, format="png", dpi=110)
    images[name] = buffer.getvalue()
    with output.new_file(os.path.join(folder, f"{name}.png"), "wb") as file:
      file.write(buffer.getvalue())
  output.write(os.path.join(folder, "diagnosis.json"),
               {"summary": summary, **diagnosis.to_json()})
  path = os.path.join(folder, PAGE)
  with output.new_file(path) as file:
    file.write(_page(diagnosis, summary, images, level, heading or {}))
  return path


def about(name, command):
  """Where a report comes from, for the top of its page.

  Args:
    name: of the log.
    command: that makes the report, a list of words.

  Returns:
    A dict of texts by heading.

  >>> about("log.csv", ["ultra-tfr", "diagnose", "--log=log.csv"])["command"]
  'ultra-tfr diagnose --log=log.csv'
  """
  now = datetime.datetime.now(datetime.timezone.utc)
  return {"log": name, "made": f"{now:%Y-%m-%d %H:%M} UTC",
          "by": f"ultra_tfr {version.__version__}",
          "command": shlex.join(command)}


def _page(diagnosis, summary, images, level, heading):
  parts = ["<h1>Position bias of the log</h1>"]
  if heading:
    rows = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(text)}</dd>"
                   for key, text in heading.items())
    parts.append(f"<dl>{rows}</dl>")
  clicks = diagnosis.click_prediction
  if diagnosis.warnings:
    alarms = click_prediction.warnings(clicks)
    parts += ['<p class="{}">{}</p>'.format(
        "alarm" if text in alarms else "warning", html.escape(text))
              for text in diagnosis.warnings]
  elif findings.is_sufficient(diagnosis):
    parts.append('<p class="good">Nothing speaks against debiasing.</p>')
  parts.append("<ul>")
  parts += [f"<li>{html.escape(text)}</li>" for text in diagnosis.sentences]
  parts.append("</ul>")
  if click_prediction.deciding_part(clicks):
    parts += ["<h2>Held-out clicks</h2><p>A fit that predicts them no better "
              "than click rates alone has learned nothing of positions.</p>",
              _table(click_prediction.to_rows(clicks))]
  if diagnosis.evaluation:
    parts += [f"<h2>The ranker</h2><p>On the test part, with {level:.0%} "
              "intervals: feedback as if shown at the first position. Of arp "
              "less is better.</p>",
              _table(*_blocks(evaluation.table(diagnosis.evaluation),
                              _MOST_COLUMNS // 2))]
  for name, image in images.items():
    encoded = base64.b64encode(image).decode("ascii")
    heading, text = _ABOUT[name]
    if name in _BY_CONTEXT and len(diagnosis.contexts) > MOST_CONTEXTS:
      text += (f" The first {MOST_CONTEXTS} of "
               f"{len(diagnosis.contexts)} contexts are drawn.")
    parts += [f"<h2>{heading}</h2><p>{text}</p>",
              f'<img alt="{name}" src="data:image/png;base64,{encoded}">']
    if name == "curves":
      names = labels(diagnosis)
      parts += [
          _table(*_blocks(_curve_rows(
              diagnosis.positions, found, context, names)))
          for context, found in diagnosis.contexts.items()]
    if name == "rates" and diagnosis.evidence:
      parts += [_table(*_blocks([
          [context, *diagnosis.positions],
          ["rows", *diagnosis.evidence["shown"][context]],
          ["with feedback", *clicked]]))
                for context, clicked in diagnosis.evidence["clicked"].items()]
  parts += ["<h2>The log</h2><pre>",
            html.escape(summary_lib.to_text(summary)), "</pre>"]
  body = "\n".join(parts)
  return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
          f"<title>Position bias</title><style>{_STYLE}</style></head>"
          f"<body>{body}</body></html>\n")


def _table(*blocks):
  """Blocks of rows as a table; first rows and first columns are headings."""
  lines = []
  for rows in blocks:
    for i, row in enumerate(rows):
      tags = ["th" if i == 0 or j == 0 else "td" for j in range(len(row))]
      lines.append("".join(f"<{tag}>{html.escape(str(cell))}</{tag}>"
                           for tag, cell in zip(tags, row)))
  body = "\n".join(f"<tr>{line}</tr>" for line in lines)
  return f"<table>{body}</table>"


def _blocks(rows, size=_MOST_COLUMNS):
  """Splits wide rows into blocks, one below the other, that fit on a screen."""
  return [[[row[0], *row[start:start + size]] for row in rows]
          for start in range(1, len(rows[0]), size)]


def _curve_rows(positions, found, context, names):
  """The curves of a context, with their intervals."""
  rows = [[context, *positions]]
  for kind, curve in found.items():
    cells = [names[kind]]
    for i, value in enumerate(curve["value"]):
      text = "-" if value is None else f"{value:.2f}"
      if curve["low"] is not None and i and value is not None:
        ends = ("?" if end is None else f"{end:.2f}"
                for end in (curve["low"][i], curve["high"][i]))
        text += f" ({' to '.join(ends)})"
      cells.append(text)
    rows.append(cells)
  return rows


def to_text(diagnosis, level=0.9):
  """The curves as a table, and what they mean.

  Args:
    diagnosis: a `fit_log.diagnosis.Diagnosis`.
    level: of its intervals.

  Returns:
    A text of several lines.
  """
  printed = {**_PRINTED, **_OF_ANOTHER_LOG}
  if diagnosis.is_own:
    # The model's own curve is that of this log.
    printed = {kind: _PRINTED[kind] for kind in _PRINTED if kind != "em"}
  if diagnosis.fixed_to:
    printed["trained"] = _FIXED
  rows = [["examination / first position",
           *map(str, diagnosis.positions[:_MOST_PRINTED])]]
  for context, found in diagnosis.contexts.items():
    for kind, name in printed.items():
      for part in ("value", "low", "high"):
        # EM's own interval comes from all requests.
        source = "em" if (kind == "trained" and part != "value" and
                          diagnosis.is_own) else kind
        values = found.get(source, {}).get(part) if kind in found else None
        if values is not None:
          rows.append([
              f"{context}, {name}" if part == "value" else
              f"  {level:.0%} interval, {part}",
              *("-" if value is None else f"{value:.2f}"
                for value in values[:_MOST_PRINTED])])
  return output.printable("\n".join([
      *output.align(rows), "", *diagnosis.sentences,
      *(f"WARNING: {text}" for text in diagnosis.warnings)]))


def _plots(diagnosis, summary, level):
  plots = {}
  if any(diagnosis.contexts.values()):
    plots["curves"] = curves(
        diagnosis.positions, diagnosis.contexts, level, labels(diagnosis))
  plots["rates"] = rates(diagnosis.positions, summary["by_position"])
  if diagnosis.swap_counts is not None:
    plots["swaps"] = swaps(diagnosis.positions, diagnosis.swap_counts)
  if diagnosis.trust:
    shown = list(diagnosis.contexts)[:MOST_CONTEXTS]
    plots["trust"] = matrices(
        {name if len(shown) == 1 else f"{name}, {context}": tables[c]
         for c, context in enumerate(shown)
         for name, tables in diagnosis.trust.items()}, diagnosis.positions)
  lines = {title: diagnosis.history[name] for name, title in (
      ("val_log_likelihood", "log-likelihood of held-out clicks"),
      ("val_snips_dcg@10", "SNIPS DCG@10 of held-out clicks"))
           if diagnosis.history.get(name)}
  if lines:
    plots["history"] = history(lines, diagnosis.history["step"][0])
  return plots


def labels(diagnosis):
  """What each kind of curve is called in a report: a dict."""
  names = {kind: label for kind, (label, *_) in CURVES.items()}
  if not diagnosis.is_own:
    names.update(_OF_ANOTHER_LOG, em=_PRINTED["em"])
  if diagnosis.fixed_to:
    names["trained"] = _FIXED
  return names


def curves(positions, contexts, level=0.9, names=None):
  """Examination by position, a panel for each context.

  Args:
    positions: as in the log, in order.
    contexts: `Diagnosis.contexts`; the first six are drawn.
    level: of the intervals.
    names: of the kinds of curves, see `labels`; None for a model's own log.

  Returns:
    A matplotlib figure.
  """
  shown = list(contexts.items())[:MOST_CONTEXTS]
  chart, panels = _panels(len(shown), _width(positions), 4.2)
  ticks, keys = np.arange(len(positions)), {}
  for axes, (name, found) in zip(panels, shown):
    for i, (kind, curve) in enumerate(found.items()):
      label, color, marker = CURVES[kind]
      label = label if names is None else names[kind]
      value, low, high = (
          np.array(curve[part] or curve["value"], np.float64)
          for part in ("value", "low", "high"))
      # A percentile interval need not hold the value.
      bars = np.maximum(np.nan_to_num([value - low, high - value]), 0.0)
      # A little aside, so that bars do not hide each other.
      keys[label] = axes.errorbar(
          ticks + 0.08 * (i - 1), value, bars, color=color, marker=marker,
          markersize=4, capsize=2,
          linestyle="-" if kind == "trained" else "none")
    axes.set_title(name, parse_math=False)
    if _highest(found) > _FLATTENS:
      axes.set_yscale("log")
    else:
      axes.set_ylim(bottom=0)
    _name_positions(axes, positions)
    axes.set_ylabel("examination, relative to the first")
    axes.grid(alpha=0.3)
  panels[0].legend(keys.values(), keys, fontsize="small",
                   title=f"bars: {level:.0%} intervals",
                   title_fontsize="small")
  return chart


def _highest(found):
  """The highest number of the curves of a context, ends included."""
  ends = [curve[part] or [] for curve in found.values()
          for part in ("value", "low", "high")]
  return max((value for values in ends for value in values
              if value is not None), default=0.0)


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
  size = 5.2 if len(positions) <= 20 else 7.5
  chart, panels = _panels(len(tables), size, 0.87 * size)
  for axes, (title, values) in zip(panels, tables.items()):
    values = np.array(values, np.float64)
    np.fill_diagonal(values, np.nan)
    image = axes.imshow(np.log10(1 + values) if logarithmic else values, vmin=0)
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


def _panels(count, width, height):
  """A figure of so many panels in two columns, their sizes in inches."""
  columns, rows = min(2, count), (count + 1) // 2
  chart = figure.Figure(figsize=(width * columns, height * rows),
                        layout="constrained")
  panels = chart.subplots(rows, columns, squeeze=False).ravel()
  for axes in panels[count:]:
    axes.set_axis_off()
  return chart, panels[:count]


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
