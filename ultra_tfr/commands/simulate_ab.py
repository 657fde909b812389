"""`ultra-tfr simulate-ab`: an A/B test of two rankers on simulated users."""

import os
import time

from absl import flags

from ultra_tfr import choices
from ultra_tfr import output
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

tf = lazy_module("tensorflow")
letor = lazy_module("ultra_tfr.data.letor")
ranking = lazy_module("ultra_tfr.evaluation.ranking")
run = lazy_module("ultra_tfr.experiments.run")
ab_lib = lazy_module("ultra_tfr.experiments.simulate_ab")
task_lib = lazy_module("ultra_tfr.experiments.task")
methods = lazy_module("ultra_tfr.methods")
click_models = lazy_module("ultra_tfr.simulation.click_models")

FLAGS = flags.FLAGS

_TRAINING = ("method", *common.TRAINING_FLAGS, "train_queries", "valid_queries",
             "test_queries")
_SERVING = ("model_a", "model_b", "test")


def define_flags():
  """Defines the flags of this command."""
  common.define_flags(["128", "64"], steps=1400, learning_rate=2e-3,
                      method=["naive-pairwise", "unbiased"],
                      plot="the uplift by day")
  common.define_synthetic_flags()
  flags.DEFINE_string(
      "model_a", None, "Folder of an exported ranker, the `model` that `train` "
      "writes into its --model_dir, to serve as A. With --model_b and --test "
      "nothing is trained.")
  flags.DEFINE_string("model_b", None, "The same for B.")
  flags.DEFINE_string(
      "test", None, "LETOR/svmlight file (.gz and .bz2 too) of the queries "
      "that --model_a and --model_b serve.")
  common.define_letor_flags()
  flags.DEFINE_enum(
      "click_model", "pbm", sorted(choices.CLICK_MODELS),
      "The simulated users.")
  flags.DEFINE_integer(
      "num_positions", 10, "Documents displayed.", lower_bound=2)
  flags.DEFINE_integer("days", 7, "Days that the test runs.", lower_bound=1)
  flags.DEFINE_integer("visits_per_day", 10000, "Visits a day, in both arms "
                       "together.", lower_bound=1)


def main():
  """Runs the command."""
  serving = _check_flags()
  start = time.monotonic()
  names, lists, scores, click_model = _serve() if serving else _train()
  quality = [ranking.ndcg(lists, values, (10,))["ndcg@10"] for values in scores]
  print(f"Sending {FLAGS.visits_per_day} visits a day to A and B, for "
        f"{FLAGS.days} days ...", flush=True)
  test = ab_lib.run_ab_test(
      lists, *scores, click_model, days=FLAGS.days,
      visits_per_day=FLAGS.visits_per_day, num_positions=FLAGS.num_positions,
      seed=FLAGS.seed, names=names)
  print(f"\nNDCG@10 on true labels: A {quality[0]:.4f}, B {quality[1]:.4f}\n\n"
        f"{test.to_text()}")
  if FLAGS.json:
    output.write(FLAGS.json, {
        **test.to_json(), "ndcg@10": dict(zip("AB", quality)),
        "click_model": FLAGS.click_model, "seed": FLAGS.seed,
        "seconds": round(time.monotonic() - start, 1)})
  if FLAGS.plot:
    test.plot(FLAGS.plot)


def _check_flags():
  """Fails early, before a long run; says whether exported rankers are served.
  """
  common.check_training_and_files((FLAGS.model_a, FLAGS.model_b, FLAGS.test))
  common.check_letor_file(FLAGS.test)
  for flag in ("model_a", "model_b"):
    if FLAGS[flag].value and not os.path.isdir(FLAGS[flag].value):
      raise _no_ranker(flag)
  given = [flag for flag in _SERVING if FLAGS[flag].value]
  if given:
    missing = [flag for flag in _SERVING if flag not in given]
    if missing:
      raise ValueError(
          f"--{given[0]} needs --{' and --'.join(missing)}, too: two exported "
          "rankers and the queries that they serve.")
    unused = [flag for flag in _TRAINING if FLAGS[flag].present]
    if unused:
      raise ValueError(
          f"--{unused[0]} is for training, but --model_a and --model_b are "
          "served as they are; leave it out, or leave them out.")
    return True
  common.check_no_letor_flags("without --test there are none")
  if len(FLAGS.method) != 2:
    raise ValueError(
        "--method must name two methods, A and B, such as "
        f"naive-pairwise,unbiased, but is {','.join(FLAGS.method)!r}.")
  return False


def _train():
  """Names, test lists, scores and click model of two methods."""
  click_model = click_models.CLICK_MODELS[FLAGS.click_model]()
  for name in FLAGS.method:
    # Built only to fail early: a method may need what this click model lacks.
    methods.find(name).build(
        FLAGS.num_positions, "click",
        task_lib.true_curve(click_model, FLAGS.num_positions))
  settings = common.settings()
  task = task_lib.make_task(
      *common.make_synthetic(), click_model, seed=FLAGS.seed,
      num_positions=FLAGS.num_positions)
  scores = {}
  for name in FLAGS.method:
    if name not in scores:
      print(f"Training {name} ...", flush=True)
      outcome = run.run(name, task, settings, seed=FLAGS.seed,
                        verbose=common.verbosity())
      scores[name] = ranking.score_lists(outcome.model, task.test)
  return (FLAGS.method, task.test, [scores[name] for name in FLAGS.method],
          click_model)


def _serve():
  """Names, test lists, scores and click model of two exported rankers."""
  folders = (FLAGS.model_a, FLAGS.model_b)
  rankers = {}
  for flag, folder in zip(("model_a", "model_b"), folders):
    if folder not in rankers:
      print(f"Loading {folder} ...", flush=True)
      rankers[folder] = _load(flag, folder)
  lists = letor.read_letor(FLAGS.test, **common.letor_options())
  click_model = task_lib.make_click_model(
      (lists,), (FLAGS.test,), FLAGS.click_model)
  scores = {}
  for folder, (ranker, width) in rankers.items():
    width = width or lists.num_features  # Not all signatures state it.
    if width < lists.num_features:
      raise ValueError(
          f"{folder} ranks by {width} features, but {FLAGS.test} has "
          f"{lists.num_features}; give the file that belongs to the model.")
    # A file may lack the last features: in svmlight, 0 is left out.
    scores[folder] = ranking.score_lists(ranker, lists.widen(width))
  return folders, lists, [scores[folder] for folder in folders], click_model


def _no_ranker(flag):
  """A `ValueError` for a folder that holds none."""
  return ValueError(
      f"--{flag} {FLAGS[flag].value} holds no exported ranker; give the folder "
      "`model` inside the --model_dir of `ultra-tfr train`.")


def _load(flag, folder):
  """A ranker for `score_lists`, and its number of features or None."""
  if not tf.saved_model.contains_saved_model(folder):
    raise _no_ranker(flag)
  try:
    signature = tf.saved_model.load(folder).signatures.get("serving_default")
  # What a damaged file raises is not known beforehand.
  except Exception as error:
    reason = str(error).partition("\n")[0]
    raise ValueError(f"--{flag} {folder}: is damaged ({reason}); export it "
                     "again.") from error
  inputs = signature.structured_input_signature[1] if signature else {}
  outputs = signature.structured_outputs if signature else {}
  if list(inputs) != ["features"] or "scores" not in outputs:
    raise ValueError(
        f"--{flag} {folder} must have a signature `serving_default` from "
        f"`features` to `scores`, but has it from {sorted(inputs)} to "
        f"{sorted(outputs)}; export it by `scorers.export_ranker`.")

  def ranker(features, training):
    del training  # An exported model only serves.
    return signature(features=tf.constant(features))["scores"]

  return ranker, inputs["features"].shape[-1]
