"""Judging rankers and bias estimates."""

from ultra_tfr.evaluation import counterfactual
from ultra_tfr.evaluation import harvesting
from ultra_tfr.evaluation import ranking

__all__ = ["counterfactual", "harvesting", "ranking"]
