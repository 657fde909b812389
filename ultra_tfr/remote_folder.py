"""A folder in the storage of a cluster that one command writes."""

import contextlib
import os

from ultra_tfr import files
from ultra_tfr import output


class RemoteFolder(os.PathLike):
  """What `output.Folder` is on this machine, at a path with a scheme.

  Storage has neither locks nor names that change at once: what is written is
  there at once, and whole when the marker is. Two processes that write at the
  same time are not told apart.

  Args:
    path: as in `output.Folder`, and so are the others.
    command: see there.
    name: see there.
    marker: see there.
    overwrite: see there.
    parts: names of folders in it that are staged, which end in "/".

  Raises:
    ValueError: if it holds files of others, or is complete already.
  """

  def __init__(self, path, command, name, marker, overwrite=False, parts=()):
    self._path, self._command, self._name = path, command, name
    self._marker, self._overwrite = marker, overwrite
    self._parts, self._entries = list(parts), []

  def __fspath__(self):
    return self._path

  def __enter__(self):
    files.make_folder(self._path)
    there = files.names_in(self._path)
    found = output.read(self._at(output.MANIFEST))
    if there and (not isinstance(found, dict) or
                  found.get("command") != self._command):
      raise ValueError(
          f"{self._name}: {self._path} holds files that {self._command} did "
          "not write; give an empty folder, or a new one.")
    if self._marker in there and not self._overwrite:
      raise ValueError(
          f"{self._name}: {self._path} already holds a result; give another "
          "folder, or --overwrite.")
    # What is not listed is not ours.
    self._entries = [name for name in (found or {}).get("files", ())
                     if name.rstrip("/") in there]
    return self

  def __exit__(self, *unused):
    pass

  def claim(self, name):
    """Notes what is about to be written.

    Args:
      name: of a file, or of a folder, which ends in "/".

    Returns:
      Its path.

    Raises:
      ValueError: if it is there already and the command did not make it.
    """
    if name not in self._entries:
      if name.rstrip("/") in files.names_in(self._path):
        raise ValueError(
            f"{self._name}: {self._at(name)} is in the way, and is not of "
            f"{self._command}; move it, or give another folder.")
      self._entries.append(name)
      output.write(self._at(output.MANIFEST),
                   {"command": self._command, "files": self._entries})
    return self._at(name)

  def remove(self, *names):
    """Removes what the command made under these names."""
    for name in [entry for entry in self._entries
                 if entry.rstrip("/") in names]:
      files.remove(self._at(name.rstrip("/")))

  @contextlib.contextmanager
  def staged(self, marker):
    """The folder itself, without what the command made of its `parts`.

    Args:
      marker: a file that is written last.

    Yields:
      The path of the folder. If the block fails, the marker is removed.
    """
    self.remove(marker)  # First: without it nothing is whole.
    self.remove(*(part.rstrip("/") for part in self._parts))
    for name in (marker, *self._parts):
      self.claim(name)
    try:
      yield self._path
    except BaseException:
      self.remove(marker)
      raise

  def _at(self, name):
    return os.path.join(self._path, name)
