"""Tests of ultra_tfr.data.tfds, without any download."""

import importlib
import io
import sys
import tempfile

from absl import logging
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets

from ultra_tfr.data import tfds

_SIZES = {"train": (2, 1), "vali": (2,), "test": (2, 2, 1)}


def _lists(builder, split):
  """The lists of a split, with numbers that say where they belong."""
  width = builder.info.features["float_features"].shape[1]
  for number, size in enumerate(_SIZES[split]):
    yield {
        "float_features": np.arange(size * width, dtype=np.float64).reshape(
            size, width) + 1000 * number + len(split),
        "label": np.arange(size, dtype=np.float64),
        "query_id": f"{split}-{number}",
        "doc_id": np.arange(size)}


def _as_dataset(builder, split, **unused):
  """What `as_dataset` of a prepared collection gives, but small."""
  specs = {key: tf.TensorSpec(feature.shape, feature.tf_dtype)
           for key, feature in builder.info.features.items()}
  return tf.data.Dataset.from_generator(
      lambda: _lists(builder, split), output_signature=specs)


def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch):
  """Only this data needs it, so the base installation does without."""
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
  for read in (tfds.open_tfds, tfds.load_tfds):
    with pytest.raises(ValueError, match=(
        r"^tensorflow-datasets cannot be imported \(.*\); get it with: pip "
        r"install 'ultra_tfr\[tfds\]'\.$")):
      read("istella/s")


@pytest.mark.parametrize("name, width", [
    ("mslr_web/10k_fold1", 136), ("istella/s", 220)])
def test_all_lists_with_all_features_in_order(name, width):
  builder = tensorflow_datasets.builder(name)
  with tensorflow_datasets.testing.mock_data(as_dataset_fn=_as_dataset):
    parts = tfds.load_tfds(name)
  for part, split in zip(parts, ("train", "vali", "test")):
    lists = list(_lists(builder, split))
    assert part.num_features == width
    assert part.list_sizes.tolist() == list(_SIZES[split])
    assert part.query_ids.tolist() == [found["query_id"] for found in lists]
    np.testing.assert_array_equal(part.features, np.concatenate(
        [found["float_features"] for found in lists]))
    np.testing.assert_array_equal(part.labels, np.concatenate(
        [found["label"] for found in lists]))


def test_features_stay_in_a_file():
  with tensorflow_datasets.testing.mock_data(as_dataset_fn=_as_dataset):
    parts = tfds.load_tfds("istella/s")
  for part in parts:
    # `RankingLists` makes a plain view of the map, not a copy.
    assert isinstance(part.features.base, np.memmap)
    assert not part.features.flags.owndata
    assert not isinstance(part.select([0]).features.base, np.memmap)


def test_without_room_for_the_file(monkeypatch):
  class Full(io.BytesIO):
    def __init__(self, buffering):
      super().__init__()

    def write(self, data):
      raise OSError(28, "No space left on device")

  monkeypatch.setattr(tempfile, "TemporaryFile", Full)
  with tensorflow_datasets.testing.mock_data(as_dataset_fn=_as_dataset):
    with pytest.raises(
        OSError, match=r"no room in .* for a file of 0.0 GB .*No space left on "
        r"device\); set the variable TMPDIR to a folder with more room"):
      tfds.load_tfds("istella/s")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """Prepares the real collections from small files; gives the data folder."""
  source, folder = (tmp_path_factory.mktemp(x) for x in ("source", "prepared"))
  for name in ("Fold1", "sample", "full"):
    (source / name).mkdir()
    for part, sizes in _SIZES.items():
      lines = [
          f"{doc} qid:{query + 7} 136:{len(part)} 1:{query}.5 2:{big}"
          for query, size in enumerate(sizes)
          for doc, big in zip(range(size), ("1.7976931348623157e+308", "2"))]
      (source / name / f"{part}.txt").write_text("\n".join(lines))
  with pytest.MonkeyPatch.context() as patch:
    if not importlib.util.find_spec("importlib_resources"):
      # tensorflow-datasets needs it to prepare data, but does not require it.
      importlib.import_module("importlib.resources.abc")
      patch.setitem(
          sys.modules, "importlib_resources", importlib.resources)
    patch.setattr(tensorflow_datasets.download.DownloadManager,
                  "download_and_extract", lambda self, url: source)
    for name in ("mslr_web/10k_fold1", "istella/s", "istella/main"):
      tensorflow_datasets.builder(
          name, data_dir=str(folder)).download_and_prepare()
  return str(folder)


@pytest.mark.parametrize("name, width", [
    ("mslr_web/10k_fold1", 136), ("istella/s", 220)])
def test_collections_on_disk(prepared, name, width, monkeypatch):
  warnings = []
  monkeypatch.setattr(
      logging, "warning", lambda text, *values: warnings.append(text % values))
  parts = tfds.load_tfds(name, data_dir=prepared)
  for part, (split, sizes) in zip(parts, _SIZES.items()):
    # Prepared collections are shuffled, so the ids tell what belongs where.
    assert sorted(part.query_ids) == [str(7 + i) for i in range(len(sizes))]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    expected, docs = np.zeros([starts[-1], width]), []
    for i, query in enumerate(part.query_ids.astype(int) - 7):
      rows = slice(*part.row_splits[i:i + 2])
      assert part.labels[rows].tolist() == list(range(sizes[query]))
      expected[rows, 0], expected[rows, 135] = query + 0.5, len(split)
      expected[rows, 1] = (0, 2)[:sizes[query]]
      docs += range(starts[query] + 1, starts[query + 1] + 1)
    np.testing.assert_array_equal(part.features, expected)
    assert part.features.dtype == part.labels.dtype == np.float32
    assert part.doc_ids.tolist() == docs
  assert warnings == [
      f"{name}, {split} part: {len(sizes)} feature values were not finite in "
      "float32 and became 0." for split, sizes in _SIZES.items()]


def test_the_first_queries(prepared):
  whole = tfds.load_tfds("istella/s", data_dir=prepared)
  few = tfds.load_tfds("istella/s", data_dir=prepared, max_queries=2)
  assert [len(part) for part in few] == [2, 1, 2]
  for part, first in zip(whole, few):
    expected = part.select(np.arange(len(first)))
    assert first.query_ids.tolist() == expected.query_ids.tolist()
    np.testing.assert_array_equal(first.features, expected.features)


def test_missing_values_can_be_an_error(prepared):
  with pytest.raises(ValueError, match=(
      r"istella/s, train part: .* feature 2 of document \d of query \d is "
      r'1\.797\S*e\+308; read it with non_finite="zero"')):
    tfds.load_tfds("istella/s", data_dir=prepared, non_finite="error")


def test_a_collection_without_validation_part(prepared):
  with pytest.raises(ValueError, match="istella/main has the parts .*but "
                     "train, vali, test are needed; take one such as"):
    tfds.load_tfds("istella/main", data_dir=prepared)


def test_a_collection_that_was_not_prepared(tmp_path):
  with pytest.raises(ValueError, match=(
      "mslr_web/10k_fold1 was not prepared in (.*): run `python -c .*"
      r"tfds\.builder\('mslr_web/10k_fold1', data_dir='\1'\)"
      r"\.download_and_prepare\(\)\"`, which downloads it")):
    tfds.open_tfds("mslr_web/10k_fold1", str(tmp_path))


@pytest.mark.parametrize("name, message", [
    ("mnist", "mnist is no ranking collection: it has the features image, "),
    ("no_such_set", "has no 'no_such_set'; its ranking collections are such"),
    ("mslr_web/10k_fold9", "has no 'mslr_web/10k_fold9'; its ranking"),
])
def test_no_ranking_collection(tmp_path, name, message):
  with pytest.raises(ValueError, match=message) as error:
    tfds.load_tfds(name, data_dir=str(tmp_path))
  assert "\n" not in str(error.value)


@pytest.mark.parametrize("change, message", [
    ({"max_queries": 0}, "`max_queries` must be a whole number of at least 1"),
    ({"non_finite": "drop"}, "`non_finite` must be one of .* is 'drop'"),
])
def test_bad_arguments(change, message):
  with pytest.raises(ValueError, match=message):
    tfds.load_tfds("istella/s", **change)
