"""CSV and TSV files as batches of rows.

All columns are read as text, which `rows` converts, so that one bad
value costs its row and not the file.
"""

import codecs
import io

import numpy as np
import pyarrow as pa
from pyarrow import csv
import pyarrow.compute as pc

from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import values

# A row that no log has. If it is not found, an open quote has swallowed it.
_END = "\x00"
# What stands for bytes that are no UTF-8: Unicode says that no text has it.
# pyarrow stops at such bytes in rows of a wrong width, so it gets none to see.
_NO_TEXT = "\ufdd0"
codecs.register_error(
    "ultra_tfr-no-text", lambda error: (_NO_TEXT, error.end))


def column_names(path):
  """The header of a file.

  Args:
    path: the file, possibly compressed.

  Returns:
    A list of names.

  Raises:
    ValueError: if there is none.
  """
  with _open(path, None, lambda row: "skip") as file:
    names = file.schema.names
  if any(_NO_TEXT in name for name in names):
    raise ValueError(
        f"{path}: the names of its columns are no UTF-8 text; write it in "
        "that encoding.")
  return names


def read(path, names):
  """Reads a file.

  Args:
    path: the file, possibly compressed.
    names: the columns to read.

  Yields:
    `RawBatch`.

  Raises:
    ValueError: if a column is missing or twice there, or a quote is not closed.
  """
  batches.check_names(path, column_names(path), names)
  malformed, ends = [], []

  def skip(row):
    if row.text == _END:
      ends.append(row.number)
    else:
      malformed.append(batches.Malformed(
          int(row.number), f"{row.actual_columns} values for "
          f"{row.expected_columns} columns"))
    return "skip"

  done, start = 0, 2
  with _open(path, names, skip) as file:
    for batch in file:
      # Those read ahead, too, but only the ones in between shift the numbers.
      skipped = np.array([bad.row for bad in malformed], np.int64)
      candidates = np.arange(start, start + batch.num_rows + len(skipped))
      rows = np.setdiff1d(candidates, skipped)[:batch.num_rows]
      yield batches.RawBatch(
          path, dict(zip(batch.schema.names, map(_as_it_was, batch.columns))),
          rows, malformed[done:])
      done = len(malformed)
      if len(rows):
        start = int(rows[-1]) + 1
  if not ends:
    raise ValueError(
        f"{path}: a quote is opened and never closed, in row {start - 1} or "
        "after it; close it, or write the file again if it is cut off.")
  if done < len(malformed):
    yield batches.RawBatch(
        path, {name: pa.array([], pa.string()) for name in names},
        np.zeros(0, np.int64), malformed[done:])


def _as_it_was(column):
  """A column with bytes that are no text, where there were some."""
  wrong = pc.match_substring(column, _NO_TEXT)
  if not pc.any(wrong).as_py():
    return column
  return pc.if_else(wrong, pa.scalar(b"\xff"), column.cast(pa.binary()))


class _WithEnd(io.RawIOBase):
  """A stream of UTF-8 with one more row, to see that it is read to its end."""

  def __init__(self, stream):
    super().__init__()
    self._stream, self._end = stream, f"\n{_END}\n".encode()
    self._decoder = codecs.getincrementaldecoder("utf-8")("ultra_tfr-no-text")
    self._rest = b""
    self._next = self._read()

  def readable(self):
    return True

  def read(self, size=-1):
    del size  # pyarrow asks for one block each time.
    block, self._next = self._next, self._read()
    # In one piece with what is before it: a header alone is no block.
    return block + self._end if block and not self._next else block

  def _read(self):
    size, is_end = batches.BLOCK_BYTES - len(self._end), False
    # What stands for wrong bytes may be longer than they are.
    while not self._rest and not is_end:
      block = self._stream.read(size)
      is_end = not block
      self._rest = self._decoder.decode(block, is_end).encode()
    block, self._rest = self._rest[:size], self._rest[size:]
    return block


def _open(path, names, handler):
  tabs = batches.split_ending(path)[0] == ".tsv"
  convert = csv.ConvertOptions(
      column_types=names and {name: pa.string() for name in names},
      include_columns=names, check_utf8=False, strings_can_be_null=True,
      quoted_strings_can_be_null=False, null_values=values.MISSING_TEXT)
  return csv.open_csv(
      _WithEnd(batches.open_stream(path)),
      csv.ReadOptions(use_threads=False, block_size=batches.BLOCK_BYTES),
      csv.ParseOptions(delimiter="\t" if tabs else ",",
                       newlines_in_values=True, invalid_row_handler=handler),
      convert)
