"""Taking a model's output apart into the heads that losses and metrics need."""

import tensorflow as tf

from ultra_tfr.core import masking

# The order of the heads on the last axis of `y_pred`.
HEADS = ("ranking", "relevance", "preference")


def split_heads(y_pred, feedback=None):
  """Splits `y_pred` into float32 heads.

  Args:
    y_pred: `[B, L]` scores, or `[B, L, 2]` or `[B, L, 3]`: ranking score,
      relevance logit, preference logit. Ragged lists are padded.
    feedback: `[B, L]`, of the items that `y_pred` has to score; None: any.

  Returns:
    A list of one to three `[B, L]` float32 tensors.

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
  if rank != 3 or y_pred.shape[2] not in (2, 3):
    raise ValueError(
        "`y_pred` must have the shape [lists, items] for scores, or [lists, "
        "items, 2 or 3] for a ranking, a relevance and a preference head, but "
        f"has the shape {y_pred.shape}; stack the heads on the last axis.")
  return tf.unstack(tf.cast(y_pred, tf.float32), axis=2)


def ranking_head(y_pred):
  """The ranking scores in `y_pred`, in its dtype.

  Args:
    y_pred: as in `split_heads`.

  Returns:
    `[B, L]`.

  >>> ranking_head(tf.constant([[[1.0, 2.0], [3.0, 4.0]]])).numpy()
  array([[1., 3.]], dtype=float32)
  """
  return y_pred[..., 0] if y_pred.shape.rank == 3 else y_pred
