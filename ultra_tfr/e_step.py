"""One batch seen through the bias model: posteriors, weights, statistics.

Joins the pure functions of `core` to the variables of a `PositionBias` for the
losses. Everything here but the head losses is free of gradients.
"""

import dataclasses
import functools
from typing import Any
from typing import Literal
from typing import Optional

import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr.bias import MAX_WEIGHT
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import trust
from ultra_tfr.core import weights as weights_lib
from ultra_tfr.feedback import Batch
from ultra_tfr.feedback import TensorLike

_CHOICES = {
    "feedback": ("binary", "graded"),
    "preference": ("relevance", "tower"),
    "targets": ("expected", "sample"),
    "examination_posterior": ("item", "prior", "position"),
    "pair_loss": ("logistic", "hinge"),
}

_LEAST_RELEVANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Options:
  """The options of `losses.UnbiasedPairwiseLoss`, which explains them.

  Raises:
    ValueError: if one is out of range.
  """

  feedback: Literal["binary", "graded"] = "binary"
  preference: Literal["relevance", "tower"] = "relevance"
  targets: Literal["expected", "sample"] = "expected"
  examination_posterior: Literal["item", "prior", "position"] = "item"
  max_weight: Optional[float] = None
  temperature: float = 1.0
  normalize_trust: bool = True
  tie_threshold: float = 0.0
  min_gap: float = 0.0
  pair_loss: Literal["logistic", "hinge"] = "logistic"
  head_weight: float = 1.0
  normalize_weights: bool = False
  annealing: int = 500
  seed: Optional[int] = None

  def __post_init__(self):
    for argument, choices in _CHOICES.items():
      checks.check_choice(argument, getattr(self, argument), choices)
    checks.check_max_weight(self.max_weight)
    if not checks.is_number(self.temperature) or not self.temperature > 0:
      raise ValueError("`temperature` must be greater than 0.0, but is "
                       f"{self.temperature!r}.")
    for argument in ("normalize_trust", "normalize_weights"):
      checks.check_flag(argument, getattr(self, argument))
    checks.check_seed(self.seed)
    for argument in (
        "tie_threshold", "min_gap", "head_weight", "annealing"):
      checks.check_not_negative(argument, getattr(self, argument))


class EStep:
  """The E step of one batch.

  Attributes:
    scores: `[B, L]`, the ranking head.

  Args:
    batch: a `feedback.Batch`.
    position_bias: a `PositionBias`.
    options: `Options`.

  Raises:
    ValueError: if a head is missing.
  """

  def __init__(self, batch: Batch, position_bias: Any, options: Options):
    self._batch, self._bias, self._options = batch, position_bias, options
    self._heads = batch.heads
    self._clicked = batch.feedback > 0
    self.scores = batch.heads[0]
    if options.preference == "tower" and len(self._heads) < 3:
      raise ValueError(
          "`preference='tower'` needs a model with three heads, [lists, items, "
          f"3], but `y_pred` has {len(self._heads)}; add a preference head or "
          "take `preference='relevance'`.")
    # p1 and p0 by each of S hypotheses, `[S, B, L]`; S is 1 unless `"auto"`.
    self._relevant, self._irrelevant, self._slots = (
        position_bias.click_parameters(batch.slots, self._clicked))
    self._relevance_heads = position_bias.relevance_logits(batch.heads)
    self._relevance_logits = tf.stop_gradient(self._relevance_heads)

  @functools.cached_property
  def is_greater(self) -> tf.Tensor:
    """`[B, L, L]` booleans, pairs with c_a > c_b."""
    return pairs.preferred(
        self._batch.feedback, self._batch.mask, self._options.min_gap)

  @functools.cached_property
  def _posterior(self):
    """P(r > 0 | c), `[S, B, L]`."""
    return examination.relevance_posterior(
        self._clicked, self._relevance_logits, self._relevant,
        self._irrelevant)

  @functools.cached_property
  def _pair_model(self):
    """The probabilities of all ordered pairs, for pairwise trust bias."""
    relevance = tf.sigmoid(masking.clip_logits(self._relevance_logits[0]))
    if self._options.preference == "tower":
      preference = tf.sigmoid(masking.clip_logits(self._preference_logits()))
    elif self._options.feedback == "graded" and len(self._heads) > 2:
      preference = trust.graded_preference(
          relevance, self._heads[2], self._options.tie_threshold)
    else:
      preference = trust.binary_preference(relevance)
    positive, negative = 1.0, 0.0
    if self._bias.trust_bias == "pairwise":
      positive = self._batch.slots.lookup_pairs(self._bias.trust_positive)
      negative = self._batch.slots.lookup_pairs(self._bias.trust_negative)
    return trust.pair_model(
        self._relevant[0], relevance, tf.stop_gradient(preference), positive,
        negative)

  def _preference_logits(self):
    return (pairs.differences(self._heads[2]) -
            self._options.tie_threshold)

  def pair_weights(self, scale: TensorLike = 1.0) -> tf.Tensor:
    """Debiasing weights, `[B, L, L]`, 0 unless c_a > c_b.

    Args:
      scale: what they are multiplied by before they are raised to
        `weight_power`.
    """
    if self.weight_power is not None:
      scale = tf.pow(scale, self.weight_power)
    if self._has_closed_form:
      # Scaled by item, of which there are fewer, and finite for all pairs.
      return tf.cast(self.is_greater, tf.float32) * (
          weights_lib.item_pair_weights(
              self._clicked, self._relevance_logits, self._relevant,
              self._irrelevant, scale * self._mixture, self._cap,
              self.weight_power))
    return tf.where(self.is_greater, scale * self._trust_weights(), 0.0)

  def _trust_weights(self):
    """The weights of other forms, `[B, L, L]`, without a scale."""
    form = self._options.examination_posterior
    if form == "item":
      examined = examination.examination_posterior(
          self._clicked, self._relevance_logits[0], self._relevant[0])
      examined = examined[:, tf.newaxis, :] + tf.zeros_like(
          self._pair_model.preference)
    else:
      table = "examination" if form == "prior" else "examination_unclicked"
      examined = trust.examined_given_preferred(
          self._pair_model, self._slots[0].lookup(
              self._bias.models[0].variables[table])[:, tf.newaxis, :])
    weights = weights_lib.trust_pair_weights(
        self._clicked, self._pair_model, examined,
        self._options.normalize_trust)
    return weights_lib.scale_and_clip(
        weights, 1.0, power=self.weight_power)[0]

  def item_weights(
      self, with_labels: bool = False
  ) -> tuple[tf.Tensor, tf.Tensor, Optional[tf.Tensor]]:
    """Debiasing weights of items.

    They are beta / pi of items with feedback, with the expectation beta, and
    (1 - beta) / (1 - pi) of the others, with the expectation 1 - beta. Each is
    multiplied by theta_1 of its hypothesis; of several hypotheses it is the
    mean by their shares.

    Args:
      with_labels: whether something can be added to feedback. Then beta / pi
        is capped as that of pairs.

    Returns:
      The weights, what `max_weight` cut off, and what the model adds to the
      debiased feedback of all items for what nobody sees, see
      `core.weights.unseen_relevance`, `[B, L]` each; None for the last one if
      nothing can be added, or no head says what.
    """
    believed = self._bias.shares() * tf.sqrt(self._bias.scales())
    arguments = self._relevance_logits, self._relevant, self._irrelevant
    clicked = examination.clicked_factor(*arguments)
    added = None
    if with_labels and self._cap is not None:
      clicked = tf.minimum(clicked, self._cap)
      added = tf.tensordot(
          believed, weights_lib.unseen_relevance(*arguments, self._cap), 1)
      if self.weight_power is not None:
        added *= self.weight_power
    clicked, unclicked = (
        tf.tensordot(believed, factor, 1)
        for factor in (clicked, examination.unclicked_factor(*arguments)))
    kept, cut = weights_lib.scale_and_clip(
        clicked, 1.0, self._options.max_weight, self.weight_power)
    unclicked, _ = weights_lib.scale_and_clip(
        unclicked, 1.0, power=self.weight_power)
    return (tf.stop_gradient(tf.where(self._clicked, kept, unclicked)),
            tf.where(self._clicked, cut, 0.0),
            None if added is None else tf.stop_gradient(added))

  def expected_feedback(self) -> tf.Tensor:
    """What clicks with their `item_weights` are on average, `[B, L]`.

    That is beta, with the constant and the shares that these weights have. It
    is at least a little, since losses divide by it: of a list that was thought
    to be worth nothing one click would outweigh all other lists.
    """
    believed = self._bias.shares() * tf.sqrt(self._bias.scales())
    return tf.stop_gradient(tf.tensordot(believed, tf.maximum(
        tf.sigmoid(self._relevance_logits), _LEAST_RELEVANCE), 1))

  @functools.cached_property
  def weight_power(self) -> Optional[tf.Tensor]:
    """The power t / annealing of weights at batch t; None if it is always 1.

    It is 1 before the first M step, since EM may never run.
    """
    if not self._options.annealing or self._bias.is_fixed:
      return None
    batches = self._bias.num_updates
    return tf.where(batches > 0, tf.minimum(
        batches / float(self._options.annealing), 1.0), 1.0)

  @functools.cached_property
  def _mixture(self):
    return self._bias.mixture(self.weight_power)

  @functools.cached_property
  def _cap(self):
    """Of beta / pi of an item with feedback, by hypothesis, `[S, 1, 1]`.

    None where no head but the score could take the place of what is cut off:
    the score would learn what it says already.
    """
    if len(self._heads) < 2:
      return None
    first = masking.floor_probability(tf.sqrt(self._bias.scales()))
    return (MAX_WEIGHT / first)[:, tf.newaxis, tf.newaxis]

  @property
  def _has_closed_form(self):
    """Whether the weight of a pair is a product of factors of its items."""
    return (self._bias.trust_bias != "pairwise" and
            self._options.examination_posterior == "item")

  @property
  def fills_in(self) -> bool:
    """Whether `pair_weights` leaves out what `unseen_weights` adds."""
    return self._has_closed_form and self._cap is not None

  def unseen_weights(self, scale: TensorLike = 1.0) -> tf.Tensor:
    """What the model adds for items that nobody sees, `[B, L, L]`.

    Args:
      scale: what it is multiplied by.
    """
    unseen = weights_lib.unseen_relevance(
        self._relevance_logits, self._relevant, self._irrelevant, self._cap)
    mixture = scale * self._mixture
    if self.weight_power is not None:
      # It comes as fast as the others get their full weight.
      mixture *= self.weight_power
    # Where b was not clicked, as in `pair_weights`: what was above an item and
    # clicked decides what is seen of it.
    unclicked = tf.where(self._clicked, 0.0, examination.unclicked_factor(
        self._relevance_logits, self._relevant, self._irrelevant))
    # The loss multiplies a pair by the sample weight of its first item. Both
    # orders of a pair count here, so that of the second has to count as well,
    # or items with large sample weights would be preferred.
    own, mask = self._batch.weights, self._batch.mask
    count = tf.reduce_sum(tf.cast(mask, tf.float32), axis=1, keepdims=True)
    relative = tf.math.divide_no_nan(
        own * count, tf.reduce_sum(own, axis=1, keepdims=True))
    # By item, of which there are fewer than pairs.
    weights = weights_lib.sum_of_products(
        tf.where(mask, unseen * mixture[:, tf.newaxis, tf.newaxis], 0.0),
        tf.where(mask, unclicked * relative, 0.0))
    return tf.linalg.set_diag(weights, tf.zeros_like(own))

  def head_losses(self) -> tf.Tensor:
    """Cross-entropy of the relevance and preference heads, `[B, L]`.

    Each hypothesis trains its own relevance head; a head that all share learns
    from each hypothesis by its share. The loss of the preference head is the
    mean over the other items of the list, so that both heads learn at the same
    pace whatever the list size.
    """
    by_hypothesis = self._cross_entropy(self._posterior, self._relevance_heads)
    if self._bias.has_own_heads(self._heads):
      losses = tf.reduce_sum(by_hypothesis, axis=0)
    else:
      losses = tf.tensordot(self._bias.shares(), by_hypothesis, 1)
    if len(self._heads) < 2:
      # The score is the relevance logit, so it learns relevance while EM runs.
      # The value stays that of the pairs, comparable with other losses.
      losses = self._bias.only_while_collecting(
          losses - tf.stop_gradient(losses))
    if len(self._bias.models) == 1 and len(self._heads) > 2:
      targets, logits, counts = self._preference_task()
      by_pair = tf.where(counts, self._cross_entropy(targets, logits), 0.0)
      others = tf.reduce_sum(tf.cast(counts, tf.float32), axis=2)
      losses += tf.math.divide_no_nan(tf.reduce_sum(by_pair, axis=2), others)
    return tf.where(self._batch.mask, losses, 0.0)

  def _preference_task(self):
    """Targets, logits and pairs of the third head, `[B, L, L]` each."""
    logits = self._preference_logits()
    if self._options.preference == "tower":
      targets = trust.preference_posterior(self.is_greater, self._pair_model)
      return targets, logits, masking.valid_pairs(self._batch.mask)
    # The order among items that both got feedback, hence were examined.
    both = tf.logical_and(
        self._clicked[:, :, tf.newaxis], self._clicked[:, tf.newaxis, :])
    return (tf.cast(self.is_greater, tf.float32), logits,
            tf.logical_and(both, masking.valid_pairs(self._batch.mask)))

  def _cross_entropy(self, targets, logits):
    targets = tf.stop_gradient(targets)
    if self._options.targets == "sample":
      draws = tf.random.uniform(tf.shape(targets), seed=self._options.seed)
      targets = tf.cast(draws < targets, tf.float32)
    return tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)

  def sums(self) -> dict[str, tf.Tensor]:
    """What this batch adds to the accumulators of the bias layer.

    Returns:
      A dict as `PositionBias.collect` takes it, without counters.
    """
    weights = self._batch.weights
    sums = {}
    statistics = examination.pointwise_statistics(
        self._clicked, self._relevance_logits, self._relevant,
        self._irrelevant, weights)
    for i, model in enumerate(self._bias.models):
      sums[model.key("pointwise")] = self._slots[i].sums(statistics[i])
      sums[model.key("calibration")] = em.calibration_sums(
          self._relevance_logits[i], self._posterior[i], weights)
    if len(self._bias.models) > 1:
      sums["log_likelihood"] = tf.reduce_sum(
          weights * examination.log_likelihood(
              self._clicked, self._relevance_logits, self._relevant,
              self._irrelevant), axis=[1, 2])
    if self._bias.learns_pairwise_trust:
      sums["trust"] = trust.trust_statistics(
          self.is_greater, masking.valid_pairs(self._batch.mask),
          self._pair_model, self._batch.slots, weights)
    return sums
