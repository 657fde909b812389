"""Tests of ultra_tfr.data.click_log.json_rows."""

import gzip
import json
import time

import numpy as np
import pyarrow as pa
import pytest

from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import json_rows
from ultra_tfr.data.click_log import values as values_lib


def _read(path, names):
  rows, malformed = {}, []
  for batch in json_rows.read(path, list(names)):
    columns = [values_lib.texts(values_lib.plain(batch.columns[name])[0])
               .to_pylist() for name in names]
    for number, *values in zip(batch.rows.tolist(), *columns):
      assert number not in rows
      rows[number] = values
    malformed += [bad.row for bad in batch.malformed]
    assert all(bad.reason == "no JSON object" for bad in batch.malformed)
  return rows, malformed


@pytest.fixture
def read(tmp_path):
  def read(text, names="a", name="log.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return _read(path, names)
  return read


@pytest.mark.parametrize("text, values", [
    ('{"a": 1}\n{"a": 2}\n', ["1", "2"]),
    ('{"a": 1}\n{"a": 2}', ["1", "2"]),
    ('{"a": 1}\r\n{"a": 2}\r\n', ["1", "2"]),
    ('\ufeff{"a": 1}\n{"a": 2}\n', ["1", "2"]),
    ('{"a": 1.5}\n{"a": 2}\n', ["1.5", "2"]),
    ('{"a": true}\n{"a": null}\n', ["true", None]),
    ('{"a": "x\\ny"}\n{"b": 1}\n', ["x\ny", None]),
    ('{"a": "\\ud83d\\ude00"}\n{"a": "日本"}\n', ["😀", "日本"]),
    ('{"a": NaN}\n{"a": ""}\n', [None, None]),
    ('{"a": 9007199254740993}\n{"a": null}\n', ["9007199254740993", None]),
    # Beyond int64, as hashes are.
    ('{"a": 18446744073709551615}\n{"a": 9223372036854775809}\n',
     ["18446744073709551615", "9223372036854775809"]),
    ('{"a": 18446744073709551617}\n{"a": -3}\n', ["1.8446744073709552e+19",
                                                  "-3"]),
    # Times stay as they were written.
    ('{"a": "2026-01-31T12:00:00"}\n{"a": "2026-01-31"}\n',
     ["2026-01-31T12:00:00", "2026-01-31"]),
    # Several types in one column.
    ('{"a": 1}\n{"a": "x"}\n', ["1", "x"]),
    ('{"a": true}\n{"a": 2.0}\n', ["true", "2"]),
    ('{"a": 1, "a": 2}\n{"a": 3}\n', ["2", "3"]),
])
def test_values(text, values, read):
  assert read(text) == ({1: values[:1], 2: values[1:]}, [])


def test_infinities(read):
  rows, _ = read('{"a": 1e999}\n{"a": -Infinity}\n')
  assert [float(value) for value, in rows.values()] == [np.inf, -np.inf]


def test_types_may_differ_between_blocks(read, monkeypatch):
  monkeypatch.setattr(batches, "BLOCK_BYTES", 30)
  values = ["2026-01-01", "x", 12, 2**63, -1, None, 1.5, "2026-01-01T00:00:00",
            True, 12.0, 2**64 - 1, {}, 0]
  lines = [json.dumps({"a": value}) for value in values if value != {}]
  rows, malformed = read("\n".join(lines))
  assert not malformed
  assert [value for value, in rows.values()] == [
      batches.as_text(value) for value in values if value != {}]


@pytest.mark.parametrize("block", [20, 100, 10000])
def test_malformed_lines_keep_the_numbers(block, read, monkeypatch):
  monkeypatch.setattr(batches, "BLOCK_BYTES", block)
  rng = np.random.default_rng(0)
  bad = ['{"a": 1', "[1]", "5", "x", '{"a": 1} {"a": 2}', '{"a": "\\ud83d"}',
         "[" * 100000, '"']
  lines, rows, malformed = [], {}, []
  for number in range(1, 200):
    kind = rng.integers(8)
    if kind == 0 and number > 1:
      malformed.append(number)
      lines.append(bad[rng.integers(len(bad))])
    elif kind == 1:
      lines.append("  " * rng.integers(2))
    else:
      rows[number] = [str(number)]
      lines.append(json.dumps({"a": number}))
  assert read("\n".join(lines)) == (rows, malformed)


def test_objects_over_several_lines(read):
  rows, malformed = read('{"a": 1}\n{\n"a": 2\n}\n{"a": 3}\n')
  assert rows == {1: ["1"], 5: ["3"]} and malformed == [2, 3, 4]


def test_bytes_that_are_no_text(tmp_path):
  path = tmp_path / "log.jsonl"
  path.write_bytes(b'{"a": "x"}\n{"a": "\xff"}\n')
  batch, = json_rows.read(path, ["a"])
  array, wrong = values_lib.plain(batch.columns["a"])
  assert array.to_pylist() == ["x", None] and wrong.tolist() == [False, True]


def test_names_are_those_of_the_first_objects(tmp_path, monkeypatch):
  monkeypatch.setattr(batches, "BLOCK_BYTES", 30)
  path = tmp_path / "log.jsonl"
  path.write_text('\nno\n{"a": 1}\n{"b": {"c": 1}}\n' + '{"d": 1}\n' * 10)
  assert json_rows.column_names(path) == ["a", "b"]
  path.write_text("\n\n")
  assert json_rows.column_names(path) == []


def test_packed(tmp_path):
  for name in ("log.json.gz", "LOG.JSONL.GZ"):
    (tmp_path / name).write_bytes(gzip.compress(b'{"a": 1}\n'))
    assert _read(tmp_path / name, "a") == ({1: ["1"]}, [])


@pytest.mark.parametrize("text", ['[{"a": 1}]', ' \n[\n{"a": 1},\n{"a": 2}]'])
def test_an_array(text, read, tmp_path):
  message = "log.jsonl: begins with '\\[', so it is one JSON array; write one"
  with pytest.raises(ValueError, match=message):
    read(text)
  with pytest.raises(ValueError, match=message):
    json_rows.column_names(tmp_path / "log.jsonl")


_IN_A_PROCESS = """
import sys
from ultra_tfr.data.click_log import json_rows
for path in sys.argv[1:]:
  assert "a" in json_rows.column_names(path)
  found = [*json_rows.read(path, ["a"])]
  print([value for batch in found for value in batch.columns["a"].to_pylist()],
        [bad.row for batch in found for bad in batch.malformed], flush=True)
"""
# Text -> values of the column, and lines that are no object.
_BROKEN = {
    'null\n{"a": 1}\n': ([1], [1]),
    '{"a": 1}\nnull': ([1], [2]),
    '{"a": 1}\nnul': ([1], [2]),
    '{"a": 1}\n{"a": 2} null\n': ([1], [2]),
    '{"a": 1}\n{"a":\n1}\n': ([1], [2, 3]),
    # Four rows, if the third line ended the second.
    '{"a": 1}{"a": 2}\n{"b":\n{"a": 3}}\n{"a": 4}\n': ([4], [1, 2, 3]),
    '{"a": 1}\n{"a": ' + "[" * 200000 + "]" * 200000 + "}\n": ([1], [2]),
    '{"a": 1}\n' + '{"b": ' * 200000 + "1" + "}" * 200000: ([1], [2]),
}


def test_no_line_ends_the_process(plain_tensorflow, tmp_path):
  """pyarrow fails with the whole process where a file begins with null, and
  where brackets are nested deep; two halves of a line made one row of it."""
  for number, text in enumerate(_BROKEN):
    (tmp_path / f"{number}.jsonl").write_text(text)
  done = plain_tensorflow(
      _IN_A_PROCESS, tmp_path, *sorted(map(str, tmp_path.iterdir())))
  assert done.returncode == 0, done.stderr[-2000:]
  assert done.stdout.splitlines() == [
      f"{values} {lines}" for values, lines in _BROKEN.values()]


@pytest.mark.parametrize("line", [
    '{{"a": {i}, "key {i}": 1}}', '{{"b": {{"key {i}": 1}}, "a": {i}}}'])
def test_what_is_not_needed_costs_no_memory(tmp_path, line):
  """20,000 lines with a key of their own each, 1 MB, took 6 GB and minutes."""
  path = tmp_path / "log.jsonl"
  path.write_text("\n".join(line.format(i=i) for i in range(20000)))
  start = time.monotonic()
  rows, malformed = _read(path, ["a"])
  assert not malformed
  assert [value for value, in rows.values()] == [*map(str, range(20000))]
  assert len(json_rows.column_names(path)) > 1
  assert time.monotonic() - start < 20


def test_a_column_of_maps_is_refused_at_once(tmp_path):
  """They are no value of a row, however many keys they have."""
  path = tmp_path / "log.jsonl"
  path.write_text("\n".join(f'{{"a": {{"key {i}": 1}}}}'
                            for i in range(20000)))
  with pytest.raises(pa.ArrowNotImplementedError, match="no type of a column"):
    _read(path, ["a"])
