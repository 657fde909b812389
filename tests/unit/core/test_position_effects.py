"""Tests of ultra_tfr.core.position_effects."""

import numpy as np
import pytest
import tensorflow as tf

import baseline_oracles
import oracles
from ultra_tfr.core import position_effects

_RNG = np.random.default_rng(0)
LOGITS = _RNG.normal(scale=2.0, size=[4, 5])
EFFECTS = _RNG.normal(scale=2.0, size=[4, 5])
CLICKED = _RNG.random([4, 5]) < 0.4
VALUES = np.where(CLICKED, _RNG.exponential(3.0, size=[4, 5]), 0.0)
CLICKS = {"additive": position_effects.additive_click,
          "product": position_effects.product_click}
EXTREMES = [-1e4, -200.0, -30.0, 0.0, 30.0, 200.0, 1e4]


@pytest.mark.parametrize("mode", CLICKS)
def test_click_losses_equal_the_formula(mode):
  effect = CLICKS[mode](
      tf.constant(CLICKED), tf.constant(LOGITS), tf.constant(EFFECTS))
  expected = [[baseline_oracles.click_loss(mode, c, f, g)
               for c, f, g in zip(*rows)]
              for rows in zip(CLICKED, LOGITS, EFFECTS)]
  np.testing.assert_allclose(effect.losses, expected, rtol=1e-10)


def test_value_losses_equal_the_formula():
  effect = position_effects.additive_value(
      tf.constant(VALUES), tf.constant(LOGITS), tf.constant(EFFECTS))
  expected = [[baseline_oracles.value_loss("additive", y, f, g)
               for y, f, g in zip(*rows)]
              for rows in zip(VALUES, LOGITS, EFFECTS)]
  np.testing.assert_allclose(effect.losses, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["additive", "product", "value"])
def test_gradients_are_those_of_the_losses(name):
  function = CLICKS.get(name, position_effects.additive_value)
  target = VALUES if name == "value" else CLICKED
  effects = tf.constant(EFFECTS)
  with tf.GradientTape() as tape:
    tape.watch(effects)
    effect = function(tf.constant(target), tf.constant(LOGITS), effects)
  np.testing.assert_allclose(
      effect.gradients, tape.gradient(effect.losses, effects), rtol=1e-8)


@pytest.mark.parametrize("mode", CLICKS)
def test_curvature_is_the_expected_one(mode):
  # Fisher's identity: E[gradient^2] over the click, whose E[gradient] is 0.
  moments = np.zeros([2, *LOGITS.shape])
  chance = np.vectorize(baseline_oracles.click_chance)(mode, LOGITS, EFFECTS)
  for clicked, weight in ((True, chance), (False, 1.0 - chance)):
    effect = CLICKS[mode](tf.fill(LOGITS.shape, clicked), tf.constant(LOGITS),
                          tf.constant(EFFECTS))
    moments += weight * np.stack(
        [effect.gradients, effect.gradients.numpy()**2])
  np.testing.assert_allclose(moments[0], 0.0, atol=1e-12)
  np.testing.assert_allclose(effect.curvatures, moments[1], rtol=1e-8)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_the_product_is_a_probability_at_any_logits(dtype):
  logits, effects = (tf.constant(x, dtype) for x in np.meshgrid(
      EXTREMES, EXTREMES))
  log_clicked, log_missed = position_effects.log_product(logits, effects)
  for values in (log_clicked, log_missed):
    assert np.isfinite(values).all()
    assert (values.numpy() <= 0).all()
  inside = (abs(logits.numpy()) <= 30) & (abs(effects.numpy()) <= 30)
  # log P and log(1 - P) below 0: inside (0, 1), where `P` itself rounds to 1.
  assert (log_clicked.numpy()[inside] < 0).all()
  # The logarithms are exact to the precision of their own size.
  np.testing.assert_allclose(
      np.exp(log_clicked) + np.exp(log_missed), 1.0,
      atol=2e4 * np.finfo(dtype.as_numpy_dtype).eps)


@pytest.mark.parametrize("logit", [-8.0, -1.0, 3.0, 12.0, 30.0])
@pytest.mark.parametrize("effect", [-8.0, -1.0, 3.0, 12.0, 30.0])
def test_the_product_is_precise(logit, effect):
  found = position_effects.log_product(
      tf.constant(logit, tf.float64), tf.constant(effect, tf.float64))
  chance = oracles.sigmoid(logit) * oracles.sigmoid(effect)
  missed = (oracles.sigmoid(-logit) +
            oracles.sigmoid(logit) * oracles.sigmoid(-effect))
  np.testing.assert_allclose(np.exp(found[0]), chance, rtol=1e-10)
  np.testing.assert_allclose(np.exp(found[1]), missed, rtol=1e-10)


@pytest.mark.parametrize("clicked", [True, False])
@pytest.mark.parametrize("mode", CLICKS)
def test_gradients_at_extreme_logits(mode, clicked):
  logits, effects = (
      tf.constant(x, tf.float32) for x in np.meshgrid(EXTREMES, EXTREMES))
  with tf.GradientTape() as tape:
    tape.watch([logits, effects])
    effect = CLICKS[mode](tf.fill(logits.shape, clicked), logits, effects)
  for gradient in tape.gradient(effect.losses, [logits, effects]):
    assert np.isfinite(gradient).all()
    assert (abs(gradient.numpy()) <= 1.0 + 1e-6).all()
  assert np.isfinite(effect.gradients).all()
  assert np.isfinite(effect.curvatures).all()
  assert (effect.curvatures.numpy() >= 0).all()


def test_steps_arrive_at_the_mean_of_the_residuals():
  residuals = VALUES - LOGITS
  effects = tf.zeros([5], tf.float64)
  for _ in range(200):
    effect = position_effects.additive_value(
        tf.constant(VALUES), tf.constant(LOGITS), effects)
    effects = position_effects.scoring_step(
        effects, tf.reduce_sum(effect.gradients, 0),
        tf.reduce_sum(effect.curvatures, 0), 0.5)
  np.testing.assert_allclose(effects, residuals.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("mode", CLICKS)
def test_steps_arrive_where_the_gradient_is_zero(mode):
  effects = tf.zeros([5], tf.float64)
  clicked = tf.constant(np.vstack([CLICKED, ~CLICKED[:, ::-1]]))
  logits = tf.constant(np.vstack([LOGITS, LOGITS]))
  for _ in range(2000):
    effect = CLICKS[mode](clicked, logits, effects + tf.zeros_like(logits))
    effects = position_effects.scoring_step(
        effects, tf.reduce_sum(effect.gradients, 0),
        tf.reduce_sum(effect.curvatures, 0), 0.5)
  left = tf.reduce_sum(effect.gradients, 0).numpy()
  # A product has no inner optimum where all is seen; there it grows for ever.
  open_end = (mode == "product") & (effects.numpy() > 5)
  np.testing.assert_allclose(np.where(open_end, 0.0, left), 0.0, atol=1e-6)
  assert open_end.sum() < 5
