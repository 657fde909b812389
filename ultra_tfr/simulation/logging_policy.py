"""Logging policies: whose order the simulated users see."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import arguments
from ultra_tfr import scorers
from ultra_tfr.evaluation import ranking
from ultra_tfr.evaluation.estimates import centred_ranks

LOGGERS = ("irrelevant", "random", "weak", "strong")
# A ranker that sees all labels is good after a few passes over them.
_STRONG_EPOCHS = 5


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
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(
      lists.num_features, scorers.feature_preprocessing(few.features),
      hidden_units=hidden_units)
  model.compile(tf.keras.optimizers.Adam(1e-3),
                tfr.keras.losses.PairwiseLogisticLoss())
  model.fit(features, labels, batch_size=8, epochs=epochs, verbose=0)
  return model


def logger_scores(train, lists, logger="weak", fraction=0.01, seed=0):
  """Scores by which a logging policy orders lists.

      "irrelevant"  by the feature whose order agrees least with the labels
      "random"      by chance, one order for each list
      "weak"        by a ranker fitted on the labels of few queries
      "strong"      by such a ranker fitted on the labels of all

  The less the order has to do with relevance, the easier debiasing is.

  Args:
    train: `RankingLists` that the policy is made from.
    lists: a list of `RankingLists` to order.
    logger: see above.
    fraction: of the queries whose labels the weak ranker sees.
    seed: of what is random.

  Returns:
    A list of `[D]` scores, for each of `lists`.

  Raises:
    ValueError: if there is no such policy.
  """
  arguments.check_choice("logger", logger, LOGGERS)
  if logger == "random":
    rng = np.random.default_rng((seed, 1))
    return [rng.random(len(part.labels)) for part in lists]
  if logger == "irrelevant":
    feature = least_relevant_feature(train)
    return [part.features[:, feature] for part in lists]
  options = {} if logger == "weak" else {"epochs": _STRONG_EPOCHS}
  ranker = fit_initial_ranker(
      train, fraction if logger == "weak" else 1.0, seed=seed,
      **options)
  return [ranking.score_lists(ranker, part) for part in lists]


def least_relevant_feature(lists):
  """The feature whose order within lists agrees least with the labels.

  Args:
    lists: `RankingLists` with true labels.

  Returns:
    The index of the feature with the least absolute correlation of ranks
    within lists, among those that differ within some list.

  Raises:
    ValueError: if no feature differs within a list.

  >>> from ultra_tfr.data.lists import RankingLists
  >>> lists = RankingLists([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0], [3.0, 4.0]],
  ...                      [0, 1, 2, 3], [0, 4], ["q"])
  >>> least_relevant_feature(lists)
  1
  """
  query = np.repeat(np.arange(len(lists)), lists.list_sizes)
  labels = centred_ranks(query, lists.labels)
  best, least = None, np.inf
  for feature in range(lists.num_features):
    ranks = centred_ranks(query, lists.features[:, feature])
    spread = np.sqrt(ranks @ ranks * (labels @ labels))
    if spread > 0 and abs(ranks @ labels) / spread < least:
      best, least = feature, abs(ranks @ labels) / spread
  if best is None:
    raise ValueError(
        "No feature differs within a list, so lists cannot be ordered by one; "
        "take another logger than 'irrelevant'.")
  return best
