"""Tests of ultra_tfr.methods."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import methods
from ultra_tfr import scorers
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.feedback_stream import FeedbackStream

NUM_POSITIONS = 4
FIRST_METHODS = [
    "oracle-pairwise", "naive-pairwise", "naive-pointwise", "ipw-known",
    "unbiased", "unbiased-bayes", "unbiased-ipw", "paper-opt", "paper-bayes",
    "paper-ipw"]
CURVE = PositionBasedModel().examination(NUM_POSITIONS)
everything = pytest.mark.parametrize("name", methods.METHODS)


def _stream(feedback):
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 5, [24, NUM_POSITIONS]).astype(np.float32)
  features = labels[..., np.newaxis] + rng.normal(
      size=[24, NUM_POSITIONS, 3])
  labels[::5, 2:] = -1
  return FeedbackStream(features, labels, PositionBasedModel(), feedback)


def _build(name, feedback="click", curve=CURVE):
  return methods.find(name).build(NUM_POSITIONS, feedback, curve)


def _model(name, loss):
  model = scorers.build_model(
      3, num_heads=methods.find(name).num_heads, hidden_units=[4])
  model.compile(tf.keras.optimizers.Adam(0.01), loss)
  return model


@pytest.mark.parametrize("feedback", ["click", "dwell"])
@everything
def test_every_method_trains(name, feedback):
  loss, bias, callbacks = _build(name, feedback)
  model = _model(name, loss)
  before = model.get_weights()
  history = model.fit(
      _stream(feedback).dataset(8, methods.find(name).learn_from),
      steps_per_epoch=3, epochs=1, callbacks=callbacks, verbose=0).history
  assert np.isfinite(history["loss"]).all()
  assert history["loss"][0] > 0
  # All towers learn; what callbacks attach comes after the model's weights.
  for old, new in zip(before, model.get_weights()):
    assert np.isfinite(new).all()
    assert old.size == 1 or np.abs(old - new).max() > 0
  if bias is not None:
    curve = bias.propensities()["examination"]
    assert curve.shape == (NUM_POSITIONS,)
    assert np.isfinite(curve).all()
  if callbacks:
    assert "examination_1" in history
    assert bias.num_updates.numpy() == 3


@everything
def test_a_method_says_what_it_is(name):
  method = methods.find(name)
  assert 10 < len(method.summary) < 80
  assert method.learn_from == (
      "labels" if name.startswith("oracle-p") else "feedback")
  assert method.num_heads in (1, 2, 3)
  _, bias, callbacks = _build(name)
  assert (bias is None) == (method.bias is None)
  assert len(callbacks) == (method.em is not None)
  # Nothing but EM learns a curve.
  learns = bias is not None and not bias.examination_is_fixed
  assert learns == bool(callbacks)


@everything
def test_losses_are_made_anew(name):
  one, two = _build(name), _build(name)
  assert one[0] is not two[0]
  assert one[1] is None or one[1] is not two[1]


@everything
def test_losses_are_described_by_json(name):
  loss = _build(name)[0]
  if isinstance(loss, tfr.keras.losses.PairwiseLogisticLoss):
    return  # TF-Ranking's own config.
  json.dumps(loss.get_config())


def test_the_first_methods_are_there():
  assert set(FIRST_METHODS) <= set(methods.METHODS)


def test_kind_of_feedback_matters():
  assert isinstance(_build("naive-pointwise", "click")[0],
                    tfr.keras.losses.SigmoidCrossEntropyLoss)
  assert isinstance(_build("naive-pointwise", "dwell")[0],
                    tfr.keras.losses.MeanSquaredLoss)
  for name in ("unbiased", "unbiased-bayes", "unbiased-ipw"):
    kinds = [_build(name, feedback)[0].get_config()["feedback"]
             for feedback in ("click", "dwell")]
    assert kinds == ["binary", "graded"]


def test_gain_of_paper_opt_is_linear_for_dwell_times():
  y_pred = tf.constant([[[0.3, 0.1, 0.0], [0.2, 0.4, 0.1], [0.1, 0.2, 0.3],
                         [0.0, 0.1, 0.2]]])
  clicks = tf.constant([[0.0, 1.0, 1.0, 0.0]])
  dwell = tf.constant([[0.0, 3.0, 9.0, 0.0]])

  def loss(feedback, y_true):
    tf.keras.utils.set_random_seed(0)
    return float(_build("paper-opt", feedback)[0](y_true, y_pred))

  # Gains of clicks are 1 either way, and NDCG is relative.
  assert loss("click", clicks) == pytest.approx(loss("dwell", clicks))
  assert abs(loss("click", dwell) - loss("dwell", dwell)) > 1e-3


def test_ipw_known_is_given_the_curve():
  loss, bias, callbacks = _build("ipw-known")
  assert not callbacks
  np.testing.assert_allclose(
      bias.propensities()["examination"], CURVE / CURVE[0], rtol=1e-6)
  y_true, y_pred = [[0.0, 0.0, 0.0, 1.0]], [[0.4, 0.3, 0.2, 0.1]]
  plain = tfr.keras.losses.PairwiseLogisticLoss()(y_true, y_pred)
  assert float(loss(y_true, y_pred)) == pytest.approx(
      float(plain) / CURVE[3], rel=1e-5)


def test_ipw_known_without_a_curve():
  with pytest.raises(ValueError, match="needs the true examination by "
                     "position.*choose another method"):
    _build("ipw-known", curve=None)


@pytest.mark.parametrize(
    "name", [n for n in methods.METHODS if n != "ipw-known"])
def test_only_ipw_known_needs_the_curve(name):
  _build(name, curve=None)


@pytest.mark.parametrize("name", ["unbaised", "", "Unbiased"])
def test_unknown_method(name):
  with pytest.raises(ValueError) as caught:
    methods.find(name)
  message = str(caught.value)
  assert message.startswith(f"There is no method {name!r}; the methods are ")
  for known in methods.METHODS:
    assert known in message
