"""Tests of ultra_tfr.experiments.simulate_ab."""

import statistics

import numpy as np
import pytest

from ultra_tfr.data.labels import LabelSynthesis
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.experiments.simulate_ab import METRICS
from ultra_tfr.experiments.simulate_ab import ABTest
from ultra_tfr.experiments.simulate_ab import compare
from ultra_tfr.experiments.simulate_ab import run_ab_test
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.dwell import simulate_dwell

EVERYTHING = PositionBasedModel([1.], click_noise=0.)  # Relevant is clicked.


def _lists(count=60, seed=0):
  """Lists of 3 to 12 documents with grades 0 to 4."""
  rng = np.random.default_rng(seed)
  sizes = rng.integers(3, 13, count)
  return RankingLists(
      np.zeros([sizes.sum(), 2]), rng.integers(0, 5, sizes.sum()),
      np.concatenate([[0], np.cumsum(sizes)]), np.arange(count))


LISTS = _lists()
SAME = np.random.default_rng(1).normal(size=len(LISTS.labels))
BETTER = SAME + LISTS.labels


class _Recorder(PositionBasedModel):
  """Keeps what users saw and clicked on, a day an entry."""

  def __init__(self, max_grade=4):
    super().__init__(max_grade=max_grade)
    self.seen = []

  def sample(self, labels, seed, positions=None):
    found = super().sample(labels, seed, positions)
    self.seen.append((labels, found.clicks, seed))
    return found


def _expected_clicks(lists, scores, model, num_positions):
  """Mean clicks a visit, list by list and position by position."""
  total, curve = 0., model.examination(num_positions)
  for start, end in zip(lists.row_splits[:-1], lists.row_splits[1:]):
    order = sorted(range(start, end), key=lambda doc: -scores[doc])
    for position, doc in enumerate(order[:num_positions]):
      total += curve[position] * model.attraction([lists.labels[doc]])[0]
  return total / len(lists)


# The statistics.


def test_compare_is_what_the_formulas_say():
  rng = np.random.default_rng(0)
  a, b = rng.poisson(1.2, 300), rng.poisson(1.4, 250)
  found = compare([300, 250], [a.sum(), b.sum()],
                  [(a ** 2).sum(), (b ** 2).sum()])
  means, errors = [], []
  for values in (a.tolist(), b.tolist()):
    means.append(statistics.mean(values))
    errors.append((statistics.variance(values) / len(values)) ** .5)
  normal = statistics.NormalDist()
  z = normal.inv_cdf(.975)
  np.testing.assert_allclose(found.mean, means)
  np.testing.assert_allclose(found.half_width, np.multiply(z, errors))
  assert found.uplift == pytest.approx(means[1] / means[0] - 1)
  score = (means[1] - means[0]) / (errors[0] ** 2 + errors[1] ** 2) ** .5
  assert found.p_value == pytest.approx(2 * normal.cdf(-abs(score)))
  # Fieller: the ratios r for which mean B - r mean A is not far from 0.
  assert found.low < found.uplift < found.high
  for ratio in (1 + found.low, 1 + found.high):
    difference = means[1] - ratio * means[0]
    assert abs(difference) == pytest.approx(
        z * (errors[1] ** 2 + (ratio * errors[0]) ** 2) ** .5)


def test_many_visits_give_the_delta_method():
  n = 10 ** 8
  found = compare([n, n], [n, 1.1 * n], [3. * n, 3. * n])
  variance = (3. - 1.21) / n + 1.21 * (3. - 1.) / n
  assert found.high - found.low == pytest.approx(
      2 * 1.959964 * variance ** .5, rel=1e-5)
  assert found.high + found.low == pytest.approx(.2, rel=1e-5)


def test_the_interval_excludes_0_exactly_where_p_is_below_5_percent():
  rng = np.random.default_rng(0)
  visits = np.full((2000, 2), 100)
  counts = rng.binomial(visits, [.3, .4])
  found = compare(visits, counts, counts)
  excludes = (found.low > 0) | (found.high < 0)
  np.testing.assert_array_equal(excludes, found.p_value < .05)
  assert .2 < excludes.mean() < .5


def test_a_without_events_has_no_uplift():
  found = compare([50, 50], [0., 9.], [0., 9.])
  assert np.isnan([found.uplift, found.low, found.high]).all()
  assert found.p_value < .05
  few = compare([50, 50], [2., 9.], [2., 9.])  # A's mean may be 0.
  assert few.uplift == pytest.approx(3.5)
  assert np.isnan([few.low, few.high]).all()


@pytest.mark.parametrize("visits", [[0, 5], [1, 5]])
def test_too_few_visits_have_no_interval(visits):
  found = compare(visits, [visits[0], 3.], [visits[0], 3.])
  assert np.isnan([found.low, found.high, found.p_value]).all()


@pytest.mark.parametrize("scores_b", [SAME, BETTER], ids=["same", "better"])
def test_intervals_hold_the_true_uplift_in_95_of_100_tests(scores_b):
  model = PositionBasedModel()
  true_a, true_b = (_expected_clicks(LISTS, scores, model, 5)
                    for scores in (SAME, scores_b))
  inside, same = 0, {metric: 0 for metric in METRICS}
  for seed in range(300):
    test = run_ab_test(LISTS, SAME, scores_b, model, days=2,
                       visits_per_day=200, num_positions=5, seed=seed)
    found = test.total()
    inside += found.low <= true_b / true_a - 1 <= found.high
    for metric in METRICS:
      same[metric] += test.total(metric).p_value >= .05
  # Four standard deviations of 300 draws.
  assert 270 <= inside <= 299
  if scores_b is SAME:
    assert true_a == true_b
    assert all(270 <= count <= 299 for count in same.values()), same
  else:
    assert true_b > 1.2 * true_a


# The test.


def test_a_better_order_wins_in_everything():
  test = run_ab_test(LISTS, SAME, BETTER, PositionBasedModel(), seed=3)
  for metric in METRICS:
    assert test.total(metric).low > 0
    assert test.total(metric).p_value < .001
  found = test.total()
  model = PositionBasedModel()
  for mean, half, scores in zip(found.mean, found.half_width, (SAME, BETTER)):
    assert abs(mean - _expected_clicks(LISTS, scores, model, 10)) < 2 * half
  turned = run_ab_test(LISTS, BETTER, SAME, PositionBasedModel(), seed=3)
  assert turned.total().high < 0


def test_sums_are_those_of_each_visit():
  lists = RankingLists(np.zeros([5, 1]), [4, 3, 2, 1, 3], [0, 3, 5], [7, 8])
  up, model = np.arange(5.), _Recorder()
  test = run_ab_test(lists, -up, up, model, days=2, visits_per_day=300,
                     num_positions=2, seed=5)
  query_and_arm = {
      (4, 3): (0, 0), (2, 3): (0, 1), (1, 3): (1, 0), (3, 1): (1, 1)}
  queries = []
  for day, (labels, clicks, seed) in enumerate(model.seen):
    dwell = simulate_dwell(labels, clicks, seed)
    visits, sums, squares = np.zeros(2), np.zeros([4, 2]), np.zeros([4, 2])
    for visit in range(300):
      query, arm = query_and_arm[tuple(labels[visit])]
      clicked, stayed = sum(clicks[visit]), sum(dwell[visit])
      for i, value in enumerate(
          (clicked, float(clicked > 0), stayed, clicked + stayed)):
        sums[i, arm] += value
        squares[i, arm] += value ** 2
      visits[arm] += 1
      queries.append(query)
    assert test.visits[day].tolist() == visits.tolist()
    for i, metric in enumerate(METRICS):
      np.testing.assert_allclose(test.sums[metric][day], sums[i], rtol=1e-5)
      np.testing.assert_allclose(
          test.squares[metric][day], squares[i], rtol=1e-5)
  assert len(model.seen) == 2
  assert np.mean(queries) == pytest.approx(.5, abs=.08)
  assert test.visits.sum(axis=0) / 600 == pytest.approx(.5, abs=.08)


def test_days_add_up():
  test = run_ab_test(LISTS, SAME, BETTER, PositionBasedModel(), days=3, seed=1)
  for metric in METRICS:
    daily, cumulative = test.daily(metric), test.cumulative(metric)
    assert daily.mean.shape == (3, 2) and cumulative.low.shape == (3,)
    for day in range(3):
      alone, so_far = slice(day, day + 1), slice(day + 1)
      for found, days in ((daily, alone), (cumulative, so_far)):
        part = ABTest(("A", "B"), test.visits[days],
                      {metric: test.sums[metric][days]},
                      {metric: test.squares[metric][days]}).total(metric)
        for value, expected in zip(found, part):
          np.testing.assert_allclose(value[day], expected)
  assert len(set(test.daily().uplift)) == 3


def test_only_the_top_is_seen():
  test = run_ab_test(LISTS, SAME, BETTER, EVERYTHING, num_positions=1, seed=2)
  found = test.total()
  for mean, half, scores in zip(found.mean, found.half_width, (SAME, BETTER)):
    assert abs(mean - _expected_clicks(LISTS, scores, EVERYTHING, 1)) < 2 * half
  np.testing.assert_array_equal(test.sums["clicks"], test.sums["click_through"])


def test_padding_changes_nothing():
  short, long = (
      run_ab_test(LISTS, SAME, BETTER, PositionBasedModel(), seed=4,
                  num_positions=size, synthesis=lambda actions: (
                      np.ones_like(actions["click"]))) for size in (12, 20))
  for metric in METRICS:
    np.testing.assert_allclose(
        short.sums[metric], long.sums[metric], rtol=1e-7)
  # Each document shown counts 1, padding nothing.
  mean = short.sums["label"].sum() / short.visits.sum()
  assert mean == pytest.approx(LISTS.list_sizes.mean(), abs=.2)


def test_another_synthesis_and_highest_grade():
  lists = RankingLists(np.zeros([2, 1]), [0, 2], [0, 2], [7])
  model = _Recorder(max_grade=2)
  test = run_ab_test(
      lists, [1, 2], [2, 1], model, days=1,
      synthesis=LabelSynthesis("weighted_sum", {"click": 2., "dwell": .5}))
  np.testing.assert_allclose(
      test.sums["label"],
      2 * test.sums["clicks"] + .5 * test.sums["dwell"], rtol=1e-5)
  dwell = simulate_dwell(*model.seen[0], max_grade=2)
  assert test.sums["dwell"].sum() == pytest.approx(dwell.sum(), rel=1e-5)


def test_the_same_seed_gives_the_same_test():
  first, again, other = (
      run_ab_test(LISTS, SAME, BETTER, PositionBasedModel(), seed=seed)
      for seed in (1, 1, 2))
  assert first.to_json() == again.to_json() != other.to_json()


# Errors.


@pytest.mark.parametrize("change, message", [
    ({"scores_a": [1.]}, r"`scores_a` must have the shape \[2\].* \[1\]"),
    ({"scores_b": [1.]}, r"`scores_b` must have the shape \[2\].* \[1\]"),
    ({"scores_b": [1., np.nan]}, "`scores` must be numbers.*document 1"),
    ({"days": 0}, "`days` .* at least 1, but is 0"),
    ({"visits_per_day": 0}, "`visits_per_day` .* at least 1, but is 0"),
    ({"num_positions": 0}, "`num_positions` .* at least 1, but is 0"),
    ({"click_model": PositionBasedModel(max_grade=1)}, "`max_grade` 1"),
    ({"synthesis": lambda actions: actions["click"] - 1}, "at least 0"),
    ({"lists": _lists(2).select([]), "scores_a": [], "scores_b": []},
     "`lists` must hold at least one list"),
])
def test_bad_arguments(change, message):
  good = {"lists": RankingLists(np.zeros([2, 1]), [0, 2], [0, 2], [7]),
          "scores_a": [1., 2.], "scores_b": [2., 1.],
          "click_model": PositionBasedModel()}
  with pytest.raises(ValueError, match=message):
    run_ab_test(**{**good, **change})


def test_unknown_metric():
  test = run_ab_test(LISTS, SAME, BETTER, PositionBasedModel(), days=1)
  with pytest.raises(ValueError, match="`metric` .*'clicks'.* is 'ctr'"):
    test.total("ctr")
