"""Tests of ultra_tfr.data.prepared.workers, manifest and pipeline."""

import csv
import os

import numpy as np
import pandas as pd
import pytest

import prepared_logs
from ultra_tfr import output
from ultra_tfr.data.click_log import grouping
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import PARTS
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.data.prepared import manifest
from ultra_tfr.data.prepared import pipeline
from ultra_tfr.data.prepared import workers
from ultra_tfr.evaluation import harvesting
from ultra_tfr.fit_log import diagnosis

COLUMNS = LogColumns(
    "q", "p", "c + d", ("f_*", "s"), context="device", item="i", weight="w",
    timestamp="t", randomized="r")


def _frame(requests=150):
  """Requests with gaps, texts, contexts, events, duplicates and bad rows."""
  rng = np.random.default_rng(0)
  rows = 4 * requests
  frame = pd.DataFrame({
      "q": np.repeat([f"q{i}" for i in range(requests)], 4),
      "p": np.tile([1, 2, 5, 9], requests), "c": rng.integers(0, 2, rows),
      "d": rng.random(rows), "f_1": rng.normal(size=rows),
      "f_2": np.where(rng.random(rows) < .3, np.nan, rng.random(rows)),
      "s": rng.choice(["red", "blue", "é", ""], rows),
      "device": np.repeat(rng.choice(["phone", "tablet", "tv"], requests), 4),
      "i": rng.integers(0, 50, rows), "w": rng.integers(0, 3, rows),
      "t": np.repeat(rng.random(requests) * 1e6, 4),
      "r": rng.random(rows) < .2})
  frame = pd.concat([
      frame, frame[:20].assign(c=1), frame[50:53], frame[80:82].assign(i=-7)])
  bad = frame.sample(12, random_state=1).astype(object)
  bad.iloc[:4, frame.columns.get_loc("p")] = "top"
  bad.iloc[4:8, frame.columns.get_loc("c")] = None
  bad.iloc[8:, frame.columns.get_loc("t")] = "yesterday"
  return pd.concat([frame, bad]).sample(frac=1, random_state=2)


@pytest.fixture
def paths(tmp_path, monkeypatch):
  """The log, in three files."""
  monkeypatch.setattr(grouping, "_BUCKET_ROWS", 150)
  monkeypatch.setattr(workers, "_FEWEST_ROWS", 100)
  monkeypatch.setattr(workers, "_ROWS_OF_BUCKET", 1)
  found = []
  for i in range(3):
    found.append(str(tmp_path / f"{i}.{'csv' if i % 2 else 'csv.gz'}"))
    _frame()[i::3].to_csv(found[-1], index=False)
  return found


def _plan(log, folder, columns=COLUMNS, **options):
  return prepared_logs.make_plan(log, folder, columns, **options)


def _rejected(folder):
  rows = []
  for name in os.listdir(folder):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
      rows += list(csv.reader(file))[1:]
  return sorted(rows)


def _check_is(log, prepared):
  """A prepared log is what `read_click_log` gives, to the last bit."""
  assert prepared.schema() == log.schema()
  assert prepared.summary == output.plain(log.summary)
  assert prepared.summary_text() == log.summary_text()
  assert prepared.dialect == log.dialect
  for part in PARTS:
    a, b = log.parts[part], prepared.parts[part]
    assert len(a) == len(b) > 0 and a.num_rows == b.num_rows
    for batch, other in zip(a.batches(7, seed=1), b.batches(7, seed=1)):
      for name, x, y in zip(batch._fields, batch, other):
        np.testing.assert_array_equal(x, y, err_msg=name)
  _check_tells_the_same(log, prepared)


def _check_tells_the_same(log, prepared):
  """The curves and counts of swaps of all requests, and not of a sample."""
  expected, found, of_few = (
      diagnosis.diagnose(*arguments, max_requests=most)
      for *arguments, most in ((log, 1000), (prepared, 1000), (prepared, 20)))
  assert (prepared.harvest is not None) == bool(log.columns.item)
  for name in ("swap_counts", "num_items", "num_swap_clicks", "components"):
    for other in (found, of_few):
      np.testing.assert_array_equal(
          getattr(expected, name), getattr(other, name), err_msg=name)
  for context, curves in expected.contexts.items():
    assert curves.keys() == found.contexts[context].keys()
    for kind in curves.keys() & harvesting.CURVES:
      for other in (found, of_few):
        for end, values in other.contexts[context][kind].items():
          np.testing.assert_allclose(
              np.array(values, float), np.array(curves[kind][end], float),
              rtol=1e-6, err_msg=f"{context} {kind} {end}")
  on_all = ", harvesting on all" if log.columns.item else ""
  assert of_few.sentences[0].endswith(f"requests{on_all}.")


@pytest.mark.parametrize("options", [
    {}, {"num_positions": 3, "valid": .3, "max_items": 3, "max_vocabulary": 2}])
@pytest.mark.parametrize("columns", [
    COLUMNS, LogColumns("q", "p", "c", ("f_*",))])
def test_a_prepared_log_is_the_log(paths, tmp_path, columns, options):
  plan = _plan(paths, tmp_path, columns, **options)
  assert plan.num_buckets > 2
  prepared_logs.prepare(plan)
  rejected_file = str(tmp_path / "rejected.csv")
  with read_click_log(paths, columns, max_rejected=.1,
                      rejected_file=rejected_file, **options) as log:
    assert log.summary["rejected"] and log.summary["merged"]
    _check_is(log, manifest.read_prepared(plan.folder))
  with open(rejected_file, encoding="utf-8") as file:
    expected = sorted(list(csv.reader(file))[1:])
  assert _rejected(plan.rejected_folder) == expected


@pytest.mark.parametrize("columns", [COLUMNS])
def test_log_and_shards_may_be_elsewhere(paths, tmp_path, columns):
  """By their addresses, of which no copy is read but of shards."""
  folder = tmp_path / "out"
  plan = workers.make_plan(
      [f"file://{path}" for path in paths], columns, f"file://{folder}",
      f"file://{folder}/rejected", max_rejected=.1)
  prepared_logs.prepare(plan)
  assert sorted(os.listdir(folder)) == ["manifest.json", "rejected", "shards"]
  prepared = manifest.read_prepared(f"file://{folder}")
  with read_click_log(paths, columns, max_rejected=.1) as log:
    _check_is(log, prepared)
    with read_click_log(plan.log, columns, max_rejected=.1) as same:
      assert same.summary["rows"] == log.summary["rows"]
    expected, found = (next(iter(part.parts["train"].dataset(8)))
                       for part in (log, prepared))
    np.testing.assert_array_equal(expected[1], found[1])


def test_too_many_positions_are_harvested_from_a_sample(
    paths, tmp_path, monkeypatch):
  """The draws of each pair of positions would fill the memory of workers."""
  monkeypatch.setattr(workers, "_MOST_SUMS", 200 * 3 * 16 - 1)
  plan = _plan(paths, tmp_path)
  prepared_logs.prepare(plan)
  log = manifest.read_prepared(plan.folder)
  assert log.harvest is None
  assert diagnosis.diagnose(log).swap_counts.any()


def test_names_of_positions_are_in_the_order_given(tmp_path):
  frame = _frame().assign(p=lambda f: f["p"].map(str))
  path = str(tmp_path / "log.parquet")
  frame.astype({"c": "float", "t": str}).to_parquet(path)
  options = {"positions": ["9", "1", "2"], "max_rejected": .5}
  columns = LogColumns("q", "p", "c", ("f_*", "s"))
  folder = tmp_path / "out"
  os.makedirs(folder)
  plan = workers.make_plan(
      [path], columns, str(folder), str(tmp_path), **options)
  prepared_logs.prepare(plan)
  with read_click_log([path], columns, **options) as log:
    _check_is(log, manifest.read_prepared(plan.folder))


def test_the_order_of_work_does_not_matter(paths, tmp_path):
  """A rerun on other machines gives the same files."""
  contents = []
  for seed in range(2):
    os.mkdir(tmp_path / str(seed))
    plan = _plan(paths, tmp_path / str(seed))
    prepared_logs.prepare(plan, seed)
    contents.append({
        name: open(os.path.join(folder, name), "rb").read()
        for folder in (os.path.join(plan.folder, "shards"),
                       plan.rejected_folder) for name in os.listdir(folder)})
  assert contents[0] == contents[1]


def test_what_is_wrong_is_said_at_the_end(paths, tmp_path):
  plan = _plan(paths, tmp_path)
  plan.max_rejected = .001
  with pytest.raises(ValueError, match=(
      r"(?s)1\d of 63\d rows are rejected \(.*rejected lists them\)")):
    prepared_logs.prepare(plan)
  with open(paths[1], "w", encoding="utf-8") as file:
    file.write("q,p\n1,2\n")
  with pytest.raises(ValueError, match="1.csv: there is no column 'f_1'"):
    prepared_logs.prepare(_plan(paths, tmp_path))


@pytest.mark.parametrize("damage, message", [
    (lambda found: found.update(format=2), "is of the format 2, and this vers"),
    (lambda found: found["schema"].update(contexts=[]), "its contexts are not"),
    (lambda found: found["summary"].pop("rows"), "it has not the form of one"),
    (lambda found: found["harvest"].pop("num_items"), "its harvest has not th"),
    (lambda found: found["harvest"]["num_items"].pop(), "its harvest is of an"),
    (lambda found: found["shards"]["train"][0].update(file="../a"),
     "'../a' is no shard of it"),
    (lambda found: found["shards"]["valid"][0].update(file="a"),
     r"shards/a is missing, though \S+/manifest.json names it; copy i")])
def test_a_damaged_manifest_is_named(paths, tmp_path, damage, message):
  plan = _plan(paths, tmp_path)
  found = output.plain(prepared_logs.prepare(plan))
  damage(found)
  path = os.path.join(plan.folder, manifest.FILE)
  output.write(path, found)
  with pytest.raises(ValueError, match=message):
    manifest.read_prepared(plan.folder)
  os.remove(path)
  with pytest.raises(ValueError, match="no --out of `ultra-tfr prepare-log`"):
    manifest.read_prepared(plan.folder)


def test_beam_does_the_same(paths, tmp_path):
  pytest.importorskip("apache_beam")
  plan = _plan(paths, tmp_path)
  pipeline.run(plan, "DirectRunner", [])
  with read_click_log(paths, COLUMNS, max_rejected=.1) as log:
    _check_is(log, manifest.read_prepared(plan.folder))
  with open(paths[1], "w", encoding="utf-8") as file:
    file.write("q,p\n1,2\n")
  with pytest.raises(ValueError, match="1.csv: there is no column 'c'"):
    pipeline.run(plan, "DirectRunner", [])
