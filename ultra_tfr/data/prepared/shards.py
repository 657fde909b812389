"""Requests of a log in compressed TFRecords, and batches of them by tf.data.

A record is a `tf.train.Example` with the columns of some whole requests, one
request after another. Numbers by request: "request", and "size", its rows. By
row, in display order: "position" (from 1), "feedback", "context", "item",
"weight", "randomized" (0 or 1), all "numeric" features of the row, and
"text_0", "text_1" .. of the text features.
"""

import itertools
import re

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ultra_tfr import files
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


def read(path, num_numeric, num_texts, num_requests=None):
  """The `Rows` of a shard.

  Their times, and their places in the log, are not in it: these are 0.

  Args:
    path: the file.
    num_numeric: features that are numbers.
    num_texts: features that are texts.
    num_requests: how many requests it must hold; None for any number.

  Raises:
    ValueError: if it is no such shard.
  """
  try:
    columns = {name: values.numpy() for name, values in _load(
        files.local(path), num_numeric, num_texts).items()}
    found = len(columns["size"])
    reason = "" if num_requests in (None, found) else (
        f"{found} requests, and not {num_requests}")
  except tf.errors.OpError as error:
    # Without the names of operations.
    reason = re.sub(r"\{\{.*?\}\} ?|\s*\[Op:.*", "", error.message, flags=re.S)
  if reason:
    raise ValueError(
        f"{path}: is no whole shard of this prepared log ({reason:.200}); copy "
        "it anew, or prepare the log again.")
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


def share(counts, number, count):
  """What one of several replicas reads.

  The shards are dealt out, and those that are left over, or all if they are
  fewer than the replicas, are shared by request.

  Args:
    counts: how many requests each shard holds.
    number: of the replica, from 0.
    count: of all replicas.

  Returns:
    Pairs of a shard and a range, of its requests.

  >>> share([4, 4, 5], number=1, count=2)
  [(1, range(0, 4)), (2, range(1, 5, 2))]
  """
  whole = len(counts) // count * count
  return [*((i, range(counts[i])) for i in range(number, whole, count)),
          *((i, range(number, counts[i], count))
            for i in range(whole, len(counts)))]


def orders(counts, number, count, batch_size, seed):
  """The order that a replica goes through its `share` in, again and again.

  Args:
    counts: as in `share`.
    number: as in `share`.
    count: as in `share`.
    batch_size: requests in a batch of this replica.
    seed: of the order.

  Yields:
    Tuples of a shard, whether a pass begins with it, and an array: the order of
    its requests and those that the batches before it left over, which come
    first in the numbering.
  """
  own = share(counts, number, count)
  for epoch in itertools.count():
    # A 0 at the end changes no seed: one replica sees what `batches` gives.
    generator = np.random.default_rng((seed, epoch, number))
    generator.shuffle(turns := list(own))
    rest = 0
    for i, (shard, requests) in enumerate(turns):
      order = np.concatenate([
          np.arange(rest), rest + np.asarray(requests, np.int64)])
      generator.shuffle(order)
      yield shard, i == 0, order
      rest = len(order) % batch_size


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
    count_of = dict(zip(paths, counts))
    super().__init__(
        paths, sum(counts), num_rows, read=lambda path: read(
            path, num_numeric, num_texts, count_of[path]))
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
    return self._batches_of(0, 1, batch_size, seed)

  def replica_batches(self, replicas, count, batch_size, seed):
    """Batches for some of the replicas that train in step.

    Each replica goes through its `share` as `training_batches` goes through
    all, so what a step's batches hold depends on how many replicas there are,
    and not on where they are.

    Args:
      replicas: their numbers; they take turns.
      count: of all replicas.
      batch_size: requests in a batch of all replicas together; where a replica
        has fewer, its batches are what it has.
      seed: of the order.

    Returns:
      A `tf.data.Dataset` as of `dataset`, where each batch is of one replica.

    Raises:
      ValueError: as `check_replicas`.
    """
    self.check_replicas(count, batch_size)
    size = min(batch_size // count, self._smallest_share(count))
    return tf.data.Dataset.choose_from_datasets(
        [self._batches_of(number, count, size, seed) for number in replicas],
        tf.data.Dataset.range(len(replicas)).repeat(),
        stop_on_empty_dataset=False)

  def check_replicas(self, count, batch_size):
    """Raises a `ValueError` if these replicas cannot share a batch.

    Args:
      count: of all replicas.
      batch_size: requests in a batch of all of them together.
    """
    if batch_size % count:
      raise ValueError(
          f"The batch size is {batch_size}, and {count} replicas cannot share "
          "that equally; take a multiple of their number.")
    if not self._smallest_share(count):
      raise ValueError(
          f"The training part has {len(self)} requests, too few for {count} "
          "replicas, each of which needs its own; take fewer replicas.")

  def _smallest_share(self, count):
    """Requests of the replica that has the fewest."""
    return min(sum(len(own) for _, own in share(self._counts, number, count))
               for number in range(count))

  def _batches_of(self, number, count, batch_size, seed):
    """The batches of a replica, which has as many requests as a batch."""
    def generate():
      for shard, is_first, order in orders(
          self._counts, number, count, batch_size, seed):
        yield (files.local(self._shards[shard]), self._counts[shard], is_first,
               order)

    def load(path, num_requests, is_first, order):
      columns = self._columns(path)
      # Or those that are too many would be left out.
      tf.debugging.assert_equal(
          tf.size(columns["size"], tf.int64), num_requests)
      return columns, is_first, order

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
               for name, values in self._columns(
                   files.local(self._shards[0])).items()}
    return tf.data.Dataset.from_generator(generate, output_signature=(
        tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64),
        tf.TensorSpec([], tf.bool), tf.TensorSpec([None], tf.int64))).map(
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
