"""Tests of ultra_tfr.evaluation.harvesting."""

import numpy as np
import pytest

import eye_tracking
from ultra_tfr.evaluation import bootstrap
from ultra_tfr.evaluation import harvesting

THETA = eye_tracking.CURVE
CURVE = THETA / THETA[0]
ESTIMATORS = {"adjacent": harvesting.adjacent_chain, "pivot": harvesting.pivot,
              "all_pairs": harvesting.all_pairs}


def _log(seed, num_requests=2000, num_items=200, length=10, noise=1.):
  """Ten candidates each, ordered by relevance plus noise, clicked by a PBM."""
  rng = np.random.default_rng(seed)
  relevance = rng.beta(1., 2., num_items)
  shown = np.argsort(rng.random((num_requests, num_items)), axis=1)[:, :length]
  scores = relevance[shown] + noise * relevance.std() * rng.normal(
      size=shown.shape)
  items = np.take_along_axis(shown, np.argsort(-scores, axis=1), axis=1)
  clicked = rng.random(items.shape) < THETA[:length] * relevance[items]
  return {"items": items.ravel(),
          "positions": np.tile(np.arange(1, length + 1), num_requests),
          "clicked": clicked.ravel(),
          "requests": np.repeat(np.arange(num_requests), length),
          "num_positions": length}


def _slow_pairs(log, size):
  """A by loops over rows, as [k][k'], of rows with known item and position."""
  shown, clicks = {}, {}
  for d, k, c in zip(log["items"], log["positions"], log["clicked"]):
    if d >= 0 and k > 0:
      shown[d, k] = shown.get((d, k), 0) + 1
      clicks[d, k] = clicks.get((d, k), 0) + c
  pairs = np.zeros((size, size))
  for (d, k), n in shown.items():
    for j in range(1, size + 1):
      if j != k and (d, j) in shown:
        pairs[k - 1, j - 1] += clicks[d, k] * shown[d, j] / (n + shown[d, j])
  return pairs


@pytest.fixture(name="small")
def _small():
  """A log with unknown items and positions, and odd request numbers."""
  log = _log(1, num_requests=120, num_items=40, length=5)
  log["requests"] = 7000 - 3 * log["requests"]
  log["items"] = np.where(np.arange(600) % 17 == 0, -1, 5 * log["items"])
  log["positions"] = np.where(np.arange(600) % 23 == 0, 0, log["positions"])
  return log


def test_estimates_against_loops_over_rows(small):
  result = harvesting.harvest(**small, replicates=2)
  pairs = _slow_pairs(small, 5)
  for name, curve in ESTIMATORS.items():
    np.testing.assert_allclose(
        getattr(result, name).value, curve(pairs), rtol=1e-9)
  order = np.random.default_rng(0).permutation(600)
  shuffled = {name: value if np.isscalar(value) else value[order]
              for name, value in small.items()}
  again = harvesting.harvest(**shuffled, replicates=2)
  np.testing.assert_allclose(again.all_pairs.high, result.all_pairs.high)


def test_interval_is_that_of_logs_with_requests_repeated(small, monkeypatch):
  result = harvesting.harvest(**small, replicates=30, level=.8, seed=4)
  logs = [harvesting.harvest(**small, weights=draw, replicates=1)
          for draw in bootstrap.draws_of(small["requests"], 30, 4).T]
  for name in ESTIMATORS:
    low, high = bootstrap.interval(
        [getattr(log, name).value for log in logs], .8)
    assert np.all(low[1:] > 0)
    np.testing.assert_allclose(getattr(result, name).low, low, rtol=1e-9)
    np.testing.assert_allclose(getattr(result, name).high, high, rtol=1e-9)
  monkeypatch.setattr(harvesting, "_BLOCK", 500)  # An item, and 16 rows.
  pieces = harvesting.harvest(**small, replicates=30, level=.8, seed=4)
  np.testing.assert_allclose(
      pieces.all_pairs.low, result.all_pairs.low, rtol=1e-9)


def test_sums_of_other_items_add_up(small):
  """So that a log may be in many places."""
  small["items"] = np.where(small["items"] < 0, -1, small["items"] % 40)
  whole = harvesting.harvest(**small)
  parts = [harvesting.harvest_sums(
      **{name: value if np.isscalar(value) else value[rows]
         for name, value in small.items()})
           for i in range(3) for rows in [small["items"] % 3 == i]]
  sums = parts[2] + parts[0] + parts[1]
  for name, estimate in sums.curves().items():
    for end in ("value", "low", "high"):
      np.testing.assert_allclose(
          getattr(estimate, end), getattr(getattr(whole, name), end),
          rtol=1e-9)
  for name, counts in sums.counts().items():
    np.testing.assert_array_equal(counts, getattr(whole, name))


def test_expected_counts_give_the_curve():
  rng = np.random.default_rng(0)
  items, positions = np.repeat(np.arange(50), 8), rng.integers(1, 11, 400)
  chance = THETA[positions - 1] * rng.beta(1., 2., 50)[items]
  result = harvesting.harvest(
      np.tile(items, 2), np.tile(positions, 2), np.repeat([True, False], 400),
      np.tile(items, 2), 10, weights=np.append(chance, 1. - chance))
  for name in ESTIMATORS:
    np.testing.assert_allclose(getattr(result, name).value, CURVE, rtol=1e-9)


def test_counts_of_items_and_components():
  #        item 1 at 1, 2, 2; 2 at 1, 2; 3 at 4, 5; 4 at 3; 5 at 1 (unknown: 2)
  result = harvesting.harvest(
      [1, 1, 1, 2, 2, 3, 3, 4, 5, -1], [1, 2, 2, 1, 2, 4, 5, 3, 1, 2],
      [True] * 6 + [False] + [True] * 3, np.arange(10), 6, replicates=50)
  expected = np.zeros((6, 6), int)
  expected[0, 1] = expected[1, 0] = 2
  expected[3, 4] = expected[4, 3] = 1
  assert result.swap_counts.tolist() == expected.tolist()
  assert result.num_items.tolist() == [2, 2, 0, 1, 1, 0]
  # Clicks on items that stay where they are tell nothing.
  assert result.num_clicks.tolist() == [2, 3, 0, 1, 0, 0]
  assert result.components.tolist() == [0, 0, 1, 2, 2, 3]
  # Rows that stand for no display connect nothing.
  stricter = harvesting.harvest(
      [1, 1, 3, 3, 4, 4, 1], [1, 2, 1, 2, 2, 3, 3], [True] * 7, np.arange(7), 3,
      weights=[1.] * 6 + [0.], min_swaps=2)
  assert stricter.components.tolist() == [0, 0, 1]
  # Position 4 has a click, but nothing ties them to position 1.
  assert np.isnan(result.all_pairs.value).tolist() == [False] * 2 + [True] * 4
  assert np.isnan(result.all_pairs.low).tolist() == [False] * 2 + [True] * 4


@pytest.mark.parametrize("items, positions", [
    ([1, 2, 3, 1], [1, 2, 3, 1]), ([-1, -1, -1, -1], [1, 2, 3, 1]),
    ([1, 1, 1, 1], [0, 0, 0, 0])])
def test_no_item_moves(items, positions):
  result = harvesting.harvest(
      items, positions, [True] * 4, [0, 0, 0, 1], 3, replicates=5)
  for name in ESTIMATORS:
    estimate = getattr(result, name)
    for values in (estimate.value, estimate.low, estimate.high):
      np.testing.assert_array_equal(values, [1., np.nan, np.nan])
  assert not result.swap_counts.any() and not result.num_items.any()
  assert result.components.tolist() == [0, 1, 2]


def test_no_clicks_at_a_position(small):
  small["clicked"] &= small["positions"] != 3
  result = harvesting.harvest(**small)
  for name in ("pivot", "all_pairs"):
    estimate = getattr(result, name)
    assert estimate.value[2] == estimate.low[2] == 0.
    assert np.isnan(estimate.high).tolist() == [k == 2 for k in range(5)]
  assert np.isnan(result.adjacent.value).tolist() == [False] * 3 + [True] * 2


def test_single_request():
  result = harvesting.harvest(
      [1, 1, 1, 1], [1, 2, 1, 2], [True, True, True, False], [9] * 4, 2)
  # Draws of the only request change nothing but the number of rows.
  assert result.pivot.value[1] == .5
  assert result.pivot.low[1] == pytest.approx(.5)
  assert result.pivot.high[1] == pytest.approx(.5)


@pytest.fixture(name="draws", scope="module")
def _draws():
  return [harvesting.harvest(**_log(seed), seed=seed)
          for seed in range(100, 120)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_intervals_cover(name, draws):
  low, high = (
      np.array([getattr(getattr(draw, name), end)[1:] for draw in draws])
      for end in ("low", "high"))
  # NaN, where the log does not tell how high, never excludes the truth.
  covered = (low <= CURVE[1:]) & ~(high < CURVE[1:])
  assert .8 <= covered.mean() <= .97
  assert np.isnan(high).mean() < .02


def test_relevance_does_not_bias_the_curve(draws):
  log = _log(100)
  rate = np.bincount(log["positions"], log["clicked"])[1:]
  assert rate[9] / rate[0] < .6 * CURVE[9]
  for name in ESTIMATORS:
    mean = np.mean([getattr(draw, name).value for draw in draws], axis=0)
    np.testing.assert_allclose(mean[:8], CURVE[:8], rtol=.1)


def test_randomized_click_rate(small):
  randomized = small["requests"] % 4 > 0  # Three in four.
  log = {name: small[name] for name in (
      "positions", "clicked", "requests", "num_positions")}
  result = harvesting.randomized_click_rate(
      **log, randomized=randomized, replicates=25, seed=3)
  index = np.unique(small["requests"][randomized], return_inverse=True)[1]
  weights = np.zeros((26, 600))
  weights[0] = 1.
  weights[1:, randomized] = bootstrap.resample(90, 25, 3)[:, index]
  curves = []
  for weight in weights:
    rates = []
    for k in range(1, 6):
      rows = randomized & (small["positions"] == k)
      rates.append((weight * small["clicked"])[rows].sum() / weight[rows].sum())
    curves.append(np.array(rates) / rates[0])
  np.testing.assert_allclose(result.value, curves[0])
  low, high = bootstrap.interval(curves[1:])
  np.testing.assert_allclose(result.low, low)
  np.testing.assert_allclose(result.high, high)
  doubled = harvesting.randomized_click_rate(
      **log, randomized=randomized, replicates=1,
      weights=1. + small["clicked"])
  assert np.all(np.abs(doubled.value - result.value)[1:] > 1e-3)


def test_randomized_click_rate_covers():
  covered = []
  for seed in range(20):
    # Noise without end: the order has nothing to do with relevance.
    log = _log(seed, num_requests=1000, noise=1e9)
    del log["items"]
    result = harvesting.randomized_click_rate(
        **log, randomized=np.ones(10000, bool), seed=seed)
    covered.append((result.low <= CURVE) & (CURVE <= result.high))
  assert .8 <= np.mean(covered, axis=0)[1:].mean() <= .97


def test_randomized_click_rate_without_clicks_or_rows():
  rows = {"clicked": [True, False, False], "requests": [0, 1, 2],
          "randomized": [True] * 3, "num_positions": 3, "replicates": 50}
  result = harvesting.randomized_click_rate([1, 1, 2], **rows)
  np.testing.assert_array_equal(result.value, [1., 0., np.nan])
  assert result.low[1] == 0. and np.isnan(result.high[1:]).all()
  result = harvesting.randomized_click_rate([2, 1, 1], **rows)
  assert np.isnan(result.value).all()


@pytest.mark.parametrize("change, message", [
    ({"items": [1.5, 2.]}, "`items` must hold integers.*float64"),
    ({"items": [1]}, r"`items` must have the shape \[2\].*\[1\]"),
    ({"positions": [[1, 2]]}, r"`positions` .* one dimension.*\[1, 2\]"),
    ({"positions": [1, 4]},
     "`positions` must be in 0 to 3, but positions.1. is 4"),
    ({"positions": [-1, 2]},
     "`positions` must be in 0 to 3, .* positions.0. is -1"),
    ({"clicked": [1, 0]}, "`clicked` must hold booleans.*int64; compare"),
    ({"clicked": [True]}, r"`clicked` must have the shape \[2\].*\[1\]"),
    ({"requests": [0]}, r"`requests` must have the shape \[2\].*\[1\]"),
    ({"num_positions": 0}, "`num_positions` .* at least 1, but is 0"),
    ({"weights": [1., -1.]},
     "`weights` .*finite value, but weights.1. is -1.0"),
    ({"weights": [np.nan, 1.]}, "`weights` .* weights.0. is nan"),
    ({"weights": [1.]}, r"`weights` must have the shape \[2\].*\[1\]"),
    ({"replicates": 0}, "`replicates` .* at least 1, but is 0"),
    ({"level": 90}, "`level` must be between 0 and 1, but is 90"),
    ({"min_swaps": 0}, "`min_swaps` .* at least 1, but is 0"),
])
def test_bad_arguments(change, message):
  good = {"items": [1, 1], "positions": [1, 2], "clicked": [True, False],
          "requests": [0, 1], "num_positions": 3, "replicates": 2}
  harvesting.harvest(**good)
  with pytest.raises(ValueError, match=message):
    harvesting.harvest(**{**good, **change})


@pytest.mark.parametrize("randomized, message", [
    ([False, False], "`randomized` must mark some rows.*use `harvest`"),
    ([1, 0], "`randomized` must hold booleans"),
    ([True], r"`randomized` must have the shape \[2\]"),
])
def test_bad_randomized(randomized, message):
  with pytest.raises(ValueError, match=message):
    harvesting.randomized_click_rate(
        [1, 2], [True, False], [0, 1], randomized, 2)
