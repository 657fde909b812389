"""Pair weights: IPW, Bayes-IPW and the closed form, as composed functions.

All of them are products of the bounded parts of `examination` and `trust`.
Where both items got feedback, both were examined, and the weight is an inverse
propensity; where the second item got none, the weight also says how likely it
was examined at all.
"""

import tensorflow as tf

from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import trust


def item_pair_weights(second_clicked, relevance_logits, click_relevant,
                      click_irrelevant, mixture=None, cap=None, power=None):
  """The closed form: a product of one factor of a and one of b.

      min(beta_a / pi_a, cap) * [(1 - beta_b) / (1 - pi_b)]    where c_b = 0
      1 / (p1_i p1_j)                                          where c_b > 0

  For binary feedback its expectation is P(r_a > r_b) exactly, trust bias
  included, but for what the cap takes away, see `unseen_relevance`. With p0 = 0
  it is loss_IPW, equation (11), with the item's own posterior for h.

  Args:
    second_clicked: `[B, L]` booleans, c_b > 0.
    relevance_logits: `[B, L]`, the logit of beta.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position.
    mixture: `[S]`, the factor of each hypothesis in the sum of their weights,
      if the three arguments before have S hypotheses on a first axis.
    cap: of the factor of a, a number or what broadcasts to `[S, B, L]`; or
      None.
    power: as in `scale_and_clip`, of the weights of each hypothesis.

  Returns:
    `[B, L, L]`, meaningful where c_a > c_b.

  >>> item_pair_weights(tf.constant([[True, False]]), tf.zeros([1, 2]),
  ...                   tf.constant([[0.5, 0.5]]),
  ...                   tf.zeros([1, 2])).numpy()[0, 0, 1].round(4)
  1.3333
  """
  first = examination.clicked_factor(
      relevance_logits, click_relevant, click_irrelevant)
  if cap is not None:
    first = tf.minimum(first, cap)
  second = examination.unclicked_factor(
      relevance_logits, click_relevant, click_irrelevant)
  inverse = 1.0 / masking.floor_probability(click_relevant)
  # The power of a product is that of its factors, of which there are fewer.
  first, second, inverse = (
      _raised(factor, power) for factor in (first, second, inverse))
  # Which factors count depends on whether b was clicked: the others of b are 0.
  by_first = tf.stack([first, inverse])
  none = tf.zeros_like(second)
  by_second = tf.stack([tf.where(second_clicked, none, second),
                        tf.where(second_clicked, inverse, none)])
  if mixture is not None:
    by_first *= mixture[:, tf.newaxis, tf.newaxis]
  return sum_of_products(by_first, by_second)


def sum_of_products(first, second):
  """Weights of all pairs, each the product of one factor of a and one of b.

  Args:
    first: `[..., B, L]`, the factors of a.
    second: `[..., B, L]`, the factors of b.

  Returns:
    `[B, L, L]`, the sum over the axes before.

  >>> sum_of_products(tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 5.0]]))
  <tf.Tensor: shape=(1, 2, 2), dtype=float32, numpy=
  array([[[ 3.,  5.],
          [ 6., 10.]]], dtype=float32)>
  """
  shape = tf.shape(first)[-2:]
  first, second = (
      tf.reshape(factors, tf.concat([[-1], shape], axis=0))
      for factors in (first, second))
  # Twice as fast as `einsum` where lists are short.
  return tf.matmul(tf.transpose(first, [1, 2, 0]),
                   tf.transpose(second, [1, 0, 2]))


def unseen_relevance(relevance_logits, click_relevant, click_irrelevant, cap):
  """What a cap of beta / pi takes away of its expectation, beta.

      beta (1 - min(cap pi / beta, 1))

  Users who stop at a click never see what is below it: no weight makes up for
  feedback that is never given. Added to the weights of all pairs with c_b = 0,
  whatever c_a is, (this of a) (1 - beta_b) / (1 - pi_b) makes their expectation
  P(r_a > r_b) again, if the model's beta is right.

  Args:
    relevance_logits: `[B, L]`, the logit of beta.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position.
    cap: as in `item_pair_weights`.

  Returns:
    `[B, L]`.

  Source: for single items Oosterhuis, "Doubly Robust Estimation for Correcting
  Position Bias in Click Feedback for Unbiased Learning to Rank", TOIS 2023.

  >>> unseen_relevance(tf.zeros([1, 2]), tf.constant([[0.5, 0.01]]),
  ...                  tf.zeros([1, 2]), cap=20.0).numpy().round(4)
  array([[0. , 0.4]], dtype=float32)
  """
  whole = examination.clicked_factor(
      relevance_logits, click_relevant, click_irrelevant)
  return tf.sigmoid(masking.clip_logits(relevance_logits)) * (
      1.0 - tf.minimum(cap / whole, 1.0))


def trust_pair_weights(second_clicked, model, examined_b, normalize_trust):
  """Bayes-IPW, equation (16); plain IPW (11) at eps+ = 1, eps- = 0.

  Args:
    second_clicked: `[B, L]` booleans, c_b > 0.
    model: `trust.PairModel`.
    examined_b: h, `[B, L, L]`: P(e_b = 1 | c_a > c_b, c_b = 0).
    normalize_trust: divide by eps+, which makes the expectation gamma
      instead of eps+ gamma. With the `prior` form of h and binary feedback
      the weight is then gamma / Q.

  Returns:
    `[B, L, L]`, meaningful where c_a > c_b.
  """
  second = tf.where(second_clicked[:, tf.newaxis, :], tf.ones_like(examined_b),
                    examined_b)
  inverse = 1.0 / masking.floor_probability(
      model.examination_a) / masking.floor_probability(model.examination_b)
  weights = trust.preference_given_examined(model) * second * inverse
  if normalize_trust:
    weights /= masking.floor_probability(model.trust_positive)
  return weights


def scale_and_clip(weights, scale, max_weight=None, power=None):
  """Scales weights, then caps them.

  Args:
    weights: of pairs or items, of any shape.
    scale: a scalar, the same for all, which cannot bias anything; or a tensor
      that broadcasts, such as one by context.
    max_weight: the cap after scaling, or None.
    power: a scalar that scaled weights are raised to before they are capped:
      with 0 all that are greater than 0 become 1. None for 1.

  Returns:
    The weights, and the amount that the cap took away, of the same shape; a
    scalar 0 without a cap.

  >>> kept, cut = scale_and_clip(tf.constant([[[1.0, 9.0]]]), 0.5, 2.0)
  >>> kept.numpy(), cut.numpy()
  (array([[[0.5, 2. ]]], dtype=float32), array([[[0. , 2.5]]], dtype=float32))
  """
  weights = _raised(weights * scale, power)
  if max_weight is None:
    return weights, tf.zeros([], weights.dtype)
  kept = tf.minimum(weights, max_weight)
  return kept, weights - kept


def _raised(weights, power):
  """The power of weights; that of 0 is 0."""
  if power is None:
    return weights
  return tf.where(weights > 0, tf.pow(weights, power), 0.0)
