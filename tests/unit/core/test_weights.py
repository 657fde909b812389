"""Tests of ultra_tfr.core.weights."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.core import examination
from ultra_tfr.core import pairs
from ultra_tfr.core import positions as positions_lib
from ultra_tfr.core import trust
from ultra_tfr.core import weights as weights_lib

NUM_POSITIONS = 4
LISTS = oracles.random_lists(seed=4, num_lists=8, min_beta=0.15)
BETA = np.array(oracles.column(LISTS, "beta"))
_RNG = np.random.default_rng(2)
P1 = _RNG.uniform(0.2, 0.9, size=NUM_POSITIONS)
UNCLICKED = 0.7 * P1
PLUS = _RNG.uniform(0.6, 0.9, size=[NUM_POSITIONS] * 2)
MINUS = _RNG.uniform(0.002, 0.015, size=[NUM_POSITIONS] * 2)
GAMMA = BETA[:, :, np.newaxis] * _RNG.uniform(0.05, 0.95, size=[8, 6, 6])
FORMS = ("item", "prior", "position")


def _slots():
  return positions_lib.find_slots(
      tf.constant(oracles.column(LISTS, "position"), tf.float32), None,
      NUM_POSITIONS, 1)


def _lookup(table):
  return _slots().lookup(tf.constant(np.asarray(table, np.float64)))


def _clicked():
  return tf.constant(oracles.column(LISTS, "feedback")) > 0


def _logits():
  return tf.constant(np.vectorize(oracles.logit)(BETA))


def _model(plus, minus):
  def pairwise(table):
    return _slots().lookup_pairs(tf.constant(table[np.newaxis]))
  return trust.pair_model(
      _lookup(P1), tf.constant(BETA), tf.constant(GAMMA), pairwise(plus),
      pairwise(minus))


def _examined(form, model):
  if form == "item":
    return examination.examination_posterior(
        _clicked(), _logits(), _lookup(P1))[:, tf.newaxis, :] + tf.zeros_like(
            model.preference)
  return trust.examined_given_preferred(
      model, _lookup(P1 if form == "prior" else UNCLICKED)[:, tf.newaxis, :])


def _assert_equal(weights, expected):
  """Compares where c_a > c_b; `expected` takes a list, its number, a, b."""
  counts = pairs.preferred(
      tf.constant(oracles.column(LISTS, "feedback")),
      tf.constant(oracles.column(LISTS, "valid"))).numpy()
  assert counts.sum() > 20
  for n, a, b in np.argwhere(counts):
    np.testing.assert_allclose(
        weights.numpy()[n, a, b], expected(LISTS[n], n, a, b), rtol=1e-11)


def _oracle_h(form, items, n, a, b, plus, minus):
  i, j = items["position"][a] - 1, items["position"][b] - 1
  return oracles.examined_given_preferred(
      form, P1[j], UNCLICKED[j], items["beta"][a], items["beta"][b],
      GAMMA[n, a, b], plus[i, j], minus[i, j])


@pytest.mark.parametrize("form", FORMS)
def test_ipw_equals_the_double_loop(form):
  plus, minus = np.ones_like(PLUS), np.zeros_like(MINUS)
  model = _model(plus, minus)
  weights = weights_lib.trust_pair_weights(
      _clicked(), model, _examined(form, model), normalize_trust=False)

  def expected(items, n, a, b):
    i, j = items["position"][a] - 1, items["position"][b] - 1
    return oracles.ipw_weight(
        items["feedback"][b] > 0, P1[i], P1[j],
        _oracle_h(form, items, n, a, b, plus, minus))

  _assert_equal(weights, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normalize", [False, True])
def test_bayes_ipw_equals_the_double_loop(form, normalize):
  model = _model(PLUS, MINUS)
  weights = weights_lib.trust_pair_weights(
      _clicked(), model, _examined(form, model), normalize)

  def expected(items, n, a, b):
    i, j = items["position"][a] - 1, items["position"][b] - 1
    weight = oracles.bayes_ipw_weight(
        items["feedback"][b] > 0, P1[i], P1[j],
        _oracle_h(form, items, n, a, b, PLUS, MINUS),
        oracles.preference_given_examined(
            items["beta"][a], GAMMA[n, a, b], PLUS[i, j], MINUS[i, j]))
    return weight / PLUS[i, j] if normalize else weight

  _assert_equal(weights, expected)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.8])
def test_closed_form_equals_the_double_loop(share):
  p0 = share * P1
  weights = weights_lib.item_pair_weights(
      _clicked(), _logits(), _lookup(P1), _lookup(p0))

  def expected(items, n, a, b):
    del n
    i, j = items["position"][a] - 1, items["position"][b] - 1
    return oracles.closed_form_weight(
        items["feedback"][b] > 0, items["beta"][a], items["beta"][b], P1[i],
        p0[i], P1[j], p0[j])

  _assert_equal(weights, expected)


def test_closed_form_without_click_noise_is_ipw_with_the_item_posterior():
  weights = weights_lib.item_pair_weights(
      _clicked(), _logits(), _lookup(P1), _lookup(0.0 * P1))
  model = _model(np.ones_like(PLUS), np.zeros_like(MINUS))
  expected = weights_lib.trust_pair_weights(
      _clicked(), model, _examined("item", model), False).numpy()
  _assert_equal(weights, lambda items, n, a, b: expected[n, a, b])


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_normalized_prior_weight_is_gamma_over_the_chance_of_the_outcome(
    shift):
  # With the larger eps- the clip of g' to beta_a is at work in most pairs.
  minus = MINUS + shift
  model = _model(PLUS, minus)
  weights = weights_lib.trust_pair_weights(
      tf.zeros([8, 6], tf.bool), model, _examined("prior", model), True)

  def expected(items, n, a, b):
    i, j = items["position"][a] - 1, items["position"][b] - 1
    gamma = min(GAMMA[n, a, b], items["beta"][a])
    return gamma / oracles.outcome(
        P1[i], P1[j], items["beta"][a], gamma, PLUS[i, j], minus[i, j])

  _assert_equal(weights, expected)


def test_item_weight_of_binary_feedback_is_bounded_by_the_first_propensity():
  weights = weights_lib.item_pair_weights(
      tf.zeros([8, 6], tf.bool), _logits(), _lookup(P1), _lookup(0.0 * P1))
  assert (weights <= 1.0 / _lookup(P1)[:, :, tf.newaxis] + 1e-12
         ).numpy().all()


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_values_and_gradients_are_finite_at_probabilities_zero_and_one(dtype):
  corners = np.array(list(itertools.product(
      [False, True], [-1e9, 0.0, 1e9], [0.0, 0.5, 1.0], [0.0, 0.5, 1.0])))
  clicked = tf.constant(corners[:, 0][np.newaxis] > 0)
  logits, p1, p0 = (tf.constant(corners[:, n][np.newaxis], dtype)
                    for n in (1, 2, 3))

  def bayes(normalize):
    beta = tf.sigmoid(logits)
    size = tf.cast(tf.shape(beta)[1], dtype)
    table = tf.reshape(tf.range(size * size), [1, size, size])
    # Every combination of trust probabilities meets every kind of pair.
    plus = tf.math.floormod(table, 3.0) / 2.0
    minus = tf.math.floormod(tf.math.floordiv(table, 3.0), 3.0) / 2.0
    model = trust.pair_model(
        p1, beta, trust.binary_preference(beta), plus, minus)
    examined = trust.examined_given_preferred(model, p1[:, tf.newaxis, :])
    return weights_lib.trust_pair_weights(clicked, model, examined, normalize)

  functions = {
      "closed form": lambda: weights_lib.item_pair_weights(
          clicked, logits, p1, p0),
      "bayes": lambda: bayes(False),
      "normalized": lambda: bayes(True),
  }
  for name, function in functions.items():
    with tf.GradientTape() as tape:
      tape.watch([logits, p1, p0])
      value = function()
    assert np.isfinite(value.numpy()).all(), name
    assert (value.numpy() >= 0).all(), name
    for gradient in tape.gradient(
        value, [logits, p1, p0], unconnected_gradients="zero"):
      assert np.isfinite(gradient.numpy()).all(), name


def test_scaling_comes_before_the_cap_and_the_cut_is_reported():
  weights = tf.constant([[[1.0, 10.0, 100.0]]], tf.float64)
  kept, cut = weights_lib.scale_and_clip(weights, 0.1, 2.0)
  np.testing.assert_allclose(kept.numpy(), [[[0.1, 1.0, 2.0]]])
  np.testing.assert_allclose(cut.numpy(), [[[0.0, 0.0, 8.0]]])
  kept, cut = weights_lib.scale_and_clip(weights, 0.1)
  np.testing.assert_allclose(kept.numpy(), [[[0.1, 1.0, 10.0]]])
  assert not cut.numpy().any()
