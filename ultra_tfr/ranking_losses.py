"""TF-Ranking's losses: how debiasing enters each of them, or why it cannot.

Most are linear in the weights of items, or in gains that they take from labels,
and there an inverse propensity undoes the bias of what was shown. What depends
on the order of labels alone has no such place, and is refused.
"""

from collections.abc import Callable
import dataclasses
from typing import Any
from typing import Literal
from typing import Optional

import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import losses_impl

from ultra_tfr import checks
from ultra_tfr import keras_guards

_ALL = tfr.keras.losses

# How much of a debiased label is what a relevance head expects. Both parts
# are beta on average, but that of the head varies far less. Approximate ranks
# need that: they saturate on what single clicks say. The rest keeps the errors
# of the head from being all that a ranker learns.
_EXPECTED_SHARE = 0.75


@dataclasses.dataclass(frozen=True)
class Treatment:
  """How debiasing enters a loss.

  Unbiased means: the expectation over clicks equals the value for the same list
  with its true relevance as labels, if items are examined and relevant
  independently of each other. This holds for the `"whole"` loss (up to a
  constant factor and a summand without scores), or for its `"numerator"` only,
  the part that is a sum over clicks: what that part is compared with or divided
  by stays as it was clicked.

  Attributes:
    enters: as item `"weights"`; or through the debiased `"label"`, the feedback
      times its debiasing weight, or in part what a relevance head expects.
    learned: what is unbiased in `losses.UnbiasedLoss`.
    known: what is unbiased in `losses.InversePropensityLoss`.
    has_exponential_gain: the gain of the loss is 2^label - 1. It gets the label
      whose gain is the debiased feedback itself.
    best: what the loss divides by: the best value that gains `[B, L]` of a list
      allow, `[B, 1]`; or None.
  """

  enters: Literal["weights", "label"]
  learned: Literal["whole", "numerator"]
  known: Literal["whole", "numerator"]
  has_exponential_gain: bool = False
  best: Optional[Callable[[tf.Tensor], tf.Tensor]] = None


def _best_dcg(gains):
  """DCG of the best order, `[B, 1]`."""
  ranks = tf.range(1.0, tf.cast(tf.shape(gains)[1], tf.float32) + 1.0)
  return tf.reduce_sum(
      tf.sort(gains, axis=1, direction="DESCENDING") / tf.math.log1p(ranks),
      axis=1, keepdims=True)


def _sum(gains):
  """Reciprocal ranks are at best 1, so their weighted mean divides by this."""
  return tf.reduce_sum(gains, axis=1, keepdims=True)


_PREFERRED = Treatment("weights", "numerator", "numerator")
_POINTWISE = Treatment("weights", "whole", "numerator")
_APPROX_MRR = Treatment("label", "whole", "numerator", best=_sum)
_APPROX_NDCG = Treatment(
    "label", "whole", "numerator", has_exponential_gain=True, best=_best_dcg)

TREATMENTS = {
    _ALL.SoftmaxLoss: Treatment("weights", "whole", "whole"),
    _ALL.SigmoidCrossEntropyLoss: _POINTWISE,
    _ALL.MeanSquaredLoss: _POINTWISE,
    _ALL.PairwiseLogisticLoss: _PREFERRED,
    _ALL.PairwiseHingeLoss: _PREFERRED,
    _ALL.PairwiseSoftZeroOneLoss: _PREFERRED,
    _ALL.YetiLogisticLoss: _PREFERRED,
    _ALL.PairwiseMSELoss: Treatment("label", "whole", "whole"),
    _ALL.ApproxNDCGLoss: _APPROX_NDCG,
    _ALL.GumbelApproxNDCGLoss: _APPROX_NDCG,
    _ALL.ApproxMRRLoss: _APPROX_MRR,
}

_BY_ORDER = "it uses only the order of labels, which no weight can debias"
# Why the loss cannot be debiased, and the nearest one that can.
REFUSED = {
    _ALL.ListMLELoss: (_BY_ORDER, "SoftmaxLoss"),
    _ALL.UniqueSoftmaxLoss: (
        "an item is compared with those of lower labels, which for clicks "
        "include items that were not examined", "SoftmaxLoss"),
    _ALL.CoupledRankDistilLoss: (
        "its labels are the scores of a teacher, not feedback", "SoftmaxLoss"),
    _ALL.OrdinalLoss: (
        "it needs a head for each grade, and the bias of feedback is not known "
        "grade by grade", "SigmoidCrossEntropyLoss"),
    _ALL.ClickEMLoss: (
        "it models examination by a head of its own",
        "SigmoidCrossEntropyLoss"),
    _ALL.MixtureEMLoss: (
        "it weighs models by how well they predict clicks as they are, bias "
        "included", "SigmoidCrossEntropyLoss"),
}


class DebiasedLoss:
  """One of TF-Ranking's losses, on debiased feedback.

  Attributes:
    treatment: its `Treatment`.
    takes_labels: whether the debiased feedback itself enters, to which
      something may be added.

  Args:
    loss: a `tfr.keras.losses` loss, or one of a subclass.

  Raises:
    ValueError: if it cannot be debiased.

  >>> loss = DebiasedLoss(tfr.keras.losses.SoftmaxLoss())
  >>> loss.treatment.learned
  'whole'
  """

  def __init__(self, loss: tf.keras.losses.Loss):
    checks.check_instance("loss", loss, tf.keras.losses.Loss,
                          "take one of `tfr.keras.losses`")
    self._loss = loss
    self.treatment = _find_treatment(loss)
    keras_guards.take_as_compiled(loss)
    config = loss.get_config()
    # TF-Ranking's mask: of ragged labels their lengths, otherwise labels >= 0.
    self._is_ragged = config.get("ragged", False)
    # The object, which the config holds as a description.
    lambda_weight = getattr(loss, "_lambda_weight", None)
    check_lambda_weight(lambda_weight, loss)
    # A softmax loss is linear in labels times weights, unless a lambda weight
    # takes a gain from the labels.
    self.takes_labels = self.treatment.enters == "label" or (
        isinstance(loss, _ALL.SoftmaxLoss) and lambda_weight is None)

  def __call__(self, feedback: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor,
               weights: tf.Tensor, factors: tf.Tensor,
               expected: Optional[tf.Tensor] = None,
               added: Optional[tf.Tensor] = None) -> tf.Tensor:
    """The loss on debiased feedback, reduced as TF-Ranking does.

    Args:
      feedback: `[B, L]`, 0 outside the mask.
      scores: `[B, L]`.
      mask: `[B, L]` booleans, the items that count.
      weights: `[B, L]` sample weights.
      factors: `[B, L]` debiasing weights, without a gradient.
      expected: `[B, L]`, what the debiased feedback of each item is on average
        over clicks, if that is known. Never None with `added`.
      added: `[B, L]`, what the loss `takes_labels` of besides; None if no head
        but the score says what is relevant. Of a loss of approximate ranks
        most of the label is then what is expected.

    Returns:
      A scalar, unless the loss is not reduced.
    """
    treatment = self.treatment
    labels = feedback
    if not self.takes_labels:
      weights *= factors
    else:
      labels = feedback * factors
      if added is not None:
        labels += added
        if treatment.best is not None:
          labels += _EXPECTED_SHARE * (expected - labels)
      labels = tf.where(mask, labels, 0.0)
      if treatment.best is not None:
        # The loss divides by the best value of these labels, so the debiasing
        # weight of a single click would cancel. This takes their best value out
        # again, and puts one in its place that does not depend on weights: that
        # of what is expected, which does not depend on clicks either, or that
        # of the clicks themselves.
        fair = feedback if expected is None else tf.where(mask, expected, 0.0)
        weights *= tf.math.divide_no_nan(
            treatment.best(labels), treatment.best(fair))
      if treatment.has_exponential_gain:
        labels = tf.math.log1p(labels) / tf.math.log(2.0)
    if self._is_ragged:
      labels, scores, weights = (
          tf.ragged.boolean_mask(part, mask)
          for part in (labels, scores, weights))
    else:
      labels = tf.where(mask, labels, -1.0)
    return self._loss(labels, scores, weights)


def check_lambda_weight(lambda_weight: Any,
                        loss: tf.keras.losses.Loss) -> None:
  """Raises a `ValueError` unless a lambda weight counts in a loss.

  Args:
    lambda_weight: what the loss was given; None is always right.
    loss: one of TF-Ranking's losses, or one that weighs pairs.

  >>> check_lambda_weight(tfr.keras.losses.PrecisionLambdaWeight(),
  ...                     tfr.keras.losses.PairwiseHingeLoss())
  Traceback (most recent call last):
  ValueError: `lambda_weight` cannot be a `PrecisionLambdaWeight` in a ...
  """
  if lambda_weight is None:
    return
  if isinstance(lambda_weight, type) or not hasattr(
      lambda_weight, "pair_weights"):
    raise ValueError(
        "`lambda_weight` must be a TF-Ranking lambda weight or None, but is "
        f"{lambda_weight!r}; create one, such as "
        "`tfr.keras.losses.NDCGLambdaWeight()`.")
  reason, remedy = _why_it_cannot_count(lambda_weight, loss)
  if reason:
    raise ValueError(
        f"`lambda_weight` cannot be a `{type(lambda_weight).__name__}` in a "
        f"`{type(loss).__name__}`: {reason}; {remedy}.")


def _why_it_cannot_count(lambda_weight, loss):
  """A tuple of the reason, empty if the weight does count, and a remedy."""
  known = TREATMENTS.get(_known_class(loss))
  if known is not None and known.enters == "label":
    return ("debiased labels would enter it with a gain that is not linear",
            "leave it out, or take `tfr.keras.losses.PairwiseLogisticLoss`")
  if isinstance(loss, _ALL.SoftmaxLoss):
    return "" if isinstance(lambda_weight, losses_impl.DCGLambdaWeight) else (
        "TF-Ranking heeds `DCGLambdaWeight` and `NDCGLambdaWeight` there alone"
    ), "take one of them, or `tfr.keras.losses.PairwiseLogisticLoss`"
  if isinstance(lambda_weight, losses_impl.ListMLELambdaWeight):
    return "it has no weights of pairs", "take an `NDCGLambdaWeight`"
  if (isinstance(lambda_weight, losses_impl.PrecisionLambdaWeight) and
      vars(lambda_weight)["_topn"] is None):
    return "it has no `topn`", "give it one, such as 5"
  return "", ""


def _known_class(loss: Any) -> Any:
  """The class of TF-Ranking that the loss is of; None if it is of none."""
  return next((known for known in type(loss).__mro__
               if known in TREATMENTS or known in REFUSED), None)


def _find_treatment(loss: Any) -> Treatment:
  known = _known_class(loss)
  if known in REFUSED:
    reason, nearest = REFUSED[known]
    raise ValueError(
        f"`tfr.keras.losses.{known.__name__}` cannot be debiased: {reason}; "
        f"take `tfr.keras.losses.{nearest}`.")
  if known is None:
    raise ValueError(
        "`loss` must be one of TF-Ranking's losses, or of a subclass, since it "
        "is not known how others take weights, but is a "
        f"`{type(loss).__name__}`; take one of "
        f"{', '.join(known.__name__ for known in TREATMENTS)}.")
  return TREATMENTS[known]
