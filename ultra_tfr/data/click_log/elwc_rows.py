"""ELWC files (`ExampleListWithContext`) as rows of a click log."""

from google.protobuf.message import DecodeError
import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_serving.apis import input_pb2

from ultra_tfr import files
from ultra_tfr.data import elwc

# Columns that are no features of the file: the number of the record, and the
# place of the item in it, from 1.
RECORD, PLACE = "(record)", "(place)"


def read_rows(path, names, batch_rows):
  """Reads the lists of a TFRecord file as rows, one an item.

  Args:
    path: the file.
    names: columns to read, or None for all that a batch has. Features of the
      context are repeated for each item.
    batch_rows: about how many rows to read at a time.

  Yields:
    Tuples of a dict of pyarrow arrays by name and `[R]` row numbers from 1.

  Raises:
    ValueError: if a record is no ELWC, or a feature has several values.
  """
  records = elwc.open_records(files.local(path))
  rows, start = [], 1
  try:
    for number, record in enumerate(records.as_numpy_iterator(), start=1):
      rows += _items(path, number, record)
      if len(rows) >= batch_rows:
        yield _columns(rows, names, start)
        start += len(rows)
        rows = []
  except tf.errors.DataLossError as error:
    raise ValueError(
        f"{path}: is no TFRecord file, or is damaged: {error.message}; write "
        "it again.") from error
  if rows:
    yield _columns(rows, names, start)


def _items(path, number, record):
  try:
    lists = input_pb2.ExampleListWithContext.FromString(record)
  except DecodeError as error:
    raise ValueError(
        f"{path}: record {number} is no ExampleListWithContext; write lists "
        "in that format.") from error
  context = _values(path, number, lists.context)
  return [
      {RECORD: number, PLACE: place, **context,
       **_values(path, number, example)}
      for place, example in enumerate(lists.examples, start=1)]


def _values(path, number, example):
  values = {}
  for name, feature in example.features.feature.items():
    kind = feature.WhichOneof("kind")
    found = getattr(feature, kind).value if kind else ()
    if len(found) > 1:
      raise ValueError(
          f"{path}: feature {name!r} of record {number} has {len(found)} "
          "values; a column of a log has one value a row: leave the feature "
          "out, or split it.")
    if found:
      values[name] = found[0]
  return values


def _columns(rows, names, start):
  if names is None:
    names = {name: None for row in rows for name in row}
  columns = {}
  for name in names:
    values = [row.get(name) for row in rows]
    if any(isinstance(value, bytes) for value in values):
      values = [value if value is None or isinstance(value, bytes)
                else str(value).encode() for value in values]
    elif any(isinstance(value, float) for value in values):
      values = [None if value is None else float(value) for value in values]
    columns[name] = pa.array(values)
  return columns, np.arange(start, start + len(rows))
