"""Flags of the commands that read a click log, and the reading."""

import os
import sys
import time

from absl import flags

from ultra_tfr import log_training
from ultra_tfr import methods
from ultra_tfr.data import click_log
from ultra_tfr.data.log_columns import LogColumns

FLAGS = flags.FLAGS

_REJECTED = "rejected_rows.csv"


def define_log_flags(folder, required=True):
  """Defines the flags that say what is in the log.

  Args:
    folder: the flag of the folder that rejected rows are written to.
    required: whether the columns must be named.
  """
  flags.DEFINE_list(
      "log", None, "The click log, a row for each item shown: Parquet, CSV, "
      "TSV, JSON lines (each also .gz), or TFRecords of ELWC; a file, a folder "
      "or a pattern, or several, separated by commas.", required=True)
  flags.DEFINE_string(
      "query", None, "Column of the request, one ranked list that was shown "
      "once. In ELWC '(record)'.", required=required)
  flags.DEFINE_string(
      "position", None, "Column of the position that the item was shown at. In "
      "ELWC '(place)'.", required=required)
  flags.DEFINE_string(
      "feedback", None, "Column, or an expression over columns, such as "
      "'click + 0.5*log1p(dwell_seconds)'.", required=required)
  flags.DEFINE_list(
      "features", None, "Columns to rank by, or patterns such as 'f_*'.",
      required=required)
  flags.DEFINE_string("context", None, "Column of what the bias may depend on, "
                      "such as the device.")
  flags.DEFINE_list(
      "item", [], "Column or columns that identify the item; where relevance "
      "depends on a query text, name that too.")
  flags.DEFINE_string("weight", None, "Column of row weights.")
  flags.DEFINE_string(
      "timestamp", None, "Column of the time; with it, the parts for "
      "validation and test are the last requests, otherwise random ones.")
  flags.DEFINE_string("randomized", None, "Column that is true where a request "
                      "was shown in random order.")
  flags.DEFINE_list(
      "positions", None, "Names of the positions in order, where they are no "
      "numbers, such as 'top,main-1,main-2,side'.")
  flags.DEFINE_integer(
      "num_positions", None, "Deeper positions share the last of so many; by "
      "default each has its own.", lower_bound=2)
  flags.DEFINE_float("valid", 0.1, "Share of the requests for validation.",
                     lower_bound=0, upper_bound=1)
  flags.DEFINE_float("test", 0.1, "Share of the requests for testing.",
                     lower_bound=0, upper_bound=1)
  define_reading_flags(folder)


def define_reading_flags(folder=None):
  """Defines the flags that say what to do with bad rows.

  Args:
    folder: as in `define_log_flags`; None if there is no such folder.
  """
  flags.DEFINE_float("max_rejected", 0.01, "Share of the rows that may be "
                     "rejected before the command stops.", lower_bound=0,
                     upper_bound=1)
  otherwise = f"it is {_REJECTED} in --{folder}" if folder else (
      "they are only counted")
  flags.DEFINE_string(
      "rejected", None, "CSV file to write rejected rows to, with source, row "
      f"number and reason; by default {otherwise}.")


def define_method_flag():
  """Defines --method, one that works on logs."""
  flags.DEFINE_enum(
      "method", "unbiased", log_training.METHODS, "How to train: "
      + "; ".join(f"{name}: {methods.find(name).summary}"
                  for name in log_training.METHODS) + ".")


def read(folder):
  """The `ClickLog` that the flags describe, with a summary on the screen.

  Args:
    folder: where rejected rows are written to, unless --rejected says it.
  """
  columns = LogColumns(
      FLAGS.query, FLAGS.position, FLAGS.feedback, tuple(FLAGS.features),
      FLAGS.context, tuple(FLAGS.item), FLAGS.weight, FLAGS.timestamp,
      FLAGS.randomized)
  rejected = _rejected_file(folder)
  return _shown(click_log.read_click_log(
      FLAGS.log, columns, positions=FLAGS.positions,
      num_positions=FLAGS.num_positions, valid=FLAGS.valid, test=FLAGS.test,
      max_rejected=FLAGS.max_rejected, rejected_file=rejected,
      progress=_Progress()), rejected)


def read_for(schema, valid, test, folder=None):
  """The `ClickLog` of --log, read as the log that a model was trained on.

  Args:
    schema: of that log.
    valid: share for validation.
    test: share for testing.
    folder: as in `read`, or None.
  """
  rejected = _rejected_file(folder)
  return _shown(click_log.read_click_log(
      FLAGS.log, schema=schema, valid=valid, test=test,
      max_rejected=FLAGS.max_rejected, rejected_file=rejected,
      progress=_Progress()), rejected)


def _rejected_file(folder):
  if FLAGS.rejected is not None or folder is None:
    return FLAGS.rejected
  path = os.path.join(folder, _REJECTED)
  if os.path.exists(path):
    os.remove(path)  # It would be taken for that of this run.
  return path


def _shown(log, rejected_file):
  count = sum(log.summary["rejected"].values())
  print(f"{log.summary_text()}\n")
  if count and rejected_file:
    print(f"{rejected_file} lists the {count} rejected rows.\n")
  sys.stdout.flush()
  return log


class _Progress:
  """Says now and then how far the reading is."""

  def __init__(self):
    self._last = time.monotonic()

  def __call__(self, num_rows):
    now = time.monotonic()
    if now - self._last >= 5:
      self._last = now
      print(f"Read {num_rows} rows ...", flush=True)
