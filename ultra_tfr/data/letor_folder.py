"""Folders of LETOR files, found by the names that public data sets use."""

import os
import re

from absl import logging

from ultra_tfr.data import letor
from ultra_tfr.data import lists as lists_lib

# The beginning, the part that `_PARTS` knows, and the ending of a file's name.
_NAME = re.compile(
    r"(?:(.+)[._-])?(train|vali|valid|validation|test)(?:ing)?(?:set)?"
    r"(?:\.(?:txt|svm|dat))?(?:\.(?:gz|bz2))?", re.IGNORECASE)
_PARTS = ("train", "valid", "test")
_SHOWN = 20


def find_files(path):
  """The training, validation and test file of a folder.

  Known are names such as `train.txt`, `vali.txt` and `test.txt` of MSLR-WEB,
  MQ2008 and Istella, `trainingset.txt` of LETOR 3.0, `set1.train.txt` of Yahoo
  and `x_train.txt.gz`, in small or capital letters, as `.txt`, `.svm`, `.dat`
  or without, and compressed (`.gz`, `.bz2`) or not.

  Args:
    path: a folder, such as `MSLR-WEB10K/Fold1` or that of Yahoo's
      `set1.train.txt`; or with the beginning of the names, if the folder has
      several sets: `data/set1`. A folder of folds stands for its `Fold1`.

  Returns:
    A dict of paths by part, "train", "valid" and "test", those that there are:
    "test" always, and at least one of the others.

  Raises:
    FileNotFoundError: if there are no such files.
    ValueError: if there are two files for one part.

  Example:
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for part in ("train", "valid", "test"):
    ...   (folder / f"set1.{part}.txt").touch()
    >>> [os.path.basename(file) for file in find_files(folder).values()]
    ['set1.train.txt', 'set1.valid.txt', 'set1.test.txt']
  """
  folder, beginning = os.fspath(path), None
  if not os.path.isdir(folder):
    folder, beginning = os.path.split(folder)
  if not os.path.isdir(folder or "."):
    raise FileNotFoundError(
        f"{path}: there is no such folder; give one that holds files such as "
        "train.txt, vali.txt and test.txt.")
  names = sorted(os.listdir(folder or "."))
  found = {part: [] for part in _PARTS}
  for name in names:
    match = _NAME.fullmatch(name)
    if match and beginning in (None, match.group(1)):
      part = match.group(2).lower()
      found["valid" if part.startswith("vali") else part].append(name)
  if beginning is None and not any(found.values()) and "Fold1" in names:
    return find_files(os.path.join(folder, "Fold1"))
  for part, files in found.items():
    if len(files) > 1:
      raise ValueError(
          f"{path}: {' and '.join(files)} may both be the {part} part; move "
          "one away or, if they belong to different sets, give the folder with "
          "the beginning of a set's names, "
          f"{os.path.join(folder, _beginning(files))}.")
  if beginning is not None and not any(map(_NAME.fullmatch, names)):
    raise FileNotFoundError(
        f"{path}: there is no such folder, and no file of a training, "
        f"validation or test part whose name begins with {beginning}; give a "
        "folder that holds files such as train.txt, vali.txt and test.txt.")
  if not found["test"] or not (found["train"] or found["valid"]):
    listed = ", ".join(names[:_SHOWN]) or "no files"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise FileNotFoundError(
        f"{path}: a file for training and one for testing are needed, with "
        "names such as train.txt, set1.train.txt or x_train.txt.gz"
        f"{'' if beginning is None else f' that begin with {beginning}'}, but "
        f"there are {listed}{more}.")
  return {part: os.path.join(folder, *files)
          for part, files in found.items() if files}


def read_folder(path, seed=0, *, valid_queries=0.2, non_finite="error",
                index_base=1):
  """Reads training, validation and test lists.

  Where the validation or the training file is missing, the other one gives both
  parts. A missing training file is also logged as a warning: results are then
  not those of the data set.

  Args:
    path: as in `find_files`.
    seed: of the choice of queries to hold out.
    valid_queries: queries to hold out for validation where a file is missing,
      a float in (0, 1) for a share or an int for a number.
    non_finite: "error" or "zero", as in `letor.read_letor`.
    index_base: 1 or 0, likewise.

  Returns:
    Three `RankingLists` of the same number of features, the largest index in
    the files.

  Raises:
    FileNotFoundError: if there are no such files.
    ValueError: if there are two files for one part, a file is no LETOR file, or
      `valid_queries` leaves nothing to validate or to train on.
  """
  files = find_files(path)
  parts = {part: letor.read_letor(file, index_base=index_base,
                                  non_finite=non_finite)
           for part, file in files.items()}
  if "train" not in parts:
    logging.warning(
        "%s has no training file: training on a part of %s, and validating on "
        "the rest of it.", path, files["valid"])
  if len(parts) < len(_PARTS):
    whole = parts.pop("train" if "train" in parts else "valid")
    parts["valid"], parts["train"] = lists_lib.split(whole, valid_queries, seed)
  # A file may lack the last features: what svmlight leaves out is 0.
  width = max(part.num_features for part in parts.values())
  return tuple(parts[part].widen(width) for part in _PARTS)


def _beginning(files):
  """The beginning of the first of these names that has one, or an example."""
  found = [_NAME.fullmatch(name).group(1) for name in files]
  return next(filter(None, found), "set1")
