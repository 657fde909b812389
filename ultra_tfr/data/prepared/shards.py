"""Requests of a log in compressed TFRecords, and batches of them by tf.data.

A record is a `tf.train.Example` with the columns of some whole requests, one
request after another. Numbers by request: "request", and "size", its rows. By
row, in display order: "position" (from 1), "feedback", "context", "item",
"weight", "randomized" (0 or 1), all "numeric" features of the row, and
"text_0", "text_1" .. of the text features.
"""

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ultra_tfr import output
from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.data.click_log.batches import Rows

COMPRESSION = "GZIP"
# Rows of a record, or one request with more of them.
_RECORD_ROWS = 4096
_INTS = {"position": np.int64, "context": np.int32, "item": np.int64,
         "randomized": bool}
_FLOATS = ("feedback", "weight")
# What a training sees, and what stands where there is no row.
_PADDING = {"numeric": 0.0, "texts": "", "feedback": -1.0, "position": 0,
            "context": 0, "weight": 0.0}


def write(path, rows):
  """Writes a shard: all of it, or nothing.

  Args:
    path: the file, in place of what is there.
    rows: `Rows`, sorted by request, with positions from 1.
  """
  starts = requests_lib.starts_of(rows)
  options = tf.io.TFRecordOptions(COMPRESSION, compression_level=1)
  with output.new_path(path) as part, (
      tf.io.TFRecordWriter(part, options)) as writer:
    first = 0
    while first < len(starts) - 1:
      last = max(first + 1, int(np.searchsorted(
          starts, starts[first] + _RECORD_ROWS, side="right")) - 1)
      writer.write(_record(rows, starts, first, last))
      first = last


def _record(rows, starts, first, last):
  """The requests from `first` to before `last` as bytes."""
  part = slice(starts[first], starts[last])
  columns = {
      "request": rows.request[starts[first:last]],
      "size": np.diff(starts[first:last + 1]),
      "numeric": rows.numeric[part].ravel(),
      **{name: getattr(rows, name)[part].astype(np.int64) for name in _INTS},
      **{name: getattr(rows, name)[part] for name in _FLOATS},
      **{f"text_{i}": [text.encode() for text in column[part].to_pylist()]
         for i, column in enumerate(rows.texts)}}
  # In the order of names, so that the same rows are the same bytes.
  return tf.train.Example(features=tf.train.Features(feature={
      name: _feature(values) for name, values in columns.items()
  })).SerializeToString(deterministic=True)


def _feature(values):
  if isinstance(values, list):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
  if values.dtype == np.float32:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def read(path, num_numeric, num_texts):
  """The `Rows` of a shard.

  Their times, and their places in the log, are not in it: these are 0.

  Args:
    path: the file.
    num_numeric: features that are numbers.
    num_texts: features that are texts.

  Raises:
    ValueError: if it is no such shard.
  """
  try:
    columns = {name: values.numpy() for name, values in _load(
        path, num_numeric, num_texts).items()}
  except tf.errors.OpError as error:
    raise ValueError(
        f"{path}: is no whole shard of a prepared log ({error.message:.200}); "
        "prepare the log again.") from error
  size = len(columns["position"])
  return Rows(
      request=np.repeat(columns["request"], columns["size"]),
      **{name: columns[name].astype(dtype) for name, dtype in _INTS.items()},
      **{name: columns[name] for name in (*_FLOATS, "numeric")},
      time=np.zeros(size), row=np.zeros(size, np.int64),
      source=np.zeros(size, np.int32),
      texts=[pa.chunked_array([pa.array(columns[f"text_{i}"], pa.string())])
             for i in range(num_texts)])


def _load(path, num_numeric, num_texts):
  """The columns of a shard as tensors, by name; also within tf.data."""
  records = tf.data.TFRecordDataset(path, COMPRESSION).batch(
      1 << 30).get_single_element()
  kinds = {**dict.fromkeys(["request", "size", *_INTS], tf.int64),
           **dict.fromkeys([*_FLOATS, "numeric"], tf.float32),
           **{f"text_{i}": tf.string for i in range(num_texts)}}
  columns = {name: values.flat_values for name, values in tf.io.parse_example(
      records, {name: tf.io.RaggedFeature(kind)
                for name, kind in kinds.items()}).items()}
  columns["numeric"] = tf.reshape(
      columns["numeric"], [tf.size(columns["position"]), num_numeric])
  return columns


class Shards(requests_lib.LoggedLists):
  """The requests of one part of a prepared log.

  They come in the same order as from `read_click_log`.

  Args:
    paths: of the shards.
    counts: how many requests each holds.
    num_rows: how many rows they hold together.
    num_numeric: features that are numbers.
    num_texts: features that are texts.
  """

  def __init__(self, paths, counts, num_rows, num_numeric, num_texts):
    super().__init__(paths, sum(counts), num_rows,
                     read=lambda path: read(path, num_numeric, num_texts))
    self._shards, self._counts = list(paths), list(counts)
    self._num_numeric, self._num_texts = num_numeric, num_texts

  def training_batches(self, batch_size, seed):
    """As there, without Python on the way of a batch.

    A pass goes through the shards in a new order, and through the requests of
    each one in another. In memory are one shard and the next two.

    Args:
      batch_size: requests in a batch, at most as many as there are.
      seed: of the order.
    """
    def orders():
      epoch = 0
      while True:
        generator = np.random.default_rng((seed, epoch))
        shards, rest = list(range(len(self._shards))), 0
        generator.shuffle(shards)
        for i, shard in enumerate(shards):
          order = np.arange(rest + self._counts[shard])
          generator.shuffle(order)
          yield self._shards[shard], i == 0, order
          rest = len(order) % batch_size
        epoch += 1

    def load(path, is_first, order):
      return self._columns(path), is_first, order

    def deal(rest, loaded):
      """Requests for whole batches; those left over join the next shard's."""
      columns, is_first, order = loaded
      rest, shard = _by_request(rest), _by_request(columns)
      # A pass begins without those of the one before.
      kept = tf.where(is_first, tf.constant(0, tf.int64),
                      rest["weight"].nrows())
      joined = {name: tf.concat([rest[name][:kept], shard[name]], 0)
                for name in _PADDING}
      whole = tf.size(order, tf.int64) // batch_size * batch_size
      return tuple(_flat({name: tf.gather(values, requests)
                          for name, values in joined.items()})
                   for requests in (order[whole:], order[:whole]))

    def batches(columns):
      requests = _by_request(columns)
      return tf.data.Dataset.range(
          requests["weight"].nrows() // batch_size).map(
              lambda i: _padded({
                  name: values[i * batch_size:(i + 1) * batch_size]
                  for name, values in requests.items()}, batch_size),
              num_parallel_calls=2)

    nothing = {name: values[:0]
               for name, values in self._columns(self._shards[0]).items()}
    return tf.data.Dataset.from_generator(orders, output_signature=(
        tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.bool),
        tf.TensorSpec([None], tf.int64))).map(
            load, num_parallel_calls=2).scan(nothing, deal).flat_map(
                batches).prefetch(8)

  def _columns(self, path):
    """What a training sees of a shard: by row, and the "size" of requests."""
    columns = _load(path, self._num_numeric, self._num_texts)
    texts = [columns[f"text_{i}"] for i in range(self._num_texts)]
    columns["texts"] = tf.stack(texts, -1) if texts else tf.zeros(
        [tf.size(columns["weight"]), 0], tf.string)
    return {name: columns[name] for name in (*_PADDING, "size")}


def _by_request(columns):
  return {name: tf.RaggedTensor.from_row_lengths(
      columns[name], columns["size"], validate=False) for name in _PADDING}


def _flat(requests):
  return {"size": requests["weight"].row_lengths(), **{
      name: values.flat_values for name, values in requests.items()}}


def _padded(columns, batch_size):
  """Requests as `LoggedLists.training_batches` gives them."""
  padded = {name: values.to_tensor(tf.cast(_PADDING[name], values.dtype))
            for name, values in columns.items()}
  for values in padded.values():
    values.set_shape([batch_size, *values.shape[1:]])
  inputs = {name: padded[name] for name in ("numeric", "texts")
            if padded[name].shape[-1]}
  packed = tf.stack([tf.cast(padded[name], tf.float32) for name in (
      "feedback", "position", "context")], -1)
  return inputs, packed, padded["weight"]
