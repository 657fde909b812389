"""Tests of ultra_tfr.core.em: the calibration of relevance."""

import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.core import em


def test_calibration_takes_the_newton_step_of_the_oracle():
  rng = np.random.default_rng(0)
  scores, targets = rng.normal(size=40), rng.uniform(size=40)
  weights = rng.uniform(size=40) * (rng.uniform(size=40) < 0.8)
  shift = -0.4
  sums = em.calibration_sums(
      *(tf.constant(x[np.newaxis]) for x in (scores + shift, targets, weights)))
  found = em.newton_step(tf.constant(shift, tf.float64), sums, 0.2)
  step = oracles.newton_shift(scores, targets, weights, shift)
  np.testing.assert_allclose(float(found), shift + 0.2 * step, rtol=1e-10)


def test_calibration_finds_the_shift_of_its_targets():
  rng = np.random.default_rng(1)
  scores = tf.constant(rng.normal(size=[50, 10]))
  targets, shift = tf.sigmoid(scores - 1.5), tf.constant(0.0, tf.float64)
  for _ in range(100):
    sums = em.calibration_sums(
        scores + shift, targets, tf.ones_like(scores))
    shift = em.newton_step(shift, sums, 0.2)
  assert float(shift) == pytest.approx(-1.5, abs=1e-3)


def test_calibration_without_data_stays_and_never_leaves_its_range():
  shift = em.newton_step(tf.constant(0.0), tf.zeros([2]), 0.2)
  assert float(shift) == 0.0
  for _ in range(100):
    shift = em.newton_step(shift, tf.constant([1e20, 0.0]), 0.2)
  assert float(shift) == 30.0
