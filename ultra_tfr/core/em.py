"""Parts of the M step: step sizes, estimates from sums, and constraints.

Mini-batch EM, equation (20), in two forms. `"parameters"` is the paper's: it
moves each parameter towards the estimate of the last batch. `"statistics"`
(Cappe and Moulines, 2009) averages numerators and denominators and divides
afterwards, so a position that was seen twice does not move as far as one that
was seen two thousand times.
"""

import functools
from typing import NamedTuple
from typing import Optional

import tensorflow as tf

from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import shrinkage
from ultra_tfr.core import trust

# Learned trust probabilities keep this distance from each other and from the
# ends, so that no posterior is ever fixed at 0 or 1 for good.
TRUST_GAP = 1e-3
# alpha_0 and kappa of the step sizes, unless something else is asked for.
STEP_SIZE = STEP_DECAY = 0.05
# The columns of the calibration sums: gradient and curvature, in the shift of
# relevance, of the cross-entropy of sigmoid(s + shift) against the targets of
# the E step.
GRADIENT, CURVATURE = range(2)
NUM_SUMS = 2
# The share of a full Newton step that the calibration takes at a time.
_CALIBRATION_RATE = 0.2
# The bounds of the click rate that relevance starts from. And where clicks on
# irrelevant items could explain all clicks, relevance starts at the click rate,
# but at most here.
_RELEVANCE_START, _RARE = (1e-3, 0.5), 0.1
# How much of the hypotheses' log-likelihood is left a batch later: the last
# hundred batches count most.
_EVIDENCE_DECAY = 0.99


def step_size(step, initial, decay):
  """alpha_t = alpha_0 (1 + t)^-kappa of equation (20).

  Args:
    step: t, the batches already used.
    initial: alpha_0.
    decay: kappa.

  Returns:
    A scalar.

  >>> float(step_size(tf.constant(3.0), 0.5, 0.5))
  0.25
  """
  return initial * tf.pow(1.0 + step, -decay)


def compound_step(alpha, num_batches):
  """The size of the one step that equals `num_batches` steps of size alpha.

  >>> round(float(compound_step(0.5, tf.constant(2.0))), 4)
  0.75
  """
  return 1.0 - tf.pow(1.0 - alpha, num_batches)


def average_statistics(running, batch_sum, num_batches, alpha):
  """running <- (1 - alpha) running + alpha * (mean sum of a batch).

  Args:
    running: the averaged sums so far.
    batch_sum: the sums over `num_batches` batches.
    num_batches: a scalar > 0.
    alpha: the step, already compounded.

  Returns:
    The new averages.
  """
  return (1.0 - alpha) * running + alpha * batch_sum / num_batches


def move(parameters, estimates, alpha):
  """p <- (1 - alpha) p + alpha p^, equation (20)."""
  return (1.0 - alpha) * parameters + alpha * estimates


def examination_estimates(statistics, current, current_unclicked):
  """theta^ and theta-^ of the position-based model.

  Args:
    statistics: `[..., 5]`, see `examination.pointwise_statistics`.
    current: `[...]`, kept by positions without observations.
    current_unclicked: `[...]`, likewise.

  Returns:
    theta^ and theta-^, each `[...]`.
  """
  count, clicked, _, _, unclicked = tf.unstack(statistics, axis=-1)
  return (masking.safe_ratio(clicked + unclicked, count, current),
          masking.safe_ratio(unclicked, count - clicked, current_unclicked))


def click_estimates(statistics, current_relevant, current_irrelevant):
  """p1^ = sum c q / sum q and p0^ = sum c (1-q) / sum (1-q).

  Args:
    statistics: `[..., 5]`, see `examination.pointwise_statistics`.
    current_relevant: `[...]`, kept by positions without observations.
    current_irrelevant: `[...]`, likewise.

  Returns:
    p1^ and p0^, each `[...]`.
  """
  count, clicked, relevant, both, _ = tf.unstack(statistics, axis=-1)
  return (masking.safe_ratio(both, relevant, current_relevant),
          masking.safe_ratio(tf.nn.relu(clicked - both),
                             tf.nn.relu(count - relevant), current_irrelevant))


def trust_estimates(statistics, current_positive, current_negative):
  """eps+^ and eps-^ of the pairwise E step.

  Args:
    statistics: `[..., 4]`, see `trust.trust_statistics`.
    current_positive: `[...]`, kept by pairs without observations.
    current_negative: `[...]`, likewise.

  Returns:
    eps+^ and eps-^, each `[...]`.
  """
  positive = statistics[..., trust.GREATER_PREFERRED]
  negative = statistics[..., trust.GREATER_NOT_PREFERRED]
  return (
      masking.safe_ratio(
          positive, positive + statistics[..., trust.OTHER_PREFERRED],
          current_positive),
      masking.safe_ratio(
          negative, negative + statistics[..., trust.OTHER_NOT_PREFERRED],
          current_negative))


def click_rate_start(count, clicked, scale, smoothing, power=1.0):
  """theta from the smoothed click rate by position, largest = `scale`.

  Started here the EM arrives in hundreds of steps; from a constant it crawls.
  Smoothing towards the mean rate keeps a position without clicks alive, since
  theta = 0 is a fixed point of EM.

  Args:
    count: `[C, K]`, items shown.
    clicked: `[C, K]`, items with feedback.
    scale: theta of the position with the largest rate.
    smoothing: how many observations the mean rate counts for.
    power: of the relative rates. With 1 the differences between positions are
      put down to examination alone, with 0 to relevance.

  Returns:
    `[C, K]`.

  >>> click_rate_start(tf.constant([[100.0, 100.0]]),
  ...                  tf.constant([[20.0, 5.0]]), 0.8, 0.0).numpy()
  array([[0.8, 0.2]], dtype=float32)
  """
  mean = masking.safe_ratio(
      tf.reduce_sum(clicked, -1, keepdims=True),
      tf.reduce_sum(count, -1, keepdims=True), 1.0)
  rate = masking.safe_ratio(
      clicked + smoothing * mean, count + smoothing, mean)
  largest = tf.reduce_max(rate, axis=-1, keepdims=True)
  return scale * tf.pow(masking.safe_ratio(rate, largest, 1.0), power)


def relevance_start(click_rate, scale, click_irrelevant):
  """Chances of relevance and of clicks that explain the click rates alike.

  A start far above the truth makes examination seem rare, and relevance is then
  learned upside down, which EM confirms for long. So the clicks that irrelevant
  items explain are subtracted; where clicks are too rare for that, p1 starts
  lower instead.

  Args:
    click_rate: the rate of feedback at the most clicked position.
    scale: p1 there.
    click_irrelevant: p0 as a share of p1.

  Returns:
    beta, and what to multiply p1 (and p0) with, so that
    `scale * factor * (beta + click_irrelevant * (1 - beta))` is the rate.

  >>> [round(float(v), 3) for v in relevance_start(0.4, 0.8, 0.3)]
  [0.286, 1.0]
  >>> [round(float(v), 3) for v in relevance_start(0.04, 0.8, 0.3)]
  [0.05, 0.149]
  """
  rate = tf.clip_by_value(
      tf.convert_to_tensor(click_rate / scale, tf.float32), *_RELEVANCE_START)
  relevance = tf.maximum(
      (rate - click_irrelevant) / (1.0 - click_irrelevant),
      tf.minimum(rate, _RARE))
  return relevance, rate / (
      relevance + click_irrelevant * (1.0 - relevance))


def constrain_examination(values, minimum):
  """0 < minimum <= theta <= 1.

  >>> constrain_examination(tf.constant([0.0, 2.0]), 0.01).numpy()
  array([0.01, 1.  ], dtype=float32)
  """
  return tf.clip_by_value(values, minimum, 1.0)


def constrain_click_irrelevant(click_irrelevant, click_relevant):
  """0 <= p0 < p1.

  >>> constrain_click_irrelevant(tf.constant([0.9, -1.0]),
  ...                            tf.constant([0.5, 0.5])).numpy().round(4)
  array([0.495, 0.   ], dtype=float32)
  """
  return tf.clip_by_value(click_irrelevant, 0.0, 0.99 * click_relevant)


def constrain_trust(trust_positive, trust_negative):
  """0 < eps- < eps+ < 1 and eps+_ij + eps-_ji <= 1.

  Both orders of a pair are one draw, hence the second constraint.

  Args:
    trust_positive: `[..., K, K]`.
    trust_negative: `[..., K, K]`.

  Returns:
    The two tables inside the constraints.

  >>> plus, minus = constrain_trust(tf.constant([[1.0]]), tf.constant([[0.5]]))
  >>> plus.numpy().round(2), minus.numpy().round(2)
  (array([[0.67]], dtype=float32), array([[0.33]], dtype=float32))
  """
  positive = tf.clip_by_value(trust_positive, 3 * TRUST_GAP, 1.0 - TRUST_GAP)
  negative = tf.clip_by_value(trust_negative, TRUST_GAP, 1.0)
  total = positive + tf.linalg.matrix_transpose(negative)
  shrink = 1.0 / tf.maximum(total, 1.0)
  positive = positive * shrink
  negative = negative * tf.linalg.matrix_transpose(shrink)
  # Lowering eps- can only loosen the constraint on the sum.
  return positive, tf.minimum(negative, positive - TRUST_GAP)


def calibration_sums(relevance_logits, targets, weights):
  """Sums for one Newton step on the relevance shift of `PositionBias`.

  Args:
    relevance_logits: `[B, L]`, s + shift.
    targets: `[B, L]`, P(r > 0 | c).
    weights: `[B, L]`, zeros for padding.

  Returns:
    `[2]`.

  >>> calibration_sums(tf.zeros([1, 2]), tf.ones([1, 2]),
  ...                  tf.constant([[1.0, 0.0]])).numpy()
  array([0.5 , 0.25], dtype=float32)
  """
  beta = tf.sigmoid(relevance_logits)
  return tf.stack([tf.reduce_sum(weights * (targets - beta)),
                   tf.reduce_sum(weights * beta * (1.0 - beta))])


def newton_step(shift, sums, rate):
  """A damped Newton step: shift + rate sum(P(r) - beta) / sum(beta (1 - beta)).

  Args:
    shift: a scalar.
    sums: `[2]`, see `calibration_sums`.
    rate: the share of the full step to take.

  Returns:
    The new shift, in [-30, 30].

  >>> float(newton_step(tf.constant(0.0), tf.constant([4.0, 7.0]), 1.0))
  0.5
  """
  # One observation of ridge: without data the step is 0, not 0/0.
  step = rate * sums[GRADIENT] / (sums[CURVATURE] + 1.0)
  return masking.clip_logits(shift + tf.clip_by_value(step, -0.5, 0.5))


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
    initial_power: of the relative click rates that theta starts from, see
      `click_rate_start`.
    smoothing: pseudo-observations of the click-rate start, and of a position's
      mean in each of its slots.
    prior_clicks: see `shrinkage.shrink_to_evidence`, with p0.
    num_distances: D, slots of a position, see `positions.browsing_slots`.
  """

  averaging: str
  examination_is_fixed: bool
  trust_bias: Optional[str]
  trust_is_fixed: bool
  starts_from_clicks: bool
  min_examination: float
  initial_scale: float
  initial_click_irrelevant: float
  initial_power: float
  smoothing: float
  prior_clicks: float = 0.0
  num_distances: int = 1


@functools.partial(tf.function, autograph=False, reduce_retracing=True)
def m_step(rule, state, averages, sums, num_batches, initial_step, decay,
           warmup):
  """One M step on the sums of `num_batches` batches.

  Args:
    rule: `UpdateRule`.
    state: a dict of the parameters, under the names of `PositionBias`:
      "num_updates", "relevance_shift", "examination", and what there is of
      "examination_unclicked", "click_irrelevant", "trust_positive" and
      "trust_negative".
    averages: running statistics, "pointwise" `[C * K * D, 5]` and with learned
      pairwise trust bias "trust" `[C * K, K, 4]`.
    sums: the new sums, likewise, and "calibration" `[2]`.
    num_batches: how many batches they add up, a scalar.
    initial_step: alpha_0.
    decay: kappa.
    warmup: batches of a click-rate start.

  Returns:
    The new state and averages.
  """
  step = state["num_updates"]
  alpha = compound_step(step_size(step, initial_step, decay), num_batches)
  # While the average is young it is the plain mean of all that was seen.
  mean_alpha = tf.maximum(alpha, num_batches / (step + num_batches))
  averages = {
      key: average_statistics(value, sums[key], num_batches, mean_alpha)
      for key, value in averages.items()}
  # `unit` is what a single new observation counts for in `seen`, `averages` of
  # sums a batch, however many batches come at once.
  unit_of_average = mean_alpha / num_batches
  if rule.averaging == "statistics":
    seen, rate, unit = averages, tf.ones_like(alpha), unit_of_average
  else:
    seen, rate, unit = sums, alpha, 1.0
  state = dict(state, num_updates=step + num_batches)
  state["relevance_shift"] = newton_step(
      state["relevance_shift"], sums["calibration"],
      compound_step(_CALIBRATION_RATE, num_batches))
  in_warmup = tf.logical_and(rule.starts_from_clicks, step < warmup)
  shrink = functools.partial(
      shrinkage.shrink_to_position, num_distances=rule.num_distances)
  updates = _examination_step(
      rule, state, shrink(seen["pointwise"], rule.smoothing * unit),
      shrink(averages["pointwise"], rule.smoothing * unit_of_average), rate,
      in_warmup, rule.prior_clicks * unit)
  if rule.examination_is_fixed:
    # theta- depends on the items and their feedback, so it cannot be given.
    updates = {name: value for name, value in updates.items()
               if name == "examination_unclicked"}
  state.update(updates)
  if rule.trust_bias == "pairwise" and not rule.trust_is_fixed:
    shape = tf.concat(
        [tf.shape(state["trust_positive"]), [trust.NUM_STATISTICS]], 0)
    positive, negative = trust_estimates(
        tf.reshape(seen["trust"], shape), state["trust_positive"],
        state["trust_negative"])
    state["trust_positive"], state["trust_negative"] = constrain_trust(
        move(state["trust_positive"], positive, rate),
        move(state["trust_negative"], negative, rate))
  return state, averages


def step_on_all(rule, tables, sums, unit):
  """The M step on the sums of a whole log, in place of running averages.

  Args:
    rule: `UpdateRule`.
    tables: a dict of those of the "examination", "click_irrelevant" and
      "examination_unclicked" that there are, `[C, K * D]` each.
    sums: `[C * K * D, 5]`, of a batch in the mean.
    unit: what a single new observation would count for in running averages, so
      that pseudo-observations weigh as much as in training.

  Returns:
    The new tables.
  """
  seen = shrinkage.shrink_to_position(
      sums, rule.smoothing * unit, rule.num_distances)
  return _examination_step(
      rule, tables, seen, seen, tf.constant(1.0), tf.constant(False),
      rule.prior_clicks * unit)


@functools.partial(tf.function, autograph=False, reduce_retracing=True)
def m_steps(rules, states, averages, sums, evidence, log_likelihoods,
            num_batches, initial_step, decay, warmup):
  """One M step of each hypothesis, and what speaks for each.

  Args:
    rules: a tuple of S `UpdateRule`, one for each hypothesis.
    states: a tuple of S dicts, each as in `m_step`.
    averages: a tuple of S dicts, each as in `m_step`.
    sums: a tuple of S dicts, each as in `m_step`.
    evidence: `[S]`, see `move_evidence`.
    log_likelihoods: `[S]`, of the new batches by the present parameters.
    num_batches: as in `m_step`.
    initial_step: as in `m_step`.
    decay: as in `m_step`.
    warmup: as in `m_step`.

  Returns:
    The new states, averages and evidence.
  """
  new_states, new_averages = zip(*(
      m_step(*parts, num_batches, initial_step, decay, warmup)
      for parts in zip(rules, states, averages, sums)))
  # During the warm-up tables follow click rates, and no hypothesis has learned
  # anything that could speak for it.
  in_warmup = tf.logical_and(
      rules[0].starts_from_clicks, states[0]["num_updates"] < warmup)
  return new_states, new_averages, tf.where(
      in_warmup, evidence,
      move_evidence(evidence, log_likelihoods, num_batches))


def move_evidence(evidence, log_likelihoods, num_batches):
  """The running log-likelihood of hypotheses: .99 of the old, plus the new.

  Each batch is judged by parameters from before it (prequential: Dawid, 1984),
  so no hypothesis is judged by what it has learned from.

  Args:
    evidence: `[S]`.
    log_likelihoods: `[S]`, sums over `num_batches` batches.
    num_batches: a scalar.

  Returns:
    `[S]`, of which the largest is 0, since only differences count.

  >>> move_evidence(tf.zeros([2]), tf.constant([-7.0, -5.0]), 1.0).numpy()
  array([-2.,  0.], dtype=float32)
  """
  evidence = tf.pow(_EVIDENCE_DECAY, num_batches) * evidence + log_likelihoods
  return evidence - tf.reduce_max(evidence)


def _examination_step(rule, state, seen, average, rate, in_warmup, prior):
  """New theta and theta-, or p1 and p0, from statistics or click rates."""
  theta = state["examination"]
  shape = tf.concat([tf.shape(theta), [examination.NUM_STATISTICS]], 0)
  seen, average = tf.reshape(seen, shape), tf.reshape(average, shape)
  start = constrain_examination(
      click_rate_start(
          *tf.unstack(average, axis=-1)[:2], rule.initial_scale,
          rule.smoothing, rule.initial_power),
      rule.min_examination)

  def choose(learned, first):
    return tf.where(in_warmup, first, learned)

  if rule.trust_bias == "position":
    irrelevant = state["click_irrelevant"]
    p1, p0 = click_estimates(seen, theta, irrelevant)
    if rule.prior_clicks:
      p1, p0 = shrinkage.shrink_to_evidence(
          (p1, p0), seen, prior, rule.num_distances)
    p1 = constrain_examination(
        move(theta, p1, rate), rule.min_examination)
    p0 = constrain_click_irrelevant(move(irrelevant, p0, rate), p1)
    # 0 is a fixed point: the position-based model. Rounding must not leave it.
    p0 = tf.where(irrelevant > 0, p0, 0.0)
    start *= relevance_start(
        _highest_rate(average, rule.num_distances), rule.initial_scale,
        rule.initial_click_irrelevant)[1]
    return {"examination": choose(p1, start),
            "click_irrelevant": choose(
                p0, rule.initial_click_irrelevant * start)}
  unclicked = state["examination_unclicked"]
  new, new_unclicked = examination_estimates(seen, theta, unclicked)

  def constrain(values):
    return constrain_examination(values, rule.min_examination)

  return {"examination": choose(constrain(move(theta, new, rate)), start),
          "examination_unclicked": choose(
              constrain(move(unclicked, new_unclicked, rate)), start)}


def _highest_rate(statistics, num_distances):
  """The rate of feedback at the most clicked position, `[C, 1]`."""
  if num_distances > 1:
    shape = tf.shape(statistics)
    statistics = tf.reduce_sum(tf.reshape(
        statistics, [shape[0], -1, num_distances, shape[2]]), axis=2)
  count, clicked = tf.unstack(statistics, axis=-1)[:2]
  return tf.reduce_max(
      masking.safe_ratio(clicked, count, 0.0), axis=1, keepdims=True)
