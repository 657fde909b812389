"""The losses at the ends of their parameters, through the public names."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import oracles
import ultra_tfr

K = 6
THETA = [0.9, 0.7, 0.5, 0.4, 0.2, 0.1]
UNCLICKED = THETA  # A layer with given propensities has theta- = theta.


def _lists(seed=11, padding=0.25, num_grades=3, num_items=K):
  lists = oracles.random_lists(
      seed, num_lists=6, num_items=num_items, num_positions=K,
      num_grades=num_grades, padding=padding, min_beta=0.1)
  for items in lists:
    # As without explicit positions.
    items["position"] = list(range(1, num_items + 1))
  return lists


def _y_true(lists):
  """Feedback with padding as -1."""
  return np.where(oracles.column(lists, "valid"),
                  oracles.column(lists, "feedback"), -1.0).astype(np.float32)


def _y_pred(lists, preference=None):
  heads = [np.array(oracles.column(lists, "score")),
           np.vectorize(oracles.logit)(oracles.column(lists, "beta"))]
  if preference is not None:
    heads.append(preference)
  return np.stack(heads, axis=-1).astype(np.float32)


def _scores(lists):
  return np.array(oracles.column(lists, "score"), np.float32)


def _loss(bias, reduction="sum", **options):
  """The loss on pairs alone."""
  return ultra_tfr.losses.UnbiasedPairwiseLoss(
      bias, head_weight=0.0, reduction=reduction, **options)


def _pairwise_bias(plus=1.0, minus=0.0, examination=THETA):
  return ultra_tfr.layers.PositionBias(
      K, trust_bias="pairwise", examination=examination, trust_positive=plus,
      trust_negative=minus)


def _bias(examination=THETA):
  return ultra_tfr.layers.PositionBias(K, examination=examination)


def _oracle_sum(lists, weight):
  """The sum over lists; `weight` is a function of (items, a, b)."""
  return sum(
      sum(oracles.pair_loss_sums(items, functools.partial(weight, items)))
      for items in lists)


def _bayes(items, a, b, form, plus, minus, normalize):
  """A Bayes-IPW weight with the binary preference."""
  i, j = items["position"][a] - 1, items["position"][b] - 1
  beta_a, beta_b = items["beta"][a], items["beta"][b]
  gamma = oracles.binary_preference(beta_a, beta_b)
  weight = oracles.bayes_ipw_weight(
      items["feedback"][b] > 0, THETA[i], THETA[j],
      oracles.examined_given_preferred(
          form, THETA[j], UNCLICKED[j], beta_a, beta_b, gamma, plus, minus),
      oracles.preference_given_examined(beta_a, gamma, plus, minus))
  return weight / plus if normalize else weight


# No trust bias.


@pytest.mark.parametrize("form", ["item", "prior", "position"])
@pytest.mark.parametrize("normalize", [True, False])
def test_trust_that_is_never_wrong_gives_ipw(form, normalize):
  lists = _lists()
  options = {"examination_posterior": form, "normalize_trust": normalize}
  args = _y_true(lists), _y_pred(lists)
  bayes = float(_loss(_pairwise_bias(), **options)(*args))
  np.testing.assert_allclose(
      bayes, float(_loss(_bias(), **options)(*args)), rtol=1e-5)
  expected = THETA[0]**2 * _oracle_sum(
      lists, lambda items, a, b: _bayes(items, a, b, form, 1.0, 0.0, False))
  np.testing.assert_allclose(bayes, expected, rtol=1e-5)


def test_trust_by_position_without_noise_gives_ipw():
  lists = _lists()
  args = _y_true(lists), _y_pred(lists)
  closed = ultra_tfr.layers.PositionBias(
      K, trust_bias="position", examination=THETA, trust_positive=1.0,
      trust_negative=0.0)
  np.testing.assert_allclose(
      float(_loss(closed)(*args)), float(_loss(_bias())(*args)), rtol=1e-6)


@pytest.mark.parametrize("form", ["item", "prior", "position"])
@pytest.mark.parametrize("normalize", [True, False])
def test_no_lambda_weight_gives_bayes_ipw(form, normalize):
  lists = _lists()
  plus, minus = 0.8, 0.02
  found = _loss(
      _pairwise_bias(plus, minus), lambda_weight=None,
      examination_posterior=form, normalize_trust=normalize)(
          _y_true(lists), _y_pred(lists))
  expected = THETA[0]**2 * _oracle_sum(
      lists, lambda items, a, b: _bayes(
          items, a, b, form, plus, minus, normalize))
  np.testing.assert_allclose(float(found), expected, rtol=1e-5)


@pytest.mark.parametrize("minus", [0.02, 0.4])
def test_normalized_prior_weight_of_clicks_is_gamma_over_q(minus):
  # With the larger eps- the clip of g' to beta_a is at work in many pairs.
  lists = _lists(num_grades=2)
  plus = 0.8

  def weight(items, a, b):
    i, j = items["position"][a] - 1, items["position"][b] - 1
    beta_a = items["beta"][a]
    gamma = oracles.binary_preference(beta_a, items["beta"][b])
    return gamma / oracles.outcome(
        THETA[i], THETA[j], beta_a, gamma, plus, minus)

  found = _loss(_pairwise_bias(plus, minus), examination_posterior="prior")(
      _y_true(lists), _y_pred(lists))
  np.testing.assert_allclose(
      float(found), THETA[0]**2 * _oracle_sum(lists, weight), rtol=1e-5)


def test_a_preference_tower_takes_the_place_of_the_binary_preference():
  lists = _lists(num_grades=2)
  preference = np.random.default_rng(0).normal(size=[6, K])
  tau, plus, minus = 0.4, 0.8, 0.02
  number = {id(items): n for n, items in enumerate(lists)}

  def weight(items, a, b):
    i, j = items["position"][a] - 1, items["position"][b] - 1
    g = preference[number[id(items)]]
    gamma = min(oracles.sigmoid(g[a] - g[b] - tau), items["beta"][a])
    m = plus * gamma / (plus * gamma + minus * (1 - gamma))
    h = oracles.examined_given_preferred(
        "item", THETA[j], None, items["beta"][a], items["beta"][b], gamma,
        plus, minus)
    return m * h / (THETA[i] * THETA[j]) / plus

  found = _loss(_pairwise_bias(plus, minus), preference="tower",
                tie_threshold=tau)(_y_true(lists), _y_pred(lists, preference))
  np.testing.assert_allclose(
      float(found), THETA[0]**2 * _oracle_sum(lists, weight), rtol=1e-5)


# Everything examined: TF-Ranking's own loss.


@pytest.mark.smoke
@pytest.mark.parametrize("padding", [0.0, 0.3])
@pytest.mark.parametrize("num_grades", [2, 4])
def test_everything_examined_gives_the_sum_of_the_plain_pairwise_loss(
    padding, num_grades):
  lists = _lists(padding=padding, num_grades=num_grades)
  args = _y_true(lists), _scores(lists)
  plain = tfr.keras.losses.PairwiseLogisticLoss(
      reduction=tf.keras.losses.Reduction.SUM)(*args)
  np.testing.assert_allclose(
      float(_loss(_bias([1.0] * K))(*args)), float(plain), rtol=1e-6)
  np.testing.assert_allclose(
      float(plain), _oracle_sum(lists, lambda items, a, b: 1.0), rtol=1e-6)


def test_everything_examined_gives_the_mean_of_unpadded_lists():
  lists = _lists(padding=0.0)
  args = _y_true(lists), _scores(lists)
  np.testing.assert_allclose(
      float(_loss(_bias([1.0] * K), "auto")(*args)),
      float(tfr.keras.losses.PairwiseLogisticLoss()(*args)), rtol=1e-6)


def test_the_mean_is_over_valid_items_and_padding_changes_nothing():
  lists = _lists(padding=0.3)
  y_true, scores = _y_true(lists), _scores(lists)
  loss = _loss(_bias([1.0] * K), "auto")
  sums = [oracles.pair_loss_sums(items, lambda a, b: 1.0) for items in lists]
  valid = oracles.column(lists, "valid")
  np.testing.assert_allclose(
      float(loss(y_true, scores)),
      oracles.weighted_mean(sums, np.ones([6, K]), valid), rtol=1e-6)
  longer = np.pad(y_true, [[0, 0], [0, 4]], constant_values=-1)
  np.testing.assert_allclose(
      float(loss(longer, np.pad(scores, [[0, 0], [0, 4]]))),
      float(loss(y_true, scores)), rtol=1e-6)


def test_item_weights_weigh_the_preferred_item():
  lists = _lists(padding=0.3)
  weights = np.array(oracles.column(lists, "weight"))
  sums = [oracles.pair_loss_sums(items, lambda a, b: 1.0) for items in lists]
  valid = oracles.column(lists, "valid")
  for reduction, oracle in (("sum", oracles.weighted_sum),
                            ("auto", oracles.weighted_mean)):
    found = _loss(_bias([1.0] * K), reduction)(
        _y_true(lists), _scores(lists), sample_weight=weights)
    np.testing.assert_allclose(
        float(found), oracle(sums, weights, valid), rtol=1e-6)


_LAMBDA_WEIGHTS = {
    "ndcg": lambda: tfr.keras.losses.NDCGLambdaWeight(),
    "ndcg of the top 3": lambda: tfr.keras.losses.NDCGLambdaWeight(topn=3),
    "smooth ndcg": lambda: tfr.keras.losses.NDCGLambdaWeight(
        smooth_fraction=0.5),
    "dcg": lambda: tfr.keras.losses.DCGLambdaWeight(),
    "precision": lambda: tfr.keras.losses.PrecisionLambdaWeight(topn=2),
}


@pytest.mark.parametrize("name", list(_LAMBDA_WEIGHTS))
def test_everything_examined_gives_the_lambda_losses_too(name):
  # Random scores have no ties, so the ranks are the same.
  lists = _lists(padding=0.0)
  args = _y_true(lists), _scores(lists)
  lambda_weight = _LAMBDA_WEIGHTS[name]()
  found = _loss(_bias([1.0] * K), lambda_weight=lambda_weight)(*args)
  plain = tfr.keras.losses.PairwiseLogisticLoss(
      lambda_weight=lambda_weight, reduction=tf.keras.losses.Reduction.SUM)(
          *args)
  assert float(plain) > 0
  np.testing.assert_allclose(float(found), float(plain), rtol=1e-5)


@pytest.mark.smoke
@pytest.mark.parametrize("gain", ["exponential", "linear"])
@pytest.mark.parametrize("smooth_fraction", [0.0, 0.4, 1.0])
def test_lambda_weight_equals_the_double_loop_with_padding(
    gain, smooth_fraction):
  lists = _lists(padding=0.3, num_grades=4)
  found = _loss(
      _bias([1.0] * K), feedback="graded" if gain == "linear" else "binary",
      lambda_weight=tfr.keras.losses.NDCGLambdaWeight(
          smooth_fraction=smooth_fraction))(_y_true(lists), _scores(lists))
  weights = {
      id(items): oracles.ndcg_weights(
          items, getattr(oracles, f"{gain}_gain"), smooth_fraction)
      for items in lists}
  expected = _oracle_sum(
      lists, lambda items, a, b: weights[id(items)](a, b))
  np.testing.assert_allclose(float(found), expected, rtol=1e-5)


def test_lambda_weight_multiplies_the_debiasing_weight():
  lists = _lists(padding=0.3)
  found = _loss(
      _pairwise_bias(0.8, 0.02),
      lambda_weight=tfr.keras.losses.NDCGLambdaWeight())(
          _y_true(lists), _y_pred(lists))
  weights = {id(items): oracles.ndcg_weights(items, oracles.exponential_gain)
             for items in lists}
  expected = THETA[0]**2 * _oracle_sum(
      lists, lambda items, a, b: weights[id(items)](a, b) * _bayes(
          items, a, b, "item", 0.8, 0.02, True))
  np.testing.assert_allclose(float(found), expected, rtol=1e-5)


# Corners.


@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
@pytest.mark.parametrize("form", ["item", "prior", "position"])
def test_loss_and_gradient_are_finite_at_probabilities_zero_and_one(
    trust_bias, form):
  if trust_bias == "position" and form != "item":
    return
  theta = [0.0, 1.0, 0.5, 0.0, 1.0, 1e-30]
  y_true = tf.constant(list(itertools.product(
      [0.0, 1.0], repeat=K)), tf.float32)
  logits = tf.tile([[-1e9, 1e9, 0.0, 1e9, -1e9, 0.0]], [len(y_true), 1])
  y_pred = tf.stack([0.0 * logits, logits, tf.reverse(logits, [1])], axis=-1)
  trusts = [{}] if trust_bias is None else [
      {"trust_bias": trust_bias, "trust_positive": plus,
       "trust_negative": minus}
      for plus, minus in itertools.product([0.0, 0.5, 1.0], repeat=2)
      if minus <= plus]
  for trust, preference in itertools.product(
      trusts, ["relevance", "tower"] if trust_bias == "pairwise" else
      ["relevance"]):
    bias = ultra_tfr.layers.PositionBias(K, examination=theta, **trust)
    loss = ultra_tfr.losses.UnbiasedPairwiseLoss(
        bias, examination_posterior=form, preference=preference)
    with tf.GradientTape() as tape:
      tape.watch(y_pred)
      value = loss(y_true, y_pred)
    gradient = tape.gradient(value, y_pred)
    assert np.isfinite(float(value)), trust
    assert np.isfinite(gradient.numpy()).all(), trust


@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
def test_no_gradient_flows_through_the_weights(trust_bias):
  lists = _lists()
  trust = {} if trust_bias is None else {
      "trust_bias": trust_bias, "trust_positive": 0.9, "trust_negative": 0.02}
  loss = _loss(ultra_tfr.layers.PositionBias(K, examination=THETA, **trust))
  y_pred = tf.constant(_y_pred(lists))
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(_y_true(lists), y_pred)
  gradient = tape.gradient(value, y_pred).numpy()
  assert abs(gradient[..., 0]).max() > 0
  assert not gradient[..., 1].any()
