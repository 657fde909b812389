"""The choice of a checkpoint, by true labels or by clicks, and the backup."""

import glob
import os

import numpy as np
import tensorflow as tf

from ultra_tfr import output
from ultra_tfr.bias import MAX_WEIGHT
from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking
from ultra_tfr.evaluation import held_out
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import runs
from ultra_tfr.feedback import ranking_head

PICKS = ("labels", "clicks")
# So many visits of each validation list. In 1,000 batches of the default
# training lists of the synthetic data have as many.
VISITS = 128
_BATCH_LISTS = 1024


class KeepBest(tf.keras.callbacks.Callback):
  """Validates at the end of each epoch and remembers the best weights.

  `"labels"` is NDCG@10 on true labels; `"clicks"` is the self-normalised DCG@10
  of simulated clicks on the lists that users saw, with the bias taken out as
  far as the method knows it. (Of other feedback it is whether there was any, as
  for `LoggedOrderGuard`.) Values by clicks compare only if they are by the
  same propensities: logs have values by the propensities of the moment, but at
  the end all validations are judged again by the last ones. These values are
  noisy, so the choice is `evaluation.held_out.last_as_good`. Training ends with
  the best weights by labels.

  With a folder, the best weights by labels are written to `checkpoints/best` in
  it, and all that is remembered to a file that the next object reads: so a
  training that was killed goes on with what it had. Put this callback before
  the backup.

  Args:
    valid: `RankingLists` with true labels.
    valid_stream: `FeedbackStream` of the same lists as users saw them.
    debias: a function of `[B, K]` clicks, -1 in padding, that gives
      estimates and mask as `bias.debiased_feedback` does, by the propensities
      of the moment; None for clicks as they are.
    folder: an existing one, or None.
    slack: as in `last_as_good`; 0 for a training whose steps do not fall.

  Attributes:
    held_out: batches of (features, visits) of what users clicked, see
      `evaluation.held_out.mean_estimates`.
  """

  def __init__(self, valid, valid_stream, debias=None, folder=None,
               slack=2.0):
    super().__init__()
    self._folder = folder
    self._valid, self._debias = valid, debias or by_examination(None)
    visits = [np.sign(valid_stream.draw(epoch)) for epoch in range(VISITS)]
    self.held_out = [
        (valid_stream.features[rows], [feedback[rows] for feedback in visits])
        for rows in (slice(start, start + _BATCH_LISTS)
                     for start in range(0, len(visits[0]), _BATCH_LISTS))]
    self._best_value = -np.inf
    # The step that each kind of choice picked.
    self._picked = dict.fromkeys(PICKS)
    self._checkpoints = held_out.Checkpoints(slack)
    # Validations up to this step were read from the folder.
    self._counted = 0
    if folder is not None:
      self._read()

  def on_epoch_end(self, epoch, logs=None):
    """Validates."""
    del epoch
    self.validate(int(self.model.optimizer.iterations), logs)

  def validate(self, step, logs=None):
    """Judges the model as it is, and remembers it.

    Args:
      step: how many batches the model has learned from, or trees it has.
      logs: a dict to put the values into, or None.
    """
    value = ranking.evaluate(self.model, self._valid, (10,))["ndcg@10"]
    if logs is not None:
      logs["val_ndcg@10"] = value
      dcg, gain = self._judge_by_clicks()
      logs["val_snips_dcg@10"] = (
          float(dcg.sum() / gain.sum()) if gain.any() else 0.0)
    if step <= self._counted:
      return
    self._checkpoints.keep(step, self.model.get_weights())
    if value > self._best_value:
      self._best_value, self._picked["labels"] = value, step
    if self._folder is not None:
      if step == self._picked["labels"]:
        self.model.save_weights(
            os.path.join(self._folder, "checkpoints", "best"))
      self._write(step)

  def on_train_end(self, logs=None):
    """Judges by clicks, and ends with the best weights by labels."""
    del logs
    self._picked["clicks"] = self._checkpoints.choose(self._judge_step)
    self.restore("labels")

  def restore(self, pick):
    """Gives the model the picked weights; without a pick they stay.

    Args:
      pick: `"labels"`, or after training `"clicks"`.
    """
    step = self._picked[pick]
    if step is not None:
      self.model.set_weights(self._checkpoints.weights(step))

  def picks_agree(self):
    """Whether labels and clicks chose the same weights."""
    return len(set(self._picked.values())) == 1

  def _write(self, step):
    arrays = {"step": step, "best": self._best_value,
              "labels": self._picked["labels"] or 0}
    for kept in self._checkpoints.steps:
      arrays.update({f"{kept}_{i}": array for i, array in enumerate(
          self._checkpoints.weights(kept))})
    with output.new_file(os.path.join(self._folder, runs.BEST), "wb") as file:
      np.savez(file, **arrays)

  def _read(self):
    path = os.path.join(self._folder, runs.BEST)
    if not os.path.exists(path):
      return
    try:
      self._read_arrays(path)
    # What a damaged file raises is not known beforehand.
    except Exception as error:
      raise runs.damaged(path, error) from error

  def _read_arrays(self, path):
    with np.load(path, allow_pickle=False) as arrays:
      self._counted = int(arrays["step"])
      self._best_value = float(arrays["best"])
      self._picked["labels"] = int(arrays["labels"]) or None
      names = [name.split("_") for name in arrays if "_" in name]
      for kept in {step for step, _ in names}:
        count = sum(step == kept for step, _ in names)
        self._checkpoints.keep(
            int(kept), [arrays[f"{kept}_{i}"] for i in range(count)])

  def _judge_step(self, step):
    self.model.set_weights(self._checkpoints.weights(step))
    return self._judge_by_clicks()

  def _judge_by_clicks(self):
    """DCG and gain of each list, `[N]`, by the propensities of the moment."""
    def ranking(features, visits):
      scores = ranking_head(self.model(features, training=False))
      return [scores], *held_out.mean_estimates(self._debias, visits)

    (dcg,), gain = held_out.judge(ranking(*batch) for batch in self.held_out)
    return dcg, gain


def by_examination(examination):
  """Makes a function that takes known examination out of feedback.

  Args:
    examination: `[K]`, or None for 1 everywhere.

  Returns:
    A function of `[B, K]` feedback that gives `[B, K]` estimates and mask.
  """
  relative = tf.constant(
      1.0 if examination is None else
      np.asarray(examination) / examination[0], tf.float32)

  def debias(feedback):
    mask = masking.valid_items(feedback)
    estimates, _, _ = counterfactual.relevance_estimates(
        feedback, mask, relative, max_weight=MAX_WEIGHT)
    return estimates, mask

  return debias


class Backup(tf.keras.callbacks.BackupAndRestore):
  """Backs up after each epoch, and says where a training goes on.

  The backup stays when `fit` ends, since what comes after it may be killed too.

  Args:
    folder: the folder of the training; the backup is `backup` in it.
  """

  def __init__(self, folder):
    super().__init__(
        os.path.join(folder, runs.BACKUP), delete_checkpoint=False)

  def on_train_begin(self, logs=None):
    """Restores the last backup, if there is one."""
    try:
      super().on_train_begin(logs)
      step = int(self.model.optimizer.iterations)
      if not step and glob.glob(os.path.join(
          glob.escape(self.backup_dir), "**", "checkpoint"), recursive=True):
        raise ValueError("it names no checkpoint that is there")
    # What a damaged file raises is not known beforehand.
    except Exception as error:
      raise runs.damaged(
          self.backup_dir, str(error).partition("\n")[0]) from error
    if step:
      print(f"Resuming at step {step}, from {self.backup_dir}.", flush=True)
