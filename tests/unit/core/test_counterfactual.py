"""Tests of ultra_tfr.core.counterfactual."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking

THETA = np.array([0.8, 0.3, 0.1])
TRUST = np.array([0.98, 0.9, 0.8]), np.array([0.6, 0.3, 0.1])
BETA = np.array([0.2, 0.9, 0.6])
PATTERNS = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
ORDERS = [np.array(order) for order in itertools.permutations([1.0, 2.0, 3.0])]
DTYPES = {tf.float32: 1e-6, tf.float64: 1e-12}
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)


def pattern_probabilities(click_probability):
  return np.prod(np.where(
      PATTERNS == 1, click_probability, 1 - click_probability), axis=1)


def expected_totals(scores, click_probability, dtype, *, scale, topn=(2, None),
                    p1=1.0, p0=None):
  """The totals of a list, averaged over all patterns of clicks."""
  def tensor(values):
    return tf.constant(np.broadcast_to(values, PATTERNS.shape), dtype)

  mask = tf.fill(PATTERNS.shape, True)
  estimates, _, _ = counterfactual.relevance_estimates(
      tensor(PATTERNS), mask, tensor(p1), None if p0 is None else tensor(p0),
      scale=scale)
  totals = counterfactual.request_totals(tensor(scores), estimates, mask, topn)
  weights = pattern_probabilities(click_probability)
  return {name: np.tensordot(weights, value.numpy().astype(np.float64), 1)
          for name, value in totals._asdict().items()}


def true_totals(ranks, relevance):
  """What the totals estimate, with cutoffs 2 and none."""
  top, discount = ranks <= 2, 1 / np.log2(1 + ranks)
  return {
      "gain": relevance.sum(),
      "rank": relevance @ ranks,
      "dcg": np.array([relevance @ (discount * top), relevance @ discount]),
      "reciprocal_rank": np.array(
          [relevance @ (top / ranks), relevance @ (1 / ranks)]),
  }


@dtypes
@pytest.mark.parametrize("ranks", ORDERS, ids=str)
def test_ips_is_exact_on_all_patterns_of_clicks(ranks, dtype):
  found = expected_totals(
      -ranks, THETA * BETA, dtype, p1=THETA, scale=THETA[0])
  for name, value in true_totals(ranks, THETA[0] * BETA).items():
    np.testing.assert_allclose(
        found[name], value, rtol=DTYPES[dtype], err_msg=name)


@dtypes
@pytest.mark.parametrize("ranks", ORDERS, ids=str)
def test_affine_is_exact_under_trust_bias(ranks, dtype):
  p1, p0 = THETA * TRUST[0], THETA * TRUST[1]
  found = expected_totals(
      -ranks, p1 * BETA + p0 * (1 - BETA), dtype, p1=p1, p0=p0,
      scale=p1[0] - p0[0])
  # Clicks at position 1 beyond those on an irrelevant item there.
  beyond = p1[0] * BETA + p0[0] * (1 - BETA) - p0[0]
  for name, value in true_totals(ranks, beyond).items():
    np.testing.assert_allclose(
        found[name], value, rtol=3 * DTYPES[dtype], err_msg=name)


@pytest.mark.parametrize("trust", [False, True])
def test_clicks_as_they_are_prefer_the_logged_order(trust):
  p1, p0 = THETA * TRUST[0], THETA * TRUST[1] * trust
  clicks = p1 * BETA + p0 * (1 - BETA)
  logged, best = np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 2.0])
  truth = [true_totals(r, p1[0] * BETA)["dcg"][0] for r in (logged, best)]
  naive = [expected_totals(-r, clicks, tf.float64, scale=1.0)["dcg"][0]
           for r in (logged, best)]
  assert truth[1] > truth[0] + 0.1
  if trust:
    # Inverse propensities alone do not see what trust adds.
    assert naive[1] < naive[0]
    ips = [expected_totals(-r, clicks, tf.float64, p1=p1, scale=p1[0])["dcg"]
           for r in (logged, best)]
    assert np.abs(np.array(ips)[:, 0] - truth).max() > 0.1
  else:
    assert max(abs(n / t - 1) for n, t in zip(naive, truth)) > 0.4


def test_the_scale_of_the_propensities_does_not_matter():
  rng = np.random.default_rng(0)
  feedback, p1 = rng.random([4, 5]), rng.uniform(0.1, 0.5, [4, 5])
  mask = tf.fill([4, 5], True)
  found = [counterfactual.relevance_estimates(
      tf.constant(feedback), mask, tf.constant(c * p1), scale=c * p1[:, :1],
      max_weight=2.0) for c in (1.0, 1.9)]
  np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
  # At position 1 feedback stays what it is.
  np.testing.assert_allclose(found[0][0][:, 0], feedback[:, 0])


def test_clipping_after_the_scale():
  feedback, p1 = [[1.0, 3.0, 0.0]], [[0.5, 0.1, 0.1]]
  estimates, weights, clipped = counterfactual.relevance_estimates(
      tf.constant(feedback), tf.fill([1, 3], True), tf.constant(p1),
      scale=0.5, max_weight=2.0)
  np.testing.assert_allclose(weights, [[1.0, 2.0, 2.0]])
  np.testing.assert_allclose(estimates, [[1.0, 6.0, 0.0]])
  np.testing.assert_allclose(clipped, [[0.0, 9.0, 0.0]], rtol=1e-6)


def test_clipping_the_affine_estimates():
  estimates, weights, clipped = counterfactual.relevance_estimates(
      tf.constant([[1.0, 0.0]]), tf.fill([1, 2], True),
      tf.constant([[0.5, 0.5]]), tf.constant([[0.25, 0.25]]), max_weight=2.0)
  np.testing.assert_allclose(weights, [[2.0, 2.0]])
  np.testing.assert_allclose(estimates, [[1.5, -0.5]])
  np.testing.assert_allclose(clipped, [[2.0, 0.0]])


@pytest.mark.parametrize("p0", [None, 0.01])
@pytest.mark.parametrize("max_weight", [1.0, 3.0, None])
def test_a_right_model_gives_back_what_the_cap_takes(max_weight, p0):
  """Nobody looks below a click, so what stands there looked irrelevant."""
  p1, beta = np.array([[0.8, 0.3, 0.02]]), np.array([[0.3, 0.6, 0.5]])
  floor = 0.0 if p0 is None else p0
  irrelevant = None if p0 is None else np.full([1, 3], p0)
  scale = 0.8 - floor

  def expected(relevance):
    """The mean over clicks, which come with the chance p0 + (p1 - p0) beta."""
    clicks = [counterfactual.relevance_estimates(
        np.full([1, 3], click), tf.fill([1, 3], True), p1, irrelevant,
        scale=scale, max_weight=max_weight, relevance=relevance)[0]
              for click in (0.0, 1.0)]
    chance = floor + (p1 - floor) * beta
    return clicks[0] * (1 - chance) + clicks[1] * chance

  np.testing.assert_allclose(expected(beta), scale * beta, rtol=1e-6)
  # A wrong one counts where the cap binds, and nowhere else.
  is_capped = max_weight is not None and (
      max_weight < scale / (p1 - floor) - 1e-9)
  np.testing.assert_array_equal(
      np.abs(expected(beta * 0.5) - scale * beta) > 1e-6, is_capped)
  np.testing.assert_array_equal(
      np.abs(expected(None) - scale * beta) > 1e-6, is_capped)


@pytest.mark.parametrize("p1, p0", [(0.3, 0.3), (0.0, 0.0), (0.0, None)])
def test_weights_are_finite_where_nothing_is_known(p1, p0):
  arguments = (tf.constant([[1.0]]), tf.constant([[True]]), tf.constant([[p1]]),
               None if p0 is None else tf.constant([[p0]]))
  _, weights, _ = counterfactual.relevance_estimates(*arguments)
  np.testing.assert_allclose(weights, 1 / masking.MIN_PROBABILITY, rtol=1e-6)
  estimates, weights, _ = counterfactual.relevance_estimates(
      *arguments, max_weight=5.0)
  assert weights.numpy() == 5.0
  np.testing.assert_allclose(estimates, 5.0 * (1.0 - (p0 or 0.0)))


def test_padding_adds_nothing_whatever_it_holds():
  nan = math.nan
  mask = tf.constant([[True, False, True]])
  estimates = counterfactual.relevance_estimates(
      tf.constant([[1.0, nan, 2.0]]), mask, tf.constant([[0.5, nan, 0.5]]),
      tf.constant([[0.0, nan, 0.0]]), scale=tf.constant([[1.0, nan, 1.0]]),
      max_weight=1.5)
  for tensor, right in zip(estimates, ([1.5, 0, 3], [1.5, 0, 1.5],
                                       [0.5, 0, 1])):
    np.testing.assert_allclose(tensor, [right])
  found = counterfactual.request_totals(
      tf.constant([[1.0, nan, 2.0]]), tf.constant([[1.0, nan, 2.0]]), mask,
      (1, None))
  right = counterfactual.request_totals(
      tf.constant([[1.0, 2.0]]), tf.constant([[1.0, 2.0]]),
      tf.constant([[True, True]]), (1, None))
  for name, value in found._asdict().items():
    np.testing.assert_allclose(value, getattr(right, name), err_msg=name)


def test_discounts():
  ranks = np.arange(1.0, 6.0)
  for topn in (1, 3, None):
    inside = ranks <= (topn or 9)
    np.testing.assert_allclose(
        counterfactual.dcg_discounts(tf.constant(ranks), topn),
        [i / math.log2(1 + k) for i, k in zip(inside, ranks)], rtol=1e-12)
    np.testing.assert_allclose(
        counterfactual.reciprocal_ranks(tf.constant(ranks), topn),
        inside / ranks, rtol=1e-12)


def test_the_ideal_is_the_best_of_all_orders():
  rng = np.random.default_rng(1)
  estimates = rng.normal(size=[1, 5])  # Some are negative.
  mask = tf.constant([[True, True, False, True, True]])
  topn = (1, 3, None)
  dcg = [counterfactual.request_totals(
      tf.constant([order], tf.float64), tf.constant(estimates), mask, topn)
      for order in itertools.permutations(range(5))]
  best = np.max([totals.dcg[0] for totals in dcg], axis=0)
  np.testing.assert_allclose(dcg[0].ideal_dcg[0], best, rtol=1e-12)
  assert (estimates < 0).any()


def test_equal_scores_get_the_worst_order():
  estimates = [[3.0, -1.0, 0.0, 1.0]]
  mask = tf.fill([1, 4], True)
  orders = [counterfactual.request_totals(
      tf.constant([order], tf.float64), tf.constant(estimates, tf.float64),
      mask, (2, None)) for order in itertools.permutations(range(4))]
  tied = counterfactual.request_totals(
      tf.zeros([1, 4], tf.float64), tf.constant(estimates, tf.float64), mask,
      (2, None))
  np.testing.assert_allclose(
      tied.dcg[0], np.min([t.dcg[0] for t in orders], axis=0))
  np.testing.assert_allclose(
      tied.rank[0], np.max([t.rank[0] for t in orders], axis=0))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_graph_with_known_shapes(jit_compile):
  rng = np.random.default_rng(2)
  inputs = [tf.constant(rng.uniform(0.1, 1.0, [3, 4]), tf.float32)
            for _ in range(4)]
  mask = tf.constant(rng.random([3, 4]) < 0.7)

  def compute(feedback, p1, p0, scores):
    estimates, weights, clipped = counterfactual.relevance_estimates(
        feedback, mask, p1 + p0, p0, scale=p1[:, :1], max_weight=1.2)
    totals = counterfactual.request_totals(scores, estimates, mask, (2, None))
    assert estimates.shape == weights.shape == clipped.shape == [3, 4]
    assert totals.dcg.shape == totals.ideal_dcg.shape == [3, 2]
    assert totals.gain.shape == totals.rank.shape == [3]
    return [estimates, weights, clipped, *totals]

  compiled = tf.function(compute, jit_compile=jit_compile)
  for found, right in zip(compiled(*inputs), compute(*inputs)):
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
