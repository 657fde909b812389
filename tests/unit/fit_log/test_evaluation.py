"""Tests of ultra_tfr.fit_log.evaluation."""

import json
import re

import numpy as np
import pytest

import click_logs
from ultra_tfr.bias import Bias
from ultra_tfr.fit_log import evaluation
from ultra_tfr.fit_log import scoring
from ultra_tfr.simulation.shop_log import simulate_log

NOISE = {"best": 0.0, "middling": 0.3, "worst": 100.0}
KEYS = ["dcg@3", "dcg@5", "dcg@10", "snips_dcg@3", "snips_dcg@5",
        "snips_dcg@10", "ndcg@3", "ndcg@5", "ndcg@10", "mrr@3", "mrr@5",
        "mrr@10", "snips_mrr@3", "snips_mrr@5", "snips_mrr@10", "arp"]


@pytest.fixture(autouse=True)
def _models_are_functions(monkeypatch):
  """A model is a function from a batch to scores and relevance."""
  monkeypatch.setattr(scoring, "predict",
                      lambda model, batch: model(batch))


class _World:
  """A log to evaluate on, its truth, and rankers of known quality."""

  def __init__(self, table, truth, feedback="click", irrelevant=False):
    self.log = click_logs.read(
        table, valid=0, test=1, columns=click_logs.columns(feedback))
    self.lists = self.log.parts["test"]
    self.truth = truth
    theta = np.stack([truth.examination[name] for name in self.log.contexts])
    self.bias = Bias("true", theta, theta * truth.trust_negative if irrelevant
                     else None)

  def attraction(self, batch):
    return click_logs.attraction(self.truth, batch)

  def ranker(self, deviation):
    """A function of a batch: attraction, hidden by noise."""
    generator = np.random.default_rng(7)

    def rank(batch):
      relevance = self.attraction(batch)
      noise = deviation * generator.normal(size=relevance.shape)
      return relevance + noise, relevance[np.newaxis]
    return rank

  def true_dcg(self, deviation, gain):
    """The mean DCG of a ranker, of what users give at the first position."""
    rank, sums = self.ranker(deviation), []
    for batch in self.lists.batches(1024):
      order = np.argsort(-rank(batch)[0], axis=1)
      gains = np.take_along_axis(gain(batch), order, axis=1)
      sums += list((gains / np.log2(2 + np.arange(gains.shape[1]))).sum(axis=1))
    return np.mean(sums)

  def evaluate(self, binary=True, **options):
    evaluator = evaluation.LogEvaluator(self.bias, binary, **options)
    evaluator.add(evaluation.LOGGED, self.lists)
    for name, deviation in NOISE.items():
      evaluator.add(name, self.lists, self.ranker(deviation))
    return evaluator.results()


@pytest.fixture(scope="module")
def world():
  return _World(*click_logs.simulated())


@pytest.fixture(scope="module")
def results(world):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(scoring, "predict", lambda model, batch: model(batch))
    return world.evaluate()


def _values(results, key, names=NOISE):
  return [results[name]["estimates"][key]["value"] for name in names]


# Rankers of known quality.


@pytest.mark.parametrize("key", KEYS)
def test_rankers_come_out_in_order(results, key):
  values = _values(results, key)
  assert values == sorted(values, reverse=key != "arp")
  differences = [results[name]["minus_logged"][key] for name in NOISE]
  for name, difference in zip(NOISE, differences):
    logged, = _values(results, key, [evaluation.LOGGED])
    value, = _values(results, key, [name])
    assert difference["value"] == pytest.approx(value - logged)
  best, worst = differences[0], differences[-1]
  if key == "arp":
    best, worst = worst, best
  # The logger is somewhat better than nothing.
  assert best["low"] > 0 > worst["high"]


def _check_dcg(world, results, gain):
  for name, deviation in NOISE.items():
    estimate = results[name]["estimates"]["dcg@10"]
    truth = world.true_dcg(deviation, gain)
    assert abs(estimate["value"] - truth) <= 2 * estimate["standard_error"]
    # And the errors are small enough to tell something.
    assert estimate["standard_error"] < 0.05 * truth
    assert estimate["low"] < estimate["value"] < estimate["high"]


def test_dcg_is_that_of_the_truth(world, results):
  def gain(batch):
    return world.bias.click_relevant[
        batch.contexts, 0] * world.attraction(batch)
  _check_dcg(world, results, gain)


def test_feedback_as_it_is_favours_the_logged_order(world):
  evaluator = evaluation.LogEvaluator(None, True, replicates=2)
  evaluator.add(evaluation.LOGGED, world.lists)
  evaluator.add("middling", world.lists, world.ranker(0.3))
  found = evaluator.results()
  assert found["middling"]["minus_logged"]["dcg@10"]["value"] < 0
  # The sum of clicks by rank, which is the position.
  total = np.concatenate([
      (batch.feedback / np.log2(1 + batch.positions)).sum(axis=1)
      for batch in world.lists.batches(1024)])
  logged = found[evaluation.LOGGED]
  assert logged["estimates"]["dcg@10"]["value"] == pytest.approx(
      total.mean(), rel=1e-5)
  assert "perplexity" not in found["middling"]


def test_clicks_on_irrelevant_items():
  table, truth = simulate_log(
      6000, positions=click_logs.POSITIONS, num_items=400, seed=5,
      trust_negative=[.4, .3, .2, .1, .1])
  world = _World(table, truth, irrelevant=True)
  scale = world.bias.click_relevant[:, 0] - world.bias.click_irrelevant[:, 0]

  def gain(batch):
    return scale[batch.contexts] * world.attraction(batch)
  _check_dcg(world, world.evaluate(), gain)


def test_graded_feedback():
  table, truth = click_logs.simulated()
  world = _World(table, truth, "dwell_ms / 1000")
  dwell = dict(zip(truth.item_attraction, truth.item_dwell_ms / 1000))

  def gain(batch):
    attraction = world.attraction(batch)
    return (world.bias.click_relevant[batch.contexts, 0] * attraction *
            np.vectorize(dwell.get)(attraction))
  _check_dcg(world, world.evaluate(binary=False), gain)


def test_models_are_compared_with_the_first_one(world):
  evaluator = evaluation.LogEvaluator(world.bias, True)
  evaluator.add(evaluation.LOGGED, world.lists)
  for name, deviation in NOISE.items():
    evaluator.add(name, world.lists, world.ranker(deviation))
  found = evaluator.results()
  assert [name for name in found if "minus_first" in found[name]] == [
      "middling", "worst"]
  for name in ("middling", "worst"):
    difference = found[name]["minus_first"]["dcg@10"]
    assert difference["value"] == pytest.approx(
        found[name]["estimates"]["dcg@10"]["value"] -
        found["best"]["estimates"]["dcg@10"]["value"])
    assert difference["high"] < 0
  text = evaluation.to_text(found)
  assert re.search(r"^worst - best +-", text, re.MULTILINE)
  assert "best - best" not in text


def test_the_logged_order_is_that_of_the_log_where_positions_are_pooled():
  found = []
  for pooled in (None, 2):
    with click_logs.read(click_logs.small(), valid=0, test=1,
                         num_positions=pooled) as log:
      assert len(log.positions) == (pooled or len(click_logs.POSITIONS))
      evaluator = evaluation.LogEvaluator(None, True, replicates=2)
      evaluator.add(evaluation.LOGGED, log.parts["test"])
      found.append(_values(
          evaluator.results(), "arp", [evaluation.LOGGED]))
  assert found[0] == pytest.approx(found[1])


# Weights.


def test_clipping(world):
  plain, clipped = (world.evaluate(max_weight=most, replicates=2)["best"]
                    for most in (None, 2.0))
  weights = np.concatenate([
      (world.bias.relative()[batch.contexts, batch.positions - 1] ** -1)[
          batch.feedback > 0] for batch in world.lists.batches(1024)])
  assert plain["clipped_share"] == 0
  assert clipped["clipped_share"] == pytest.approx(
      1 - np.minimum(weights, 2).sum() / weights.sum(), rel=1e-4)
  for found, w in ((plain, weights), (clipped, np.minimum(weights, 2))):
    assert found["effective_sample_size"] == pytest.approx(
        w.sum()**2 / (w**2).sum(), rel=1e-4)
  assert (clipped["estimates"]["dcg@10"]["value"] <
          plain["estimates"]["dcg@10"]["value"])
  assert plain["num_requests"] == 6000
  assert plain["num_items_with_feedback"] == len(weights)


# Clicks.


def test_click_likelihood(world):
  evaluator = evaluation.LogEvaluator(world.bias, True, replicates=2)
  flat = Bias("flat", np.full((2, 5), 0.5))
  rank = world.ranker(0)
  evaluator.add("true", world.lists, rank)
  evaluator.add("flat", world.lists, rank, flat)
  evaluator.add("no head", world.lists, lambda batch: (rank(batch)[0], None))
  found = evaluator.results()
  assert "perplexity" not in found["no head"]
  for name, bias in (("true", world.bias), ("flat", flat)):
    bits = [[] for _ in range(5)]
    for batch in world.lists.batches(1024):
      chance = bias.click_relevant[
          batch.contexts, batch.positions - 1] * world.attraction(batch)
      right = np.where(batch.feedback > 0, chance, 1 - chance)
      for k in range(5):
        bits[k] += list(-np.log2(right[batch.positions == k + 1]))
    mean = np.mean(sum(bits, []))
    assert found[name]["log_likelihood"] == pytest.approx(-mean * np.log(2))
    assert found[name]["perplexity"] == pytest.approx(2**mean)
    assert found[name]["perplexity_by_position"] == pytest.approx(
        [2**np.mean(values) for values in bits])
  assert found["true"]["perplexity"] < found["flat"]["perplexity"]
  # The other bias corrects no feedback.
  assert _values(found, "dcg@3", ["true"]) == _values(found, "dcg@3", ["flat"])


def test_items_of_weight_0_are_no_clicks_to_predict():
  table = click_logs.small()
  weights = np.random.default_rng(0).integers(0, 2, len(table)).astype(float)
  with click_logs.read(
      click_logs.with_column(table, "w", weights), valid=0, test=1,
      columns=click_logs.columns(weight="w")) as log:
    evaluator = evaluation.LogEvaluator(
        Bias("flat", np.full((2, 5), 0.5)), True, replicates=2)
    evaluator.add("all", log.parts["test"], lambda batch: (
        -batch.positions, np.where(batch.weights > 0, 1.0, 0.0)[np.newaxis]))
  found = evaluator.results()["all"]
  # Every click and every other item has the chance 1/2.
  assert found["perplexity"] == pytest.approx(2)
  assert found["num_items"] == weights.sum()


# Output.


def test_json(results):
  again = json.loads(json.dumps(results, allow_nan=False))
  assert list(again) == [evaluation.LOGGED, *NOISE]
  for name, entry in again.items():
    assert sorted(entry["estimates"]) == sorted(KEYS)
    assert {"num_requests", "num_items", "effective_sample_size",
            "clipped_share", "num_left_out"} <= set(entry)
    assert ("minus_logged" in entry) == (name != evaluation.LOGGED)
    assert ("perplexity" in entry) == (name != evaluation.LOGGED)


def test_text(results):
  lines = evaluation.to_text(results).splitlines()
  assert lines[0].split() == [
      "ranker", "dcg@10", "snips_dcg@10", "ndcg@10", "snips_mrr@10", "arp"]
  assert [re.split(" {2,}", line)[0] for line in lines[1:8]] == [
      evaluation.LOGGED, *NOISE, *(f"{name} - logged" for name in NOISE)]
  estimate = results["best"]["estimates"]["dcg@10"]
  assert (f"{estimate['value']:.4f} [{estimate['low']:.4f}, "
          f"{estimate['high']:.4f}]") in lines[2]
  assert f"{results['best']['minus_logged']['arp']['value']:+.4f} [-" in (
      lines[5])
  text = "\n".join(lines[8:])
  assert "90% intervals" in text
  assert "6000 requests, " in text
  assert f"best: click perplexity {results['best']['perplexity']:.4f}" in text


def test_without_feedback_there_is_no_number():
  table = click_logs.small()
  with click_logs.read(
      click_logs.with_column(table, "click", np.zeros(len(table), np.int64)),
      valid=0, test=1) as log:
    evaluator = evaluation.LogEvaluator(None, True, replicates=2)
    evaluator.add(evaluation.LOGGED, log.parts["test"])
  found = evaluator.results()
  json.dumps(found, allow_nan=False)
  assert found[evaluation.LOGGED]["estimates"]["snips_dcg@10"] == {
      "value": None, "low": None, "high": None, "standard_error": None}
  assert found[evaluation.LOGGED]["judgement"] == "too few clicks to judge"
  line = evaluation.to_text(found).splitlines()[1]
  assert line.split()[-1] == "-" and "0.0000 [?, ?]" in line


@pytest.mark.parametrize("clicks, few", [(9, True), (11, False)])
def test_few_clicks_are_not_judged_by(clicks, few):
  """13 clicks of noise gave a difference with an interval that excluded 0."""
  table = click_logs.small()
  first = np.flatnonzero(table["rank"].to_numpy() == 1)
  clicked = np.isin(np.arange(len(table)), first[:clicks]).astype(int)
  with click_logs.read(
      click_logs.with_column(table, "click", clicked), valid=0,
      test=1) as log:
    evaluator = evaluation.LogEvaluator(None, True)
    evaluator.add(evaluation.LOGGED, log.parts["test"])
    evaluator.add("reverse", log.parts["test"], lambda batch: (
        batch.positions.astype(float), None))
  found = evaluator.results()
  text = evaluation.to_text(found)
  assert found["reverse"]["effective_requests"] == pytest.approx(clicks)
  assert ("Too few clicks to judge: with the noise in them they say as much as "
          "9 independent requests" in text) == few
  assert (found["reverse"]["judgement"] is not None) == few
  difference = found["reverse"]["minus_logged"]["dcg@10"]
  assert (difference["low"] is None) == few
  row = re.search("^reverse - logged +(.*)", text, re.MULTILINE)[1]
  assert (row.split() == ["?"] * 5) == few
