"""The whole M step of a bias layer, as one compiled function."""

import functools
from typing import NamedTuple
from typing import Optional

import tensorflow as tf

from ultra_tfr.core import calibration
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import trust

# The share of a full Newton step that the calibration takes at a time.
_CALIBRATION_RATE = 0.2


class UpdateRule(NamedTuple):
  """What an M step does, as plain Python values.

  Attributes:
    averaging: `"statistics"` or `"parameters"`.
    examination_is_fixed: theta (or p1, p0) is given.
    trust_bias: None, `"position"` or `"pairwise"`.
    trust_is_fixed: the trust probabilities are given.
    starts_from_clicks: theta is taken from click rates during the warm-up.
    min_examination: the floor of theta.
    initial_scale: theta of the most clicked position at the start.
    initial_click_irrelevant: p0 / p1 at the start.
    smoothing: pseudo-observations of the click-rate start.
  """

  averaging: str
  examination_is_fixed: bool
  trust_bias: Optional[str]
  trust_is_fixed: bool
  starts_from_clicks: bool
  min_examination: float
  initial_scale: float
  initial_click_irrelevant: float
  smoothing: float


@functools.partial(tf.function, reduce_retracing=True)
def run(rule, state, averages, sums, num_batches, initial_step, decay,
           warmup):
  """One M step on the sums of `num_batches` batches.

  Args:
    rule: `UpdateRule`.
    state: a dict of the parameters, under the names of `PositionBias`.
    averages: running statistics, "pointwise" `[C * K, 5]` and with learned
      pairwise trust bias "trust" `[C * K, K, 4]`.
    sums: the new sums, likewise, and "calibration" `[5]`.
    num_batches: a scalar.
    initial_step: alpha_0.
    decay: kappa.
    warmup: batches of a click-rate start.

  Returns:
    The new state and averages.
  """
  step = state["num_updates"]
  alpha = em.compound_step(em.step_size(step, initial_step, decay), num_batches)
  # While the average is young it is the plain mean of all that was seen.
  mean_alpha = tf.maximum(alpha, num_batches / (step + num_batches))
  averages = {
      key: em.average_statistics(value, sums[key], num_batches, mean_alpha)
      for key, value in averages.items()}
  if rule.averaging == "statistics":
    seen, rate = averages, tf.ones_like(alpha)
  else:
    seen, rate = sums, alpha
  state = dict(state, num_updates=step + num_batches)
  state["relevance_shift"] = calibration.newton_step(
      state["relevance_shift"], sums["calibration"], _CALIBRATION_RATE)
  in_warmup = tf.logical_and(rule.starts_from_clicks, step < warmup)
  updates = _examination_step(
      rule, state, seen["pointwise"], averages["pointwise"], rate, in_warmup)
  if rule.examination_is_fixed:
    # theta- follows from theta, the items and what they got: nobody gives it.
    updates = {"examination_unclicked": updates["examination_unclicked"]}
  state.update(updates)
  if rule.trust_bias == "pairwise" and not rule.trust_is_fixed:
    shape = tf.concat(
        [tf.shape(state["trust_positive"]), [trust.NUM_STATISTICS]], 0)
    positive, negative = em.trust_estimates(
        tf.reshape(seen["trust"], shape), state["trust_positive"],
        state["trust_negative"])
    state["trust_positive"], state["trust_negative"] = em.constrain_trust(
        em.move(state["trust_positive"], positive, rate),
        em.move(state["trust_negative"], negative, rate))
  return state, averages


def _examination_step(rule, state, seen, average, rate, in_warmup):
  """New theta and theta-, or p1 and p0, from statistics or click rates."""
  theta, unclicked = state["examination"], state["examination_unclicked"]
  shape = tf.concat([tf.shape(theta), [examination.NUM_STATISTICS]], 0)
  seen, average = tf.reshape(seen, shape), tf.reshape(average, shape)
  start = em.constrain_examination(
      em.click_rate_start(
          average[..., examination.COUNT], average[..., examination.CLICKED],
          rule.initial_scale, rule.smoothing), rule.min_examination)

  def choose(learned, first):
    return tf.where(in_warmup, first, learned)

  if rule.trust_bias == "position":
    irrelevant = state["click_irrelevant"]
    p1, p0 = em.click_estimates(seen, theta, irrelevant)
    p1 = em.constrain_examination(
        em.move(theta, p1, rate), rule.min_examination)
    p0 = em.constrain_click_irrelevant(em.move(irrelevant, p0, rate), p1)
    # 0 is a fixed point: the position-based model. Rounding must not leave it.
    p0 = tf.where(irrelevant > 0, p0, 0.0)
    return {"examination": choose(p1, start),
            "click_irrelevant": choose(
                p0, rule.initial_click_irrelevant * start),
            "examination_unclicked": unclicked}
  new, new_unclicked = em.examination_estimates(seen, theta, unclicked)

  def constrain(values):
    return em.constrain_examination(values, rule.min_examination)

  return {"examination": choose(constrain(em.move(theta, new, rate)), start),
          "examination_unclicked": choose(
              constrain(em.move(unclicked, new_unclicked, rate)), start)}
