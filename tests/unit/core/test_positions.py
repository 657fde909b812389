"""Tests of ultra_tfr.core.positions."""

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr.core import positions as positions_lib

CODES = [[1.0, 3.0, 0.0, -1.0, 4.0, np.nan, 1e30, 2.0]]


def _slots(values=CODES, contexts=None, num_positions=3, num_contexts=1,
           pool=False):
  contexts = None if contexts is None else tf.constant(contexts)
  return positions_lib.find_slots(
      tf.constant(values), contexts, num_positions, num_contexts, pool)


def test_zero_negative_and_nan_positions_are_unknown_and_no_overflow():
  slots = _slots()
  assert slots.valid.numpy()[0].tolist() == [
      True, True, False, False, False, False, False, True]
  assert slots.overflow.numpy()[0].tolist() == [
      False, False, False, False, True, False, True, False]
  assert slots.index.numpy()[0].tolist() == [0, 2, 0, 0, 0, 0, 0, 1]


def test_pooled_positions_share_the_last_slot():
  slots = _slots(pool=True)
  assert slots.valid.numpy()[0].tolist() == [
      True, True, False, False, True, False, True, True]
  assert not slots.overflow.numpy().any()
  assert slots.index.numpy()[0].tolist() == [0, 2, 0, 0, 2, 0, 2, 1]


def test_each_context_has_its_own_slots():
  slots = _slots([[1.0, 2.0, 3.0]] * 2, [[0.0] * 3, [1.0] * 3],
                 num_contexts=2)
  assert slots.index.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_context_outside_the_tables_is_overflow():
  slots = _slots([[1.0, 1.0, 1.0, 0.0]], [[2.0, -1.0, np.nan, 5.0]],
                 num_contexts=2)
  assert slots.overflow.numpy()[0].tolist() == [True, True, True, False]
  assert not slots.valid.numpy().any()


def test_whole_numbers_survive_a_float_representation():
  slots = _slots([[1.0000001, 1.9999999]])
  assert slots.index.numpy()[0].tolist() == [0, 1]


def test_lookup_takes_the_value_of_context_and_position():
  table = np.arange(6.0).reshape(2, 3)
  slots = _slots([[3.0, 1.0], [2.0, 3.0]], [[0.0, 0.0], [1.0, 1.0]],
                 num_contexts=2)
  np.testing.assert_array_equal(
      slots.lookup(tf.constant(table)).numpy(),
      [[table[0, 2], table[0, 0]], [table[1, 1], table[1, 2]]])


def test_lookup_of_pairs_takes_row_a_and_column_b():
  table = np.random.default_rng(0).uniform(size=[2, 3, 3])
  ranks = np.array([[3, 1, 2], [2, 2, 1]])
  contexts = np.array([[0] * 3, [1] * 3])
  slots = _slots(ranks.astype(float), contexts.astype(float), num_contexts=2)
  found = slots.lookup_pairs(tf.constant(table)).numpy()
  for lst in range(2):
    for a in range(3):
      for b in range(3):
        assert found[lst, a, b] == table[
            contexts[lst, a], ranks[lst, a] - 1, ranks[lst, b] - 1]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_sums_are_those_of_one_hots(jit_compile):
  rng = np.random.default_rng(0)
  contexts, ranks = rng.integers(0, 2, [4, 5]), rng.integers(0, 5, [4, 5])
  slots = _slots(ranks.astype(float), contexts.astype(float), num_contexts=2)
  values = rng.normal(size=[4, 5, 3])
  values[~slots.valid.numpy()] = np.nan  # Padding counts nowhere.
  found = tf.function(slots.sums, jit_compile=jit_compile)(
      tf.constant(values))
  expected = np.zeros([6, 3])
  for context, rank, value in zip(
      contexts.ravel(), ranks.ravel(), values.reshape(-1, 3)):
    if 1 <= rank <= 3:
      expected[3 * context + rank - 1] += value
  np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_one_hots_are_empty_where_not_valid():
  slots = _slots([[2.0, 9.0, 0.0]], [[1.0] * 3], num_contexts=2)
  assert slots.position_one_hot(tf.float64).dtype == tf.float64
  np.testing.assert_array_equal(
      slots.position_one_hot().numpy()[0], [[0, 1, 0], [0] * 3, [0] * 3])
