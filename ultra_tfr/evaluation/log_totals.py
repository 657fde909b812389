"""A click log, reduced to a few numbers a request.

Everything that counterfactual evaluation reports is computed from sums over
requests. So logs can be streamed, and the bootstrap never sees an item.
"""

from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr.core import counterfactual

# Ranks need a table of the pairs of a list: this many pairs at a time.
_PAIRS = 2**20


class Counts(NamedTuple):
  """Sums over the whole log.

  Attributes:
    requests: with at least one item that counts.
    requests_with_feedback: those with feedback > 0.
    items: that count.
    items_with_feedback: those with feedback > 0.
    left_out: items with feedback, 0 included, but no known propensity.
    weight: the sum of w over items with feedback > 0, times item weights.
    squared_weight: the sum of their squares.
    clipped: what `max_weight` took of weight times feedback.
    feedback: weight times feedback without `max_weight`.
  """

  requests: float
  requests_with_feedback: float
  items: float
  items_with_feedback: float
  left_out: float
  weight: float
  squared_weight: float
  clipped: float
  feedback: float


class LogTotals:
  """Totals by request of a ranker on a log that comes in batches.

  Keeps 3 + 3T numbers a request, T the number of cutoffs.

  Args:
    topn: the cutoffs.
    max_weight: cap of the inverse propensities after scaling, or None.

  Raises:
    ValueError: if an argument is out of range.

  >>> totals = LogTotals(topn=(1,))
  >>> for _ in range(3):
  ...   totals.update([[2.0, 1.0]], [[1, 0]], [[2, 1]], [[0.5, 1.0]])
  >>> totals.table()[:, 3].tolist()
  [2.0, 2.0, 2.0]
  """

  def __init__(self, *, topn=(3, 5, 10), max_weight=None):
    self.topn = tuple(checks.positive("topn", n) for n in topn)
    if max_weight is not None and not max_weight > 0:
      raise ValueError(
          f"`max_weight` must be greater than 0, but is {max_weight}; None "
          "clips nothing.")
    self.max_weight = max_weight
    self._tables = [np.zeros([0, 3 + 3 * len(self.topn)])]
    self._counts = np.zeros(len(Counts._fields))

  def update(self, scores, feedback, positions, click_relevant,
             click_irrelevant=None, *, scale=1.0, weights=None):
    """Adds a batch of requests.

    Args:
      scores: `[N, L]`, the highest ranks first.
      feedback: `[N, L]`, negative or NaN for padding; items in any order. With
        `click_irrelevant` 0 or 1.
      positions: `[N, L]`, 1-based display positions, 0 for unknown.
      click_relevant: `[N, L]`, p1 at each item's position; without trust bias
        the propensity. Items with 0 are left out.
      click_irrelevant: `[N, L]`, p0 at each item's position, or None for 0.
      scale: p1 at position 1 (minus p0 there, with `click_irrelevant`), a
        number, `[N, 1]` or `[N, L]`; then estimates mean feedback at position
        1. The default is right for p1 relative to position 1.
      weights: `[N, 1]` weights of requests or `[N, L]` of items, or None. A
        request counts by the mean weight of its items.

    Raises:
      ValueError: if a shape or a value is not as above.
    """
    log = _checked_log(scores, feedback, positions, click_relevant,
                       click_irrelevant, scale, weights)
    num_requests, size = log.mask.shape
    rows = max(1, _PAIRS // max(1, size)**2)
    for start in range(0, num_requests, rows):
      self._add(log.rows(start, start + rows))

  def _add(self, log):
    estimates, kept, clipped = counterfactual.relevance_estimates(
        log.feedback, log.mask, log.click_relevant, log.click_irrelevant,
        scale=log.scale, max_weight=self.max_weight)
    totals = counterfactual.request_totals(
        tf.constant(log.scores), estimates * log.weights, log.mask, self.topn)
    request_weights = (
        log.weights.sum(axis=1) / np.maximum(log.mask.sum(axis=1), 1))
    self._tables.append(np.column_stack([request_weights, *totals]))
    clicked = log.mask & (log.feedback > 0)
    weight = (kept.numpy() * log.weights)[clicked]
    clipped = np.sum(clipped.numpy() * log.weights)
    self._counts += Counts(
        requests=log.mask.any(axis=1).sum(),
        requests_with_feedback=clicked.any(axis=1).sum(),
        items=log.mask.sum(), items_with_feedback=clicked.sum(),
        left_out=log.left_out.sum(), weight=weight.sum(),
        squared_weight=(weight**2).sum(), clipped=clipped,
        feedback=clipped + weight @ log.feedback[clicked])

  def table(self):
    """The totals as float64 `[N, 3 + 3T]`.

    Returns:
      The columns of the request, see `split_columns`.
    """
    return np.concatenate(self._tables)

  def counts(self):
    """The sums over the whole log, as `Counts`."""
    return Counts(*self._counts.tolist())


def split_columns(table):
  """What the columns of `LogTotals.table`, or of sums of its rows, mean.

  Args:
    table: `[.., 3 + 3T]`.

  Returns:
    The weight of the request, `[.., 1]`, and `RequestTotals` (of
    `core.counterfactual`) of arrays, `[.., 1]` without a cutoff and `[.., T]`
    with one.

  >>> weight, totals = split_columns(np.arange(6.0))
  >>> weight, totals.dcg
  (array([0.]), array([3.]))
  """
  weight, gain, rank = np.split(table[..., :3], 3, axis=-1)
  return weight, counterfactual.RequestTotals(
      gain, rank, *np.split(table[..., 3:], 3, axis=-1))


class _Log(NamedTuple):
  """Requests of a log with the scores of a ranker, each `[N, L]`, float64.

  Attributes:
    mask: booleans, the items that count.
    left_out: booleans, items with feedback but no known propensity.
    scores: of the ranker, finite where the mask is.
    feedback: >= 0 where the mask is.
    click_relevant: p1, > 0 where the mask is.
    click_irrelevant: p0 <= p1 where the mask is, or None.
    scale: > 0 where the mask is.
    weights: >= 0, and 0 outside the mask.
  """

  mask: np.ndarray
  left_out: np.ndarray
  scores: np.ndarray
  feedback: np.ndarray
  click_relevant: np.ndarray
  click_irrelevant: Optional[np.ndarray]
  scale: np.ndarray
  weights: np.ndarray

  def rows(self, start, stop):
    """The requests from `start` to before `stop`."""
    return _Log(
        *(None if array is None else array[start:stop] for array in self))


def _checked_log(scores, feedback, positions, click_relevant, click_irrelevant,
                 scale, weights):
  """The arguments of `LogTotals.update` as a `_Log`, or a `ValueError`."""
  feedback = lists("feedback", feedback)
  shape = feedback.shape
  scores = lists("scores", scores, shape)
  positions = lists("positions", positions, shape)
  click_relevant = lists("click_relevant", click_relevant, shape)
  valid = valid_items(feedback)
  check_values(
      "click_relevant", click_relevant, valid & ~(
          np.isfinite(click_relevant) & (click_relevant >= 0)),
      "hold probabilities", "0 leaves an item out")
  mask = valid & (positions >= 1) & (click_relevant > 0)
  check_values("scores", scores, mask & ~np.isfinite(scores), "be finite",
               "the ranker has diverged, or lacks items of the log")
  if click_irrelevant is not None:
    click_irrelevant = lists("click_irrelevant", click_irrelevant, shape)
    check_values(
        "click_irrelevant", click_irrelevant, mask & ~(
            (click_irrelevant >= 0) & (click_irrelevant <= click_relevant)),
        "be from 0 to `click_relevant`",
        "relevant items are not clicked less than others")
    check_values(
        "feedback", feedback, mask & (feedback != 0) & (feedback != 1),
        "be 0 or 1 with `click_irrelevant`, which is a chance of clicks",
        "leave `click_irrelevant` out, or evaluate `feedback > 0`")
  scale = _broadcast("scale", scale, shape)
  check_values(
      "scale", scale, mask & ~(np.isfinite(scale) & (scale > 0)),
      "be greater than 0",
      "give `click_relevant` at position 1, minus `click_irrelevant` there")
  weights = _broadcast("weights", 1.0 if weights is None else weights, shape)
  check_values(
      "weights", weights, mask & ~(np.isfinite(weights) & (weights >= 0)),
      "be at least 0", "0 leaves a request or an item out")
  return _Log(
      mask, valid & ~mask, scores, feedback, click_relevant, click_irrelevant,
      scale, np.where(mask, weights, 0.0))


def valid_items(feedback):
  """Booleans: the items that are no padding, as in `core.masking`.

  Args:
    feedback: an array; negative, NaN or infinite marks padding.

  Returns:
    Booleans of its shape.

  >>> valid_items(np.array([1.0, 0.0, -1.0, np.nan])).tolist()
  [True, True, False, False]
  """
  return np.isfinite(feedback) & (feedback >= 0)


def lists(name, values, shape=None):
  """A float64 array of the shape [requests, items], or a `ValueError`.

  Args:
    name: of the argument.
    values: array-like.
    shape: the shape that it must have, that of the feedback; None for any.

  Returns:
    A float64 array.

  >>> lists("feedback", [[1, 0]])
  array([[1., 0.]])
  """
  array = np.asarray(values, np.float64)
  if shape is None and array.ndim != 2:
    raise ValueError(
        f"`{name}` must have the shape [requests, items], but has the shape "
        f"{list(array.shape)}; pad the requests to one length with -1.")
  if shape is not None:
    checks.check_shape(name, array, shape, "that of `feedback`")
  return array


def _broadcast(name, values, shape):
  array = np.asarray(values, np.float64)
  if array.shape not in ((), (shape[0], 1), shape):
    raise ValueError(
        f"`{name}` must be a number or have the shape {[shape[0], 1]} or "
        f"{list(shape)}, but has the shape {list(array.shape)}; add an axis of "
        "1 to values of requests.")
  return np.broadcast_to(array, shape)


def check_values(name, values, is_wrong, expected, remedy):
  """Raises a `ValueError` that names the first wrong value, if there is one.

  Args:
    name: of the argument.
    values: an array.
    is_wrong: booleans of its shape.
    expected: what comes after "must".
    remedy: what to do about it.
  """
  if np.any(is_wrong):
    index = tuple(np.argwhere(is_wrong)[0].tolist())
    raise ValueError(f"`{name}` must {expected}, but {name}{list(index)} is "
                     f"{values[index]}; {remedy}.")
