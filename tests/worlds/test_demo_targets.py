"""What the demo promises, over three seeds: the gap closed and the curves.

Seven minutes on two cores; run with `pytest -m slow`.
"""

import numpy as np
import pytest

from ultra_tfr import trainer
from ultra_tfr.data import synthetic
from ultra_tfr.experiments import run
from ultra_tfr.experiments import tables
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import PositionBasedModel

SEEDS = (0, 1, 2)
METHODS = ("oracle-pairwise", "naive-pairwise", "unbiased", "unbiased-ipw")
# The defaults of `ultra-tfr demo`.
SETTINGS = trainer.Settings(
    hidden_units=(128, 64), steps=1400, learning_rate=2e-3)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes():
  """For each seed, outcomes by method; and the true curve."""
  found = []
  for seed in SEEDS:
    data = synthetic.generate(seed=seed)
    task = task_lib.make_task(*data, PositionBasedModel(), seed=seed)
    found.append({name: [run.run(name, task, SETTINGS, seed=seed)]
                  for name in METHODS})
    print(f"seed {seed}:", {
        name: (round(runs[0].metrics["ndcg@10"], 4),
               round(tables.gap_closed(found[-1], name), 3))
        for name, runs in found[-1].items()})
  return found, task.true_examination / task.true_examination[0]


def _errors(outcomes, name):
  """Mean absolute errors of a method's curves, by seed."""
  found, true_curve = outcomes
  errors = [np.abs(by_method[name][0].examination - true_curve).mean()
            for by_method in found]
  print(f"{name}: curve errors {np.round(errors, 4)}")
  return errors


def test_the_oracle_is_better_than_the_naive_ranker(outcomes):
  for by_method in outcomes[0]:
    naive, oracle = (by_method[name][0].metrics["ndcg@10"] for name in (
        "naive-pairwise", "oracle-pairwise"))
    assert oracle > naive + 0.01


def test_the_gap_that_unbiased_closes(outcomes):
  gaps = [tables.gap_closed(by_method, "unbiased")
          for by_method in outcomes[0]]
  print(f"unbiased closes {np.round(gaps, 3)} of the gap")
  assert np.mean(gaps) >= 0.55
  assert min(gaps) > 0.45


@pytest.mark.parametrize("name, limit", [
    ("unbiased", 0.12), ("unbiased-ipw", 0.05)])
def test_the_curve_that_is_estimated(outcomes, name, limit):
  assert np.mean(_errors(outcomes, name)) <= limit
