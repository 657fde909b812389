"""Tests of scoring rows that a ranker has not seen."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.fit_log import new_rows
from ultra_tfr.fit_log.training import FittedLog

_STATISTICS = {
    "numeric": [{"name": name, "mean": 0.5, "variance": 2.0, "missing": 0.1}
                for name in ("price", "age")],
    "text": [{"name": "brand", "vocabulary": ["", "a", "b"]}]}


@pytest.fixture(scope="module", name="fitted")
def _fitted():
  """A ranker with any weights."""
  tf.keras.utils.set_random_seed(1)
  columns = {"query": "request", "position": "rank", "feedback": "click",
             "features": ["price", "age", "brand"], "item": ["sku"]}
  return FittedLog(
      scorers.build_log_model(_STATISTICS, 2, (8,)), None,
      {"columns": columns, "statistics": _STATISTICS}, {}, {})


def _frame(size=40, seed=0):
  generator = np.random.default_rng(seed)
  return pd.DataFrame({
      "brand": generator.choice(["a", "b", "new", None], size),
      "request": generator.integers(0, size // 4, size),
      "sku": [f"s{i}" for i in range(size)],
      "price": generator.gamma(2.0, 10.0, size),
      "age": np.where(generator.random(size) < 0.2, np.nan, 3.0)},
                      index=np.arange(size) * 10)


def test_a_frame_of_features_and_requests_is_all_that_is_needed(fitted):
  frame = _frame()
  found = fitted.score(frame)
  assert list(found.columns) == ["score", "rank"]
  assert found.index.equals(frame.index)
  for _, part in found.groupby(frame["request"]):
    assert sorted(part["rank"]) == list(range(1, len(part) + 1))
    assert part.sort_values("rank")["score"].is_monotonic_decreasing


def test_a_score_does_not_depend_on_the_other_rows(fitted):
  """What is served for an item alone, or in another order, is its score."""
  frame = _frame()
  whole = fitted.score(frame)["score"]
  assert np.allclose(fitted.score(frame.iloc[:1])["score"], whole.iloc[:1],
                     atol=1e-6)
  turned = fitted.score(frame.iloc[::-1])["score"].iloc[::-1]
  assert np.allclose(turned, whole, atol=1e-6)


def test_scores_are_those_of_the_ranking_head(fitted):
  frame = _frame()
  inputs = {
      "numeric": tf.constant(frame[["price", "age"]].to_numpy()[None],
                             tf.float32),
      "texts": tf.constant(frame[["brand"]].fillna("").to_numpy(str)[None])}
  assert np.allclose(fitted.score(frame)["score"],
                     fitted.model(inputs)[0, :, 0], atol=1e-6)


def test_of_equal_scores_the_earlier_row_is_first():
  ranks = new_rows.ranks_within(np.array([3, 3, 0, 3]), np.ones(4))
  assert ranks.tolist() == [1, 2, 1, 3]


def test_nothing_to_score_gives_nothing(fitted):
  assert not len(fitted.score(_frame().iloc[:0]))


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
@pytest.mark.parametrize("out", ["out.parquet", "out.csv"])
def test_files_give_what_a_frame_gives(fitted, tmp_path, name, out):
  frame = _frame()
  path = tmp_path / name
  if name.endswith("parquet"):
    frame.to_parquet(path)
  elif name.endswith("csv"):
    frame.to_csv(path, index=False)
  else:
    frame.to_json(path, orient="records", lines=True)
  counts = new_rows.score_log(fitted, path, str(tmp_path / out))
  assert counts == {"rows": 40, "requests": frame["request"].nunique(),
                    "rejected": {}}
  written = (pd.read_parquet if out.endswith("parquet") else pd.read_csv)(
      tmp_path / out)
  assert list(written.columns) == ["request", "sku", "score", "rank"]
  assert written["sku"].tolist() == frame["sku"].tolist()
  expected = fitted.score(frame)
  assert written["rank"].tolist() == expected["rank"].tolist()
  assert np.allclose(written["score"], expected["score"], atol=1e-5)


def test_a_request_may_be_in_several_batches_and_files(
    fitted, tmp_path, monkeypatch):
  frame = _frame(300)
  expected = fitted.score(frame)
  monkeypatch.setattr("ultra_tfr.data.click_log.sources.BATCH_ROWS", 32)
  monkeypatch.setattr(new_rows, "_BATCH", 7)
  log, out = tmp_path / "log", tmp_path / "scored.parquet"
  log.mkdir()
  frame.iloc[:170].to_parquet(log / "a.parquet")
  frame.iloc[170:].to_parquet(log / "b.parquet")
  new_rows.score_log(fitted, log, str(out), ["price"])
  written = pd.read_parquet(out)
  assert list(written.columns) == ["price", "score", "rank"]
  assert written["rank"].tolist() == expected["rank"].tolist()
  assert np.allclose(written["score"], expected["score"], atol=1e-6)


def test_missing_columns_are_all_named(fitted):
  with pytest.raises(ValueError, match=(
      "no column 'age', 'brand', which the model needs; its columns are requ")):
    fitted.score(_frame()[["request", "price"]])


def test_rows_that_cannot_be_scored_are_left_out_and_listed(fitted, tmp_path):
  frame = _frame().astype({"price": object}).reset_index(drop=True)
  frame.loc[3, "price"] = "cheap"
  with pytest.raises(ValueError, match=(
      "`frame`: row 4, counted from 1, cannot be scored: price is no number")):
    fitted.score(frame)
  frame.to_csv(tmp_path / "log.csv", index=False)
  out = str(tmp_path / "out.csv")
  with pytest.raises(ValueError, match="1 of 40 rows are rejected"):
    new_rows.score_log(fitted, tmp_path / "log.csv", out)
  assert not (tmp_path / "out.csv").exists()
  counts = new_rows.score_log(
      fitted, tmp_path / "log.csv", out, max_rejected=0.1,
      rejected_file=str(tmp_path / "rejected.csv"))
  assert counts["rows"] == 39
  assert counts["rejected"] == {"price is no number": 1}
  assert "5,price is no number" in (tmp_path / "rejected.csv").read_text()
  assert "s3" not in pd.read_csv(out)["sku"].tolist()


def test_a_column_may_be_empty_at_the_beginning(fitted, tmp_path):
  log, out = tmp_path / "log", tmp_path / "scored.parquet"
  log.mkdir()
  frame = _frame()
  frame.iloc[:20].assign(sku=None).to_parquet(log / "a.parquet")
  frame.iloc[20:].to_parquet(log / "b.parquet")
  new_rows.score_log(fitted, log, str(out))
  assert pd.read_parquet(out)["sku"].tolist()[20] == "s20"


@pytest.mark.parametrize("change, pattern", [
    ({"path": "out.txt"}, "`path` must end in .parquet or .csv"),
    ({"path": "log.parquet"}, "path log.parquet would change log.parquet"),
    ({"keep": ["score"]}, "`keep` names 'score', and a column of that name"),
    ({"keep": ["colour"]}, "no column 'colour', which `keep` names"),
])
def test_what_cannot_be_written_is_refused(
    fitted, tmp_path, monkeypatch, change, pattern):
  monkeypatch.chdir(tmp_path)
  _frame().assign(score=1.0).to_parquet("log.parquet")
  arguments = {"log": "log.parquet", "path": "out.parquet", **change}
  with pytest.raises(ValueError, match=pattern):
    new_rows.score_log(fitted, **arguments)


def test_a_log_without_rows_is_refused(fitted, tmp_path):
  path = tmp_path / "log.parquet"
  _frame().iloc[:0].to_parquet(path)
  with pytest.raises(ValueError, match="there is no row"):
    new_rows.score_log(fitted, path, str(tmp_path / "out.csv"))


class _Stream:
  """What any library with the Arrow interface gives; only once."""

  def __init__(self, table):
    self._table = table

  def __arrow_c_stream__(self, requested_schema=None):
    table, self._table = self._table, None
    return table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("make", [lambda table: table, _Stream])
def test_tables_of_arrow_are_scored_as_frames_are(fitted, make):
  """A log was read from polars and pyarrow, and scored from pandas alone."""
  frame = _frame()
  found = fitted.score(make(pa.Table.from_pandas(frame, preserve_index=False)))
  assert isinstance(found, pa.Table)
  expected = fitted.score(frame)
  assert found.column_names == list(expected.columns)
  assert found["rank"].to_pylist() == expected["rank"].tolist()
  assert np.allclose(found["score"], expected["score"], atol=1e-6)


def test_only_tables_are_scored_in_memory(fitted):
  with pytest.raises(ValueError, match=(
      "`frame` must be a table of pandas, .*'log.parquet'; `ultra-tfr score`")):
    fitted.score("log.parquet")
  with pytest.raises(ValueError, match="^`frame`: the Arrow stream of"):
    fitted.score(pa.chunked_array([[1]]))
