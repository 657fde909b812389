"""Counterfactual evaluation against the truth, on simulated logs."""

import numpy as np
import pytest

from ultra_tfr.evaluation import counterfactual

SIZE = 6
THETA = np.array([0.9, 0.6, 0.4, 0.25, 0.15, 0.1])
TRUST = np.array([0.98, 0.95, 0.9, 0.9, 0.85, 0.85]), 0.6 / np.arange(1, 7)
NAMES = ("dcg@3", "snips_dcg@3", "ndcg@3", "mrr@3", "arp")


def make_world(seed, num_requests):
  """Relevance, and positions by a logger that knows a little about it."""
  rng = np.random.default_rng(seed)
  beta = rng.beta(0.5, 1.5, [num_requests, SIZE])
  logged = beta + rng.normal(scale=0.5, size=beta.shape)
  return rng, beta, logged, ranks_of(logged)


def ranks_of(scores):
  return 1 + np.argsort(np.argsort(-scores, axis=1), axis=1)


def true_values(beta, scores, scale):
  """What the estimates of NAMES but NDCG are of, by name."""
  ranks, relevance = ranks_of(scores), scale * beta
  dcg = np.sum(relevance * (ranks <= 3) / np.log2(1 + ranks))
  reciprocal = np.sum(relevance * (ranks <= 3) / ranks)
  return {"dcg@3": dcg / len(beta), "snips_dcg@3": dcg / relevance.sum(),
          "mrr@3": reciprocal / len(beta),
          "arp": np.sum(relevance * ranks) / relevance.sum()}


def draw_clicks(rng, beta, positions, trust):
  """Clicks and the log's other columns: p1, p0 and the scale."""
  p1 = (THETA * TRUST[0] if trust else THETA)[positions - 1]
  p0 = (THETA * np.minimum(*TRUST))[positions - 1] if trust else None
  chance = p1 * beta + (p0 * (1 - beta) if trust else 0.0)
  clicks = (rng.random(beta.shape) < chance).astype(np.float64)
  scale = (THETA * TRUST[0] - THETA * np.minimum(*TRUST))[0] if trust else (
      THETA[0])
  return {"feedback": clicks, "positions": positions, "click_relevant": p1,
          "click_irrelevant": p0}, scale


@pytest.mark.parametrize("trust", [False, True], ids=["clicks", "trust"])
def test_rankers_of_known_quality(trust):
  rng, beta, logged, positions = make_world(0, 20000)
  log, scale = draw_clicks(rng, beta, positions, trust)
  noise = rng.normal(size=[2, *beta.shape])
  rankers = {"best": beta, "fair": beta + 0.4 * noise[0], "logger": logged,
             "worst": noise[1]}
  found = {name: counterfactual.evaluate_log(
      scores, **log, scale=scale, topn=(3,)).estimates
      for name, scores in rankers.items()}
  for name, scores in rankers.items():
    for metric, truth in true_values(beta, scores, scale).items():
      estimate = found[name][metric]
      assert abs(estimate.value - truth) < 2 * estimate.standard_error
      assert estimate.standard_error < 0.05 * truth
  for metric in NAMES:
    quality = [(-1 if metric == "arp" else 1) * found[name][metric].value
               for name in ("best", "fair", "logger", "worst")]
    assert quality == sorted(quality, reverse=True)
  # The clicks as they are flatter the logger, far beyond chance.
  log.update(click_relevant=np.ones(beta.shape), click_irrelevant=None)
  naive = {name: counterfactual.evaluate_log(
      rankers[name], **log, topn=(3,)).estimates["snips_dcg@3"]
           for name in ("fair", "logger")}
  assert naive["logger"].low > naive["fair"].high


@pytest.mark.parametrize("trust", [False, True], ids=["clicks", "trust"])
def test_intervals_cover_the_truth(trust):
  rng, beta, logged, positions = make_world(1, 5)
  scores = beta + rng.normal(scale=0.2, size=beta.shape)
  scale = draw_clicks(rng, beta, positions, trust)[1]
  truth = true_values(beta, scores, scale)
  rounds, covered = 200, dict.fromkeys(truth, 0)
  errors, spread = [], []
  for seed in range(rounds):
    rows = rng.integers(0, len(beta), 250)
    log, _ = draw_clicks(rng, beta[rows], positions[rows], trust)
    found = counterfactual.evaluate_log(
        scores[rows], **log, scale=scale, topn=(3,), level=0.9, seed=seed,
        replicates=200).estimates
    for name, value in truth.items():
      covered[name] += found[name].low <= value <= found[name].high
    spread.append(found["dcg@3"].value)
    errors.append(found["dcg@3"].standard_error)
  for name, count in covered.items():
    assert 0.83 <= count / rounds <= 0.96, name
  assert np.mean(errors) == pytest.approx(np.std(spread), rel=0.15)


def _judged(clicks, rounds, trust=False):
  """Logs with about so many clicks, judged with the interval of each.

  Two rankers are equally good: relevance with noise. So is the truth of their
  difference 0.

  Args:
    clicks: the mean number in a log.
    rounds: how many logs.
    trust: whether irrelevant items are clicked, too.

  Returns:
    The shares of intervals that hold the truth, of those that exclude 0 where
    two equal rankers are compared, each a dict by metric, and of logs that are
    judged at all.
  """
  rng, beta, _, positions = make_world(4, 40000)
  scale = draw_clicks(rng, beta, positions, trust)[1]
  score = beta + rng.normal(scale=0.3, size=beta.shape)
  truth = true_values(beta, score, scale)
  per_request = draw_clicks(rng, beta, positions, trust)[0]["feedback"].sum(
      axis=1).mean()
  covered, excluded = ({name: [] for name in truth} for _ in range(2))
  judged = 0
  for seed in range(rounds):
    rows = rng.integers(0, len(beta), round(clicks / per_request))
    log, _ = draw_clicks(rng, beta[rows], positions[rows], trust)
    equal = beta[rows] + rng.normal(scale=0.3, size=[len(rows), SIZE])
    rankers = [counterfactual.LogTotals(topn=(3,)) for _ in range(2)]
    for totals, scores in zip(rankers, (score[rows], equal)):
      totals.update(scores, **log, scale=scale)
    found = counterfactual.summarize(rankers[0], seed=seed)
    if found.effective_requests < counterfactual.ENOUGH:
      assert all(np.isnan(e.low) for e in found.estimates.values())
      continue
    judged += 1
    differences = counterfactual.compare(*rankers, seed=seed)
    for name, value in truth.items():
      interval, difference = found.estimates[name], differences[name]
      covered[name].append(interval.low <= value <= interval.high)
      excluded[name].append(not difference.low <= 0 <= difference.high)
  return ({name: np.mean(hits) for name, hits in covered.items()},
          {name: np.mean(hits) for name, hits in excluded.items()},
          judged / rounds)


@pytest.mark.parametrize("clicks", [30, 100])
def test_intervals_of_few_clicks(clicks):
  """Percentiles alone held the truth in 80 % of such logs."""
  covered, excluded, _ = _judged(clicks, 60)
  # 60 rounds cannot tell .85 from .8; see below.
  assert min(covered.values()) >= 0.8, covered
  assert max(excluded.values()) <= 0.17, excluded


@pytest.mark.release
@pytest.mark.parametrize("trust", [False, True], ids=["clicks", "trust"])
@pytest.mark.parametrize("clicks", [30, 100, 1000])
def test_intervals_hold_what_they_promise(clicks, trust):
  covered, excluded, judged = _judged(clicks, 1000, trust)
  print(f"\n{clicks} clicks, trust {trust}: {judged:.0%} judged; truth held in "
        f"{min(covered.values()):.1%} to {max(covered.values()):.1%}; 0 "
        f"excluded in {min(excluded.values()):.1%} to "
        f"{max(excluded.values()):.1%}")
  if judged > 0.05:
    assert min(covered.values()) >= 0.85, covered
    assert max(excluded.values()) <= 0.1, excluded
  if not trust or clicks > 100:
    assert judged > 0.9


def test_the_same_draws_tell_close_rankers_apart():
  rng, beta, _, positions = make_world(2, 3000)
  log, scale = draw_clicks(rng, beta, positions, False)
  close = {"better": beta + rng.normal(scale=0.10, size=beta.shape)}
  close["worse"] = close["better"] + rng.normal(scale=0.10, size=beta.shape)
  totals = {}
  for name, scores in close.items():
    totals[name] = counterfactual.LogTotals(topn=(3,))
    totals[name].update(scores, **log, scale=scale)
  apart = {name: counterfactual.summarize(t).estimates["dcg@3"]
           for name, t in totals.items()}
  difference = counterfactual.compare(
      totals["better"], totals["worse"])["dcg@3"]
  assert apart["worse"].high > apart["better"].low
  assert difference.low > 0
  truths = [true_values(beta, close[name], scale)["dcg@3"]
            for name in ("better", "worse")]
  assert abs(difference.value - (truths[0] - truths[1])) < (
      2 * difference.standard_error)


def test_clipping_trades_variance_for_bias():
  rng, beta, logged, positions = make_world(3, 5000)
  log, scale = draw_clicks(rng, beta, positions, False)
  scores = -logged  # Far from the log, so weights are large.
  full, clipped = (counterfactual.evaluate_log(
      scores, **log, scale=scale, topn=(3,), max_weight=w) for w in (None, 2.0))
  truth = true_values(beta, scores, scale)["dcg@3"]
  assert abs(full.estimates["dcg@3"].value - truth) < (
      2 * full.estimates["dcg@3"].standard_error)
  assert clipped.estimates["dcg@3"].high < truth
  assert clipped.estimates["dcg@3"].standard_error < (
      0.5 * full.estimates["dcg@3"].standard_error)
  assert clipped.clipped_share > 0.2
  assert clipped.effective_sample_size > full.effective_sample_size
