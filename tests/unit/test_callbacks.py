"""Tests of ultra_tfr.callbacks, and of what it takes part in: `fit`."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from callback_fits import NUM_POSITIONS
from callback_fits import fit
from callback_fits import make_data
from callback_fits import make_model
from small_losses import linear_model
from small_losses import linear_towers
from small_losses import value_and_gradient
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

FORGOTTEN = "This loss is being trained, but nothing updates the propensities"


def messages(caught):
  return [str(warning.message) for warning in caught]


def state(bias):
  return [variable.numpy() for variable in bias.weights]


def assert_same_state(bias, expected, **tolerances):
  for actual, value in zip(state(bias), expected):
    np.testing.assert_allclose(actual, value, **tolerances)


@pytest.mark.smoke
def test_validation_never_reaches_the_estimates():
  train, other = make_data(), make_data(num_lists=16, seed=1)
  biases = []
  for validation in (None, other):
    biases.append(PositionBias(NUM_POSITIONS, trust_bias=None))
    fit(make_model(biases[-1]), train, epochs=2, validation_data=validation)
  assert np.ptp(biases[0].examination.numpy()) > .1
  assert_same_state(biases[1], state(biases[0]), rtol=0)


@pytest.mark.usefixtures("eagerly")
def test_evaluation_and_prediction_change_nothing():
  train, other = make_data(), make_data(num_lists=16, seed=1)
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  model = make_model(bias)
  model.evaluate(*other, verbose=0)
  assert not any(np.any(s) for s in bias.take_sums().values())
  fit(model, train)
  before = state(bias)
  model.evaluate(*other, verbose=0)
  model.evaluate(*other, verbose=0, callbacks=[PropensityEM()])
  model.predict(other[0], verbose=0)
  assert_same_state(bias, before, rtol=0)


@pytest.mark.parametrize("when", ["on_train_batch_end", "on_epoch_end"])
@pytest.mark.usefixtures("eagerly")
def test_evaluation_by_a_callback_of_the_user(when):
  # Keras tells such an evaluation to none of the callbacks of `fit`.
  other = make_data(num_lists=16, seed=1)
  callback = tf.keras.callbacks.Callback()
  setattr(callback, when, lambda step, logs=None: (
      step or callback.model.evaluate(*other, verbose=0)))
  biases = []
  for more in ([], [callback]):
    biases.append(PositionBias(NUM_POSITIONS, trust_bias=None))
    fit(make_model(biases[-1]), make_data(), [PropensityEM(), *more],
        epochs=2)
  np.testing.assert_allclose(
      biases[1].examination, biases[0].examination, rtol=1e-6)


@pytest.mark.parametrize("initial, callback, tolerance", [
    # Click rates are sums of counts: what is lost or counted twice shows.
    ("click_rate", {"warmup": 100}, 1e-3),
    # Five batches see the theta of the first of them, hence no equality.
    pytest.param(.9, {"averaging": "parameters"}, .02,
                 marks=pytest.mark.slow)])
def test_steps_per_execution_loses_no_sums(initial, callback, tolerance):
  data, results = make_data(num_lists=80), []
  for steps in (1, 5):
    bias = PositionBias(NUM_POSITIONS, initial_examination=initial,
        trust_bias=None)
    model = make_model(bias, optimizer=tf.keras.optimizers.SGD(1e-3),
                       steps_per_execution=steps)
    fit(model, data, [PropensityEM(**callback)])
    assert bias.num_updates.numpy() == 10
    results.append(bias.examination.numpy())
  assert np.ptp(results[0]) > .02
  np.testing.assert_allclose(results[0], results[1], atol=tolerance)


def test_steps_per_execution_with_a_rest():
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  fit(make_model(bias, steps_per_execution=2), make_data(24), epochs=2)
  assert bias.num_updates.numpy() == 6  # 3 batches an epoch.


@pytest.mark.usefixtures("eagerly")
def test_loss_in_a_dict_of_outputs():
  features, feedback = make_data(num_lists=8)
  inputs = tf.keras.Input([NUM_POSITIONS, 3])
  scores = tf.keras.layers.Dense(1)(inputs)[..., 0]
  model = tf.keras.Model(inputs, {"rank": scores, "other": scores})
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  model.compile("sgd", {"rank": UnbiasedPairwiseLoss(bias), "other": "mse"})
  fit(model, (features, {"rank": feedback, "other": feedback[..., 0]}))
  assert bias.num_updates.numpy() == 1


@pytest.mark.smoke
@pytest.mark.parametrize("max_weight", [None, .3])
def test_logs_reach_history_csv_and_tensorboard(max_weight, tmp_path):
  """The loss hardly falls while all is well: what is there to watch?"""
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  loss = UnbiasedPairwiseLoss(bias, max_weight=max_weight, annealing=0)
  history = fit(make_model(bias, loss=loss), make_data(), [
      PropensityEM(), tf.keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
      tf.keras.callbacks.TensorBoard(str(tmp_path / "board"))],
      validation_data=make_data(8), epochs=3)
  names = [f"examination_{k + 1}" for k in range(NUM_POSITIONS)]
  np.testing.assert_allclose(
      [history[name][-1] for name in names], bias.propensities()["examination"],
      rtol=1e-6)
  assert history["examination_1"] == [1.] * 3
  names += ["examination_change", "weight_clipped"]
  assert history["examination_change"][0] > 0
  if max_weight is None:
    assert history["weight_clipped"] == [0.] * 3
  else:
    assert 0 < history["weight_clipped"][0] < 1
  rows = (tmp_path / "log.csv").read_text().splitlines()
  assert len(rows) == 4
  assert set(names) <= set(rows[0].split(","))
  tags = set()
  for file in (tmp_path / "board" / "train").iterdir():
    for event in tf.compat.v1.train.summary_iterator(str(file)):
      tags.update(value.tag for value in event.summary.value)
  assert {f"epoch_{name}" for name in names} <= tags


@pytest.mark.usefixtures("eagerly")
def test_warm_up_takes_the_click_rates():
  data = make_data()
  clicks, positions = data[1][..., 0], data[1][..., 1]
  rates = np.array([clicks[positions == k + 1].mean()
                    for k in range(NUM_POSITIONS)])
  bias = PositionBias(NUM_POSITIONS, smoothing=0., initial_scale=.8,
      trust_bias=None)
  fit(make_model(bias), data, [PropensityEM(warmup=100, step_size=1e-6)])
  np.testing.assert_allclose(
      bias.examination[0], .8 * rates / rates.max(), rtol=1e-4)
  learned = PositionBias(NUM_POSITIONS, smoothing=0., initial_scale=.8,
      trust_bias=None)
  fit(make_model(learned), data, [PropensityEM(warmup=1)])
  assert np.abs(learned.examination - bias.examination).max() > .01


def test_averaging_of_a_single_batch():
  # From theta = .5 and beta = .5, both of two items unclicked: P(e) = 1/3.
  for averaging, expected in (("parameters", .5 - .1 * (.5 - 1 / 3)),
                              ("statistics", 1 / 3)):
    bias = PositionBias(2, initial_examination=.5, trust_bias=None)
    loss = UnbiasedPairwiseLoss(bias)
    bias.start_collecting()
    loss([[0., 0.]], tf.zeros([1, 2, 2]))
    bias.update(step_size=.1, averaging=averaging)
    np.testing.assert_allclose(bias.examination, [[expected] * 2], rtol=1e-5)


def test_a_position_without_observations_stays():
  for averaging in ("parameters", "statistics"):
    bias = PositionBias(3, initial_examination=.5, trust_bias=None)
    loss = UnbiasedPairwiseLoss(bias)
    bias.start_collecting()
    for _ in range(3):
      loss([[1., 0.]], tf.zeros([1, 2, 2]))
      bias.update(averaging=averaging)
    assert bias.examination.numpy()[0, 2] == .5
    assert bias.examination.numpy()[0, 0] > .5 > bias.examination.numpy()[0, 1]


@pytest.fixture
def mixed_float16():
  before = tf.keras.mixed_precision.global_policy()
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  yield
  tf.keras.mixed_precision.set_global_policy(before)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.usefixtures("eagerly")
def test_mixed_precision(heads, mixed_float16):
  features, feedback = make_data()
  feedback[..., 0] *= 7e4  # More than half precision can hold.
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  assert {v.dtype for v in bias.weights} == {tf.float32}
  model = make_model(
      bias, heads=heads,
      metrics=[on_ranking(tfr.keras.metrics.MRRMetric(name="mrr"))])
  history = fit(model, (features, feedback), epochs=2)
  assert model.layers[1].compute_dtype == "float16" or heads > 1
  assert model.output.dtype == tf.float32
  assert np.all(np.isfinite(history["loss"]))
  assert 0 < history["mrr"][-1] <= 1
  assert all(np.all(np.isfinite(values)) for values in state(bias))
  assert np.ptp(bias.examination.numpy()) > .1


@pytest.mark.parametrize("packed", [True, False])
def test_mixed_precision_with_a_half_precision_output(mixed_float16, packed):
  features, feedback = make_data()
  feedback = feedback if packed else feedback[..., 0]
  model = tf.keras.Sequential(
      [tf.keras.layers.Dense(1), tf.keras.layers.Reshape([-1])])
  model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(NUM_POSITIONS,
      trust_bias=None)))
  with pytest.raises(ValueError, match=(
      "(?s)eedback came as float16.*make the last layer float32")):
    fit(model, (features, feedback))


# What is told, in `fit` and outside.


def test_that_training_diverged_is_told_once():
  """All scores were NaN, and `fit` went on without a word."""
  told = {}
  for value in (float("nan"), 1.):
    model = linear_model()
    model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(NUM_POSITIONS,
        trust_bias=None)))
    model.set_weights([np.full_like(w, value) for w in model.get_weights()])
    callback = PropensityEM()
    callback.set_model(model)
    callback.on_train_begin()
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      for epoch in range(3):
        callback.on_epoch_begin(epoch)
        # A single batch makes Keras's mean NaN, too.
        callback.on_epoch_end(epoch, {"loss": float("nan")})
    told[value] = [m for m in messages(caught) if "diverged" in m]
  assert not told.pop(1.)
  (message,), = told.values()
  assert message.startswith("The training diverged: weights of the model are")
  assert "lower the learning rate" in message


def test_a_forgotten_callback_is_noticed_in_fit():
  with pytest.warns(UserWarning, match=f"{FORGOTTEN}.*'forgotten'.*Pass "):
    fit(make_model(PositionBias(NUM_POSITIONS, name="forgotten",
        trust_bias=None)),
        make_data(), [])


def test_a_forgotten_callback_is_noticed_in_a_custom_loop():
  features, feedback = make_data(num_lists=8)
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  model, loss = make_model(bias), UnbiasedPairwiseLoss(bias)

  def step():
    with tf.GradientTape() as tape:
      value = loss(feedback, model(features))
    return tape.gradient(value, model.trainable_weights)

  for run in (step, tf.function(step)):
    with pytest.warns(UserWarning, match=FORGOTTEN):
      run()
  bias.start_collecting()
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    step()
  assert bias.update().numpy().any()
  assert bias.num_updates.numpy() == 1


@pytest.mark.usefixtures("eagerly")
def test_no_warning_where_nothing_is_forgotten():
  data = make_data(num_lists=8)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = make_model(PositionBias(NUM_POSITIONS, trust_bias=None))
    model.evaluate(*data, verbose=0)
    model.predict(data[0], verbose=0)
    fit(model, data)
    fit(make_model(PositionBias(
        NUM_POSITIONS, examination=[1., .5, .4, .3])), data, [])
    fit(make_model(PositionBias(
        NUM_POSITIONS, trust_bias="pairwise", examination=[1., .5, .4, .3],
        trust_positive=.9, trust_negative=.1)), data, [])
  assert not [m for m in messages(caught) if FORGOTTEN in m]


def test_starting_values_are_told_from_estimates():
  bias = PositionBias(NUM_POSITIONS, trust_bias=None)
  with pytest.warns(UserWarning, match="starting values: no EM step has run"):
    bias.propensities()
  fit(make_model(bias), make_data(num_lists=8))
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    bias.propensities()


def test_a_bias_layer_of_another_loss():
  model = make_model(PositionBias(NUM_POSITIONS, name="right", trust_bias=None))
  other = PositionBias(NUM_POSITIONS, name="wrong", trust_bias=None)
  with pytest.raises(ValueError, match=(
      "'wrong' given to `PropensityEM` is not that of the model's loss, "
      "'right'.*Give both the same object")):
    fit(model, make_data(), [PropensityEM(other)])


@pytest.mark.parametrize("loss", ["mse", tf.keras.losses.MeanSquaredError()])
def test_a_model_without_our_loss(loss):
  model = make_model(None, loss=loss)
  with pytest.raises(ValueError, match=(
      "`PropensityEM` needs a model compiled with a loss that learns .*"
      "UnbiasedPairwiseLoss`, but its loss")):
    fit(model, make_data(), [PropensityEM()])


@pytest.mark.usefixtures("eagerly")
def test_overflow_is_told():
  """Nobody was told of items beyond the last position."""
  features = np.random.default_rng(0).normal(size=[4, 5, 1])
  packed = pack_feedback(
      np.eye(4, 5), np.tile([[1, 2, 3, 4, 50]], [4, 1])).numpy()
  told = {}
  for overflow in ("mask", "pool", "error"):
    model = linear_towers(1)
    model.compile("sgd", UnbiasedPairwiseLoss(
        PositionBias(3, overflow=overflow, trust_bias=None)))
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      if overflow == "error":
        with pytest.raises(ValueError, match=(
            "8 items of one batch are outside of the bias layer's 3 "
            "positions; raise `num_positions` or `num_contexts`, or choose")):
          model.fit(features, packed, verbose=0, callbacks=[PropensityEM()])
        continue
      model.fit(features, packed, epochs=3, verbose=0,
                callbacks=[PropensityEM()])
    told[overflow] = [m for m in messages(caught) if "outside" in m]
  assert not told["pool"]
  assert len(told["mask"]) == 1
  assert "3 positions are left out (8 in one batch); raise" in told["mask"][0]


@pytest.mark.usefixtures("eagerly")
def test_overflow_of_contexts_warns():
  features, feedback = make_data(num_lists=8)
  packed = pack_feedback(
      feedback[..., 0], feedback[..., 1], contexts=np.arange(8) % 4).numpy()
  bias = PositionBias(NUM_POSITIONS, num_contexts=2, trust_bias=None)
  with pytest.warns(UserWarning, match=(
      r"4 positions and 2 contexts are left out \(16 in one batch\)")):
    history = fit(make_model(bias), (features, packed))
  for context in range(2):
    assert history[f"examination_context_{context}_1"] == [1.]


@pytest.mark.usefixtures("eagerly")
def test_lists_of_one_item_are_warned_of_once():
  """A loss stuck at exactly 0: each list had one item, and nothing said so."""
  model = linear_model()
  loss = UnbiasedPairwiseLoss(PositionBias(1, trust_bias=None))
  model.compile("sgd", loss)
  features, clicks = np.ones([8, 1, 2]), np.eye(8)[:, :1]
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    history = model.fit(
        features, clicks, epochs=3, verbose=0, callbacks=[PropensityEM()])
  told = [m for m in messages(caught) if "No list" in m]
  assert len(told) == 1
  assert "two items with different feedback" in told[0]
  assert history.history["loss"] == [0., 0., 0.]
  value, gradient = value_and_gradient(loss, clicks, np.zeros([8, 1]))
  assert value == 0
  assert not np.any(gradient)


@pytest.mark.parametrize("packed", [True, False])
def test_class_weight_is_an_error(packed):
  # Keras takes the argmax of the last axis for the class: of packed feedback
  # whether the position is above the feedback, of plain the first click.
  features, feedback = make_data()
  with pytest.raises(ValueError, match="`class_weight` has no meaning"):
    fit(make_model(PositionBias(NUM_POSITIONS, trust_bias=None)),
        (features, feedback if packed else feedback[..., 0]),
        class_weight={k: 1. + k for k in range(NUM_POSITIONS)})
