"""Tests of ultra_tfr.simulation.dwell."""

import numpy as np
import pytest
from scipy import stats

from ultra_tfr.data import labels as label_synthesis
from ultra_tfr.simulation import click_models
from ultra_tfr.simulation import dwell


def _moments(position, grade, offset, divisor, noise=.1):
  """Mean and variance of delta w by SciPy's truncated normal distribution."""
  root = np.sqrt(position - 1 + offset + 2)
  mean, variance = [], []
  for mu, sigma in ((2 / root, .4 / root),
                    (noise + (1 - noise) * grade,
                     (np.sqrt(grade) + noise) / divisor)):
    normal = stats.truncnorm(-mu / sigma, np.inf, loc=mu, scale=sigma)
    mean.append(normal.mean())
    variance.append(normal.var())
  second = (variance[0] + mean[0] ** 2) * (variance[1] + mean[1] ** 2)
  return mean[0] * mean[1], second - (mean[0] * mean[1]) ** 2


@pytest.mark.parametrize("offset, name, divisor", [
    (1, "grade", 6.), (0, "grade", 6.), (1, "sqrt", 6. ** .5),
    (0, "sqrt", 6. ** .5)])
def test_moments_are_those_of_the_formula(offset, name, divisor):
  grades = np.array([0, 1, 2, 3, 4, 1])
  labels = np.tile(grades, (100000, 1))
  result = dwell.simulate_dwell(
      labels, np.ones(labels.shape), 1, rank_offset=offset,
      max_grade_divisor=name)
  assert result.dtype == np.float32
  assert np.all(result >= 0.)
  for item, grade in enumerate(grades):
    mean, variance = _moments(item + 1, grade, offset, divisor)
    assert result[:, item].mean() == pytest.approx(mean, rel=.01)
    assert result[:, item].var() == pytest.approx(variance, rel=.03)


def test_truncation_equals_redrawing():
  # Grade 1 with the code's divisor: .7 % of the draws have to be repeated.
  labels = np.ones((50000, 1))
  ours = dwell.simulate_dwell(
      labels, labels, 2, max_grade_divisor="sqrt", noise=0.)
  rng = np.random.default_rng(0)
  delta = rng.normal(2 / 3 ** .5, .4 / 3 ** .5, 60000)
  own = rng.normal(1., 6 ** -.5, 60000)
  theirs = delta[delta >= 0][:50000] * own[own >= 0][:50000]
  assert stats.ks_2samp(ours[:, 0], theirs).pvalue > .001


def test_dwell_only_where_clicked():
  labels = np.tile([4, 0, 2, -1], (500, 1))
  clicks = click_models.PositionBasedModel().sample(labels, 7).clicks
  result = dwell.simulate_dwell(labels, clicks, 7)
  np.testing.assert_array_equal(result > 0, clicks > 0)
  feedback = label_synthesis.weighted_sum(
      {"click": clicks, "dwell": result}, {"click": 1., "dwell": 1.})
  np.testing.assert_allclose(feedback, clicks + result)


def test_no_noise_and_grade_0_is_no_dwell():
  result = dwell.simulate_dwell([[0, 4]], [[1, 1]], 0, noise=0.)
  assert result[0, 0] == 0. and result[0, 1] > 0.


@pytest.mark.parametrize("kind", [int, float, bool, np.float32])
def test_clicks_of_any_type(kind):
  """A simulator failed on clicks that were float where it expected bool."""
  labels = [[4, 3, 2]]
  expected = dwell.simulate_dwell(labels, [[1, 0, 1]], 0)
  clicks = [[kind(1), kind(0), kind(1)]]
  np.testing.assert_array_equal(
      dwell.simulate_dwell(labels, clicks, 0), expected)


def test_draws_repeat_and_do_not_depend_on_padding():
  """Who simulates needs the same times again, in batches of any size."""
  labels = np.random.default_rng(0).integers(0, 5, size=(100, 5))
  clicks = np.ones(labels.shape)
  first = dwell.simulate_dwell(labels, clicks, (3, 0))
  np.testing.assert_array_equal(
      dwell.simulate_dwell(labels, clicks, (3, 0)), first)
  assert np.all(dwell.simulate_dwell(labels, clicks, (3, 1)) != first)
  padding = np.full((100, 2), -1)
  longer = dwell.simulate_dwell(
      np.concatenate([labels, padding], axis=1),
      np.concatenate([clicks, padding], axis=1), (3, 0))
  np.testing.assert_array_equal(longer[:, :5], first)
  assert np.all(longer[:, 5:] == 0.)


def test_positions_move_with_the_items():
  labels = np.array([[4, 3, 2, 1]])
  clicks = np.ones(labels.shape)
  straight = dwell.simulate_dwell(labels, clicks, 5)
  turned = dwell.simulate_dwell(labels[:, ::-1], clicks, 5, [[4, 3, 2, 1]])
  np.testing.assert_array_equal(turned[:, ::-1], straight)
  hidden = dwell.simulate_dwell(labels, clicks, 5, [[1, 0, 2, 3]])
  assert (hidden > 0).tolist() == [[True, False, True, True]]


def test_clicks_of_the_same_seed_are_independent():
  labels = np.full((100000, 1), 2)
  clicks = click_models.PositionBasedModel([.5]).sample(labels, 9).clicks
  times = dwell.simulate_dwell(labels, np.ones_like(clicks), 9)
  difference = times[clicks > 0].mean() - times[clicks == 0].mean()
  assert abs(difference) < .02


@pytest.mark.parametrize("change, message", [
    ({"clicks": [[1]]}, r"`clicks` .*\[1, 2\].*\[1, 1\]"),
    ({"clicks": [[1, .5]]}, r"`clicks` .* 0.5 at \[0, 1\]"),
    ({"clicks": [[1, np.nan]]}, r"`clicks` .* nan at \[0, 1\]"),
    ({"clicks": [[1, -1]]}, r"`clicks` .* -1.0 at \[0, 1\]"),
    ({"labels": [[1, 5]]}, r"`max_grade` 4.* 5.0 at \[0, 1\]"),
    ({"positions": [[1, 1]]}, "`positions` must differ"),
    ({"rank_offset": 2}, "`rank_offset` must be 0 or 1, but is 2"),
    ({"max_grade_divisor": "root"}, "`max_grade_divisor` .*'root'"),
    ({"noise": 2.}, "`noise` .* 2.0"),
    ({"seed": None}, "`seed` .* None"),
])
def test_bad_arguments(change, message):
  good = {"labels": [[1, 0]], "clicks": [[1, 0]], "seed": 0}
  dwell.simulate_dwell(**good)
  with pytest.raises(ValueError, match=message):
    dwell.simulate_dwell(**{**good, **change})
