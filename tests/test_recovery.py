"""Worlds whose parameters are known: EM must find them again."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import oracles
import ultra_tfr
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import trust

# A world of two items at random positions i != j. Relevance is binary, and
# gamma = beta_a (1 - beta_b). Of two examined items one draw decides which of
# them is clicked: a with the probability eps+_ij if r_a > r_b, else eps-_ij;
# b with eps+_ji if r_b > r_a, else eps-_ji; otherwise none. An examined item
# beside one that is not is clicked if it is relevant.
K = 3
BETAS = (0.3, 0.5, 0.8)
THETA = (0.95, 0.75, 0.55)
OUTCOMES = ((1, 0), (0, 1), (0, 0))
_RNG = np.random.default_rng(5)
PLUS = _RNG.uniform(0.7, 0.88, size=[K, K])
MINUS = _RNG.uniform(0.02, 0.11, size=[K, K])
OFF_DIAGONAL = ~np.eye(K, dtype=bool)

# All lists there are: positions and relevance of both items.
CELLS = [(i, j, x, y) for i, j in itertools.permutations(range(K), 2)
         for x, y in itertools.product(BETAS, BETAS)]


def _outcome_probabilities(i, j, beta_a, beta_b):
  """P of (1, 0), (0, 1) and (0, 0) of one cell."""
  theta_i, theta_j = THETA[i], THETA[j]
  first = theta_i * (1 - theta_j) * beta_a
  second = theta_j * (1 - theta_i) * beta_b
  for r_a, r_b in itertools.product((0, 1), (0, 1)):
    chance = (beta_a if r_a else 1 - beta_a) * (beta_b if r_b else 1 - beta_b)
    both = theta_i * theta_j * chance
    first += both * (PLUS if r_a > r_b else MINUS)[i, j]
    second += both * (PLUS if r_b > r_a else MINUS)[j, i]
  return [first, second, 1 - first - second]


def _lists_of_cells():
  """Every cell with every outcome: positions, beta and clicks, `[N, 2]`."""
  rows = [(i, j, x, y, *clicks) for i, j, x, y in CELLS for clicks in OUTCOMES]
  table = np.array(rows, np.float64)
  return table[:, :2].astype(int), table[:, 2:4], table[:, 4:]


def _recover_trust(counts, iterations):
  """EM for eps from counts of `_lists_of_cells`, the rest held at the truth.

  Returns:
    The largest errors of eps+ and eps- off the diagonal.
  """
  slots, beta, clicks = _lists_of_cells()
  theta = tf.constant(np.array(THETA)[slots])
  beta, clicks = tf.constant(beta), tf.constant(clicks)
  mask = tf.ones_like(clicks, tf.bool)
  one_hot = tf.one_hot(slots, K, dtype=tf.float64)
  weighted = one_hot * tf.constant(
      np.asarray(counts, np.float64).reshape(-1, 1, 1))

  def pairwise(table):
    return tf.einsum("bai,ij,bcj->bac", one_hot, table, one_hot)

  @tf.function
  def step(plus, minus):
    model = trust.pair_model(
        theta, beta, trust.binary_preference(beta), pairwise(plus),
        pairwise(minus))
    sums = trust.trust_statistics(
        pairs.preferred(clicks, mask), masking.valid_pairs(mask), model,
        weighted, one_hot)
    return em.constrain_trust(*em.trust_estimates(sums, plus, minus))

  plus = tf.fill([K, K], tf.constant(0.6, tf.float64))
  minus = tf.fill([K, K], tf.constant(0.2, tf.float64))
  for _ in range(iterations):
    plus, minus = step(plus, minus)
  return (abs(plus.numpy() - PLUS)[OFF_DIAGONAL].max(),
          abs(minus.numpy() - MINUS)[OFF_DIAGONAL].max())


def test_the_world_keeps_the_model_and_its_constraints():
  assert (PLUS + MINUS.T < 1).all()
  for i, j, x, y in CELLS:
    gamma = oracles.binary_preference(x, y)
    seen = PLUS[i, j] * gamma + MINUS[i, j] * (1 - gamma)
    assert seen < x
    np.testing.assert_allclose(
        _outcome_probabilities(i, j, x, y)[0],
        oracles.outcome(THETA[i], THETA[j], x, gamma, PLUS[i, j], MINUS[i, j]))


def test_trust_is_recovered_from_exact_cell_probabilities():
  counts = [p for cell in CELLS for p in _outcome_probabilities(*cell)]
  positive, negative = _recover_trust(counts, iterations=3000)
  print("errors of eps+ and eps-:", positive, negative)
  assert positive < 1e-4
  assert negative < 1e-4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_trust_is_recovered_from_200000_sampled_lists(seed):
  rng = np.random.default_rng(seed)
  per_cell = rng.multinomial(200_000, np.full(len(CELLS), 1 / len(CELLS)))
  counts = np.concatenate(
      [rng.multinomial(n, _outcome_probabilities(*cell))
       for n, cell in zip(per_cell, CELLS)])
  positive, negative = _recover_trust(counts, iterations=1000)
  print("errors of eps+ and eps-:", positive, negative)
  assert positive < 0.1
  assert negative < 0.05


def _recover_clicks(counts, clicks, slots, beta, p1, p0, iterations):
  """Pointwise EM from counts of single items; p0 is None without noise."""
  clicked = tf.constant(clicks > 0)
  logits = tf.constant(np.log(beta / (1 - beta)))
  one_hot = tf.one_hot(slots, len(p1), dtype=tf.float64)
  weighted = one_hot * tf.constant(counts)[:, :, tf.newaxis]
  irrelevant = tf.zeros_like(p1) if p0 is None else p0

  @tf.function
  def step(p1, irrelevant):
    sums = examination.pointwise_statistics(
        clicked, logits, tf.gather(p1, slots), tf.gather(irrelevant, slots),
        weighted)
    if p0 is None:
      return em.constrain_examination(
          em.examination_estimates(sums, p1, p1)[0], 1e-3), irrelevant
    p1, irrelevant = em.click_estimates(sums, p1, irrelevant)
    p1 = em.constrain_examination(p1, 1e-3)
    return p1, em.constrain_click_irrelevant(irrelevant, p1)

  for _ in range(iterations):
    p1, irrelevant = step(p1, irrelevant)
  return p1.numpy(), irrelevant.numpy()


def _items():
  """Every kind of item: slots, beta and clicks, `[1, N]`."""
  rows = np.array([(k, x, c) for k in range(10) for x in BETAS
                   for c in (1, 0)])
  return (rows[np.newaxis, :, 0].astype(int), rows[np.newaxis, :, 1],
          rows[np.newaxis, :, 2])


CURVE = np.array([.68, .61, .48, .34, .28, .20, .11, .10, .08, .06])


@pytest.mark.parametrize("exact", [True, False])
def test_theta_is_recovered_without_trust_noise(exact):
  slots, beta, clicks = _items()
  chance = CURVE[slots] * beta
  chance = np.where(clicks > 0, chance, 1 - chance)
  counts = chance if exact else np.zeros_like(chance)
  if not exact:
    rng = np.random.default_rng(0)
    clicked = rng.binomial(200_000 // len(BETAS), chance[0, ::2])
    counts[0, ::2] = clicked
    counts[0, 1::2] = 200_000 // len(BETAS) - clicked
  theta, _ = _recover_clicks(
      counts, clicks, slots, beta, tf.fill([10], tf.constant(0.9, tf.float64)),
      None, iterations=1000)
  print("error of theta:", abs(theta - CURVE).max())
  assert abs(theta - CURVE).max() < (1e-4 if exact else 0.01)


def test_click_probabilities_are_recovered_when_the_relevance_is_known():
  slots, beta, clicks = _items()
  ranks = np.arange(1, 11)
  p1, p0 = CURVE * (1 - (ranks + 1) / 100), CURVE * 0.65 / ranks
  chance = p1[slots] * beta + p0[slots] * (1 - beta)
  counts = np.where(clicks > 0, chance, 1 - chance)
  found = _recover_clicks(
      counts, clicks, slots, beta, tf.constant(CURVE),
      tf.constant(0.1 * CURVE), iterations=5_000)
  print("errors of p1 and p0:", abs(found[0] - p1).max(),
        abs(found[1] - p0).max())
  np.testing.assert_allclose(found[0], p1, atol=1e-3)
  np.testing.assert_allclose(found[1], p0, atol=1e-3)


# Through `fit`. Items are of eight groups, and the features say which; so a
# layer without hidden units can learn the relevance exactly.

GROUPS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])


def _clicks(num_lists, seed, skill=0.0):
  """Features, clicks and positions of lists.

  Args:
    num_lists: how many.
    seed: of the random numbers.
    skill: 0 for a random order; the more, the more relevant items are first.

  Returns:
    `[N, 10, groups]`, `[N, 10]` and `[N, 10]`.
  """
  rng = np.random.default_rng(seed)
  groups = rng.integers(len(GROUPS), size=[num_lists, 10])
  order = rng.gumbel(size=groups.shape) + skill * np.log(GROUPS)[groups]
  positions = np.argsort(np.argsort(-order, axis=1), axis=1)
  chance = CURVE[positions] * GROUPS[groups]
  clicks = (rng.uniform(size=chance.shape) < chance).astype(np.float32)
  features = np.eye(len(GROUPS), dtype=np.float32)[groups]
  return features, clicks, (positions + 1).astype(np.float32)


def _model(num_heads, bias, learning_rate=0.1, **options):
  inputs = tf.keras.Input([None, len(GROUPS)])
  outputs = tf.keras.layers.Dense(num_heads)(inputs)
  if num_heads == 1:
    outputs = tf.keras.layers.Reshape([-1])(outputs)
  model = tf.keras.Model(inputs, outputs)
  model.compile(
      tf.keras.optimizers.Adam(learning_rate),
      loss=ultra_tfr.losses.UnbiasedPairwiseLoss(bias, **options))
  return model


def _fit(model, data, callback, epochs):
  features, clicks, positions = data
  return model.fit(
      features, ultra_tfr.pack_feedback(clicks, positions).numpy(),
      batch_size=256, epochs=epochs, callbacks=[callback], verbose=0)


def _error(bias):
  """The largest error of theta/theta_1."""
  found = bias.propensities()["examination"]
  return abs(found - CURVE / CURVE[0]).max()


@pytest.mark.parametrize("num_heads", [2, 1])
def test_examination_is_recovered_by_fit(num_heads):
  bias = ultra_tfr.layers.PositionBias(10)
  model = _model(num_heads, bias)
  callback = ultra_tfr.callbacks.PropensityEM()
  _fit(model, _clicks(25_000, seed=0), callback, epochs=10)
  print(f"heads: {num_heads}, error of theta/theta_1: {_error(bias)}")
  assert _error(bias) < 0.03


def test_examination_is_recovered_by_fit_from_a_skilled_order():
  # Here the click rates are no propensities: the better items come first.
  data = _clicks(25_000, seed=0, skill=1.0)
  _, clicks, positions = data
  rates = np.array([clicks[positions == k].mean() for k in range(1, 11)])
  at_start = abs(rates / rates[0] - CURVE / CURVE[0]).max()
  bias = ultra_tfr.layers.PositionBias(10)
  _fit(_model(2, bias), data, ultra_tfr.callbacks.PropensityEM(), epochs=10)
  print("error of the click rates:", at_start, "of EM:", _error(bias))
  assert at_start > 0.1
  assert _error(bias) < 0.03


def test_case_a30_examination_comes_closer_and_survives_further_fits():
  bias = ultra_tfr.layers.PositionBias(10, initial_examination=0.9)
  model = _model(2, bias)
  callback = ultra_tfr.callbacks.PropensityEM()
  errors, previous = [], None
  for epoch in range(5):
    before = bias.examination.numpy()
    if previous is not None:
      # Nothing is reset between calls of `fit`.
      np.testing.assert_array_equal(before, previous)
      assert float(bias.num_updates) == 32 * epoch
    _fit(model, _clicks(32 * 256, seed=epoch), callback, epochs=1)
    previous = bias.examination.numpy()
    errors.append(_error(bias))
  print("errors by epoch:", errors)
  assert (np.diff(errors) < 0).all()
  assert errors[4] < 0.75 * errors[0]


def test_case_a30_state_is_kept_from_batch_to_batch():
  bias = ultra_tfr.layers.PositionBias(10, initial_examination=0.9)
  model = _model(2, bias)
  seen = []

  class Watch(tf.keras.callbacks.Callback):

    def on_train_batch_end(self, batch, logs=None):
      seen.append(bias.examination.numpy()[0])

  features, clicks, positions = _clicks(256 * 6, seed=0)
  model.fit(features, ultra_tfr.pack_feedback(clicks, positions).numpy(),
            batch_size=256, verbose=0, callbacks=[
                ultra_tfr.callbacks.PropensityEM(averaging="parameters"),
                Watch()])
  assert len(seen) == 6
  # Each step begins where the last one ended, and none moves further than its
  # step size.
  for before, after in zip([np.full(10, 0.9)] + seen[:-1], seen):
    assert (before != after).any()
    assert abs(after - before).max() <= 0.05
  assert (seen[-1][5:] < seen[0][5:]).all()


def _train_on(y_true, bias, *callbacks, epochs=1, **options):
  """Fits a model of a constant relevance, which is that of beta = 1/2."""
  inputs = tf.keras.Input([y_true.shape[1], 1])
  outputs = tf.keras.layers.Dense(
      2, kernel_initializer="zeros", use_bias=False)(inputs)
  model = tf.keras.Model(inputs, outputs)
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
  model.compile(tf.keras.optimizers.SGD(0.0), loss=loss)
  history = model.fit(
      np.zeros([*y_true.shape[:2], 1], np.float32), y_true,
      batch_size=len(y_true), epochs=epochs, verbose=0,
      callbacks=[ultra_tfr.callbacks.PropensityEM(**options), *callbacks])
  return history.history["loss"]


def test_case_a32_padded_slots_are_not_counted_as_unclicked():
  # List A has 3 items and list B has 10, all of B's are clicked but one.
  y_true = np.full([2, 10], -1.0, np.float32)
  y_true[0, :3] = [1, 0, 0]
  y_true[1] = 1
  y_true[1, 4] = 0
  bias = ultra_tfr.layers.PositionBias(10, initial_examination=0.5)
  _train_on(y_true, bias)
  # Without a click the posterior at theta = beta = 1/2 is 1/3.
  expected = np.ones(10)
  expected[1:3] = (1 + 1 / 3) / 2
  expected[4] = 1 / 3
  np.testing.assert_allclose(bias.examination.numpy()[0], expected, rtol=1e-5)


def test_case_a32_a_position_that_is_never_shown_keeps_its_value():
  y_true = np.array([[1, 0, -1], [0, 0, np.nan]], np.float32)
  bias = ultra_tfr.layers.PositionBias(3, initial_examination=[0.9, 0.6, 0.3])
  _train_on(y_true, bias, epochs=3)
  np.testing.assert_allclose(bias.examination.numpy()[0, 2], 0.3, rtol=1e-6)


@pytest.mark.parametrize("initial", ["click_rate", 0.9])
@pytest.mark.parametrize("averaging", ["statistics", "parameters"])
def test_case_a33_a_log_without_clicks_lowers_theta_and_nothing_is_nan(
    initial, averaging):
  bias = ultra_tfr.layers.PositionBias(4, initial_examination=initial)
  values = []

  class Watch(tf.keras.callbacks.Callback):

    def on_train_batch_end(self, batch, logs=None):
      values.append(bias.examination.numpy()[0])

  losses = _train_on(np.zeros([8, 4], np.float32), bias, Watch(), epochs=20,
                     averaging=averaging, warmup=2)
  # What is left is the cross-entropy of the relevance head.
  assert np.isfinite(losses).all()
  after_warmup = np.array(values[2:])
  assert np.isfinite(values).all()
  assert ((after_warmup > 0) & (after_warmup <= 1)).all()
  steps = np.diff(after_warmup, axis=0)
  assert (steps < 0).all()
  assert (abs(steps) < 0.1).all()


def test_case_a33_a_batch_without_clicks_has_no_pair_loss():
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(
      ultra_tfr.layers.PositionBias(4), head_weight=0.0)
  scores = tf.constant([[1.0, -2.0, 0.5, 3.0]])
  with tf.GradientTape() as tape:
    tape.watch(scores)
    value = loss(tf.zeros([1, 4]), scores)
  assert float(value) == 0.0
  np.testing.assert_array_equal(tape.gradient(value, scores).numpy(), 0.0)


def test_updates_keep_the_constraints_of_pairwise_trust_bias():
  bias = ultra_tfr.layers.PositionBias(10, trust_bias="pairwise")
  model = _model(2, bias)

  class Check(tf.keras.callbacks.Callback):

    def on_train_batch_end(self, batch, logs=None):
      plus, minus = (v.numpy()[0] for v in (
          bias.trust_positive, bias.trust_negative))
      assert (minus > 0).all() and (minus < plus).all() and (plus < 1).all()
      assert (plus + minus.T <= 1 + 1e-6).all()
      theta = bias.examination.numpy()
      assert (theta > 0).all() and (theta <= 1).all()

  features, clicks, positions = _clicks(256 * 12, seed=0)
  model.fit(
      features, ultra_tfr.pack_feedback(clicks, positions).numpy(),
      batch_size=256, verbose=0, callbacks=[
          ultra_tfr.callbacks.PropensityEM(step_size=0.5, warmup=3), Check()])
  assert float(bias.num_updates) == 12


@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
def test_statistics_are_float32_in_half_precision(trust_bias):
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    bias = ultra_tfr.layers.PositionBias(
        3, trust_bias=trust_bias, initial_examination=0.5)
    loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
    bias.start_collecting()
    # More items than half precision can count.
    y_true = tf.tile([[1.0, 0.0, 0.0]], [5001, 1])
    loss(y_true, tf.zeros([5001, 3, 2], tf.float16))
    sums = bias.take_sums()
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  for value in sums.values():
    assert value.dtype == tf.float32
  np.testing.assert_array_equal(
      sums["pointwise"].numpy()[:, examination.COUNT], 5001.0)
  assert all(v.dtype == tf.float32 for v in bias.weights)
