"""Programs in process groups of their own, of which none is left behind."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import ultra_tfr.compat

# On a busy machine; on an idle one the slowest takes half a minute.
TIMEOUT = 900


def run(arguments, out, environments=({},), timeout=TIMEOUT):
  """Runs one Python program several times at once and waits for all.

  Args:
    arguments: a list of command lines, each a list of words after `python`.
    out: a `pathlib.Path` of a folder for what they print.
    environments: what each adds to the environment.
    timeout: seconds for all of them.

  Returns:
    What each printed.

  Raises:
    AssertionError: if one fails or takes too long. Its words say what it
      printed; all processes, and what they started, are gone.
  """
  package = pathlib.Path(ultra_tfr.compat.__file__).parents[1]
  path = os.pathsep.join(
      filter(None, [str(package), os.environ.get("PYTHONPATH")]))
  processes, logs = [], []
  try:
    for number, more in enumerate(environments):
      logs.append(out / f"{number}.log")
      with open(logs[-1], "w") as log:
        processes.append(subprocess.Popen(
            [sys.executable, *arguments[number]], stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, **more}))
    _wait(processes, time.monotonic() + timeout)
    codes = [process.poll() for process in processes]
    assert not any(codes) and None not in codes, "\n".join(
        f"{code}: {log.read_text()[-3000:]}" for code, log in zip(codes, logs))
  finally:
    for process in processes:
      # The group may hold what a process that has ended left behind.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
  return [log.read_text() for log in logs]


def _wait(processes, deadline):
  """Until all ended well, one failed, or the deadline."""
  while time.monotonic() < deadline:
    codes = [process.poll() for process in processes]
    if any(codes) or None not in codes:
      return
    time.sleep(.05)


def two_workers():
  """The environments of two workers on this machine."""
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
    for one in sockets:
      one.bind(("localhost", 0))
    workers = [f"localhost:{one.getsockname()[1]}" for one in sockets]
  return [{"TF_CONFIG": json.dumps({
      "cluster": {"worker": workers}, "task": {"type": "worker", "index": i}})}
          for i in range(2)]
