"""Tests of ultra_tfr.fit_log.report."""

import base64
import dataclasses
import html.parser
import io
import json
import os
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest

import click_logs
from ultra_tfr import version
from ultra_tfr.evaluation import harvesting
from ultra_tfr.fit_log import diagnosis
from ultra_tfr.fit_log import report

# What breaks pages, legends and formulas.
ODD = ["<script>alert(1)</script>", "_hidden", "$\\frac{$", "a & b", 'say "x"',
       "100 %", "last", "eighth"]


class _Page(html.parser.HTMLParser):
  """Collects what a page refers to, and its text."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.references, self.words = [], [], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    self.references += [value for name, value in attrs
                        if name in ("src", "href", "srcset", "data", "action")]

  def handle_data(self, data):
    self.words.append(data)


@pytest.fixture(scope="module")
def easy():
  log, fitted = click_logs.easy()
  return diagnosis.diagnose(log, fitted, replicates=20), log.summary


def _made(contexts, positions, trust=False):
  """A made-up diagnosis and summary with so many contexts and positions."""
  size = len(positions)
  value = (1 / np.arange(1, size + 1)).tolist()
  curve = {"value": value, "low": [v * .9 for v in value],
           "high": [None] * size}
  curves = {kind: curve for kind in ("em", *harvesting.CURVES)}
  curves["trained"] = {"value": value, "low": None, "high": None}
  found = diagnosis.Diagnosis(
      method="unbiased", positions=positions,
      contexts={name: curves for name in contexts},
      swap_counts=np.arange(size * size).reshape(size, size),
      num_items=np.arange(size),
      num_swap_clicks=np.arange(size), components=np.zeros(size, int),
      logger_strength={"value": float("nan"), "low": float("nan"), "high": 1.0},
      trust={name: np.full((len(contexts), size, size), share)
             for name, share in (("trust_positive", .9),
                                 ("trust_negative", .1))} if trust else {},
      click_irrelevant={}, history={}, num_requests=7, num_items_clicked=3,
      effective_sample_size=2.0, weight_clipped=None,
      sentences=[f"It is {name}." for name in contexts],
      warnings=[f"Beware of {name}." for name in contexts])
  cells = {"shown": [1] * size, "clicked": [1] * size, "with_feedback": value,
           "mean_feedback": value}
  return found, {**click_logs.easy()[0].summary, "positions": positions,
                 "by_position": {name: cells for name in contexts}}


def _refuse(constant):
  raise AssertionError(f"{constant} is no JSON")


def _check(folder, names):
  """Checks the files of a report, and returns the page and the JSON."""
  assert sorted(os.listdir(folder)) == sorted(
      [*(f"{name}.png" for name in names), "diagnosis.json", "report.html"])
  with open(folder / "report.html", encoding="utf-8") as file:
    text = file.read()
  page = _Page(text)
  assert not {"script", "link", "iframe", "object"} & set(page.tags)
  assert not re.search(r"@import|url\(|https?:", text)
  start = "data:image/png;base64,"
  assert len(page.references) == len(names) == page.tags.count("img")
  for name, reference in zip(names, page.references):
    assert reference.startswith(start)
    image = (folder / f"{name}.png").read_bytes()
    assert base64.b64decode(reference[len(start):]) == image
    pixels = matplotlib.image.imread(io.BytesIO(image))
    assert min(pixels.shape[:2]) > 250 and pixels[..., :3].std() > 0
  with open(folder / "diagnosis.json", encoding="utf-8") as file:
    return page, json.load(file, parse_constant=_refuse)


def test_report_of_an_easy_log(easy, tmp_path):
  found, summary = easy
  path = report.write(str(tmp_path / "new" / "report"), found, summary)
  assert path == str(tmp_path / "new" / "report" / "report.html")
  page, written = _check(tmp_path / "new" / "report",
                         ["curves", "rates", "swaps", "history"])
  text = " ".join(page.words)
  for sentence in found.sentences:
    assert sentence in text
  assert "Nothing speaks against debiasing." in text
  assert written == {"summary": summary, **found.to_json()}
  # Once more over it.
  assert report.write(os.path.dirname(path), found, summary) == path


@pytest.mark.parametrize("contexts, positions, trust", [
    (ODD, [1, 2, 3], True), (["all"], list(range(1, 61)), True),
    (["a", "_b", "$c_{$"], ["top", "<main>", "$side_{$", "_x"], False),
    (["all"], [1, 2], False)])
def test_reports_of_odd_logs(contexts, positions, trust, tmp_path):
  found, summary = _made(contexts, positions, trust)
  report.write(str(tmp_path), found, summary)
  names = ["curves", "rates", "swaps", *(["trust"] if trust else [])]
  page, written = _check(tmp_path, names)
  text = "".join(page.words)
  for name in contexts:
    assert f"Beware of {name}." in text and f"It is {name}." in text
  for name in positions:
    assert str(name) in text
  assert list(written["contexts"]) == contexts
  assert written["logger_strength"] == {"value": None, "low": None,
                                        "high": 1.0}
  told = "The first 6 of 8 contexts are drawn." in text
  assert told == (len(contexts) == 8)
  # All contexts have a table.
  assert page.tags.count("table") == len(contexts)


def test_without_items_and_validation(tmp_path):
  found, summary = _made(["all"], [1, 2, 3])
  found = dataclasses.replace(
      found, swap_counts=None, history={"step": [1], "loss": [2.0]})
  report.write(str(tmp_path), found, summary)
  _check(tmp_path, ["curves", "rates"])


def test_cells_of_the_table(tmp_path):
  found, summary = _made(["all"], [1, 2, 3])
  curve = {"value": [1.0, .5, None], "low": [1.0, .25, None],
           "high": [1.0, None, None]}
  found = dataclasses.replace(found, contexts={"all": {"em": curve}})
  report.write(str(tmp_path), found, summary)
  text = (tmp_path / "report.html").read_text(encoding="utf-8")
  assert ("<tr><th>EM, unsmoothed</th><td>1.00</td>"
          "<td>0.50 (0.25 to ?)</td><td>-</td></tr>") in text


def test_wide_tables_show_all_positions_below_each_other(tmp_path):
  """At 1,000 px the right half of the positions was not to be seen."""
  found, summary = _made(["all"], list(range(1, 61)))
  report.write(str(tmp_path), found, summary)
  text = (tmp_path / "report.html").read_text(encoding="utf-8")
  rows = re.findall("<tr>(.*?)</tr>", text)
  assert all(len(re.findall("<t[hd]>", row)) <= 7 for row in rows)
  heads = [re.findall("<th>(.*?)</th>", row)[1:] for row in rows
           if row.startswith("<th>all</th>")]
  assert sum(heads, []) == [str(k) for k in range(1, 61)]


def test_a_browser_shows_the_page_without_a_complaint(tmp_path):
  """Seen only where there is a browser, as in CI."""
  browser = shutil.which("chromium")
  if browser is None:
    return
  report.write(str(tmp_path), *_made(ODD, list(range(1, 61)), trust=True))
  done = subprocess.run(
      [browser, "--headless", "--no-sandbox", "--disable-gpu",
       "--disable-background-networking", "--enable-logging=stderr",
       f"--user-data-dir={tmp_path / 'browser'}", "--window-size=1000,3000",
       # Whatever would leave the file fails, and is a complaint.
       "--host-resolver-rules=MAP * ~NOTFOUND",
       f"--screenshot={tmp_path / 'seen.png'}",
       (tmp_path / "report.html").as_uri()],
      capture_output=True, text=True, timeout=200, check=True)
  assert "CONSOLE" not in done.stderr and "net_error" not in done.stderr
  seen = matplotlib.image.imread(tmp_path / "seen.png")
  assert seen.shape[:2] == (3000, 1000)
  assert (seen[..., :3].std(axis=(1, 2)) > 0).mean() > 0.3


def test_where_a_report_comes_from(tmp_path):
  """Nobody could tell two reports apart."""
  found, summary = _made(["all"], [1, 2, 3])
  about = report.about("<log>.csv", ["ultra-tfr", "diagnose", "--log=a b.csv"])
  report.write(str(tmp_path), found, summary, heading=about)
  page, _ = _check(tmp_path, ["curves", "rates", "swaps"])
  text = " ".join(page.words)
  assert "<log>.csv" in text and "ultra-tfr diagnose '--log=a b.csv'" in text
  assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", text)
  assert "ultra_tfr " + version.__version__ in text


def test_counts_and_the_ranker_beside_the_order_shown(tmp_path):
  found, summary = _made(["all"], [1, 2, 3])
  estimate = {"value": 0.25, "low": 0.125, "high": None}
  estimates = dict.fromkeys(
      ("dcg@10", "snips_dcg@10", "ndcg@10", "snips_mrr@10", "arp"), estimate)
  found = dataclasses.replace(
      found, evidence={"shown": {"all": [700, 600, 500]},
                       "clicked": {"all": [71, 61, 51]},
                       "informative_requests": 17},
      evaluation={"logged order": {"estimates": estimates,
                                   "judgement": None},
                  "unbiased": {"estimates": estimates, "judgement": None,
                               "minus_logged": estimates}})
  report.write(str(tmp_path), found, summary)
  text = (tmp_path / "report.html").read_text(encoding="utf-8")
  assert ("<tr><th>with feedback</th><td>71</td><td>61</td><td>51</td></tr>"
          in text)
  assert "<tr><th>rows</th><td>700</td><td>600</td><td>500</td></tr>" in text
  assert "<tr><th>unbiased - logged</th><td>+0.2500 [+0.1250, ?]</td>" in text


@pytest.mark.parametrize("top, scale", [(747.0, "log"), (2.0, "linear")])
def test_one_value_does_not_flatten_the_rest(top, scale):
  curve = {"value": [1.0, top, 0.0], "low": [1.0, .5, 0.0],
           "high": [1.0, None, None]}
  chart = report.curves([1, 2, 3], {"all": {"em": curve}})
  assert chart.axes[0].get_yscale() == scale
  chart.savefig(io.BytesIO(), format="png")


def test_a_model_of_another_log_is_called_so(tmp_path):
  """Its curve was printed as that of the log that was diagnosed."""
  found, summary = _made(["all"], [1, 2, 3])
  found = dataclasses.replace(found, is_own=False)
  lines = report.to_text(found).splitlines()
  assert any(line.startswith("all, EM, the model's log ") for line in lines)
  assert any(line.startswith("all, EM on this log ") for line in lines)
  report.write(str(tmp_path), found, summary)
  page, _ = _check(tmp_path, ["curves", "rates", "swaps"])
  assert {"EM, the model's log", "EM on this log"} <= set(page.words)
  assert not {"EM", "EM, unsmoothed"} & set(page.words)


def test_without_model_and_curves(tmp_path):
  found, summary = _made(["all"], [1, 2, 3])
  found = dataclasses.replace(
      found, method=None, is_own=False, contexts={"all": {}}, warnings=[],
      swap_counts=None, logger_strength={}, effective_sample_size=None)
  report.write(str(tmp_path), found, summary)
  page, _ = _check(tmp_path, ["rates"])
  assert "Nothing speaks against" not in " ".join(page.words)


# As text.


def test_text(easy):
  found, _ = easy
  lines = report.to_text(found).splitlines()
  assert lines[0].split() == [
      "examination", "/", "first", "position", "1", "2", "3", "5", "8"]
  assert len({len(line) for line in lines[:19]}) == 1
  rows = [line.split() for line in lines[1:19]]
  assert [row[:2] for row in rows if row[0] != "90%"] == [
      [f"{device},", name] for device in ("desktop", "mobile")
      for name in ("EM", "harvested", "randomised")]
  assert rows[0][2:] == [
      f"{v:.2f}" for v in found.contexts["desktop"]["trained"]["value"]]
  # No curve is without its interval, EM's by all requests.
  for row, part in zip(rows[1:3], ("low", "high")):
    assert row == ["90%", "interval,", part, *(
        f"{v:.2f}" for v in found.contexts["desktop"]["em"][part])]
  curve = found.contexts["mobile"]["all_pairs"]
  for row, start, part in zip(rows[12:15], (
      ["mobile,", "harvested"], ["90%", "interval,", "low"],
      ["90%", "interval,", "high"]), ("value", "low", "high")):
    assert row == [*start, *(f"{v:.2f}" for v in curve[part])]
  assert lines[19:] == ["", *found.sentences]


def test_text_of_a_large_log():
  found, _ = _made(["all"], list(range(1, 61)))
  lines = report.to_text(found).splitlines()
  assert lines[0].split()[-1] == "20"
  assert len(lines[1].split()) == 22
  assert lines[-1] == "WARNING: Beware of all."


# Plots.


def test_curves_are_drawn(easy):
  found, _ = easy
  chart = report.curves(found.positions, found.contexts, 0.9)
  assert [axes.get_title() for axes in chart.axes] == ["desktop", "mobile"]
  for axes, curves in zip(chart.axes, found.contexts.values()):
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "1", "2", "3", "5", "8"]
    for bars, curve in zip(axes.containers, curves.values()):
      line, _, (segments,) = bars
      np.testing.assert_allclose(line.get_ydata(), curve["value"])
      ends = np.array([s[:, 1] for s in segments.get_segments()])
      for end, values in zip(ends.T, (curve["low"], curve["high"])):
        if values is not None:
          np.testing.assert_allclose(end, values, atol=1e-9)
  texts = [t.get_text() for t in chart.axes[0].get_legend().get_texts()]
  assert len(texts) == 6 and "randomised rows" in texts


def test_a_bar_never_points_the_wrong_way():
  # The value need not be inside of its interval, and an end may be unknown.
  curve = {"value": [1.0, .5, .3], "low": [1.0, .6, .2],
           "high": [1.0, .7, None]}
  chart = report.curves([1, 2, 3], {"all": {"em": curve}})
  _, _, (segments,) = chart.axes[0].containers[0]
  np.testing.assert_allclose(
      [s[:, 1] for s in segments.get_segments()],
      [[1, 1], [.5, .7], [.2, .3]])


def test_a_curve_that_only_a_later_context_has_is_in_the_legend():
  curve = {"value": [1.0, .5], "low": [1.0, .4], "high": [1.0, .6]}
  chart = report.curves([1, 2], {"a": {"em": curve},
                                    "b": {"randomized": curve}})
  assert [t.get_text() for t in chart.axes[0].get_legend().get_texts()] == [
      "EM, unsmoothed", "randomised rows"]


@pytest.mark.parametrize("contexts, titles", [
    (ODD, [f"{name}, {context}" for context in ODD[:6]
           for name in ("trust_positive", "trust_negative")]),
    (["all"], ["trust_positive", "trust_negative"])])
def test_trust_of_at_most_six_contexts_is_drawn(contexts, titles):
  chart = report._plots(*_made(contexts, [1, 2], trust=True), 0.9)["trust"]
  assert [axes.get_title() for axes in chart.axes if axes.get_title()] == titles


@pytest.mark.parametrize("count, panels", [(1, 1), (3, 3), (8, 6)])
def test_at_most_six_contexts_are_drawn(count, panels):
  found, summary = _made(ODD[:count], [1, 2, 3])
  chart = report.curves(found.positions, found.contexts)
  titles = [axes.get_title() for axes in chart.axes if axes.axison]
  assert titles == ODD[:panels]
  chart = report.rates(found.positions, summary["by_position"])
  assert [t.get_text() for t in chart.axes[0].get_legend().get_texts()] == (
      ODD[:panels])
  assert len(chart.axes[0].lines) == panels


@pytest.mark.parametrize("size", [4, 12, 13, 50])
def test_swaps(size):
  counts = np.random.default_rng(0).integers(0, 30000, (size, size))
  counts[0, 1] = 0
  chart = report.swaps([f"p{i}" for i in range(size)], counts)
  axes = chart.axes[0]
  drawn = axes.images[0].get_array()
  off = ~np.eye(size, dtype=bool)
  np.testing.assert_allclose(drawn[off], np.log10(1 + counts)[off])
  assert np.ma.getmaskarray(np.ma.masked_invalid(drawn))[~off].all()
  texts = {(t.get_position()[1], t.get_position()[0]): t.get_text()
           for t in axes.texts}
  assert len(texts) == (size * (size - 1) if size <= 12 else 0)
  for (i, j), text in texts.items():
    count = counts[i, j]
    assert text == (f"{count}" if count < 10000 else
                    f"{count / 1000:.0f}k")
  assert axes.get_yticklabels()[0].get_text() == "p0"


def test_matrices_of_shares():
  tables = {f"t{i}": np.array([[1, .25 * i], [.5, 1]]) for i in range(3)}
  chart = report.matrices(tables, [1, 2])
  shown = [axes for axes in chart.axes if axes.images and axes.get_title()]
  assert [axes.get_title() for axes in shown] == ["t0", "t1", "t2"]
  assert [t.get_text() for t in shown[1].texts] == ["0.25", "0.50"]


@pytest.mark.parametrize("between, steps", [
    (50, [50, 100, 150]), (None, [1, 2, 3])])
def test_history(between, steps):
  chart = report.history({"a": [1, None, 3], "b": [2, 2, 2]}, between)
  for axes, values in zip(chart.axes, ([1, np.nan, 3], [2, 2, 2])):
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), steps)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), values)
    assert axes.get_xlabel() == ("training step" if between else "validation")
