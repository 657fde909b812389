"""`ultra-tfr score`: scores and ranks of new items, without feedback."""

import time

from absl import flags

from ultra_tfr import checks
from ultra_tfr import output
from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

new_rows = lazy_module("ultra_tfr.fit_log.new_rows")
training = lazy_module("ultra_tfr.fit_log.training")

FLAGS = flags.FLAGS


def define_flags():
  """Defines the flags of this command."""
  flags.DEFINE_list(
      "log", None, "The items to rank, a row for each: files as in `fit-log`, "
      "with the columns of the request and of the features.", required=True)
  flags.DEFINE_string(
      "model_dir", None, "Folder of `ultra-tfr fit-log`.", required=True)
  flags.DEFINE_string(
      "out", None, "File to write, .parquet or .csv: the rows in their order, "
      "with their `score` and their `rank` in the request.", required=True)
  flags.DEFINE_list(
      "keep", None, "Columns to write, too; by default those of the request "
      "and of the item.")
  click_logs.define_rejection_flags()
  click_logs.define_dialect_flags()
  common.define_run_flags()


def main():
  """Runs the command."""
  checks.check_fitted(FLAGS.model_dir)
  click_logs.check_files([FLAGS.model_dir], ("out", "json", "rejected"))
  new_rows.check_ending("--out", FLAGS.out)
  start = time.monotonic()
  fitted = training.load(FLAGS.model_dir)
  with click_logs.progress() as shown:
    found = new_rows.score_log(
        fitted, FLAGS.log, FLAGS.out, FLAGS.keep,
        max_rejected=FLAGS.max_rejected, rejected_file=FLAGS.rejected,
        progress=shown, **click_logs.dialect())
  for reason, count in found["rejected"].items():
    print(f"rejected: {count} rows, {output.printable(reason)}")
  print(f"{FLAGS.out} has {found['rows']} rows of {found['requests']} "
        "requests, with score and rank.")
  click_logs.write_json(found, start)
