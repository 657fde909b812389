"""Tests of ultra_tfr.fit_log.training."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

import click_logs
from ultra_tfr import choices
from ultra_tfr import methods
from ultra_tfr import scorers
from ultra_tfr import trainer
from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.fit_log import checkpoints
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import convergence
from ultra_tfr.fit_log import scoring
from ultra_tfr.fit_log import training
from ultra_tfr.hypotheses import HYPOTHESES
from ultra_tfr.layers import PositionBias

# Models of these are made in half the time.
NUMERIC = click_logs.columns(features=("f_0", "f_1"))
GRADED = "click + 0.5*log1p(dwell_ms/1000)"


def _fit(table=None, method="unbiased", settings=click_logs.SHORT, seed=0,
         logs_folder=None, **options):
  """A `FittedLog` of a small log, and scores of its training part."""
  table = click_logs.small() if table is None else table
  options = {"columns": None if "schema" in options else NUMERIC, **options}
  with click_logs.read(table, **options) as log:
    fitted = training.fit(log, method, settings, seed=seed,
                              logs_folder=logs_folder)
    return fitted, _scores(fitted.model, log)


def _scores(model, log):
  """The scores of all items of the training part."""
  batches = list(log.parts["train"].batches(1000))
  assert len(batches) == 1
  scores, _ = scoring.predict(model, batches[0])
  return scores[batches[0].weights > 0]


# Steps.


@pytest.mark.parametrize("requests, batch_size, validate_every, steps", [
    (8000, 256, 100, 300), (10000, 256, 100, 400), (0, 256, 100, 200),
    (10**7, 256, 100, 3000), (10**7, 256, 400, 2800), (10, 256, 150, 300),
    (10**7, 256, 5000, 3000), (10, 256, 1000, 200), (2560, 64, 100, 400)])
def test_default_steps(requests, batch_size, validate_every, steps):
  assert training.default_steps(
      requests, batch_size, validate_every) == steps


def test_default_steps_always_fit():
  for requests in (1, 900, 5000, 30000, 10**6):
    for every in (1, 7, 60, 199, 200, 201, 650, 1501, 2999, 3000, 3001):
      steps = training.default_steps(requests, 256, every)
      assert 200 <= steps <= 3000 or every > 1500
      trainer.Settings(steps=steps, validate_every=every)


# What comes out, by method and kind of log.


@pytest.mark.parametrize("method, feedback, features, context, valid", [
    ("unbiased", "click", click_logs.FEATURES, "device", 0.1),
    ("unbiased", GRADED, ("f_*",), "device", 0),
    ("unbiased-bayes", GRADED, ("brand", "category"), None, 0.1),
    ("naive-pairwise", GRADED, ("category", "f_1"), "device", 0.1)])
@pytest.mark.usefixtures("eagerly")
def test_what_comes_out(method, feedback, features, context, valid, tmp_path):
  fitted, scores = _fit(
      method=method, valid=valid, logs_folder=str(tmp_path),
      columns=click_logs.columns(feedback, features, context))
  assert np.isfinite(scores).all() and scores.std() > 0
  has_bias = method != "naive-pairwise"
  assert list(fitted.history) == [
      "step", "loss",
      *((f"hypothesis_{hypothesis.name}" for hypothesis in HYPOTHESES)
        if method == "unbiased" else ()),
      *(["examination_change", "weight_clipped", "batches_skipped"] * has_bias),
      *(["val_snips_dcg@10"] * bool(valid)),
      *(["val_log_likelihood"] * bool(valid and has_bias)),
      *(["val_lead", "logged_order_weight"] * bool(
          valid and method == "unbiased"))]
  assert fitted.history["step"] == [3, 6]
  assert all(len(values) == 2 for values in fitted.history.values())
  json.dumps([fitted.history, fitted.schema], allow_nan=False)
  logs = {path.parent.name for path in tmp_path.rglob("events*")}
  assert logs == {"train", *(["validation"] * bool(valid)),
                  *(["curves"] * has_bias)}
  if not has_bias:
    assert fitted.bias is None
    return
  size = 2 if context else 1
  assert fitted.bias.method == method
  assert fitted.bias.click_relevant.shape == (size, 5)
  assert (fitted.bias.click_irrelevant is not None) == (method == "unbiased")
  for table in (fitted.bias.trust_positive, fitted.bias.trust_negative):
    assert (table is None) == (method == "unbiased")
    assert table is None or table.shape == (size, 5, 5)


def test_curves_and_ranker_are_good_on_an_easy_log():
  log, fitted = click_logs.easy()
  _, truth = click_logs.simulated()
  for device, curve in zip(log.contexts, fitted.bias.relative()):
    np.testing.assert_allclose(
        curve, click_logs.true_curve(truth, device), atol=0.08)
  assert len(fitted.history["step"]) == 3
  # The scores order items as their attraction does.
  score, attraction = [], []
  for batch in log.parts["test"].batches(1000):
    score.append(scoring.predict(fitted.model, batch)[0].ravel())
    attraction.append(click_logs.attraction(truth, batch).ravel())
  assert np.corrcoef(*map(np.concatenate, (score, attraction)))[0, 1] > 0.8


@pytest.mark.usefixtures("eagerly")
def test_a_seed_gives_one_result():
  (first, scores), (again, same) = (_fit(seed=1) for _ in range(2))
  np.testing.assert_array_equal(scores, same)
  assert first.history == again.history
  assert first.bias.to_config() == again.bias.to_config()


class _Stop(Exception):
  """Ends a training that has been seen enough of."""


@pytest.mark.parametrize("feedback, kind", [("click", "click"),
                                            (GRADED, "dwell")])
def test_what_the_training_is_made_of(feedback, kind, monkeypatch):
  seen, build = [], methods.Method.build

  def record(method, num_positions, feedback, num_contexts, prior_clicks,
             examination):
    seen.append((num_positions, feedback, num_contexts, prior_clicks))
    return build(method, num_positions, feedback, num_contexts=num_contexts,
                 prior_clicks=prior_clicks, examination=examination)

  def dataset(lists, batch_size, seed):
    seen.append((len(lists), batch_size, seed))
    raise _Stop

  monkeypatch.setattr(methods.Method, "build", record)
  monkeypatch.setattr(requests_lib.LoggedLists, "dataset", dataset)
  with pytest.raises(_Stop):
    _fit(seed=5, columns=click_logs.columns(feedback))
  # The last 20 batches of 64 have each of the 320 requests four times.
  assert seen == [(5, kind, 2, 80.0), (320, 64, 5)]


# Weights.

WEIGHTED = click_logs.columns(features=("f_0", "f_1"), weight="w")


@pytest.fixture(scope="module")
def weights():
  return np.random.default_rng(0).choice(
      [1.0, 2.0, 4.0], len(click_logs.small()))


def _weighted(table, weights, method="unbiased", **options):
  table = click_logs.with_column(table, "w", weights)
  columns = None if "schema" in options else WEIGHTED
  return _fit(table, method, columns=columns, valid=0, test=0, **options)


@pytest.mark.usefixtures("eagerly")
def test_only_ratios_of_weights_count(weights):
  first, scores = _weighted(click_logs.small(), weights)
  other, same = _weighted(click_logs.small(), 0.002 * weights)
  np.testing.assert_allclose(same, scores, rtol=1e-3, atol=1e-4)
  np.testing.assert_allclose(
      first.bias.click_relevant, other.bias.click_relevant, rtol=1e-4)


@pytest.mark.usefixtures("eagerly")
def test_equal_weights_are_no_weights(weights):
  table = click_logs.small()
  (_, same), (_, different), (_, scores) = (
      _weighted(table, np.full(len(table), 3.0), "naive-pairwise"),
      _weighted(table, weights, "naive-pairwise"),
      _fit(table, "naive-pairwise", valid=0, test=0))
  np.testing.assert_allclose(same, scores, rtol=1e-3, atol=1e-4)
  assert np.abs(different - scores).max() > 1e-2


@pytest.mark.usefixtures("eagerly")
def test_rows_of_weight_0_change_nothing(weights):
  table = click_logs.small()
  out = np.random.default_rng(1).random(len(table)) < 0.2
  # The same statistics, so that nothing but the rows differs.
  with click_logs.read(
      click_logs.with_column(table, "w", weights), valid=0, test=0,
      columns=WEIGHTED) as log:
    schema = log.schema()
  odd = click_logs.with_column(
      table, "click", np.where(out, 1, table["click"].to_numpy()))
  odd = click_logs.with_column(
      odd, "f_0", np.where(out, 100.0, table["f_0"].to_numpy()))
  with_rows, _ = _weighted(odd, np.where(out, 0.0, weights), schema=schema)
  rest = table.filter(~out)
  without, scores = _weighted(rest, weights[~out], schema=schema)
  with click_logs.read(click_logs.with_column(rest, "w", weights[~out]),
                       schema=schema, valid=0, test=0) as log:
    same = _scores(with_rows.model, log)
  np.testing.assert_allclose(same, scores, rtol=1e-3, atol=1e-4)
  np.testing.assert_allclose(
      with_rows.bias.click_relevant, without.bias.click_relevant, rtol=1e-4)


@pytest.mark.usefixtures("eagerly")
def test_relevance_starts_near_the_highest_rate(weights, monkeypatch):
  rates = []
  monkeypatch.setattr(scorers, "start_relevance",
                      lambda model, rate, shares: rates.append(rate))
  table = click_logs.small()
  _weighted(table, weights, settings=trainer.Settings(
      hidden_units=(2,), batch_size=8, steps=1))
  sums = np.zeros((2, 2, 5))
  for row, weight in zip(table.to_pylist(), weights):
    sums[row["click"], int(row["device"] == "mobile"),
         click_logs.POSITIONS.index(row["rank"])] += weight / weights.mean()
  share = sums[1].sum() / sums.sum()
  smooth = (sums[1] + 20 * share) / (sums.sum(axis=0) + 20)
  assert rates == [pytest.approx(smooth.max())]


# Validation.


@pytest.mark.parametrize("method", ["unbiased", "unbiased-ipw"])
@pytest.mark.usefixtures("eagerly")
def test_validation_never_reaches_em_while_it_learns(method):
  """It tells only whether EM is run on afterwards."""
  table = click_logs.small()
  time = table["timestamp"].to_numpy()
  late = time > np.quantile(time, 0.7)
  first, _ = _fit(table, method=method, valid=0.3, test=0)
  # Clicks on what stood last, by which the reverse of the order is the best.
  is_last = table["rank"].to_numpy() == max(click_logs.POSITIONS)
  changed = click_logs.with_column(
      table, "click", np.where(late, is_last, table["click"].to_numpy()))
  second, _ = _fit(changed, method=method, valid=0.3, test=0)
  assert first.history["val_log_likelihood"] != second.history[
      "val_log_likelihood"]
  np.testing.assert_array_equal(*(
      bias.click_relevant if bias.at_end is None else bias.at_end
      for bias in (first.bias, second.bias)))
  assert first.bias.hypotheses == second.bias.hypotheses
  # It may say how far the ranker, and no more, follows the order shown.
  assert (first.history["loss"] == second.history["loss"]) == (
      method == "unbiased-ipw")


@pytest.mark.parametrize("valid, weight", [(0.3, 0.25), (0, 0.0)])
def test_without_validation_the_logged_order_has_no_weight(valid, weight):
  layer = PositionBias(5, logged_order_weight=0.25, trust_bias=None)
  with click_logs.read(click_logs.small(), valid=valid) as log:
    checkpoints.KeepBest(log, "name", layer, has_guard=True).on_train_begin()
  assert float(layer.logged_order_weight) == weight


def _judged(value):
  """DCG and gain of two requests that agree on the value."""
  return np.full((1, 2), value), np.ones(2)


def _validation(keeper, dcg, gain, *_):
  del keeper
  return checkpoints.Validation(dcg, gain, -1.0)


@pytest.mark.parametrize("values, kept", [
    ([0.5, 0.9, 0.1], 1), ([0.9, 0.5, 0.1], 0), ([np.nan] * 3, 2)])
def test_the_best_parameters_are_kept(values, kept, monkeypatch):
  # Values of the moment fall, and do not decide.
  def predict(keeper):
    return int(keeper.model.get_weights()[1][0])

  def judge(keeper, epoch, bias, witness=None):
    del keeper, witness
    is_last = bias.click_relevant[0, 1] == np.float32(0.2)
    return _judged(values[epoch] if is_last else 2.0 - epoch)

  monkeypatch.setattr(checkpoints.KeepBest, "_predict", predict)
  monkeypatch.setattr(checkpoints.KeepBest, "_judge", judge)
  monkeypatch.setattr(checkpoints.KeepBest, "_validation", _validation)
  layer = PositionBias(2, trust_bias=None)
  model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
  log = types.SimpleNamespace(parts={"valid": [1]}, feedback_kind="binary")
  keeper = checkpoints.KeepBest(log, "name", layer)
  keeper.set_model(model)
  for epoch, value in enumerate(values):
    model.set_weights([np.full((1, 1), epoch), np.full(1, epoch)])
    layer.examination.assign([[1.0, 0.1 * epoch]])
    logs = {"loss": 1.0}
    keeper.on_epoch_end(epoch, logs)
    np.testing.assert_equal(logs, {
        "loss": 1.0, "val_log_likelihood": -1.0,
        "val_snips_dcg@10": value if epoch == 2 else 2.0 - epoch})
  keeper.on_train_end()
  assert model.get_weights()[1].tolist() == [kept]
  # The bias is the last one, whatever the ranker is.
  assert keeper.bias.click_relevant[0, 1] == pytest.approx(0.2)
  np.testing.assert_equal(keeper.validation(keeper.bias).value, values[kept])


@pytest.mark.parametrize("before, after, clicks, used", [
    ("fit", "fit", 100, "run on"), ("simpler", "simpler", 100, "run on"),
    (None, "fit", 100, "end"), ("fit", None, 100, "end"),
    ("fit", "fit", 99, "end"), ("fit", "fit", 0, "end")])
def test_where_em_is_run_on_after_training(
    before, after, clicks, used, monkeypatch):
  """Relevance that knows clicks by heart ended at a flat curve."""
  kept = {"end": before, "run on": after}
  monkeypatch.setattr(
      click_prediction, "compare", lambda log, model, biases: {
          "kept": kept[biases["fit"]], "of": biases["fit"]})
  monkeypatch.setattr(
      convergence, "converge", lambda layer, biases, model, lists: {
          "fit": "run on"})
  log = types.SimpleNamespace(
      contexts=["a"], positions=[1, 2, 3, 4, 5], parts={"train": None},
      summary={"by_position": {"a": {"clicked": [clicks, 0, 0, 0, 0]}}})
  biases, found = training._run_on(log, None, None, {"fit": "end"}, None)
  assert (biases["fit"], found["of"]) == (used, used)


def test_without_propensities_each_validation_is_judged_once(monkeypatch):
  results = iter([0.5, np.nan, 0.9, 0.1])
  monkeypatch.setattr(checkpoints.KeepBest, "_predict", lambda keeper: None)
  monkeypatch.setattr(checkpoints.KeepBest, "_judge",
                      lambda *_: _judged(next(results)))
  monkeypatch.setattr(checkpoints.KeepBest, "_validation", _validation)
  model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
  log = types.SimpleNamespace(parts={"valid": [1]}, feedback_kind="binary")
  keeper = checkpoints.KeepBest(log, "name", None)
  keeper.set_model(model)
  for epoch in range(4):
    model.set_weights([np.full((1, 1), epoch), np.full(1, epoch)])
    keeper.on_epoch_end(epoch, {"loss": 1.0})
  keeper.on_train_end()
  assert model.get_weights()[1].tolist() == [2]


@pytest.mark.usefixtures("eagerly")
def test_feedback_that_is_not_there_is_none_in_the_history():
  table = click_logs.small()
  with pytest.warns(UserWarning, match="No list of this epoch had feedback"):
    fitted, _ = _fit(click_logs.with_column(
        table, "click", np.zeros(len(table), np.int64)))
  assert fitted.history["val_snips_dcg@10"] == [None, None]
  json.dumps(fitted.history, allow_nan=False)


@pytest.mark.usefixtures("eagerly")
def test_divergence_is_an_error():
  settings = trainer.Settings(hidden_units=(4,), batch_size=64, steps=4,
                               validate_every=2, learning_rate=1e38)
  with pytest.raises(ValueError, match="^The training diverged: .* validation "
                     "1; lower the learning rate.$"):
    _fit(settings=settings)


@pytest.mark.parametrize("method", ["best", "oracle-pairwise"])
def test_no_such_method(method):
  with pytest.raises(ValueError, match=f"`method_name` .*{method!r}"):
    _fit(method=method)


def test_methods():
  assert set(choices.FOR_LOGS) <= set(methods.METHODS)
  for name in choices.FOR_LOGS:
    assert methods.find(name).learn_from == "feedback"


# Memory.


def test_a_request_too_long_for_the_memory_is_refused(monkeypatch):
  """One of 3,000 rows ended in `bad_alloc`, one of 100,000 never."""
  with click_logs.read(click_logs.small(), columns=NUMERIC) as log:
    training.check_memory(log, 256)
    longest = log.summary["longest_request"]
    monkeypatch.setattr(training, "_memory", lambda: 100 * longest ** 2)
    training.check_memory(log, 2)
    with pytest.raises(ValueError, match=(
        f"longest request has {longest} rows, and each pair of them is compared"
        ": a batch of 64 requests may need about 0 GB .* Keep the first rows of"
        " each request by `max_items`, such as 100, or make the batches sm")):
      training.fit(log, "unbiased", click_logs.SHORT)
