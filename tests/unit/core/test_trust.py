"""Tests of ultra_tfr.core.trust."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import positions as positions_lib
from ultra_tfr.core import trust

NUM_POSITIONS = 4
LISTS = oracles.random_lists(seed=3, num_lists=8, min_beta=0.15)
BETA = np.array(oracles.column(LISTS, "beta"))
_RNG = np.random.default_rng(1)
THETA = _RNG.uniform(0.1, 0.95, size=NUM_POSITIONS)
PLUS = _RNG.uniform(0.6, 0.9, size=[NUM_POSITIONS] * 2)
# So small that neither g' nor gamma needs a clip.
MINUS = _RNG.uniform(0.002, 0.015, size=[NUM_POSITIONS] * 2)
GAMMA = BETA[:, :, np.newaxis] * _RNG.uniform(0.05, 0.95, size=[8, 6, 6])
# With these g' must be clipped to beta_a in most pairs.
LARGE_MINUS = MINUS + 0.5


def _positions():
  return tf.constant(oracles.column(LISTS, "position"), tf.float32)


def _slots():
  return positions_lib.find_slots(_positions(), None, NUM_POSITIONS, 1)


def _model(minus=MINUS):
  slots = _slots()
  return trust.pair_model(
      slots.lookup(tf.constant(THETA)),
      tf.constant(BETA),
      tf.constant(GAMMA), slots.lookup_pairs(tf.constant(PLUS[np.newaxis])),
      slots.lookup_pairs(tf.constant(np.array(minus)[np.newaxis])))


def _each_pair(function, minus=MINUS):
  """A function of (theta_i, theta_j, beta_a, gamma, eps+, eps-), by pair."""
  values = {}
  for number, items in enumerate(LISTS):
    for a, b in oracles.ordered_pairs(items):
      i, j = items["position"][a] - 1, items["position"][b] - 1
      values[number, a, b] = function(
          THETA[i], THETA[j], items["beta"][a], GAMMA[number, a, b],
          PLUS[i, j], minus[i][j])
  return values


def _assert_equal(tensor, expected):
  values = tensor.numpy()
  for index, value in expected.items():
    np.testing.assert_allclose(values[index], value, rtol=1e-11, atol=1e-14)


def test_outcome_equals_the_double_loop_with_and_without_a_clip_of_g():
  for minus in (MINUS, LARGE_MINUS):
    _assert_equal(_model(minus).outcome, _each_pair(oracles.outcome, minus))


STATES = {"greater": ("preferred", "not_preferred", "unexamined"),
          "not_greater": ("preferred", "not_preferred", "rest")}


def _table(model):
  """All rows of the E step table."""
  return {group: {state: trust.pair_posterior(model, group, state)
                  for state in states} for group, states in STATES.items()}


@pytest.mark.parametrize("group, state", [
    ("greater", "preferred"), ("greater", "not_preferred"),
    ("greater", "unexamined"), ("not_greater", "preferred"),
    ("not_greater", "not_preferred"), ("not_greater", "rest")])
def test_posterior_table_equals_the_double_loop(group, state):
  _assert_equal(
      _table(_model())[group][state],
      _each_pair(lambda *args: oracles.pair_table(*args)[group][state]))


@pytest.mark.parametrize("group, state", [
    ("greater", "preferred"), ("greater", "not_preferred"),
    ("greater", "unexamined"), ("not_greater", "preferred"),
    ("not_greater", "not_preferred"), ("not_greater", "rest")])
def test_clip_of_g_takes_from_the_noise_and_not_from_the_preference(
    group, state):
  minus = LARGE_MINUS
  _assert_equal(
      _table(_model(minus))[group][state],
      _each_pair(lambda *args: oracles.pair_table(*args)[group][state],
                 minus))


def test_posterior_table_sums_to_one():
  for minus in (MINUS, LARGE_MINUS, np.zeros_like(MINUS)):
    for group in _table(_model(minus)).values():
      np.testing.assert_allclose(sum(group.values()).numpy(), 1.0, rtol=1e-12)
      for values in group.values():
        assert (values.numpy() >= 0).all()


@pytest.mark.parametrize("greater", [True, False])
def test_preference_posterior_equals_the_double_loop(greater):
  _assert_equal(
      trust.preference_posterior(tf.fill([8, 6, 6], greater), _model()),
      _each_pair(lambda *args: oracles.preference_posterior(greater, *args)))


def test_preference_posterior_adds_up_to_the_prior():
  model = _model()
  outcome = model.outcome
  total = sum(
      trust.preference_posterior(tf.fill([8, 6, 6], greater), model) * share
      for greater, share in ((True, outcome), (False, 1.0 - outcome)))
  np.testing.assert_allclose(
      total.numpy(), np.broadcast_to(model.preference, total.shape),
      rtol=1e-12)


@pytest.mark.parametrize("minus", [MINUS, LARGE_MINUS],
                         ids=["free", "clipped"])
def test_preference_given_examined_equals_equation_15(minus):
  _assert_equal(
      trust.preference_given_examined(_model(minus)),
      _each_pair(lambda ti, tj, beta, gamma, plus, minus:
                 oracles.preference_given_examined(beta, gamma, plus, minus),
                 minus))


def test_preference_given_examined_equals_its_form_in_logits():
  model = _model()
  logits = (tf.math.log(model.preference / (1.0 - model.preference)) +
            tf.math.log(model.trust_positive) -
            tf.math.log(model.trust_negative))
  np.testing.assert_allclose(
      trust.preference_given_examined(model).numpy(),
      tf.sigmoid(logits).numpy(), rtol=1e-12)


@pytest.mark.parametrize("form", ["prior", "position"])
def test_examined_given_preferred_equals_the_double_loop(form):
  t = THETA if form == "prior" else 0.7 * THETA
  model = _model()
  found = trust.examined_given_preferred(
      model, _slots().lookup(tf.constant(t))[:, tf.newaxis, :])
  # The item's own relevance enters the item form only.
  _assert_equal(found, _each_pair(
      lambda ti, tj, beta, gamma, plus, minus:
      oracles.examined_given_preferred(
          form, tj, 0.7 * tj, beta, None, gamma, plus, minus)))


def test_binary_and_graded_preference_equal_the_double_loop():
  beta = BETA
  grades = np.array(oracles.column(LISTS, "score"))
  binary = trust.binary_preference(tf.constant(beta)).numpy()
  graded = trust.graded_preference(
      tf.constant(beta), tf.constant(grades), 0.3).numpy()
  for index in np.ndindex(8, 6, 6):
    n, a, b = index
    np.testing.assert_allclose(
        binary[index], oracles.binary_preference(beta[n, a], beta[n, b]),
        rtol=1e-12)
    np.testing.assert_allclose(
        graded[index], oracles.graded_preference(
            beta[n, a], beta[n, b], grades[n, a], grades[n, b], 0.3),
        rtol=1e-12)
    assert graded[index] <= beta[n, a]


def test_preference_is_clipped_to_the_relevance_of_a():
  model = trust.pair_model(
      tf.constant([[0.5, 0.5]]), tf.constant([[0.2, 0.9]]),
      tf.fill([1, 2, 2], 0.7), 1.0, 0.0)
  np.testing.assert_allclose(
      model.preference.numpy()[0], [[0.2, 0.2], [0.7, 0.7]])


def test_statistics_equal_the_double_loop_with_padding():
  feedback = tf.constant(oracles.column(LISTS, "feedback"), tf.float64)
  mask = tf.constant(oracles.column(LISTS, "valid"))
  weights = tf.constant(oracles.column(LISTS, "weight"), tf.float64)
  slots = _slots()
  sums = trust.trust_statistics(
      pairs.preferred(feedback, mask), masking.valid_pairs(mask), _model(),
      slots, weights)
  expected = oracles.trust_statistics(
      LISTS, THETA, lambda n, a, b: GAMMA[n, a, b], PLUS, MINUS,
      NUM_POSITIONS)
  np.testing.assert_allclose(sums.numpy(), expected, rtol=1e-11)


def test_padding_that_is_not_a_number_of_a_list_enters_no_statistic():
  # Extreme values in padding must not matter.
  mask = tf.constant([[True, True, False]])
  slots = positions_lib.find_slots(
      tf.constant([[1.0, 2.0, 0.0]]), None, 2, 1)
  results = []
  for padded_beta in (0.3, 1.0):
    beta = tf.constant([[0.4, 0.6, padded_beta]])
    model = trust.pair_model(
        tf.constant([[0.9, 0.5, 0.9]]), beta, trust.binary_preference(beta),
        0.9, 0.1)
    results.append(trust.trust_statistics(
        pairs.preferred(tf.constant([[1.0, 0.0, 0.0]]), mask),
        masking.valid_pairs(mask), model, slots, tf.ones([1, 3])).numpy())
  np.testing.assert_array_equal(*results)
  assert results[0][0, 1].sum() > 0
  assert results[0][0, 0].sum() == 0


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_values_and_gradients_are_finite_at_probabilities_zero_and_one(dtype):
  corners = np.array(list(itertools.product([0.0, 0.5, 1.0], repeat=6)))
  columns = [tf.constant(corners[:, n].reshape(-1, 1, 1), dtype)
             for n in range(6)]
  ones = tf.ones([len(corners), 1], dtype)
  slots = positions_lib.find_slots(ones, None, 1, 1)
  trues = tf.fill([len(corners), 1, 1], True)

  def model():
    beta, gamma = columns[2:4]
    return trust.PairModel(
        columns[0], columns[1], beta, tf.minimum(gamma, beta), *columns[4:])

  functions = {
      "m": lambda: trust.preference_given_examined(model()),
      "h": lambda: trust.examined_given_preferred(model(), columns[1]),
      "given": lambda: trust.preference_posterior(trues, model()),
      "not given": lambda: trust.preference_posterior(
          tf.logical_not(trues), model()),
      "outcome": lambda: model().outcome,
      "statistics": lambda: trust.trust_statistics(
          trues, trues, model(), slots, ones),
  }
  for group in ("greater", "not_greater"):
    for state in _table(model())[group]:
      functions[f"{group} {state}"] = (
          lambda group=group, state=state:
          _table(model())[group][state])
  for name, function in functions.items():
    with tf.GradientTape() as tape:
      tape.watch(columns)
      value = function()
    assert np.isfinite(value.numpy()).all(), name
    if name != "statistics":
      assert (value.numpy() >= 0).all(), name
      assert (value.numpy() <= 1 + 1e-6).all(), name
    for gradient in tape.gradient(
        value, columns, unconnected_gradients="zero"):
      assert np.isfinite(gradient.numpy()).all(), name


def test_posterior_table_sums_to_one_wherever_the_outcome_is_possible():
  corners = np.array(list(itertools.product(
      [0.0, 1e-6, 0.5, 1.0 - 1e-6, 1.0], repeat=6)))
  columns = [tf.constant(corners[:, n].reshape(-1, 1, 1)) for n in range(6)]
  model = trust.PairModel(
      *columns[:3], tf.minimum(columns[3], columns[2]), *columns[4:])
  table = _table(model)
  chance = model.outcome.numpy()
  for group, possible in (("greater", chance > 0),
                          ("not_greater", chance < 1 - 1e-12)):
    total = sum(table[group].values()).numpy()
    np.testing.assert_allclose(total[possible], 1.0, rtol=1e-6)


def test_without_trust_noise_the_order_is_always_right():
  gamma = tf.constant(np.linspace(0.0, 1.0, 11).reshape(1, 1, 11))
  one = tf.ones_like(gamma)
  model = trust.PairModel(one, one, one, gamma, one, tf.zeros_like(one))
  np.testing.assert_array_equal(
      trust.preference_given_examined(model).numpy(), 1.0)


def test_where_everything_is_examined_the_second_item_was():
  beta = tf.constant(np.linspace(0.0, 1.0, 11).reshape(1, 1, 11))
  one = tf.ones_like(beta)
  for gamma in (0.0, 0.5, 1.0):
    model = trust.PairModel(
        one, one, beta, tf.minimum(gamma * one, beta), one,
        tf.zeros_like(one))
    np.testing.assert_allclose(
        trust.examined_given_preferred(model, one).numpy(), 1.0)
