"""The named methods as data: feedback, heads, layer, loss and callback."""

import dataclasses
import functools
from typing import Any
from typing import Callable
from typing import Optional

import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import checks
from ultra_tfr import choices
from ultra_tfr import scorers
from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.hypotheses import HYPOTHESES
from ultra_tfr.layers import PositionBias
from ultra_tfr.logged_order import INITIAL_WEIGHT
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss

CLICK, DWELL = FEEDBACK = choices.FEEDBACK


@dataclasses.dataclass(frozen=True)
class Method:
  """How one method learns.

  Attributes:
    loss: makes the Keras loss from (layer or None, kind of feedback).
    learn_from: `"feedback"`, `"labels"` or `"clicks_examined"`, see
      `FeedbackStream.dataset`.
    num_heads: kinds of heads of the model, see `scorers.build_model`.
    num_relevance: relevance logits of the model, one for each hypothesis.
    feedback: the kinds of feedback that the method is for: `"click"`, 0 or 1;
      `"dwell"`, continuous values.
    layer: makes the layer that knows about positions from (number of positions,
      number of contexts), or None for a method without one.
    knows_examination: the layer is given the true examination.
    takes_examination: the layer may be given an examination curve instead of
      estimating it.
    estimates_examination: a training ends with an examination curve, which is
      `propensities()["examination"]` of the layer.
    callback: makes the callback that moves the layer, or None.
    starts_relevance: `start` sets the relevance that the model starts from.
    for_logs: it can be trained on a click log: it learns from feedback alone,
      with a bias for each context or without one.
    summary: one line for people, of `choices.METHODS`.
    has_guard: the layer has a `logged_order_weight`, which a
      `logged_order.LoggedOrderGuard` moves.
  """

  loss: Callable[[Any, str], tf.keras.losses.Loss]
  learn_from: str = "feedback"
  num_heads: int = 1
  num_relevance: int = 1
  feedback: tuple[str, ...] = FEEDBACK
  layer: Optional[Callable[..., tf.keras.layers.Layer]] = None
  knows_examination: bool = False
  takes_examination: bool = False
  estimates_examination: bool = False
  callback: Optional[Callable[[], tf.keras.callbacks.Callback]] = None
  starts_relevance: bool = False
  for_logs: bool = False
  summary: str = ""
  has_guard: bool = False

  @property
  def is_oracle(self):
    """Whether it sees what no log has: an upper bound."""
    return self.learn_from != "feedback"

  def model_arguments(self, settings):
    """The towers that the method needs.

    Args:
      settings: `trainer.Settings`.

    Returns:
      A dict of arguments of `scorers.build_model`.
    """
    return {
        "num_heads": self.num_heads, "num_relevance": self.num_relevance,
        "hidden_units": settings.hidden_units,
        # Methods with a preference tower are the paper's: its towers are alike.
        "relevance_units": (settings.hidden_units if self.num_heads > 2 else
                            settings.relevance_units),
        "activation": settings.activation, "layer_norm": settings.layer_norm,
        "dropout": settings.dropout}

  def start(self, model, layer, click_rate):
    """Starts relevance where it explains clicks, if the method does so.

    Args:
      model: a model made by `scorers.build_model`.
      layer: of `build`.
      click_rate: the rate of feedback at the most clicked position.
    """
    if not self.starts_relevance:
      return
    # By each hypothesis irrelevant items explain another part of the clicks.
    shares = [model.hypothesis.click_irrelevant for model in layer.models] if (
        isinstance(layer, PositionBias) and layer.has_click_irrelevant) else 0.0
    scorers.start_relevance(model, click_rate, shares)

  def build(self, num_positions, feedback=CLICK, true_examination=None,
            num_contexts=1, prior_clicks=0.0, examination=None):
    """Makes what `compile` and `fit` need.

    Args:
      num_positions: displayed positions.
      feedback: `"click"` or `"dwell"`.
      true_examination: `[K]`, for a method that `knows_examination`.
      num_contexts: contexts with a bias of their own.
      prior_clicks: of a `PositionBias`, for a method `for_logs`.
      examination: `[K]` or `[C, K]`, to take instead of estimating it.

    Returns:
      A tuple (loss, layer or None, list of callbacks).

    Raises:
      ValueError: if the method is not for that feedback, or needs the true
        examination and gets none, or takes no `examination` and gets one.
    """
    checks.check_choice("feedback", feedback, FEEDBACK)
    if feedback not in self.feedback:
      raise ValueError(
          f"This method ({self.summary}) is for {self.feedback[0]} feedback, "
          f"but `feedback` is {feedback!r}; choose another method, such as "
          "'unbiased'.")
    if examination is not None and not self.takes_examination:
      raise ValueError(
          f"This method ({self.summary}) takes no known `examination`; choose "
          f"{choices.TAKES_EXAMINATION!r}.")
    layer = None
    if self.layer is not None:
      known = {"prior_clicks": prior_clicks} if prior_clicks else {}
      if examination is not None:
        known["examination"] = examination
      if self.knows_examination:
        if true_examination is None:
          raise ValueError(
              "This method needs the true examination by position, which only "
              "a position-based click model has; choose another method.")
        known["examination"] = true_examination
      layer = self.layer(num_positions, num_contexts=num_contexts, **known)
    callbacks = [] if self.callback is None else [self.callback()]
    return self.loss(layer, feedback), layer, callbacks


def _gain(feedback):
  """The gain of NDCG weights: linear for seconds, where 2^c - 1 overflows."""
  return None if feedback == CLICK else tfr.keras.utils.identity


def _pairwise(layer, feedback):
  del layer, feedback
  return tfr.keras.losses.PairwiseLogisticLoss()


def _lambda(layer, feedback):
  del layer
  return tfr.keras.losses.PairwiseLogisticLoss(
      lambda_weight=tfr.keras.losses.NDCGLambdaWeight(gain_fn=_gain(feedback)))


def _squared(layer, feedback):
  del layer, feedback
  return tfr.keras.losses.MeanSquaredLoss()


def _pointwise(layer, feedback):
  if feedback == CLICK:
    return tfr.keras.losses.SigmoidCrossEntropyLoss()
  return _squared(layer, feedback)


def _known(layer, feedback):
  del feedback
  return InversePropensityLoss(layer, tfr.keras.losses.PairwiseLogisticLoss())


def _unbiased(examination_posterior):
  def make(layer, feedback):
    return UnbiasedPairwiseLoss(
        layer, feedback="binary" if feedback == CLICK else "graded",
        examination_posterior=examination_posterior)
  return make


def _softmax(layer, feedback):
  del feedback  # Softmax is linear in it, whatever it is.
  return UnbiasedLoss(layer, tfr.keras.losses.SoftmaxLoss())


def _paper(use_metric):
  def make(layer, feedback):
    metric = tfr.keras.losses.NDCGLambdaWeight(gain_fn=_gain(feedback))
    return UnbiasedPairwiseLoss.paper(
        layer, lambda_weight=metric if use_metric else None)
  return make


def _for_clicks(loss):
  def make(layer, feedback):
    del feedback  # It is clicks.
    return loss(layer)
  return make


def _synthesised(layer, feedback):
  predicts = "click" if feedback == CLICK else "value"
  return ShallowTowerLoss(layer, predicts=predicts)


def _click_and_dwell(layer, feedback):
  del feedback  # It is dwell.
  return ShallowTowerLoss(layer, predicts="click+value")


def _paper_method(use_metric, trust_bias):
  """Starting point and step sizes are the paper's, equation (20)."""
  return Method(
      _paper(use_metric), num_heads=3, estimates_examination=True,
      layer=functools.partial(PositionBias, trust_bias=trust_bias,
                              initial_examination=0.9),
      callback=functools.partial(PropensityEM, averaging="parameters",
                                 step_size=0.05, step_decay=0.05),
      starts_relevance=True)


def _em_method(loss, num_heads, layer, feedback=FEEDBACK,
               starts_relevance=True, num_relevance=1):
  return Method(
      loss, num_heads=num_heads, feedback=feedback, layer=layer,
      estimates_examination=True, callback=PropensityEM,
      starts_relevance=starts_relevance, num_relevance=num_relevance)


def _unbiased_method(layer, has_guard=False,
                     examination_posterior="item", num_relevance=1):
  """A method of ours, for clicks and dwell, with or without the guard."""
  if has_guard:
    layer = functools.partial(layer, logged_order_weight=INITIAL_WEIGHT)
  return dataclasses.replace(
      _em_method(_unbiased(examination_posterior), 2, layer,
                 num_relevance=num_relevance),
      has_guard=has_guard)


def _tower_method(loss, modes, feedback=(DWELL,)):
  return Method(
      loss, num_heads=len(modes), feedback=feedback,
      layer=functools.partial(ShallowTower, modes=modes),
      estimates_examination="product" in modes, callback=PropensityEM,
      starts_relevance=len(modes) > 1)


_TrustByPosition = functools.partial(PositionBias, trust_bias="position")
_ByPosition = functools.partial(PositionBias, trust_bias=None)

_METHODS = {
    "oracle-pairwise": Method(_pairwise, learn_from="labels"),
    "oracle-pointwise": Method(_squared, learn_from="labels"),
    "oracle-clicks": Method(_pairwise, learn_from="clicks_examined"),
    "naive-pairwise": Method(_pairwise),
    "naive-pointwise": Method(_pointwise),
    "naive-lambda": Method(_lambda),
    "ipw-known": Method(
        _known, layer=PositionBias, knows_examination=True),
    "unbiased": _unbiased_method(
        PositionBias, has_guard=True, num_relevance=len(HYPOTHESES)),
    "unbiased-bayes": _unbiased_method(
        functools.partial(PositionBias, trust_bias="pairwise"),
        examination_posterior="prior"),
    choices.TAKES_EXAMINATION: dataclasses.replace(
        _unbiased_method(_ByPosition), takes_examination=True),
    "unbiased-softmax": _em_method(
        _softmax, 2, PositionBias, num_relevance=len(HYPOTHESES)),
    "paper-opt": _paper_method(True, "pairwise"),
    "paper-bayes": _paper_method(False, "pairwise"),
    "paper-ipw": _paper_method(False, None),
    "regression-em": _em_method(
        _for_clicks(RegressionEMLoss), num_heads=1, layer=_ByPosition,
        feedback=(CLICK,)),
    "dla": Method(
        _for_clicks(DualLearningLoss), feedback=(CLICK,),
        layer=PropensityLogits, estimates_examination=True,
        callback=PropensityEM),
    "pairwise-debiasing": Method(
        _for_clicks(PairwiseDebiasingLoss), feedback=(CLICK,),
        layer=ClickRatios, callback=PropensityEM),
    "trust-affine": _em_method(
        _for_clicks(AffineCorrectionLoss), num_heads=1, layer=_TrustByPosition,
        feedback=(CLICK,), starts_relevance=False),
    "baseline-v1": _tower_method(_synthesised, ["additive"], FEEDBACK),
    "baseline-v2": _tower_method(_click_and_dwell, ["additive", None]),
    "baseline-v3": _tower_method(_click_and_dwell, ["product", None]),
    "baseline-v4": _tower_method(
        _click_and_dwell, ["product", "additive"]),
}
METHODS = {
    name: dataclasses.replace(
        _METHODS[name], summary=summary, for_logs=name in choices.FOR_LOGS)
    for name, summary in choices.METHODS.items()}


def find(name):
  """The method of that name.

  Args:
    name: as in `choices.resolve_method`.

  Returns:
    A `Method`.

  Raises:
    ValueError: if there is none.

  >>> find("unbiased").num_heads
  2
  """
  return METHODS.get(name) or METHODS[choices.resolve_method(name)]
