"""Pairwise trust bias: the E step, m, h and the posteriors of the preference.

Notation of Ren et al. (AAAI 2022). For an ordered pair (a, b) displayed at
positions (i, j), with gamma = P(r_a > r_b), beta_a = P(r_a > 0):

    g' = eps+ gamma + eps- (1 - gamma)      P(c_a > c_b | both examined)
    Q  = theta_i theta_j g' + theta_i (1 - theta_j) beta_a     P(c_a > c_b) (14)

gamma is clipped to beta_a, since r_a > r_b implies r_a > 0, and so is g'.
"""

from typing import NamedTuple

import tensorflow as tf

from ultra_tfr.core import masking
from ultra_tfr.core import pairs


class PairModel(NamedTuple):
  """The probabilities of every ordered pair, each `[B, L, L]` or broadcasting.

  Attributes:
    examination_a: theta_i, `[B, L, 1]`.
    examination_b: theta_j, `[B, 1, L]`.
    relevance_a: beta_a, `[B, L, 1]`.
    preference: gamma, at most beta_a.
    trust_positive: eps+_ij.
    trust_negative: eps-_ij.
  """

  examination_a: tf.Tensor
  examination_b: tf.Tensor
  relevance_a: tf.Tensor
  preference: tf.Tensor
  trust_positive: tf.Tensor
  trust_negative: tf.Tensor

  @property
  def true_order(self):
    """P(c_a > c_b, r_a > r_b | both examined) = eps+ gamma."""
    return self.trust_positive * self.preference

  @property
  def noise(self):
    """P(c_a > c_b, r_a <= r_b | both examined) = eps- (1 - gamma).

    Clipped so that g' stays within beta_a; it is the noise that gives way,
    since eps+ gamma is within beta_a by itself.
    """
    return tf.minimum(self.trust_negative * (1.0 - self.preference),
                      tf.nn.relu(self.relevance_a - self.true_order))

  @property
  def observed_preference(self):
    """g', P(c_a > c_b | both examined), at most beta_a."""
    return self.true_order + self.noise

  @property
  def outcome(self):
    """Q of equation (14), P(c_a > c_b)."""
    return self.examination_a * (
        self.examination_b * self.observed_preference +
        (1.0 - self.examination_b) * self.relevance_a)


def pair_model(examination, relevance, preference, trust_positive,
               trust_negative):
  """Puts item probabilities and the preference together.

  Args:
    examination: `[B, L]`, theta of each item's position.
    relevance: `[B, L]`, beta.
    preference: `[B, L, L]`, gamma.
    trust_positive: eps+, `[B, L, L]` or a scalar.
    trust_negative: eps-, `[B, L, L]` or a scalar.

  Returns:
    `PairModel`, with gamma clipped to beta_a.

  >>> model = pair_model(tf.constant([[0.5, 0.5]]), tf.constant([[0.4, 0.4]]),
  ...                    tf.fill([1, 2, 2], 0.3), 1.0, 0.0)
  >>> model.outcome.numpy()[0, 0, 1].round(4)
  0.175
  """
  beta = relevance[:, :, tf.newaxis]
  return PairModel(
      examination[:, :, tf.newaxis], examination[:, tf.newaxis, :], beta,
      tf.minimum(preference, beta),
      tf.convert_to_tensor(trust_positive, dtype=preference.dtype),
      tf.convert_to_tensor(trust_negative, dtype=preference.dtype))


def binary_preference(relevance):
  """gamma = beta_a (1 - beta_b): independent binary relevance.

  Args:
    relevance: `[B, L]`, beta.

  Returns:
    `[B, L, L]`.

  >>> binary_preference(tf.constant([[0.8, 0.25]])).numpy()[0, 0, 1].round(4)
  0.6
  """
  return relevance[:, :, tf.newaxis] * (1.0 - relevance[:, tf.newaxis, :])


def graded_preference(relevance, grade_scores, tie_threshold=0.0):
  """The binary preference plus the order among two relevant items.

  gamma = beta_a (1 - beta_b) + beta_a beta_b sigmoid(u_a - u_b - tau).

  Args:
    relevance: `[B, L]`, beta.
    grade_scores: `[B, L]`, u: scores trained on pairs with feedback on both.
    tie_threshold: tau >= 0 (Rao and Kupper, 1967).

  Returns:
    `[B, L, L]`.

  >>> graded_preference(tf.constant([[0.8, 0.5]]),
  ...                   tf.zeros([1, 2])).numpy()[0, 0, 1].round(4)
  0.6
  """
  both = relevance[:, :, tf.newaxis] * relevance[:, tf.newaxis, :]
  return binary_preference(relevance) + both * tf.sigmoid(
      pairs.differences(grade_scores) - tie_threshold)


def preference_given_examined(model):
  """m of equation (15), P(r_a > r_b | c_a > c_b, both examined).

  Args:
    model: `PairModel`.

  Returns:
    `[B, L, L]`; the limit where numerator and denominator are 0: m = 1
    without trust noise, else 0.
  """
  # The floor keeps 0/0 away, and makes m = 1 without noise for any gamma.
  true_order = tf.maximum(model.true_order, masking.MIN_PROBABILITY)
  return true_order / (true_order + model.noise)


def examined_given_preferred(model, examination_b):
  """h, P(e_b = 1 | c_a > c_b, c_b = 0), equation (17).

  Args:
    model: `PairModel`.
    examination_b: t: theta_j for the `prior` form, theta-_j for the paper's
      `position` form; `[B, 1, L]`.

  Returns:
    `[B, L, L]` probabilities; 1 where everything is examined.
  """
  low = masking.MIN_PROBABILITY
  seen = examination_b * tf.maximum(model.observed_preference, low)
  unseen = (1.0 - examination_b) * tf.maximum(model.relevance_a, low)
  return seen / tf.maximum(seen + unseen, low * low)


def pair_posterior(model, group, state):
  """One row of the E step table: P(state | c_a > c_b) or P(state | c_a <= c_b).

  Args:
    model: `PairModel`.
    group: `"greater"` or `"not_greater"`, what was observed.
    state: `"preferred"` for (1, 1, r_a > r_b), `"not_preferred"` for (1, 1,
      r_a <= r_b); or the rest, which is (1, 0, r_a > 0) if c_a > c_b. The three
      of a group sum to 1.

  Returns:
    `[B, L, L]` probabilities.
  """
  theta_a, theta_b, beta = (
      model.examination_a, model.examination_b, model.relevance_a)
  both = theta_a * theta_b
  if group == "greater":
    whole = model.outcome
    if state == "preferred":
      part = both * model.true_order
    elif state == "not_preferred":
      part = both * model.noise
    else:
      part = theta_a * (1.0 - theta_b) * beta
  else:
    rest = theta_a * (1.0 - theta_b) * (1.0 - beta) + 1.0 - theta_a
    # 1 - Q, written as a sum of terms >= 0 so that it keeps its precision.
    whole = rest + both * (1.0 - model.observed_preference)
    if state == "preferred":
      part = both * (model.preference - model.true_order)
    elif state == "not_preferred":
      part = both * (1.0 - model.preference - model.noise)
    else:
      part = rest
  return masking.safe_ratio(part, whole, tf.zeros_like(whole))


def preference_posterior(is_greater, model):
  """P(r_a > r_b | c): the target of the preference, over *all* ordered pairs.

  Learning gamma from the pairs with c_a > c_b alone would hand the display
  order back to it.

  Args:
    is_greater: `[B, L, L]` booleans, c_a > c_b.
    model: `PairModel`.

  Returns:
    `[B, L, L]` probabilities.
  """
  theta_a, theta_b = model.examination_a, model.examination_b
  shown = theta_a * (theta_b * model.trust_positive + 1.0 - theta_b)
  outcome = model.outcome
  given = masking.safe_ratio(
      model.preference * shown, outcome, tf.ones_like(outcome))
  not_given = masking.safe_ratio(
      model.preference * (1.0 - shown), 1.0 - outcome,
      tf.zeros_like(outcome))
  # Rounding may leave a ratio just above 1.
  return tf.clip_by_value(tf.where(is_greater, given, not_given), 0.0, 1.0)


# The columns of the trust statistics, in this order.
(GREATER_PREFERRED, OTHER_PREFERRED, GREATER_NOT_PREFERRED,
 OTHER_NOT_PREFERRED) = range(4)
NUM_STATISTICS = 4


def trust_statistics(is_greater, pair_mask, model, slots, weights):
  """Sums per position pair for the M step of eps.

  Args:
    is_greater: `[B, L, L]` booleans, c_a > c_b.
    pair_mask: `[B, L, L]` booleans, every ordered pair of valid items.
    model: `PairModel`.
    slots: `positions.Slots` of the items.
    weights: `[B, L]`; a pair has the weight of its first item, a.

  Returns:
    `[C * K, K, 4]`: the sums of P(1, 1, r_a > r_b | c) over pairs with
    c_a > c_b and over the others, then the same for P(1, 1, r_a <= r_b | c).
  """
  zero = tf.zeros_like(model.preference)
  positions_b = slots.position_one_hot(weights.dtype)
  is_greater = tf.logical_and(pair_mask, is_greater)
  is_other = tf.logical_and(pair_mask, tf.logical_not(is_greater))
  sums = []
  for state in ("preferred", "not_preferred"):
    for where, group in ((is_greater, "greater"), (is_other, "not_greater")):
      # One after the other, so that few [B, L, L] tensors are alive at once.
      with tf.control_dependencies(sums):
        values = tf.where(where, pair_posterior(model, group, state), zero)
        sums.append(slots.sums(tf.einsum(
            "ba,bac,bck->bak", weights, values, positions_b)))
  return tf.stack(sums, axis=-1)
