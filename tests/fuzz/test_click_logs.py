"""Damaged click logs, and logs of any values in each format."""

import csv
import io
import json
import unicodedata

from hypothesis import strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet
import tensorflow as tf

from click_log_oracles import elwc
from click_log_oracles import requests_of
import fuzzing
from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import csv_rows
from ultra_tfr.data.click_log import json_rows
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

_COLUMNS = LogColumns("q", "p", "coalesce(c, 0)", ("f", "s"), context="d",
                      item="i", timestamp="t")
_OPTIONS = {"valid": 0, "test": 0, "max_rejected": 1}
_ROWS = 9


def _table():
  return pa.table({
      "q": [f"q{i // 3}" for i in range(_ROWS)],
      "p": [i % 3 + 1 for i in range(_ROWS)],
      "c": [i % 2 for i in range(_ROWS)],
      "f": [None, *(i / 4 for i in range(1, _ROWS))],
      "s": ["a", None, 'b "c"', "d, e", "f\ng", "7", "", "h", "ä"],
      "d": ["x", "y"] * 4 + ["x"], "i": [10**12 + i for i in range(_ROWS)],
      "t": [f"2024-01-31 12:00:0{i}" for i in range(_ROWS)]})


def _seed(ending):
  """A small log as bytes."""
  table, stream = _table(), io.BytesIO()
  if ending == "csv":
    return table.to_pandas().to_csv(index=False).encode()
  if ending == "jsonl":
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
  parquet.write_table(table, stream)
  return stream.getvalue()


def _check_damaged(folder, ending):
  path = folder / f"log.{ending}"

  def check(content):
    path.write_bytes(content)
    log = fuzzing.outcome(
        lambda: read_click_log(path, _COLUMNS, **_OPTIONS), path, "The log ",
        "The column", "`features`", "rows are rejected", "different positions")
    if log is not None:
      with log:
        summary = log.summary
        assert sum(summary["rows"].values()) == sum(
            part.num_rows for part in log.parts.values())
        for part in log.parts.values():
          for batch in part.batches(4):
            real = batch.positions > 0
            assert np.isfinite(batch.feedback[real]).all()
            assert (batch.feedback[real] >= 0).all()
            assert not np.isinf(batch.numeric).any()
        # Whatever names and values hold, a terminal is not steered by it.
        text = log.summary_text().replace("\n", "")
        assert "Cc" not in set(map(unicodedata.category, text))

  return check


@fuzzing.SECONDS
def test_damaged_csv(tmp_path, seconds):
  fuzzing.fuzz(fuzzing.damaged(_seed("csv")), _check_damaged(tmp_path, "csv"),
               seconds)


@fuzzing.SECONDS
def test_damaged_json_lines(tmp_path, seconds):
  fuzzing.fuzz(fuzzing.damaged(_seed("jsonl")),
               _check_damaged(tmp_path, "jsonl"), seconds)


@fuzzing.SECONDS
def test_damaged_parquet(tmp_path, seconds):
  fuzzing.fuzz(fuzzing.damaged(_seed("parquet")),
               _check_damaged(tmp_path, "parquet"), seconds)


@fuzzing.SECONDS
def test_damaged_elwc(tmp_path, seconds):
  """The records are damaged, and then the file around them."""
  rows = _table().to_pylist()
  record = elwc({"q": "q0", "d": "x"}, [
      {name: value for name, value in row.items() if name not in "qd"}
      for row in rows[:3]])
  whole = tmp_path / "whole.tfrecord"
  with tf.io.TFRecordWriter(str(whole)) as writer:
    writer.write(record)
  check_file = _check_damaged(tmp_path, "tfrecord")

  def check(example):
    content, is_record = example
    if is_record:
      path = tmp_path / "record.tfrecord"
      with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(content)
        writer.write(record)
      content = path.read_bytes()
    check_file(content)

  fuzzing.fuzz(st.one_of(
      st.tuples(fuzzing.damaged(whole.read_bytes()), st.just(False)),
      st.tuples(fuzzing.damaged(record), st.just(True))), check, seconds)


_CHARACTERS = st.one_of(
    st.characters(codec="utf-8", exclude_characters="\x00\ufdd0"),
    st.sampled_from('",;\n\r\t\\ \'#'))
_TEXTS = st.text(_CHARACTERS, max_size=6)


@fuzzing.SECONDS
def test_csv_is_read_as_it_was_written(tmp_path, seconds):
  """Any texts, as Python's csv writes them and pandas reads them."""
  path = tmp_path / "log.csv"

  def check(example):
    rows, (quoting, ending) = example
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=quoting, lineterminator=ending)
    writer.writerows([["a", "b"], *rows])
    path.write_bytes(stream.getvalue().encode())
    found = fuzzing.outcome(lambda: [
        list(row) for batch in csv_rows.read(
            path, ["a", "b"], batches.Dialect(null_values=()))
        for row in zip(*(batch.columns[name].to_pylist() for name in "ab"))],
                            path)
    if found is None:
      # Only what may be an escape is refused.
      assert '\\"' in stream.getvalue()
      return
    assert [[value or "" for value in row] for row in found] == [
        list(row) for row in rows]

  fuzzing.fuzz(st.tuples(
      st.lists(st.tuples(_TEXTS, _TEXTS), max_size=5),
      # With "\n" alone Python does not quote "\r".
      st.sampled_from([(csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r\n"),
                       (csv.QUOTE_MINIMAL, "\r\n")])), check, seconds)


@fuzzing.SECONDS
def test_json_lines_are_read_as_they_were_written(tmp_path, seconds):
  path = tmp_path / "log.jsonl"
  value = st.one_of(
      st.none(), st.booleans(), st.integers(-2**70, 2**70), _TEXTS,
      st.floats(allow_nan=False, allow_infinity=False))

  def check(values):
    path.write_text("".join(json.dumps({"a": value, "b": 1}) + "\n"
                            for value in values))
    found = [value for batch in json_rows.read(path, ["a"])
             for value in batch.columns["a"].to_pylist()]
    assert [*map(_text, found)] == [*map(_text, values)]

  fuzzing.fuzz(st.lists(value, min_size=1, max_size=5), check, seconds)


def _text(value):
  """A value as a text; a column of several types has only those."""
  number = batches.as_text(value)
  try:
    return None if number is None else repr(float(number))
  except ValueError:
    return number


_CELL = {
    "c": st.one_of(st.none(), st.sampled_from([0., 1., 2.5])),
    "f": st.one_of(st.none(), st.floats(-2.**99, 2.**99, width=32)),
    "s": st.one_of(st.none(), st.sampled_from(["x", "y z", "NA", '"', "ä,"])),
    "d": st.sampled_from(["x", "y"]), "i": st.integers(0, 2**62),
    "t": st.integers(0, 10**9)}


@fuzzing.SECONDS
def test_each_format_gives_the_same(tmp_path, seconds):
  """CSV, JSON lines and Parquet hold what the frame holds."""
  def check(rows):
    frame = pd.DataFrame(rows).assign(
        q=[f"q{i // 3}" for i in range(len(rows))],
        p=[i % 3 + 1 for i in range(len(rows))])
    frame = frame.astype({"s": "str", "f": "float64", "c": "float64"})
    # Where all values are missing, a file says nothing of the type.
    frame.loc[len(frame)] = {
        "q": "last", "p": 1, "c": 1., "f": .5, "s": "text", "d": "x", "i": 1,
        "t": 1}
    columns = LogColumns("q", "p", "coalesce(c, 0)", ("f", "s"), context="d",
                         item="i", timestamp="t", text="s", numbers="f")
    with read_click_log(frame, columns, **_OPTIONS) as log:
      expected, rejected = requests_of(log), log.summary["rejected"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    # `DataFrame.to_json` rounds to 15 decimals.
    plain = frame.astype(object).where(frame.notna(), None)
    (tmp_path / "a.jsonl").write_text("".join(
        json.dumps(row) + "\n" for row in plain.to_dict("records")))
    for ending in ("csv", "parquet", "jsonl"):
      with read_click_log(tmp_path / f"a.{ending}", columns,
                          **_OPTIONS) as log:
        assert requests_of(log) == expected, ending
        assert log.summary["rejected"] == rejected

  fuzzing.fuzz(st.lists(st.fixed_dictionaries(_CELL), min_size=1, max_size=7),
               check, seconds)
