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

# A last row that no log has. If it is not found, an open quote swallowed it.
_END = "\x00"
# Stands for bytes that are no UTF-8; a code point that no text has, by Unicode.
# pyarrow stops at such bytes in rows of a wrong width, so it gets this instead.
_NO_TEXT = "\ufdd0"
codecs.register_error(
    "ultra_tfr-no-text", lambda error: (_NO_TEXT, error.end))


def column_names(path, dialect=batches.USUAL):
  """The header of a file.

  Args:
    path: the file, possibly compressed.
    dialect: `Dialect`.

  Returns:
    A list of names.

  Raises:
    ValueError: if there is none.
  """
  with _open(path, None, lambda row: "skip", dialect) as file:
    names = file.schema.names
  if any(_NO_TEXT in name for name in names):
    raise ValueError(
        f"{path}: the names of its columns are no UTF-8 text; write it in "
        "that encoding.")
  return names


def read(path, names, dialect=batches.USUAL):
  """Reads a file.

  Args:
    path: the file, possibly compressed.
    names: the columns to read.
    dialect: `Dialect`.

  Yields:
    `RawBatch`.

  Raises:
    ValueError: if a column is missing or twice there, a quote is not closed, or
      one is escaped by a backslash.
  """
  batches.check_names(path, column_names(path, dialect), names)
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
  with _open(path, names, skip, dialect) as file:
    for batch in file:
      # Bad rows that were read ahead are here, too, but only those between the
      # rows of this batch shift their numbers.
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
  """A column with bytes that are no text again where there were such."""
  wrong = pc.match_substring(column, _NO_TEXT)
  if not pc.any(wrong).as_py():
    return column
  return pc.if_else(wrong, pa.scalar(b"\xff"), column.cast(pa.binary()))


class _WithEnd(io.RawIOBase):
  """A stream of UTF-8 with one more row, to see that it is read to its end."""

  def __init__(self, stream, escapes):
    super().__init__()
    self._stream, self._end = stream, f"\n{_END}\n".encode()
    self._escapes = escapes
    self._decoder = codecs.getincrementaldecoder("utf-8")("ultra_tfr-no-text")
    self._rest = b""
    self._next = self._read()

  def readable(self):
    return True

  def read(self, size=-1):
    del size  # pyarrow asks for one block each time.
    block, self._next = self._next, self._read()
    # In one piece with the last block: pyarrow reads no file of a header alone.
    return block + self._end if block and not self._next else block

  def _read(self):
    size, is_end = batches.BLOCK_BYTES - len(self._end), False
    # The text for wrong bytes may be longer than they are.
    while not self._rest and not is_end:
      block = self._stream.read(size)
      is_end = not block
      self._rest = self._decoder.decode(block, is_end).encode()
    block, self._rest = self._rest[:size], self._rest[size:]
    self._escapes.look(block)
    return block


class _Escapes:
  """Raises a `ValueError` if quotes are escaped by backslashes.

  In CSV quotes are doubled, and a file with escaped ones would be taken apart
  wrongly. But a backslash before a quote may be right: it may be the last
  character of a value. So after the first one, each quote is checked: it must
  be at the edge of a value, or double.

  Args:
    path: the file.
    separator: between values.
  """

  def __init__(self, path, separator):
    self._path, self._edges = path, f'{separator}\r\n"'.encode()
    self._is_found, self._is_inside = False, False
    # The last two bytes: one that was checked, and one that waits for the next.
    self._tail = b"\n"

  def look(self, block):
    """Checks the next bytes; an empty block is the end."""
    if len(self._tail) == 1:
      block = block[len(codecs.BOM_UTF8) * block.startswith(codecs.BOM_UTF8):]
    text = self._tail + (block or b"\n")
    self._tail = text[-2:]
    count = text.count(b'"', 1, -1)
    was_inside = self._is_inside
    self._is_inside ^= bool(count % 2)
    self._is_found |= b'\\"' in text
    if not (self._is_found and count):
      return
    values = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(values[1:-1] == ord('"')) + 1
    closes = (np.arange(len(quotes)) + was_inside) % 2 == 1
    is_edge = np.isin(values, np.frombuffer(self._edges, np.uint8))
    wrong = np.where(closes, ~is_edge[quotes + 1], ~is_edge[quotes - 1])
    if wrong.any():
      place = int(quotes[np.argmax(wrong)])
      shown = text[max(place - 20, 0):place + 20].decode("utf-8", "replace")
      raise ValueError(
          f"{self._path}: a quote is neither at the edge of a value nor double "
          f"(near {shown!r}), while others follow a backslash, which is no "
          'escape in CSV; write quotes twice, as in "a ""word""".')


def _open(path, names, handler, dialect):
  separator = dialect.separator or (
      "\t" if batches.split_ending(path)[0] == ".tsv" else ",")
  convert = csv.ConvertOptions(
      column_types=names and {name: pa.string() for name in names},
      include_columns=names, check_utf8=False, strings_can_be_null=True,
      quoted_strings_can_be_null=dialect.null_values is not None,
      null_values=["", *dialect.words])
  return csv.open_csv(
      _WithEnd(batches.open_stream(path), _Escapes(path, separator)),
      csv.ReadOptions(use_threads=False, block_size=batches.BLOCK_BYTES),
      csv.ParseOptions(delimiter=separator, newlines_in_values=True,
                       invalid_row_handler=handler),
      convert)
