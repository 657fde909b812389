r"""Seconds per training step as a ratio to TF-Ranking's pairwise loss.

Times `fit` with each loss in turns, several rounds, in one process, so that a
noisy machine touches all alike; prints the median ratio and its range.

Command (about a minute on two cores):

    python examples/benchmarks/step_time.py

Expected output, on two cores with TensorFlow 2.21:

    TF-Ranking, 1 tower              1.00 (1.00 - 1.00)
    no trust bias, 1 tower           1.67 (1.49 - 3.13)
    position trust bias, 1 tower     1.85 (1.51 - 2.85)
    position trust bias, 2 towers    2.50 (2.28 - 2.86)
    the same and the logged order    2.26 (1.98 - 3.13)
    pairwise trust bias, 2 towers    2.54 (2.49 - 3.03)

What differs by less than the ranges is noise.
"""

import statistics
import time

from absl import app
from absl import flags
import numpy as np
import ultra_tfr  # Before TensorFlow Ranking.
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers

_LISTS = flags.DEFINE_integer("batch_size", 256, "Lists in a batch.")
_ITEMS = flags.DEFINE_integer("list_size", 10, "Items in a list.")
_STEPS = flags.DEFINE_integer("steps", 100, "Steps in a round.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds.")

_FEATURES = 136


def _unbiased(trust_bias, heads, logged_order_weight=None):
  bias = ultra_tfr.layers.PositionBias(
      _ITEMS.value, trust_bias=trust_bias,
      logged_order_weight=logged_order_weight)
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
  return loss, heads, [ultra_tfr.callbacks.PropensityEM()]


def _model(loss, heads):
  model = scorers.build_model(_FEATURES, num_heads=heads,
                              hidden_units=(128, 64))
  model.compile("adam", loss)
  return model


def main(_):
  candidates = {
      "TF-Ranking, 1 tower": (tfr.keras.losses.PairwiseLogisticLoss(), 1, []),
      "no trust bias, 1 tower": _unbiased(None, 1),
      "position trust bias, 1 tower": _unbiased("position", 1),
      "position trust bias, 2 towers": _unbiased("position", 2),
      "the same and the logged order": _unbiased(
          "position", 2, ultra_tfr.logged_order.INITIAL_WEIGHT),
      "pairwise trust bias, 2 towers": _unbiased("pairwise", 2),
  }
  rng = np.random.default_rng(0)
  shape = (_LISTS.value, _ITEMS.value)
  features = rng.normal(size=(*shape, _FEATURES)).astype(np.float32)
  clicks = (rng.random(shape) < 0.2).astype(np.float32)
  dataset = tf.data.Dataset.from_tensors((features, clicks)).repeat()
  seconds = {name: [] for name in candidates}
  models = {name: _model(loss, heads)
            for name, (loss, heads, _) in candidates.items()}
  for turn in range(_ROUNDS.value + 1):
    for name, (_, _, callbacks) in candidates.items():
      start = time.perf_counter()
      models[name].fit(dataset, steps_per_epoch=_STEPS.value,
                       callbacks=callbacks, verbose=0)
      if turn:  # The first round compiles.
        seconds[name].append(time.perf_counter() - start)
  base = next(iter(seconds.values()))
  for name, values in seconds.items():
    ratios = [value / other for value, other in zip(values, base)]
    print(f"{name:32} {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} - {max(ratios):.2f})")


if __name__ == "__main__":
  app.run(main)
