"""Rows of a log: as the readers of each format give them, and as converted."""

import os
from typing import NamedTuple
from typing import Optional

import numpy as np
import pyarrow as pa

from ultra_tfr import checks
from ultra_tfr import files

# What stands for a missing value, unless others are named.
MISSING_TEXT = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
BATCH_ROWS = 65536
BLOCK_BYTES = 1 << 23
_PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class Dialect(NamedTuple):
  """How values are written in files of text.

  Attributes:
    separator: between the values of a CSV row; None for that of the ending.
    null_values: words that stand for a missing value; None for `MISSING_TEXT`,
      which in CSV may be texts in quotes.
    decimal: "." or ",", the sign before decimals.
  """

  separator: Optional[str] = None
  null_values: Optional[tuple] = None
  decimal: str = "."

  @property
  def words(self):
    """The words that stand for a missing value."""
    return MISSING_TEXT if self.null_values is None else self.null_values


USUAL = Dialect()


def make_dialect(separator, null_values, decimal, schema):
  """The `Dialect` that the arguments of `read_click_log` describe.

  Args:
    separator: as there.
    null_values: as there.
    decimal: as there.
    schema: that of another log, for what is None here; or an empty dict.

  Raises:
    ValueError: if one of them is not possible.
  """
  if separator is not None and (not isinstance(separator, str) or
                                len(separator.encode()) != 1 or
                                separator in '"\r\n'):
    raise ValueError("`separator` must be one character, such as ';', but is "
                     f"{separator!r}.")
  if null_values is None:
    null_values = schema.get("null_values")
  elif isinstance(null_values, str) or not all(
      isinstance(word, str) for word in null_values):
    raise ValueError("`null_values` must be a list of words, but is "
                     f"{null_values!r}.")
  decimal = decimal or schema.get("decimal", ".")
  checks.check_choice("decimal", decimal, (".", ","))
  return Dialect(separator, null_values and tuple(null_values), decimal)


class Malformed(NamedTuple):
  """A row that cannot be taken apart into columns.

  Attributes:
    row: its number in the file, as in `RawBatch`.
    reason: a few words.
  """

  row: int
  reason: str


class RawBatch(NamedTuple):
  """Some rows as they are in the log.

  Attributes:
    source: the file, "DataFrame", or "The table".
    columns: a dict of `pyarrow` arrays by name.
    rows: `[R]` int64, the number of each row in the source, from 1. In CSV, 1
      is the header, empty lines do not count, and a row may have several lines;
      in JSON lines it is the number of the line.
    malformed: what could not be read between these rows.
    missing: words that stand for a missing value in a column of texts.
  """

  source: str
  columns: dict
  rows: np.ndarray
  malformed: list
  missing: tuple = ()


class Rows(NamedTuple):
  """Rows that can be used.

  Attributes:
    request: `[R]` int64, a number that stands for the request.
    position: `[R]` int64, as in the log, or from 0 the place in the list of
      slots, where positions are names.
    feedback: `[R]` float32, at least 0.
    context: `[R]` int32 ids.
    item: `[R]` int64, a number that stands for the item, -1 if unknown.
    weight: `[R]` float32.
    time: `[R]` float64 seconds, 0 in a log without times.
    randomized: `[R]` booleans.
    row: `[R]` int64, the number of the row in its source.
    source: `[R]` int32, which source, in the order of reading.
    numeric: `[R, F]` float32, NaN where missing.
    texts: a list of pyarrow string arrays, "" where missing.
  """

  request: np.ndarray
  position: np.ndarray
  feedback: np.ndarray
  context: np.ndarray
  item: np.ndarray
  weight: np.ndarray
  time: np.ndarray
  randomized: np.ndarray
  row: np.ndarray
  source: np.ndarray
  numeric: np.ndarray
  texts: list


def split_ending(path):
  """The ending that says the format, and the one that says the compression.

  >>> split_ending("logs/a.b.CSV.gz"), split_ending("a.parquet")
  (('.csv', '.gz'), ('.parquet', ''))
  """
  name, packing = os.path.splitext(os.fspath(path).lower())
  if packing in _PACKINGS:
    return os.path.splitext(name)[1], packing
  return packing, ""


def open_stream(path):
  """The bytes of a file, unpacked as its ending says."""
  return pa.input_stream(
      files.source(path), _PACKINGS.get(split_ending(path)[1]))


def in_one_line(names):
  """Names of columns for a message.

  A stray quotation mark in the header of a CSV file makes rows part of a name.

  >>> in_one_line(["a", "b\\n1,2"])
  'a, b 1,2'
  """
  return " ".join(", ".join(names).split())


def check_names(source, available, names):
  """Raises a `ValueError` unless each name is the name of one column."""
  for name in names:
    count = available.count(name)
    if count == 0:
      raise ValueError(
          f"{source}: there is no column {name!r}, which the first file of the "
          f"log has; its columns are {in_one_line(available)}.")
    if count > 1:
      raise ValueError(
          f"{source}: {count} columns are named {name!r}; rename all but one.")


def as_text(value):
  """A Python value as the text that `values.texts` makes of one in a column.

  >>> [as_text(value) for value in (None, "a", True, 12, 12.0, 1e16, .5)]
  [None, 'a', 'true', '12', '12', '10000000000000000', '0.5']
  """
  if value is None or isinstance(value, str):
    return value
  if value != value:  # NaN is missing.
    return None
  if isinstance(value, bool):
    return str(value).lower()
  if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**63:
    return str(int(value))
  return pa.scalar(value).cast(pa.string()).as_py() if isinstance(
      value, float) else str(value)
