"""Tests of ultra_tfr.evaluation.counterfactual."""

import math

import numpy as np
import pytest
from scipy import stats

import counterfactual_oracles as oracles
from ultra_tfr.evaluation import bootstrap
from ultra_tfr.evaluation import counterfactual

TOPN = (1, 3, 10)
DRAWS = {"level": 0.9, "replicates": 40, "seed": 3}
WORLDS = {
    "clicks": {}, "graded": {"graded": True}, "trust": {"trust": True},
    "one": {"num_requests": 1, "padding": 0.0},
    "long": {"size": 30, "num_requests": 5},
}
worlds = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


def evaluate(log, **options):
  return counterfactual.evaluate_log(
      **log, **{"topn": TOPN, "replicates": 20, **options})


def values(evaluation):
  return {name: e.value for name, e in evaluation.estimates.items()}


def make_totals(log, **options):
  totals = counterfactual.LogTotals(topn=TOPN, **options)
  totals.update(**log)
  return totals


def change(log, function):
  """The log with a function applied to all of its arrays."""
  return {key: None if value is None else function(value)
          for key, value in log.items()}


@worlds
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_weight", [None, 1.5])
def test_values_equal_the_oracle(world, seed, max_weight):
  log = oracles.random_log(seed, **world)
  found = evaluate(log, max_weight=max_weight)
  right = oracles.evaluate(log, TOPN, max_weight)
  assert values(found) == pytest.approx(right, rel=1e-10, nan_ok=True)
  size, clipped = oracles.diagnostics(log, max_weight)
  assert found.effective_sample_size == pytest.approx(size)
  assert found.clipped_share == pytest.approx(clipped)
  assert max_weight or clipped == 0


def test_counts():
  found = evaluate({
      "scores": np.zeros([4, 3]),
      "feedback": [[1, 0, -1], [0, 0, 1], [-1, -1, -1], [1, 1, 0]],
      "positions": [[1, 2, 3], [1, 2, 0], [1, 2, 3], [1, 2, 3]],
      "click_relevant": [[1, .5, .2], [1, .5, .2], [1, 1, 1], [1, 0, .2]]})
  assert found.num_requests == 3
  assert found.num_requests_with_feedback == 2
  assert found.num_items == 6
  assert found.num_items_with_feedback == 2
  assert found.num_left_out == 2
  assert found.effective_sample_size == 2


def test_a_simple_log():
  # One click at rank 2 of propensity 1/2, one at rank 1 of propensity 1.
  found = values(evaluate({
      "scores": [[1, 2], [2, 1]], "feedback": [[1, 0], [1, 0]],
      "positions": [[2, 1], [1, 2]], "click_relevant": [[.5, 1], [1, .5]]}))
  second = 1 / math.log2(3)
  assert found["dcg@10"] == pytest.approx((2 * second + 1) / 2)
  assert found["snips_dcg@10"] == pytest.approx((2 * second + 1) / 3)
  assert found["ndcg@10"] == pytest.approx((2 * second + 1) / 3)
  assert found["mrr@10"] == pytest.approx(1.0)
  assert found["snips_mrr@10"] == pytest.approx(2 / 3)
  assert found["arp"] == pytest.approx(5 / 3)
  assert found["dcg@1"] == pytest.approx(1 / 2)


@worlds
def test_the_order_of_items_and_padding_change_nothing(world):
  log = oracles.random_log(5, **world)
  right = evaluate(log, max_weight=2.0)
  order = np.random.default_rng(0).permutation(log["feedback"].shape[1])
  found = evaluate(change(log, lambda x: x[:, order]), max_weight=2.0)
  assert values(found) == pytest.approx(values(right), nan_ok=True)
  padded = change(log, lambda x: np.pad(
      x.astype(np.float64), [(0, 0), (2, 1)], constant_values=np.nan))
  found = evaluate(padded, max_weight=2.0)
  assert found.num_requests == right.num_requests
  assert {n: vars(e) for n, e in found.estimates.items()} == {
      n: pytest.approx(vars(e), nan_ok=True)
      for n, e in right.estimates.items()}


def test_a_constant_score_is_never_rewarded():
  log = oracles.random_log(6, num_requests=40)
  constant = values(evaluate({**log, "scores": np.zeros([40, 6])}))
  for seed in range(5):
    scores = np.random.default_rng(seed).normal(size=[40, 6])
    other = values(evaluate({**log, "scores": scores}))
    for name in ("dcg@3", "snips_dcg@3", "ndcg@3", "mrr@3"):
      assert constant[name] < other[name]
    assert constant["arp"] > other["arp"]


def test_weights_of_requests_repeat_them():
  log = oracles.random_log(7, num_requests=3)
  log["weights"] = np.array([[2.0], [0.0], [1.0]])
  repeated = change(log, lambda x: x[[0, 0, 2]])
  repeated["weights"] = None
  assert values(evaluate(log)) == pytest.approx(values(evaluate(repeated)))


@pytest.mark.parametrize("batch", [1, 3, 50])
@pytest.mark.parametrize("pairs", [1, 100, 2**20])
def test_batches_and_memory_change_nothing(batch, pairs, monkeypatch):
  log = oracles.random_log(8, num_requests=41)
  right = evaluate(log, **DRAWS)
  monkeypatch.setattr(counterfactual, "_PAIRS", pairs)
  totals = counterfactual.LogTotals(topn=TOPN)
  for start in range(0, 41, batch):
    totals.update(**change(log, lambda x, s=start: x[s:s + batch]))
  found = counterfactual.summarize(totals, **DRAWS)
  assert found.num_items == right.num_items
  assert found.effective_sample_size == pytest.approx(
      right.effective_sample_size)
  for name, estimate in right.estimates.items():
    assert vars(found.estimates[name]) == pytest.approx(vars(estimate))
    assert estimate.low < estimate.high


def _repeated(log, counts):
  """The values of the log with its requests as often as drawn, by the oracle.

  Args:
    log: arrays by name.
    counts: `[B, N]`.
  """
  return [oracles.evaluate(
      change(log, lambda x, c=c: np.repeat(x, c, axis=0)), TOPN)
          for c in counts]


def test_the_bootstrap_draws_whole_requests():
  log = oracles.random_log(9, num_requests=50)
  found = evaluate(log, **DRAWS).estimates
  replicates = _repeated(log, bootstrap.resample(50, 40, seed=[3, 0]))
  for name, estimate in found.items():
    drawn = np.array([r[name] for r in replicates])
    # Percentiles, at least: the log is small.
    assert estimate.low <= np.nanpercentile(drawn, 5) + 1e-9
    assert estimate.high >= np.nanpercentile(drawn, 95) - 1e-9
    assert estimate.standard_error == pytest.approx(np.nanstd(drawn, ddof=1))
    assert estimate.low < estimate.high


def test_percentiles_are_widened_by_the_requests_that_decide():
  """With 30 clicks, intervals of 90 % held the truth in 80 % of the cases."""
  log = oracles.random_log(9, num_requests=50)
  log["weights"] = np.ones_like(log["weights"])
  log["click_relevant"] = np.maximum(log["click_relevant"], 0.3)
  estimate = evaluate(log, **DRAWS).estimates["dcg@3"]
  totals = counterfactual.split_columns(make_totals(log).table())[1]
  error = (totals.dcg[:, 1] - totals.dcg[:, 1].mean()) ** 2
  size = error.sum() ** 2 / (error ** 2).sum()
  replicates = _repeated(log, bootstrap.resample(50, 40, seed=[3, 0]))
  # A standard error of the percentile of 40 replicates further out.
  tail = 5 - 100 * math.sqrt(0.05 * 0.95 / 40)
  low, high = np.percentile(
      [r["dcg@3"] for r in replicates], [tail, 100 - tail])
  factor = stats.t.ppf(0.95, size - 1) / stats.norm.ppf(0.95)
  assert 1.05 < factor < 2
  assert estimate.low == pytest.approx(
      estimate.value - factor * (estimate.value - low))
  assert estimate.high == pytest.approx(
      estimate.value + factor * (high - estimate.value))


def test_draws_come_in_blocks(monkeypatch):
  log = oracles.random_log(9, num_requests=32)
  whole = evaluate(log, **DRAWS).estimates["dcg@3"]
  monkeypatch.setattr(counterfactual, "_DRAWN", 15)
  found = evaluate(log, **DRAWS).estimates["dcg@3"]
  counts = np.concatenate([bootstrap.resample(n, 40, seed=[3, start])
                           for start, n in ((0, 15), (15, 15), (30, 2))],
                          axis=1)
  drawn = [r["dcg@3"] for r in _repeated(log, counts)]
  assert found.standard_error == pytest.approx(np.std(drawn, ddof=1))
  # Other draws, but the same width but for chance.
  assert found.high - found.low == pytest.approx(
      whole.high - whole.low, rel=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_values_and_intervals_stay_in_their_range(seed):
  """With p0 the noise gave a DCG below 0 and a SNIPS DCG of -1.54."""
  rng = np.random.default_rng(seed)
  shape = (40, 6)
  log = {"feedback": (rng.random(shape) < 0.2).astype(float),
         "positions": np.broadcast_to(np.arange(6) + 1, shape),
         "click_relevant": np.full(shape, 0.4),
         "click_irrelevant": np.full(shape, 0.2), "scale": 0.2}
  first, second = (make_totals({**log, "scores": rng.normal(size=shape)})
                   for _ in range(2))
  found = counterfactual.summarize(first, **DRAWS).estimates
  differences = counterfactual.compare(first, second, **DRAWS)
  for name, estimate in found.items():
    lowest = 1 if name == "arp" else 0
    highest = 6 if name == "arp" else (
        1 if name.startswith(("snips", "ndcg")) else np.inf)
    ends = [x for x in (estimate.value, estimate.low, estimate.high)
            if math.isfinite(x)]
    assert all(lowest <= x <= highest for x in ends), name
    ends = [abs(x) for x in vars(differences[name]).values()
            if math.isfinite(x)]
    assert all(x <= highest - lowest for x in ends), name


def test_effective_requests_count_noise():
  """Where p0 is half of the clicks, many clicks may say very little."""
  ones = np.ones([200, 2])
  clicks = np.zeros([200, 2])
  clicks[:100, 0] = clicks[50:150, 1] = 1.0
  log = {"scores": ones * [2, 1], "feedback": clicks,
         "positions": ones * [1, 2], "click_relevant": ones * 0.9}
  plain = evaluate(log).effective_requests
  assert plain == pytest.approx(200 ** 2 / (100 * 1 + 50 * 4))
  noisy = evaluate({**log, "click_irrelevant": ones * 0.5})
  assert noisy.effective_requests == pytest.approx(0, abs=1e-6)
  assert math.isnan(noisy.estimates["dcg@10"].low)


@pytest.mark.parametrize("clicks, requests", [([0, 0], 9), ([1, 0], 1)])
def test_too_little_for_an_interval(clicks, requests):
  found = evaluate({
      "scores": [[1.0, 2.0]] * requests, "feedback": [clicks] * requests,
      "positions": [[1, 2]] * requests,
      "click_relevant": [[1.0, 0.5]] * requests})
  for name, estimate in found.estimates.items():
    has_value = any(clicks) or name.startswith(("dcg", "mrr"))
    assert math.isfinite(estimate.value) == has_value
    assert math.isnan(estimate.low) and math.isnan(estimate.high)
    assert math.isnan(estimate.standard_error)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 3)])
def test_nothing_at_all(shape):
  empty = np.full(shape, -1.0)
  found = evaluate(dict.fromkeys(
      ("scores", "feedback", "positions", "click_relevant"), empty))
  assert found.num_requests == found.effective_sample_size == 0
  assert all(math.isnan(v) for v in values(found).values())


def test_compare():
  log = oracles.random_log(10, num_requests=60)
  noise = np.random.default_rng(0).normal(size=[60, 6])
  other = {**log, "scores": log["scores"] + 0.3 * noise}
  first, second = make_totals(log), make_totals(other)
  found = counterfactual.compare(first, second, **DRAWS)
  apart = [evaluate(x, **DRAWS).estimates for x in (log, other)]
  for name, estimate in found.items():
    assert estimate.value == pytest.approx(
        apart[0][name].value - apart[1][name].value, abs=1e-12)
    assert estimate.low <= estimate.high
    unpaired = math.hypot(*(a[name].standard_error for a in apart))
    assert estimate.standard_error < unpaired
  other_draws = counterfactual.compare(first, second, **{**DRAWS, "seed": 4})
  assert other_draws["arp"].value == found["arp"].value
  assert other_draws["arp"].low != found["arp"].low
  for estimate in counterfactual.compare(first, first).values():
    assert set(vars(estimate).values()) == {0.0}


def test_compare_takes_the_same_requests_and_settings():
  log = oracles.random_log(11, num_requests=4)
  totals = make_totals(log)
  for other in (change(log, lambda x: x[:3]), change(log, lambda x: x[::-1])):
    with pytest.raises(ValueError, match="`baseline` must have the requests "
                       "of `totals` in the same order, but has . of 4"):
      counterfactual.compare(totals, make_totals(other))
  with pytest.raises(ValueError, match="`baseline` must have the `topn` and "
                     r"`max_weight` of `totals`, .*None\), but has .*2.0\)"):
    counterfactual.compare(totals, make_totals(log, max_weight=2.0))


CLICKS = {"feedback": [[1, 0], [0, 1]], "positions": [[1, 2], [1, 2]],
          "click_relevant": [[1.0, 0.5]] * 2, "scores": [[2.0, 1.0]] * 2}


@pytest.mark.parametrize("wrong, message", [
    ({"feedback": [1, 0]}, r"`feedback` must have the shape \[requests, items"),
    ({"scores": [[1.0]]}, r"`scores` must have the shape \[2, 2\], that of "
     r"`feedback`, but has the shape \[1, 1\]"),
    ({"positions": [[1]]}, "`positions` must have the shape"),
    ({"click_relevant": [0.5]}, "`click_relevant` must have the shape"),
    ({"click_irrelevant": [0.5]}, "`click_irrelevant` must have the shape"),
    ({"scale": [1.0, 1.0]}, r"`scale` must be a number or have the shape "
     r"\[2, 1\] or \[2, 2\], but has the shape \[2\]; add an axis"),
    ({"weights": [1.0, 1.0]}, "`weights` must be a number or have the shape"),
    ({"scores": [[1.0, 2.0], [np.nan, 1.0]]},
     r"`scores` must be finite, but scores\[1, 0\] is nan; the ranker"),
    ({"click_relevant": [[1.0, -0.5]] * 2}, r"`click_relevant` must hold "
     r"probabilities, but click_relevant\[0, 1\] is -0.5; 0 leaves"),
    ({"click_irrelevant": [[0.1, 0.6]] * 2}, "`click_irrelevant` must be from "
     r"0 to `click_relevant`, but click_irrelevant\[0, 1\] is 0.6"),
    ({"feedback": [[1, 2], [0, 0]], "click_irrelevant": np.zeros([2, 2])},
     r"`feedback` must be 0 or 1 with `click_irrelevant`.* is 2.0; leave"),
    ({"scale": 0.0}, r"`scale` must be greater than 0, but scale\[0, 0\]"),
    ({"weights": -1.0}, r"`weights` must be at least 0, but weights\[0, 0\]"),
    ({"topn": (0,)}, "`topn` must be a whole number of at least 1, but is 0"),
    ({"max_weight": 0.0}, "`max_weight` must be greater than 0, but is 0.0"),
    ({"level": 90}, "`level` must be between 0 and 1, but is 90"),
    ({"replicates": 1},
     "`replicates` must be a whole number of at least 2, but is 1"),
])
def test_messages(wrong, message):
  with pytest.raises(ValueError, match=message):
    counterfactual.evaluate_log(**{**CLICKS, **wrong})


def test_click_likelihood_equals_the_oracle():
  rng = np.random.default_rng(0)
  feedback = rng.integers(-1, 3, [9, 7]).astype(np.float64)
  feedback[0, 0] = np.nan
  positions = rng.choice([0, 1, 2, 4, 7], [9, 7])
  probability = rng.random([9, 7])
  probability[1], probability[2], probability[3, 0] = 0.0, 1.0, np.nan
  feedback[3, 0] = -1.0
  found = counterfactual.click_likelihood(feedback, probability, positions)
  logs = {}
  for c, p, k in zip(feedback.flat, probability.flat, positions.flat):
    if c >= 0 and k >= 1:
      p = min(max(p, 1e-6), 1 - 1e-6)
      logs.setdefault(k, []).append(math.log(p if c > 0 else 1 - p))
  every = sum(logs.values(), [])
  mean = sum(every) / len(every)
  assert found.log_likelihood == pytest.approx(mean)
  assert found.perplexity == pytest.approx(math.exp(-mean))
  assert found.by_position.tolist() == pytest.approx([
      math.exp(-sum(logs[k]) / len(logs[k])) if k in logs else math.nan
      for k in range(1, 8)], nan_ok=True)


def test_weights_of_clicks_are_repeated_clicks():
  rng = np.random.default_rng(1)
  feedback, positions = rng.integers(-1, 2, [3, 4]), rng.integers(1, 3, [3, 4])
  chance, times = rng.random([3, 4]), rng.integers(0, 4, [3, 4])
  repeated = counterfactual.click_likelihood(*(
      np.repeat(values.ravel(), times.ravel())[np.newaxis]
      for values in (feedback, chance, positions)))
  found = counterfactual.click_likelihood(feedback, chance, positions, times)
  assert found.log_likelihood == pytest.approx(repeated.log_likelihood)
  assert found.by_position.tolist() == pytest.approx(
      repeated.by_position.tolist())


def test_click_likelihood_without_data():
  found = counterfactual.click_likelihood([[-1.0]], [[0.5]], [[1]])
  assert math.isnan(found.log_likelihood) and math.isnan(found.perplexity)
  assert found.by_position.size == 0


def test_click_likelihood_takes_probabilities():
  with pytest.raises(ValueError, match=r"`click_probability` must be in \[0, "
                     r"1\], but click_probability\[0, 0\] is 1.5; give prob"):
    counterfactual.click_likelihood([[1.0]], [[1.5]], [[1]])
  with pytest.raises(ValueError, match="`positions` must have the shape"):
    counterfactual.click_likelihood([[1.0]], [[0.5]], [1])
  with pytest.raises(ValueError, match=r"`weights` must be at least 0, but wei"
                     r"ghts\[0, 0\] is -1.0; 0 leaves an item out"):
    counterfactual.click_likelihood([[1.0]], [[0.5]], [[1]], [[-1.0]])
