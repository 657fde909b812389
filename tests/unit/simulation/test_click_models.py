"""Tests of ultra_tfr.simulation.click_models and what it is made of."""

import itertools

import numpy as np
import pytest

from ultra_tfr.simulation import base
from ultra_tfr.simulation import click_models

_GRADES = np.array([2, 4, 0, 3])
_MODELS = {
    "pbm": click_models.PositionBasedModel(),
    "pbm, given": click_models.PositionBasedModel([.9, .3], .5, .2, 5),
    "ubm": click_models.UserBrowsingModel(),
    "ubm, given": click_models.UserBrowsingModel([[.9], [.4, .6]], .5, .2, 5),
    "cascade": click_models.CascadeModel(),
    "dcm": click_models.CascadeModel([.7, .4], .2, 5),
    "dbn": click_models.DynamicBayesianModel(),
    "dbn, given": click_models.DynamicBayesianModel(.5, .6, .2, 5),
    "trust": click_models.TrustBiasModel(),
    "trust, given": click_models.TrustBiasModel(
        [.9, .3], .5, .2, 5, [.8, .7], [.5, .1]),
}


def _sessions(model, grades):
  """All sessions of one list by definition: (probability, examined, clicks).

  In plain Python, one user's step after the other.
  """
  def walk(item, examined, clicks, goes_on):
    if item == len(grades):
      yield 1., examined, clicks
      return
    position = item + 1
    gain = (2. ** grades[item] - 1.) / (2. ** model.max_grade - 1.)
    attraction = model.click_noise + (1. - model.click_noise) * gain
    last = max((k + 1 for k, c in enumerate(clicks) if c), default=0)
    examination, after_skip, after_click = float(goes_on), 1., 1.
    if isinstance(model, click_models.PositionBasedModel):
      table = model.examination_by_position
      examination = table[min(position, len(table)) - 1] ** model.eta
    if isinstance(model, click_models.TrustBiasModel):
      positive, negative = 1. - (position + 1) / 100., .65 / position
      if model.trust_positive is not None:
        place = min(position, 2) - 1
        positive = model.trust_positive[place]
        negative = model.trust_negative[place]
      attraction = positive * attraction + negative * (1. - attraction)
    if isinstance(model, click_models.UserBrowsingModel):
      row = min(position, len(model.table))
      place = row if not last else min(
          position - last, max(len(model.table) - 1, 1))
      examination = model.table[row - 1, place - 1] ** model.eta
    if isinstance(model, click_models.CascadeModel):
      after_click = model.continuation[
          min(position, len(model.continuation)) - 1]
    if isinstance(model, click_models.DynamicBayesianModel):
      after_skip = model.continuation
      after_click = model.continuation * (1. - model.satisfaction * gain)
    for seen, click, on in itertools.product((0, 1), repeat=3):
      chance = examination if seen else 1. - examination
      if seen:
        chance *= attraction if click else 1. - attraction
        going = after_click if click else after_skip
        chance *= going if on else 1. - going
      elif click or on:
        continue
      if chance > 0.:
        for rest in walk(item + 1, examined + (seen,), clicks + (click,), on):
          yield (chance * rest[0],) + rest[1:]

  yield from walk(0, (), (), True)


@pytest.mark.parametrize("name", _MODELS)
def test_sessions_are_as_often_as_defined(name):
  model = _MODELS[name]
  num_lists = 100000
  simulated = model.sample(np.tile(_GRADES, (num_lists, 1)), seed=(1, 2))
  sessions = list(_sessions(model, _GRADES))
  assert sum(s[0] for s in sessions) == pytest.approx(1.)
  weights = 2 ** np.arange(8)
  codes = np.concatenate(
      [simulated.examined, simulated.clicks], axis=1).astype(int) @ weights
  counts = np.bincount(codes, minlength=256)
  expected = np.zeros(256)
  for chance, examined, clicks in sessions:
    expected[np.array(examined + clicks) @ weights] += chance
  assert np.all(counts[expected == 0.] == 0)
  error = counts / num_lists - expected
  deviation = np.sqrt(expected * (1. - expected) / num_lists)
  assert np.all(np.abs(error) <= 5. * deviation + 3. / num_lists)


@pytest.mark.parametrize("name", _MODELS)
def test_propensity_is_examination_given_the_clicks_above(name):
  model = _MODELS[name]
  simulated = model.sample(np.tile(_GRADES, (5000, 1)), seed=5)
  sessions = list(_sessions(model, _GRADES))
  rows = np.concatenate([simulated.clicks, simulated.propensity], axis=1)
  for row in np.unique(rows, axis=0):
    for item in range(4):
      above = tuple(row[:item].astype(int))
      same = [(p, e[item]) for p, e, c in sessions if c[:item] == above]
      expected = sum(p * e for p, e in same) / sum(p for p, _ in same)
      assert row[4 + item] == pytest.approx(expected, abs=1e-6)


def test_click_rates_by_position_and_grade():
  labels = np.random.default_rng(0).integers(0, 5, size=(100000, 12))
  clicks = click_models.PositionBasedModel().sample(labels, seed=3).clicks
  examination = [.68, .61, .48, .34, .28, .2, .11, .1, .08, .06, .06, .06]
  for item, grade in itertools.product(range(12), range(5)):
    rate = clicks[labels[:, item] == grade, item].mean()
    expected = examination[item] * (.1 + .9 * (2 ** grade - 1) / 15)
    assert rate == pytest.approx(expected, abs=.015)


def test_examination_curve_eta_and_continuation():
  model = click_models.PositionBasedModel()
  np.testing.assert_allclose(model.examination(12)[8:], [.08, .06, .06, .06])
  squared = click_models.PositionBasedModel(eta=2.)
  np.testing.assert_allclose(
      squared.examination(12), model.examination(12) ** 2)
  flat = click_models.PositionBasedModel(eta=0.)
  assert np.all(flat.examination(12) == 1.)


def test_everything_examined():
  for model in (click_models.PositionBasedModel([1.]),
                click_models.UserBrowsingModel([[1.]]),
                click_models.CascadeModel(continuation=1.),
                click_models.DynamicBayesianModel(0., 1.)):
    simulated = model.sample(np.full((50, 20), 4), seed=0)
    for array in simulated:
      assert np.all(array == 1.)


def test_no_trust_bias_is_the_position_based_model():
  labels = np.random.default_rng(0).integers(0, 5, size=(100, 15))
  trust = click_models.TrustBiasModel(trust_positive=[1.], trust_negative=[0.])
  for ours, theirs in zip(
      trust.sample(labels, seed=2),
      click_models.PositionBasedModel().sample(labels, seed=2)):
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", _MODELS)
def test_no_clicks_on_padding(name):
  """A simulator took padding for grade 0, on which its noise clicked."""
  labels = np.tile([1, 0, -1, -1], (10000, 1))
  for array in _MODELS[name].sample(labels, seed=0):
    assert array.dtype == np.float32
    assert np.all(array[:, 2:] == 0.)
    assert np.any(array[:, :2] > 0.)
  not_displayed = _MODELS[name].sample(
      [[1, 0]], seed=0, positions=[[0, 1]])
  assert all(array[0, 0] == 0. for array in not_displayed)


def test_grades_are_whole_and_on_the_scale():
  """A simulator cut off fractions, and clamped what is off its scale."""
  model = click_models.PositionBasedModel()
  np.testing.assert_allclose(
      model.attraction([0, 1, 2, 3, 4]), [.10, .16, .28, .52, 1.])
  assert model.attraction([-1, -1.5]).tolist() == [0., 0.]
  for bad in (.5, 7, np.nan, np.inf):
    for call in (model.attraction, lambda y: model.sample(y, seed=0)):
      with pytest.raises(ValueError, match=(
          rf"whole grades .*`max_grade` 4.* {float(bad)} at \[0, 1\]")):
        call([[4, bad]])
  wide = click_models.PositionBasedModel(max_grade=7)
  assert wide.attraction([7]).tolist() == [1.]


def test_probabilities_hold_in_long_lists():
  """A simulator's trust fell with the rank, and below 0 from the 100th on."""
  model = click_models.TrustBiasModel()
  positive, negative = model.trust(300)
  np.testing.assert_allclose(positive[:3], [.98, .97, .96])
  np.testing.assert_allclose(negative[:3], [.65, .325, .65 / 3])
  assert np.all((0. <= negative) & (negative <= positive) & (positive <= 1.))
  assert np.all(negative[:98] < positive[:98])
  assert np.all(positive[98:] == 0.) and np.all(negative[98:] == 0.)
  for model in _MODELS.values():
    simulated = model.sample(np.full((20, 300), 4), seed=0)
    for array in simulated:
      assert np.all((0. <= array) & (array <= 1.))


def test_nothing_is_seen_after_a_cascade_click():
  """A simulator failed, on the type of a click, right below the first one."""
  simulated = click_models.CascadeModel().sample(
      np.tile([0, 4, 4, 0], (200, 1)), seed=0)
  for clicks, examined, propensity in zip(*simulated):
    first = int(np.argmax(clicks))
    assert clicks.sum() == 1.
    expected = (np.arange(4) <= first).astype(np.float32)
    np.testing.assert_array_equal(examined, expected)
    np.testing.assert_array_equal(propensity, expected)


@pytest.mark.parametrize("kind", click_models.CLICK_MODELS.values())
def test_lists_without_clicks_are_drawn_once(kind):
  """A simulator drew lists again until there was a click: perhaps forever."""
  arguments = {"click_noise": 0.}
  if kind is click_models.TrustBiasModel:
    arguments["trust_negative"] = [0.]
  simulated = kind(**arguments).sample(np.zeros((100, 10)), seed=0)
  assert np.all(simulated.clicks == 0.)
  assert np.all(simulated.examined[:, 0] <= 1.)


@pytest.mark.parametrize("name", _MODELS)
def test_draws_repeat_and_do_not_depend_on_padding(name):
  """Who simulates needs the same clicks again, in batches of any size."""
  model = _MODELS[name]
  labels = np.random.default_rng(0).integers(-1, 5, size=(200, 6))
  labels[:, 4:][labels[:, 4:] < 0] = 0  # Padding in the middle only.
  first = model.sample(labels, seed=(4, 0))
  for again, array in zip(model.sample(labels, seed=(4, 0)), first):
    np.testing.assert_array_equal(again, array)
  other = model.sample(labels, seed=(4, 1))
  assert np.any(other.clicks != first.clicks)
  longer = np.concatenate([labels, np.full((200, 3), -1)], axis=1)
  for padded, array in zip(model.sample(longer, seed=(4, 0)), first):
    np.testing.assert_array_equal(padded[:, :6], array)


@pytest.mark.parametrize("name", _MODELS)
def test_items_move_with_their_positions(name):
  model = _MODELS[name]
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 5, size=(200, 6))
  positions = np.tile([1, 2, 3, 4, 7, 12], (200, 1))
  order = np.argsort(rng.random((200, 6)), axis=1)
  straight = model.sample(labels, 8, positions)
  moved = model.sample(np.take_along_axis(labels, order, axis=1), 8,
                       np.take_along_axis(positions, order, axis=1))
  for array, other in zip(straight, moved):
    np.testing.assert_array_equal(
        np.take_along_axis(array, order, axis=1), other)
  implied = model.sample(labels, 8)
  given = model.sample(labels, 8, np.tile(np.arange(6) + 1, (200, 1)))
  np.testing.assert_array_equal(implied.clicks, given.clicks)


def test_positions_select_the_examination():
  simulated = click_models.PositionBasedModel().sample(
      [[0, 0, 0]], 0, positions=[[11, 1, 3]])
  np.testing.assert_allclose(simulated.propensity, [[.06, .68, .48]], rtol=1e-6)


@pytest.mark.parametrize("call, message", [
    (lambda m: m.sample([1, 0], 0), r"`labels` .*\[lists, list_size\].*\[2\]"),
    (lambda m: m.sample([[1, 0]], None), "`seed` .* None"),
    (lambda m: m.sample([[1, 0]], 0, [[1]]), r"`positions` .*\[1, 1\]"),
    (lambda m: m.sample([[1, 0]], 0, [[1, -2]]), "`positions` .* from -2"),
    (lambda m: m.sample([[1, 0]], 0, [[1, 1.5]]), "`positions` .* whole"),
    (lambda m: m.sample([[1, 0], [1, 0]], 0, [[1, 2], [3, 3]]),
     "`positions` must differ .* list 1 has position 3 twice"),
])
def test_bad_sample_arguments(call, message):
  with pytest.raises(ValueError, match=message):
    call(click_models.PositionBasedModel())


@pytest.mark.parametrize("make, message", [
    (lambda: click_models.PositionBasedModel([.5, 1.5]),
     r"`examination` must be in \[0, 1\]"),
    (lambda: click_models.PositionBasedModel([]), "`examination` .* vector"),
    (lambda: click_models.PositionBasedModel(.5), "`examination` .* vector"),
    (lambda: click_models.PositionBasedModel(eta=-1), "`eta` .* -1"),
    (lambda: click_models.PositionBasedModel(click_noise=np.nan),
     "`click_noise` .* nan"),
    (lambda: click_models.PositionBasedModel(max_grade=0), "`max_grade` .* 0"),
    (lambda: click_models.UserBrowsingModel([[.5], [.5]]),
     "Row 2 of `examination` must have 2 values, but has 1"),
    (lambda: click_models.CascadeModel(continuation=2.),
     r"`continuation` .*\[0\] is 2.0"),
    (lambda: click_models.DynamicBayesianModel(satisfaction=-1.),
     "`satisfaction` .* -1.0"),
    (lambda: click_models.DynamicBayesianModel(continuation=-1.),
     "`continuation` .* -1.0"),
    (lambda: click_models.TrustBiasModel(trust_positive=[2.]),
     "`trust_positive`"),
    (lambda: click_models.TrustBiasModel(trust_negative=[2.]),
     "`trust_negative`"),
])
def test_bad_model_arguments(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_streams_and_seeds_are_different():
  draws = [base.draw_uniforms(seed, (3, 4), 2, stream)
           for seed, stream in ((1, 0), (1, 1), ((1, 1), 0), (2, 0))]
  for one, other in itertools.combinations(draws, 2):
    assert one.shape == (2, 3, 4)
    assert not np.any(one == other)
