"""One run of a comparison: data, simulated users, training, evaluation."""

import dataclasses
import functools

import numpy as np

from ultra_tfr import methods
from ultra_tfr import trainer
from ultra_tfr.data import letor
from ultra_tfr.data import synthetic
from ultra_tfr.data import tfds
from ultra_tfr.evaluation.ranking import TOPN
from ultra_tfr.experiments import peers
from ultra_tfr.experiments import run as run_lib
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import CLICK_MODELS

_PICK = {"metrics": {f"ndcg@{n}": float for n in TOPN}, "by_query": [float]}
# The form of what `execute` gives, see `output.has_form`.
RESULT = {"labels": _PICK, "clicks": _PICK, "examination": ([float], None),
          "true_examination": ([float], None), "seconds": float}


@dataclasses.dataclass(frozen=True)
class World:
  """Everything that all runs of a comparison share.

  Attributes:
    dataset: `"synthetic"`, `"letor:FOLDER"` or `"tfds:NAME"`.
    logger: what ordered the lists that users saw, see `loggers`.
    click_model: a key of `CLICK_MODELS`.
    settings: `trainer.Settings` of all methods.
    train_queries: of the synthetic data.
    num_positions: documents displayed.
    initial_fraction: of the training queries, for the weak logger.
    data_seed: of the synthetic data, and of the choice of queries that are held
      out of LETOR files without a validation part.
    non_finite: how LETOR files are read, see `letor.read_letor`.
    index_base: likewise.
  """

  dataset: str
  logger: str
  click_model: str
  settings: trainer.Settings
  train_queries: int = 2000
  num_positions: int = 10
  initial_fraction: float = 0.01
  data_seed: int = 0
  non_finite: str = "error"
  index_base: int = 1

  def to_config(self):
    """The values, ready for JSON."""
    return dataclasses.asdict(self)


def find(name):
  """The method or the peer of that name.

  Args:
    name: a key of `methods.METHODS` or `experiments.peers.PEERS`.

  Returns:
    A `methods.Method` or a `peers.Peer`; both have the `feedback` that they are
    for.

  Raises:
    ValueError: if there is none.

  >>> find("dla").feedback, find("xgboost-unbiased").feedback
  (('click',), ('click',))
  """
  known = {**methods.METHODS, **peers.PEERS}
  if name not in known:
    raise ValueError(
        f"There is no method {name!r}; the methods are {', '.join(known)}.")
  return known[name]


def execute(world, run):
  """Trains and judges one method with one seed.

  The seed decides the logger, the clicks and the initialisation; the data is
  the same for all seeds, so that test queries can be paired.

  Args:
    world: a `World`.
    run: a `runs.Run`.

  Returns:
    A dict ready for JSON: "labels" and "clicks", for the checkpoint that each
    of them picks, a dict of "metrics" and "by_query" (NDCG@10 by test query);
    "examination" `[K]` or None; "true_examination" likewise; "seconds".
  """
  task = _task(world, run.feedback, run.seed)
  if run.method in peers.PEERS:
    outcome = peers.run(run.method, task)
  else:
    outcome = run_lib.run(run.method, task, world.settings,
                          feedback=run.feedback, seed=run.seed)
  result = {
      pick: {"metrics": found.metrics, "by_query": _listed(found.by_query)}
      for pick, found in outcome.picks.items()}
  return {**result, "examination": _listed(outcome.examination),
          "true_examination": _listed(task.true_examination),
          "seconds": outcome.seconds}


def files(world):
  """The files that the data of a world is read from.

  Args:
    world: a `World`.

  Returns:
    A list of paths; empty for data that is made up, or is of
    tensorflow-datasets.
  """
  kind, _, name = world.dataset.partition(":")
  return list(letor.find_files(name).values()) if kind == "letor" else []


def check(world, names, feedback):
  """Fails early for methods and peers that cannot run.

  Args:
    world: a `World`.
    names: of methods.
    feedback: kinds of feedback.

  Raises:
    ValueError: if the data is not there, a method is unknown, it needs what
      the click model lacks, or the library of a peer cannot be imported.
  """
  kind, _, name = world.dataset.partition(":")
  if kind == "letor" and name:
    letor.find_files(name)
  elif kind == "tfds" and name:
    tfds.open_tfds(name)
  elif world.dataset != "synthetic":
    raise ValueError(
        "`dataset` must be 'synthetic', 'letor:FOLDER' or 'tfds:NAME' such as "
        f"tfds:mslr_web/10k_fold1, but is {world.dataset!r}.")
  curve = task_lib.true_curve(
      CLICK_MODELS[world.click_model](), world.num_positions)
  for name in names:
    method = find(name)
    if name in peers.PEERS:
      method.load()
      continue
    for kind in feedback:
      if kind in method.feedback:
        method.build(world.num_positions, kind, curve)


@functools.lru_cache(maxsize=1)
def _load(world):
  """The parts of a data set; cached, since a process executes many runs."""
  kind, _, name = world.dataset.partition(":")
  if kind == "letor":
    return letor.read_folder(
        name, seed=world.data_seed, non_finite=world.non_finite,
        index_base=world.index_base)
  if kind == "tfds":
    return tfds.load_tfds(name)
  return synthetic.generate(world.train_queries, seed=world.data_seed)


@functools.lru_cache(maxsize=2)
def _task(world, feedback, seed):
  train, valid, test = _load(world)
  click_model = task_lib.make_click_model(
      (train, valid, test), [world.dataset] * 3, world.click_model)
  return task_lib.make_task(
      train, valid, test, click_model, feedback=feedback,
      num_positions=world.num_positions, logger=world.logger,
      initial_fraction=world.initial_fraction, seed=seed)


def _listed(values):
  return None if values is None else np.asarray(values, float).tolist()
