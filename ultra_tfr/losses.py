"""Keras losses that debias feedback, by pairs or in any TF-Ranking loss."""

import copy
import dataclasses
from typing import Any
from typing import Literal
from typing import Optional

import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import losses_impl

from ultra_tfr import base
from ultra_tfr import blocks
from ultra_tfr import checks
from ultra_tfr import e_step
from ultra_tfr import feedback as feedback_lib
from ultra_tfr import keras_guards
from ultra_tfr import ranking_losses
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import weights as weights_lib
from ultra_tfr.layers import PositionBias

# The grade at which an exponential gain stops growing, at 2^31 - 1.
_MAX_GRADE = 31.0


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class UnbiasedPairwiseLoss(base.LearningLoss):
  r"""Debiased pairwise loss on feedback, with the E step of its propensities.

  For each list with scores s and feedback c:

      loss = sum_{a, b: c_a > c_b} w_ab log(1 + exp(-(s_a - s_b)))

  The weight w_ab undoes that items were examined and trusted by their display
  position (Ren et al., AAAI 2022, equations 11, 16 and 18). Its form depends on
  `trust_bias` of the bias layer: with None it is loss_IPW; with `"pairwise"`
  Bayes-IPW; with `"position"` the closed form of
  `core.weights.item_pair_weights`; with `"auto"` the closed forms of all
  hypotheses, each counting by its share. `lambda_weight` makes it loss_opt.
  Weights carry no gradient and are scaled by one constant, theta squared of the
  most examined position (in general the first). The weight uses P(c > 0), so
  any feedback >= 0 will do, clicks as well as dwell times. What is examined
  less than a twentieth as often as the first position (all below a click, where
  users stop at it) counts twenty times, and a relevance head takes the place of
  the rest. A bias layer with `logged_order_weight` adds that to each weight: so
  much of what clicks say as they are, which is the order they were shown in.

  `y_true` is `[B, L]` feedback with item l shown at position l + 1, or packed
  by `ultra_tfr.pack_feedback`. `y_pred` is one of

  *   `[B, L]`: scores of any TF-Ranking model. The score doubles as relevance
      logit: while EM runs, the gradient of a cross-entropy fits it to the E
      step; the value of the loss stays that of the pairs.
  *   `[B, L, 2]`: ranking score and relevance logit. The relevance head learns
      from the E step, its cross-entropy is part of the loss; no gradient of it
      reaches the ranking head.
  *   `[B, L, 1 + S]`: ranking score and a relevance logit for each of the S
      hypotheses of a bias layer with `trust_bias="auto"` (S is 4, so five
      heads).
  *   `[B, L, 3]`: of any other layer also a head for the preference, see
      `preference`.

  Pass `ultra_tfr.callbacks.PropensityEM()` to `fit`: without it the
  propensities stay where they start. While they move, the loss moves with
  them, so `val_loss` of two epochs cannot be compared: monitor a ranking metric
  (`ultra_tfr.metrics.on_ranking`).

  Memory: about five float tensors `[B, L, L]` are alive at once, ten with a
  lambda weight (TF-Ranking's pairwise loss: 8 and 14). With pairwise trust bias
  lists of more than 100 items are learned from some after others, see
  `ultra_tfr.blocks`: 32 lists of 200 items need 5, of 1000 items 1.5; a batch
  of shorter lists about 25. `examples/benchmarks/memory.py` measures it.

  Args:
    position_bias: a `PositionBias`.
    lambda_weight: a TF-Ranking lambda weight, such as
      `tfr.keras.losses.NDCGLambdaWeight()`, computed from the feedback.
    feedback: what values of the feedback mean, where more than their order
      counts. `"binary"`: clicks or grades; `"graded"`: continuous values. With
      the latter the gain of a lambda weight is linear even where it is
      exponential in the label, and pairwise trust bias reckons with preferences
      among items that both got feedback.
    preference: the model of gamma, P(r_a > r_b), for pairwise trust bias:
      `"relevance"` takes beta_a (1 - beta_b), and for graded feedback the third
      head, where there is one, for the order of two relevant items; `"tower"`
      takes sigmoid(g_a - g_b - tie_threshold) of the third head.
    targets: what the heads regress against: the posterior itself
      (`"expected"`), or 0/1 labels drawn from it (`"sample"`, the paper).
    examination_posterior: the form of P(e_b = 1 | c_a > c_b, c_b = 0):
      `"item"`, `"prior"` (exact for binary feedback) or `"position"` (the
      paper's equation 17; too small, since theta- has already seen c_b = 0).
    max_weight: cap of pair weights after scaling; what the logged order adds
      is not capped.
    temperature: scores are divided by it.
    normalize_trust: divide Bayes-IPW weights by eps+, which makes their
      expectation gamma rather than eps+ gamma.
    tie_threshold: tau >= 0 of the preference (Rao and Kupper, 1967).
    min_gap: differences of feedback up to this are ties.
    pair_loss: `"logistic"` or `"hinge"`.
    head_weight: weight of the cross-entropy of the relevance and preference
      heads.
    normalize_weights: divide by the sum of sample weights over valid items
      instead of their number, so that a list with weight 0 does not count in
      the mean.
    annealing: batches of EM over which pair weights grow from flat to full:
      they are raised to the power t / annealing at batch t. The first estimates
      of EM are far off, and a large ranker learns more from weights that vary
      less. Only after these batches do weights undo all of the bias; with 0
      they do so from the start. Without EM (it has not run, or nothing is to be
      estimated) they are full.
    seed: of the draws of `targets="sample"`.
    reduction: as in Keras. The mean is over the valid items of all replicas
      (TF-Ranking's value on lists without padding); SUM is TF-Ranking's SUM;
      NONE gives `[B, L]`.
    name: the loss's name.

  Raises:
    ValueError: if an argument is out of range, arguments do not fit, or a
      tensor has the wrong shape.

  >>> bias = PositionBias(2, examination=[1.0, 0.5])
  >>> loss = UnbiasedPairwiseLoss(bias)
  >>> round(float(loss([[0.0, 1.0]], [[1.0, 0.0]])), 4)  # mean of 2 items
  1.3133
  """

  num_heads = None
  heeds_logged_order = True

  def __init__(
      self, position_bias: PositionBias, *, lambda_weight: Any = None,
      feedback: Literal["binary", "graded"] = "binary",
      preference: Literal["relevance", "tower"] = "relevance",
      targets: Literal["expected", "sample"] = "expected",
      examination_posterior: Literal["item", "prior", "position"] = "item",
      max_weight: Optional[float] = None, temperature: float = 1.0,
      normalize_trust: bool = True, tie_threshold: float = 0.0,
      min_gap: float = 0.0,
      pair_loss: Literal["logistic", "hinge"] = "logistic",
      head_weight: float = 1.0, normalize_weights: bool = False,
      annealing: int = 500, seed: Optional[int] = None,
      reduction: str = tf.keras.losses.Reduction.AUTO,
      name: str = "unbiased_pairwise_loss"):
    super().__init__(position_bias, PositionBias, reduction, name)
    ranking_losses.check_lambda_weight(lambda_weight, self)
    self.lambda_weight = lambda_weight
    self.options = e_step.Options(**checks.plain(dict(
        feedback=feedback, preference=preference, targets=targets,
        examination_posterior=examination_posterior, max_weight=max_weight,
        temperature=temperature, normalize_trust=normalize_trust,
        tie_threshold=tie_threshold, min_gap=min_gap, pair_loss=pair_loss,
        head_weight=head_weight, normalize_weights=normalize_weights,
        annealing=annealing, seed=seed)))
    self.normalize_weights = self.options.normalize_weights
    if (position_bias.has_click_irrelevant and
        examination_posterior != "item"):
      raise ValueError(
          "`examination_posterior` must be 'item' with `trust_bias="
          f"{position_bias.trust_bias!r}`, whose weight is a closed form, but "
          f"is {examination_posterior!r}.")

  @classmethod
  def paper(cls, position_bias: PositionBias, *, lambda_weight: Any = None,
            max_weight: Optional[float] = None, seed: Optional[int] = None,
            reduction: str = tf.keras.losses.Reduction.AUTO,
            name: str = "paper_pairwise_loss") -> "UnbiasedPairwiseLoss":
    """The setting of Ren et al. (AAAI 2022), for three heads.

    A preference tower, sampled labels, the position's average posterior for h
    (equation 17) and weights as printed (equation 16). The bias layer of the
    paper has `trust_bias="pairwise"` and `initial_examination=0.9`, its
    callback `averaging="parameters"`.

    Args:
      position_bias: a `PositionBias`.
      lambda_weight: as in the constructor; with it the loss is loss_opt.
      max_weight: as in the constructor.
      seed: as in the constructor.
      reduction: as in the constructor.
      name: the loss's name.

    Returns:
      An `UnbiasedPairwiseLoss`.
    """
    return cls(position_bias, lambda_weight=lambda_weight, preference="tower",
               targets="sample", examination_posterior="position",
               normalize_trust=False, max_weight=max_weight, annealing=0,
               seed=seed,
               reduction=reduction, name=name)

  def _learn(self, batch):
    # The E step of pairs holds many tensors of them at once.
    if self.position_bias.trust_bias == "pairwise":
      return blocks.learn(self._learn_lists, batch)
    return self._learn_lists(batch)

  def _learn_lists(self, batch):
    options = self.options
    step = e_step.EStep(batch, self.position_bias, options)
    weights, own, cut = self._pair_weights(batch, step)
    losses = pairs.weighted_losses(
        weights, step.scores / options.temperature, options.pair_loss)
    if options.head_weight:
      losses += options.head_weight * step.head_losses()
    return base.Learned(losses, step.sums, feedback_lib.count(step.is_greater),
                        tf.reduce_sum(own), tf.reduce_sum(cut))

  def _pair_weights(self, batch, step):
    """Weights of pairs, the part from their own feedback, and what was cut."""
    scale = self.position_bias.scale()
    own, cut = weights_lib.scale_and_clip(
        step.pair_weights(scale), 1.0, self.options.max_weight)
    weights = own
    if self.uses_logged_order:
      weights += self.position_bias.logged_order_weight * tf.cast(
          step.is_greater, tf.float32)
    if step.fills_in:
      weights += step.unseen_weights(scale)
    if self.lambda_weight is not None:
      metric = lambda_pair_weights(
          self.lambda_weight, batch.feedback, step.scores, batch.positions,
          batch.mask, linear_gain=self.options.feedback == "graded")
      weights, own, cut = weights * metric, own * metric, cut * metric
    return tf.stop_gradient(weights), own, cut

  def _options(self):
    return {"lambda_weight": _serialize(self.lambda_weight),
            **dataclasses.asdict(self.options)}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds the loss again, with a bias layer of the same arguments."""
    return super().from_config({
        **config, "lambda_weight": _deserialize(config["lambda_weight"])})


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class UnbiasedLoss(base.LearningLoss):
  r"""Any TF-Ranking loss, debiased, with the E step of its propensities.

  What `UnbiasedPairwiseLoss` does for pairs, for the loss that a model has:

      bias = ultra_tfr.layers.PositionBias(10)
      loss = ultra_tfr.losses.UnbiasedLoss(
          bias, tfr.keras.losses.ApproxNDCGLoss())
      model.compile("adam", loss=loss)
      model.fit(dataset, callbacks=[ultra_tfr.callbacks.PropensityEM()])

  With beta an item's relevance and pi its chance of a click at its position,
  its weight is beta / pi if it was clicked and (1 - beta) / (1 - pi) if not,
  times one constant, theta_1. Clicks so weighted have the expectation beta, and
  missing clicks 1 - beta, so whatever is linear in them is unbiased. Where
  TF-Ranking's loss takes weights of items (softmax, sigmoid cross-entropy,
  squared error, and pairs by their preferred item) it gets these; where it
  takes its gain from the label (ApproxNDCG, ApproxMRR, Gumbel ApproxNDCG,
  pairwise squared error) the label is the feedback times its weight, with
  linear gain. To labels, and to feedback in a softmax, a relevance head adds
  what nobody sees, as in `UnbiasedPairwiseLoss`; and of ApproxNDCG, Gumbel
  ApproxNDCG and ApproxMRR three quarters of a label are its beta, which is as
  much on average and varies less.
  `ultra_tfr.ranking_losses` says for each loss what is then unbiased, and why
  the others are refused. For pairs `UnbiasedPairwiseLoss` is the better choice:
  it debiases both items.

  `y_true` and `y_pred` are those of `UnbiasedPairwiseLoss`, and what it says of
  heads, hypotheses, `PropensityEM` and `val_loss` holds here, too. The value is
  that of TF-Ranking's loss, in its own reduction, plus the cross-entropy of the
  relevance heads. Feedback above 0 is a click; where it serves as label or gain
  its size counts, too.

  Args:
    position_bias: a `PositionBias`, without pairwise trust bias.
    loss: a `tfr.keras.losses` loss; its `reduction` is that of the whole loss.
    max_weight: cap of the weights of clicked items, after scaling.
    head_weight: weight of the cross-entropy of the relevance heads.
    annealing: batches of EM over which weights grow, as in
      `UnbiasedPairwiseLoss`.
    name: the loss's name.

  Raises:
    ValueError: if the loss cannot be debiased, or an argument does not fit.

  >>> import tensorflow_ranking as tfr
  >>> loss = UnbiasedLoss(PositionBias(2, examination=[1.0, 0.5]),
  ...                     tfr.keras.losses.SoftmaxLoss())
  >>> round(float(loss([[0.0, 1.0]], [[0.0, 0.0]])), 4)  # 2 log(2)
  1.3863
  """

  num_heads = None

  def __init__(self, position_bias: PositionBias, loss: tf.keras.losses.Loss,
               *, max_weight: Optional[float] = None, head_weight: float = 1.0,
               annealing: int = 500, name: str = "unbiased_loss"):
    self._debiased = ranking_losses.DebiasedLoss(loss)
    super().__init__(position_bias, PositionBias, loss.reduction, name)
    if loss.reduction == tf.keras.losses.Reduction.NONE:
      raise ValueError(
          "`loss` must be reduced to a number, since losses of lists and of "
          "items do not add up, but its `reduction` is 'none'; take 'auto' or "
          "'sum'.")
    if position_bias.trust_bias == "pairwise":
      raise ValueError(
          f"`{type(self).__name__}` weighs items, but `position_bias` has "
          "`trust_bias='pairwise'`; take 'auto', 'position' or None, or "
          "`UnbiasedPairwiseLoss`.")
    self._loss = loss
    self.options = e_step.Options(
        max_weight=max_weight, head_weight=head_weight, annealing=annealing)

  def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
    """The loss, reduced as the inner loss does."""
    return self(y_true, y_pred)

  def _learn(self, batch):
    step = e_step.EStep(batch, self.position_bias, self.options)
    factors, cut, added = step.item_weights(self._debiased.takes_labels)
    clicks = tf.cast(batch.feedback > 0, tf.float32)
    count = tf.reduce_sum(clicks)
    # What the model says, in the units of feedback: a click has so much of it.
    unit = tf.where(count > 0, tf.math.divide_no_nan(
        tf.reduce_sum(batch.feedback), count), 1.0)
    expected = unit * step.expected_feedback()
    if added is not None:
      added *= unit
    return base.Learned(
        self.options.head_weight * step.head_losses(), step.sums,
        count, tf.reduce_sum(clicks * factors), tf.reduce_sum(cut),
        self._debiased(batch.feedback, step.scores, batch.mask, batch.weights,
                       factors, expected, added))

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    config = super().get_config()
    del config["reduction"]  # It is the inner loss's.
    return config

  def _options(self):
    return {"loss": tf.keras.losses.serialize(self._loss),
            "max_weight": self.options.max_weight,
            "head_weight": self.options.head_weight,
            "annealing": self.options.annealing}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds the loss again, with a bias layer of the same arguments."""
    return super().from_config({
        **config, "loss": tf.keras.losses.deserialize(config["loss"])})


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class InversePropensityLoss(tf.keras.losses.Loss):
  """Any TF-Ranking loss with items weighted by 1 / theta of their position.

  For known propensities: Joachims et al. (2017), Wang et al. (2016). A pairwise
  loss weighs the preferred item of each pair; where the loss takes its gain
  from the label, as ApproxNDCG does, the label is debiased, see
  `ultra_tfr.ranking_losses`.

  Args:
    position_bias: a `PositionBias` with `examination` given.
    loss: a `tfr.keras.losses` loss.
    name: the loss's name.

  Raises:
    ValueError: if the propensities are not given, the loss cannot be debiased,
      or an argument has another type.

  >>> import tensorflow_ranking as tfr
  >>> loss = InversePropensityLoss(
  ...     PositionBias(2, examination=[0.5, 1.0]),
  ...     tfr.keras.losses.PairwiseLogisticLoss(reduction="sum"))
  >>> round(float(loss([[1.0, 0.0]], [[1.0, 0.0]])), 4)
  0.6265
  """

  def __init__(self, position_bias: PositionBias, loss: tf.keras.losses.Loss,
               name: str = "inverse_propensity_loss"):
    checks.check_instance("position_bias", position_bias, PositionBias,
                          "create one and pass it to the loss")
    self._debiased = ranking_losses.DebiasedLoss(loss)
    super().__init__(reduction=loss.reduction, name=name)
    if not position_bias.examination_is_fixed:
      raise ValueError(
          "`InversePropensityLoss` needs known propensities, but the bias "
          f"layer {position_bias.name!r} learns its own; give it "
          "`examination`, or use `UnbiasedPairwiseLoss` or `UnbiasedLoss`; of "
          "a layer that has learned take `PositionBias.fixed`.")
    if position_bias.logged_order_weight is not None:
      base.refuse_logged_order(self)
    self.position_bias = position_bias
    self._loss = loss

  def __call__(self, y_true, y_pred, sample_weight=None):
    """The inner loss, weighted; shapes as in `UnbiasedPairwiseLoss`."""
    batch = feedback_lib.read_batch(
        y_true, y_pred, sample_weight, self.position_bias)
    theta = batch.slots.lookup(self.position_bias.click_tables()[0])
    mask = tf.logical_and(batch.mask, theta > 0)
    return self._debiased(
        masking.zero_where_invalid(mask, batch.feedback),
        masking.zero_where_invalid(mask, batch.heads[0]), mask, batch.weights,
        tf.math.divide_no_nan(1.0, tf.where(mask, theta, 0.0)))

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {
        "name": self.name,
        "position_bias": keras_guards.serialize_layer(self.position_bias),
        "loss": checks.plain(tf.keras.losses.serialize(self._loss)),
    }

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds the loss again."""
    layer = tf.keras.layers.deserialize(config["position_bias"])
    return cls(keras_guards.loaded(layer),
               tf.keras.losses.deserialize(config["loss"]), config["name"])


def lambda_pair_weights(lambda_weight: Any, feedback: tf.Tensor,
                        scores: tf.Tensor, positions: tf.Tensor,
                        mask: tf.Tensor,
                        linear_gain: bool = False) -> tf.Tensor:
  """`|delta Z|`: the metric's change when two items swap, for all pairs.

  Unlike in TF-Ranking's own losses, ties of scores go by display position
  instead of by chance, and the weights of a list do not change with the
  padding it gets.

  Args:
    lambda_weight: a TF-Ranking lambda weight.
    feedback: `[B, L]`, finite.
    scores: `[B, L]`.
    positions: `[B, L]`, which break ties.
    mask: `[B, L]` booleans.
    linear_gain: make an exponential gain, 2^c - 1, linear in the feedback: it
      overflows for continuous feedback such as seconds. Otherwise the gain
      stops growing at grade 31.

  Returns:
    `[B, L, L]`, always finite.
  """
  ranks = pairs.ranks(scores, positions, mask)
  if getattr(lambda_weight, "_gain_fn", None) is tfr.keras.utils.pow_minus_1:
    # 2^log2(1 + c) - 1 = c.
    feedback = (tf.math.log1p(feedback) / tf.math.log(2.0) if linear_gain else
                tf.minimum(feedback, _MAX_GRADE))
  labels = tf.where(mask, feedback, -tf.ones_like(feedback))
  weights = lambda_weight.pair_weights(labels, ranks)
  if isinstance(lambda_weight, losses_impl.AbstractDCGLambdaWeight):
    # TF-Ranking multiplies these by the padded list size; the number of valid
    # items takes its place.
    size = tf.cast(tf.shape(labels)[1], tf.float32)
    valid = tf.reduce_sum(tf.cast(mask, tf.float32), axis=1)
    weights *= valid[:, tf.newaxis, tf.newaxis] / size
  return weights


def _serialize(lambda_weight):
  """A description by TF-Ranking, ready for JSON."""
  return tfr.keras.utils.serialize_keras_object(lambda_weight)


def _deserialize(description):
  """The lambda weight that `_serialize` described."""
  # A copy, since TF-Ranking replaces parts of the description by functions.
  return tfr.keras.utils.deserialize_keras_object(copy.deepcopy(description))
