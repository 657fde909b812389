"""Click probabilities by position, given how relevant each item is.

A trained relevance model tells what a click log alone does not: which clicks
are missing at low positions because nobody looked. With its probabilities held
fixed, each position's click model has one best fit, found here from a log that
is compressed into a histogram.
"""

import dataclasses
from typing import Optional

import numpy as np
from scipy import special

from ultra_tfr import checks
from ultra_tfr.evaluation import bootstrap
from ultra_tfr.evaluation import harvesting

# So many numbers are in an array of the EM, to fit into the processor's cache.
_BLOCK = 1 << 17
# After so many iterations, positions that have converged are set aside.
_ROUND = 20
# EM never leaves a probability of 0 or 1, so it starts this far away.
_MARGIN = 1e-3
# Relevance probabilities keep this distance from 0 and 1, so that a click on an
# item with a relevance that was rounded to 0 is no contradiction.
_MIN_RELEVANCE = 1e-7


@dataclasses.dataclass(frozen=True, eq=False)
class ClickFit:
  """A click model fitted to a log.

  Attributes:
    click_relevant: `[C, K]`, p1, the chance of a click on a relevant item;
      theta if `click_irrelevant` is None. NaN where nothing was displayed.
    click_irrelevant: a `bootstrap.Estimate` of `[C, K]`, p0, the chance of a
      click on an irrelevant item; None in the position-based model.
    examination: a `bootstrap.Estimate` of `[C, K]`, p1 relative to that of
      position 1 in the same context; `high` is NaN where `low` is 0.
    log_likelihood: of the clicks, the mean per row.
    converged: whether the estimate and all replicates met the tolerance.
  """

  click_relevant: np.ndarray
  click_irrelevant: Optional[bootstrap.Estimate]
  examination: bootstrap.Estimate
  log_likelihood: float
  converged: bool


def fit_click_model(positions, contexts, clicked, relevance, requests,
                    click_relevant, click_irrelevant=None, num_bins=64,
                    replicates=200, level=0.9, seed=0, tolerance=1e-7,
                    max_iterations=5000):
  """Fits p1 and p0 by position to a log with known relevance beta, by EM.

      P(click) = p1 beta + p0 (1 - beta)

      E step   q  = beta p1 / P(click)              after a click
               q  = beta (1 - p1) / (1 - P(click))  after none
      M step   p1 = sum c q / sum q,  p0 = sum c (1 - q) / sum (1 - q)

  with p0 <= p1; where the M step gives p0 > p1, both become the click rate.
  Without p0 this is the position-based model, P(click) = theta beta. The
  log-likelihood is concave, so the end does not depend on the start.

  The scale of theta is fixed by beta: relevance that is too low by a factor
  makes theta too large by that factor. Only theta relative to position 1 is
  safe from that. The intervals are by drawing requests again, with relevance as
  it is given: they hold sampling error only. The error of the relevance model,
  often the larger one, is not in them.

  Args:
    positions: `[R]` int, 1-based; 0 if unknown: such rows do not count.
    contexts: `[R]` int, from 0.
    clicked: `[R]` bool, feedback > 0.
    relevance: `[R]`, beta, probabilities.
    requests: `[R]` int, any number for each request.
    click_relevant: `[C, K]`, where p1 starts.
    click_irrelevant: `[C, K]`, where p0 starts; None for the position-based
      model.
    num_bins: rows of similar relevance are counted together, in this many bins
      of equal width in the logit of beta, each with the mean beta of its rows.
    replicates: bootstrap replicates.
    level: the share of replicates in the interval.
    seed: of the bootstrap.
    tolerance: EM ends when no probability moves by more in an iteration.
    max_iterations: after which EM ends at the latest; rounded up to a multiple
      of 20.

  Returns:
    A `ClickFit`.

  Raises:
    ValueError: if an argument is not as above.

  Source: Wang et al., "Position Bias Estimation for Unbiased Learning to Rank
  in Personal Search", WSDM 2018, for the position-based model; Agarwal et al.,
  "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW 2019, for p0.

  >>> fit = fit_click_model(
  ...     positions=[1, 1, 2, 2, 2, 2], contexts=[0] * 6,
  ...     clicked=[True, False, True, False, False, False],
  ...     relevance=[0.6] * 6, requests=range(6),
  ...     click_relevant=[[0.5, 0.5]])
  >>> fit.click_relevant.round(3).tolist()
  [[0.833, 0.417]]
  """
  relevant, irrelevant = _starts(click_relevant, click_irrelevant)
  positions, requests = checks.check_rows(
      positions, requests, relevant.shape[1])
  shape = positions.shape
  contexts = checks.check_integers("contexts", contexts)
  checks.check_shape("contexts", contexts, shape, "one for each row")
  checks.check_range("contexts", contexts, 0, len(relevant) - 1,
                     "`click_relevant` has one row for each context")
  clicked = checks.check_booleans("clicked", clicked, shape)
  relevance = np.asarray(relevance, np.float64)
  checks.check_shape("relevance", relevance, shape, "one for each row")
  checks.check_range("relevance", relevance, 0, 1,
                     "give probabilities, the sigmoid of logits")
  num_bins = checks.check_count("num_bins", num_bins)
  known = positions > 0
  if not known.any():
    raise ValueError(
        "`positions` must hold some that are known, but all are 0; give "
        "1-based positions.")
  draws, request = bootstrap.draw_requests(
      requests[known], replicates, level, seed)
  clicked = clicked[known]
  beta = np.clip(relevance[known], _MIN_RELEVANCE, 1.0 - _MIN_RELEVANCE)
  slot = np.ravel_multi_index(
      (contexts[known], positions[known] - 1), relevant.shape)
  size = (2, *relevant.shape, num_bins)
  cell = np.ravel_multi_index(
      (clicked.astype(int), *np.unravel_index(slot, relevant.shape),
       _bins(special.logit(beta), num_bins)), size)
  # An empty cell has weight 0 in all sums, whatever its relevance.
  mean_beta = (np.bincount(cell, beta, np.prod(size)) / np.maximum(
      np.bincount(cell, minlength=np.prod(size)), 1)).reshape(size)

  def fit(times):
    counts = np.stack([
        np.bincount(cell, each[request], np.prod(size)).reshape(size)
        for each in times], axis=1)
    return _em(counts, mean_beta, relevant, irrelevant, tolerance,
               max_iterations)

  p1, p0, converged = fit(np.ones((1, draws.shape[1])))
  step = max(1, _BLOCK // np.prod(size))
  drawn = [fit(draws[i:i + step]) for i in range(0, len(draws), step)]
  drawn_p1, drawn_p0 = (
      np.concatenate([part[n] for part in drawn]) for n in (0, 1))
  chance = (p1.ravel()[slot] * beta + p0.ravel()[slot] * (1.0 - beta))
  return ClickFit(
      click_relevant=p1[0],
      click_irrelevant=None if click_irrelevant is None else bootstrap.Estimate(
          p0[0], *bootstrap.interval(drawn_p0, level)),
      examination=bootstrap.ratio_estimate(
          harvesting.ratio(p1[0], p1[0, :, :1]),
          harvesting.ratio(drawn_p1, drawn_p1[..., :1]), level),
      log_likelihood=float(
          np.log(np.where(clicked, chance, 1.0 - chance)).mean()),
      converged=converged and all(part[2] for part in drawn))


def position_follows_scores(scores, positions, requests, replicates=200,
                            level=0.9, seed=0):
  """How closely display positions follow scores: Spearman's correlation.

  With 1 the scores (of a relevance model, say) order each request exactly as it
  was displayed: then position and relevance cannot be told apart. With 0 they
  are unrelated.

  Args:
    scores: `[R]`, the highest first.
    positions: `[R]` int, 1-based; 0 if unknown: such rows do not count.
    requests: `[R]` int, any number for each request.
    replicates: bootstrap replicates.
    level: the share of replicates in the interval.
    seed: of the bootstrap.

  Returns:
    A `bootstrap.Estimate` of floats, the mean over requests. Requests with one
    item, or with equal scores throughout, have no correlation and do not count;
    the mean is NaN if there are no others.

  Raises:
    ValueError: if an argument is not as above.

  Source: Spearman, "The Proof and Measurement of Association between Two
  Things", 1904; equal scores share their mean rank.

  >>> position_follows_scores([0.9, 0.5, 0.1, 0.2, 0.8, 0.7],
  ...                         [1, 2, 3, 1, 2, 3], [0, 0, 0, 1, 1, 1]).value
  0.25
  """
  positions, requests = checks.check_rows(positions, requests)
  scores = np.asarray(scores, np.float64)
  checks.check_shape("scores", scores, positions.shape, "one for each row")
  checks.check_range("scores", scores, np.finfo(np.float64).min, None,
                     "leave out rows without a score")
  known = positions > 0
  request = np.unique(requests[known], return_inverse=True)[1]
  ranks = [bootstrap.centred_ranks(request, values)
           for values in (scores[known], -positions[known])]
  covariance, variance, other_variance = (
      np.bincount(request, a * b)
      for a, b in (ranks, ranks[:1] * 2, ranks[1:] * 2))
  correlation = harvesting.ratio(covariance, np.sqrt(variance * other_variance))
  correlation = correlation[np.isfinite(correlation)]
  draws, _ = bootstrap.draw_requests(
      np.arange(len(correlation)), replicates, level, seed)
  mean, drawn = (
      harvesting.ratio(np.array([each @ correlation for each in times]),
                  times.sum(axis=1))
      for times in (np.ones((1, len(correlation))), draws))
  low, high = bootstrap.interval(drawn, level)
  return bootstrap.Estimate(float(mean[0]), float(low), float(high))


def _starts(click_relevant, click_irrelevant):
  """Both starts `[C, K]`, off 0 and 1 where EM could not move; p0 0 for None.
  """
  shape = np.shape(click_relevant)
  if len(shape) != 2:
    raise ValueError(
        "`click_relevant` must have the shape [contexts, positions], but has "
        f"the shape {list(shape)}; give one row for each context.")
  relevant = np.clip(
      checks.check_table("click_relevant", click_relevant, shape).astype(float),
      2 * _MARGIN, 1.0 - _MARGIN)
  if click_irrelevant is None:
    return relevant, np.zeros(shape)
  irrelevant = checks.check_table("click_irrelevant", click_irrelevant, shape)
  return relevant, np.clip(irrelevant.astype(float), _MARGIN, relevant)


def _bins(values, num_bins):
  """Bins of equal width, `[R]` from 0."""
  low, high = values.min(), values.max()
  share = (values - low) / (high - low if high > low else 1.0)
  return np.minimum((num_bins * share).astype(np.int64), num_bins - 1)


def _em(counts, beta, p1, p0, tolerance, max_iterations):
  """EM for each replicate, context and position by itself.

  Args:
    counts: `[2, B, C, K, bins]`, rows without and with a click.
    beta: `[2, C, K, bins]`, their relevance.
    p1: `[C, K]`, the start.
    p0: `[C, K]`, the start.
    tolerance: as in `fit_click_model`.
    max_iterations: as in `fit_click_model`.

  Returns:
    p1 and p0, each `[B, C, K]` and NaN without rows, and whether all of them
    converged.
  """
  shape = counts.shape[1:-1]
  beta = np.broadcast_to(beta[:, None], counts.shape)
  counts, beta = (
      table.reshape(2, -1, table.shape[-1]) for table in (counts, beta))
  p1, p0 = (np.broadcast_to(p, shape).flatten() for p in (p1, p0))
  moving = np.arange(len(p1))
  for _ in range(0, max_iterations, _ROUND):
    tables = counts[:, moving], beta[:, moving]
    now = p1[moving], p0[moving]
    for _ in range(_ROUND):
      last, now = now, _em_step(*tables, *now)
    p1[moving], p0[moving] = now
    moving = moving[np.abs(np.subtract(now, last)).max(axis=0) > tolerance]
    if not len(moving):
      break
  known = counts.sum(axis=(0, 2)) > 0
  return (*(np.where(known, p, np.nan).reshape(shape) for p in (p1, p0)),
          not len(moving))


def _em_step(counts, beta, p1, p0):
  """One E and M step: p1 and p0, each `[P]`, from tables `[2, P, bins]`."""
  tiny = np.finfo(np.float64).tiny
  chance = p0[:, None] + (p1 - p0)[:, None] * beta
  chance[0] = 1.0 - chance[0]
  parts = (counts * beta / np.maximum(chance, tiny)).sum(axis=-1)
  rest, hits = (1.0 - p1) * parts[0], p1 * parts[1]
  clicks, total = counts[1].sum(axis=-1), counts.sum(axis=(0, 2))
  relevant = hits / np.maximum(hits + rest, tiny)
  # Exactly 0 stays 0: it must not grow again out of rounding errors.
  irrelevant = np.where(p0 > 0, np.maximum(clicks - hits, 0.0) / np.maximum(
      total - hits - rest, tiny), 0.0)
  pooled = irrelevant > relevant
  rate = clicks / np.maximum(total, tiny)
  return np.where(pooled, rate, relevant), np.where(pooled, rate, irrelevant)
