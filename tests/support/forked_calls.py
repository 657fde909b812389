"""Calls in processes of their own that import TensorFlow once, for tests."""

import json
import os
import signal
import subprocess
import sys

# Before a program that imports what its calls need and ends with `run_all`.
_FORK = """
import json
import os
import sys
import traceback


def run_all(act):
  for number, call in enumerate(json.load(open("calls.json"))):
    child = os.fork()
    if not child:
      for descriptor, kind in ((1, "out"), (2, "err")):
        file = os.open(f"{number}.{kind}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, descriptor)
      code = 0
      try:
        act(call)
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
      file.write(str(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else
                     os.WEXITSTATUS(status)))
"""


class ForkedCalls:
  """Calls one after the other, in a folder.

  Args:
    folder: a `pathlib.Path`; what is called finds its files there.
    program: Python that calls `run_all` with a function of one call.
    calls: a dict by name of values ready for JSON.
    timeout: seconds for all of them.
  """

  def __init__(self, folder, program, calls, timeout=900):
    self.folder = folder
    self._numbers = {name: number for number, name in enumerate(calls)}
    (folder / "calls.json").write_text(json.dumps(list(calls.values())))
    with subprocess.Popen(
        [sys.executable, "-c", _FORK + program], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True) as process:
      try:
        _, errors = process.communicate(timeout=timeout)
      finally:
        # With all that it forked.
        if process.poll() is None:
          os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-2000:]

  def read(self, name, kind):
    """The output `out` or `err`, or the `status` of a call."""
    return (self.folder / f"{self._numbers[name]}.{kind}").read_text()

  def out(self, name):
    """The output of a call that came to its end."""
    assert self.read(name, "status") == "0", self.read(name, "err")[-2000:]
    return self.read(name, "out")
