"""Cases that users ran into: padding, masks and lists without pairs."""

import warnings

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from case_models import LN2
from case_models import NONE
from case_models import SUM
from case_models import learning_loss
from case_models import linear_model
from case_models import plain_loss
from case_models import value_and_gradient
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import pairs
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking


def test_case_a01_padding_does_not_change_the_loss():
  for reduction, divisor in ((SUM, 1), ("sum_over_batch_size", 3),
                             ("auto", 3)):
    loss = plain_loss(reduction=reduction)
    short = loss([[1., 0., 0.]], [[2., 1., 0.]]).numpy()
    long = loss([[1., 0., 0., -1., -1., -1.]],
                [[2., 1., 0., 5., 6., 7.]]).numpy()
    np.testing.assert_allclose(short, .440190 / divisor, rtol=1e-5)
    np.testing.assert_allclose(long, short, rtol=1e-6)


def test_case_a01_padding_does_not_change_it_with_a_lambda_weight_either():
  loss = plain_loss(lambda_weight=tfr.keras.losses.NDCGLambdaWeight(),
                    reduction="auto")
  short = loss([[1., 0., 0.]], [[2., 1., 0.]]).numpy()
  long = loss([[1., 0., 0., -1., -1., -1.]],
              [[2., 1., 0., 5., 6., 7.]]).numpy()
  assert short > 0
  np.testing.assert_allclose(long, short, rtol=1e-6)


def test_case_a04_lists_of_one_item_are_warned_of_once():
  model = linear_model()
  loss = UnbiasedPairwiseLoss(PositionBias(1))
  model.compile("sgd", loss)
  features, clicks = np.ones([8, 1, 2]), np.eye(8)[:, :1]
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    history = model.fit(
        features, clicks, epochs=3, verbose=0, callbacks=[PropensityEM()])
  told = [str(w.message) for w in caught if "No list" in str(w.message)]
  assert len(told) == 1
  assert "two items with different feedback" in told[0]
  assert history.history["loss"] == [0., 0., 0.]
  value, gradient = value_and_gradient(loss, clicks, np.zeros([8, 1]))
  assert value == 0
  assert not np.any(gradient)


def test_case_a05_tied_lists_add_nothing():
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


def test_case_a06_a_list_of_padding_counts_nowhere():
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


def test_case_a07_an_explicit_mask_wins_over_negative_labels():
  labels = tf.constant([[-2., 1., 0.]])
  everything = tf.constant([[True] * 3])
  np.testing.assert_array_equal(
      pairs.preferred(labels, everything)[0],
      [[False, False, False], [True, False, True], [True, False, False]])
  np.testing.assert_array_equal(
      pairs.ranks(tf.constant([[3., 2., 1.]]), tf.zeros([1, 3]), everything),
      [[1, 2, 3]])
  # The item of -2 is ahead of the relevant one.
  for metric, expected in (
      (tfr.keras.metrics.NDCGMetric(), 1 / np.log2(3)),
      (tfr.keras.metrics.MRRMetric(), .5)):
    metric = on_ranking(metric)
    metric.update_state(labels, [[3., 2., 1.]], mask=everything)
    np.testing.assert_allclose(metric.result().numpy(), expected, rtol=1e-6)


def test_case_a07_a_masked_item_takes_no_rank():
  mask = tf.constant([[False, True, True]])
  for labels in ([[1., 1., 0.]], [[-2., 1., 0.]]):
    assert pairs.ranks(tf.constant([[3., 2., 1.]]), tf.zeros([1, 3]),
                       mask).numpy().tolist() == [[3, 1, 2]]
    for metric in (tfr.keras.metrics.NDCGMetric(),
                   tfr.keras.metrics.MRRMetric()):
      metric = on_ranking(metric)
      metric.update_state(labels, [[3., 2., 1.]], mask=mask)
      assert metric.result().numpy() == 1.


def test_case_a08_unknown_below_the_last_click():
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


def test_case_a22_lists_without_a_relevant_item_do_not_count():
  features = np.array([[[1., 0.], [0., 0.]], [[1., 0.], [0., 0.]]])
  clicks = np.array([[1., 0.], [0., 0.]])
  model = linear_model()
  model.compile(
      tf.keras.optimizers.SGD(0.), UnbiasedPairwiseLoss(PositionBias(2)),
      metrics=[on_ranking(tfr.keras.metrics.NDCGMetric(name="ndcg"))])
  model.layers[1].set_weights([np.ones([2, 1]), np.zeros(1)])
  history = model.fit(
      features, clicks, verbose=0, validation_data=(features, clicks),
      callbacks=[PropensityEM()]).history
  assert history["ndcg"] == history["val_ndcg"] == [1.]
  assert model.evaluate(
      features, clicks, verbose=0, return_dict=True)["ndcg"] == 1.
