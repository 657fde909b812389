r"""What EM adds to a training step: the M step, and many contexts.

The first table has the milliseconds that `PropensityEM` adds to a batch: the
gate, and the M step. In each `fit`, one a round, it learns from 20 batches and
leaves 20 alone, in turns, since other work on the machine changes the time of a
step by more than that; a round has the difference of the medians. The second
table has seconds of a step with tables for each context, as ratios to one
context, with `fit` for each setting in turns. Cells are medians of the rounds
and, in brackets, their range. Without an accelerator it is the processor's time
of one thread, which other work changes little, else the time that passes.

Command (some minutes):

    python examples/benchmarks/em_time.py

Expected output: two Markdown tables. On two busy cores the callback adds about
.3 milliseconds, and 100 contexts cost no more than one.
"""

import statistics
import time

from absl import app
from absl import flags
import numpy as np
import ultra_tfr
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.experiments import tables

_CONTEXTS = flags.DEFINE_list(
    "contexts", ["1", "100", "1000"], "Numbers of contexts.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Lists in a batch.")
_LIST_SIZE = flags.DEFINE_integer("list_size", 50, "Items in a list.")
_STEPS = flags.DEFINE_integer("steps", 50, "Of a round of a setting.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds.", lower_bound=1)

_FEATURES, _TOWER = 136, (128, 64)
_ON_CPU = not (tf.config.list_physical_devices("GPU") or
               tf.config.list_physical_devices("TPU"))
_clock = time.process_time if _ON_CPU else time.perf_counter


class Turns(ultra_tfr.callbacks.PropensityEM):
  """Learns from some batches and not from others, in turns, and times them."""

  RUN = 20

  def __init__(self):
    super().__init__()
    self._times, self._start = {True: [], False: []}, None
    self._learns = True

  def on_train_batch_begin(self, batch, logs=None):
    """The end of the batch before, too."""
    now = _clock()
    # A first batch comes after what begins an epoch.
    if batch > 1:
      self._times[self._learns].append(now - self._start)
    self._start, self._learns = now, batch // self.RUN % 2 == 0
    if self._learns:
      super().on_train_batch_begin(batch, logs)

  def on_train_batch_end(self, batch, logs=None):
    """Leaves a batch alone if it is its turn."""
    if self._learns:
      super().on_train_batch_end(batch, logs)

  def take_difference(self):
    """Seconds that it added to a batch, of all batches since the last call."""
    with_one, without = map(statistics.median, (
        self._times[True], self._times[False]))
    self._times = {True: [], False: []}
    return with_one - without


def make_fit(num_contexts, batch_size, list_size, has_turns=False):
  """A model that learns, as a function of steps.

  Args:
    num_contexts: of its bias layer.
    batch_size: lists.
    list_size: items.
    has_turns: whether it learns from some batches only.

  Returns:
    A function that gives seconds a step, or those of an M step.
  """
  rng = np.random.default_rng(0)
  shape = batch_size, list_size
  features = rng.normal(size=(*shape, _FEATURES)).astype(np.float32)
  feedback = ultra_tfr.pack_feedback(
      (rng.random(shape) < 0.2).astype(np.float32),
      np.tile(np.arange(list_size) + 1, (batch_size, 1)),
      np.tile(rng.integers(num_contexts, size=[batch_size, 1]), list_size))
  dataset = tf.data.Dataset.from_tensors((features, feedback)).repeat()
  bias = ultra_tfr.layers.PositionBias(
      list_size, num_contexts=num_contexts, trust_bias="position")
  model = scorers.build_model(_FEATURES, hidden_units=_TOWER, num_heads=2)
  model.compile("adam", ultra_tfr.losses.UnbiasedPairwiseLoss(bias))
  callback = Turns() if has_turns else ultra_tfr.callbacks.PropensityEM()

  def fit(steps):
    start = _clock()
    model.fit(dataset, steps_per_epoch=steps, callbacks=[callback], verbose=0)
    seconds = (_clock() - start) / steps
    return callback.take_difference() if has_turns else seconds

  fit(2 * Turns.RUN + 2 if has_turns else 2)  # Compiles.
  return fit


def measure(settings, steps, rounds):
  """Seconds of a step, `[rounds]` by name, of a dict of functions `fit`."""
  found = {name: [] for name in settings}
  for _ in range(rounds):
    for name, fit in settings.items():
      found[name].append(fit(steps))
  return {name: np.array(values) for name, values in found.items()}


def _cell(values, digits=2):
  return (f"{statistics.median(values):.{digits}f} "
          f"({min(values):.{digits}f} - {max(values):.{digits}f})")


def main(_):
  if _ON_CPU:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
  size = _BATCH_SIZE.value, _LIST_SIZE.value
  # Small lists, so that little else takes time.
  found = measure({"gate and M step": make_fit(1, 16, 10, has_turns=True)},
                  20 * _STEPS.value, _ROUNDS.value)
  print(tables.to_markdown([["", "milliseconds"], *(
      [name, _cell(1000 * values)] for name, values in found.items())]),
        flush=True)
  counts = [int(count) for count in _CONTEXTS.value]
  found = measure({count: make_fit(count, *size) for count in counts},
                  _STEPS.value, _ROUNDS.value)
  print()
  print(tables.to_markdown([
      [f"contexts, {size[0]} x {size[1]}", "ratio"],
      *([f"{count:,}", _cell(found[count] / found[counts[0]])]
        for count in counts)]))


if __name__ == "__main__":
  app.run(main)
