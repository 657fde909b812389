"""Tests of ultra_tfr.core.em: whole M steps."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
import numpy as np
import tensorflow as tf

from em_tables import SETTINGS
from em_tables import K
from em_tables import assert_trust_is_constrained
from em_tables import probabilities
import oracles
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.core import trust


def _sums(shape):
  """Random sums: empty cells, single observations, millions of them."""
  return numpy_strategies.arrays(
      np.float32, shape, elements=st.one_of(
          st.sampled_from([0.0, 2.0**-100, 1.0, 1e7]),
          st.floats(0, 100, width=32)))


def _rule(**changes):
  rule = em.UpdateRule(
      averaging="statistics", examination_is_fixed=False, trust_bias=None,
      trust_is_fixed=False, starts_from_clicks=False, min_examination=1e-3,
      initial_scale=0.9, initial_click_irrelevant=0.02, initial_power=1.0,
      smoothing=20.0)
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
  return em.m_step(
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


def test_the_shift_goes_as_far_as_the_steps_of_its_batches():
  """Of ten batches in one execution the shift made one step of ten."""
  sums = {**_batch(), "calibration": tf.constant([2.0, 9.0])}
  for num_batches, share in ((1.0, 0.2), (2.0, 0.36)):
    state, _ = _run(_rule(), sums=sums, num_batches=num_batches)
    np.testing.assert_allclose(
        state["relevance_shift"], share * 2.0 / 10.0, rtol=1e-5)


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
    _sums([K, 5]), _sums([K, K, 4]), probabilities([1, K, K]),
    probabilities([1, K, K]), probabilities([1, K]),
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
      assert_trust_is_constrained(
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


def test_pseudo_observations_count_alike_however_many_batches_come_at_once():
  """With one update for five batches the prior counted five times."""
  rule = _rule(trust_bias="position", prior_clicks=20.0)
  state = {name: value for name, value in _state().items()
           if not name.startswith(("trust", "examination_un"))}
  averages = {"pointwise": tf.zeros([K, examination.NUM_STATISTICS])}
  sums = {"pointwise": tf.constant(_pointwise(), tf.float32),
          "calibration": tf.zeros([em.NUM_SUMS])}
  one_by_one, rates = (state, averages), (0.05, 0.05, 0.0)
  for _ in range(5):
    one_by_one = em.m_step(rule, *one_by_one, sums, tf.constant(1.0), *rates)
  at_once = em.m_step(
      rule, state, averages, {key: 5 * value for key, value in sums.items()},
      tf.constant(5.0), *rates)
  for name in ("examination", "click_irrelevant"):
    np.testing.assert_allclose(
        at_once[0][name], one_by_one[0][name], rtol=1e-5)
