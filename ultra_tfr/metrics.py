"""TF-Ranking metrics on the ranking head, whatever the model's other heads."""

import copy
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import checks
from ultra_tfr import keras_guards
from ultra_tfr.bias import debiased_feedback
from ultra_tfr.core import counterfactual
from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.feedback import TensorLike
from ultra_tfr.feedback import item_weights
from ultra_tfr.feedback import split_heads
from ultra_tfr.feedback import unpack_feedback
from ultra_tfr.layers import PositionBias

# Metrics that use only whether an item was clicked.
_OF_CLICKS = ("precision", "recall", "hits", "map")
_METRICS = ("dcg", "ndcg", "arp", "mrr", *_OF_CLICKS)
# Metrics with a label for each subtopic, for which `y_true` has no place.
_OF_SUBTOPICS = (tfr.keras.metrics.PrecisionIAMetric,
                 tfr.keras.metrics.AlphaDCGMetric)
_SUBTOPICS = "its labels are of subtopics, where `y_true` has positions"
# TF-Ranking's names for what clicks cannot tell, and why.
_REFUSED = {
    "ordered_pair_accuracy": (
        "an item without a click is not known to be the worse of a pair"),
    "precision_ia": _SUBTOPICS,
    "alpha_dcg": _SUBTOPICS,
}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class OnRanking(tf.keras.metrics.Metric):
  """Feeds a metric with feedback (or labels) and the ranking score alone.

  Two things that TF-Ranking leaves open are settled: items of equal score rank
  with the least relevant first, so a constant score is never rewarded and the
  result does not depend on chance or on the order of items; and lists without
  a relevant item do not count (TF-Ranking counts them as 0 in NDCG). The result
  is NaN if a score of a list that counts is NaN.

  `fit` logs a `tfr.keras.metrics.NDCGMetric()` of validation data under
  `val_ndcg_metric`. Keras cannot know that more is better, so tell it:
  `tf.keras.callbacks.EarlyStopping("val_ndcg_metric", mode="max")`.

  Args:
    metric: a `tfr.keras.metrics` metric, also one with `ragged=True`, or any
      other that takes `[B, L]` labels and scores.
    name: its name in logs; by default that of the metric.

  Raises:
    ValueError: if `metric` is no metric, or has a label for each subtopic.

  >>> import tensorflow_ranking as tfr
  >>> metric = OnRanking(tfr.keras.metrics.MRRMetric())
  >>> metric.update_state([[1.0, 0.0]], tf.constant([[[0.1, 9.0], [0.2, 0.0]]]))
  >>> float(metric.result())
  0.5
  """

  def __init__(self, metric: Any, name: Optional[str] = None):
    if not isinstance(metric, tf.keras.metrics.Metric):
      raise ValueError(
          "`metric` must be a Keras metric such as "
          f"`tfr.keras.metrics.NDCGMetric()`, but is {metric!r}.")
    if isinstance(metric, _OF_SUBTOPICS):
      raise ValueError(
          f"`metric` cannot be a `{type(metric).__name__}`: {_SUBTOPICS}; "
          "compile a model of scores alone with the metric itself.")
    super().__init__(name=name or metric.name)
    self._metric = metric
    self._is_ragged = metric.get_config().get("ragged", False)

  def update_state(self, y_true: TensorLike, y_pred: TensorLike,
                   sample_weight: Optional[TensorLike] = None,
                   mask: Optional[tf.Tensor] = None) -> None:
    """Adds a batch.

    Args:
      y_true: `[B, L]` labels, or packed feedback, whose positions are ignored.
      y_pred: `[B, L]`, or with heads on a last axis.
      sample_weight: None, a scalar, `[B]`, `[B, 1]` or `[B, L]` weights.
      mask: `[B, L]` booleans, the items that count; by default those with a
        label >= 0. Negative labels inside the mask count as 0.
    """
    labels = unpack_feedback(y_true)[0]
    scores = split_heads(y_pred, labels)[0]
    mask = masking.valid_items(labels) if mask is None else mask
    labels = tf.nn.relu(masking.zero_where_invalid(mask, labels))
    ranks = tf.cast(pairs.ranks(scores, labels, mask), tf.float32)
    weights = item_weights(sample_weight, mask)
    has_relevant = tf.reduce_any(labels > 0, axis=1, keepdims=True)
    weights = tf.where(has_relevant, weights, 0.0)
    # The metric gets ranks for scores. A NaN score would have a rank, too, so
    # the sums are made NaN below.
    diverged = tf.reduce_any(pairs.unordered(scores, _counting(mask, weights)))
    labels, scores = tf.where(mask, labels, -1.0), -ranks
    if self._is_ragged:
      labels, scores, weights = (
          tf.ragged.boolean_mask(part, mask)
          for part in (labels, scores, weights))
    self._metric.update_state(labels, scores, weights)
    for variable in self._metric.variables:
      if variable.dtype.is_floating:
        variable.assign_add(tf.where(
            diverged, tf.cast(float("nan"), variable.dtype),
            tf.zeros_like(variable)))

  def result(self) -> tf.Tensor:
    """The metric's result."""
    return self._metric.result()

  def reset_state(self) -> None:
    """Resets the metric."""
    self._metric.reset_state()

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {"metric": checks.plain(tf.keras.metrics.serialize(self._metric)),
            "name": self.name}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds the metric again."""
    description = copy.deepcopy(config["metric"])
    for key, value in description["config"].items():
      # TF-Ranking's metrics do not rebuild the functions in their configs.
      if isinstance(value, dict) and value.get("class_name") == "function":
        description["config"][key] = tf.keras.utils.deserialize_keras_object(
            value)
    return cls(tf.keras.metrics.deserialize(description), config["name"])


def _counting(mask, weights):
  """Items of lists that count: where some weight is above 0, `[B, L]`."""
  return tf.logical_and(
      mask, tf.reduce_any(weights > 0, axis=1, keepdims=True))


def on_ranking(metric: tf.keras.metrics.Metric,
               name: Optional[str] = None) -> OnRanking:
  """Wraps a metric for models with several heads and packed feedback.

  Args:
    metric: a `tfr.keras.metrics` metric.
    name: its name in logs; by default that of the metric.

  Returns:
    A Keras metric.
  """
  return OnRanking(metric, name)


class _BiasMetric(tf.keras.metrics.Metric):
  """A ratio of sums that reads a bias layer which it does not own.

  Args:
    position_bias: a `PositionBias`.
    name: the metric's name.
  """

  def __init__(self, position_bias: PositionBias, name: Optional[str]):
    if not isinstance(position_bias, PositionBias):
      raise ValueError(
          "`position_bias` must be a `ultra_tfr.layers.PositionBias`, but is "
          f"{position_bias!r}; pass the one of the loss.")
    super().__init__(name=name)
    # Hidden in a function: Keras takes the variables of a layer that is an
    # attribute for the metric's own, and looks for them in saved models.
    self._get_position_bias = lambda: position_bias
    self._numerator = self.add_weight(
        name="numerator", initializer="zeros", dtype=tf.float32)
    self._denominator = self.add_weight(
        name="denominator", initializer="zeros", dtype=tf.float32)

  def _add(self, numerator, denominator):
    self._numerator.assign_add(tf.reduce_sum(numerator))
    self._denominator.assign_add(tf.reduce_sum(denominator))

  def result(self) -> tf.Tensor:
    """The metric so far."""
    return masking.safe_ratio(
        self._numerator, self._denominator, float("nan"))

  def reset_state(self) -> None:
    """Resets the metric, and not the propensities."""
    self._numerator.assign(0.0)
    self._denominator.assign(0.0)

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {
        "name": self.name,
        "position_bias": keras_guards.serialize_layer(
            self._get_position_bias()),
    }

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds the metric again, with a bias layer of the same arguments."""
    config = dict(config)
    return cls(tf.keras.layers.deserialize(config.pop("position_bias")),
               **config)


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class CounterfactualMetric(_BiasMetric):
  """Ranking metrics on feedback weighted by inverse propensities.

  For validation without labels: a metric on raw feedback rewards a ranker for
  the logged order. The numbers are those of
  `ultra_tfr.evaluation.counterfactual`, which says what they mean and gives
  intervals, too: `"dcg"` is its `dcg@n`, or `snips_dcg@n` if self-normalised.

  Propensities are read from the bias layer at each batch, on the scale of
  position 1 of the item's context. While they are learned, the metric moves
  with them; `self_normalized=True` moves less. Items whose position is outside
  the tables are left out. With `trust_bias` `"auto"` or `"position"` the
  feedback must be clicks, 0 or 1, and the chance p0 of a click on an irrelevant
  item is subtracted; with `"pairwise"` only examination is corrected.

  `"precision"`, `"recall"`, `"hits"` (the hit rate) and `"map"` need clicks, 0
  or 1: they estimate TF-Ranking's metrics on the clicks that there would be if
  all items had been shown at position 1. Recall and MAP are ratios of sums over
  all lists, as NDCG is. Hit rate and MAP multiply estimates of different items
  of a list, and so their noise: there `max_weight` is worth its bias.

  The result is NaN where there is nothing to divide by, as without feedback,
  and where a score of a list that counts is NaN.

  Give the metric the bias layer of the loss: a saved model holds that one only,
  and its metrics read it when the model is loaded, too.

  Args:
    position_bias: the `PositionBias` of the loss, or one with known
      `examination`.
    metric: `"dcg"`, `"ndcg"`, `"arp"` (lower is better), `"mrr"`,
      `"precision"`, `"recall"`, `"hits"` or `"map"`.
    topn: the cutoff, or None; ARP has none.
    self_normalized: divide DCG, MRR and precision by the sum of the estimates
      instead of the number of lists. The hit rate cannot be; the others are
      ratios anyway.
    max_weight: cap of the weights relative to position 1, or None.
    name: its name in logs; by default such as "ips_dcg_10" or "snips_dcg_10".

  Raises:
    ValueError: if an argument is out of range.
    tf.errors.InvalidArgumentError: if feedback is not 0 or 1 where it must be.

  >>> metric = CounterfactualMetric(PositionBias(2, examination=[1.0, 0.5]))
  >>> metric.update_state([[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]])
  >>> round(float(metric.result()), 4)  # (2 / log2(2) + 1 / log2(3)) / 2
  1.3155
  """

  def __init__(self, position_bias: PositionBias, metric: Any = "dcg",
               topn: int = 10, self_normalized: bool = False,
               max_weight: Optional[float] = None, name: Optional[str] = None):
    if metric in tuple(_REFUSED):
      raise ValueError(f"`metric` cannot be {metric!r}: {_REFUSED[metric]}; "
                       "take 'dcg' or 'precision'.")
    checks.check_choice("metric", metric, _METRICS)
    if topn is not None:
      topn = checks.check_count("topn", topn)
    if metric == "hits" and self_normalized is True:
      raise ValueError(
          "`self_normalized` must be False for the metric 'hits', which is no "
          "sum over items, but is True; leave it out.")
    self._options = {
        "metric": metric, "topn": topn,
        "self_normalized": checks.check_flag(
            "self_normalized", self_normalized),
        "max_weight": checks.check_max_weight(max_weight)}
    super().__init__(
        position_bias, name or _default_name(metric, topn, self_normalized))

  def update_state(self, y_true: TensorLike, y_pred: TensorLike,
                   sample_weight: Optional[TensorLike] = None) -> None:
    """Adds a batch.

    Args:
      y_true: `[B, L]` feedback, or packed by `ultra_tfr.pack_feedback`.
      y_pred: `[B, L]` scores, or with heads on a last axis.
      sample_weight: None, a scalar, `[B]`, `[B, 1]` or `[B, L]` weights; a list
        counts by the mean weight of its items.
    """
    bias = self._get_position_bias()
    feedback, positions, contexts = unpack_feedback(y_true)
    estimates, mask = debiased_feedback(
        bias, feedback, positions, contexts,
        max_weight=self._options["max_weight"])
    metric, topn = self._options["metric"], self._options["topn"]
    if bias.has_click_irrelevant or metric in _OF_CLICKS:
      clicks = masking.zero_where_invalid(mask, feedback)
      tf.debugging.assert_equal(clicks, tf.sign(clicks), (
          "`y_true` must hold clicks, 0 or 1, with `trust_bias` 'auto' or "
          "'position', whose p0 is a chance of a click, and for the metrics "
          f"{', '.join(_OF_CLICKS)}; pack `feedback > 0`, or give the metric a "
          "bias layer without trust bias."))
    weights = item_weights(sample_weight, mask)
    scores = masking.zero_where_invalid(
        _counting(mask, weights), split_heads(y_pred, estimates)[0])
    lists = tf.math.divide_no_nan(
        tf.reduce_sum(weights, axis=1),
        tf.reduce_sum(tf.cast(mask, tf.float32), axis=1))
    if metric in _OF_CLICKS:
      top = counterfactual.top_totals(scores, estimates, mask, topn)
      gain = tf.reduce_sum(estimates, axis=1)
      numerator, denominator = (lists * part for part in {
          "precision": (tf.math.divide_no_nan(top.gain, top.size), tf.where(
              self._options["self_normalized"], gain, 1.0)),
          "recall": (top.gain, gain),
          "hits": (top.hit, tf.ones_like(gain)),
          "map": (top.precisions, gain),
      }[metric])
    else:
      totals = counterfactual.request_totals(
          scores, estimates * weights, mask, [topn])
      per_list = totals.gain if self._options["self_normalized"] else lists
      numerator, denominator = {
          "dcg": (totals.dcg, per_list),
          "ndcg": (totals.dcg, totals.ideal_dcg),
          "arp": (totals.rank, totals.gain),
          "mrr": (totals.reciprocal_rank, per_list),
      }[metric]
    self._add(numerator, denominator)

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {**super().get_config(), **self._options}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class ClickLogLikelihood(_BiasMetric):
  """The mean over items of log P(what happened), natural logarithm.

  Tells without labels how well examination, click noise and relevance explain
  feedback together. On held-out lists, after training, it compares where EM
  ended from several starts, such as `initial_click_irrelevant=0.02` and `0.3`
  of a `PositionBias(trust_bias="position")`: on simulated logs the one with the
  higher value was nearer to the true curve. But it knows no more than clicks
  do: p0 in proportion to p1 looks the same as relevance that is never 0.

  P(feedback > 0) is p1 beta + p0 (1 - beta) at the present propensities (of the
  likeliest hypothesis if there are several). beta is from the relevance head,
  or else from the score, which is calibrated only after training with
  `PropensityEM`. Pairwise trust bias is left out, since it is a model of pairs.
  Items whose position is outside the tables are left out. The result is NaN
  without items.

  Give it the bias layer of the loss, for the sake of saved models, see
  `CounterfactualMetric`.

  Args:
    position_bias: the `PositionBias` of the loss.
    name: its name in logs.

  Raises:
    ValueError: if `position_bias` is no `PositionBias`.

  >>> metric = ClickLogLikelihood(PositionBias(1, examination=[0.5]))
  >>> metric.update_state([[1.0], [0.0]], tf.zeros([2, 1, 2]))
  >>> round(float(metric.result()), 4)  # (log 0.25 + log 0.75) / 2
  -0.837
  """

  def __init__(self, position_bias: PositionBias,
               name: Optional[str] = "click_log_likelihood"):
    super().__init__(position_bias, name)

  def update_state(self, y_true: TensorLike, y_pred: TensorLike,
                   sample_weight: Optional[TensorLike] = None) -> None:
    """Adds a batch.

    Args:
      y_true: `[B, L]` feedback, or packed by `ultra_tfr.pack_feedback`.
      y_pred: `[B, L]` scores, or with heads on a last axis.
      sample_weight: None, a scalar, `[B]`, `[B, 1]` or `[B, L]` weights.
    """
    bias = self._get_position_bias()
    feedback, positions, contexts = unpack_feedback(y_true)
    slots = bias.find_slots(positions, contexts)
    mask = tf.logical_and(masking.valid_items(feedback), slots.valid)
    heads = split_heads(y_pred, feedback)
    clicked = tf.logical_and(mask, feedback > 0)
    relevant, irrelevant, _ = bias.click_parameters(slots, clicked)
    by_hypothesis = examination.log_likelihood(
        clicked, bias.relevance_logits(
            [masking.zero_where_invalid(mask, head) for head in heads]),
        relevant, irrelevant)
    values = tf.gather(by_hypothesis, tf.argmax(bias.shares()))
    weights = item_weights(sample_weight, mask)
    # A select, since the score of an item that does not count may be NaN.
    self._add(tf.where(weights > 0, weights * values, 0.0), weights)


def _default_name(metric, topn, self_normalized):
  name = f"{'snips' if self_normalized else 'ips'}_{metric}"
  return name if topn is None or metric == "arp" else f"{name}_{topn}"
