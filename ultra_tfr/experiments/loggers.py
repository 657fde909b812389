"""Logging policies: whose order the simulated users see."""

import math

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import checks
from ultra_tfr import choices
from ultra_tfr import scorers
from ultra_tfr.evaluation import ranking
from ultra_tfr.evaluation.bootstrap import centred_ranks

LOGGERS = choices.LOGGERS
# The training of the strong ranker: passes over the queries, the most batches,
# lists in a batch, and the most documents of a list in a batch, drawn anew each
# time. So neither time nor memory grows with a collection or its longest list.
_EPOCHS, _MAX_STEPS, _BATCH_LISTS, _BATCH_SIZE = 16, 2000, 32, 100
# So many lists are enough to tell a feature that does not matter.
_MAX_LISTS = 1000
# A feature orders lists if the spread of its ranks is this share of the spread
# without ties.
_MIN_SPREAD = 0.5


def fit_initial_ranker(lists, fraction=0.01, *, hidden_units=(32,), epochs=60,
                       seed=0):
  """Fits a ranker on the true labels of few queries.

  Args:
    lists: `RankingLists` with true labels.
    fraction: share of the queries to use, at least one of them.
    hidden_units: of its tower.
    epochs: passes over these queries.
    seed: of the choice of queries and the initialisation.

  Returns:
    A Keras model from `[B, L, F]` to `[B, L]`.
  """
  rng = np.random.default_rng(seed)
  count = max(1, round(fraction * len(lists)))
  few = lists.select(rng.choice(len(lists), count, replace=False))
  features, labels = few.pad()
  model = _ranker(few, hidden_units, 1e-3, seed)
  model.fit(features, labels, batch_size=8, epochs=epochs, verbose=0)
  return model


def fit_strong_ranker(lists, *, hidden_units=(128, 64), seed=0):
  """Fits a ranker on the true labels of all queries.

  On 2,000 queries of 24 documents this takes ten seconds on two cores, and is
  as good on other queries as the oracles that `experiments.run.run` fits.

  Args:
    lists: `RankingLists` with true labels.
    hidden_units: of its tower.
    seed: of the initialisation and of the order of queries.

  Returns:
    A Keras model from `[B, L, F]` to `[B, L]`.
  """
  size = min(_BATCH_LISTS, len(lists))
  steps = min(math.ceil(_EPOCHS * len(lists) / size), _MAX_STEPS)

  def batches():
    rng = np.random.default_rng(seed)
    while True:
      order = rng.permutation(len(lists))
      # Lists left over come up in other passes, which have another order.
      for start in range(0, len(order) - size + 1, size):
        chosen = lists.select(order[start:start + size])
        draw = rng.random(len(chosen.labels))
        yield chosen.sort_by(draw, top=_BATCH_SIZE).pad()

  model = _ranker(lists, hidden_units,
                  tf.keras.optimizers.schedules.CosineDecay(1e-3, steps), seed)
  model.fit(
      tf.data.Dataset.from_generator(batches, output_signature=(
          tf.TensorSpec([None, None, lists.num_features]),
          tf.TensorSpec([None, None]))).prefetch(tf.data.AUTOTUNE),
      steps_per_epoch=steps, verbose=0)
  return model


def _ranker(lists, hidden_units, learning_rate, seed):
  """A ranker that is ready to learn from the lists."""
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(
      lists.num_features, scorers.feature_preprocessing(lists.features),
      hidden_units=hidden_units)
  model.compile(tf.keras.optimizers.Adam(learning_rate),
                tfr.keras.losses.PairwiseLogisticLoss())
  # Keras traces a step twice if the optimizer makes its variables in it.
  model.optimizer.build(model.trainable_variables)
  return model


def logger_scores(train, lists, logger="weak", fraction=0.01, seed=0):
  """Scores by which a logging policy orders lists.

      "irrelevant"  by the feature of `least_relevant_feature`, the highest
                    first and equal ones by chance
      "random"      by chance, one order for each list
      "weak"        by a ranker fitted on the labels of few queries
      "strong"      by a ranker fitted on the labels of all queries

  The less the order has to do with relevance, the easier debiasing is.

  Args:
    train: `RankingLists` that the policy is made from.
    lists: a list of `RankingLists` to order.
    logger: see above.
    fraction: share of the queries whose labels the weak ranker sees.
    seed: of what is random; the feature is the same for all seeds.

  Returns:
    A list of `[D]` scores, for each of `lists`.

  Raises:
    ValueError: if there is no such policy.
  """
  checks.check_choice("logger", logger, LOGGERS)
  if logger in ("random", "irrelevant"):
    # Other numbers than those of the clicks, which have the same seed.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    draws = [rng.random(len(part.labels)) for part in lists]
    if logger == "random":
      return draws
    feature = least_relevant_feature(train)
    return [_places(part.features[:, feature], draw)
            for part, draw in zip(lists, draws)]
  if logger == "weak":
    ranker = fit_initial_ranker(train, fraction, seed=seed)
  else:
    ranker = fit_strong_ranker(train, seed=seed)
  return [ranking.score_lists(ranker, part) for part in lists]


def _places(values, draw):
  """Numbers in the order of values; the draw orders equal values.

  Equal scores would keep the order of the file, and that may be by relevance.
  """
  places = np.empty(len(values))
  places[np.lexsort((draw, values))] = np.arange(len(values))
  return places


def least_relevant_feature(lists):
  """The feature whose order within lists agrees least with the labels.

  What counts is the correlation, whatever its sign, of ranks within lists, over
  1,000 evenly spaced lists; equal values share a rank, and ranks are divided by
  the length of the list. A feature that hardly orders lists, since it has few
  values, does not qualify: the spread of its ranks must be half of that without
  ties, or else, if no feature reaches that, the largest there is.

  Args:
    lists: `RankingLists` with true labels.

  Returns:
    The index of the feature.

  Raises:
    ValueError: if no feature differs within a list.

  >>> from ultra_tfr.data.lists import RankingLists
  >>> lists = RankingLists([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0], [3.0, 4.0]],
  ...                      [0, 1, 2, 3], [0, 4], ["q"])
  >>> least_relevant_feature(lists)
  1
  """
  orderable = np.flatnonzero(lists.list_sizes > 1)
  places = np.linspace(0, len(orderable) - 1, min(len(orderable), _MAX_LISTS))
  lists = lists.select(orderable[np.unique(places.astype(int))])
  sizes = lists.list_sizes
  query = np.repeat(np.arange(len(lists)), sizes)
  labels = centred_ranks(query, lists.labels) / sizes[query]
  spread, agreement = np.zeros([2, lists.num_features])
  for feature in range(lists.num_features):
    ranks = centred_ranks(query, lists.features[:, feature]) / sizes[query]
    spread[feature], agreement[feature] = ranks @ ranks, abs(ranks @ labels)
  if not spread.any():
    raise ValueError(
        "No feature differs within a list, so lists cannot be ordered by one; "
        "take another logger than 'irrelevant'.")
  without_ties = np.sum((sizes ** 2 - 1) / (12 * sizes))
  orders = spread >= min(_MIN_SPREAD * without_ties, spread.max())
  correlation = agreement / np.sqrt(np.where(orders, spread, 1.0))
  return int(np.argmin(np.where(orders, correlation, np.inf)))
