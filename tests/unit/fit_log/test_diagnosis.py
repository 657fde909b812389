"""Tests of ultra_tfr.fit_log.diagnosis."""

import collections
import dataclasses
import json
import re

import numpy as np
import pytest

import click_logs
from ultra_tfr import trainer
from ultra_tfr.bias import Bias
from ultra_tfr.evaluation import harvesting
from ultra_tfr.fit_log import diagnosis
from ultra_tfr.fit_log import findings
from ultra_tfr.fit_log import training

KINDS = ("trained", "em", *harvesting.CURVES, "randomized")


@pytest.fixture(scope="module")
def found():
  """The diagnosis of an easy log."""
  return diagnosis.diagnose(*click_logs.easy(), replicates=50)


def _diagnose(table, bias=None, max_requests=200000, **options):
  """Diagnoses a table with the model of the easy log."""
  log, fitted = click_logs.easy()
  columns = click_logs.columns(**options) if options else None
  fitted = dataclasses.replace(fitted, bias=bias or fitted.bias)
  with click_logs.read(table, columns=columns,
                       **({} if columns else {"schema": log.schema()})) as log:
    return diagnosis.diagnose(log, fitted, replicates=20,
                              max_requests=max_requests)


def _warned(found, *parts):
  """Whether one warning has all of these."""
  return any(all(part in text for part in parts) for text in found.warnings)


# An easy log.


def test_all_curves_agree_with_the_truth(found):
  _, truth = click_logs.simulated()
  assert list(found.contexts) == ["desktop", "mobile"]
  assert found.positions == [1, 2, 3, 5, 8]
  for device, curves in found.contexts.items():
    assert list(curves) == list(KINDS)
    right = click_logs.true_curve(truth, device)
    for kind, curve in curves.items():
      np.testing.assert_allclose(
          click_logs.values(curve), right, err_msg=f"{device}, {kind}",
          atol=0.25 if kind == "randomized" else 0.08)
      if kind == "trained":
        assert curve["low"] is None and curve["high"] is None
        continue
      low, high = (click_logs.values(curve, end) for end in ("low", "high"))
      assert (low[1:] < high[1:]).all()
      # Ends of 90 % are no guarantee, but far off is wrong.
      width = high - low
      assert (low - width <= right + 1e-9).all()
      assert (right <= high + width + 1e-9).all()


def test_numbers_of_an_easy_log(found):
  log, fitted = click_logs.easy()
  table = click_logs.simulated()[0]
  assert found.num_requests == 6000
  assert found.num_items_clicked == table["click"].to_numpy().sum()
  assert found.history == fitted.history
  assert found.weight_clipped == fitted.history["weight_clipped"][-1]
  assert found.trust == {}
  # By hand: 1 / theta of each click, relative to the first position.
  place = np.searchsorted(log.positions, table["rank"].to_numpy())
  context = np.array([log.contexts.index(name)
                      for name in table["device"].to_pylist()])
  weight = (1 / fitted.bias.relative()[context, place])[
      table["click"].to_numpy() > 0]
  assert found.effective_sample_size == pytest.approx(
      weight.sum()**2 / (weight**2).sum())


def test_swaps_of_an_easy_log(found):
  rows = click_logs.simulated()[0].select(
      ["item_id", "rank", "device", "click"]).to_pylist()
  places = {}
  for row in rows:
    places.setdefault((row["item_id"], row["device"]), set()).add(row["rank"])
  expected = np.zeros((5, 5), int)
  for seen in places.values():
    for i, first in enumerate(found.positions):
      for j, second in enumerate(found.positions):
        expected[i, j] += i != j and {first, second} <= seen
  np.testing.assert_array_equal(found.swap_counts, expected)
  moved = [seen for seen in places.values() if len(seen) > 1]
  assert found.num_items.tolist() == [
      sum(position in seen for seen in moved) for position in found.positions]
  clicks = collections.Counter(
      row["rank"] for row in rows if row["click"] and
      len(places[row["item_id"], row["device"]]) > 1)
  assert found.num_swap_clicks.tolist() == [
      clicks[position] for position in found.positions]
  assert not found.components.any()


def test_an_easy_log_has_no_warnings(found):
  assert not found.warnings
  assert any(re.match("At each position at least [0-9]+ clicks", text)
             for text in found.sentences)
  assert 0.05 < found.logger_strength["value"] < 0.4


def test_json(found):
  text = json.dumps(found.to_json(), allow_nan=False)
  again = json.loads(text)
  assert again["contexts"] == found.contexts
  assert again["swap_counts"] == found.swap_counts.tolist()
  assert list(again) == [
      field.name for field in dataclasses.fields(diagnosis.Diagnosis)]


# Other logs.


def test_without_items_nothing_is_harvested():
  found = _diagnose(click_logs.small(), item=None)
  assert {tuple(curves) for curves in found.contexts.values()} == {
      ("trained", "em")}
  assert (found.swap_counts, found.num_items, found.num_swap_clicks,
          found.components) == (None,) * 4
  assert any("no `item` column" in text for text in found.sentences)
  json.dumps(found.to_json(), allow_nan=False)


def test_randomised_rows_of_one_context_only():
  table = click_logs.simulated()[0].slice(0, 10000)
  marked = [row["randomized"] and row["device"] == "mobile"
            for row in table.select(["randomized", "device"]).to_pylist()]
  found = _diagnose(click_logs.with_column(table, "randomized", marked))
  assert "randomized" in found.contexts["mobile"]
  assert "randomized" not in found.contexts["desktop"]


def test_items_that_never_move():
  found = _diagnose(click_logs.simulated("fixed", 1000, 0.0)[0])
  assert _warned(found, "No item was shown at two positions",
                 "Randomise a small share")
  assert not found.swap_counts.any()
  for curves in found.contexts.values():
    assert curves["all_pairs"]["value"][1:] == [None] * 4
  json.dumps(found.to_json(), allow_nan=False)


def test_items_that_move_with_the_context_tell_nothing():
  table = click_logs.simulated("fixed", 1000, 0.0)[0]
  rows = table.select(["rank", "device"]).to_pylist()
  # On one device the order is the other way round.
  items = [str(row["rank"] if row["device"] == "mobile" else 9 - row["rank"])
           for row in rows]
  found = _diagnose(click_logs.with_column(table, "item_id", items))
  assert _warned(found, "No item was shown at two positions")


@pytest.mark.parametrize("logger, strong", [
    ("relevance", True), ("weak", False), ("random", False)])
def test_a_strong_logger_is_warned_of(logger, strong):
  found = _diagnose(click_logs.simulated(logger, 1500, 0.0)[0])
  assert _warned(found, "debiasing has little to gain and may hurt") == strong
  assert any("agrees with the learned relevance" in text
             for text in found.sentences) == (not strong)


@pytest.mark.parametrize("logger, seed, strong", [
    pytest.param("relevance", 0, True, marks=pytest.mark.slow),
    pytest.param("weak", 0, False, marks=pytest.mark.slow),
    pytest.param("relevance", 1, True, marks=pytest.mark.release),
    pytest.param("fixed", 0, False, marks=pytest.mark.release)])
def test_a_strong_logger_is_warned_of_by_its_own_ranker(logger, seed, strong):
  table = click_logs.simulated(logger, 10000, 0.0, seed)[0]
  with click_logs.read(table) as log:
    steps = training.default_steps(8000, 256, 100)
    fitted = training.fit(log, "unbiased", trainer.Settings(
        hidden_units=(128, 64), steps=steps, learning_rate=2e-3), seed=seed)
    found = diagnosis.diagnose(log, fitted, replicates=20)
  print(f"{logger}: {found.logger_strength['value']:.2f}")
  assert _warned(found, "debiasing has little to gain and may hurt") == strong


def test_positions_that_no_item_connects():
  table = click_logs.simulated()[0].slice(0, 10000)
  items = [row["item_id"] + ("a" if row["rank"] < 3 else "b")
           for row in table.select(["item_id", "rank"]).to_pylist()]
  found = _diagnose(click_logs.with_column(table, "item_id", items))
  assert found.components.tolist() == [0, 0, 1, 1, 1]
  assert _warned(found, "leads from position 1 to positions 3-8")
  for curves in found.contexts.values():
    assert curves["all_pairs"]["value"][2:] == [None] * 3
  json.dumps(found.to_json(), allow_nan=False)


def test_few_clicks_on_items_that_move():
  table = click_logs.simulated("fixed", 1000, 0.0)[0]
  items = np.array(table["item_id"].to_pylist(), object)
  rank = table["rank"].to_numpy()
  mobile = np.array(table["device"].to_pylist()) == "mobile"
  chosen = mobile & np.isin(rank, [1, 5]) & (np.arange(len(rank)) % 8 == 0)
  items[chosen] = "x"
  clicks = table["click"].to_numpy()[chosen]
  low, high = sorted(clicks[rank[chosen] == k].sum() for k in (1, 5))
  assert 0 < low < high < findings.FEW_CLICKS
  found = _diagnose(click_logs.with_column(table, "item_id", items.tolist()))
  assert (f"Positions 1, 5 have {low} to {high} clicks on items that also "
          "appear elsewhere: the estimate there rests on the model."
          ) in found.sentences
  assert _warned(found, "leads from position 1 to positions 2-3, 8")


def test_a_wrong_curve_is_noticed(found):
  log, fitted = click_logs.easy()
  flat = Bias("unbiased", np.full((2, 5), 0.9))
  wrong = diagnosis.diagnose(log, dataclasses.replace(fitted, bias=flat),
                             replicates=50)
  for device, curves in wrong.contexts.items():
    for kind, what in (("all_pairs", "harvesting"),
                       ("randomized", "the randomised rows")):
      gap = 1 - click_logs.values(curves[kind]).min()
      assert _warned(wrong, f"EM and {what} disagree for {device!r} by up to "
                     f"{gap:.2f}, at position", f"8, and not by chance: trust "
                     f"{what} there.")
  # EM with the relevance held fixed does not depend on where it starts.
  for device, curves in wrong.contexts.items():
    np.testing.assert_allclose(
        click_logs.values(curves["em"]),
        click_logs.values(found.contexts[device]["em"]), atol=0.06)


def test_a_context_without_rows():
  table = click_logs.small()
  mobile = np.array(table["device"].to_pylist()) == "mobile"
  found = _diagnose(table.filter(mobile))
  curves = found.contexts["desktop"]
  assert curves["em"]["value"] == [None] * 5
  assert curves["all_pairs"]["value"][1:] == [None] * 4
  assert click_logs.values(found.contexts["mobile"]["em"])[0] == 1
  json.dumps(found.to_json(), allow_nan=False)


def test_a_log_without_feedback():
  table = click_logs.small()
  found = _diagnose(click_logs.with_column(
      table, "click", np.zeros(len(table), np.int64)))
  assert _warned(found, "There is no feedback in the log")
  json.dumps(found.to_json(), allow_nan=False)


def test_a_sample_says_so():
  found = _diagnose(click_logs.simulated()[0], max_requests=500)
  assert 500 <= found.num_requests < 510
  assert found.sentences[0] == (
      f"The diagnosis rests on {found.num_requests} of 6000 requests.")


# Without a model.


def _alone(table, **options):
  """Diagnoses a table by itself."""
  with click_logs.read(table, columns=click_logs.columns(
      features=(), **options)) as log:
    return diagnosis.diagnose(log, replicates=20)


def test_curves_without_a_model_are_those_beside_one(found):
  alone = _alone(click_logs.simulated()[0], randomized="randomized")
  assert (alone.method, alone.history, alone.trust) == (None, {}, {})
  for device, curves in alone.contexts.items():
    assert list(curves) == [*harvesting.CURVES, "randomized"]
    for kind, curve in curves.items():
      assert curve["value"] == pytest.approx(
          found.contexts[device][kind]["value"])
  np.testing.assert_array_equal(alone.swap_counts, found.swap_counts)
  assert alone.evidence == found.evidence
  json.dumps(alone.to_json(), allow_nan=False)


def test_evidence_is_counted_by_hand():
  table = click_logs.small()
  evidence = _alone(table).evidence
  rows = table.to_pandas()
  for device, part in rows.groupby("device"):
    by_rank = part.groupby("rank")["click"]
    assert evidence["shown"][device] == by_rank.size().tolist()
    assert evidence["clicked"][device] == by_rank.sum().tolist()
  rate = rows.groupby("request_id")["click"].mean()
  assert evidence["informative_requests"] == ((rate > 0) & (rate < 1)).sum()


def test_requests_of_one_row_are_diagnosed():
  """There is nothing to train on, but harvesting needs no training."""
  table = click_logs.small()
  table = click_logs.with_column(
      table, "request_id", [str(i) for i in range(len(table))])
  found = _alone(table)
  assert found.evidence["informative_requests"] == 0
  assert all(curves["all_pairs"]["value"][1] for curves in
             found.contexts.values())


# The model of another log.


def test_the_curve_at_the_end_of_training_is_told():
  """It was the one that all else was corrected by."""
  log, fitted = click_logs.easy()
  found = diagnosis.diagnose(log, fitted, replicates=5)
  assert list(found.at_end) == list(found.contexts)
  for c, name in enumerate(found.contexts):
    end, used = fitted.bias.at_end[c], fitted.bias.click_relevant[c]
    np.testing.assert_allclose(found.at_end[name], end / end[0])
    np.testing.assert_allclose(
        found.contexts[name]["trained"]["value"], used / used[0])
    assert 0 < np.abs(end / end[0] - used / used[0]).max() < 0.1
    # The same relevance, but more clicks and no pseudo-clicks.
    np.testing.assert_allclose(
        click_logs.values(found.contexts[name]["em"]), used / used[0],
        atol=0.08)
  assert len([text for text in found.sentences
              if "EM was run to convergence after training" in text]) == 2


def test_the_curve_of_another_log_is_estimated_from_it():
  """The curve of the model's log was shown as that of the other."""
  log, fitted = click_logs.easy()
  with click_logs.read(click_logs.small(), schema=fitted.schema) as other:
    found = diagnosis.diagnose(other, fitted, replicates=20)
  assert not found.is_own and diagnosis.diagnose(log, fitted, replicates=5
                                                 ).is_own
  assert (found.history, found.hypotheses) == ({}, None)
  for c, (name, curves) in enumerate(found.contexts.items()):
    np.testing.assert_allclose(
        curves["trained"]["value"], fitted.bias.relative()[c])
    value, low, high = (curves["em"][part][-1]
                        for part in ("value", "low", "high"))
    assert f"{value:.0%} as often as position 1 for {name!r} by EM on this log"\
        f" (90% interval {low:.0%} to {high:.0%})." in " ".join(found.sentences)


def test_a_method_without_bias():
  log, fitted = click_logs.easy()
  with pytest.raises(ValueError, match="estimates no bias; diagnose one"):
    diagnosis.diagnose(log, dataclasses.replace(fitted, bias=None))
