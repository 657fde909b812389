"""Tests of ultra_tfr.core.em, .m_step and .calibration."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.core import calibration
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import m_step
from ultra_tfr.core import trust

K = 3
SETTINGS = hypothesis.settings(
    max_examples=60, deadline=None, derandomize=True)


def _probabilities(shape):
  """Random tables, with many values at and near the ends."""
  ends = st.sampled_from(
      [0.0, 2.0**-100, 2.0**-20, 0.5, 1.0 - 2.0**-20, 1.0])
  return numpy_strategies.arrays(
      np.float32, shape, elements=st.one_of(ends, st.floats(0, 1, width=32)))


def _sums(shape):
  """Random sums: empty cells, single observations, millions of them."""
  return numpy_strategies.arrays(
      np.float32, shape, elements=st.one_of(
          st.sampled_from([0.0, 2.0**-100, 1.0, 1e7]),
          st.floats(0, 100, width=32)))


def _assert_trust_is_constrained(positive, negative):
  positive, negative = positive.numpy(), negative.numpy()
  assert (negative > 0).all()
  assert (negative < positive).all()
  assert (positive < 1).all()
  # Rounding may leave a sum the last bit above 1.
  assert (positive + np.swapaxes(negative, -1, -2) <= 1 + 1e-6).all()


# Step sizes.


def test_step_size_falls_as_equation_20():
  for t in (0.0, 1.0, 99.0):
    np.testing.assert_allclose(
        float(em.step_size(tf.constant(t, tf.float64), 0.05, 0.05)),
        oracles.step_size(t, 0.05, 0.05), rtol=1e-12)


def test_a_compounded_step_equals_the_single_steps():
  rng = np.random.default_rng(0)
  start, estimate = rng.uniform(size=[2, 4])
  expected = start
  for _ in range(7):
    expected = 0.9 * expected + 0.1 * estimate
  alpha = em.compound_step(
      tf.constant(0.1, tf.float64), tf.constant(7.0, tf.float64))
  np.testing.assert_allclose(
      em.move(tf.constant(start), tf.constant(estimate), alpha).numpy(),
      expected, rtol=1e-12)
  # Seven batches with these sums, or their sum at once.
  np.testing.assert_allclose(
      em.average_statistics(
          tf.constant(start), 7.0 * tf.constant(estimate), 7.0,
          alpha).numpy(), expected, rtol=1e-12)


# Estimates.


def test_examination_estimates_equal_the_oracle_and_empty_cells_stay():
  lists = oracles.random_lists(seed=5, num_lists=6, num_positions=2)
  sums = oracles.pointwise_statistics(
      lists, [0.6, 0.3, 0.5], [0.0] * 3, 3, lambda c, position: position - 1)
  theta, unclicked = em.examination_estimates(
      tf.constant(sums, tf.float64),
      tf.constant([0.1, 0.2, 0.45], tf.float64),
      tf.constant([0.1, 0.2, 0.35], tf.float64))
  for k in range(3):
    count, clicked, _, _, examined = sums[k]
    np.testing.assert_allclose(
        theta[k], oracles.em_ratio(clicked + examined, count, 0.45))
    np.testing.assert_allclose(
        unclicked[k], oracles.em_ratio(examined, count - clicked, 0.35))
  assert float(theta[2]) == 0.45
  assert float(unclicked[2]) == 0.35


def test_unclicked_examination_stays_where_everything_was_clicked():
  sums = tf.constant([[7.3, 7.3, 7.3, 7.3, 0.0]])
  theta, unclicked = em.examination_estimates(
      sums, tf.constant([0.5]), tf.constant([0.25]))
  assert float(theta[0]) == 1.0
  assert float(unclicked[0]) == 0.25


def test_click_estimates_equal_the_oracle_and_empty_cells_stay():
  lists = oracles.random_lists(seed=6, num_lists=6, num_positions=2)
  sums = oracles.pointwise_statistics(
      lists, [0.6, 0.3, 0.5], [0.1] * 3, 3, lambda c, position: position - 1)
  p1, p0 = em.click_estimates(
      tf.constant(sums, tf.float64), tf.constant([0.1, 0.2, 0.45], tf.float64),
      tf.constant([0.1, 0.2, 0.05], tf.float64))
  for k in range(3):
    count, clicked, q, q_clicked, _ = sums[k]
    np.testing.assert_allclose(p1[k], oracles.em_ratio(q_clicked, q, 0.45))
    np.testing.assert_allclose(
        p0[k], oracles.em_ratio(clicked - q_clicked, count - q, 0.05))


def test_trust_estimates_equal_the_oracle_and_empty_cells_stay():
  rng = np.random.default_rng(0)
  sums = rng.uniform(size=[K, K, 4])
  sums[1, 2] = 0.0
  sums[0, 1, :2] = 0.0
  plus, minus = em.trust_estimates(
      tf.constant(sums), tf.fill([K, K], tf.constant(0.7, tf.float64)),
      tf.fill([K, K], tf.constant(0.2, tf.float64)))
  for i in range(K):
    for j in range(K):
      a, b, c, d = sums[i, j]
      np.testing.assert_allclose(plus[i, j], oracles.em_ratio(a, a + b, 0.7))
      np.testing.assert_allclose(minus[i, j], oracles.em_ratio(c, c + d, 0.2))


def test_click_rate_start_follows_the_rates_and_leaves_no_position_at_zero():
  count = tf.constant([[1000.0, 1000.0, 1000.0, 0.0]])
  clicked = tf.constant([[200.0, 100.0, 0.0, 0.0]])
  plain = em.click_rate_start(count, clicked, 0.9, 0.0).numpy()[0]
  np.testing.assert_allclose(plain[:3], [0.9, 0.45, 0.0], rtol=1e-6)
  start = em.click_rate_start(count, clicked, 0.9, 20.0).numpy()[0]
  mean = 300.0 / 3000.0
  rates = [(200 + 20 * mean) / 1020, (100 + 20 * mean) / 1020,
           20 * mean / 1020, mean]
  np.testing.assert_allclose(start, 0.9 * np.array(rates) / rates[0],
                             rtol=1e-6)
  assert (start > 0).all()


def test_click_rate_start_without_any_click_is_even():
  start = em.click_rate_start(
      tf.constant([[50.0, 60.0]]), tf.constant([[0.0, 0.0]]), 0.9, 20.0)
  np.testing.assert_allclose(start.numpy(), [[0.9, 0.9]])


# Constraints.


@SETTINGS
@hypothesis.given(_probabilities([2, K, K]), _probabilities([2, K, K]))
def test_trust_constraints_hold_from_any_table(positive, negative):
  _assert_trust_is_constrained(
      *em.constrain_trust(tf.constant(positive), tf.constant(negative)))


@pytest.mark.parametrize("plus", [0.0, 1e-3, 0.5, 1.0])
@pytest.mark.parametrize("minus", [0.0, 1e-3, 0.5, 1.0])
def test_trust_constraints_hold_where_both_tables_are_at_an_end(plus, minus):
  tables = tf.fill([K, K], plus), tf.fill([K, K], minus)
  _assert_trust_is_constrained(*em.constrain_trust(*tables))


def test_trust_inside_the_constraints_is_left_alone():
  rng = np.random.default_rng(0)
  plus = rng.uniform(0.5, 0.8, size=[K, K])
  minus = rng.uniform(0.01, 0.2, size=[K, K])
  found = em.constrain_trust(tf.constant(plus), tf.constant(minus))
  np.testing.assert_allclose(found[0].numpy(), plus, rtol=1e-12)
  np.testing.assert_allclose(found[1].numpy(), minus, rtol=1e-12)


@SETTINGS
@hypothesis.given(_probabilities([4]), _probabilities([4]))
def test_click_probabilities_keep_their_order(relevant, irrelevant):
  p1 = em.constrain_examination(tf.constant(relevant), 1e-3)
  p0 = em.constrain_click_irrelevant(tf.constant(irrelevant), p1)
  assert (p1.numpy() > 0).all() and (p1.numpy() <= 1).all()
  assert (p0.numpy() >= 0).all() and (p0.numpy() < p1.numpy()).all()


# The whole M step.


def _rule(**changes):
  rule = m_step.UpdateRule(
      averaging="statistics", examination_is_fixed=False, trust_bias=None,
      trust_is_fixed=False, starts_from_clicks=False, min_examination=1e-3,
      initial_scale=0.9, initial_click_irrelevant=0.02, smoothing=20.0)
  return rule._replace(**changes)


def _state(**changes):
  state = {
      "num_updates": tf.constant(0.0),
      "relevance_shift": tf.constant(0.0),
      "examination": tf.constant([[0.8, 0.5, 0.25]]),
      "examination_unclicked": tf.constant([[0.7, 0.4, 0.2]]),
      "click_irrelevant": tf.constant([[0.1, 0.05, 0.02]]),
      "trust_positive": tf.fill([1, K, K], 0.9),
      "trust_negative": tf.fill([1, K, K], 0.05),
  }
  return {**state, **changes}


def _averages():
  return {"pointwise": tf.zeros([K, examination.NUM_STATISTICS]),
          "trust": tf.zeros([K, K, trust.NUM_STATISTICS])}


def _pointwise(seed=0, counts=(10.0, 10.0, 10.0)):
  """Consistent pointwise sums."""
  rng = np.random.default_rng(seed)
  count = np.array(counts)
  clicked = count * rng.uniform(0.1, 0.5, K)
  relevant_clicked = clicked * rng.uniform(0.5, 1.0, K)
  relevant = relevant_clicked + (count - clicked) * rng.uniform(0, 0.5, K)
  examined = (count - clicked) * rng.uniform(0.1, 0.9, K)
  return np.stack([count, clicked, relevant, relevant_clicked, examined], -1)


def _batch(pointwise=None, trust_sums=None):
  pointwise = _pointwise() if pointwise is None else pointwise
  if trust_sums is None:
    trust_sums = np.random.default_rng(1).uniform(size=[K, K, 4])
  return {"pointwise": tf.constant(pointwise, tf.float32),
          "trust": tf.constant(trust_sums, tf.float32),
          "calibration": tf.zeros([2])}


def _run(rule, state=None, averages=None, sums=None, num_batches=1.0,
         initial_step=0.05, decay=0.05, warmup=0.0):
  return m_step.run(
      rule, _state() if state is None else state,
      _averages() if averages is None else averages,
      _batch() if sums is None else sums,
      *map(tf.constant, (num_batches, initial_step, decay, warmup)))


def test_parameters_move_by_the_step_size_towards_the_batch():
  state, _ = _run(_rule(averaging="parameters"),
                  _state(num_updates=tf.constant(3.0)))
  sums = _pointwise()
  estimate = (sums[:, 1] + sums[:, 4]) / sums[:, 0]
  alpha = oracles.step_size(3.0, 0.05, 0.05)
  np.testing.assert_allclose(
      state["examination"].numpy()[0],
      (1 - alpha) * np.array([0.8, 0.5, 0.25]) + alpha * estimate, rtol=1e-5)
  estimate = sums[:, 4] / (sums[:, 0] - sums[:, 1])
  np.testing.assert_allclose(
      state["examination_unclicked"].numpy()[0],
      (1 - alpha) * np.array([0.7, 0.4, 0.2]) + alpha * estimate, rtol=1e-5)
  assert float(state["num_updates"]) == 4.0


def test_statistics_are_averaged_before_they_are_divided():
  batches = [_pointwise(seed, counts) for seed, counts in (
      (0, (10.0, 2.0, 50.0)), (1, (1.0, 20.0, 5.0)), (2, (3.0, 3.0, 3.0)))]
  state, averages, average = _state(), _averages(), np.zeros([K, 5])
  for t, sums in enumerate(batches):
    state, averages = _run(
        _rule(), state, averages, _batch(sums), initial_step=0.4, decay=0.5)
    # As long as the average is young it is the plain mean.
    alpha = max(oracles.step_size(t, 0.4, 0.5), 1.0 / (t + 1.0))
    average = (1 - alpha) * average + alpha * sums
    np.testing.assert_allclose(
        state["examination"].numpy()[0],
        (average[:, 1] + average[:, 4]) / average[:, 0], rtol=1e-5)


def test_a_cell_without_observations_keeps_its_value():
  sums = _pointwise()
  sums[1] = 0.0
  # Both orders of a pair are one draw, so they are seen or not together.
  trust_sums = np.ones([K, K, 4])
  trust_sums[0, 2] = trust_sums[2, 0] = 0.0
  for averaging in ("statistics", "parameters"):
    for trust_bias in (None, "position", "pairwise"):
      state, _ = _run(_rule(averaging=averaging, trust_bias=trust_bias),
                      sums=_batch(sums, trust_sums))
      before = _state()
      for key in ("examination", "examination_unclicked", "click_irrelevant"):
        np.testing.assert_allclose(
            state[key].numpy()[0, 1], before[key].numpy()[0, 1], rtol=1e-6)
      if trust_bias == "pairwise":
        np.testing.assert_allclose(
            state["trust_positive"].numpy()[0, 0, 2], 0.9, rtol=1e-6)
        np.testing.assert_allclose(
            state["trust_negative"].numpy()[0, 0, 2], 0.05, rtol=1e-6)


def test_a_position_keeps_its_estimate_while_it_is_not_seen():
  state, averages = _run(_rule())
  learned = state["examination"].numpy()[0, 1]
  rare = _pointwise(3)
  rare[1] = 0.0
  # So long that the old sums fade to nothing in float32.
  for _ in range(60):
    state, averages = _run(_rule(), state, averages, _batch(rare),
                           num_batches=50.0, initial_step=0.5, decay=0.0)
  np.testing.assert_allclose(
      state["examination"].numpy()[0, 1], learned, rtol=1e-3)


def test_fixed_parameters_do_not_move():
  state, _ = _run(_rule(examination_is_fixed=True, trust_bias="pairwise",
                        trust_is_fixed=True))
  before = _state()
  # theta- is nobody's to give: it follows from theta and the items.
  moving = {"num_updates", "examination_unclicked"}
  for key in before.keys() - moving:
    np.testing.assert_array_equal(state[key].numpy(), before[key].numpy())


def test_parameters_of_another_bias_model_do_not_move():
  before = _state()
  state, _ = _run(_rule())
  for key in ("click_irrelevant", "trust_positive", "trust_negative"):
    np.testing.assert_array_equal(state[key].numpy(), before[key].numpy())
  state, _ = _run(_rule(trust_bias="position"))
  np.testing.assert_array_equal(
      state["examination_unclicked"].numpy(),
      before["examination_unclicked"].numpy())
  assert (state["click_irrelevant"].numpy() !=
          before["click_irrelevant"].numpy()).all()


def test_examination_is_the_click_rate_during_the_warmup_and_then_em():
  rule = _rule(starts_from_clicks=True, smoothing=0.0)
  sums = _pointwise()
  rates = sums[:, 1] / sums[:, 0]
  state, averages = _run(rule, warmup=2.0)
  np.testing.assert_allclose(
      state["examination"].numpy()[0], 0.9 * rates / rates.max(), rtol=1e-5)
  state, averages = _run(rule, state, averages, warmup=2.0)
  np.testing.assert_allclose(
      state["examination"].numpy()[0], 0.9 * rates / rates.max(), rtol=1e-5)
  state, _ = _run(rule, state, averages, warmup=2.0)
  np.testing.assert_allclose(
      state["examination"].numpy()[0], (sums[:, 1] + sums[:, 4]) / sums[:, 0],
      rtol=1e-5)


def test_sums_of_several_batches_count_as_so_many_steps():
  rule = _rule(averaging="parameters")
  one = _state()
  for _ in range(4):
    one, _ = _run(rule, one, decay=0.0)
  four, _ = _run(rule, sums=_batch(4.0 * _pointwise()), num_batches=4.0,
                 decay=0.0)
  for key in ("examination", "examination_unclicked", "num_updates"):
    np.testing.assert_allclose(four[key].numpy(), one[key].numpy(), rtol=1e-5)
  state, averages = _run(_rule())
  for _ in range(4):
    state, averages = _run(_rule(), state, averages, _batch(_pointwise(1)),
                           initial_step=0.5, decay=0.0)
  jump, averages = _run(_rule())
  jump, _ = _run(_rule(), jump, averages, _batch(4.0 * _pointwise(1)),
                 num_batches=4.0, initial_step=0.5, decay=0.0)
  np.testing.assert_allclose(
      jump["examination"].numpy(), state["examination"].numpy(), rtol=1e-5)


@SETTINGS
@hypothesis.given(
    _sums([K, 5]), _sums([K, K, 4]), _probabilities([1, K, K]),
    _probabilities([1, K, K]), _probabilities([1, K]),
    st.sampled_from([None, "position", "pairwise"]),
    st.sampled_from(["statistics", "parameters"]),
    st.sampled_from([0.0, 10.0]))
def test_constraints_hold_after_every_update(
    pointwise, trust_sums, plus, minus, theta, trust_bias, averaging, warmup):
  rule = _rule(trust_bias=trust_bias, averaging=averaging,
               starts_from_clicks=True)
  state = _state(
      examination=tf.constant(theta), trust_positive=tf.constant(plus),
      trust_negative=tf.constant(minus))
  averages = _averages()
  for step in (1.0, 0.05):
    state, averages = _run(
        rule, state, averages, _batch(pointwise, trust_sums),
        initial_step=step, warmup=warmup)
    for key in ("examination", "examination_unclicked"):
      values = state[key].numpy()
      assert (values > 0).all() and (values <= 1).all(), key
    if trust_bias == "position":
      p0 = state["click_irrelevant"].numpy()
      assert (p0 >= 0).all() and (p0 < state["examination"].numpy()).all()
    if trust_bias == "pairwise":
      _assert_trust_is_constrained(
          state["trust_positive"], state["trust_negative"])


def test_an_empty_batch_changes_nothing_and_nothing_is_nan():
  sums = _batch(np.zeros([K, 5]), np.zeros([K, K, 4]))
  for trust_bias in (None, "position", "pairwise"):
    for averaging in ("statistics", "parameters"):
      state, _ = _run(_rule(trust_bias=trust_bias, averaging=averaging),
                      sums=sums)
      for key, value in _state().items():
        if key != "num_updates":
          np.testing.assert_allclose(
              state[key].numpy(), value.numpy(), rtol=1e-6)


def test_case_a33_batches_without_clicks_lower_theta_smoothly():
  # The E step at theta and beta = 1/2 without clicks, again and again.
  state, averages = _state(), _averages()
  previous = state["examination"].numpy()
  for _ in range(50):
    theta = tf.reshape(state["examination"], [1, K])
    sums = examination.pointwise_statistics(
        tf.zeros([1, K], tf.bool), tf.zeros([1, K]), theta,
        tf.zeros([1, K]), tf.eye(K)[tf.newaxis])
    state, averages = _run(
        _rule(averaging="parameters"), state, averages,
        {**_batch(), "pointwise": sums})
    now = state["examination"].numpy()
    assert (now <= previous).all() and (now > 0.9 * previous).all()
    assert (now > 0).all()
    previous = now


# Calibration.


def test_calibration_takes_the_newton_step_of_the_oracle():
  rng = np.random.default_rng(0)
  scores, targets = rng.normal(size=40), rng.uniform(size=40)
  weights = rng.uniform(size=40) * (rng.uniform(size=40) < 0.8)
  shift = -0.4
  sums = calibration.calibration_sums(
      *(tf.constant(x[np.newaxis]) for x in (scores + shift, targets, weights)))
  found = calibration.newton_step(tf.constant(shift, tf.float64), sums, 0.2)
  step = oracles.newton_shift(scores, targets, weights, shift)
  np.testing.assert_allclose(float(found), shift + 0.2 * step, rtol=1e-10)


def test_calibration_finds_the_shift_of_its_targets():
  rng = np.random.default_rng(1)
  scores = tf.constant(rng.normal(size=[50, 10]))
  targets, shift = tf.sigmoid(scores - 1.5), tf.constant(0.0, tf.float64)
  for _ in range(100):
    sums = calibration.calibration_sums(
        scores + shift, targets, tf.ones_like(scores))
    shift = calibration.newton_step(shift, sums, 0.2)
  assert float(shift) == pytest.approx(-1.5, abs=1e-3)


def test_calibration_without_data_stays_and_never_leaves_its_range():
  shift = calibration.newton_step(tf.constant(0.0), tf.zeros([2]), 0.2)
  assert float(shift) == 0.0
  for _ in range(100):
    shift = calibration.newton_step(shift, tf.constant([1e20, 0.0]), 0.2)
  assert float(shift) == 30.0
