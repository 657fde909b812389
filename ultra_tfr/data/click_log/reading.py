"""Reading a click log: from files of impressions to requests in batches."""

import dataclasses
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np

from ultra_tfr import checks
from ultra_tfr import output
from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import grouping
from ultra_tfr.data.click_log import requests
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log import summary as summary_lib
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.grouping import PARTS
from ultra_tfr.data.click_log.rows import RowReader

# What the context is called where there are none.
ONE_CONTEXT = "all"
# A share below this is rounding error of 0.
_NO_SHARE = 1e-9


class ClickLog:
  """A click log, grouped by request and split into parts.

  The rows are in a temporary folder, which goes when the object and its parts
  do, or at `close`, or at the end of a `with` block; those of a prepared log
  are where it was prepared, and stay.

  Attributes:
    columns: `LogColumns`.
    positions: the positions as they are in the log; the first is position 1
      of the bias, and so on.
    pool_deeper: whether deeper positions share the last.
    contexts: names by context id; one, "all", without contexts.
    split: the shares of the validation and the test part.
    parts: `requests.LoggedLists` by name: "train", "valid" and "test".
    statistics: of the features, see `summary.FeatureStatistics.to_config`.
    summary: see `summary.LogSummary.to_config`; `summary_text()` is for people.
    feedback_kind: `"binary"` if all feedback is 0 or 1, else `"graded"`.
    dialect: how values are written, `batches.Dialect`.
    follows_schema: whether it was read by the `schema` of another log.
    harvest: what is harvested from all requests of a prepared log, see
      `evaluation.harvesting.tell`; None if that is not known yet.
  """

  def __init__(self, folder, columns, positions, pool_deeper, contexts, split,
               parts, statistics, summary, dialect, follows_schema=False,
               harvest=None):
    self.columns, self.positions = columns, positions
    self.pool_deeper = pool_deeper
    self.contexts, self.split, self.parts = contexts, split, parts
    self.statistics, self.summary = statistics, summary
    self.dialect = dialect
    self.feedback_kind = "binary" if summary["binary_feedback"] else "graded"
    self.follows_schema = follows_schema
    self.harvest = harvest
    self._folder = folder

  def summary_text(self):
    """The summary for people."""
    return summary_lib.to_text(self.summary)

  def schema(self):
    """Describes how this log was read, to read another log for its model.

    Returns:
      A dict ready for JSON; `read_click_log(.., schema=..)` takes it.
    """
    return {"columns": self.columns.get_config(), "positions": self.positions,
            "pool_deeper": self.pool_deeper, "contexts": self.contexts,
            "split": list(self.split), "decimal": self.dialect.decimal,
            "null_values": self.dialect.null_values and list(
                self.dialect.null_values),
            "statistics": self.statistics, "feedback_kind": self.feedback_kind}

  def close(self):
    """Removes the temporary files."""
    if self._folder is not None:
      self._folder.remove()

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self.close()


def read_click_log(log, columns=None, *, schema=None, positions=None,
                   num_positions=None, max_items=None, valid=0.1, test=0.1,
                   max_rejected=0.01, rejected_file=None, max_vocabulary=10000,
                   separator=None, null_values=None, decimal=None,
                   progress=None):
  """Reads a click log.

  Memory holds a batch of rows, a bucket of requests (about 250,000 rows, or the
  largest request) and a few numbers a feature, not the log. Rows of a request
  may be anywhere. A row with something wrong in it is left out, and written
  down.

  Args:
    log: a pandas `DataFrame`, or a table of pyarrow, polars or any other
      library that has the Arrow interface (`__arrow_c_stream__`); or a file:
      Parquet, CSV, TSV, JSON lines, each also compressed (.gz), or TFRecords of
      ELWC; or a folder, a pattern, or a list of files. JSON lines and ELWC have
      the columns of their first rows.
      Folders of partitions such as `day=2024-01-31` are columns, too.
    columns: `LogColumns`. Not with `schema`.
    schema: `ClickLog.schema()` of the log that a model was trained on: columns,
      positions and contexts are then read as there, and rows with others are
      rejected.
    positions: where positions are names: all of them, the first one first. By
      default they are numbers, in their order; there may be gaps.
    num_positions: K: deeper positions share the last of the first K; by default
      each position is one of its own.
    max_items: rows of a request to keep, those at its first positions; None for
      all. Training compares all pairs of a request, so a single long one may
      need more memory than there is.
    valid: share of the requests for validation; with a timestamp, those before
      the test part.
    test: share of the requests for testing; with a timestamp, the last ones.
    max_rejected: the share of rows that may be rejected.
    rejected_file: a CSV file to write rejected rows to, or None.
    max_vocabulary: values of a text feature that are told apart; a feature with
      more is hashed into so many bins.
    separator: between the values of a CSV row, one character; None for a comma,
      or a tab in TSV.
    null_values: words that stand for a missing value, as an empty cell does;
      None for those of `schema`, or NA, N/A, NaN, null and None, which are
      texts where a CSV file has them in quotes.
    decimal: "." or ",", the sign before decimals in texts; None for that of
      `schema`, or a point.
    progress: a function of the number of rows read so far, or None.

  Returns:
    A `ClickLog`.

  Raises:
    ValueError: if the log is not as described; too many rows are rejected; a
      part has no request.
    FileNotFoundError: if there is no log.

  >>> import pandas as pd
  >>> frame = pd.DataFrame({"q": [1, 1, 2, 2], "rank": [1, 3, 1, 3],
  ...                       "click": [1, 0, 0, 1], "f": [.5, .1, .2, .3]})
  >>> log = read_click_log(frame, LogColumns("q", "rank", "click", ("f",)),
  ...                      valid=0, test=0)
  >>> log.positions, log.summary["requests"]
  ([1, 3], {'train': 2})
  """
  check_arguments(columns, schema, positions, num_positions, max_items, valid,
                  test, max_rejected)
  log = sources.in_memory(log)
  opened = open_log(log, columns, schema, positions, separator, null_values,
                    decimal)
  columns, reader = opened.columns, opened.reader
  output.check_is_no_input("rejected_file", rejected_file, sources.paths(log))
  rejections = summary_lib.Rejections(rejected_file, reader.examples)
  folder = requests.TemporaryFolder()
  try:
    opened.learn(log)
    dealt = grouping.deal_out(
        log, opened.names, reader, rejections, folder, opened.dialect, progress)
    if dealt.num_rows and not dealt.paths:
      rejections.check(dealt.num_rows, max_rejected, rejected_file)
    positions, position_map, split = settle(
        opened, log, dealt.num_rows, dealt.positions, dealt.times,
        num_positions, valid, test)
    parts, summary, statistics = grouping.group(
        dealt.paths, position_map, split, reader.sources(), rejections, reader,
        max_vocabulary, max_items, folder)
    rejections.check(dealt.num_rows, max_rejected, rejected_file)
    check_parts(log, summary, valid, test, columns.timestamp, dealt.times)
  except BaseException:
    folder.remove()
    raise
  finally:
    rejections.close()
  contexts = reader.contexts or [ONE_CONTEXT]
  summary = summary.to_config(contexts, positions, rejections, statistics,
                              reader.mixed)
  return ClickLog(
      folder, columns, positions, position_map.pool, contexts, (valid, test),
      parts, schema["statistics"] if schema else statistics.to_config(),
      summary, opened.dialect, schema is not None)


class OpenedLog(NamedTuple):
  """How a log is read.

  Attributes:
    columns: `LogColumns`.
    names: of the columns to read.
    reader: a `RowReader`, which knows them after `learn`.
    dialect: `batches.Dialect`.
    positions: in order, or None where the rows will say it.
    position_map: `grouping.PositionMap` of these, or None likewise.
  """

  columns: LogColumns
  names: tuple
  reader: RowReader
  dialect: batches.Dialect
  positions: Optional[list]
  position_map: Optional[grouping.PositionMap]

  def learn(self, log: Any) -> None:
    """Sees in the first values of a log which columns are texts."""
    undecided = self.reader.undecided()
    stored = sources.stored_kinds(log, undecided)
    source, values = sources.first_values(log, undecided, stored, self.dialect)
    self.reader.learn(source, values, stored)


def open_log(log, columns, schema=None, positions=None, separator=None,
             null_values=None, decimal=None) -> OpenedLog:
  """Finds out how to read a log, before any row of it is read.

  Args:
    log: as in `read_click_log`, and so are the others.
    columns: see there.
    schema: see there.
    positions: see there.
    separator: see there.
    null_values: see there.
    decimal: see there.
  """
  position_map = features = None
  if schema is not None:
    positions = schema["positions"]
    position_map = _position_map(positions, schema["pool_deeper"])
    features = [[feature["name"] for feature in schema["statistics"][kind]]
                for kind in ("numeric", "text")]
    # The features of the model, in its order, whatever patterns match here.
    columns = dataclasses.replace(
        LogColumns.from_config(schema["columns"]), text=(), numbers=(),
        features=sum(features, []))
  elif positions is not None:
    positions = [str(position) for position in positions]
    position_map = _position_map(positions, False)
  dialect = batches.make_dialect(separator, null_values, decimal, schema or {})
  available = sources.column_names(log, dialect)
  by_name = position_map is not None and position_map.values is None
  reader = RowReader(
      columns, available, positions if by_name else None,
      schema["contexts"] if schema and columns.context else (),
      new_contexts=schema is None, features=features, decimal=dialect.decimal,
      sources=() if sources.is_table(log) else dict.fromkeys(
          sources.find_files(log)))
  return OpenedLog(columns, columns.needed(available), reader, dialect,
                   positions, position_map)


def settle(opened, log, num_rows, found, times, num_positions, valid, test):
  """What a pass over all rows settles.

  Args:
    opened: `OpenedLog`.
    log: as in `read_click_log`.
    num_rows: that were read.
    found: a sorted list of the positions that occur.
    times: a sample of the rows' times.
    num_positions: as in `read_click_log`.
    valid: as there.
    test: as there.

  Returns:
    A tuple of the positions in order, their `grouping.PositionMap`, and the
    `grouping.Split`.

  Raises:
    ValueError: if there is no row, or there are too many positions.
  """
  if not num_rows:
    raise ValueError(
        f"{sources.name_of(log)}: there is no row; give a log with rows.")
  positions, position_map = opened.positions, opened.position_map
  if position_map is None:
    positions = _numbered(found, num_positions)
    position_map = _position_map(positions, num_positions is not None)
  cuts = _cuts(times, valid, test) if opened.columns.timestamp else None
  return positions, position_map, grouping.Split(valid, test, cuts)


def check_arguments(columns, schema, positions, num_positions, max_items,
                    valid, test, max_rejected):
  """Raises a `ValueError` if these of `read_click_log` are not possible."""
  if (columns is None) == (schema is None):
    raise ValueError(
        "Either `columns` or the `schema` of another log must be given, and "
        "not both.")
  if schema is not None and (positions is not None or
                             num_positions is not None):
    raise ValueError(
        "`positions` and `num_positions` are those of the `schema`; leave them "
        "out.")
  if positions is not None:
    if num_positions is not None:
      raise ValueError(
          "`num_positions` is for positions that are numbers; leave it or "
          "`positions` out.")
    if not positions or len({str(name) for name in positions}) < len(positions):
      raise ValueError(
          "`positions` must name each position once, the first one first, but "
          f"is {positions!r}.")
  for name, value in (("num_positions", num_positions),
                      ("max_items", max_items)):
    if value is not None:
      checks.check_count(name, value)
  if not (valid >= 0 and test >= 0 and valid + test <= 1 + _NO_SHARE):
    raise ValueError(
        "`valid` and `test` must be shares that sum to at most 1, but are "
        f"{valid} and {test}.")
  if not 0 <= max_rejected <= 1:
    raise ValueError(
        f"`max_rejected` must be a share from 0 to 1, but is {max_rejected}.")


def _cuts(times, valid, test):
  """Times at which validation and test begin."""
  def after(share):
    if share < _NO_SHARE or share > 1 - _NO_SHARE:
      return -np.inf if share < _NO_SHARE else np.inf
    return np.quantile(times, share)

  return after(1 - valid - test), after(1 - test)


def _numbered(found, num_positions):
  """The positions of a log whose positions are numbers."""
  if num_positions is not None:
    return found[:num_positions]
  if len(found) > grouping.MAX_POSITIONS:
    raise ValueError(
        f"The log has {len(found)} different positions, up to {found[-1]}; "
        "check the column, or give `num_positions`: deeper ones then share the "
        "last.")
  return found


def _position_map(positions, pool):
  if all(isinstance(position, int) for position in positions):
    return grouping.PositionMap(
        np.array(positions, np.int64), len(positions), pool)
  return grouping.PositionMap(None, len(positions))


def check_parts(log, summary, valid, test, timestamp, times):
  """Raises a `ValueError` if a part that has a share has no request.

  Args:
    log: as in `read_click_log`.
    summary: `LogSummary`.
    valid: as in `read_click_log`.
    test: as there.
    timestamp: the column, or None.
    times: a sample of the rows' times.
  """
  name = sources.name_of(log)
  for part, share in zip(PARTS, (1 - valid - test, valid, test)):
    if share > _NO_SHARE and not summary.requests[part]:
      if timestamp and times.min() == times.max():
        raise ValueError(
            f"{name}: no request is left for the {part} part, since all "
            f"times in {timestamp!r} are the same ({times[0]:.15g} seconds "
            "since 1970); leave `timestamp` out, and requests are dealt out by "
            "chance.")
      raise ValueError(
          f"{name}: no request is left for the {part} part "
          f"({sum(summary.requests.values())} in all, of which it gets a share "
          f"of {share:g}); give more data, or other shares `valid` and `test`.")
