"""Which columns are numbers or texts, and which values are missing."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet
import pytest

from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log

# The weight is the number of the row.
COLUMNS = LogColumns("q", "p", "c", ("f", "s"), weight="n")
ALL = {"valid": 0, "test": 0}


def _frame(rows=60, **columns):
  return pd.DataFrame({
      "q": np.arange(rows) // 3, "p": np.arange(rows) % 3 + 1,
      "c": np.arange(rows) % 2, "n": np.arange(rows) + 1,
      "f": np.arange(rows) / 4,
      "s": ["ab"[i % 2] for i in range(rows)], **columns})


def _write(frame, folder, form, name="log"):
  if form == "frame":
    return frame
  path = folder / f"{name}.{form}"
  if form == "parquet":
    frame.to_parquet(path)
  elif form == "csv":
    frame.to_csv(path, index=False)
  else:
    frame.to_json(path, orient="records", lines=True)
  return path


def _kinds(log, columns=COLUMNS, **options):
  with read_click_log(log, columns, **ALL, **options) as read:
    return read.summary["numeric_features"], read.summary["text_features"]


def _values(log, columns=COLUMNS, **options):
  """Texts of s and numbers of f, in the order of the rows."""
  with read_click_log(log, columns, **ALL, **options) as read:
    batch, = read.parts["train"].batches(10**6)
    order = np.argsort(batch.weights.ravel())
    return (batch.texts[..., 0].ravel()[order].tolist(),
            batch.numeric[..., 0].ravel()[order].tolist())


# The stored type decides.


@pytest.mark.parametrize("form", ["frame", "parquet"])
@pytest.mark.parametrize("kind", ["str", "category", "string"])
def test_texts_by_type_are_texts_whatever_they_look_like(form, kind, tmp_path):
  """Codes of categories became numbers, and text ones cost their rows."""
  frame = _frame(s=pd.Series([str(i % 5) for i in range(60)]).astype(kind))
  assert _kinds(_write(frame, tmp_path, form)) == (["f"], ["s"])


def test_categories_of_numbers_are_texts():
  codes = pd.Series(np.arange(60) % 5).astype("category")
  assert _kinds(_frame(s=codes)) == (["f"], ["s"])


def test_dictionaries_of_parquet_are_texts(tmp_path):
  table = pa.table({"q": [1, 1], "p": [1, 2], "c": [0, 1], "n": [1, 1],
                    "f": [.5, 1.],
                    "s": pa.array(["1", "2"]).dictionary_encode()})
  parquet.write_table(table, tmp_path / "log.parquet")
  assert _kinds(tmp_path / "log.parquet") == (["f"], ["s"])


def test_a_type_of_a_later_file_counts(tmp_path):
  _write(_frame(s=None), tmp_path, "parquet", "a")
  later = _frame(s=pd.Series(["1"] * 60))
  _write(later.assign(q=later["q"] + 99), tmp_path, "parquet", "b")
  assert _kinds(tmp_path) == (["f"], ["s"])


@pytest.mark.parametrize("form", ["frame", "parquet", "csv", "jsonl"])
def test_a_text_that_is_missing_at_first(form, tmp_path, monkeypatch):
  """It became a number, and 15,000 of 90,000 rows were rejected."""
  monkeypatch.setattr(sources, "BATCH_ROWS", 100)
  monkeypatch.setattr("ultra_tfr.data.click_log.batches.BLOCK_BYTES", 3000)
  frame = _frame(900, s=[None] * 600 + ["a", "b", "c"] * 100)
  log = _write(frame, tmp_path, form)
  assert _kinds(log, max_rejected=0) == (["f"], ["s"])
  frame = _frame(900, s=[None] * 600 + [1.5, 2.5, 3.5] * 100)
  assert _kinds(_write(frame, tmp_path, form), max_rejected=0) == (
      ["f", "s"], [])


def test_text_of_parquet_that_begins_in_the_last_rows(tmp_path):
  """800 rows were dropped without an error, below a share of 1 %."""
  frame = _frame(900, s=pd.Series([str(i) for i in range(895)] + ["x"] * 5))
  assert _kinds(_write(frame, tmp_path, "parquet")) == (["f"], ["s"])


# What people say.


@pytest.mark.parametrize("form", ["frame", "parquet", "csv", "jsonl"])
def test_declared_kinds(form, tmp_path):
  frame = _frame(s=[str(i % 7) for i in range(60)])
  log = _write(frame, tmp_path, form)
  text = LogColumns("q", "p", "c", ("f", "s"), text="?")
  assert _kinds(log, text) == ([], ["f", "s"])
  both = LogColumns("q", "p", "c", ("f", "s"), text="s", numbers="f*")
  assert _kinds(log, both) == (["f"], ["s"])
  numbers = LogColumns("q", "p", "c", ("f", "s"), numbers=("s",))
  assert _kinds(log, numbers) == (["f", "s"], [])


@pytest.mark.parametrize("options, message", [
    ({"text": "g*"}, r"`text` has 'g\*', which matches no feature; they"),
    ({"numbers": "c"}, "`numbers` has 'c', which matches no feature"),
    ({"text": "s", "numbers": "*"}, "feature 's' cannot be both `text` and ")])
def test_bad_declarations(options, message):
  with pytest.raises(ValueError, match=message):
    read_click_log(_frame(), LogColumns("q", "p", "c", ("f", "s"), **options))


# Strays.


@pytest.mark.parametrize("stray, share", [
    (r"\N", 6), ("unknown", 20), ("7,5", 15), ("12%", 28)])
def test_a_column_of_numbers_with_strays_is_named(stray, share, tmp_path):
  """It became a text, in silence, and the ranker with it."""
  values = [stray if i < share else str(i) for i in range(60)]
  log = _write(_frame(f=values), tmp_path, "csv")
  with pytest.raises(ValueError, match=(
      "'f'.* are no numbers, such as .*`null_values`, a decimal comma by "
      "`decimal`.*`numbers` or `text`" if share > 6 else
      "'f is no number' .6 rows, such as .*`null_values`, a decimal comma by")
                     ) as error:
    read_click_log(log, COLUMNS, **ALL)
  assert repr(stray) in str(error.value)
  if share > 6:
    assert f"{share / 60:.1%}" in str(error.value)
  text = LogColumns("q", "p", "c", ("f", "s"), text="f")
  assert _kinds(log, text) == ([], ["f", "s"])


@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "jsonl"])
def test_a_text_of_which_some_values_are_numbers_is_told(form, tmp_path):
  values = ["XL", "38", "M"] * 20
  log = _write(_frame(s=values), tmp_path, form)
  with read_click_log(log, COLUMNS, **ALL) as read:
    assert read.summary["mixed"] == {"s": [pytest.approx(1 / 3), "38"]}
    assert ("a text or a number: s, of whose values 33.3% are numbers, such as "
            "'38'; it is a text, unless `numbers` names it"
            ) in read.summary_text()
  declared = LogColumns("q", "p", "c", ("f", "s"), text="s")
  with read_click_log(log, declared, **ALL) as read:
    assert read.summary["mixed"] == {}


# What is missing.


@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "jsonl"])
def test_words_for_a_missing_value_are_the_same_everywhere(form, tmp_path):
  """NA was missing in CSV, and a text in a frame."""
  words = ["NA", "", "null", "a", "b", "NaN"] * 10
  log = _write(_frame(s=words), tmp_path, form)
  assert _values(log)[0] == ["", "", "", "a", "b", ""] * 10
  assert _values(log, null_values=["a"])[0] == [
      "NA", "", "null", "", "b", "NaN"] * 10
  with read_click_log(log, COLUMNS, **ALL) as read:
    assert read.summary["missing"] == {"f": 0, "s": pytest.approx(2 / 3)}
    text = read.summary_text()
  assert "numbers: f\ntexts: s\nmissing: 66.7% of s" in text


@pytest.mark.parametrize("form", ["csv", "frame"])
def test_a_request_without_a_name_is_none_in_a_frame_too(form, tmp_path):
  """All requests NA of a frame were one."""
  log = _write(_frame(q=["NA"] * 3 + ["a", "b", "c"] * 19), tmp_path, form)
  with read_click_log(log, COLUMNS, max_rejected=1, **ALL) as read:
    assert read.summary["rejected"]["no request id in q"] == 3


@pytest.mark.parametrize("quotes", [0, 1])
def test_words_of_ones_own_for_a_missing_value(quotes, tmp_path):
  values = [r"\N" if i % 2 else ("unknown" if i % 3 else str(i))
            for i in range(60)]
  path = tmp_path / "log.csv"
  _frame(f=values, s=values).to_csv(path, index=False, quoting=quotes)
  columns = dataclasses.replace(COLUMNS, text="s")
  words = [r"\N", "unknown"]
  texts, numbers = _values(path, columns, null_values=words)
  assert texts == ["" if value in words else value for value in values]
  np.testing.assert_array_equal(
      numbers, [np.nan if value in words else float(value) for value in values])


def test_decimal_commas(tmp_path):
  values = [f"{i},{i % 10}" for i in range(60)]
  path = tmp_path / "log.csv"
  _frame(f=values).to_csv(path, index=False, sep=";")
  options = {"decimal": ",", "separator": ";"}
  _, numbers = _values(path, **options)
  np.testing.assert_allclose(numbers, [i + i % 10 / 10 for i in range(60)])
  values[7] = "1.500"
  _frame(f=values).to_csv(path, index=False, sep=";")
  with pytest.raises(ValueError, match="'f is no number' .* such as '1.500'"):
    read_click_log(path, COLUMNS, max_rejected=0, **options)


@pytest.mark.parametrize("options, message", [
    ({"separator": ";;"}, "`separator` must be one character, such as ';', bu"),
    ({"separator": '"'}, "`separator` must be one character"),
    ({"decimal": ";"}, "`decimal` must be one of"),
    ({"null_values": "NA"}, "`null_values` must be a list of words, but is ")])
def test_bad_dialects(options, message):
  with pytest.raises(ValueError, match=message):
    read_click_log(_frame(), COLUMNS, **options)


def test_another_log_is_read_as_the_first(tmp_path):
  first = _frame(f=[f"{i},5" if i % 4 else "?" for i in range(60)])
  with read_click_log(_write(first, tmp_path, "csv"), COLUMNS, decimal=",",
                      null_values=["?"], **ALL) as log:
    schema = json.loads(json.dumps(log.schema()))
  _, numbers = _values(_write(first, tmp_path, "csv", "b"), None,
                       schema=schema)
  assert numbers[1] == 1.5 and np.isnan(numbers[0])
  second = _frame(f=[f"{i}.5" if i % 4 else "-" for i in range(60)])
  _, numbers = _values(_write(second, tmp_path, "csv", "c"), None,
                       schema=schema, decimal=".", null_values=["-"])
  assert numbers[1] == 1.5 and np.isnan(numbers[0])


# Folders.


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_partitions_are_columns(form, tmp_path):
  """"there is no such file, nor a folder of click logs", said of Spark's."""
  frame = _frame(90)
  parts = [("2024-01-30", "de"), ("2024-01-31", "a%2Fb"),
           ("2024-02-01", "__HIVE_DEFAULT_PARTITION__")]
  for place, (day, country) in enumerate(parts):
    folder = tmp_path / "logs" / f"day={day}" / f"country={country}"
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").write_text("")
    _write(frame[30 * place:30 * place + 30], folder, form, "part-0")
  (tmp_path / "logs" / "_temporary").mkdir()
  (tmp_path / "logs" / "notes").mkdir()
  columns = LogColumns("q", "p", "c", ("f", "country"), context="day")
  root = tmp_path / "logs"
  for log in (root, root / "**", root / "day=*", root / "**" / f"*.{form}"):
    with read_click_log(log, columns, **ALL) as read:
      assert read.contexts == [day for day, _ in parts]
      assert read.statistics["text"][0]["vocabulary"] == ["", "a/b", "de"]
      assert read.summary["rows"] == {"train": 90}
  # What is named is no partition.
  assert "day" not in sources.column_names(
      tmp_path / "logs" / "day=2024-01-30")
  assert sources.column_names(tmp_path / "logs")[-2:] == ["day", "country"]


def test_a_partition_of_numbers(tmp_path):
  for hour in range(3):
    (tmp_path / f"hour={hour}").mkdir()
    _write(_frame()[20 * hour:20 * hour + 20], tmp_path / f"hour={hour}",
           "parquet")
  columns = LogColumns("q", "p", "c", ("f", "hour"))
  assert _kinds(tmp_path, columns) == (["f", "hour"], [])
  (tmp_path / "hour=late").mkdir()
  _write(_frame().assign(q=99), tmp_path / "hour=late", "parquet")
  with pytest.raises(ValueError, match="25.0% of the first values of 'hour' are"
                     " no numbers, such as 'late'"):
    read_click_log(tmp_path, columns)


@pytest.mark.parametrize("separator", [";", "|", "\t"])
def test_a_separator_and_a_hint_at_it(separator, tmp_path):
  path = tmp_path / "log.csv"
  _frame().to_csv(path, index=False, sep=separator)
  with pytest.raises(ValueError, match=(
      f"its header has one column, .*give `separator` {separator!r}".replace(
          "|", r"\|").replace("\\t", r"\\t"))):
    read_click_log(path, COLUMNS)
  assert _values(path, separator=separator) == _values(_frame())
