"""Tests of ultra_tfr.core.pairs."""

import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.core import pairs

LISTS = oracles.random_lists(seed=1, num_lists=6, num_items=7)


def _tensor(key, dtype=tf.float64):
  return tf.constant(oracles.column(LISTS, key), dtype)


@pytest.mark.parametrize("name", ["logistic_loss", "hinge_loss"])
def test_weighted_pair_loss_equals_the_double_loop(name):
  weights = np.random.default_rng(0).uniform(size=[6, 7, 7])
  losses = getattr(pairs, name)(_tensor("score"))
  counts = pairs.preferred(_tensor("feedback"), _tensor("valid", tf.bool))
  sums = tf.reduce_sum(
      tf.where(counts, weights * losses, tf.zeros_like(losses)), axis=2)
  expected = [
      oracles.pair_loss_sums(items, lambda a, b, n=number: weights[n, a, b],
                             getattr(oracles, name))
      for number, items in enumerate(LISTS)]
  np.testing.assert_allclose(sums.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_weighted_losses_have_the_gradient_of_the_pairs(name):
  """Also where scores tie, at which the parts of the formula have a corner."""
  rng = np.random.default_rng(0)
  weights, upstream = (
      tf.constant(rng.uniform(size=shape)) for shape in ([6, 7, 7], [6, 7]))
  scores = tf.constant(rng.integers(-2, 3, size=[6, 7]) / 1.5)
  found = []
  for losses in (
      lambda: pairs.weighted_losses(weights, scores, name),
      lambda: tf.reduce_sum(
          weights * getattr(pairs, f"{name}_loss")(scores), axis=2)):
    with tf.GradientTape() as tape:
      tape.watch(scores)
      total = tf.reduce_sum(upstream * losses())
    found.append([total, tape.gradient(total, scores)])
  for new, derived in zip(*found):
    np.testing.assert_allclose(new, derived, rtol=1e-12, atol=1e-12)


def test_weighted_losses_are_finite_at_any_difference():
  scores = tf.constant([[1e9, -1e9]])
  with tf.GradientTape() as tape:
    tape.watch(scores)
    losses = pairs.weighted_losses(tf.ones([1, 2, 2]), scores)
  np.testing.assert_allclose(
      losses.numpy()[0], np.log(2.0) + [0.0, 2e9], rtol=1e-6)
  np.testing.assert_allclose(tape.gradient(losses, scores), [[1.0, -1.0]])


def test_preferred_pairs_are_those_of_the_double_loop():
  counts = pairs.preferred(_tensor("feedback"), _tensor("valid", tf.bool))
  for number, items in enumerate(LISTS):
    expected = {(a, b) for a, b in oracles.ordered_pairs(items)
                if items["feedback"][a] > items["feedback"][b]}
    found = set(map(tuple, np.argwhere(counts[number].numpy()).tolist()))
    assert found == expected


def test_a_gap_up_to_the_minimum_is_a_tie():
  feedback = tf.constant([[0.5, 0.75, 1.5]], tf.float64)
  mask = tf.ones_like(feedback, tf.bool)
  assert pairs.preferred(feedback, mask, 0.25).numpy()[0].tolist() == [
      [False, False, False], [False, False, False], [True, True, False]]


def test_logistic_loss_and_gradient_are_finite_at_any_difference():
  values = tf.constant([[-1e9], [-100.0], [0.0], [100.0], [1e9]])
  with tf.GradientTape() as tape:
    tape.watch(values)
    losses = pairs.logistic_loss(
        tf.concat([values, tf.zeros_like(values)], axis=1))[:, 0, 1]
  np.testing.assert_allclose(
      losses.numpy(), [1e9, 100.0, np.log(2.0), 0.0, 0.0], rtol=1e-6)
  np.testing.assert_allclose(
      tape.gradient(losses, values).numpy()[:, 0], [-1.0, -1.0, -0.5, 0.0, 0.0],
      atol=1e-7)


def test_ranks_equal_those_of_sorting():
  # Rounded scores have many ties.
  lists = [dict(items, score=[float(round(s)) for s in items["score"]])
           for items in LISTS]
  ranks = pairs.ranks(
      tf.constant(oracles.column(lists, "score"), tf.float64),
      _tensor("position"), _tensor("valid", tf.bool)).numpy()
  for number, items in enumerate(lists):
    for a, rank in oracles.ranks(items).items():
      assert ranks[number, a] == rank
    assert sorted(ranks[number]) == list(range(1, 8))


def test_ranks_move_with_the_items_when_positions_break_ties():
  rng = np.random.default_rng(0)
  scores = np.zeros([1, 6])
  positions = rng.permutation(6)[np.newaxis] + 1.0
  mask = np.ones([1, 6], bool)
  order = rng.permutation(6)
  ranks = pairs.ranks(*map(tf.constant, (scores, positions, mask))).numpy()
  moved = pairs.ranks(*(tf.constant(x[:, order])
                        for x in (scores, positions, mask))).numpy()
  np.testing.assert_array_equal(moved, ranks[:, order])
  np.testing.assert_array_equal(ranks, positions)
