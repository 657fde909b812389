"""Tests of ultra_tfr.data.click_log.values."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import values as values_lib

NAN = float("nan")


def _strings(values):
  """A string array of bytes, checked or not."""
  binary = pa.array(values, pa.binary())
  return pa.Array.from_buffers(pa.string(), len(values), binary.buffers())


# Types.


@pytest.mark.parametrize("kind", [
    "string", "large_string", "binary", "large_binary", "string_view",
    "binary_view"])
def test_all_kinds_of_texts(kind):
  values = ["ä", "", None, "b"]
  if "binary" in kind:
    values = [value and value.encode() for value in values]
  array = pa.array(values, getattr(pa, kind)())
  found, wrong = values_lib.plain(array)
  assert found.type == pa.string() and not wrong.any()
  assert found.to_pylist() == ["ä", None, None, "b"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.int64()])
def test_dictionaries_and_chunks(kind):
  values = ["a", None, "b", "a"] if kind != pa.int64() else [1, None, 2, 1]
  array = pa.array(values, kind)
  chunks = pa.chunked_array([array.slice(0, 1), array.slice(1)])
  for other in (array.dictionary_encode(), chunks, chunks.dictionary_encode(),
                array.slice(0)):
    assert values_lib.plain(other)[0].to_pylist() == values


def test_dictionaries_of_views():
  """A Categorical column of polars could not be read."""
  array = pa.DictionaryArray.from_arrays(
      pa.array([1, None, 0], pa.uint8()), pa.array(["a", "b"],
                                                   pa.string_view()))
  assert values_lib.plain(array)[0].to_pylist() == ["b", None, "a"]


def test_nothing_at_all():
  array, wrong = values_lib.plain(pa.nulls(2))
  assert array.type == pa.string() and array.null_count == 2
  assert not wrong.any()
  for array in (pa.array([], pa.string()), pa.nulls(3)):
    array = values_lib.plain(array)[0]
    assert np.isnan(values_lib.numbers(array)[0]).all()
    assert np.isnan(values_lib.seconds(array)[0]).all()
    assert (values_lib.hashes(array) == -1).all()
    assert not values_lib.is_text(array)


@pytest.mark.parametrize("array", [
    pa.array([b"a", b"\xff", None, b""]),
    pa.array([b"a", b"\xc3\x28", None, b""], pa.large_binary()),
    _strings([b"a", b"\xff", None, b""])])
def test_bytes_that_are_no_text(array):
  found, wrong = values_lib.plain(array)
  assert found.to_pylist() == ["a", None, None, None]
  assert wrong.tolist() == [False, True, False, False]


@pytest.mark.parametrize("array", [
    pa.array([[1]]), pa.array([{"a": 1}]), pa.array([1], pa.time64("us")),
    pa.array([1], pa.duration("s"))])
def test_other_types(array):
  assert not values_lib.is_number_or_text(array.type)
  with pytest.raises(pa.ArrowException, match="is no type of a column"):
    values_lib.plain(array)


# Numbers.


@pytest.mark.parametrize("array, values", [
    (pa.array([1, None]), [1, NAN]),
    (pa.array([2**53 + 1]), [2.**53]),
    (pa.array([2**64 - 1], pa.uint64()), [2.**64]),
    (pa.array([True, False, None]), [1, 0, NAN]),
    (pa.array([1.5, NAN, float("inf")]), [1.5, NAN, np.inf]),
    (pa.array([np.float16(.5)]), [.5]),
    (pa.array([decimal.Decimal("1.25"), None]), [1.25, NAN]),
])
def test_numbers_of_numbers(array, values):
  found, wrong = values_lib.numbers(values_lib.plain(array)[0])
  np.testing.assert_array_equal(found, values)
  assert found.dtype == np.float64 and not wrong.any()
  assert not values_lib.is_text(array)


RIGHT = {"1": 1, "-2.5": -2.5, "+3": 3, "1.": 1, ".5": .5, "1e3": 1000,
         "1E-2": .01, "007": 7, " 4\t": 4, "true": 1, "False": 0, "TRUE": 1,
         "inf": np.inf, "-Infinity": -np.inf, "1e400": np.inf, "NA": NAN,
         "null": NAN, "nan": NAN, "None": NAN}
WRONG = ["x", "1,5", "1_000", "0x1F", "--1", "1 2", "e5", ".", "yes", "٣", "$5"]


@pytest.mark.parametrize("text", RIGHT)
def test_texts_that_are_numbers(text):
  # Alone, and where others keep the column from being converted at once.
  for texts in ([text], [text, "x"]):
    values, wrong = values_lib.numbers(pa.array(texts))
    np.testing.assert_array_equal(values[0], RIGHT[text])
    assert not wrong[0]


@pytest.mark.parametrize("text", WRONG)
def test_texts_that_are_no_numbers(text):
  values, wrong = values_lib.numbers(pa.array([text, "1", None]))
  np.testing.assert_array_equal(values, [NAN, 1, NAN])
  assert wrong.tolist() == [True, False, False]


def test_times_are_no_numbers():
  with pytest.raises(pa.ArrowException):
    values_lib.numbers(pa.array([datetime.date(2026, 1, 1)]))


@pytest.mark.parametrize("texts, expected", [
    (["1"] * 9 + ["x"], False), (["1"] * 8 + ["x"], True),
    (["1", "x"] + [None] * 50, True), (["NA", "x"], True),
    (["1"] * 9 + ["x", "NA"], False), (["true", "0"], False)])
def test_a_text_has_many_values_that_are_no_numbers(texts, expected):
  assert values_lib.is_text(pa.array(texts)) is expected


# Texts.


def test_texts():
  for array, expected in (
      (pa.array([2**53 + 1, None]), ["9007199254740993", None]),
      (pa.array([1.0, .1, NAN]), ["1", "0.1", None]),
      (pa.array([True]), ["true"]), (pa.array(["a"]), ["a"]),
      (pa.array([datetime.date(2026, 1, 2)]), ["2026-01-02"])):
    array = values_lib.plain(array)[0]
    assert values_lib.texts(array).to_pylist() == expected


def test_hashes():
  texts = [f"r{i}" for i in range(100000)]
  values = values_lib.hashes(pa.array(texts))
  assert len(set(values.tolist())) == len(texts)
  assert values.dtype == np.int64 and values.min() >= 0
  # The same in every run and batch.
  assert values[7] == values_lib.hashes(pa.array(["r7"]))[0]
  assert values_lib.hashes(pa.array(["r1"])).tolist() == [1354123318968352360]


# Times.


def _since_1970(*args, zone=0):
  zone = datetime.timezone(datetime.timedelta(minutes=zone))
  return datetime.datetime(*args, tzinfo=zone).timestamp()


TIMES = {
    "2026-01-31": _since_1970(2026, 1, 31),
    "2026-01-31T12": _since_1970(2026, 1, 31, 12),
    "2026-01-31 12:30": _since_1970(2026, 1, 31, 12, 30),
    "2026-01-31T12:30:15": _since_1970(2026, 1, 31, 12, 30, 15),
    "2026-01-31 12:30:15.25": _since_1970(2026, 1, 31, 12, 30, 15, 250000),
    "2026-01-31T12:30:15.250000001Z": _since_1970(2026, 1, 31, 12, 30, 15,
                                                  250000),
    " 2026-01-31T12:30+02:00 ": _since_1970(2026, 1, 31, 12, 30, zone=120),
    "2026-01-31T12:30-0130": _since_1970(2026, 1, 31, 12, 30, zone=-90),
    "2026-01-31T12:30+05": _since_1970(2026, 1, 31, 12, 30, zone=300),
    "1969-12-31T23:59:59": -1, "1.5": 1.5, "1767225600": 1767225600, "": NAN}
NO_TIMES = ["2026-13-01", "2026-02-30", "now", "today", "NaT", "2026-01-31T25",
            "31.01.2026", "2026-01-31T12:00:00 CET", "2026-01-31T12:60"]


def test_texts_that_are_times():
  array = values_lib.plain(pa.array([*TIMES, None]))[0]
  values, wrong = values_lib.seconds(array)
  np.testing.assert_allclose(values, [*TIMES.values(), NAN], rtol=0, atol=1e-6)
  assert not wrong.any()


def test_texts_that_are_no_times():
  texts = [text for pair in zip(NO_TIMES, TIMES) for text in pair]
  values, wrong = values_lib.seconds(values_lib.plain(pa.array(texts))[0])
  assert wrong.tolist() == [True, False] * len(NO_TIMES)
  expected = [value for time in list(TIMES.values())[:len(NO_TIMES)]
              for value in (NAN, time)]
  np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind, scale", [
    (pa.timestamp("s"), 1), (pa.timestamp("ms", "Europe/Berlin"), 1000),
    (pa.timestamp("ns"), 10**9), (pa.timestamp("us", "UTC"), 10**6),
    (pa.date64(), 1000), (pa.int64(), 1)])
def test_timestamps(kind, scale):
  day = 86400 * 20000
  array = pa.array([day * scale, None], pa.int64()).cast(kind)
  np.testing.assert_array_equal(values_lib.seconds(array)[0], [day, NAN])
  if kind == pa.timestamp("ns"):  # Beyond microseconds.
    array = pa.array([1_234_567_891], kind)
    assert values_lib.seconds(array)[0].tolist() == [1.234567]


def test_dates():
  array = pa.array([datetime.date(1970, 1, 2), None])
  np.testing.assert_array_equal(values_lib.seconds(array)[0], [86400, NAN])


@pytest.mark.parametrize("columns, text", [
    ([pa.array([12345678900]), pa.array([12345678900.0]),
      pa.array([decimal.Decimal("12345678900.00")]),
      pa.array([12345678900], pa.uint64()),
      pa.array([12345678900.0, None]).dictionary_encode()], "12345678900"),
    ([pa.array([-7], kind) for kind in (
        pa.int8(), pa.int64(), pa.float16(), pa.float32(), pa.float64())]
     + [pa.array([decimal.Decimal("-7")])], "-7"),
    ([pa.array([0.5]), pa.array([0.5], pa.float16()),
      pa.array([decimal.Decimal("0.500")])], "0.5"),
    ([pa.array([0]), pa.array([-0.0])], "0"),
    ([pa.array([2**60]), pa.array([2.0**60])], str(2**60))])
def test_a_number_is_the_same_text_whatever_its_type(columns, text):
  """An id was another one in files where pandas had made floats of it, since
  one row had none."""
  for column in columns:
    assert values_lib.texts(
        values_lib.plain(column)[0]).to_pylist()[0] == text, column.type
    value = column[0].as_py()
    if not isinstance(value, decimal.Decimal):
      assert batches.as_text(value) == text


@pytest.mark.parametrize("text, seconds", [
    ("2024-01-31 12:00:00 UTC", 0), ("2024-01-31 12:00:00UTC", 0),
    ("2024-01-31 12:00:00 GMT", 0), ("2024-01-31T12:00z", 0),
    ("2024-01-31 12:00:00 -0700", 7 * 3600),
    ("2024-01-31 12:00:00.25 +01:30", .25 - 5400),
    ("2024-01-31 12:00:00,125", .125),
    ("2024-01-31 12:00:00.1234567891 UTC", .123456),
    ("2024-01-31 12:00:00.5-07", .5 + 7 * 3600)])
def test_times_as_databases_and_logs_write_them(text, seconds):
  """A space before the zone, UTC by name and commas were no time."""
  values, wrong = values_lib.seconds(pa.array([text, "x"]))
  assert wrong.tolist() == [False, True]
  assert values[0] - 1706702400 == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("text", [
    "31/01/2024", "2024-01-31 12:00:00 CET", "2024-13-01", "12:00",
    "2024-01-31 12:00:00 +1", "Wed Jan 31 2024"])
def test_what_is_no_time(text):
  assert values_lib.seconds(pa.array([text]))[1].tolist() == [True]
