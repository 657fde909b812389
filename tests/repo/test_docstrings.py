"""Runs the examples in the docstrings of all modules."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import ultra_tfr

_NAMES = {"np": np, "tf": tf, "tfr": tfr, "ultra_tfr": ultra_tfr}
_MODULES = ["ultra_tfr"] + [
    info.name
    for info in pkgutil.walk_packages(ultra_tfr.__path__, "ultra_tfr.")]
# NumPy 2 shows a scalar as `np.float32(0.6)`, NumPy 1 as `0.6`.
_PRINT_AS_NUMPY_1 = (
    {"legacy": "1.25"} if np.lib.NumpyVersion(np.__version__) >= "2.0.0"
    else {})


@pytest.mark.parametrize("name", _MODULES)
def test_examples_run(name, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)  # Examples may write files.
  with np.printoptions(**_PRINT_AS_NUMPY_1):
    failed, _ = doctest.testmod(
        importlib.import_module(name), extraglobs=_NAMES,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
  assert not failed, capsys.readouterr().out
