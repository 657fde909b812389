"""The initial ranker: whose order the simulated users see."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers


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
