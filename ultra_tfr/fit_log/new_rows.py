"""Scores and ranks of rows that a fitted ranker has not seen."""

import contextlib
import os
from typing import Any
from typing import Optional

import numpy as np
import pyarrow as pa
from pyarrow import csv
from pyarrow import ipc
from pyarrow import parquet
import tensorflow as tf

from ultra_tfr import output
from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log import summary as summary_lib
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.rows import FeatureReader
from ultra_tfr.feedback import ranking_head

ADDED = SCORE, RANK = "score", "rank"
_WRITERS = {".parquet": parquet.ParquetWriter, ".csv": csv.CSVWriter}
# So many rows are scored at a time.
_BATCH = 8192


def ranks_within(requests: np.ndarray, scores: np.ndarray) -> np.ndarray:
  """The rank of each row in its request, the highest score first.

  Args:
    requests: `[R]` int, any number from 0 for each request.
    scores: `[R]`.

  Returns:
    `[R]` int64 from 1; of equal scores the earlier row ranks first.

  >>> ranks_within(np.array([7, 5, 7, 7]), np.array([0.1, 0.3, 0.9, 0.1]))
  array([2, 1, 1, 3])
  """
  order = np.lexsort((-scores, requests))
  starts = np.flatnonzero(np.diff(requests[order], prepend=-1))
  sizes = np.diff(np.append(starts, len(order)))
  ranks = np.empty(len(order), np.int64)
  ranks[order] = np.arange(len(order)) - np.repeat(starts, sizes) + 1
  return ranks


def score_frame(fitted: Any, frame: Any) -> Any:
  """Scores a table of any library, see `FittedLog.score`."""
  rows = sources.in_memory(frame, "frame")
  if not sources.is_table(rows):
    raise ValueError(
        "`frame` must be a table of pandas, pyarrow, polars or another library "
        f"with the Arrow interface, but is {frame!r:.60}; `ultra-tfr score` "
        "takes files.")
  scorer = _score_all(fitted, rows, "frame")
  added = {SCORE: scorer.scores(), RANK: scorer.ranks()}
  return rows[[]].assign(**added) if sources.is_frame(rows) else pa.table(added)


def scores_of(fitted: Any, table: Any) -> np.ndarray:
  """Scores of rows, all of which must be fit for it.

  Args:
    fitted: a `fit_log.training.FittedLog`.
    table: a pandas `DataFrame` or a pyarrow table, with the columns of the
      request and of the features.

  Returns:
    `[R]` float32.

  Raises:
    ValueError: if a column is missing, or a row cannot be scored.
  """
  return _score_all(fitted, table, "X").scores()


def _score_all(fitted, table, name):
  """A `_Scorer` that has scored all rows of an argument of that name."""
  scorer = _Scorer(fitted, table, (), batches.make_dialect(
      None, None, None, fitted.schema))
  for _, rejected in scorer.batches():
    if rejected:
      _, row, reason = rejected[0]
      value, _ = scorer.examples.get(reason, (None, ""))
      shown = "" if value is None else f", such as {value!r:.60}"
      raise ValueError(
          f"`{name}`: row {row}, counted from 1, cannot be scored: {reason}"
          f"{shown}; mend it or leave it out.")
  return scorer


def score_log(fitted: Any, log: Any, path: str,
              keep: Optional[list[str]] = None, *, max_rejected: float = 0.01,
              rejected_file: Optional[str] = None,
              separator: Optional[str] = None,
              null_values: Optional[list[str]] = None,
              decimal: Optional[str] = None,
              progress: Any = None) -> dict[str, Any]:
  """Writes rows with the score and the rank that a ranker gives them.

  Rows stay in their order; those that cannot be scored are left out. Memory
  holds a batch of rows, and request and score of each row, 12 bytes.

  Args:
    fitted: a `fit_log.training.FittedLog`.
    log: the rows: a file, a folder, a pattern or a list of these, or a table,
      as in `read_click_log`. Only the columns of the request and of the
      features are needed.
    path: the file to write, in Parquet or CSV, as its ending says.
    keep: columns to write before `score` and `rank`; by default those of the
      request and of the item, where there are.
    max_rejected: the share of rows that may be rejected.
    rejected_file: a CSV file to write rejected rows to, or None.
    separator: as in `read_click_log`.
    null_values: as in `read_click_log`; None for those of the model's log.
    decimal: as in `read_click_log`; None for that of the model's log.
    progress: a function of the number of rows read so far, or None.

  Returns:
    A dict of counts: "rows" that were written, their "requests", and "rejected"
    rows by reason.

  Raises:
    ValueError: if a column is missing, too many rows are rejected, or the path
      is not possible.
  """
  check_ending("path", path)
  log = sources.in_memory(log)
  dialect = batches.make_dialect(separator, null_values, decimal, fitted.schema)
  if keep is None:
    columns = LogColumns.from_config(fitted.schema["columns"])
    there = sources.column_names(log, dialect)
    keep = [name for name in dict.fromkeys(columns.query_columns + columns.item)
            if name in there and name not in ADDED]
  for name in ADDED:
    if name in keep:
      raise ValueError(
          f"`keep` names {name!r}, and a column of that name is added; rename "
          "it in the log, or leave it out.")
  inputs = sources.paths(log)
  output.check_is_no_input("path", path, inputs)
  output.check_is_no_input("rejected_file", rejected_file, [*inputs, path])
  scorer = _Scorer(fitted, log, tuple(keep), dialect)
  rejections = summary_lib.Rejections(rejected_file, scorer.examples)
  folder = requests_lib.TemporaryFolder()
  try:
    # Ranks are known at the end, and a log may be read only once.
    stored = os.path.join(folder, "kept.arrow")
    _store(stored, scorer, rejections, progress)
    if not scorer.num_rows:
      raise ValueError(
          f"{sources.name_of(log)}: there is no row; give a log with rows.")
    rejections.check(scorer.num_rows, max_rejected)
    ranks = scorer.ranks()
    _write(path, stored, ranks)
  finally:
    rejections.close()
    folder.remove()
  return {"rows": len(ranks), "requests": int((ranks == 1).sum()),
          "rejected": dict(rejections.reasons)}


def check_ending(name: str, path: str) -> None:
  """Raises a `ValueError` unless rows can be written to such a file.

  Args:
    name: of the argument or flag.
    path: its value.
  """
  if _ending(path) not in _WRITERS:
    raise ValueError(
        f"`{name}` must end in {' or '.join(_WRITERS)}, which says what is "
        f"written, but is {path!r}.")


def _ending(path):
  return os.path.splitext(path)[1].lower()


class _Scorer:
  """Scores rows batch after batch.

  Args:
    fitted: a `fit_log.training.FittedLog`.
    log: files, or a table.
    keep: names of columns.
    dialect: `Dialect`.

  Attributes:
    num_rows: how many rows were read so far, rejected ones included.
    examples: of what is rejected, as in `RowReader.examples`.
  """

  def __init__(self, fitted, log, keep, dialect):
    query = LogColumns.from_config(fitted.schema["columns"]).query_columns
    numeric, text = (
        [feature["name"] for feature in fitted.schema["statistics"][kind]]
        for kind in ("numeric", "text"))
    self._model, self._log, self._keep = fitted.model, log, keep
    self._dialect = dialect
    available = sources.column_names(log, dialect)
    _check_there(available, [*query, *numeric, *text], "the model needs")
    _check_there(available, keep, "`keep` names")
    self._names = [name for name in available if name in {
        *query, *numeric, *text, *keep}]
    self._reader = FeatureReader(query, numeric, text, dialect.decimal)
    self.examples = self._reader.examples
    self._requests = [np.zeros(0, np.int64)]
    self._scores = [np.zeros(0, np.float32)]
    self.num_rows = 0

  def batches(self):
    """Scores all rows.

    Yields:
      Tuples of a pyarrow table of the columns to keep and the scores, of rows
      that can be scored, and (source, row, reason) of the others.
    """
    for batch in sources.read_batches(
        self._log, self._names, self._dialect):
      kept, requests, numeric, texts, rejected = self._reader.read(batch)
      self._requests.append(requests)
      self._scores.append(_score(self._model, numeric, texts))
      self.num_rows += len(batch.rows) + len(batch.malformed)
      mask = pa.array(kept)
      columns = {name: batch.columns[name].filter(mask) for name in self._keep}
      yield pa.table({**columns, SCORE: self._scores[-1]}), rejected

  def scores(self):
    """The scores of all rows, `[R]`."""
    return np.concatenate(self._scores)

  def ranks(self):
    """Their ranks, `[R]`."""
    return ranks_within(np.concatenate(self._requests), self.scores())


def _check_there(available, names, who):
  missing = [name for name in names if name not in available]
  if missing:
    raise ValueError(
        f"The log has no column {', '.join(map(repr, missing))}, which {who}; "
        f"its columns are {batches.in_one_line(available)}.")


def _score(model, numeric, texts):
  """Ranking scores of rows, `[R]` float32."""
  scores = [np.zeros(0, np.float32)]
  for start in range(0, len(numeric), _BATCH):
    part = slice(start, start + _BATCH)
    # The model looks at one item at a time: rows need not be in requests.
    inputs = {"numeric": numeric[np.newaxis, part]}
    if texts:
      inputs["texts"] = np.stack(
          [text[part].to_numpy(zero_copy_only=False) for text in texts],
          axis=-1)[np.newaxis]
    heads = model({name: tf.constant(value) for name, value in inputs.items()
                   if value.shape[-1]}, training=False)
    scores.append(ranking_head(heads).numpy()[0])
  return np.concatenate(scores)


def _store(path, scorer, rejections, progress):
  """Scores all rows, and puts scores and columns to keep into an Arrow file."""
  with contextlib.ExitStack() as files:
    writer = schema = None
    for table, rejected in scorer.batches():
      rejections.add(rejected)
      with output.errors_of(path):
        if writer is None:
          schema = pa.schema([
              (field.name, pa.string() if field.type == pa.null() else
               field.type) for field in table.schema])
          writer = files.enter_context(ipc.new_stream(path, schema))
        writer.write_table(_cast(table, schema))
      if progress is not None:
        progress(scorer.num_rows)


def _cast(table, schema):
  try:
    return table.cast(schema)
  except pa.ArrowException as error:
    raise ValueError(
        "The columns to keep are of other types in one part of the log than in "
        f"another ({error}); write them alike, or leave them out of `keep`."
    ) from error


def _write(path, stored, ranks):
  """Writes the rows of an Arrow file with their ranks, `[R]`."""
  with pa.OSFile(stored) as source, ipc.open_stream(source) as batches:
    rank = pa.field(RANK, pa.int64())
    schema = pa.schema([*batches.schema, rank])
    with output.new_file(path, "wb") as file, (
        _WRITERS[_ending(path)](file, schema)) as writer:
      start = 0
      for batch in batches:
        end = start + len(batch)
        writer.write_table(pa.table(
            [*batch.columns, pa.array(ranks[start:end])], schema))
        start = end
