"""What each worker does that prepares a log: read a file, arrange a bucket.

Pure functions of a `Plan` and the part of the log, which whatever runs them may
run anywhere, in any order, and again: the same part gives the same files. What
they find out is merged, in any order, too.
"""

import collections
import copy
import dataclasses
import os
from typing import NamedTuple
from typing import Optional

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from ultra_tfr import files
from ultra_tfr.data.click_log import grouping
from ultra_tfr.data.click_log import reading
from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log import summary as summary_lib
from ultra_tfr.data.click_log.rows import check_contexts
from ultra_tfr.data.prepared import manifest
from ultra_tfr.data.prepared import shards
from ultra_tfr.evaluation import harvesting

# Rows dealt out to buckets at once: many, so that each gets more than a few.
_FEWEST_ROWS, _MOST_ROWS, _ROWS_OF_BUCKET = 1 << 16, 1 << 20, 1024
# Of the bootstrap of what is harvested, and for how many sums of them there is
# room: 50 positions in 16 contexts, or 204 in one.
_DRAWS, _MOST_SUMS = 200, 1 << 23


@dataclasses.dataclass
class Plan:
  """How a log is prepared; each worker has a copy.

  Attributes:
    log: a list of files, folders and patterns.
    files: pairs of a path and the values of its partition.
    opened: the `reading.OpenedLog`, which knows the columns of texts.
    num_positions: as in `read_click_log`, and so are the next five.
    valid: see there.
    test: see there.
    max_items: see there.
    max_rejected: see there.
    max_vocabulary: see there.
    num_buckets: how many parts the requests are dealt out to, and items, too.
    seed: of the draws in `harvesting.harvest`.
    folder: of the manifest and the shards; all workers see it.
    rejected_folder: where files of rejected rows go, likewise.
  """

  log: list
  files: list
  opened: reading.OpenedLog
  num_positions: Optional[int]
  valid: float
  test: float
  max_items: Optional[int]
  max_rejected: float
  max_vocabulary: int
  num_buckets: int
  seed: int
  folder: str
  rejected_folder: str

  @property
  def sources(self):
    """The names of the files by their number in `Rows.source`."""
    return list(dict.fromkeys(path for path, _ in self.files))


def make_plan(log, columns, folder, rejected_folder, *, positions=None,
              num_positions=None, max_items=None, valid=0.1, test=0.1,
              max_rejected=0.01, max_vocabulary=10000, separator=None,
              null_values=None, decimal=None, seed=0):
  """Looks at the beginning of a log.

  Args:
    log: a list of files, folders and patterns.
    columns: `LogColumns`, whose feedback is an expression.
    folder: an empty one, see `Plan`.
    rejected_folder: see `Plan`; made if need be.
    positions: as in `read_click_log`, and so are the others.
    num_positions: see there.
    max_items: see there.
    valid: see there.
    test: see there.
    max_rejected: see there.
    max_vocabulary: see there.
    separator: see there.
    null_values: see there.
    decimal: see there.
    seed: see `Plan`.

  Returns:
    A `Plan`.

  Raises:
    ValueError: as in `read_click_log`.
  """
  reading.check_arguments(columns, None, positions, num_positions, max_items,
                          valid, test, max_rejected)
  columns.get_config()  # It goes to a file.
  files.make_folder(os.path.join(folder, manifest.SHARDS))
  files.make_folder(rejected_folder)
  opened = reading.open_log(log, columns, None, positions, separator,
                            null_values, decimal)
  opened.learn(log)
  return Plan(
      log, sources.find_partitions(log), opened, num_positions, valid, test,
      max_items, max_rejected, max_vocabulary,
      # Each is one at a time in memory, so there may be any number of them.
      grouping.num_buckets(log, 1 << 20), seed, folder, rejected_folder)


class Chunk(NamedTuple):
  """Rows of one bucket out of one file.

  Attributes:
    place: of the file, and of the chunk in it.
    contexts: names by the ids that the rows have.
    table: the rows, a stream of Arrow.
  """

  place: tuple
  contexts: list
  table: bytes


class Found:
  """What reading files found out.

  Attributes:
    num_rows: all rows, rejected ones included.
    positions: a set of those that occur.
    times: `grouping.TimeSample`.
    contexts: by name, the file and the row where it first occurs.
    rejections: by file, the `RejectionCounts`.
    errors: by file, why it cannot be read.
  """

  def __init__(self):
    self.num_rows, self.positions = 0, set()
    self.times = grouping.TimeSample()
    self.contexts, self.rejections, self.errors = {}, {}, {}

  def merge(self, other):
    """Adds what other files told."""
    self.num_rows += other.num_rows
    self.positions |= other.positions
    self.times.merge(other.times)
    for name, place in other.contexts.items():
      self.contexts[name] = min(self.contexts.get(name, place), place)
    self.rejections.update(other.rejections)
    self.errors.update(other.errors)

  def context_names(self):
    """The names of the contexts by id, in the order of the log."""
    return sorted(self.contexts, key=self.contexts.get)


def read(plan, number):
  """Reads a file.

  Args:
    plan: `Plan`.
    number: of the file.

  Yields:
    Pairs of a bucket and a `Chunk`; and at the end `Found`.
  """
  found = Found()
  try:
    yield from _read(plan, number, found)
  except (ValueError, OSError) as error:
    found.errors[number] = _sentence(error)
  yield found


def _sentence(error):
  """An error as a text: it is raised where people see it, see `conclude`."""
  if isinstance(error, OSError) and error.filename:
    return f"{os.fspath(error.filename)}: {error.strerror}."
  return str(error)


def _read(plan, number, found):
  path, partition = plan.files[number]
  reader = copy.deepcopy(plan.opened.reader)
  rejections = _rejections(plan, "read", number, reader.examples)
  buffer, chunks = [], 0
  limit = np.clip(plan.num_buckets * _ROWS_OF_BUCKET, _FEWEST_ROWS, _MOST_ROWS)
  try:
    for batch in sources.read_file(
        path, partition, plan.opened.names, plan.opened.dialect):
      rows, rejected = reader.read(batch)
      rejections.add(rejected)
      found.num_rows += len(batch.rows) + len(batch.malformed)
      if rows is None:
        continue
      found.positions.update(np.unique(rows.position).tolist())
      found.times.add(rows)
      names = reader.contexts
      for i, first in zip(*np.unique(rows.context, return_index=True)):
        if names:
          found.contexts.setdefault(names[i], (number, int(rows.row[first])))
      buffer.append(rows)
      if sum(len(part.request) for part in buffer) >= limit:
        for bucket, table in _deal_out(buffer, plan.num_buckets):
          yield bucket, Chunk((number, chunks), names, table)
        buffer, chunks = [], chunks + 1
  finally:
    rejections.close()
  if buffer:
    for bucket, table in _deal_out(buffer, plan.num_buckets):
      yield bucket, Chunk((number, chunks), reader.contexts, table)
  if rejections.count:
    found.rejections[number] = _counts(rejections)


def _rejections(plan, kind, number, examples=None):
  return summary_lib.Rejections(os.path.join(
      plan.rejected_folder, f"{kind}-{number:05d}.csv"), examples)


def _counts(rejections):
  """The counts alone, for other workers."""
  counts = summary_lib.RejectionCounts()
  counts.merge(rejections)
  return counts


def _deal_out(parts, num_buckets):
  """Yields pairs of a bucket and its rows, a stream of Arrow."""
  table = pa.concat_tables(map(requests_lib.to_table, parts))
  request = table["request"].to_numpy()
  for bucket, indices in requests_lib.by_bucket(request, num_buckets):
    yield bucket, _to_bytes(table.take(pa.array(indices)))


def _to_bytes(table):
  """A stream of Arrow."""
  sink = pa.BufferOutputStream()
  with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(
      compression="lz4")) as writer:
    writer.write_table(table)
  return sink.getvalue().to_pybytes()


def _to_table(stream):
  with ipc.open_stream(stream) as reader:
    return reader.read_all()


class Settled(NamedTuple):
  """What all files together settle.

  Attributes:
    positions: in order.
    position_map: `grouping.PositionMap`.
    split: `grouping.Split`.
    contexts: names by id.
  """

  positions: list
  position_map: grouping.PositionMap
  split: grouping.Split
  contexts: list


def settle(plan, found):
  """What all files together settle.

  Args:
    plan: `Plan`.
    found: `Found` in all files.

  Returns:
    `Settled`.

  Raises:
    ValueError: if one cannot be read, or they are not as described.
  """
  if found.errors:
    raise ValueError(found.errors[min(found.errors)])
  contexts = found.context_names()
  check_contexts(plan.opened.columns.context, contexts, "The log")
  if not found.positions and found.num_rows:
    _merged(found.rejections).check(
        found.num_rows, plan.max_rejected, plan.rejected_folder)
  return Settled(*reading.settle(
      plan.opened, plan.log, found.num_rows, sorted(found.positions),
      found.times.times, plan.num_positions, plan.valid, plan.test), contexts)


class Arranged:
  """What arranging buckets gave.

  Attributes:
    summary: `LogSummary`.
    statistics: `FeatureStatistics` of the training part, or None.
    shards: by part and bucket, the entry of the manifest.
    rejections: by bucket, the `RejectionCounts`.
    errors: by bucket, why its shards cannot be written.
  """

  def __init__(self):
    self.summary, self.statistics = summary_lib.LogSummary(), None
    self.shards, self.rejections, self.errors = {}, {}, {}

  def merge(self, other):
    """Adds what other buckets gave."""
    self.summary.merge(other.summary)
    if self.statistics is None:
      self.statistics = copy.deepcopy(other.statistics)
    elif other.statistics is not None:
      self.statistics.merge(other.statistics)
    self.shards.update(other.shards)
    self.rejections.update(other.rejections)
    self.errors.update(other.errors)


def arrange(plan, settled, bucket, chunks):
  """Writes the shards of a bucket.

  Args:
    plan: `Plan`.
    settled: `Settled`.
    bucket: its number.
    chunks: all its `Chunk`s.

  Yields:
    Pairs of a bucket of items and rows of it for `harvest`; and at the end
    `Arranged`.
  """
  result = Arranged()
  try:
    yield from _arrange(plan, settled, bucket, chunks, result)
  except OSError as error:
    result.errors[bucket] = _sentence(error)
  yield result


def _arrange(plan, settled, bucket, chunks, result):
  result.statistics = _statistics(plan)
  ids = {name: i for i, name in enumerate(settled.contexts)}
  parts = []
  # In the order of reading, which tells what comes first of equal rows.
  for chunk in sorted(chunks, key=lambda chunk: chunk.place):
    rows = requests_lib.from_table(_to_table(chunk.table))
    if chunk.contexts:
      rows = rows._replace(context=np.array(
          [ids[name] for name in chunk.contexts], np.int32)[rows.context])
    parts.append(rows)
  rejections = _rejections(plan, "group", bucket)
  try:
    found = grouping.arrange(
        requests_lib.join(parts), settled.position_map, settled.split,
        plan.sources, rejections, plan.max_items, result.summary,
        result.statistics)
  finally:
    rejections.close()
  if rejections.count:
    result.rejections[bucket] = _counts(rejections)
  for part, rows in found.items():
    name = f"{part}-{bucket:05d}-of-{plan.num_buckets:05d}.tfrecord.gz"
    shards.write(os.path.join(plan.folder, manifest.SHARDS, name), rows)
    result.shards[part, bucket] = {
        "file": name, "requests": len(requests_lib.starts_of(rows)) - 1,
        "rows": len(rows.request)}
  if _is_harvested(plan, settled):
    for rows in found.values():
      yield from _deal_out_items(rows, plan.num_buckets)


def _is_harvested(plan, settled):
  """Whether there are items, and not too many positions for the draws."""
  return bool(plan.opened.columns.item) and _DRAWS * max(
      1, len(settled.contexts)) * len(settled.positions) ** 2 <= _MOST_SUMS


def _deal_out_items(rows, num_buckets):
  """Yields pairs of a bucket and what is harvested from of its items."""
  counting = np.flatnonzero((rows.item >= 0) & (rows.weight > 0))
  table = pa.table({
      "item": rows.item, "position": rows.position.astype(np.int32),
      "request": rows.request, "context": rows.context, "weight": rows.weight,
      "clicked": rows.feedback > 0}).take(pa.array(counting))
  for bucket, indices in requests_lib.by_bucket(
      rows.item[counting], num_buckets):
    yield bucket, _to_bytes(table.take(pa.array(indices)))


class Harvested:
  """What items of a bucket tell.

  Attributes:
    sums: a dict of `harvesting.HarvestSums` by context; empty without items.
  """

  def __init__(self):
    self.sums = {}

  def merge(self, other):
    """Adds what other items tell."""
    for name, sums in other.sums.items():
      self.sums[name] = self.sums[name] + sums if name in self.sums else sums


def harvest(plan, settled, tables):
  """Harvests from the items of a bucket.

  Args:
    plan: `Plan`.
    settled: `Settled`.
    tables: all its rows, as `arrange` gives them.

  Returns:
    `Harvested`.
  """
  result = Harvested()
  table = pa.concat_tables(map(_to_table, tables))
  columns = {name: table[name].to_numpy() for name in table.column_names}
  result.sums = harvesting.sums_by_context(
      columns["item"], columns["position"], columns["clicked"],
      columns["request"], len(settled.positions), columns["weight"],
      columns["context"], settled.contexts or [reading.ONE_CONTEXT],
      _DRAWS, plan.seed)
  return result


def _statistics(plan):
  reader = plan.opened.reader
  return summary_lib.FeatureStatistics(
      reader.numeric_features, reader.text_features, plan.max_vocabulary)


def _merged(counts):
  """Counts of parts of the log as one, in their order."""
  total = summary_lib.RejectionCounts()
  for number in sorted(counts):
    total.merge(counts[number])
  return total


def conclude(plan, found, arranged, harvested):
  """The manifest of the whole log.

  Args:
    plan: `Plan`.
    found: `Found` in all files.
    arranged: `Arranged`, of all buckets.
    harvested: `Harvested`, of all buckets.

  Returns:
    See `manifest.describe`.

  Raises:
    ValueError: as `read_click_log` does: the log is not as described, too many
      rows are rejected, a part has no request.
  """
  settled = settle(plan, found)
  if arranged.errors:
    raise ValueError(arranged.errors[min(arranged.errors)])
  rejections = _merged({
      **{(0, number): one for number, one in found.rejections.items()},
      **{(1, bucket): one for bucket, one in arranged.rejections.items()}})
  rejections.check(found.num_rows, plan.max_rejected, plan.rejected_folder)
  opened, summary = plan.opened, arranged.summary
  reading.check_parts(plan.log, summary, plan.valid, plan.test,
                      opened.columns.timestamp, found.times.times)
  contexts = settled.contexts or [reading.ONE_CONTEXT]
  statistics = arranged.statistics or _statistics(plan)
  log = reading.ClickLog(
      None, opened.columns, settled.positions, settled.position_map.pool,
      contexts, (plan.valid, plan.test), {}, statistics.to_config(),
      summary.to_config(contexts, settled.positions, rejections, statistics,
                        opened.reader.mixed), opened.dialect,
      harvest=harvesting.tell(harvested.sums) if harvested.sums else None)
  entries = collections.defaultdict(list)
  for (part, _), entry in sorted(arranged.shards.items()):
    entries[part].append(entry)
  return manifest.describe(
      ", ".join(plan.log), log,
      {part: entries[part] for part in reading.PARTS})
