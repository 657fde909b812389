"""Folders of LETOR files, found by the names that public data sets use."""

import os
import re

from absl import logging

from ultra_tfr.data import letor
from ultra_tfr.data import lists as lists_lib

_NAME = re.compile(
    r"(?:.*[._-])?(train|vali|valid|validation|test)\.?(?:txt|svm|dat)?"
    r"(?:\.gz|\.bz2)?")
_HELD_OUT = 0.2


def find_files(path):
  """The training, validation and test file of a folder.

  Args:
    path: a folder, such as `MSLR-WEB10K/Fold1` or that of Yahoo's
      `set1.train.txt`; or with the beginning of the names, if the folder has
      several sets: `data/set1`. A folder of folds stands for its `Fold1`.

  Returns:
    A dict of paths by part, "train", "valid" and "test", those that there are.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if there are two files for one part.
  """
  folder, prefix = path, ""
  if not os.path.isdir(folder):
    folder, prefix = os.path.split(path)
  if not os.path.isdir(folder or "."):
    raise FileNotFoundError(
        f"{path}: there is no such folder; give one that holds files such as "
        "train.txt, vali.txt and test.txt.")
  names = sorted(name for name in os.listdir(folder or ".")
                 if name.startswith(prefix))
  found = {}
  for name in names:
    match = _NAME.fullmatch(name)
    if not match:
      continue
    part = match.group(1)
    part = "valid" if part.startswith("vali") else part
    if part in found:
      raise ValueError(
          f"{path}: both {os.path.basename(found[part])} and {name} may be the "
          f"{part} part; add the beginning of the names to the folder, as in "
          f"{os.path.join(folder, 'set1')}.")
    found[part] = os.path.join(folder, name)
  if not found and "Fold1" in names:
    return find_files(os.path.join(folder, "Fold1"))
  if "test" not in found or not {"train", "valid"} & set(found):
    raise FileNotFoundError(
        f"{path}: a file for training and one for testing are needed, with "
        "names such as train.txt, set1.train.txt or x_train.txt.gz, but there "
        f"are {', '.join(names[:20]) or 'no files'}.")
  return found


def read_folder(path, seed=0):
  """Reads training, validation and test lists.

  Where the validation or the training file is missing, the other one gives both
  parts, and a fifth of its queries is for validation.

  Args:
    path: as in `find_files`.
    seed: of the choice of queries to hold out.

  Returns:
    Three `RankingLists` of the same number of features.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if a file is no LETOR file.
  """
  files = find_files(path)
  parts = {part: letor.read_letor(file) for part, file in files.items()}
  if len(parts) < 3:
    (name,) = {"train", "valid"} & set(parts)
    logging.info("%s is split into a training and a validation part.",
                 files[name])
    whole = parts.pop(name)
    count = max(1, round(_HELD_OUT * len(whole)))
    parts["valid"], parts["train"] = lists_lib.split(whole, count, seed)
  # A file may lack the last features: what svmlight leaves out is 0.
  width = max(part.num_features for part in parts.values())
  return tuple(parts[part].widen(width)
               for part in ("train", "valid", "test"))
