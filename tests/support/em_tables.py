"""Random tables for the tests of EM, and what must hold of tables of trust."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
import numpy as np

K = 3
SETTINGS = hypothesis.settings(
    max_examples=60, deadline=None, derandomize=True)


def probabilities(shape):
  """Random tables, with many values at and near the ends."""
  ends = st.sampled_from(
      [0.0, 2.0**-100, 2.0**-20, 0.5, 1.0 - 2.0**-20, 1.0])
  return numpy_strategies.arrays(
      np.float32, shape, elements=st.one_of(ends, st.floats(0, 1, width=32)))


def assert_trust_is_constrained(positive, negative):
  positive, negative = positive.numpy(), negative.numpy()
  assert (negative > 0).all()
  assert (negative < positive).all()
  assert (positive < 1).all()
  # Rounding may leave a sum the last bit above 1.
  assert (positive + np.swapaxes(negative, -1, -2) <= 1 + 1e-6).all()
