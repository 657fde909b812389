"""Tests of ultra_tfr.data.click_log.elwc_rows."""

import numpy as np
import pytest
import tensorflow as tf

from click_log_oracles import elwc
from ultra_tfr.data.click_log import elwc_rows
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

LISTS = [
    ({"q": "a", "age": 3}, [{"c": 1, "f": .5, "s": "x"}, {"c": 0, "f": None}]),
    ({"q": "b"}, []),
    ({"q": "c"}, [{"c": 0, "f": 2., "s": "ü"}]),
]


def _write(path, lists=LISTS, packing=""):
  with tf.io.TFRecordWriter(str(path), packing) as writer:
    for record in lists:
      writer.write(record if isinstance(record, bytes) else elwc(*record))
  return str(path)


def _rows(path, names=None, batch_rows=100):
  found = []
  for columns, numbers in elwc_rows.read_rows(path, names, batch_rows):
    columns = {name: column.to_pylist() for name, column in columns.items()}
    found += [{"row": number, **{name: column[i] for name, column in
                                 columns.items()}}
              for i, number in enumerate(numbers.tolist())]
  return found


@pytest.mark.parametrize("name, packing", [
    ("log.tfrecord", ""), ("log.tfrecord.gz", "GZIP"),
    ("LOG.TFRECORDS.GZ", "GZIP")])
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_a_row_an_item(name, packing, batch_rows, tmp_path):
  path = _write(tmp_path / name, packing=packing)
  assert _rows(path, ["(record)", "(place)", "q", "age", "c", "f", "s"],
               batch_rows) == [
      {"row": 1, "(record)": 1, "(place)": 1, "q": b"a", "age": 3, "c": 1,
       "f": .5, "s": b"x"},
      {"row": 2, "(record)": 1, "(place)": 2, "q": b"a", "age": 3, "c": 0,
       "f": None, "s": None},
      {"row": 3, "(record)": 3, "(place)": 1, "q": b"c", "age": None, "c": 0,
       "f": 2., "s": "ü".encode()}]


def test_names(tmp_path):
  path = _write(tmp_path / "log.tfrecord")
  assert sources.column_names(path) == [
      "(place)", "(record)", "age", "c", "f", "q", "s"]
  with pytest.raises(ValueError, match="log.tfrecord: no column is found"):
    sources.column_names(_write(tmp_path / "log.tfrecord", LISTS[1:2]))


def test_several_types_in_one_feature(tmp_path):
  path = _write(tmp_path / "log.tfrecord", [
      ({}, [{"a": 1, "b": 2**53 + 1}, {"a": .5, "b": "x"}, {}])])
  assert _rows(path, ["a", "b"]) == [
      {"row": 1, "a": 1., "b": b"9007199254740993"},
      {"row": 2, "a": .5, "b": b"x"}, {"row": 3, "a": None, "b": None}]


def test_an_example_wins_over_the_context(tmp_path):
  path = _write(tmp_path / "log.tfrecord", [({"a": 1}, [{"a": 2}, {}])])
  assert [row["a"] for row in _rows(path, ["a"])] == [2, 1]


def _several_values():
  example = tf.train.Example()
  example.features.feature["a"].int64_list.value.extend([1, 2])
  return example


def test_several_values(tmp_path):
  record = elwc({}, [{}])
  lists = elwc_rows.input_pb2.ExampleListWithContext.FromString(record)
  lists.examples[0].CopyFrom(_several_values())
  path = _write(tmp_path / "log.tfrecord", [lists.SerializeToString()])
  with pytest.raises(ValueError, match="log.tfrecord: feature 'a' of record 1 "
                     "has 2 values; a column .* leave the feature out"):
    _rows(path)


@pytest.mark.parametrize("record", [
    b"no list", _several_values().SerializeToString()])
def test_other_records(record, tmp_path):
  path = _write(tmp_path / "log.tfrecord", [LISTS[0], record])
  with pytest.raises(ValueError, match="log.tfrecord: record 2 is no ExampleLi"
                     "stWithContext"):
    _rows(path)


def test_a_damaged_file(tmp_path):
  path = tmp_path / "log.tfrecord"
  data = bytearray(open(_write(path), "rb").read())
  data[-10] ^= 1
  path.write_bytes(data)
  with pytest.raises(ValueError, match="log.tfrecord: is no TFRecord file, or "
                     "is damaged: .*; write it again"):
    _rows(str(path))


def test_records_and_places_as_requests_and_positions(tmp_path):
  lists = [({"q": "same"}, [{"c": i, "f": float(10 * i + j)} for j in range(3)])
           for i in range(2)]
  for name in "ab":
    _write(tmp_path / f"{name}.tfrecord", lists)
  columns = LogColumns("(record)", "(place)", "c", ("*",))
  with read_click_log(tmp_path, columns, valid=0, test=0,
                      max_rejected=0) as log:
    assert log.statistics["text"] == [{"name": "q", "vocabulary": ["same"]}]
    batch = next(log.parts["train"].batches(10))
    assert batch.positions.tolist() == [[1, 2, 3]] * 4
    assert sorted(batch.numeric[..., 0].tolist()) == [
        [0, 1, 2], [0, 1, 2], [10, 11, 12], [10, 11, 12]]
    np.testing.assert_array_equal(batch.feedback, batch.numeric[..., 0] // 10)
