"""Tests of ultra_tfr.core.feature_scale."""

import math

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr.core import feature_scale


@pytest.mark.parametrize("kind", [np.array, tf.constant])
def test_signed_log_of_arrays_and_tensors(kind):
  values = [-3.0, -0.5, 0.0, 2.0]
  found = feature_scale.signed_log(kind(values))
  assert isinstance(found, type(kind(values)))
  np.testing.assert_allclose(
      found, [math.copysign(math.log(1 + abs(x)), x) for x in values],
      rtol=1e-6)
