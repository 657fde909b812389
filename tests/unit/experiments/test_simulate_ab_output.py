"""Tests of what ultra_tfr.experiments.simulate_ab says and draws."""

import json

import numpy as np
import pytest

from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import plots
from ultra_tfr.experiments.simulate_ab import METRICS
from ultra_tfr.experiments.simulate_ab import ABTest
from ultra_tfr.experiments.simulate_ab import run_ab_test
from ultra_tfr.simulation.click_models import PositionBasedModel


@pytest.fixture(scope="module")
def better():
  labels = np.arange(200) % 5
  lists = RankingLists(
      np.zeros([200, 1]), labels, np.arange(0, 201, 10), np.arange(20))
  return run_ab_test(lists, -labels, labels, PositionBasedModel(), days=3,
                     seed=1, names=("old", "new"))


def test_json(better):
  written = json.loads(json.dumps(better.to_json(), allow_nan=False))
  assert written["arms"] == {"A": "old", "B": "new"}
  assert written["visits"] == better.visits.sum(axis=0).tolist()
  assert written["visits_by_day"] == better.visits.tolist()
  assert written["verdict"] == better.verdict()
  assert list(written["metrics"]) == list(METRICS)
  for metric, found in written["metrics"].items():
    for part in ("total", "daily", "cumulative"):
      expected = getattr(better, part)(metric)
      for i, arm in enumerate("ab"):
        assert found[part][f"mean_{arm}"] == expected.mean[..., i].tolist()
        assert found[part][f"half_width_{arm}"] == (
            expected.half_width[..., i].tolist())
      for name in ("uplift", "low", "high", "p_value"):
        assert found[part][name] == getattr(expected, name).tolist()


def test_text(better):
  found, text = better.total(), better.to_text()
  assert f"A: old, {better.visits[:, 0].sum()} visits\nB: new" in text
  for number in (*found.mean, *found.half_width, *better.daily().mean[1]):
    assert f"{number:.4f}" in text
  interval = f"({found.low * 100:.1f} % to {found.high * 100:.1f} %)"
  # In the table of metrics, and on the last day.
  assert text.count(f"{found.uplift * 100:.1f} % {interval}") == 2
  assert text.endswith(better.verdict())


@pytest.mark.parametrize("counts, sentence", [
    ([1000, 1100], "B gives 10.0 % more clicks a visit (95 % interval 3.7 % to "
     "16.7 %)."),
    ([1100, 1000], "B gives 9.1 % fewer clicks a visit (95 % interval -14.3 % "
     "to -3.6 %)."),
    ([1000, 1010], "No difference shown: the uplift of B in clicks a visit is "
     "1.0 % (95 % interval -5.0 % to 7.4 %)."),
    ([2000, 2000], "No difference shown: the uplift of B in clicks a visit is "
     "0.0 % (95 % interval 0.0 % to 0.0 %)."),
    ([0, 900], "No uplift can be given: A has too few clicks to compare with."),
])
def test_verdict(counts, sentence):
  sums = {metric: np.array([counts], float) for metric in METRICS}
  test = ABTest(("A", "B"), np.array([[2000, 2000]]), sums, sums)
  assert test.verdict() == sentence
  assert test.to_text().endswith(sentence)
  json.dumps(test.to_json(), allow_nan=False)


def test_plot(better, tmp_path):
  path = tmp_path / "uplift.svg"
  better.plot(str(path))
  assert "<svg" in path.read_text()
  one = [[.1, 0., .2], [.3, .2, .4]]
  two = [[.1, 0., .2], [.2, .1, .3]]
  gap = [[np.nan] * 3, [.3, .2, .4]]
  pictures = []
  for i, arguments in enumerate([
      (one, two, "clicks"), (two, two, "clicks"), (one, one, "clicks"),
      (gap, two, "clicks"), (one, two, "dwell"), (one, two, "clicks", "x")]):
    path = tmp_path / f"{i}.png"
    plots.plot_uplift(str(path), *arguments)
    pictures.append(path.read_bytes())
    assert pictures[-1].startswith(b"\x89PNG")
  assert len(set(pictures)) == len(pictures)
