"""Damaged LETOR files: scikit-learn's numbers, or one sentence."""

import gzip
import io
import itertools

from hypothesis import strategies as st
import numpy as np
from sklearn import datasets

import fuzzing
from ultra_tfr.data import letor

_SEEDS = (
    b"2 qid:10 1:0.5 2:0 46:1.25 #docid = GX0 inc = 1 prob = 0.02\n"
    b"0 qid:10 1:1 3:-2e3 # docid=B\n\n1 qid:9 2:7\n",
    b"\xef\xbb\xbf# comment\r\n1 qid:007 1:1\r\n0 qid:7 1:2 2:.5\r\n",
    b"0 qid:1 3:3 1:1\n1 qid:1 2:2\n1 qid:2 1:1",
    gzip.compress(b"1 qid:1 1:1\n0 qid:1 1:2\n"))


@fuzzing.SECONDS
def test_damaged_files(tmp_path, seconds):
  def check(example):
    content, index_base = example
    path = tmp_path / ("a.gz" if content[:2] == b"\x1f\x8b" else "a.txt")
    path.write_bytes(content)
    lists = fuzzing.outcome(
        lambda: letor.read_letor(path, index_base=index_base), path)
    if lists is not None and path.suffix == ".txt":
      _compare(lists, content, index_base)

  fuzzing.fuzz(st.tuples(fuzzing.damaged(*_SEEDS), st.sampled_from([1, 1, 0])),
               check, seconds)


def _compare(lists, content, index_base):
  """What we read is what scikit-learn reads, if it reads the file."""
  content = content.removeprefix(b"\xef\xbb\xbf")
  try:
    features, labels, qids = datasets.load_svmlight_file(
        io.BytesIO(content), query_id=True, zero_based=index_base == 0,
        n_features=lists.num_features)
  except (ValueError, OverflowError):
    return  # It sorts no features.
  np.testing.assert_array_equal(lists.labels, labels.astype(np.float32))
  np.testing.assert_array_equal(
      lists.features, features.toarray().astype(np.float32))
  runs = [(qid, len(list(run))) for qid, run in itertools.groupby(qids)]
  assert [*zip(lists.query_ids.tolist(), lists.list_sizes.tolist())] == runs
