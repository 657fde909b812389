"""Imports programs outside of the package, such as examples, as modules."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(path):
  """The module of a program, given by its path in the repository."""
  spec = importlib.util.spec_from_file_location(
      pathlib.Path(path).stem, ROOT / path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module
