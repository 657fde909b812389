"""Cases that users of ranking losses ran into: labels, masks and weights."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import pairs
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

SUM = tf.keras.losses.Reduction.SUM
NONE = tf.keras.losses.Reduction.NONE
LN2 = np.log(2.)


def softplus(x):
  return np.log1p(np.exp(x))


def plain_loss(num_positions=10, **arguments):
  """Everything is examined: the plain sum over pairs."""
  arguments = {"reduction": SUM, **arguments}
  return UnbiasedPairwiseLoss(
      PositionBias(num_positions, examination=[1.] * num_positions),
      **arguments)


def learning_loss(num_positions=10, **arguments):
  bias = PositionBias(num_positions, initial_examination=.5)
  bias.start_collecting()
  return UnbiasedPairwiseLoss(bias, **{"reduction": SUM, **arguments})


def value_and_gradient(loss, y_true, y_pred, weights=None):
  y_pred = tf.convert_to_tensor(y_pred)
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred, weights)
  return value.numpy(), tape.gradient(value, y_pred).numpy()


def linear_model(num_features=2, seed=0):
  """Scores linear in the features, which start at 0."""
  tf.keras.utils.set_random_seed(seed)
  inputs = tf.keras.Input([None, num_features])
  scores = tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs)
  return tf.keras.Model(inputs, tf.keras.layers.Reshape([-1])(scores))


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


@pytest.mark.parametrize("temperature, expected", [
    (1., .798139), (.1, 2.126928)])
def test_case_a02_temperature_scales_the_scores(temperature, expected):
  loss = plain_loss(temperature=temperature)
  np.testing.assert_allclose(
      loss([[1., 0.]], [[.6, .8]]).numpy(), expected, rtol=1e-5)
  again = UnbiasedPairwiseLoss.from_config(loss.get_config())
  np.testing.assert_allclose(
      again([[1., 0.]], [[.6, .8]]).numpy(), expected, rtol=1e-5)


def test_case_a03_the_size_of_labels_does_not_leak_into_the_loss():
  scores = [[.3, -.2, .5]]
  for make in (plain_loss, learning_loss):
    small = value_and_gradient(make(), [[2., 1., 0.]], scores)
    large = value_and_gradient(make(), [[200., 100., 0.]], scores)
    assert small[0] > 0
    np.testing.assert_allclose(large[0], small[0], rtol=1e-6)
    np.testing.assert_allclose(large[1], small[1], rtol=1e-6)
  # A lambda weight asks for values, and gets them.
  loss = plain_loss(lambda_weight=tfr.keras.losses.DCGLambdaWeight())
  assert (loss([[4., 2., 0.]], scores).numpy() >
          1.5 * loss([[2., 1., 0.]], scores).numpy())


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


@pytest.mark.parametrize("dtype", [
    "bool", "int32", "int64", "float32", "float64", "uint8"])
@pytest.mark.parametrize("score_dtype", ["float32", "float64"])
def test_case_a09_dtypes(dtype, score_dtype):
  clicks, scores = np.array([[1, 0, 1, 0]]), [[.3, -.2, .1, .7]]
  loss = learning_loss()
  expected = loss(clicks.astype("float32"), tf.constant(scores)).numpy()
  value, gradient = value_and_gradient(
      loss, tf.constant(clicks.astype(dtype)),
      tf.constant(scores, score_dtype))
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  assert value.dtype == np.float32
  assert gradient.dtype == score_dtype


def test_case_a09_packed_integers():
  clicks, positions = np.array([[1, 0, 1]]), np.array([[3, 1, 2]])
  packed = np.stack([clicks, positions], -1)
  loss, scores = learning_loss(), tf.constant([[.3, -.2, .1]])
  expected = loss(pack_feedback(clicks, positions), scores).numpy()
  for dtype in ("int32", "int64", "float64"):
    np.testing.assert_allclose(
        loss(tf.constant(packed, dtype), scores).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_case_a10_half_precision(dtype):
  loss = learning_loss()
  clicks = tf.constant([[1., 0., -1.]], dtype)
  value, gradient = value_and_gradient(
      loss, clicks, tf.constant([[60000., -60000., 0.]], dtype))
  assert value.dtype == np.float32
  assert value == 0
  # While EM runs the score learns relevance too; at these scores it is sure.
  np.testing.assert_allclose(gradient.astype(np.float32), 0., atol=1e-6)
  # The wrong way round: past what half precision can hold.
  value, gradient = value_and_gradient(
      plain_loss(), clicks, tf.constant([[-60000., 60000., 0.]], dtype))
  np.testing.assert_allclose(value, 120000., rtol=.01)
  gradient = gradient.astype(np.float32)
  assert np.all(np.isfinite(gradient))
  assert gradient[0, 0] < 0 < gradient[0, 1]
  for total in loss.position_bias.take_sums().values():
    assert total.dtype == tf.float32
    assert np.all(np.isfinite(total))


def test_case_a11_no_nan_from_an_item_that_cannot_be_seen():
  loss = UnbiasedPairwiseLoss(
      PositionBias(2, examination=[1., 0.]), reduction=NONE)
  # Not clicked: as the better one of a pair it has no weight; against it the
  # weight is the limit (1 - beta) / (1 - theta beta) = 1/2 at a score of 0.
  value, gradient = value_and_gradient(loss, [[1., 0.]], [[0., 0.]])
  np.testing.assert_allclose(value, [[LN2 / 2, 0.]], rtol=1e-6)
  assert np.all(np.isfinite(gradient))
  # Clicked all the same: the weight is one over the smallest probability.
  value, gradient = value_and_gradient(loss, [[0., 1.]], [[0., 0.]])
  np.testing.assert_allclose(value, [[0., 1e6 * LN2]], rtol=1e-4)
  assert np.all(np.isfinite(gradient))


def test_case_a12_labels_and_scores_up_to_999():
  labels = np.arange(1000, dtype=np.float32)[np.newaxis]
  positions = labels + 1
  packed = pack_feedback(labels, positions)
  arguments = {"num_positions": 1000, "reduction": "auto"}
  for lambda_weight in (None, tfr.keras.losses.NDCGLambdaWeight()):
    for feedback in ("binary", "graded"):
      loss = plain_loss(
          **arguments, lambda_weight=lambda_weight, feedback=feedback)
      for scores in (labels, -labels):
        value, gradient = value_and_gradient(loss, packed, scores)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))
      assert value > 0  # The reversed order.


def test_case_a12_metric_on_labels_up_to_999():
  labels = np.arange(1000, dtype=np.float32)[np.newaxis]
  metric = on_ranking(tfr.keras.metrics.NDCGMetric(
      gain_fn=lambda label: label))
  metric.update_state(labels, labels)
  np.testing.assert_allclose(metric.result().numpy(), 1., rtol=1e-6)


def test_case_a13_continuous_feedback_orders_pairs():
  dwell = tf.constant([[12.3, .4, 55.]])
  np.testing.assert_array_equal(
      np.argwhere(pairs.preferred(dwell, dwell >= 0)[0]),
      [[0, 1], [2, 0], [2, 1]])
  model = linear_model(num_features=3)
  model.compile(tf.keras.optimizers.Adam(.1), UnbiasedPairwiseLoss(
      PositionBias(3, initial_examination=.9), feedback="graded"))
  features = np.eye(3)[np.newaxis]
  model.fit(features, dwell, epochs=20, verbose=0, callbacks=[PropensityEM()])
  scores = model.predict(features, verbose=0)[0]
  assert np.argsort(-scores).tolist() == [2, 0, 1]
  assert np.ptp(scores) > .1


def test_case_a14_there_is_no_highest_label():
  labels, scores = [[0., 72., 285.]], [[0., 0., 0.]]
  np.testing.assert_allclose(
      plain_loss()(labels, scores).numpy(), 3 * LN2, rtol=1e-6)
  for feedback in ("binary", "graded"):
    loss = plain_loss(feedback=feedback,
                      lambda_weight=tfr.keras.losses.NDCGLambdaWeight())
    value = loss(labels, scores).numpy()
    assert np.isfinite(value) and value > 0


def test_case_a15_near_equal_labels_are_ties_within_the_gap():
  labels, scores = [[.8, .8001, .1]], [[0., 0., 0.]]
  np.testing.assert_allclose(
      plain_loss()(labels, scores).numpy(), 3 * LN2, rtol=1e-6)
  np.testing.assert_allclose(
      plain_loss(min_gap=.01)(labels, scores).numpy(), 2 * LN2, rtol=1e-6)


def test_case_a17_an_inverse_propensity():
  # The clicked item was at a position seen half as often as the first.
  loss = UnbiasedPairwiseLoss(
      PositionBias(2, examination=[1., .5]), reduction=SUM)
  np.testing.assert_allclose(
      loss(pack_feedback([[1., 0.]], [[2, 1]]), [[1., 0.]]).numpy(),
      .626523, rtol=1e-5)
  # The same as a weight of the preferred item.
  np.testing.assert_allclose(
      plain_loss()([[1., 0.]], [[1., 0.]], [[2., 1.]]).numpy(),
      .626523, rtol=1e-5)


def test_case_a17_shapes_of_weights():
  loss = plain_loss(reduction=SUM)
  clicks, scores = [[1., 0.], [0., 1.]], [[1., 0.], [2., 0.]]
  first, second = softplus(-1.), softplus(2.)
  for weights, expected in (
      (None, first + second),
      (3., 3 * (first + second)),
      ([2., 5.], 2 * first + 5 * second),
      ([[2.], [5.]], 2 * first + 5 * second),
      ([[2., 3.], [4., 5.]], 2 * first + 5 * second)):
    np.testing.assert_allclose(
        loss(clicks, scores, weights).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [[3], [3, 1], [1, 2, 2], [2, 3], [1, 2]])
def test_case_a17_other_shapes_of_weights_are_errors(shape):
  with pytest.raises(
      ValueError, match=r"`sample_weight` must be .*\[2\] or \[2, 2\], but "):
    plain_loss()([[1., 0.], [0., 1.]], tf.zeros([2, 2]), tf.ones(shape))


def test_case_a18_lists_of_weight_zero():
  clicks, scores = [[1., 0.], [0., 1.]], [[1., 0.], [2., 0.]]
  alone = softplus(2.) / 2
  for normalize, expected in ((True, alone), (False, alone / 2)):
    loss = plain_loss(reduction="auto", normalize_weights=normalize)
    np.testing.assert_allclose(
        loss(clicks, scores, [0., 1.]).numpy(), expected, rtol=1e-6)
  assert plain_loss(reduction="auto", normalize_weights=True)(
      clicks, scores, [0., 0.]).numpy() == 0


def test_case_a19_weights_move_with_their_documents():
  rng = np.random.default_rng(0)
  labels = (rng.random([3, 6]) < .4).astype(np.float32)
  labels[:, 0] = 1.
  scores = rng.normal(size=[3, 6]).astype(np.float32)
  weights = rng.uniform(.5, 3., size=[3, 6]).astype(np.float32)
  positions = np.tile(np.arange(6) + 1, [3, 1])
  loss = learning_loss(lambda_weight=tfr.keras.losses.NDCGLambdaWeight())
  results = []
  for order in ([0, 1, 2, 3, 4, 5], [4, 2, 0, 5, 1, 3]):
    y, s, w = labels[:, order], scores[:, order], weights[:, order]
    values = [loss(pack_feedback(y, positions[:, order]), s, w).numpy()]
    for metric in (tfr.keras.metrics.MRRMetric(),
                   tfr.keras.metrics.NDCGMetric()):
      metric = on_ranking(metric)
      metric.update_state(y, s, w)
      values.append(metric.result().numpy())
    results.append(values)
  np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_case_a20_a_shuffle_keeps_the_display_order():
  loss = UnbiasedPairwiseLoss(
      PositionBias(4, examination=[.9, .6, .4, .2]), reduction=SUM)
  clicks, scores = np.array([[1., 0., 0., 1.]]), np.array([[.1, .5, -.3, .2]])
  order = [2, 0, 3, 1]
  expected = loss(clicks, scores).numpy()
  shuffled = pack_feedback(
      clicks[:, order], positions=np.array([[1, 2, 3, 4]])[:, order])
  np.testing.assert_allclose(
      loss(shuffled, scores[:, order]).numpy(), expected, rtol=1e-6)
  # Without them it would be another one.
  assert abs(loss(clicks[:, order], scores[:, order]).numpy() -
             expected) > 1e-3


def test_case_a21_constant_scores_are_not_rewarded():
  worst = (1. / np.log2([3, 4, 5]) @ [1., 3., 7.]) / (
      [7., 3., 1.] @ (1. / np.log2([2, 3, 4])))
  for labels in ([3., 2., 1., 0.], [0., 1., 2., 3.], [2., 0., 3., 1.]):
    metric = on_ranking(tfr.keras.metrics.NDCGMetric())
    metric.update_state([labels], [[.5] * 4])
    # Less than the .749981 of random ties: least relevant first.
    np.testing.assert_allclose(metric.result().numpy(), worst, rtol=1e-6)
  assert worst < .749981


def test_case_a21_training_does_not_depend_on_the_order_of_items():
  rng = np.random.default_rng(0)
  features = rng.normal(size=[32, 5, 2]).astype(np.float32)
  clicks = (rng.random([32, 5]) < .4).astype(np.float32)
  positions = np.argsort(rng.random([32, 5]), axis=1) + 1
  weights = []
  for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
    model = linear_model()
    model.compile("sgd", UnbiasedPairwiseLoss(
        PositionBias(5), lambda_weight=tfr.keras.losses.NDCGLambdaWeight()))
    model.fit(
        features[:, order], pack_feedback(clicks, positions).numpy()[:, order],
        batch_size=8, epochs=2, shuffle=False, verbose=0,
        callbacks=[PropensityEM()])
    weights.append(model.get_weights()[0])
  assert np.abs(weights[0]).max() > 1e-3
  np.testing.assert_allclose(weights[0], weights[1], atol=1e-6)


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
