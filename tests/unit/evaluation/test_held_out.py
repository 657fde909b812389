"""Tests of ultra_tfr.evaluation.held_out."""

import math

import numpy as np
import pytest

from ultra_tfr.evaluation import held_out


def _errors_behind(dcg, gain, best, other):
  """Standard errors between two rankers, in plain Python."""
  total = sum(gain)
  behind = sum(dcg[best]) / total - sum(dcg[other]) / total
  squares = sum(
      (dcg[best][n] - dcg[other][n] - behind * gain[n])**2
      for n in range(len(gain)))
  count = len(gain)
  return behind / (math.sqrt(squares * count / (count - 1)) / total)


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_that_of_plain_python(seed):
  rng = np.random.default_rng(seed)
  gain = rng.exponential(size=50)
  dcg = gain * rng.random([6, 50]) + rng.normal(size=[6, 1]) * 0.1
  best = max(range(6), key=lambda v: sum(dcg[v]))
  expected = max(v for v in range(6) if v == best or
                 _errors_behind(dcg.tolist(), gain.tolist(), best, v) <= 2)
  assert held_out.last_as_good(dcg, gain) == expected


def test_standard_errors_are_those_of_repeated_samples():
  rng = np.random.default_rng(0)
  gain = 1.0 + rng.exponential(size=[4000, 500])
  dcg = np.stack([gain * rng.random([4000, 500]) for _ in range(2)], axis=1)
  values = dcg.sum(axis=2) / gain.sum(axis=1, keepdims=True)
  behind = values[:, 0] - values[:, 1]
  # Two rankers that are equal but for chance: one of 20 is told apart.
  later = [held_out.last_as_good(d, g) for d, g in zip(dcg, gain)]
  told_apart = np.mean((np.array(later) == 0)[behind > 0])
  assert told_apart == pytest.approx(0.0455, abs=0.015)


def test_no_slack_takes_the_last_of_the_best():
  dcg = [[1.0, 0.0], [2.0, 1.0], [1.0, 2.0], [2.0, 0.0]]
  assert held_out.last_as_good(dcg, np.ones(2), slack=0.0) == 2


@pytest.mark.parametrize("dcg, expected", [
    (np.full([3, 2], np.nan), 2), ([[0.5, 0.5], [np.nan, 1.0]], 0),
    ([[np.nan, 1.0], [0.1, 0.1], [0.5, 0.5], [np.nan, 0.0]], 2)])
def test_what_is_no_number_is_not_chosen(dcg, expected):
  assert held_out.last_as_good(dcg, np.ones(2)) == expected


def test_without_gain_it_is_the_last():
  assert held_out.last_as_good(np.zeros([3, 2]), np.zeros(2)) == 2


def test_one_request_tells_nothing_of_chance():
  assert held_out.last_as_good([[2.0], [1.0]], [1.0]) == 0


def test_the_judge_is_plain_python_whatever_the_batches():
  rng = np.random.default_rng(0)
  rankings = rng.permuted(np.tile(np.arange(4.0), [3, 6, 1]), axis=2)
  estimates = rng.exponential(size=[6, 4])
  mask = np.ones([6, 4], bool)
  mask[:, 3] = [True, False] * 3
  dcg, gain = held_out.judge(
      [(list(rankings[:, rows]), estimates[rows], mask[rows])
       for rows in (slice(0, 2), slice(2, 6))])
  for n in range(6):
    counts = [i for i in range(4) if mask[n, i]]
    assert gain[n] == pytest.approx(sum(estimates[n, i] for i in counts))
    for v in range(3):
      order = sorted(counts, key=lambda i: -rankings[v, n, i])
      assert dcg[v, n] == pytest.approx(sum(
          estimates[n, i] / math.log2(rank + 2)
          for rank, i in enumerate(order)))


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_an_error_where_items_count(score):
  """A diverged ranker must not be chosen as one that ranks by chance."""
  scores = np.array([[score, 1.0]])
  batch = [scores], np.ones([1, 2])
  with pytest.raises(ValueError, match="^The training diverged: .* no number"):
    held_out.judge([(*batch, np.array([[True, True]]))])
  assert held_out.judge([(*batch, np.array([[False, True]]))])[1] == [1.0]
