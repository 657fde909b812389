"""Notices, where that can be done, that a loss is trained without its EM."""

import warnings

import tensorflow as tf


def watch(loss, layer, problem, callback):
  """Passes a loss through, and warns if it is trained and nothing does EM.

  Only training differentiates a loss, so the look is taken where the gradient
  is traced: evaluation never warns, and the compiled step pays nothing.

  Args:
    loss: a tensor.
    layer: what learns beside the model, an `EMLayer`.
    problem: what it means that nothing updates the layer, up to its name.
    callback: what to pass to `fit`.

  Returns:
    The loss.

  >>> from ultra_tfr.layers import PositionBias
  >>> float(watch(tf.constant(2.0), PositionBias(2), "nothing moves",
  ...             "`PropensityEM()`"))
  2.0
  """
  @tf.custom_gradient
  def identity(value):
    def gradient(upstream):
      if not layer.is_updated_by_em:
        warnings.warn(
            f"This loss is being trained, but {problem} {layer.name!r}: they "
            f"stay where they start. Pass {callback} to `fit`, or call "
            "`start_collecting` and `update` of the layer in your own loop.",
            stacklevel=2)
      return upstream
    return tf.identity(value), gradient

  return identity(loss)
