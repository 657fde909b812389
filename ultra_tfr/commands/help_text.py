"""Help for people: the flags of a command, grouped by what they are about."""

import textwrap

from absl import flags

FLAGS = flags.FLAGS

# In the order of a command's work; flags that are in none of them come last.
_GROUPS = {
    "Input": (
        "log", "prepared", "query", "position", "feedback", "features",
        "context", "item", "text", "numbers", "weight", "timestamp",
        "randomized", "positions", "num_positions", "max_items", "max_rejected",
        "separator", "null_values", "decimal", "part", "dataset", "suite",
        "train", "valid", "test", "valid_queries", "train_queries",
        "test_queries", "data_seed", "num_features", "non_finite", "index_base",
        "model_a", "model_b"),
    "Simulated users": (
        "click_model", "eta", "logger", "initial_fraction", "days",
        "visits_per_day"),
    "Model": (
        "method", "methods", "examination", "hidden_units",
        "relevance_units"),
    "Training": (
        "steps", "learning_rate", "batch_size", "validate_every", "select",
        "runs", "seed", "jobs", "distribution"),
    "Evaluation": ("max_weight", "replicates"),
    "Apache Beam": ("runner", "beam_options"),
    "Output": (
        "model_dir", "report_dir", "runs_dir", "out", "keep", "overwrite",
        "json", "markdown", "plot", "rejected", "progress"),
}
_OTHERS = "Other"
# Commands that read a folder of `fit-log`.
_READ_MODELS = ("diagnose", "evaluate-log", "score")


def describe(command, summary, example, names):
  """The help of a command.

  Args:
    command: its name.
    summary: one line of what it does.
    example: a call that works.
    names: of its flags, which are defined.

  Returns:
    A text of several lines.
  """
  lines = [f"ultra-tfr {command}: {summary}", "", "Example:",
           textwrap.indent(example, "  ")]
  for title, members in by_group(command, names).items():
    lines += ["", f"{title}:", *(_flag(FLAGS[name]) for name in members)]
  return "\n".join([
      *lines, "", "Lists are separated by commas. --flagfile=FILE reads flags "
      "from a file, one", "a line, such as the flags.txt that fit-log, train "
      "and compare leave in their", "folder; flags after it count more. "
      "--verbosity=0 shows all that TensorFlow says."])


def by_group(command, names):
  """Names of flags by title of their group.

  Args:
    command: its name.
    names: of its flags.

  Returns:
    A dict of lists, without groups that are empty.

  >>> by_group("demo", ["json", "steps"])
  {'Training': ['steps'], 'Output': ['json']}
  """
  title_of = {name: title for title, members in _GROUPS.items()
              for name in members}
  if command in _READ_MODELS:
    title_of["model_dir"] = "Input"
  titles = {name: title_of.get(name, _OTHERS) for name in names}
  order = [name for members in _GROUPS.values() for name in members]
  found = {
      title: sorted(
          (name for name in names if titles[name] == title),
          key=lambda name: order.index(name) if name in order else -1)
      for title in (*_GROUPS, _OTHERS)}
  return {title: members for title, members in found.items() if members}


def _flag(flag):
  """Lines that explain a flag."""
  name = f"[no]{flag.name}" if flag.boolean else flag.name
  note = "(required) " if _is_required(flag) else ""
  value = (flag.default_as_str or "").strip("'")
  default = f" (default: {value})" if value else ""
  return textwrap.fill(
      f"--{name}: {note}{flag.help}{default}", 79, initial_indent="  ",
      subsequent_indent="      ", break_on_hyphens=False,
      break_long_words=False)


def _is_required(flag):
  return any("must have a value other than None" in validator.message
             for validator in flag.validators)
