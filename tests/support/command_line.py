"""Calls of the command line, for tests."""

import json
import re

from forked_calls import ForkedCalls

# Each call has a process of its own, since absl's flags are global.
_PROGRAM = """
import importlib

from ultra_tfr import cli
from ultra_tfr import startup

calls = json.load(open("calls.json"))
for name in {words[0] for words in calls if words} & set(cli.COMMANDS):
  importlib.import_module(f"ultra_tfr.commands.{name.replace('-', '_')}")
# Once, and not in each call.
for name, module in list(sys.modules.items()):
  if name.startswith("ultra_tfr.commands."):
    for value in vars(module).values():
      if isinstance(value, type(startup.lazy_module(""))):
        value.__name__
run_all(lambda words: cli.run(["ultra-tfr", *words]))
"""


class Calls(ForkedCalls):
  """Calls of the command line, one after the other, in a folder.

  Args:
    folder: a `pathlib.Path`; what is called finds its files there.
    calls: a dict of lists of words by name.
  """

  def __init__(self, folder, calls):
    super().__init__(folder, _PROGRAM, calls)

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
