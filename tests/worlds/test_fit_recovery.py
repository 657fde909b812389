"""Propensities that `fit` estimates: of known worlds, and at the edges."""

import numpy as np
import pytest
import tensorflow as tf

from eye_tracking import CURVE
import ultra_tfr
from ultra_tfr.core import examination

# Items are of eight groups, and the features say which; so a layer without
# hidden units can learn the relevance exactly.
GROUPS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])


def _clicks(num_lists, seed, skill=0.0):
  """Features, clicks and positions of lists.

  Args:
    num_lists: how many.
    seed: of the random numbers.
    skill: 0 for a random order; the more, the more relevant items are first.

  Returns:
    `[N, 10, groups]`, `[N, 10]` and `[N, 10]`.
  """
  rng = np.random.default_rng(seed)
  groups = rng.integers(len(GROUPS), size=[num_lists, 10])
  order = rng.gumbel(size=groups.shape) + skill * np.log(GROUPS)[groups]
  positions = np.argsort(np.argsort(-order, axis=1), axis=1)
  chance = CURVE[positions] * GROUPS[groups]
  clicks = (rng.uniform(size=chance.shape) < chance).astype(np.float32)
  features = np.eye(len(GROUPS), dtype=np.float32)[groups]
  return features, clicks, (positions + 1).astype(np.float32)


def _model(num_heads, bias, learning_rate=0.1, **options):
  inputs = tf.keras.Input([None, len(GROUPS)])
  outputs = tf.keras.layers.Dense(num_heads)(inputs)
  if num_heads == 1:
    outputs = tf.keras.layers.Reshape([-1])(outputs)
  model = tf.keras.Model(inputs, outputs)
  model.compile(
      tf.keras.optimizers.Adam(learning_rate),
      loss=ultra_tfr.losses.UnbiasedPairwiseLoss(bias, **options))
  return model


def _fit(model, data, callback, epochs):
  features, clicks, positions = data
  return model.fit(
      features, ultra_tfr.pack_feedback(clicks, positions).numpy(),
      batch_size=256, epochs=epochs, callbacks=[callback], verbose=0)


def _error(bias):
  """The largest error of theta/theta_1."""
  found = bias.propensities()["examination"]
  return abs(found - CURVE / CURVE[0]).max()


@pytest.mark.slow
@pytest.mark.parametrize("num_heads", [2, 1])
def test_examination_is_recovered_by_fit(num_heads):
  bias = ultra_tfr.layers.PositionBias(10, trust_bias=None)
  model = _model(num_heads, bias)
  callback = ultra_tfr.callbacks.PropensityEM()
  _fit(model, _clicks(25_000, seed=0), callback, epochs=10)
  print(f"heads: {num_heads}, error of theta/theta_1: {_error(bias)}")
  assert _error(bias) < 0.03


@pytest.mark.slow
def test_examination_is_recovered_by_fit_from_a_skilled_order():
  # Here the click rates are no propensities: the better items come first.
  data = _clicks(25_000, seed=0, skill=1.0)
  _, clicks, positions = data
  rates = np.array([clicks[positions == k].mean() for k in range(1, 11)])
  at_start = abs(rates / rates[0] - CURVE / CURVE[0]).max()
  bias = ultra_tfr.layers.PositionBias(10, trust_bias=None)
  _fit(_model(2, bias), data, ultra_tfr.callbacks.PropensityEM(), epochs=10)
  print("error of the click rates:", at_start, "of EM:", _error(bias))
  assert at_start > 0.1
  assert _error(bias) < 0.03


@pytest.mark.slow
def test_examination_comes_closer_and_survives_further_fits():
  """An implementation set propensities back in each step: they never moved."""
  bias = ultra_tfr.layers.PositionBias(10, initial_examination=0.9,
      trust_bias=None)
  model = _model(2, bias)
  callback = ultra_tfr.callbacks.PropensityEM()
  errors, previous = [], None
  for epoch in range(5):
    before = bias.examination.numpy()
    if previous is not None:
      # Nothing is reset between calls of `fit`.
      np.testing.assert_array_equal(before, previous)
      assert float(bias.num_updates) == 32 * epoch
    _fit(model, _clicks(32 * 256, seed=epoch), callback, epochs=1)
    previous = bias.examination.numpy()
    errors.append(_error(bias))
  print("errors by epoch:", errors)
  assert (np.diff(errors) < 0).all()
  assert errors[4] < 0.75 * errors[0]


def test_examination_of_known_relevance_comes_closer_over_the_epochs():
  """An implementation set propensities back in each step: they never moved."""
  rng = np.random.default_rng(0)
  shape = [2000, 5]
  beta = rng.uniform(.05, .95, shape)
  positions = np.argsort(rng.random(shape), axis=1) + 1
  examined = rng.random(shape) < CURVE[positions - 1]
  clicks = (examined & (rng.random(shape) < beta)).astype(np.float32)
  logits = np.log(beta / (1. - beta))
  heads = np.stack([logits, logits], -1).astype(np.float32)
  # The input is the output, so that tests decide on scores.
  inputs = tf.keras.Input([None, 2])
  model = tf.keras.Model(inputs, tf.identity(inputs))
  bias = ultra_tfr.layers.PositionBias(5, initial_examination=.9,
      trust_bias=None)
  model.compile("sgd", ultra_tfr.losses.UnbiasedPairwiseLoss(bias))

  def fit(**arguments):
    return model.fit(
        heads, ultra_tfr.pack_feedback(clicks, positions), verbose=0,
        callbacks=[ultra_tfr.callbacks.PropensityEM(averaging="parameters")],
        **arguments).history

  history = fit(batch_size=100, epochs=5)
  estimates = np.stack([
      history[f"examination_{k}"] for k in range(1, 6)], axis=1)
  errors = np.abs(estimates - CURVE[:5] / CURVE[0]).max(axis=1)
  assert errors[0] > errors[1] > errors[4]
  assert errors[0] > 2 * errors[4]
  # Nothing starts over between epochs, nor when `fit` is called again.
  assert bias.num_updates.numpy() == 100
  before = bias.examination.numpy()
  fit(batch_size=2000)
  assert np.abs(bias.examination.numpy() - before).max() < .05
  assert bias.num_updates.numpy() == 101


def test_each_batch_goes_on_where_the_last_one_ended():
  """An implementation made propensities anew, at 0.9, in each step."""
  bias = ultra_tfr.layers.PositionBias(10, initial_examination=0.9,
      trust_bias=None)
  model = _model(2, bias)
  seen = []

  class Watch(tf.keras.callbacks.Callback):

    def on_train_batch_end(self, batch, logs=None):
      seen.append(bias.examination.numpy()[0])

  features, clicks, positions = _clicks(256 * 6, seed=0)
  model.fit(features, ultra_tfr.pack_feedback(clicks, positions).numpy(),
            batch_size=256, verbose=0, callbacks=[
                ultra_tfr.callbacks.PropensityEM(averaging="parameters"),
                Watch()])
  assert len(seen) == 6
  # Each step begins where the last one ended, and none moves further than its
  # step size.
  for before, after in zip([np.full(10, 0.9)] + seen[:-1], seen):
    assert (before != after).any()
    assert abs(after - before).max() <= 0.05
  assert (seen[-1][5:] < seen[0][5:]).all()


def _train_on(y_true, bias, *callbacks, epochs=1, **options):
  """Fits a model of a constant relevance, which is that of beta = 1/2."""
  inputs = tf.keras.Input([y_true.shape[1], 1])
  outputs = tf.keras.layers.Dense(
      2, kernel_initializer="zeros", use_bias=False)(inputs)
  model = tf.keras.Model(inputs, outputs)
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
  model.compile(tf.keras.optimizers.SGD(0.0), loss=loss)
  history = model.fit(
      np.zeros([*y_true.shape[:2], 1], np.float32), y_true,
      batch_size=len(y_true), epochs=epochs, verbose=0,
      callbacks=[ultra_tfr.callbacks.PropensityEM(**options), *callbacks])
  return history.history["loss"]


def test_padded_slots_are_not_counted_as_unclicked():
  """An implementation took padding for items that nobody clicked."""
  # List A has 3 items and list B has 10, all of B's are clicked but one.
  y_true = np.full([2, 10], -1.0, np.float32)
  y_true[0, :3] = [1, 0, 0]
  y_true[1] = 1
  y_true[1, 4] = 0
  bias = ultra_tfr.layers.PositionBias(10, initial_examination=0.5,
      trust_bias=None)
  _train_on(y_true, bias)
  # Without a click the posterior at theta = beta = 1/2 is 1/3.
  expected = np.ones(10)
  expected[1:3] = (1 + 1 / 3) / 2
  expected[4] = 1 / 3
  np.testing.assert_allclose(bias.examination.numpy()[0], expected, rtol=1e-5)


def test_a_position_that_is_never_shown_keeps_its_value():
  """Where only padding stood there is nothing to learn from."""
  y_true = np.array([[1, 0, -1], [0, 0, np.nan]], np.float32)
  bias = ultra_tfr.layers.PositionBias(3, initial_examination=[0.9, 0.6, 0.3],
      trust_bias=None)
  _train_on(y_true, bias, epochs=3)
  np.testing.assert_allclose(bias.examination.numpy()[0, 2], 0.3, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("initial", ["click_rate", 0.9, [0.9, 0.5, 0.25, 0.1]])
@pytest.mark.parametrize("averaging", ["statistics", "parameters"])
def test_without_clicks_theta_falls_smoothly_and_nothing_is_nan(
    initial, averaging):
  """Batches without a click are common in small logs, and were NaN or lost."""
  bias = ultra_tfr.layers.PositionBias(4, initial_examination=initial,
      trust_bias=None)
  values = []

  class Watch(tf.keras.callbacks.Callback):

    def on_train_batch_begin(self, batch, logs=None):
      values.append(bias.examination.numpy()[0])

  losses = _train_on(np.zeros([8, 4], np.float32), bias, Watch(), epochs=100,
                     averaging=averaging, warmup=20)
  # What is left is the cross-entropy of the relevance head.
  assert np.isfinite(losses).all()
  theta = np.array(values)
  assert np.isfinite(theta).all()
  assert ((theta > 0) & (theta <= 1)).all()
  if initial == "click_rate":
    moving = theta[21:]
  else:
    # The first batch may move them far: it is all that there is to average.
    moving = theta[1:]
    assert (theta[1] < theta[0]).all()
  steps = np.diff(moving, axis=0)
  assert (steps < 0).all()
  assert (abs(steps) < 0.1).all()
  if averaging == "parameters":
    assert (moving[1:] > 0.9 * moving[:-1]).all()
    if initial != "click_rate":
      # alpha_0 = 0.05 of the way to theta (1 - beta) / (1 - theta beta).
      target = theta[0] * 0.5 / (1 - theta[0] / 2)
      np.testing.assert_allclose(
          theta[1] - theta[0], 0.05 * (target - theta[0]), rtol=1e-3)


def test_a_batch_without_clicks_has_no_pair_loss():
  """A loss of exactly 0 without clicks is right, and must not turn NaN."""
  bias = ultra_tfr.layers.PositionBias(4, trust_bias=None)
  scores = tf.constant([[1.0, -2.0, 0.5, 3.0]])
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias, head_weight=0.0)
  with tf.GradientTape() as tape:
    tape.watch(scores)
    value = loss(tf.zeros([1, 4]), scores)
  assert float(value) == 0.0
  np.testing.assert_array_equal(tape.gradient(value, scores).numpy(), 0.0)
  # While EM runs the score learns relevance too, which is no part of the loss.
  bias.start_collecting()
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
  assert float(loss(tf.zeros([1, 4]), scores)) == 0.0


def test_updates_keep_the_constraints_of_pairwise_trust_bias():
  bias = ultra_tfr.layers.PositionBias(10, trust_bias="pairwise")
  model = _model(2, bias)

  class Check(tf.keras.callbacks.Callback):

    def on_train_batch_end(self, batch, logs=None):
      plus, minus = (v.numpy()[0] for v in (
          bias.trust_positive, bias.trust_negative))
      assert (minus > 0).all() and (minus < plus).all() and (plus < 1).all()
      assert (plus + minus.T <= 1 + 1e-6).all()
      theta = bias.examination.numpy()
      assert (theta > 0).all() and (theta <= 1).all()

  features, clicks, positions = _clicks(256 * 12, seed=0)
  model.fit(
      features, ultra_tfr.pack_feedback(clicks, positions).numpy(),
      batch_size=256, verbose=0, callbacks=[
          ultra_tfr.callbacks.PropensityEM(step_size=0.5, warmup=3), Check()])
  assert float(bias.num_updates) == 12


@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
def test_statistics_are_float32_in_half_precision(trust_bias):
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    bias = ultra_tfr.layers.PositionBias(
        3, trust_bias=trust_bias, initial_examination=0.5)
    loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
    bias.start_collecting()
    # More items than half precision can count.
    y_true = tf.tile([[1.0, 0.0, 0.0]], [5001, 1])
    loss(y_true, tf.zeros([5001, 3, 2], tf.float16))
    sums = bias.take_sums()
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  for value in sums.values():
    assert value.dtype == tf.float32
  np.testing.assert_array_equal(
      sums["pointwise"].numpy()[:, examination.COUNT], 5001.0)
  assert all(v.dtype == tf.float32 for v in bias.weights)
