"""Tests of ultra_tfr.data.lists."""

import numpy as np
import pytest

from ultra_tfr.data import lists as lists_lib


def _lists(sizes=(2, 0, 3), doc_ids=True):
  num_docs = sum(sizes)
  return lists_lib.RankingLists(
      features=np.arange(2 * num_docs).reshape(num_docs, 2),
      labels=np.arange(num_docs) % 3,
      row_splits=np.concatenate([[0], np.cumsum(sizes)]),
      query_ids=np.arange(len(sizes)) + 10,
      doc_ids=[f"d{i}" for i in range(num_docs)] if doc_ids else None)


def test_properties():
  lists = _lists()
  assert len(lists) == 3
  assert lists.num_features == 2
  assert lists.list_sizes.tolist() == [2, 0, 3]
  assert lists.features.dtype == np.float32
  assert lists.labels.dtype == np.float32
  assert lists.row_splits.dtype == np.int64
  with pytest.raises(AttributeError):
    lists.labels = None


def test_select_keeps_the_order_given():
  chosen = _lists().select([2, 0, 2])
  assert chosen.row_splits.tolist() == [0, 3, 5, 8]
  assert chosen.query_ids.tolist() == [12, 10, 12]
  assert chosen.features[:, 0].tolist() == [4, 6, 8, 0, 2, 4, 6, 8]
  assert chosen.doc_ids.tolist() == [
      "d2", "d3", "d4", "d0", "d1", "d2", "d3", "d4"]


def test_select_by_mask_and_nothing():
  lists = _lists()
  assert lists.select([True, False, True]).query_ids.tolist() == [10, 12]
  assert len(lists.select([])) == 0
  assert lists.select([]).features.shape == (0, 2)
  with pytest.raises(IndexError):
    lists.select([3])


def test_sort_by_is_stable_and_stays_within_lists():
  rng = np.random.default_rng(0)
  sizes = rng.integers(0, 9, size=50)
  lists = _lists(sizes)
  scores = rng.integers(0, 4, size=sizes.sum())  # Many ties.
  for top in (None, 1, 3, 100):
    result = lists.sort_by(scores, top=top)
    expected, splits = [], [0]
    for start, stop in zip(lists.row_splits[:-1], lists.row_splits[1:]):
      order = sorted(range(start, stop), key=lambda d: -scores[d])
      expected.extend(f"d{d}" for d in order[:top])
      splits.append(len(expected))
    assert result.doc_ids.tolist() == expected
    assert result.row_splits.tolist() == splits
    assert result.query_ids.tolist() == lists.query_ids.tolist()


def test_sort_by_bad_arguments():
  with pytest.raises(ValueError, match=r"`scores` .*\[5\].*\[4\]"):
    _lists().sort_by(np.zeros(4))
  with pytest.raises(ValueError, match="`scores` .* document 1 has NaN"):
    _lists().sort_by([0., np.nan, 0., 0., 0.])
  with pytest.raises(ValueError, match="`top` must be .* 0"):
    _lists().sort_by(np.zeros(5), top=0)


def test_pad():
  features, labels = _lists().pad()
  assert features.shape == (3, 3, 2)
  assert labels.tolist() == [[0, 1, -1], [-1, -1, -1], [2, 0, 1]]
  assert features[0].tolist() == [[0, 1], [2, 3], [0, 0]]
  assert features.dtype == labels.dtype == np.float32
  wide_features, wide_labels = _lists().pad(5)
  np.testing.assert_array_equal(wide_features[:, :3], features)
  assert np.all(wide_features[:, 3:] == 0)
  assert np.all(wide_labels[:, 3:] == -1)


def test_pad_never_drops_documents():
  with pytest.raises(ValueError, match=(
      r"`list_size` is 2, but .* query 12 has 3 documents; .*"
      r"sort_by\(scores, top=2\)")):
    _lists().pad(2)


@pytest.mark.parametrize("change, message", [
    ({"features": np.zeros(3)}, r"`features` .*\[documents, features\].*\[3\]"),
    ({"labels": [0, 1]}, r"`labels` .*\[3\], one label a document.*\[2\]"),
    ({"labels": [0, np.nan, 1]}, "`labels` .* document 1 has nan"),
    ({"row_splits": [0, 2]}, r"`row_splits` .*\(3\).* from 0 to 2"),
    ({"row_splits": [1, 3]}, "`row_splits` .* from 1 to 3"),
    ({"row_splits": [0, 4, 3]}, "`row_splits` .* smallest step -1"),
    ({"row_splits": [0., 2., 3.]}, "`row_splits` must hold integers"),
    ({"row_splits": []}, "`row_splits` must hold integers"),
    ({"row_splits": np.zeros(0, int)}, r"`row_splits` .*\[lists \+ 1\]"),
    ({"query_ids": [1]}, r"`query_ids` .*\[2\], one id a list.*\[1\]"),
    ({"doc_ids": ["a"]}, r"`doc_ids` .*\[3\], one id a document.*\[1\]"),
])
def test_validation(change, message):
  arguments = dict(
      features=np.zeros((3, 2)), labels=[0, 1, 2], row_splits=[0, 2, 3],
      query_ids=[1, 2])
  lists_lib.RankingLists(**arguments)
  arguments.update(change)
  with pytest.raises(ValueError, match=message):
    lists_lib.RankingLists(**arguments)


def test_split_is_a_partition_and_reproducible():
  lists = _lists(sizes=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  for part, count in ((3, 3), (.3, 3), (.25, 2), (np.int64(9), 9)):
    first, second = lists_lib.split(lists, part, seed=4)
    assert (len(first), len(second)) == (count, 10 - count)
    assert sorted([*first.query_ids, *second.query_ids]) == list(range(10, 20))
    assert list(first.query_ids) == sorted(first.query_ids)
    again, _ = lists_lib.split(lists, part, seed=4)
    assert again.doc_ids.tolist() == first.doc_ids.tolist()
  others = {tuple(lists_lib.split(lists, 3, seed=s)[0].query_ids)
            for s in range(5)}
  assert len(others) > 1


@pytest.mark.parametrize("part", [0, 3, 0., 1., .01, -1])
def test_split_leaves_no_side_empty(part):
  with pytest.raises(ValueError, match=f"`part` .*{part} puts"):
    lists_lib.split(_lists(), part, seed=0)
