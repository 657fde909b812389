"""Feedback, display positions and contexts in one `y_true` tensor.

Keras hands a loss one tensor. Positions belong to what was logged, so they
travel with the feedback and not with the features: the model never sees them,
and serving never needs them.
"""

from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr.core import masking
from ultra_tfr.core import positions as positions_lib

# What Keras and users hand over: tensors, ragged ones too, arrays, nested
# lists. TensorFlow has no types by which more could be checked.
TensorLike = Any

# The order of the heads on the last axis of `y_pred`.
HEADS = ("ranking", "relevance", "preference")


def pack_feedback(feedback: TensorLike, positions: Optional[TensorLike] = None,
                  contexts: Optional[TensorLike] = None) -> tf.Tensor:
  """Builds `y_true` from feedback, and the positions it was observed at.

  Args:
    feedback: `[B, L]`; clicks (0/1) or graded feedback. Negative or NaN marks
      padding or missing feedback. Ragged lists are padded, here and below.
    positions: `[B, L]`, 1-based display positions, 0 for unknown; None if item
      l of each list was shown at position l + 1.
    contexts: `[B, L]`, `[B, 1]` or `[B]`, context ids from 0 (a device, a page
      type), or None.

  Returns:
    A float32 tensor: `[B, L]` if neither positions nor contexts are given,
    `[B, L, 2]` with positions, `[B, L, 3]` with contexts.

  Raises:
    ValueError: if a shape does not fit, a value is infinite, a position is
      negative or no whole number, or a context is. Values are checked when
      they are known, that is outside of a `tf.function`.

  >>> pack_feedback([[1, 0]], positions=[[2, 5]]).numpy()
  array([[[1., 2.],
          [0., 5.]]], dtype=float32)
  """
  feedback = _as_float("feedback", feedback, padding=-1.0)
  if feedback.shape.rank != 2:
    raise ValueError(
        "`feedback` must have the shape [lists, items], but has the shape "
        f"{feedback.shape}; pad the lists to one length with -1.")
  _check_values(
      "feedback", feedback, lambda x: ~np.isinf(x),
      "finite; NaN or a negative value marks missing feedback")
  if positions is None and contexts is None:
    return feedback
  if positions is None:
    size = tf.range(1, tf.shape(feedback)[1] + 1)
    positions = tf.broadcast_to(
        tf.cast(size, tf.float32), tf.shape(feedback))
    positions.set_shape(feedback.shape)
  positions = _as_float("positions", positions)
  if not positions.shape.is_compatible_with(feedback.shape):
    raise ValueError(
        "`positions` must have the shape of `feedback`, "
        f"{feedback.shape}, but has the shape {positions.shape}; give one "
        "display position an item, 0 for padding.")
  _check_values(
      "positions", positions, _is_whole,
      "whole numbers, 1 for the first position and 0 for unknown")
  parts = [feedback, positions]
  if contexts is not None:
    contexts = _as_float("contexts", contexts)
    if contexts.shape.rank == 1:
      contexts = contexts[:, tf.newaxis]
    lists, items = feedback.shape
    if not any(contexts.shape.is_compatible_with([lists, size])
               for size in (1, items)):
      raise ValueError(
          "`contexts` must have the shape [lists], [lists, 1] or that of "
          f"`feedback`, {feedback.shape}, but has the shape {contexts.shape}; "
          "give one context id a list.")
    _check_values("contexts", contexts, _is_whole, "whole numbers from 0")
    parts.append(tf.broadcast_to(contexts, tf.shape(feedback)))
  return tf.stack(parts, axis=-1)


def unpack_feedback(
    y_true: TensorLike) -> tuple[tf.Tensor, tf.Tensor, Optional[tf.Tensor]]:
  """Takes `y_true` apart again.

  Args:
    y_true: `[B, L]` feedback, `[B, L, 2]` with positions, or `[B, L, 3]` with
      contexts too; see `pack_feedback`. Ragged lists are padded with -1.

  Returns:
    A tuple `(feedback, positions, contexts)` of float32 `[B, L]` tensors,
    contexts None where there are none. Without positions item l is at l + 1.

  Raises:
    ValueError: if the shape is none of these, or if feedback comes in half
      precision.

  >>> feedback, positions, contexts = unpack_feedback([[1, 0, 0]])
  >>> positions.numpy(), contexts
  (array([[1., 2., 3.]], dtype=float32), None)
  """
  y_true = masking.to_dense(y_true, -1.0)
  rank = y_true.shape.rank
  if rank not in (2, 3) or (rank == 3 and y_true.shape[2] not in (2, 3)):
    raise ValueError(
        "`y_true` must have the shape [lists, items], or [lists, items, 2] "
        "with positions or [lists, items, 3] with contexts, but has the shape "
        f"{y_true.shape}; build it with `ultra_tfr.pack_feedback`.")
  if y_true.dtype in (tf.float16, tf.bfloat16):
    packed, remedy = ("Packed feedback", "") if rank == 3 else (
        "Feedback", ", or give clicks and grades as integers")
    raise ValueError(
        f"{packed} came as {y_true.dtype.name}, in which positions and large "
        "feedback are rounded; Keras casts `y_true` to the dtype of the "
        "model's output, so make the last layer float32 "
        f"(`tf.keras.layers.Activation('linear', dtype='float32')`){remedy}.")
  y_true = tf.cast(y_true, tf.float32)
  if rank == 3:
    contexts = y_true[..., 2] if y_true.shape[2] == 3 else None
    return y_true[..., 0], y_true[..., 1], contexts
  positions = tf.range(1, tf.shape(y_true)[1] + 1)
  positions = tf.broadcast_to(tf.cast(positions, tf.float32), tf.shape(y_true))
  return y_true, positions, None


def _as_float(name, values, padding=0.0):
  try:
    return tf.cast(masking.to_dense(values, padding), tf.float32)
  except (TypeError, ValueError, tf.errors.UnimplementedError) as error:
    raise ValueError(
        f"`{name}` must be a rectangular array of numbers, but it cannot be "
        f"converted ({error}); pad the lists to one length.") from error


def _is_whole(values):
  return np.isfinite(values) & (values >= 0) & (values == np.floor(values))


def _check_values(name, tensor, is_right, expected):
  """Checks values that are known; inside a graph there is nothing to see."""
  if not tf.executing_eagerly():
    return
  values = tensor.numpy()
  wrong = ~is_right(values)
  if wrong.any():
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    raise ValueError(
        f"`{name}` must be {expected}, but {name}{list(index)} is "
        f"{values[index]}; correct it before packing.")


def split_heads(y_pred: TensorLike,
                feedback: Optional[tf.Tensor] = None) -> list[tf.Tensor]:
  """Splits `y_pred` into float32 heads.

  Args:
    y_pred: `[B, L]` scores, or `[B, L, heads]`: ranking score, relevance logit
      (or one for each hypothesis of the bias layer), preference logit. Ragged
      lists are padded.
    feedback: `[B, L]`, of the items that `y_pred` has to score; None: any.

  Returns:
    A list of `[B, L]` float32 tensors.

  Raises:
    ValueError: if the shape is none of these, or that of other lists.

  >>> [h.numpy().tolist() for h in split_heads(tf.constant([[[1.0, 2.0]]]))]
  [[[1.0]], [[2.0]]]
  """
  y_pred = masking.to_dense(y_pred)
  rank = y_pred.shape.rank
  if feedback is not None and rank in (2, 3) and not (
      y_pred.shape[:2].is_compatible_with(feedback.shape)):
    raise ValueError(
        f"`y_pred` must score the items of `y_true`, {feedback.shape} (lists, "
        f"items), but has scores of shape {y_pred.shape[:2]}; pad features and "
        "feedback to one list size.")
  if rank == 2:
    return [tf.cast(y_pred, tf.float32)]
  if rank != 3 or y_pred.shape[2] is None or y_pred.shape[2] < 2:
    raise ValueError(
        "`y_pred` must have the shape [lists, items] for scores, or [lists, "
        "items, heads] for a ranking score and relevance logits, but has the "
        f"shape {y_pred.shape}; stack two heads or more on the last axis.")
  return tf.unstack(tf.transpose(tf.cast(y_pred, tf.float32), [2, 0, 1]))


def ranking_head(y_pred: tf.Tensor) -> tf.Tensor:
  """The ranking scores in `y_pred`, in its dtype.

  Args:
    y_pred: as in `split_heads`.

  Returns:
    `[B, L]`.

  >>> ranking_head(tf.constant([[[1.0, 2.0], [3.0, 4.0]]])).numpy()
  array([[1., 3.]], dtype=float32)
  """
  return y_pred[..., 0] if y_pred.shape.rank == 3 else y_pred


class Batch(NamedTuple):
  """One batch as losses need it.

  Attributes:
    feedback: `[B, L]`, 0 outside the mask.
    positions: `[B, L]` display positions.
    mask: `[B, L]` booleans: real items at positions inside the tables.
    weights: `[B, L]` item weights, 0 outside the mask.
    heads: a list of `[B, L]`, 0 outside the mask.
    slots: `core.positions.Slots`.
    overflow: how many real items are outside the tables.
  """

  feedback: tf.Tensor
  positions: tf.Tensor
  mask: tf.Tensor
  weights: tf.Tensor
  heads: list[tf.Tensor]
  slots: positions_lib.Slots
  overflow: tf.Tensor


def read_batch(y_true: TensorLike, y_pred: TensorLike,
               sample_weight: Optional[TensorLike], layer: Any) -> Batch:
  """What Keras hands to a loss, checked, masked and taken apart.

  Args:
    y_true: as in `unpack_feedback`.
    y_pred: as in `split_heads`.
    sample_weight: as in `item_weights`.
    layer: a `base.LearningLayer`, which knows the tables.

  Returns:
    A `Batch`.

  Raises:
    ValueError: if a shape does not fit.
  """
  feedback, positions, contexts = unpack_feedback(y_true)
  heads = split_heads(y_pred, feedback)
  slots = layer.find_slots(positions, contexts)
  observed = masking.valid_items(feedback)
  mask = tf.logical_and(observed, slots.valid)
  return Batch(
      masking.zero_where_invalid(mask, feedback), positions, mask,
      item_weights(sample_weight, mask),
      [masking.zero_where_invalid(mask, head) for head in heads], slots,
      count(tf.logical_and(observed, slots.overflow)))


def count(flags: tf.Tensor) -> tf.Tensor:
  """How many booleans are true, as a float.

  Args:
    flags: booleans of any shape.

  Returns:
    A scalar.
  """
  return tf.reduce_sum(tf.cast(flags, tf.float32))


def item_weights(sample_weight: Optional[TensorLike],
                 mask: tf.Tensor) -> tf.Tensor:
  """Sample weights as one weight an item.

  Args:
    sample_weight: None, a scalar, `[B]` or `[B, 1]` weights of lists, or
      `[B, L]` weights of items (of the preferred item of a pair).
    mask: `[B, L]` booleans, the valid items.

  Returns:
    `[B, L]` float32, 0 outside the mask.

  Raises:
    ValueError: if the shape is none of these.

  >>> item_weights([2.0, 3.0], tf.constant([[True, True], [True, False]]))
  <tf.Tensor: shape=(2, 2), dtype=float32, numpy=
  array([[2., 2.],
         [3., 0.]], dtype=float32)>
  """
  weights = tf.cast(
      masking.to_dense(1.0 if sample_weight is None else sample_weight),
      tf.float32)
  # A vector weighs lists, also where there are as many lists as items.
  if weights.shape.rank == 1:
    weights = weights[:, tf.newaxis]
  rank_fits = weights.shape.rank in (0, 2)
  if rank_fits and weights.shape.rank == 2:
    lists, items = weights.shape
    rank_fits = (tf.TensorShape([lists]).is_compatible_with(mask.shape[:1]) and
                 (items == 1 or mask.shape[1:].is_compatible_with([items])))
  if not rank_fits:
    raise ValueError(
        "`sample_weight` must be a number or have the shape [lists], "
        "[lists, 1] or [lists, items], here "
        f"{[mask.shape[0]]} or {mask.shape.as_list()}, but has the shape "
        f"{tf.convert_to_tensor(sample_weight).shape}.")
  return tf.where(mask, weights, 0.0)
