r"""Rows per second and peak memory of reading a click log.

Makes a log with 20 numeric and 2 text features, whose rows are in random order
within each 500,000, reads it in a fresh process, and goes through its training
part once. All files that it writes are removed again.

Commands (about a minute, and a quarter of one each, on two cores):

    python examples/benchmarks/read_log.py
    python examples/benchmarks/read_log.py --format=csv --rows=1000000
    python examples/benchmarks/read_log.py --format=jsonl --rows=1000000

Expected output, on two cores, each in one line:

    parquet: 10000000 rows, 1183 MB, read in 19.9 s (502967 rows/s), 799744
    requests given in 7.6 s (104548 requests/s), peak memory 1.01 GiB, of which
    0.62 are imports
    csv: 1000000 rows, 274 MB, read in 3.7 s (273709 rows/s), 79872 requests
    given in 0.7 s (107800 requests/s), peak memory 1.10 GiB, of which 0.62 are
    imports
    jsonl: 1000000 rows, 517 MB, read in 5.9 s (169664 rows/s), 79872 requests
    given in 0.8 s (99177 requests/s), peak memory 0.82 GiB, of which 0.62 are
    imports
"""

import concurrent.futures
import multiprocessing
import os
import resource
import tempfile
import time

from absl import app
from absl import flags
import numpy as np
import pyarrow as pa
from pyarrow import csv
from pyarrow import parquet
import ultra_tfr  # noqa: F401  (before TensorFlow Ranking)

from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.data.click_log.columns import LogColumns

_ROWS = flags.DEFINE_integer("rows", 10000000, "Rows of the log.")
_FORMAT = flags.DEFINE_enum(
    "format", "parquet", ["parquet", "csv", "jsonl"], "Format of the log.")
_FOLDER = flags.DEFINE_string("folder", None, "Where to write the log.")

_CHUNK_ROWS, _ITEMS, _BATCH = 500000, 10, 256


def _chunk(number, rows):
  """Rows of whole requests, in random order."""
  rng = np.random.default_rng(number)
  order = rng.permutation(rows)
  request = number * _CHUNK_ROWS // _ITEMS + order // _ITEMS
  numbers = rng.normal(size=(20, rows)).astype(np.float32)
  numbers[0][rng.random(rows) < 0.1] = np.nan
  names = pa.array([f"name {i}" for i in range(5000)])
  return pa.table({
      "request_id": pa.array(request).cast(pa.string()),
      "rank": order % _ITEMS + 1, "click": (rng.random(rows) < 0.1).astype(int),
      "item": rng.integers(1 << 40, size=rows),
      "time": 1700000000 + request,
      **{f"f_{i}": pa.array(values, from_pandas=True)
         for i, values in enumerate(numbers)},
      "category": names.slice(0, 20).take(rng.integers(20, size=rows)),
      "brand": names.take(rng.integers(5000, size=rows))})


def _write(path, total):
  """Writes a log, chunk by chunk."""
  writer = None
  for number, start in enumerate(range(0, total, _CHUNK_ROWS)):
    table = _chunk(number, min(_CHUNK_ROWS, total - start))
    if path.endswith("jsonl"):
      table.to_pandas().to_json(path, orient="records", lines=True, mode="a")
      continue
    if writer is None:
      kind = csv.CSVWriter if path.endswith("csv") else parquet.ParquetWriter
      writer = kind(path, table.schema)
    writer.write_table(table)
  if writer is not None:
    writer.close()


def _read(path):
  """Says how fast a log is read, and at which memory."""
  before = _peak()
  columns = LogColumns(
      "request_id", "rank", "click", ("f_*", "category", "brand"),
      item="item", timestamp="time")
  start = time.perf_counter()
  with read_click_log(path, columns) as log:
    seconds = time.perf_counter() - start
    rows = sum(log.summary["rows"].values())
    start = time.perf_counter()
    trained = sum(
        len(inputs["numeric"]) for inputs, _, _ in log.parts["train"].dataset(
            _BATCH).take(len(log.parts["train"]) // _BATCH))
    passed = time.perf_counter() - start
  return (f"{rows} rows, {os.path.getsize(path) / 1e6:.0f} MB, read in "
          f"{seconds:.1f} s ({rows / seconds:.0f} rows/s), {trained} requests "
          f"given in {passed:.1f} s ({trained / passed:.0f} requests/s), peak "
          f"memory {_peak():.2f} GiB, of which {before:.2f} are imports")


def _peak():
  """Largest memory of this process so far, in GiB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def _in_fresh_process(function, *arguments):
  context = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
    return pool.submit(function, *arguments).result()


def main(_):
  with tempfile.TemporaryDirectory(dir=_FOLDER.value) as folder:
    path = os.path.join(folder, f"log.{_FORMAT.value}")
    _in_fresh_process(_write, path, _ROWS.value)
    print(f"{_FORMAT.value}: {_in_fresh_process(_read, path)}")


if __name__ == "__main__":
  app.run(main)
