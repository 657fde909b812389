"""Flags and steps of the commands that read a click log."""

import contextlib
import os
import sys
import time

from absl import flags

from ultra_tfr import choices
from ultra_tfr import distribution
from ultra_tfr import output
from ultra_tfr.commands import common
from ultra_tfr.startup import lazy_module

columns_lib = lazy_module("ultra_tfr.data.click_log.columns")
manifest = lazy_module("ultra_tfr.data.prepared.manifest")
reading = lazy_module("ultra_tfr.data.click_log.reading")
sources = lazy_module("ultra_tfr.data.click_log.sources")
summary_lib = lazy_module("ultra_tfr.data.click_log.summary")
click_prediction = lazy_module("ultra_tfr.fit_log.click_prediction")
diagnosis = lazy_module("ultra_tfr.fit_log.diagnosis")
report = lazy_module("ultra_tfr.fit_log.report")
training = lazy_module("ultra_tfr.fit_log.training")
tqdm = lazy_module("tqdm")

FLAGS = flags.FLAGS

_REJECTED = "rejected_rows.csv"
# What a log needs beside --log.
_COLUMNS = ("query", "position", "feedback", "features")
# What a prepared log has settled.
_SETTLED = ("log", *_COLUMNS, "text", "numbers", "context", "item", "weight",
            "timestamp", "randomized", "positions", "num_positions", "valid",
            "test", "max_items", "max_rejected", "rejected", "separator",
            "null_values", "decimal")


def define_log_flags(folder, required=True):
  """Defines the flags that say what is in the log.

  Args:
    folder: the flag of the folder that rejected rows are written to.
    required: whether the columns must be named.
  """
  define_column_flags(required=required)
  define_reading_flags(folder)


def define_prepared_flags(folder):
  """Defines the flags of a log that may be a prepared one.

  Args:
    folder: as in `define_log_flags`.
  """
  flags.DEFINE_string(
      "prepared", None, "Folder of `ultra-tfr prepare-log`, instead of --log "
      "and all that says what is in it.")
  define_column_flags(log_required=False, required=False)
  define_reading_flags(folder)


def define_distribution_flag():
  """Defines --distribution, for a log that is prepared."""
  flags.DEFINE_enum(
      "distribution", None, distribution.KINDS, "Train from --prepared on all "
      "GPUs of this machine (mirrored), or on several machines "
      "(multi_worker), which run the same command, each with its TF_CONFIG, "
      "and see --prepared under this name.")


def find_cluster():
  """The `distribution.Cluster` that the flags describe.

  Raises:
    ValueError: if --distribution does not fit to the other flags, or TF_CONFIG
      not to it.
  """
  cluster = distribution.find_cluster(FLAGS.distribution)
  if FLAGS.distribution and not FLAGS.prepared:
    raise ValueError(
        f"--distribution {FLAGS.distribution} needs shards to read; prepare "
        "the log by `ultra-tfr prepare-log`, and give it by --prepared.")
  if FLAGS.batch_size and FLAGS.batch_size % cluster.num_workers:
    raise ValueError(
        f"--batch_size {FLAGS.batch_size} is no multiple of the "
        f"{cluster.num_workers} workers, which share each batch equally; give "
        "one that is.")
  return cluster


def make_strategy(log, cluster):
  """The `tf.distribute.Strategy` of --distribution, or None without it.

  Args:
    log: a `ClickLog`.
    cluster: of `find_cluster`.

  Raises:
    ValueError: if the log cannot be shared by so many replicas.
  """
  kind = FLAGS.distribution
  if kind is None:
    return None
  # Before a strategy waits for the other workers.
  count = distribution.num_replicas(kind, cluster)
  log.parts["train"].check_replicas(count, _batch_size(log, count))
  return distribution.make_strategy(kind)


def check_log_or_prepared():
  """Raises a `ValueError` unless --log is given as a whole, or --prepared."""
  if FLAGS.prepared is None:
    missing = [name for name in ("log", *_COLUMNS) if not FLAGS[name].value]
    if missing:
      raise ValueError(
          f"--{missing[0]} is missing; give --log, --query, --position, "
          "--feedback and --features, or the folder of `ultra-tfr prepare-log` "
          "by --prepared.")
    return
  given = [name for name in _SETTLED if FLAGS[name].present]
  if given:
    raise ValueError(
        f"--{given[0]} is given beside --prepared, whose log is settled; leave "
        "one of them out.")
  common.check_found("prepared", FLAGS.prepared,
                     "the --out of `ultra-tfr prepare-log`")


def define_column_flags(log_required=True, required=True):
  """Defines the flags of the log, its columns and its parts.

  Args:
    log_required: whether the log must be named.
    required: whether the columns must be.
  """
  flags.DEFINE_list(
      "log", None, "The click log, a row for each item shown: Parquet, CSV, "
      "TSV, JSON lines (each also .gz), or TFRecords of ELWC; a file, a folder "
      "or a pattern, also with gs://, s3:// or hdfs://, or several, separated "
      "by commas.", required=log_required)
  flags.DEFINE_list(
      "query", None, "Column or columns of the request, one ranked list that "
      "was shown once. In ELWC '(record)'.", required=required)
  flags.DEFINE_string(
      "position", None, "Column of the position that the item was shown at. In "
      "ELWC '(place)'.", required=required)
  flags.DEFINE_string(
      "feedback", None, "Column, or an expression over columns, such as "
      "'click + 0.5*log1p(dwell_seconds)'.", required=required)
  flags.DEFINE_list(
      "features", None, "Columns to rank by, or patterns such as 'f_*'.",
      required=required)
  flags.DEFINE_list(
      "text", [], "Features, or patterns, that are texts, whatever they look "
      "like. In Parquet files the types say so.")
  flags.DEFINE_list(
      "numbers", [], "Features, or patterns, that are numbers; rows with "
      "anything else there are rejected.")
  flags.DEFINE_string("context", None, "Column of what the bias may depend on, "
                      "such as the device.")
  flags.DEFINE_list(
      "item", [], "Column or columns that identify the item; where relevance "
      "depends on a query text, name that too.")
  flags.DEFINE_string("weight", None, "Column of row weights.")
  flags.DEFINE_string(
      "timestamp", None, "Column of the time; with it, the parts for "
      "validation and test are the last requests, otherwise random ones. Times "
      f"are {choices.TIME_FORMS}.")
  flags.DEFINE_string("randomized", None, "Column that is true where a request "
                      "was shown in random order.")
  flags.DEFINE_list(
      "positions", None, "Names of the positions in order, where they are no "
      "numbers, such as 'top,main-1,main-2,side'.")
  flags.DEFINE_integer(
      "num_positions", None, "Positions beyond this number share the last one; "
      "by default each has its own bias.", lower_bound=2)
  flags.DEFINE_float("valid", 0.1, "Share of the requests for validation.",
                     lower_bound=0, upper_bound=1)
  flags.DEFINE_float("test", 0.1, "Share of the requests for testing.",
                     lower_bound=0, upper_bound=1)


def define_reading_flags(folder=None):
  """Defines the flags that say what to do with bad rows.

  Args:
    folder: as in `define_log_flags`; None if there is no such folder.
  """
  define_length_flag()
  define_rejection_flags(folder)
  define_dialect_flags()


def define_length_flag():
  """Defines --max_items."""
  flags.DEFINE_integer(
      "max_items", None, "Rows of a request to keep, those at its first "
      "positions; all by default. Memory grows with the square of the longest "
      "request.", lower_bound=2)


def define_dialect_flags():
  """Defines the flags that say how values are written."""
  flags.DEFINE_string(
      "separator", None, "Character between the values of a CSV row; by "
      r"default a comma, or a tab in .tsv. '\t' is a tab.")
  flags.DEFINE_list(
      "null_values", None, "Words that stand for a missing value, such as "
      r"'\N,unknown'; by default those of --model_dir, or NA, N/A, NaN, null "
      "and None. An empty value always does.")
  flags.DEFINE_enum(
      "decimal", None, [".", ","], "The sign before decimals in CSV and other "
      "texts; by default that of --model_dir, or a point.")


def dialect():
  """The arguments of `read_click_log` that say how values are written."""
  separator = FLAGS.separator
  return {"separator": "\t" if separator == r"\t" else separator,
          "null_values": FLAGS.null_values, "decimal": FLAGS.decimal}


def define_rejection_flags(folder=None):
  """Defines the flags that say how many bad rows there may be.

  Args:
    folder: as in `define_log_flags`; None if there is no such folder.
  """
  define_max_rejected_flag()
  otherwise = f"it is {_REJECTED} in --{folder}" if folder else (
      "they are only counted")
  flags.DEFINE_string(
      "rejected", None, "CSV file to write rejected rows to, with source, row "
      f"number and reason; by default {otherwise}.")


def define_max_rejected_flag():
  """Defines --max_rejected."""
  flags.DEFINE_float("max_rejected", 0.01, "Share of the rows that may be "
                     "rejected before the command stops.", lower_bound=0,
                     upper_bound=1)


def define_method_flag():
  """Defines --method, with the methods that work on logs."""
  flags.DEFINE_enum(
      "method", "unbiased", [*choices.FOR_LOGS, *choices.ALIASES],
      "How to train. " + "; ".join(
          f"{name}: {choices.METHODS[name]}"
          for name in choices.FOR_LOGS) + ".")


def read(folder):
  """The `ClickLog` that the flags describe, with a summary on the screen.

  Args:
    folder: the `output.Folder` that rejected rows are written to, unless
      --rejected names a file.
  """
  rejected = _rejected_file(folder)
  with progress() as shown:
    log = reading.read_click_log(
        FLAGS.log, columns(), rejected_file=rejected, progress=shown,
        **reading_options())
  return _shown(log, rejected)


def read_prepared():
  """The `ClickLog` of --prepared, with a summary on the screen."""
  return _shown(manifest.read_prepared(FLAGS.prepared), None)


def columns():
  """The `LogColumns` that the flags describe."""
  return columns_lib.LogColumns(
      tuple(FLAGS.query), FLAGS.position, FLAGS.feedback,
      tuple(FLAGS.features or ()),
      FLAGS.context, tuple(FLAGS.item), FLAGS.weight, FLAGS.timestamp,
      FLAGS.randomized, tuple(FLAGS.text), tuple(FLAGS.numbers))


def reading_options():
  """The arguments of `read_click_log` that the flags give for any log."""
  return {**{name: FLAGS[name].value for name in (
      "positions", "num_positions", "max_items", "valid", "test",
      "max_rejected")}, **dialect()}


def _entries():
  """What --log names, or --prepared."""
  return FLAGS.log or [FLAGS.prepared]


def read_for(schema, valid, test, folder=None):
  """The `ClickLog` of --log, read as the log that a model was trained on.

  Args:
    schema: of that log.
    valid: share for validation.
    test: share for testing.
    folder: as in `read`, or None.
  """
  rejected = _rejected_file(folder)
  with progress() as shown:
    log = reading.read_click_log(
        FLAGS.log, schema=schema, max_items=FLAGS.max_items, valid=valid,
        test=test, max_rejected=FLAGS.max_rejected, rejected_file=rejected,
        progress=shown, **dialect())
  _shown(log, rejected)
  training.check_memory(log, 1)
  return log


def check_training():
  """Raises a `ValueError` if the flags of the training do not fit."""
  # Where --steps is not given, their number will fit, so any that fits will do.
  common.settings(FLAGS.validate_every)


def check_files(model_dirs=(), names=("json", "rejected")):
  """Raises a `ValueError` if a file to write is not possible.

  Args:
    model_dirs: folders of `fit-log` that the command reads.
    names: of the flags that name files to write.
  """
  for entry in FLAGS.log or ():
    common.check_found("log", entry, "a click log")
  common.check_outputs(names, [
      *(sources.paths(FLAGS.log) if FLAGS.log else [FLAGS.prepared]),
      *(os.path.join(folder, name)
        for folder in model_dirs for name in training.FILES)])


def train(log, logs_folder=None, known=None, strategy=None):
  """Trains on a log as the flags say, and prints how well clicks are predicted.

  Args:
    log: a `ClickLog`.
    logs_folder: for TensorBoard, or None.
    known: `known_curves.KnownCurves`, or None.
    strategy: of `make_strategy`.

  Returns:
    A tuple of the method's name and a `fit_log.training.FittedLog`.

  Raises:
    ValueError: if there is nothing to learn from.
  """
  training.check_can_teach(log)
  settings = _settings(log, strategy)
  training.check_memory(
      log, distribution.own_part(strategy, settings.batch_size))
  name = choices.resolve_method(FLAGS.method)
  print(f"Training {name} for {settings.steps} batches of "
        f"{settings.batch_size} requests ...", flush=True)
  fitted = training.fit(
      log, name, settings, seed=FLAGS.seed, logs_folder=logs_folder,
      verbose=common.verbosity(), known=known, strategy=strategy).settled()
  found = fitted.click_prediction
  if click_prediction.deciding_part(found):
    print("\n".join(["", *output.align(
        click_prediction.to_rows(found)), ""]), flush=True)
  for warning in click_prediction.warnings(found):
    print(output.red(f"WARNING: {warning}"), "\n", flush=True)
  return name, fitted


def train_without_debiasing(log, fitted, logs_folder=None, strategy=None):
  """Trains the ranker that is served where no debiasing is justified.

  Args:
    log: a `ClickLog`.
    fitted: what `train` gave.
    logs_folder: for TensorBoard, or None.
    strategy: of `make_strategy`.

  Returns:
    As `train` does.
  """
  name = training.WITHOUT_DEBIASING
  print(f"Training {name}, the ranker to serve ...", flush=True)
  return name, training.fit_without_debiasing(
      log, fitted, _settings(log, strategy), seed=FLAGS.seed,
      logs_folder=logs_folder, verbose=common.verbosity(), strategy=strategy)


def _settings(log, strategy):
  """The `trainer.Settings` that the flags say, for a log."""
  batch_size = _batch_size(
      log, 1 if strategy is None else strategy.num_replicas_in_sync)
  return common.settings(training.default_steps(
      len(log.parts["train"]), batch_size, FLAGS.validate_every), batch_size)


def _batch_size(log, num_replicas):
  """Requests in a batch of all replicas together."""
  suits = training.default_batch_size(len(log.parts["train"]))
  return FLAGS.batch_size or max(1, suits // num_replicas) * num_replicas


def write_report(log, fitted, folder, name="", evaluation=None):
  """Diagnoses a log, writes the report and prints what it says.

  Args:
    log: a `ClickLog`.
    fitted: a `fit_log.training.FittedLog` with a bias, or None.
    folder: the `output.Folder` for the report.
    name: of a folder in it, or "".
    evaluation: of the ranker on the test part, see `LogEvaluator.results`.

  Returns:
    The diagnosis, ready for JSON.
  """
  print("Diagnosing the log ...", flush=True)
  found = diagnosis.diagnose(
      log, fitted, evaluation=evaluation, seed=FLAGS.seed)
  with folder.staged(None if name else report.PAGE) as stage:
    report.write(
        os.path.join(stage, name), found, log.summary,
        heading=report.about(
            ", ".join(_entries()), ["ultra-tfr", *sys.argv[1:]]))
  path = os.path.join(folder, name, report.PAGE)
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


def _rejected_file(folder):
  if FLAGS.rejected is not None or folder is None:
    return FLAGS.rejected
  # An older one would be taken for that of this run.
  folder.remove(_REJECTED)
  return folder.claim(_REJECTED)


def _shown(log, rejected_file):
  show_summary(log.summary, rejected_file)
  return log


def show_summary(summary, rejected):
  """Prints the summary of a log, and where its rejected rows are.

  Args:
    summary: of a `ClickLog`.
    rejected: the file or folder that lists them, or None.
  """
  count = sum(summary["rejected"].values())
  print(f"{summary_lib.to_text(summary)}\n")
  if count and rejected:
    print(f"{rejected} lists the {count} rejected rows.\n")
  sys.stdout.flush()


@contextlib.contextmanager
def progress():
  """Shows how far the reading of --log is: on a terminal how long it may take.

  Yields:
    A function of the number of rows so far.
  """
  if not common.verbosity():
    yield _Lines()
    return
  # Of files of text the number of rows is a guess, and so is the time left.
  with tqdm.tqdm(total=sources.estimate_rows(FLAGS.log), desc="Reading",
                 unit=" rows", unit_scale=True, leave=False,
                 file=sys.stdout) as bar:
    yield lambda num_rows: bar.update(num_rows - bar.n)


class _Lines:
  """Prints every 5 seconds how many rows were read."""

  def __init__(self):
    self._last = time.monotonic()

  def __call__(self, num_rows):
    now = time.monotonic()
    if now - self._last >= 5:
      self._last = now
      print(f"Read {num_rows} rows ...", flush=True)
