"""Tests of ultra_tfr.data.click_log.csv_rows."""

import gzip
import re

import numpy as np
import pytest

from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import csv_rows


def _read(path, names=("a", "b")):
  """Rows by number, and what is malformed."""
  rows, malformed = {}, {}
  for batch in csv_rows.read(path, list(names)):
    columns = [batch.columns[name].to_pylist() for name in names]
    for number, *values in zip(batch.rows.tolist(), *columns):
      assert number not in rows
      rows[number] = values
    for number, reason in batch.malformed:
      assert number not in malformed
      malformed[number] = reason
  return rows, malformed


@pytest.fixture
def read(tmp_path):
  def read(text, names=("a", "b"), name="log.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return _read(path, names)
  return read


@pytest.mark.parametrize("text, rows", [
    ("a,b\n1,2\n3,4\n", {2: ["1", "2"], 3: ["3", "4"]}),
    ("a,b\n1,2\n3,4", {2: ["1", "2"], 3: ["3", "4"]}),
    ("a,b\r\n1,2\r\n3,4\r\n", {2: ["1", "2"], 3: ["3", "4"]}),
    ("a,b\r1,2\r3,4\r", {2: ["1", "2"], 3: ["3", "4"]}),
    ("\ufeffa,b\n1,2\n", {2: ["1", "2"]}),
    # Empty lines do not count.
    ("\na,b\n\n\n1,2\n\r\n3,4\n\n", {2: ["1", "2"], 3: ["3", "4"]}),
    ('"a",b\n"1,\n2","x ""y"""\n3,4\n',
     {2: ["1,\n2", 'x "y"'], 3: ["3", "4"]}),
    ('a,b\n5" x,2\n3,4\n', {2: ['5" x', "2"], 3: ["3", "4"]}),
    ("a,b\nGröße,日本 😀\n", {2: ["Größe", "日本 😀"]}),
    ("a,b\n1,\n,2\n,\n", {2: ["1", None], 3: [None, "2"], 4: [None, None]}),
    ("a,b\nNA,NaN\nnull,None\n", {2: [None, None], 3: [None, None]}),
    ('a,b\n"NA",""\n', {2: ["NA", ""]}),
    ("a,b\n1 , 2\n", {2: ["1 ", " 2"]}),
    ("b,x,a\n1,2,3\n", {2: ["3", "1"]}),
    ("a,b\n", {}),
    ("a,b", {}),
])
def test_rows(text, rows, read):
  assert read(text) == (rows, {})


def test_all_columns_are_text_from_the_first_row_on(read):
  rows, _ = read("a,b\n1,2\n9007199254740993,true\n2026-01-01,1e3\n")
  assert list(rows.values()) == [["1", "2"], ["9007199254740993", "true"],
                                 ["2026-01-01", "1e3"]]


def test_tabs(read):
  assert read("a\tb\n1,5\t2\n", name="log.tsv") == ({2: ["1,5", "2"]}, {})
  assert read("a,b\n1\t5,2\n", name="my.tsv.csv") == ({2: ["1\t5", "2"]}, {})


def test_packed(tmp_path):
  for name in ("log.csv.gz", "LOG.CSV.GZ"):
    # Two packed parts one after another, as by `cat`.
    (tmp_path / name).write_bytes(
        gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"))
    assert _read(tmp_path / name) == ({2: ["1", "2"], 3: ["3", "4"]}, {})


@pytest.mark.parametrize("block", [16, 40, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_malformed_rows_keep_their_numbers(read, block, seed, monkeypatch):
  monkeypatch.setattr(batches, "BLOCK_BYTES", block)
  rng = np.random.default_rng(seed)
  lines, rows, malformed, number = ["a,b"], {}, {}, 1
  for kind in rng.choice(6, size=300, p=[.5, .1, .1, .1, .1, .1]):
    number += kind != 5
    if kind == 0:
      lines.append(f"{number},x")
      rows[number] = [str(number), "x"]
    elif kind == 1:
      lines.append('"y\nz",u')
      rows[number] = ["y\nz", "u"]
    elif kind == 5:
      lines.append("")
    else:
      count = (None, None, 1, 3, 4)[kind]
      lines.append(",".join("1" * count))
      malformed[number] = f"{count} values for 2 columns"
  assert read("\n".join(lines)) == (rows, malformed)


def test_the_first_rows_may_be_malformed(read):
  assert read("a,b\n1\n1,2,3\n1,2\n") == (
      {4: ["1", "2"]},
      {2: "1 values for 2 columns", 3: "3 values for 2 columns"})


def test_bytes_that_are_no_text_are_left_to_the_values(read):
  assert read(b"x,a,b\n\xff,1,2\n") == ({2: ["1", "2"]}, {})


@pytest.mark.parametrize("text, row", [
    ('a,b\n1,2\n3,"4\n5,6\n', 3), ('a,b\n"1,2\n3,4\n5,6\n', 1),
    ('a,b\n1,2\n3,"4', 3)])
def test_a_quote_that_is_not_closed(text, row, read):
  with pytest.raises(ValueError, match="log.csv: a quote is opened and never "
                     f"closed, in row {row} or after it; close it"):
    read(text)


def test_missing_names(read):
  with pytest.raises(ValueError, match="log.csv: there is no column 'b', which "
                     "the first file of the log has; its columns are a;b"):
    read("a;b\n1;2\n", ["b"])


@pytest.mark.parametrize("block", [60, 100, 1000])
def test_bytes_that_are_no_text_cost_their_row(read, block, monkeypatch, capfd):
  """One such row with a value too many, and the file could not be read."""
  monkeypatch.setattr(batches, "BLOCK_BYTES", block)
  rows, malformed = read(
      b"a,b\n1,2\n3,\xff,4\n5,\xe4\xf6\xfc\n6,\xe2\x82\n7\n8,\xe2\x82\xac\n"
      b"9,\xef\xbf\xbd\n\xff" + b"\xff" * 10 + b"\n10,11")
  assert malformed == {3: "3 values for 2 columns", 6: "1 values for 2 columns",
                       9: "1 values for 2 columns"}
  good = {number: [value.encode() if isinstance(value, str) else value
                   for value in values] for number, values in rows.items()}
  assert good.pop(4)[1] == good.pop(5)[1] == b"\xff"
  assert good == {2: [b"1", b"2"], 7: [b"8", "€".encode()],
                  8: [b"9", "\ufffd".encode()], 10: [b"10", b"11"]}
  assert "ignored" not in "".join(capfd.readouterr())


def test_names_that_are_no_text(read):
  with pytest.raises(ValueError, match=re.escape(
      "log.csv: the names of its columns are no UTF-8 text; write it in that")):
    read(b"a,b,gr\xf6\xdfe\n1,2,3\n")


@pytest.mark.parametrize("text", [
    'a,b\n"say \\"hi\\" x",2\n', 'a,b\nsay \\"hi\\",2\n',
    'a,b\n"x\\"",2\n"next",3\n', 'a,b\n"size 5\\", red",2\n'])
@pytest.mark.parametrize("block", [12, 17, 1000])
def test_quotes_that_backslashes_escape_are_refused(read, text, block,
                                                    monkeypatch):
  """Values were taken apart wrongly, and rows ran into each other."""
  monkeypatch.setattr(batches, "BLOCK_BYTES", block)
  with pytest.raises(ValueError, match="log.csv: a quote is neither at the edge"
                     " of a value nor double .*write quotes twice"):
    read(text)


@pytest.mark.parametrize("block", [31, 44, 1000])
def test_backslashes_that_are_no_escapes(read, block, monkeypatch):
  monkeypatch.setattr(batches, "BLOCK_BYTES", block)
  text = ('\ufeff"a",b\r\n"C:\\dir\\","2"\r\n' + '"{""k"": ""x\\""y""}",3\r\n'
          '"\\","\\"\r\n')
  assert read(text) == ({2: ["C:\\dir\\", "2"], 3: ['{"k": "x\\"y"}', "3"],
                         4: ["\\", "\\"]}, {})
