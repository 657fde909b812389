"""Worlds whose parameters are known: EM must find them again from counts."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from eye_tracking import CURVE
import oracles
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import masking
from ultra_tfr.core import pairs
from ultra_tfr.core import positions
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


@tf.function
def _repeat(step, iterations, *values):
  """Values after so many steps, in one graph: its calls would take longer."""
  return tf.while_loop(
      lambda *_: True, step, values, maximum_iterations=iterations)


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
  weights = tf.constant(np.broadcast_to(
      np.asarray(counts, np.float64).reshape(-1, 1), slots.shape))

  def pairwise(table):
    return tf.einsum("bai,ij,bcj->bac", one_hot, table, one_hot)

  def step(plus, minus):
    model = trust.pair_model(
        theta, beta, trust.binary_preference(beta), pairwise(plus),
        pairwise(minus))
    sums = trust.trust_statistics(
        pairs.preferred(clicks, mask), masking.valid_pairs(mask), model,
        positions.find_slots(slots + 1.0, None, K, 1), weights)
    return em.constrain_trust(*em.trust_estimates(sums, plus, minus))

  plus, minus = _repeat(
      step, iterations, tf.fill([K, K], tf.constant(0.6, tf.float64)),
      tf.fill([K, K], tf.constant(0.2, tf.float64)))
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


@pytest.mark.parametrize("seed", [
    0, *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
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
  weights = tf.constant(counts)[:, :, tf.newaxis]
  of_items = positions.find_slots(slots + 1.0, None, len(p1), 1)
  irrelevant = tf.zeros_like(p1) if p0 is None else p0

  def step(p1, irrelevant):
    sums = of_items.sums(weights * examination.pointwise_statistics(
        clicked, logits, tf.gather(p1, slots), tf.gather(irrelevant, slots)))
    if p0 is None:
      return em.constrain_examination(
          em.examination_estimates(sums, p1, p1)[0], 1e-3), irrelevant
    p1, irrelevant = em.click_estimates(sums, p1, irrelevant)
    p1 = em.constrain_examination(p1, 1e-3)
    return p1, em.constrain_click_irrelevant(irrelevant, p1)

  p1, irrelevant = _repeat(step, iterations, p1, irrelevant)
  return p1.numpy(), irrelevant.numpy()


def _items():
  """Every kind of item: slots, beta and clicks, `[1, N]`."""
  rows = np.array([(k, x, c) for k in range(10) for x in BETAS
                   for c in (1, 0)])
  return (rows[np.newaxis, :, 0].astype(int), rows[np.newaxis, :, 1],
          rows[np.newaxis, :, 2])


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
