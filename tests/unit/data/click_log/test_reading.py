"""Tests of ultra_tfr.data.click_log.reading: the same requests from any log."""

import gc
import glob
import json
import os
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from click_log_oracles import COLUMNS
from click_log_oracles import WRITERS
from click_log_oracles import expected_requests
from click_log_oracles import requests_of
from click_log_oracles import write
from ultra_tfr.data.click_log import grouping
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.simulation.shop_log import simulate_log


@pytest.fixture(scope="module")
def table():
  """A log whose requests differ in length, with rows in no order."""
  log, _ = simulate_log(300, positions=(1, 2, 4, 7), num_items=100,
                        randomized=.3, seed=3)
  keep = np.random.default_rng(0).random(len(log)) < 0.8
  return log.filter(pa.array(keep))


@pytest.fixture(scope="module")
def expected(table):
  return expected_requests(table.to_pylist())


def _read(log, **options):
  return read_click_log(log, COLUMNS, **{"max_rejected": 0, **options})


# The same from any file.


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_gives_the_same(table, expected, tmp_path, ending):
  with _read(write(table, tmp_path, ending)) as log:
    assert requests_of(log) == expected
    assert log.positions == [1, 2, 4, 7]
    assert sum(log.summary["rows"].values()) == len(table)
    assert sorted(log.summary["text_features"]) == ["brand", "category"]


def test_a_data_frame_gives_the_same(table, expected):
  frame = table.to_pandas()
  with _read(frame) as log:
    assert requests_of(log) == expected
  for column in ("category", "brand", "device", "request_id"):
    frame[column] = frame[column].astype("category")
  frame["f_4"] = frame["f_4"].astype("Float64")
  frame["is_new"] = frame["is_new"].astype("boolean")
  frame.index = frame["rank"].to_numpy()
  with _read(frame) as log:
    assert requests_of(log) == expected


def test_several_files_of_any_format(table, expected, tmp_path):
  endings = ("parquet", "csv", "jsonl.gz", "csv.gz")
  parts = [write(table.slice(i * 300, 300), tmp_path, ending, f"part-{i}")
           for i, ending in enumerate(endings)]
  (tmp_path / "_SUCCESS").write_bytes(b"")
  (tmp_path / "notes.txt").write_text("not a log")
  (tmp_path / ".part-0.csv").write_text("hidden")
  for log in (tmp_path, str(tmp_path), tmp_path / "part-*", parts,
              [tmp_path / "part-[01].*", tmp_path / "part-[23].*"]):
    with _read(log) as read:
      assert requests_of(read) == expected


def test_a_pattern_of_folders(table, expected, tmp_path):
  for day in range(2):
    folder = tmp_path / f"day={day}"
    folder.mkdir()
    write(table.slice(day * 600, 600), folder, "parquet", "part")
  with _read(tmp_path / "day=*") as log:
    assert requests_of(log) == expected


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_neither_order_nor_blocks_matter(
    table, expected, tmp_path, monkeypatch, ending):
  monkeypatch.setattr(grouping, "_BUCKET_ROWS", 50)
  monkeypatch.setattr(sources, "BATCH_ROWS", 64)
  monkeypatch.setattr("ultra_tfr.data.click_log.batches.BLOCK_BYTES", 5000)
  order = np.random.default_rng(1).permutation(len(table))
  for seed, rows in enumerate((order, np.sort(order))):
    path = write(table.take(pa.array(rows)), tmp_path, ending, str(seed))
    with _read(path) as log:
      assert requests_of(log) == expected
      assert len(os.listdir(log.parts["train"]._folder)) > 20


def test_progress_counts_rows(table, monkeypatch):
  monkeypatch.setattr(sources, "BATCH_ROWS", 500)
  seen = []
  _read(table.to_pandas(), progress=seen.append).close()
  assert seen == [500, len(table)]


# The summary.


def test_the_summary_counts(table):
  frame = table.to_pandas()
  with _read(frame) as log:
    summary = log.summary
  sizes = frame.groupby("request_id").size()
  assert sum(summary["requests"].values()) == len(sizes)
  assert summary["longest_request"] == sizes.max()
  assert summary["requests_of_one_row"] == (sizes == 1).sum()
  clicks = frame.groupby("request_id")["click"].sum()
  assert summary["requests_without_feedback"] == (clicks == 0).sum()
  informative = ((clicks > 0) & (clicks < sizes)).sum()
  assert summary["informative_requests"] == informative
  assert not summary["binary_feedback"]
  feedback = frame["click"] + .5 * np.log1p(frame["dwell_ms"] / 1000)
  for device, part in frame.groupby("device"):
    cells = summary["by_position"][device]
    for k, (rank, rows) in enumerate(part.groupby("rank")):
      assert summary["positions"][k] == rank
      assert cells["shown"][k] == len(rows)
      assert cells["clicked"][k] == rows["click"].sum()
      assert cells["with_feedback"][k] == pytest.approx(rows["click"].mean())
      assert cells["mean_feedback"][k] == pytest.approx(
          feedback[rows.index].mean(), rel=1e-5)
  text = log.summary_text()
  assert f"{len(frame)} rows of {len(sizes)} requests" in text
  assert f"{informative} requests have rows with and rows without" in text
  assert "texts: category, brand" in text
  assert json.loads(json.dumps(summary)) == summary


def test_statistics_are_those_of_the_training_part(table):
  frame = table.to_pandas()
  with _read(frame) as log:
    training = frame[frame["timestamp"] < np.quantile(frame["timestamp"], .8)]
    assert len(training) == log.parts["train"].num_rows
  found = {f["name"]: f for f in log.statistics["numeric"]}
  for name in ("f_2", "f_5", "is_new"):
    values = training[name].astype(np.float32).astype(float)
    logs = (np.sign(values) * np.log1p(np.abs(values))).dropna()
    assert found[name]["mean"] == pytest.approx(logs.mean())
    assert found[name]["variance"] == pytest.approx(logs.var(ddof=0))
    assert found[name]["missing"] == pytest.approx(values.isna().mean())
  counts = training["category"].value_counts()
  [category, brand] = log.statistics["text"]
  assert [counts[name] for name in category["vocabulary"]] == sorted(
      counts, reverse=True)
  assert set(brand["vocabulary"]) == set(training["brand"])


def test_a_feature_of_many_texts_is_hashed(table):
  with _read(table.to_pandas(), max_vocabulary=12) as log:
    assert log.statistics["text"] == [
        {"name": "category", "vocabulary":
         log.statistics["text"][0]["vocabulary"]},
        {"name": "brand", "bins": 12}]


def test_a_constant_and_a_missing_feature():
  frame = pd.DataFrame({"q": [1, 2], "p": 1, "c": 1, "a": 7., "b": np.nan})
  with read_click_log(frame, LogColumns("q", "p", "c", ("a", "b")), valid=0,
                      test=0) as log:
    assert log.statistics["numeric"] == [
        {"name": "a", "mean": pytest.approx(np.log(8)), "variance": 1.,
         "missing": 0., "constant": True},
        {"name": "b", "mean": 0., "variance": 1., "missing": 1.,
         "constant": True}]
    assert log.feedback_kind == "binary"


# Temporary files.


def _folders():
  return set(glob.glob(os.path.join(tempfile.gettempdir(), "ultra_tfr_log_*")))


def test_temporary_files_go(table, tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  frame = table.to_pandas()
  with _read(frame) as log:
    assert len(_folders()) == 1
  assert not _folders()
  with pytest.raises(ValueError, match="The log was closed, .* read it again"):
    next(log.parts["train"].batches())
  log.close()  # Twice is fine.
  log = _read(frame)
  assert len(_folders()) == 1
  del log
  gc.collect()
  assert not _folders()


def test_a_part_keeps_the_files(table, tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  part = _read(table.to_pandas()).parts["train"]
  gc.collect()
  assert len(_folders()) == 1
  assert sum(len(batch.requests) for batch in part.batches()) == len(part)
  del part
  gc.collect()
  assert not _folders()


def test_temporary_files_go_after_an_error(table, tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  frame = table.to_pandas()

  def stop(num_rows):
    raise KeyboardInterrupt

  # While the error, which may hold on to them, is still there.
  with pytest.raises(KeyboardInterrupt) as error:
    _read(frame, progress=stop)
  assert error and not _folders()
  with pytest.raises(ValueError, match="rows are rejected") as error:
    _read(frame.assign(click=-1))
  assert error and not _folders()
  with pytest.raises(ValueError, match="no request is left for the train part"):
    _read(frame.assign(timestamp=0))
  assert not _folders()


def test_the_first_rows_of_long_requests_are_kept():
  frame = pd.DataFrame({
      "q": ["a"] * 6 + ["b"] * 2, "p": [9, 3, 1, 7, 5, 2, 4, 8],
      "c": [0, 1, 0, 0, 1, 0, 0, 1], "f": .5})
  columns = LogColumns("q", "p", "c", ("f",))
  with read_click_log(
      frame, columns, max_items=3, num_positions=4, valid=0, test=0) as log:
    assert log.summary["cut"] == 3 and log.summary["rows"] == {"train": 5}
    assert log.summary["longest_request"] == 3
    assert "cut: 3 rows of longer requests" in log.summary_text().splitlines()
    batch = next(log.parts["train"].batches())
    assert sorted(map(sorted, batch.positions.tolist())) == [
        [0, 4, 4], [1, 2, 3]]
  with read_click_log(frame, columns, valid=0, test=0) as log:
    assert "cut" not in log.summary
  for wrong in (0, 1.5, "x"):
    with pytest.raises(ValueError, match="`?max_items`? must be"):
      read_click_log(frame, columns, max_items=wrong)
