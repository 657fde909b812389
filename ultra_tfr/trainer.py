"""The training loop that all methods share."""

from collections.abc import Sequence

import tensorflow as tf

from ultra_tfr.settings import Settings


def fit(model: tf.keras.Model, loss: tf.keras.losses.Loss,
        dataset: tf.data.Dataset, settings: Settings,
        callbacks: Sequence[tf.keras.callbacks.Callback] = (),
        verbose: int = 0) -> dict[str, list]:
  """Trains a model by Adam, whose rate falls to 0, with a validation an epoch.

  Args:
    model: a Keras model, which is compiled here.
    loss: its Keras loss.
    dataset: endless batches (inputs, y_true) or (inputs, y_true, weights). The
      model is compiled before the first one is asked for.
    settings: `Settings`.
    callbacks: Keras callbacks; they see an epoch at each validation.
    verbose: as in Keras's `fit`.

  Returns:
    Keras's history, a dict from the names in logs to lists, a value an epoch.
  """
  rate = tf.keras.optimizers.schedules.CosineDecay(
      settings.learning_rate, settings.steps)
  model.compile(tf.keras.optimizers.Adam(rate), loss)
  # Keras traces a step twice if the optimizer makes its variables in it.
  model.optimizer.build(model.trainable_variables)
  return model.fit(
      dataset, steps_per_epoch=settings.steps_per_epoch,
      epochs=settings.steps // settings.steps_per_epoch,
      callbacks=[*callbacks], verbose=verbose).history
