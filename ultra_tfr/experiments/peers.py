"""Peers: LightGBM and XGBoost, trained on the same lists and clicks."""

import dataclasses
import importlib
import json
import time
from typing import Any
from typing import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import checkpoints
from ultra_tfr.experiments import run as run_lib

# Settings are the defaults of LightGBM and those of XGBoost's example for
# clicks, with one exception each, the better of two values. They were chosen by
# the best NDCG@10 on validation labels of synthetic data with data seed 7,
# seed 0, averaged over the weak and the irrelevant logger:
#   LightGBM, learning rate 0.1: (.8715 + .6927) / 2 = .782
#                          0.05: (.8658 + .7056) / 2 = .786
#   XGBoost, lambdarank_normalization on: (.8671 + .5508) / 2 = .709
#                                    off: (.8640 + .6439) / 2 = .754
# With normalization, XGBoost evens out the gradients of queries, and with them
# the weights of positions.

# So many visits of each training list; each is a query group of its own.
_VISITS = 16
_MAX_TREES = 150
_TREES_PER_VALIDATION = 5


class Visits(NamedTuple):
  """What users did with displayed lists, one row for each item.

  Visits follow one another, and the rows of each are in the order of display,
  since XGBoost takes their order for the positions.

  Attributes:
    features: `[R, F]`, raw: trees need no preprocessing.
    clicks: `[R]`, 0 or 1.
    positions: `[R]`, from 1.
    sizes: `[V]`, the items of each visit.
    num_positions: K, the positions that there are.
  """

  features: np.ndarray
  clicks: np.ndarray
  positions: np.ndarray
  sizes: np.ndarray
  num_positions: int


def draw_visits(stream, visits=_VISITS):
  """Draws the clicks of several visits of each list.

  Visits without a click are left out: they have no pair to learn from.

  Args:
    stream: a `FeedbackStream` of clicks.
    visits: of each list.

  Returns:
    `Visits`.

  Raises:
    ValueError: if there is no click at all.

  >>> from ultra_tfr.simulation.click_models import PositionBasedModel
  >>> from ultra_tfr.simulation.feedback_stream import FeedbackStream
  >>> stream = FeedbackStream(
  ...     [[[5.0], [6.0], [0.0]]], [[4.0, 4.0, -1.0]],
  ...     PositionBasedModel([1.0, 1.0]))
  >>> found = draw_visits(stream, visits=2)
  >>> found.features[:, 0].tolist(), found.clicks.tolist()
  ([5.0, 6.0, 5.0, 6.0], [1, 1, 1, 1])
  >>> found.positions.tolist(), found.sizes.tolist()
  ([1, 2, 1, 2], [2, 2])
  """
  clicks = np.concatenate([stream.draw(epoch) for epoch in range(visits)])
  with_click = np.flatnonzero((clicks > 0).any(axis=1))
  if not with_click.size:
    raise ValueError(
        f"There is no click in {visits} visits of {len(stream.labels)} lists, "
        "so there is nothing to learn from; train on more lists.")
  lists = with_click % len(stream.labels)
  shown = stream.labels[lists] >= 0
  visit, place = np.nonzero(shown)
  return Visits(
      stream.features[lists[visit], place],
      (clicks[with_click][shown] > 0).astype(np.int32), place + 1,
      shown.sum(axis=1), stream.labels.shape[1])


class Trees:
  """Boosted trees in the place of a Keras model, of which the first ones count.

  `evaluation.ranking` and `checkpoints.KeepBest` take this as a model, whose
  weights are the number of trees that count.

  Args:
    predict: makes scores `[R]` from features `[R, F]` and a number of trees.
  """

  def __init__(self, predict):
    self._predict = predict
    self._num_trees = _MAX_TREES

  def __call__(self, features, training=False):
    """Scores `[B, L]` of features `[B, L, F]`."""
    del training  # Trees predict as they learn.
    features = np.asarray(features)
    scores = self._predict(
        features.reshape(-1, features.shape[-1]), self._num_trees)
    return tf.reshape(tf.constant(scores, tf.float32), features.shape[:-1])

  def get_weights(self):
    """The number of trees that count, in a list."""
    return [self._num_trees]

  def set_weights(self, weights):
    """Sets the number of trees that count.

    Args:
      weights: as `get_weights` gives them.
    """
    self._num_trees, = weights


@dataclasses.dataclass(frozen=True)
class Peer:
  """A ranker of another library that corrects for positions.

  Attributes:
    summary: one line for people.
    library: the module to import.
    fit: makes, from (module, `Visits`), `Trees` and the weights of positions
      `[K]` that they learned with, or None where the library keeps them.
    feedback: the kinds of feedback that it is for.
  """

  summary: str
  library: str
  fit: Callable[[Any, Visits], tuple]
  feedback: tuple[str, ...] = ("click",)

  def load(self):
    """Imports the library.

    Returns:
      The module.

    Raises:
      ValueError: if that is not possible.
    """
    try:
      return importlib.import_module(self.library)
    # A library that lacks OpenMP raises OSError, or its own ValueError.
    except (ImportError, OSError, ValueError) as error:
      raise ValueError(
          f"{self.library} cannot be imported ({error}); get it with: "
          "pip install 'ultra_tfr[peers]'.") from error

  def can_load(self):
    """Whether the library can be imported."""
    try:
      self.load()
    except ValueError:
      return False
    return True


def run(name, task):
  """Trains a peer and evaluates its best number of trees on the test lists.

  Nothing is random here but the clicks of the task.

  Args:
    name: a key of `PEERS`.
    task: a `task.Task` of clicks.

  Returns:
    An `Outcome` whose model is `Trees`. Its examination is None: LightGBM does
    not give its position effects away, and XGBoost's ratios hold relevance and
    are drawn to 1, see `baselines.pairwise_debiasing.ClickRatios`. (They still
    weight the clicks that pick a number of trees.)

  Raises:
    ValueError: if the library cannot be imported, or there is no click.
  """
  start = time.monotonic()
  peer = PEERS[name]
  trees, curve = peer.fit(peer.load(), draw_visits(task.stream))
  # Steps do not fall with the number of trees, so it is the best number.
  keeper = checkpoints.KeepBest(
      task.valid, task.valid_stream, checkpoints.by_examination(curve),
      slack=0.0)
  keeper.set_model(trees)
  for count in range(
      _TREES_PER_VALIDATION, _MAX_TREES + 1, _TREES_PER_VALIDATION):
    trees.set_weights([count])
    keeper.validate(count)
  keeper.on_train_end()
  picks = {}
  for pick in ("clicks", "labels"):  # Ends with the best by labels.
    keeper.restore(pick)
    scores = ranking.score_lists(trees, task.test)
    picks[pick] = run_lib.Pick(ranking.ndcg(task.test, scores),
                                ranking.ndcg_by_list(task.test, scores))
  return run_lib.Outcome(picks["labels"].metrics, None,
                          time.monotonic() - start, trees, picks)


def _lightgbm(library, visits):
  # One thread, so that results do not depend on the machine.
  settings = {"objective": "lambdarank", "learning_rate": 0.05,
              "num_threads": 1, "deterministic": True, "force_row_wise": True,
              "verbosity": -1}
  data = library.Dataset(
      visits.features, visits.clicks, group=visits.sizes,
      position=visits.positions, params=settings)
  booster = library.train(settings, data, _MAX_TREES)
  # The position effects it learned stay in its C++ objects.
  return Trees(lambda features, count: booster.predict(
      features, num_iteration=count)), None


def _xgboost(library, visits):
  settings = {"objective": "rank:ndcg", "learning_rate": 0.1,
              "tree_method": "hist", "nthread": 1, "verbosity": 0,
              # As in XGBoost's example for clicks, with its number of pairs
              # "slightly higher than k", which also is the number of positions
              # that it corrects.
              "lambdarank_unbiased": True, "lambdarank_bias_norm": 1,
              "lambdarank_normalization": False,
              "lambdarank_pair_method": "topk",
              "lambdarank_num_pair_per_sample": visits.num_positions + 2}
  data = library.QuantileDMatrix(
      visits.features, visits.clicks, group=visits.sizes, nthread=1)
  booster = library.train(settings, data, _MAX_TREES)
  config = json.loads(booster.save_config())
  ratios = np.array(config["learner"]["objective"]["ti+"], np.float64)
  return Trees(lambda features, count: booster.inplace_predict(
      features, iteration_range=(0, count))), ratios[:visits.num_positions]


PEERS = {
    "lightgbm-position": Peer(
        "LightGBM's LambdaRank with an effect of each position", "lightgbm",
        _lightgbm),
    "xgboost-unbiased": Peer(
        "XGBoost's Unbiased LambdaMART", "xgboost", _xgboost),
}
