"""What is written: files, JSON, aligned tables, and the versions behind them.

A file is there as a whole or not at all, and never takes the place of one that
is read. A folder has one writer, which touches nothing but what it made.
"""

import contextlib
import errno
import glob
import json
import os
import pathlib
import re
import secrets
import shutil
import sys
import tempfile

import numpy as np

from ultra_tfr import files
from ultra_tfr.version import __version__

try:
  import fcntl
except ImportError:  # Without it two writers are not told apart.
  fcntl = None  # type: ignore[assignment]

MANIFEST = ".ultra_tfr.json"
# Control characters, also those that turn the direction of writing, and lone
# surrogates.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
                      "\ud800-\udfff]")


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
  """Makes errors of the system within the block name a path.

  Args:
    path: to name, unless the error is about another file; None for none.
    part: the temporary name of the file, if it has one.

  Raises:
    OSError: with the path; also in place of an error of TensorFlow's that has
      such a reason.
  """
  try:
    yield
  except OSError as error:
    if path is None or error.filename not in (None, part):
      raise
    raise OSError(error.errno, error.strerror or str(error), path) from error
  except Exception as error:
    reason = _system_reason(error)
    if reason is None:
      raise
    raise OSError(errno.EIO, reason, path) if path else OSError(
        str(error).partition("\n")[0]) from error


def _system_reason(error):
  """The system's reason in an error of TensorFlow; None if there is none."""
  # Seen by its name, so that TensorFlow is not loaded for it.
  if not any(kind.__name__ == "OpError" for kind in type(error).__mro__):
    return None
  return next((os.strerror(code) for code in (
      errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG,
      errno.EDQUOT, errno.EIO, errno.ENOTDIR, errno.EISDIR, errno.ENOENT)
               if os.strerror(code) in str(error)), None)


@contextlib.contextmanager
def new_path(path):
  """A temporary name for a file to write, which gets its right name at the end.

  The temporary name is in the same folder and cannot be guessed, so that nobody
  can put a link there for us to write through. If the path has a scheme, see
  `files`, it is of this machine instead.

  Args:
    path: where the file goes, in place of what is there.

  Yields:
    The temporary path, where there is nothing yet.

  Raises:
    OSError: with the right path.
  """
  path = os.fspath(path)
  if files.is_remote(path):
    with tempfile.TemporaryDirectory() as folder:
      yield (part := os.path.join(folder, "part"))
      with errors_of(path):
        files.upload(part, path)
    return
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
  options = {} if "b" in mode else {
      "encoding": "utf-8", "newline": "", "errors": "backslashreplace"}
  if os.path.exists(path) and not os.path.isfile(path):
    with errors_of(path), open(path, mode, **options) as file:
      yield file
    return
  with new_path(path) as part:
    with open(part, mode.replace("w", "x"), **options) as file:
      yield file


def check_is_no_input(name, path, inputs):
  """Raises a `ValueError` if a file to write is one of the inputs.

  Args:
    name: of the argument that gives the path.
    path: the file to write, or None.
    inputs: paths of files, paths of folders with all that is in them, and
      patterns such as "logs/*.csv". Links are followed.

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

  Raises:
    ValueError: if it holds anything else.

  >>> read("none.json") is None
  True
  """
  if not files.exists(path):
    return None
  try:
    return json.loads(files.read(path).decode())
  except (ValueError, RecursionError) as error:
    raise ValueError(
        f"{path}: is no JSON ({error}), so it is damaged; remove it, or take "
        "it from a backup.") from error


def has_form(value, form):
  """Whether a value that was read from JSON has a form.

  Args:
    value: as `read` gives it.
    form: a type, where `float` stands for any finite number and `int` for a
      whole one; None; a tuple of alternative forms; `[form]` for a list; `{str:
      form}` for a dict of any names; or a dict of the forms that must be there
      by name.

  >>> form = {"curve": ([float], None), "mean": {str: float}}
  >>> has_form({"curve": None, "mean": {"a": 1}, "more": []}, form)
  True
  >>> has_form({"curve": [None], "mean": {}}, form)
  False
  """
  if isinstance(form, tuple):
    return any(has_form(value, other) for other in form)
  if isinstance(form, list):
    return isinstance(value, list) and all(
        has_form(part, form[0]) for part in value)
  if isinstance(form, dict):
    if not isinstance(value, dict):
      return False
    parts = dict.fromkeys(value, form[str]) if str in form else form
    return all(name in value and has_form(value[name], part)
               for name, part in parts.items())
  if form in (int, float):
    return isinstance(value, (int, form)) and not isinstance(
        value, bool) and abs(value) <= sys.float_info.max
  return value is None if form is None else isinstance(value, form)


class Folder(os.PathLike):
  """A folder that one command writes, and meanwhile no other process.

  It must be new or empty at first. From then on a manifest in it names the
  command and lists what it made there; nothing else is ever written over or
  removed.

      with Folder("shop", "fit-log") as folder:
        with open(folder.claim("notes.txt"), "w") as file: ..

  Within the block, another `Folder` of that path in this process is the same.

  Args:
    path: of the folder, which is made if need be.
    command: that writes the folder.
    name: of the argument that gave the path.
    marker: the file whose presence says that the content is complete, or None.
    overwrite: whether complete content may be written over.

  Raises:
    ValueError: if it is no folder, is not of this command, is being written by
      another process, or is complete already.

  >>> with Folder("shop", "fit-log", marker="log.json") as folder:
  ...   write(folder.claim("log.json"), {})
  >>> with Folder("shop", "fit-log", marker="log.json") as folder:
  ...   pass
  Traceback (most recent call last):
  ValueError: folder: shop already holds a result; give another folder, or ...
  """

  _held: dict[str, "Folder"] = {}

  def __init__(self, path, command, name="folder", marker=None,
               overwrite=False):
    self._path, self._command, self._name = os.fspath(path), command, name
    self._marker, self._overwrite = marker, overwrite
    self._lock, self._entries, self._is_new = None, [], False

  def __fspath__(self):
    return self._path

  def __enter__(self):
    if files.is_remote(self._path):
      raise ValueError(
          f"{self._name} {self._path} must be a folder of this machine; give "
          "another one, and copy it there at the end.")
    there = os.path.abspath(self._path)
    while not os.path.exists(there):
      there = os.path.dirname(there)
    if not os.path.isdir(there):
      raise ValueError(
          f"{self._name} {self._path} must be a folder, but {there} is a file; "
          "give another name.")
    held = self._held.get(os.path.realpath(self._path))
    if held is not None:
      return held
    with errors_of(self._path):
      self._is_new = not os.path.exists(self._path)
      os.makedirs(self._path, exist_ok=True)
      self._lock = os.open(self._path if fcntl else os.devnull, os.O_RDONLY)
    try:
      self._take()
    except BaseException:
      os.close(self._lock)
      raise
    self._held[os.path.realpath(self._path)] = self
    return self

  def __exit__(self, kind, *unused):
    if self._lock is None:  # Within the block of another one.
      return
    try:
      # A subfolder that is finished gets no more files: from now on the
      # manifest lists the files in it, and others there are not ours.
      self._entries = [
          found for entry in self._entries for found in self._files(entry)
          ] if kind is None else list(filter(self._files, self._entries))
      self._write()
      if os.listdir(self._path) == [MANIFEST] and not self._entries:
        os.remove(self._at(MANIFEST))
        if self._is_new:
          os.rmdir(self._path)
    finally:
      del self._held[os.path.realpath(self._path)]
      os.close(self._lock)

  def _take(self):
    """Checks that no one else writes there or ever did, and locks the folder.
    """
    try:
      if fcntl is not None:
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise ValueError(
          f"{self._name}: {self._path} is being written by another process; "
          "wait until it has ended, or give another folder.") from error
    except OSError:  # Some file systems have no locks for folders.
      pass
    found = read(self._at(MANIFEST))
    if found is None:
      if os.listdir(self._path):
        raise ValueError(
            f"{self._name}: {self._path} holds files that {self._command} did "
            "not write; give an empty folder, or a new one.")
      self._write()
      return
    if not (isinstance(found, dict) and isinstance(found.get("files"), list)
            and all(isinstance(entry, str) and not {"", ".", ".."} & set(
                entry.rstrip("/").split("/")) for entry in found["files"])):
      raise ValueError(
          f"{self._at(MANIFEST)} is damaged; give another folder.")
    if found.get("command") != self._command:
      raise ValueError(
          f"{self._name}: {self._path} is a folder of {found.get('command')}, "
          f"and not of {self._command}; give another one.")
    self._entries = found["files"]
    # What a killed process left half-made.
    self.remove(*(entry.rstrip("/") for entry in self._entries
                  if entry.startswith(".")))
    if (self._marker is not None and not self._overwrite and
        os.path.exists(self._at(self._marker))):
      raise ValueError(
          f"{self._name}: {self._path} already holds a result; give another "
          "folder, or --overwrite.")

  def claim(self, *names):
    """Notes in the manifest what is about to be written.

    Args:
      *names: of files in the folder, and of folders in it, which end in "/".

    Returns:
      The path of the first one.

    Raises:
      ValueError: if one of them is there already and the command did not make
        it.
    """
    for name in names:
      for path in self._files(name):
        if path not in self._entries and name not in self._entries:
          raise ValueError(
              f"{self._name}: {self._at(path)} is in the way, and is not of "
              f"{self._command}; move it, or give another folder.")
    fresh = [name for name in names if name not in self._entries]
    if fresh:
      folders = tuple(name for name in fresh if name.endswith("/"))
      self._entries = [*(entry for entry in self._entries
                         if not entry.startswith(folders)), *fresh]
      self._write()
    return self._at(names[0])

  def remove(self, *names):
    """Removes what the command made under these names.

    Args:
      *names: of files and folders in the folder.
    """
    gone = [entry for entry in self._entries if entry.rstrip("/") in names or
            entry.startswith(tuple(f"{name}/" for name in names))]
    for entry in gone:
      path = self._at(entry.rstrip("/"))
      parent = os.path.dirname(entry.rstrip("/"))
      # A folder may have become a link to another one.
      if os.path.realpath(self._at(parent)) != os.path.normpath(
          os.path.join(os.path.realpath(self._path), parent)):
        raise ValueError(
            f"{self._name}: {path} is elsewhere; give another folder.")
      if entry.endswith("/") and os.path.isdir(path) and not os.path.islink(
          path):
        shutil.rmtree(path)
      elif os.path.lexists(path):
        os.remove(path)
    for path in map(self._at, names):
      if not os.path.islink(path):
        for folder, _, _ in os.walk(path, topdown=False):
          if not os.listdir(folder):
            os.rmdir(folder)
    if gone:
      self._entries = [entry for entry in self._entries if entry not in gone]
      self._write()

  def clear(self):
    """Removes all that the command made."""
    self.remove(*(entry.partition("/")[0] for entry in self._entries))

  @contextlib.contextmanager
  def staged(self, marker=None):
    """A temporary folder, whose content moves to this one when the block ends.

    Args:
      marker: a file in it that is moved last, after an older one was removed
        first: whenever it is there, the content is complete.

    Yields:
      The path of the temporary folder.

    Raises:
      OSError: with the path of this folder.
    """
    name = f".{secrets.token_hex(8)}"
    stage = self.claim(f"{name}/")
    try:
      with errors_of(self._path):
        os.mkdir(stage)
        yield stage
      if marker is not None:
        self.remove(marker)
      for entry in sorted(os.listdir(stage), key=lambda entry: entry == marker):
        path = os.path.join(stage, entry)
        self.remove(entry)
        os.replace(path, self.claim(
            f"{entry}/" if os.path.isdir(path) else entry).rstrip("/"))
    finally:
      self.remove(name)

  def _at(self, name):
    return os.path.join(self._path, name)

  def _files(self, name):
    """The files that are there of a file or of a folder, which ends in "/"."""
    path = self._at(name.rstrip("/"))
    if not os.path.isdir(path) or os.path.islink(path):
      return [name.rstrip("/")] if os.path.lexists(path) else []
    return [os.path.relpath(os.path.join(folder, file), self._path)
            for folder, _, files in os.walk(path) for file in files]

  def _write(self):
    write(self._at(MANIFEST),
          {"command": self._command, "files": self._entries})


def versions():
  """The versions that results were made with, ready for JSON."""
  # Of what is loaded, so that writing a file loads nothing.
  libraries = {
      name: sys.modules[name].__version__
      for name in ("tensorflow", "tensorflow_ranking", "lightgbm", "xgboost")
      if name in sys.modules}
  return {"ultra_tfr": __version__, **libraries,
          "python": sys.version.split()[0]}


def printable(text):
  """A text whose control characters a terminal shows instead of obeying them.

  Args:
    text: with any values of a log in it; line breaks stay.

  >>> printable("\\x1b[2J")
  '\\\\x1b[2J'
  """
  return _CONTROL.sub(
      lambda found: found[0].encode("unicode_escape").decode(), text)


def red(text):
  """A text as a terminal shows it in red; plain where no terminal reads it.

  Args:
    text: without control characters, see `printable`.
  """
  # https://no-color.org
  if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
    return text
  return f"\x1b[31m{text}\x1b[0m"


def align(rows):
  """Lines of a table, from rows of cells of text; the first cell goes left.

  >>> align([["a", "1"], ["bc", "10"]])
  ['a    1', 'bc  10']
  """
  rows = [list(map(printable, row)) for row in rows]
  widths = [max(map(len, column)) for column in zip(*rows)]
  return ["  ".join([row[0].ljust(widths[0]),
                     *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
          for row in rows]
