"""Tests of ultra_tfr.core.preference_ratios."""

import math

import numpy as np
import pytest
import tensorflow as tf

import baseline_oracles
import oracles
from ultra_tfr.core import pairs
from ultra_tfr.core import positions as positions_lib
from ultra_tfr.core import preference_ratios

K = 4
LISTS = oracles.random_lists(seed=7, num_lists=8, num_positions=K)
CLICKED = [1.0, 0.7, 0.4, 0.3]
UNCLICKED = [1.0, 1.2, 1.5, 1.9]


def _slots():
  return positions_lib.find_slots(
      tf.constant(oracles.column(LISTS, "position"), tf.float32), None, K, 1)


def _lookup(table):
  return _slots().lookup(tf.constant(table, tf.float64))


def _sums(clicked, unclicked):
  scores = tf.constant(oracles.column(LISTS, "score"), tf.float64)
  is_greater = pairs.preferred(
      tf.constant(oracles.column(LISTS, "feedback")),
      tf.constant(oracles.column(LISTS, "valid")))
  weights = tf.constant(oracles.column(LISTS, "weight"), tf.float64)
  losses = tf.where(
      is_greater, pairs.logistic_loss(scores), 0.0)
  return preference_ratios.ratio_sums(
      losses * weights[:, :, tf.newaxis], _lookup(clicked), _lookup(unclicked),
      _slots())


def test_sums_equal_the_double_loop():
  np.testing.assert_allclose(
      _sums(CLICKED, UNCLICKED),
      baseline_oracles.ratio_sums(LISTS, CLICKED, UNCLICKED), rtol=1e-10)


def test_all_pairs_are_summed():
  """An implementation assigned where it should add: the last pair counted."""
  # Three documents, scores 0, a click on position 1, t- = 1.
  losses = math.log(2.0) * tf.constant(
      [[[0.0, 1.0, 1.0], [0.0] * 3, [0.0] * 3]], tf.float64)
  ones = tf.ones([1, 3], tf.float64)
  sums = preference_ratios.ratio_sums(
      losses, ones, ones, positions_lib.find_slots(
          tf.constant([[1.0, 2.0, 3.0]]), None, 3, 1))
  np.testing.assert_allclose(
      sums, [[1.386294, 0.0], [0.0, 0.693147], [0.0, 0.693147]], atol=1e-6)


def test_pair_weights():
  weights = preference_ratios.pair_weights(_lookup(CLICKED), _lookup(UNCLICKED))
  for row, items in enumerate(LISTS):
    for a, b in oracles.ordered_pairs(items):
      i, j = items["position"][a] - 1, items["position"][b] - 1
      np.testing.assert_allclose(
          weights[row, a, b], 1.0 / (CLICKED[i] * UNCLICKED[j]), rtol=1e-12)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 3.0])
def test_any_regularization(p):
  """Users had to edit the regularizer in the source."""
  sums = [4.0, 9.0, 1.0, 0.25]
  found = preference_ratios.ratios(
      tf.constant([sums], tf.float64), tf.ones([1, K], tf.float64), p, 1e-3)
  np.testing.assert_allclose(
      found, [baseline_oracles.ratios(sums, [1.0] * K, p, 1e-3)], rtol=1e-12)
  # p = 0 is the plain ratio and p = 1 its square root.
  if p in (0.0, 1.0):
    plain = np.array(sums) / 4.0
    np.testing.assert_allclose(found[0], plain if p == 0 else plain**0.5)


@pytest.mark.parametrize("sums, expected", [
    # Nothing at position 1: all keep what they have.
    ([0.0, 3.0, 2.0, 0.0], [0.9, 0.8, 0.7, 0.6]),
    ([0.0, 0.0, 0.0, 0.0], [0.9, 0.8, 0.7, 0.6]),
    # Nothing at position 3; too little at position 4.
    ([2.0, 1.0, 0.0, 1e-9], [1.0, 0.5, 0.7, 1e-3])])
def test_positions_without_pairs(sums, expected):
  found = preference_ratios.ratios(
      tf.constant([sums]), tf.constant([[0.9, 0.8, 0.7, 0.6]]), 0.0, 1e-3)
  np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_nothing_moves_while_the_first_position_is_not_seen():
  """A banner took its place: t+ went from .5 to 78, 3.7e8 and inf."""
  now, faded = tf.constant([[1.0, 0.5]]), tf.constant([[1e-30, 2.0]])
  for latest, expected in (([[0.0, 2.0]], [1.0, 0.5]),
                           ([[1e-3, 2.0]], [1.0, 1e3])):
    found = preference_ratios.ratios(
        faded, now, 0.0, 1e-3, tf.constant(latest))
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_contexts_have_their_own_first_position():
  found = preference_ratios.ratios(
      tf.constant([[4.0, 2.0], [1.0, 3.0]]), tf.ones([2, 2]), 0.0, 1e-3)
  assert found.numpy().tolist() == [[1.0, 0.5], [1.0, 3.0]]
