"""A batch of long lists, some after others, so that few pairs are in memory."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ultra_tfr import keras_guards
from ultra_tfr.base import Learned
from ultra_tfr.feedback import Batch

# Lists of so many items are learned from all at once, if that is known when the
# step is built; of longer ones so many pairs.
_FEW_ITEMS, _PAIRS = 100, 1 << 18


def learn(learn_lists: Callable[[Batch], Learned], batch: Batch) -> Learned:
  """What a loss computes of a batch, in which lists do not depend on another.

  Args:
    learn_lists: computes it of any lists; nothing of it is `reduced`.
    batch: all lists.

  Returns:
    What `learn_lists(batch)` gives, but for rounding.
  """
  lists, items = (
      known or size for known, size in zip(
          batch.feedback.shape, tf.unstack(tf.shape(batch.feedback))))
  if isinstance(items, int) and items <= _FEW_ITEMS:
    return learn_lists(batch)
  count = _positive(-(-lists // _positive(
      _PAIRS // _positive(items * items))))
  size = _positive(-(-lists // count))
  if isinstance(count, int) and count == 1:
    return learn_lists(batch)
  # The last block is filled up with lists without an item.
  blocks = _map(batch, lambda values: tf.reshape(
      tf.pad(values, [[0, count * size - lists], [0, 0]]),
      [count, size, items]))

  def learn_block(i):
    found = learn_lists(_map(blocks, lambda values: values[i]))
    with tf.control_dependencies([found.losses]):
      totals = {name: getattr(found, name)
                for name in ("pairs", "weight", "clipped")}
      if not keras_guards.is_evaluating():
        totals["sums"] = found.sums()
    return found.losses, tf.nest.map_structure(tf.stop_gradient, totals)

  def learn_next(i, losses, totals):
    found, more = learn_block(i)
    return i + 1, losses.write(i, found), tf.nest.map_structure(
        tf.add, totals, more)

  # Outside of the loop, which a batch that is one block does not enter.
  first, totals = learn_block(0)
  with tf.control_dependencies([first, *tf.nest.flatten(totals)]):
    second = tf.identity(1)
  losses = tf.TensorArray(first.dtype, count, element_shape=first.shape)
  _, losses, totals = tf.while_loop(
      lambda i, *_: i < count, learn_next,
      (second, losses.write(0, first), totals), parallel_iterations=1,
      maximum_iterations=count - 1)
  losses = tf.reshape(losses.stack(), [count * size, items])[:lists]
  sums = totals.pop("sums", {})
  return Learned(losses, lambda: sums, **totals)


def _positive(number: Any) -> Any:
  """The number, or 1 if that is more; Python's own if it is."""
  return max(1, number) if isinstance(number, int) else tf.maximum(1, number)


def _map(batch: Batch, change: Callable[[tf.Tensor], tf.Tensor]) -> Batch:
  """The batch with a change of all its tensors `[B, L]`."""
  slots = batch.slots
  return batch._replace(
      heads=list(map(change, batch.heads)),
      slots=slots._replace(**{name: change(getattr(slots, name)) for name in (
          "index", "valid", "overflow")}),
      **{name: change(getattr(batch, name)) for name in (
          "feedback", "positions", "mask", "weights")})
