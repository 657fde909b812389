"""`ultra-tfr diagnose`: what a click log tells about position bias.

With --features it trains a model; with --model_dir it takes a trained one; with
neither it reports what the log tells alone.
"""

import time

from absl import flags

from ultra_tfr import checks
from ultra_tfr import output
from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

report = lazy_module("ultra_tfr.fit_log.report")
training = lazy_module("ultra_tfr.fit_log.training")
methods = lazy_module("ultra_tfr.methods")

FLAGS = flags.FLAGS
_COLUMNS = ("query", "position", "feedback")
_TRAINING = ("method", *common.TRAINING_FLAGS)
# Flags that a --model_dir settles.
_SETTLED = (*_COLUMNS, "features", "context", "weight", "timestamp",
            "positions", "num_positions", "text", "numbers", "valid", "test",
            *_TRAINING)
# Flags of columns that may differ from those in the log of a --model_dir.
_OF_THIS_LOG = ("item", "randomized")


def define_flags():
  """Defines the flags of this command."""
  click_logs.define_log_flags("report_dir", required=False)
  click_logs.define_method_flag()
  common.define_run_flags()
  common.define_training_flags(["128", "64"], steps=None, learning_rate=2e-3)
  flags.DEFINE_string(
      "model_dir", None, "Folder of `ultra-tfr fit-log`: take the columns and "
      "the model from there, and estimate its bias anew from this log. Without "
      "it and without --features, only what needs no model is told.")
  flags.DEFINE_string("report_dir", "bias-report", "Folder for the report.")
  flags.DEFINE_boolean(
      "overwrite", False,
      "Write into a --report_dir that already holds a report.")


def main():
  """Runs the command."""
  _check_flags()
  click_logs.check_files([FLAGS.model_dir] if FLAGS.model_dir else [])
  _check_method()
  fitted = training.load(FLAGS.model_dir) if FLAGS.model_dir else None
  if fitted is not None and fitted.is_justified and fitted.bias is None:
    raise ValueError(
        f"--model_dir {FLAGS.model_dir}: the model was trained by a method "
        "that estimates no bias; give one that was trained by unbiased, or no "
        "--model_dir.")
  start = time.monotonic()
  with output.Folder(
      FLAGS.report_dir, "ultra-tfr diagnose", "--report_dir", report.PAGE,
      FLAGS.overwrite) as folder:
    if fitted is not None:
      with click_logs.read_for(
          _schema(fitted.schema), 0.0, 0.0, folder) as log:
        found = click_logs.write_report(log, fitted, folder)
    else:
      with click_logs.read(folder) as log:
        if FLAGS.features:
          fitted = click_logs.train(log)[1]
        found = click_logs.write_report(log, fitted, folder)
  click_logs.write_json({"diagnosis": found}, start)


def _schema(schema):
  """The schema of the model's log, with the columns that flags replace."""
  given = {name: FLAGS[name].value or None for name in _OF_THIS_LOG
           if FLAGS[name].present}
  if "item" in given:
    given["item"] = FLAGS.item
  return {**schema, "columns": {**schema["columns"], **given}}


def _check_flags():
  """Fails early, not after a long run."""
  if FLAGS.model_dir:
    checks.check_fitted(FLAGS.model_dir)
    given = [name for name in _SETTLED if FLAGS[name].present]
    if given:
      raise ValueError(
          f"--{given[0]} is given beside --model_dir, whose log and training "
          "are settled; leave one of them out.")
    return
  missing = [name for name in _COLUMNS if FLAGS[name].value is None]
  if missing:
    raise ValueError(
        f"--{missing[0]} is missing; give --query, --position and --feedback, "
        "and --features to train a model, or the --model_dir of `ultra-tfr "
        "fit-log`.")
  if not FLAGS.features:
    given = [name for name in _TRAINING if FLAGS[name].present]
    if given:
      raise ValueError(
          f"--{given[0]} is given, but there are no --features, so nothing is "
          "trained; give them, or leave it out.")
    return
  click_logs.check_training()


def _check_method():
  name = FLAGS.method
  if not FLAGS.model_dir and FLAGS.features and not (
      methods.find(name).estimates_examination):
    raise ValueError(
        f"--method {name} estimates no bias to report; take unbiased.")
