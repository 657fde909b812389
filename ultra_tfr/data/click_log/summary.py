"""What is in a click log: counts, rates by position, and rejected rows."""

import collections
import contextlib
import csv
import os

import numpy as np
import pyarrow.compute as pc

from ultra_tfr import output
from ultra_tfr.core import feature_scale

# At most so many names of features, or positions, are in a line.
_SHOWN = 20


class Rejections:
  """Writes rejected rows to a file, and counts them by reason.

  Args:
    path: a CSV file to write, with the columns source, row and reason; None to
      count only. If no row is rejected, it is written only to replace an older
      file. It is there after `close`.
    examples: by reason, a value and a remedy, as in `RowReader.examples`.

  Attributes:
    reasons: counts by reason.
  """

  def __init__(self, path=None, examples=None):
    self._path, self._rows = path, None
    self._files = contextlib.ExitStack()
    self._places, self._examples = {}, {} if examples is None else examples
    self.reasons = collections.Counter()
    if path is not None and os.path.exists(path):
      self._open()

  def add(self, rejected):
    """Adds (source, row, reason) triples."""
    self.reasons.update(reason for _, _, reason in rejected)
    for source, row, reason in rejected:
      self._places.setdefault(reason, (source, row))
    if self._path is None or not rejected:
      return
    if self._rows is None:
      self._open()
    self._rows.writerows(map(_cells, rejected))

  def _open(self):
    self._rows = csv.writer(
        self._files.enter_context(output.new_file(self._path)))
    self._rows.writerow(["source", "row", "reason"])

  @property
  def count(self):
    """Rejected rows so far."""
    return sum(self.reasons.values())

  def close(self):
    """Ends the file."""
    self._files.close()

  def check(self, num_rows, max_share):
    """Raises a `ValueError` if too large a share of rows is rejected, or all.

    Args:
      num_rows: all rows read, rejected ones included.
      max_share: the largest share that is accepted.
    """
    if self.count <= max_share * num_rows and self.count < num_rows:
      return
    reason, times = self.reasons.most_common(1)[0]
    source, row = self._places[reason]
    value, remedy = self._examples.get(reason, (None, ""))
    shown = "" if value is None else f", such as {value!r:.60}"
    listing = (f"{self._path} lists them" if self._path else
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
        value := self._examples.get(reason, (None, ""))[0]) is not None}


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
  """

  def __init__(self):
    self.requests = collections.Counter()
    self.rows = collections.Counter()
    self.cut = self.duplicates = self.merged = 0
    self._longest = 0
    self._single = 0
    self._without_feedback = self._informative = 0
    self._counts = {}
    self._is_binary = True

  @property
  def is_binary(self):
    """Whether all feedback is 0 or 1."""
    return self._is_binary

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
    self._longest = max(self._longest, int(sizes.max()))
    self._single += int((sizes == 1).sum())
    clicked = np.add.reduceat((rows.feedback > 0).astype(int), starts[:-1])
    self._without_feedback += int((clicked == 0).sum())
    self._informative += int(((clicked > 0) & (clicked < sizes)).sum())
    self._is_binary &= bool(np.isin(rows.feedback, (0.0, 1.0)).all())
    key = rows.context.astype(np.int64) * (1 << 32) + rows.position
    keys, inverse = np.unique(key, return_inverse=True)
    shown = np.bincount(inverse)
    with_feedback = np.bincount(inverse, rows.feedback > 0)
    feedback = np.bincount(inverse, rows.feedback)
    for i, k in enumerate(keys):
      cell = self._counts.setdefault((int(k >> 32), int(k & 0xffffffff)),
                                     np.zeros(3))
      cell += (shown[i], with_feedback[i], feedback[i])

  def to_config(self, contexts, positions, rejections, statistics, mixed):
    """The summary, ready for JSON.

    Args:
      contexts: names by id.
      positions: positions as in the log, in order.
      rejections: `Rejections`.
      statistics: `FeatureStatistics` of the training part.
      mixed: as in `RowReader.mixed`.

    Returns:
      A dict.
    """
    by_context = {}
    for c, context in enumerate(contexts or ["all"]):
      cells = [self._counts.get((c, k), np.zeros(3))
               for k in range(1, len(positions) + 1)]
      by_context[context] = {
          "shown": [int(cell[0]) for cell in cells],
          "clicked": [int(cell[1]) for cell in cells],
          "with_feedback": [_rate(cell[1], cell[0]) for cell in cells],
          "mean_feedback": [_rate(cell[2], cell[0]) for cell in cells]}
    return {
        "requests": dict(self.requests), "rows": dict(self.rows),
        "longest_request": self._longest,
        **{name: count for name, count in (
            ("cut", self.cut), ("duplicates", self.duplicates),
            ("merged", self.merged)) if count},
        "requests_of_one_row": self._single,
        "requests_without_feedback": self._without_feedback,
        "informative_requests": self._informative,
        "binary_feedback": self._is_binary,
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
  """

  def __init__(self, numeric_features, text_features, max_vocabulary=10000):
    self.numeric_features = list(numeric_features)
    self.text_features = list(text_features)
    self._max_vocabulary = max_vocabulary
    self._rows, self._empty = 0, dict.fromkeys(text_features, 0)
    size = len(self.numeric_features)
    self._count, self._missing = np.zeros(size), np.zeros(size)
    self._sum, self._squares = np.zeros(size), np.zeros(size)
    self._values = {name: collections.Counter() for name in text_features}

  def add(self, rows):
    """Adds training `Rows`."""
    values = rows.numeric.astype(np.float64)
    known = ~np.isnan(values)
    logs = np.where(known, feature_scale.signed_log(values), 0.0)
    self._count += known.sum(axis=0)
    self._missing += (~known).sum(axis=0)
    self._sum += logs.sum(axis=0)
    self._squares += np.square(logs).sum(axis=0)
    self._rows += len(rows.request)
    for name, column in zip(self.text_features, rows.texts):
      self._empty[name] += pc.sum(pc.equal(column, "")).as_py() or 0
      counter = self._values[name]
      if counter is None:
        continue
      found = pc.value_counts(column)
      counter.update(dict(zip(found.field("values").to_pylist(),
                              found.field("counts").to_pylist())))
      if len(counter) > self._max_vocabulary:
        # From now on it is hashed; its values need not be kept.
        self._values[name] = None

  def missing(self):
    """The share of rows in which a feature is missing, by its name."""
    counts = dict(zip(self.numeric_features, self._missing)) | self._empty
    return {name: float(count / max(self._rows, 1))
            for name, count in counts.items()}

  def to_config(self):
    """The statistics, ready for JSON.

    Returns:
      A dict: "numeric", for each feature its "name", "mean" and "variance"
      after the signed log, the share "missing", and "constant" where it has one
      value or none; "text", for each feature its "name" and either "vocabulary"
      (by falling count) or "bins".
    """
    count = np.maximum(self._count, 1.0)
    mean = self._sum / count
    variance = self._squares / count - np.square(mean)
    rows = np.maximum(self._count + self._missing, 1.0)
    varies = variance > feature_scale.MIN_VARIANCE
    text = []
    for name, counter in self._values.items():
      if counter is None:
        text.append({"name": name, "bins": self._max_vocabulary})
      else:
        ordered = sorted(counter, key=lambda v, c=counter: (-c[v], v))
        text.append({"name": name, "vocabulary": ordered})
    return {
        "numeric": [
            {"name": name, "mean": float(mean[i]),
             "missing": float(self._missing[i] / rows[i]),
             **({"variance": float(variance[i])} if varies[i] else
                {"variance": 1.0, "constant": True})}
            for i, name in enumerate(self.numeric_features)],
        "text": text}
