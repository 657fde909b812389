"""JSON lines as batches of rows."""

import codecs
import json

import numpy as np
import pyarrow as pa
from pyarrow import json as pa_json

from ultra_tfr.data.click_log import batches

# pyarrow gets no line with more brackets than this: nested too deeply, they end
# the whole process in its parser.
_MAX_BRACKETS = 1000
# The types of a block are inferred from so much of it.
_SAMPLE_BYTES = 1 << 14


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
  for lines, _ in _blocks(path):
    for line in lines:
      names.update(dict.fromkeys(_record(line) or ()))
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
  kept = {}
  for lines, start in _blocks(path):
    numbers = np.arange(start, start + len(lines))
    filled = np.array([bool(line.strip()) for line in lines])
    texts = [line.strip() for line in lines if line.strip()]
    columns, good = _parse(texts, names, kept)
    malformed = [batches.Malformed(int(number), "no JSON object")
                 for number in numbers[filled][~good]]
    yield batches.RawBatch(path, columns, numbers[filled][good], malformed)


def _blocks(path):
  """Yields lists of lines, and the number of the first."""
  with batches.open_stream(path) as stream:
    start, rest = 1, b""
    while True:
      block = stream.read(batches.BLOCK_BYTES)
      text = rest + block
      if start == 1:
        text = text[len(codecs.BOM_UTF8) * text.startswith(codecs.BOM_UTF8):]
        if text.lstrip().startswith(b"["):
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


def _parse(texts, names, kept):
  """A dict of arrays of the lines that are objects, and which ones are."""
  # pyarrow gets objects only: `null` as the first line ends the process.
  if texts and all(
      text.startswith(b"{") and text.endswith(b"}") and
      text.count(b"{") + text.count(b"[") <= _MAX_BRACKETS for text in texts):
    try:
      table = _typed(texts, names, kept)
      if table.num_rows == len(texts):
        return ({name: table[name].combine_chunks() for name in names},
                np.ones(len(texts), bool))
    except pa.ArrowException:
      pass
  # Rare, and slow: each line by itself, to find the bad ones.
  records = [_record(text, names) for text in texts]
  good = np.array([record is not None for record in records], bool)
  records = [record for record in records if record is not None]
  return {name: _to_array([record[name] for record in records])
          for name in names}, good


def _typed(texts, names, kept):
  """A table with the types that pyarrow infers, unless they lose something.

  Times become texts again, and whole numbers beyond int64 keep their digits.

  Args:
    texts: lines, as bytes.
    names: of the columns.
    kept: a dict of types by name, for columns where the inferred type was wrong
      in earlier lines; those found here are added.

  Returns:
    A pyarrow table.
  """
  sizes = np.cumsum([len(text) for text in texts])
  few = 1 + np.searchsorted(sizes, _SAMPLE_BYTES)
  found = _read(texts[:few]).schema
  types = {}
  for name in names:
    kind = found.field(name).type if name in found.names else pa.null()
    if pa.types.is_timestamp(kind):
      # As it was written: it may be a name, and be no time in other rows.
      kept[name] = pa.string()
    types[name] = pa.string() if pa.types.is_null(kind) else kind
  types.update(kept)
  # Only with the columns that are needed: others may be a new one in each row.
  table = _read(texts, types)
  found = {name: pa.uint64() for name in names
           if pa.types.is_floating(types[name]) and
           _may_be_unsigned(table[name])}
  if not found:
    return table
  table = _read(texts, {**types, **found})
  kept.update(found)
  return table


def _may_be_unsigned(column):
  """Whether whole numbers beyond int64, such as hashes, were rounded."""
  values = column.to_numpy()
  values = values[~np.isnan(values)]
  return bool(len(values) and 0 <= values.min() and
              2**63 <= values.max() <= 2**64 and
              (values == np.floor(values)).all())


def _read(texts, types=None):
  text = b"\n".join(texts)
  return pa_json.read_json(
      pa.BufferReader(text),
      pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
      pa_json.ParseOptions(newlines_in_values=False) if types is None else
      pa_json.ParseOptions(
          explicit_schema=pa.schema(list(types.items())),
          newlines_in_values=False, unexpected_field_behavior="ignore"))


def _record(line, names=None):
  """The object in a line, with these keys or all; None if it is no object."""
  try:
    record = json.loads(line)
    if not isinstance(record, dict):
      return None
    if names is not None:
      record = {name: record.get(name) for name in names}
    # Halves of surrogate pairs are no text.
    json.dumps(record, ensure_ascii=False).encode()
  except (ValueError, RecursionError):
    return None
  return record


def _to_array(values):
  kinds = {type(value) for value in values if value is not None}
  try:
    if bool not in kinds or len(kinds) == 1:  # With numbers it would be one.
      return pa.array(values)
  except (pa.ArrowException, OverflowError):
    pass
  return pa.array([batches.as_text(value) for value in values], pa.string())
