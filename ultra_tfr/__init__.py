"""Unbiased learning to rank from clicks and other feedback, on TF-Ranking."""

from ultra_tfr import compat  # First: it makes TF-Ranking importable.
from ultra_tfr import callbacks
from ultra_tfr import counterfactual_metrics
from ultra_tfr import data
from ultra_tfr import layers
from ultra_tfr import losses
from ultra_tfr import metrics
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.version import __version__

__all__ = [
    "__version__",
    "callbacks",
    "compat",
    "counterfactual_metrics",
    "data",
    "layers",
    "losses",
    "metrics",
    "pack_feedback",
    "unpack_feedback",
]
