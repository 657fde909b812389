"""Tests of ultra_tfr.data.prepared.shards."""

import itertools
import os

import numpy as np
import pyarrow as pa
import pytest

from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.data.click_log.batches import Rows
from ultra_tfr.data.prepared import shards

SIZES = [3, 1, 7, 2, 2, 5, 1, 4, 2, 3, 6, 1, 1]
SPLITS = (SIZES[:5], SIZES[5:6], SIZES[6:])


def _rows(sizes, start, width, texts):
  rng = np.random.default_rng(start)
  place = np.concatenate([np.arange(size) for size in sizes])
  count = len(place)
  numeric = rng.normal(size=[count, width]).astype(np.float32)
  numeric[::3] = np.nan
  return Rows(
      request=np.repeat(np.arange(len(sizes)) + start + (1 << 61), sizes),
      position=place + 1, feedback=rng.random(count).astype(np.float32),
      context=rng.integers(0, 3, count).astype(np.int32),
      item=rng.integers(-1, 1 << 60, count),
      weight=rng.random(count).astype(np.float32), time=np.zeros(count),
      randomized=rng.random(count) < .5, row=np.zeros(count, np.int64),
      source=np.zeros(count, np.int32), numeric=numeric,
      texts=[pa.chunked_array([pa.array(
          [rng.choice(["", "é", "b c"]) for _ in range(count)], pa.string())])
             for _ in range(texts)])


def _both(folder, width=2, texts=1):
  """The same requests, as `read_click_log` keeps them and as shards."""
  paths, start = {"arrow": [], "tfrecord": []}, 0
  for i, sizes in enumerate(SPLITS):
    rows = _rows(sizes, start, width, texts)
    start += len(sizes)
    for ending, write in (("arrow", requests_lib.write_rows),
                          ("tfrecord", shards.write)):
      paths[ending].append(str(folder / f"{i}.{ending}"))
      write(paths[ending][-1], rows)
  return (
      requests_lib.LoggedLists(paths["arrow"], len(SIZES), sum(SIZES)),
      shards.Shards(paths["tfrecord"], [*map(len, SPLITS)], sum(SIZES), width,
                    texts))


@pytest.mark.parametrize("width, texts", [(2, 1), (0, 2), (3, 0)])
def test_rows_come_back(tmp_path, width, texts, monkeypatch):
  monkeypatch.setattr(shards, "_RECORD_ROWS", 8)
  rows, path = _rows(SIZES, 0, width, texts), str(tmp_path / "a")
  shards.write(path, rows)
  found = shards.read(path, width, texts)
  for name, a, b in zip(Rows._fields, rows[:-1], found[:-1]):
    np.testing.assert_array_equal(a, b, err_msg=name)
    assert a.dtype == b.dtype, name
  assert [text.to_pylist() for text in rows.texts] == [
      text.to_pylist() for text in found.texts]


def test_the_same_rows_are_the_same_bytes(tmp_path):
  for name in "ab":
    shards.write(tmp_path / name, _rows(SIZES, 0, 2, 2))
  assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
  assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("width, texts", [(2, 1), (3, 0)])
@pytest.mark.parametrize("batch_size", [3, 13])
def test_training_sees_the_batches_of_the_log_itself(
    tmp_path, batch_size, width, texts):
  """In three passes, so that what is left over of one is seen too."""
  log, prepared = _both(tmp_path, width, texts)
  count = 3 * (len(SIZES) // batch_size)
  expected, found = (
      list(itertools.islice(part.dataset(batch_size, seed=4), count))
      for part in (log, prepared))
  assert prepared.dataset(batch_size).element_spec == log.dataset(
      batch_size).element_spec
  for (inputs, packed, weights), other in zip(expected, found):
    assert inputs.keys() == other[0].keys()
    for name in inputs:
      np.testing.assert_array_equal(inputs[name], other[0][name])
    np.testing.assert_array_equal(packed, other[1])
    np.testing.assert_array_equal(weights, other[2])


@pytest.mark.parametrize("seed", [None, 3])
def test_all_else_sees_the_batches_of_the_log_itself(tmp_path, seed):
  log, prepared = _both(tmp_path)
  assert len(prepared) == len(log) and prepared.num_rows == log.num_rows
  for batch, other in itertools.zip_longest(
      log.batches(4, seed), prepared.batches(4, seed)):
    for name, a, b in zip(batch._fields, batch, other):
      np.testing.assert_array_equal(a, b, err_msg=name)
      assert a.dtype == b.dtype, name


def test_a_damaged_shard_is_named(tmp_path):
  path = tmp_path / "a"
  shards.write(path, _rows(SIZES, 0, 2, 1))
  path.write_bytes(path.read_bytes()[:-30])
  with pytest.raises(ValueError, match="a: is no whole shard of a prepared"):
    shards.read(str(path), 2, 1)
