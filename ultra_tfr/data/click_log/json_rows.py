"""JSON lines as batches of rows."""

import json

import numpy as np
import pyarrow as pa
from pyarrow import json as pa_json

from ultra_tfr.data.click_log import batches


def column_names(path):
  """The keys of the objects in the first part of a file.

  Args:
    path: the file, possibly compressed.

  Returns:
    A list of names.

  Raises:
    ValueError: if the file is one JSON array.
  """
  names = {}
  for lines, start in _blocks(path):
    names = _parse(lines, start, {})[0].column_names
    if names:
      break
  return list(names)


def read(path, names):
  """Reads a file.

  Args:
    path: the file, possibly compressed.
    names: the columns to read; a key that an object lacks is missing in it.

  Yields:
    `RawBatch`.

  Raises:
    ValueError: if the file is one JSON array.
  """
  types = {}
  for lines, start in _blocks(path):
    table, rows, malformed = _parse(lines, start, types)
    columns = {
        name: table[name].combine_chunks() if name in table.column_names
        else pa.nulls(len(rows), pa.string()) for name in names}
    yield batches.RawBatch(path, columns, rows, malformed)


def _blocks(path):
  """Yields lists of lines, and the number of the first."""
  with batches.open_stream(path) as stream:
    start, rest = 1, b""
    while True:
      block = stream.read(batches.BLOCK_BYTES)
      text = rest + block
      if start == 1 and text.lstrip().startswith(b"["):
        raise ValueError(
            f"{path}: begins with '[', so it is one JSON array; write one "
            "object a line instead.")
      cut = text.rfind(b"\n") + 1 if block else len(text)
      rest = text[cut:]
      lines = text[:cut].splitlines()
      if lines:
        yield lines, start
        start += len(lines)
      if not block:
        return


def _parse(lines, start, types):
  """A table, the numbers of its rows, and what is malformed."""
  numbers = np.arange(start, start + len(lines))
  filled = np.array([bool(line.strip()) for line in lines])
  texts = [line for line in lines if line.strip()]
  try:
    table = _typed(b"\n".join(texts), types)
    if table.num_rows == len(texts):
      return table, numbers[filled], []
  except pa.ArrowException:
    pass
  # Seldom: one look at each line, to find the bad ones.
  records = [_record(line) for line in texts]
  good = np.array([record is not None for record in records], bool)
  malformed = [batches.Malformed(int(number), "no JSON object")
               for number in numbers[filled][~good]]
  return (_to_table([record for record in records if record is not None]),
          numbers[filled][good], malformed)


def _typed(text, types):
  """A table with the types that pyarrow finds, but where that loses digits.

  Args:
    text: lines, as bytes.
    types: a dict of types by column, to which those found here are added.

  Returns:
    A pyarrow table.
  """
  if not text:
    return pa.table({})
  table = _read(text, types)
  found = {}
  for name, column in zip(table.column_names, table.columns):
    if pa.types.is_timestamp(column.type):
      # As it was written: it may be a name, and not be a time in other blocks.
      found[name] = pa.string()
    elif pa.types.is_floating(column.type) and _may_be_unsigned(column):
      found[name] = pa.uint64()
  if not found:
    return table
  table = _read(text, {**types, **found})
  types.update(found)
  return table


def _may_be_unsigned(column):
  """Whether whole numbers beyond int64, such as hashes, were rounded."""
  values = column.to_numpy()
  values = values[~np.isnan(values)]
  return bool(len(values) and 0 <= values.min() and
              2**63 <= values.max() <= 2**64 and
              (values == np.floor(values)).all())


def _read(text, types):
  return pa_json.read_json(
      pa.BufferReader(text),
      pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
      pa_json.ParseOptions(explicit_schema=pa.schema(list(types.items())),
                           newlines_in_values=False))


def _record(line):
  """The object in a line, or None."""
  try:
    record = json.loads(line)
    # Halves of surrogate pairs are no text.
    json.dumps(record, ensure_ascii=False).encode()
  except (ValueError, RecursionError):
    return None
  return record if isinstance(record, dict) else None


def _to_table(records):
  names = {name: None for record in records for name in record}
  columns = {}
  for name in names:
    values = [record.get(name) for record in records]
    try:
      columns[name] = pa.array(values)
    except (pa.ArrowException, OverflowError):
      columns[name] = pa.array(
          [batches.as_text(value) for value in values], pa.string())
  return pa.table(columns)
