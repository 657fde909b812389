"""What is in a click log: counts, rates by position, and rejected rows."""

import collections
import contextlib
import csv
import fractions
import os

import numpy as np
import pyarrow.compute as pc

from ultra_tfr import output
from ultra_tfr.core import feature_scale

# At most so many names of features, or positions, are in a line.
_SHOWN = 20
# Sums of sums are exact: so they are the same in whatever order they come.
_exact = np.frompyfunc(fractions.Fraction, 1, 1)


class RejectionCounts:
  """Counts rejected rows by reason.

  Args:
    examples: by reason, a value and a remedy, as in `RowReader.examples`.

  Attributes:
    reasons: counts by reason.
    places: by reason, the source and the number of the first such row.
    examples: as above.
  """

  def __init__(self, examples=None):
    self.reasons, self.places = collections.Counter(), {}
    self.examples = {} if examples is None else examples

  def add(self, rejected):
    """Adds (source, row, reason) triples."""
    self.reasons.update(reason for _, _, reason in rejected)
    for source, row, reason in rejected:
      self.places.setdefault(reason, (source, row))

  def merge(self, later):
    """Adds the `RejectionCounts` of what comes later in the log."""
    self.reasons.update(later.reasons)
    self.places = {**later.places, **self.places}
    self.examples = {**later.examples, **self.examples}

  @property
  def count(self):
    """Rejected rows so far."""
    return sum(self.reasons.values())

  def check(self, num_rows, max_share, path=None):
    """Raises a `ValueError` if too large a share of rows is rejected, or all.

    Args:
      num_rows: all rows read, rejected ones included.
      max_share: the largest share that is accepted.
      path: where rejected rows are listed, or None.
    """
    if self.count <= max_share * num_rows and self.count < num_rows:
      return
    reason, times = self.reasons.most_common(1)[0]
    source, row = self.places[reason]
    value, remedy = self.examples.get(reason, (None, ""))
    shown = "" if value is None else f", such as {value!r:.60}"
    listing = (f"{path} lists them" if path else
               "`rejected_file` would list them")
    raise ValueError(
        f"{self.count} of {num_rows} rows are rejected ({listing}), while "
        f"`max_rejected` allows a share of {max_share:g} and never all; the "
        f"most frequent reason is '{reason}' ({times} rows{shown}, one of them "
        f"row {row} of {source}). Mend the log or the arguments"
        f"{f' ({remedy})' * bool(remedy)}, or raise `max_rejected`.")

  def values(self):
    """By reason, a value that was rejected for it, where one stood there."""
    return {reason: value for reason in self.reasons if (
        value := self.examples.get(reason, (None, ""))[0]) is not None}


class Rejections(RejectionCounts):
  """Counts rejected rows by reason, and writes them to a file.

  Args:
    path: a CSV file to write, with the columns source, row and reason; None to
      count only. If no row is rejected, it is written only to replace an older
      file. It is there after `close`.
    examples: as in `RejectionCounts`.
  """

  def __init__(self, path=None, examples=None):
    super().__init__(examples)
    self._path, self._rows = path, None
    self._files = contextlib.ExitStack()
    if path is not None and os.path.exists(path):
      self._open()

  def add(self, rejected):
    """Adds (source, row, reason) triples."""
    super().add(rejected)
    if self._path is None or not rejected:
      return
    if self._rows is None:
      self._open()
    self._rows.writerows(map(_cells, rejected))

  def _open(self):
    self._rows = csv.writer(
        self._files.enter_context(output.new_file(self._path)))
    self._rows.writerow(["source", "row", "reason"])

  def close(self):
    """Ends the file."""
    self._files.close()


def _cells(values):
  """The cells of a row, none of which a spreadsheet takes for a formula."""
  return [f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
          for cell in map(str, values)]


class LogSummary:
  """Counts what a log holds, group after group of whole requests.

  Attributes:
    requests: how many there are in each part, by name.
    rows: likewise.
    cut: rows that were left out, since their requests had more than are kept.
    duplicates: rows left out that equal another one in all that is read.
    merged: other rows left out, of an item that has a row at that position of
      the request, such as rows of clicks beside those of impressions.
    longest: rows of the longest request.
    single: requests of one row.
    without_feedback: requests without feedback.
    informative: requests that have rows with feedback and rows without.
    is_binary: whether all feedback is 0 or 1.
    counts: by context id and position from 1, an array of the rows, those with
      feedback, and the sum of their feedback.
  """

  def __init__(self):
    self.requests = collections.Counter()
    self.rows = collections.Counter()
    self.cut = self.duplicates = self.merged = 0
    self.longest = self.single = 0
    self.without_feedback = self.informative = 0
    self.is_binary = True
    self.counts = {}

  def add(self, part, rows, starts):
    """Adds sorted `Rows` of a part.

    Args:
      part: its name.
      rows: `Rows` with positions from 1.
      starts: where each request starts, and the number of rows.
    """
    sizes = np.diff(starts)
    self.requests[part] += len(sizes)
    self.rows[part] += len(rows.request)
    if not len(sizes):
      return
    self.longest = max(self.longest, int(sizes.max()))
    self.single += int((sizes == 1).sum())
    clicked = np.add.reduceat((rows.feedback > 0).astype(int), starts[:-1])
    self.without_feedback += int((clicked == 0).sum())
    self.informative += int(((clicked > 0) & (clicked < sizes)).sum())
    self.is_binary &= bool(np.isin(rows.feedback, (0.0, 1.0)).all())
    key = rows.context.astype(np.int64) * (1 << 32) + rows.position
    keys, inverse = np.unique(key, return_inverse=True)
    shown = np.bincount(inverse)
    with_feedback = np.bincount(inverse, rows.feedback > 0)
    feedback = np.bincount(inverse, rows.feedback)
    self._add_counts({
        (int(k >> 32), int(k & 0xffffffff)): _exact(np.array(cell, np.float64))
        for k, *cell in zip(keys, shown, with_feedback, feedback)})

  def merge(self, other):
    """Adds the `LogSummary` of other requests."""
    self.requests.update(other.requests)
    self.rows.update(other.rows)
    for name in ("cut", "duplicates", "merged", "single", "without_feedback",
                 "informative"):
      setattr(self, name, getattr(self, name) + getattr(other, name))
    self.longest = max(self.longest, other.longest)
    self.is_binary &= other.is_binary
    self._add_counts(other.counts)

  def _add_counts(self, counts):
    for key, cell in counts.items():
      self.counts[key] = self.counts.get(key, 0) + cell

  def to_config(self, contexts, positions, rejections, statistics, mixed):
    """The summary, ready for JSON.

    Args:
      contexts: names by id.
      positions: positions as in the log, in order.
      rejections: `RejectionCounts`.
      statistics: `FeatureStatistics` of the training part.
      mixed: as in `RowReader.mixed`.

    Returns:
      A dict.
    """
    by_context = {}
    for c, context in enumerate(contexts or ["all"]):
      cells = [self.counts.get((c, k), np.zeros(3))
               for k in range(1, len(positions) + 1)]
      by_context[context] = {
          "shown": [int(cell[0]) for cell in cells],
          "clicked": [int(cell[1]) for cell in cells],
          "with_feedback": [_rate(cell[1], cell[0]) for cell in cells],
          "mean_feedback": [_rate(cell[2], cell[0]) for cell in cells]}
    return {
        "requests": dict(self.requests), "rows": dict(self.rows),
        "longest_request": self.longest,
        **{name: count for name, count in (
            ("cut", self.cut), ("duplicates", self.duplicates),
            ("merged", self.merged)) if count},
        "requests_of_one_row": self.single,
        "requests_without_feedback": self.without_feedback,
        "informative_requests": self.informative,
        "binary_feedback": self.is_binary,
        "rejected": dict(rejections.reasons),
        "rejected_values": rejections.values(),
        "positions": list(positions), "by_position": by_context,
        "numeric_features": statistics.numeric_features,
        "text_features": statistics.text_features,
        "mixed": {name: list(found) for name, found in mixed.items()},
        "missing": statistics.missing()}


def to_text(summary):
  """A summary as lines for people.

  Args:
    summary: what `LogSummary.to_config` gave.

  Returns:
    A text of several lines.
  """
  requests, rows = summary["requests"], summary["rows"]
  total = sum(requests.values())
  lines = [
      f"{sum(rows.values())} rows of {total} requests, at most "
      f"{summary['longest_request']} in one; "
      + ", ".join(f"{count} for {part}" for part, count in requests.items()),
      f"{summary['informative_requests']} requests have rows with and rows "
      "without feedback, which tell what is better; "
      f"{summary['requests_without_feedback']} have no feedback, "
      f"{summary['requests_of_one_row']} have one row only"]
  if "cut" in summary:
    lines.append(f"cut: {summary['cut']} rows of longer requests")
  if "duplicates" in summary:
    lines.append(f"duplicates: {summary['duplicates']} rows, which others equal"
                 " in all that is read")
  if "merged" in summary:
    lines.append(
        f"merged: {summary['merged']} rows of an item that has one at the same "
        "position of the request; its largest feedback counts")
  read = sum(rows.values()) + sum(summary["rejected"].values())
  for reason, count in sorted(summary["rejected"].items(),
                              key=lambda pair: -pair[1]):
    value = summary["rejected_values"].get(reason)
    lines.append(
        f"rejected: {count} rows, {reason}" + (
            "" if value is None else f", such as {value!r:.60}") +
        f" ({count / read:.1%})")
  for kind, names in (("numbers", summary["numeric_features"]),
                      ("texts", summary["text_features"])):
    if names:
      more = f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
      lines.append(f"{kind}: {', '.join(names[:_SHOWN])}{more}")
  for name, (share, example) in summary["mixed"].items():
    lines.append(
        f"a text or a number: {name}, of whose values {share:.1%} are numbers, "
        f"such as {example!r:.60}; it is a text, unless `numbers` names it")
  for name, share in summary["missing"].items():
    if share:
      lines.append(f"missing: {share:.1%} of {name}")
  lines += ["", *_counts(summary)]
  return output.printable("\n".join(lines))


def _counts(summary):
  """Lines of a table of counts by position, two for each context."""
  table = [["by position", "", *summary["positions"][:_SHOWN]]]
  for context, cells in summary["by_position"].items():
    table += [
        [context[:12], "with feedback", *cells["clicked"][:_SHOWN]],
        ["", "of rows", *cells["shown"][:_SHOWN]]]
  return output.align([[str(cell) for cell in row] for row in table])


def _rate(part, whole):
  return float(part / whole) if whole else None


class FeatureStatistics:
  """Gathers statistics of features, batch after batch.

  Args:
    numeric_features: their names.
    text_features: their names.
    max_vocabulary: values of a text feature that are told apart; a feature
      with more of them is hashed into so many bins.

  Attributes:
    numeric_features: their names.
    text_features: their names.
    num_rows: so far.
    numbers: `[4, features]`, exact: of each numeric one the rows with a number
      and without, and of the signed logs the sum and the sum of squares.
    empty: by name of a text feature, rows without a text.
    values: by name of a text feature, a counter of its values; None where
      there are more than are told apart.
  """

  def __init__(self, numeric_features, text_features, max_vocabulary=10000):
    self.numeric_features = list(numeric_features)
    self.text_features = list(text_features)
    self._max_vocabulary = max_vocabulary
    self.num_rows, self.empty = 0, dict.fromkeys(text_features, 0)
    self.numbers = _exact(np.zeros([4, len(self.numeric_features)]))
    self.values = {name: collections.Counter() for name in text_features}

  def add(self, rows):
    """Adds training `Rows`."""
    values = rows.numeric.astype(np.float64)
    known = ~np.isnan(values)
    logs = np.where(known, feature_scale.signed_log(values), 0.0)
    self.numbers = self.numbers + _exact(np.array([
        known.sum(axis=0), (~known).sum(axis=0), logs.sum(axis=0),
        np.square(logs).sum(axis=0)], np.float64))
    self.num_rows += len(rows.request)
    for name, column in zip(self.text_features, rows.texts):
      self.empty[name] += pc.sum(pc.equal(column, "")).as_py() or 0
      if self.values[name] is not None:
        found = pc.value_counts(column)
        self._count(name, dict(zip(found.field("values").to_pylist(),
                                   found.field("counts").to_pylist())))

  def merge(self, other):
    """Adds the `FeatureStatistics` of other rows."""
    self.numbers = self.numbers + other.numbers
    self.num_rows += other.num_rows
    for name in self.text_features:
      self.empty[name] += other.empty[name]
      self._count(name, other.values[name])

  def _count(self, name, counts):
    """Adds counts by value of a text feature, None for too many values."""
    counter = self.values[name]
    if counter is not None and counts is not None:
      counter.update(counts)
    if counts is None or counter is not None and (
        len(counter) > self._max_vocabulary):
      # From now on it is hashed; its values need not be kept.
      self.values[name] = None

  def missing(self):
    """The share of rows in which a feature is missing, by its name."""
    counts = dict(zip(self.numeric_features, self.numbers[1])) | self.empty
    return {name: float(count / max(self.num_rows, 1))
            for name, count in counts.items()}

  def to_config(self):
    """The statistics, ready for JSON.

    Returns:
      A dict: "numeric", for each feature its "name", "mean" and "variance"
      after the signed log, the share "missing", and "constant" where it has one
      value or none; "text", for each feature its "name" and either "vocabulary"
      (by falling count) or "bins".
    """
    known, missing, sums, squares = self.numbers.astype(np.float64)
    count = np.maximum(known, 1.0)
    mean = sums / count
    variance = squares / count - np.square(mean)
    rows = np.maximum(known + missing, 1.0)
    varies = variance > feature_scale.MIN_VARIANCE
    text = []
    for name, counter in self.values.items():
      if counter is None:
        text.append({"name": name, "bins": self._max_vocabulary})
      else:
        ordered = sorted(counter, key=lambda v, c=counter: (-c[v], v))
        text.append({"name": name, "vocabulary": ordered})
    return {
        "numeric": [
            {"name": name, "mean": float(mean[i]),
             "missing": float(missing[i] / rows[i]),
             **({"variance": float(variance[i])} if varies[i] else
                {"variance": 1.0, "constant": True})}
            for i, name in enumerate(self.numeric_features)],
        "text": text}
