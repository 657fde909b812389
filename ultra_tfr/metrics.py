"""TF-Ranking metrics on the ranking head, whatever the model's other heads."""

import copy

import tensorflow as tf

from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.heads import split_heads
from ultra_tfr.reduction import item_weights


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class OnRanking(tf.keras.metrics.Metric):
  """Feeds a metric with feedback (or labels) and the ranking score alone.

  Two things that TF-Ranking leaves open are settled: items of equal score rank
  with the least relevant first, so a constant score is never rewarded and the
  result does not depend on chance or on the order of items; and lists without
  a relevant item do not count (TF-Ranking counts them as 0 in NDCG).

  Args:
    metric: a `tfr.keras.metrics` metric, or any that takes `[B, L]` labels and
      scores.
    name: its name in logs; by default that of the metric.

  >>> import tensorflow_ranking as tfr
  >>> metric = OnRanking(tfr.keras.metrics.MRRMetric())
  >>> metric.update_state([[1.0, 0.0]], tf.constant([[[0.1, 9.0], [0.2, 0.0]]]))
  >>> float(metric.result())
  0.5
  """

  def __init__(self, metric, name=None):
    if not isinstance(metric, tf.keras.metrics.Metric):
      raise ValueError(
          "`metric` must be a Keras metric such as "
          f"`tfr.keras.metrics.NDCGMetric()`, but is {metric!r}.")
    super().__init__(name=name or metric.name)
    self._metric = metric

  def update_state(self, y_true, y_pred, sample_weight=None, mask=None):
    """Adds a batch.

    Args:
      y_true: `[B, L]` labels, or packed feedback, whose positions are ignored.
      y_pred: `[B, L]`, or with heads on a last axis.
      sample_weight: None, a scalar, `[B]`, `[B, 1]` or `[B, L]` weights.
      mask: `[B, L]` booleans, the items that count; by default those with a
        label >= 0. With it a negative label means least relevant.
    """
    labels = unpack_feedback(y_true)[0]
    scores = split_heads(y_pred, labels)[0]
    mask = masking.valid_items(labels) if mask is None else mask
    labels = tf.nn.relu(masking.zero_where_invalid(mask, labels))
    scores = masking.zero_where_invalid(mask, scores)
    ranks = tf.cast(pairs.ranks(scores, labels, mask), tf.float32)
    weights = item_weights(sample_weight, mask)
    has_relevant = tf.reduce_any(labels > 0, axis=1, keepdims=True)
    weights = tf.where(has_relevant, weights, 0.0)
    self._metric.update_state(tf.where(mask, labels, -1.0), -ranks, weights)

  def result(self):
    """The metric's result."""
    return self._metric.result()

  def reset_state(self):
    """Resets the metric."""
    self._metric.reset_state()

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {"metric": tf.keras.metrics.serialize(self._metric),
            "name": self.name}

  @classmethod
  def from_config(cls, config):
    """Builds the metric again."""
    description = copy.deepcopy(config["metric"])
    for key, value in description["config"].items():
      # TF-Ranking's metrics do not rebuild the functions in their configs.
      if isinstance(value, dict) and value.get("class_name") == "function":
        description["config"][key] = tf.keras.utils.deserialize_keras_object(
            value)
    return cls(tf.keras.metrics.deserialize(description), config["name"])


def on_ranking(metric, name=None):
  """Wraps a metric for models with several heads and packed feedback.

  Args:
    metric: a `tfr.keras.metrics` metric.
    name: its name in logs; by default that of the metric.

  Returns:
    A Keras metric.
  """
  return OnRanking(metric, name)
