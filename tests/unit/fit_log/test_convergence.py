"""Tests of ultra_tfr.fit_log.convergence."""

import types

import numpy as np
import pytest
from scipy import special
import tensorflow as tf

from ultra_tfr.bias import Bias
from ultra_tfr.core import examination
from ultra_tfr.evaluation import click_model_fit
from ultra_tfr.fit_log import convergence
from ultra_tfr.fit_log import scoring
from ultra_tfr.layers import PositionBias

P1 = np.array([[0.9, 0.6, 0.3, 0.2], [0.8, 0.7, 0.6, 0.5]])
P0 = 0.1 * P1
K = 4


def _clicks(num_requests, seed=7, weights=None):
  """Requests of users with these chances, and the relevance of items."""
  rng = np.random.default_rng(seed)
  relevance = special.expit(2 * rng.normal(size=(num_requests, K)) - 1)
  relevance = relevance.astype(np.float32)
  contexts = np.repeat(rng.integers(2, size=(num_requests, 1)), K, axis=1)
  positions = np.tile(np.arange(1, K + 1), (num_requests, 1))
  place = contexts, positions - 1
  chance = P1[place] * relevance + P0[place] * (1 - relevance)
  return types.SimpleNamespace(
      relevance=relevance, positions=positions, contexts=contexts,
      feedback=(rng.random(chance.shape) < chance).astype(np.float32),
      weights=np.ones(chance.shape, np.float32) if weights is None else weights,
      requests=np.arange(num_requests))


def _lists(*batches):
  return types.SimpleNamespace(batches=lambda size: iter(batches))


def _part(clicks, rows):
  return types.SimpleNamespace(**{
      name: values[rows] for name, values in vars(clicks).items()})


def _layer(trust_bias="position", batch_size=100.0, **options):
  """A layer after 300 batches of so many requests in which all is alike."""
  layer = PositionBias(K, num_contexts=2, trust_bias=trust_bias,
                       initial_examination=0.5, **options)
  layer.num_updates.assign(300.0)
  for model in layer.models:
    name = "pointwise" + model.suffix
    average = np.zeros(layer._averages[name].shape, np.float32)
    average[:, examination.COUNT] = batch_size * K / len(average)
    layer._averages[name].assign(average)
  return layer


@pytest.fixture(autouse=True)
def _relevance_is_given(monkeypatch):
  monkeypatch.setattr(
      scoring, "predict",
      lambda model, batch: (None, np.stack([batch.relevance] * 4)))


def _converge(layer, lists):
  start = Bias.of_layer("name", layer)
  return convergence.converge(layer, {"any": start}, None, lists), start


@pytest.mark.parametrize("trust_bias", [None, "position"])
def test_it_ends_where_em_with_fixed_relevance_does(trust_bias):
  clicks, layer = _clicks(4000), _layer(trust_bias)
  found, start = _converge(layer, _lists(
      _part(clicks, slice(1000)), _part(clicks, slice(1000, None))))
  flat = {name: values.ravel() for name, values in vars(clicks).items()}
  expected = click_model_fit.fit_click_model(
      flat["positions"], flat["contexts"], flat["feedback"] > 0,
      flat["relevance"], np.repeat(clicks.requests, K), start.click_relevant,
      start.click_irrelevant, replicates=2)
  bias = found["any"]
  np.testing.assert_allclose(
      bias.click_relevant, expected.click_relevant, rtol=0.01)
  if trust_bias is None:
    assert bias.click_irrelevant is None
  else:
    np.testing.assert_allclose(
        bias.click_irrelevant, expected.click_irrelevant.value, atol=0.005)
    np.testing.assert_allclose(bias.click_relevant, P1, atol=0.1)
  # The end of training is kept for comparison.
  np.testing.assert_array_equal(bias.at_end, start.click_relevant)
  np.testing.assert_allclose(
      layer.models[0].variables["examination"], bias.click_relevant, rtol=1e-6)


@pytest.mark.parametrize("head", [0, 3])
def test_of_four_hypotheses_those_in_question_are_moved(head):
  clicks, layer = _clicks(500), _layer("auto")
  layer.evidence.assign(1e4 * tf.one_hot(head, 4))
  before = [model.variables["examination"].numpy() for model in layer.models]
  start = Bias.of_layer("name", layer)
  assert start.relevance_head == head
  found = convergence.converge(
      layer, {"any": start}, None, _lists(clicks))["any"]
  assert found.relevance_head == head
  assert (found.browsing_relevant is None) == (head == 0)
  for i, (model, old) in enumerate(zip(layer.models, before)):
    moved = np.abs(model.variables["examination"].numpy() - old).max()
    assert moved > 0.1 if i == head else moved == 0


def test_few_clicks_are_smoothed_as_in_training():
  """With many batches beside the log, pseudo-clicks count for much of it."""
  clicks = _clicks(60)
  rough, smooth, smoother = (
      _converge(_layer(prior_clicks=number), _lists(clicks))[0]["any"]
      for number in (0.0, 20.0, 200.0))
  spreads = [np.ptp(bias.relative()[:, 1:], axis=1).max()
             for bias in (rough, smooth, smoother)]
  assert spreads[0] > 1.1 * spreads[1] > 1.2 * spreads[2]
  assert (smoother.click_irrelevant < rough.click_irrelevant + 1e-6).all()


def test_rows_count_by_their_weight():
  clicks = _clicks(300)
  twice = _part(clicks, np.r_[:300, :100])
  weights = clicks.weights.copy()
  weights[:100] = 2
  weighted = _clicks(300, weights=weights)
  nothing = _part(clicks, slice(300))
  nothing.feedback, nothing.weights = 1 - clicks.feedback, 0 * clicks.weights
  padded = types.SimpleNamespace(**{
      name: np.concatenate([values, vars(nothing)[name]])
      for name, values in vars(weighted).items()})
  expected, *others = (_converge(_layer(), _lists(batch))[0]["any"]
                       for batch in (twice, weighted, padded))
  for bias in others:
    np.testing.assert_allclose(
        bias.click_relevant, expected.click_relevant, rtol=1e-3)


def test_a_sample_of_a_long_log_is_read(monkeypatch):
  monkeypatch.setattr(convergence, "_MOST_REQUESTS", 150)

  def batches(size):
    del size
    yield _clicks(100)
    yield _clicks(100)
    raise AssertionError("a third batch")

  assert _converge(_layer(), types.SimpleNamespace(batches=batches))[0]


@pytest.mark.parametrize("options, updates", [
    ({"trust_bias": "pairwise"}, 300.0), ({"trust_bias": "position"}, 0.0),
    ({"trust_bias": None, "examination": [1.0, 0.5, 0.3, 0.2]}, 300.0)])
def test_nothing_to_move(options, updates):
  options = {"num_contexts": 2, "trust_bias": None, **options}
  layer = PositionBias(K, **options)
  layer.num_updates.assign(updates)
  assert _converge(layer, _lists(_clicks(10)))[0] is None
