"""Tests of ultra_tfr.data.letor."""

import bz2
import gzip
import os
import re

from absl import logging
import numpy as np
import pytest

import program_files
from ultra_tfr.data import letor

_DATA = program_files.ROOT.parent / "shared" / "data"


def _write(tmp_path, text, name="data.txt"):
  path = tmp_path / name
  opener = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
  with opener(path, "wt") as f:
    f.write(text)
  return str(path)


def _fails(path, line, *words, **arguments):
  """The error names the file, the line, and the words, in this order."""
  place = re.escape(path) + (f", line {line}: " if line else "")
  pattern = place + ".*" + ".*".join(re.escape(word) for word in words)
  with pytest.raises(ValueError, match=pattern):
    letor.read_letor(path, **arguments)


def test_lists_labels_and_features(tmp_path):
  lists = letor.read_letor(_write(
      tmp_path, "2 qid:10 1:0.5 3:1e-3\n0 qid:10 2:-4\n1.5 qid:9\n"))
  np.testing.assert_allclose(
      lists.features, [[.5, 0, 1e-3], [0, -4, 0], [0, 0, 0]], rtol=1e-6)
  assert lists.features.dtype == np.float32
  assert lists.labels.tolist() == [2, 0, 1.5]
  assert lists.row_splits.tolist() == [0, 2, 3]
  assert lists.query_ids.tolist() == [10, 9]
  assert lists.doc_ids is None


def test_no_such_file_names_the_absolute_path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(FileNotFoundError,
                     match=re.escape(str(tmp_path / "missing.txt"))):
    letor.read_letor("missing.txt")


@pytest.mark.parametrize("content", ["", "\n \n", "# only a comment\n"])
def test_empty_file(tmp_path, content):
  _fails(_write(tmp_path, content), None, "holds no document", "<label> qid:")


@pytest.mark.parametrize("bad, words", [
    ("hello", ["the label 'hello' is not a number", "<label> qid:"]),
    ("a,b,c", ["the label 'a,b,c' is not a number", "repair"]),
    ("1 qid:1 x", ["'x' is not a feature", "<index>:<value>"]),
    ("1 qid:1 1:", ["'1:' is not a feature", "<index>:<value>"]),
    ("1 qid:1 1:abc", ["'1:abc' is not a feature"]),
    ("1 qid:1 1.5:1", ["'1.5:1' is not a feature"]),
    ("1 qid:1 2:1 qid:3 3:1", ["'qid:3' is not a feature"]),
    ("1 qid:1 2:1 2:1", ["each feature once", "index 2", "remove"]),
    ("1 qid:1 -1:1", ["indexes from 1", "'-1:1'"]),
    ("1 qid:1 99999999999999999999:1", ["not readable", "repair"]),
    ("1 1:0.5", ["`qid:<integer>`", "'1:0.5'", "add the query's id"]),
    ("1", ["`qid:<integer>`", "the end of the line"]),
    ("1 qid:a 1:1", ["`qid:<integer>`", "'qid:a'", "number the queries"]),
    ("1 qid:99999999999999999999 1:1", ["64 bits", "'qid:9999"]),
    ("-1 qid:1 1:1", ["label", "at least 0", "-1.0", "padding"]),
    ("nan qid:1 1:1", ["label", "finite", "nan"]),
    ("1e300 qid:1 1:1", ["label", "finite", "inf"]),
])
def test_malformed_lines(tmp_path, bad, words):
  path = _write(tmp_path, f"1 qid:1 1:1\n\n{bad}\n1 qid:1 1:2\n")
  _fails(path, 3, *words)


def test_malformed_line_after_an_unordered_one(tmp_path):
  _fails(_write(tmp_path, "1 qid:1 3:1 1:1\n1 qid:1 4:x 2:1\n"), 2,
         "'4:x' is not a feature")
  _fails(_write(tmp_path, "1 qid:1 3:1 1:1\n1 qid:1 4:1 2:1 4:1\n"), 2,
         "each feature once", "index 4")
  _fails(_write(tmp_path, "1 qid:1 3:1 1:1\n1 qid:1 y:1 2:1\n"), 2,
         "'y:1' is not a feature")


def test_binary_file_is_not_svmlight(tmp_path):
  path = tmp_path / "data.txt"
  path.write_bytes(bytes(range(256)))
  _fails(str(path), 1, "is not a number")


def test_damaged_or_misnamed_archives(tmp_path):
  whole = gzip.compress(b"1 qid:1 1:1\n" * 10000)
  for name, content in (("a.gz", whole[:-20]), ("b.gz", b"1 qid:1 1:1\n"),
                        ("c.bz2", b"1 qid:1 1:1\n")):
    path = tmp_path / name
    path.write_bytes(content)
    _fails(str(path), None, "cannot be read", "complete")


def test_a_query_in_two_places_is_an_error(tmp_path):
  """Readers made two lists of a query whose rows are not together."""
  path = _write(
      tmp_path, "1 qid:1 1:1\n0 qid:1 1:1\n1 qid:2 1:1\n0 qid:1 1:1\n")
  _fails(path, 4, "qid 1", "line 2", "sort the file by qid")


def test_qid_spellings_are_one_list(tmp_path):
  lists = letor.read_letor(_write(tmp_path, "1 qid:7 1:1\n0 qid:07 1:1\n"))
  assert lists.list_sizes.tolist() == [2]


@pytest.mark.parametrize("text", [
    "1 qid:007 1:1\n0 qid:3 1:2\n0 qid:7 1:3\n",
    "1 qid:7 1:1\n0 qid:3 1:2\n0 qid:+07 1:3\n"])
def test_a_qid_is_a_number_however_it_is_spelled(tmp_path, text):
  """007 after 7 was the same query or an error, and nothing said the rule."""
  _fails(_write(tmp_path, text), 3, "qid 7", "where 007 and 7 are one number")
  assert "007 and 7" in letor.read_letor.__doc__


@pytest.mark.parametrize("text, documents", [
    ("1 qid:1 1:1\n0 qid:1 1:2\n", 2), ("# comment\n1 qid:1 1:1\n", 1),
    ("1 qid:1 2:1 1:1\n", 1), ("\n1 qid:1 1:1\n", 1)])
@pytest.mark.parametrize("name", ["bom.txt", "bom.txt.gz"])
def test_a_byte_order_mark_is_skipped(tmp_path, text, documents, name):
  """"the label '\\ufeff1' is not a number", of files that Windows wrote."""
  path = tmp_path / name
  content = ("\ufeff" + text).encode()
  path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
  assert len(letor.read_letor(path).labels) == documents
  path.write_bytes(gzip.compress(b"\xef\xbb\xbf") if name.endswith("gz") else (
      b"\xef\xbb\xbf"))
  _fails(str(path), None, "holds no document")


@pytest.mark.parametrize("bad", [
    "1_0 qid:1 1:1", "1 qid:1_0 1:1", "1 qid:1 1_0:1", "1 qid:1 1:1_0"])
def test_underscores_are_no_digits(tmp_path, bad):
  """A label of 1_0 was read as 10, as Python reads it."""
  path = _write(tmp_path, f"1 qid:1 1:1 # a_b\n{bad}\n")
  _fails(path, 2, next(word for word in bad.split() if "_" in word), "repair")


def test_a_file_without_features(tmp_path):
  """One feature that is 0 everywhere was made up."""
  _fails(_write(tmp_path, "\n1 qid:1\n0 qid:1 # 1:1\n"), 2,
         "no line of the file has a feature")


@pytest.mark.parametrize("index", [2**31 - 1, 2**31, 2**40, 2**70])
def test_an_index_beyond_the_memory(tmp_path, index):
  """It ended in a `MemoryError` that named neither file nor line."""
  path = _write(tmp_path, f"1 qid:1 1:1\n0 qid:1 {index}:1\n")
  _fails(path, 2)
  _fails(_write(tmp_path, "1 qid:1 3:1\n"), 1, "index is 3", "`num_features`",
         num_features=index if index < 2**63 else 2**62)


def test_index_base_is_explicit(tmp_path):
  """Readers guessed it, and shifted the features of files without index 0."""
  train = _write(tmp_path, "1 qid:1 0:5 1:6\n", "train.txt")
  test = _write(tmp_path, "1 qid:1 1:7\n", "test.txt")
  lists = letor.read_letor(train, index_base=0)
  assert lists.features.tolist() == [[5, 6]]
  other = letor.read_letor(
      test, num_features=lists.num_features, index_base=0)
  assert other.features.tolist() == [[0, 7]]
  _fails(train, 1, "indexes from 1", "'0:5'", "index_base=0")
  assert letor.read_letor(test).features.tolist() == [[7]]
  with pytest.raises(ValueError, match="`index_base` must be 0 or 1"):
    letor.read_letor(train, index_base=2)


def test_number_of_features_is_forced(tmp_path):
  path = _write(tmp_path, "1 qid:1 2:5\n\n1 qid:1 1:1 4:6\n")
  assert letor.read_letor(path).num_features == 4
  lists = letor.read_letor(path, num_features=6)
  assert lists.features.tolist() == [[0, 5, 0, 0, 0, 0], [1, 0, 0, 6, 0, 0]]
  _fails(path, 3, "from 1 to 3", "`num_features` is 3", "index 4",
         num_features=3)
  _fails(path, 3, "from 0 to 3", "index 4", num_features=4, index_base=0)
  with pytest.raises(ValueError, match="`num_features` must be .* 0"):
    letor.read_letor(path, num_features=0)


def test_features_in_any_order(tmp_path):
  """Readers failed on features that are not in the order of their indexes."""
  lists = letor.read_letor(_write(tmp_path, "1 qid:1 3:3 1:1\n0 qid:1 2:2\n"))
  assert lists.features.tolist() == [[1, 0, 3], [0, 2, 0]]


def test_comments_may_hold_doc_ids(tmp_path):
  """Readers rejected lines of LETOR, which end in `#docid = ...`."""
  lists = letor.read_letor(_write(tmp_path, (
      "1 qid:1 1:1 #docid = GX000-00-0000000 inc = 1 prob = 0.0246906\n"
      "1 qid:1 1:1 # docid=B\n"
      "1 qid:1 1:1# 3:4 other = docid\n"
      "# 2 qid:1 1:1\n"
      "1 qid:1#docid = D=E\n"
      "1 qid:1 1:1\n")))
  assert lists.doc_ids.tolist() == ["GX000-00-0000000", "B", None, "D=E", None]
  assert lists.features.tolist() == [[1], [1], [1], [0], [1]]
  lists = letor.read_letor(_write(tmp_path, "1 qid:1 1:1 # GX1\n"))
  assert lists.doc_ids is None


def test_blank_lines_are_skipped(tmp_path):
  """A reader counted blank lines as documents."""
  lists = letor.read_letor(_write(
      tmp_path, "\n1 qid:1 1:1\r\n\r\n  \n0 qid:1 1:2\n\n1 qid:2 1:3"))
  assert lists.features[:, 0].tolist() == [1, 2, 3]
  assert lists.list_sizes.tolist() == [2, 1]


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_compressed_equals_plain(tmp_path, ending):
  """Data sets come compressed, and users had to unpack them."""
  text = "1 qid:1 1:1.25 #docid = A\n0 qid:2 2:2 #docid = B\n"
  plain = letor.read_letor(_write(tmp_path, text))
  packed = letor.read_letor(_write(tmp_path, text, "data.txt" + ending))
  for name in ("features", "labels", "row_splits", "query_ids", "doc_ids"):
    np.testing.assert_array_equal(getattr(packed, name), getattr(plain, name))


@pytest.mark.parametrize("value", [
    "1.7976931348623157e308", "-1e39", "nan", "inf", "-inf"])
def test_values_out_of_range_are_errors_or_zero(tmp_path, value, monkeypatch):
  """Files hold the largest float64 for what is missing: inf in float32."""
  path = _write(tmp_path, f"1 qid:1 1:1\n\n0 qid:1 1:3e38 3:{value} # 3:1\n")
  _fails(path, 3, "feature 3", f"'{value}'", 'non_finite="zero"', "1 in this")
  logged = []
  monkeypatch.setattr(logging, "warning", lambda *args: logged.append(args))
  lists = letor.read_letor(path, non_finite="zero")
  np.testing.assert_allclose(lists.features, [[1, 0, 0], [3e38, 0, 0]])
  assert logged[0][1:] == (path, 1, 3, 3)
  with pytest.raises(ValueError, match="`non_finite` must be .*'drop'"):
    letor.read_letor(path, non_finite="drop")


@pytest.mark.parametrize("name, queries, documents, features, grade", [
    ("mq2008_fold1_vali.txt.gz", 157, 2707, 46, 2),
    ("mq2008_fold1_test.txt.gz", 156, 2874, 46, 2),
    ("lgb_rank_train.txt.gz", 201, 3005, 300, 4),
    ("lgb_rank_test.txt.gz", 50, 768, 300, 4),
])
def test_real_files(name, queries, documents, features, grade):
  path = os.path.join(_DATA, name)
  if not os.path.exists(path):
    pytest.skip(f"{name} is not there")
  lists = letor.read_letor(path, num_features=features)
  assert lists.features.shape == (documents, features)
  assert len(lists) == queries == len(set(lists.query_ids.tolist()))
  assert sorted(set(lists.labels.tolist())) == list(range(grade + 1))
  if name.startswith("mq2008"):
    assert all(doc_id.startswith("GX") for doc_id in lists.doc_ids)
  with gzip.open(path, "rt") as f:
    for line, row, label in zip(f, lists.features, lists.labels):
      words = line.partition("#")[0].split()
      assert float(words[0]) == label
      expected = np.zeros(features, np.float32)
      for word in words[2:]:
        index, value = word.split(":")
        expected[int(index) - 1] = float(value)
      np.testing.assert_array_equal(row, expected)
