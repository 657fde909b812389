"""Small fits with `PropensityEM`, for tests."""

import numpy as np
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.losses import UnbiasedPairwiseLoss

NUM_POSITIONS = 4


def make_data(num_lists=48, seed=0, value=1.):
  """Features and packed feedback, 0 or a value, fewer further down."""
  rng = np.random.default_rng(seed)
  shape = [num_lists, NUM_POSITIONS]
  features = rng.normal(size=[*shape, 3]).astype(np.float32)
  positions = np.argsort(rng.random(shape), axis=1) + 1
  clicks = rng.random(shape) < .8 / positions
  return features, pack_feedback(value * clicks, positions).numpy()


def make_model(bias, heads=2, optimizer="sgd", seed=0, **arguments):
  tf.keras.utils.set_random_seed(seed)
  model = scorers.build_model(3, num_heads=heads, hidden_units=[4])
  loss = arguments.pop("loss", None) or UnbiasedPairwiseLoss(bias)
  model.compile(optimizer, loss, **arguments)
  return model


def fit(model, data, callbacks=None, **arguments):
  arguments = {"batch_size": 8, "shuffle": False, "verbose": 0, **arguments}
  callbacks = [PropensityEM()] if callbacks is None else callbacks
  return model.fit(*data, callbacks=callbacks, **arguments).history
