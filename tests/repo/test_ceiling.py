"""The loss of examples/ceiling.py."""

import math

import numpy as np
import pytest
import tensorflow as tf

import program_files


@pytest.fixture(scope="module")
def example():
  return program_files.load("examples/ceiling.py")


def test_loss_is_that_of_plain_python(example):
  grades = [[4.0, 1.0, 0.0, -1.0], [2.0, 2.0, -1.0, -1.0]]
  scores = [[0.3, -1.0, 2.0, 9.0], [0.0, 1.5, 7.0, -8.0]]
  expected = np.zeros([2, 4])
  for n in range(2):
    for a in range(4):
      for b in range(4):
        if a == b or grades[n][a] < 0 or grades[n][b] < 0:
          continue
        weight = (2 ** grades[n][a] - 1) / 15 * (
            1 - (2 ** grades[n][b] - 1) / 15)
        gap = scores[n][a] - scores[n][b]
        expected[n, a] += weight * math.log1p(math.exp(-gap))
  loss = example.TruePreferenceLoss(reduction="none")
  np.testing.assert_allclose(
      loss(tf.constant(grades), tf.constant(scores)), expected, rtol=1e-6)
