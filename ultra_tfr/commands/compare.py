"""`ultra-tfr compare`: all methods on the same lists and users, with tests."""

import contextlib
import dataclasses
import functools
import os
import shlex
import sys
import time

from absl import flags

from ultra_tfr import choices
from ultra_tfr import output
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module
from ultra_tfr.version import __version__

np = lazy_module("numpy")
plots = lazy_module("ultra_tfr.evaluation.plots")
comparison = lazy_module("ultra_tfr.experiments.comparison")
peers = lazy_module("ultra_tfr.experiments.peers")
processes = lazy_module("ultra_tfr.experiments.processes")
robustness = lazy_module("ultra_tfr.experiments.robustness")
run_lib = lazy_module("ultra_tfr.experiments.run")
runs_lib = lazy_module("ultra_tfr.experiments.runs")
tables = lazy_module("ultra_tfr.experiments.tables")

FLAGS = flags.FLAGS
# The defaults of --runs and --steps with --suite.
_SUITE_RUNS, _SUITE_STEPS = 2, 1000


def define_flags():
  """Defines the flags of this command."""
  flags.DEFINE_string(
      "dataset", "synthetic", "'synthetic' (made up, no download), "
      "'letor:FOLDER' (there a qid is a number: 007 and 7 are one query), or "
      "'tfds:NAME' such as tfds:mslr_web/10k_fold1.")
  flags.DEFINE_enum(
      "suite", None, ["robustness"], "Instead of one world, 26: five kinds of "
      "users, three loggers, clicks and dwell, a linear ranker and rare clicks "
      "(by default --runs 2, --steps 1000, and the methods of its table).")
  flags.DEFINE_list("feedback", ["click"], "Kinds of feedback: "
                    f"{', '.join(choices.FEEDBACK)}.")
  flags.DEFINE_list(
      "methods", ["all"], "Methods, or 'all': "
      f"{', '.join(choices.METHODS)}; and those of other libraries, which "
      "pip install 'ultra_tfr[peers]' brings, and 'all' takes if they are "
      f"there: {', '.join(choices.PEERS)}.")
  flags.DEFINE_integer("runs", 5, "Runs of each method, with the seeds --seed, "
                       "--seed + 1, ..", lower_bound=1)
  flags.DEFINE_enum(
      "logger", "weak", choices.LOGGERS, "What ordered the lists that users "
      "saw: a feature that does not matter, chance, a ranker fitted on few "
      "labels, or one fitted on all.")
  flags.DEFINE_enum(
      "click_model", "pbm", sorted(choices.CLICK_MODELS),
      "The simulated users.")
  flags.DEFINE_enum("select", "labels", ["labels", "clicks"], "How checkpoints "
                    "are picked on the validation part: by true labels, or by "
                    "clicks alone. The other one has a column of its own.")
  flags.DEFINE_integer("train_queries", 2000, "Training queries of the "
                       "synthetic data.", lower_bound=1)
  flags.DEFINE_integer("data_seed", 0, "Seed of the synthetic data, and of the "
                       "queries held out where LETOR files have no validation "
                       "part.", lower_bound=0)
  flags.DEFINE_integer("jobs", 1, "Runs at a time.", lower_bound=1)
  flags.DEFINE_string(
      "runs_dir", "compare-runs", "Folder of finished runs; called again with "
      "the same settings, the command takes them from there.")
  flags.DEFINE_string("markdown", None, "File to write the tables to.")
  flags.DEFINE_string("plot", None, "Folder to draw the examination curves to.")
  common.define_letor_flags()
  common.define_run_flags()
  common.define_training_flags(["128", "64"], steps=2000, learning_rate=2e-3)


def main():
  """Runs the command."""
  _check_flags()
  if FLAGS.suite is not None:
    _run_suite()
    return
  names = _all_of([*choices.METHODS, *choices.PEERS]) if (
      FLAGS.methods == ["all"]) else FLAGS.methods
  world = comparison.World(
      FLAGS.dataset, FLAGS.logger, FLAGS.click_model, common.settings(),
      train_queries=FLAGS.train_queries, data_seed=FLAGS.data_seed,
      **common.letor_options())
  _check(world, names, FLAGS.feedback)
  with (contextlib.nullcontext() if FLAGS.plot is None else
        output.Folder(FLAGS.plot, "ultra-tfr compare", "--plot")) as plot_dir:
    _compare(world, names, plot_dir)


def _compare(world, names, plot_dir):
  start = time.monotonic()
  # Seed by seed, so that a table of fewer seeds is complete early.
  runs = [runs_lib.Run(kind, name, seed)
          for seed in range(FLAGS.seed, FLAGS.seed + FLAGS.runs)
          for kind in FLAGS.feedback for name in names
          if kind in comparison.find(name).feedback]
  store, failed = _complete(world, runs)
  _give_results(
      world, names, runs, store, failed, time.monotonic() - start, plot_dir)
  _raise_if_failed(failed, len(runs))


def _complete(world, runs):
  """Executes the runs that are not stored yet.

  Returns:
    A tuple of the `RunStore` and the error texts of the runs that failed.
  """
  # With the data and the code, or old runs would be taken for new ones.
  store = runs_lib.RunStore(FLAGS.runs_dir, {
      **world.to_config(), "version": __version__,
      "files": list(map(runs_lib.digest, comparison.files(world)))})
  missing = [run for run in runs if _stored(store, run) is None]
  print(f"{len(runs)} runs, of which {len(runs) - len(missing)} are in "
        f"{store.folder} already.", flush=True)

  def keep(run, result, error):
    if error is None:
      store.write(run, result)

  try:
    with store.opened() as opened:
      common.write_flags(opened, "compare")
      failed = processes.execute(
          missing, functools.partial(comparison.execute, world), FLAGS.jobs,
          keep)
  except (KeyboardInterrupt, SystemExit):
    done = sum(_stored(store, run) is not None for run in runs)
    print(f"\n{done} of {len(runs)} runs are in {store.folder}; the same "
          "command goes on from there.", file=sys.stderr)
    raise
  return store, failed


def _raise_if_failed(failed, count):
  if failed:
    raise ValueError(
        f"{len(failed)} of {count} runs failed: "
        f"{'; '.join(map(str, failed))}. The others are kept: call the command "
        "again to repeat these alone.")


def _run_suite():
  for name in ("dataset", "feedback", "logger", "click_model", "hidden_units",
               "plot", *common.LETOR_FLAGS):
    if FLAGS[name].present:
      raise ValueError(f"--{name} is of one world, but --suite has 26; leave "
                       "one of them out.")
  names = _all_of(robustness.METHODS) if FLAGS.methods == ["all"] else (
      FLAGS.methods)
  settings = dataclasses.replace(
      common.settings(),
      steps=FLAGS.steps if FLAGS["steps"].present else _SUITE_STEPS)
  worlds = {
      cell: cell.world(settings, FLAGS.train_queries, FLAGS.data_seed)
      for cell in robustness.CELLS}
  for cell, world in worlds.items():
    _check(world, cell.methods(names), [cell.feedback])
  count = FLAGS.runs if FLAGS["runs"].present else _SUITE_RUNS
  start, found, all_failed, num_runs = time.monotonic(), {}, {}, 0
  for i, (cell, world) in enumerate(worlds.items()):
    print(f"\n{i + 1} of {len(worlds)}: {cell}", flush=True)
    runs = [runs_lib.Run(cell.feedback, name, seed)
            for seed in range(FLAGS.seed, FLAGS.seed + count)
            for name in cell.methods(names)]
    num_runs += len(runs)
    store, failed = _complete(world, runs)
    all_failed.update({f"{cell}, {run}": e for run, e in failed.items()})
    found[cell] = {}
    for run in runs:
      result = _stored(store, run)
      if result is not None:
        found[cell].setdefault(run.method, {})[run.seed] = result
  _give_suite(found, names, all_failed, time.monotonic() - start)
  _raise_if_failed(all_failed, num_runs)


def _give_suite(found, names, failed, seconds):
  summary = robustness.Summary(found, names, FLAGS.select)
  print("\n".join(["", *output.align(summary.rows("*{}")), "",
                   *summary.sentences()]))
  if FLAGS.markdown:
    _write_markdown(
        ["### Robustness", "", tables.to_markdown(summary.rows("**{}**")), "",
         *(f"*   {line}" for line in summary.sentences()), "",
         "NDCG@10 on true labels, means over runs; in brackets the share of "
         "the way from `naive-pairwise` to `oracle-pairwise`; bold: the worst "
         "case of a method, seen from `naive-pairwise`."],
        [by_seed for by_method in found.values()
         for by_seed in by_method.values()])
  if FLAGS.json:
    output.write(FLAGS.json, {
        "suite": FLAGS.suite, "seconds": round(seconds, 1),
        "versions": output.versions(), "failed": failed,
        "cells": [{"world": str(cell), "ndcg@10": {
            name: [run[FLAGS.select]["metrics"]["ndcg@10"]
                   for run in by_seed.values()]
            for name, by_seed in by_method.items()}}
                  for cell, by_method in found.items()]})


def _stored(store, run):
  """The result of a run, or None."""
  found = store.read(run)
  if found is not None and not output.has_form(found, comparison.RESULT):
    raise ValueError(
        f"{store.path(run)}: is damaged, it holds no result of a run; remove "
        "it, and the same command repeats that run.")
  return found


def _all_of(names):
  """The names without peers whose libraries are missing; prints which are."""
  absent = [name for name in names
            if name in peers.PEERS and not peers.PEERS[name].can_load()]
  if absent:
    print(f"Without {' and '.join(absent)}, whose libraries cannot be "
          "imported; get them with: pip install 'ultra_tfr[peers]'.",
          flush=True)
  return [name for name in names if name not in absent]


def _check_flags():
  """Fails early, before TensorFlow is needed."""
  names = FLAGS.methods
  if len(set(names)) < len(names) or not names:
    raise ValueError("--methods must name each method once, but is "
                     f"{','.join(names)!r}.")
  for name in set(names) - {"all", *choices.PEERS}:
    choices.resolve_method(name)
  for kind in FLAGS.feedback:
    if kind not in choices.FEEDBACK:
      raise ValueError(
          f"--feedback must be of {', '.join(choices.FEEDBACK)}, but has "
          f"{kind!r}.")
  if FLAGS.suite is None and not FLAGS.dataset.startswith("letor:"):
    common.check_no_letor_flags(f"--dataset is {FLAGS.dataset}")


def _check(world, names, feedback):
  comparison.check(world, names, feedback)
  common.check_outputs(
      ("json", "markdown"), [*comparison.files(world), FLAGS.plot and
                             os.path.join(FLAGS.plot, "examination-*.png")])


def _give_results(world, names, runs, store, failed, seconds, plot_dir):
  found = {kind: {} for kind in FLAGS.feedback}
  for run in runs:
    result = _stored(store, run)
    if result is not None:
      found[run.feedback].setdefault(run.method, {})[run.seed] = result
  texts, markdown, details = [], [], {}
  results = tables.Results(world.dataset)
  for kind in FLAGS.feedback:
    table = tables.Table(found[kind], names, FLAGS.select)
    title = (f"{kind} feedback, {world.dataset}, {world.logger} logger, "
             f"{world.click_model} users, {FLAGS.runs} runs")
    texts += ["", title, "", table.to_text()]
    markdown += [f"### {title}", "", table.to_markdown(), ""]
    details[kind] = _details(table, names)
    for name, by_seed in found[kind].items():
      for result in by_seed.values():
        results.add(kind, name, _outcome(result), result["true_examination"])
  texts += ["", "*: the best that is no oracle. p: paired t-tests of the "
            "difference to unbiased, over seeds and over test queries; ! marks "
            "those below .05."]
  print("\n".join(texts))
  if FLAGS.markdown:
    _write_markdown([
        *markdown, "NDCG on true labels, mean ± standard deviation over runs; "
        "bold: the best that is no oracle. p: paired t-tests of the difference "
        "to `unbiased`, over seeds and over test queries; ! marks those below "
        ".05."], [by_seed for by_method in found.values()
                  for by_seed in by_method.values()])
  if FLAGS.json:
    output.write(FLAGS.json, {
        **results.to_json(seconds), "world": world.to_config(),
        "select": FLAGS.select, "comparison": details,
        "failed": {str(run): error for run, error in failed.items()}})
  if plot_dir is not None:
    _plot(found, world, plot_dir)


def _outcome(result):
  curve = result["examination"]
  return run_lib.Outcome(
      result[FLAGS.select]["metrics"], curve and np.array(curve),
      result["seconds"], None)


def _details(table, names):
  details = {}
  for name in names:
    difference = table.difference(name)
    details[name] = {
        "gap_closed": table.gap_closed(name),
        "minus_unbiased": difference and output.plain(vars(difference))}
  return details


def _write_markdown(lines, by_seeds):
  versions = ", ".join(f"{name} {value}"
                       for name, value in output.versions().items())
  spent = sum(result["seconds"] for by_seed in by_seeds
              for result in by_seed.values())
  with output.new_file(FLAGS.markdown) as file:
    file.write("\n".join([
        *lines, "", "```shell", _command(), "```", "",
        f"{versions}; {spent:.0f} s of training.", ""]))


def _command():
  """The command line that gives the same table."""
  names = ["dataset", "feedback", "methods", "runs", "logger", "click_model",
           "select", "train_queries", "data_seed",
           *common.TRAINING_FLAGS, "seed",
           *(name for name in common.LETOR_FLAGS if FLAGS[name].present)]
  if FLAGS.suite is not None:
    names = ["suite", *(name for name in names if FLAGS[name].present)]
  given = [
      f"--{name} {shlex.quote(FLAGS[name].serialize().partition('=')[2])}"
      for name in names]
  return " \\\n    ".join(["ultra-tfr compare", *given])


def _plot(found, world, plot_dir):
  for kind, by_method in found.items():
    curves, true_curve = {}, None
    for name, by_seed in by_method.items():
      estimated = [result["examination"] for result in by_seed.values()
                   if result["examination"] is not None]
      if estimated:
        curves[name] = np.mean(estimated, axis=0)
      true_curve = next(iter(by_seed.values()))["true_examination"]
    if curves:
      relative = true_curve and np.array(true_curve) / true_curve[0]
      plots.plot_examination(
          plot_dir.claim(f"examination-{kind}.png"), curves, relative,
          f"Position bias, {world.dataset}, {world.logger} logger")
