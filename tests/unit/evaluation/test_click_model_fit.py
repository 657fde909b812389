"""Tests of ultra_tfr.evaluation.click_model_fit."""

import numpy as np
import pytest
from scipy import optimize

import eye_tracking
import oracles
from ultra_tfr.evaluation import bootstrap
from ultra_tfr.evaluation import click_model_fit

THETA = eye_tracking.CURVE


def _log(seed, num_requests=400, noise=0., betas=None):
  """Ten rows a request with relevance beta, clicked by theta and p0."""
  rng = np.random.default_rng(seed)
  size = 10 * num_requests
  beta = rng.choice(betas, size) if betas else rng.beta(1., 2., size)
  positions = np.tile(np.arange(1, 11), num_requests)
  chance = THETA[positions - 1] * (beta + noise * (1. - beta))
  return {"positions": positions, "contexts": np.zeros(size, int),
          "clicked": rng.random(size) < chance, "relevance": beta,
          "requests": np.repeat(np.arange(num_requests), 10)}


def _exact(p1, p0, betas, rows):
  """A log in which each click rate is exactly what is expected."""
  columns = {name: [] for name in ("positions", "clicked", "relevance")}
  for k, (one, zero) in enumerate(zip(p1, p0)):
    for beta in betas:
      clicks = rows * oracles.click_probability(beta, one, zero)
      assert clicks == pytest.approx(round(clicks))
      columns["positions"] += [k + 1] * rows
      columns["relevance"] += [beta] * rows
      columns["clicked"] += [a < round(clicks) for a in range(rows)]
  size = len(columns["clicked"])
  return {**columns, "contexts": [0] * size, "requests": range(size)}


def _start(value=.5, contexts=1, num_positions=10):
  return np.full((contexts, num_positions), value)


def _slow_theta(log, k):
  """The root of the position-based model's score equation, row by row."""
  rows = [(b, c) for b, c, j in zip(
      log["relevance"], log["clicked"], log["positions"]) if j == k]
  return optimize.brentq(
      lambda theta: sum(1. / theta if c else -b / (1. - theta * b)
                        for b, c in rows), 1e-6, .999999)


def _slow_em(log, k, p1, p0, iterations):
  """The same EM, row by row."""
  rows = [(b, bool(c)) for b, c, j in zip(
      log["relevance"], log["clicked"], log["positions"]) if j == k]
  for _ in range(iterations):
    q = [oracles.relevance_posterior(c, b, p1, p0) for b, c in rows]
    p1 = sum(r for r, (_, c) in zip(q, rows) if c) / sum(q)
    p0 = sum(1. - r for r, (_, c) in zip(q, rows) if c) / (len(q) - sum(q))
  return p1, p0


def test_expected_counts_give_theta():
  theta = [.75, .5, .05]
  fit = click_model_fit.fit_click_model(
      **_exact(theta, [0.] * 3, [.2, .4, .8], 100), replicates=1,
      click_relevant=[[.9, .1, .5]])
  np.testing.assert_allclose(fit.click_relevant, [theta], atol=1e-7)
  np.testing.assert_allclose(
      fit.examination.value, [[1., 2 / 3, 1 / 15]], atol=1e-6)
  assert fit.click_irrelevant is None and fit.converged


@pytest.mark.parametrize("start", [(.9, .01), (.5, .5), (1., 0.), (.1, .05)])
def test_expected_counts_give_both_from_any_start(start):
  p1, p0 = [.75, .5, .6], [.25, .1, .02]
  fit = click_model_fit.fit_click_model(
      **_exact(p1, p0, [.2, .8], 1000), replicates=1, tolerance=1e-12,
      click_relevant=_start(start[0], 1, 3),
      click_irrelevant=_start(start[1], 1, 3))
  np.testing.assert_allclose(fit.click_relevant, [p1], atol=1e-6)
  np.testing.assert_allclose(fit.click_irrelevant.value, [p0], atol=1e-6)
  assert fit.converged


def test_theta_against_the_score_equation_of_rows():
  log = _log(1)
  expected = [_slow_theta(log, k) for k in range(1, 11)]
  coarse, fine = (click_model_fit.fit_click_model(
      **log, click_relevant=_start(), num_bins=bins, replicates=1
      ).click_relevant[0] for bins in (64, 4000))
  np.testing.assert_allclose(coarse, expected, rtol=5e-4)
  np.testing.assert_allclose(fine, expected, rtol=2e-6)


def test_the_position_based_model_stays_one_on_noisy_clicks():
  log = _log(1, noise=.3)
  fit = click_model_fit.fit_click_model(
      **log, click_relevant=_start(), tolerance=0., max_iterations=4000,
      replicates=1)
  np.testing.assert_allclose(
      fit.click_relevant[0, :5], [_slow_theta(log, k) for k in range(1, 6)],
      rtol=2e-3)


def test_both_against_em_of_rows():
  log = _log(2, noise=.3, betas=[.1, .3, .7])
  fit = click_model_fit.fit_click_model(
      **log, click_relevant=_start(), click_irrelevant=_start(.2),
      tolerance=0., max_iterations=40, replicates=1)
  assert not fit.converged
  for k in (1, 2, 3):
    p1, p0 = _slow_em(log, k, .5, .2, 40)
    assert fit.click_relevant[0, k - 1] == pytest.approx(p1, rel=1e-5)
    assert fit.click_irrelevant.value[0, k - 1] == pytest.approx(p0, rel=1e-5)


def test_log_likelihood_is_that_of_the_rows():
  log = _log(3)
  fit = click_model_fit.fit_click_model(
      **log, click_relevant=_start(), click_irrelevant=_start(.1), replicates=1)
  chance = [oracles.click_probability(
      b, fit.click_relevant[0, k - 1], fit.click_irrelevant.value[0, k - 1])
            for b, k in zip(log["relevance"], log["positions"])]
  assert fit.log_likelihood == pytest.approx(np.mean(
      [np.log(p if c else 1. - p) for p, c in zip(chance, log["clicked"])]))


@pytest.mark.parametrize("p0", [None, _start(.1)])
def test_interval_is_that_of_logs_with_requests_repeated(p0, monkeypatch):
  log = _log(4, betas=[.2, .5, .8], noise=.2)
  settings = {"click_relevant": _start(), "click_irrelevant": p0, "seed": 7}
  fit = click_model_fit.fit_click_model(
      **log, **settings, replicates=12, level=.6)
  fits = []
  for draw in bootstrap.resample(400, 12, 7):
    rows = np.repeat(np.arange(4000), draw[log["requests"]])
    fits.append(click_model_fit.fit_click_model(
        **{name: values[rows] for name, values in log.items()}, **settings,
        replicates=1))
  pairs = [(fit.examination, [each.examination.value for each in fits])]
  if p0 is not None:
    pairs.append((fit.click_irrelevant,
                  [each.click_irrelevant.value for each in fits]))
  for estimate, values in pairs:
    low, high = bootstrap.interval(values, .6)
    np.testing.assert_allclose(estimate.low, low, atol=1e-6)
    np.testing.assert_allclose(estimate.high, high, atol=1e-6)
  # 3 replicates at a time.
  monkeypatch.setattr(click_model_fit, "_BLOCK", 2000)
  pieces = click_model_fit.fit_click_model(
      **log, **settings, replicates=12, level=.6)
  np.testing.assert_allclose(pieces.examination.low, fit.examination.low)


@pytest.mark.parametrize("noise", [
    pytest.param(0., marks=pytest.mark.slow), .3])
def test_intervals_cover(noise):
  covered = []
  for seed in range(20):
    fit = click_model_fit.fit_click_model(
        **_log(50 + seed, num_requests=2000, noise=noise), seed=seed,
        click_relevant=_start(),
        click_irrelevant=_start(.2) if noise else None, replicates=100)
    truth = THETA / THETA[0]
    covered.append((fit.examination.low <= truth) &
                   ~(fit.examination.high < truth))
    if noise:
      covered[-1] = np.stack([
          covered[-1], (fit.click_irrelevant.low <= noise * THETA) &
          (noise * THETA <= fit.click_irrelevant.high)])
  assert .8 <= np.mean(covered, axis=0)[..., 1:].mean() <= .97


def test_scale_of_theta_is_fixed_by_relevance():
  log = _exact([.5, .25], [0., 0.], [.4, .8], 100)
  fit = click_model_fit.fit_click_model(
      **log, click_relevant=_start(.5, 1, 2), replicates=1)
  log["relevance"] = np.array(log["relevance"]) / 1.6
  scaled = click_model_fit.fit_click_model(
      **log, click_relevant=_start(.5, 1, 2), replicates=1)
  np.testing.assert_allclose(
      scaled.click_relevant, 1.6 * fit.click_relevant, rtol=1e-6)
  np.testing.assert_allclose(
      scaled.examination.value, fit.examination.value, rtol=1e-6)


def test_clicks_against_relevance_are_noise():
  # Fewer clicks on relevant rows: p0 > p1 would fit best, and is not allowed.
  log = _exact([.2], [.6], [.25, .75], 20)
  fit = click_model_fit.fit_click_model(
      **log, click_relevant=[[.9]], click_irrelevant=[[.1]], replicates=1)
  rate = np.mean(log["clicked"])
  np.testing.assert_allclose(fit.click_relevant, rate)
  np.testing.assert_allclose(fit.click_irrelevant.value, rate)


def test_contexts_are_fitted_apart():
  one, two = _log(5), _log(6, num_requests=200)
  two["contexts"] += 1
  two["requests"] += 1000
  two["clicked"] &= two["positions"] < 3
  both = {name: np.append(one[name], two[name]) for name in one}
  fit = click_model_fit.fit_click_model(
      **both, click_relevant=_start(contexts=3), replicates=3, num_bins=4000)
  alone = [click_model_fit.fit_click_model(
      **log, click_relevant=_start(contexts=3), replicates=3, num_bins=4000)
           for log in (one, two)]
  for c in (0, 1):
    np.testing.assert_allclose(
        fit.click_relevant[c], alone[c].click_relevant[c], rtol=1e-5)
  # No clicks: 0, and no telling how high; no rows: not known at all.
  assert fit.examination.value[1, 2:].tolist() == [0.] * 8
  assert fit.examination.low[1, 2:].tolist() == [0.] * 8
  assert np.isnan(fit.examination.high[1, 2:]).all()
  for values in (fit.click_relevant, fit.examination.value,
                 fit.examination.low, fit.examination.high):
    assert np.isnan(values[2]).all() and np.isfinite(values[:2, :2]).all()


def test_rows_without_a_position_do_not_count():
  log = _log(7)
  longer = {name: np.append(values, values[:100])
            for name, values in log.items()}
  longer["positions"][-100:] = 0
  fits = [click_model_fit.fit_click_model(
      **each, click_relevant=_start(), replicates=3) for each in (log, longer)]
  np.testing.assert_array_equal(*(fit.click_relevant for fit in fits))
  np.testing.assert_array_equal(*(fit.examination.low for fit in fits))


def test_relevance_rounded_to_its_ends_and_a_single_request():
  fit = click_model_fit.fit_click_model(
      [1, 1, 1, 2, 2, 2], [0] * 6, [True, False, True, False, True, False],
      [0., 0., 1., 0., 1., 1.], [3] * 6, [[.5, .5]], replicates=5)
  assert 0. < fit.click_relevant.min() and fit.click_relevant.max() <= 1.
  assert np.isfinite(fit.log_likelihood)
  assert fit.examination.low[0, 1] == pytest.approx(
      fit.examination.value[0, 1], rel=1e-4)


@pytest.mark.parametrize("change, message", [
    ({"positions": [1, 3]},
     "`positions` must be in 0 to 2, but positions.1. is 3"),
    ({"positions": [0, 0]}, "`positions` must hold some that are known"),
    ({"contexts": [0, 1]},
     "`contexts` must be in 0 to 0, but contexts.1. is 1"),
    ({"contexts": [0]}, r"`contexts` must have the shape \[2\].*\[1\]"),
    ({"contexts": [0., 0.]}, "`contexts` must hold integers"),
    ({"clicked": [1, 0]}, "`clicked` must hold booleans"),
    ({"relevance": [.5, 1.5]},
     "`relevance` must be in 0 to 1, but relevance.1. is"),
    ({"relevance": [np.nan, .5]},
     "`relevance` .* relevance.0. is nan; .*sigmoid"),
    ({"relevance": [.5]}, r"`relevance` must have the shape \[2\].*\[1\]"),
    ({"requests": [0]}, r"`requests` must have the shape \[2\].*\[1\]"),
    ({"click_relevant": [.5, .5]}, r"`click_relevant` .*\[contexts, positions"),
    ({"click_relevant": [[.5, 2.]]}, "`click_relevant` .* is 2.0"),
    ({"click_irrelevant": [[.1]]}, r"`click_irrelevant` .* shape \[1, 1\]"),
    ({"num_bins": 0}, "`num_bins` .* at least 1, but is 0"),
    ({"replicates": 0}, "`replicates` .* at least 1, but is 0"),
    ({"level": 1.}, "`level` must be between 0 and 1, but is 1.0"),
])
def test_bad_arguments(change, message):
  good = {"positions": [1, 2], "contexts": [0, 0], "clicked": [True, False],
          "relevance": [.5, .5], "requests": [0, 1],
          "click_relevant": [[.5, .5]], "replicates": 2}
  click_model_fit.fit_click_model(**good)
  with pytest.raises(ValueError, match=message):
    click_model_fit.fit_click_model(**{**good, **change})
