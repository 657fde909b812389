"""Which bias layers `PropensityEM` updates: several, wrapped, or given."""


import numpy as np
import pytest
import tensorflow as tf

from callback_fits import NUM_POSITIONS
from callback_fits import fit
from callback_fits import make_data
from callback_fits import make_model
from ultra_tfr import base
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.logged_order import LoggedOrderGuard
from ultra_tfr.losses import UnbiasedPairwiseLoss

_DATA = make_data(num_lists=8)


class _Sum(tf.keras.losses.Loss):
  """A user's loss around ours."""

  def __init__(self, *losses):
    super().__init__()
    self.losses = list(losses)

  def call(self, y_true, y_pred):
    return tf.add_n([loss(y_true, y_pred) for loss in self.losses])


class _OwnStep(tf.keras.Model):
  """A user's model that calls losses in a `train_step` of its own."""

  def __init__(self, *losses):
    super().__init__()
    self.dense = tf.keras.layers.Dense(1)
    self.losses_of_tasks = losses

  def call(self, inputs):
    return self.dense(inputs)[..., 0]

  def train_step(self, data):
    features, feedback = data
    with tf.GradientTape() as tape:
      scores = self(features)
      loss = tf.add_n([f(feedback, scores) for f in self.losses_of_tasks])
    self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
    return {"loss": loss}


def _bias(name, **arguments):
  return PositionBias(
      NUM_POSITIONS, name=name, trust_bias=None, **arguments)


def _drive(model, callbacks, losses=(), steps=2):
  """Epochs of single steps as `fit` makes them; gives the logs."""
  logs = {}
  for callback in callbacks:
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_begin(0)
  for step in range(steps):
    for callback in callbacks:
      callback.on_train_batch_begin(step)
    if losses:
      for loss in losses:
        loss(_DATA[1], tf.constant(_DATA[0][..., 0]))
    else:
      model.train_step(tuple(map(tf.constant, _DATA)))
    for callback in callbacks:
      callback.on_train_batch_end(step)
  for callback in callbacks:
    callback.on_epoch_end(0, logs)
  return logs


def _two_tasks():
  """A model with two losses and two bias layers, and these."""
  layers = [_bias("click"), _bias("buy", num_contexts=2)]
  losses = {layer.name: UnbiasedPairwiseLoss(layer) for layer in layers}
  inputs = tf.keras.Input([NUM_POSITIONS, 3])
  scores = tf.keras.layers.Dense(1)(inputs)[..., 0]
  model = tf.keras.Model(inputs, {"click": scores, "buy": scores})
  model.compile("sgd", losses)
  return model, layers, list(losses.values())


@pytest.mark.parametrize("make_callbacks", [
    lambda layers: [PropensityEM()],
    lambda layers: [PropensityEM(layer) for layer in layers]])
@pytest.mark.usefixtures("eagerly")
def test_two_bias_layers_in_one_model(make_callbacks):
  """The second one stayed where it started, and no log told of the first."""
  model, layers, losses = _two_tasks()
  logs = _drive(model, make_callbacks(layers), losses)
  for layer in layers:
    assert layer.num_updates.numpy() == 2
  assert {"click_examination_2", "click_weight_clipped",
          "buy_examination_context_1_2", "buy_examination_change"} <= set(logs)
  assert "examination_2" not in logs
  # Each alone learns the same.
  alone = _bias("alone")
  loss = UnbiasedPairwiseLoss(alone)
  model.compile("sgd", {"click": loss, "buy": "mse"})
  logs = _drive(model, [PropensityEM()], [loss])
  np.testing.assert_allclose(layers[0].examination, alone.examination, 1e-6)
  assert "examination_2" in logs


def test_layers_of_one_name_are_refused():
  model, _, _ = _two_tasks()
  model.compile("sgd", {name: UnbiasedPairwiseLoss(_bias("bias"))
                        for name in ("click", "buy")})
  with pytest.raises(ValueError, match=(
      "2 bias layers with the names bias, bias, by which logs .* a `name` of "
      "its own")):
    PropensityEM().set_model(model)


@pytest.mark.parametrize("wrap", [
    _Sum, lambda loss: _Sum(_Sum(loss)), lambda loss: {"a": _Sum(loss)},
    lambda loss: {"a": loss, "b": "mse"}])
@pytest.mark.usefixtures("eagerly")
def test_a_loss_inside_another_one_is_found(wrap):
  """`PropensityEM` said that the model has no loss that learns."""
  bias = _bias("bias", logged_order_weight=1.)
  loss = UnbiasedPairwiseLoss(bias)
  assert base.learning_losses(wrap(loss)) == [loss]
  model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  model.compile("sgd", wrap(loss))
  LoggedOrderGuard(None).set_model(model)
  for callback in (PropensityEM(), PropensityEM(bias)):
    _drive(model, [callback], [loss], steps=1)
  assert bias.num_updates.numpy() == 2
  with pytest.raises(ValueError, match="'other' given to `PropensityEM` is"):
    PropensityEM(_bias("other")).set_model(model)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("eagerly")
def test_losses_of_ones_own_train_step(count, tmp_path):
  """The layer was given, and refused since `compile` had no loss.

  And of two of them no checkpoint held both.
  """
  def make():
    layers = [_bias(f"task_{i}") for i in range(count)]
    model = _OwnStep(*map(UnbiasedPairwiseLoss, layers))
    model(_DATA[0])
    model.compile("sgd")
    return model, layers, [PropensityEM(layer) for layer in layers]

  model, layers, callbacks = make()
  model.fit(*_DATA, batch_size=4, verbose=0, callbacks=callbacks)
  assert [layer.num_updates.numpy() for layer in layers] == [2.] * count
  path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
  model, again, callbacks = make()
  tf.train.Checkpoint(model=model).restore(path).expect_partial()
  model.fit(*_DATA, batch_size=8, verbose=0, callbacks=callbacks)
  for other in again:
    assert other.num_updates.numpy() == 3
    assert np.ptp(other.examination) > 0
  with pytest.raises(ValueError, match="its own, give `PropensityEM` the loss"):
    PropensityEM().set_model(model)


def test_a_layer_that_no_loss_has_is_told():
  model = _OwnStep(UnbiasedPairwiseLoss(_bias("right")))
  model(_DATA[0])
  model.compile("sgd")
  callback = PropensityEM(_bias("wrong"))
  with pytest.warns(UserWarning, match=(
      "No batch of this epoch reached the bias layer 'wrong'")):
    _drive(model, [callback], steps=1)


class _Worse(tf.keras.callbacks.Callback):
  """A metric by which the second of four epochs is the best."""

  def on_epoch_end(self, epoch, logs=None):
    logs["val"] = {1: 1.}.get(epoch, 0.)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.usefixtures("eagerly")
def test_propensities_are_those_of_the_epoch_that_is_restored(is_last):
  """They were those of the last epoch, and the ranker that of the best."""
  bias = _bias("bias")
  model, states = make_model(bias), []
  watch = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: (
      states.append([*model.get_weights(), *bias.get_weights()])))
  stop = tf.keras.callbacks.EarlyStopping(
      "val", mode="max", patience=2, restore_best_weights=True)
  callbacks = [PropensityEM(), watch, _Worse()]
  fit(model, _DATA, [*callbacks, stop] if is_last else [
      _Worse(), stop, *callbacks], epochs=9)
  assert len(states) == 4
  for found, expected in zip(
      [*model.get_weights(), *bias.get_weights()], states[1]):
    np.testing.assert_array_equal(found, expected)
  assert bias.num_updates.numpy() == 2  # Of 4.
