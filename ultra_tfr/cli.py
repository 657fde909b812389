"""The command line: `ultra-tfr COMMAND [flags]`."""

import importlib
import os
import signal
import sys
import threading

from absl import app
from absl import flags

from ultra_tfr import output
from ultra_tfr import version

COMMANDS = {
    "demo": "train naive, unbiased and oracle rankers on made-up data",
    "train": "train a method on LETOR files with simulated feedback",
    "compare": "train all methods on simulated feedback, and compare them",
    "fit-log": "train a ranker on a click log, and report position bias",
    "score": "rank new items by a model of fit-log",
    "diagnose": "report the position bias of a click log",
    "evaluate-log": "judge rankers by a click log, without labels",
    "simulate-ab": "let two rankers serve simulated users, and compare",
}


def run(argv=None):
  """Entry point of the console script.

  Args:
    argv: the words of the command line, by default those of the process.

  Raises:
    SystemExit: always; status 2 for a wrong call.
  """
  argv = list(sys.argv if argv is None else argv)
  name = argv[1] if len(argv) > 1 else None
  if name in ("-h", "--help", "help", None):
    print(_usage())
    raise SystemExit(0 if name else 2)
  if name == "--version":
    print(f"ultra-tfr {version.__version__}")
    raise SystemExit(0)
  if name not in COMMANDS:
    print(f"ultra-tfr: there is no command {name!r}.\n\n{_usage()}",
          file=sys.stderr)
    raise SystemExit(2)
  # Flags are global in absl, so only the chosen command defines its own.
  command = importlib.import_module(
      f"ultra_tfr.commands.{name.replace('-', '_')}")
  command.define_flags()
  if {"-h", "--help", "-help"} & set(argv[2:]):
    # absl's own help knows the flags of the main module only.
    print(f"ultra-tfr {name}: {COMMANDS[name]}\n")
    print(flags.FLAGS.module_help(command))
    for shared in ("click_logs", "common"):
      print(flags.FLAGS.module_help(f"ultra_tfr.commands.{shared}"))
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
  """Lets signals that end the process do so as an interrupt, which cleans up.

  Args:
    name: of the command.
  """
  def end(number, frame):
    del frame
    signal.signal(number, signal.SIG_DFL)  # The second one at once.
    print(f"\nultra-tfr {name}: ended by {signal.Signals(number).name}.",
          file=sys.stderr)
    raise SystemExit(128 + number)

  for kind in ("SIGTERM", "SIGHUP"):
    number = getattr(signal, kind, None)
    # `nohup` ignores one, which so it stays.
    if number and signal.getsignal(number) == signal.SIG_DFL and (
        threading.current_thread() is threading.main_thread()):
      signal.signal(number, end)


def _sentence(error):
  """What an error says, without a number."""
  if isinstance(error, OSError) and error.filename:
    return output.printable(f"{os.fspath(error.filename)}: {error.strerror}.")
  return output.printable(str(error))


def _usage():
  width = max(map(len, COMMANDS))
  lines = [f"  {name.ljust(width)}  {what}" for name, what in COMMANDS.items()]
  return ("Usage: ultra-tfr COMMAND [flags]\n\nCommands:\n" +
          "\n".join(lines) +
          "\n\n`ultra-tfr COMMAND --help` lists the flags of a command.")


if __name__ == "__main__":
  run()
