"""Tests of ultra_tfr.experiments.loggers."""

import numpy as np
import pytest
from scipy import stats

from ultra_tfr.data import synthetic
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import loggers


@pytest.fixture(scope="module")
def data():
  return synthetic.generate(300, 30, 100, seed=3)


def _quality(data, logger):
  scores, = loggers.logger_scores(data.train, [data.test], logger)
  # As displayed: equal scores have an order, too.
  shown = data.test.sort_by(scores)
  return ranking.ndcg(shown, -np.arange(len(shown.labels)))["ndcg@10"]


def test_loggers_know_more_and_more(data):
  quality = {name: _quality(data, name) for name in loggers.LOGGERS}
  print(quality)
  assert abs(quality["irrelevant"] - quality["random"]) < 0.05
  assert quality["random"] + 0.1 < quality["weak"]
  assert quality["weak"] + 0.05 < quality["strong"]


@pytest.mark.slow
def test_the_strong_ranker_is_as_good_as_the_oracle():
  data = synthetic.generate()
  assert data.train.list_sizes.mean() > 20
  found = _quality(data, "strong")
  print(found)
  # Of `ultra-tfr demo --method oracle-pairwise`: 0.906 over five seeds.
  assert found > 0.905


def test_the_weak_ranker_is_the_initial_ranker(data):
  for fraction in (0.01, 0.1):
    ranker = loggers.fit_initial_ranker(data.train, fraction, seed=4)
    found, = loggers.logger_scores(
        data.train, [data.test], "weak", fraction, seed=4)
    np.testing.assert_array_equal(found, ranking.score_lists(ranker, data.test))


def test_the_seed_decides(data):
  for logger in ("random", "weak"):
    first, again, other = (
        loggers.logger_scores(data.train, [data.test], logger, seed=s)[0]
        for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_least_relevant_feature_has_the_least_rank_correlation():
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, 400).astype(float)
  features = np.stack([
      labels + rng.normal(size=400), np.full(400, 2.0), rng.normal(size=400),
      -labels + 0.1 * rng.normal(size=400),
      np.repeat(rng.normal(size=40), 10)], axis=1)  # Of the query: constant.
  lists = RankingLists(features, labels, np.arange(0, 401, 10), np.arange(40))
  found = loggers.least_relevant_feature(lists)
  assert found == 2
  # The oracle: correlations over centred ranks, list by list.
  def correlation(feature):
    pairs = [(stats.rankdata(features[i:i + 10, feature]) - 5.5,
              stats.rankdata(labels[i:i + 10]) - 5.5)
             for i in range(0, 400, 10)]
    a, b = map(np.concatenate, zip(*pairs))
    return abs(a @ b) / np.sqrt(a @ a * (b @ b)) if a @ a else np.inf
  assert found == np.argmin([correlation(f) for f in range(5)])


def _lists(features, labels, size):
  count = len(labels) // size
  return RankingLists(features, labels, np.arange(count + 1) * size,
                      np.arange(count))


def test_a_feature_that_hardly_orders_does_not_qualify():
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, 400).astype(float)
  rare = (np.arange(400) % 10 == 0).astype(float)  # One document of a list.
  somewhat = labels + 4.0 * rng.normal(size=400)
  for features, expected in (([rare, somewhat], 1), ([labels * 0, rare], 1)):
    found = loggers.least_relevant_feature(
        _lists(np.stack(features, axis=1), labels, 10))
    assert found == expected


def test_long_lists_do_not_decide_alone():
  rng = np.random.default_rng(0)
  sizes = np.array([5] * 80 + [100])
  labels = rng.integers(0, 3, 500).astype(float)
  noise = rng.normal(size=500)
  # The labels themselves in all lists but the long one; and weaker in all.
  features = np.stack(
      [np.where(np.arange(500) < 400, labels, noise), labels + 2.0 * noise], 1)
  lists = RankingLists(
      features, labels, np.concatenate([[0], np.cumsum(sizes)]), np.arange(81))
  assert loggers.least_relevant_feature(lists) == 1


def test_the_order_of_the_file_does_not_show():
  labels = np.tile([2.0, 1.0, 0.0, 0.0], 500)  # Sorted, as some files are.
  feature = np.tile([0.0, 0.0, 0.0, 1.0], 500)[:, np.newaxis]
  lists = _lists(feature, labels, 4)
  scores, = loggers.logger_scores(lists, [lists], "irrelevant")
  shown = lists.sort_by(scores).labels.reshape(500, 4)
  assert (shown[:, 0] == 0).all()  # The highest first.
  # What is equal comes in any order: the mean of the other three, 1.
  np.testing.assert_allclose(shown[:, 1:].mean(axis=0), 1.0, atol=0.15)
  other, = loggers.logger_scores(
      lists, [lists], "irrelevant", seed=1)
  assert not np.array_equal(other, scores)


def test_the_strong_ranker_takes_lists_of_any_length():
  rng = np.random.default_rng(0)
  sizes = np.array([0, 1, 300, *[10] * 40])
  features = rng.normal(size=[sizes.sum(), 3])
  labels = np.clip(np.round(features[:, 0] + 1), 0, 4)
  lists = RankingLists(
      features, labels, np.concatenate([[0], np.cumsum(sizes)]),
      np.arange(len(sizes)))
  scores, = loggers.logger_scores(lists, [lists], "strong")
  assert ranking.ndcg(lists, scores)["ndcg@10"] > 0.9


def test_without_a_usable_feature_it_is_said():
  lists = RankingLists(np.ones([4, 2]), [0, 1, 0, 1], [0, 2, 4], [1, 2])
  with pytest.raises(ValueError, match="No feature differs within a list"):
    loggers.logger_scores(lists, [lists], "irrelevant")


def test_an_unknown_logger(data):
  with pytest.raises(ValueError, match="`logger` must be one of"):
    loggers.logger_scores(data.train, [data.test], "best")
