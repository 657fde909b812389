"""Tests of ultra_tfr.methods."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import oracles
from ultra_tfr import methods
from ultra_tfr import scorers
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.feedback_stream import FeedbackStream

NUM_POSITIONS = 4
NAMES = [
    "oracle-pairwise", "oracle-pointwise", "oracle-clicks", "naive-pairwise",
    "naive-pointwise", "naive-lambda", "ipw-known", "unbiased",
    "unbiased-bayes", "unbiased-ipw", "unbiased-softmax", "paper-opt",
    "paper-bayes", "paper-ipw", "regression-em", "dla",
    "pairwise-debiasing", "trust-affine", "baseline-v1", "baseline-v2",
    "baseline-v3", "baseline-v4"]
CLICKS_ONLY = {"regression-em", "dla", "pairwise-debiasing", "trust-affine"}
DWELL_ONLY = {"baseline-v2", "baseline-v3", "baseline-v4"}
# The layers that learn something, but no examination curve.
OTHER_TABLES = {"pairwise-debiasing", "baseline-v1", "baseline-v2"}
CURVE = PositionBasedModel().examination(NUM_POSITIONS)
everything = pytest.mark.parametrize("name", methods.METHODS)


def _stream(feedback):
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 5, [24, NUM_POSITIONS]).astype(np.float32)
  features = labels[..., np.newaxis] + rng.normal(
      size=[24, NUM_POSITIONS, 3])
  labels[::5, 2:] = -1
  return FeedbackStream(features, labels, PositionBasedModel(), feedback)


def _build(name, feedback=None, curve=CURVE):
  method = methods.find(name)
  return method.build(NUM_POSITIONS, feedback or method.feedback[0], curve)


def _model(name, loss):
  model = scorers.build_model(
      3, num_heads=methods.find(name).num_heads, hidden_units=[4])
  model.compile(tf.keras.optimizers.Adam(0.01), loss)
  return model


@pytest.mark.parametrize("name, feedback", [
    pytest.param(name, feedback, marks=pytest.mark.slow if number else ())
    for name, method in methods.METHODS.items()
    for number, feedback in enumerate(method.feedback)])
@pytest.mark.usefixtures("eagerly")
def test_every_method_trains(name, feedback):
  loss, layer, callbacks = _build(name, feedback)
  method, model = methods.find(name), _model(name, loss)
  before = model.get_weights()
  history = model.fit(
      _stream(feedback).dataset(8, method.learn_from),
      steps_per_epoch=3, epochs=1, callbacks=callbacks, verbose=0).history
  assert np.isfinite(history["loss"]).all()
  assert history["loss"][0] > 0 or name == "trust-affine"
  # All towers learn; what callbacks attach comes after the model's weights.
  for old, new in zip(before, model.get_weights()):
    assert np.isfinite(new).all()
    assert old.size == 1 or np.abs(old - new).max() > 0
  if method.estimates_examination or method.knows_examination:
    curve = layer.propensities()["examination"]
    assert curve.shape == (NUM_POSITIONS,)
    assert curve[0] == 1
    assert np.isfinite(curve).all()
  if callbacks:
    assert ("examination_1" in history) == method.estimates_examination
    assert layer.num_updates.numpy() == 3


@everything
def test_a_method_says_what_it_is(name):
  method = methods.find(name)
  assert 10 < len(method.summary) < 80
  assert method.learn_from == {
      "oracle-pairwise": "labels", "oracle-pointwise": "labels",
      "oracle-clicks": "clicks_examined"}.get(name, "feedback")
  assert method.num_heads in (1, 2, 3)
  assert method.feedback == (
      ("click",) if name in CLICKS_ONLY else
      ("dwell",) if name in DWELL_ONLY else ("click", "dwell"))
  _, layer, callbacks = _build(name)
  assert (layer is None) == (method.layer is None)
  # What learns a table has a callback, and only ipw-known is given one.
  assert bool(callbacks) == (layer is not None and name != "ipw-known")
  assert method.knows_examination == (name == "ipw-known")
  assert method.estimates_examination == (
      bool(callbacks) and name not in OTHER_TABLES)


@pytest.mark.parametrize("name", sorted(OTHER_TABLES))
def test_what_is_no_propensity_is_not_given_as_one(name):
  layer = _build(name)[1]
  assert not hasattr(layer, "examination")
  if hasattr(layer, "propensities"):
    with pytest.raises(ValueError, match="has no propensities"):
      layer.propensities()


@pytest.mark.parametrize("name", sorted(CLICKS_ONLY | DWELL_ONLY))
def test_feedback_that_a_method_is_not_for(name):
  own, other = (("click", "dwell") if name in CLICKS_ONLY else
                ("dwell", "click"))
  with pytest.raises(ValueError, match=(
      rf"This method \(.*\) is for {own} feedback, but `feedback` is "
      f"'{other}'; choose another method, such as 'unbiased'")):
    _build(name, other)


@everything
def test_contexts_have_tables_of_their_own(name):
  method = methods.find(name)
  layer = method.build(
      NUM_POSITIONS, method.feedback[0], CURVE, num_contexts=3)[1]
  assert layer is None or layer.num_contexts == 3


@everything
def test_losses_are_made_anew(name):
  one, two = _build(name), _build(name)
  assert one[0] is not two[0]
  assert one[1] is None or one[1] is not two[1]


@everything
def test_losses_are_described_by_json(name):
  loss = _build(name)[0]
  if type(loss).__module__.startswith("tensorflow_ranking"):
    return  # TF-Ranking's own config.
  json.dumps(loss.get_config())


def test_names():
  assert list(methods.METHODS) == NAMES


@pytest.mark.parametrize("feedback", ["click", "dwell"])
def test_naive_lambda_weighs_pairs_by_the_change_of_ndcg(feedback):
  values = [[0.0, 3.0 if feedback == "dwell" else 1.0, 1.0, 0.0]]
  scores = [[0.4, 0.3, 0.2, 0.1]]
  gain = (lambda c: c) if feedback == "dwell" else (lambda c: 2.0**c - 1.0)
  items = {"valid": [True] * 4, "feedback": values[0], "score": scores[0],
           "position": [1, 2, 3, 4]}
  expected = oracles.pair_loss_sums(items, oracles.ndcg_weights(items, gain))
  loss = float(_build("naive-lambda", feedback)[0](values, scores))
  assert loss == pytest.approx(sum(expected) / 4, rel=1e-5)


def test_oracle_pointwise_is_the_squared_error_of_grades():
  for feedback in ("click", "dwell"):
    loss = _build("oracle-pointwise", feedback)[0]
    assert float(loss([[4.0, 1.0]], [[2.0, 1.0]])) == pytest.approx(2.0)


@pytest.mark.parametrize("modes, name", [
    (["additive"], "baseline-v1"), (["additive", None], "baseline-v2"),
    (["product", None], "baseline-v3"), (["product", "additive"],
                                         "baseline-v4")])
def test_towers_of_the_baselines(modes, name):
  loss, layer, _ = _build(name, "dwell")
  assert list(layer.modes) == modes
  assert loss.get_config()["predicts"] == (
      "value" if name == "baseline-v1" else "click+value")
  if name == "baseline-v1":
    assert _build(name, "click")[0].get_config()["predicts"] == "click"


def test_kind_of_feedback_matters():
  assert isinstance(_build("naive-pointwise", "click")[0],
                    tfr.keras.losses.SigmoidCrossEntropyLoss)
  assert isinstance(_build("naive-pointwise", "dwell")[0],
                    tfr.keras.losses.MeanSquaredLoss)
  for name in ("unbiased", "unbiased-bayes", "unbiased-ipw"):
    kinds = [_build(name, feedback)[0].get_config()["feedback"]
             for feedback in ("click", "dwell")]
    assert kinds == ["binary", "graded"]


def test_unbiased_trust_is_unbiased_and_says_so():
  with pytest.warns(UserWarning, match="'unbiased-trust' is 'unbiased' now"):
    found = methods.find("unbiased-trust")
  assert found is methods.find("unbiased")
  assert "unbiased-trust" not in methods.METHODS


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
  loss, bias, callbacks = _build("ipw-known", "click")
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
