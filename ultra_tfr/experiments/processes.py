"""Runs one after the other or in several processes, with a progress line."""

import collections
from concurrent import futures
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback


def execute(runs, function, jobs=1, done=None):
  """Calls a function for each run.

  Args:
    runs: the arguments of the calls.
    function: takes one run; with several jobs it must be importable, since
      other processes call it.
    jobs: processes; with 1 everything happens in this one.
    done: a function of (run, result or None, error text or None), called in
      this process as soon as a run has ended.

  Returns:
    A dict from run to error text of those that failed.
  """
  failed = {}
  progress = _Progress(len(runs))

  def finish(run, result, error):
    if error is not None:
      failed[run] = error
    if done is not None:
      done(run, result, error)
    progress.finish(run, error)

  if jobs == 1:
    for run in runs:
      progress.start(run)
      finish(run, *_guarded(function, run))
    return failed
  waiting = collections.deque(runs)
  while waiting:  # Starts new processes if one of them died.
    _run_in_processes(waiting, function, jobs, progress.start, finish)
  return failed


def _run_in_processes(waiting, function, jobs, start, finish):
  """Takes runs from the left until there is none left or a process died."""
  # A fork would copy TensorFlow's threads in an undefined state.
  context = multiprocessing.get_context("spawn")
  with futures.ProcessPoolExecutor(
      jobs, mp_context=context, initializer=_end_with_parent) as pool:
    running, is_broken = {}, False
    while running or (waiting and not is_broken):
      while waiting and not is_broken and len(running) < jobs:
        try:
          future = pool.submit(_guarded, function, waiting[0])
        except futures.process.BrokenProcessPool:
          is_broken = True
          continue
        running[future] = waiting.popleft()
        start(running[future])
      try:
        ended, _ = futures.wait(running, return_when=futures.FIRST_COMPLETED)
      except (KeyboardInterrupt, SystemExit):
        for process in multiprocessing.active_children():
          process.terminate()
        raise
      for future in ended:
        try:
          result, error = future.result()
        except futures.process.BrokenProcessPool:
          result, error = None, "its process died; perhaps memory ran out"
          is_broken = True
        finish(running.pop(future), result, error)


def _end_with_parent():
  """Ends this process when its parent is gone, even if it was killed.

  Ctrl-C, which a terminal sends to all processes, is for the parent alone.
  """
  signal.signal(signal.SIGINT, signal.SIG_IGN)

  def wait():
    multiprocessing.parent_process().join()
    os._exit(1)
  threading.Thread(target=wait, daemon=True).start()


def _guarded(function, run):
  """The result and None, or None and what went wrong."""
  try:
    return function(run), None
  except Exception:  # One failed run must not lose the others.
    return None, traceback.format_exc()


class _Progress:
  """Says what runs, what is done and how long the rest may take."""

  def __init__(self, total):
    self._total, self._started, self._done = total, 0, 0
    self._start = time.monotonic()

  def start(self, run):
    self._started += 1
    print(f"[{self._started}/{self._total}] {run} ...", flush=True)

  def finish(self, run, error):
    self._done += 1
    spent = time.monotonic() - self._start
    left = spent / self._done * (self._total - self._done)
    state = "done" if error is None else "FAILED"
    print(f"[{self._done}/{self._total}] {run}: {state}; about "
          f"{_duration(left)} left", flush=True)
    if error is not None:
      print(error, file=sys.stderr, flush=True)


def _duration(seconds):
  """Seconds for people.

  >>> _duration(30), _duration(150), _duration(8000)
  ('30 s', '2 min', '2.2 h')
  """
  if seconds < 90:
    return f"{seconds:.0f} s"
  return f"{seconds / 60:.0f} min" if seconds < 7200 else (
      f"{seconds / 3600:.1f} h")
