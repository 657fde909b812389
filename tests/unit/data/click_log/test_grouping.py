"""Several rows of one item at one position: events, duplicates, mistakes."""

import numpy as np
import pandas as pd
import pytest

from click_log_oracles import number_of
from click_log_oracles import requests_of
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

NAN = float("nan")
WITH_ITEM = LogColumns("q", "p", "c", ("f", "s"), item="i", timestamp="t")
WITHOUT = LogColumns("q", "p", "c", ("f", "s"))
ALL = {"valid": 0, "test": 0}


def _impressions(requests=40):
  rng = np.random.default_rng(0)
  rows = 5 * requests
  return pd.DataFrame({
      "q": np.repeat(np.arange(requests), 5), "c": 0,
      "p": np.tile(np.arange(5) + 1, requests), "i": np.arange(rows) % 37,
      "f": rng.random(rows), "s": rng.choice(list("ab"), rows),
      "t": np.arange(rows) * 60})


def _found(frame, columns, **options):
  """Rows as a set, and the summary."""
  with read_click_log(frame, columns, **ALL, **options) as log:
    rows = {
        (int(batch.requests[i]), int(batch.positions[i, j]),
         float(batch.feedback[i, j]), float(batch.numeric[i, j, 0]),
         batch.texts[i, j, 0])
        for batch in log.parts["train"].batches(16)
        for i, j in np.argwhere(batch.positions > 0)}
    return rows, log.summary, log.summary_text()


@pytest.mark.parametrize("columns", [WITH_ITEM, WITHOUT])
@pytest.mark.parametrize("order", [
    "impressions first", "clicks first", "mixed"])
def test_click_events_beside_impressions(columns, order):
  """Impressions first: no click was left. Clicks first: half were, in silence,
  if they were below one in a hundred rows."""
  impressions = _impressions()
  clicks = impressions.sample(30, random_state=1).assign(c=1)
  parts = [clicks, impressions] if order == "clicks first" else [
      impressions, clicks]
  frame = pd.concat(parts, ignore_index=True)
  if order == "mixed":
    frame = frame.sample(frac=1, random_state=2)
  expected, *_ = _found(
      impressions.assign(c=impressions.index.isin(clicks.index)), columns)
  rows, summary, text = _found(frame, columns)
  assert rows == expected
  assert summary["rejected"] == {} and summary["merged"] == 30
  assert "merged: 30 rows of an item that has one at the same position" in text


@pytest.mark.parametrize("seed", range(3))
def test_events_may_lack_features_and_be_graded(seed):
  impressions = _impressions()
  events = pd.concat([
      impressions.sample(20, random_state=1).assign(c=1., f=NAN, t=99999),
      impressions.sample(20, random_state=2).assign(c=3., s=None, t=99999)])
  largest = events.groupby(level=0)["c"].max().reindex(
      impressions.index, fill_value=0)
  expected, *_ = _found(impressions.assign(c=largest), WITH_ITEM)
  frame = pd.concat([impressions, events]).sample(frac=1, random_state=seed)
  rows, summary, _ = _found(frame, WITH_ITEM)
  assert rows == expected and summary["merged"] == 40


@pytest.mark.parametrize("columns", [WITH_ITEM, WITHOUT])
def test_exact_duplicates_are_counted_as_such(columns):
  """They were rejected as "another row of the request"."""
  frame = _impressions()
  expected, *_ = _found(frame, columns)
  again = pd.concat([frame, frame[:9], frame[:4]]).sample(
      frac=1, random_state=0)
  rows, summary, text = _found(again, columns, max_rejected=0)
  assert rows == expected
  assert summary["duplicates"] == 13 and "merged" not in summary
  assert "duplicates: 13 rows" in text


@pytest.mark.parametrize("columns", [WITH_ITEM, WITHOUT])
def test_another_item_at_a_position_is_rejected(columns):
  frame = _impressions()
  other = frame[:3].assign(i=-7, f=NAN, c=1)
  rows, summary, _ = _found(pd.concat([frame, other, other]), columns,
                            max_rejected=.1)
  assert rows == _found(frame, columns)[0]
  assert summary["rejected"] == {
      "another row of the request has the same position": 3}
  assert summary["duplicates"] == 3


def test_a_merged_request_is_in_the_part_of_its_first_time():
  frame = _impressions(100)
  late = frame[:5].assign(c=1, t=10**6)
  with read_click_log(pd.concat([late, frame]), WITH_ITEM) as log:
    assert number_of("0") in requests_of(log, ["train"])
    assert log.summary["merged"] == 5


@pytest.mark.parametrize("time", [1706702400, "2024-01-31 12:00:00 UTC"])
def test_times_that_are_all_equal_are_named(time):
  """"no request is left for the train part" did not say why."""
  frame = _impressions().assign(t=time)
  with pytest.raises(ValueError, match=(
      "no request is left for the train part, since all times in 't' are the "
      r"same \(1706702400 seconds since 1970\); leave `timestamp` out")):
    read_click_log(frame, WITH_ITEM)
  # One part needs no order.
  assert _found(frame, WITH_ITEM)[0]
