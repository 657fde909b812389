"""Tests of ultra_tfr.data.tfds, without any download."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets

from ultra_tfr.data import tfds

_SIZES = {"train": (3, 1), "vali": (2,), "test": (4,)}


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


def test_what_is_no_float32_becomes_zero():
  def infinite(builder, split, **unused):
    return _as_dataset(builder, split).map(lambda example: {
        **example, "float_features": tf.concat(
            [tf.fill([tf.shape(example["label"])[0], 1],
                     np.finfo(np.float64).max),
             example["float_features"][:, 1:]], axis=1)})

  with tensorflow_datasets.testing.mock_data(as_dataset_fn=infinite):
    train, _, _ = tfds.load_tfds("istella/s")
  assert (train.features[:, 0] == 0).all()
  assert train.features[0, 1] == 1 + len("train")


def test_a_collection_that_was_not_prepared(tmp_path):
  with pytest.raises(ValueError, match="mslr_web/10k_fold1 was not prepared in "
                     ".*: run `python -m tensorflow_datasets"):
    tfds.load_tfds("mslr_web/10k_fold1", data_dir=str(tmp_path))


def test_no_ranking_collection(tmp_path):
  with pytest.raises(ValueError, match="mnist is no ranking collection"):
    tfds.load_tfds("mnist", data_dir=str(tmp_path))
  with pytest.raises(ValueError, match="has no 'no_such_set'"):
    tfds.load_tfds("no_such_set")
