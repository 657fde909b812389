"""Saves models with what their bias layers learned, and loads them again.

    python saving_program.py OUT.json

For each strategy, each way of having bias layers and each format it writes what
became of the propensities: "kept", "lost", or the words of the refusal.
"""

import itertools
import json
import os
import sys
import tempfile

import ultra_tfr.compat  # noqa: F401  (first: it selects tf.keras)

# isort: split

import numpy as np
import tensorflow as tf

from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

STRATEGIES = ("one_device", "mirrored", "loaded_out_of_scope")
LAYERS = ("one", "two", "shared")
WHOLE = (".keras", "_saved_model", ".h5")
WEIGHTS = (".weights.h5", "_weights", "_weights.h5", "_checkpoint")
FORMATS = WHOLE + WEIGHTS


def _build(layers):
  inputs = tf.keras.Input([4, 3])
  outputs = {
      head: tf.keras.layers.Reshape([4])(tf.keras.layers.Dense(1)(inputs))
      for head in ("buy", "click")}
  bias = PositionBias(4, name="bias", num_contexts=2)
  losses = {"click": UnbiasedPairwiseLoss(bias)}
  if layers == "one":
    outputs = {"click": outputs["click"]}
  else:
    other = bias if layers == "shared" else PositionBias(
        4, name="other", trust_bias="pairwise")
    losses["buy"] = UnbiasedPairwiseLoss(other)
  model = tf.keras.Model(inputs, outputs)
  model.compile("sgd", losses)
  return model


def _learned(model):
  """The variables of all bias layers, each once; accumulators are empty."""
  found = {}
  for head in sorted(model.loss):
    for variable in model.loss[head].position_bias.weights:
      if "sum_" not in variable.name and "collect" not in variable.name:
        found.setdefault(id(variable), variable)
  return list(found.values())


def _values(model):
  return [variable.numpy() for variable in _learned(model)]


def _save(model, path, kind):
  if kind in WHOLE:
    model.save(path)
  elif kind == "_checkpoint":
    tf.train.Checkpoint(model=model).write(path)
  else:
    model.save_weights(path)


def _load(layers, path, kind):
  if kind in WHOLE:
    return tf.keras.models.load_model(path)
  model = _build(layers)
  PropensityEM().set_model(model)
  if kind == "_checkpoint":
    tf.train.Checkpoint(model=model).read(path).expect_partial()
  else:
    model.load_weights(path)
  return model


def outcomes(folder):
  """What becomes of what was learned, by strategy, layers and format."""
  # Several in one process disturb each other.
  mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
  found, rng = {}, np.random.default_rng(0)
  for layers, name in itertools.product(LAYERS, ("one_device", "mirrored")):
    strategy = mirrored if name == "mirrored" else tf.distribute.get_strategy()
    with strategy.scope():
      model = _build(layers)
    PropensityEM().set_model(model)
    for variable in _learned(model):
      variable.assign(rng.uniform(.1, .9, variable.shape))
    for kind in FORMATS:
      path = os.path.join(folder, f"{layers}_{name}{kind}")
      places = {name: strategy}
      if name == "mirrored":
        places["loaded_out_of_scope"] = tf.distribute.get_strategy()
      try:
        _save(model, path, kind)
      except ValueError as error:
        found.update({f"{place} {layers} {kind}": str(error)
                      for place in places})
        continue
      for place, scope in places.items():
        with scope.scope():
          again = _values(_load(layers, path, kind))
        kept = len(again) == len(_values(model)) and all(
            map(np.array_equal, again, _values(model)))
        found[f"{place} {layers} {kind}"] = "kept" if kept else "lost"
  return found


def main(path):
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * 2)
  with tempfile.TemporaryDirectory() as folder, open(path, "w") as file:
    json.dump(outcomes(folder), file)


if __name__ == "__main__":
  main(sys.argv[1])
