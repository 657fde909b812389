"""The command line: `ultra-tfr COMMAND [flags]`."""

import difflib
import importlib
import importlib.metadata
import os
import platform
import signal
import sys
import threading
from typing import NamedTuple

from absl import app
from absl import flags

from ultra_tfr import output
from ultra_tfr import startup
from ultra_tfr import version
from ultra_tfr.commands import help_text


class _Command(NamedTuple):
  """What a command does, and an example of a call."""
  summary: str
  example: str


COMMANDS = {
    "demo": _Command(
        "train naive, unbiased and oracle rankers on made-up data",
        "ultra-tfr demo --plot curves.png"),
    "train": _Command(
        "train a method on LETOR files with simulated feedback",
        "ultra-tfr train --train train.txt --test test.txt --model_dir model"),
    "compare": _Command(
        "train all methods on simulated feedback, and compare them",
        "ultra-tfr compare --methods naive-pairwise,unbiased --runs 2"),
    "fit-log": _Command(
        "train a ranker on a click log, and report position bias",
        "ultra-tfr fit-log --log clicks.parquet --query session \\\n"
        "  --position rank --feedback click --features 'f_*' --model_dir shop"),
    "prepare-log": _Command(
        "prepare a large click log for fit-log, on Apache Beam",
        "ultra-tfr prepare-log --log 'logs/*.parquet' --query session \\\n"
        "  --position rank --feedback click --features 'f_*' --out prepared"),
    "score": _Command(
        "rank new items by a model of fit-log",
        "ultra-tfr score --log new.parquet --model_dir shop --out scores.csv"),
    "diagnose": _Command(
        "report the position bias of a click log",
        "ultra-tfr diagnose --log clicks.parquet --model_dir shop"),
    "evaluate-log": _Command(
        "judge rankers by a click log, without labels",
        "ultra-tfr evaluate-log --log later.parquet --model_dir shop"),
    "simulate-ab": _Command(
        "let two rankers serve simulated users, and compare",
        "ultra-tfr simulate-ab --method naive-pairwise,unbiased"),
}
# The distributions whose versions a report of a problem needs.
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-keras",
                  "keras", "tensorflow-ranking", "numpy", "pyarrow")


def run(argv=None):
  """Entry point of the console script.

  Args:
    argv: the words of the command line, by default those of the process.

  Raises:
    SystemExit: always; with status 2 without a known command, 1 for a wrong
      flag or an error, and 130 or more if a signal ended it.
  """
  argv = list(sys.argv if argv is None else argv)
  name = argv[1] if len(argv) > 1 else None
  if name in ("-h", "--help", "help", None):
    print(_usage())
    raise SystemExit(0 if name else 2)
  if name == "--version":
    print(_versions())
    raise SystemExit(0)
  if name not in COMMANDS:
    nearest = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f"; did you mean {nearest[0]!r}?" if nearest else "."
    print(f"ultra-tfr: there is no command {name!r}{meant}\n"
          "See `ultra-tfr --help`.", file=sys.stderr)
    raise SystemExit(2)
  # Flags are global in absl, so only the chosen command defines its own.
  command = importlib.import_module(
      f"ultra_tfr.commands.{name.replace('-', '_')}")
  before = set(flags.FLAGS)
  command.define_flags()
  if {"-h", "--help", "-help"} & set(argv[2:]):
    # absl's own help knows the flags of the main module only.
    print(help_text.describe(name, *COMMANDS[name], [
        flag for flag in flags.FLAGS if flag not in before]))
    raise SystemExit(0)

  def parse(words):
    try:
      return flags.FLAGS(words)
    except flags.Error as error:
      # absl's own advice names a help that knows no flag of the command.
      print(f"ultra-tfr {name}: {error}\nSee `ultra-tfr {name} --help`.",
            file=sys.stderr)
      raise SystemExit(1) from error

  def main(words):
    if len(words) > 1:
      raise app.UsageError(
          f"`ultra-tfr {name}` takes flags only, but got {words[1]!r}.")
    _end_by_signals(name)
    if not flags.FLAGS["verbosity"].present:
      startup.be_quiet()
    try:
      with output.errors_of(None):
        command.main()
    except (ValueError, OSError) as error:
      print(f"ultra-tfr {name}: {_sentence(error)}", file=sys.stderr)
      raise SystemExit(1) from error
    except KeyboardInterrupt as error:
      print(f"\nultra-tfr {name}: interrupted.", file=sys.stderr)
      raise SystemExit(130) from error

  app.run(main, argv=[f"{argv[0]} {name}", *argv[2:]], flags_parser=parse)


def _end_by_signals(name):
  """Makes signals end the process by an exception, so that it cleans up.

  Args:
    name: of the command.
  """
  def end(number, frame):
    del frame
    signal.signal(number, signal.SIG_DFL)  # A second one ends it at once.
    print(f"\nultra-tfr {name}: ended by {signal.Signals(number).name}.",
          file=sys.stderr)
    raise SystemExit(128 + number)

  for kind in ("SIGTERM", "SIGHUP"):
    number = getattr(signal, kind, None)
    # A signal that is ignored, as by `nohup`, stays ignored.
    if number and signal.getsignal(number) == signal.SIG_DFL and (
        threading.current_thread() is threading.main_thread()):
      signal.signal(number, end)


def _sentence(error):
  """An error in a sentence, without the system's error number."""
  if isinstance(error, OSError) and error.filename:
    return output.printable(f"{os.fspath(error.filename)}: {error.strerror}.")
  return output.printable(str(error))


def _versions():
  """The versions that a report of a problem needs."""
  lines = [f"ultra-tfr {version.__version__}",
           f"Python {sys.version.split()[0]}"]
  for name in _DISTRIBUTIONS:
    try:
      lines.append(f"{name} {importlib.metadata.version(name)}")
    except importlib.metadata.PackageNotFoundError:
      pass
  return "\n".join([*lines, f"platform {platform.platform()}"])


def _usage():
  width = max(map(len, COMMANDS))
  lines = ["Usage: ultra-tfr COMMAND [flags]", "", "Commands:", *(
      f"  {name.ljust(width)}  {command.summary}"
      for name, command in COMMANDS.items()), "", "Examples:"]
  for command in COMMANDS.values():
    lines += [f"  {line}" for line in command.example.splitlines()]
  return "\n".join([
      *lines, "", "`ultra-tfr COMMAND --help` lists the flags of a command, "
      "`ultra-tfr --version`", "the versions of what it runs on."])


if __name__ == "__main__":
  run()
