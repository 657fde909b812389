"""What `fit-log` promises, on logs with known truth, most of a million rows.

Five minutes on two cores, most of them of `pytest -m release`.
"""

import numpy as np
from pyarrow import parquet
import pytest

from ultra_tfr import trainer
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.data.click_log.values import hashes
from ultra_tfr.evaluation import harvesting
from ultra_tfr.fit_log import diagnosis
from ultra_tfr.fit_log import evaluation
from ultra_tfr.fit_log import scoring
from ultra_tfr.fit_log import training
from ultra_tfr.simulation.shop_log import simulate_log

POSITIONS = (1, 2, 3, 5, 6, 8, 9, 12)
# Features of all kinds, in a log whose rows are in no order.
COLUMNS = LogColumns(
    query="request_id", position="rank", feedback="click",
    features=("f_*", "category", "brand", "is_new"), context="device",
    item="item_id", timestamp="timestamp")
DRAWS = 20


@pytest.fixture(scope="module")
def simulated():
  """A table of a million rows, and its truth."""
  return simulate_log(125000, positions=POSITIONS, seed=5)


@pytest.fixture(scope="module")
def log(simulated, tmp_path_factory):
  """The log, read from a Parquet file."""
  path = tmp_path_factory.mktemp("log") / "impressions.parquet"
  parquet.write_table(simulated[0], path)
  with read_click_log(path, COLUMNS) as log:
    yield log


@pytest.fixture(scope="module")
def fitted(log):
  """The ranker and bias of method `unbiased` with the defaults of `fit-log`."""
  steps = training.default_steps(len(log.parts["train"]), 256, 100)
  return training.fit(log, "unbiased", trainer.Settings(
      hidden_units=(128, 64), steps=steps, learning_rate=2e-3))


@pytest.fixture(scope="module")
def found(log, fitted):
  """The diagnosis."""
  return diagnosis.diagnose(log, fitted)


def _true_curve(truth, device):
  return truth.examination[device] / truth.examination[device][0]


def _values(curve, part="value"):
  return np.array(curve[part], np.float64)


@pytest.mark.release
def test_no_row_is_lost(log, simulated):
  assert sum(log.summary["rows"].values()) == len(simulated[0])
  assert not log.summary["rejected"]
  assert log.positions == list(POSITIONS)


@pytest.mark.release
def test_both_curves_are_recovered(found, simulated):
  for device, curves in found.contexts.items():
    error = np.abs(_values(curves["trained"]) -
                   _true_curve(simulated[1], device))
    print(f"{device}: EM off by {error.max():.4f} at most, "
          f"{error.mean():.4f} on average")
    assert error.max() <= 0.05


@pytest.mark.release
def test_harvesting_agrees_with_em(found):
  assert not np.any(found.components)  # The graph is connected.
  for device, curves in found.contexts.items():
    gap = np.abs(_values(curves["trained"]) - _values(curves["all_pairs"]))
    print(f"{device}: harvesting and EM differ by {gap.max():.4f} at most")
    assert gap.max() <= 0.05


@pytest.mark.release
def test_nothing_is_warned_of(found):
  assert not found.warnings
  assert any("sampling error only" in text for text in found.sentences)


@pytest.mark.release
def test_harvested_intervals_hold_the_truth(simulated):
  table, truth = simulated
  requests = np.unique(hashes(table["request_id"].combine_chunks()),
                       return_inverse=True)[1]
  columns = {
      "items": hashes(table["item_id"].combine_chunks()),
      "positions": np.searchsorted(POSITIONS, table["rank"].to_numpy()) + 1,
      "clicked": table["click"].to_numpy() > 0, "requests": requests}
  devices = np.array(table["device"].to_pylist())
  inside = {kind: [] for kind in harvesting.CURVES}
  for draw in range(DRAWS):
    # 2,500 requests of 8 rows each, others in each draw.
    rows = requests // 2500 == draw
    assert rows.sum() == 20000
    for device in truth.examination:
      chosen = rows & (devices == device)
      harvest = harvesting.harvest(
          **{name: values[chosen] for name, values in columns.items()},
          num_positions=len(POSITIONS), level=0.9, seed=draw)
      right = _true_curve(truth, device)[1:]
      for kind, hits in inside.items():
        curve = getattr(harvest, kind)
        # An upper end that the data does not show is no miss.
        high = np.nan_to_num(curve.high[1:], nan=np.inf)
        hits.append((curve.low[1:] <= right) & (right <= high))
  for kind, hits in inside.items():
    share = np.mean(hits)
    print(f"{kind}: 90 % intervals hold the truth at {share:.3f}")
    assert 0.80 <= share <= 0.97


class _Truth:
  """Attraction of the items of a batch, in place of a model's scores."""

  def __init__(self, truth):
    ids = hashes(truth.catalogue["item_id"].combine_chunks())
    order = np.argsort(ids)
    self._ids, self._values = ids[order], truth.item_attraction[order]

  def attraction(self, batch):
    place = np.searchsorted(self._ids, batch.items)
    return self._values[np.minimum(place, len(self._ids) - 1)]


@pytest.mark.release
def test_rankers_of_known_quality_come_out_in_order(
    log, fitted, simulated, monkeypatch):
  truth = _Truth(simulated[1])
  theta = np.stack([simulated[1].examination[device]
                    for device in log.contexts])
  noise = {"best": 0.0, "middling": 0.3, "worst": 3.0}
  generator = np.random.default_rng(0)

  def predict(deviation, batch):
    scores = truth.attraction(batch)
    scores = scores + deviation * generator.normal(size=scores.shape)
    true_dcg = []
    relevant = np.where(batch.positions > 0, truth.attraction(batch), 0.0)
    order = np.argsort(np.where(batch.positions > 0, -scores, np.inf), axis=1)
    discount = np.log2(2.0 + np.arange(scores.shape[1]))
    at_first = theta[batch.contexts[:, 0], 0]
    true_dcg = (np.take_along_axis(relevant, order, 1) / discount).sum(axis=1)
    right.extend(at_first * true_dcg)
    return scores, truth.attraction(batch)

  monkeypatch.setattr(scoring, "predict", predict)
  evaluator = evaluation.LogEvaluator(fitted.bias, binary=True)
  true_means = {}
  for name, deviation in noise.items():
    right = []
    evaluator.add(name, log.parts["test"], deviation)
    true_means[name] = np.mean(right)
  results = evaluator.results()
  estimates = {name: results[name]["estimates"]["dcg@10"] for name in noise}
  for name, estimate in estimates.items():
    error = (estimate["value"] - true_means[name]) / estimate["standard_error"]
    print(f"{name}: DCG {estimate['value']:.4f}, true {true_means[name]:.4f}, "
          f"off by {error:.2f} standard errors")
    assert abs(error) <= 2.0
  values = [estimates[name]["value"] for name in noise]
  assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("trust_negative, right", [
    pytest.param(0.0, "position", marks=pytest.mark.release),
    pytest.param(0.65 / np.arange(1, 11), "trust", marks=pytest.mark.slow)])
def test_one_training_tells_whether_users_trust_what_stands_high(
    trust_negative, right, tmp_path):
  table, truth = simulate_log(20000, trust_negative=trust_negative, seed=0)
  parquet.write_table(table, tmp_path / "impressions.parquet")
  with read_click_log(tmp_path / "impressions.parquet", COLUMNS) as log:
    bias = training.fit(log, "unbiased", trainer.Settings(
        hidden_units=(128, 64), steps=600, learning_rate=2e-3)).bias
    error = max(
        np.abs(curve / curve[0] - _true_curve(truth, device)).max()
        for device, curve in zip(log.contexts, bias.click_relevant))
  behind = {name: entry["behind"] for name, entry in bias.hypotheses.items()}
  print(f"behind: {behind}, curves off by {error:.3f} at most")
  assert next(iter(behind)) == right
  assert error <= 0.05
