"""From rows in any order to requests, split into parts, on disk."""

import dataclasses
import os
from typing import Optional

import numpy as np

from ultra_tfr import hashing
from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.data.click_log import sources as sources_lib
from ultra_tfr.data.click_log import summary as summary_lib
from ultra_tfr.data.click_log.summary import FeatureStatistics

PARTS = ("train", "valid", "test")
MAX_POSITIONS = 1000
# Rows of one bucket, which is what must fit into memory.
_BUCKET_ROWS = 1 << 18
_MAX_BUCKETS = 512
# Times kept as a sample, to find where the parts are cut.
_SAMPLED_TIMES = 200000


@dataclasses.dataclass
class Dealt:
  """What the first pass over the log found.

  Attributes:
    paths: bucket files.
    num_rows: all rows, rejected ones included.
    positions: a sorted list of the positions that occur.
    times: a sample of the rows' times, see `TimeSample`.
  """

  paths: list
  num_rows: int
  positions: list
  times: np.ndarray


class TimeSample:
  """Times of rows, of the same ones in whatever order and parts they come.

  Attributes:
    times: `[N]` float64, at most 200,000.
    ranks: `[N]` uint64; rows are taken by the lowest, and sorted once there
      are more.
  """

  def __init__(self):
    self.times, self.ranks = np.zeros(0), np.zeros(0, np.uint64)

  def add(self, rows):
    """Adds `Rows`."""
    self._take(rows.time, hashing.mixed(
        (rows.source.astype(np.uint64) << np.uint64(40)) + rows.row.astype(
            np.uint64) * np.uint64(0x9e3779b97f4a7c15)))

  def merge(self, other):
    """Adds the `TimeSample` of other rows."""
    self._take(other.times, other.ranks)

  def _take(self, times, ranks):
    if len(self.ranks) == _SAMPLED_TIMES:
      lower = ranks < self.ranks[-1]
      times, ranks = times[lower], ranks[lower]
    times = np.concatenate([self.times, times])
    ranks = np.concatenate([self.ranks, ranks])
    if len(ranks) >= _SAMPLED_TIMES:
      lowest = np.lexsort((times, ranks))[:_SAMPLED_TIMES]
      times, ranks = times[lowest], ranks[lowest]
    self.times, self.ranks = times, ranks


def num_buckets(log, most=_MAX_BUCKETS):
  """How many buckets the rows of a log are dealt out to.

  Args:
    log: as in `sources.read_batches`.
    most: of them, whatever the size of the log.
  """
  rows = sources_lib.estimate_rows(log)
  return int(np.clip(rows // _BUCKET_ROWS + 1, 1, most))


def deal_out(log, names, reader, rejections, folder, dialect, progress=None):
  """Reads a log and deals its rows out to buckets by request.

  Args:
    log: as in `sources.read_batches`.
    names: the columns to read.
    reader: a `RowReader`.
    rejections: `Rejections`.
    folder: where the buckets go.
    dialect: `Dialect`.
    progress: a function of the number of rows so far, or None.

  Returns:
    `Dealt`.
  """
  writer = requests_lib.Writer(folder, num_buckets(log))
  positions, times = set(), TimeSample()
  num_rows = 0
  for batch in sources_lib.read_batches(log, names, dialect):
    rows, rejected = reader.read(batch)
    rejections.add(rejected)
    num_rows += len(batch.rows) + len(batch.malformed)
    if rows is not None:
      writer.add(rows)
      positions.update(np.unique(rows.position).tolist())
      times.add(rows)
    if progress is not None:
      progress(num_rows)
  return Dealt(writer.close(), num_rows, sorted(positions), times.times)


@dataclasses.dataclass(frozen=True)
class PositionMap:
  """Maps positions of the log to positions of the bias, 1 to K.

  Attributes:
    values: positions of the log in order; None where positions are names, and
      rows hold their place in the order already.
    size: K.
    pool: whether deeper positions share the last.
  """

  values: Optional[np.ndarray]
  size: int
  pool: bool = False

  def find(self, positions):
    """Positions from 1; 0 where unknown."""
    if self.values is None:
      return positions + 1
    place = np.searchsorted(self.values, positions)
    known = self.values[np.minimum(place, self.size - 1)] == positions
    if self.pool:
      known |= positions > self.values[-1]
    return np.where(known, np.minimum(place, self.size - 1) + 1, 0)


@dataclasses.dataclass(frozen=True)
class Split:
  """Which part a request is in.

  Attributes:
    valid: share for validation.
    test: share for testing.
    cuts: times at which validation and test begin, or None to go by request.
  """

  valid: float
  test: float
  cuts: Optional[tuple] = None

  def find(self, requests, times):
    """Index into `PARTS` `[N]`, from `[N]` request numbers and times."""
    if self.cuts is not None:
      return np.searchsorted(self.cuts, times, side="right")
    share = (requests % 1000003) / 1000003.0
    return np.where(share < self.test, 2,
                    np.where(share < self.test + self.valid, 1, 0))


def group(paths, position_map, split, sources, rejections, reader,
          max_vocabulary, max_items, folder):
  """Sorts the rows of each bucket by request and splits them.

  Args:
    paths: bucket files of `deal_out`; they are removed.
    position_map: `PositionMap`.
    split: `Split`.
    sources: names of the sources by number.
    rejections: `Rejections`.
    reader: the `RowReader`, for the names of the features.
    max_vocabulary: as in `FeatureStatistics`.
    max_items: rows of a request to keep, the first ones; None for all.
    folder: the `TemporaryFolder` where the new files go.

  Returns:
    A tuple of the parts, a dict of `LoggedLists` by name, a `LogSummary`, and
    the `FeatureStatistics` of the training part.
  """
  summary = summary_lib.LogSummary()
  statistics = FeatureStatistics(
      reader.numeric_features, reader.text_features, max_vocabulary)
  files = {part: [] for part in PARTS}
  for number, path in enumerate(paths):
    rows = requests_lib.read_rows(path)
    os.remove(path)
    for part, chosen in arrange(rows, position_map, split, sources, rejections,
                                max_items, summary, statistics).items():
      files[part].append(os.path.join(folder, f"{part}-{number}.arrow"))
      requests_lib.write_rows(files[part][-1], chosen)
  parts = {part: requests_lib.LoggedLists(
      files[part], summary.requests[part], summary.rows[part], folder)
           for part in PARTS}
  return parts, summary, statistics


def arrange(rows, position_map, split, sources, rejections, max_items, summary,
            statistics):
  """Sorts rows by request and splits them.

  Args:
    rows: `Rows`, all of each of their requests, in the order of reading.
    position_map: as in `group`.
    split: as there.
    sources: as there.
    rejections: `RejectionCounts` that are added to.
    max_items: as there.
    summary: a `LogSummary` that is added to.
    statistics: `FeatureStatistics` that are added to.

  Returns:
    A dict of sorted `Rows` by the name of the part, of those that have some.
  """
  rows = requests_lib.sort(rows)
  unknown = position_map.find(rows.position) == 0
  rows = _without(rows, unknown, "a position that the model does not know",
                  sources, rejections)
  if not len(rows.request):
    return {}
  others, duplicates, merged = _twice(rows)
  summary.duplicates += int(duplicates.sum())
  summary.merged += int(merged.sum())
  if duplicates.any():
    rows = requests_lib.take(rows, np.flatnonzero(~duplicates))
  rows = _without(rows, others[~duplicates], "another row of the request has "
                  "the same position", sources, rejections)
  if merged.any():
    rows = _merge(rows)
  rows = rows._replace(position=position_map.find(rows.position))
  starts = requests_lib.starts_of(rows)
  if max_items is not None:
    place = np.arange(len(rows.request)) - np.repeat(
        starts[:-1], np.diff(starts))
    summary.cut += int((place >= max_items).sum())
    rows = requests_lib.take(rows, np.flatnonzero(place < max_items))
    starts = requests_lib.starts_of(rows)
  part_of = split.find(rows.request[starts[:-1]],
                       np.minimum.reduceat(rows.time, starts[:-1]))
  of_row = np.repeat(part_of, np.diff(starts))
  parts = {}
  for i, part in enumerate(PARTS):
    chosen = requests_lib.take(rows, np.flatnonzero(of_row == i))
    if not len(chosen.request):
      continue
    summary.add(part, chosen, requests_lib.starts_of(chosen))
    if part == "train":
      statistics.add(chosen)
    parts[part] = chosen
  return parts


def _slots(rows):
  """Where each position of a request starts in sorted `Rows`."""
  starts = np.ones(len(rows.request), bool)
  starts[1:] = (np.diff(rows.request) != 0) | (np.diff(rows.position) != 0)
  return np.flatnonzero(starts)


def _twice(rows):
  """Finds rows whose request has an earlier row at the same position.

  Args:
    rows: `Rows`, sorted.

  Returns:
    Three `[R]` boolean arrays: rows of another item than the first row there,
    rows that equal an earlier one in all, and other rows of the same item.
  """
  others, duplicates, merged = np.zeros([3, len(rows.request)], bool)
  starts = _slots(rows)
  sizes = np.diff([*starts, len(rows.request)])
  slots = np.repeat(np.arange(len(starts)), sizes)
  crowded = np.flatnonzero(sizes[slots] > 1)
  if not len(crowded):
    return others, duplicates, merged
  part, slots = requests_lib.take(rows, crowded), slots[crowded]
  # Where no column names the item, its features do.
  content = _codes(np.where(np.isnan(part.numeric), np.nan, part.numeric).view(
      np.int32), *map(_text_codes, part.texts))
  item = np.where(part.item < 0, -2 - content, part.item)
  firsts = np.flatnonzero(np.diff(slots, prepend=-1))
  other = item != np.repeat(item[firsts], np.diff([*firsts, len(slots)]))
  all_that_is_read = _codes(
      slots, content, item, part.context, part.randomized,
      *(values.view(np.int64 if values.itemsize == 8 else np.int32)
        for values in (part.feedback, part.weight, part.time)))
  again = np.ones(len(slots), bool)
  again[np.unique(all_that_is_read, return_index=True)[1]] = False
  first = np.zeros(len(slots), bool)
  first[firsts] = True
  duplicates[crowded] = again
  others[crowded] = other
  merged[crowded] = ~(other | again | first)
  return others, duplicates, merged


def _merge(rows):
  """Keeps one row for each position of a request, the one with most features.

  It gets the largest feedback of the rows, and the earliest time.
  """
  starts = _slots(rows)
  slots = np.repeat(np.arange(len(starts)),
                    np.diff([*starts, len(rows.request)]))
  missing = np.isnan(rows.numeric).sum(axis=1)
  for texts in rows.texts:
    missing += np.equal(np.array(texts.to_pylist(), object), "")
  best = np.lexsort((rows.time, missing, slots))[starts]
  return requests_lib.take(rows, best)._replace(
      feedback=np.maximum.reduceat(rows.feedback, starts),
      time=np.minimum.reduceat(rows.time, starts))


def _codes(*columns):
  """Numbers `[N]`, the same for rows that are the same in all columns."""
  table = np.column_stack([np.asarray(values, np.int64) for values in columns])
  return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)


def _text_codes(texts):
  return np.unique(np.array(texts.to_pylist(), object),
                   return_inverse=True)[1]


def _without(rows, wrong, reason, sources, rejections):
  if not wrong.any():
    return rows
  rejections.add([
      (sources[source], int(row), reason)
      for source, row in zip(rows.source[wrong], rows.row[wrong])])
  return requests_lib.take(rows, np.flatnonzero(~wrong))
