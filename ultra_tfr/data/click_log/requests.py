"""Requests of a log, read back in batches from files of sorted rows."""

import os
import shutil
import tempfile
from typing import NamedTuple
import weakref

import numpy as np
import pyarrow as pa
from pyarrow import ipc
import pyarrow.compute as pc
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr import output
from ultra_tfr.data.click_log.batches import Rows

_SCALARS = {
    "request": pa.int64(), "position": pa.int64(), "feedback": pa.float32(),
    "context": pa.int32(), "item": pa.int64(), "weight": pa.float32(),
    "time": pa.float64(), "randomized": pa.bool_(), "row": pa.int64(),
    "source": pa.int32()}
# At most so many pairs of items are in a padded batch, where its size is free.
_MAX_PAIRS = 1 << 25


class LoggedBatch(NamedTuple):
  """Requests as padded arrays, items in display order.

  Attributes:
    numeric: `[B, L, F]` float32, NaN where missing.
    texts: `[B, L, S]` object array of str, "" where missing.
    feedback: `[B, L]` float32, -1 in padding.
    positions: `[B, L]` int32 from 1, 0 in padding.
    contexts: `[B, L]` int32.
    weights: `[B, L]` float32, 0 in padding.
    items: `[B, L]` int64, -1 where unknown and in padding.
    randomized: `[B, L]` booleans.
    requests: `[B]` int64, a number that stands for the request.
  """

  numeric: np.ndarray
  texts: np.ndarray
  feedback: np.ndarray
  positions: np.ndarray
  contexts: np.ndarray
  weights: np.ndarray
  items: np.ndarray
  randomized: np.ndarray
  requests: np.ndarray

  @property
  def display_order(self):
    """`[B, L]` int64 from 1: the order of display, also in pooled positions."""
    return np.broadcast_to(
        np.arange(self.positions.shape[1]) + 1, self.positions.shape)


def take(rows, indices):
  """The `Rows` with these indices."""
  chosen = pa.array(indices)
  return Rows(*(column[indices] for column in rows[:-1]),
              [pc.take(column, chosen) for column in rows.texts])


def starts_of(rows):
  """Where each request starts in sorted `Rows`, and their number at the end."""
  changes = np.flatnonzero(np.diff(rows.request)) + 1
  return np.concatenate([[0], changes, [len(rows.request)]]).astype(np.int64)


def sort(rows):
  """`Rows` by request, then position, then place in the log."""
  order = np.lexsort((rows.row, rows.source, rows.position, rows.request))
  return take(rows, order)


class LoggedLists:
  """The requests of one part of a log.

  Args:
    paths: bucket files of sorted rows.
    num_requests: how many requests they hold.
    num_rows: how many rows.
    folder: the `TemporaryFolder` of the files, kept so that they exist as long
      as this object.
    read: a function from a path to its `Rows`.
  """

  def __init__(self, paths, num_requests, num_rows, folder=None, read=None):
    self._paths, self._folder = list(paths), folder
    self._read = read or _read_temporary
    self._num_requests, self.num_rows = num_requests, num_rows

  def __len__(self):
    """Number of requests."""
    return self._num_requests

  def batches(self, batch_size=256, seed=None):
    """All requests once.

    Args:
      batch_size: requests in a batch. Without a seed, batches have fewer where
        long requests would make them large.
      seed: an int or a sequence of ints, to shuffle by; None for the order of
        the files.

    Yields:
      `LoggedBatch`, the last one with what is left.

    Raises:
      ValueError: if the log was closed.
    """
    batch_size = checks.check_count("batch_size", batch_size)
    generator = None if seed is None else np.random.default_rng(seed)
    paths = list(self._paths)
    if generator is not None:
      generator.shuffle(paths)
    rest = None
    for path in paths:
      rows = self._read(path)
      if rest is not None:
        rows = join([rest, rows])
      starts = starts_of(rows)
      order = np.arange(len(starts) - 1)
      if generator is not None:
        generator.shuffle(order)
      whole = len(order) // batch_size * batch_size
      for first in range(0, whole, batch_size):
        chosen = order[first:first + batch_size]
        for part in [chosen] if generator else _bounded(starts, chosen):
          yield _pad(rows, starts, part)
      rest = take(rows, _rows_of(starts, order[whole:]))
    if rest is not None and len(rest.request):
      starts = starts_of(rest)
      for part in _bounded(starts, np.arange(len(starts) - 1)):
        yield _pad(rest, starts, part)

  def check(self):
    """Reads all files, and raises a `ValueError` that names one it cannot."""
    for path in self._paths:
      self._read(path)

  def dataset(self, batch_size=256, seed=0):
    """An endless dataset for `fit`, shuffled anew in each pass.

    Args:
      batch_size: requests in a batch; a log with fewer gives them all.
      seed: of the order.

    Returns:
      A `tf.data.Dataset` of inputs `{"numeric": [B, L, F], "texts":
      [B, L, S]}` (those that there are), packed feedback `[B, L, 3]` and sample
      weights `[B, L]`.

    Raises:
      ValueError: if there is no request.
    """
    if not len(self):
      raise ValueError(
          "This part of the log has no request; give it a share by `valid` or "
          "`test`.")
    return self.training_batches(min(batch_size, len(self)), seed)

  def training_batches(self, batch_size, seed):
    """What `dataset` gives, of a part that has so many requests."""
    def generate():
      epoch = 0
      while True:
        for batch in self.batches(batch_size, (seed, epoch)):
          # Smaller batches are left out: all passes differ in their order, so
          # the requests in them come up in others.
          if len(batch.requests) == batch_size:
            yield (model_inputs(batch), packed_targets(batch), batch.weights)
        epoch += 1

    first = next(self.batches(batch_size))
    inputs = {
        name: tf.TensorSpec([batch_size, None, value.shape[-1]],
                            tf.string if name == "texts" else tf.float32)
        for name, value in model_inputs(first).items()}
    return tf.data.Dataset.from_generator(generate, output_signature=(
        inputs, tf.TensorSpec([batch_size, None, 3]),
        tf.TensorSpec([batch_size, None]))).prefetch(2)


def _read_temporary(path):
  if not os.path.exists(path):
    raise ValueError(
        "The log was closed, and its temporary files are gone; read it again.")
  return read_rows(path)


def model_inputs(batch):
  """What the model sees of a `LoggedBatch`: a dict of arrays."""
  inputs = {"numeric": batch.numeric, "texts": batch.texts}
  return {name: value for name, value in inputs.items() if value.shape[-1]}


def packed_targets(batch):
  """Feedback, positions and contexts of a `LoggedBatch`, `[B, L, 3]`."""
  return np.stack([batch.feedback, batch.positions, batch.contexts],
                  axis=-1).astype(np.float32)


def _bounded(starts, requests):
  """Yields runs of requests, each with at most `_MAX_PAIRS` pairs of items."""
  sizes = np.diff(starts)[requests]
  first = 0
  while first < len(sizes):
    pairs = np.maximum.accumulate(sizes[first:]) ** 2 * (
        np.arange(len(sizes) - first) + 1)
    count = max(1, int(np.searchsorted(pairs, _MAX_PAIRS, side="right")))
    yield requests[first:first + count]
    first += count


def join(parts):
  """`Rows` one after another, a list of them with at least one."""
  return Rows(
      *(np.concatenate(columns) for columns in zip(
          *(rows[:-1] for rows in parts))),
      [pa.chunked_array([
          chunk for column in columns for chunk in column.chunks])
       for columns in zip(*(rows.texts for rows in parts))])


def _rows_of(starts, requests):
  sizes = np.diff(starts)[requests]
  ends = np.cumsum(sizes)
  total = int(ends[-1]) if len(ends) else 0
  return np.arange(total) + np.repeat(starts[requests] - ends + sizes, sizes)


def _pad(rows, starts, requests):
  sizes = np.diff(starts)[requests]
  place = np.arange(sizes.max(initial=1))
  real = place < sizes[:, np.newaxis]
  index = np.where(real, starts[requests, np.newaxis] + place, 0)
  flat = pa.array(index.ravel())

  def pad(values, filling):
    values = values[index]
    values[~real] = filling
    return values

  texts = np.empty((*index.shape, len(rows.texts)), object)
  for i, column in enumerate(rows.texts):
    values = np.array(pc.take(column, flat).to_pylist(), object)
    texts[..., i] = np.where(real, values.reshape(index.shape), "")
  return LoggedBatch(
      numeric=pad(rows.numeric, 0.0), texts=texts,
      feedback=pad(rows.feedback, -1.0),
      positions=pad(rows.position, 0).astype(np.int32),
      contexts=pad(rows.context, 0), weights=pad(rows.weight, 0.0),
      items=pad(rows.item, -1), randomized=pad(rows.randomized, False),
      requests=rows.request[starts[requests]])


class TemporaryFolder(os.PathLike):
  """A new folder that goes when nothing refers to it, or when it is told to.

  Attributes:
    remove: a function that removes it.
  """

  def __init__(self):
    self._path = tempfile.mkdtemp(prefix="ultra_tfr_log_")
    self.remove = weakref.finalize(self, shutil.rmtree, self._path, True)

  def __fspath__(self):
    return self._path


def by_bucket(requests, num_buckets):
  """Deals out rows by request.

  Args:
    requests: `[R]` int64, as in `Rows`.
    num_buckets: how many buckets there are.

  Yields:
    Pairs of a bucket and the indices of its rows, in their order.
  """
  # By the high bits, since `Split` uses the low ones.
  bucket = (requests >> 32) % num_buckets
  order = np.argsort(bucket, kind="stable")
  found, firsts = np.unique(bucket[order], return_index=True)
  yield from zip(found.tolist(), np.split(order, firsts[1:]))


class Writer:
  """Deals out rows to bucket files.

  Args:
    folder: an empty directory.
    num_buckets: how many.
  """

  def __init__(self, folder, num_buckets):
    self._folder, self._num_buckets = folder, num_buckets
    self._writers = {}

  def add(self, rows):
    """Adds `Rows`."""
    table = to_table(rows)
    with output.errors_of(os.fspath(self._folder)):
      for i, indices in by_bucket(rows.request, self._num_buckets):
        self._writer(i, table.schema).write_table(table.take(pa.array(indices)))

  def _writer(self, i, schema):
    if i not in self._writers:
      path = os.path.join(self._folder, f"bucket-{i}.arrow")
      self._writers[i] = ipc.new_stream(path, schema)
    return self._writers[i]

  def close(self):
    """Ends the files.

    Returns:
      Their paths.
    """
    with output.errors_of(os.fspath(self._folder)):
      for writer in self._writers.values():
        writer.close()
    return [os.path.join(self._folder, f"bucket-{i}.arrow")
            for i in sorted(self._writers)]


def to_table(rows):
  """A pyarrow table of `Rows`."""
  columns = {name: pa.array(getattr(rows, name), kind)
             for name, kind in _SCALARS.items()}
  size, width = rows.numeric.shape
  if width:
    columns["numeric"] = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.numeric.ravel(), pa.float32()), width)
  for i, values in enumerate(rows.texts):
    columns[f"text_{i}"] = values
  return pa.table(columns)


def write_rows(path, rows):
  """Writes `Rows` to a file for `read_rows`."""
  table = to_table(rows)
  with output.errors_of(path), ipc.new_stream(path, table.schema) as writer:
    writer.write_table(table)


def read_rows(path):
  """The `Rows` of a bucket file."""
  with pa.OSFile(path) as file, ipc.open_stream(file) as reader:
    return from_table(reader.read_all())


def from_table(table):
  """The `Rows` that `to_table` made a table of."""
  scalars = {name: table[name].to_numpy() for name in _SCALARS}
  numeric = np.zeros([len(table), 0], np.float32)
  if "numeric" in table.column_names:
    lists = table["numeric"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # What an empty table gives.
      lists = pa.concat_arrays(lists.chunks)
    numeric = lists.flatten().to_numpy(zero_copy_only=False).reshape(
        len(table), -1)
  texts = [table[name] for name in table.column_names
           if name.startswith("text_")]
  return Rows(numeric=numeric, texts=texts, **scalars)
