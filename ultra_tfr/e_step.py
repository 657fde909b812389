"""One batch seen through the bias model: posteriors, weights, statistics.

Joins the pure functions of `core` to the variables of a `PositionBias` for the
losses. Everything here but the head losses is free of gradients.
"""

import functools

import tensorflow as tf

from ultra_tfr.base import num_replicas
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import trust
from ultra_tfr.core import weights as weights_lib
from ultra_tfr.feedback import item_weights
from ultra_tfr.feedback import split_heads
from ultra_tfr.feedback import unpack_feedback


class EStep:
  """The E step of one batch.

  Attributes:
    feedback: `[B, L]`, 0 outside the mask.
    positions: `[B, L]` display positions.
    mask: `[B, L]` booleans: real items at positions inside the bias table.
    item_weights: `[B, L]`, 0 outside the mask.
    scores: `[B, L]`, the ranking head.
    is_greater: `[B, L, L]` booleans, pairs with c_a > c_b.
  """

  def __init__(self, y_true, y_pred, sample_weight, position_bias, options):
    """Reads one batch.

    Args:
      y_true: packed feedback.
      y_pred: scores or heads.
      sample_weight: None or weights, see `feedback.item_weights`.
      position_bias: a `PositionBias`.
      options: the options of `UnbiasedPairwiseLoss`.
    """
    self._bias, self._options = position_bias, options
    feedback, self.positions, contexts = unpack_feedback(y_true)
    self._slots = position_bias.find_slots(self.positions, contexts)
    observed = masking.valid_items(feedback)
    self._overflow = tf.logical_and(observed, self._slots.overflow)
    self.mask = tf.logical_and(observed, self._slots.valid)
    self.feedback = masking.zero_where_invalid(self.mask, feedback)
    self._clicked = self.feedback > 0
    self.item_weights = item_weights(sample_weight, self.mask)
    heads = split_heads(y_pred, feedback)
    self._heads = [masking.zero_where_invalid(self.mask, head)
                   for head in heads]
    self.scores = self._heads[0]
    if options["preference"] == "tower" and len(self._heads) < 3:
      raise ValueError(
          "`preference='tower'` needs a model with three heads, [lists, items, "
          f"3], but `y_pred` has {len(self._heads)}; add a preference head or "
          "take `preference='relevance'`.")
    self.is_greater = pairs.preferred(
        self.feedback, self.mask, options["min_gap"])
    self._relevant = self._lookup("examination")
    self._irrelevant = (
        self._lookup("click_irrelevant")
        if position_bias.trust_bias == "position" else
        tf.zeros_like(self._relevant))

  def _lookup(self, name):
    return self._slots.lookup(getattr(self._bias, name))

  @functools.cached_property
  def _relevance_head(self):
    """Logits of beta, through which a cross-entropy may train the model."""
    if len(self._heads) > 1:
      return self._heads[1]
    return self.scores + tf.stop_gradient(self._bias.relevance_shift)

  @functools.cached_property
  def _relevance_logits(self):
    """Logits of beta, without gradient."""
    return tf.stop_gradient(self._relevance_head)

  @functools.cached_property
  def _posterior(self):
    """P(r > 0 | c)."""
    return examination.relevance_posterior(
        self._clicked, self._relevance_logits, self._relevant,
        self._irrelevant)

  @functools.cached_property
  def _pair_model(self):
    """The probabilities of all ordered pairs, for pairwise trust bias."""
    relevance = tf.sigmoid(masking.clip_logits(self._relevance_logits))
    if self._options["preference"] == "tower":
      preference = tf.sigmoid(masking.clip_logits(self._preference_logits()))
    elif self._options["feedback"] == "graded" and len(self._heads) > 2:
      preference = trust.graded_preference(
          relevance, self._heads[2], self._options["tie_threshold"])
    else:
      preference = trust.binary_preference(relevance)
    positive, negative = 1.0, 0.0
    if self._bias.trust_bias == "pairwise":
      positive = self._slots.lookup_pairs(self._bias.trust_positive)
      negative = self._slots.lookup_pairs(self._bias.trust_negative)
    return trust.pair_model(
        self._relevant, relevance, tf.stop_gradient(preference), positive,
        negative)

  def _preference_logits(self):
    return (pairs.differences(self._heads[2]) -
            self._options["tie_threshold"])

  def pair_weights(self):
    """Debiasing weights, `[B, L, L]`, meaningful where c_a > c_b."""
    form = self._options["examination_posterior"]
    if self._bias.trust_bias != "pairwise" and form == "item":
      return weights_lib.item_pair_weights(
          self._clicked, self._relevance_logits, self._relevant,
          self._irrelevant)
    if form == "item":
      examined = examination.examination_posterior(
          self._clicked, self._relevance_logits, self._relevant)
      examined = examined[:, tf.newaxis, :] + tf.zeros_like(
          self._pair_model.preference)
    else:
      table = "examination" if form == "prior" else "examination_unclicked"
      examined = trust.examined_given_preferred(
          self._pair_model, self._lookup(table)[:, tf.newaxis, :])
    return weights_lib.trust_pair_weights(
        self._clicked, self._pair_model, examined,
        self._options["normalize_trust"])

  def logged_order_weights(self):
    """What positions alone add to the weights of all pairs, `[B, L, L]`."""
    weights = self._bias.logged_order_weight * weights_lib.logged_order_weights(
        self._slots.lookup(self._bias.mean_relevance()))
    # The loss weighs a pair by its first item. Here both orders count, so the
    # second one has to count as well, or heavy items would be preferred.
    count = tf.reduce_sum(tf.cast(self.mask, tf.float32), axis=1, keepdims=True)
    relative = tf.math.divide_no_nan(self.item_weights * count, tf.reduce_sum(
        self.item_weights, axis=1, keepdims=True))
    return tf.where(masking.valid_pairs(self.mask),
                    weights * relative[:, tf.newaxis, :], 0.0)

  def head_losses(self):
    """Cross-entropy of the relevance and preference heads, `[B, L]`.

    That of the preference is the mean over the other items of the list, so
    that both heads learn at the same pace whatever the list size.
    """
    losses = self._cross_entropy(self._posterior, self._relevance_head)
    if len(self._heads) < 2:
      # The score learns relevance while EM needs it. The value stays that of
      # the pairs, to be read as that of any other pairwise loss.
      losses = self._bias.only_while_collecting(
          losses - tf.stop_gradient(losses))
    if len(self._heads) > 2:
      targets, logits, counts = self._preference_task()
      by_pair = tf.where(counts, self._cross_entropy(targets, logits), 0.0)
      others = tf.reduce_sum(tf.cast(counts, tf.float32), axis=2)
      losses += tf.math.divide_no_nan(tf.reduce_sum(by_pair, axis=2), others)
    return tf.where(self.mask, losses, 0.0)

  def _preference_task(self):
    """Targets, logits and pairs that the third head learns from."""
    logits = self._preference_logits()
    if self._options["preference"] == "tower":
      targets = trust.preference_posterior(self.is_greater, self._pair_model)
      return targets, logits, masking.valid_pairs(self.mask)
    # The order among items that both got feedback, hence were examined.
    both = tf.logical_and(
        self._clicked[:, :, tf.newaxis], self._clicked[:, tf.newaxis, :])
    return (tf.cast(self.is_greater, tf.float32), logits,
            tf.logical_and(both, masking.valid_pairs(self.mask)))

  def _cross_entropy(self, targets, logits):
    targets = tf.stop_gradient(targets)
    if self._options["targets"] == "sample":
      draws = tf.random.uniform(tf.shape(targets), seed=self._options["seed"])
      targets = tf.cast(draws < targets, tf.float32)
    return tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)

  def sums(self, pair_weights, cut):
    """What this batch adds to the accumulators of the bias layer.

    Args:
      pair_weights: `[B, L, L]`, the final pair weights.
      cut: `[B, L, L]`, what clipping took away from them.

    Returns:
      A dict as `PositionBias.collect` takes it.
    """
    def count(flags):
      return tf.reduce_sum(tf.cast(flags, tf.float32))

    slot_weights = (self._slots.one_hot() *
                    self.item_weights[:, :, tf.newaxis])
    sums = {
        # Each replica adds its share, so that a global batch counts once.
        "counters": tf.stack([
            tf.constant(1.0 / num_replicas()), count(self._overflow),
            count(self.is_greater), tf.reduce_sum(pair_weights),
            tf.reduce_sum(cut)]),
        "pointwise": examination.pointwise_statistics(
            self._clicked, self._relevance_logits, self._relevant,
            self._irrelevant, slot_weights),
        "calibration": em.calibration_sums(
            self._relevance_logits, self._posterior, self.item_weights),
    }
    if self._bias.learns_pairwise_trust:
      sums["trust"] = trust.trust_statistics(
          self.is_greater, masking.valid_pairs(self.mask), self._pair_model,
          slot_weights, self._slots.position_one_hot())
    return sums
