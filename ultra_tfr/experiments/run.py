"""Training one named method on simulated feedback, and judging the result."""

from collections.abc import Mapping
import contextlib
import dataclasses
import os
import time
from typing import Optional

from absl import logging
import numpy as np
import tensorflow as tf

from ultra_tfr import methods
from ultra_tfr import output
from ultra_tfr import scorers
from ultra_tfr import trainer
from ultra_tfr.bias import MAX_WEIGHT
from ultra_tfr.bias import debiased_feedback
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import checkpoints
from ultra_tfr.experiments import runs
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.logged_order import LoggedOrderGuard


@dataclasses.dataclass(frozen=True)
class Pick:
  """The quality of the checkpoint that one kind of choice leads to.

  Attributes:
    metrics: NDCG on the test lists, `{"ndcg@10": ..}`.
    by_query: `[Q]`, NDCG@10 of each test query with a relevant document.
  """

  metrics: dict[str, float]
  by_query: np.ndarray


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of one training.

  Attributes:
    metrics: NDCG on the test lists, `{"ndcg@10": ..}`, of the checkpoint that
      is best on validation labels.
    examination: `[K]`, the estimated curve relative to position 1 after the
      last step (not that of the best checkpoint), or None for a method that
      estimates none.
    seconds: wall time.
    model: the Keras model with the weights of the best validation.
    picks: a `Pick` for each kind of choice of the checkpoint: `"labels"`, or
      `"clicks"` of simulated users, corrected by what the method knows of
      positions.
  """

  metrics: dict[str, float]
  examination: Optional[np.ndarray]
  seconds: float
  model: tf.keras.Model
  picks: Mapping[str, Pick] = dataclasses.field(default_factory=dict)


def run(name, task, settings, *, feedback="click", seed=0, model_dir=None,
        verbose=0):
  """Trains a method and evaluates its best checkpoint on the test lists.

  Args:
    name: a key of `methods.METHODS`.
    task: a `Task`.
    settings: `Settings`.
    feedback: what the stream of the task gives, `"click"` or `"dwell"`.
    seed: of the initialisation.
    model_dir: a folder for checkpoints, TensorBoard logs and the exported
      ranker, or None; it must be empty, or of such a training. Until the end it
      has a backup, from which another call with the same arguments goes on with
      the same result, except for the random numbers of dropout and of sampled
      targets.
    verbose: as in Keras's `fit`.

  Returns:
    An `Outcome`, with the time of this call alone.
  """
  with (contextlib.nullcontext() if model_dir is None else
        runs.open_folder(model_dir)) as folder:
    with output.errors_of(folder and os.fspath(folder)):
      return _run(name, task, settings, feedback, seed, folder, verbose)


def _run(name, task, settings, feedback, seed, folder, verbose):
  start = time.monotonic()
  if folder is not None:
    runs.begin(folder)
  method = methods.find(name)
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(
      task.train_features.shape[1],
      scorers.feature_preprocessing(task.train_features),
      **method.model_arguments(settings))
  loss, bias, callbacks = method.build(
      task.num_positions, feedback, task.true_examination)
  method.start(model, bias, _highest_click_rate(task.stream))

  def curve():
    if method.knows_examination:
      return task.true_examination
    if method.estimates_examination:
      return bias.propensities()["examination"]
    return None

  def debias(values):
    if isinstance(bias, PositionBias) and not bias.is_fixed:
      return debiased_feedback(
          bias, *unpack_feedback(values), max_weight=MAX_WEIGHT)
    return checkpoints.by_examination(curve())(values)

  keeper = checkpoints.KeepBest(
      task.valid, task.valid_stream, debias, folder)
  validators = [keeper]
  if method.has_guard:
    validators.append(LoggedOrderGuard(keeper.held_out))
  if folder is None:
    callbacks = [*callbacks, *validators]
  else:
    # The backup comes after the validators, so that it holds only epochs whose
    # validation is written; and before EM, which looks at the tables that an
    # epoch begins with, and must find the restored ones.
    callbacks = [
        *validators, checkpoints.Backup(folder), *callbacks,
        *trainer.tensorboard(os.path.join(folder, "logs"), bias)]
  trainer.fit(
      model, loss,
      task.stream.dataset(settings.batch_size, method.learn_from,
                          start=lambda: model.optimizer.iterations),
      settings, callbacks, verbose)
  examination = curve() if method.estimates_examination else None
  if folder is not None:
    with folder.staged() as stage:
      scorers.export_ranker(model, os.path.join(stage, "model"))
    logging.info("Exported the ranking model to %s.",
                 os.path.join(folder, "model"))
  picks = {"labels": _judge(model, task.test)}
  if keeper.picks_agree():
    picks["clicks"] = picks["labels"]
  else:
    keeper.restore("clicks")
    picks["clicks"] = _judge(model, task.test)
    keeper.restore("labels")
  outcome = Outcome(picks["labels"].metrics, examination,
                    time.monotonic() - start, model, picks)
  if folder is not None:
    runs.finish(folder, {
        "metrics": outcome.metrics, "examination": examination,
        "seconds": outcome.seconds})
  return outcome


def _judge(model, lists):
  """The `Pick` of a model's present weights."""
  scores = ranking.score_lists(model, lists)
  return Pick(ranking.ndcg(lists, scores), ranking.ndcg_by_list(lists, scores))


def _highest_click_rate(stream):
  """The share of feedback at the position that gets it most often."""
  feedback = stream.draw(0)
  shown = np.maximum((feedback >= 0).sum(axis=0), 1)
  return ((feedback > 0).sum(axis=0) / shown).max()
