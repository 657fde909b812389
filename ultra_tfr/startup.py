"""Loads TensorFlow for the command line: late, and without its chatter.

It takes seconds to load, so help and typos are answered without it.
`ultra_tfr_start` begins with the package as yet empty, and the rest is loaded
when a command first uses it.
"""

import contextlib
import importlib
import logging
import os
import re
import sys
import tempfile
import threading

from absl import logging as absl_logging

# What TensorFlow says on any machine without a GPU, or of its own speed.
_NOISE = re.compile(
    r"All log messages before absl::InitializeLog\(\)|"
    r"oneDNN custom operations are on|Could not find cuda drivers|"
    r"This TensorFlow binary is optimized|To enable the following instructions|"
    r"failed call to cuInit|Unable to register cu\w+ factory|"
    r"computation placer already registered|TF-TRT Warning: Could not find|"
    # Beam, of its workers, and of packages for clouds.
    r"^INFO:|apitools not found|No semi_persistent_directory found|"
    r"Discarding unparseable args")
_SLOW_CALLBACK = "is slow compared to the batch time"
_CPP_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

_is_quiet = False


def be_quiet():
  """Leaves out what TensorFlow says of itself; warnings and errors stay."""
  global _is_quiet
  _is_quiet = True
  # Without notes (INFO), those of Python and those of C++.
  absl_logging.set_verbosity(absl_logging.WARNING)
  os.environ.setdefault(_CPP_LEVEL, "1")
  logging.getLogger("tensorflow").addFilter(
      lambda record: _SLOW_CALLBACK not in str(record.msg))


def lazy_module(name):
  """A module that is imported when something of it is first used.

  Args:
    name: of the module, such as "ultra_tfr.trainer".

  Returns:
    A stand-in for the module.

  >>> lazy_module("ultra_tfr.version").__version__
  '...'
  """
  return _LazyModule(name)


class _LazyModule:
  """Has the attributes of a module, see `lazy_module`."""

  def __init__(self, name):
    self._name = name

  def __getattr__(self, attribute):
    load_package()
    return getattr(importlib.import_module(self._name), attribute)


def load_package():
  """Runs `ultra_tfr/__init__.py`, if `ultra_tfr_start` has put it off."""
  package = sys.modules["ultra_tfr"]
  if hasattr(package, "__version__"):
    return
  with _without_noise() if _is_quiet else contextlib.nullcontext():
    package.__spec__.loader.exec_module(package)
    # TensorFlow looks for GPUs, and says so: now, and not amid the output.
    importlib.import_module("tensorflow").config.list_physical_devices()


@contextlib.contextmanager
def _without_noise():
  """Passes on what is written to stderr in the block, but for `_NOISE`.

  TensorFlow's libraries write before any setting of theirs counts, and not by
  way of `sys.stderr`. They may hold on to the interpreter meanwhile, so all is
  passed on at the end.
  """
  sys.stderr.flush()
  stderr = os.dup(2)
  try:
    with tempfile.TemporaryFile() as file:
      os.dup2(file.fileno(), 2)
      try:
        yield
      finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        file.seek(0)
        for line in file.read().decode(errors="replace").splitlines():
          if not _NOISE.search(line):
            print(line, file=sys.stderr)
  finally:
    os.close(stderr)


@contextlib.contextmanager
def workers_without_noise():
  """The same for child processes and line by line: a job may take hours."""
  if not _is_quiet:
    yield
    return
  sys.stderr.flush()
  stderr = os.dup(2)
  source, sink = os.pipe()
  reader = threading.Thread(
      target=_pass_on, args=(source, os.dup(2)), daemon=True)
  reader.start()
  os.dup2(sink, 2)
  os.close(sink)
  try:
    yield
  finally:
    sys.stderr.flush()
    os.dup2(stderr, 2)
    os.close(stderr)
    # A worker that lives on keeps its end open.
    reader.join(timeout=1)


def _pass_on(source, target):
  """Writes lines from one file descriptor to another, but for `_NOISE`."""
  with os.fdopen(source, errors="replace") as lines:
    with os.fdopen(target, "w", errors="replace") as passed_on:
      for line in lines:
        if not _NOISE.search(line):
          passed_on.write(line)
          passed_on.flush()
