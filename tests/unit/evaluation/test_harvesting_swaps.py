"""Tests of ultra_tfr.evaluation.harvesting: curves from items that moved."""

import numpy as np
import pytest

import eye_tracking
from ultra_tfr.evaluation import harvesting

THETA = eye_tracking.CURVE
CURVES = (harvesting.adjacent_chain, harvesting.pivot, harvesting.all_pairs)


def _cells(seed, num_items=30, num_positions=10, columns=()):
  """Items at random positions, with random numbers of displays and clicks."""
  rng = np.random.default_rng(seed)
  present = rng.random((num_items, num_positions)) < .6
  items, index = np.nonzero(present)
  shown = rng.integers(0, 5, (len(items), *columns)).astype(float)
  return items, index + 1, shown, rng.binomial(shown.astype(int), .4) * 1.


def _slow_pair_clicks(items, positions, shown, clicked, num_positions):
  sums = np.zeros((num_positions, num_positions))
  for a, item in enumerate(items):
    for b, other in enumerate(items):
      if item == other and a != b and shown[a] + shown[b] > 0:
        sums[positions[a] - 1, positions[b] - 1] += (
            clicked[a] * shown[b] / (shown[a] + shown[b]))
  return sums


def _slow_bradley_terry(pairs, iterations):
  """Hunter's MM algorithm, "MM algorithms for generalized Bradley-Terry"."""
  size = range(len(pairs))
  strength = [1. for _ in size]
  for _ in range(iterations):
    strength = [
        sum(pairs[k][j] for j in size if j != k) /
        sum((pairs[k][j] + pairs[j][k]) / (strength[k] + strength[j])
            for j in size if j != k)
        for k in size]
    strength = [s / strength[0] for s in strength]
  return strength


def test_pair_clicks_against_double_loop():
  items, positions, shown, clicked = _cells(0)
  assert (shown == 0).any()
  np.testing.assert_allclose(
      harvesting.pair_clicks(items, positions, shown, clicked, 10),
      _slow_pair_clicks(items, positions, shown, clicked, 10))


def test_pair_clicks_of_columns_and_of_any_order_of_positions():
  items, positions, shown, clicked = _cells(1, columns=(2, 3))
  result = harvesting.pair_clicks(items, positions, shown, clicked, 10)
  assert result.shape == (2, 3, 10, 10)
  np.testing.assert_allclose(result[1, 2], _slow_pair_clicks(
      items, positions, shown[:, 1, 2], clicked[:, 1, 2], 10))
  turned = np.arange(len(items))[::-1]
  np.testing.assert_allclose(
      harvesting.pair_clicks(items[turned], positions[turned], shown[turned],
                        clicked[turned], 10), result)


def test_pair_clicks_of_nothing():
  nothing = np.zeros(0, np.int64)
  result = harvesting.pair_clicks(
      nothing, nothing, np.zeros((0, 4)), np.zeros((0, 4)), 3)
  np.testing.assert_array_equal(result, np.zeros((4, 3, 3)))


@pytest.mark.parametrize("curve", CURVES)
def test_expected_counts_give_the_curve(curve):
  rng = np.random.default_rng(2)
  items, positions, shown, _ = _cells(2)
  relevance = rng.beta(1., 2., 30)
  clicked = shown * THETA[positions - 1] * relevance[items]
  pairs = harvesting.pair_clicks(items, positions, shown, clicked, 10)
  np.testing.assert_allclose(curve(pairs), THETA / THETA[0], rtol=1e-9)


def test_all_pairs_against_minorization_maximization():
  pairs = np.random.default_rng(3).uniform(0., 1., (5, 5)) ** 3
  np.testing.assert_allclose(
      harvesting.all_pairs(pairs), _slow_bradley_terry(pairs.tolist(), 300),
      rtol=1e-8)


def test_all_pairs_of_neighbours_is_the_chain():
  # Without a cycle of positions the likelihood can fit each ratio exactly.
  # That is where MM crawls: 60,000 iterations.
  rng = np.random.default_rng(4)
  near = np.abs(np.subtract.outer(np.arange(50), np.arange(50))) == 1
  pairs = np.where(near, rng.uniform(.1, 9., (7, 50, 50)), 0.)
  np.testing.assert_allclose(
      harvesting.all_pairs(pairs), harvesting.adjacent_chain(pairs), rtol=1e-8)


def test_all_pairs_far_from_equal():
  odds = np.array([1., 1e-4, 1e4, 1e-9])
  pairs = odds[:, None] / (odds[:, None] + odds)
  np.testing.assert_allclose(harvesting.all_pairs(pairs), odds, rtol=1e-6)


def test_all_pairs_reaches_the_maximum_of_wild_tables():
  # Newton's steps without damping overshoot in one of these.
  pairs = np.exp(6. * np.random.default_rng(1).normal(size=(50, 4, 4)))
  odds = harvesting.all_pairs(pairs)
  wins = pairs * (1. - np.eye(4))
  expected = (wins + np.swapaxes(wins, 1, 2)) * odds[:, :, None] / (
      odds[:, :, None] + odds[:, None])
  np.testing.assert_allclose(
      expected.sum(axis=-1), wins.sum(axis=-1), rtol=1e-6)


@pytest.mark.parametrize("curve", CURVES)
def test_many_tables_are_each_for_itself(curve):
  tables = np.random.default_rng(5).poisson(1., (40, 6, 6)).astype(float)
  tables[0, 0, :] = 0.  # No click at position 1.
  together = curve(tables)
  assert np.isnan(together).any() and np.isfinite(together[:, 1:]).any()
  for table, row in zip(tables, together):
    np.testing.assert_allclose(curve(table), row, rtol=1e-8)


def _tables(wins, size=4):
  pairs = np.zeros((size, size))
  for k, j, value in wins:
    pairs[k - 1, j - 1] = value
  return pairs


@pytest.mark.parametrize("wins, adjacent, pivot, all_pairs", [
    ([], [1, None, None, None], [1, None, None, None], [1, None, None, None]),
    # 2 and 4 never win; beyond 2 the chain has ended.
    ([(1, 2, 2.), (1, 3, 4.), (3, 1, 2.), (3, 2, 1.), (3, 4, 2.)],
     [1, 0, None, None], [1, 0, .5, None], [1, 0, .5, 0]),
    # 3 is reached by way of 2 alone, 4 not at all.
    ([(1, 2, 2.), (2, 1, 1.), (2, 3, 3.), (3, 2, 1.)],
     [1, .5, 1 / 6, None], [1, .5, None, None], [1, .5, 1 / 6, None]),
    # {3, 4} are apart from {1, 2}.
    ([(1, 2, 2.), (2, 1, 1.), (3, 4, 3.), (4, 3, 1.)],
     [1, .5, None, None], [1, .5, None, None], [1, .5, None, None]),
    # 1 never wins: everything is infinitely better.
    ([(2, 1, 1.), (2, 3, 1.), (3, 2, 1.)],
     [1, None, None, None], [1, None, None, None], [1, None, None, None]),
    # A circle of wins has a maximum though no pair has both.
    ([(1, 2, 1.), (2, 3, 1.), (3, 1, 1.)],
     [1, 0, None, None], [1, 0, None, None], [1, 1, 1, None]),
])
def test_what_the_log_does_not_tell_is_nan(wins, adjacent, pivot, all_pairs):
  pairs = _tables(wins)
  for curve, expected in zip(CURVES, (adjacent, pivot, all_pairs)):
    np.testing.assert_allclose(
        curve(pairs), np.array(expected, float), atol=1e-9)


@pytest.mark.parametrize("curve", CURVES)
def test_one_position(curve):
  assert curve(np.zeros((3, 1, 1))).tolist() == [[1.]] * 3
