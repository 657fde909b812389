"""Tests of ultra_tfr.fit_log.leaks."""

import numpy as np
import pytest

import click_logs
from ultra_tfr.fit_log import leaks

_NOTHING = {"clicks": {}, "position": {}, "identifying": {}}


@pytest.fixture(scope="module")
def rows():
  """Clicks that depend on a feature and the position, as in an honest log."""
  generator = np.random.default_rng(0)
  size = 6000
  positions = np.tile(np.arange(1, 7), size // 6)
  feature = generator.normal(size=size)
  chance = 1 / (1 + np.exp(3 - 2 * feature)) / positions
  return {"positions": positions, "requests": np.arange(size) // 6,
          "clicked": generator.random(size) < chance, "feature": feature,
          "noise": generator.normal(size=size),
          "brand": generator.integers(0, 40, size).astype(str)}


def _find(rows, numeric=None, texts=None):
  return leaks.suspicious(
      {"feature": rows["feature"], **(numeric or {})},
      {"brand": rows["brand"], **(texts or {})}, rows["clicked"],
      rows["positions"], rows["requests"])


def test_an_honest_log_has_no_leaks(rows):
  assert _find(rows, {"noise": rows["noise"], "constant": np.ones(6000)}) == (
      _NOTHING)


@pytest.mark.parametrize("kind", ["0 before", "missing before", "negative",
                                  "text"])
def test_what_is_known_only_after_the_click(rows, kind):
  """Dwell time as a feature gave a flat curve and an NDCG of .9988."""
  clicked, noise = rows["clicked"], np.abs(rows["noise"])
  dwell = {"0 before": np.where(clicked, noise, 0),
           "missing before": np.where(clicked, noise, np.nan),
           "negative": np.where(clicked, -noise, 0)}
  found = _find(rows, {"dwell": dwell[kind]} if kind in dwell else {},
                {} if kind in dwell else {
                    "dwell": np.where(clicked, "long", "none")})
  assert found.pop("clicks") == {"dwell": pytest.approx(1.0)}
  assert not any(found.values())


@pytest.mark.parametrize("copy", [
    lambda positions: positions, lambda positions: -1.0 / positions])
def test_a_copy_of_the_position(rows, copy):
  """It passed as 'what stands high is what is relevant'."""
  found = _find(rows, {"slot": copy(rows["positions"])})
  assert found == {**_NOTHING, "position": {"slot": pytest.approx(1.0)}}
  names = np.array(list("abcdefg"))[rows["positions"]]
  found = _find(rows, texts={"slot": names})
  assert found == {**_NOTHING, "position": {"slot": pytest.approx(1.0)}}


def test_a_score_of_the_ranker_that_was_online_is_no_copy(rows):
  score = -rows["positions"] + 0.7 * rows["noise"]
  assert _find(rows, {"score": score}) == _NOTHING


def test_texts_that_few_requests_share(rows):
  """With document ids and query texts examination fell less than clicks."""
  found = _find(rows, texts={
      "query": (rows["requests"] // 2).astype(str),
      "document": (np.arange(6000) % 2000).astype(str)})
  assert found == {**_NOTHING, "identifying": {"query": 2.0, "document": 3.0}}


def test_too_few_clicks_tell_nothing(rows):
  few = np.zeros(6000, bool)
  few[:9] = True
  found = _find({**rows, "clicked": few}, {"dwell": few.astype(float)})
  assert not found["clicks"]


def test_features_of_a_log():
  table = click_logs.small()
  clicked = table["click"].to_numpy()
  table = click_logs.with_column(table, "f_after", clicked * 2.0)
  table = click_logs.with_column(
      table, "f_rank", table["rank"].to_numpy().astype(float))
  with click_logs.read(table) as log:
    found = leaks.find(log)
  assert list(found["clicks"]) == ["f_after"]
  assert list(found["position"]) == ["f_rank"]
  assert not found["identifying"]
