"""Tests of ultra_tfr.data.synthetic."""

import numpy as np
import pytest

from ultra_tfr.data import synthetic

# Features that describe the query only, of 136.
QUERY_FEATURES = 16


@pytest.fixture(scope="module")
def data():
  return synthetic.generate(300, 60, 90, seed=3)


def _stacked(data, name):
  return np.concatenate([getattr(part, name) for part in data])


def _signed_log(values):
  return np.sign(values) * np.log1p(np.abs(values))


def test_shapes_and_types(data):
  assert [len(part) for part in data] == [300, 60, 90]
  for part in data:
    assert part.features.shape == (part.list_sizes.sum(), 136)
    assert part.features.dtype == part.labels.dtype == np.float32
    assert np.isfinite(part.features).all()
  ids = _stacked(data, "query_ids")
  assert len(set(ids.tolist())) == 450


def test_grade_shares(data):
  labels = _stacked(data, "labels")
  shares = np.bincount(labels.astype(int), minlength=5) / len(labels)
  # Grades are cut at quantiles of all documents, so only rounding is left.
  np.testing.assert_allclose(
      shares, synthetic.GRADE_SHARES, atol=2 / len(labels))
  assert sum(synthetic.GRADE_SHARES) == pytest.approx(1.0)


def test_every_part_has_the_grades(data):
  for part in data:
    assert set(part.labels.tolist()) == {0, 1, 2, 3, 4}


def test_list_sizes(data):
  sizes = _stacked(data, "list_sizes")
  assert (sizes.min(), sizes.max()) == (8, 40)
  assert abs(sizes.mean() - 24) < 2
  small = synthetic.generate(40, 5, 5, min_size=3, max_size=5, seed=1)
  assert set(small.train.list_sizes.tolist()) == {3, 4, 5}
  same = synthetic.generate(9, 1, 1, min_size=4, max_size=4)
  assert set(same.train.list_sizes.tolist()) == {4}


def test_the_seed_decides_everything():
  first, again, other = (
      synthetic.generate(20, 5, 5, seed=seed) for seed in (7, 7, 8))
  for name in ("features", "labels", "row_splits"):
    for one, two in zip(first, again):
      np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
  assert first.train.features.shape != other.train.features.shape or (
      first.train.features != other.train.features).any()


def test_no_global_random_state():
  np.random.seed(5)
  expected = np.random.random()
  np.random.seed(5)
  first = synthetic.generate(3, 1, 1)
  assert np.random.random() == expected
  again = synthetic.generate(3, 1, 1)
  np.testing.assert_array_equal(first.train.features, again.train.features)


def test_noise_and_features_change_the_data():
  quiet = synthetic.generate(50, 5, 5, noise=0.0)
  loud = synthetic.generate(50, 5, 5, noise=2.0)
  np.testing.assert_array_equal(quiet.train.features, loud.train.features)
  assert (quiet.train.labels != loud.train.labels).mean() > 0.2
  assert synthetic.generate(
      2, 1, 1, num_features=40).train.num_features == 40


def test_some_features_have_heavy_tails(data):
  values = _stacked(data, "features").astype(np.float64)
  centred = values - values.mean(axis=0)
  kurtosis = (centred**4).mean(axis=0) / (centred**2).mean(axis=0)**2
  # A normal variable has 3.
  assert 20 <= (kurtosis > 30).sum() <= 60
  assert (kurtosis < 4).sum() >= 20


def test_features_have_very_different_scales(data):
  spread = _stacked(data, "features").std(axis=0)
  assert spread.min() > 0
  assert spread.max() / np.median(spread) > 1e3
  assert np.median(spread) / spread.min() > 10


def test_query_features_are_constant_within_a_list(data):
  features = data.train.features
  starts = data.train.row_splits[:-1]
  constant = (np.minimum.reduceat(features, starts) ==
              np.maximum.reduceat(features, starts)).all(axis=0)
  assert constant.sum() == QUERY_FEATURES
  # They tell the queries apart.
  assert (np.ptp(features[starts][:, constant], axis=0) > 0).all()


def _correlation_with_labels(part):
  """Least squares on the features of one half, correlation on the other."""
  logs = _signed_log(part.features)
  logs = (logs - logs.mean(axis=0)) / logs.std(axis=0)
  half = len(logs) // 2
  weights = np.linalg.lstsq(
      logs[:half], part.labels[:half] - part.labels[:half].mean(),
      rcond=None)[0]
  return np.corrcoef(logs[half:] @ weights, part.labels[half:])[0, 1]


def test_relevance_shows_in_the_features_through_noise(data):
  found = _correlation_with_labels(data.train)
  assert 0.3 < found < 0.9
  assert found > _correlation_with_labels(
      synthetic.generate(300, 1, 1, noise=3.0, seed=3).train) + 0.1


@pytest.mark.parametrize("arguments, message", [
    ({"num_train": 0}, "`num_train` must be .* at least 1, but is 0"),
    ({"num_valid": 0}, "`num_valid` must be .* at least 1, but is 0"),
    ({"num_test": -1}, "`num_test` must be .* at least 1, but is -1"),
    ({"num_features": 39}, "`num_features` must be .* at least 40, but is 39"),
    ({"min_size": 1}, "`min_size` must be .* at least 2, but is 1"),
    ({"min_size": 9, "max_size": 8},
     "`max_size` must be .* at least 9, but is 8"),
])
def test_bad_sizes(arguments, message):
  with pytest.raises(ValueError, match=message):
    synthetic.generate(**arguments)
