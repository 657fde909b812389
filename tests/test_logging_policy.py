"""Tests of ultra_tfr.simulation.logging_policy."""

import numpy as np
import pytest
from scipy import stats

from ultra_tfr.data import synthetic
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import ranking
from ultra_tfr.simulation import logging_policy


@pytest.fixture(scope="module")
def data():
  return synthetic.generate(300, 30, 100, seed=3)


def _quality(data, logger):
  scores, = logging_policy.logger_scores(data.train, [data.test], logger)
  return ranking.ndcg(data.test, scores)["ndcg@10"]


def test_loggers_know_more_and_more(data):
  quality = {name: _quality(data, name) for name in logging_policy.LOGGERS}
  print(quality)
  assert abs(quality["irrelevant"] - quality["random"]) < 0.1
  assert quality["random"] + 0.1 < quality["weak"]
  assert quality["weak"] + 0.05 < quality["strong"]


def test_the_seed_decides(data):
  for logger in ("random", "weak"):
    first, again, other = (
        logging_policy.logger_scores(data.train, [data.test], logger, seed=s)[0]
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
  found = logging_policy.least_relevant_feature(lists)
  assert found == 2
  # The oracle: correlations over centred ranks, list by list.
  def correlation(feature):
    pairs = [(stats.rankdata(features[i:i + 10, feature]) - 5.5,
              stats.rankdata(labels[i:i + 10]) - 5.5)
             for i in range(0, 400, 10)]
    a, b = map(np.concatenate, zip(*pairs))
    return abs(a @ b) / np.sqrt(a @ a * (b @ b)) if a @ a else np.inf
  assert found == np.argmin([correlation(f) for f in range(5)])


def test_without_a_usable_feature_it_is_said():
  lists = RankingLists(np.ones([4, 2]), [0, 1, 0, 1], [0, 2, 4], [1, 2])
  with pytest.raises(ValueError, match="No feature differs within a list"):
    logging_policy.logger_scores(lists, [lists], "irrelevant")


def test_an_unknown_logger(data):
  with pytest.raises(ValueError, match="`logger` must be one of"):
    logging_policy.logger_scores(data.train, [data.test], "best")
