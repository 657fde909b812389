"""What called us: for mistakes that Keras does not tell anybody of."""

import inspect
import warnings

import tensorflow as tf


def frames_of(function):
  """The calls of a function that are under way, innermost first.

  Args:
    function: its name.

  Yields:
    Frames.

  >>> def outer(value):
  ...   return [frame.f_locals["value"] for frame in frames_of("outer")]
  >>> outer(3)
  [3]
  """
  frame = inspect.currentframe()
  while frame is not None:
    if frame.f_code.co_name == function:
      yield frame
    frame = frame.f_back


def refuse_class_weight():
  """Raises if `fit` was given `class_weight`.

  Keras takes the argmax over the last axis of `y_true` for the class: the
  index of a click, or whether a position is larger than the feedback. It hands
  the result on as ordinary sample weights, and tells callbacks nothing; so the
  look is taken at the frame of `fit` itself.
  """
  if any(frame.f_locals.get("class_weight") is not None
         for frame in frames_of("fit")):
    raise ValueError(
        "`class_weight` has no meaning for lists of feedback: Keras would "
        "take positions or the place of a click for classes. Remove it, and "
        "use `sample_weight` of shape [lists] or [lists, items].")


def serialize_layer(layer):
  """The config of a loss's bias layer, unless it is bound for an HDF5 model.

  Whole-model HDF5 holds the weights of the model's own layers only: what EM has
  learned would be lost without a word, and the file could not be loaded.

  Args:
    layer: a Keras layer.

  Returns:
    A dict, ready for JSON.

  Raises:
    ValueError: while Keras saves a whole model as HDF5.
  """
  if any(frames_of("save_model_to_hdf5")):
    raise ValueError(
        "A whole model in HDF5 (`.h5`) cannot hold the propensities of "
        f"{layer.name!r}; save it as `.keras` or in a folder (SavedModel), or "
        "save the weights alone (`save_weights`).")
  return tf.keras.layers.serialize(layer)


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
