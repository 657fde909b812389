"""Base of losses that learn tables by display position beside the model."""

from typing import NamedTuple

import tensorflow as tf

from ultra_tfr import keras_guards
from ultra_tfr import reduction as reduction_lib
from ultra_tfr import training_watch
from ultra_tfr.core import masking
from ultra_tfr.core import positions as positions_lib
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.heads import split_heads


class Batch(NamedTuple):
  """One batch as the losses need it.

  Attributes:
    feedback: `[B, L]`, 0 outside the mask.
    positions: `[B, L]` display positions.
    mask: `[B, L]` booleans: real items at positions inside the tables.
    weights: `[B, L]` item weights, 0 outside the mask.
    heads: a list of `[B, L]`, 0 outside the mask.
    slots: `core.positions.Slots`.
  """

  feedback: tf.Tensor
  positions: tf.Tensor
  mask: tf.Tensor
  weights: tf.Tensor
  heads: list
  slots: positions_lib.Slots


class Learned(NamedTuple):
  """What a loss computes of a batch.

  Attributes:
    losses: `[B, L]`, before item weights.
    sums: `[C * K, M]`, what moves the tables.
    pairs: how many observations there were to learn from: clicks, or pairs of
      different feedback.
    weight: the sum of debiasing weights, 0 for a loss without any.
    clipped: what clipping took away from it.
  """

  losses: tf.Tensor
  sums: tf.Tensor
  pairs: tf.Tensor
  weight: tf.Tensor
  clipped: tf.Tensor


def count(flags):
  """How many booleans are true, as a float."""
  return tf.reduce_sum(tf.cast(flags, tf.float32))


def check_heads(y_pred, num_heads, loss, feedback=None):
  """Raises a `ValueError` unless `y_pred` has that many heads.

  Args:
    y_pred: `[B, L]`, or `[B, L, heads]`.
    num_heads: the right number.
    loss: the loss, named in the message.
    feedback: as in `split_heads`.

  Returns:
    The heads, a list of float32 `[B, L]`.
  """
  heads = split_heads(y_pred, feedback)
  if len(heads) != num_heads:
    shape = "[lists, items" + (f", {num_heads}]" if num_heads > 1 else "]")
    raise ValueError(
        f"`{type(loss).__name__}` needs `y_pred` of the shape {shape}, but "
        f"`y_pred` has {len(heads)} head(s); build the model with "
        f"`num_heads={num_heads}`.")
  return heads


class PositionLoss(tf.keras.losses.Loss):
  """A loss with a layer that learns from the same batches.

  Args:
    position_bias: a `PositionTables`.
    layer_class: what it has to be.
    options: the other arguments of the loss, for its config.
    reduction: as in Keras; the mean is over valid items of all replicas.
    name: the loss's name.

  Raises:
    ValueError: if the layer is none of that class.
  """

  num_heads = 1

  def __init__(self, position_bias, layer_class, options, reduction, name):
    super().__init__(reduction=reduction, name=name)
    if not isinstance(position_bias, layer_class):
      raise ValueError(
          f"`position_bias` must be a `{layer_class.__name__}`, but is "
          f"{position_bias!r}; create one and pass it to the loss.")
    self.position_bias = position_bias
    self._options = options

  def __call__(self, y_true, y_pred, sample_weight=None):
    """The reduced loss.

    Args:
      y_true: `[B, L]` feedback with item l shown at position l + 1, or packed
        by `ultra_tfr.pack_feedback`.
      y_pred: `[B, L]` scores, or `[B, L, 2]` for a loss with two heads.
      sample_weight: None, a number, `[B]`, `[B, 1]` or `[B, L]` weights.

    Returns:
      A scalar, or `[B, L]` with the reduction NONE.
    """
    with tf.name_scope(self.name or type(self).__name__):
      batch, losses = self._item_losses(y_true, y_pred, sample_weight)
      loss = reduction_lib.reduce(
          losses, batch.mask, batch.weights, self.reduction)
      return training_watch.watch(
          loss, self.position_bias, "nothing moves the tables of its layer",
          "`ultra_tfr.position_updates.PositionUpdates()`")

  def call(self, y_true, y_pred):
    """Losses per item, `[B, L]`."""
    return self._item_losses(y_true, y_pred, None)[1]

  def _item_losses(self, y_true, y_pred, sample_weight):
    """Reads a batch, computes its losses, and collects what moves tables."""
    feedback, positions, contexts = unpack_feedback(y_true)
    heads = check_heads(y_pred, self.num_heads, self, feedback)
    slots = self.position_bias.find_slots(positions, contexts)
    observed = masking.valid_items(feedback)
    mask = tf.logical_and(observed, slots.valid)
    batch = Batch(
        masking.zero_where_invalid(mask, feedback), positions, mask,
        reduction_lib.item_weights(sample_weight, mask),
        [masking.zero_where_invalid(mask, head) for head in heads], slots)
    learned = self._learn(batch)
    losses = masking.zero_where_invalid(mask, learned.losses)
    # Each replica adds its share, so that a global batch counts once.
    share = tf.constant(1.0 / reduction_lib.num_replicas())
    overflow = count(tf.logical_and(observed, slots.overflow))
    self.position_bias.collect({
        "tables": tf.stop_gradient(learned.sums),
        "counters": tf.stop_gradient(tf.stack([
            share, overflow, learned.pairs, learned.weight,
            learned.clipped]))})
    return batch, losses

  def _learn(self, batch):
    """The `Learned` of a `Batch`."""
    raise NotImplementedError

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {"name": self.name, "reduction": self.reduction,
            "position_bias": keras_guards.serialize_layer(self.position_bias),
            **self._options}

  @classmethod
  def from_config(cls, config):
    """Builds the loss again, with a layer of the same arguments."""
    config = dict(config)
    layer = tf.keras.layers.deserialize(config.pop("position_bias"))
    return cls(layer, **config)


def sums_by_slot(batch, columns):
  """Sums of item values by slot.

  Args:
    batch: `Batch`.
    columns: a list of M `[B, L]` tensors, which hold the items' weights.

  Returns:
    `[C * K, M]`.
  """
  return tf.einsum(
      "bls,blm->sm", batch.slots.one_hot(), tf.stack(columns, axis=-1))
