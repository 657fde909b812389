"""Runs for `experiments.processes`, where another process can import them."""

import os
import time


def square(number):
  """Fails for 3."""
  if number == 3:
    raise RuntimeError("three is not possible")
  return number * number


def die(number):
  """Takes its process down for 1, and fails for 3."""
  if number == 1:
    time.sleep(1.0)
    os._exit(7)
  return square(number)
