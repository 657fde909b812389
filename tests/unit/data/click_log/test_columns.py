"""Tests of ultra_tfr.data.click_log.columns."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

AVAILABLE = ["q", "rank", "click", "dwell", "f_1", "f_2", "brand", "device",
             "item", "w", "time", "shuffled"]
ALL_ROLES = LogColumns(
    "q", "rank", "click + dwell", ("*",), context="device", item="item",
    weight="w", timestamp="time", randomized="shuffled")
ROLES = {"q": "query", "rank": "position", "click": "feedback",
         "dwell": "feedback", "device": "context", "w": "weight",
         "time": "timestamp", "shuffled": "randomized"}


def test_no_pattern_finds_a_role():
  assert ALL_ROLES.resolve(AVAILABLE) == ("f_1", "f_2", "brand")
  assert ALL_ROLES.needed(AVAILABLE) == tuple(AVAILABLE)


@pytest.mark.parametrize("column, role", ROLES.items())
def test_a_role_is_no_feature(column, role):
  columns = dataclasses.replace(ALL_ROLES, features=("f_1", column))
  with pytest.raises(ValueError, match=f"`features` names '{column}', which is "
                     f"the `{role}`; .* Leave it out"):
    columns.resolve(AVAILABLE)


@pytest.mark.parametrize("column, role", [
    ("(record)", "query"), ("(place)", "position")])
def test_the_order_of_elwc_is_no_feature(column, role):
  available = [*AVAILABLE, "(record)", "(place)"]
  assert ALL_ROLES.resolve(available) == ("f_1", "f_2", "brand")
  columns = dataclasses.replace(ALL_ROLES, features=(column,))
  with pytest.raises(ValueError, match=f"which is the `{role}`"):
    columns.resolve(available)


def test_row_numbers_of_pandas_match_no_pattern():
  available = [*AVAILABLE, "", "__index_level_0__", "Unnamed: 0"]
  assert ALL_ROLES.resolve(available) == ("f_1", "f_2", "brand")
  columns = dataclasses.replace(ALL_ROLES, features="Unnamed: 0")
  assert columns.resolve(available) == ("Unnamed: 0",)


def test_only_needed_columns():
  columns = LogColumns("q", "rank", "click", ("f_?",))
  assert columns.needed(AVAILABLE) == ("q", "rank", "click", "f_1", "f_2")


@pytest.mark.parametrize("name", [
    "price [$]", "a*", "what?", "[", "(price)", "größe", "a b", "_x"])
def test_any_name_is_found_as_it_is(name):
  columns = LogColumns("q", "rank", "click", (name,))
  assert columns.resolve([*AVAILABLE, name]) == (name,)


def test_features_are_in_the_order_of_the_log():
  columns = LogColumns("q", "rank", "click", ["brand", "f_2", "f_*"])
  assert columns.resolve(AVAILABLE) == ("f_1", "f_2", "brand")
  assert LogColumns("q", "rank", "click").resolve(AVAILABLE) == ()


@pytest.mark.parametrize("change, message", [
    ({"query": None}, "`query` must be the name of a column, but is None"),
    ({"position": 3}, "`position` must be the name of a column, but is 3"),
    ({"position": "q"}, "'q' cannot be both `query` and `position`; name anot"),
    ({"weight": "time"}, "'time' cannot be both `weight` and `timestamp`"),
    ({"feedback": "click +"}, "`text` "),
])
def test_bad_roles(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(ALL_ROLES, **change)


def test_an_item_may_have_another_role():
  columns = dataclasses.replace(ALL_ROLES, item=("item", "device", "q"))
  assert columns.item == ("item", "device", "q")


@pytest.mark.parametrize("change, message", [
    ({"query": "x"}, "The log has no column 'x', which `query` names; its "
     "columns are q, rank, "),
    ({"item": ("item", "x")}, "no column 'x', which `item` names"),
    ({"feedback": "click + x"}, "no column 'x', which `feedback` names"),
    ({"features": ("f_1", "x")}, "`features` has 'x', which matches no column; "
     "the columns without another role are f_1, f_2, brand"),
    ({"features": ("g_*",)}, "`features` has 'g_\\*', which matches no column"),
])
def test_missing_columns(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(ALL_ROLES, **change).resolve(AVAILABLE)


def test_config_survives_json():
  config = json.loads(json.dumps(ALL_ROLES.get_config()))
  assert LogColumns.from_config(config) == ALL_ROLES
  with pytest.raises(ValueError, match="`feedback` is a function, which cannot "
                     "be saved"):
    LogColumns("q", "rank", np.sum).get_config()


# Feedback by a function.


def _frame():
  return pd.DataFrame({
      "q": np.arange(40) // 2, "rank": np.arange(40) % 2 + 1,
      "action": ["buy", None, "view", "view"] * 10, "dwell": np.arange(40.),
      "seen": pd.Timestamp("2026-01-01"), "history": [[1]] * 40,
      "note": [None] * 35 + ["x"] * 5, "f": 1.5})


def _feedback(batch_size, columns, frame):
  with read_click_log(frame, columns, valid=0, test=0) as log:
    return {int(p): f for batch in log.parts["train"].batches(batch_size)
            for p, f in zip(batch.numeric.ravel(), batch.feedback.ravel())}


def test_a_function_of_numbers_and_texts():
  seen = []

  def feedback(columns):
    seen.append(set(columns))
    return (columns["action"] == "buy") + columns["dwell"] / 100

  columns = LogColumns("q", "rank", feedback, "f")
  found = _feedback(3, columns, _frame().assign(f=np.arange(40)))
  assert found == {i: pytest.approx((i % 4 == 0) + i / 100) for i in range(40)}
  # Neither roles nor features, nor what is neither number nor text.
  assert seen == [{"action", "dwell", "note"}]


def test_a_function_sees_missing_numbers_as_nan():
  def feedback(columns):
    return np.nan_to_num(columns["dwell"], nan=7.)

  frame = _frame().assign(f=np.arange(40.))
  frame["dwell"] = frame["dwell"].astype(object)
  frame.loc[3, "dwell"], frame.loc[5, "dwell"] = None, "long"
  found = _feedback(3, LogColumns("q", "rank", feedback, "f"), frame)
  assert (found[3], found[4], found[5]) == (7, 4, 7)


def test_a_function_needs_columns_that_are_no_features():
  columns = LogColumns("q", "rank", lambda columns: columns["dwell"], "*")
  with pytest.raises(ValueError, match="`features` leaves no column to the "
                     "function `feedback`"):
    read_click_log(_frame(), columns)


def test_a_function_must_give_a_number_a_row():
  columns = LogColumns("q", "rank", lambda columns: 1., "f")
  with pytest.raises(ValueError, match=r"`feedback` must give one number a "
                     r"row, of the shape \[40\], but gave the shape \[\]"):
    read_click_log(_frame(), columns)


def test_a_request_of_several_columns():
  """A session and a page of it needed a column made beforehand."""
  columns = LogColumns(("session", "page"), "p", "c", ("*",))
  assert columns.query_columns == ("session", "page")
  assert columns.resolve(["session", "page", "p", "c", "f"]) == ("f",)
  assert LogColumns.from_config(columns.get_config()) == columns
  assert LogColumns(["q"], "p", "c").get_config()["query"] == "q"
  with pytest.raises(ValueError, match="cannot be both `query` and `query`"):
    LogColumns(("q", "q"), "p", "c")
  for query in ((), ("q", 3), None):
    with pytest.raises(ValueError, match="`query` must be the name of a colum"):
      LogColumns(query, "p", "c")


def test_an_item_column_may_be_a_feature_by_its_name():
  """The text of a query is both, and was refused."""
  columns = LogColumns("q", "p", "c", ("text", "f"), item=("text", "i"))
  available = ["q", "p", "c", "text", "i", "f"]
  assert columns.resolve(available) == ("text", "f")
  pattern = LogColumns("q", "p", "c", ("*",), item=("text", "i"))
  assert pattern.resolve(available) == ("f",)
  for item in ("d", "c"):
    with pytest.raises(ValueError, match=f"`features` names '{item}', which"):
      LogColumns("q", "p", "c", ("f", item), context="d", item=item).resolve(
          [*available, "d"])
