"""Ranking collections of tensorflow-datasets."""

import numpy as np
import tensorflow_datasets

from ultra_tfr.data.lists import RankingLists

_PARTS = ("train", "vali", "test")
# What a ranking collection has: `[documents, F]`, `[documents]` and a text.
_FEATURES, _LABEL, _QUERY = "float_features", "label", "query_id"


def open_tfds(name, data_dir=None):
  """The parts of a ranking collection, as datasets; nothing is read yet.

  Args:
    name: as in `load_tfds`.
    data_dir: likewise.

  Returns:
    A list of three `tf.data.Dataset`.

  Raises:
    ValueError: as `load_tfds`.
  """
  try:
    builder = tensorflow_datasets.builder(name, data_dir=data_dir)
  except tensorflow_datasets.core.DatasetNotFoundError as error:
    raise ValueError(
        f"tensorflow-datasets has no {name!r}; its ranking collections are "
        "such as mslr_web/10k_fold1, mslr_web/30k_fold1 and istella/s.") from (
            error)
  if not {_FEATURES, _LABEL, _QUERY} <= set(builder.info.features):
    raise ValueError(
        f"{name} is no ranking collection: it has the features "
        f"{', '.join(builder.info.features)}, but {_FEATURES}, {_LABEL} and "
        f"{_QUERY} are needed.")
  try:
    return [builder.as_dataset(split=part) for part in _PARTS]
  except (AssertionError, FileNotFoundError, ValueError) as error:
    raise ValueError(
        f"{name} was not prepared in {builder.data_dir}: run `python -m "
        f"tensorflow_datasets.scripts.cli.main build {name}`, which downloads "
        "it, or name another `data_dir`.") from error


def load_tfds(name, data_dir=None):
  """Reads a ranking collection that was downloaded and prepared.

  Istella's files have the largest float64 for "missing"; what float32 cannot
  hold becomes 0, as with `read_letor(.., non_finite="zero")`.

  Args:
    name: such as "mslr_web/10k_fold1", "mslr_web/30k_fold1" or "istella/s".
    data_dir: where tensorflow-datasets keeps its data, or None for its default.

  Returns:
    Training, validation and test `RankingLists`. Features are in the order of
    the collection.

  Raises:
    ValueError: if there is no such ranking collection, or it was not prepared.
  """
  return tuple(_lists(part) for part in open_tfds(name, data_dir))


def _lists(dataset):
  """Flat lists of a dataset, read list by list."""
  rows, labels, queries = [], [], []
  for example in dataset.as_numpy_iterator():
    with np.errstate(over="ignore"):
      values = example[_FEATURES].astype(np.float32)
    rows.append(np.where(np.isfinite(values), values, np.float32(0.0)))
    labels.append(example[_LABEL].astype(np.float32))
    queries.append(example[_QUERY].decode("utf-8"))
  sizes = [len(part) for part in labels]
  return RankingLists(
      features=np.concatenate(rows), labels=np.concatenate(labels),
      row_splits=np.concatenate([[0], np.cumsum(sizes)]), query_ids=queries)
