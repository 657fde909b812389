"""Flags and steps that the commands share."""

import math
import os
import sys

from absl import flags

from ultra_tfr import checks
from ultra_tfr import choices
from ultra_tfr import files
from ultra_tfr import output
from ultra_tfr.settings import Settings
from ultra_tfr.startup import lazy_module
from ultra_tfr.version import __version__

synthetic = lazy_module("ultra_tfr.data.synthetic")
plots = lazy_module("ultra_tfr.evaluation.plots")
methods = lazy_module("ultra_tfr.methods")

FLAGS = flags.FLAGS
# The flags of a run, in the folder that it writes.
FLAGS_FILE = "flags.txt"
# The flags that `define_training_flags` and `define_letor_flags` define.
TRAINING_FLAGS = ("hidden_units", "relevance_units", "steps", "learning_rate",
                  "batch_size", "validate_every")
LETOR_FLAGS = ("non_finite", "index_base")


def define_flags(hidden_units, steps, learning_rate, method,
                 plot="examination curves and NDCG@10"):
  """Defines the flags that all training commands have.

  Args:
    hidden_units: the command's default, sizes as strings.
    steps: the command's default, batches.
    learning_rate: the command's default, of Adam.
    method: the command's default, names of methods.
    plot: what --plot draws.
  """
  define_run_flags()
  flags.DEFINE_string(
      "plot", None, f"File to draw {plot} to, such as curves.png.")
  flags.DEFINE_list("method", method, "Methods, separated by commas: "
                    f"{', '.join(choices.METHODS)}.")
  define_training_flags(hidden_units, steps, learning_rate)


def define_run_flags():
  """Defines the flags that all commands have."""
  flags.DEFINE_string("json", None, "File to write the results to, as JSON.")
  flags.DEFINE_integer("seed", 0, "Seed of all that is random.", lower_bound=0)
  flags.DEFINE_boolean(
      "progress", None,
      "Progress bars with the time left; by default if the output goes to a "
      "terminal.")


def define_training_flags(hidden_units, steps, learning_rate):
  """Defines the flags of a training.

  Args:
    hidden_units: the command's default, sizes as strings.
    steps: the command's default, batches; None for a number that suits the log.
    learning_rate: the command's default, of Adam.
  """
  default = Settings()
  flags.DEFINE_list("hidden_units", hidden_units,
                    "Sizes of the hidden layers of the ranker; empty for a "
                    "linear one.")
  flags.DEFINE_list("relevance_units", [*map(str, default.relevance_units)],
                    "Sizes of the hidden layers of the tower that estimates "
                    "relevance, which is not served.")
  flags.DEFINE_integer(
      "steps", steps, "Batches to train on." + (
          " By default ten passes over the log, but at least 200 batches and "
          "at most 3000." if steps is None else ""), lower_bound=1)
  flags.DEFINE_float("learning_rate", learning_rate,
                     "Learning rate of Adam at the start; it falls to 0 by a "
                     "cosine.", lower_bound=0)
  flags.DEFINE_integer(
      "batch_size", None if steps is None else default.batch_size,
      "Lists in a batch." + (
          f" By default {default.batch_size}, or a thirty-second of a smaller "
          "log, but at least 8." if steps is None else ""), lower_bound=1)
  flags.DEFINE_integer("validate_every", default.validate_every,
                       "Steps between two validations.", lower_bound=1)


def define_synthetic_flags():
  """Defines the flags of commands that can train on made-up data."""
  flags.DEFINE_integer("train_queries", 2000, "Training queries.",
                       lower_bound=1)
  flags.DEFINE_integer("valid_queries", 300, "Validation queries.",
                       lower_bound=1)
  flags.DEFINE_integer("test_queries", 600, "Test queries.", lower_bound=1)


def define_letor_flags():
  """Defines the flags of commands that read LETOR files."""
  flags.DEFINE_enum(
      "non_finite", "error", ["error", "zero"], "What becomes of a feature "
      "value of a LETOR file that is not finite or too large for float32.")
  flags.DEFINE_integer(
      "index_base", 1, "The index of the first feature in LETOR files, 1 or 0.",
      lower_bound=0, upper_bound=1)


def letor_options():
  """The arguments of `data.letor.read_letor` that the flags give."""
  return {name: FLAGS[name].value for name in LETOR_FLAGS}


def check_no_letor_flags(reason):
  """Raises a `ValueError` if a flag of LETOR files is given without such files.

  Args:
    reason: why there are no such files, to come after "but".
  """
  for name in LETOR_FLAGS:
    if FLAGS[name].present:
      raise ValueError(f"--{name} is for LETOR files, but {reason}; leave it "
                       "out.")


def make_synthetic():
  """Makes the `SyntheticData` that the flags describe."""
  print(f"Making {FLAGS.train_queries} training queries, and ranking them by "
        "a ranker that saw the labels of 1 % of them ...", flush=True)
  return synthetic.generate(FLAGS.train_queries, FLAGS.valid_queries,
                            FLAGS.test_queries, seed=FLAGS.seed)


def settings(steps=None, batch_size=None):
  """The `Settings` that the flags describe.

  Args:
    steps: the number of steps if --steps is not given.
    batch_size: lists in a batch if --batch_size is not given.

  Raises:
    ValueError: if a layer size is no positive whole number, or the learning
      rate is not positive.
  """
  if not 0 < FLAGS.learning_rate < math.inf:
    raise ValueError("--learning_rate must be a positive number, but is "
                     f"{FLAGS.learning_rate}.")
  return Settings(
      hidden_units=_sizes("hidden_units"),
      relevance_units=_sizes("relevance_units"),
      batch_size=FLAGS.batch_size or batch_size,
      steps=FLAGS.steps or steps, learning_rate=FLAGS.learning_rate,
      validate_every=FLAGS.validate_every)


def _sizes(flag):
  """Sizes of hidden layers, the value of a flag."""
  sizes = FLAGS[flag].value
  for size in sizes:
    if not size.strip().isdecimal() or int(size) < 1:
      raise ValueError(
          f"--{flag} must be whole numbers of at least 1, such as "
          f"512,256,128, but holds {size!r}.")
  return tuple(int(size) for size in sizes)


def verbosity():
  """Keras's `verbose`: 1 for progress bars, 0 for none."""
  on = sys.stdout.isatty() if FLAGS.progress is None else FLAGS.progress
  return int(on)


def check_flags(inputs=()):
  """Fails before a long run, not at its end.

  Args:
    inputs: paths that must not be written to, see `check_outputs`.

  Raises:
    ValueError: if the methods or the files to write are not possible.
  """
  names = FLAGS.method
  if not names or len(set(names)) < len(names):
    raise ValueError(
        "--method must name each method once, but is "
        f"{','.join(names)!r}; the methods are {', '.join(choices.METHODS)}.")
  for name in names:
    choices.resolve_method(name)
  check_training_and_files(inputs)
  if FLAGS.plot and not any(
      methods.find(name).estimates_examination for name in names):
    raise ValueError(
        f"--plot {FLAGS.plot}: there is no examination curve to draw, since "
        f"{', '.join(names)} estimates none; add a method such as unbiased.")


def check_training_and_files(inputs=()):
  """Fails early, like `check_flags`, but looks at no method.

  Args:
    inputs: as in `check_flags`.

  Raises:
    ValueError: if the settings or the files to write are not possible.
  """
  settings(FLAGS.validate_every)
  check_outputs(("json", "plot"), inputs)
  if FLAGS.plot:
    if os.path.splitext(FLAGS.plot)[1][1:].lower() not in plots.formats():
      raise ValueError(
          f"--plot {FLAGS.plot}: the file must end in one of "
          f"{', '.join(plots.formats())}; take .png.")


def check_letor_file(path):
  """Raises a `FileNotFoundError` if there is no LETOR file.

  Args:
    path: of the file, or None.
  """
  if path is not None:
    checks.check_file(path, "LETOR file")


def check_found(name, path, kind):
  """Raises a `FileNotFoundError` if nothing is there to read.

  Args:
    name: of the flag.
    path: of a file or a folder, or a pattern.
    kind: what is expected there.
  """
  if not files.exists(path) and not files.find(path):
    raise FileNotFoundError(
        f"--{name} {path}: there is no such file or folder; give {kind}.")


def check_outputs(names, inputs=()):
  """Raises a `ValueError` if files that flags name cannot be written.

  Args:
    names: of the flags.
    inputs: paths of all that the command reads, or writes by itself.
  """
  needed = [path for path in inputs if path]
  for name in names:
    path = FLAGS[name].value
    if not path:
      continue
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
      raise ValueError(
          f"--{name} {path}: the folder {folder} does not exist; create it "
          "first.")
    if os.path.isdir(path):
      raise ValueError(
          f"--{name} {path} must be a file, but is a folder; add a file name.")
    output.check_is_no_input(f"--{name}", path, needed)
    needed.append(path)


def flags_text(values, command):
  """The flags that a command was given, as --flagfile takes them.

  Args:
    values: absl's `FlagValues`, parsed.
    command: its name.

  Returns:
    A text, a line for each flag; those left out have their defaults.
  """
  lines = [f"# ultra-tfr {command}, version {__version__}"]
  for name in values:
    flag = values[name]
    # A flag may have a short name, too.
    if flag.present and flag.name == name and name != "flagfile":
      line = flag.serialize()
      can_be_read = line == line.strip() and len(line.splitlines()) == 1
      lines.append(line if can_be_read else (
          f"# Give --{name} anew: a line cannot hold {flag.value!r}."))
  return "\n".join([*lines, ""])


def write_flags(folder, command):
  """Writes the flags of this run to its folder, so that it can be repeated.

  Args:
    folder: its `output.Folder`.
    command: the name of the command.
  """
  with output.new_file(folder.claim(FLAGS_FILE)) as file:
    file.write(flags_text(FLAGS, command))


def give_results(results, seconds):
  """Prints the tables, and writes the files that the flags ask for.

  Args:
    results: a `experiments.tables.Results`.
    seconds: wall time of everything.
  """
  print(f"\n{results.to_text()}")
  if FLAGS.json:
    results.write_json(FLAGS.json, seconds)
  if FLAGS.plot:
    results.plot(FLAGS.plot)
