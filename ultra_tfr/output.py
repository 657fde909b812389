"""What is written: files, JSON, aligned tables, and the versions behind them.

A file is there as a whole or not at all, and never takes the place of one that
is read.
"""

import contextlib
import errno
import glob
import json
import os
import pathlib
import secrets
import sys

import numpy as np

from ultra_tfr.version import __version__


def plain(value):
  """Arrays as lists and NaN as None, all the way down.

  Args:
    value: dicts, lists and arrays of numbers, texts, booleans and None.

  Returns:
    The same of Python's own types, ready for JSON.

  >>> plain({"curve": np.array([1.0, np.nan]), "count": np.int64(3)})
  {'curve': [1.0, None], 'count': 3}
  """
  if isinstance(value, dict):
    return {name: plain(part) for name, part in value.items()}
  if isinstance(value, (list, tuple, np.ndarray)):
    return [plain(part) for part in value]
  if isinstance(value, (bool, np.bool_)):
    return bool(value)
  if isinstance(value, (int, np.integer)):
    return int(value)
  if isinstance(value, (float, np.floating)):
    return float(value) if np.isfinite(value) else None
  return value


@contextlib.contextmanager
def errors_of(path, part=None):
  """Lets errors of the system within the block name a path.

  Args:
    path: to name, unless the error is about another file.
    part: another name that the file has meanwhile.

  Raises:
    OSError: with the path; also for what TensorFlow raises instead.
  """
  try:
    yield
  except OSError as error:
    if error.filename not in (None, part):
      raise
    raise OSError(error.errno, error.strerror or str(error), path) from error
  except Exception as error:
    # Seen by its name, so that TensorFlow is not loaded for it.
    if not any(kind.__name__ == "OpError" for kind in type(error).__mro__):
      raise
    raise OSError(errno.EIO, str(error).splitlines()[0], path) from error


@contextlib.contextmanager
def new_path(path):
  """A name for a file to write, which gets its right name at the end.

  Until then it has a name in the same folder that nobody can know: what waits
  there, such as a link, is never written to.

  Args:
    path: where it goes, in place of what is there.

  Yields:
    The other path, where there is nothing.

  Raises:
    OSError: with the right path.
  """
  path = os.fspath(path)
  part = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.part")
  with errors_of(path, part):
    try:
      yield part
      os.replace(part, path)
    except BaseException:
      with contextlib.suppress(FileNotFoundError):
        os.remove(part)
      raise


@contextlib.contextmanager
def new_file(path, mode="w"):
  """Opens a file that is there when the block has ended, or not at all.

  Args:
    path: where it goes, in place of what is there; a pipe is written directly.
    mode: "w" for text, which is UTF-8, or "wb".

  Yields:
    The open file.

  Raises:
    OSError: with the path.

  >>> with new_file("hello.txt") as file:
  ...   _ = file.write("hello")
  """
  options = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
  if os.path.exists(path) and not os.path.isfile(path):
    with errors_of(path), open(path, mode, **options) as file:
      yield file
    return
  with new_path(path) as part:
    with open(part, mode.replace("w", "x"), **options) as file:
      yield file
      file.flush()
      os.fsync(file.fileno())


def check_is_no_input(name, path, inputs):
  """Raises a `ValueError` if a file to write is one that is needed.

  Args:
    name: of the argument that gives the path.
    path: the file, or None.
    inputs: paths of files, of folders, of which all is needed, and patterns
      such as "logs/*.csv". Links are followed.

  >>> check_is_no_input("--json", "a.csv", ["b.csv", "./a.csv"])
  Traceback (most recent call last):
  ValueError: --json a.csv would change ./a.csv, which is needed; name another.
  """
  if not path:
    return
  target = os.path.realpath(path)
  for source in inputs:
    real = os.path.realpath(source)
    if (os.path.commonpath([target, real]) == real or
        pathlib.PurePath(target).match(glob.escape(real) if os.path.exists(real)
                                       else real) or
        os.path.exists(target) and os.path.exists(real) and
        os.path.samefile(target, real)):
      raise ValueError(f"{name} {path} would change {source}, which is needed; "
                       "name another.")


def write(path, value):
  """Writes a file of JSON: all of it, or nothing.

  Args:
    path: the file.
    value: as in `plain`, so NaN is written as null.

  >>> write("results.json", {"seconds": 1.5})
  """
  with new_file(path) as file:
    json.dump(plain(value), file, indent=2)
    file.write("\n")


def read(path):
  """The value that a file of JSON holds, or None if there is no file.

  Args:
    path: the file.

  >>> read("none.json") is None
  True
  """
  if not os.path.exists(path):
    return None
  with open(path, encoding="utf-8") as file:
    return json.load(file)


def versions():
  """The versions that results were made with, ready for JSON."""
  # Of what is loaded, so that writing a file loads nothing.
  libraries = {
      name: sys.modules[name].__version__
      for name in ("tensorflow", "tensorflow_ranking", "lightgbm", "xgboost")
      if name in sys.modules}
  return {"ultra_tfr": __version__, **libraries,
          "python": sys.version.split()[0]}


def align(rows):
  """Lines of a table, from rows of cells of text; the first cell goes left.

  >>> align([["a", "1"], ["bc", "10"]])
  ['a    1', 'bc  10']
  """
  widths = [max(map(len, column)) for column in zip(*rows)]
  return ["  ".join([row[0].ljust(widths[0]),
                     *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
          for row in rows]
