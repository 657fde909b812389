"""Tests of ultra_tfr.keras_guards."""

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr import keras_guards
from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

_DATA = np.ones([4, 2, 3], np.float32), np.array([[1., 0.]] * 4, np.float32)


def _model():
  model = scorers.build_model(3, hidden_units=[2])
  model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(2, trust_bias=None)))
  return model


class _Ranker:
  """A user's own class with a method that is named as Keras's."""

  def __init__(self):
    self.model = _model()

  def fit(self, features, feedback, class_weight=None, **passed):
    """Whatever `class_weight` means here, Keras never sees it."""
    del class_weight
    self.model.fit(features, feedback, verbose=0,
                   callbacks=[PropensityEM()], **passed)


def test_a_fit_of_ones_own_may_have_class_weight():
  """Only what Keras's `fit` of the same model is given counts."""
  ranker = _Ranker()
  ranker.fit(*_DATA, class_weight={0: 1.})
  assert ranker.model.loss.position_bias.num_updates.numpy() == 1


def test_class_weight_of_keras_is_refused():
  with pytest.raises(ValueError, match="`class_weight` has no meaning"):
    _model().fit(*_DATA, verbose=0, callbacks=[PropensityEM()],
                 class_weight={0: 1., 1: 2.})


def test_class_weight_of_another_model_is_not_ours():
  """A model that is fitted within the `fit` of another one."""
  inner = _model()

  class FitsAnother(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
      inner.fit(*_DATA, verbose=0, callbacks=[PropensityEM()])

  outer = tf.keras.Sequential([tf.keras.layers.Dense(2)])
  outer.compile("sgd", "sparse_categorical_crossentropy")
  outer.fit(np.ones([4, 3]), np.zeros(4), class_weight={0: 1., 1: 2.},
            verbose=0, callbacks=[FitsAnother()])
  assert inner.loss.position_bias.num_updates.numpy() == 1


def test_the_layer_that_made_a_tensor():
  inputs = tf.keras.Input([2])
  heads = [tf.keras.layers.Dense(1)(inputs) for _ in range(3)]
  layer, found = keras_guards.origin(tf.keras.layers.Concatenate()(heads))
  assert isinstance(layer, tf.keras.layers.Concatenate)
  assert all(a is b for a, b in zip(found, heads))
