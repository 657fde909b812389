"""Click logs as batches of rows, whatever file they are in."""

import functools
import glob
import os
from typing import Callable
from typing import NamedTuple
import urllib.parse

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ultra_tfr import files
from ultra_tfr.data.click_log import batches as batches_lib
from ultra_tfr.data.click_log import csv_rows
from ultra_tfr.data.click_log import elwc_rows
from ultra_tfr.data.click_log import json_rows
from ultra_tfr.data.click_log import values as values_lib
from ultra_tfr.data.click_log.batches import BATCH_ROWS
from ultra_tfr.data.click_log.batches import USUAL
from ultra_tfr.data.click_log.batches import RawBatch

_READABLE = (".parquet, .csv, .tsv, .jsonl, .ndjson and .json (one object a "
             "line), .csv.gz and the like, and .tfrecord of ELWC")
# Guesses: bytes of a row of text, and how much larger an unpacked file is.
_ROW_BYTES, _PACKED = 100, 5
_BUFFER_BYTES = 1 << 20
# The value in the name of a folder of rows without one, as Hive and Spark do.
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# A column without values, which may be of any type.
_ANY = "any"
# So many values tell whether a column holds numbers.
_ENOUGH = 1000


class _Format(NamedTuple):
  """How files with an ending are read."""
  column_names: Callable
  read: Callable
  packings: tuple = ("", ".gz", ".bz2", ".zst")


def find_files(log):
  """The files that a path stands for.

  Args:
    log: a file, a folder of them, a pattern such as "logs/*.csv" or
      "gs://bucket/logs/**/*.csv", or a list of these, see `ultra_tfr.files`. In
      a folder, other files and hidden ones are skipped, and so are folders, but
      for those of partitions, such as `day=2024-01-31`, as Hive and Spark write
      them.

  Returns:
    A list of paths.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if a format is unknown or a file is empty.
  """
  return [path for path, _ in find_partitions(log)]


def find_partitions(log):
  """Pairs of a path and a dict of the values that its folders give.

  Args:
    log: as in `find_files`.
  """
  if isinstance(log, (list, tuple)) and log:
    return [found for part in log for found in find_partitions(part)]
  if not isinstance(log, (str, os.PathLike)):
    raise ValueError(
        "`log` must be a path, a list of paths, a pandas DataFrame, or a table "
        "with the Arrow interface (`__arrow_c_stream__`: those of pyarrow, "
        f"polars and others), but is {log!r:.60}.")
  log = os.fspath(log)
  if files.exists(log):
    root, entries = log, [log]
  else:
    # Folders that a pattern matches may be partitions, those it names are not.
    root = log[:glob.escape(log).find("[")].rpartition(os.sep)[0]
    entries = [path for path in files.find(log)
               if not os.path.basename(path).startswith(("_", "."))]
  # A pattern may find a folder and what is in it.
  found = dict.fromkeys(path for entry in entries for path in _files_in(entry))
  if not found:
    raise FileNotFoundError(
        f"{log}: there is no such file, nor a folder of click logs; readable "
        f"are {_READABLE}.")
  for path, size in zip(found, files.of_each(files.size, found)):
    if not _format(path):
      raise ValueError(
          f"{path}: the ending must say the format; readable are {_READABLE}.")
    if size == 0:
      raise ValueError(f"{path}: the file is empty; give a log with rows.")
  return [(path, _partition(os.path.relpath(
      os.path.dirname(path) or ".", root or "."))) for path in found]


def in_memory(log, name="log"):
  """Takes over a table of another library, without a copy where it can be.

  Args:
    log: any log.
    name: of the argument that gave it.

  Returns:
    A pyarrow table in the place of an object that gives an Arrow stream, which
    may do so only once; other logs, also a pandas `DataFrame`, as they are.

  Raises:
    ValueError: if the stream does not give a table.

  >>> in_memory(pa.table({"q": [1, 2]}).to_reader()).num_rows
  2
  """
  if is_frame(log) or not hasattr(log, "__arrow_c_stream__"):
    return log
  try:
    return pa.table(log)
  except (pa.ArrowException, TypeError, ValueError) as error:
    raise ValueError(
        f"`{name}`: the Arrow stream of {type(log).__name__!r} cannot be read "
        f"as a table ({error}); give the whole table, such as a polars "
        "DataFrame."
    ) from error


def name_of(log):
  """What a log is called in a message.

  >>> name_of("a.csv"), name_of(["a.csv", "b.csv"])
  ('a.csv', 'The log')
  """
  return log if isinstance(log, (str, os.PathLike)) else "The log"


def paths(log):
  """Where a log is read from: nothing else may be written there.

  Args:
    log: as in `find_files`, or a table.

  Returns:
    A list of paths of files and folders, and of patterns.
  """
  if is_table(log):
    return []
  entries = log if isinstance(log, (list, tuple)) else [log]
  return [*find_files(log), *map(os.fspath, entries)]


def _files_in(entry):
  if not files.is_folder(entry):
    return [entry]
  found = []
  for name in files.names_in(entry):
    path = os.path.join(entry, name)
    if name.startswith(("_", ".")):
      continue
    if not files.is_folder(path):
      found += [path] if _format(name) else []
    elif "=" in name:
      found += _files_in(path)
  return found


def _partition(folder):
  """Values by name of a folder such as `day=2024-01-31/hour=7`."""
  parts = [part.partition("=") for part in folder.split(os.sep) if "=" in part]
  return {urllib.parse.unquote(name): None if value == _NO_PARTITION else
          urllib.parse.unquote(value) for name, _, value in parts}


def column_names(log, dialect=USUAL):
  """The names of the columns, before anything is read.

  Args:
    log: files as in `find_files`, or a table, see `is_table`.
    dialect: `Dialect`.

  Returns:
    A list of names; those of partitions come last.

  Raises:
    ValueError: if there is none, or a file is not what its ending says.
  """
  if is_frame(log):
    return [str(name) for name in log.columns]
  if is_table(log):
    return log.column_names
  path, partition = find_partitions(log)[0]
  names = _names_in(path, dialect)
  if not names:
    raise ValueError(
        f"{path}: no column is found; check that it is what its ending says, "
        "and has rows.")
  if _format(path) is _CSV and len(names) == 1:
    found = [sign for sign in "\t;|," if sign in names[0]]
    if found:
      raise ValueError(
          f"{path}: its header has one column, {names[0]!r:.60}; if it has more"
          f", give `separator` {found[0]!r}.")
  return names + [name for name in partition if name not in names]


def _names_in(path, dialect):
  """The columns that a file itself has."""
  return _reading(path, lambda: (
      csv_rows.column_names(path, dialect) if _format(path) is _CSV else
      _format(path).column_names(path)))


def estimate_rows(log):
  """About how many rows a log has, judged by its size."""
  if is_table(log):
    return len(log)
  return sum(files.of_each(_estimate_rows_in, find_files(log)))


def _estimate_rows_in(path):
  ending, packing = batches_lib.split_ending(path)
  if ending == ".parquet":
    return _reading(path, lambda: _metadata(path).num_rows)
  return files.size(path) * (_PACKED if packing else 1) // _ROW_BYTES


def stored_kinds(log, names):
  """Whether columns are texts by their stored types, whatever the values.

  Args:
    log: files as in `find_files`, or a table, see `is_table`.
    names: of columns.

  Returns:
    A dict of booleans by name. It lacks columns of which only the values tell:
    those of CSV, JSON lines and partitions, and pandas columns of several
    types.
  """
  if is_frame(log):
    available = column_names(log)
    found = [{name: _is_text_series(log.iloc[:, available.index(name)])
              for name in names}]
  elif is_table(log):
    found = [_kinds_of(log.schema, names)]
  else:
    found = files.of_each(
        functools.partial(_kinds_in, names=names), find_files(log))
  stored = {}
  for name in names:
    kinds = {kind.get(name) for kind in found} - {_ANY}
    # A text in one file is one in all.
    if True in kinds or None not in kinds:
      stored[name] = True in kinds
  return stored


def _kinds_in(path, names):
  """By name, whether a column is a text; `_ANY` for one without any value."""
  if _format(path) is not _PARQUET:
    return {}
  return _kinds_of(
      _reading(path, lambda: _metadata(path).schema.to_arrow_schema()), names)


def _kinds_of(schema, names):
  """`_kinds_in` by the types of pyarrow."""
  return {name: _ANY if pa.types.is_null(kind) else
          pa.types.is_dictionary(kind) or values_lib.is_string(kind)
          for name in names if schema.get_field_index(name) >= 0
          for kind in [schema.field(name).type]}


def _is_text_series(series):
  if series.isna().all():
    return _ANY
  if isinstance(series.dtype, np.dtype) and series.dtype != object:
    return False
  import pandas as pd  # It is there: the series is its.
  kind = pd.api.types.infer_dtype(series, skipna=True)
  return {"string": True, "categorical": True}.get(
      kind, None if series.dtype == object else False)


def first_values(log, names, stored, dialect=USUAL):
  """The first values of columns, as many as tell if they are numbers or texts.

  Args:
    log: files as in `find_files`, or a table, see `is_table`.
    names: the columns.
    stored: as `stored_kinds` gives it. Of these columns the first batch is
      enough, however few values it has.
    dialect: `Dialect`.

  Returns:
    A tuple of the name of a source and a dict of pyarrow arrays by name, of
    different lengths and without missing values.
  """
  found, source = {name: [] for name in names}, "The log"
  # All of a partition, since its values come one after another.
  partitions = [] if is_table(log) else [
      part for _, part in find_partitions(log)]
  of_partitions = {
      name: pa.array([part.get(name) for part in partitions], pa.string())
      for name in names if any(name in part for part in partitions)}
  for batch in read_batches(log, names, dialect) if names else ():
    source = batch.source
    for name, array in batch.columns.items():
      found[name].append(values_lib.known(
          of_partitions.get(name, array), dialect.words))
    if all(name in stored or sum(map(len, arrays)) >= _ENOUGH
           for name, arrays in found.items()):
      break
  return source, {name: values_lib.joined(arrays)
                  for name, arrays in found.items()}


def read_batches(log, names, dialect=USUAL):
  """Reads a log batch by batch.

  Args:
    log: files as in `find_files`, or a table, see `is_table`.
    names: the columns to read.
    dialect: `Dialect`.

  Yields:
    `RawBatch`.

  Raises:
    ValueError: if a file is not what its ending says, or lacks a column.
  """
  if is_table(log):
    read = _frame if is_frame(log) else _table
    for batch in read(log, names):
      yield batch._replace(missing=dialect.words)
    return
  for path, partition in find_partitions(log):
    yield from read_file(path, partition, names, dialect)


def read_file(path, partition, names, dialect=USUAL):
  """Reads a file of a log batch by batch.

  Args:
    path: of the file.
    partition: the values of its partition, as of `find_partitions`.
    names: as in `read_batches`, and so is the rest.
    dialect: see there.

  Yields:
    `RawBatch`.
  """
  if partition:
    there = _names_in(path, dialect)
    partition = {name: value for name, value in partition.items()
                 if name in names and name not in there}
  own = [name for name in names if name not in partition]
  is_csv = _format(path) is _CSV
  batches = csv_rows.read(path, own, dialect) if is_csv else (
      _format(path).read(path, own))
  while True:
    batch = _reading(path, functools.partial(next, batches, None))
    if batch is None:
      break
    columns = {name: pa.repeat(pa.scalar(value, pa.string()), len(batch.rows))
               for name, value in partition.items()}
    # Missing values of CSV are known already, since quotes count there.
    yield batch._replace(columns={**batch.columns, **columns},
                         missing=() if is_csv else dialect.words)


def _reading(path, read):
  try:
    return read()
  except (pa.ArrowException, UnicodeError, OSError) as error:
    # Errors with a number are the system's, such as a missing permission.
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


def is_table(log):
  """Whether a log is in memory: a pandas `DataFrame` or a pyarrow table."""
  return is_frame(log) or isinstance(log, pa.Table)


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


def _table(table, names):
  batches_lib.check_names("The table", table.column_names, names)
  for start in range(0, len(table), BATCH_ROWS):
    part = table.slice(start, BATCH_ROWS)
    yield RawBatch(
        "The table", {name: part[name].combine_chunks() for name in names},
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
  return _metadata(path).schema.to_arrow_schema().names


def _metadata(path):
  return parquet.read_metadata(files.source(path))


def _parquet(path, names):
  # Read bit by bit: `pre_buffer` would hold the whole file, and without
  # `buffer_size` the columns of a row group are read as a whole.
  with parquet.ParquetFile(files.source(path), pre_buffer=False,
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


_PARQUET = _Format(_parquet_names, _parquet, ("",))
_CSV = _Format(csv_rows.column_names, csv_rows.read)
_JSON = _Format(json_rows.column_names, json_rows.read)
_ELWC = _Format(_elwc_names, _elwc, ("", ".gz"))
_FORMATS = {
    ".parquet": _PARQUET,
    ".csv": _CSV, ".tsv": _CSV, ".jsonl": _JSON, ".ndjson": _JSON,
    ".json": _JSON, ".tfrecord": _ELWC, ".tfrecords": _ELWC}
