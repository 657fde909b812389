r"""How far TF-Ranking's losses get from clicks, each on its own scale.

For each loss four rankers are trained on the same lists: on clicks as if they
were relevance (naive), on clicks that `UnbiasedLoss` debiases with a bias that
it learns in the same training (learned), on clicks of users who examine
everything, which have no bias and as much noise (examined), and on true labels
(oracle). The gap closed is the part of the way from naive to oracle that
learned goes; in brackets that of examined.

Labels of the oracle are grades, whose gain in ApproxNDCG is 2^y - 1. The others
have no gain, so they get what clicks are drawn by, (2^y - 1) / (2^4 - 1), which
is also a probability, as sigmoid cross-entropy needs it.

Command (eight minutes for the three runs of a loss on a free core):

    python examples/loss_gaps.py --runs=3

Expected output: a table of losses with NDCG@10 and the gap closed, as in
examples/results/loss-gaps.md: 99 % with softmax, 105 % with sigmoid
cross-entropy, 74 % with ApproxNDCG.
"""

from absl import app
from absl import flags
import numpy as np
import ultra_tfr
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import methods
from ultra_tfr import trainer
from ultra_tfr.data import synthetic
from ultra_tfr.experiments import run
from ultra_tfr.experiments import tables
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.hypotheses import HYPOTHESES
from ultra_tfr.simulation.click_models import PositionBasedModel

_WITH_GAIN = "approx_ndcg_loss"
_LOSSES = flags.DEFINE_list(
    "losses", [_WITH_GAIN, "softmax_loss", "sigmoid_cross_entropy_loss"],
    "Names of TF-Ranking.")
_RUNS = flags.DEFINE_integer("runs", 1, "Runs, with the seeds 0, 1, ..")
_DATA_SEED = flags.DEFINE_integer("data_seed", 0, "Of the synthetic data.")
_STEPS = flags.DEFINE_integer("steps", 2000, "Batches to train on.")

_MAX_GRADE = 4
_KINDS = ("naive", "learned", "examined", "oracle")


class OnRelevance(tf.keras.losses.Loss):
  """A loss on the relevance that clicks are drawn by, in [0, 1], of grades.

  Args:
    loss: a Keras loss.
  """

  def __init__(self, loss):
    super().__init__()
    self._loss = loss

  def call(self, y_true, y_pred):
    """The loss of grades and scores, `[B, L]` each."""
    relevance = (2.0 ** y_true - 1) / (2.0 ** _MAX_GRADE - 1)
    return self._loss(tf.where(y_true >= 0, relevance, -1.0), y_pred)


def _method(kind, name):
  """One of `_KINDS` as a `Method`."""
  def inner():
    return tfr.keras.losses.get(name)

  if kind in ("naive", "examined"):
    return methods.Method(
        lambda layer, feedback: inner(),
        learn_from="feedback" if kind == "naive" else "clicks_examined")
  if kind == "oracle":
    return methods.Method(
        lambda layer, feedback: inner() if name == _WITH_GAIN else
        OnRelevance(inner()), learn_from="labels")
  return methods.Method(
      lambda layer, feedback: ultra_tfr.losses.UnbiasedLoss(layer, inner()),
      layer=ultra_tfr.layers.PositionBias,
      callback=ultra_tfr.callbacks.PropensityEM, num_heads=2,
      num_relevance=len(HYPOTHESES), estimates_examination=True,
      starts_relevance=True)


def _spread(values):
  if len(values) < 2:
    return f"{values[0]:.4f}"
  return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}"


def main(_):
  train, valid, test = synthetic.generate(2000, seed=_DATA_SEED.value)
  settings = trainer.Settings(
      hidden_units=(128, 64), steps=_STEPS.value, learning_rate=2e-3)
  tasks = [task_lib.make_task(
      train, valid, test, PositionBasedModel(max_grade=_MAX_GRADE), seed=seed)
           for seed in range(_RUNS.value)]
  rows = [["loss", *_KINDS, "gap closed"]]
  for name in _LOSSES.value:
    found = {}
    for kind in _KINDS:
      methods.METHODS[f"{kind} {name}"] = _method(kind, name)
      found[kind] = [
          run.run(f"{kind} {name}", task, settings, seed=seed
                  ).metrics["ndcg@10"] for seed, task in enumerate(tasks)]
      print(f"{kind} {name}: {np.round(found[kind], 4).tolist()}", flush=True)
    naive, learned, examined, oracle = (np.mean(found[kind]) for kind in _KINDS)
    closed, possible = (
        (part - naive) / (oracle - naive) for part in (learned, examined))
    rows.append([f"`{name}`", *(_spread(found[kind]) for kind in _KINDS),
                 f"{closed:.0%} ({possible:.0%})"])
  print(tables.to_markdown(rows))


if __name__ == "__main__":
  app.run(main)
