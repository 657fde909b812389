"""Data: labelled lists, click logs, label synthesis, made-up data."""

import importlib

from ultra_tfr.data import elwc
from ultra_tfr.data import labels
from ultra_tfr.data import lists
from ultra_tfr.data import synthetic
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.data.prepared.manifest import read_prepared

# Loaded on first use: scikit-learn comes with it.
_ON_FIRST_USE = ("letor", "tfds")

__all__ = ["LogColumns", "elwc", "labels", "letor", "lists", "read_click_log",
           "read_prepared", "synthetic", "tfds"]


def __getattr__(name):
  if name in _ON_FIRST_USE:
    return importlib.import_module(f"{__name__}.{name}")
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
  return sorted({*globals(), *__all__})
