"""Trainings that get killed, for tests: each in a process of its own."""

import signal

import numpy as np

from forked_calls import ForkedCalls

_PROGRAM = """
import signal

import ultra_tfr
import numpy as np
import tensorflow as tf

from ultra_tfr import cli
from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.commands import train
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.feedback_stream import FeedbackStream


def kill_after(count):
  steps, original = [], PropensityEM.on_train_batch_end

  def on_train_batch_end(self, batch, logs=None):
    original(self, batch, logs)
    steps.append(batch)
    if len(steps) == count:
      os.kill(os.getpid(), signal.SIGKILL)

  PropensityEM.on_train_batch_end = on_train_batch_end


def fit(trust_bias, backup_first, folder, out):
  tf.keras.utils.set_random_seed(0)
  rng = np.random.default_rng(0)
  # Seven batches: more than an epoch of Keras.
  stream = FeedbackStream(rng.normal(size=[29, 4, 3]),
                          rng.integers(0, 5, [29, 4]), PositionBasedModel())
  bias = PositionBias(4, trust_bias=trust_bias)
  model = scorers.build_model(3, num_heads=2, hidden_units=[4])
  rate = tf.keras.optimizers.schedules.CosineDecay(0.01, 20)
  model.compile(tf.keras.optimizers.Adam(rate), UnbiasedPairwiseLoss(bias))
  callbacks = [PropensityEM(), tf.keras.callbacks.BackupAndRestore(folder, 3)]
  model.fit(
      stream.dataset(4, start=lambda: model.optimizer.iterations),
      steps_per_epoch=5, epochs=4, verbose=0,
      callbacks=callbacks[::-1] if backup_first else callbacks)
  state = {f"model_{i}": w for i, w in enumerate(model.get_weights())}
  state.update((f"optimizer_{i}", v.numpy())
               for i, v in enumerate(model.optimizer.variables))
  state.update((v.name, v.numpy()) for v in bias.weights)
  state["learning_rate"] = model.optimizer.learning_rate
  np.savez(out, **state)


def act(call):
  if call["kill_after"]:
    kill_after(call["kill_after"])
  if "words" in call:
    cli.run(["ultra-tfr", *call["words"]])
  else:
    fit(*call["fit"])


run_all(act)
"""


def fit(trust_bias, backup_first, folder, out, kill_after=None):
  """A training by `fit`, that writes its final state to a file."""
  return {"fit": [trust_bias, backup_first, folder, out],
          "kill_after": kill_after}


def command(words, kill_after=None):
  """A call of `ultra-tfr`; killed after so many steps of EM, or not."""
  return {"words": words, "kill_after": kill_after}


class Trainings(ForkedCalls):
  """Trainings one after the other, in a folder.

  Args:
    folder: a `pathlib.Path`.
    calls: a dict by name of what `fit` and `command` give.
  """

  def __init__(self, folder, calls):
    super().__init__(folder, _PROGRAM, calls)

  def check_killed(self, name):
    """Asserts that a training was killed."""
    assert self.read(name, "status") == str(-signal.SIGKILL), (
        self.read(name, "err")[-2000:])

  def state(self, name):
    """The final state that a training by `fit` wrote to its file."""
    self.out(name)
    with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
      return dict(arrays)
