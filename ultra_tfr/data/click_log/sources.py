"""Click logs as batches of rows, whatever file they are in."""

import functools
import glob
import os
from typing import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ultra_tfr.data.click_log import batches as batches_lib
from ultra_tfr.data.click_log import csv_rows
from ultra_tfr.data.click_log import elwc_rows
from ultra_tfr.data.click_log import json_rows
from ultra_tfr.data.click_log.batches import BATCH_ROWS
from ultra_tfr.data.click_log.batches import RawBatch

_READABLE = (".parquet, .csv, .tsv, .jsonl, .ndjson and .json (one object a "
             "line), .csv.gz and the like, and .tfrecord of ELWC")
# Bytes of a row of text, and how much larger a file is when unpacked.
_ROW_BYTES, _PACKED = 100, 5
_BUFFER_BYTES = 1 << 20


class _Format(NamedTuple):
  """How files with an ending are read."""
  column_names: Callable
  read: Callable
  packings: tuple = ("", ".gz", ".bz2", ".zst")


def find_files(log):
  """The files that a path stands for.

  Args:
    log: a file, a folder of them, a pattern such as "logs/*.csv", or a list of
      these. In a folder, other files and hidden ones are skipped.

  Returns:
    A list of paths.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if a format is unknown or a file is empty.
  """
  if isinstance(log, (list, tuple)) and log:
    return [path for part in log for path in find_files(part)]
  if not isinstance(log, (str, os.PathLike)):
    raise ValueError(
        "`log` must be a path, a list of paths, or a pandas DataFrame, but is "
        f"{log!r:.60}.")
  log = os.fspath(log)
  found = [log] if os.path.exists(log) else sorted(glob.glob(log))
  found = [path for entry in found for path in _files_in(entry)]
  if not found:
    raise FileNotFoundError(
        f"{log}: there is no such file, nor a folder of click logs; readable "
        f"are {_READABLE}.")
  for path in found:
    if not _format(path):
      raise ValueError(
          f"{path}: the ending must say the format; readable are {_READABLE}.")
    if os.path.getsize(path) == 0:
      raise ValueError(f"{path}: the file is empty; give a log with rows.")
  return found


def paths(log):
  """Where a log is read from: nothing else may be written there.

  Args:
    log: as in `find_files`, or a pandas `DataFrame`.

  Returns:
    A list of paths of files and folders, and of patterns.
  """
  if is_frame(log):
    return []
  entries = log if isinstance(log, (list, tuple)) else [log]
  return [*find_files(log), *map(os.fspath, entries)]


def _files_in(entry):
  if not os.path.isdir(entry):
    return [entry]
  return sorted(os.path.join(entry, name) for name in os.listdir(entry)
                if _format(name) and not name.startswith(("_", ".")))


def column_names(log):
  """The names of the columns, before anything is read.

  Args:
    log: files as in `find_files`, or a pandas `DataFrame`.

  Returns:
    A list of names.

  Raises:
    ValueError: if there is none, or a file is not what its ending says.
  """
  if is_frame(log):
    return [str(name) for name in log.columns]
  path = find_files(log)[0]
  names = _reading(path, lambda: _format(path).column_names(path))
  if not names:
    raise ValueError(
        f"{path}: no column is found; check that it is what its ending says, "
        "and has rows.")
  return names


def estimate_rows(log):
  """About how many rows a log has, judged by its size."""
  if is_frame(log):
    return len(log)
  rows = 0
  for path in find_files(log):
    ending, packing = batches_lib.split_ending(path)
    if ending == ".parquet":
      rows += _reading(path, lambda p=path: parquet.read_metadata(p).num_rows)
    else:
      rows += os.path.getsize(path) * (_PACKED if packing else 1) // _ROW_BYTES
  return rows


def read_batches(log, names):
  """Reads a log batch by batch.

  Args:
    log: files as in `find_files`, or a pandas `DataFrame`.
    names: the columns to read.

  Yields:
    `RawBatch`.

  Raises:
    ValueError: if a file is not what its ending says, or lacks a column.
  """
  if is_frame(log):
    yield from _frame(log, names)
    return
  for path in find_files(log):
    batches = _format(path).read(path, list(names))
    while True:
      batch = _reading(path, functools.partial(next, batches, None))
      if batch is None:
        break
      yield batch


def _reading(path, read):
  try:
    return read()
  except (pa.ArrowException, UnicodeError, OSError) as error:
    # Those with a number are the system's, such as a missing permission.
    if isinstance(error, OSError) and error.errno is not None:
      raise
    raise ValueError(
        f"{path}: cannot be read as its ending says: {error}; check the file, "
        "or give it the right ending.") from error


def is_frame(log):
  """Whether a log is a pandas `DataFrame`."""
  # Looked at by name, so that pandas need not be installed.
  return any(kind.__name__ == "DataFrame" and
             kind.__module__.split(".")[0] == "pandas"
             for kind in type(log).__mro__)


def _format(path):
  ending, packing = batches_lib.split_ending(path)
  found = _FORMATS.get(ending)
  return found if found and packing in found.packings else None


def _frame(frame, names):
  available = column_names(frame)
  batches_lib.check_names("DataFrame", available, names)
  for start in range(0, len(frame), BATCH_ROWS):
    part = frame.iloc[start:start + BATCH_ROWS]
    columns = {name: _series(part.iloc[:, available.index(name)])
               for name in names}
    yield RawBatch("DataFrame", columns,
                   np.arange(start, start + len(part)) + 1, [])


def _series(series):
  try:
    return pa.Array.from_pandas(series)
  except (pa.ArrowException, OverflowError):
    # Values of several types: as text, each row can be judged by itself.
    return pa.array(
        [None if missing else batches_lib.as_text(value)
         for value, missing in zip(series, series.isna())], pa.string())


def _parquet_names(path):
  return parquet.read_schema(path).names


def _parquet(path, names):
  # Read bit by bit: `pre_buffer` would hold the whole file, and without
  # `buffer_size` the columns of a row group are read as a whole.
  with parquet.ParquetFile(path, pre_buffer=False,
                           buffer_size=_BUFFER_BYTES) as file:
    batches_lib.check_names(path, file.schema_arrow.names, names)
    start = 1
    for batch in file.iter_batches(BATCH_ROWS, columns=names):
      yield RawBatch(path, dict(zip(batch.schema.names, batch.columns)),
                     np.arange(start, start + batch.num_rows), [])
      start += batch.num_rows


def _elwc_names(path):
  # Sorted, since the features of an example are in no order.
  return sorted(next(elwc_rows.read_rows(path, None, BATCH_ROWS), ({}, 0))[0])


def _elwc(path, names):
  for columns, rows in elwc_rows.read_rows(path, names, BATCH_ROWS):
    yield RawBatch(path, columns, rows, [])


_CSV = _Format(csv_rows.column_names, csv_rows.read)
_JSON = _Format(json_rows.column_names, json_rows.read)
_ELWC = _Format(_elwc_names, _elwc, ("", ".gz"))
_FORMATS = {
    ".parquet": _Format(_parquet_names, _parquet, ("",)),
    ".csv": _CSV, ".tsv": _CSV, ".jsonl": _JSON, ".ndjson": _JSON,
    ".json": _JSON, ".tfrecord": _ELWC, ".tfrecords": _ELWC}
