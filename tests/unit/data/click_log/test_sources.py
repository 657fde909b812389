"""Tests of ultra_tfr.data.click_log.sources and batches."""

import gzip
import os

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet
import pytest

from ultra_tfr.data.click_log import sources

FRAME = pd.DataFrame({"q": ["a", "b"], "p": [1, 2], "c": [0., None]})


def _batches(log, names=("q", "p", "c")):
  return list(sources.read_batches(log, list(names)))


def _columns(log, names=("q", "p", "c")):
  """All values by name."""
  return {name: [value for batch in _batches(log, names)
                 for value in batch.columns[name].to_pylist()]
          for name in names}


# Finding files.


def test_a_folder_skips_what_is_no_log(tmp_path):
  for name in ("b.csv", "a.Parquet", "c.jsonl.GZ", "d.tfrecords", "e.txt",
               ".f.csv", "_g.csv", "h.parquet.gz", "i.tfrecord.bz2"):
    (tmp_path / name).write_text("x")
  (tmp_path / "sub").mkdir()
  assert [os.path.basename(path) for path in sources.find_files(
      tmp_path)] == ["a.Parquet", "b.csv", "c.jsonl.GZ", "d.tfrecords"]


def test_a_list_keeps_its_order(tmp_path):
  for name in "abc":
    (tmp_path / f"{name}.csv").write_text("x")
  found = sources.find_files(
      [tmp_path / "c.csv", str(tmp_path / "[ab].csv")])
  assert [os.path.basename(path) for path in found] == [
      "c.csv", "a.csv", "b.csv"]


def test_a_name_with_brackets_is_no_pattern(tmp_path):
  (tmp_path / "a[1].csv").write_text("x")
  assert sources.find_files(tmp_path / "a[1].csv") == [
      str(tmp_path / "a[1].csv")]


@pytest.mark.parametrize("log", ["no.csv", "no-*.csv", ["no.csv"], ""])
def test_nothing_is_there(log, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(FileNotFoundError, match="there is no such file"):
    sources.find_files(log)


def test_a_folder_without_logs(tmp_path):
  with pytest.raises(FileNotFoundError, match=f"{tmp_path}: there is no such"):
    sources.find_files(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.csv.xz", "a.gz", "a",
                                  "a.parquet.gz", "a.tfrecord.zst"])
def test_unknown_endings(name, tmp_path):
  (tmp_path / name).write_text("x")
  with pytest.raises(ValueError, match=f"{name}: the ending must say the form"):
    sources.find_files(tmp_path / name)


@pytest.mark.parametrize("log", [[], None, 3, pa.array([1])])
def test_no_log(log):
  with pytest.raises(ValueError, match="`log` must be a path, a list of paths,"
                     " a pandas DataFrame, or a table with the Arrow inter"):
    sources.column_names(log)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "tfrecord"])
def test_an_empty_file(ending, tmp_path):
  path = tmp_path / f"log.{ending}"
  path.write_bytes(b"")
  with pytest.raises(ValueError, match=f"log.{ending}: the file is empty"):
    sources.column_names(path)


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl.gz", "tfrecord.gz"])
def test_a_packed_file_of_nothing(ending, tmp_path):
  path = tmp_path / f"log.{ending}"
  path.write_bytes(gzip.compress(b""))
  with pytest.raises(ValueError, match=f"log.{ending}: "):
    sources.column_names(path)


# Files that are not what their ending says.


_CSV = b"q,p,c\n1,2,3\n"
_BINARY = np.random.default_rng(0).bytes(10000)


# pyarrow cannot say that a row is no text.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ending, contents", [
    ("parquet", (_CSV, _BINARY, gzip.compress(_CSV))),
    ("csv", (_BINARY, gzip.compress(_CSV), gzip.compress(_BINARY)[:5000])),
    ("csv.gz", (_CSV, _BINARY, gzip.compress(_BINARY)[:5000])),
    ("jsonl", (_CSV, _BINARY, gzip.compress(_CSV))),
    ("jsonl.gz", (_CSV, _BINARY, gzip.compress(_BINARY)[:5000])),
    ("jsonl.zst", (_CSV, _BINARY, gzip.compress(_CSV))),
    ("tfrecord", (_CSV, _BINARY, gzip.compress(_CSV))),
    ("tfrecord.gz", (_CSV, _BINARY, gzip.compress(_CSV),
                     gzip.compress(_BINARY)[:5000])),
])
def test_another_format(ending, contents, tmp_path):
  path = tmp_path / f"log.{ending}"
  for content in contents:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"log.{ending}: ") as error:
      names = sources.column_names(path)
      _batches(path, names)
    assert "\n" not in str(error.value)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
  path = tmp_path / "log.csv"
  path.write_text("q\n")

  def refuse(path, compression):
    raise PermissionError(13, "Permission denied", path)

  monkeypatch.setattr(pa, "input_stream", refuse)
  with pytest.raises(PermissionError):
    sources.column_names(path)


# Columns.


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_later_file_lacks_a_column(ending, tmp_path):
  for name, frame in (("a", FRAME), ("b", FRAME.drop(columns="p"))):
    write = getattr(frame, f"to_{ending}")
    write(tmp_path / f"{name}.{ending}", index=False)
  with pytest.raises(ValueError, match=f"b.{ending}: there is no column 'p', "
                     "which the first file of the log has; its columns are q, c"
                     r"\."):
    _batches(tmp_path)


def test_a_key_that_an_object_lacks_is_missing(tmp_path):
  (tmp_path / "a.jsonl").write_text('{"q": 1, "p": 2}\n{"q": 2}\n')
  (tmp_path / "b.jsonl").write_text('{"q": 3}\n')
  assert _columns(tmp_path, ["q", "p"]) == {
      "q": [1, 2, 3], "p": [2, None, None]}


def test_two_columns_of_one_name(tmp_path):
  table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])],
                   ["q", "q", "p"])
  parquet.write_table(table, tmp_path / "log.parquet")
  (tmp_path / "log.csv").write_text("q,q,p\n1,2,3\n")
  frame = pd.DataFrame([[1, 2, 3]], columns=["q", "q", "p"])
  for log in (tmp_path / "log.parquet", tmp_path / "log.csv", frame):
    assert _columns(log, ["p"]) in ({"p": [3]}, {"p": ["3"]})
    with pytest.raises(ValueError, match="2 columns are named 'q'; rename all"):
      _batches(log, ["q"])


# Parquet.


def test_parquet_row_numbers_and_names(tmp_path, monkeypatch):
  monkeypatch.setattr(sources, "BATCH_ROWS", 3)
  table = pa.table({"a": range(10), "a.b": range(10, 20), "ü [x]": range(10)})
  parquet.write_table(table, tmp_path / "log.parquet", row_group_size=4)
  log = tmp_path / "log.parquet"
  assert sources.column_names(log) == ["a", "a.b", "ü [x]"]
  assert sources.estimate_rows([log, log]) == 20
  batches = _batches(log, ["a.b", "ü [x]"])
  assert np.concatenate([b.rows for b in batches]).tolist() == list(
      range(1, 11))
  assert _columns(log, ["a", "a.b", "ü [x]"]) == table.to_pydict()


def test_parquet_is_not_held_as_a_whole(tmp_path):
  rows = 400000
  rng = np.random.default_rng(0)
  parquet.write_table(pa.table({str(i): rng.random(rows) for i in range(10)}),
                      tmp_path / "log.parquet", row_group_size=40000)
  before, most = pa.total_allocated_bytes(), 0
  for _ in sources.read_batches(
      tmp_path / "log.parquet", [str(i) for i in range(10)]):
    most = max(most, pa.total_allocated_bytes() - before)
  assert most < 20e6  # The file has 32 MB.


# Frames.


def test_frames(monkeypatch):
  monkeypatch.setattr(sources, "BATCH_ROWS", 2)
  frame = pd.DataFrame({7: range(5), "t": pd.Categorical(list("abcab"))},
                       index=[3, 3, 1, 2, 0])
  assert sources.column_names(frame) == ["7", "t"]
  assert sources.estimate_rows(frame) == 5
  assert _columns(frame, ["7", "t"]) == {"7": [0, 1, 2, 3, 4],
                                         "t": list("abcab")}
  assert [b.rows.tolist() for b in _batches(frame, ["t"])] == [[1, 2], [3, 4],
                                                               [5]]
  assert _batches(frame.iloc[:0], ["t"]) == []


def test_frames_of_mixed_values():
  frame = pd.DataFrame({"x": pd.Series([
      1, 2.0, 2.5, "a", None, float("nan"), pd.NA, True, 2**70], dtype=object),
      "big": pd.Series([2**64, 1] + [None] * 7, dtype=object)})
  assert _columns(frame, ["x", "big"]) == {
      "x": ["1", "2", "2.5", "a", None, None, None, "true", str(2**70)],
      "big": [str(2**64), "1"] + [None] * 7}


def test_frames_of_other_libraries_are_no_frames():
  class DataFrame:  # As polars has it.
    columns = ["a"]

  with pytest.raises(ValueError, match="`log` must be a path"):
    sources.column_names(DataFrame())


class _Stream:
  """A table of another library: nothing of it is known but the protocol."""

  def __init__(self, table, once=False):
    self._table, self._is_left = table, [None] if once else None

  def __arrow_c_stream__(self, requested_schema=None):
    if self._is_left is not None:
      self._is_left.pop()  # Raises the second time.
    return self._table.__arrow_c_stream__(requested_schema)


def _arrow_table():
  # Of several chunks, whose dictionaries differ.
  return pa.concat_tables([
      pa.table({"q": [1, 2], "t": pa.array(texts).dictionary_encode(),
                "x": pa.array([0.5, None], pa.float32())})
      for texts in (["a", "b"], ["c", None], ["b", "a"])])


@pytest.mark.parametrize("make", [
    lambda table: table, _Stream, lambda table: _Stream(table, once=True),
    lambda table: table.to_reader()])
def test_arrow_tables(make, monkeypatch):
  monkeypatch.setattr(sources, "BATCH_ROWS", 3)
  table = sources.in_memory(make(_arrow_table()))
  assert sources.paths(table) == []
  assert sources.column_names(table) == ["q", "t", "x"]
  assert sources.estimate_rows(table) == 6
  assert sources.stored_kinds(table, ["q", "t", "x"]) == {
      "q": False, "t": True, "x": False}
  assert _columns(table, ["t", "x"]) == {
      "t": ["a", "b", "c", None, "b", "a"], "x": [0.5, None] * 3}
  assert [b.rows.tolist() for b in _batches(table, ["q"])] == [
      [1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("log", [FRAME, "a.csv", ["a.csv"], 3])
def test_other_logs_stay_what_they_are(log):
  assert sources.in_memory(log) is log


def test_an_arrow_stream_of_something_else():
  """A polars Series, and what is broken, gives a stream of no table."""
  with pytest.raises(ValueError, match="the Arrow stream of 'ChunkedArray' "
                     "cannot be read as a table .*give the whole table"):
    sources.in_memory(pa.chunked_array([[1, 2]]))


def test_arrow_tables_with_a_column_twice():
  table = pa.table([[1], [2]], ["q", "q"])
  with pytest.raises(ValueError, match="The table: 2 columns are named 'q'"):
    _batches(table, ["q"])
