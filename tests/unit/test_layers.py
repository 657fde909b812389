"""Tests of ultra_tfr.layers."""

import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr.layers import PositionBias

THETA = [.8, .4, .2]


def make(**arguments):
  return PositionBias(
      **{"num_positions": 3, "trust_bias": None, **arguments})


@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
def test_variables(trust_bias):
  bias = make(trust_bias=trust_bias, num_contexts=2)
  assert bias.examination.shape == [2, 3]
  assert hasattr(bias, "click_irrelevant") == (trust_bias == "position")
  assert hasattr(bias, "trust_positive") == (trust_bias == "pairwise")
  if trust_bias == "pairwise":
    assert bias.trust_positive.shape == [2, 3, 3]
    # Inside the constraints from the start.
    plus, minus = bias.trust_positive.numpy(), bias.trust_negative.numpy()
    assert np.all((0 < minus) & (minus < plus) & (plus < 1))
    assert np.all(plus + np.swapaxes(minus, 1, 2) <= 1)
  assert bias.weights and not bias.trainable_weights
  assert {v.dtype for v in bias.weights} == {tf.float32}
  names = [v.name for v in bias.weights]
  assert len(set(names)) == len(names)


def test_float32_under_another_policy():
  policy = tf.keras.mixed_precision.global_policy()
  for name in ("mixed_bfloat16", "float64"):
    tf.keras.mixed_precision.set_global_policy(name)
    try:
      bias = make(examination=THETA)
      assert {v.dtype for v in bias.weights} == {tf.float32}
      assert bias(tf.constant([[1, 2]])).dtype == tf.float32
    finally:
      tf.keras.mixed_precision.set_global_policy(policy)


def test_call_looks_positions_up():
  bias = make(examination=THETA)
  np.testing.assert_allclose(
      bias(tf.constant([[1, 3, 2, 0, 4]])), [[.8, .2, .4, 0., 0.]])
  pooled = make(examination=THETA, overflow="pool")
  np.testing.assert_allclose(
      pooled(tf.constant([[1, 4, 50, 0]])), [[.8, .2, .2, 0.]])
  both = make(examination=[THETA, [.6, .5, .1]], num_contexts=2)
  np.testing.assert_allclose(
      both(tf.constant([[1, 2], [1, 2]]), tf.constant([[1, 1], [0, 5]])),
      [[.6, .5], [.8, 0.]])


def test_propensities_are_relative_to_position_one():
  bias = make(examination=THETA)
  np.testing.assert_allclose(
      bias.propensities()["examination"], [1., .5, .25])
  both = make(examination=[THETA, [.6, .3, .15]], num_contexts=2)
  np.testing.assert_allclose(
      both.propensities()["examination"], [[1., .5, .25]] * 2)
  assert isinstance(bias.propensities()["examination"], np.ndarray)


def test_propensities_with_trust_bias():
  bias = make(trust_bias="position", examination=THETA,
              trust_positive=[1., .9, .8], trust_negative=.1)
  found = bias.propensities()
  p1 = np.array(THETA) * [1., .9, .8]
  np.testing.assert_allclose(found["click_relevant"], p1, rtol=1e-6)
  np.testing.assert_allclose(
      found["click_irrelevant"], np.array(THETA) * .1, rtol=1e-6)
  np.testing.assert_allclose(found["examination"], p1 / p1[0], rtol=1e-6)
  assert "examination_unclicked" not in found
  table = np.full([3, 3], .7) + .1 * np.eye(3)
  bias = make(trust_bias="pairwise", examination=THETA, trust_positive=table,
              trust_negative=.1)
  found = bias.propensities()
  np.testing.assert_allclose(found["trust_positive"], table, rtol=1e-6)
  np.testing.assert_allclose(found["trust_negative"], np.full([3, 3], .1))


def test_a_first_position_that_is_never_seen():
  found = make(examination=[0., .4, .2]).propensities()["examination"]
  assert np.all(np.isfinite(found))


@pytest.mark.parametrize("arguments, is_fixed, learns_trust", [
    ({}, False, False),
    ({"examination": THETA}, True, False),
    ({"trust_bias": "position"}, False, False),
    ({"trust_bias": "position", "examination": THETA, "trust_positive": .9,
      "trust_negative": .1}, True, False),
    ({"trust_bias": "pairwise"}, False, True),
    ({"trust_bias": "pairwise", "examination": THETA}, False, True),
    ({"trust_bias": "pairwise", "trust_positive": .9, "trust_negative": .1},
     False, False),
    ({"trust_bias": "pairwise", "examination": THETA, "trust_positive": .9,
      "trust_negative": .1}, True, False),
])
def test_what_is_learned(arguments, is_fixed, learns_trust):
  bias = make(**arguments)
  assert bias.is_fixed == is_fixed
  assert bias.learns_pairwise_trust == learns_trust
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    bias.propensities()
  assert bool(caught) == (not is_fixed)


@pytest.mark.parametrize("initial", [.3, THETA, [THETA]])
def test_initial_values(initial):
  bias = make(initial_examination=initial)
  np.testing.assert_allclose(
      bias.examination, np.broadcast_to(initial, [1, 3]), rtol=1e-6)
  assert not bias.is_fixed


@pytest.mark.parametrize("arguments", [
    {}, {"examination": np.array(THETA)}, {"num_contexts": 2},
    {"trust_bias": "pairwise", "trust_positive": np.full([3, 3], .9),
     "trust_negative": np.float32(.1)},
    {"initial_examination": tuple(THETA), "overflow": "pool"},
    {"initial_examination": np.float64(.5), "smoothing": 3, "name": "mine"}])
def test_config_round_trip(arguments):
  bias = make(**arguments)
  config = json.loads(json.dumps(bias.get_config()))
  again = PositionBias.from_config(config)
  assert again.get_config() == bias.get_config()
  for a, b in zip(again.weights, bias.weights):
    np.testing.assert_array_equal(a, b)
  description = tf.keras.layers.serialize(bias)
  other = tf.keras.layers.deserialize(json.loads(json.dumps(description)))
  assert isinstance(other, PositionBias)
  assert other.name == bias.name


@pytest.mark.parametrize("arguments, message", [
    ({"initial_examination": [.1, .2]},
     r"`initial_examination` must .*\[3\] or \[1, 3\], but has .*\[2\]; give"),
    ({"examination": [.9, .5]}, r"`examination` must .*\[3\] .*\[2\]; give"),
    ({"examination": [.9, .5, -.1]}, r"`examination` must be .*2\] is -0.1"),
    ({"examination": [.9, np.nan, .1]}, "`examination` must be .* is nan"),
    ({"initial_click_irrelevant": .3},
     "`initial_click_irrelevant` needs `trust_bias='position'`, but .* None; "),
    ({"trust_bias": "pairwise", "trust_positive": .9},
     "`trust_positive` and `trust_negative` must be given together"),
    ({"trust_positive": .9, "trust_negative": .1},
     "`trust_positive` is given, but `trust_bias` is None; set it to"),
    ({"trust_bias": "position", "trust_positive": .9, "trust_negative": .1},
     "`trust_bias='position'` needs `examination`"),
    ({"trust_bias": "position", "examination": THETA},
     "`trust_bias='position'` needs `trust_positive`"),
    ({"trust_bias": "pairwise", "trust_positive": [.9, .8],
      "trust_negative": .1}, r"`trust_positive` must .*\[3, 3\].*\[2\]; give"),
    ({"trust_bias": "pairwise", "trust_positive": .9, "trust_negative": -2.},
     "`trust_negative` must be in .0, 1., but is -2.0"),
    ({"trust_bias": "pairwise", "trust_positive": .1, "trust_negative": .9},
     "`trust_negative`.*`trust_positive`|`trust_positive`.*`trust_negative`"),
])
def test_bad_arguments(arguments, message):
  with pytest.raises(ValueError, match=message):
    make(**arguments)


def test_sums_pass_the_gate_only_when_it_is_open():
  bias = make()
  ones = {"pointwise": tf.ones([3, 5]), "calibration": tf.ones([2]),
          "counters": tf.ones([5])}
  bias.collect(ones)
  assert not any(np.any(s) for s in bias.take_sums().values())
  assert not np.any(bias.update())
  assert bias.num_updates.numpy() == 0
  bias.start_collecting()
  bias.collect(ones)
  bias.collect(ones)
  bias.stop_collecting()
  # Not even a NaN gets through.
  bias.collect({key: value * np.nan for key, value in ones.items()})
  for value in bias.take_sums().values():
    np.testing.assert_array_equal(value, np.full(value.shape, 2.))
  assert not any(np.any(s) for s in bias.take_sums().values())


@pytest.mark.parametrize("arguments", [
    {}, {"trust_bias": "pairwise"}, {"num_contexts": 2},
    {"trust_bias": "auto"}, {"examination_model": "browsing"}])
def test_the_scale_is_that_of_the_most_examined_position(arguments):
  """Nobody clicked position 1, and with its theta the gradient vanished."""
  bias = make(**arguments)
  for model in bias.models:
    table = np.full(model.variables["examination"].shape, 1e-3, np.float32)
    table[:, 2 * model.num_distances] = .5
    model.variables["examination"].assign(table)
  np.testing.assert_allclose(bias.scale(), .25, rtol=1e-6)


def test_a_floor_for_the_examination():
  bias = make(min_examination=.3, initial_examination=.5)
  bias.start_collecting()
  counts = np.tile([10., 0., 0., 0., 0.], [3, 1])  # Seen, but never examined.
  for _ in range(100):
    bias.collect({
        "pointwise": tf.constant(counts, tf.float32),
        "calibration": tf.zeros([2]),
        "counters": tf.constant([1., 0., 0., 0., 0.])})
    bias.update()
  np.testing.assert_allclose(bias.examination, [[.3] * 3], rtol=1e-6)


def test_relative_curves_are_scaled_to_probabilities():
  """Estimates relative to position 1 may be 1.0123 at position 2."""
  bias = make(examination=[1., 1.0123, .5])
  np.testing.assert_allclose(
      bias.examination, [np.divide([1., 1.0123, .5], 1.0123)], rtol=1e-6)
  np.testing.assert_allclose(
      bias.propensities()["examination"], [1., 1.0123, .5], rtol=1e-6)
  both = make(examination=[[1., 2., .5], [.5, .4, .2]], num_contexts=2)
  np.testing.assert_allclose(
      both.examination, [[.5, 1., .25], [.25, .2, .1]], rtol=1e-6)


@pytest.mark.parametrize("arguments", [
    {}, {"num_contexts": 2, "overflow": "pool"}, {"trust_bias": "position"},
    {"trust_bias": "pairwise"}, {"trust_bias": "auto", "num_contexts": 2},
    {"examination_model": "browsing"}, {"examination": THETA}])
def test_a_fixed_layer_knows_what_another_has_learned(arguments):
  """The bias from one model, the ranker by another: nothing to copy by hand."""
  rng = np.random.default_rng(0)
  old = make(**arguments)
  for variable in old.weights:
    if any(part in variable.name for part in ("examination", "positive")):
      variable.assign(rng.uniform(.5, .9, variable.shape))
    elif "irrelevant" in variable.name or "negative" in variable.name:
      variable.assign(rng.uniform(.1, .4, variable.shape))
  if arguments.get("trust_bias") == "auto":
    old.evidence.assign([0., 50., 0., 0.])
  new = PositionBias.fixed(old)
  same = PositionBias(old.num_positions, num_contexts=old.num_contexts,
                      overflow=old.overflow, examination=old, name=new.name)
  assert same.get_config() == new.get_config()
  assert new.examination_is_fixed and new.is_fixed
  for ours, learned in zip(new.click_tables(), old.click_tables()):
    assert (ours is None) == (learned is None)
    if learned is not None:
      np.testing.assert_allclose(ours, learned, rtol=1e-5)
  if old.trust_bias == "pairwise":
    np.testing.assert_allclose(new.trust_positive, old.trust_positive)
    np.testing.assert_allclose(new.trust_negative, old.trust_negative)
  assert new.overflow == old.overflow and new.name == "fixed_bias"
  # It is one's own: what the other learns later is not its affair.
  again = PositionBias.from_config(json.loads(json.dumps(new.get_config())))
  np.testing.assert_allclose(
      again.click_tables()[0], new.click_tables()[0], rtol=1e-6)


@pytest.mark.parametrize("old, arguments, message", [
    ({}, {"trust_bias": "position"}, "its trust bias, None, too; leave"),
    ({"trust_bias": "position"}, {"trust_bias": None}, "'position', too; "),
    ({}, {"trust_positive": .9, "trust_negative": .1}, "about trust out"),
    ({"num_contexts": 2}, {}, "`examination` must .* the shape")])
def test_what_a_layer_knows_is_not_given_twice(old, arguments, message):
  old = make(**old)
  with pytest.raises(ValueError, match=message):
    PositionBias(old.num_positions, examination=old, **arguments)


def test_what_is_fixed_must_be_a_layer():
  with pytest.raises(ValueError, match="`other` must be a `PositionBias`"):
    PositionBias.fixed([.9, .5, .1])
