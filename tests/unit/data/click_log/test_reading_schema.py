"""Positions, parts, and logs that are read as another one was."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from click_log_oracles import COLUMNS
from click_log_oracles import expected_requests
from click_log_oracles import number_of
from click_log_oracles import requests_of
from click_log_oracles import write
from ultra_tfr.data.click_log import grouping
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.simulation.shop_log import simulate_log

SIMPLE = LogColumns("q", "p", "c", ("f",))
ALL = {"valid": 0, "test": 0}


def _frame(positions, requests=1):
  """Requests of rows at the positions; feature f is the row number."""
  rows = len(positions) * requests
  return pd.DataFrame({
      "q": np.arange(rows) // len(positions), "p": list(positions) * requests,
      "c": np.arange(rows) % 2, "f": np.arange(rows)})


def _positions(log):
  """Positions from 1 by the feature f, of all rows."""
  return {int(f): int(p) for part in log.parts.values()
          for batch in part.batches(2) for f, p in zip(
              batch.numeric.ravel(), batch.positions.ravel()) if p}


# Positions.


def test_gaps_between_positions():
  with read_click_log(_frame([9, 0, 3]), SIMPLE, **ALL) as log:
    assert log.positions == [0, 3, 9]
    assert _positions(log) == {0: 3, 1: 1, 2: 2}


def test_slots_in_an_explicit_order():
  frame = _frame(["side", "top", "main"], 2)
  with read_click_log(frame, SIMPLE, positions=["top", "main", "side"],
                      **ALL) as log:
    assert log.positions == ["top", "main", "side"]
    assert _positions(log) == {0: 3, 1: 1, 2: 2, 3: 3, 4: 1, 5: 2}


def test_names_of_positions_need_an_order():
  with pytest.raises(ValueError, match=r"DataFrame: the positions in 'p' are "
                     r"names \(top, ad\); say their order by `positions`"):
    read_click_log(_frame(["top", "ad", 3, 4]), SIMPLE, **ALL)


def test_other_slots_are_rejected(tmp_path):
  with read_click_log(
      _frame(["top", "ad", None, "main"]), SIMPLE, positions=["top", "main"],
      max_rejected=1, rejected_file=tmp_path / "r.csv", **ALL) as log:
    assert log.summary["rejected"] == {"p is none of the known slots": 2}
    assert _positions(log) == {0: 1, 3: 2}
  assert pd.read_csv(tmp_path / "r.csv")["row"].tolist() == [2, 3]


def test_deeper_positions_share_the_last():
  frame = _frame([1, 2, 4, 7, 9])
  with read_click_log(frame, SIMPLE, num_positions=3, **ALL) as log:
    assert log.positions == [1, 2, 4]
    assert log.pool_deeper
    assert _positions(log) == {0: 1, 1: 2, 2: 3, 3: 3, 4: 3}
  with read_click_log(frame, SIMPLE, num_positions=9, **ALL) as log:
    assert _positions(log) == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}


@pytest.mark.parametrize("options", [{}, {"num_positions": 2}])
def test_the_same_position_twice(options):
  frame = _frame([1, 5, 1, 5])
  with read_click_log(frame, SIMPLE, max_rejected=1, **options, **ALL) as log:
    assert _positions(log) == {0: 1, 1: 2}
    assert log.summary["rejected"] == {
        "another row of the request has the same position": 2}


def test_too_many_positions(monkeypatch):
  monkeypatch.setattr(grouping, "MAX_POSITIONS", 3)
  with pytest.raises(ValueError, match="has 4 different positions, up to 8; .*"
                     "give `num_positions`"):
    read_click_log(_frame([1, 2, 3, 8]), SIMPLE, **ALL)


@pytest.mark.parametrize("options, message", [
    ({"num_positions": 0}, "`num_positions` must be .* at least 1, but is 0"),
    ({"positions": []}, r"`positions` must name each .* but is \[\]"),
    ({"positions": ["a", "a"]}, "`positions` must name each position once"),
    ({"positions": ["a"], "num_positions": 2}, "`num_positions` is for pos"),
    ({"valid": .6, "test": .5}, "`valid` and `test` .* are 0.6 and 0.5"),
    ({"valid": -.1}, "`valid` and `test` must be shares"),
    ({"valid": float("nan")}, "`valid` and `test` must be shares"),
    ({"max_rejected": 2}, "`max_rejected` must be a share .* but is 2"),
    ({"schema": {}}, "Either `columns` or the `schema`"),
])
def test_bad_arguments(options, message):
  with pytest.raises(ValueError, match=message):
    read_click_log(_frame([1]), SIMPLE, **options)


def test_positions_of_a_schema_are_not_given_again():
  with read_click_log(_frame([1, 2]), SIMPLE, **ALL) as log:
    for options in ({"positions": ["a"]}, {"num_positions": 2}):
      with pytest.raises(ValueError, match="are those of the `schema`"):
        read_click_log(_frame([1]), schema=log.schema(), **options)


# Parts.


@pytest.fixture(scope="module")
def table():
  return simulate_log(2000, positions=(1, 2, 4), num_items=100, seed=3)[0]


def _by_part(log):
  return {part: set(requests_of(log, [part])) for part in log.parts}


def test_parts_by_request(table):
  columns = dataclasses.replace(COLUMNS, timestamp=None)
  frame = table.to_pandas()
  with read_click_log(frame, columns, valid=.2, test=.3) as log:
    parts = _by_part(log)
    assert sum(map(len, parts.values())) == 2000
    sizes = {part: len(requests) for part, requests in parts.items()}
    assert sizes == log.summary["requests"]
    # Within four standard deviations.
    for part, share in (("train", .5), ("valid", .2), ("test", .3)):
      assert abs(sizes[part] - 2000 * share) < 4 * np.sqrt(2000 * share)
  # Whatever the order, and whatever other requests there are.
  half = frame[frame["request_id"] < "r1000"].sample(frac=1, random_state=0)
  with read_click_log(half, columns, valid=.2, test=.3) as log:
    for part, requests in _by_part(log).items():
      assert requests == parts[part] & {
          number_of(request) for request in half["request_id"]}


def test_parts_by_time(table):
  frame = table.to_pandas()
  # The rows of a request come at different times; the first one counts.
  frame["timestamp"] += np.arange(len(frame)) % 3 * 40000
  begin = {number_of(request): time for request, time in
           frame.groupby("request_id")["timestamp"].min().items()}
  cuts = np.quantile(frame["timestamp"], [.5, .7])
  with read_click_log(frame, COLUMNS, valid=.2, test=.3) as log:
    parts = _by_part(log)
    assert requests_of(log) == expected_requests(frame.to_dict("records"))
  assert parts == {
      "train": {r for r, time in begin.items() if time < cuts[0]},
      "valid": {r for r, time in begin.items() if cuts[0] <= time < cuts[1]},
      "test": {r for r, time in begin.items() if cuts[1] <= time}}


def test_shares_of_parts_by_time(table):
  with read_click_log(table.to_pandas(), COLUMNS, valid=.2, test=.3) as log:
    for part, share in (("train", .5), ("valid", .2), ("test", .3)):
      assert len(log.parts[part]) / 2000 == pytest.approx(share, abs=.002)


@pytest.mark.parametrize("timestamp", [None, "timestamp"])
@pytest.mark.parametrize("valid, test, part", [
    (0, 0, "train"), (0, 1, "test"), (1, 0, "valid")])
def test_all_in_one_part(table, timestamp, valid, test, part, monkeypatch):
  # With few times at hand, the first and the last are not among them.
  monkeypatch.setattr(grouping, "_SAMPLED_TIMES", 10)
  columns = dataclasses.replace(COLUMNS, timestamp=timestamp)
  with read_click_log(table.to_pandas(), columns, valid=valid,
                      test=test) as log:
    assert log.summary["requests"] == {part: 2000}
    assert log.split == (valid, test)


@pytest.mark.parametrize("valid, test", [(.3, .7), (.7, .3), (.9, .1)])
def test_no_training_part(table, valid, test):
  with read_click_log(table.to_pandas(), COLUMNS, valid=valid,
                      test=test) as log:
    assert len(log.parts["valid"]) / 2000 == pytest.approx(valid, abs=.002)
    assert len(log.parts["train"]) == 0
    with pytest.raises(ValueError, match="This part of the log has no request"):
      log.parts["train"].dataset()


def test_times_are_a_sample_of_all(table, monkeypatch):
  monkeypatch.setattr(grouping, "_SAMPLED_TIMES", 500)
  monkeypatch.setattr("ultra_tfr.data.click_log.sources.BATCH_ROWS", 100)
  with read_click_log(table.to_pandas(), COLUMNS, valid=.2, test=.3) as log:
    assert len(log.parts["test"]) / 2000 == pytest.approx(.3, abs=.1)
    assert len(log.parts["valid"]) / 2000 == pytest.approx(.2, abs=.1)


# A schema.


def test_another_log_is_read_as_the_first(table, tmp_path):
  frame = table.to_pandas()
  first = frame[frame["device"] == "mobile"].assign(category="shoes 1")
  with read_click_log(first, COLUMNS) as log:
    schema = json.loads(json.dumps(log.schema()))
    assert log.contexts == ["mobile"]
  # Columns in another order, others that the patterns would find, a category
  # that looks like a number, another place and another device.
  second = frame[frame.columns[::-1]].assign(f_99=1., category="12")
  second.loc[second.index[:10], "rank"] = 5
  known = (second["device"] == "mobile") & (second["rank"] != 5)
  path = tmp_path / "log.csv"
  second.to_csv(path, index=False)
  with read_click_log(path, schema=schema, valid=0, test=1,
                      max_rejected=.9) as log:
    assert requests_of(log) == expected_requests(
        second[known].to_dict("records"))
    assert log.positions == [1, 2, 4] and log.contexts == ["mobile"]
    assert log.statistics == schema["statistics"]
    rejected = log.summary["rejected"]
    assert rejected["device is none of the known contexts"] == (
        second["device"] != "mobile").sum()
    assert sum(rejected.values()) == (~known).sum()
    assert log.schema()["feedback_kind"] == schema["feedback_kind"]


def test_a_schema_pools_and_finds_duplicates(tmp_path):
  with read_click_log(_frame([1, 2, 4, 7]), SIMPLE, num_positions=3,
                      **ALL) as log:
    schema = json.loads(json.dumps(log.schema()))
  with read_click_log(
      _frame([1, 3, 5, 6, 6, 1]), schema=schema, max_rejected=1,
      rejected_file=tmp_path / "r.csv", **ALL) as log:
    assert _positions(log) == {0: 1, 2: 3, 3: 3}
  assert pd.read_csv(tmp_path / "r.csv").sort_values("row")[
      ["row", "reason"]].to_numpy().tolist() == [
          [2, "a position that the model does not know"],
          [5, "another row of the request has the same position"],
          [6, "another row of the request has the same position"]]


def test_a_schema_of_slots():
  names = ["top", "main"]
  with read_click_log(_frame(names), SIMPLE, positions=names, **ALL) as log:
    schema = json.loads(json.dumps(log.schema()))
  with read_click_log(_frame(["main", "side"]), schema=schema, max_rejected=1,
                      **ALL) as log:
    assert _positions(log) == {0: 2}


def test_a_schema_needs_its_columns(table, tmp_path):
  with read_click_log(table.to_pandas(), COLUMNS) as log:
    schema = log.schema()
  path = write(table.drop_columns(["f_3"]), tmp_path, "csv")
  with pytest.raises(ValueError, match="`features` has 'f_3', which matches"):
    read_click_log(path, schema=schema)
