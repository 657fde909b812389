r"""Peak memory of a training step, in tensors of a number for each pair.

Each row is a size of lists, each column a loss. A cell is the peak of the
resident memory above that of the same training with lists of ten items, divided
by the bytes of one float32 tensor `[lists, items, items]`. Each is measured in
a process of its own, with a ranker of one small layer, so that pairs are what
takes the memory. The step is built before, for lists of any size: that takes as
much memory as ten such tensors of 32 lists of 200 items.

Command (some minutes):

    python examples/benchmarks/memory.py

Expected output: a Markdown table that grows by a row for each size. For one of
them:

    python examples/benchmarks/memory.py --list_sizes=200
"""

from concurrent import futures
import multiprocessing
import resource

from absl import app
from absl import flags
import numpy as np
import ultra_tfr  # Before TensorFlow Ranking.
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers
from ultra_tfr.experiments import tables

_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Lists in a batch.")
_LIST_SIZES = flags.DEFINE_list(
    "list_sizes", ["200", "500", "1000"], "Items in a list.")
_LOSSES = flags.DEFINE_list(
    "losses", ["TF-Ranking", "None", "position", "pairwise", "auto"],
    "TF-Ranking's pairwise loss, and ours by the `trust_bias` of its layer.")
_LAMBDA = flags.DEFINE_boolean(
    "lambda_weight", False, "With TF-Ranking's lambda weight for NDCG.")
_JIT = flags.DEFINE_boolean("jit_compile", False, "Compile steps by XLA.")

_FEATURES, _FEW_ITEMS = 8, 10


def _resident():
  """Bytes of this process that are in memory now, and that were at most."""
  with open("/proc/self/statm") as file:
    now = int(file.read().split()[1]) * resource.getpagesize()
  return now, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(name, batch_size, list_size, has_lambda, jit_compile):
  """Peak memory of training steps, in bytes.

  Args:
    name: of the loss, as in --losses.
    batch_size: lists.
    list_size: items.
    has_lambda: whether there is a lambda weight.
    jit_compile: whether XLA compiles the step.

  Returns:
    Bytes above those that short lists need.
  """
  metric = tfr.keras.losses.NDCGLambdaWeight() if has_lambda else None
  heads, callbacks = {"num_heads": 1}, []
  if name == "TF-Ranking":
    loss = tfr.keras.losses.PairwiseLogisticLoss(lambda_weight=metric)
  else:
    bias = ultra_tfr.layers.PositionBias(
        list_size, trust_bias=None if name == "None" else name)
    loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias, lambda_weight=metric)
    heads = {"num_heads": 2, "num_relevance": len(bias.models)}
    callbacks = [ultra_tfr.callbacks.PropensityEM()]
  model = scorers.build_model(_FEATURES, hidden_units=[8], **heads)
  model.compile("adam", loss, jit_compile=jit_compile)
  rng = np.random.default_rng(0)

  def fit(items):
    features = rng.normal(size=(batch_size, items, _FEATURES)).astype("float32")
    clicks = (rng.random((batch_size, items)) < 0.2).astype("float32")
    model.fit(tf.data.Dataset.from_tensors((features, clicks)).repeat(),
              steps_per_epoch=3, callbacks=callbacks, verbose=0)

  fit(_FEW_ITEMS)
  # With a second size Keras builds the step again, for all sizes.
  fit(_FEW_ITEMS + 1)
  before, _ = _resident()
  fit(list_size)
  return _resident()[1] - before


def main(_):
  print(tables.to_markdown([["lists x items", *_LOSSES.value]]), flush=True)
  for items in map(int, _LIST_SIZES.value):
    row = [f"{_BATCH_SIZE.value} x {items}"]
    for name in _LOSSES.value:
      with futures.ProcessPoolExecutor(
          1, multiprocessing.get_context("spawn")) as alone:
        peak = alone.submit(measure, name, _BATCH_SIZE.value, items,
                            _LAMBDA.value, _JIT.value).result()
      row.append(f"{peak / (4 * _BATCH_SIZE.value * items**2):.1f} "
                 f"({peak / 2**30:.2f} GiB)")
    print(tables.to_markdown([["", *_LOSSES.value], row]).splitlines()[-1],
          flush=True)


if __name__ == "__main__":
  app.run(main)
