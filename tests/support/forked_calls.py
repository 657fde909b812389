"""Calls in processes of their own that import TensorFlow once, for tests."""

import json
import os
import pathlib
import signal
import subprocess
import sys

# Before a program that imports what its calls need.
_FORK = """
import json
import os
import sys
import traceback


def fork(act, call, files):
  '''Acts on a call in a child that writes `files`.out and .err: its status.'''
  child = os.fork()
  if not child:
    for descriptor, kind in ((1, "out"), (2, "err")):
      file = os.open(f"{files}.{kind}", os.O_WRONLY | os.O_CREAT)
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
  return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else (
      os.WEXITSTATUS(status))


def run_all(act):
  for number, call in enumerate(json.load(open("calls.json"))):
    status = fork(act, call, number)
    with open(f"{number}.status", "w") as file:
      file.write(str(status))
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


_SERVE = """
import numpy
import tensorflow


def act(call):
  os.chdir(call["folder"])
  os.environ.update(call["environment"])
  sys.argv[1:] = call["words"]
  exec(compile(call["program"], "<program>", "exec"), {"__name__": "__main__"})


for number, line in enumerate(sys.stdin):
  print(fork(act, json.loads(line), number), flush=True)
"""


class PlainTensorFlow:
  """A process that has imported TensorFlow, and forks one for each program.

  For programs that find TensorFlow imported and this package not, such as those
  that serve a model. Neither has anybody chosen a Keras yet.

  Args:
    folder: a `pathlib.Path` for what programs print.
    path: `PYTHONPATH` of the programs.
  """

  def __init__(self, folder, path):
    self._folder, self._count = folder, 0
    environment = {name: value for name, value in os.environ.items()
                   if name != "TF_USE_LEGACY_KERAS"}
    self._process = subprocess.Popen(
        [sys.executable, "-c", _FORK + _SERVE], cwd=folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
        env={**environment, "PYTHONPATH": str(path)})

  def run(self, program, folder, *words, **environment):
    """Runs Python in a folder with command-line words and variables.

    Returns:
      A `subprocess.CompletedProcess`.
    """
    call = {"program": program, "folder": str(folder), "words": [*words],
            "environment": environment}
    print(json.dumps(call), file=self._process.stdin, flush=True)
    status = int(self._process.stdout.readline())
    out, err = (
        pathlib.Path(self._folder, f"{self._count}.{kind}").read_text()
        for kind in ("out", "err"))
    self._count += 1
    return subprocess.CompletedProcess(program, status, out, err)

  def close(self):
    """Ends the process."""
    self._process.communicate()
