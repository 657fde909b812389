"""`ultra-tfr fit-log`: from a click log to a ranker and a bias report."""

import os
import time
from typing import NamedTuple

from absl import flags

from ultra_tfr import output
from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common
from ultra_tfr.fit_log import diagnosis
from ultra_tfr.fit_log import evaluation
from ultra_tfr.fit_log import report
from ultra_tfr.fit_log import training

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
  check_training()
  check_folder("model_dir", FLAGS.model_dir, training.SCHEMA_FILE)
  check_files()
  start = time.monotonic()
  with click_logs.read(FLAGS.model_dir) as log:
    trained = train(log, os.path.join(FLAGS.model_dir, "logs"))
    name, fitted = trained.name, trained.fitted
    fitted.save(FLAGS.model_dir)
    results = {"method": name, "val_log_likelihood": trained.likelihoods,
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
      results["diagnosis"] = write_report(
          log, fitted, os.path.join(FLAGS.model_dir, "report"))
  print(f"The ranking model is in {os.path.join(FLAGS.model_dir, 'model')}.")
  write_json(results, start)


def check_training():
  """Raises a `ValueError` if the flags of the training do not fit."""
  click_logs.methods_to_train(FLAGS.valid > 0)
  # Where --steps is not given, their number is right whatever it will be.
  common.settings(FLAGS.validate_every)


def check_files():
  """Raises a `ValueError` if a file to write is not possible."""
  common.check_output("json", FLAGS.json)
  common.check_output("rejected", FLAGS.rejected)


def check_folder(flag, folder, marker):
  """Raises unless the folder can be written, and holds no result yet.

  Args:
    flag: its name.
    folder: its value.
    marker: a file that a result has.
  """
  if os.path.exists(folder) and not os.path.isdir(folder):
    raise ValueError(
        f"--{flag} {folder} must be a folder, but is a file; give another "
        "name.")
  if os.path.exists(os.path.join(folder, marker)) and not FLAGS.overwrite:
    raise ValueError(
        f"--{flag}: {folder} already holds a result; give another folder, or "
        "--overwrite.")
  # Made now, so that a folder that cannot be written is noticed now.
  os.makedirs(folder, exist_ok=True)


class Trained(NamedTuple):
  """What came out of the methods of --method.

  Attributes:
    name: of the method that is kept.
    fitted: its `fit_log.training.FittedLog`.
    likelihoods: the mean log-likelihood of validation clicks by the name of the
      method, None where there is none.
  """

  name: str
  fitted: training.FittedLog
  likelihoods: dict


def train(log, logs_folder=None):
  """Trains on a log as the flags say.

  Args:
    log: a `ClickLog`.
    logs_folder: for TensorBoard, or None.

  Returns:
    `Trained`.

  Raises:
    ValueError: if there is nothing to learn from.
  """
  training.check_can_teach(log)
  steps = training.default_steps(
      len(log.parts["train"]), FLAGS.batch_size, FLAGS.validate_every)
  settings, found = common.settings(steps), {}
  names = click_logs.methods_to_train(len(log.parts["valid"]) > 0)
  if len(names) < len(FLAGS.method):
    print(f"Without validation {names[0]} is trained alone, and whether users "
          "trust what stands high is not found out.", flush=True)
  for name in names:
    print(f"Training {name} for {settings.steps} batches of "
          f"{settings.batch_size} requests ...", flush=True)
    found[name] = training.fit(
        log, name, settings, seed=FLAGS.seed,
        logs_folder=logs_folder and os.path.join(logs_folder, name),
        verbose=common.verbosity())
  best = training.likeliest(found)
  likelihoods = {name: fitted.validation.get("log_likelihood")
                 for name, fitted in found.items()}
  if len(found) > 1 and None not in likelihoods.values():
    print(f"\nKept {best}, by the mean log-likelihood of validation clicks: "
          + ", ".join(f"{name} {value:.5f}"
                      for name, value in likelihoods.items()) + ".\n",
          flush=True)
  return Trained(best, found[best], likelihoods)


def write_report(log, fitted, folder):
  """Diagnoses a log, writes the report and prints what it says.

  Args:
    log: a `ClickLog`.
    fitted: a `fit_log.training.FittedLog` with a bias.
    folder: for the report.

  Returns:
    The diagnosis, ready for JSON.
  """
  print("Diagnosing the log ...", flush=True)
  found = diagnosis.diagnose(log, fitted, seed=FLAGS.seed)
  path = report.write(folder, found, log.summary)
  print(f"\n{report.to_text(found)}\n\nThe report is {path}.", flush=True)
  return found.to_json()


def write_json(results, start):
  """Writes results to --json, if it is given.

  Args:
    results: ready for JSON.
    start: `time.monotonic()` at the beginning.
  """
  if not FLAGS.json:
    return
  output.write(FLAGS.json, {
      **results, "seconds": round(time.monotonic() - start, 1),
      "versions": output.versions()})
