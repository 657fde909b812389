"""Bias layers, batches of clicks and models for tests of metrics."""

import numpy as np
import tensorflow as tf

from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

SIZE = 5
TABLE = np.array([[0.8, 0.5, 0.4, 0.1], [0.6, 0.2, 0.3, 0.2]])


def make_bias(trust_bias=None, contexts=2):
  table = TABLE[:contexts]
  trust = {None: {}, "position": {"trust_positive": 0.9,
                                  "trust_negative": [0.4, 0.3, 0.2, 0.1]},
           "pairwise": {"trust_positive": 0.9, "trust_negative": 0.2}}
  return PositionBias(4, num_contexts=contexts, examination=table,
                      trust_bias=trust_bias, **trust[trust_bias])


def make_batch(seed=0, num_lists=8, contexts=2):
  """Features, clicks, positions (one beyond the table), contexts, weights."""
  rng = np.random.default_rng(seed)
  shape = [num_lists, SIZE]
  clicks = (rng.random(shape) < 0.4).astype(np.float32)
  clicks[rng.random(shape) < 0.1] = -1.0
  positions = np.argsort(rng.random(shape), axis=1) + 1
  return {
      "features": rng.normal(size=[*shape, 3]).astype(np.float32),
      "clicks": clicks, "positions": positions,
      "contexts": rng.integers(0, contexts, [num_lists, 1]),
      "weights": rng.choice([0.5, 1.0, 2.0], shape).astype(np.float32)}


def packed(batch):
  return pack_feedback(batch["clicks"], batch["positions"], batch["contexts"])


def evaluate(metric, *arguments):
  metric.reset_state()
  metric.update_state(*arguments)
  return float(metric.result())


def make_model(bias, **compile_options):
  model = tf.keras.Sequential([
      tf.keras.layers.Dense(1), tf.keras.layers.Reshape([SIZE])])
  model.compile("sgd", loss=UnbiasedPairwiseLoss(bias), **compile_options)
  return model
