"""`ultra-tfr fit-log`: from a click log to a ranker and a bias report."""

import os
import time

from absl import flags

from ultra_tfr import choices
from ultra_tfr import output
from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

click_prediction = lazy_module("ultra_tfr.fit_log.click_prediction")
evaluation = lazy_module("ultra_tfr.fit_log.evaluation")
known_curves = lazy_module("ultra_tfr.fit_log.known_curves")
manifest = lazy_module("ultra_tfr.data.prepared.manifest")
training = lazy_module("ultra_tfr.fit_log.training")

FLAGS = flags.FLAGS


def define_flags():
  """Defines the flags of this command."""
  click_logs.define_prepared_flags("model_dir")
  click_logs.define_method_flag()
  common.define_run_flags()
  common.define_training_flags(["128", "64"], steps=None, learning_rate=2e-3)
  click_logs.define_distribution_flag()
  flags.DEFINE_string(
      "examination", None, "Examination to take instead of estimating it: "
      "'randomized' or 'harvested', what the log tells without a model; "
      "numbers by position, such as 1,.8,.5; or a JSON file with a list of "
      "them, or with one for each context. The method is "
      f"{choices.TAKES_EXAMINATION} then.")
  flags.DEFINE_string(
      "model_dir", None, "Folder for the ranking model, the bias, TensorBoard "
      "logs and the report.", required=True)
  flags.DEFINE_boolean(
      "overwrite", False,
      "Write into a --model_dir that already holds a model.")


def main():
  """Runs the command."""
  if FLAGS.examination and not FLAGS["method"].present:
    FLAGS.method = choices.TAKES_EXAMINATION
  if FLAGS.examination and FLAGS.method != choices.TAKES_EXAMINATION:
    raise ValueError(
        f"--method {FLAGS.method} takes no --examination; take "
        f"{choices.TAKES_EXAMINATION}, or leave one of them out.")
  click_logs.check_log_or_prepared()
  cluster = click_logs.find_cluster()
  click_logs.check_training()
  click_logs.check_files([FLAGS.model_dir])
  if not cluster.is_chief:
    _train_along(cluster)
    return
  with output.Folder(
      FLAGS.model_dir, training.COMMAND, "--model_dir", training.SCHEMA_FILE,
      FLAGS.overwrite) as folder:
    _fit(folder, cluster)


def _train_along(cluster):
  """Trains as a worker that is not the chief, which writes and reports."""
  with manifest.read_prepared(FLAGS.prepared) as log:
    print(f"Worker {cluster.number + 1} of {cluster.num_workers}; the first "
          "one writes --model_dir.", flush=True)
    _train(log, cluster)
  print("The training has ended.")


def _train(log, cluster, logs_folder=None):
  """Trains as the flags say.

  Returns:
    A tuple of the name and the `FittedLog` that is saved and judged, and the
    `FittedLog` that the report is about.
  """
  strategy = click_logs.make_strategy(log, cluster)
  known = known_curves.find(
      FLAGS.examination, log) if FLAGS.examination else None
  name, fitted = click_logs.train(log, logs_folder, known, strategy)
  if fitted.is_justified:
    return name, fitted, fitted
  return (*click_logs.train_without_debiasing(
      log, fitted, logs_folder, strategy), fitted)


def _fit(folder, cluster):
  start = time.monotonic()
  with click_logs.read_prepared() if FLAGS.prepared else (
      click_logs.read(folder)) as log:
    folder.remove("logs")
    served_name, served, fitted = _train(log, cluster, folder.claim("logs/"))
    # An older report would look like that of this model.
    folder.remove("report")
    served.save(folder)
    common.write_flags(folder, "fit-log")
    results = {"method": served_name, "validation": served.validation,
               "click_prediction": served.click_prediction,
               "summary": log.summary,
               "bias": served.bias and served.bias.to_config(),
               "history": served.history}
    if len(log.parts["test"]):
      evaluator = evaluation.LogEvaluator(
          served.bias, log.feedback_kind == "binary", seed=FLAGS.seed)
      evaluator.add(evaluation.LOGGED, log.parts["test"])
      evaluator.add(served_name, log.parts["test"], served.model)
      results["evaluation"] = evaluator.results()
      if not fitted.is_justified:
        print(f"{click_prediction.UNJUSTIFIED}: {evaluation.UNCORRECTED}\n")
      elif served.bias is None:
        print(f"{served_name} estimates no bias: {evaluation.UNCORRECTED} "
              "`ultra-tfr evaluate-log` with a --model_dir of unbiased in "
              "front corrects both.\n")
      print("On the test part:\n")
      print(evaluation.to_text(results["evaluation"]), "\n", flush=True)
    if fitted.bias is not None:
      results["diagnosis"] = click_logs.write_report(
          log, fitted, folder, "report", results.get("evaluation"))
  print(f"The ranking model is in {os.path.join(FLAGS.model_dir, 'model')}.")
  click_logs.write_json(results, start)
