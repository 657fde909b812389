"""The data of an experiment: displayed lists with simulated users."""

import dataclasses
from typing import Optional

import numpy as np

from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments.loggers import logger_scores
from ultra_tfr.simulation.click_models import CLICK_MODELS
from ultra_tfr.simulation.feedback_stream import FeedbackStream


@dataclasses.dataclass(frozen=True)
class Task:
  """Displayed lists with simulated users, and labelled lists to judge by.

  Attributes:
    stream: what the users were shown, and what they do.
    valid: `RankingLists` for the choice of the checkpoint.
    test: `RankingLists` for the result.
    train_features: `[D, F]`, from which preprocessing takes mean and variance.
    true_examination: `[K]`, or None where the click model has no such curve.
    valid_stream: what the same users were shown of the validation lists, for
      the choice of a checkpoint without labels.
  """

  stream: FeedbackStream
  valid: RankingLists
  test: RankingLists
  train_features: np.ndarray
  true_examination: Optional[np.ndarray]
  valid_stream: FeedbackStream

  @property
  def num_positions(self):
    """Displayed positions."""
    return self.stream.labels.shape[1]


def true_curve(click_model, num_positions):
  """The examination by position `[K]` of a click model that has one, or None.

  Args:
    click_model: a `simulation.click_models` model.
    num_positions: K.
  """
  if not hasattr(click_model, "examination"):
    return None
  return click_model.examination(num_positions)


def make_click_model(lists, names, name):
  """Simulated users for labelled lists, such as those of LETOR files.

  Args:
    lists: for each file its `RankingLists`, or None without one.
    names: of the files, for the messages.
    name: a key of `CLICK_MODELS`.

  Returns:
    A click model that knows the highest grade of all files.

  Raises:
    ValueError: if a label is no whole grade, or above 100.
  """
  for part, path in zip(lists, names):
    odd = part.labels[part.labels != np.round(part.labels)] if part else ()
    if len(odd):
      raise ValueError(
          f"{path}: labels must be whole grades, from which clicks are "
          f"simulated, but there is {odd[0]:g}; round them.")
    if part:
      ranking.check_grades(path, part.labels)
  grades = int(max(part.labels.max() for part in lists if part))
  return CLICK_MODELS[name](max_grade=max(grades, 1))


def make_task(train, valid, test, click_model, *, feedback="click",
              num_positions=10, logger="weak", initial_fraction=0.01, seed=0):
  """Shows the top of a logging policy's lists to simulated users.

  Args:
    train: `RankingLists` with true labels.
    valid: `RankingLists`.
    test: `RankingLists`.
    click_model: a `simulation.click_models` model.
    feedback: `"click"` or `"dwell"`.
    num_positions: how many documents of a list are displayed.
    logger: the policy, see `experiments.loggers.logger_scores`.
    initial_fraction: share of the training queries whose labels the weak
      logger sees.
    seed: of the policy and the feedback.

  Returns:
    A `Task`.
  """
  streams = []
  for lists, scores in zip((train, valid), logger_scores(
      train, (train, valid), logger, initial_fraction, seed)):
    shown = lists.sort_by(scores, top=num_positions)
    features, labels = shown.pad(num_positions)
    streams.append(
        FeedbackStream(features, labels, click_model, feedback, seed))
  return Task(streams[0], valid, test, train.features,
              true_curve(click_model, num_positions), streams[1])
