"""Tests of ultra_tfr.evaluation.ranking."""

import dataclasses
import math

import numpy as np
import pytest

from ultra_tfr import scorers
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import ranking


def _lists(seed=0, num_lists=9, num_features=3, max_grade=4):
  rng = np.random.default_rng(seed)
  sizes = rng.integers(1, 15, num_lists)
  count = sizes.sum()
  labels = rng.integers(0, max_grade + 1, count)
  splits = np.concatenate([[0], np.cumsum(sizes)])
  # One list has no relevant document.
  labels[splits[2]:splits[3]] = 0
  return RankingLists(rng.normal(size=[count, num_features]), labels, splits,
                      np.arange(num_lists))


def _oracle(lists, scores, topn):
  """The mean NDCG of the lists that have a relevant document."""
  values = []
  for start, end in zip(lists.row_splits[:-1], lists.row_splits[1:]):
    documents = [(float(scores[i]), float(lists.labels[i]))
                 for i in range(start, end)]
    if not any(label > 0 for _, label in documents):
      continue
    # The highest score first, and of equal ones the least relevant.
    ranked = sorted(documents, key=lambda d: (-d[0], d[1]))
    ideal = sorted(documents, key=lambda d: -d[1])
    gains = [sum((2**label - 1) / math.log2(rank + 1)
                 for rank, (_, label) in enumerate(order[:topn], start=1))
             for order in (ranked, ideal)]
    values.append(gains[0] / gains[1])
  return sum(values) / len(values) if values else 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ties", [False, True])
def test_ndcg_equals_the_oracle(seed, ties):
  lists = _lists(seed)
  rng = np.random.default_rng(seed)
  scores = rng.normal(size=len(lists.labels))
  if ties:
    scores = np.round(scores)
  found = ranking.ndcg(lists, scores)
  assert list(found) == ["ndcg@3", "ndcg@5", "ndcg@10"]
  for n in (3, 5, 10):
    assert found[f"ndcg@{n}"] == pytest.approx(
        _oracle(lists, scores, n), abs=1e-6)


def test_a_constant_score_ranks_the_least_relevant_first():
  lists = RankingLists(np.zeros([3, 1]), [2, 0, 0], [0, 3], [0])
  found = ranking.ndcg(lists, np.zeros(3), topn=(3,))["ndcg@3"]
  assert found == pytest.approx(1 / math.log2(4))


def test_the_order_of_documents_does_not_matter():
  lists = _lists()
  scores = np.round(np.random.default_rng(1).normal(size=len(lists.labels)))
  other = lists.sort_by(-np.arange(len(scores)) % 5)
  found = ranking.ndcg(other, _scores_of(lists, other, scores))
  assert found == pytest.approx(ranking.ndcg(lists, scores), abs=1e-6)


def _scores_of(lists, other, scores):
  """The scores of `lists` in the order of `other`; features tell them apart."""
  place = {tuple(row): score for row, score in zip(lists.features, scores)}
  return np.array([place[tuple(row)] for row in other.features])


def test_lists_without_a_relevant_document_do_not_count():
  lists = RankingLists(np.zeros([4, 1]), [0, 0, 1, 0], [0, 2, 4], [0, 1])
  scores = np.array([2.0, 1.0, 2.0, 1.0])
  assert ranking.ndcg(lists, scores, topn=(3,)) == {"ndcg@3": 1.0}
  nothing = lists.select([0])
  assert ranking.ndcg(nothing, scores[:2], topn=(3,)) == {"ndcg@3": 0.0}


def test_documents_beyond_the_cutoff_of_the_display_count():
  # All documents are judged, not only as many as were shown.
  labels = [0] * 30 + [4]
  lists = RankingLists(np.zeros([31, 1]), labels, [0, 31], [0])
  assert ranking.ndcg(lists, np.arange(31.0), topn=(10,)) == {"ndcg@10": 1.0}
  assert ranking.ndcg(lists, -np.arange(31.0), topn=(10,)) == {"ndcg@10": 0.0}


@pytest.mark.parametrize("batch_lists", [1, 2, 4, 100])
def test_ndcg_in_batches(batch_lists):
  lists = _lists()
  scores = np.random.default_rng(1).normal(size=len(lists.labels))
  assert ranking.ndcg(lists, scores, batch_lists=batch_lists) == (
      pytest.approx(ranking.ndcg(lists, scores), abs=1e-6))


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("batch_documents", [1, 7, 8192])
def test_scores_are_those_of_padded_lists(heads, batch_documents):
  lists = _lists()
  model = scorers.build_model(3, num_heads=heads, hidden_units=[4])
  features, labels = lists.pad()
  expected = model(features).numpy()
  if heads > 1:
    expected = expected[..., 0]
  found = ranking.score_lists(model, lists, batch_documents)
  assert found.shape == lists.labels.shape
  np.testing.assert_allclose(
      found, expected[labels >= 0], rtol=1e-5, atol=1e-6)


def test_scoring_is_no_training():
  lists = _lists()
  model = scorers.build_model(3, hidden_units=[16], dropout=0.5)
  np.testing.assert_array_equal(
      ranking.score_lists(model, lists), ranking.score_lists(model, lists))


def test_evaluate_scores_and_judges():
  lists = _lists()
  model = scorers.build_model(3, hidden_units=[4])
  scores = ranking.score_lists(model, lists)
  assert ranking.evaluate(model, lists) == ranking.ndcg(lists, scores)
  assert list(ranking.evaluate(model, lists, (1, 7))) == ["ndcg@1", "ndcg@7"]


def test_grades_whose_gains_are_no_numbers():
  """Grades of 128 and more gave NaN, which was written as a result."""
  lists = _lists()
  scores = np.zeros(len(lists.labels))
  high = dataclasses.replace(lists, labels=np.where(lists.labels > 0, 100, 0))
  assert all(map(np.isfinite, ranking.ndcg(high, scores).values()))
  assert np.isfinite(ranking.ndcg_by_list(high, scores)).all()
  for grade in (101, 128, 1024):
    high = dataclasses.replace(lists, labels=lists.labels + grade)
    for ndcg in (ranking.ndcg, ranking.ndcg_by_list):
      with pytest.raises(ValueError, match="must be grades of at most 100"):
        ndcg(high, scores)
