"""`ultra-tfr train`: methods on labelled lists of your own, simulated users."""

import contextlib
import functools
import os
import time

from absl import flags

from ultra_tfr import choices
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module
from ultra_tfr.version import __version__

np = lazy_module("numpy")
letor = lazy_module("ultra_tfr.data.letor")
lists_lib = lazy_module("ultra_tfr.data.lists")
run = lazy_module("ultra_tfr.experiments.run")
runs = lazy_module("ultra_tfr.experiments.runs")
tables = lazy_module("ultra_tfr.experiments.tables")
task_lib = lazy_module("ultra_tfr.experiments.task")
methods = lazy_module("ultra_tfr.methods")

FLAGS = flags.FLAGS
# The flags that one training depends on. Its folder holds them, so that no call
# with other flags goes on there.
SETTINGS = (
    "train", "valid", "test", "valid_queries", "feedback", "click_model",
    "num_positions", "logger", "initial_fraction", "num_features", "seed",
    "method", *common.TRAINING_FLAGS, *common.LETOR_FLAGS)
# The flags that it does not depend on.
NO_SETTINGS = ("json", "plot", "progress", "model_dir", "overwrite", "runs")


def define_flags():
  """Defines the flags of this command."""
  common.define_flags(["512", "256", "128"], steps=2000, learning_rate=1e-3,
                      method=["unbiased"])
  flags.DEFINE_string(
      "train", None, "LETOR/svmlight file to train on (.gz and .bz2 too). "
      "A qid is a number: 007 and 7 are one query.", required=True)
  flags.DEFINE_string(
      "valid", None, "File to choose the checkpoint by; without it "
      "--valid_queries of the training file.")
  flags.DEFINE_string("test", None, "File to evaluate on.", required=True)
  flags.DEFINE_float(
      "valid_queries", 0.2, "Without --valid: queries to hold out, a share "
      "below 1 or a number.", lower_bound=0)
  flags.DEFINE_enum(
      "feedback", "click", choices.FEEDBACK,
      "What users give: clicks, or clicks plus dwell time.")
  flags.DEFINE_enum(
      "click_model", "pbm", sorted(choices.CLICK_MODELS),
      "The simulated users.")
  flags.DEFINE_integer(
      "num_positions", 10, "Documents displayed.", lower_bound=2)
  flags.DEFINE_enum(
      "logger", "weak", choices.LOGGERS, "What ordered the lists that users "
      "saw: a feature that does not matter, chance, a ranker fitted on few "
      "labels, or one fitted on all.")
  flags.DEFINE_float(
      "initial_fraction", 0.01, "Share of the training queries whose labels "
      "the weak logger sees.", lower_bound=0, upper_bound=1)
  flags.DEFINE_integer(
      "runs", 1, "Runs of each method, with the seeds --seed, --seed + 1, ..",
      lower_bound=1)
  flags.DEFINE_integer(
      "num_features", None, "Features of a document; by default the largest "
      "index in the files.", lower_bound=1)
  common.define_letor_flags()
  flags.DEFINE_string(
      "model_dir", None, "Folder for checkpoints, TensorBoard logs and the "
      "exported ranking model. If the command is interrupted, the same call "
      "goes on where it was.")
  flags.DEFINE_boolean(
      "overwrite", False,
      "Start anew in a --model_dir that already holds a training.")


def main():
  """Runs the command."""
  common.check_flags((FLAGS.train, FLAGS.valid, FLAGS.test))
  for path in (FLAGS.train, FLAGS.valid, FLAGS.test):
    common.check_letor_file(path)
  if FLAGS.logger != "weak" and FLAGS["initial_fraction"].present:
    raise ValueError(
        "--initial_fraction is for --logger weak, which sees few labels, but "
        f"--logger is {FLAGS.logger}; leave one of them out.")
  seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.runs)
  paths = {(name, seed): _model_dir(name, seed)
           for name in FLAGS.method for seed in seeds}
  with contextlib.ExitStack() as opened:
    folders = {key: path and opened.enter_context(runs.open_folder(path))
               for key, path in paths.items()}
    _train(seeds, folders)


def _train(seeds, folders):
  settings, start = common.settings(), time.monotonic()
  train, valid, test = _read()
  click_model = task_lib.make_click_model(
      (train, valid, test), (FLAGS.train, FLAGS.valid, FLAGS.test),
      FLAGS.click_model)
  for name in FLAGS.method:
    # Built only to fail early: a method may need what this click model lacks.
    methods.find(name).build(
        FLAGS.num_positions, FLAGS.feedback,
        task_lib.true_curve(click_model, FLAGS.num_positions))
  if FLAGS.overwrite:
    for folder in filter(None, folders.values()):
      folder.clear()
  results = tables.Results(os.path.basename(FLAGS.train))
  true_examination = task_lib.true_curve(click_model, FLAGS.num_positions)
  for seed in seeds:
    task = None
    for name in FLAGS.method:
      folder = folders[name, seed]
      outcome = _finished(folder)
      if outcome is not None:
        print(f"{name}, seed {seed}, is finished: its result is in "
              f"{os.fspath(folder)}.", flush=True)
      else:
        task = task or _make_task(train, valid, test, click_model, seed)
        print(f"Training {name}, seed {seed} ...", flush=True)
        if folder is not None:
          runs.write_settings(folder, _settings(name, seed))
          common.write_flags(folder, "train")
        outcome = run.run(
            name, task, settings, feedback=FLAGS.feedback, seed=seed,
            model_dir=folder, verbose=common.verbosity())
      results.add(FLAGS.feedback, name, outcome, true_examination)
  common.give_results(results, time.monotonic() - start)


def _read():
  """Training, validation and test lists; validation None without --valid."""
  parts = [
      path and letor.read_letor(path, num_features=FLAGS.num_features,
                                **common.letor_options())
      for path in (FLAGS.train, FLAGS.valid, FLAGS.test)]
  # A file may lack the last features: in svmlight, 0 is left out.
  width = max(part.num_features for part in parts if part)
  return [part and part.widen(width) for part in parts]


def _make_task(train, valid, test, click_model, seed):
  """The `Task` of a seed."""
  parts = (train, valid) if valid else _hold_out(train, seed)
  return task_lib.make_task(
      *parts, test, click_model, feedback=FLAGS.feedback,
      num_positions=FLAGS.num_positions, logger=FLAGS.logger,
      initial_fraction=FLAGS.initial_fraction, seed=seed)


def _hold_out(train, seed):
  """Training and validation queries from the training file."""
  share = FLAGS.valid_queries
  count = round(share if share >= 1 else share * len(train))
  if not 0 < count < len(train):
    raise ValueError(
        f"--valid_queries {share:g} of the {len(train)} queries of "
        f"{FLAGS.train} leaves nothing to validate or to train on; give a "
        "share below 1, a smaller number, or --valid.")
  valid, rest = lists_lib.split(train, count, seed)
  return rest, valid


def _model_dir(name, seed):
  """The folder of one run, and an error if it holds another training."""
  if FLAGS.model_dir is None:
    return None
  folder = FLAGS.model_dir
  if len(FLAGS.method) > 1:
    folder = os.path.join(folder, name)
  if FLAGS.runs > 1:
    folder = os.path.join(folder, f"seed-{seed}")
  if not FLAGS.overwrite:
    runs.check(folder, _settings(name, seed))
  return folder


def _settings(name, seed):
  """What one training depends on, by flag."""
  settings = {flag: FLAGS[flag].value for flag in SETTINGS}
  for part in ("train", "valid", "test"):
    path = settings[part]
    if path and os.path.isfile(path):
      settings[part] = (f"{path} ({os.path.getsize(path)} bytes, "
                        f"sha256 {_digest(path)})")
  return {**settings, "method": name, "seed": seed, "version": __version__}


@functools.cache
def _digest(path):
  return runs.digest(path)


def _finished(folder):
  """The `Outcome` of a training that came to its end, or None."""
  found = None if folder is None else runs.result(folder)
  if found is None:
    return None
  curve = found["examination"]
  # Tables need no model; it is in the folder.
  return run.Outcome(
      found["metrics"], None if curve is None else np.array(curve),
      found["seconds"], model=None)
