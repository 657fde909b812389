"""Counterfactual evaluation in plain Python, item by item, in float64."""

import math

import numpy as np


def random_log(seed, num_requests=7, size=6, graded=False, trust=False,
               padding=0.2):
  """A log with padding at any place, ties, and items without a propensity.

  Args:
    seed: of the random numbers.
    num_requests: N.
    size: L.
    graded: whether feedback is more than clicks.
    trust: whether there is a p0.
    padding: share of items that are padding.

  Returns:
    A dict of `[N, L]` arrays, the arguments of `evaluate_log`.
  """
  rng = np.random.default_rng(seed)
  shape = [num_requests, size]
  feedback = (rng.random(shape) < 0.5).astype(np.float64)
  if graded:
    feedback *= np.round(rng.exponential(size=shape), 1)
  positions = np.argsort(rng.random(shape), axis=1) + 1
  click_relevant = np.round(rng.uniform(0.05, 1.0, size), 2)[positions - 1]
  click_relevant[rng.random(shape) < 0.05] = 0.0
  positions[rng.random(shape) < 0.05] = 0
  feedback[rng.random(shape) < padding] = -1.0
  feedback[0, 0] = np.nan
  scores = np.round(rng.normal(size=shape))
  scores[feedback < 0] = np.nan
  return {
      "scores": scores, "feedback": feedback, "positions": positions,
      "click_relevant": click_relevant,
      "click_irrelevant": click_relevant * 0.3 if trust else None,
      "scale": rng.uniform(0.2, 1.0, shape),
      "weights": rng.choice([0.5, 1.0, 3.0], shape),
  }


def evaluate(log, topn, max_weight=None):
  """The values of all estimates by name, NaN where a denominator is not > 0.

  Args:
    log: as `random_log` makes it.
    topn: the cutoffs.
    max_weight: a cap or None.

  Returns:
    A dict of floats.
  """
  sums = {}

  def add(name, value):
    sums[name] = sums.get(name, 0.0) + value

  for n in range(len(log["feedback"])):
    items = [item for item in _items(log, n, max_weight) if item]
    if not items:
      continue
    add("requests", sum(i["weight"] for i in items) / len(items))
    order = sorted(items, key=lambda i: (-i["score"], i["gain"]))
    ideal = sorted(items, key=lambda i: -i["gain"])
    for rank, (item, best) in enumerate(zip(order, ideal), start=1):
      add("gain", item["gain"])
      add("rank", item["gain"] * rank)
      for cutoff in topn:
        inside = rank <= cutoff
        discount = inside / math.log2(1 + rank)
        add(f"dcg{cutoff}", item["gain"] * discount)
        add(f"ideal{cutoff}", best["gain"] * discount)
        add(f"reciprocal{cutoff}", item["gain"] * inside / rank)

  def ratio(numerator, denominator):
    below = sums.get(denominator, 0.0)
    return sums[numerator] / below if below > 0 else math.nan

  values = {"arp": ratio("rank", "gain")}
  for cutoff in topn:
    values[f"dcg@{cutoff}"] = ratio(f"dcg{cutoff}", "requests")
    values[f"snips_dcg@{cutoff}"] = ratio(f"dcg{cutoff}", "gain")
    values[f"ndcg@{cutoff}"] = ratio(f"dcg{cutoff}", f"ideal{cutoff}")
    values[f"mrr@{cutoff}"] = ratio(f"reciprocal{cutoff}", "requests")
    values[f"snips_mrr@{cutoff}"] = ratio(f"reciprocal{cutoff}", "gain")
  return values


def diagnostics(log, max_weight=None):
  """Effective sample size and clipped share."""
  items = [item for n in range(len(log["feedback"]))
           for item in _items(log, n, max_weight) if item and item["feedback"]]
  mass = [i["weight"] * i["inverse"] for i in items]
  clipped = sum(i["weight"] * i["feedback"] * (i["full"] - i["inverse"])
                for i in items)
  full = sum(i["weight"] * i["feedback"] * i["full"] for i in items)
  return sum(mass)**2 / sum(m**2 for m in mass), clipped / full


def _items(log, n, max_weight):
  """The items of one request as dicts, None for those that do not count."""
  for i, feedback in enumerate(log["feedback"][n]):
    p1 = log["click_relevant"][n][i]
    if not feedback >= 0 or log["positions"][n][i] < 1 or p1 == 0:
      yield None
      continue
    p0 = 0.0 if log["click_irrelevant"] is None else (
        log["click_irrelevant"][n][i])
    full = log["scale"][n][i] / (p1 - p0)
    inverse = full if max_weight is None else min(full, max_weight)
    yield {
        "score": log["scores"][n][i], "feedback": feedback, "full": full,
        "inverse": inverse, "weight": log["weights"][n][i],
        "gain": (feedback - p0) * inverse * log["weights"][n][i],
    }
