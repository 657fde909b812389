"""Data: labelled lists, click logs, label synthesis, made-up data."""

from ultra_tfr.data.click_log import read_click_log
from ultra_tfr.data.log_columns import LogColumns

__all__ = ["LogColumns", "read_click_log"]
