"""Runs that never end, in two processes of `experiments.processes`."""

import pathlib
import sys
import time

from ultra_tfr.experiments import processes


def wait(path):
  """Says that it has begun."""
  pathlib.Path(path).touch()
  time.sleep(1000)


if __name__ == "__main__":
  processes.execute(sys.argv[1:], wait, jobs=2)
