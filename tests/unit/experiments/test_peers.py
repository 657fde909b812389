"""Tests of ultra_tfr.experiments.peers: LightGBM and XGBoost."""

import sys

import numpy as np
import pytest

from ultra_tfr import trainer
from ultra_tfr.data.lists import RankingLists
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import checkpoints
from ultra_tfr.experiments import comparison
from ultra_tfr.experiments import peers
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.feedback_stream import FeedbackStream

_POSITIONS = 6
_COUNTS = range(10, 61, 10)
_USERS = PositionBasedModel([1.0, 0.6, 0.4, 0.25, 0.15, 0.1])


def _lists(count, rng):
  """Relevance follows one feature; another one, without meaning, the order."""
  sizes = rng.integers(3, _POSITIONS + 1, size=count)
  features = rng.normal(size=(sizes.sum(), 4))
  labels = np.clip(np.round(1.0 + 1.5 * features[:, 1]), 0, 4)
  lists = RankingLists(features, labels, np.append(0, np.cumsum(sizes)),
                       np.arange(count))
  return lists.sort_by(features[:, 0])


def _task(seed, train=300):
  rng = np.random.default_rng(seed)
  parts = [_lists(count, rng) for count in (train, 60, 200)]
  streams = [
      FeedbackStream(*lists.pad(_POSITIONS), _USERS, seed=seed)
      for lists in parts]
  return task_lib.Task(streams[0], parts[1], parts[2], parts[0].features,
                       _USERS.examination(_POSITIONS), streams[1])


@pytest.fixture(scope="module", autouse=True)
def _few_trees():
  """Easy data takes few trees."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(peers, "_MAX_TREES", _COUNTS[-1])
    patch.setattr(peers, "_TREES_PER_VALIDATION", _COUNTS.step)
    yield


@pytest.fixture(scope="module")
def task():
  return _task(0)


@pytest.fixture(scope="module", params=peers.PEERS)
def trained(request, task):
  """A peer's name and outcome."""
  pytest.importorskip(peers.PEERS[request.param].library)
  return request.param, peers.run(request.param, task)


def test_visits_are_rows_in_the_order_of_display(task):
  stream, rows = task.stream, []
  for epoch in range(3):
    clicks = stream.draw(epoch)
    for i in range(len(clicks)):
      if clicks[i].max() > 0:
        size = int((stream.labels[i] >= 0).sum())
        rows += [(*stream.features[i, k], clicks[i, k], k + 1, size)
                 for k in range(size)]
  found = peers.draw_visits(stream, visits=3)
  np.testing.assert_array_equal(
      np.column_stack([found.features, found.clicks, found.positions,
                       np.repeat(found.sizes, found.sizes)]), rows)
  assert found.num_positions == _POSITIONS


def test_without_clicks_there_is_nothing_to_learn():
  stream = FeedbackStream(np.zeros([2, 3, 1]), np.zeros([2, 3]),
                          PositionBasedModel(click_noise=0.0))
  with pytest.raises(ValueError, match="no click in 5 visits of 2 lists.*more"):
    peers.draw_visits(stream, visits=5)


@pytest.mark.parametrize("seed", [
    0, *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
def test_positions_help(seed):
  lightgbm = pytest.importorskip("lightgbm")
  pytest.importorskip("xgboost")
  task = _task(seed, train=150)
  visits = peers.draw_visits(task.stream)
  # With one position for all there is nothing to correct.
  naive, _ = peers.PEERS["lightgbm-position"].fit(
      lightgbm, visits._replace(positions=np.ones_like(visits.positions)))
  value = max(ranking.evaluate(_first(naive, count), task.test)["ndcg@10"]
              for count in _COUNTS)
  for name in peers.PEERS:
    assert peers.run(name, task).metrics["ndcg@10"] > value + 0.02, name


def _first(trees, count):
  trees.set_weights([count])
  return trees


def test_numbers_of_trees_are_picked_by_labels_and_by_clicks(trained, task):
  name, outcome = trained
  peer, stream = peers.PEERS[name], task.valid_stream
  _, curve = peer.fit(peer.load(), peers.draw_visits(task.stream))
  curve = np.ones(_POSITIONS) if curve is None else np.maximum(curve, 0.05)
  clicks = sum(np.maximum(stream.draw(epoch), 0)
               for epoch in range(checkpoints.VISITS)) / curve
  shown = stream.labels >= 0
  by_labels, by_clicks = {}, {}
  best = outcome.model.get_weights()
  for count in _COUNTS:
    trees = _first(outcome.model, count)
    by_labels[count] = ranking.evaluate(trees, task.valid)["ndcg@10"]
    scores = np.where(shown, trees(stream.features), -np.inf)
    ranks = 1 + np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    by_clicks[count] = (clicks / np.log2(1 + ranks)).sum()
  assert by_labels[best[0]] == max(by_labels.values())
  for pick, values in (("labels", by_labels), ("clicks", by_clicks)):
    top = max(values.values())
    candidates = [ranking.evaluate(_first(outcome.model, count), task.test)
                  for count, value in values.items()
                  if value > 0.9999 * top]
    assert outcome.picks[pick].metrics in candidates
  outcome.model.set_weights(best)


def test_outcomes_have_the_shape_of_all_methods(trained, task):
  _, outcome = trained
  assert set(outcome.picks) == {"labels", "clicks"}
  assert outcome.metrics == outcome.picks["labels"].metrics
  assert outcome.metrics == pytest.approx(
      ranking.evaluate(outcome.model, task.test))
  assert outcome.picks["labels"].by_query.mean() == pytest.approx(
      outcome.metrics["ndcg@10"])
  assert outcome.examination is None and outcome.seconds > 0


def test_nothing_is_random_but_the_clicks(trained, task):
  name, outcome = trained
  assert peers.run(name, task).metrics == outcome.metrics


def test_xgboost_weighs_later_positions_more(task):
  xgboost = pytest.importorskip("xgboost")
  _, ratios = peers.PEERS["xgboost-unbiased"].fit(
      xgboost, peers.draw_visits(task.stream))
  assert ratios.shape == (_POSITIONS,)
  assert ratios[0] == 1 and (np.diff(ratios) < 0).all()


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_missing_library_is_named_with_the_remedy(name, monkeypatch, task):
  library = peers.PEERS[name].library
  monkeypatch.setitem(sys.modules, library, None)  # Its import fails.
  message = rf"{library} cannot be imported.*pip install 'ultra_tfr\[peers\]'"
  assert not peers.PEERS[name].can_load()
  with pytest.raises(ValueError, match=message):
    peers.run(name, task)
  world = comparison.World("synthetic", "weak", "pbm", trainer.Settings())
  with pytest.raises(ValueError, match=message):
    comparison.check(world, ["unbiased", name], ["click"])
