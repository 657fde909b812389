"""Tests of ultra_tfr.losses: padding, and lists without pairs."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from small_losses import LN2
from small_losses import NONE
from small_losses import SUM
from small_losses import learning_loss
from small_losses import plain_loss
from small_losses import value_and_gradient
from ultra_tfr.core import pairs
from ultra_tfr.metrics import on_ranking


def test_padding_does_not_change_the_loss():
  """A mean over all items, padding too, halved the loss of padded lists."""
  for reduction, divisor in ((SUM, 1), ("sum_over_batch_size", 3),
                             ("auto", 3)):
    loss = plain_loss(reduction=reduction)
    short = loss([[1., 0., 0.]], [[2., 1., 0.]]).numpy()
    long = loss([[1., 0., 0., -1., -1., -1.]],
                [[2., 1., 0., 5., 6., 7.]]).numpy()
    np.testing.assert_allclose(short, .440190 / divisor, rtol=1e-5)
    np.testing.assert_allclose(long, short, rtol=1e-6)


def test_padding_does_not_change_a_lambda_loss():
  """With a lambda weight padding did not count, and without one it did."""
  loss = plain_loss(lambda_weight=tfr.keras.losses.NDCGLambdaWeight(),
                    reduction="auto")
  short = loss([[1., 0., 0.]], [[2., 1., 0.]]).numpy()
  long = loss([[1., 0., 0., -1., -1., -1.]],
              [[2., 1., 0., 5., 6., 7.]]).numpy()
  assert short > 0
  np.testing.assert_allclose(long, short, rtol=1e-6)


def test_tied_lists_add_nothing():
  """A list whose labels are all equal has no pair, and its mean was NaN."""
  loss = plain_loss()
  for tied in ([0., 0., 0.], [2., 2., -1.]):
    value, gradient = value_and_gradient(loss, [tied], [[.3, .1, -.2]])
    assert value == 0
    np.testing.assert_array_equal(gradient, np.zeros([1, 3]))
  alone = value_and_gradient(loss, [[1., 0., 0.]], [[.2, .4, .1]])
  mixed = value_and_gradient(
      loss, [[0., 0., 0.], [1., 0., 0.], [2., 2., -1.]],
      [[.3, .1, -.2], [.2, .4, .1], [.3, .1, -.2]])
  np.testing.assert_allclose(mixed[0], alone[0], rtol=1e-6)
  np.testing.assert_allclose(mixed[1][1], alone[1][0], rtol=1e-6)
  assert not np.any(mixed[1][[0, 2]])


def test_a_list_of_padding_counts_nowhere():
  """Batches may hold lists of nothing but padding."""
  loss = learning_loss(reduction="auto")
  value, gradient = value_and_gradient(loss, [[-1., -1.]], [[3., np.nan]])
  assert value == 0
  assert not np.any(gradient)
  sums = loss.position_bias.take_sums()
  assert not np.any(sums["pointwise"])
  assert not np.any(sums["calibration"])
  # The batch counts as one, which is all that there is.
  np.testing.assert_array_equal(sums["counters"], [1., 0., 0., 0., 0.])
  metric = on_ranking(tfr.keras.metrics.NDCGMetric())
  metric.update_state([[1., 0.]], [[1., 0.]])
  metric.update_state([[-1., -1.]], [[3., 4.]])
  assert metric.result().numpy() == 1.


def test_items_below_the_last_click_may_be_unknown():
  """Users mark what nobody may have seen: it is neither clicked nor not."""
  loss = learning_loss(reduction=NONE)
  clicks, scores = [[0., 0., 1., -1., -1.]], [[0., 0., 0., 9., -9.]]
  np.testing.assert_array_equal(
      np.argwhere(pairs.preferred(
          tf.constant(clicks), tf.constant(clicks) >= 0)[0]),
      [[2, 0], [2, 1]])
  losses = loss(clicks, scores).numpy()[0]
  assert losses[2] > 0
  assert not np.any(losses[[0, 1, 3, 4]])
  sums = loss.position_bias.take_sums()
  assert sums["counters"].numpy()[2] == 2
  # Neither as shown nor as clicked do the unknown ones enter a position.
  np.testing.assert_array_equal(
      sums["pointwise"].numpy()[:5, :2],
      [[1., 0.], [1., 0.], [1., 1.], [0., 0.], [0., 0.]])
  value, gradient = value_and_gradient(plain_loss(), clicks, scores)
  np.testing.assert_allclose(value, 2 * LN2, rtol=1e-6)
  assert not np.any(gradient[0, 3:])
