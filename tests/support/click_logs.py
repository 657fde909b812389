"""Small click logs with known truth, and models fitted to them, for tests."""

import functools
import os
import tempfile

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ultra_tfr import trainer
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.data.click_log.values import hashes
from ultra_tfr.fit_log import training
from ultra_tfr.simulation.shop_log import simulate_log

POSITIONS = (1, 2, 3, 5, 8)
FEATURES = ("f_*", "category", "brand", "is_new")
SETTINGS = trainer.Settings(
    hidden_units=(32, 16), batch_size=128, steps=180, validate_every=60,
    learning_rate=5e-3)
SHORT = trainer.Settings(
    hidden_units=(8,), batch_size=64, steps=6, validate_every=3,
    learning_rate=1e-2)


def columns(feedback="click", features=FEATURES, context="device",
            item="item_id", weight=None, randomized=None):
  """The columns of a simulated log."""
  return LogColumns(
      query="request_id", position="rank", feedback=feedback,
      features=features, context=context, item=(item,) if item else (),
      weight=weight, timestamp="timestamp", randomized=randomized)


def read(table, **options):
  """A `ClickLog` of a table, by way of a Parquet file.

  Args:
    table: a `pyarrow.Table`.
    **options: of `read_click_log`.
  """
  options.setdefault("columns", None if "schema" in options else columns())
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "log.parquet")
    parquet.write_table(table, path)
    return read_click_log(path, **options)


@functools.cache
def simulated(logger="weak", num_requests=6000, randomized=0.2, seed=3):
  """A table and its `LogTruth`."""
  return simulate_log(num_requests, positions=POSITIONS, num_items=400,
                      logger=logger, randomized=randomized, seed=seed)


@functools.cache
def easy():
  """A log from which everything can be learned, and a `FittedLog`."""
  log = read(simulated()[0], columns=columns(randomized="randomized"))
  return log, training.fit(log, "unbiased", SETTINGS)


@functools.cache
def small():
  """A short log, without use but for its form."""
  return simulate_log(400, positions=POSITIONS, num_items=60, seed=1)[0]


def with_column(table, name, values):
  """The table with a column added or replaced."""
  if name in table.column_names:
    table = table.drop_columns([name])
  return table.append_column(name, pa.array(values))


def true_curve(truth, device):
  """Examination relative to the first position."""
  return truth.examination[device] / truth.examination[device][0]


def values(curve, part="value"):
  """A curve of a diagnosis as an array, NaN for None."""
  return np.array(curve[part], np.float64)


def attraction(truth, batch):
  """The true attraction `[B, L]` of the items of a `LoggedBatch`."""
  ids = hashes(truth.catalogue["item_id"].combine_chunks())
  order = np.argsort(ids)
  place = np.searchsorted(ids[order], batch.items)
  return truth.item_attraction[order][np.minimum(place, len(ids) - 1)]
