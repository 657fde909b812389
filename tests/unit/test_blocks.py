"""Tests of ultra_tfr.blocks."""

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr import blocks
from ultra_tfr import layers
from ultra_tfr import losses
from ultra_tfr.feedback import pack_feedback

# In 5 positions of 2 contexts.
_OPTIONS = {
    "scores alone": ({}, 1), "tower": ({"preference": "tower"}, 3),
    "graded": ({"feedback": "graded", "max_weight": 1.5}, 3)}


def _batch(heads, lists=7, items=5):
  rng = np.random.default_rng(3)
  feedback = rng.integers(0, 3, [lists, items]).astype(np.float32)
  feedback[1, 3:] = feedback[4] = -1
  positions = np.stack([rng.permutation(items) + 1 for _ in range(lists)])
  packed = pack_feedback(feedback, positions, rng.integers(0, 2, lists))
  scores = rng.normal(size=[lists, items, heads][:2 + (heads > 1)])
  return packed, scores.astype(np.float32), (
      rng.random([lists, items]).astype(np.float32))


def _learned(options, heads, signature, **compiled):
  """Loss, gradient, and what an M step makes of the sums."""
  bias = layers.PositionBias(5, num_contexts=2, trust_bias="pairwise",
                             initial_examination=.7)
  bias.start_collecting()
  loss = losses.UnbiasedPairwiseLoss(bias, **options)
  arguments = _batch(heads)

  @tf.function(input_signature=signature and [
      tf.TensorSpec([*signature, 3]), tf.TensorSpec([*signature, heads]),
      tf.TensorSpec(signature)], **compiled)
  def step(y_true, y_pred, weights):
    with tf.GradientTape() as tape:
      tape.watch(y_pred)
      value = loss(y_true, y_pred, weights)
    return value, tape.gradient(value, y_pred)

  value, gradient = step(*map(tf.constant, arguments))
  counters = bias.update()
  return [value, gradient, counters, *bias.variables]


@pytest.fixture
def in_blocks(monkeypatch):
  """Lists of five items are long, and two of them are a block."""
  def change():
    monkeypatch.setattr(blocks, "_FEW_ITEMS", 4)
    monkeypatch.setattr(blocks, "_PAIRS", 60)
  return change


def _check_same(expected, found):
  for a, b in zip(expected, found):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", _OPTIONS)
def test_blocks_learn_what_the_batch_does(in_blocks, name):
  """Seven lists, one without an item: the last block is filled up."""
  expected = _learned(*_OPTIONS[name], None)
  in_blocks()
  _check_same(expected, _learned(*_OPTIONS[name], None))


@pytest.mark.parametrize("signature, compiled", [
    ([None, None], {}), ([None, 5], {"jit_compile": True})])
def test_sizes_may_be_unknown_and_steps_compiled(
    in_blocks, signature, compiled):
  expected = _learned(*_OPTIONS["graded"], None)
  in_blocks()
  _check_same(expected, _learned(*_OPTIONS["graded"], signature, **compiled))


def test_short_lists_have_no_loop():
  """It would cost more than it saves."""
  loss = losses.UnbiasedPairwiseLoss(
      layers.PositionBias(50, trust_bias="pairwise"))

  def operations(lists, items):
    graph = tf.function(loss).get_concrete_function(
        tf.TensorSpec([lists, items]), tf.TensorSpec([lists, items, 2])).graph
    return {operation.type for operation in graph.get_operations()}

  assert not {"While", "StatelessWhile"} & operations(None, 50)
  assert not {"While", "StatelessWhile"} & operations(6, 200)
  assert {"While", "StatelessWhile"} & operations(64, 200)
