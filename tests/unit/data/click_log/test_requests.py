"""Tests of ultra_tfr.data.click_log.requests."""

import gc
import os
import tempfile

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.data.click_log.batches import Rows


def _rows(sizes, start=0, width=2, texts=1):
  """Sorted rows of requests `start`, `start` + 1, .. of these sizes."""
  request = np.repeat(np.arange(len(sizes)) + start, sizes).astype(np.int64)
  place = np.concatenate([np.arange(size) for size in sizes]).astype(np.int64)
  size = len(request)
  number = 100. * request + place
  return Rows(
      request=request, position=place + 1,
      feedback=(number % 3).astype(np.float32),
      context=(request % 2).astype(np.int32), item=(request * 1000 + place),
      weight=(number + 1).astype(np.float32), time=number.astype(np.float64),
      randomized=request % 3 == 0, row=np.arange(size, dtype=np.int64),
      source=np.zeros(size, np.int32),
      numeric=np.stack([number + i for i in range(width)], axis=1).astype(
          np.float32) if width else np.zeros([size, 0], np.float32),
      texts=[pa.array([f"{i}:{n:.0f}" for n in number])
             for i in range(texts)])


def _equal(first, second):
  for name, a, b in zip(Rows._fields, first[:-1], second[:-1]):
    np.testing.assert_array_equal(a, b, err_msg=name)
    assert a.dtype == b.dtype
  assert [column.to_pylist() for column in first.texts] == [
      column.to_pylist() for column in second.texts]


SIZES = [3, 1, 7, 2, 2, 5, 1, 4, 2, 3, 6, 1, 1]


@pytest.fixture
def lists(tmp_path):
  """Requests of several files, and their sizes."""
  paths, start = [], 0
  for i, part in enumerate((SIZES[:5], SIZES[5:6], SIZES[6:])):
    paths.append(str(tmp_path / f"{i}.arrow"))
    requests_lib.write_rows(paths[-1], _rows(part, start))
    start += len(part)
  return requests_lib.LoggedLists(paths, len(SIZES), sum(SIZES))


# Files.


@pytest.mark.parametrize("width, texts", [(2, 1), (0, 2), (3, 0), (0, 0)])
def test_rows_come_back(tmp_path, width, texts):
  rows = _rows(SIZES, width=width, texts=texts)
  requests_lib.write_rows(str(tmp_path / "a"), rows)
  _equal(requests_lib.read_rows(str(tmp_path / "a")), rows)


def test_buckets_hold_whole_requests(tmp_path):
  # Numbers as of hashes.
  rows = _rows([3] * 200)
  rows = rows._replace(request=rows.request * 0x123456789ab)
  order = np.random.default_rng(0).permutation(600)
  writer = requests_lib.Writer(tmp_path, 7)
  for part in np.array_split(order, 5):
    writer.add(requests_lib.take(rows, part))
  paths = writer.close()
  assert len(paths) == len(os.listdir(tmp_path)) == 7
  buckets = [requests_lib.read_rows(path) for path in paths]
  owners = {}
  for i, bucket in enumerate(buckets):
    for request in bucket.request.tolist():
      assert owners.setdefault(request, i) == i
  joined = Rows(*(np.concatenate(column) for column in zip(
      *(bucket[:-1] for bucket in buckets))), [pa.chunked_array(
          [chunk for bucket in buckets for chunk in bucket.texts[0].chunks])])
  _equal(requests_lib.sort(joined), rows)
  # A slice is written without the rest of its table.
  assert sum(os.path.getsize(path) for path in paths) < 600 * 200


def test_sort():
  rows = _rows([4])._replace(
      request=np.array([2, 1, 1, 1]), position=np.array([1, 5, 3, 3]),
      source=np.array([0, 0, 1, 0], np.int32), row=np.array([1, 2, 3, 4]))
  assert requests_lib.sort(rows).row.tolist() == [4, 3, 2, 1]
  assert requests_lib.starts_of(requests_lib.sort(rows)).tolist() == [0, 3, 4]


def test_temporary_folder():
  folder = requests_lib.TemporaryFolder()
  path = os.fspath(folder)
  assert os.path.isdir(path) and os.path.dirname(path) == tempfile.gettempdir()
  open(os.path.join(folder, "a"), "w").close()
  folder.remove()
  assert not os.path.exists(path)
  folder = requests_lib.TemporaryFolder()
  path = os.fspath(folder)
  del folder
  gc.collect()
  assert not os.path.exists(path)


# Batches.


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 12, 13, 100])
@pytest.mark.parametrize("seed", [None, 0, (1, 2)])
def test_every_request_once(lists, batch_size, seed):
  batches = list(lists.batches(batch_size, seed))
  sizes = [len(batch.requests) for batch in batches]
  assert sizes == [batch_size] * (13 // batch_size) + (
      [13 % batch_size] if 13 % batch_size else [])
  requests = [int(r) for batch in batches for r in batch.requests]
  assert sorted(requests) == list(range(13))
  if seed is None:
    assert requests == list(range(13))


def test_padding(lists):
  for batch in lists.batches(4, seed=0):
    length = max(SIZES[request] for request in batch.requests)
    assert batch.numeric.shape == (len(batch.requests), length, 2)
    for i, request in enumerate(batch.requests.tolist()):
      for j in range(length):
        number = 100. * request + j
        real = j < SIZES[request]
        found = (batch.numeric[i, j].tolist(), batch.texts[i, j].tolist(),
                 batch.feedback[i, j], batch.positions[i, j],
                 batch.contexts[i, j], batch.weights[i, j], batch.items[i, j],
                 batch.randomized[i, j])
        assert found == (
            ([number, number + 1], [f"0:{number:.0f}"], number % 3, j + 1,
             request % 2, number + 1, request * 1000 + j, request % 3 == 0)
            if real else ([0, 0], [""], -1, 0, 0, 0, -1, False))
    kinds = {name: value.dtype for name, value in batch._asdict().items()}
    assert kinds == {
        "numeric": np.float32, "texts": object, "feedback": np.float32,
        "positions": np.int32, "contexts": np.int32, "weights": np.float32,
        "items": np.int64, "randomized": bool, "requests": np.int64}


def _order(lists, seed):
  return [int(r) for batch in lists.batches(4, seed) for r in batch.requests]


def test_shuffled_order(lists):
  assert _order(lists, 1) == _order(lists, 1)
  orders = {tuple(_order(lists, seed)) for seed in range(20)}
  assert len(orders) == 20
  # Each file is first at some time, and so is each request of it.
  assert len({order[0] for order in orders}) > 5


def test_bad_batches(lists, tmp_path):
  with pytest.raises(ValueError, match="`batch_size` must be .* 0"):
    next(lists.batches(0))
  for path in tmp_path.iterdir():
    path.unlink()
  with pytest.raises(ValueError, match="The log was closed, .* read it again"):
    next(lists.batches())
  empty = requests_lib.LoggedLists([], 0, 0)
  assert list(empty.batches()) == [] and len(empty) == 0
  with pytest.raises(ValueError, match="This part of the log has no request"):
    empty.dataset()


# Datasets.


def test_dataset(lists):
  dataset = lists.dataset(4, seed=3)
  inputs, targets, weights = dataset.element_spec
  assert inputs == {"numeric": tf.TensorSpec([4, None, 2]),
                    "texts": tf.TensorSpec([4, None, 1], tf.string)}
  assert targets == tf.TensorSpec([4, None, 3])
  assert weights == tf.TensorSpec([4, None])
  passes = 5
  elements = list(dataset.take(3 * passes))  # 12 of 13 requests in a pass.
  wanted = [batch for epoch in range(passes)
            for batch in lists.batches(4, (3, epoch))
            if len(batch.requests) == 4]
  assert len(elements) == len(wanted) == 15
  for (inputs, targets, weights), batch in zip(elements, wanted):
    np.testing.assert_array_equal(inputs["numeric"], batch.numeric)
    assert np.char.decode(inputs["texts"].numpy().astype(bytes)).tolist() == (
        batch.texts.tolist())
    np.testing.assert_array_equal(targets[..., 0], batch.feedback)
    np.testing.assert_array_equal(targets[..., 1], batch.positions)
    np.testing.assert_array_equal(targets[..., 2], batch.contexts)
    np.testing.assert_array_equal(weights, batch.weights)
  # Each request is left out of some pass only.
  first = [{int(r) for b in wanted[3 * i:3 * i + 3] for r in b.requests}
           for i in range(passes)]
  assert all(len(requests) == 12 for requests in first)
  assert set.union(*first) == set(range(13))


def test_a_log_smaller_than_a_batch(lists):
  inputs, targets, _ = next(iter(lists.dataset(100)))
  assert inputs["numeric"].shape == (13, 7, 2) and targets.shape == (13, 7, 3)


@pytest.mark.parametrize("width, texts, names", [
    (0, 1, ["texts"]), (2, 0, ["numeric"])])
def test_only_the_inputs_that_there_are(tmp_path, width, texts, names):
  path = str(tmp_path / "a")
  requests_lib.write_rows(path, _rows([2, 3], width=width, texts=texts))
  inputs, _, _ = next(iter(requests_lib.LoggedLists([path], 2, 5).dataset(2)))
  assert list(inputs) == names


def test_one_long_request_does_not_widen_the_others(lists, monkeypatch):
  """Padded to it, a batch of short ones took all memory."""
  whole = [batch.requests for batch in lists.batches(4)]
  shuffled = [len(batch.requests) for batch in lists.batches(4, seed=1)]
  monkeypatch.setattr(requests_lib, "_MAX_PAIRS", 40)
  batches = list(lists.batches(4))
  np.testing.assert_array_equal(
      np.concatenate([batch.requests for batch in batches]),
      np.concatenate(whole))
  sizes = [batch.feedback.shape for batch in batches]
  assert len(sizes) > len(whole)
  assert all(size == 1 or size * width ** 2 <= 40 for size, width in sizes)
  # Training needs batches of one size.
  assert [len(batch.requests)
          for batch in lists.batches(4, seed=1)][:3] == shuffled[:3] == [4] * 3
