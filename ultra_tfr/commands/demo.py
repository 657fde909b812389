"""`ultra-tfr demo`: naive, unbiased and oracle rankers on made-up data."""

import time

from absl import flags

from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

run = lazy_module("ultra_tfr.experiments.run")
tables = lazy_module("ultra_tfr.experiments.tables")
task_lib = lazy_module("ultra_tfr.experiments.task")
click_models = lazy_module("ultra_tfr.simulation.click_models")

FLAGS = flags.FLAGS


def define_flags():
  """Defines the flags of this command."""
  common.define_flags(["128", "64"], steps=1400, learning_rate=2e-3,
                      method=["oracle-pairwise", "naive-pairwise", "unbiased"])
  common.define_synthetic_flags()
  flags.DEFINE_float("eta", 1.0, "Severity of position bias, 0 for none.",
                     lower_bound=0)


def main():
  """Runs the command."""
  common.check_flags()
  settings, start = common.settings(), time.monotonic()
  task = task_lib.make_task(
      *common.make_synthetic(), click_models.PositionBasedModel(eta=FLAGS.eta),
      seed=FLAGS.seed)
  results = tables.Results("synthetic")
  for name in FLAGS.method:
    print(f"Training {name} ...", flush=True)
    outcome = run.run(name, task, settings, seed=FLAGS.seed,
                      verbose=common.verbosity())
    results.add("click", name, outcome, task.true_examination)
  common.give_results(results, time.monotonic() - start)
