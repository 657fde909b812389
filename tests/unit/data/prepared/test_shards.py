"""Tests of ultra_tfr.data.prepared.shards."""

import itertools
import os

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

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


@pytest.mark.parametrize("batch_size, width, texts", [
    (3, 2, 1), pytest.param(3, 3, 0, marks=pytest.mark.slow),
    pytest.param(13, 2, 1, marks=pytest.mark.slow), (13, 3, 0)])
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


COUNTS = [len(sizes) for sizes in SPLITS]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_each_request_is_of_one_replica(count):
  """Of three shards, two replicas share one by request, four all of them."""
  shares = [shards.share(COUNTS, number, count) for number in range(count)]
  own = [(shard, request) for share in shares for shard, requests in share
         for request in requests]
  assert sorted(own) == [(shard, request) for shard, size in enumerate(COUNTS)
                         for request in range(size)]
  whole = [shard for share in shares for shard, requests in share
           if len(requests) == COUNTS[shard]]
  assert len(whole) >= len(COUNTS) // count * count


@pytest.mark.parametrize("number", [0, 1])
def test_a_pass_has_each_request_once_but_for_the_last_few(number):
  """And what is left over of a shard comes with the next one."""
  left, batches, passes = [], [], -1
  for shard, is_first, order in itertools.islice(
      shards.orders(COUNTS, number, 2, 3, seed=5), 6):
    if is_first:
      assert len(left) < 3
      left, passes = [], passes + 1
    known = [*left, *((shard, request) for request in range(COUNTS[shard]))]
    # All that was left over, and of the shard what is the replica's own.
    assert sorted(order)[:len(left)] == list(range(len(left)))
    chosen = [known[i] for i in order]
    whole = len(chosen) // 3 * 3
    batches.append((passes, chosen[:whole]))
    left = chosen[whole:]
  for i in range(passes + 1):
    seen = [one for number_of, some in batches if number_of == i
            for one in some]
    own = {(shard, request)
           for shard, requests in shards.share(COUNTS, number, 2)
           for request in requests}
    assert len(seen) == len(set(seen)) == len(own) // 3 * 3
    assert set(seen) <= own


def test_replicas_take_turns_with_batches_of_their_own(tmp_path):
  _, part = _both(tmp_path)
  together, alone = (
      [packed.numpy()[:, 0, 0].tolist() for _, packed, _ in
       part.replica_batches(replicas, 2, 400, seed=4).take(steps)]
      for replicas, steps in (([0, 1], 4), ([1], 2)))
  assert together[1::2] == alone
  # A shard of 5 or of 1, and of the 7 that are shared 3 or 4: with a batch of
  # no more than the fewer of them.
  assert [len(batch) for batch in together] == [4] * 4
  assert not {*together[0], *together[2]} & {*together[1], *together[3]}


@pytest.mark.parametrize("count, batch_size, message", [
    (2, 5, "The batch size is 5, and 2 replicas cannot share that equally; ta"),
    (14, 28, "The training part has 13 requests, too few for 14 replicas")])
def test_replicas_that_cannot_share(tmp_path, count, batch_size, message):
  _, part = _both(tmp_path)
  with pytest.raises(ValueError, match=f"^{message}"):
    part.replica_batches([0], count, batch_size, seed=0)


@pytest.mark.parametrize("seed", [None, 3])
def test_all_else_sees_the_batches_of_the_log_itself(tmp_path, seed):
  log, prepared = _both(tmp_path)
  assert len(prepared) == len(log) and prepared.num_rows == log.num_rows
  for batch, other in itertools.zip_longest(
      log.batches(4, seed), prepared.batches(4, seed)):
    for name, a, b in zip(batch._fields, batch, other):
      np.testing.assert_array_equal(a, b, err_msg=name)
      assert a.dtype == b.dtype, name


def _damaged(folder, damage):
  """A part whose second shard is no longer what was written."""
  _, part = _both(folder)
  damage(folder / "1.tfrecord")
  return part


_DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "empty": lambda path: path.write_bytes(b""),
    "changed": lambda path: path.write_bytes(
        path.read_bytes()[:60] + b"????" + path.read_bytes()[64:]),
    "no shard": lambda path: path.write_text("a text"),
    "missing": lambda path: path.unlink(),
    "of another log": lambda path: shards.write(path, _rows([2, 2], 0, 2, 1)),
    "of other features": lambda path: shards.write(path, _rows([1], 5, 5, 1)),
}


@pytest.mark.parametrize("name", _DAMAGES)
def test_a_damaged_shard_is_named(tmp_path, name):
  """What is missing in it was left out, or TensorFlow named no file."""
  part = _damaged(tmp_path, _DAMAGES[name])
  message = (
      r"^\S+/1.tfrecord: is no whole shard of this prepared log \(.+\); copy "
      r"it anew, or prepare the log again\.$")
  with pytest.raises(ValueError, match=message):
    list(part.batches(4))
  with pytest.raises(ValueError, match=message):
    part.check()


@pytest.mark.parametrize("name", ["cut", "of another log"])
def test_a_training_does_not_go_on_without_a_damaged_shard(tmp_path, name):
  part = _damaged(tmp_path, _DAMAGES[name])
  with pytest.raises(tf.errors.OpError):
    list(part.dataset(4).take(20))
