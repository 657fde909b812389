"""Reader of LETOR files: svmlight lines with a qid, as MQ2008 and MSLR have.

    2 qid:10 1:0.5 2:0 46:1.25 #docid = GX000-00-0000000 inc = 1 prob = 0.02

scikit-learn parses the features. The code here streams the lines to it, finds
the lists and document ids, and says where an error is. (scikit-learn's own
`query_id=True` copies all qids for each line, which takes quadratic time.)
"""

import bz2
import codecs
import gzip
import io
import itertools
import os
import re
from typing import Optional
import zlib

from absl import logging
import numpy as np
from sklearn import datasets

from ultra_tfr import checks
from ultra_tfr.data import lists as lists_lib

_EXPECTED = "expected `<label> qid:<integer> <index>:<value> ... # <comment>`"
# The beginning, the part that `_PARTS` knows, and the ending of a file's name.
_NAME = re.compile(
    r"(?:(.+)[._-])?(train|vali|valid|validation|test)(?:ing)?(?:set)?"
    r"(?:\.(?:txt|svm|dat))?(?:\.(?:gz|bz2))?", re.IGNORECASE)
_PARTS = ("train", "valid", "test")
_SHOWN = 20


def read_letor(path, num_features: Optional[int] = None, index_base: int = 1,
               non_finite: str = "error") -> lists_lib.RankingLists:
  """Reads a LETOR file into flat lists, one list a qid.

  Features may come in any order, and those that a line does not name are 0.
  Blank lines, comments (other than `#docid = XXX`) and a byte order mark are
  skipped. A qid is a number: 007 and 7 are the same query.

  Args:
    path: the file; `.gz` and `.bz2` are decompressed by their ending.
    num_features: F, the number of features. None takes the largest index in
      this file; give that of the training part to the other parts.
    index_base: the index of the first feature, 1 (LETOR) or 0. It is never
      guessed: a file in which feature 0 happens to be absent would be shifted.
    non_finite: what becomes of a value that is not finite or too large for
      float32 (some data sets write the largest float64 for "missing"):
      "error", or "zero" for 0 and a logged count.

  Returns:
    The lists, in file order: features `[D, F]`, labels `[D]`, integer query
    ids, and document ids where the file has any (None for a line without).

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if the file is empty or malformed, no line has a feature, a qid
      is missing or its lines are not contiguous, a label is negative or not
      finite, an index is below `index_base` or beyond `num_features`, a value
      is not finite, or memory cannot hold so many features.

  Source: Qin & Liu, "Introducing LETOR 4.0 Datasets" (2013).

  Example:
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.txt")
    >>> with open(path, "w") as f:
    ...   _ = f.write("1 qid:7 3:3 1:1 #docid = A\\n0 qid:7 2:2 #docid = B\\n")
    >>> lists = read_letor(path)
    >>> lists.features.tolist(), lists.doc_ids.tolist()
    ([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]], ['A', 'B'])
  """
  path = os.path.abspath(os.fspath(path))
  if num_features is not None:
    num_features = checks.check_count("num_features", num_features)
  if index_base not in (0, 1):
    raise ValueError(
        f"`index_base` must be 0 or 1, but is {index_base!r}; LETOR has 1.")
  if non_finite not in ("error", "zero"):
    raise ValueError(
        f'`non_finite` must be "error" or "zero", but is {non_finite!r}.')
  checks.check_file(path, "LETOR file")
  lines = _Lines(path, index_base, sort=False)
  try:
    features, labels = lines.parse()
  except _UnorderedError:
    # Sorting the features of each line is slow, and rarely needed.
    lines = _Lines(path, index_base, sort=True)
    features, labels = lines.parse()
  if not lines.numbers:
    raise ValueError(
        f"{path} holds no document: {_EXPECTED}; check the path.")
  with np.errstate(over="ignore"):  # What becomes infinite is an error below.
    labels = labels.astype(np.float32)
  bad = np.flatnonzero(~(np.isfinite(labels) & (labels >= 0)))
  if bad.size:
    raise ValueError(
        f"{path}, line {lines.numbers[bad[0]]}: expected a label that is a "
        f"finite number of at least 0, but it is {labels[bad[0]]}; negative "
        "labels mark padding, so map them to 0 or remove the line.")
  if not features.nnz:
    raise ValueError(
        f"{path}, line {lines.numbers[0]}: no line of the file has a feature, "
        f"so there is nothing to rank by; {_EXPECTED}.")
  _check_range(features, lines, num_features, index_base)
  _check_finite(features, lines, non_finite, index_base)
  if num_features is not None:
    features.resize((features.shape[0], num_features))
  has_doc_ids = any(doc_id is not None for doc_id in lines.doc_ids)
  return lists_lib.RankingLists(
      _dense(features, lines, index_base), labels, lines.starts + [len(labels)],
      np.array(list(lines.last_lines), dtype=np.int64),
      lines.doc_ids if has_doc_ids else None)


def _dense(features, lines, index_base):
  """Sparse features as an array, unless it takes too much of the memory."""
  documents, width = features.shape
  size = documents * width * np.dtype(np.float32).itemsize
  if size > checks.memory() / 4:
    largest = int(np.argmax(features.indices))
    raise ValueError(
        f"{lines.path}, line {_line_of(features, largest, lines)}: {width} "
        f"features of {documents} documents take {size / 1e9:.0f} GB, too much "
        "for the memory; the largest index is "
        f"{int(features.indices[largest]) + index_base}: number the features "
        f"from {index_base} without gaps, and check `num_features`.")
  return features.toarray()


class _LineError(ValueError):
  """An error whose message already names file and line."""


class _UnorderedError(ValueError):
  """The features of a line are valid but not in ascending order."""


class _Lines:
  """Streams the documents' lines, and notes qids, docids and line numbers."""

  def __init__(self, path, index_base, sort):
    self.path = path
    self._index_base = index_base
    self._sort = sort
    self._content = b""
    self._number = 0
    self.numbers = []  # Line number of each document.
    self.doc_ids = []  # Document id of each document, or None.
    self.starts = []  # Index of the first document of each list.
    self.last_lines = {}  # qid -> the last line of its list, in file order.

  def parse(self):
    """Returns sparse float32 features `[D, F]` and labels `[D]`."""
    try:
      # float32: what is too large for it becomes infinite, and is seen later.
      return datasets.load_svmlight_file(
          self, dtype=np.float32, zero_based=self._index_base == 0)
    except _LineError:
      raise
    except (EOFError, OSError, zlib.error) as error:
      raise ValueError(
          f"{self.path}, after line {self._number}: cannot be read ({error}); "
          "check that it is complete and its ending right.") from error
    except (ValueError, OverflowError) as error:
      raise self._explain(error) from error

  def read(self, size=-1):
    """Marks this object as a file; scikit-learn then iterates over it."""
    raise io.UnsupportedOperation("read")

  def __iter__(self):
    qid = None
    with _open(self.path) as f:
      for self._number, line in enumerate(f, 1):
        if self._number == 1:
          line = line[len(codecs.BOM_UTF8) * line.startswith(codecs.BOM_UTF8):]
        content, _, comment = line.partition(b"#")
        head = content.split(None, 2)
        if not head:
          continue
        self._content = content
        if b"_" in content:  # Python reads 1_0 as 10.
          raise self._error(
              f"{_shown(next(t for t in content.split() if b'_' in t))} is no "
              "number of such a file", f"{_EXPECTED}; repair the line")
        if len(head) < 2 or head[1][:4] != b"qid:":
          float(head[0])  # A line without a label is not svmlight at all.
          found = _shown(head[1]) if len(head) > 1 else "the end of the line"
          raise self._error(
              f"expected `qid:<integer>` after the label, but found {found}",
              "add the query's id to each line")
        if head[1] != qid:
          self._start_list(head[1])
          qid = head[1]
        self.numbers.append(self._number)
        self.doc_ids.append(_doc_id(comment) if b"docid" in comment else None)
        yield self._sorted(head) if self._sort else content
      self._end_list()

  def _start_list(self, token):
    """Notes that a list starts with the current line."""
    try:
      qid = int(np.int64(int(token[4:])))
    except (ValueError, OverflowError):
      raise self._error(
          f"expected `qid:<integer>` of 64 bits, but found {_shown(token)}",
          "number the queries") from None
    self._end_list()
    if qid in self.last_lines:
      if qid == next(reversed(self.last_lines)):
        return  # The same number in another spelling, such as 07 after 7.
      raise self._error(
          f"expected the documents of qid {qid} in one block, but they stop at "
          f"line {self.last_lines[qid]} and go on here ({_shown(token)})",
          "sort the file by qid, where 007 and 7 are one number")
    self.last_lines[qid] = self._number
    self.starts.append(len(self.numbers))

  def _end_list(self):
    if self.last_lines:
      self.last_lines[next(reversed(self.last_lines))] = self.numbers[-1]

  def _sorted(self, head):
    features = head[2].split() if len(head) > 2 else []
    features.sort(key=lambda token: int(token.split(b":", 1)[0]))
    return b" ".join(head[:2] + features)

  def _error(self, problem, remedy):
    return _LineError(f"{self.path}, line {self._number}: {problem}; {remedy}.")

  def _explain(self, error):
    """Finds what is wrong in the line where the parser stopped."""
    label, *features = self._content.split()
    remedy = f"{_EXPECTED}; repair the line"
    seen = set()
    if not _is(float, label):
      return self._error(f"the label {_shown(label)} is not a number", remedy)
    for token in features[1:]:
      index, colon, value = token.partition(b":")
      if not colon or not _is(int, index) or not _is(float, value):
        return self._error(f"{_shown(token)} is not a feature", remedy)
      if int(index) < self._index_base:
        return self._error(
            f"expected feature indexes from {self._index_base}, but there is "
            f"{_shown(token)}",
            "use index_base=0 for all parts of data that count from 0"
            if self._index_base else "repair the line")
      if int(index) in seen:
        return self._error(
            f"expected each feature once, but index {int(index)} comes twice",
            "remove one of the two")
      seen.add(int(index))
    if not self._sort and "sorted" in str(error):
      return _UnorderedError()
    return self._error(f"not readable ({error})", remedy)


def _check_range(features, lines, num_features, index_base):
  if num_features is None or features.shape[1] <= num_features:
    return
  first = int(np.flatnonzero(features.indices >= num_features)[0])
  number = _line_of(features, first, lines)
  raise ValueError(
      f"{lines.path}, line {number}: expected indexes from {index_base} to "
      f"{num_features - 1 + index_base}, since `num_features` is "
      f"{num_features}, but there is index "
      f"{features.indices[first] + index_base}; give a larger `num_features` "
      "for all parts of the data, or check `index_base`.")


def _check_finite(features, lines, non_finite, index_base):
  """Raises for values that are not finite in float32, or makes them 0."""
  bad = np.flatnonzero(~np.isfinite(features.data))
  if not bad.size:
    return
  number = _line_of(features, bad[0], lines)
  index = int(features.indices[bad[0]]) + index_base
  if non_finite == "zero":
    features.data[bad] = 0.
    logging.warning(
        "%s: %d feature values were not finite in float32 and became 0; the "
        "first is feature %d in line %d.", lines.path, bad.size, index, number)
    return
  with _open(lines.path) as f:
    line = next(itertools.islice(f, number - 1, None))
  value = next(
      token.partition(b":")[2]
      for token in line.partition(b"#")[0].split()[2:]
      if int(token.partition(b":")[0]) == index)
  raise ValueError(
      f"{lines.path}, line {number}: expected values that are finite in "
      f"float32, but feature {index} is {_shown(value)}; repair the file, or "
      'read it with non_finite="zero", which makes such values 0 '
      f"({bad.size} in this file).")


def _line_of(features, entry, lines) -> int:
  """The number of the line that an entry of sparse features comes from."""
  row = np.searchsorted(features.indptr, entry, side="right") - 1
  return lines.numbers[row]


def _open(path):
  openers = {".gz": gzip.open, ".bz2": bz2.open}
  return openers.get(os.path.splitext(path)[1], open)(path, "rb")


def _doc_id(comment) -> Optional[str]:
  """`XXX` of the comment `docid = XXX ...` or `docid=XXX ...`, or None."""
  words = comment.replace(b"=", b" = ", 1).split(None, 3)
  if len(words) > 2 and words[:2] == [b"docid", b"="]:
    return words[2].decode("utf-8", "replace")
  return None


def _is(kind, token) -> bool:
  try:
    kind(token)
  except ValueError:
    return False
  return True


def _shown(token) -> str:
  """A token of the file for a message, cut to 40 characters."""
  return repr(token.decode("utf-8", "replace")[:40])


def find_files(path):
  """The training, validation and test file of a folder.

  The names may be `train.txt`, `vali.txt` and `test.txt` as in MSLR-WEB, MQ2008
  and Istella, `trainingset.txt` as in LETOR 3.0, `set1.train.txt` as in Yahoo,
  or such as `x_train.txt.gz`: in small or capital letters, with the ending
  `.txt`, `.svm`, `.dat` or none, compressed (`.gz`, `.bz2`) or not.

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
  parts = {part: read_letor(file, index_base=index_base,
                                  non_finite=non_finite)
           for part, file in files.items()}
  if "train" not in parts:
    logging.warning(
        "%s has no training file: training on a part of %s, and validating on "
        "the rest of it.", path, files["valid"])
  if len(parts) < len(_PARTS):
    whole = parts.pop("train" if "train" in parts else "valid")
    parts["valid"], parts["train"] = lists_lib.split(whole, valid_queries, seed)
  # A file may lack the last features: in svmlight, 0 is left out.
  width = max(part.num_features for part in parts.values())
  return tuple(parts[part].widen(width) for part in _PARTS)


def _beginning(files):
  """The beginning of the first of these names that has one, or an example."""
  found = [_NAME.fullmatch(name).group(1) for name in files]
  return next(filter(None, found), "set1")
