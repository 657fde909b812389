"""Trainings that get killed, for tests: each in a process of its own."""

import json
import os
import signal
import subprocess
import sys

import numpy as np

# Imports TensorFlow once and forks for each training.
_RUN_ALL = """
import importlib
import json
import os
import signal
import sys
import traceback

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


for number, call in enumerate(json.load(open("calls.json"))):
  child = os.fork()
  if not child:
    for descriptor, kind in ((1, "out"), (2, "err")):
      file = os.open(f"{number}.{kind}", os.O_WRONLY | os.O_CREAT)
      os.dup2(file, descriptor)
    code = 0
    try:
      if call["kill_after"]:
        kill_after(call["kill_after"])
      if "words" in call:
        cli.run(["ultra-tfr", *call["words"]])
      else:
        fit(*call["fit"])
    except SystemExit as end:
      code = end.code
    except BaseException:
      traceback.print_exc()
      code = 1
    for stream in (sys.stdout, sys.stderr):
      stream.flush()
    os._exit(code or 0)
  status = os.waitpid(child, 0)[1]
  with open(f"{number}.status", "w") as file:
    file.write(str(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else
                   os.WEXITSTATUS(status)))
"""


def fit(trust_bias, backup_first, folder, out, kill_after=None):
  """A training by `fit`, that writes its final state to a file."""
  return {"fit": [trust_bias, backup_first, folder, out],
          "kill_after": kill_after}


def command(words, kill_after=None):
  """A call of `ultra-tfr`; killed after so many steps of EM, or not."""
  return {"words": words, "kill_after": kill_after}


class Trainings:
  """Trainings one after the other, in a folder.

  Args:
    folder: a `pathlib.Path`.
    calls: a dict by name of what `fit` and `command` give.
  """

  def __init__(self, folder, calls):
    self.folder = folder
    self._numbers = {name: number for number, name in enumerate(calls)}
    (folder / "calls.json").write_text(json.dumps(list(calls.values())))
    with subprocess.Popen(
        [sys.executable, "-c", _RUN_ALL], cwd=folder, stderr=subprocess.PIPE,
        text=True, start_new_session=True) as process:
      try:
        _, errors = process.communicate(timeout=400)
      finally:
        # With all that it forked.
        if process.poll() is None:
          os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-2000:]

  def read(self, name, kind):
    """The output `out` or `err`, or the `status` of a training."""
    return (self.folder / f"{self._numbers[name]}.{kind}").read_text()

  def check_killed(self, name):
    """Asserts that a training was killed."""
    assert self.read(name, "status") == str(-signal.SIGKILL), (
        self.read(name, "err")[-2000:])

  def out(self, name):
    """The output of a training that came to its end."""
    assert self.read(name, "status") == "0", self.read(name, "err")[-2000:]
    return self.read(name, "out")

  def state(self, name):
    """The final state that a training by `fit` wrote to its file."""
    self.out(name)
    with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
      return dict(arrays)
