"""TF-Ranking's Keras pipeline for biased feedback, from files to serving."""

from ultra_tfr.pipeline.dataset import TENSORS
from ultra_tfr.pipeline.dataset import FeedbackDatasetBuilder
from ultra_tfr.pipeline.fit import LOSS
from ultra_tfr.pipeline.fit import UnbiasedPipeline

__all__ = ["LOSS", "TENSORS", "FeedbackDatasetBuilder", "UnbiasedPipeline"]
