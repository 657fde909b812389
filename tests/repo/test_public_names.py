"""Every dotted name that a user reads is there after `import ultra_tfr`."""

import re
import subprocess
import sys

import program_files

_NAME = re.compile(
    r"(?<![\w./@-])ultra_tfr((?:\.[A-Za-z_]\w*)+)(?![\w.]*\{)")
_FILES = [
    *(program_files.ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted((program_files.ROOT / "docs").rglob("*.md")),
    *sorted((program_files.ROOT / "docs").rglob("*.ipynb")),
    *sorted((program_files.ROOT / "examples").rglob("*.py")),
    *sorted((program_files.ROOT / "ultra_tfr").rglob("*.py")),
]


def _names(path):
  """Dotted names in a file, but for those of import statements."""
  lines = [line for line in path.read_text(encoding="utf-8").splitlines()
           if not re.match(
               r"\s*(>>> )?(from|import) |\w+ = lazy_module\(", line)]
  return sorted({match.group(1)[1:] for match in _NAME.finditer(
      "\n".join(lines))})


def test_names_are_found():
  assert "losses.UnbiasedPairwiseLoss" in _names(_FILES[0])
  assert sum(len(_names(path)) for path in _FILES) > 50


def test_names_resolve(plain_tensorflow, tmp_path):
  names = {f"{path}: {name}" for path in _FILES for name in _names(path)}
  done = plain_tensorflow("""
import functools
import sys
import ultra_tfr
missing = []
for line in sys.argv[1:]:
  try:
    functools.reduce(getattr, line.split(": ")[1].split("."), ultra_tfr)
  except AttributeError:
    missing.append(line)
assert not missing, missing
""", tmp_path, *sorted(names))
  assert done.returncode == 0, done.stderr[-2000:]


def test_heavy_parts_load_on_first_use():
  done = subprocess.run([sys.executable, "-c", """
import sys
import ultra_tfr
parts = ("data", "evaluation", "experiments", "fit_log", "pipeline",
         "simulation")
loaded = [part for part in parts if f"ultra_tfr.{part}" in sys.modules]
assert not loaded, loaded
assert not {"matplotlib", "sklearn"} & set(sys.modules)
assert ultra_tfr.UnbiasedRanker is ultra_tfr.ranker.UnbiasedRanker
for part in parts:
  getattr(ultra_tfr, part)
import ultra_tfr.counterfactual_metrics
assert ultra_tfr.counterfactual_metrics is ultra_tfr.metrics
"""], check=False, capture_output=True, text=True, timeout=200)
  assert done.returncode == 0, done.stderr[-2000:]
