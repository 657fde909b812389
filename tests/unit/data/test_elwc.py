"""Tests of ultra_tfr.data.elwc."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_serving.apis import input_pb2

from ultra_tfr.data import elwc
from ultra_tfr.data.elwc import ElwcLists
from ultra_tfr.data.lists import RankingLists


def _round_trip(lists, tmp_path, name="lists.tfrecord", texts=True):
  path = tmp_path / name
  elwc.write_elwc(path, lists)
  return elwc.read_elwc(path, texts)


def _assert_same(actual, expected):
  assert sorted(actual) == sorted(expected)
  for name, values in expected.items():
    assert actual[name].dtype == values.dtype, name
    assert actual[name].shape == values.shape, name
    np.testing.assert_array_equal(actual[name], values, err_msg=name)


def _objects(*values):
  array = np.empty(len(values), object)
  array[:] = values
  return array


_COLUMNS = {
    "int64": np.array([2**62 + 1, -1, 0, 7, 5]),
    "float32": np.array([.1, -np.inf, np.nan, 3e38, 0], np.float32),
    "vector": np.arange(15, dtype=np.float32).reshape(5, 3),
    "position": np.array([3, 1, 2, 2, 1]),
    "text": _objects("a", "", "ü", "b c", "d"),
    "texts": np.array([["x", str(i)] for i in range(5)], object),
    "missing_text": _objects("a", None, "b", None, None),
    "missing_int": _objects(1, None, 2**60, None, 0),
}


@pytest.mark.parametrize("name", ["lists.tfrecord", "lists.tfrecord.gz"])
def test_round_trip_keeps_values_types_and_order(tmp_path, name):
  lists = ElwcLists(_COLUMNS, [0, 2, 2, 5], {
      "query_id": np.array([9, 8, 7]), "topic": np.eye(3, dtype=np.float32)})
  again = _round_trip(lists, tmp_path, name)
  assert again.row_splits.tolist() == [0, 2, 2, 5]
  _assert_same(again.examples, _COLUMNS)
  _assert_same(again.context, lists.context)
  magic = (tmp_path / name).read_bytes()[:2]
  assert (magic == b"\x1f\x8b") == name.endswith(".gz")


def test_different_numbers_of_values(tmp_path):
  tokens = _objects(["a", "b"], [], ["c"])
  numbers = _objects([1, 2, 3], [2**60], [])
  again = _round_trip(
      ElwcLists({"tokens": tokens, "numbers": numbers}, [0, 1, 3]), tmp_path)
  assert [list(v) for v in again.examples["tokens"]] == list(tokens)
  assert [v.tolist() for v in again.examples["numbers"]] == list(numbers)
  # What was read can be written again.
  assert [list(v) for v in _round_trip(again, tmp_path).examples["tokens"]] == (
      list(tokens))


def test_what_a_file_cannot_tell_apart(tmp_path):
  again = _round_trip(ElwcLists({
      "bool": [True, False], "int8": np.array([1, -2], np.int8),
      "double": [.1, 2.], "str": np.array(["a", "b"]),
      "bytes": np.array([b"a", b"\xff"])}, [0, 2]), tmp_path, texts=["str"])
  _assert_same(again.examples, {
      "bool": np.array([1, 0]), "int8": np.array([1, -2]),
      "double": np.array([.1, 2.], np.float32), "str": _objects("a", "b"),
      "bytes": _objects(b"a", b"\xff")})


def test_padded_arrays(tmp_path):
  padded = {"click": np.array([[1, -1, 0], [-1, -1, -1], [0, 1, 1]]),
            "x": np.arange(18, dtype=np.float32).reshape(3, 3, 2)}
  mask = [[True, False, True], [False] * 3, [True] * 3]
  lists = _round_trip(ElwcLists.from_padded(
      padded, mask, {"device": [1, 0, 1]}), tmp_path)
  assert lists.row_splits.tolist() == [0, 2, 2, 5]
  columns, valid = lists.pad({"click": -1})
  assert valid.tolist() == [[True, True, False], [False] * 3, [True] * 3]
  # Items keep their order and move to the front.
  assert columns["click"].tolist() == [[1, 0, -1], [-1] * 3, [0, 1, 1]]
  assert columns["x"][0, :, 0].tolist() == [0, 4, 0]
  assert lists.context["device"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("queries", [[5, 3], ["q", "longer"]])
def test_ranking_lists(tmp_path, queries):
  lists = RankingLists(np.arange(6).reshape(3, 2) / 3, [2, -1, .5], [0, 1, 3],
                       queries, ["d1", "d2", "d3"])
  stored = ElwcLists.from_ranking_lists(
      lists, {"position": [1, 2, 1]}, {"device": [0, 1]})
  again = _round_trip(stored, tmp_path)
  assert again.examples["position"].tolist() == [1, 2, 1]
  assert again.context["device"].tolist() == [0, 1]
  again = again.to_ranking_lists()
  for name in ("features", "labels", "row_splits", "query_ids", "doc_ids"):
    values = getattr(lists, name)
    assert getattr(again, name).dtype == values.dtype
    np.testing.assert_array_equal(getattr(again, name), values)


def _frame():
  return pd.DataFrame({
      "query": ["b", "a", "b", "c", "a", "b", "c", "c"],
      "position": [2, 1, 1, 3, 2, 5, 2, 1],
      "click": [0, 1, 1, 0, 0, 0, 0, 1],
      "bm25": np.array([.5, .1, np.nan, 0, 1, 2, 3, 4], np.float32),
      "title": ["t0", "t1", None, "t3", "t4", "t5", "t6", "t7"],
      "device": [1, 0, 1, 2, 0, 1, 2, 2]})


def test_a_frame_gives_a_record_a_query(tmp_path):
  """What users ask most often: how does a data frame become ELWC?"""
  frame = _frame()
  path = tmp_path / "frame.tfrecord"
  elwc.write_elwc(path, ElwcLists.from_frame(frame, "query", ["device"]))
  records = [input_pb2.ExampleListWithContext.FromString(r.numpy())
             for r in tf.data.TFRecordDataset(str(path))]
  assert [len(r.examples) for r in records] == [3, 2, 3]
  features = records[0].context.features.feature
  assert features["query"].bytes_list.value[:] == [b"b"]
  assert features["device"].int64_list.value[:] == [1]
  assert [e.features.feature["position"].int64_list.value[0]
          for e in records[0].examples] == [2, 1, 5]
  assert "title" not in records[0].examples[1].features.feature
  frame = frame.iloc[[0, 2, 5, 1, 4, 3, 6, 7]].reset_index(drop=True)
  again = elwc.read_elwc(path).to_frame()
  pd.testing.assert_frame_equal(
      again[list(frame)], frame.astype({"query": object, "title": object}),
      check_dtype=pd.__version__ < "3")


def test_nullable_columns_leave_out_what_is_missing(tmp_path):
  frame = pd.DataFrame({"q": [1, 1], "x": pd.array([2**60 + 1, None], "Int64")})
  again = _round_trip(ElwcLists.from_frame(frame, "q"), tmp_path)
  assert again.examples["x"].tolist() == [2**60 + 1, None]


@pytest.mark.smoke
def test_tf_ranking_reads_the_same(tmp_path):
  path = tmp_path / "lists.tfrecord.gz"
  elwc.write_elwc(path, ElwcLists(
      {"x": [[1., 2.], [3., 4.], [5., 6.]], "click": [1, 0, 1]}, [0, 2, 3],
      {"device": [7, 8]}))
  parsed = tfr.data.parse_from_example_list(
      list(elwc.open_records(str(path)).as_numpy_iterator()),
      context_feature_spec={"device": tf.io.FixedLenFeature([1], tf.int64)},
      example_feature_spec={
          "x": tf.io.FixedLenFeature([2], tf.float32, [0., 0.]),
          "click": tf.io.FixedLenFeature([1], tf.int64, -1)})
  assert parsed["x"].numpy().tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
  assert parsed["click"].numpy()[..., 0].tolist() == [[1, 0], [1, -1]]
  assert parsed["device"].numpy().tolist() == [[7], [8]]


def test_several_files_and_only_the_first_lists(tmp_path):
  for i in range(3):
    elwc.write_elwc(tmp_path / f"part-{i}", ElwcLists(
        {"x": [2 * i, 2 * i + 1]}, [0, 1, 2]))
  pattern = str(tmp_path / "part-*")
  assert elwc.read_elwc(pattern).examples["x"].tolist() == list(range(6))
  assert len(elwc.read_elwc(pattern, max_lists=3)) == 3
  assert elwc.read_elwc([tmp_path / "part-2", tmp_path / "part-0"]).examples[
      "x"].tolist() == [4, 5, 0, 1]


@pytest.mark.parametrize("make, message", [
    (lambda: ElwcLists({"x": [1, 2]}, [0, 3]), r"`examples\['x'\]` .*\[3\]"),
    (lambda: ElwcLists({"x": [1]}, [0, 1], {"q": [1, 2]}), r"`context\['q'\]`"),
    (lambda: ElwcLists({"x": [1]}, [1, 1]), "`row_splits` must rise"),
    (lambda: ElwcLists({"x": [1.7e9 + 1]}, [0, 1]), "float64 1700000001.0"),
    (lambda: ElwcLists({"x": [1e300]}, [0, 1]), "float64 1e.300"),
    (lambda: ElwcLists({"x": np.array([2**63], np.uint64)}, [0, 1]), "uint64"),
    (lambda: ElwcLists({"x": np.array(["2024"], "M8[s]")}, [0, 1]), "datetime"),
    (lambda: ElwcLists({"x": [1]}, [0, 1]).to_ranking_lists(),
     "must have 'features', but has only x"),
    (lambda: ElwcLists.from_padded({"x": [1]}, [[True]]), "as `mask`"),
    (lambda: ElwcLists.from_frame(_frame(), "qury"), "must have 'qury'"),
    (lambda: ElwcLists.from_frame(_frame(), "query", ["click"]),
     "'click' has several for 'b'"),
    (lambda: ElwcLists.from_frame(_frame(), "title"), "row 2 of 'title'"),
    (lambda: elwc.write_elwc("unused", ElwcLists(
        {"x": _objects(1, "a")}, [0, 2])), "'x' must be only numbers or only"),
    (lambda: elwc.read_elwc("/nowhere/*.tfrecord"), "no file /nowhere/"),
])
def test_errors(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_damaged_and_mixed_files(tmp_path):
  path = tmp_path / "bad"
  path.write_bytes(b"x" * 50)
  with pytest.raises(ValueError, match="bad: is no TFRecord file of ELWC"):
    elwc.read_elwc(path)
  for i, values in enumerate(([1], [1.])):
    elwc.write_elwc(tmp_path / f"mixed-{i}", ElwcLists({"x": values}, [0, 1]))
  with pytest.raises(ValueError, match="'x' is a float_list, but before a int"):
    elwc.read_elwc(str(tmp_path / "mixed-*"))
  elwc.write_elwc(path, ElwcLists({"x": np.array([b"\xff"])}, [0, 1]))
  with pytest.raises(ValueError, match="'x' is no UTF-8"):
    elwc.read_elwc(path)
