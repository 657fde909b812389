"""A ranker and the bias of a click log: fit, load, diagnose, evaluate.

    log = ultra_tfr.data.read_click_log("log.parquet", columns)
    fitted = ultra_tfr.fit_log.fit(log, "unbiased", settings)
"""

from ultra_tfr.fit_log.diagnosis import diagnose
from ultra_tfr.fit_log.evaluation import LOGGED
from ultra_tfr.fit_log.evaluation import LogEvaluator
from ultra_tfr.fit_log.training import FittedLog
from ultra_tfr.fit_log.training import fit
from ultra_tfr.fit_log.training import load
from ultra_tfr.trainer import Settings

__all__ = ["LOGGED", "FittedLog", "LogEvaluator", "Settings", "diagnose", "fit",
           "load"]
