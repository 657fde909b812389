"""The debiased pair sum is exact in expectation: every outcome enumerated.

A list of three items with independent binary relevance, shown at positions 1
to 3. All patterns of clicks, and of examination where that matters, are summed
with their probabilities; the expectation of the debiased sum of pair losses
must be the sum over pairs of P(r_a > r_b) times the loss of the pair.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import oracles
import ultra_tfr
from ultra_tfr.core import examination
from ultra_tfr.core import pairs
from ultra_tfr.core import trust
from ultra_tfr.core import weights as weights_lib

PATTERNS = np.array(list(itertools.product([0, 1], repeat=3)))
SCORES = np.array([0.3, -1.1, 0.8])

THETAS = {
    "steep": [0.68, 0.34, 0.06],
    "flat": [0.9, 0.85, 0.8],
    "full": [1.0, 1.0, 1.0],
    "rising": [0.2, 0.5, 1.0],
}
BETAS = {
    "mixed": [0.3, 0.7, 0.5],
    "rare": [0.02, 0.01, 0.05],
    "common": [0.95, 0.6, 0.99],
}
# Click probabilities on relevant and on irrelevant items, by position.
CLICKS = {
    "noise": ([0.8, 0.5, 0.2], [0.08, 0.05, 0.02]),
    "trust": ([0.68, 0.34, 0.1], [0.44, 0.11, 0.02]),
    "strong": ([0.6, 0.5, 0.4], [0.55, 0.4, 0.3]),
    "certain": ([1.0, 0.9, 0.5], [0.5, 0.0, 0.1]),
}

worlds = pytest.mark.parametrize(
    "theta, beta", [pytest.param(t, b, id=f"{tn}-{bn}")
                    for tn, t in THETAS.items() for bn, b in BETAS.items()])
noisy_worlds = pytest.mark.parametrize(
    "p1, p0, beta", [pytest.param(*p, b, id=f"{pn}-{bn}")
                     for pn, p in CLICKS.items() for bn, b in BETAS.items()])


def _true_sum(beta):
  """Sum over pairs of P(r_a > r_b) times the loss of the pair."""
  return sum(
      beta[a] * (1 - beta[b]) * oracles.logistic_loss(SCORES[a], SCORES[b])
      for a in range(3) for b in range(3) if a != b)


def _pattern_probabilities(p1, p0, beta):
  """The probability of each row of PATTERNS."""
  click = np.array(p1) * beta + np.array(p0) * (1 - np.array(beta))
  return np.prod(np.where(PATTERNS == 1, click, 1 - click), axis=1)


def _expected_sum(probabilities, weights):
  """E[sum over c_a > c_b of weight times loss], `[8, 3, 3]` weights."""
  counts = pairs.preferred(
      tf.constant(PATTERNS, tf.float64), tf.fill([8, 3], True))
  losses = pairs.logistic_loss(tf.constant([SCORES]))
  sums = tf.reduce_sum(
      tf.where(counts, weights * losses, tf.zeros_like(weights)), [1, 2])
  return float(np.sum(probabilities * sums.numpy()))


def _by_pattern(values):
  return tf.constant(np.tile(np.array(values, np.float64), [8, 1]))


def _logits(beta):
  return _by_pattern([oracles.logit(b) for b in beta])


def _closed_form(p1, p0, beta):
  return weights_lib.item_pair_weights(
      tf.constant(PATTERNS > 0), _logits(beta), _by_pattern(p1),
      _by_pattern(p0))


def _ipw(theta, beta, form, t=None):
  """loss_IPW's weights with gamma = beta_a (1 - beta_b)."""
  clicked = tf.constant(PATTERNS > 0)
  model = trust.pair_model(
      _by_pattern(theta), _by_pattern(beta),
      trust.binary_preference(_by_pattern(beta)), 1.0, 0.0)
  if form == "item":
    examined = examination.examination_posterior(
        clicked, _logits(beta), _by_pattern(theta))[:, tf.newaxis, :]
    examined += tf.zeros_like(model.preference)
  else:
    t = theta if t is None else t
    examined = trust.examined_given_preferred(
        model, _by_pattern(t)[:, tf.newaxis, :])
  return weights_lib.trust_pair_weights(clicked, model, examined, False)


# On the core functions, in float64.


@worlds
def test_ipw_as_closed_form_without_noise_is_exact(theta, beta):
  expected = _expected_sum(
      _pattern_probabilities(theta, [0, 0, 0], beta),
      _closed_form(theta, [0, 0, 0], beta))
  np.testing.assert_allclose(expected, _true_sum(beta), rtol=1e-6)


@worlds
@pytest.mark.parametrize("form", ["item", "prior"])
def test_ipw_is_exact_with_the_item_and_the_prior_form(theta, beta, form):
  expected = _expected_sum(
      _pattern_probabilities(theta, [0, 0, 0], beta),
      _ipw(theta, beta, form))
  np.testing.assert_allclose(expected, _true_sum(beta), rtol=1e-6)


@noisy_worlds
def test_closed_form_is_exact_under_position_level_trust_bias(p1, p0, beta):
  expected = _expected_sum(
      _pattern_probabilities(p1, p0, beta), _closed_form(p1, p0, beta))
  np.testing.assert_allclose(expected, _true_sum(beta), rtol=1e-6)


def test_click_patterns_follow_from_examination_and_relevance():
  # The same expectation from examination and relevance, one by one.
  theta, beta = THETAS["steep"], BETAS["mixed"]
  probabilities = np.zeros(8)
  for examined in PATTERNS:
    for relevant in PATTERNS:
      chance = np.prod(np.where(examined, theta, 1 - np.array(theta)))
      chance *= np.prod(np.where(relevant, beta, 1 - np.array(beta)))
      pattern = np.flatnonzero((PATTERNS == examined * relevant).all(1))[0]
      probabilities[pattern] += chance
  np.testing.assert_allclose(
      probabilities, _pattern_probabilities(theta, [0, 0, 0], beta),
      rtol=1e-12)


@pytest.mark.parametrize("theta", ["steep", "flat", "rising"])
@pytest.mark.parametrize("beta", list(BETAS))
def test_the_naive_pair_sum_is_biased(theta, beta):
  theta, beta = THETAS[theta], BETAS[beta]
  probabilities = _pattern_probabilities(theta, [0, 0, 0], beta)
  naive = _expected_sum(probabilities, tf.ones([8, 3, 3], tf.float64))
  # No constant repairs it: the pairs are wrong by different factors.
  counts = pairs.preferred(
      tf.constant(PATTERNS, tf.float64), tf.fill([8, 3], True)).numpy()
  by_pair = np.einsum("p,pab->ab", probabilities, counts)
  truth = np.array(beta)[:, None] * (1 - np.array(beta))
  off = ~np.eye(3, dtype=bool)
  ratios = by_pair[off] / truth[off]
  assert abs(naive / _true_sum(beta) - 1) > 0.02
  assert ratios.max() > 1.05 * ratios.min()


def test_ignoring_trust_bias_leaves_a_bias():
  (p1, p0), beta = CLICKS["strong"], BETAS["mixed"]
  expected = _expected_sum(
      _pattern_probabilities(p1, p0, beta), _closed_form(p1, [0] * 3, beta))
  assert abs(expected / _true_sum(beta) - 1) > 0.04


def _second_item_ratio(theta, beta, form, t=None):
  """E[weight of the pair (1, 2)] over P(r_1 > r_2)."""
  counts = (PATTERNS[:, 0] > PATTERNS[:, 1])
  weights = _ipw(theta, beta, form, t).numpy()[:, 0, 1]
  chance = np.sum(
      _pattern_probabilities(theta, [0, 0, 0], beta) * counts * weights)
  return chance / (beta[0] * (1 - beta[1]))


@pytest.mark.parametrize("kinds", [(0.1, 0.7), (0.4, 0.4)])
def test_position_form_is_not_exact_but_item_and_prior_are(kinds):
  # Two kinds of items share position 2; theta- is their mean posterior.
  theta = [0.8, 0.4, 0.2]
  unclicked = [
      np.average([oracles.examination_posterior(0, b, t) for b in kinds],
                 weights=[1 - t * b for b in kinds]) for t in theta]
  ratios = {
      form: [_second_item_ratio(theta, [0.5, b, 0.5], form,
                                unclicked if form == "position" else None)
             for b in kinds] for form in ("item", "prior", "position")}
  np.testing.assert_allclose(ratios["item"], 1.0, rtol=1e-6)
  np.testing.assert_allclose(ratios["prior"], 1.0, rtol=1e-6)
  # theta- knows already that there was no click, and g' says it again.
  assert max(ratios["position"]) < 0.9


def test_position_form_is_right_in_the_limit_of_rare_relevance():
  theta = [0.8, 0.4, 0.2]
  for rare, tolerance in ((1e-2, 2e-2), (1e-4, 2e-4)):
    unclicked = [oracles.examination_posterior(0, rare, t) for t in theta]
    ratio = _second_item_ratio(theta, [0.5, rare, 0.5], "position", unclicked)
    np.testing.assert_allclose(ratio, 1.0, atol=tolerance)


def test_item_form_is_exact_for_graded_feedback():
  # Grades 0, 1, 2; an examined item shows its grade, another one 0.
  grades = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.7, 0.2, 0.1]])
  theta = np.array([0.7, 0.4, 0.1])
  beta = 1 - grades[:, 0]
  feedback = np.array(list(itertools.product(range(3), repeat=3)))
  # P(c): theta times the grade's share, and what is left at 0.
  chances = theta[:, None] * grades
  chances[:, 0] += 1 - theta
  probabilities = np.prod(chances[np.arange(3), feedback], axis=1)

  def tile(values):
    return tf.constant(np.tile(values, [len(feedback), 1]))

  weights = weights_lib.item_pair_weights(
      tf.constant(feedback > 0), tile(np.log(beta / (1 - beta))),
      tile(theta), tile(0.0 * theta)).numpy()
  greater = feedback[:, :, None] > feedback[:, None, :]
  found = np.einsum("p,pab,pab->ab", probabilities, greater, weights)
  for a in range(3):
    for b in range(3):
      truth = sum(grades[a, x] * grades[b, y]
                  for x in range(3) for y in range(x))
      if a != b:
        np.testing.assert_allclose(found[a, b], truth, rtol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
def test_bayes_ipw_is_exact_under_pairwise_trust_bias(normalize):
  """A list of two: both examined, one draw decides the order shown.

  As printed, equation (16) has the expectation eps+ gamma; divided by eps+ it
  has gamma.
  """
  plus = np.array([[0.9, 0.85], [0.7, 0.8]])
  minus = np.array([[0.1, 0.2], [0.08, 0.1]])
  theta = np.array([0.7, 0.3])
  # Such that g' is at most beta_a, as in any consistent world.
  for beta in ([0.6, 0.5], [0.9, 0.8], [0.4, 0.7]):
    beta = np.array(beta)
    gamma = beta[:, None] * (1 - beta)
    model = trust.pair_model(
        tf.constant([theta]), tf.constant([beta]), tf.constant([gamma]),
        tf.constant([plus]), tf.constant([minus]))
    weights = weights_lib.trust_pair_weights(
        tf.constant([[False, False]]), model,
        trust.examined_given_preferred(
            model, tf.constant([theta])[:, tf.newaxis, :]),
        normalize).numpy()[0]
    for a, b in ((0, 1), (1, 0)):
      seen = plus[a, b] * gamma[a, b] + minus[a, b] * (1 - gamma[a, b])
      assert seen < beta[a]
      shown = theta[a] * (theta[b] * seen + (1 - theta[b]) * beta[a])
      truth = gamma[a, b] * (1.0 if normalize else plus[a, b])
      np.testing.assert_allclose(shown * weights[a, b], truth, rtol=1e-6)


# Through the public loss, in float32.


def _public_sum(loss, probabilities, beta):
  """The expectation of the loss's SUM, its scale undone."""
  y_pred = np.stack(
      [np.tile(SCORES, [8, 1]),
       np.tile([oracles.logit(b) for b in beta], [8, 1])], axis=-1)
  by_item = loss(PATTERNS.astype(np.float32), y_pred.astype(np.float32))
  total = np.sum(probabilities[:, None] * by_item.numpy())
  return total / float(loss.position_bias.scale())


def _loss(bias, **options):
  # Without the cross-entropy of the relevance head, which has no part here.
  return ultra_tfr.losses.UnbiasedPairwiseLoss(
      bias, head_weight=0.0, reduction="none", **options)


@pytest.mark.smoke
@worlds
@pytest.mark.parametrize("form", ["item", "prior"])
def test_public_loss_is_exact_without_trust_bias(theta, beta, form):
  bias = ultra_tfr.layers.PositionBias(3, examination=theta)
  found = _public_sum(
      _loss(bias, examination_posterior=form),
      _pattern_probabilities(theta, [0, 0, 0], beta), beta)
  np.testing.assert_allclose(found, _true_sum(beta), rtol=1e-5)


@pytest.mark.smoke
@noisy_worlds
def test_public_loss_is_exact_under_position_level_trust_bias(p1, p0, beta):
  theta = np.array([0.9, 0.8, 0.6])
  # p1 = theta e+ and p0 = theta e-; both factors must be probabilities.
  theta = np.maximum(theta, p1)
  bias = ultra_tfr.layers.PositionBias(
      3, trust_bias="position", examination=theta,
      trust_positive=np.array(p1) / theta,
      trust_negative=np.array(p0) / theta)
  found = _public_sum(
      _loss(bias), _pattern_probabilities(p1, p0, beta), beta)
  np.testing.assert_allclose(found, _true_sum(beta), rtol=1e-5)


def test_public_loss_with_everything_examined_is_biased_here():
  # Ignoring the bias is the naive loss, which the public loss must not be.
  theta, beta = THETAS["steep"], BETAS["mixed"]
  probabilities = _pattern_probabilities(theta, [0, 0, 0], beta)
  naive = _public_sum(
      _loss(ultra_tfr.layers.PositionBias(3, examination=[1.0] * 3)),
      probabilities, beta)
  assert abs(naive / _true_sum(beta) - 1) > 0.1


def test_a_scalar_score_that_is_the_relevance_logit_is_exact_too():
  theta, beta = THETAS["steep"], BETAS["mixed"]
  logits = np.array([oracles.logit(b) for b in beta])
  loss = _loss(ultra_tfr.layers.PositionBias(3, examination=theta))
  by_item = loss(PATTERNS.astype(np.float32),
                 np.tile(logits, [8, 1]).astype(np.float32)).numpy()
  probabilities = _pattern_probabilities(theta, [0, 0, 0], beta)
  found = np.sum(probabilities[:, None] * by_item) / theta[0]**2
  truth = sum(
      beta[a] * (1 - beta[b]) * oracles.logistic_loss(logits[a], logits[b])
      for a in range(3) for b in range(3) if a != b)
  np.testing.assert_allclose(found, truth, rtol=1e-5)
