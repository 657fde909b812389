"""What the heads of the pairwise loss learn, and its sampled targets."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from catalogue import NDCG
from catalogue import PAIRWISE
from catalogue import tensors
from catalogue import value_and_gradient
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss


def _gradient(entry, batch, loss=None):
  return entry.run(entry, batch, loss).items["gradient"]


@pytest.mark.parametrize(
    "entry", [entry for entry in PAIRWISE.values() if entry.heads > 1],
    ids=lambda entry: entry.name)
def test_heads_learn_apart(entry, monkeypatch):
  # Draws of `targets="sample"` that are the same each time.
  monkeypatch.setattr(
      tf.random, "uniform", lambda shape, seed=None: tf.fill(shape, .4))

  def gradient(weight):
    loss = entry.make()
    loss.options = dataclasses.replace(loss.options, head_weight=weight)
    return _gradient(entry, batch, loss)

  batch = entry.make_batch()
  # The gradients are linear in the weight of the cross-entropies.
  none, one, two = (gradient(weight) for weight in (0., 1., 2.))
  assert np.any(none[..., 0])
  # The ranking head learns from pairs alone, and the others not from pairs.
  np.testing.assert_allclose(one[..., 0], none[..., 0], atol=1e-6)
  assert not np.any(none[..., 1:])
  assert np.any(one[..., 1])
  np.testing.assert_allclose(two[..., 1:], 2 * one[..., 1:], atol=1e-6)
  # Nor do they learn from where the ranking scores are.
  batch["scores"][..., 0] *= -3.
  other = gradient(1.)
  np.testing.assert_allclose(other[..., 1:], one[..., 1:], atol=1e-6)
  assert np.abs(other[..., 0] - one[..., 0]).max() > 1e-4


def test_relevance_does_not_learn_from_the_preference_task():
  entry = PAIRWISE["ipw_tower"]
  batch = entry.make_batch()
  gradient = _gradient(entry, batch)
  assert np.any(gradient[..., 2])
  batch["scores"][..., 2] *= -2.
  other = _gradient(entry, batch)
  np.testing.assert_allclose(other[..., 1], gradient[..., 1], atol=1e-6)


def test_configuration_names_the_registered_classes():
  description = tf.keras.losses.serialize(PAIRWISE["ndcg"].make())
  again = tf.keras.losses.deserialize(json.loads(json.dumps(description)))
  assert isinstance(again, UnbiasedPairwiseLoss)
  assert isinstance(again.position_bias, PositionBias)
  assert isinstance(again.lambda_weight, NDCG)


def test_sampled_targets_have_the_expectation():
  entry = PAIRWISE["ipw_sample"]
  batch, loss = entry.make_batch(), entry.make(seed=5)
  expected = _gradient(PAIRWISE["ipw_two_heads"], batch)[..., 1]
  tf.keras.utils.set_random_seed(5)
  # The lists again and again, so that each is drawn as often; the loss is the
  # mean over all of them.
  count = 150
  many = {key: None if values is None else np.concatenate([values] * count)
          for key, values in batch.items()}
  draws = count * _gradient(entry, many, loss)[..., 1].reshape(
      count, *expected.shape)
  error = draws.std(axis=0) / np.sqrt(len(draws))
  assert np.any(error > 0)
  np.testing.assert_array_less(
      np.abs(draws.mean(axis=0) - expected), 5 * error + 1e-5)


def test_sampled_targets_compile():
  entry = PAIRWISE["paper"]
  loss = entry.make()
  step = tf.function(
      lambda *xs: value_and_gradient(loss, *xs), jit_compile=True)
  value, gradient = step(*tensors(entry.make_batch()))
  assert np.isfinite(value) and np.all(np.isfinite(gradient))
