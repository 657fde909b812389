"""Runs of `ultra_tfr.comparison.schedule` that never end, in two processes."""

import pathlib
import sys
import time

from ultra_tfr.comparison import schedule


def wait(path):
  """Says that it has begun."""
  pathlib.Path(path).touch()
  time.sleep(1000)


if __name__ == "__main__":
  schedule.execute(sys.argv[1:], wait, jobs=2)
