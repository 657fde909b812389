"""Tests of ultra_tfr.hashing."""

import numpy as np

from ultra_tfr import hashing


def test_bits_of_neighbours_have_nothing_in_common():
  bits = np.unpackbits(hashing.mixed(np.arange(4096, dtype=np.uint64)).view(
      np.uint8)).reshape(4096, 64).astype(float)
  assert np.abs(bits.mean(axis=0) - .5).max() < .04
  others = np.abs(np.corrcoef(bits.T) - np.eye(64))
  assert others.max() < .08
  assert len(np.unique(hashing.mixed(np.arange(4096, dtype=np.uint64)))) == 4096
