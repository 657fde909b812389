"""Tests of ultra_tfr.evaluation.click_model_fit.position_follows_scores."""

import numpy as np
import pytest
from scipy import stats

from ultra_tfr.evaluation import bootstrap
from ultra_tfr.evaluation import click_model_fit


def test_position_follows_scores_against_scipy():
  rng = np.random.default_rng(8)
  # Lengths 1 to 6, ties among scores, numbers of requests in any order.
  lengths = rng.integers(1, 7, 80)
  requests = np.repeat(rng.permutation(80) * 7, lengths)
  positions = np.concatenate([rng.permutation(n) * 2 + 1 for n in lengths])
  scores = rng.integers(0, 8, len(requests)) // 2 - positions // 4
  scores[requests == requests[-1]] = 0.
  positions[::11] = 0
  expected = []
  for request in np.unique(requests):
    rows = (requests == request) & (positions > 0)
    if rows.sum() > 1 and np.ptp(scores[rows]) > 0:
      expected.append(
          stats.spearmanr(scores[rows], -positions[rows]).statistic)
  assert 40 < len(expected) < 80
  result = click_model_fit.position_follows_scores(
      scores, positions, requests, replicates=50, seed=2)
  assert result.value == pytest.approx(np.mean(expected))
  low, high = bootstrap.interval(
      [np.average(expected, weights=draw)
       for draw in bootstrap.resample(len(expected), 50, 2)])
  assert (result.low, result.high) == pytest.approx((float(low), float(high)))


@pytest.mark.parametrize("scores, expected", [
    ([9., 5., 1., 8., 7.], 1.), ([1., 5., 9., 0., 7.], -1.),
    ([9., 5., 1., 0., 7.], 0.)])
def test_position_follows_scores_at_its_ends(scores, expected):
  result = click_model_fit.position_follows_scores(
      scores, [1, 2, 3, 1, 2], [0, 0, 0, 1, 1])
  assert result.value == expected and isinstance(result.value, float)


def test_position_follows_scores_without_pairs():
  for requests in ([0, 1, 2], [0, 0, 0]):
    result = click_model_fit.position_follows_scores(
        [.5] * 3, [1, 2, 3], requests)
    assert np.isnan([result.value, result.low, result.high]).all()


@pytest.mark.parametrize("change, message", [
    ({"scores": [1.]}, r"`scores` must have the shape \[2\].*\[1\]"),
    ({"scores": [1., np.nan]}, "`scores` .* scores.1. is nan; leave out"),
    ({"scores": [np.inf, 1.]}, "`scores` .* scores.0. is inf"),
    ({"positions": [1., 2.]}, "`positions` must hold integers"),
    ({"positions": [1, -2]},
     "`positions` must be in 0 to .* positions.1. is -2"),
    ({"level": 0.}, "`level` must be between 0 and 1"),
])
def test_bad_arguments_of_position_follows_scores(change, message):
  good = {"scores": [1., 0.], "positions": [1, 2], "requests": [0, 0]}
  assert click_model_fit.position_follows_scores(**good).value == 1.
  with pytest.raises(ValueError, match=message):
    click_model_fit.position_follows_scores(**{**good, **change})
