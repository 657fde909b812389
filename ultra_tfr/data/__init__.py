"""Data: labelled lists, click logs, label synthesis, made-up data."""

from ultra_tfr.data import elwc
from ultra_tfr.data import labels
from ultra_tfr.data import synthetic
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.data.prepared.manifest import read_prepared

__all__ = ["LogColumns", "elwc", "labels", "read_click_log", "read_prepared",
           "synthetic"]
