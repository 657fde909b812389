"""Simulated feedback: click models, dwell time, streams, a shop's log."""

from ultra_tfr.simulation import click_models
from ultra_tfr.simulation.feedback_stream import FeedbackStream
from ultra_tfr.simulation.shop_log import simulate_log

__all__ = ["FeedbackStream", "click_models", "simulate_log"]
