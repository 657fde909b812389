"""Training one named method on simulated feedback, and judging the result."""

import dataclasses
import os
import time
from typing import Optional

from absl import logging
import numpy as np
import tensorflow as tf

from ultra_tfr import methods
from ultra_tfr import scorers
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import ranking
from ultra_tfr.simulation.feedback_stream import FeedbackStream
from ultra_tfr.simulation.logging_policy import fit_initial_ranker

MONITOR = "ndcg@10"


@dataclasses.dataclass(frozen=True)
class Settings:
  """What all methods share, so that they compete on equal terms.

  Attributes:
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.
    batch_size: lists in a batch.
    steps: batches in all.
    learning_rate: of Adam at the start; it falls to 0 by a cosine.
    validate_every: steps between two validations, a Keras epoch; fewer steps
      than that are validated once.

  Raises:
    ValueError: if the steps are not a whole number of epochs.
  """

  hidden_units: tuple[int, ...] = (512, 256, 128)
  activation: str = "elu"
  layer_norm: bool = True
  dropout: float = 0.0
  batch_size: int = 256
  steps: int = 2000
  learning_rate: float = 1e-3
  validate_every: int = 100

  def __post_init__(self):
    if self.steps > self.validate_every and self.steps % self.validate_every:
      raise ValueError(
          f"`steps` ({self.steps}) must be a multiple of `validate_every` "
          f"({self.validate_every}), so that the last checkpoint is validated "
          "too; change one of them.")


@dataclasses.dataclass(frozen=True)
class Task:
  """Displayed lists with simulated users, and labelled lists to judge by.

  Attributes:
    stream: what the users were shown, and what they do.
    valid: `RankingLists` for the choice of the checkpoint.
    test: `RankingLists` for the result.
    train_features: `[D, F]`, of which the preprocessing takes mean and
      variance.
    true_examination: `[K]`, or None where the click model has no such curve.
  """

  stream: FeedbackStream
  valid: RankingLists
  test: RankingLists
  train_features: np.ndarray
  true_examination: Optional[np.ndarray]

  @property
  def num_positions(self):
    """Displayed positions."""
    return self.stream.labels.shape[1]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What came out of one training.

  Attributes:
    metrics: NDCG on the test lists, `{"ndcg@10": ..}`.
    examination: `[K]`, the estimated curve relative to position 1 after the
      last step (not that of the best checkpoint), or None for a method that
      estimates none.
    seconds: wall time.
    model: the Keras model with the weights of the best validation.
  """

  metrics: dict[str, float]
  examination: Optional[np.ndarray]
  seconds: float
  model: tf.keras.Model


def true_curve(click_model, num_positions):
  """The examination by position `[K]` of a click model that has one, or None.

  Args:
    click_model: a `simulation.click_models` model.
    num_positions: K.
  """
  if not hasattr(click_model, "examination"):
    return None
  return click_model.examination(num_positions)


def make_task(train, valid, test, click_model, *, feedback="click",
              num_positions=10, initial_fraction=0.01, seed=0):
  """Shows the top of an initial ranker's lists to simulated users.

  Args:
    train: `RankingLists` with true labels.
    valid: `RankingLists`.
    test: `RankingLists`.
    click_model: a `simulation.click_models` model.
    feedback: `"click"` or `"dwell"`.
    num_positions: how many documents of a list are displayed.
    initial_fraction: share of the training queries whose labels the initial
      ranker sees.
    seed: of the initial ranker and the feedback.

  Returns:
    A `Task`.
  """
  initial = fit_initial_ranker(train, initial_fraction, seed=seed)
  shown = train.sort_by(ranking.score_lists(initial, train), top=num_positions)
  features, labels = shown.pad(num_positions)
  stream = FeedbackStream(features, labels, click_model, feedback, seed)
  return Task(stream, valid, test, train.features,
              true_curve(click_model, num_positions))


def run(name, task, settings, *, feedback="click", seed=0, model_dir=None,
        verbose=0):
  """Trains a method and evaluates its best checkpoint on the test lists.

  Args:
    name: a key of `methods.METHODS`.
    task: a `Task`.
    settings: `Settings`.
    feedback: what the stream of the task gives, `"click"` or `"dwell"`.
    seed: of the initialisation.
    model_dir: where checkpoints, TensorBoard logs and the exported ranker go,
      or None.
    verbose: as in Keras's `fit`.

  Returns:
    An `Outcome`.
  """
  start = time.monotonic()
  method = methods.find(name)
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(
      task.train_features.shape[1],
      scorers.feature_preprocessing(task.train_features), method.num_heads,
      settings.hidden_units, settings.activation, settings.layer_norm,
      settings.dropout)
  loss, bias, callbacks = method.build(
      task.num_positions, feedback, task.true_examination)
  rate = tf.keras.optimizers.schedules.CosineDecay(
      settings.learning_rate, settings.steps)
  model.compile(tf.keras.optimizers.Adam(rate), loss)
  callbacks = [*callbacks, _KeepBest(task.valid)]
  if model_dir is not None:
    # After `_KeepBest`, which puts the validation result into the logs.
    callbacks += [
        tf.keras.callbacks.ModelCheckpoint(
            os.path.join(model_dir, "checkpoints", "best"), f"val_{MONITOR}",
            mode="max", save_best_only=True, save_weights_only=True),
        tf.keras.callbacks.TensorBoard(
            os.path.join(model_dir, "logs"), write_graph=False)]
  steps_per_epoch = min(settings.validate_every, settings.steps)
  model.fit(
      task.stream.dataset(settings.batch_size, method.learn_from),
      steps_per_epoch=steps_per_epoch,
      epochs=settings.steps // steps_per_epoch, callbacks=callbacks,
      verbose=verbose)
  examination = None
  if method.estimates_examination:
    examination = bias.propensities()["examination"]
  if model_dir is not None:
    exported = os.path.join(model_dir, "model")
    scorers.export_ranker(model, exported)
    logging.info("Exported the ranking model to %s.", exported)
  return Outcome(ranking.evaluate(model, task.test), examination,
                 time.monotonic() - start, model)


class _KeepBest(tf.keras.callbacks.Callback):
  """Validates on true labels each epoch and ends with the best weights."""

  def __init__(self, valid):
    super().__init__()
    self._valid = valid
    self._best, self._weights = -1.0, None

  def on_epoch_end(self, epoch, logs=None):
    del epoch
    value = ranking.evaluate(self.model, self._valid, (10,))[MONITOR]
    if logs is not None:
      logs[f"val_{MONITOR}"] = value
    if value > self._best:
      self._best, self._weights = value, self.model.get_weights()

  def on_train_end(self, logs=None):
    del logs
    if self._weights is not None:
      self.model.set_weights(self._weights)
