"""Tests of ultra_tfr.data.click_log.rows; rejected rows are in another file."""

import numpy as np
import pyarrow as pa
import pytest

from ultra_tfr.data.click_log import rows as rows_lib
from ultra_tfr.data.click_log.batches import Malformed
from ultra_tfr.data.click_log.batches import RawBatch
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.rows import RowReader
from ultra_tfr.data.click_log.values import hashes

COLUMNS = LogColumns("q", "p", "c", ("x",))


def _batch(columns, source="log", start=1, malformed=()):
  arrays = {name: values if isinstance(values, pa.Array) else pa.array(values)
            for name, values in columns.items()}
  rows = np.arange(len(next(iter(arrays.values())))) + start
  return RawBatch(source, arrays, rows, list(malformed))


def _columns(size=4, **changes):
  return {"q": ["a"] * size, "p": list(range(size)), "c": [0] * size,
          "x": [0.] * size, **changes}


def _reader(columns=COLUMNS, available=("q", "p", "c", "x", "y", "d"),
            slots=None, contexts=(), new_contexts=True, features=None):
  return RowReader(columns, available, slots, contexts, new_contexts, features)


def test_defaults_of_roles_that_are_not_there():
  rows, rejected = _reader().read(_batch(_columns(), start=7))
  assert rejected == []
  assert rows.weight.tolist() == [1] * 4 and rows.time.tolist() == [0] * 4
  assert rows.item.tolist() == [-1] * 4 and rows.context.tolist() == [0] * 4
  assert not rows.randomized.any()
  assert rows.row.tolist() == [7, 8, 9, 10] and rows.source.tolist() == [0] * 4
  assert rows.request.tolist() == hashes(pa.array(["a"] * 4)).tolist()
  kinds = {name: getattr(rows, name).dtype for name in rows._fields[:-1]}
  assert kinds == {
      "request": np.int64, "position": np.int64, "feedback": np.float32,
      "context": np.int32, "item": np.int64, "weight": np.float32,
      "time": np.float64, "randomized": bool, "row": np.int64,
      "source": np.int32, "numeric": np.float32}


def test_weights_times_and_randomized_requests():
  columns = LogColumns("q", "p", "c", weight="w", timestamp="t", randomized="r")
  rows, rejected = _reader(columns, ("q", "p", "c", "w", "t", "r")).read(_batch(
      _columns(w=["0", "2.5", "1e3", "1"], r=["true", "False", "1", "0"],
               t=["1970-01-02", "0.5", "1970-01-01T00:01Z", "-3"])))
  assert rejected == []
  assert rows.weight.tolist() == [0, 2.5, 1000, 1]
  assert rows.time.tolist() == [86400, .5, 60, -3]
  assert rows.randomized.tolist() == [True, False, True, False]


def test_kinds_are_seen_in_the_first_batch():
  columns = LogColumns("q", "p", "c", ("x", "y"))
  reader = _reader(columns)
  # Nothing can be seen in one without rows.
  empty = {name: pa.array([], pa.string()) for name in "qpcxy"}
  assert reader.read(_batch(empty, malformed=[Malformed(2, "bad")])) == (
      None, [("log", 2, "bad")])
  assert reader.numeric_features is None
  reader.read(_batch(
      _columns(x=["1", "2.5", None, ""], y=["1", "a", "b", "3"])))
  assert reader.numeric_features == ["x"] and reader.text_features == ["y"]
  rows, rejected = reader.read(_batch(
      _columns(x=["1", "a", None, "NA"], y=[1, 2, None, 3])))
  np.testing.assert_array_equal(rows.numeric, [[1], [np.nan], [np.nan]])
  assert rows.texts[0].to_pylist() == ["1", "", "3"]
  assert rejected == [("log", 2, "x is no number")]


def test_one_wrong_value_makes_no_text():
  values = [str(i) for i in range(99)] + ["?"]
  reader = _reader()
  rows, rejected = reader.read(_batch(_columns(100, x=values)))
  assert reader.numeric_features == ["x"]
  assert rows.numeric.ravel().tolist() == list(range(99))
  assert rejected == [("log", 100, "x is no number")]


def test_given_kinds_and_order():
  columns = LogColumns("q", "p", "c", ("x", "y", "d"))
  reader = _reader(columns, features=(["d", "x"], ["y"]))
  rows, rejected = reader.read(_batch(_columns(
      x=["a", "2", "3", "4"], y=[1, 2, 3, 4], d=["5", "6", "7", "8"])))
  assert rows.numeric.tolist() == [[6, 2], [7, 3], [8, 4]]
  assert rows.texts[0].to_pylist() == ["2", "3", "4"]
  assert rejected == [("log", 1, "x is no number")]


def test_a_late_name_of_a_position_is_one_bad_row():
  reader = _reader()
  reader.read(_batch(_columns(p=["1", "2", "3", "4"])))
  rows, rejected = reader.read(_batch(_columns(1, p=["x"])))
  assert not len(rows.request) and rejected == [("log", 1, "p is no number")]


def test_contexts_grow_by_rows_that_stay():
  columns = LogColumns("q", "p", "c", ("x",), context="d")
  reader = _reader(columns)
  rows, _ = reader.read(_batch(_columns(d=["a", "b", "a", "c"],
                                        c=[0, -1, 0, 0])))
  assert rows.context.tolist() == [0, 0, 1]
  rows, _ = reader.read(_batch(_columns(d=[None, "c", "b", ""])))
  assert rows.context.tolist() == [1, 2]
  assert reader.contexts == ["a", "c", "b"]


def test_known_contexts():
  columns = LogColumns("q", "p", "c", ("x",), context="d")
  reader = _reader(columns, contexts=["b", "a"], new_contexts=False)
  rows, rejected = reader.read(_batch(_columns(d=["a", "b", "c", "a"])))
  assert rows.context.tolist() == [1, 0, 1]
  assert rejected == [("log", 3, "d is none of the known contexts")]
  assert reader.contexts == ["b", "a"]


def test_too_many_contexts(monkeypatch):
  monkeypatch.setattr(rows_lib, "MAX_CONTEXTS", 3)
  columns = LogColumns("q", "p", "c", ("x",), context="d")
  with pytest.raises(ValueError, match="log: `context` 'd' has more than 3 v"):
    _reader(columns).read(_batch(_columns(d=["a", "b", "c", "d"])))


def test_items_of_several_columns():
  columns = LogColumns("q", "p", "c", ("x",), item=("y", "d"))
  rows, _ = _reader(columns).read(_batch(_columns(
      6, y=["a", "ab", "a", None, "a", "1"],
      d=["bc", "c", "bc", "c", "", "2"])))
  items = rows.item.tolist()
  assert items[0] == items[2] and len({items[0], items[1], items[5]}) == 3
  assert items[3] == items[4] == -1
  columns = LogColumns("q", "p", "c", ("x",), item="y")
  rows, _ = _reader(columns).read(_batch(_columns(y=[2**53, 2**53 + 1, None,
                                                     2**53])))
  assert rows.item[0] == rows.item[3] != rows.item[1] and rows.item[2] == -1


def test_the_first_reason_stays():
  _, rejected = _reader().read(_batch(_columns(
      q=[None, "a", "a", "a"], p=[-1, -1, 0, 1], c=[-1, -1, -1, 0])))
  assert rejected == [("log", 1, "no request id in q"),
                      ("log", 2, "p is no whole number from 0"),
                      ("log", 3, "the feedback is negative")]


def test_sources_are_numbered():
  reader = _reader()
  numbers = [reader.read(_batch(_columns(1), source))[0].source.tolist()
             for source in "xyx"]
  assert numbers == [[0], [1], [0]] and reader.sources() == ["x", "y"]


def test_records_are_counted_anew_in_each_file():
  columns = LogColumns("(record)", "p", "c", ("x",))
  reader = _reader(columns, ("(record)", "p", "c", "x"))
  batch = {**_columns(2), "(record)": [1, 2]}
  first, again, other = (reader.read(_batch(batch, source))[0].request.tolist()
                         for source in ("a", "a", "b"))
  assert first == again and not set(first) & set(other)


def test_bytes_that_are_no_text():
  columns = LogColumns("q", "p", "c", ("x", "y"), context="d")
  rows, rejected = _reader(columns).read(_batch(_columns(
      q=[b"a", b"\xff", b"a", b"a"], y=[b"y", b"y", b"\xff", b"z"],
      d=[b"d", b"d", b"d", b"\xff"])))
  assert len(rows.request) == 1
  assert rejected == [("log", 2, "q is no UTF-8 text"),
                      ("log", 3, "y is no UTF-8 text"),
                      ("log", 4, "d is no UTF-8 text")]


@pytest.mark.parametrize("name", ["q", "p", "c", "x", "d", "w"])
def test_a_column_of_an_unusable_type(name):
  columns = LogColumns("q", "p", "c", ("x",), context="d", weight="w")
  batch = {**_columns(d=["a"] * 4, w=[1] * 4), name: [[1]] * 4}
  with pytest.raises(ValueError, match=rf"log: the column '{name}' is of the "
                     "type list<.*>, which cannot be used here; make it a n"):
    _reader(columns, ("q", "p", "c", "x", "d", "w")).read(_batch(batch))


@pytest.mark.parametrize("name", ["p", "c", "x"])
def test_a_time_is_no_number(name):
  times = pa.array([1, 2, 3, 4], pa.timestamp("s"))
  with pytest.raises(ValueError, match=f"column '{name}' is of the type time"):
    _reader().read(_batch(_columns(**{name: times})))


def test_texts_in_feedback():
  columns = LogColumns("q", "p", "c + 2 * (y == 'buy')", ("x",))
  rows, rejected = _reader(columns).read(_batch(_columns(
      c=[1, 0, 1, 0], y=["buy", "view", None, "buy"])))
  assert rows.feedback.tolist() == [3, 0, 2]
  assert rejected == [("log", 3, "the feedback is missing")]
  # Numbers that are compared with texts are texts.
  columns = LogColumns("q", "p", "y == '7'", ("x",))
  rows, _ = _reader(columns).read(_batch(_columns(y=[7, 8, 7, 77])))
  assert rows.feedback.tolist() == [1, 0, 1, 0]


def test_what_no_expression_can_compute():
  columns = LogColumns("q", "p", "log(c)", ("x",))
  rows, rejected = _reader(columns).read(_batch(_columns(c=[1, 0, 2, -1])))
  assert rows.feedback.tolist() == [0, np.float32(np.log(2))]
  assert rejected == [("log", 2, "the feedback is infinite"),
                      ("log", 4, "the feedback is missing")]


def test_no_feature():
  rows, _ = _reader(LogColumns("q", "p", "c")).read(_batch(_columns()))
  assert rows.numeric.shape == (4, 0) and rows.texts == []


def test_a_request_of_several_columns():
  columns = LogColumns(("q", "y"), "p", "c", ("x",))
  rows, rejected = _reader(columns).read(_batch(_columns(
      6, q=["a", "ab", "a", None, "a", "1"],
      y=["bc", "c", "bc", "c", "", "2"])))
  requests = rows.request.tolist()
  assert requests[0] == requests[2] and len(set(requests)) == 3
  assert rejected == [("log", 4, "no request id in q, y"),
                      ("log", 5, "no request id in q, y")]
