"""Pointwise losses that correct feedback by a `PositionBias`.

They are trained like `UnbiasedPairwiseLoss`, with
`ultra_tfr.callbacks.PropensityEM`, but on items instead of pairs, and with one
score an item, which is the logit of its relevance.
"""

import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr import e_step
from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking
from ultra_tfr.feedback import count
from ultra_tfr.layers import PositionBias


class _PointwiseLoss(base.LearningLoss):
  """Base of the losses below: the E step for one score an item."""

  def __init__(self, position_bias, reduction, name):
    super().__init__(position_bias, PositionBias, reduction, name)
    if position_bias.trust_bias not in (None, "position"):
      raise ValueError(
          f"`{type(self).__name__}` is pointwise, but `position_bias` has "
          f"`trust_bias={position_bias.trust_bias!r}`; take None or "
          "'position'.")

  def _learn(self, batch):
    # With the learned shift, also a score without a bias term can be a logit.
    logits = masking.zero_where_invalid(
        batch.mask, self.position_bias.relevance_logits(batch.heads)[0])
    step = e_step.EStep(batch._replace(heads=[batch.heads[0], logits]),
                        self.position_bias, self._e_step_options())
    losses, weight, cut = self._losses(batch, step, logits)
    return base.Learned(
        losses, step.sums, count(step.is_greater), weight, cut)

  def _e_step_options(self):
    return e_step.Options()

  def _losses(self, batch, step, logits):
    """Losses per item, `[B, L]`, the weight of clicks, and what was clipped."""
    raise NotImplementedError


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class RegressionEMLoss(_PointwiseLoss):
  """Regression EM: the ranker is the relevance model of the click model.

  The loss is the cross-entropy of the score against P(r > 0 | c), the posterior
  of the E step by the present propensities and the present score. Any feedback
  above 0 is a click. Start the score near the logit of the share of relevant
  items, the same for all items (`scorers.start_relevance`): EM confirms what it
  starts with.

  Args:
    position_bias: a `PositionBias` with `trust_bias` None or `"position"`.
    targets: regress against the posterior itself (`"expected"`), or against
      0/1 labels drawn from it (`"sample"`, as published).
    seed: of these draws.
    reduction: as in Keras; the mean is over valid items.
    name: the loss's name.

  Raises:
    ValueError: if an argument is out of range.

  Source: Wang, Golbandi, Bendersky, Metzler & Najork, "Position Bias Estimation
  for Unbiased Learning to Rank in Personal Search", WSDM 2018.

  >>> from ultra_tfr.layers import PositionBias
  >>> loss = RegressionEMLoss(PositionBias(2, examination=[1.0, 0.5]))
  >>> round(float(loss([[1.0, 0.0]], [[0.0, 0.0]])), 4)
  0.6931
  """

  has_weights = False

  def __init__(self, position_bias, *, targets="expected", seed=None,
               reduction=tf.keras.losses.Reduction.AUTO,
               name="regression_em_loss"):
    checks.check_choice("targets", targets, ("expected", "sample"))
    super().__init__(position_bias, reduction, name)
    self._targets, self._seed = targets, checks.check_seed(seed)

  def _e_step_options(self):
    return e_step.Options(targets=self._targets, seed=self._seed)

  def _losses(self, batch, step, logits):
    del batch, logits  # The step has them.
    none = tf.zeros([])
    return step.head_losses(), none, none

  def _options(self):
    return {"targets": self._targets, "seed": self._seed}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class AffineCorrectionLoss(_PointwiseLoss):
  r"""Cross-entropy of the score against affinely corrected clicks.

  With p1 and p0 the chances of a click on a relevant and on an irrelevant item
  at a position (theta e+ and theta e- of a model with trust bias), the
  corrected click

      c' = (c - p0) / (p1 - p0)

  has the mean beta, the item's relevance. It is below 0 for an unclicked item
  and far above 1 for a click far down. So it needs a loss that is *linear* in
  the label: then the expected loss is the loss of beta. The cross-entropy
  log(1 + exp(s)) - c' s is linear in c', and convex in s whatever c' is,
  whereas the weighted softmax and pair losses are concave where c' < 0. Its
  minimum in s is the logit of beta, just what EM needs of the score.

  Without trust bias, p0 = 0, c' is c / theta: inverse propensity weighting.

  Args:
    position_bias: a `PositionBias` with `trust_bias="position"`, whose p1 and
      p0 are learned by EM or given; or with None, for p0 = 0.
    max_weight: cap of 1 / (p1 - p0), or None. Without a cap it is at most a
      million, at positions where p1 is p0 and clicks say nothing.
    reduction: as in Keras; the mean is over valid items.
    name: the loss's name.

  Raises:
    ValueError: if an argument is out of range.

  Source: Vardasbi, Oosterhuis & de Rijke, "When Inverse Propensity Scoring does
  not Work: Affine Corrections for Unbiased Learning to Rank", CIKM 2020; the
  click model: Agarwal et al., "Addressing Trust Bias for Unbiased
  Learning-to-Rank", WWW 2019.

  >>> from ultra_tfr.layers import PositionBias
  >>> bias = PositionBias(1, trust_bias="position", examination=[0.5],
  ...                     trust_positive=0.9, trust_negative=0.1)
  >>> loss = AffineCorrectionLoss(bias)  # c' is 2.375.
  >>> round(float(loss([[1.0]], [[1.0]])), 4)  # log(1 + e) - 2.375
  -1.0617
  """

  def __init__(self, position_bias, *, max_weight=None,
               reduction=tf.keras.losses.Reduction.AUTO,
               name="affine_correction_loss"):
    super().__init__(position_bias, reduction, name)
    self._max_weight = checks.check_max_weight(max_weight)

  def _losses(self, batch, step, logits):
    del step
    clicked = batch.feedback > 0
    relevant, irrelevant, _ = self.position_bias.click_parameters(
        batch.slots, clicked)
    clicks = tf.cast(clicked, tf.float32)
    corrected, weights, cut = counterfactual.relevance_estimates(
        clicks, batch.mask, relevant[0], irrelevant[0],
        max_weight=self._max_weight)
    return (tf.nn.sigmoid_cross_entropy_with_logits(
        tf.stop_gradient(corrected), logits), tf.reduce_sum(clicks * weights),
            tf.reduce_sum(cut))

  def _options(self):
    return {"max_weight": self._max_weight}
