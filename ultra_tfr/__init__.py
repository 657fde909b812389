"""Unbiased learning to rank from clicks and other feedback, on TF-Ranking."""

import importlib
import sys

# All modules with Keras objects are imported, so that `load_model` knows them.
from ultra_tfr import compat  # First: it makes TF-Ranking importable.
from ultra_tfr import baselines
from ultra_tfr import callbacks
from ultra_tfr import layers
from ultra_tfr import losses
from ultra_tfr import metrics
from ultra_tfr import scorers
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.version import __version__

# Loaded on first use, since they bring readers, SciPy and plots.
_ON_FIRST_USE = ("data", "evaluation", "experiments", "fit_log", "logged_order",
                 "methods", "pipeline", "ranker", "simulation", "trainer")

# A class that loads so, and its module: scikit-learn comes with it.
_CLASSES_ON_FIRST_USE = {"UnbiasedRanker": "ranker"}

# The name of this module in 0.1.0.
counterfactual_metrics = metrics
sys.modules[f"{__name__}.counterfactual_metrics"] = metrics

__all__ = [
    "UnbiasedRanker",
    "__version__",
    "baselines",
    "callbacks",
    "compat",
    "counterfactual_metrics",
    "data",
    "evaluation",
    "experiments",
    "fit_log",
    "layers",
    "logged_order",
    "losses",
    "methods",
    "metrics",
    "pack_feedback",
    "pipeline",
    "scorers",
    "simulation",
    "trainer",
    "unpack_feedback",
]


def __getattr__(name):
  if name in _ON_FIRST_USE:
    return importlib.import_module(f"{__name__}.{name}")
  if name in _CLASSES_ON_FIRST_USE:
    module = __getattr__(_CLASSES_ON_FIRST_USE[name])
    return getattr(module, name)
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
  return sorted({*globals(), *__all__})
