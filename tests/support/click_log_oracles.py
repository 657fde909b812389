"""Click logs by slow plain Python, and as files of every format."""

import gzip
import json
import math

import numpy as np
import pyarrow as pa
from pyarrow import parquet
import tensorflow as tf
from tensorflow_serving.apis import input_pb2

from ultra_tfr.data.click_log import values as values_lib
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import PARTS

COLUMNS = LogColumns(
    query="request_id", position="rank",
    feedback="click + 0.5 * log1p(dwell_ms / 1000)",
    features=("f_*", "category", "brand", "is_new"), context="device",
    item=("item_id",), timestamp="timestamp", randomized="randomized")
NUMBERS = (*(f"f_{i}" for i in range(8)), "is_new")
TEXTS = ("category", "brand")


def number_of(text):
  """The number that stands for a text."""
  return int(values_lib.hashes(pa.array([text]))[0])


def expected_requests(records):
  """What a log of the columns above holds.

  Args:
    records: its rows, as dicts; None or NaN where missing.

  Returns:
    A dict from the number of a request to its items by position, each a tuple
    of position, feedback, device, item, randomized, and a dict of features
    (None or "" where missing).
  """
  requests = {}
  for row in records:
    feedback = row["click"] + 0.5 * math.log1p(row["dwell_ms"] / 1000)
    requests.setdefault(number_of(row["request_id"]), []).append((
        row["rank"], float(np.float32(feedback)), row["device"],
        number_of(row["item_id"]), bool(row["randomized"]),
        {**{name: _number(row[name]) for name in NUMBERS},
         **{name: row[name] or "" for name in TEXTS}}))
  return {request: sorted(items, key=lambda item: item[0])
          for request, items in requests.items()}


def _number(value):
  missing = value is None or math.isnan(value)
  return None if missing else float(np.float32(value))


def requests_of(log, parts=PARTS, batch_size=7):
  """What a `ClickLog` holds, as `expected_requests` says it."""
  numbers, texts = (
      [feature["name"] for feature in log.statistics[kind]]
      for kind in ("numeric", "text"))
  requests = {}
  for part in parts:
    for batch in log.parts[part].batches(batch_size):
      for i, request in enumerate(batch.requests.tolist()):
        assert request not in requests, "A request comes twice."
        requests[request] = [
            (log.positions[batch.positions[i, j] - 1],
             float(batch.feedback[i, j]), log.contexts[batch.contexts[i, j]],
             int(batch.items[i, j]), bool(batch.randomized[i, j]),
             {**dict(zip(numbers, map(_number, batch.numeric[i, j].tolist()))),
              **dict(zip(texts, batch.texts[i, j].tolist()))})
            for j in np.flatnonzero(batch.positions[i])]
  return requests


# Files. Each function writes a table of pyarrow.


def _write_csv(table, path, delimiter=","):
  opened = gzip.open if str(path).endswith(".gz") else open
  with opened(path, "wt", encoding="utf-8") as file:
    table.to_pandas().to_csv(file, index=False, sep=delimiter)


def _write_tsv(table, path):
  _write_csv(table, path, "\t")


def _write_json(table, path):
  opened = gzip.open if str(path).endswith(".gz") else open
  with opened(path, "wt", encoding="utf-8") as file:
    for row in table.to_pylist():
      file.write(json.dumps(row) + "\n")


def _write_elwc(table, path):
  """One list for each request, with the device in the context."""
  lists = {}
  for row in table.to_pylist():
    lists.setdefault(row["request_id"], []).append(row)
  packing = "GZIP" if str(path).endswith(".gz") else ""
  with tf.io.TFRecordWriter(str(path), packing) as writer:
    for rows in lists.values():
      context = {name: rows[0][name] for name in ("request_id", "device")}
      writer.write(elwc(context, [
          {name: value for name, value in row.items() if name not in context}
          for row in rows]))


def elwc(context, examples):
  """A serialised `ExampleListWithContext` of dicts of values."""
  lists = input_pb2.ExampleListWithContext()
  lists.context.CopyFrom(_example(context))
  for values in examples:
    lists.examples.append(_example(values))
  return lists.SerializeToString()


def _example(values):
  example = tf.train.Example()
  for name, value in values.items():
    feature = example.features.feature[name]
    if isinstance(value, (str, bytes)):
      value = value.encode() if isinstance(value, str) else value
      feature.bytes_list.value.append(value)
    elif isinstance(value, float):
      feature.float_list.value.append(value)
    elif value is not None:
      feature.int64_list.value.append(int(value))
  return example


WRITERS = {
    "parquet": lambda table, path: parquet.write_table(table, path),
    "csv": _write_csv, "csv.gz": _write_csv, "tsv": _write_tsv,
    "tsv.gz": _write_tsv, "jsonl": _write_json, "jsonl.gz": _write_json,
    "ndjson": _write_json, "json": _write_json, "tfrecord": _write_elwc,
    "tfrecord.gz": _write_elwc}


def write(table, folder, ending, name="log"):
  """Writes a table in a format, and returns its path."""
  path = folder / f"{name}.{ending}"
  WRITERS[ending](table, path)
  return path
