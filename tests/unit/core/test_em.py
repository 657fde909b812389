"""Tests of ultra_tfr.core.em: step sizes, estimates, starts, constraints."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

from em_tables import SETTINGS
from em_tables import K
from em_tables import assert_trust_is_constrained
from em_tables import probabilities
import oracles
from ultra_tfr.core import em

# Step sizes.


def test_step_size_falls_as_equation_20():
  for t in (0.0, 1.0, 99.0):
    np.testing.assert_allclose(
        float(em.step_size(tf.constant(t, tf.float64), 0.05, 0.05)),
        oracles.step_size(t, 0.05, 0.05), rtol=1e-12)


def test_a_compounded_step_equals_the_single_steps():
  rng = np.random.default_rng(0)
  start, estimate = rng.uniform(size=[2, 4])
  expected = start
  for _ in range(7):
    expected = 0.9 * expected + 0.1 * estimate
  alpha = em.compound_step(
      tf.constant(0.1, tf.float64), tf.constant(7.0, tf.float64))
  np.testing.assert_allclose(
      em.move(tf.constant(start), tf.constant(estimate), alpha).numpy(),
      expected, rtol=1e-12)
  # Seven batches with these sums, or their sum at once.
  np.testing.assert_allclose(
      em.average_statistics(
          tf.constant(start), 7.0 * tf.constant(estimate), 7.0,
          alpha).numpy(), expected, rtol=1e-12)


# Estimates.


def test_examination_estimates_equal_the_oracle_and_empty_cells_stay():
  lists = oracles.random_lists(seed=5, num_lists=6, num_positions=2)
  sums = oracles.pointwise_statistics(
      lists, [0.6, 0.3, 0.5], [0.0] * 3, 3, lambda c, position: position - 1)
  theta, unclicked = em.examination_estimates(
      tf.constant(sums, tf.float64),
      tf.constant([0.1, 0.2, 0.45], tf.float64),
      tf.constant([0.1, 0.2, 0.35], tf.float64))
  for k in range(3):
    count, clicked, _, _, examined = sums[k]
    np.testing.assert_allclose(
        theta[k], oracles.em_ratio(clicked + examined, count, 0.45))
    np.testing.assert_allclose(
        unclicked[k], oracles.em_ratio(examined, count - clicked, 0.35))
  assert float(theta[2]) == 0.45
  assert float(unclicked[2]) == 0.35


def test_unclicked_examination_stays_where_everything_was_clicked():
  sums = tf.constant([[7.3, 7.3, 7.3, 7.3, 0.0]])
  theta, unclicked = em.examination_estimates(
      sums, tf.constant([0.5]), tf.constant([0.25]))
  assert float(theta[0]) == 1.0
  assert float(unclicked[0]) == 0.25


def test_click_estimates_equal_the_oracle_and_empty_cells_stay():
  lists = oracles.random_lists(seed=6, num_lists=6, num_positions=2)
  sums = oracles.pointwise_statistics(
      lists, [0.6, 0.3, 0.5], [0.1] * 3, 3, lambda c, position: position - 1)
  p1, p0 = em.click_estimates(
      tf.constant(sums, tf.float64), tf.constant([0.1, 0.2, 0.45], tf.float64),
      tf.constant([0.1, 0.2, 0.05], tf.float64))
  for k in range(3):
    count, clicked, q, q_clicked, _ = sums[k]
    np.testing.assert_allclose(p1[k], oracles.em_ratio(q_clicked, q, 0.45))
    np.testing.assert_allclose(
        p0[k], oracles.em_ratio(clicked - q_clicked, count - q, 0.05))


def test_trust_estimates_equal_the_oracle_and_empty_cells_stay():
  rng = np.random.default_rng(0)
  sums = rng.uniform(size=[K, K, 4])
  sums[1, 2] = 0.0
  sums[0, 1, :2] = 0.0
  plus, minus = em.trust_estimates(
      tf.constant(sums), tf.fill([K, K], tf.constant(0.7, tf.float64)),
      tf.fill([K, K], tf.constant(0.2, tf.float64)))
  for i in range(K):
    for j in range(K):
      a, b, c, d = sums[i, j]
      np.testing.assert_allclose(plus[i, j], oracles.em_ratio(a, a + b, 0.7))
      np.testing.assert_allclose(minus[i, j], oracles.em_ratio(c, c + d, 0.2))


def test_click_rate_start_follows_the_rates_and_leaves_no_position_at_zero():
  count = tf.constant([[1000.0, 1000.0, 1000.0, 0.0]])
  clicked = tf.constant([[200.0, 100.0, 0.0, 0.0]])
  plain = em.click_rate_start(count, clicked, 0.9, 0.0).numpy()[0]
  np.testing.assert_allclose(plain[:3], [0.9, 0.45, 0.0], rtol=1e-6)
  start = em.click_rate_start(count, clicked, 0.9, 20.0).numpy()[0]
  mean = 300.0 / 3000.0
  rates = [(200 + 20 * mean) / 1020, (100 + 20 * mean) / 1020,
           20 * mean / 1020, mean]
  np.testing.assert_allclose(start, 0.9 * np.array(rates) / rates[0],
                             rtol=1e-6)
  assert (start > 0).all()


def test_click_rate_start_without_any_click_is_even():
  start = em.click_rate_start(
      tf.constant([[50.0, 60.0]]), tf.constant([[0.0, 0.0]]), 0.9, 20.0)
  np.testing.assert_allclose(start.numpy(), [[0.9, 0.9]])


# Constraints.


@SETTINGS
@hypothesis.given(probabilities([2, K, K]), probabilities([2, K, K]))
def test_trust_constraints_hold_from_any_table(positive, negative):
  assert_trust_is_constrained(
      *em.constrain_trust(tf.constant(positive), tf.constant(negative)))


@pytest.mark.parametrize("plus", [0.0, 1e-3, 0.5, 1.0])
@pytest.mark.parametrize("minus", [0.0, 1e-3, 0.5, 1.0])
def test_trust_constraints_hold_where_both_tables_are_at_an_end(plus, minus):
  tables = tf.fill([K, K], plus), tf.fill([K, K], minus)
  assert_trust_is_constrained(*em.constrain_trust(*tables))


def test_trust_inside_the_constraints_is_left_alone():
  rng = np.random.default_rng(0)
  plus = rng.uniform(0.5, 0.8, size=[K, K])
  minus = rng.uniform(0.01, 0.2, size=[K, K])
  found = em.constrain_trust(tf.constant(plus), tf.constant(minus))
  np.testing.assert_allclose(found[0].numpy(), plus, rtol=1e-12)
  np.testing.assert_allclose(found[1].numpy(), minus, rtol=1e-12)


@SETTINGS
@hypothesis.given(probabilities([4]), probabilities([4]))
def test_click_probabilities_keep_their_order(relevant, irrelevant):
  p1 = em.constrain_examination(tf.constant(relevant), 1e-3)
  p0 = em.constrain_click_irrelevant(tf.constant(irrelevant), p1)
  assert (p1.numpy() > 0).all() and (p1.numpy() <= 1).all()
  assert (p0.numpy() >= 0).all() and (p0.numpy() < p1.numpy()).all()
