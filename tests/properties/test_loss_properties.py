"""Properties that every configuration of the loss has."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from loss_configurations import CONFIGURATIONS
from loss_configurations import NDCG
from loss_configurations import NUM_POSITIONS
from loss_configurations import assert_same
from loss_configurations import evaluate
from loss_configurations import make_batch
from loss_configurations import make_loss
from loss_configurations import read
from loss_configurations import tensors
from loss_configurations import value_and_gradient
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

NAMES = list(CONFIGURATIONS)
# Compiling is what takes time here; these have between them all of the code.
COMPILED_ALWAYS = {
    "ipw", "fixed", "contexts", "position_trust", "pairwise_trust_prior",
    "pairwise_trust_fixed", "paper_opt", "hinge", "precision",
    "graded_three_heads", "normalized"}
MANY_HEADS = [n for n in NAMES if CONFIGURATIONS[n][0] > 1]


def rearranged(batch, order, rng=None):
  """Items in a new order; -1 in it is padding, with arbitrary other values."""
  result = dict(batch)
  order = np.asarray(order)
  padding = order < 0
  for key, filler in (("feedback", -1.), ("positions", 0.),
                      ("scores", np.nan), ("weights", 1.)):
    result[key] = batch[key][:, order]
    result[key][:, padding] = filler
  if rng is not None:
    # Whatever a reader leaves in padded places must not matter.
    shape = result["positions"][:, padding].shape
    result["positions"][:, padding] = rng.integers(0, 9, shape)
    result["feedback"][:, padding] = rng.choice([-1., np.nan], shape)
    result["scores"][:, padding] = -23.03
  return result


@pytest.fixture
def constant_draws(monkeypatch):
  """Draws of `targets="sample"` that do not depend on the order of items."""
  monkeypatch.setattr(
      tf.random, "uniform", lambda shape, seed=None: tf.fill(shape, .4))


@pytest.mark.parametrize("name", NAMES)
def test_permuting_and_padding_change_nothing(name, constant_draws):
  loss, batch = make_loss(name), make_batch(name)
  expected = evaluate(loss, batch)
  assert expected[2]["counters"][2] > 0
  rng = np.random.default_rng(3)
  for order, arbitrary in (
      ([3, 0, 4, 1, 2], None),                     # Permuted.
      ([0, 1, 2, 3, 4, -1, -1], None),             # Padded further.
      ([-1, 0, 1, -1, 2, 3, -1, 4], rng),          # Padded in the middle.
  ):
    actual = evaluate(loss, rearranged(batch, order, arbitrary))
    assert_same(actual, expected, order)


@pytest.mark.parametrize("name", [
    name if name in COMPILED_ALWAYS else
    pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def test_compiled_equals_eager(name, constant_draws):
  loss, batch = make_loss(name), make_batch(name)
  expected = evaluate(loss, batch)
  step = tf.function(lambda *xs: value_and_gradient(loss, *xs))
  value, gradient = step(*tensors(batch))
  assert_same((value.numpy(), *read(loss, gradient)), expected)
  compiled = tf.function(
      lambda *xs: value_and_gradient(loss, *xs), jit_compile=True)
  value, gradient = compiled(*tensors(batch))
  assert_same((value.numpy(), *read(loss, gradient)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_finite_at_the_extremes(name):
  loss, batch = make_loss(name), make_batch(name)
  bias = loss.position_bias
  extremes = np.tile([0., 1.], NUM_POSITIONS)
  rng = np.random.default_rng(4)
  for attempt in range(3):
    batch["scores"] = rng.choice(
        [-1e4, 0., 1e4], size=batch["scores"].shape).astype(np.float32)
    for variable in (bias.examination, bias.examination_unclicked):
      size = int(np.prod(variable.shape))
      variable.assign(np.reshape(
          extremes[attempt % 2:][:size] if size < 11 else
          np.resize(extremes, size), variable.shape))
    if bias.trust_bias == "pairwise":
      bias.trust_positive.assign(tf.ones_like(bias.trust_positive))
      bias.trust_negative.assign(tf.zeros_like(bias.trust_negative))
    elif bias.trust_bias == "position":
      bias.click_irrelevant.assign(bias.examination * (attempt != 1))
    value, gradient, sums = evaluate(loss, batch)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    for key, total in sums.items():
      assert np.all(np.isfinite(total)), key


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_reaches_the_bias_layer(name):
  loss, batch = make_loss(name), make_batch(name)
  variables = loss.position_bias.weights
  assert variables
  assert not loss.position_bias.trainable_weights
  with tf.GradientTape() as tape:
    tape.watch(variables)
    value = loss(*tensors(batch))
  assert all(g is None for g in tape.gradient(value, variables))


@pytest.mark.parametrize("name", MANY_HEADS)
def test_heads_learn_apart(name, constant_draws):
  batch = make_batch(name)
  # The gradients are linear in the weight of the cross-entropies.
  gradients = {}
  for weight in (0., 1., 2.):
    loss = make_loss(name)
    loss.options = dataclasses.replace(loss.options, head_weight=weight)
    _, gradients[weight], _ = evaluate(loss, batch)
  none, one, two = (gradients[w] for w in (0., 1., 2.))
  assert np.any(none[..., 0])
  # The ranking head learns from pairs alone, and the others not from pairs.
  np.testing.assert_allclose(one[..., 0], none[..., 0], atol=1e-6)
  assert not np.any(none[..., 1:])
  assert np.any(one[..., 1])
  np.testing.assert_allclose(two[..., 1:], 2 * one[..., 1:], atol=1e-6)
  # Nor do they learn from where the ranking scores are.
  batch["scores"][..., 0] *= -3.
  loss = make_loss(name)
  loss.options = dataclasses.replace(loss.options, head_weight=1.)
  _, other, _ = evaluate(loss, batch)
  np.testing.assert_allclose(other[..., 1:], one[..., 1:], atol=1e-6)
  assert np.abs(other[..., 0] - one[..., 0]).max() > 1e-4


def test_relevance_does_not_learn_from_the_preference_task():
  batch = make_batch("ipw_tower")
  loss = make_loss("ipw_tower")
  _, gradient, _ = evaluate(loss, batch)
  assert np.any(gradient[..., 2])
  batch["scores"][..., 2] *= -2.
  _, other, _ = evaluate(loss, batch)
  np.testing.assert_allclose(other[..., 1], gradient[..., 1], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_config_round_trip(name, constant_draws):
  loss, batch = make_loss(name), make_batch(name)
  text = json.dumps(loss.get_config())
  again = UnbiasedPairwiseLoss.from_config(json.loads(text))
  assert json.dumps(again.get_config()) == text
  # The learned values are in checkpoints, not in the config.
  again.position_bias.start_collecting()
  again.position_bias.set_weights(loss.position_bias.get_weights())
  assert_same(evaluate(again, batch), evaluate(loss, batch), tolerance=1e-7)


def test_from_config_leaves_the_config_alone():
  config = json.loads(json.dumps(make_loss("precision").get_config()))
  text = json.dumps(config)
  UnbiasedPairwiseLoss.from_config(config)
  assert json.dumps(config) == text


def test_configuration_names_the_registered_classes():
  loss = make_loss("ndcg")
  description = tf.keras.losses.serialize(loss)
  again = tf.keras.losses.deserialize(json.loads(json.dumps(description)))
  assert isinstance(again, UnbiasedPairwiseLoss)
  assert isinstance(again.position_bias, PositionBias)
  assert isinstance(again.lambda_weight, NDCG)


def test_sampled_targets_have_the_expectation():
  batch = make_batch("ipw_sample")
  loss = make_loss("ipw_sample", seed=5)
  expected = evaluate(make_loss("ipw_two_heads"), batch)[1][..., 1]
  tf.keras.utils.set_random_seed(5)
  draws = np.stack([
      evaluate(loss, batch)[1][..., 1] for _ in range(150)])
  error = draws.std(axis=0) / np.sqrt(len(draws))
  assert np.any(error > 0)
  np.testing.assert_array_less(
      np.abs(draws.mean(axis=0) - expected), 5 * error + 1e-5)


def test_sampled_targets_compile():
  loss, batch = make_loss("paper"), make_batch("paper")
  step = tf.function(
      lambda *xs: value_and_gradient(loss, *xs), jit_compile=True)
  value, gradient = step(*tensors(batch))
  assert np.isfinite(value) and np.all(np.isfinite(gradient))
