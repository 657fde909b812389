"""Files by their paths: on this machine, or in the storage of a cluster.

A path with a scheme, such as `gs://bucket/logs`, is for pyarrow, which knows
gs, s3, abfs, hdfs and file, and finds credentials as the tools of each do.
"""

import atexit
from concurrent import futures
import fnmatch
import functools
import glob
import hashlib
import os
import posixpath
import re
import shutil
import tempfile

_ADDRESS = re.compile("([a-z][a-z0-9+.-]*)://([^/]*)/*(.*)",
                      re.IGNORECASE | re.DOTALL)
_THREADS = 16


def is_remote(path):
  """Whether a path has a scheme.

  >>> is_remote("gs://bucket/a.csv"), is_remote("logs/a.csv")
  (True, False)
  """
  return _ADDRESS.match(os.fspath(path)) is not None


def exists(path):
  """Whether there is a file or a folder."""
  return _info(path).type.name != "NotFound" if is_remote(path) else (
      os.path.exists(path))


def is_folder(path):
  """Whether there is a folder."""
  return _info(path).type.name == "Directory" if is_remote(path) else (
      os.path.isdir(path))


def size(path):
  """Bytes of a file."""
  return _info(path).size if is_remote(path) else os.path.getsize(path)


def names_in(folder):
  """Names of what is in a folder, sorted; none if there is no folder."""
  if is_remote(folder):
    return sorted(info.base_name for info in _list(folder, recursive=False))
  return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def of_each(function, paths):
  """A list of what a function gives for each path, of many at a time.

  What takes the time in storage is to wait for its answers.
  """
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    return list(pool.map(function, paths))


def find(pattern):
  """Paths that a pattern such as `gs://b/day=*/*.csv` matches, sorted.

  Args:
    pattern: as of `glob.glob`, also with `**`.
  """
  pattern = os.fspath(pattern)
  if not is_remote(pattern):
    return sorted(glob.glob(pattern, recursive=True))
  if glob.escape(pattern) == pattern:
    return [pattern] if exists(pattern) else []
  root = pattern[:glob.escape(pattern).find("[")].rpartition("/")[0]
  if root.endswith(":/"):
    return []  # Not all buckets are searched.
  wanted = pattern[len(root) + 1:].split("/")
  inner = _place(root)[1].rstrip("/")
  there = (info.path.partition(f"{inner}/")[2]
           for info in _list(root, recursive=True))
  return sorted(f"{root}/{name}" for name in there
                if _matches(name.split("/"), wanted))


def _matches(names, wanted):
  """Whether the names of folders and of a file match patterns of them."""
  if not wanted or not names:
    return not names and wanted in ([], ["**"])
  if wanted[0] == "**":
    return _matches(names, wanted[1:]) or (
        not names[0].startswith(".") and _matches(names[1:], wanted))
  hidden = names[0].startswith(".") and not wanted[0].startswith(".")
  return not hidden and fnmatch.fnmatchcase(names[0], wanted[0]) and _matches(
      names[1:], wanted[1:])


def source(path):
  """What pyarrow reads a file from."""
  if not is_remote(path):
    return path
  system, inner = _place(path)
  return system.open_input_file(inner)


def read(path):
  """The bytes of a file."""
  if is_remote(path):
    with source(path) as file:
      return file.read()
  with open(path, "rb") as file:
    return file.read()


def local(path):
  """A path on this machine, for those that read no others.

  Args:
    path: of a file.

  Returns:
    The same path; or of a copy, which is made once and kept until the process
    ends.
  """
  if not is_remote(path):
    return path
  name = hashlib.sha256(path.encode()).hexdigest()[:32]
  # The ending tells how it is packed.
  copy = os.path.join(_copies(), f"{name}-{os.path.basename(path)[-60:]}")
  if not os.path.exists(copy):
    import pyarrow.fs

    system, inner = _place(path)
    part = f"{copy}.{os.urandom(8).hex()}"
    pyarrow.fs.copy_files(inner, part, system, pyarrow.fs.LocalFileSystem())
    os.replace(part, copy)
  return copy


@functools.cache
def _copies():
  """The folder of the copies of this process."""
  folder = tempfile.mkdtemp(prefix="ultra_tfr_files_")
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return folder


def upload(path, target):
  """Copies a file of this machine to a path with a scheme."""
  import pyarrow.fs

  system, inner = _place(target)
  pyarrow.fs.copy_files(path, inner, pyarrow.fs.LocalFileSystem(), system)


def make_folder(path):
  """Makes a folder, with those around it, unless it is there."""
  if is_remote(path):
    system, inner = _place(path)
    system.create_dir(inner)
  else:
    os.makedirs(path, exist_ok=True)


def remove(path):
  """Removes a file or a folder with a scheme, if it is there."""
  system, inner = _place(path)
  if is_folder(path):
    system.delete_dir(inner)
  elif exists(path):
    system.delete_file(inner)


def _info(path):
  """A `pyarrow.fs.FileInfo`."""
  system, inner = _place(path)
  return system.get_file_info(inner)


def _list(folder, recursive):
  from pyarrow import fs

  system, inner = _place(folder)
  return system.get_file_info(
      fs.FileSelector(inner, allow_not_found=True, recursive=recursive))


def _place(path):
  """The file system of pyarrow that a path is in, and its place there."""
  scheme, authority, rest = _ADDRESS.match(os.fspath(path)).groups()
  try:
    system, root = _connect(f"{scheme.lower()}://{authority}/")
  except (OSError, ValueError, NotImplementedError, ImportError) as error:
    # `ArrowInvalid` is a `ValueError`.
    raise ValueError(
        f"{path}: its storage cannot be reached: "
        f"{str(error).partition(chr(10))[0]}; pyarrow reads gs://, s3://, "
        "abfs:// and hdfs:// (which needs Java and Hadoop's libhdfs), see its "
        "page on file systems; or copy the files to a disk.") from error
  return system, posixpath.join(root, rest).rstrip("/") or root


@functools.cache
def _connect(root):
  from pyarrow import fs

  return fs.FileSystem.from_uri(root)
