"""Unbiased learning to rank from clicks and other feedback, on TF-Ranking."""

# All modules with Keras objects are imported, so that `load_model` knows them.
from ultra_tfr import compat  # First: it makes TF-Ranking importable.
from ultra_tfr import callbacks
from ultra_tfr import counterfactual_metrics
from ultra_tfr import data
from ultra_tfr.baselines import dual_learning
from ultra_tfr import layers
from ultra_tfr import log_model
from ultra_tfr import logged_order
from ultra_tfr import losses
from ultra_tfr import metrics
from ultra_tfr.baselines import pairwise_debiasing
from ultra_tfr.baselines import pointwise
from ultra_tfr import scorers
from ultra_tfr.baselines import shallow_tower
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.version import __version__

__all__ = [
    "__version__",
    "callbacks",
    "compat",
    "counterfactual_metrics",
    "data",
    "dual_learning",
    "layers",
    "log_model",
    "logged_order",
    "losses",
    "metrics",
    "pack_feedback",
    "pairwise_debiasing",
    "pointwise_losses",
    "scorers",
    "shallow_tower",
    "unpack_feedback",
]
