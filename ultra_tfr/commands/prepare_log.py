"""`ultra-tfr prepare-log`: a click log as shards to train from, by Beam."""

import shlex
import time

from absl import flags

from ultra_tfr import files
from ultra_tfr import output
from ultra_tfr import remote_folder
from ultra_tfr.commands import click_logs
from ultra_tfr.startup import lazy_module
from ultra_tfr.startup import workers_without_noise

manifest = lazy_module("ultra_tfr.data.prepared.manifest")
pipeline = lazy_module("ultra_tfr.data.prepared.pipeline")
workers = lazy_module("ultra_tfr.data.prepared.workers")

FLAGS = flags.FLAGS
_REJECTED = "rejected"


def define_flags():
  """Defines the flags of this command."""
  click_logs.define_column_flags()
  click_logs.define_length_flag()
  click_logs.define_max_rejected_flag()
  click_logs.define_dialect_flags()
  flags.DEFINE_string("json", None, "File to write the results to, as JSON.")
  flags.DEFINE_integer(
      "seed", 0, "Seed of the intervals of what is harvested from --item.",
      lower_bound=0)
  flags.DEFINE_string(
      "out", None, "Folder for the shards, their manifest, and files of "
      "rejected rows, such as gs://bucket/prepared. All workers must see it "
      "under this name, and the log under its.", required=True)
  flags.DEFINE_boolean(
      "overwrite", False, "Write into an --out that already holds a log.")
  flags.DEFINE_string(
      "runner", "DirectRunner", "Runner of Apache Beam: DirectRunner for this "
      "machine, or FlinkRunner, SparkRunner and others.")
  flags.DEFINE_string(
      "beam_options", "", "Options of Beam and of its runner, such as "
      "'--direct_running_mode=multi_processing --direct_num_workers=4'.")


def main():
  """Runs the command."""
  click_logs.check_files(names=("json",))
  try:
    options = shlex.split(FLAGS.beam_options)
  except ValueError as error:
    raise ValueError(
        f"--beam_options {FLAGS.beam_options}: {error}; close the quotes."
    ) from error
  pipeline.check_beam()
  start = time.monotonic()
  with _folder() as folder:
    folder.remove(_REJECTED)
    rejected = folder.claim(f"{_REJECTED}/")
    with folder.staged(manifest.FILE) as stage:
      plan = workers.make_plan(
          FLAGS.log, click_logs.columns(), stage, rejected,
          **click_logs.reading_options(), seed=FLAGS.seed)
      print(f"Preparing {len(plan.files)} files by {FLAGS.runner} ...",
            flush=True)
      with workers_without_noise():
        found = pipeline.run(plan, FLAGS.runner, options)
  click_logs.show_summary(found["summary"], rejected)
  num_shards = sum(map(len, found["shards"].values()))
  print(f"The log is in {FLAGS.out}, {num_shards} shards; train from it by "
        f"`ultra-tfr fit-log --prepared {FLAGS.out}`.")
  click_logs.write_json({"summary": found["summary"]}, start)


def _folder():
  """What writes --out."""
  arguments = (FLAGS.out, manifest.COMMAND, "--out", manifest.FILE,
               FLAGS.overwrite)
  if files.is_remote(FLAGS.out):
    return remote_folder.RemoteFolder(
        *arguments, parts=[f"{manifest.SHARDS}/"])
  return output.Folder(*arguments)
