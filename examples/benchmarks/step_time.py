r"""Seconds of a training step, as ratios to TF-Ranking's pairwise loss.

Each row is a setting, each column a loss. TF-Ranking's model has as many towers
as ours: with two the second one is trained on clicks by a cross-entropy, as
relevance is by ours. `fit` runs with each loss in turns, several rounds, in one
process, so that a noisy machine touches all alike; a cell is the median of the
rounds' ratios and, in brackets, their range. Smaller differences are noise.
Without an accelerator it is the processor's time of one thread, which other
work on the machine changes little, else the time that passes.

Command (about a quarter of an hour on two quiet cores):

    python examples/benchmarks/step_time.py

Expected output: a Markdown table that grows by a row for each setting. For one
of them:

    python examples/benchmarks/step_time.py --list_sizes=10 --towers=128-64
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
from ultra_tfr.experiments import tables

_BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Lists in a batch.")
_LIST_SIZES = flags.DEFINE_list(
    "list_sizes", ["10", "50", "200"], "Items in a list.")
_TOWERS = flags.DEFINE_list(
    "towers", ["0", "128-64", "512-256-128"],
    "Sizes of the hidden layers of each tower; 0 for none.")
_ITEMS = flags.DEFINE_integer(
    "items_in_all", 51200, "Fewer lists in a batch where they are so long.")
_SECONDS = flags.DEFINE_float("seconds", 1.0, "Of a round of a loss, about.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds.", lower_bound=1)
_JIT = flags.DEFINE_boolean("jit_compile", False, "Compile steps by XLA.")

_FEATURES = 136
_ON_CPU = not (tf.config.list_physical_devices("GPU") or
               tf.config.list_physical_devices("TPU"))
_clock = time.process_time if _ON_CPU else time.perf_counter
PEER, DEFAULT = "TF-Ranking, 2 towers", "all hypotheses"


def _ours(num_positions, trust_bias, **options):
  """Loss, callbacks and heads with one relevance logit for each hypothesis."""
  bias = ultra_tfr.layers.PositionBias(
      num_positions, trust_bias=trust_bias, **options)
  return (ultra_tfr.losses.UnbiasedPairwiseLoss(bias),
          [ultra_tfr.callbacks.PropensityEM()],
          dict(num_heads=2, num_relevance=len(bias.models)))


def _peer(num_towers):
  pairwise = tfr.keras.losses.PairwiseLogisticLoss()
  relevance = tf.keras.losses.BinaryCrossentropy(from_logits=True)

  def loss(y_true, y_pred):
    if num_towers == 1:
      return pairwise(y_true, y_pred)
    return pairwise(y_true, y_pred[..., 0]) + relevance(y_true, y_pred[..., 1])

  return loss, [], dict(num_heads=num_towers)


def candidates(num_positions):
  """What is compared: a dict by name, the first one is the base."""
  return {
      PEER: _peer(2),
      "TF-Ranking, 1 tower": _peer(1),
      "no trust bias": _ours(num_positions, None),
      "position trust bias": _ours(num_positions, "position"),
      "pairwise trust bias": _ours(num_positions, "pairwise"),
      DEFAULT: _ours(num_positions, "auto"),
      "the same and the logged order": _ours(
          num_positions, "auto",
          logged_order_weight=ultra_tfr.logged_order.INITIAL_WEIGHT),
  }


def measure(compared, batch_size, list_size, hidden_units, rounds=5,
            seconds=2.0, jit_compile=False):
  """Ratios of step times to those of the first of `compared`.

  Args:
    compared: a dict by name of loss, callbacks and arguments of
      `scorers.build_model`.
    batch_size: lists.
    list_size: items.
    hidden_units: of each tower.
    rounds: how often each is timed.
    seconds: about, of a round of one of them.
    jit_compile: whether XLA compiles the step.

  Returns:
    A dict by name of a list of ratios, one a round.
  """
  rng = np.random.default_rng(0)
  shape = (batch_size, list_size)
  features = rng.normal(size=(*shape, _FEATURES)).astype(np.float32)
  clicks = (rng.random(shape) < 0.2).astype(np.float32)
  dataset = tf.data.Dataset.from_tensors((features, clicks)).repeat()
  models = {}

  def fit(name, steps):
    start = _clock()
    models[name].fit(dataset, steps_per_epoch=steps,
                     callbacks=compared[name][1], verbose=0)
    return (_clock() - start) / steps

  for name, (loss, _, arguments) in compared.items():
    models[name] = scorers.build_model(
        _FEATURES, hidden_units=hidden_units, **arguments)
    models[name].compile("adam", loss, jit_compile=jit_compile)
    fit(name, 2)  # Compiles.
  steps = max(3, round(seconds / fit(next(iter(compared)), 3)))
  ratios = {name: [] for name in compared}
  for _ in range(rounds):
    found = {name: fit(name, steps) for name in compared}
    base = found[next(iter(compared))]
    for name, value in found.items():
      ratios[name].append(value / base)
  return ratios


def main(_):
  if _ON_CPU:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
  head = ["lists x items", "towers", *candidates(1)]
  print(tables.to_markdown([head]), flush=True)
  for list_size in map(int, _LIST_SIZES.value):
    batch_size = min(_BATCH_SIZE.value, _ITEMS.value // list_size)
    for towers in _TOWERS.value:
      ratios = measure(
          candidates(list_size), batch_size, list_size,
          [int(size) for size in towers.split("-") if size != "0"],
          _ROUNDS.value, _SECONDS.value, _JIT.value)
      row = [f"{batch_size} x {list_size}", towers, *(
          f"{statistics.median(values):.2f} "
          f"({min(values):.2f} - {max(values):.2f})"
          for values in ratios.values())]
      print(tables.to_markdown([head, row]).splitlines()[-1], flush=True)


if __name__ == "__main__":
  app.run(main)
