"""Tests of ultra_tfr.data.letor: folders of files."""

import gzip

from absl import logging
import numpy as np
import pytest

from ultra_tfr.data import letor


def _write(path, num_queries, feature=1):
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "".join(f"{q % 2} qid:{q} {feature}:{q}.5\n0 qid:{q} 1:0\n"
                 for q in range(1, num_queries + 1))
  if path.suffix == ".gz":
    with gzip.open(path, "wt") as file:
      file.write(text)
  else:
    path.write_text(text)


@pytest.mark.parametrize("names", [
    ("train.txt", "vali.txt", "test.txt"),
    ("set1.train.txt", "set1.valid.txt", "set1.test.txt"),
    ("x_train.txt.gz", "x_vali.txt.gz", "x_test.txt.gz"),
    ("train.svm", "validation.svm", "test.svm"),
    ("trainingset.txt", "validationset.txt", "testset.txt"),
    ("Train.txt", "Vali.txt", "Test.txt"),
])
def test_the_names_of_public_collections(tmp_path, names):
  for name, count in zip(names, (6, 3, 2)):
    _write(tmp_path / name, count)
  parts = letor.read_folder(str(tmp_path))
  assert [len(part) for part in parts] == [6, 3, 2]


def test_a_folder_of_folds_stands_for_the_first(tmp_path):
  for fold, count in (("Fold1", 4), ("Fold2", 5)):
    for name in ("train.txt", "vali.txt", "test.txt"):
      _write(tmp_path / fold / name, count)
  assert len(letor.read_folder(str(tmp_path))[0]) == 4
  assert len(letor.read_folder(str(tmp_path / "Fold2"))[0]) == 5


def test_all_parts_get_the_same_features(tmp_path):
  _write(tmp_path / "train.txt", 3)
  _write(tmp_path / "vali.txt", 3, feature=4)
  _write(tmp_path / "test.txt", 3, feature=2)
  parts = letor.read_folder(str(tmp_path))
  assert [part.num_features for part in parts] == [4, 4, 4]


@pytest.mark.parametrize("name", ["train.txt", "vali.txt"])
def test_a_missing_part_is_held_out(tmp_path, name):
  _write(tmp_path / name, 10)
  _write(tmp_path / "test.txt", 3)
  train, valid, test = letor.read_folder(str(tmp_path), seed=1)
  assert (len(train), len(valid), len(test)) == (8, 2, 3)
  assert not set(train.query_ids) & set(valid.query_ids)
  again = letor.read_folder(str(tmp_path), seed=1)[1]
  assert again.query_ids.tolist() == valid.query_ids.tolist()


def test_a_missing_training_file_is_said(tmp_path, monkeypatch):
  warnings = []
  monkeypatch.setattr(
      logging, "warning", lambda text, *values: warnings.append(text % values))
  for name in ("train.txt", "test.txt"):
    _write(tmp_path / "a" / name, 10)
  letor.read_folder(str(tmp_path / "a"))
  assert not warnings
  for name in ("vali.txt", "test.txt"):
    _write(tmp_path / "b" / name, 10)
  letor.read_folder(str(tmp_path / "b"))
  assert len(warnings) == 1
  assert "has no training file: training on a part of" in warnings[0]
  assert "vali.txt" in warnings[0]


@pytest.mark.parametrize("valid_queries, expected", [(0.3, 3), (4, 4)])
def test_how_much_is_held_out(tmp_path, valid_queries, expected):
  for name in ("train.txt", "test.txt"):
    _write(tmp_path / name, 10)
  train, valid, _ = letor.read_folder(
      str(tmp_path), valid_queries=valid_queries)
  assert (len(train), len(valid)) == (10 - expected, expected)
  other = letor.read_folder(
      str(tmp_path), seed=1, valid_queries=valid_queries)[1]
  assert other.query_ids.tolist() != valid.query_ids.tolist()


def test_values_that_are_not_finite(tmp_path):
  for name in ("train.txt", "vali.txt", "test.txt"):
    (tmp_path / name).write_text("1 qid:1 1:1 2:1.8e308\n")
  with pytest.raises(ValueError, match="train.txt, line 1.*'1.8e308'"):
    letor.read_folder(str(tmp_path))
  for part in letor.read_folder(str(tmp_path), non_finite="zero"):
    np.testing.assert_array_equal(part.features, [[1.0, 0.0]])


def test_features_that_count_from_0(tmp_path):
  for name in ("train.txt", "vali.txt", "test.txt"):
    (tmp_path / name).write_text("1 qid:1 0:5 1:6\n")
  for part in letor.read_folder(str(tmp_path), index_base=0):
    np.testing.assert_array_equal(part.features, [[5.0, 6.0]])


def test_several_sets_need_the_beginning_of_their_names(tmp_path):
  for prefix, count in (("set1", 4), ("set2", 5)):
    for part in ("train", "valid", "test"):
      _write(tmp_path / f"{prefix}.{part}.txt", count)
  with pytest.raises(ValueError, match="set1.train.txt and set2.train.txt may "
                     "both be the train part;.* give .*/set1[.]$"):
    letor.read_folder(str(tmp_path))
  assert len(letor.read_folder(str(tmp_path / "set2"))[0]) == 5
  # A beginning is the whole of it: "set" is not one.
  with pytest.raises(FileNotFoundError, match="that begin with set, but there "
                     "are set1.test.txt, "):
    letor.read_folder(str(tmp_path / "set"))


def test_one_set_has_no_two_files_for_a_part(tmp_path):
  for name in ("train.txt", "valid.txt", "vali.txt", "test.txt"):
    _write(tmp_path / name, 2)
  with pytest.raises(ValueError, match="vali.txt and valid.txt may both be the "
                     "valid part; move one away"):
    letor.read_folder(str(tmp_path))


def test_what_is_not_there_is_said(tmp_path):
  with pytest.raises(FileNotFoundError, match="there is no such folder"):
    letor.read_folder(str(tmp_path / "no" / "set1"))
  _write(tmp_path / "train.txt", 2)
  (tmp_path / "notes.md").write_text("")
  with pytest.raises(FileNotFoundError, match="one for testing are needed.*"
                     "there are notes.md, train.txt"):
    letor.read_folder(str(tmp_path))


def test_a_folder_that_is_not_there_is_no_beginning_of_names(
    tmp_path, monkeypatch):
  (tmp_path / "unrelated.csv").touch()
  monkeypatch.chdir(tmp_path)
  with pytest.raises(FileNotFoundError, match="^nope: there is no such folder"):
    letor.read_folder("nope")


def test_the_real_data(shared_data):
  sizes = {"mq2008_fold1": (126, 31, 156), "lgb_rank": (161, 40, 50)}
  for name, expected in sizes.items():
    parts = letor.read_folder(str(shared_data / name))
    assert tuple(map(len, parts)) == expected
