"""A row with something wrong in it is left out, and written down."""

import csv
import errno
import json
import os
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet
import pytest

from ultra_tfr.data.click_log import requests
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

COLUMNS = LogColumns("q", "p", "c", ("f", "s"), context="d", item="i",
                     weight="w", timestamp="t", randomized="r", numbers="f")
FREE = {"valid": 0, "test": 0, "max_rejected": 1}
# A column, what stands there, and what is said of it.
BAD = [
    ("q", None, "no request id in q"),
    ("q", "", "no request id in q"),
    ("p", None, "p is missing"),
    ("p", "first", "p is no number"),
    ("p", -1, "p is no whole number from 0"),
    ("p", 1.5, "p is no whole number from 0"),
    ("p", 2e9, "p is no whole number from 0"),
    ("p", "inf", "p is infinite"),
    ("c", None, "the feedback is missing"),
    ("c", -1, "the feedback is negative"),
    ("c", "inf", "the feedback is infinite"),
    ("c", 1e39, "the feedback is infinite"),
    ("c", "yes", "c is no number"),
    ("f", "one", "f is no number"),
    ("f", "-inf", "f is infinite"),
    ("f", 1e39, "f is infinite"),
    ("w", None, "w is missing"),
    ("w", -.5, "a negative w"),
    ("w", "inf", "w is infinite"),
    ("w", "heavy", "w is no number"),
    ("t", None, "no time in t"),
    ("t", "yesterday", "no time in t"),
    ("t", "inf", "no time in t"),
    ("d", None, "d is missing"),
    ("r", None, "r is missing"),
    ("r", "perhaps", "r is no number"),
]
FIRST_ROW = {"csv": 2, "jsonl": 1, "parquet": 1, "frame": 1}


def _rows(requests=20):
  return [{"q": f"q{i // 3}", "p": i % 3 + 1, "c": i % 2, "f": i / 10,
           "s": "ab"[i % 2], "d": "phone", "i": f"i{i}", "w": 2, "t": i,
           "r": False} for i in range(3 * requests)]


def _write(rows, folder, form):
  """A log of rows as a file, or as a frame with object columns."""
  if form == "frame":
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=(
        object)) for name in rows[0]})
  path = folder / f"log.{form}"
  if form == "parquet":
    # Columns of one type, as text where there are several.
    parquet.write_table(pa.table({name: sources._series(pd.Series(
        [row[name] for row in rows], dtype=object)) for name in rows[0]}), path)
    return path
  with open(path, "w", newline="", encoding="utf-8") as file:
    if form == "csv":
      writer = csv.DictWriter(file, rows[0])
      writer.writeheader()
      writer.writerows(rows)
    else:
      file.writelines(json.dumps(row) + "\n" for row in rows)
  return path


def _rejected(path):
  with open(path, newline="", encoding="utf-8") as file:
    header, *rows = csv.reader(file)
  assert header == ["source", "row", "reason"]
  return [(source, int(row), reason) for source, row, reason in rows]


def _kept(log):
  """The items of each request."""
  return sorted(
      tuple(batch.items[i, batch.positions[i] > 0].tolist())
      for part in log.parts.values() for batch in part.batches(4)
      for i in range(len(batch.requests)))


@pytest.mark.parametrize("form", FIRST_ROW)
@pytest.mark.parametrize("column, value, reason", BAD)
def test_one_bad_row(column, value, reason, form, tmp_path):
  rows = _rows()
  right = read_click_log(_write(rows[:31] + rows[32:], tmp_path, form), COLUMNS,
                         **FREE)
  rows[31] = {**rows[31], column: value}
  log = _write(rows, tmp_path, form)
  with read_click_log(log, COLUMNS, rejected_file=tmp_path / "rejected.csv",
                      **FREE) as read:
    source = "DataFrame" if form == "frame" else str(log)
    assert _rejected(tmp_path / "rejected.csv") == [
        (source, 31 + FIRST_ROW[form], reason)]
    assert read.summary["rejected"] == {reason: 1}
    assert _kept(read) == _kept(right)
    assert read.parts["train"].num_rows == 59
  right.close()


@pytest.mark.parametrize("form", FIRST_ROW)
def test_many_bad_rows(form, tmp_path, monkeypatch):
  monkeypatch.setattr(sources, "BATCH_ROWS", 50)
  monkeypatch.setattr("ultra_tfr.data.click_log.batches.BLOCK_BYTES", 3000)
  rows = _rows(200)
  expected = {}
  places = np.random.default_rng(0).choice(
      np.arange(60, len(rows)), len(BAD) * 2, replace=False)
  for place, (column, value, reason) in zip(places, BAD * 2):
    rows[place] = {**rows[place], column: value}
    expected[int(place) + FIRST_ROW[form]] = reason
  # The same position twice: the later row goes.
  free = np.setdiff1d(np.arange(60, len(rows)), places)
  later = next(i for i in free if i % 3 == 1 and i - 1 in free)
  rows[later] = {**rows[later], "p": 1}
  expected[int(later) + FIRST_ROW[form]] = (
      "another row of the request has the same position")
  log = _write(rows, tmp_path, form)
  with read_click_log(log, COLUMNS, rejected_file=tmp_path / "rejected.csv",
                      **FREE) as read:
    found = _rejected(tmp_path / "rejected.csv")
    assert {row: reason for _, row, reason in found} == expected
    assert len(found) == len(expected)
    assert read.parts["train"].num_rows + len(found) == len(rows)
    assert sum(read.summary["rejected"].values()) == len(found)
    assert "rejected: 6 rows, p is no whole number" in read.summary_text()


def test_malformed_rows_among_others(tmp_path, monkeypatch):
  monkeypatch.setattr("ultra_tfr.data.click_log.batches.BLOCK_BYTES", 1000)
  rows = _rows(100)
  rows[200]["p"] = "x"
  lines = _write(rows, tmp_path, "csv").read_text().splitlines()
  lines[100] += ",more"
  lines[150] = "q,1"
  path = tmp_path / "log.csv"
  path.write_text("\n".join(lines) + "\nlast")
  with read_click_log(path, COLUMNS, rejected_file=tmp_path / "r.csv",
                      **FREE) as log:
    assert sorted(_rejected(tmp_path / "r.csv"), key=lambda bad: bad[1]) == [
        (str(path), 101, "11 values for 10 columns"),
        (str(path), 151, "2 values for 10 columns"),
        (str(path), 202, "p is no number"),
        (str(path), 302, "1 values for 10 columns")]
    assert log.parts["train"].num_rows + 4 == 301


def test_malformed_lines_of_json(tmp_path, monkeypatch):
  monkeypatch.setattr("ultra_tfr.data.click_log.batches.BLOCK_BYTES", 1000)
  rows = _rows(100)
  rows[200]["p"] = "x"
  lines = _write(rows, tmp_path, "jsonl").read_text().splitlines()
  for place, line in ((50, '{"q": 1'), (51, "[1, 2]"), (52, ""), (53, "nan"),
                      (54, '{"q": 1} {"q": 2}'), (55, '{"s": "\ud83d"}')):
    lines[place] = line
  path = tmp_path / "log.jsonl"
  path.write_bytes("\r\n".join(lines).encode(errors="surrogatepass"))
  with read_click_log(path, COLUMNS, rejected_file=tmp_path / "r.csv",
                      **FREE) as log:
    assert _rejected(tmp_path / "r.csv") == [
        (str(path), row, "no JSON object") for row in (51, 52, 54, 55, 56)] + [
            (str(path), 201, "p is no number")]
    assert log.parts["train"].num_rows + 6 == 299


def test_too_many_rejected_rows(tmp_path):
  rows = _rows()
  rows[7]["p"] = rows[9]["p"] = None
  rows[12]["c"] = -1
  log = _write(rows, tmp_path, "csv")
  options = {"valid": 0, "test": 0}
  with pytest.raises(ValueError) as error:
    read_click_log(log, COLUMNS, rejected_file=tmp_path / "r.csv",
                   max_rejected=2 / 60, **options)
  assert str(error.value) == (
      f"3 of 60 rows are rejected ({tmp_path}/r.csv lists them), while "
      "`max_rejected` allows a share of 0.0333333 and never all; the most "
      f"frequent reason is 'p is missing' (2 rows, one of them row 9 of {log})."
      " Mend the log or the arguments, or raise `max_rejected`.")
  assert len(_rejected(tmp_path / "r.csv")) == 3
  with pytest.raises(ValueError, match="`rejected_file` would list them"):
    read_click_log(log, COLUMNS, **options)
  read_click_log(log, COLUMNS, max_rejected=3 / 60, **options).close()


@pytest.mark.parametrize("name, value", [("q", None), ("p", -1), ("c", None)])
def test_all_rows_rejected(name, value, tmp_path):
  rows = [{**row, name: value} for row in _rows()]
  with pytest.raises(ValueError, match="60 of 60 rows are rejected"):
    read_click_log(_write(rows, tmp_path, "csv"), COLUMNS, **FREE)


def test_only_malformed_rows(tmp_path):
  (tmp_path / "log.csv").write_text("q,p,c,f,s,d,i,w,t,r\n1\n2,3\n")
  with pytest.raises(ValueError, match="2 of 2 rows .*'1 values for 10 col"):
    read_click_log(tmp_path / "log.csv", COLUMNS, **FREE)


def test_an_older_list_of_rejected_rows_is_replaced(tmp_path):
  path = tmp_path / "rejected.csv"
  log = _write(_rows(), tmp_path, "frame")
  read_click_log(log, COLUMNS, rejected_file=path, **FREE).close()
  assert not path.exists()
  path.write_text("source,row,reason\nold.csv,1,old\n")
  read_click_log(log, COLUMNS, rejected_file=path, **FREE).close()
  assert _rejected(path) == []


def test_the_list_of_rejected_rows_never_replaces_the_log(tmp_path):
  """It was emptied before it was read."""
  log = _write(_rows(), tmp_path, "csv")
  before = log.read_bytes()
  (tmp_path / "link.csv").symlink_to(log)
  for rejected in (log, tmp_path / "link.csv"):
    with pytest.raises(ValueError, match="rejected_file .* would change"):
      read_click_log(log, COLUMNS, rejected_file=rejected, **FREE)
  # It would be a part of the log at the next call.
  with pytest.raises(ValueError, match="rejected_file .* would change"):
    read_click_log(tmp_path, COLUMNS, rejected_file=tmp_path / "r.csv", **FREE)
  assert log.read_bytes() == before


def test_no_cell_of_rejected_rows_is_a_formula(tmp_path, monkeypatch):
  """A spreadsheet would run what a file or a column is named."""
  monkeypatch.chdir(tmp_path)
  frame = pd.DataFrame({"q": [1, 1, 1], "p": [1, 2, 3], "=1+1": [0, 1, "x"],
                        "f": [0.5, 0.5, 0.5]})
  frame.to_csv("=cmd.csv", index=False)
  columns = LogColumns("q", "p", 'col("=1+1")', ("f",))
  with read_click_log("=cmd.csv", columns, rejected_file="r.csv", valid=0,
                      test=0, max_rejected=0.5) as log:
    assert log.summary["rejected"] == {"=1+1 is no number": 1}
  assert _rejected(tmp_path / "r.csv") == [
      ("'=cmd.csv", 4, "'=1+1 is no number")]


def test_a_file_whose_name_is_no_text_is_named(tmp_path):
  """pyarrow opens none, and did not say which it was."""
  name = os.fsencode(tmp_path) + b"/log\xff.csv"
  with open(name, "w", encoding="utf-8") as file:
    file.write("q,p\n1,1\n")
  with pytest.raises(ValueError, match="log\udcff.csv: cannot be read as"):
    read_click_log(os.fsdecode(name), LogColumns("q", "p", "c", ("f",)))


def test_a_log_with_controls_in_its_values(tmp_path):
  """They reached the terminal."""
  frame = pd.DataFrame({"q": [1, 1], "p": [1, 2], "c": [0, 1],
                        "f": ["\x1b[2J", "b"], "d": "\x1b]0;owned\x07"})
  columns = LogColumns("q", "p", "c", ("f",), context="d")
  with read_click_log(frame, columns, valid=0, test=0) as log:
    assert "\\x1b]0;owned" in log.summary_text()
    assert "\x1b" not in log.summary_text()


def test_a_full_disk_is_named(monkeypatch):
  """"[Errno 28] Error writing bytes to file" did not say which, and where the
  temporary files are is known to few."""
  frame = pd.DataFrame({"q": [1, 1], "p": [1, 2], "c": [0, 1], "f": [.1, .2]})

  def fail(self, table):
    raise OSError(errno.ENOSPC, "Error writing bytes to file")

  class Writer:
    write_table = fail
    def close(self):
      pass

  monkeypatch.setattr(
      requests.ipc, "new_stream", lambda path, schema: Writer())
  with pytest.raises(OSError) as error:
    read_click_log(frame, LogColumns("q", "p", "c", ("f",)), valid=0, test=0)
  folder = error.value.filename
  assert folder.startswith(os.path.join(tempfile.gettempdir(), "ultra_tfr_log"))
  assert not os.path.exists(folder)


@pytest.mark.parametrize("column, value, message", [
    ("c", "t", r"c is no number' \(2 rows, such as 't', .*compare it with a "
     "text, as in `feedback` c == 't'"),
    ("c", None, r"the feedback is missing' \(2 rows, one .*as in `feedback` "
     r"coalesce\(c, 0\)"),
    ("c", -1, r"is negative' \(2 rows, such as '-1.0'.* `feedback` max\(c, 0"),
    ("p", "top", "p is no number' .*'top'.*in their order by `positions`"),
    ("t", "31/01/2024", r"no time in t' \(2 rows, such as '31/01/2024'.*times "
     "are seconds since 1970, or as in 2024-01-31, .*Z, UTC, .*-07:00"),
])
def test_messages_show_the_value_and_the_remedy(column, value, message,
                                                tmp_path):
  """"c is no number" left people to look for the value and for a way out."""
  rows = _rows()
  rows[7][column] = rows[9][column] = value
  with pytest.raises(ValueError, match=message):
    read_click_log(_write(rows, tmp_path, "csv"), COLUMNS, max_rejected=0)
  with read_click_log(_write(rows, tmp_path, "csv"), COLUMNS, **FREE) as log:
    shown = log.summary_text()
    assert f"such as '{float(value) if value == -1 else value}' (3.3%)" in (
        shown) or value is None
