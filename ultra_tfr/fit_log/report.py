"""A diagnosis as one HTML file that needs no other, with PNG and JSON."""

import base64
import html
import io
import os

from ultra_tfr import output
from ultra_tfr.data.click_log import summary as summary_lib
from ultra_tfr.evaluation import log_plots
from ultra_tfr.experiments import tables as tables_lib

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; color: #222;
       margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
img { max-width: 100%; }
pre { overflow-x: auto; background: #f6f6f6; padding: .8rem; font-size: 13px; }
table { border-collapse: collapse; font-size: 14px; display: block;
        overflow-x: auto; margin: .8rem 0; white-space: nowrap; }
th, td { border: 1px solid #ccc; padding: .2rem .5rem; text-align: right; }
.warning { background: #fff3d6; border-left: 4px solid #e0a000;
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
# Curves that are printed, and the positions there is room for.
_PRINTED = {"trained": "EM", "all_pairs": "harvested",
            "randomized": "randomised"}
_MOST_PRINTED = 20
_BY_CONTEXT = ("curves", "rates", "trust")


def write(folder, diagnosis, summary, level=0.9):
  """Writes `report.html`, `diagnosis.json` and a PNG of each plot.

  Args:
    folder: a directory, made if need be.
    diagnosis: a `fit_log.diagnosis.Diagnosis`.
    summary: of the log, see `data.log_summary`.
    level: of its intervals.

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
    with open(os.path.join(folder, f"{name}.png"), "wb") as file:
      file.write(buffer.getvalue())
  output.write(os.path.join(folder, "diagnosis.json"),
                   {"summary": summary, **diagnosis.to_json()})
  path = os.path.join(folder, "report.html")
  with open(path, "w", encoding="utf-8") as file:
    file.write(_page(diagnosis, summary, images))
  return path


def to_text(diagnosis):
  """The curves as a table, and what they mean.

  Args:
    diagnosis: a `fit_log.diagnosis.Diagnosis`.

  Returns:
    A text of several lines.
  """
  rows = [["examination / first position",
           *map(str, diagnosis.positions[:_MOST_PRINTED])]]
  for context, curves in diagnosis.contexts.items():
    rows += [
        [f"{context}, {name}", *(
            "-" if value is None else f"{value:.2f}"
            for value in curves[kind]["value"][:_MOST_PRINTED])]
        for kind, name in _PRINTED.items() if kind in curves]
  return "\n".join([
      *tables_lib.align(rows), "", *diagnosis.sentences,
      *(f"WARNING: {text}" for text in diagnosis.warnings)])


def _plots(diagnosis, summary, level):
  plots = {
      "curves": log_plots.curves(
          diagnosis.positions, diagnosis.contexts, level),
      "rates": log_plots.rates(diagnosis.positions, summary["by_position"])}
  if diagnosis.swap_counts is not None:
    plots["swaps"] = log_plots.swaps(
        diagnosis.positions, diagnosis.swap_counts)
  if diagnosis.trust:
    plots["trust"] = log_plots.matrices(
        {_trust_title(name, context, diagnosis.contexts): tables[c]
         for c, context in enumerate(diagnosis.contexts)
         if c < log_plots.MOST_CONTEXTS
         for name, tables in diagnosis.trust.items()}, diagnosis.positions)
  shown = {title: diagnosis.history[name] for name, title in (
      ("val_log_likelihood", "log-likelihood of held-out clicks"),
      ("val_snips_dcg@10", "SNIPS DCG@10 of held-out clicks"))
           if diagnosis.history.get(name)}
  if shown:
    plots["history"] = log_plots.history(shown, diagnosis.history["step"][0])
  return plots


def _trust_title(name, context, contexts):
  return name if len(contexts) == 1 else f"{name}, {context}"


def _page(diagnosis, summary, images):
  parts = ["<h1>Position bias of the log</h1>"]
  if diagnosis.warnings:
    parts += [f'<p class="warning">{html.escape(text)}</p>'
              for text in diagnosis.warnings]
  else:
    parts.append('<p class="good">Nothing speaks against debiasing.</p>')
  parts.append("<ul>")
  parts += [f"<li>{html.escape(text)}</li>" for text in diagnosis.sentences]
  parts.append("</ul>")
  for name, image in images.items():
    encoded = base64.b64encode(image).decode("ascii")
    heading, text = _ABOUT[name]
    if name in _BY_CONTEXT and len(diagnosis.contexts) > (
        log_plots.MOST_CONTEXTS):
      text += (f" The first {log_plots.MOST_CONTEXTS} of "
               f"{len(diagnosis.contexts)} contexts are drawn.")
    parts += [f"<h2>{heading}</h2><p>{text}</p>",
              f'<img alt="{name}" src="data:image/png;base64,{encoded}">']
    if name == "curves":
      parts += [_table(diagnosis.positions, curves, context)
                for context, curves in diagnosis.contexts.items()]
  parts += ["<h2>The log</h2><pre>",
            html.escape(summary_lib.to_text(summary)), "</pre>"]
  body = "\n".join(parts)
  return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
          f"<title>Position bias</title><style>{_STYLE}</style></head>"
          f"<body>{body}</body></html>\n")


def _table(positions, curves, context):
  rows = ["".join(f"<th>{html.escape(str(cell))}</th>"
                  for cell in [context, *positions])]
  for kind, curve in curves.items():
    cells = [f"<th>{log_plots.CURVES[kind][0]}</th>"]
    for i, value in enumerate(curve["value"]):
      text = "-" if value is None else f"{value:.2f}"
      if curve["low"] is not None and i and value is not None:
        ends = ("?" if end is None else f"{end:.2f}"
                for end in (curve["low"][i], curve["high"][i]))
        text += f" ({' to '.join(ends)})"
      cells.append(f"<td>{text}</td>")
    rows.append("".join(cells))
  lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
  return f"<table>{lines}</table>"
