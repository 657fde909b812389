"""TF-Ranking's files of `ExampleListWithContext`, from arrays and back.

They hold int64, float32 and bytes: Booleans come back as int64, and texts as
objects of type str or bytes.
"""

import array
import os

from google.protobuf.message import DecodeError
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import input_pb2

from ultra_tfr.data.elwc_lists import ElwcLists
from ultra_tfr.data.elwc_lists import splits_of
from ultra_tfr.data.elwc_lists import storable


def open_records(path):
  """The records of a TFRecord file (a string or tensor); gzip if `.gz`."""
  is_gzip = tf.strings.regex_full_match(path, r"(?i).*\.gz")
  return tf.data.TFRecordDataset(path, tf.where(is_gzip, "GZIP", ""))


def write_elwc(path, lists):
  """Writes `ElwcLists`, one record a list; compressed if it ends in `.gz`."""
  path = os.fspath(path)
  examples, context = (
      {name: _rows(name, values) for name, values in columns.items()}
      for columns in (lists.examples, lists.context))
  compression = "GZIP" if path.lower().endswith(".gz") else ""
  with tf.io.TFRecordWriter(path, compression) as writer:
    splits = lists.row_splits.tolist()
    for i, (start, end) in enumerate(zip(splits, splits[1:])):
      elwc = input_pb2.ExampleListWithContext()
      _fill(elwc.context, context, i)
      for row in range(start, end):
        _fill(elwc.examples.add(), examples, row)
      writer.write(elwc.SerializeToString())


def read_elwc(paths, texts=True, max_lists=None):
  """Reads ELWC files into memory.

  Args:
    paths: a path or pattern, or a list of them; `.gz` is decompressed.
    texts: whether bytes are texts, to decode to str; or the names of those.
    max_lists: how many lists to read; None for all.

  Returns:
    `ElwcLists`, features in alphabetical order. What some items lack is NaN
    among floats, else None, and no values among several.

  Raises:
    ValueError: if there is no file, or one is no ELWC, or of other types.
  """
  sizes, items, examples, context = [], 0, {}, {}
  for path in tf.nest.flatten(paths):
    files = sorted(tf.io.gfile.glob(os.fspath(path)))
    if not files:
      raise ValueError(f"There is no file {path}; correct the path or pattern.")
    for file in files:
      left = -1 if max_lists is None else max_lists - len(sizes)
      try:
        for record in open_records(file).take(left).as_numpy_iterator():
          elwc = input_pb2.ExampleListWithContext.FromString(record)
          _gather(elwc.context, context, len(sizes), file)
          for example in elwc.examples:
            _gather(example, examples, items, file)
            items += 1
          sizes.append(len(elwc.examples))
      except (DecodeError, tf.errors.DataLossError) as error:
        raise ValueError(f"{file}: is no TFRecord file of ELWC, or is damaged "
                         f"({error}); write it again.") from error
  examples, context = (
      {k: _restore(k, rows, texts, *found[k]) for k in sorted(found)}
      for found, rows in ((examples, items), (context, len(sizes))))
  return ElwcLists(examples, splits_of(sizes), context)


def _rows(name, values):
  """A column as the field of a `Feature`, and a list of values for each row."""
  if values.dtype != object:
    kind = "float_list" if values.dtype.kind == "f" else "int64_list"
    return kind, values.reshape(len(values), -1).tolist()
  rows = [[] if value is None else list(value) if isinstance(
      value, (list, tuple, np.ndarray)) else [value] for value in values]
  flat = [value for row in rows for value in row]
  if all(isinstance(value, (str, bytes)) for value in flat):
    return "bytes_list", [[value.encode() if isinstance(value, str) else value
                           for value in row] for row in rows]
  numbers = np.asarray(flat)
  if numbers.dtype.kind not in "biuf":
    raise ValueError(f"Feature {name!r} must be only numbers or only texts, "
                     "but is neither; convert it.")
  numbers = storable(name, numbers)
  ends = np.cumsum([len(row) for row in rows])[:-1]
  return _rows(name, numbers)[0], [
      part.tolist() for part in np.split(numbers, ends)]


def _fill(message, columns, row):
  for name, (kind, rows) in columns.items():
    if rows[row]:
      getattr(message.features.feature[name], kind).value.extend(rows[row])


def _gather(message, columns, row, file):
  """Adds a message: by name the field, rows, numbers of values, and values."""
  for name, feature in message.features.feature.items():
    kind = feature.WhichOneof("kind")
    if kind:
      column = columns.setdefault(name, (
          kind, [], [], [] if kind == "bytes_list" else
          array.array("f" if kind == "float_list" else "q")))
      if column[0] != kind:
        raise ValueError(f"{file}: feature {name!r} is a {kind}, but before a "
                         f"{column[0]}; write it with one type.")
      column[1].append(row)
      column[2].append(len(getattr(feature, kind).value))
      column[3].extend(getattr(feature, kind).value)


def _restore(name, size, texts, kind, rows, counts, values):
  """An array as it was written."""
  if kind == "bytes_list" and (texts is True or texts and name in texts):
    try:
      values = [value.decode() for value in values]
    except UnicodeDecodeError as error:
      raise ValueError(f"Feature {name!r} is no UTF-8; name those that are in "
                       "`texts`.") from error
  flat = np.array(values, object if kind == "bytes_list" else None)
  sizes = np.zeros(size, np.int64)
  sizes[rows] = counts
  if sizes.min() == sizes.max():
    return flat if sizes[0] == 1 else flat.reshape(size, sizes[0])
  restored = np.full(size, None)
  if sizes.max() == 1:
    restored[sizes == 1] = flat
    return restored.astype(flat.dtype) if kind == "float_list" else restored
  restored[:] = np.split(flat, np.cumsum(sizes)[:-1])
  return restored
