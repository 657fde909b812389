"""Methods that others propose: each a loss, with the layer that it learns."""

from ultra_tfr.baselines import dual_learning
from ultra_tfr.baselines import pairwise_debiasing
from ultra_tfr.baselines import pointwise
from ultra_tfr.baselines import shallow_tower

__all__ = ["dual_learning", "pairwise_debiasing", "pointwise", "shallow_tower"]
