"""Calls of the command line, for tests."""

import json
import re
import subprocess
import sys

# Calls the command line several times and imports TensorFlow once: each call
# has a process of its own, since absl's flags are global.
_RUN_ALL = """
import importlib
import json
import os
import sys
import traceback

from ultra_tfr import cli

calls = json.load(open("calls.json"))
for name in {words[0] for words in calls if words} & set(cli.COMMANDS):
  importlib.import_module(f"ultra_tfr.commands.{name.replace('-', '_')}")
for number, words in enumerate(calls):
  child = os.fork()
  if not child:
    for descriptor, name in ((1, "out"), (2, "err")):
      file = os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT)
      os.dup2(file, descriptor)
    try:
      cli.run(["ultra-tfr", *words])
    except SystemExit as end:
      code = end.code
    except BaseException:
      traceback.print_exc()
      code = 1
    for stream in (sys.stdout, sys.stderr):
      stream.flush()
    # Taking TensorFlow down takes a second.
    os._exit(code or 0)
  status = os.waitpid(child, 0)[1]
  with open(f"{number}.status", "w") as file:
    file.write(str(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1))
"""


class Calls:
  """Calls one after the other, in a folder.

  Args:
    folder: a `pathlib.Path`; what is called finds its files there.
    calls: a dict of lists of words by name.
  """

  def __init__(self, folder, calls):
    self.folder = folder
    self._numbers = {name: number for number, name in enumerate(calls)}
    with open(folder / "calls.json", "w") as file:
      json.dump(list(calls.values()), file)
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL], cwd=folder, capture_output=True,
        text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

  def read(self, name, kind):
    """The output `out` or `err`, or the `status` of a call."""
    return (self.folder / f"{self._numbers[name]}.{kind}").read_text()

  def out(self, name):
    """The output of a call that worked."""
    assert self.read(name, "status") == "0", self.read(name, "err")[-2000:]
    return self.read(name, "out")

  def json(self, name):
    """The results of a call that worked, from the file of its name."""
    self.out(name)
    return json.loads((self.folder / f"{name}.json").read_text())

  def check_wrong(self, name, pattern, long_work):
    """Asserts that a call failed with one line of that pattern.

    Args:
      name: of the call.
      pattern: a regular expression.
      long_work: words, separated by |, with which lines begin that announce
        what takes long: the error must come before.
    """
    shown = self.read(name, "err") + self.read(name, "out")
    assert "Traceback" not in shown, shown
    assert self.read(name, "status") == "1", shown
    lines = [line for line in shown.splitlines() if re.search(pattern, line)]
    assert len(lines) == 1, shown
    assert not re.search(f"^({long_work}) ", shown, re.MULTILINE)
