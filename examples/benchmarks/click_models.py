r"""Seconds and error of an examination curve: EM here, and CLAX's gradients.

Both fit the position-based model to the same simulated clicks, with a number
for each pair of a query and a document instead of a ranker: the loss
`RegressionEMLoss` with `PropensityEM`, and `PositionBasedModel` of CLAX (Hager,
Zoeter and de Rijke, 2025), a library for JAX. Batches, epochs, Adam and its
learning rate are the same. They take turns in one process, several rounds, each
after a fit of one batch, which compiles. The error of a curve is the mean over
positions 2 to 10 of its distance from the truth, relative to position 1.

Commands (about two minutes on two cores):

    pip install '.[bench]'
    python examples/benchmarks/click_models.py

Expected output: a Markdown table of seconds, as medians over rounds with their
range, the ratio to the first row in each round, likewise, and the error.
"""

import contextlib
import importlib.metadata
import io
import statistics
import time

from absl import app
from absl import flags
import clax
from flax import nnx
from flax.training import early_stopping
import numpy as np
import optax
import ultra_tfr  # Before TensorFlow.
import tensorflow as tf

from ultra_tfr.experiments import tables

_REQUESTS = flags.DEFINE_integer("requests", 100000, "Lists of ten documents.")
_QUERIES = flags.DEFINE_integer("queries", 500, "Queries of 20 documents each.")
_EPOCHS = flags.DEFINE_integer("epochs", 5, "Times that each list is seen.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 512, "Lists in a batch.")
_RATE = flags.DEFINE_float("learning_rate", 0.01, "Of Adam.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the clicks.")

_POSITIONS, _DOCUMENTS = 10, 20
EXAMINATION = 1 / np.arange(1, _POSITIONS + 1)


def simulate(requests, queries, seed):
  """Lists that a poor ranker ordered, so that documents move, and clicks.

  Args:
    requests: R, how many lists.
    queries: how many different queries they are for.
    seed: of all that is random.

  Returns:
    Numbers of pairs of query and document, `[R, 10]` int32, and clicks,
    `[R, 10]` float32.
  """
  rng = np.random.default_rng(seed)
  attraction = rng.beta(1, 3, size=[queries, _DOCUMENTS])
  query = rng.integers(queries, size=[requests, 1])
  scores = attraction[query[:, 0]] + rng.normal(
      scale=0.3, size=[requests, _DOCUMENTS])
  shown = np.argsort(-scores, axis=1)[:, :_POSITIONS]
  chances = EXAMINATION * attraction[query, shown]
  return ((query * _DOCUMENTS + shown).astype(np.int32),
          (rng.random(chances.shape) < chances).astype(np.float32))


class Ours:
  """EM by batches, and a cross-entropy against what it infers."""

  def __init__(self, pairs, learning_rate, epochs):
    self._epochs = epochs
    self._bias = ultra_tfr.layers.PositionBias(_POSITIONS, trust_bias=None)
    self._model = tf.keras.Sequential([
        tf.keras.layers.Embedding(
            pairs, 1, embeddings_initializer="zeros", input_length=_POSITIONS),
        tf.keras.layers.Reshape([_POSITIONS])])
    self._model.compile(
        tf.keras.optimizers.Adam(learning_rate),
        ultra_tfr.baselines.pointwise.RegressionEMLoss(self._bias))

  def fit(self, pairs, clicks, batch_size):
    """Trains on lists, from where the last call ended."""
    self._model.fit(
        pairs, clicks, batch_size, self._epochs, shuffle=False, verbose=0,
        callbacks=[ultra_tfr.callbacks.PropensityEM()])

  def curve(self):
    """Examination relative to position 1, `[10]`."""
    return self._bias.propensities()["examination"]


class Clax:
  """Gradients of the likelihood of clicks."""

  def __init__(self, pairs, learning_rate, epochs):
    self._model = clax.PositionBasedModel(
        positions=_POSITIONS, query_doc_pairs=pairs, rngs=nnx.Rngs(0))
    self._trainer = clax.Trainer(
        optax.adam(learning_rate), epochs,
        early_stopping.EarlyStopping(patience=epochs))

  def fit(self, pairs, clicks, batch_size):
    """Trains on lists, from where the last call ended."""
    positions = np.arange(1, _POSITIONS + 1)
    batches = [
        {"query_doc_ids": part, "clicks": clicked,
         "positions": np.broadcast_to(positions, part.shape),
         "mask": np.ones(part.shape, bool)}
        for start in range(0, len(pairs), batch_size)
        for part, clicked in [(pairs[start:start + batch_size],
                               clicks[start:start + batch_size])]]
    with contextlib.redirect_stdout(io.StringIO()):  # It draws its progress.
      self._trainer.train(self._model, batches, batches[:1])

  def curve(self):
    """Examination relative to position 1, `[10]`."""
    found = np.ravel(self._model.examination.prob(
        {"positions": np.arange(1, _POSITIONS + 1)[np.newaxis]}))
    return found / found[0]


def measure(compared, pairs, clicks, batch_size, rounds):
  """Fits in turns.

  Args:
    compared: functions that make an object with `fit` and `curve`, by name.
    pairs: `[R, 10]`, see `simulate`.
    clicks: likewise.
    batch_size: lists in a batch.
    rounds: how often each is fitted.

  Returns:
    A dict by name of lists with an entry for each round: tuples of seconds and
    the error of the curve.
  """
  found = {name: [] for name in compared}
  for _ in range(rounds):
    for name, make in compared.items():
      fitted = make()
      fitted.fit(pairs[:batch_size], clicks[:batch_size], batch_size)
      start = time.perf_counter()
      fitted.fit(pairs, clicks, batch_size)
      seconds = time.perf_counter() - start
      error = np.abs(fitted.curve() - EXAMINATION)[1:].mean()
      found[name].append((seconds, error))
  return found


def _range(values, digits):
  middle, low, high = (f"{value:.{digits}f}" for value in (
      statistics.median(values), min(values), max(values)))
  return f"{middle} ({low} - {high})"


def main(_):
  size = _BATCH_SIZE.value
  # Whole batches only: one of another size would be compiled anew.
  requests = max(1, _REQUESTS.value // size) * size
  pairs, clicks = simulate(requests, _QUERIES.value, _SEED.value)
  arguments = _QUERIES.value * _DOCUMENTS, _RATE.value, _EPOCHS.value
  name = f"CLAX {importlib.metadata.version('clax-models')}"
  found = measure(
      {name: lambda: Clax(*arguments), "EM": lambda: Ours(*arguments)},
      pairs, clicks, size, _ROUNDS.value)
  base = [seconds for seconds, _ in next(iter(found.values()))]
  print(tables.to_markdown([
      ["", "seconds", "ratio", "error of the curve"],
      *([name, _range([seconds for seconds, _ in rounds], 1),
         _range([seconds / other for (seconds, _), other in zip(rounds, base)],
                2),
         _range([error for _, error in rounds], 4)]
        for name, rounds in found.items())]))


if __name__ == "__main__":
  app.run(main)
