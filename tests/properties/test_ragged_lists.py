"""A property of all losses: ragged lists are the padded ones."""

import numpy as np
import pytest
import tensorflow as tf

from catalogue import LOSSES
from catalogue import tensors


@pytest.mark.parametrize("entry", LOSSES.values(), ids=lambda e: e.name)
def test_ragged_lists_are_padded(entry, monkeypatch):
  """Ragged labels failed, or gave another loss than padded ones."""
  # Draws of `targets="sample"` that are the same each time.
  monkeypatch.setattr(
      tf.random, "uniform", lambda shape, seed=None: tf.fill(shape, .4))
  batch = entry.make_batch()
  # Padding at the ends, as ragged lists have it: their own sizes.
  sizes = [5, 2, 0, 4]
  valid = np.arange(5) < np.array(sizes)[:, np.newaxis]
  batch["feedback"] = np.where(valid, np.maximum(batch["feedback"], 0.), -1.)
  batch["positions"] = np.where(valid, batch["positions"], 0.)
  padded = tensors(batch)
  ragged = [tf.RaggedTensor.from_tensor(part, sizes) for part in padded]
  found, sums = [], []
  for parts in (ragged, padded):
    loss = entry.make()
    loss.position_bias.start_collecting()
    found.append(loss(*parts).numpy())
    sums.append(loss.position_bias.take_sums())
  np.testing.assert_allclose(*found, rtol=1e-6)
  assert np.any(found[0] != 0)
  for key, values in sums[0].items():
    np.testing.assert_allclose(values, sums[1][key], rtol=1e-6, err_msg=key)
