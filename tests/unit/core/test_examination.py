"""Tests of ultra_tfr.core.examination."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.core import examination
from ultra_tfr.core import positions as positions_lib

NUM_POSITIONS, NUM_CONTEXTS = 4, 2
LISTS = oracles.random_lists(
    seed=2, num_lists=8, num_positions=NUM_POSITIONS,
    num_contexts=NUM_CONTEXTS)
_RNG = np.random.default_rng(0)
P1 = _RNG.uniform(0.3, 0.95, size=NUM_CONTEXTS * NUM_POSITIONS)
P0 = P1 * _RNG.uniform(0.05, 0.9, size=NUM_CONTEXTS * NUM_POSITIONS)


def _slot_of(context, position):
  return context * NUM_POSITIONS + position - 1


def _each_item(function):
  """Applies a function of (clicked, beta, p1, p0) to every item."""
  rows = []
  for items in LISTS:
    slots = [_slot_of(*pair)
             for pair in zip(items["context"], items["position"])]
    rows.append([function(c > 0, beta, P1[s], P0[s]) for c, beta, s in zip(
        items["feedback"], items["beta"], slots)])
  return np.array(rows)


def _inputs(dtype=tf.float64):
  """Clicked, relevance logits, p1 and p0 of every item."""
  logits = np.vectorize(oracles.logit)(oracles.column(LISTS, "beta"))
  return (tf.constant(oracles.column(LISTS, "feedback")) > 0,
          tf.constant(logits, dtype),
          tf.constant(_each_item(lambda c, b, p1, p0: p1), dtype),
          tf.constant(_each_item(lambda c, b, p1, p0: p0), dtype))


def test_item_factors_equal_their_definitions():
  _, logits, p1, p0 = _inputs()
  expected = _each_item(
      lambda c, b, p1, p0: b / oracles.click_probability(b, p1, p0))
  np.testing.assert_allclose(
      examination.clicked_factor(logits, p1, p0).numpy(), expected,
      rtol=1e-12)
  expected = _each_item(
      lambda c, b, p1, p0: (1 - b) / (1 - oracles.click_probability(
          b, p1, p0)))
  np.testing.assert_allclose(
      examination.unclicked_factor(logits, p1, p0).numpy(), expected,
      rtol=1e-12)


def test_posteriors_equal_the_double_loop():
  clicked, logits, p1, p0 = _inputs()
  np.testing.assert_allclose(
      examination.relevance_posterior(clicked, logits, p1, p0).numpy(),
      _each_item(oracles.relevance_posterior), rtol=1e-12)
  np.testing.assert_allclose(
      examination.examination_posterior(clicked, logits, p1).numpy(),
      _each_item(lambda c, b, p1, p0: oracles.examination_posterior(
          c, b, p1)), rtol=1e-12)


def test_posteriors_equal_their_form_in_logits():
  theta = tf.constant([[0.1, 0.5, 0.9]], tf.float64)
  logits = tf.constant([[-2.0, 0.3, 4.0]], tf.float64)
  e = tf.math.log(theta / (1.0 - theta))
  unclicked = tf.zeros_like(theta, tf.bool)
  np.testing.assert_allclose(
      examination.examination_posterior(unclicked, logits, theta).numpy(),
      tf.sigmoid(e - tf.nn.softplus(logits)).numpy(), rtol=1e-12)
  np.testing.assert_allclose(
      examination.relevance_posterior(
          unclicked, logits, theta, tf.zeros_like(theta)).numpy(),
      tf.sigmoid(logits - tf.nn.softplus(e)).numpy(), rtol=1e-12)


def test_statistics_equal_the_double_loop_with_padding_and_contexts():
  clicked, logits, p1, p0 = _inputs()
  slots = positions_lib.find_slots(
      tf.constant(oracles.column(LISTS, "position"), tf.float32),
      tf.constant(oracles.column(LISTS, "context"), tf.float32),
      NUM_POSITIONS, NUM_CONTEXTS)
  weights = tf.constant(oracles.column(LISTS, "weight"), tf.float64)
  sums = slots.sums(
      weights[:, :, tf.newaxis] * examination.pointwise_statistics(
          clicked, logits, p1, p0))
  np.testing.assert_allclose(
      sums.numpy(), oracles.pointwise_statistics(
          LISTS, P1, P0, NUM_CONTEXTS * NUM_POSITIONS, _slot_of), rtol=1e-12)


@pytest.mark.parametrize("dtype, rtol", [
    (tf.float32, 1e-6), (tf.float64, 1e-12)])
def test_posteriors_are_marginal_and_sum_to_one(dtype, rtol):
  """A user asked whether P(relevant | no click) lacks a second factor.

  It does not: the posterior is marginal, over examined or not.
  """
  theta = tf.constant([[0.5, 0.5]], dtype)
  logits = tf.math.log(tf.constant([[0.4 / 0.6] * 2], dtype))
  clicked = tf.constant([[False, True]])
  examined = examination.examination_posterior(clicked, logits, theta)
  relevant = examination.relevance_posterior(
      clicked, logits, theta, tf.zeros_like(theta))
  np.testing.assert_allclose(examined.numpy(), [[0.375, 1.0]], rtol=rtol)
  np.testing.assert_allclose(relevant.numpy(), [[0.25, 1.0]], rtol=rtol)
  # Without a click examined and relevant exclude each other.
  neither = (1 - 0.5) * (1 - 0.4) / (1 - 0.5 * 0.4)
  np.testing.assert_allclose(
      examined.numpy()[0, 0] + relevant.numpy()[0, 0] + neither, 1.0,
      rtol=rtol)
  np.testing.assert_allclose(neither, 0.375)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_values_and_gradients_are_finite_at_probabilities_zero_and_one(dtype):
  corners = np.array(list(itertools.product(
      [False, True], [-1e9, -30.0, 0.0, 30.0, 1e9], [0.0, 0.5, 1.0],
      [0.0, 0.5, 1.0])))
  clicked = tf.constant(corners[:, :1] > 0)
  logits, p1, p0 = (tf.constant(corners[:, n:n + 1], dtype)
                    for n in (1, 2, 3))
  functions = {
      "clicked": lambda: examination.clicked_factor(logits, p1, p0),
      "unclicked": lambda: examination.unclicked_factor(logits, p1, p0),
      "relevance": lambda: examination.relevance_posterior(
          clicked, logits, p1, p0),
      "examination": lambda: examination.examination_posterior(
          clicked, logits, p1),
      "statistics": lambda: examination.pointwise_statistics(
          clicked, logits, p1, p0),
  }
  for name, function in functions.items():
    with tf.GradientTape() as tape:
      tape.watch([logits, p1, p0])
      value = function()
    assert np.isfinite(value.numpy()).all(), name
    for gradient in tape.gradient(
        value, [logits, p1, p0], unconnected_gradients="zero"):
      assert np.isfinite(gradient.numpy()).all(), name
    if name in ("relevance", "examination"):
      assert ((value.numpy() >= 0) & (value.numpy() <= 1 + 1e-6)).all(), name


def test_posteriors_have_their_limits_at_zero_and_one():
  def posteriors(clicked, logit, theta):
    args = (tf.constant([[clicked]]), tf.constant([[logit]], tf.float64),
            tf.constant([[theta]], tf.float64))
    return (examination.examination_posterior(*args).numpy().item(),
            examination.relevance_posterior(
                *args, tf.zeros([1, 1], tf.float64)).numpy().item())

  # Never examined: no feedback says nothing about the relevance.
  np.testing.assert_allclose(posteriors(False, 0.0, 0.0), [0.0, 0.5])
  # Always examined: no feedback says irrelevant.
  np.testing.assert_allclose(posteriors(False, 0.0, 1.0), [1.0, 0.0])
  # Surely relevant, no feedback: it was not examined.
  np.testing.assert_allclose(posteriors(False, 1e9, 0.5), [0.0, 1.0],
                             atol=1e-12)
  # Surely irrelevant: no feedback says nothing about examination.
  np.testing.assert_allclose(posteriors(False, -1e9, 0.5), [0.5, 0.0],
                             atol=1e-12)
  # Feedback says both, however unlikely it was.
  for logit in (-1e9, 0.0, 1e9):
    for theta in (0.0, 0.5, 1.0):
      np.testing.assert_allclose(posteriors(True, logit, theta), [1.0, 1.0])
