"""Tests of ultra_tfr.fit_log.diagnosis: the sample of the log."""

import numpy as np
import pytest

import click_logs
from ultra_tfr.fit_log import diagnosis
from ultra_tfr.fit_log import scoring
from ultra_tfr.fit_log import training


def test_rows_are_those_of_the_log():
  log, fitted = click_logs.easy()
  sample = diagnosis.draw(log, fitted)
  table = click_logs.simulated()[0]
  assert sample.is_complete
  assert {len(column) for column in sample[:-1]} == {len(table)}
  # In the order of the parts.
  batches = [batch for part in ("train", "valid", "test")
             for batch in log.parts[part].batches(10000)]
  for name in ("items", "positions", "contexts", "weights", "randomized"):
    np.testing.assert_array_equal(getattr(sample, name), np.concatenate(
        [getattr(batch, name)[batch.positions > 0] for batch in batches]))
  np.testing.assert_array_equal(sample.clicked, np.concatenate(
      [batch.feedback[batch.positions > 0] > 0 for batch in batches]))
  relevance = np.concatenate([
      scoring.predict(fitted.model, batch)[1][
          fitted.bias.relevance_head][batch.positions > 0]
      for batch in batches])
  np.testing.assert_allclose(sample.relevance, relevance, rtol=1e-4)
  assert np.unique(sample.requests, return_counts=True)[1].tolist() == (
      [5] * 6000)
  assert sample.randomized.mean() == pytest.approx(
      np.mean(table["randomized"].to_pylist()))


@pytest.mark.parametrize("most", [1, 50, 1500, 5999])
def test_at_most_so_many_requests(most):
  log, fitted = click_logs.easy()
  sample = diagnosis.draw(log, fitted, most)
  assert not sample.is_complete
  # Each of the three parts is rounded up to equal batches.
  assert most <= len(np.unique(sample.requests)) <= most + 3 * 6
  again = diagnosis.draw(log, fitted, most)
  np.testing.assert_array_equal(sample.requests, again.requests)


def test_parts_have_equal_shares():
  log, fitted = click_logs.easy()
  sample = diagnosis.draw(log, fitted, 600)
  for part, count in (("train", 480), ("valid", 60), ("test", 60)):
    requests = np.concatenate(
        [batch.requests for batch in log.parts[part].batches(1000)])
    assert np.isin(requests, sample.requests).sum() == count


def test_rows_of_weight_0_are_left_out():
  table = click_logs.small()
  weights = np.random.default_rng(0).integers(0, 3, len(table))
  fitted = click_logs.easy()[1]
  with click_logs.read(
      click_logs.with_column(table, "w", weights.astype(float)),
      columns=click_logs.columns(weight="w")) as log:
    sample = diagnosis.draw(log, fitted)
  assert sorted(sample.weights) == sorted(weights[weights > 0])
  assert (sample.positions > 0).all()


def test_the_display_order_is_that_of_the_log_where_positions_are_pooled():
  with click_logs.read(click_logs.small(), num_positions=2) as log:
    fitted = training.fit(log, "unbiased", click_logs.SHORT)
    sample = diagnosis.draw(log, fitted)
  assert set(sample.positions) == {1, 2}
  assert set(sample.display_order) == set(
      range(1, len(click_logs.POSITIONS) + 1))
  for place, position in ((1, 1), (2, 2), (3, 2)):
    assert set(sample.positions[sample.display_order == place]) == {position}
