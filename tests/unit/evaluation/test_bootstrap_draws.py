"""Tests of ultra_tfr.evaluation.bootstrap: draws by the number of a request."""

import numpy as np

from ultra_tfr.evaluation import bootstrap


def test_a_request_is_drawn_alike_wherever_it_is():
  numbers = np.array([3, -8, 1 << 61, 3, 12])
  draws = bootstrap.draws_of(numbers, 30, seed=5)
  np.testing.assert_array_equal(draws[0], draws[3])
  np.testing.assert_array_equal(draws[1:3], bootstrap.draws_of(
      numbers[1:3], 30, seed=5))
  np.testing.assert_array_equal(draws[:, :6], bootstrap.draws_of(
      numbers, 6, seed=5))
  assert (draws != bootstrap.draws_of(numbers, 30, seed=6)).any(axis=1).all()


def test_draws_are_those_of_a_poisson_distribution():
  draws = bootstrap.draws_of(np.arange(50000), 6, seed=1).astype(float)
  np.testing.assert_allclose(draws.mean(axis=0), 1., atol=.02)
  np.testing.assert_allclose(draws.var(axis=0), 1., atol=.04)
  np.testing.assert_allclose(np.mean(draws == 0, axis=0), np.exp(-1), atol=.01)
  # From replicate to replicate, seed to seed, and request to request.
  other = bootstrap.draws_of(np.arange(50000), 6, seed=2).astype(float)
  tables = np.concatenate([draws, other, np.roll(draws, 1, axis=0)], axis=1)
  assert np.abs(np.corrcoef(tables.T) - np.eye(18)).max() < .02
