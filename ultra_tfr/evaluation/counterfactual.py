"""Evaluation of rankers on logged feedback, without labels.

Rankers are judged by what the log says about the items they put on top, with
the bias of the logged positions taken out (`core.counterfactual`):

*   `dcg@n`: mean over requests of the sum of estimate / log2(1 + rank): IPS,
    unbiased if the propensities are right and `max_weight` is None.
*   `snips_dcg@n`: that sum divided by the sum of the estimates: the mean
    discount of a unit of feedback. A little biased, with less variance; at most
    1, if there is no p0.
*   `ndcg@n`: mean DCG over mean ideal DCG, a ratio of sums. The ideal is that
    of the same estimates; as a maximum over orders it is biased upwards. So
    NDCG compares rankers on one log, and is no absolute number.
*   `arp`: the average rank of a unit of feedback; lower is better. No cutoff.
*   `mrr@n`, `snips_mrr@n`: as DCG, with 1 / rank in place of the discount. Each
    item with feedback counts as the one that was sought, also where a request
    has several, so that `mrr@n` may exceed 1.

NDCG and ARP are self-normalised as they are. The self-normalised estimators
divide by the sum of all estimates: for clicks, the sum of the inverse
propensities of the clicked items; with p0, the sum of (click - p0) w over all
items.

With p0, noise may carry a sum below 0 or a ratio anywhere. The true values have
a range, so values and ends of intervals are held to it: 0 to 1 for NDCG and the
self-normalised ones, 1 to the longest list for ARP, and at least 0 for others.

Intervals are percentiles over drawn requests, widened for the few requests that
decide (`bootstrap.widened`). There are none below `ENOUGH` effective requests.
With g the sum of the estimates of a request, these are (sum g)^2 / sum g^2,
which is also the squared ratio of the total to its noise. In simulations
with 30, 100 and 1,000 clicks the intervals of 90 % then hold the truth in 91 to
95 % of the cases, and those of the difference of two equally good rankers
exclude 0 in 3 to 7 % (tests/worlds/test_counterfactual_simulation.py).

Sources: Joachims, Swaminathan & Schnabel, WSDM 2017; Swaminathan & Joachims,
"The Self-Normalized Estimator for Counterfactual Learning", NeurIPS 2015;
Agarwal et al., WWW 2019 and Vardasbi et al., CIKM 2020 (p0).
"""

import dataclasses
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr.core import counterfactual
from ultra_tfr.evaluation import bootstrap

# Fewer effective requests than this are too few to judge by.
ENOUGH = 10.0
_WITH_CUTOFF = ("dcg", "snips_dcg", "ndcg", "mrr", "snips_mrr")
_MIN_CLICK = 1e-6
# Requests whose bootstrap draws are in memory at a time.
_DRAWN = 2**14
# Ranks need a table of the pairs of a list: this many pairs at a time.
_PAIRS = 2**20


@dataclasses.dataclass(frozen=True)
class LogEvaluation:
  """What a log says about a ranker.

  Attributes:
    estimates: `bootstrap.Estimate` by name, see the module; with standard
      errors, which like intervals are NaN if there is too little feedback.
    num_requests: requests with at least one item that counts.
    num_requests_with_feedback: those with feedback > 0.
    num_items: items that count.
    num_items_with_feedback: those with feedback > 0.
    num_left_out: items with feedback, 0 included, but without a position or
      with p1 = 0, which do not count and are not ranked.
    effective_sample_size: (sum w)^2 / sum w^2 over items with feedback > 0. Far
      below their number, a few heavy items decide.
    clipped_share: the share of weight times feedback that `max_weight` cut.
    effective_requests: how many independent requests with feedback the log
      counts for, see the module; below `ENOUGH` it is too little to judge by.
  """

  estimates: dict[str, bootstrap.Estimate]
  num_requests: int
  num_requests_with_feedback: int
  num_items: int
  num_items_with_feedback: int
  num_left_out: int
  effective_sample_size: float
  clipped_share: float
  effective_requests: float


@dataclasses.dataclass(frozen=True, eq=False)
class ClickLikelihood:
  """How well predictions fit clicks; without data everything is NaN.

  Attributes:
    log_likelihood: the mean over items, natural logarithm.
    perplexity: 2 to the mean over items of -log2 P(what happened): 1 for
      certain and right, 2 for a coin's toss.
    by_position: float64 `[K]`, the perplexity at positions 1 to the last one.
  """

  log_likelihood: float
  perplexity: float
  by_position: np.ndarray


def evaluate_log(scores, feedback, positions, click_relevant,
                 click_irrelevant=None, *, topn=(3, 5, 10), scale=1.0,
                 max_weight=None, weights=None, level=0.9, replicates=200,
                 seed=0):
  """Evaluates a ranker on a log that is in memory.

  For a log that comes in batches, see `LogTotals` and `summarize`.

  Args:
    scores: `[N, L]`, the highest ranks first. Of equal scores the item with the
      smallest estimate ranks first, so a constant score is never rewarded.
    feedback: `[N, L]`, see `LogTotals.update`, as for the next three.
    positions: `[N, L]`.
    click_relevant: `[N, L]`.
    click_irrelevant: `[N, L]` or None.
    topn: the cutoffs.
    scale: a number, `[N, 1]` or `[N, L]`, see `LogTotals.update`.
    max_weight: cap of the inverse propensities after scaling, or None.
    weights: `[N, 1]`, `[N, L]` or None, see `LogTotals.update`.
    level: see `summarize`, as for the next two.
    replicates: a number.
    seed: an int.

  Returns:
    A `LogEvaluation`.

  Raises:
    ValueError: if a shape or a value does not fit.

  >>> log = {"feedback": [[1, 0], [0, 1]], "positions": [[1, 2], [1, 2]],
  ...        "click_relevant": [[1.0, 0.5], [1.0, 0.5]]}
  >>> found = evaluate_log([[2.0, 1.0], [2.0, 1.0]], **log, topn=(2,))
  >>> found.estimates["arp"].value, found.effective_sample_size
  (1.6666666666666667, 1.8)
  """
  totals = LogTotals(topn=topn, max_weight=max_weight)
  totals.update(scores, feedback, positions, click_relevant, click_irrelevant,
                scale=scale, weights=weights)
  return summarize(totals, level=level, replicates=replicates, seed=seed)


def summarize(totals, *, level=0.9, replicates=200, seed=0):
  """What a log says about a ranker.

  Args:
    totals: `LogTotals` of the ranker.
    level: the share of bootstrap replicates in the interval.
    replicates: how many replicates there are.
    seed: an int, for drawing requests.

  Returns:
    A `LogEvaluation`.

  Raises:
    ValueError: if an argument is out of range.
  """
  counts = totals.counts()
  return LogEvaluation(
      _estimates([totals], level, replicates, seed),
      int(counts.requests), int(counts.requests_with_feedback),
      int(counts.items), int(counts.items_with_feedback),
      int(counts.left_out),
      float(_ratio(counts.weight**2, counts.squared_weight, 0.0)),
      float(_ratio(counts.clipped, counts.feedback, 0.0)),
      _effective_requests(totals.table()))


def compare(totals, baseline, *, level=0.9, replicates=200, seed=0):
  """One ranker minus another, on the same requests.

  The draws of requests are shared, so what both rankers have in common does
  not widen the intervals.

  Args:
    totals: `LogTotals` of the ranker.
    baseline: `LogTotals` of the other, with the same settings and log.
    level: as in `summarize`.
    replicates: as in `summarize`.
    seed: as in `summarize`.

  Returns:
    A dict of `Estimate` of the differences, by name; without intervals where
    there are too few effective requests, which are the same for both.

  Raises:
    ValueError: if settings or requests differ.

  >>> rankers = LogTotals(topn=(1,)), LogTotals(topn=(1,))
  >>> for totals, scores in zip(rankers, ([[2.0, 1.0]], [[1.0, 2.0]])):
  ...   totals.update(scores, [[1, 0]], [[1, 2]], [[1.0, 0.5]])
  >>> compare(*rankers)["arp"].value
  -1.0
  """
  settings = [(t.topn, t.max_weight) for t in (totals, baseline)]
  if settings[0] != settings[1]:
    raise ValueError(
        "`baseline` must have the `topn` and `max_weight` of `totals`, "
        f"{settings[0]}, but has {settings[1]}; build both alike.")
  tables = [t.table() for t in (totals, baseline)]
  # Weight and gain of a request come from the log, not from the scores.
  if len(tables[0]) != len(tables[1]) or not np.allclose(
      tables[0][:, :2], tables[1][:, :2]):
    raise ValueError(
        "`baseline` must have the requests of `totals` in the same order, but "
        f"has {len(tables[1])} of {len(tables[0])}, or with other feedback; "
        "update both with the same log.")
  return _estimates([totals, baseline], level, replicates, seed)


def _estimates(rankers, level, replicates, seed):
  """The `Estimate`s of one ranker, or the differences of two, by name."""
  checks.check_level(level)
  replicates = checks.check_count("replicates", replicates, least=2)
  tables = np.stack([totals.table() for totals in rankers], axis=1)
  bounds = _bounds(rankers)
  sums = tables.sum(axis=0)
  values = _difference(np.clip(_values(sums), *bounds))
  drawn = _difference(np.clip(
      _values(_drawn_sums(tables, replicates, seed)), *bounds))
  low, high = bootstrap.widened(
      values, *bootstrap.interval(
          drawn, bootstrap.cautious_level(level, replicates)),
      _effective_sizes(tables, sums), level)
  if len(rankers) > 1:
    bounds = bounds[0] - bounds[1], bounds[1] - bounds[0]
  known = np.isfinite(low) & (_effective_requests(tables[:, 0]) >= ENOUGH)
  error = np.nanstd(np.where(known, drawn, 0.0), axis=0, ddof=1)
  names = [f"{name}@{n}" for name in _WITH_CUTOFF for n in rankers[0].topn]
  ends = np.where(
      known, [*np.clip([low, high], *bounds), error], np.nan).T.tolist()
  return {name: bootstrap.Estimate(value, *row) for name, value, row in zip(
      [*names, "arp"], values.tolist(), ends)}


def _bounds(rankers):
  """The least and the greatest value that each metric can have, `[E]` each."""
  size = len(rankers[0].topn)
  longest = max(1, *(totals.longest for totals in rankers))
  high = np.repeat([np.inf, 1.0, 1.0, np.inf, 1.0], size)
  return np.append(np.zeros(5 * size), 1.0), np.append(high, float(longest))


def _effective_requests(table):
  """`LogEvaluation.effective_requests` of a `LogTotals.table`."""
  return float(bootstrap.effective_size(split_columns(table)[1].gain)[0])


def _effective_sizes(tables, sums):
  """How many requests decide how far each estimate is off, `[E]`.

  Kish's size of the squares of what each request adds to the error (delta
  method), from tables `[N, R, M]` of R rankers and their sums over requests.
  """
  values, (_, whole) = _values(sums), _fractions(sums)
  squares, fourth = 0.0, 0.0
  for start in range(0, len(tables), _DRAWN):
    parts, wholes = _fractions(tables[start:start + _DRAWN])
    error = np.square(_difference(_ratio(1.0, whole) * (
        parts - values * wholes)))
    squares += error.sum(axis=0)
    fourth += np.square(error).sum(axis=0)
  return _ratio(np.square(squares), fourth, 1.0)


def _drawn_sums(tables, replicates, seed):
  """Sums over drawn requests, `[B, R, M]`, of tables `[N, R, M]`."""
  sums = np.zeros([replicates, np.prod(tables.shape[1:])])
  for start in range(0, len(tables), _DRAWN):
    rows = tables[start:start + _DRAWN]
    counts = bootstrap.resample(len(rows), replicates, seed=[seed, start])
    sums += counts.astype(np.float64) @ rows.reshape([len(rows), -1])
  return sums.reshape([replicates, *tables.shape[1:]])


def _fractions(sums):
  """Numerators and denominators of estimates, `[.., E]`, from table sums."""
  requests, totals = split_columns(sums)
  requests, gain = (part + np.zeros_like(totals.dcg)
                    for part in (requests, totals.gain))
  return (
      np.concatenate([totals.dcg] * 3 + [totals.reciprocal_rank] * 2 +
                     [totals.rank], axis=-1),
      np.concatenate([requests, gain, totals.ideal_dcg, requests, gain,
                      totals.gain], axis=-1))


def _values(sums):
  """Estimates `[.., E]` from sums of `LogTotals.table` over requests."""
  return _ratio(*_fractions(sums))


def _difference(values):
  """The first ranker minus the second, of `[.., R, E]`; R may be 1."""
  return values[..., 0, :] - values[..., 1:, :].sum(axis=-2)


def _ratio(numerator, denominator, otherwise=np.nan):
  seen = np.greater(denominator, 0)
  return np.where(
      seen, numerator / np.where(seen, denominator, 1.0), otherwise)


def click_likelihood(feedback, click_probability, positions, weights=None):
  """How well predicted probabilities of clicks fit the clicks of a log.

  Predictions are kept between 1e-6 and 1 - 1e-6.

  Args:
    feedback: `[N, L]`, a click where > 0, negative or NaN for padding.
    click_probability: `[N, L]`, the predicted P(feedback > 0).
    positions: `[N, L]`, 1-based display positions; items with 0 are left out.
    weights: `[N, L]` of the items, or None. Items with 0 are left out.

  Returns:
    A `ClickLikelihood`; with weights all means are weighted.

  Raises:
    ValueError: if a shape or a probability is not as above.

  Source: Dupret & Piwowarski, "A User Browsing Model to Predict Search Engine
  Click Data from Past Observations", SIGIR 2008 (perplexity by position).

  >>> click_likelihood([[1, 0]], [[0.5, 0.75]], [[1, 3]]).by_position.tolist()
  [2.0, nan, 4.0]
  """
  feedback = checks.check_lists("feedback", feedback)
  positions = checks.check_lists("positions", positions, feedback.shape)
  probability = checks.check_lists(
      "click_probability", click_probability, feedback.shape)
  weights = np.ones(feedback.shape) if weights is None else checks.check_lists(
      "weights", weights, feedback.shape)
  mask = valid_items(feedback) & (positions >= 1) & (weights != 0)
  checks.check_values(
      "weights", weights, ~(np.isfinite(weights) & (weights >= 0)),
      "be at least 0", "0 leaves an item out")
  checks.check_values(
      "click_probability", probability,
      mask & ~((probability >= 0) & (probability <= 1)),
      "be in [0, 1]", "give probabilities, not logits")
  clicked, places = feedback[mask] > 0, positions[mask].astype(np.int64) - 1
  weights = weights[mask]
  right = np.where(clicked, probability[mask], 1.0 - probability[mask])
  bits = -np.log2(np.clip(right, _MIN_CLICK, 1.0 - _MIN_CLICK)) * weights
  by_position = _ratio(
      np.bincount(places, bits), np.bincount(places, weights))
  mean = float(_ratio(bits.sum(), weights.sum()))
  return ClickLikelihood(
      float(-mean * np.log(2.0)), 2.0**mean, 2.0**by_position)


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
    clipped: how much of weight times feedback `max_weight` took away.
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

  Attributes:
    longest: the most items of a request that count.

  Raises:
    ValueError: if an argument is out of range.

  >>> totals = LogTotals(topn=(1,))
  >>> for _ in range(3):
  ...   totals.update([[2.0, 1.0]], [[1, 0]], [[2, 1]], [[0.5, 1.0]])
  >>> totals.table()[:, 3].tolist()
  [2.0, 2.0, 2.0]
  """

  def __init__(self, *, topn=(3, 5, 10), max_weight=None):
    self.topn = tuple(checks.check_count("topn", n) for n in topn)
    checks.check_max_weight(max_weight)
    self.max_weight = max_weight
    self.longest = 0
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
    for rows in row_blocks(log.mask.shape):
      self._add(log.rows(rows))

  def _add(self, log):
    estimates, kept, clipped = counterfactual.relevance_estimates(
        log.feedback, log.mask, log.click_relevant, log.click_irrelevant,
        scale=log.scale, max_weight=self.max_weight)
    totals = counterfactual.request_totals(
        tf.constant(log.scores), estimates * log.weights, log.mask, self.topn)
    request_weights = (
        log.weights.sum(axis=1) / np.maximum(log.mask.sum(axis=1), 1))
    self._tables.append(np.column_stack([request_weights, *totals]))
    self.longest = max(self.longest, int(
        log.mask.sum(axis=1).max(initial=0)))
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

  def rows(self, rows):
    """The requests of a slice."""
    return _Log(*(None if array is None else array[rows] for array in self))


def _checked_log(scores, feedback, positions, click_relevant, click_irrelevant,
                 scale, weights):
  """The arguments of `LogTotals.update` as a `_Log`, or a `ValueError`."""
  feedback = checks.check_lists("feedback", feedback)
  shape = feedback.shape
  scores = checks.check_lists("scores", scores, shape)
  positions = checks.check_lists("positions", positions, shape)
  click_relevant = checks.check_lists("click_relevant", click_relevant, shape)
  valid = valid_items(feedback)
  checks.check_values(
      "click_relevant", click_relevant, valid & ~(
          np.isfinite(click_relevant) & (click_relevant >= 0)),
      "hold probabilities", "0 leaves an item out")
  mask = valid & (positions >= 1) & (click_relevant > 0)
  checks.check_values(
      "scores", scores, mask & ~np.isfinite(scores), "be finite",
      "the ranker has diverged, or lacks items of the log")
  if click_irrelevant is not None:
    click_irrelevant = checks.check_lists(
        "click_irrelevant", click_irrelevant, shape)
    checks.check_values(
        "click_irrelevant", click_irrelevant, mask & ~(
            (click_irrelevant >= 0) & (click_irrelevant <= click_relevant)),
        "be from 0 to `click_relevant`",
        "relevant items are not clicked less than others")
    checks.check_values(
        "feedback", feedback, mask & (feedback != 0) & (feedback != 1),
        "be 0 or 1 with `click_irrelevant`, which is a chance of clicks",
        "leave `click_irrelevant` out, or evaluate `feedback > 0`")
  scale = checks.check_lists_or_number("scale", scale, shape)
  checks.check_values(
      "scale", scale, mask & ~(np.isfinite(scale) & (scale > 0)),
      "be greater than 0",
      "give `click_relevant` at position 1, minus `click_irrelevant` there")
  weights = checks.check_lists_or_number(
      "weights", 1.0 if weights is None else weights, shape)
  checks.check_values(
      "weights", weights, mask & ~(np.isfinite(weights) & (weights >= 0)),
      "be at least 0", "0 leaves a request or an item out")
  return _Log(
      mask, valid & ~mask, scores, feedback, click_relevant, click_irrelevant,
      scale, np.where(mask, weights, 0.0))


def row_blocks(shape):
  """Slices of requests, so many at a time that their pairs fit into memory.

  Args:
    shape: (requests, items).

  Returns:
    A list of slices, in order.

  >>> row_blocks((3, 1024))
  [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
  """
  num_requests, size = shape
  rows = max(1, _PAIRS // max(1, size)**2)
  return [slice(start, min(start + rows, num_requests))
          for start in range(0, num_requests, rows)]


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
