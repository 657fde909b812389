"""Ranking collections of tensorflow-datasets."""

import tempfile

from absl import logging
import numpy as np

from ultra_tfr import checks
from ultra_tfr.data.lists import RankingLists

_PARTS = ("train", "vali", "test")
# What a ranking collection has, for each list: `[L, F]`, `[L]`, a text, `[L]`.
_FEATURES, _LABEL, _QUERY, _DOC = (
    "float_features", "label", "query_id", "doc_id")
_EXAMPLES = "mslr_web/10k_fold1, mslr_web/30k_fold1 and istella/s"
# In the order of the files, and without a copy of it all in a cache.
_READ = {"interleave_cycle_length": 1, "try_autocache": False}


def _library():
  """The module `tensorflow_datasets`, which is an extra."""
  try:
    import tensorflow_datasets
  except ImportError as error:
    raise ValueError(
        f"tensorflow-datasets cannot be imported ({error}); get it with: pip "
        "install 'ultra_tfr[tfds]'.") from error
  return tensorflow_datasets


def open_tfds(name, data_dir=None):
  """A ranking collection that can be read; nothing is read yet.

  Args:
    name: as in `load_tfds`.
    data_dir: likewise.

  Returns:
    The `tfds.core.DatasetBuilder`.

  Raises:
    ValueError: if there is no such ranking collection, it was not prepared, it
      has no validation part, or tensorflow-datasets cannot be imported.
  """
  library = _library()
  try:
    builder = library.builder(name, data_dir=data_dir)
  except ValueError as error:  # Of several lines, with hundreds of names.
    raise ValueError(
        f"tensorflow-datasets has no {name!r}; its ranking collections are "
        f"such as {_EXAMPLES}.") from error
  needed = (_FEATURES, _LABEL, _QUERY, _DOC)
  if not set(needed) <= set(builder.info.features):
    raise ValueError(
        f"{name} is no ranking collection: it has the features "
        f"{', '.join(builder.info.features)}, but {', '.join(needed)} are "
        f"needed; take one such as {_EXAMPLES}.")
  # Only what was prepared has them.
  splits = builder.info.splits
  if splits and not set(_PARTS) <= set(splits):
    raise ValueError(
        f"{name} has the parts {', '.join(splits)}, but {', '.join(_PARTS)} "
        f"are needed; take one such as {_EXAMPLES}.")
  try:
    for part in _PARTS:
      builder.as_dataset(split=part)
  except AssertionError as error:
    folder = builder.data_dir_root
    raise ValueError(
        f"{name} was not prepared in {folder}: run `python -c \"import "
        "tensorflow_datasets as tfds; "
        f"tfds.builder('{name}', data_dir='{folder}').download_and_prepare()\"`"
        ", which downloads it, or name another `data_dir`.") from error
  return builder


def load_tfds(name, *, data_dir=None, max_queries=None, non_finite="zero"):
  """Reads a ranking collection that was downloaded and prepared.

  Needs tensorflow-datasets: `pip install 'ultra_tfr[tfds]'`.

  Each part is read twice, list by list: first without features, to know how
  many documents there are, then with them, into a temporary file to which the
  features of the result are mapped. So memory holds labels, ids and one list;
  features are read from the file where they are used, and the system drops them
  when memory is short. The file has 4 bytes a value (2 GB for all parts of
  mslr_web/30k_fold1). It is where Python's `tempfile` puts it, which the
  variable TMPDIR changes, and should be on a disk and not in memory. It is
  removed when the process ends; each process that reads has its own.

  Args:
    name: such as "mslr_web/10k_fold1", "mslr_web/30k_fold1" or "istella/s".
    data_dir: where tensorflow-datasets keeps its data, or None for its default.
    max_queries: of each part, the first ones; None for all. Prepared
      collections are shuffled, so these are a random sample of them.
    non_finite: what becomes of a value that is not finite or too large for
      float32 (Istella has the largest float64 for "missing"): "zero" for 0 and
      a logged count, or "error".

  Returns:
    Training, validation and test `RankingLists`. Column f of the features has
    index f + 1 in the files of the collection, if tensorflow-datasets kept
    their order. Query ids are text; document ids are the numbers of the lines
    in the files.

  Raises:
    ValueError: as from `open_tfds`, or if a value is not finite with "error".
    OSError: if there is no room for the file.

  Example:
    >>> load_tfds("mslr_web/10k_fold1", data_dir="/no/such/folder")
    Traceback (most recent call last):
    ValueError: mslr_web/10k_fold1 was not prepared in /no/such/folder: ...
  """
  checks.check_choice("non_finite", non_finite, ("zero", "error"))
  if max_queries is not None:
    max_queries = checks.check_count("max_queries", max_queries)
  builder = open_tfds(name, data_dir)
  return tuple(
      _read(builder, name, part, max_queries, non_finite) for part in _PARTS)


def _read(builder, name, part, max_queries, non_finite):
  """The lists of one part."""
  library = _library()

  def examples(*features):
    dataset = builder.as_dataset(
        split=part, read_config=library.ReadConfig(**_READ),
        decoders=library.decode.PartialDecoding(
            dict.fromkeys(features, True)))
    return dataset.take(max_queries or -1).as_numpy_iterator()

  labels, queries, docs = [], [], []
  for example in examples(_LABEL, _QUERY, _DOC):
    labels.append(example[_LABEL].astype(np.float32))
    queries.append(example[_QUERY].decode("utf-8"))
    docs.append(example[_DOC])
  splits = np.cumsum([0, *map(len, labels)])
  width = builder.info.features[_FEATURES].shape[1]
  bad = 0
  # The map keeps the file alive, which has no name. Without a buffer, since
  # closing one writes what is left in it, and hides the error of a full disk.
  with tempfile.TemporaryFile(buffering=0) as file:
    for query, example in enumerate(examples(_FEATURES)):
      with np.errstate(over="ignore"):  # What becomes infinite is seen below.
        rows = example[_FEATURES].astype(np.float32)
      wrong = ~np.isfinite(rows)
      if non_finite == "error" and wrong.any():
        doc, feature = np.argwhere(wrong)[0]
        raise ValueError(
            f"{name}, {part} part: expected values that are finite in float32, "
            f"but feature {feature + 1} of document {docs[query][doc]} of query"
            f" {queries[query]} is {example[_FEATURES][doc, feature]}; read it "
            'with non_finite="zero", which makes such values 0.')
      rows[wrong] = 0.0
      bad += np.count_nonzero(wrong)
      # Written, and not assigned to a map: there a full disk ends the process.
      _write(file, rows, 4 * splits[-1] * width)
    features = np.memmap(file, np.float32, "r", shape=(splits[-1], width))
  if bad:
    logging.warning("%s, %s part: %d feature values were not finite in float32 "
                    "and became 0.", name, part, bad)
  return RankingLists(features, np.concatenate(labels), splits, queries,
                      np.concatenate(docs))


def _write(file, rows, size):
  """Appends rows to a file that will have so many bytes."""
  try:
    left = memoryview(rows.tobytes())
    while left:
      left = left[file.write(left):]
  except OSError as error:
    raise OSError(
        f"There is no room in {tempfile.gettempdir()} for a file of "
        f"{size / 1e9:.1f} GB ({error}); set the variable TMPDIR to a folder "
        "with more room.") from error
