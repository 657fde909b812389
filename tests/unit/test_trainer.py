"""Tests of ultra_tfr.trainer."""

import numpy as np
import tensorflow as tf

from ultra_tfr import trainer
from ultra_tfr.hypotheses import HYPOTHESES
from ultra_tfr.layers import PositionBias


def _written(folder):
  """Tensors by (tag, step) of all event files of a folder."""
  found = {}
  for path in sorted(folder.iterdir()):
    for record in tf.data.TFRecordDataset(str(path)):
      event = tf.compat.v1.Event.FromString(record.numpy())
      for value in event.summary.value:
        found[value.tag, event.step] = tf.make_ndarray(value.tensor)
  return found


def test_tensorboard_shows_curves_and_hypotheses(tmp_path):
  """There were scalars by position only, and shares of the hypotheses."""
  layer = PositionBias(3)
  _, writer = trainer.tensorboard(str(tmp_path), layer)
  for epoch in range(2):
    writer.on_epoch_end(epoch)
  found = _written(tmp_path / "curves")
  for epoch in range(2):
    for name in layer.curves():
      width, height, png = found[name, epoch]
      assert tf.image.decode_png(png).shape[:2] == (int(height), int(width))
    for hypothesis in HYPOTHESES:
      behind = found[f"log_likelihood_behind/{hypothesis.name}", epoch]
      np.testing.assert_allclose(
          behind, layer.hypotheses()[hypothesis.name]["behind"])


def test_tensorboard_without_a_layer(tmp_path):
  callback, = trainer.tensorboard(str(tmp_path))
  assert isinstance(callback, tf.keras.callbacks.TensorBoard)
