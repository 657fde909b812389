"""Counterfactual estimates: what a ranking is worth, from logged feedback.

Feedback is biased by the position at which an item was shown. Weighted by the
inverse of that bias it estimates, item by item, what does not depend on the
position; and whatever is additive over items, such as DCG, is then estimated
without bias for any other ranking of the same items.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import weights as weights_lib


def relevance_estimates(feedback, mask, click_relevant, click_irrelevant=None,
                        *, scale=1.0, max_weight=None, relevance=None):
  """Feedback with the position's bias taken out, item by item.

      c w           w = min(scale / p1, max_weight)          without p0
      (c - p0) w    w = min(scale / (p1 - p0), max_weight)   with p0

  With p1 = theta, the chance of examination, and scale theta_1 the expectation
  is the feedback as if the item had been shown at position 1. That is
  identified, while theta is only up to a constant. With p0, the chance of a
  click on an irrelevant item, E[c] = p0 + (p1 - p0) beta, and only differences
  are identified; with the scale p1_1 - p0_1 the expectation is the feedback at
  position 1 beyond that of an irrelevant item. Estimates are negative there
  where an item was not clicked.

  The cap makes large weights smaller and so trades variance for bias: towards
  no relevance, which flatters the order that was shown, since what is seldom
  examined stands low in it. A model of relevance takes the place of what the
  cap takes away,

      estimate + beta max(scale - (p1 - p0) w, 0),

  whose expectation is right if the cap does not bind, or if the model is right.

  Args:
    feedback: `[B, L]`, c >= 0. With `click_irrelevant` 0 or 1: what an
      irrelevant item gets on average is a chance of a click, and says nothing
      about the size of other feedback.
    mask: `[B, L]` booleans, the items that count.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position, or None for 0.
    scale: a number, or a tensor that broadcasts to `[B, L]`.
    max_weight: the cap of w, or None. Without it w is capped by
      `masking.MIN_PROBABILITY`, also where p0 is p1.
    relevance: `[B, L]`, by a model: the mean feedback of each item if it is
      examined, for clicks beta; or None for no model.

  Returns:
    A tuple of `[B, L]` tensors, 0 outside the mask: the estimates; w; and
    feedback times what the cap took away from w.

  Source: Joachims, Swaminathan & Schnabel, "Unbiased Learning-to-Rank with
  Biased Feedback", WSDM 2017, equation 5; with p0 Vardasbi, Oosterhuis & de
  Rijke, "When Inverse Propensity Scoring does not Work", CIKM 2020, after
  Agarwal et al., "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW
  2019; with a model Oosterhuis, "Doubly Robust Estimation for Correcting
  Position Bias in Click Feedback for Unbiased Learning to Rank", TOIS 2023.

  >>> estimates, weights, clipped = relevance_estimates(
  ...     tf.constant([[1.0, 1.0, 0.0]]), tf.constant([[True] * 3]),
  ...     tf.constant([[0.8, 0.2, 0.1]]), scale=0.8, max_weight=3.0)
  >>> estimates.numpy().round(4).tolist()
  [[1.0, 3.0, 0.0]]
  >>> clipped.numpy().round(4).tolist()
  [[0.0, 1.0, 0.0]]
  """
  feedback = masking.zero_where_invalid(mask, feedback)
  contrast, surplus = click_relevant, feedback
  if click_irrelevant is not None:
    contrast = click_relevant - click_irrelevant
    surplus = feedback - click_irrelevant
  kept, cut = weights_lib.scale_and_clip(
      1.0 / masking.floor_probability(contrast), scale, max_weight)
  estimates = surplus * kept
  if relevance is not None:
    estimates += relevance * tf.nn.relu(scale - contrast * kept)
  return (masking.zero_where_invalid(mask, estimates),
          masking.zero_where_invalid(mask, kept),
          masking.zero_where_invalid(mask, feedback * cut))


def dcg_discounts(ranks, topn=None):
  """`1 / log2(1 + rank)`, and 0 beyond the cutoff.

  Args:
    ranks: floats of any shape, from 1.
    topn: the last rank that counts, or None.

  Returns:
    Discounts, of the shape of `ranks`.

  >>> dcg_discounts(tf.constant([1.0, 3.0, 4.0]), topn=3).numpy().round(4)
  array([1. , 0.5, 0. ], dtype=float32)
  """
  return _cut(math.log(2.0) / tf.math.log1p(ranks), ranks, topn)


def reciprocal_ranks(ranks, topn=None):
  """`1 / rank`, and 0 beyond the cutoff.

  Args:
    ranks: floats of any shape, from 1.
    topn: the last rank that counts, or None.

  Returns:
    Reciprocals, of the shape of `ranks`.

  >>> reciprocal_ranks(tf.constant([1.0, 2.0, 4.0]), topn=3).numpy()
  array([1. , 0.5, 0. ], dtype=float32)
  """
  return _cut(1.0 / ranks, ranks, topn)


def _cut(values, ranks, topn):
  if topn is None:
    return values
  # A rank that is NaN, of a list without an order, stays NaN.
  return tf.where(ranks > topn, tf.zeros_like(values), values)


class RequestTotals(NamedTuple):
  """Sums over the items of each request, all linear in the estimates.

  Attributes:
    gain: `[B]`, the sum of the estimates.
    rank: `[B]`, the sum of estimate times rank.
    dcg: `[B, T]`, the sum of estimate times discount, for each cutoff.
    ideal_dcg: `[B, T]`, the largest `dcg` of any order of the items.
    reciprocal_rank: `[B, T]`, the sum of estimate over rank.
  """

  gain: tf.Tensor
  rank: tf.Tensor
  dcg: tf.Tensor
  ideal_dcg: tf.Tensor
  reciprocal_rank: tf.Tensor


def request_totals(scores, estimates, mask, topn):
  """What a ranking by score is worth for each request.

  Of items of equal score the one with the smallest estimate ranks first, so a
  constant score is never rewarded and the order of items does not matter. A
  ranking by scores of which one is NaN is worth NaN.

  Args:
    scores: `[B, L]`, the highest ranks first.
    estimates: `[B, L]`, as `relevance_estimates` gives them; they may be
      multiplied by item weights.
    mask: `[B, L]` booleans, the items that are ranked.
    topn: a sequence of T cutoffs, each a number or None.

  Returns:
    `RequestTotals`.

  >>> totals = request_totals(
  ...     tf.constant([[2.0, 3.0]]), tf.constant([[4.0, 0.0]]),
  ...     tf.constant([[True, True]]), topn=(1, 2))
  >>> totals.rank.numpy().tolist(), totals.reciprocal_rank.numpy().tolist()
  ([8.0], [[0.0, 2.0]])
  """
  estimates = masking.zero_where_invalid(mask, estimates)
  dtype = estimates.dtype
  ranks = tf.where(
      pairs.unordered(scores, mask), tf.constant(math.nan, dtype),
      tf.cast(pairs.ranks(scores, estimates, mask), dtype))
  last = tf.fill(tf.shape(estimates), dtype.min)
  best = tf.sort(tf.where(mask, estimates, last), direction="DESCENDING")
  places = tf.cast(tf.range(1, tf.shape(estimates)[1] + 1), dtype)
  count = tf.reduce_sum(tf.cast(mask, dtype), axis=1, keepdims=True)
  best = masking.zero_where_invalid(places <= count, best)

  def total(values):
    return tf.reduce_sum(values, axis=1)

  def by_cutoff(values, factors_at):
    return tf.stack([total(values * factors_at(n)) for n in topn], axis=1)

  return RequestTotals(
      gain=total(estimates), rank=total(estimates * ranks),
      dcg=by_cutoff(estimates, lambda n: dcg_discounts(ranks, n)),
      ideal_dcg=by_cutoff(best, lambda n: dcg_discounts(places, n)),
      reciprocal_rank=by_cutoff(
          estimates, lambda n: reciprocal_ranks(ranks, n)))


class TopTotals(NamedTuple):
  """What the items at the top of each request are worth.

  Attributes:
    gain: `[B]`, the sum of the estimates.
    size: `[B]`, how many ranks they could have filled: the cutoff, or the size
      of the request without one.
    hit: `[B]`, the chance that at least one of them is relevant.
    precisions: `[B]`, the sum of the precisions at the ranks of those that are
      relevant.
  """

  gain: tf.Tensor
  size: tf.Tensor
  hit: tf.Tensor
  precisions: tf.Tensor


def top_totals(scores, estimates, mask, topn=None):
  """What the top of a ranking by score holds for each request.

  `hit` and `precisions` hold products of estimates of different items. With
  clicks, which are independent given what was shown, and without a cap the
  expectation of a product is the product of the expectations, so they are
  unbiased, too; but large weights multiply, and so does their noise.

  Args:
    scores: `[B, L]`, as in `request_totals`.
    estimates: `[B, L]`, of `relevance_estimates`, of feedback 0 or 1.
    mask: `[B, L]` booleans, the items that are ranked.
    topn: the last rank that counts, or None.

  Returns:
    `TopTotals`.

  >>> totals = top_totals(
  ...     tf.constant([[3.0, 2.0, 1.0]]), tf.constant([[0.5, 0.0, 0.5]]),
  ...     tf.constant([[True, True, True]]))
  >>> totals.hit.numpy().tolist()  # 1 - (1 - .5) (1 - .5)
  [0.75]
  >>> totals.precisions.numpy().tolist()  # .5 + .5 (.5 + 1) / 3
  [0.75]
  """
  estimates = masking.zero_where_invalid(mask, estimates)
  dtype = estimates.dtype
  ranks = pairs.ranks(scores, estimates, mask)
  ordered = tf.where(
      pairs.unordered(scores, mask), tf.constant(math.nan, dtype),
      tf.gather(estimates, tf.argsort(ranks, axis=1), batch_dims=1))
  places = tf.cast(tf.range(1, tf.shape(estimates)[1] + 1), dtype)
  if topn is not None:
    ordered = masking.zero_where_invalid(places <= topn, ordered)
  size = (tf.reduce_sum(tf.cast(mask, dtype), axis=1) if topn is None else
          tf.fill(tf.shape(estimates)[:1], tf.cast(topn, dtype)))
  above = tf.cumsum(ordered, axis=1, exclusive=True)
  return TopTotals(
      gain=tf.reduce_sum(ordered, axis=1), size=size,
      hit=1.0 - tf.reduce_prod(1.0 - ordered, axis=1),
      precisions=tf.reduce_sum(ordered * (1.0 + above) / places, axis=1))
