"""Debiasing pays on true labels, also where biased clicks say otherwise."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking
from ultra_tfr.simulation import click_models


def _true_ndcg(model, features, labels):
  metric = on_ranking(tfr.keras.metrics.NDCGMetric(topn=10))
  metric.update_state(tf.constant(labels, tf.float32), model(features))
  return float(metric.result())


@pytest.mark.parametrize("seed", [
    pytest.param(0, marks=pytest.mark.slow),
    *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
def test_the_gain_shows_on_true_labels(seed):
  """Judged by biased clicks, a debiased ranker looks worse than a naive one."""
  # Lists were ordered by relevance mixed with something that is unrelated to
  # it; clicks, drawn afresh each epoch, hand it on to whoever believes them.
  rng = np.random.default_rng(seed)
  num_train, epochs, size, num_features = 1000, 25, 10, 6
  features = rng.normal(
      size=[num_train + 500, size, num_features]).astype(np.float32)
  relevant, unrelated = np.linalg.qr(rng.normal(size=[num_features, 2]))[0].T
  value = features @ relevant
  labels = np.digitize(
      value + .2 * rng.normal(size=value.shape), [.3, 1., 1.6, 2.2])
  order = np.argsort(-(value + 1.5 * features @ unrelated), axis=1)
  features = np.take_along_axis(features, order[..., np.newaxis], axis=1)
  labels = np.take_along_axis(labels, order, axis=1)
  clicks = np.concatenate([
      click_models.PositionBasedModel().sample(
          labels[:num_train], seed=(seed, epoch)).clicks
      for epoch in range(epochs)])
  repeated = np.tile(features[:num_train], [epochs, 1, 1])

  def true_ndcg(bias, callbacks, heads):
    tf.keras.utils.set_random_seed(seed)
    model = scorers.build_model(
        num_features, num_heads=heads, hidden_units=[16], layer_norm=False)
    model.compile(
        tf.keras.optimizers.Adam(.01), UnbiasedPairwiseLoss(bias))
    model.fit(repeated, clicks, batch_size=64, shuffle=False, verbose=0,
              callbacks=callbacks)
    return _true_ndcg(model, features[num_train:], labels[num_train:])

  naive = true_ndcg(PositionBias(size, examination=[1.] * size), [], 1)
  unbiased = true_ndcg(PositionBias(size, trust_bias=None), [PropensityEM()], 2)
  assert unbiased > naive + .01
