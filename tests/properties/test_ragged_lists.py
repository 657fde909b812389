"""A property of all losses: ragged lists are the padded ones."""

import numpy as np
import pytest
import tensorflow as tf

from loss_configurations import CONFIGURATIONS
from loss_configurations import make_batch
from loss_configurations import make_loss
from ultra_tfr.feedback import pack_feedback


@pytest.mark.parametrize("name", [
    n for n in CONFIGURATIONS if "sample" not in n and "paper" not in n])
def test_ragged_lists_are_padded(name):
  """Ragged labels failed, or gave another loss than padded ones."""
  batch = make_batch(name)
  # Padding at the ends, as ragged lists have it: their own sizes.
  batch["feedback"] = np.where(batch["feedback"] < 0, 0, batch["feedback"])
  sizes = [5, 2, 0, 4]
  packed = pack_feedback(
      batch["feedback"], batch["positions"], batch["contexts"])
  scores = batch["scores"] if batch["scores"].shape[2] > 1 else (
      batch["scores"][..., 0])
  valid = np.arange(5) < np.array(sizes)[:, np.newaxis]
  ragged = [tf.RaggedTensor.from_tensor(tf.constant(values), sizes)
            for values in (packed, scores, batch["weights"])]
  packed = tf.where(valid[..., np.newaxis], packed, [-1.0, 0.0, 0.0][
      :packed.shape[2]])
  found, sums = [], []
  for y_true, y_pred, weights in (ragged, (packed, scores, batch["weights"])):
    loss = make_loss(name)
    found.append(float(loss(y_true, y_pred, weights)))
    sums.append(loss.position_bias.take_sums())
  np.testing.assert_allclose(*found, rtol=1e-6)
  assert found[0] != 0
  for key, values in sums[0].items():
    np.testing.assert_allclose(values, sums[1][key], rtol=1e-6, err_msg=key)
