"""Where the console script `ultra-tfr` begins.

`import ultra_tfr` loads TensorFlow, so that Keras and TF-Ranking are ready for
use. The command line answers questions and typos before that: it begins with
the package as yet empty, which `ultra_tfr.startup` fills when need be.
"""

import importlib.util
import sys


def run():
  """Runs `ultra_tfr.cli.run`."""
  if "ultra_tfr" not in sys.modules:
    sys.modules["ultra_tfr"] = importlib.util.module_from_spec(
        importlib.util.find_spec("ultra_tfr"))
  importlib.import_module("ultra_tfr.cli").run()


if __name__ == "__main__":
  run()
