r"""The ceiling of debiasing clicks: a ranker trained on the true preferences.

A pairwise method learns from clicks how often one document is relevant and
another is not. Here the ranker is told that probability: no clicks, no
positions, no noise, and otherwise the lists, network and steps of
`ultra-tfr compare`. It is a ceiling for that network and those steps: without
noise it overfits early, and regularisation would lift it.

It is also the way to compare a method of your own: a `Method` under a new name.

Command (about half a minute a run on one core):

    python examples/ceiling.py --runs=5

Expected output:

    NDCG@10, weak logger: 0.8942 +- 0.0026

and 0.8934 +- 0.0028 with --runs=3 --logger=strong.
"""

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf

from ultra_tfr import methods
from ultra_tfr import trainer
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.experiments import run
from ultra_tfr.core import pairs
from ultra_tfr.data import synthetic
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.experiments.loggers import LOGGERS

_RUNS = flags.DEFINE_integer("runs", 1, "Runs, with the seeds 0, 1, ..")
_LOGGER = flags.DEFINE_enum("logger", "weak", LOGGERS, "Who ordered the lists.")
_DATA_SEED = flags.DEFINE_integer("data_seed", 0, "Of the synthetic data.")

_SETTINGS = trainer.Settings(
    hidden_units=(128, 64), steps=2000, learning_rate=2e-3)
_MAX_GRADE = 4


class TruePreferenceLoss(tf.keras.losses.Loss):
  """sum_ab P(r_a > r_b) log(1 + exp(-(s_a - s_b))), from true grades."""

  def call(self, y_true, y_pred):
    """Losses by item `[B, L]` of grades and scores `[B, L]`."""
    mask = y_true >= 0
    relevance = tf.where(mask, (2.0 ** y_true - 1) / (2.0 ** _MAX_GRADE - 1), 0)
    weights = relevance[:, :, tf.newaxis] * tf.where(
        mask, 1 - relevance, 0)[:, tf.newaxis, :]
    # A document is not preferred to itself.
    weights = tf.linalg.set_diag(weights, tf.zeros_like(relevance))
    return tf.reduce_sum(
        weights * pairs.logistic_loss(y_pred), axis=2)


def main(_):
  methods.METHODS["ceiling"] = methods.Method(
      lambda layer, feedback: TruePreferenceLoss(), learn_from="labels",
      summary="pairwise loss weighted by the true P(r_a > r_b)")
  train, valid, test = synthetic.generate(2000, seed=_DATA_SEED.value)
  found = []
  for seed in range(_RUNS.value):
    task = task_lib.make_task(
        train, valid, test, PositionBasedModel(max_grade=_MAX_GRADE),
        logger=_LOGGER.value, seed=seed)
    found.append(run.run(
        "ceiling", task, _SETTINGS, seed=seed).metrics["ndcg@10"])
    print(f"seed {seed}: {found[-1]:.4f}", flush=True)
  spread = f" +- {np.std(found, ddof=1):.4f}" if len(found) > 1 else ""
  print(f"NDCG@10, {_LOGGER.value} logger: {np.mean(found):.4f}{spread}")


if __name__ == "__main__":
  app.run(main)
