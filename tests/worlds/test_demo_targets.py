"""What the demo promises: the gap closed, the curves, and clicks of users.

Of one seed with `pytest -m slow`, of three with `pytest -m release`.
"""

import numpy as np
import pytest

from ultra_tfr import trainer
from ultra_tfr.data import synthetic
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import run
from ultra_tfr.experiments import simulate_ab
from ultra_tfr.experiments import tables
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import PositionBasedModel

# The defaults of `ultra-tfr demo`.
SETTINGS = trainer.Settings(
    hidden_units=(128, 64), steps=1400, learning_rate=2e-3)


def _check(seed, *more):
  """Trains the methods of the demo, and checks what holds for each seed.

  Args:
    seed: of data, clicks and models.
    *more: names of methods beside those of the demo.

  Returns:
    The share of the gap that `unbiased` closes, and the mean absolute error of
    the curve of each method that estimates one.
  """
  task = task_lib.make_task(
      *synthetic.generate(seed=seed), PositionBasedModel(), seed=seed)
  found = {name: run.run(name, task, SETTINGS, seed=seed) for name in (
      "oracle-pairwise", "naive-pairwise", "unbiased", *more)}
  ndcg = {name: outcome.metrics["ndcg@10"] for name, outcome in found.items()}
  gap = tables.gap_closed(
      {name: [outcome] for name, outcome in found.items()}, "unbiased")
  true_curve = task.true_examination / task.true_examination[0]
  errors = {name: np.abs(found[name].examination - true_curve).mean()
            for name in ("unbiased", *more)}
  print(f"seed {seed}: NDCG@10 {ndcg}, gap closed {gap}, curves off {errors}")
  assert ndcg["oracle-pairwise"] > ndcg["naive-pairwise"] + 0.01
  assert gap > 0.45
  # Users, too, click more on what `unbiased` shows.
  scores = [ranking.score_lists(found[name].model, task.test)
            for name in ("naive-pairwise", "unbiased")]
  test = simulate_ab.run_ab_test(
      task.test, *scores, PositionBasedModel(), seed=seed,
      visits_per_day=100000)
  print(test.to_text())
  assert test.total("clicks").low > 0
  assert test.total("label").low > 0
  return gap, errors


@pytest.mark.slow
def test_one_seed():
  _check(0)


@pytest.mark.release
def test_three_seeds():
  gaps, errors = zip(*(_check(seed, "unbiased-ipw") for seed in range(3)))
  assert np.mean(gaps) >= 0.55
  for name, limit in (("unbiased", 0.12), ("unbiased-ipw", 0.05)):
    assert np.mean([of_seed[name] for of_seed in errors]) <= limit
