"""Tests of ultra_tfr.core.masking."""

import numpy as np
import tensorflow as tf

from ultra_tfr.core import masking


def test_negative_nan_and_infinite_feedback_is_padding():
  feedback = tf.constant([[0.0, 3.5, -1.0, np.nan, np.inf, -np.inf]])
  assert masking.valid_items(feedback).numpy().tolist() == [
      [True, True, False, False, False, False]]


def test_pairs_leave_out_the_diagonal_and_both_sides_of_padding():
  mask = np.array([[True, False, True], [False, False, False]])
  expected = np.zeros([2, 3, 3], bool)
  for lst in range(2):
    for a in range(3):
      for b in range(3):
        expected[lst, a, b] = a != b and mask[lst, a] and mask[lst, b]
  np.testing.assert_array_equal(
      masking.valid_pairs(tf.constant(mask)).numpy(), expected)


def test_invalid_values_are_replaced_before_they_reach_a_gradient():
  values = tf.constant([2.0, np.nan, np.inf])
  mask = tf.constant([True, False, False])
  with tf.GradientTape() as tape:
    tape.watch(values)
    result = tf.reduce_sum(
        tf.square(masking.zero_where_invalid(mask, values)))
  assert float(result) == 4.0
  assert tape.gradient(result, values).numpy().tolist() == [4.0, 0.0, 0.0]


def test_a_ratio_without_denominator_keeps_the_other_value():
  for dtype in (tf.float32, tf.float64):
    numerator = tf.constant([3.0, 0.0, 5.0], dtype)
    denominator = tf.constant([4.0, 0.0, 0.0], dtype)
    with tf.GradientTape() as tape:
      tape.watch([numerator, denominator])
      ratio = masking.safe_ratio(
          numerator, denominator, tf.constant(0.7, dtype))
    np.testing.assert_allclose(ratio.numpy(), [0.75, 0.7, 0.7], rtol=1e-7)
    gradients = tape.gradient(ratio, [numerator, denominator])
    np.testing.assert_allclose(gradients[0].numpy(), [0.25, 0.0, 0.0])
    np.testing.assert_allclose(gradients[1].numpy(), [-0.1875, 0.0, 0.0])


def test_clipped_logits_square_without_overflow():
  clipped = masking.clip_logits(tf.constant([-1e9, 12.5, 1e9, np.inf]))
  assert clipped.numpy().tolist() == [-30.0, 12.5, 30.0, 30.0]
  assert np.isfinite(tf.square(tf.exp(clipped)).numpy()).all()


def test_a_floored_probability_can_divide():
  floored = masking.floor_probability(tf.constant([0.0, 1e-9, 0.25, 1.0]))
  np.testing.assert_allclose(floored.numpy(), [1e-6, 1e-6, 0.25, 1.0])
