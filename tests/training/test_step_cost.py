"""Tests that a training step stays cheap: examples.benchmarks.step_time."""

import numpy as np
import pytest
import tensorflow as tf

import program_files
from ultra_tfr import layers
from ultra_tfr import losses


def test_the_graph_of_the_default_loss_does_not_grow():
  """What a step does is what it costs on any device, and to build."""
  loss = losses.UnbiasedPairwiseLoss(layers.PositionBias(10))

  @tf.function
  def gradient(y_true, y_pred):
    return tf.gradients(loss(y_true, y_pred), y_pred)

  graph = gradient.get_concrete_function(
      tf.TensorSpec([None, 10]), tf.TensorSpec([None, 10, 5])).graph
  assert len(graph.get_operations()) < 1250


@pytest.mark.slow
def test_all_hypotheses_cost_little_more_than_a_plain_loss():
  """Goal 1.5; a machine that does other work beside needs a wide margin."""
  step_time = program_files.load("examples/benchmarks/step_time.py")
  compared = step_time.candidates(10)
  names = [step_time.PEER, step_time.DEFAULT]
  ratios = step_time.measure(
      {name: compared[name] for name in names}, 256, 10, (128, 64),
      rounds=5, seconds=1)
  assert np.median(ratios[step_time.DEFAULT]) < 2.5
