"""What all metrics say of scores that are NaN."""

import numpy as np
import pytest

from catalogue import METRICS
from catalogue import outcome_of
from ultra_tfr.metrics import ClickLogLikelihood

_NAN, _INF = float("nan"), float("inf")


@pytest.fixture(params=METRICS.values(), ids=lambda entry: entry.name)
def entry(request):
  return request.param


def _result(entry, batch, metric, compiled=None):
  return entry.run(entry, batch, metric, compiled).totals["result"]


@pytest.mark.parametrize("compiled", [
    None, pytest.param("graph", marks=pytest.mark.slow)])
def test_scores_that_are_no_numbers_are_never_rewarded(entry, compiled):
  """Each item whose score is NaN had rank 1.

  So the DCG of a model that had diverged was above that of the best order, and
  `ModelCheckpoint(save_best_only=True)` kept that model.
  """
  metric, batch = entry.make(), entry.make_batch()
  good = batch["scores"]
  # Some tables have but 4 positions.
  counts = (batch["feedback"] >= 0) & (batch["positions"] <= 4)
  for wrong in (..., *((i, np.flatnonzero(counts[i])[-1]) for i in range(2))):
    batch["scores"] = good.copy()
    batch["scores"][wrong] = _NAN
    assert np.isnan(_result(entry, batch, metric, compiled))
  batch["scores"] = good
  expected = outcome_of(entry).totals["result"]
  np.testing.assert_allclose(_result(entry, batch, metric), expected, 1e-6)


def test_scores_of_lists_that_do_not_count_may_be_anything(entry):
  metric, batch = entry.make(), entry.make_batch()
  batch["weights"][0] = 0.
  expected = _result(entry, batch, metric)
  batch["scores"][0] = batch["scores"][2] = _NAN
  np.testing.assert_allclose(_result(entry, batch, metric), expected, 1e-6)


def test_infinite_scores_are_the_largest_and_the_smallest(entry):
  """They tied with nothing, and each of them had rank 1, too."""
  if entry.factory is ClickLogLikelihood:
    return  # It takes scores for logits, and no two of them are compared.
  metric, batch = entry.make(), entry.make_batch()
  results = []
  for large in (_INF, 1e30):
    scores = batch["scores"].copy()
    scores[:, :2] = large
    scores[:, 3:] = -large
    results.append(_result(entry, {**batch, "scores": scores}, metric))
  assert np.isfinite(results[1])
  np.testing.assert_allclose(results[0], results[1], 1e-6)
