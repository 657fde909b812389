"""What programs in examples/ print is what they say that they print."""

import ast
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import program_files

_EXAMPLES = program_files.ROOT / "examples"


def _numbers(text):
  return [float(word) for word in re.findall(r"\d+\.?\d*", text)]


def _words(line):
  """A line without its numbers."""
  return re.sub(r"[\d. ]+", "#", line.strip())


@pytest.mark.parametrize("name", [
    *(pytest.param(name, marks=pytest.mark.slow)
      for name in ("custom_loop", "drop_in_loss")),
    *(pytest.param(name, marks=pytest.mark.release)
      for name in ("click_log", "distributed"))])
def test_the_output_is_that_of_the_docstring(name, tmp_path):
  """When a default changed, the figures in docstrings stayed the old ones."""
  path = _EXAMPLES / f"{name}.py"
  text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
  command, expected = re.search(
      r"^    python examples/(.+?)$.*?^Expected output.*?\n\n"
      r"((?:    [^\n]+\n|\n)+)", text, re.M | re.S).groups()
  arguments = [word.replace("/tmp", str(tmp_path))
               for word in shlex.split(command)[1:]]
  done = subprocess.run(
      [sys.executable, str(path), *arguments], capture_output=True, text=True,
      timeout=1800, check=False)
  assert done.returncode == 0, done.stderr[-2000:]
  lines = [line for line in expected.splitlines() if line.strip()]
  printed = {}
  for line in done.stdout.splitlines():
    printed.setdefault(_words(line), []).append(line)
  for line in lines:
    found = printed[_words(line)].pop(0)
    np.testing.assert_allclose(
        _numbers(found), _numbers(line), rtol=0.03, atol=0.03, err_msg=line)
