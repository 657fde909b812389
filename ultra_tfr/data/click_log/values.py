"""Columns of a log, of whatever type, as arrays of numbers or texts."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from ultra_tfr.data.click_log.batches import MISSING_TEXT

_NUMBER = (r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[iI]nf(inity)?|INF)$")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_TIME = (r"^(?P<clock>\d{4}-\d\d-\d\d"
         r"(?:[T ]\d\d(?::\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?)?)\d*"
         r" *(?P<zone>[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)?$")
# A column is a text if more of its values than this share are no numbers; fewer
# are typing errors.
_TEXT_SHARE = 0.1


def plain(array, missing=()):
  """A column of any stored type as one of few types, with missing values.

  Args:
    array: a pyarrow array.
    missing: words that stand for a missing value.

  Returns:
    A tuple of an array of strings, numbers, booleans or times, missing where a
    text is empty or such a word and where a number is NaN; and `[R]` booleans,
    true where there are bytes that are no text.

  Raises:
    pa.ArrowException: if the column has another type.

  >>> plain(pa.array(["a", "", None]).dictionary_encode())[0].to_pylist()
  ['a', None, None]
  """
  if isinstance(array, pa.ChunkedArray):
    array = array.combine_chunks()
  if pa.types.is_dictionary(array.type):
    entries = array.dictionary
    # As polars has them; pyarrow cannot look them up.
    if str(entries.type) == "string_view":
      entries = entries.cast(pa.string())
    array = entries.take(array.indices)
  wrong = np.zeros(len(array), bool)
  if is_string(array.type):
    array, wrong = _to_string(array)
    array = pc.if_else(pc.is_in(array, pa.array(["", *missing])),
                       pa.scalar(None, pa.string()), array)
  elif pa.types.is_floating(array.type):
    if pa.types.is_float16(array.type):  # pyarrow computes little with it.
      array = array.cast(pa.float32())
    array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
  elif not (is_number_or_text(array.type) or _is_time(array.type)):
    raise pa.ArrowNotImplementedError(f"{array.type} is no type of a column")
  return array, wrong


def is_number_or_text(kind):
  """Whether a pyarrow type is one of numbers, booleans or texts.

  >>> is_number_or_text(pa.int8()), is_number_or_text(pa.date32())
  (True, False)
  """
  if pa.types.is_dictionary(kind):
    kind = kind.value_type
  return is_string(kind) or any(test(kind) for test in (
      pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean,
      pa.types.is_decimal))


def known(array, missing=()):
  """The values that are not missing; none if `plain` refuses the type."""
  try:
    return plain(array, missing)[0].drop_null()
  except pa.ArrowException:
    return array.slice(0, 0)


def joined(arrays):
  """Joins arrays that `known` gave; as strings if their types differ."""
  kinds = {array.type for array in arrays}
  if len(kinds) != 1:
    arrays = [pa.array([], pa.string()), *map(texts, arrays)]
  return pa.concat_arrays(arrays)


def is_text(array, decimal="."):
  """Whether a column must be used as text: many values are no numbers.

  Args:
    array: a pyarrow array that `plain` gave.
    decimal: as in `numbers`.

  >>> is_text(pa.array(["1", "2.5", None])), is_text(pa.array(["a"]))
  (False, True)
  """
  if not pa.types.is_string(array.type):
    return False
  values, wrong = numbers(array, decimal)
  known = wrong.sum() + (~np.isnan(values)).sum()
  return bool(wrong.sum() > _TEXT_SHARE * known)


def numbers(array, decimal="."):
  """A column as numbers; true is 1 and false is 0.

  Args:
    array: a pyarrow array that `plain` gave: numbers, booleans, or texts that
      say one.
    decimal: the sign before decimals in texts; with ",", texts with a point are
      no numbers.

  Returns:
    A tuple of `[R]` float64, NaN where missing, and `[R]` booleans, true where
    a value is no number.

  Raises:
    pa.ArrowException: if it is of times.

  >>> values, wrong = numbers(pa.array(["1", "NA", "true", "x"]))
  >>> values.tolist(), wrong.tolist()
  ([1.0, nan, 1.0, nan], [False, False, False, True])
  """
  if not pa.types.is_string(array.type):
    return _to_float(array), np.zeros(len(array), bool)
  if decimal == ",":
    array = pc.if_else(pc.match_substring(array, "."), "no number",
                       pc.replace_substring(array, ",", "."))
  try:
    return _to_float(array), np.zeros(len(array), bool)
  except pa.ArrowInvalid:
    found = pc.utf8_trim_whitespace(array)
  for names, value in ((_TRUE, "1"), (_FALSE, "0"), (MISSING_TEXT, None)):
    found = pc.if_else(pc.is_in(found, pa.array(names)),
                       pa.scalar(value, pa.string()), found)
  right = pc.match_substring_regex(found, _NUMBER)
  wrong = pc.fill_null(pc.invert(right), False)
  found = pc.if_else(right, found, pa.scalar(None, pa.string()))
  return _to_float(found), wrong.to_numpy(zero_copy_only=False)


def texts(array):
  """A column as texts.

  Args:
    array: a pyarrow array that `plain` gave.

  Returns:
    A pyarrow array of strings. Equal numbers become equal texts, whatever their
    type: 12 and 12.0 are "12". A text stays as it is.

  >>> texts(pa.array([12345678900.0, 0.5, None])).to_pylist()
  ['12345678900', '0.5', None]
  """
  if pa.types.is_string(array.type):
    return array
  found = array.cast(pa.string())
  if pa.types.is_decimal(array.type):
    # 1.50 is 1.5, and 2.00 is 2.
    return pc.replace_substring_regex(
        pc.replace_substring_regex(found, r"(\.\d*?)0+$", r"\1"), r"\.$", "")
  if not pa.types.is_floating(array.type):
    return found
  # Where a column of whole numbers has missing ones, pandas makes it floats.
  whole = pc.and_(pc.equal(pc.floor(array), array),
                  pc.less(pc.abs(array), 2.0 ** 63))
  digits = pc.if_else(whole, array, pa.scalar(None, array.type)).cast(
      pa.float64()).cast(pa.int64()).cast(pa.string())
  return pc.if_else(whole, digits, found)


def seconds(array):
  """A column of times as seconds.

  Args:
    array: a pyarrow array that `plain` gave: numbers, timestamps, dates, or
      texts of `choices.TIME_FORMS`, in UTC where they have no zone.

  Returns:
    A tuple of `[R]` float64 since 1970, NaN where missing, and `[R]` booleans,
    true where a value is no time.

  >>> seconds(pa.array(["1970-01-01T00:01:00", "9"]))[0].tolist()
  [60.0, 9.0]
  """
  if _is_time(array.type):
    return _since_1970(array), np.zeros(len(array), bool)
  values, wrong = numbers(array)
  if wrong.any():
    parts = pc.extract_regex(
        pc.utf8_trim_whitespace(array.filter(pa.array(wrong))), _TIME)
    clock, zone = parts.flatten()
    clock = pc.replace_substring(clock, ",", ".")
    found = _since_1970_in_utc(clock) - _seconds_ahead(zone)
    values[wrong] = found
    wrong[wrong] = np.isnan(found)
  return values, wrong


def hashes(array):
  """Whole numbers from 0 that stand for texts, the same in every run.

  Args:
    array: a pyarrow array of strings.

  Returns:
    `[R]` int64 from 0, -1 where missing. Two of a million different texts
    share a number with a chance of 1 in ten million.

  >>> values = hashes(pa.array(["a", "b", None, "a"]))
  >>> bool(values[0] == values[3] != values[1]), int(values[2])
  (True, -1)
  """
  encoded = array.dictionary_encode()
  names = np.array(encoded.dictionary.to_pylist() + [""], object)
  table = tf.strings.to_hash_bucket_fast(names, 1 << 62).numpy()
  table[-1] = -1
  codes = pc.fill_null(encoded.indices, len(names) - 1)
  return table[codes.to_numpy(zero_copy_only=False)]


def _is_time(kind):
  return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def is_string(kind):
  """Whether a pyarrow type is one of texts, or of no value at all."""
  # A column without any value has the type null; newer types are looked up.
  tests = ("is_null", "is_string", "is_large_string", "is_string_view",
           "is_binary", "is_large_binary", "is_fixed_size_binary",
           "is_binary_view")
  return any(getattr(pa.types, test, lambda _: False)(kind) for test in tests)


def _to_string(array):
  """Strings, and where bytes are none."""
  try:
    found = array.cast(pa.string())
    found.validate(full=True)
    return found, np.zeros(len(array), bool)
  except pa.ArrowInvalid:
    values = array.cast(pa.binary()).to_pylist()
  wrong = np.array([not _is_utf8(value or b"") for value in values], bool)
  values = [None if bad else value for value, bad in zip(values, wrong)]
  return pa.array(values, pa.binary()).cast(pa.string()), wrong


def _is_utf8(value):
  try:
    value.decode()
    return True
  except UnicodeDecodeError:
    return False


def _since_1970_in_utc(clock):
  """Seconds of texts such as 2026-01-31 12:00, NaN where there is no such."""
  try:
    return _since_1970(clock.cast(pa.timestamp("ns")))
  except pa.ArrowInvalid:
    # Rare, and slow: each by itself, to find a month of 13 and the like.
    return np.array([_one_since_1970(text) for text in clock], np.float64)


def _one_since_1970(text):
  try:
    nanos = text.cast(pa.timestamp("ns")).value
  except pa.ArrowInvalid:
    return np.nan
  return np.nan if nanos is None else nanos / 1e9


def _seconds_ahead(zone):
  """How far zones such as +02:00 are ahead of UTC."""
  zones = pc.replace_substring(zone, ":", "").to_pylist()
  ahead = {text: int(text[:3]) * 3600 + int(text[0] + (text[3:] or "0")) * 60
           if text and text[0] in "+-" else 0 for text in set(zones)}
  return np.array([ahead[text] for text in zones], np.float64)


def _since_1970(array):
  micros = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
  return _to_float(micros) / 1e6


def _to_float(array):
  if pa.types.is_boolean(array.type):
    array = array.cast(pa.int8())
  # Whole numbers beyond 2^53 are rounded, as in any float64.
  array = array.cast(pa.float64(), safe=False)
  return array.to_numpy(zero_copy_only=False).astype(np.float64)
