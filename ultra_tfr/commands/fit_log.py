"""`ultra-tfr fit-log`: from a click log to a ranker and a bias report."""

import os
import time

from absl import flags

from ultra_tfr import output
from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

evaluation = lazy_module("ultra_tfr.fit_log.evaluation")
training = lazy_module("ultra_tfr.fit_log.training")

FLAGS = flags.FLAGS


def define_flags():
  """Defines the flags of this command."""
  click_logs.define_log_flags("model_dir")
  click_logs.define_method_flag()
  common.define_run_flags()
  common.define_training_flags(["128", "64"], steps=None, learning_rate=2e-3)
  flags.DEFINE_string(
      "model_dir", None, "Folder for the ranking model, the bias, TensorBoard "
      "logs and the report.", required=True)
  flags.DEFINE_boolean(
      "overwrite", False,
      "Write into a --model_dir that already holds a model.")


def main():
  """Runs the command."""
  click_logs.check_training()
  click_logs.check_files([FLAGS.model_dir])
  with output.Folder(
      FLAGS.model_dir, training.COMMAND, "--model_dir", training.SCHEMA_FILE,
      FLAGS.overwrite) as folder:
    _fit(folder)


def _fit(folder):
  start = time.monotonic()
  with click_logs.read(folder) as log:
    folder.remove("logs")
    name, fitted = click_logs.train(log, folder.claim("logs/"))
    # One of another model would look like that of this one.
    folder.remove("report")
    fitted.save(folder)
    results = {"method": name, "validation": fitted.validation,
               "summary": log.summary,
               "bias": fitted.bias and fitted.bias.to_config(),
               "history": fitted.history}
    if len(log.parts["test"]):
      evaluator = evaluation.LogEvaluator(
          fitted.bias, log.feedback_kind == "binary", seed=FLAGS.seed)
      evaluator.add(evaluation.LOGGED, log.parts["test"])
      evaluator.add(name, log.parts["test"], fitted.model)
      results["evaluation"] = evaluator.results()
      if fitted.bias is None:
        print(f"{name} estimates no bias: {evaluation.UNCORRECTED} "
              "`ultra-tfr evaluate-log` with a --model_dir of unbiased in "
              "front corrects both.\n")
      print("On the test part:\n")
      print(evaluation.to_text(results["evaluation"]), "\n", flush=True)
    if fitted.bias is not None:
      results["diagnosis"] = click_logs.write_report(
          log, fitted, folder, "report")
  print(f"The ranking model is in {os.path.join(FLAGS.model_dir, 'model')}.")
  click_logs.write_json(results, start)
