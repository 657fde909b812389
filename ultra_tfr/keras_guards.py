"""Uses of Keras and TensorFlow internals, where nothing public will do."""

import functools
import inspect
import warnings

import tensorflow as tf


def plain_call(function):
  """A graph as an op, without the Python of `ConcreteFunction.__call__`.

  That sorts and checks arguments and looks for gradients at each call, which
  takes several times as long as to run a small graph.

  Args:
    function: a concrete function of tensors that gives one tensor. Nothing may
      differentiate it.

  Returns:
    A function of the same tensors, for calls outside of graphs.

  >>> @tf.function(input_signature=[tf.TensorSpec([])])
  ... def double(value):
  ...   return 2.0 * value
  >>> float(plain_call(double.get_concrete_function())(tf.constant(3.0)))
  6.0
  """
  captured, dtypes = function.captured_inputs, [
      output.dtype for output in function.outputs]

  def call(*arguments):
    return tf.raw_ops.StatefulPartitionedCall(
        args=[*arguments, *captured], Tout=dtypes, f=function)[0]

  return call


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


def refuse_class_weight(model):
  """Raises if the `fit` of a model was given `class_weight`.

  Keras takes the argmax over the last axis of `y_true` for the class: the
  index of a click, or whether a position is larger than the feedback. It hands
  the result on as ordinary sample weights, and tells callbacks nothing. So this
  reads the argument in the frame of Keras's own `fit`, never in that of a
  user's function of that name.

  Args:
    model: the Keras model that is being trained.
  """
  if any(frame.f_locals.get("class_weight") is not None
         for frame in _fits_of(model)):
    raise ValueError(
        "`class_weight` has no meaning for lists of feedback: Keras would "
        "take positions or the place of a click for classes. Remove it, and "
        "use `sample_weight` of shape [lists] or [lists, items].")


def running_fits(model):
  """How many of Keras's own `fit` of a model are under way: nested if over 1.

  >>> running_fits(tf.keras.Sequential())
  0
  """
  return sum(1 for _ in _fits_of(model))


def _fits_of(model):
  """The frames of Keras's own `fit` of a model, innermost first."""
  own = inspect.unwrap(tf.keras.Model.fit).__code__
  return (frame for frame in frames_of("fit")
          if frame.f_code is own and frame.f_locals.get("self") is model)


def callbacks_of_fit(model):
  """The callbacks of the `fit` of a model that is under way.

  >>> callbacks_of_fit(tf.keras.Sequential())
  []
  """
  for frame in _fits_of(model):
    found = frame.f_locals["callbacks"]
    return tf.nest.flatten(getattr(found, "callbacks", found))
  return []


def keep_logs_on_device(callback):
  """Tells Keras that the batch hooks of a callback do without logs.

  For any other callback with such hooks it reads the loss and all metrics after
  each batch, for which it waits for the device.

  Args:
    callback: a Keras callback.
  """
  callback._supports_tf_logs = True


def train_once_by(model, train):
  """Puts a function in place of the training function of a model, for one call.

  Args:
    model: a Keras model whose `fit` is about to run a training step.
    train: a function of an iterator, as `model.train_function`.
  """
  def call(iterator):
    forget_train_once(model)
    return train(iterator)

  call.original = model.train_function
  # Past `__setattr__`, which would take as long as an M step.
  vars(model)["train_function"] = call


def forget_train_once(model):
  """Takes back what `train_once_by` did, if the call has not come."""
  train = model.train_function
  vars(model)["train_function"] = getattr(train, "original", train)


def call_last(model, callback):
  """Adds a callback behind all others of the `fit` that is under way.

  Args:
    model: a Keras model whose callbacks are being called.
    callback: a Keras callback.
  """
  callback.set_model(model)
  next(_fits_of(model)).f_locals["callbacks"].append(callback)


def is_evaluating():
  """Whether a Keras model runs, or compiles, its `test_step`.

  The callbacks of a `fit` hear neither of its interruption nor of an
  `evaluate`, so the loss asks here.

  >>> is_evaluating()
  False
  """
  # The second name is that of a user's method, as AutoGraph rewrites it.
  return any(isinstance(frame.f_locals.get("self"), tf.keras.Model)
             for name in ("test_step", "tf__test_step")
             for frame in frames_of(name))


def attach(model, layers):
  """Makes the layers of losses part of the model, so that it saves them.

  Weights in Keras's old HDF5 format cannot hold it, and nothing public lets a
  model say so: `save_weights` of this model refuses that format from now on.

  Args:
    model: a Keras model.
    layers: a list of Keras layers, in an order that will be the same when the
      model is restored.
  """
  for number, layer in enumerate(layers):
    # The first is named as in earlier versions, where there was only one.
    model._track_trackable(
        layer, f"position_bias_{number}" if number else "position_bias",
        overwrite=True)
  _refuse_old_weights(model, layers[0])


def loaded(layer):
  """Makes a layer known to the model with whose loss it is being loaded.

  A model that is loaded and never fitted has no callback that attaches its
  layers, and would save its weights without them.

  Args:
    layer: a Keras layer, while its loss is made from its config.

  Returns:
    The layer.
  """
  keras = tf.keras.Model.__module__.partition(".")[0]
  # A `.keras` file, and a folder.
  for function, name in (("compile_from_config", "self"), ("load", "model")):
    for frame in frames_of(function):
      model = frame.f_locals.get(name)
      # A user's function of that name may have another model at hand.
      is_own = frame.f_globals["__name__"].partition(".")[0] == keras
      if is_own and isinstance(model, tf.keras.Model):
        _refuse_old_weights(model, layer)
  return layer


def _refuse_old_weights(model, layer):
  save = functools.partial(type(model).save_weights, model)

  @functools.wraps(type(model).save_weights)
  def save_weights(filepath, overwrite=True, save_format=None, options=None):
    path = str(filepath)
    if save_format in ("h5", "hdf5", "keras") or (
        save_format is None and path.endswith((".h5", ".hdf5", ".keras"))
        and not path.endswith(".weights.h5")):
      raise ValueError(
          f"Weights in the old HDF5 format ({path}) cannot hold the "
          f"propensities of {layer.name!r}; give the file a name that ends "
          "with `.weights.h5`.")
    return save(filepath, overwrite, save_format, options)

  model.save_weights = save_weights


def origin(tensor):
  """The layer that made a symbolic tensor, and the tensors that it took.

  Args:
    tensor: an output of a functional Keras model.

  Returns:
    A tuple of the layer and a list of tensors.

  >>> inputs = tf.keras.Input([2], name="x")
  >>> origin(tf.keras.layers.Dense(1)(inputs))[1][0] is inputs
  True
  """
  layer, node, _ = tensor._keras_history
  return layer, tf.nest.flatten(layer.inbound_nodes[node].keras_inputs)


def not_restored(reference, variables):
  """Names of the variables that the last restored checkpoint lacked.

  TensorFlow numbers restores, and marks each variable with the number of the
  last one that filled it.

  Args:
    reference: a variable that every checkpoint of the layer has.
    variables: a dict of variables by name.

  Returns:
    A list of names; empty where the reference was not restored either.

  >>> from ultra_tfr.layers import PositionBias
  >>> bias = PositionBias(2, trust_bias=None)
  >>> not_restored(bias.num_updates, {"examination": bias.examination})
  []
  """
  return [name for name, variable in variables.items()
          if variable._update_uid < reference._update_uid]


def serialize_layer(layer):
  """The config of a loss's bias layer, unless it is to be saved as HDF5.

  Losses and metrics of a model may share a layer, and they share one when the
  model is loaded, too. A whole model in HDF5 holds the weights of the model's
  own layers only: what EM has learned would be lost without a word, and the
  file could not be loaded.

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
        "save the weights alone (`save_weights('model.weights.h5')`).")
  # While Keras saves, an object that is serialised again gets a number, and
  # all with one number become one object when loaded. The first description
  # has no number, so it is thrown away.
  tf.keras.layers.serialize(layer)
  return tf.keras.layers.serialize(layer)


def watch(loss, layer):
  """Passes a loss through, and warns if it is trained and nothing does EM.

  Only training differentiates a loss, so the check runs while the gradient is
  traced: evaluation never warns, and the compiled step pays nothing.

  Args:
    loss: a tensor.
    layer: what learns beside the model, a `base.LearningLayer`.

  Returns:
    The loss.

  >>> from ultra_tfr.layers import PositionBias
  >>> float(watch(tf.constant(2.0), PositionBias(2)))
  2.0
  """
  @tf.custom_gradient
  def identity(value):
    def gradient(upstream):
      if not layer.is_updated_by_em:
        warnings.warn(
            "This loss is being trained, but nothing updates the propensities "
            f"of its bias layer {layer.name!r}: they stay where they start. "
            "Pass `ultra_tfr.callbacks.PropensityEM()` to `fit`, or call "
            "`start_collecting` and `update` of the layer in your own loop.",
            stacklevel=2)
      return upstream
    return tf.identity(value), gradient

  return identity(loss)


def take_as_compiled(loss):
  """Lets a loss take its mean in the scope of a strategy, as `compile` does.

  Keras refuses the mean of a loss there unless `compile` was given that loss,
  since only it divides by the number of replicas. It does so for a loss that
  has this one inside, too.

  Args:
    loss: a Keras loss, called by another one with the same reduction.
  """
  loss._allow_sum_over_batch_size = True
