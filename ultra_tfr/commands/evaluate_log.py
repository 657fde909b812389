"""`ultra-tfr evaluate-log`: rankers on held-out feedback, without labels."""

import os
import time

from absl import flags

from ultra_tfr import checks
from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

evaluation = lazy_module("ultra_tfr.fit_log.evaluation")
training = lazy_module("ultra_tfr.fit_log.training")

FLAGS = flags.FLAGS
# Roles of columns that do not matter here; features are compared by the names
# that they match.
_MAY_DIFFER = ("features", "item", "randomized")


def define_flags():
  """Defines the flags of this command."""
  flags.DEFINE_list("log", None, "The click log, with the columns of the one "
                    "that the models were trained on.", required=True)
  flags.DEFINE_list(
      "model_dir", None, "Folders of `ultra-tfr fit-log`, separated by commas. "
      "The bias of the first that has one corrects the feedback for all.",
      required=True)
  flags.DEFINE_enum(
      "part", "all", ["all", "test"], "Which requests to evaluate on: all, if "
      "--log was not trained on, or the test part of the log that was.")
  flags.DEFINE_float(
      "max_weight", None, "Cap of the inverse propensities, relative to the "
      "first position; none by default.")
  flags.register_validator(
      "max_weight", lambda value: value is None or value > 0,
      "must be greater than 0")
  flags.DEFINE_integer("replicates", 200, "Replicates of the bootstrap over "
                       "requests.", lower_bound=2)
  click_logs.define_reading_flags()
  common.define_run_flags()


def main():
  """Runs the command."""
  for folder in FLAGS.model_dir:
    checks.check_fitted(folder)
  click_logs.check_files(FLAGS.model_dir)
  start = time.monotonic()
  fitted = {os.path.normpath(folder): training.load(folder)
            for folder in FLAGS.model_dir}
  biases = [model.bias for model in fitted.values() if model.bias is not None]
  _check_alike(fitted)
  first = next(iter(fitted.values()))
  split = first.schema["split"] if FLAGS.part == "test" else (0.0, 1.0)
  if not split[1]:
    raise ValueError(
        "--part=test is empty, since the model was trained without a test part "
        "(--test 0); give a log that was not trained on, with --part=all.")
  if not biases:
    print(f"No model has a bias: {evaluation.UNCORRECTED}", flush=True)
  with click_logs.read_for(first.schema, *split) as log:
    evaluator = evaluation.LogEvaluator(
        biases[0] if biases else None, log.feedback_kind == "binary",
        max_weight=FLAGS.max_weight, replicates=FLAGS.replicates,
        seed=FLAGS.seed)
    evaluator.add(evaluation.LOGGED, log.parts["test"])
    for name, model in fitted.items():
      evaluator.add(name, log.parts["test"], model.model, model.bias)
  results = evaluator.results()
  print("The test part of the log:\n" if FLAGS.part == "test" else
        "The whole log; if a model was trained on it, --part=test is fair:\n")
  print(evaluation.to_text(results))
  click_logs.write_json({"rankers": results}, start)


def _check_alike(fitted):
  """Raises unless all models were trained on logs of one kind."""
  (first_name, first), *others = (
      (name, _kind(model.schema)) for name, model in fitted.items())
  for name, kind in others:
    different = [what for what in first if kind[what] != first[what]]
    if different:
      raise ValueError(
          f"--model_dir: {name} was trained with other {different[0]} than "
          f"{first_name}; evaluate them one by one.")


def _kind(schema):
  """What must be the same in models that are compared, by its name."""
  kind = {"columns": {role: column for role, column in
                      schema["columns"].items() if role not in _MAY_DIFFER},
          "positions": (schema["positions"], schema["pool_deeper"]),
          "contexts": schema["contexts"],
          # Only names: the statistics of features may differ.
          "features": [[feature["name"] for feature in features]
                       for features in schema["statistics"].values()]}
  if FLAGS.part == "test":
    # Otherwise one was trained on what another is tested on.
    kind["shares of --valid and --test"] = schema["split"]
  return kind
