"""From losses per item to one number, with weights and over replicas."""

import tensorflow as tf

from ultra_tfr.core import masking


def item_weights(sample_weight, mask):
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


def num_replicas():
  """Replicas that train in step: 1 without a distribution strategy.

  >>> num_replicas()
  1
  """
  replica = tf.distribute.get_replica_context()
  return 1 if replica is None else replica.num_replicas_in_sync


def reduce(losses, mask, weights, reduction, normalize_weights=False):
  """Reduces `[B, L]` losses; mean and sum are over items of all replicas.

  Args:
    losses: `[B, L]`.
    mask: `[B, L]` booleans, the valid items.
    weights: `[B, L]`, zeros outside the mask.
    reduction: a `tf.keras.losses.Reduction`.
    normalize_weights: divide by the sum of the weights rather than by the
      number of valid items.

  Returns:
    A scalar, or `[B, L]` with NONE. The scalar has the gradient of this
    replica's items; the values of a sum add up to it over the replicas, those
    of a mean are the mean in each.

  >>> mask = tf.constant([[True, False]])
  >>> float(reduce(tf.constant([[4.0, 9.0]]), mask, tf.cast(mask, tf.float32),
  ...              "sum_over_batch_size"))
  4.0
  """
  losses = losses * weights
  if reduction == tf.keras.losses.Reduction.NONE:
    return losses
  total = tf.reduce_sum(losses)
  count = tf.reduce_sum(
      weights if normalize_weights else tf.cast(mask, tf.float32))
  is_sum = reduction == tf.keras.losses.Reduction.SUM
  replicas = num_replicas()
  if replicas == 1:
    return total if is_sum else tf.math.divide_no_nan(total, count)
  # Keras divides a mean by the number of replicas and adds them up; it reports
  # a sum times the number of replicas, averaged over them. With the global
  # total and count below, values and gradients are those of one device, also
  # where the batch is split unevenly.
  all_total, all_count = tf.distribute.get_replica_context().all_reduce(
      tf.distribute.ReduceOp.SUM, [tf.stop_gradient(total), count])
  if is_sum:
    return total + tf.stop_gradient(all_total / replicas - total)
  local = tf.math.divide_no_nan(replicas * total, all_count)
  mean = tf.math.divide_no_nan(all_total, all_count)
  return local + tf.stop_gradient(mean - local)
