"""Small losses and models, for tests."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss

SUM = tf.keras.losses.Reduction.SUM
NONE = tf.keras.losses.Reduction.NONE
LN2 = np.log(2.)


def plain_loss(num_positions=10, **arguments):
  """Everything is examined: the plain sum over pairs."""
  arguments = {"reduction": SUM, **arguments}
  return UnbiasedPairwiseLoss(
      PositionBias(num_positions, examination=[1.] * num_positions),
      **arguments)


def learning_loss(num_positions=10, **arguments):
  bias = PositionBias(num_positions, initial_examination=.5, trust_bias=None)
  bias.start_collecting()
  return UnbiasedPairwiseLoss(bias, **{"reduction": SUM, **arguments})


def inverse_loss(examination):
  """TF-Ranking's sum over pairs, by known propensities."""
  return InversePropensityLoss(
      PositionBias(len(examination), examination=examination),
      tfr.keras.losses.PairwiseLogisticLoss(reduction=SUM))


def value_and_gradient(loss, y_true, y_pred, weights=None):
  y_pred = tf.convert_to_tensor(y_pred)
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred, weights)
  return value.numpy(), tape.gradient(value, y_pred).numpy()


def linear_model(num_features=2, seed=0):
  """Scores linear in the features, which start at 0."""
  tf.keras.utils.set_random_seed(seed)
  inputs = tf.keras.Input([None, num_features])
  scores = tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs)
  return tf.keras.Model(inputs, tf.keras.layers.Reshape([-1])(scores))


def linear_towers(num_features, heads=1, seed=0):
  """One linear tower a head."""
  tf.keras.utils.set_random_seed(seed)
  return scorers.build_model(num_features, num_heads=heads, hidden_units=[])
