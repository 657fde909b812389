"""The named methods as data: labels, heads, bias layer, loss and EM."""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import Callable
from typing import Optional

import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss

# The paper's starting point and step sizes, equation (20).
_PAPER_BIAS = {"initial_examination": 0.9}
_PAPER_EM = {"averaging": "parameters", "step_size": 0.05, "step_decay": 0.05}


@dataclasses.dataclass(frozen=True)
class Method:
  """How one method learns.

  Attributes:
    summary: one line for people.
    loss: makes the Keras loss from (bias layer or None, kind of feedback).
    learn_from: `"feedback"` or `"labels"`.
    num_heads: heads of the model.
    bias: arguments of `PositionBias`, or None for a method without one.
    knows_examination: the bias layer is given the true examination.
    em: arguments of `PropensityEM`, or None for a method without one.
  """

  summary: str
  loss: Callable[[Optional[PositionBias], str], tf.keras.losses.Loss]
  learn_from: str = "feedback"
  num_heads: int = 1
  bias: Optional[Mapping[str, Any]] = None
  knows_examination: bool = False
  em: Optional[Mapping[str, Any]] = None

  @property
  def estimates_examination(self):
    """Whether a training ends with an examination curve."""
    return self.bias is not None and not self.knows_examination

  def build(self, num_positions, feedback="click", true_examination=None):
    """Makes what `compile` and `fit` need.

    Args:
      num_positions: displayed positions.
      feedback: `"click"` or `"dwell"`.
      true_examination: `[K]`, for a method that is given it.

    Returns:
      A tuple (loss, bias layer or None, list of callbacks).

    Raises:
      ValueError: if the method needs the true examination and gets none.
    """
    bias = None
    if self.bias is not None:
      known = {}
      if self.knows_examination:
        if true_examination is None:
          raise ValueError(
              "This method needs the true examination by position, which only "
              "a position-based click model has; choose another method.")
        known = {"examination": true_examination}
      bias = PositionBias(num_positions, **self.bias, **known)
    callbacks = [] if self.em is None else [PropensityEM(bias, **self.em)]
    return self.loss(bias, feedback), bias, callbacks


def _kind(feedback):
  """Clicks are binary, dwell times are graded feedback."""
  return "binary" if feedback == "click" else "graded"


def _pairwise(bias, feedback):
  del bias, feedback
  return tfr.keras.losses.PairwiseLogisticLoss()


def _pointwise(bias, feedback):
  del bias
  if feedback == "click":
    return tfr.keras.losses.SigmoidCrossEntropyLoss()
  return tfr.keras.losses.MeanSquaredLoss()


def _known(bias, feedback):
  del feedback
  return InversePropensityLoss(bias, tfr.keras.losses.PairwiseLogisticLoss())


def _unbiased(examination_posterior="item"):
  def make(bias, feedback):
    return UnbiasedPairwiseLoss(bias, feedback=_kind(feedback),
                                examination_posterior=examination_posterior)
  return make


def _paper(use_metric):
  def make(bias, feedback):
    gain = (None if feedback == "click" else tfr.keras.utils.identity)
    metric = tfr.keras.losses.NDCGLambdaWeight(gain_fn=gain)
    return UnbiasedPairwiseLoss.paper(
        bias, lambda_weight=metric if use_metric else None)
  return make


METHODS = {
    "oracle-pairwise": Method(
        "pairwise loss on true labels: the upper bound", _pairwise,
        learn_from="labels"),
    "naive-pairwise": Method(
        "pairwise loss on feedback as if it were relevance", _pairwise),
    "naive-pointwise": Method(
        "pointwise loss on feedback as if it were relevance", _pointwise),
    "ipw-known": Method(
        "pairwise loss weighted by 1 / (true examination)", _known, bias={},
        knows_examination=True),
    "unbiased": Method(
        "closed-form pair weights, examination and click noise by EM",
        _unbiased(), num_heads=2, bias={"trust_bias": "position"}, em={}),
    "unbiased-bayes": Method(
        "Bayes-IPW, pairwise trust bias by EM",
        _unbiased(examination_posterior="prior"), num_heads=2,
        bias={"trust_bias": "pairwise"}, em={}),
    "unbiased-ipw": Method(
        "IPW, examination by EM", _unbiased(), num_heads=2, bias={}, em={}),
    "paper-opt": Method(
        "loss_opt as published: Bayes-IPW with NDCG weights", _paper(True),
        num_heads=3, bias={"trust_bias": "pairwise", **_PAPER_BIAS},
        em=_PAPER_EM),
    "paper-bayes": Method(
        "loss_Bayes-IPW as published", _paper(False), num_heads=3,
        bias={"trust_bias": "pairwise", **_PAPER_BIAS}, em=_PAPER_EM),
    "paper-ipw": Method(
        "loss_IPW as published", _paper(False), num_heads=3, bias=_PAPER_BIAS,
        em=_PAPER_EM),
}


def find(name):
  """The method of that name.

  Args:
    name: a key of `METHODS`.

  Returns:
    A `Method`.

  Raises:
    ValueError: if there is none.

  >>> find("unbiased").num_heads
  2
  """
  if name not in METHODS:
    raise ValueError(
        f"There is no method {name!r}; the methods are {', '.join(METHODS)}.")
  return METHODS[name]
