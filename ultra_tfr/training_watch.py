"""Notices, where that can be done, that a loss is trained without its EM."""

import warnings

import tensorflow as tf


def watch(loss, position_bias):
  """Passes a loss through, and warns if it is trained and nothing does EM.

  Only training differentiates a loss, so the look is taken where the gradient
  is traced: evaluation never warns, and the compiled step pays nothing.

  Args:
    loss: a tensor.
    position_bias: the `PositionBias` of the loss.

  Returns:
    The loss.

  >>> float(watch(tf.constant(2.0), None))
  2.0
  """
  if position_bias is None or position_bias.is_fixed:
    return loss

  @tf.custom_gradient
  def identity(value):
    def gradient(upstream):
      if not position_bias.is_updated_by_em:
        warnings.warn(
            "This loss is being trained, but nothing updates the propensities "
            f"of its bias layer {position_bias.name!r}: they stay where they "
            "start. Pass `ultra_tfr.callbacks.PropensityEM()` to `fit`, or "
            "call `start_collecting` and `update` of the layer in your own "
            "loop.", stacklevel=2)
      return upstream
    return tf.identity(value), gradient

  return identity(loss)
