"""The training loop that all methods share."""

from collections.abc import Sequence
import os
from typing import Any

import tensorflow as tf

from ultra_tfr.layers import PositionBias
from ultra_tfr.settings import Settings
from ultra_tfr.startup import lazy_module

# It loads matplotlib, which a training without logs does not need.
plots = lazy_module("ultra_tfr.evaluation.plots")


def fit(model: tf.keras.Model, loss: tf.keras.losses.Loss,
        dataset: tf.data.Dataset, settings: Settings,
        callbacks: Sequence[tf.keras.callbacks.Callback] = (),
        verbose: int = 0) -> dict[str, list]:
  """Trains a model by Adam, whose rate falls to 0, with a validation an epoch.

  Args:
    model: a Keras model, which is compiled here.
    loss: its Keras loss.
    dataset: endless batches (inputs, y_true) or (inputs, y_true, weights), of
      the strategy that the model was made in the scope of. The model is
      compiled before the first one is asked for.
    settings: `Settings`.
    callbacks: Keras callbacks; they see an epoch at each validation.
    verbose: as in Keras's `fit`.

  Returns:
    Keras's history, a dict from the names in logs to lists, a value an epoch.
  """
  rate = tf.keras.optimizers.schedules.CosineDecay(
      settings.learning_rate, settings.steps)
  with model.distribute_strategy.scope():
    model.compile(tf.keras.optimizers.Adam(rate), loss)
    # Keras traces a step twice if the optimizer makes its variables in it.
    model.optimizer.build(model.trainable_variables)
  return model.fit(
      dataset, steps_per_epoch=settings.steps_per_epoch,
      epochs=settings.steps // settings.steps_per_epoch,
      callbacks=[*callbacks], verbose=verbose).history


def tensorboard(folder: str, layer: Any = None
               ) -> list[tf.keras.callbacks.Callback]:
  """Callbacks that write what TensorBoard shows of a training.

  These are the values of each epoch as scalars. Of a layer that learns, a run
  "curves" also has its curves by position as images, and for each hypothesis
  about the users how much less likely it makes feedback than the likeliest one
  does: `PositionBias.hypotheses()[name]["behind"]`.

  Args:
    folder: where the logs go.
    layer: a layer that learns of positions, such as a `PositionBias`, or None.

  Returns:
    Keras callbacks, to come after those that put values into the logs.
  """
  callbacks = [tf.keras.callbacks.TensorBoard(folder, write_graph=False)]
  if layer is not None:
    callbacks.append(_CurvesOfEpochs(os.path.join(folder, "curves"), layer))
  return callbacks


class _CurvesOfEpochs(tf.keras.callbacks.Callback):
  """Writes what a layer has learned at the end of each epoch."""

  def __init__(self, folder, layer):
    super().__init__()
    self._layer, self._folder = layer, folder

  def on_epoch_end(self, epoch, logs=None):
    del logs
    # Opened anew each time, so that nothing is lost if the process is killed.
    writer = tf.summary.create_file_writer(
        self._folder, filename_suffix=f".{epoch}")
    with writer.as_default(step=epoch):
      for name, table in self._layer.curves().items():
        curves = {f"context {context}" if len(table) > 1 else name: curve
                  for context, curve in enumerate(table)}
        image = tf.image.decode_png(plots.curves_png(curves))
        tf.summary.image(name, image[tf.newaxis])
      if isinstance(self._layer, PositionBias):
        for name, found in self._layer.hypotheses().items():
          tf.summary.scalar(f"log_likelihood_behind/{name}", found["behind"])
    writer.close()
