"""Trains on a prepared log by two devices, which the CPU is split into.

    python replicas_program.py FOLDER FILE.json
"""

import sys

import ultra_tfr.compat  # noqa: F401  (first: it selects tf.keras)

# isort: split

import tensorflow as tf

from ultra_tfr import distribution
from ultra_tfr import output
from ultra_tfr import trainer
from ultra_tfr.data.prepared import manifest
from ultra_tfr.fit_log import training

SEED, NUM_REPLICAS = 3, 2
SETTINGS = trainer.Settings(
    hidden_units=(8,), relevance_units=(8,), batch_size=32, steps=6,
    validate_every=3, learning_rate=1e-2)


def fit(folder, strategy=None):
  """A `FittedLog` of the log in a folder."""
  return training.fit(manifest.read_prepared(folder), "unbiased", SETTINGS,
                      seed=SEED, strategy=strategy)


def main():
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * NUM_REPLICAS)
  folder, file = sys.argv[1:]
  fitted = fit(folder, distribution.make_strategy(distribution.MIRRORED))
  output.write(file, {"bias": fitted.bias.to_config(),
                      "history": fitted.history})


if __name__ == "__main__":
  main()
