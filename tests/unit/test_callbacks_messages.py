"""Tests of ultra_tfr.callbacks: warnings and errors in `fit` and outside."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from callback_fits import NUM_POSITIONS
from callback_fits import fit
from callback_fits import make_data
from callback_fits import make_model
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

FORGOTTEN = "This loss is being trained, but nothing updates the propensities"


def messages(caught):
  return [str(warning.message) for warning in caught]


def test_a_forgotten_callback_is_noticed_in_fit():
  with pytest.warns(UserWarning, match=f"{FORGOTTEN}.*'forgotten'.*Pass "):
    fit(make_model(PositionBias(NUM_POSITIONS, name="forgotten")),
        make_data(), [])


def test_a_forgotten_callback_is_noticed_in_a_custom_loop():
  features, feedback = make_data(num_lists=8)
  bias = PositionBias(NUM_POSITIONS)
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
  assert bias.update() is not None
  assert bias.num_updates.numpy() == 1


def test_no_warning_where_nothing_is_forgotten():
  data = make_data(num_lists=8)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = make_model(PositionBias(NUM_POSITIONS))
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
  bias = PositionBias(NUM_POSITIONS)
  with pytest.warns(UserWarning, match="starting values: no EM step has run"):
    bias.propensities()
  fit(make_model(bias), make_data(num_lists=8))
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    bias.propensities()


def test_a_bias_layer_of_another_loss():
  model = make_model(PositionBias(NUM_POSITIONS, name="right"))
  other = PositionBias(NUM_POSITIONS, name="wrong")
  with pytest.raises(ValueError, match=(
      "'wrong' given to `PropensityEM` is not that of the model's loss, "
      "'right'.*Give both the same object")):
    fit(model, make_data(), [PropensityEM(other)])


@pytest.mark.parametrize("loss", ["mse", tf.keras.losses.MeanSquaredError()])
def test_a_model_without_our_loss(loss):
  model = make_model(None, loss=loss)
  with pytest.raises(ValueError, match=(
      "needs a model compiled with .*UnbiasedPairwiseLoss`, but its loss")):
    fit(model, make_data(), [PropensityEM()])


@pytest.mark.parametrize("arguments, message", [
    ({"step_size": 0.}, r"`step_size` must be in \(0, 1\], but is 0.0"),
    ({"step_size": 2.}, r"`step_size` must be in \(0, 1\], but is 2.0"),
    ({"step_decay": -1.}, "`step_decay` must be >= 0, but is -1.0"),
    ({"averaging": "mean"}, "`averaging` must be one of .* but is 'mean'"),
    ({"warmup": -1}, "`warmup` must be >= 0, but is -1"),
])
def test_bad_arguments(arguments, message):
  with pytest.raises(ValueError, match=message):
    PropensityEM(**arguments)


def test_overflow_error_names_the_remedy():
  data = make_data(num_lists=8)
  bias = PositionBias(2, overflow="error")
  with pytest.raises(ValueError, match=(
      "16 items of the last batch are outside of the bias layer's 2 positions; "
      "raise `num_positions` or `num_contexts`, or choose")):
    fit(make_model(bias), data)


def test_overflow_of_contexts_warns():
  features, feedback = make_data(num_lists=8)
  packed = pack_feedback(
      feedback[..., 0], feedback[..., 1], contexts=np.arange(8) % 4).numpy()
  bias = PositionBias(NUM_POSITIONS, num_contexts=2)
  with pytest.warns(UserWarning, match=(
      r"4 positions and 2 contexts are left out \(16 in one batch\)")):
    history = fit(make_model(bias), (features, packed))
  for context in range(2):
    assert history[f"examination_context_{context}_1"] == [1.]


def test_overflow_pool_is_silent():
  bias = PositionBias(2, overflow="pool")
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fit(make_model(bias), make_data())
  assert not [m for m in messages(caught) if "outside" in m]


@pytest.mark.parametrize("packed", [True, False])
def test_class_weight_is_an_error(packed):
  # Keras takes the argmax of the last axis for the class: of packed feedback
  # whether the position is above the feedback, of plain the first click.
  features, feedback = make_data()
  with pytest.raises(ValueError, match="`class_weight`"):
    fit(make_model(PositionBias(NUM_POSITIONS)),
        (features, feedback if packed else feedback[..., 0]),
        class_weight={k: 1. + k for k in range(NUM_POSITIONS)})
