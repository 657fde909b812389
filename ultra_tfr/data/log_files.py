"""Temporary files of a log's rows.

A log need not fit into memory, nor are the rows of a request adjacent in it. So
rows are first dealt out to buckets by their request, and then each bucket is
sorted by itself. A bucket is a random part of the requests, which is what makes
the order of training random, too.
"""

import os
import shutil
import tempfile
import weakref

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from ultra_tfr.data.click_log.batches import Rows

_SCALARS = {
    "request": pa.int64(), "position": pa.int64(), "feedback": pa.float32(),
    "context": pa.int32(), "item": pa.int64(), "weight": pa.float32(),
    "time": pa.float64(), "randomized": pa.bool_(), "row": pa.int64(),
    "source": pa.int32()}


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
    # The high bits: the low ones say which part a request is in.
    bucket = (rows.request >> 32) % self._num_buckets
    order = np.argsort(bucket, kind="stable")
    table = to_table(rows).take(pa.array(order))
    edges = np.searchsorted(bucket[order], np.arange(self._num_buckets + 1))
    for i in np.flatnonzero(np.diff(edges)):
      self._writer(i, table.schema).write_table(
          table.slice(edges[i], edges[i + 1] - edges[i]))

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
  with ipc.new_stream(path, table.schema) as writer:
    writer.write_table(table)


def read_rows(path):
  """The `Rows` of a bucket file."""
  with pa.OSFile(path) as file, ipc.open_stream(file) as reader:
    table = reader.read_all()
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
