"""Tests of ultra_tfr.feedback."""

import numpy as np
import pytest
import tensorflow as tf

import ultra_tfr
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.feedback import unpack_feedback

CLICKS = [[1., 0., -1.], [0., 2.5, 0.]]
POSITIONS = [[2, 1, 0], [4, 5, 7]]


def test_it_is_public():
  assert ultra_tfr.pack_feedback is pack_feedback
  assert ultra_tfr.unpack_feedback is unpack_feedback


def test_feedback_alone_stays_as_it_is():
  packed = pack_feedback(CLICKS)
  assert packed.dtype == tf.float32
  np.testing.assert_array_equal(packed, CLICKS)
  feedback, positions, contexts = unpack_feedback(packed)
  np.testing.assert_array_equal(feedback, CLICKS)
  np.testing.assert_array_equal(positions, [[1, 2, 3], [1, 2, 3]])
  assert contexts is None


def test_round_trip_with_positions():
  packed = pack_feedback(CLICKS, POSITIONS)
  assert packed.shape == [2, 3, 2]
  feedback, positions, contexts = unpack_feedback(packed)
  np.testing.assert_array_equal(feedback, CLICKS)
  np.testing.assert_array_equal(positions, POSITIONS)
  assert contexts is None


@pytest.mark.parametrize("contexts", [
    [3, 1], [[3], [1]], [[3, 3, 3], [1, 1, 1]]])
@pytest.mark.parametrize("shown", [POSITIONS, None])
def test_round_trip_with_contexts(contexts, shown):
  packed = pack_feedback(CLICKS, shown, contexts)
  assert packed.shape == [2, 3, 3]
  feedback, positions, ids = unpack_feedback(packed)
  np.testing.assert_array_equal(feedback, CLICKS)
  np.testing.assert_array_equal(
      positions, [[1, 2, 3]] * 2 if shown is None else shown)
  np.testing.assert_array_equal(ids, [[3, 3, 3], [1, 1, 1]])


@pytest.mark.parametrize("dtype", [
    bool, np.int8, np.int64, np.float16, np.float64])
def test_dtypes(dtype):
  clicks = np.array([[1, 0, 1]]).astype(dtype)
  packed = pack_feedback(clicks, np.array([[300, 2, 1]], np.int64))
  assert packed.dtype == tf.float32
  np.testing.assert_array_equal(packed[0], [[1, 300], [0, 2], [1, 1]])


def test_nan_marks_missing_feedback():
  feedback, _, _ = unpack_feedback(pack_feedback([[np.nan, 1.]], [[1, 2]]))
  np.testing.assert_array_equal(feedback, [[np.nan, 1.]])


def test_inside_a_dataset_and_a_function():
  expected = pack_feedback(CLICKS, POSITIONS, [3, 1])
  data = tf.data.Dataset.from_tensors(
      (np.array(CLICKS, np.float32), POSITIONS, [3, 1])).map(pack_feedback)
  np.testing.assert_array_equal(next(iter(data)), expected)

  @tf.function(input_signature=[tf.TensorSpec([None, None])] * 2)
  def pack(feedback, positions):
    return pack_feedback(feedback, positions), pack_feedback(
        feedback, contexts=tf.zeros([tf.shape(feedback)[0]]))

  both, context = pack(
      tf.constant(CLICKS), tf.constant(POSITIONS, tf.float32))
  np.testing.assert_array_equal(both, expected[..., :2])
  np.testing.assert_array_equal(context[..., 1], [[1, 2, 3]] * 2)
  np.testing.assert_array_equal(context[..., 2], np.zeros([2, 3]))


def test_static_shapes_are_kept():
  @tf.function
  def pack():
    packed = pack_feedback(tf.constant(CLICKS), contexts=[0, 1])
    assert packed.shape == [2, 3, 3]
    feedback, positions, contexts = unpack_feedback(packed)
    assert feedback.shape == positions.shape == contexts.shape == [2, 3]
    return packed
  pack()


def test_ragged_feedback_is_packed():
  """Ragged labels failed; they are padded here, and so are their positions."""
  feedback = tf.ragged.constant([[1., 0.], [0.]])
  positions = tf.ragged.constant([[3, 1], [2]])
  assert ultra_tfr.pack_feedback(feedback, positions).numpy().tolist() == [
      [[1, 3], [0, 1]], [[0, 2], [-1, 0]]]
  # A tensor of other lists is no reason to guess.
  with pytest.raises(ValueError, match="`positions` must have the shape"):
    ultra_tfr.pack_feedback(feedback, [[3, 1, 2], [2, 0, 0]])


@pytest.mark.parametrize("arguments, message", [
    (([1., 0.],), r"`feedback` must have the shape \[lists, items\], but has "
     r"the shape \(2,\); pad"),
    (([[[1.]]],), r"`feedback` must have the shape .*\(1, 1, 1\)"),
    (([[1., 0.], [1.]],), "`feedback` must be a rectangular array.*pad the"),
    (([["a"]],), "`feedback` must be a rectangular array of numbers"),
    (([[1., np.inf]],), r"`feedback` must be finite; NaN or a negative value "
     r"marks missing feedback, but feedback\[0, 1\] is inf; correct"),
    ((CLICKS, [[1, 2, 3]]), r"`positions` must have the shape of `feedback`, "
     r"\(2, 3\), but has the shape \(1, 3\); give one"),
    ((CLICKS, [1, 2]), r"`positions` must have the shape .*\(2,\)"),
    ((CLICKS, [[1, 2, -1], [1, 2, 3]]),
     r"`positions` must be whole numbers.*positions\[0, 2\] is -1.0"),
    ((CLICKS, [[1, 2, 3], [1, 2.5, 3]]), r"positions\[1, 1\] is 2.5"),
    ((CLICKS, [[1, 2, np.nan], [1, 2, 3]]), r"positions\[0, 2\] is nan"),
    ((CLICKS, [[1, 2, np.inf], [1, 2, 3]]), r"positions\[0, 2\] is inf"),
    ((CLICKS, None, [0, -1]), r"`contexts` must be whole numbers from 0, but "
     r"contexts\[1, 0\] is -1.0"),
    ((CLICKS, None, [0, .5]), r"contexts\[1, 0\] is 0.5"),
    ((CLICKS, None, [0, np.nan]), r"contexts\[1, 0\] is nan"),
    ((CLICKS, None, [[0, 1], [0, 1]]), r"`contexts` must have the shape "
     r"\[lists\], \[lists, 1\] or .*\(2, 3\), but has the shape \(2, 2\)"),
    ((CLICKS, None, 3), r"`contexts` must have the shape .*shape \(\)"),
    ((CLICKS, None, [0, 1, 2]), r"`contexts` must have the shape .*\(3, ?"),
])
def test_bad_input(arguments, message):
  with pytest.raises(ValueError, match=message):
    pack_feedback(*arguments)


@pytest.mark.parametrize("shape", [
    [3], [2, 3, 1], [2, 3, 4], [1, 2, 3, 2], []])
def test_unpack_other_shapes(shape):
  with pytest.raises(ValueError, match=(
      r"`y_true` must have the shape \[lists, items\], or .* but has the shape "
      r"\(.*\); build it with `ultra_tfr.pack_feedback`")):
    unpack_feedback(tf.zeros(shape))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize("shape", [[2, 3], [2, 3, 2], [2, 3, 3]])
def test_feedback_in_half_precision(dtype, shape):
  """70,000 ms came as infinity, which is padding, and 2,049 ms as 2,048."""
  with pytest.raises(ValueError, match=(
      f"eedback came as {dtype.name}.*make the last layer float32")):
    unpack_feedback(tf.zeros(shape, dtype))


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.float32, tf.float64])
def test_what_keras_casts_not_is_taken(dtype):
  feedback, positions, _ = unpack_feedback(tf.fill(
      [1, 400], tf.constant(70_000, dtype)))
  assert feedback.dtype == positions.dtype == tf.float32
  assert feedback.numpy().min() == 70_000
  np.testing.assert_array_equal(positions[0], np.arange(400) + 1)
