"""What the guard promises: a strong logged order is not lost, a weak one is.

Two minutes on two cores; run with `pytest -m release`.
"""

import pytest

from ultra_tfr import trainer
from ultra_tfr.data import synthetic
from ultra_tfr.experiments import run
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import PositionBasedModel

SETTINGS = trainer.Settings(
    hidden_units=(128, 64), steps=1400, learning_rate=2e-3)

pytestmark = pytest.mark.release


def _ndcg(logger, *names):
  task = task_lib.make_task(
      *synthetic.generate(seed=9), PositionBasedModel(), logger=logger)
  found = [run.run(name, task, SETTINGS).metrics["ndcg@10"]
           for name in names]
  print(logger, dict(zip(names, found)))
  return found


def test_under_a_strong_logger_it_is_as_good_as_the_logged_order():
  naive, unbiased, unguarded = _ndcg(
      "strong", "naive-pairwise", "unbiased", "unbiased-ipw")
  assert unbiased > naive - 0.005
  assert unbiased > unguarded


def test_under_a_weak_logger_it_is_better():
  naive, unbiased = _ndcg("weak", "naive-pairwise", "unbiased")
  assert unbiased > naive + 0.01
