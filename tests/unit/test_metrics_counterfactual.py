"""Tests of ultra_tfr.metrics.CounterfactualMetric."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from metric_batches import SIZE
from metric_batches import evaluate
from metric_batches import make_batch
from metric_batches import make_bias
from metric_batches import make_model
from metric_batches import packed
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.evaluation import counterfactual
from ultra_tfr.layers import PositionBias
from ultra_tfr.metrics import CounterfactualMetric

NAMES = {
    ("dcg", False): "dcg@3", ("dcg", True): "snips_dcg@3",
    ("ndcg", False): "ndcg@3", ("ndcg", True): "ndcg@3",
    ("mrr", False): "mrr@3", ("mrr", True): "snips_mrr@3",
    ("arp", False): "arp", ("arp", True): "arp",
}
metrics = pytest.mark.parametrize("metric, self_normalized", NAMES)


def expected(batch, scores, bias, *, weights=None, max_weight=None):
  """The values of `evaluate_log` by name, propensities looked up here."""
  inside = batch["positions"] <= bias.num_positions
  columns = np.where(inside, batch["positions"], 1) - 1
  p1, p0 = bias.examination.numpy(), None
  first = p1[:, :1]
  if bias.trust_bias == "position":
    p0 = bias.click_irrelevant.numpy()
    first = first - p0[:, :1]
    p0 = p0[batch["contexts"], columns]
  found = counterfactual.evaluate_log(
      scores, batch["clicks"], np.where(inside, batch["positions"], 0),
      p1[batch["contexts"], columns], p0, scale=first[batch["contexts"][:, 0]],
      topn=(3,), weights=weights, max_weight=max_weight, replicates=2)
  return {name: e.value for name, e in found.estimates.items()}


@metrics
@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
def test_equals_evaluate_log(metric, self_normalized, trust_bias):
  bias, batch = make_bias(trust_bias), make_batch()
  name = NAMES[metric, self_normalized]
  scores = np.round(batch["features"][..., 0])  # Many ties.
  for max_weight in (None, 1.5):
    found = CounterfactualMetric(
        bias, metric, topn=3, self_normalized=self_normalized,
        max_weight=max_weight)
    right = expected(batch, scores, bias, max_weight=max_weight)[name]
    assert math.isfinite(right)
    assert evaluate(found, packed(batch), scores) == pytest.approx(
        right, rel=1e-5)
    for weights in (batch["weights"], batch["weights"][:, :1],
                    batch["weights"][:, 0]):
      by_item = np.broadcast_to(weights.reshape([8, -1]), [8, SIZE])
      right = expected(batch, scores, bias, weights=by_item,
                       max_weight=max_weight)[name]
      assert evaluate(found, packed(batch), scores, weights) == pytest.approx(
          right, rel=1e-5)


@metrics
def test_batches_add_up(metric, self_normalized):
  bias, batch = make_bias(), make_batch(1)
  found = CounterfactualMetric(bias, metric, 3, self_normalized)
  y_true, scores = packed(batch), batch["features"][..., 0]
  for rows in (slice(0, 3), slice(3, 4), slice(4, 8)):
    found.update_state(y_true[rows], scores[rows])
  assert float(found.result()) == pytest.approx(
      expected(batch, scores, bias)[NAMES[metric, self_normalized]], rel=1e-5)


def test_heads_and_plain_feedback():
  bias = PositionBias(3, examination=[1.0, 0.5, 0.25])
  metric = CounterfactualMetric(bias)
  right = (1 / math.log2(3) + 4.0) / 1
  y_true, scores = [[1.0, 0.0, 1.0]], np.array([[2.0, 1.0, 3.0]], np.float32)
  assert evaluate(metric, y_true, scores) == pytest.approx(right)
  for heads in (2, 3):
    y_pred = np.stack([scores, *[-scores] * (heads - 1)], axis=-1)
    assert evaluate(metric, y_true, y_pred) == pytest.approx(right)


def test_items_that_nobody_examines_are_left_out_and_not_ranked():
  metric = CounterfactualMetric(PositionBias(3, examination=[1.0, 0.0, 0.5]))
  assert evaluate(metric, [[1.0, 1.0, 0.0]], [[2.0, 3.0, 1.0]]) == 1.0


def test_cutoffs():
  bias = PositionBias(12, examination=[1.0] * 12)
  y_true = np.eye(12, dtype=np.float32)[[11]]
  scores = -np.arange(12, dtype=np.float32)[np.newaxis]
  for topn, right in ((10, 0.0), (12, 1 / 12), (None, 1 / 12)):
    assert evaluate(CounterfactualMetric(bias, "mrr", topn), y_true,
                    scores) == pytest.approx(right)
  assert evaluate(CounterfactualMetric(bias, "arp", 1), y_true, scores) == 12


@pytest.mark.parametrize("metric", ["ndcg", "arp"])
def test_nothing_to_divide_by(metric):
  found = CounterfactualMetric(make_bias(contexts=1), metric)
  assert math.isnan(found.result())
  assert math.isnan(evaluate(found, [[0.0, 0.0]], [[1.0, 2.0]]))
  assert evaluate(CounterfactualMetric(make_bias(contexts=1)), [[0.0, 0.0]],
                  [[1.0, 2.0]]) == 0.0


def test_it_reads_the_current_propensities_and_does_not_touch_them():
  bias = PositionBias(2, initial_examination=[0.8, 0.4], trust_bias=None)
  metric = CounterfactualMetric(bias)
  assert len(metric.variables) == 2
  arguments = [[0.0, 1.0]], [[1.0, 2.0]]
  assert evaluate(metric, *arguments) == pytest.approx(2.0)
  bias.examination.assign([[0.8, 0.2]])
  assert evaluate(metric, *arguments) == pytest.approx(4.0)
  metric.reset_state()
  np.testing.assert_allclose(bias.examination, [[0.8, 0.2]])


@pytest.mark.smoke
def test_in_compile_fit_and_evaluate():
  bias, batch = make_bias(), make_batch(2, num_lists=12)
  model = make_model(
      bias,
      metrics=[CounterfactualMetric(bias, *options[:1], 3, *options[1:],
                                    name="_".join(map(str, options)))
               for options in NAMES],
      weighted_metrics=[CounterfactualMetric(bias, topn=3, name="weighted")])
  data = tf.data.Dataset.from_tensor_slices(
      (batch["features"], packed(batch), batch["weights"])).batch(5)
  history = model.fit(data, epochs=2, validation_data=data, verbose=0).history
  scores = model.predict(batch["features"], verbose=0)
  found = model.evaluate(data, verbose=0, return_dict=True)
  right = expected(batch, scores, bias)
  for options, name in NAMES.items():
    key = "_".join(map(str, options))
    assert found[key] == pytest.approx(right[name], rel=1e-5)
    assert history[f"val_{key}"][-1] == pytest.approx(found[key], rel=1e-5)
  right = expected(batch, scores, bias, weights=batch["weights"])["dcg@3"]
  assert found["weighted"] == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("name", ["saved_model", "model.keras"])
@pytest.mark.usefixtures("eagerly")
def test_a_model_with_it_is_saved_and_loaded(name, tmp_path):
  bias, batch = PositionBias(SIZE, trust_bias=None), make_batch(3)
  batch["contexts"] *= 0
  model = make_model(bias, metrics=[CounterfactualMetric(bias, topn=3)])
  data = batch["features"], packed(batch)
  model.fit(*data, verbose=0, callbacks=[PropensityEM(warmup=1)])
  found = model.evaluate(*data, verbose=0, return_dict=True)["ips_dcg_3"]
  scores = model.predict(batch["features"], verbose=0)
  assert found == pytest.approx(
      expected(batch, scores, bias)["dcg@3"], rel=1e-5)
  model.save(str(tmp_path / name))
  again = tf.keras.models.load_model(str(tmp_path / name))
  again.compile(loss=model.loss, metrics=[CounterfactualMetric(bias, topn=3)])
  assert again.evaluate(*data, verbose=0, return_dict=True)[
      "ips_dcg_3"] == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_inside_a_function(jit_compile):
  bias, batch = make_bias("position"), make_batch(4)
  metric = CounterfactualMetric(bias, "ndcg", 3)
  scores = tf.constant(batch["features"][..., 0])

  @tf.function(jit_compile=jit_compile)
  def update(y_true, scores):
    metric.update_state(y_true, scores)

  update(packed(batch), scores)
  assert float(metric.result()) == pytest.approx(
      expected(batch, scores.numpy(), bias)["ndcg@3"], rel=1e-5)


@pytest.mark.parametrize("options, name", [
    ({}, "ips_dcg_10"), ({"self_normalized": True}, "snips_dcg_10"),
    ({"metric": "ndcg", "topn": 3}, "ips_ndcg_3"), ({"topn": None}, "ips_dcg"),
    ({"metric": "arp"}, "ips_arp"), ({"name": "other"}, "other")])
def test_names(options, name):
  assert CounterfactualMetric(make_bias(), **options).name == name


@pytest.mark.parametrize("eager", [True, False])
def test_trust_in_positions_takes_clicks(eager):
  metric = CounterfactualMetric(make_bias("position", contexts=1))

  def update(y_true):
    metric.update_state(y_true, tf.zeros([1, 3]))

  update = update if eager else tf.function(update)
  update(tf.constant([[1.0, 0.0, -1.0]]))
  with pytest.raises(tf.errors.InvalidArgumentError,
                     match="`y_true` must hold clicks, 0 or 1, with"):
    update(tf.constant([[2.5, 0.0, -1.0]]))


TFR_METRICS = {
    "precision": tfr.keras.metrics.PrecisionMetric,
    "recall": tfr.keras.metrics.RecallMetric,
    "hits": tfr.keras.metrics.HitsMetric,
    "map": tfr.keras.metrics.MeanAveragePrecisionMetric}
of_clicks = pytest.mark.parametrize("metric", TFR_METRICS)
SCORES = tf.constant([[0.3, 0.9, -0.5, 0.1]])


@of_clicks
@pytest.mark.parametrize("topn", [2, None])
def test_where_all_is_examined_it_is_tf_rankings(metric, topn):
  clicks = tf.constant([[1.0, 0.0, 0.0, 1.0]])
  found = CounterfactualMetric(
      PositionBias(4, examination=[1.0] * 4), metric, topn)
  right = TFR_METRICS[metric](topn=topn)
  assert evaluate(found, clicks, SCORES) == pytest.approx(
      evaluate(right, clicks, SCORES), rel=1e-6)


def _expectation(metric, rates, bias):
  """The mean of the part of a list, over all patterns of clicks."""
  patterns = np.array([*itertools.product([0, 1], repeat=4)], np.float32)
  chances = np.prod(np.where(patterns, rates, np.subtract(1.0, rates)), axis=1)
  found = CounterfactualMetric(bias, metric, 2)
  found.update_state(patterns, tf.tile(SCORES, [16, 1]), chances)
  return float(found._numerator)


@of_clicks
@pytest.mark.parametrize("trust_bias", [None, "position"])
def test_clicks_are_debiased(metric, trust_bias):
  """On average it is the metric of clicks on items all shown at the top."""
  bias, beta = make_bias(trust_bias, contexts=1), np.array([.3, .7, .5, .2])
  p1, p0 = (np.zeros(4) if table is None else table.numpy()[0]
            for table in bias.click_tables())
  rates = p0 + (p1 - p0) * beta
  all_first = PositionBias(4, examination=[1.0] * 4)
  assert _expectation(metric, rates, bias) == pytest.approx(
      _expectation(metric, (p1 - p0)[0] * beta, all_first), rel=1e-4)
  assert _expectation(metric, rates, all_first) != pytest.approx(
      _expectation(metric, (p1 - p0)[0] * beta, all_first), rel=0.05)


@of_clicks
def test_metrics_of_clicks_need_clicks(metric):
  """A dwell time of 20 seconds is not 20 relevant items."""
  found = CounterfactualMetric(PositionBias(4, examination=[1.0] * 4), metric)
  with pytest.raises(tf.errors.InvalidArgumentError, match="pack `feedback > "):
    found.update_state([[20.0, 0.0, 0.0, 0.0]], SCORES)


def test_precision_over_estimates():
  bias = PositionBias(4, examination=[1.0, 0.5, 0.5, 0.25])
  found = CounterfactualMetric(bias, "precision", 2, self_normalized=True)
  assert found.name == "snips_precision_2"
  # Of the estimates 1, 2, 0, 4 the ranker has 1 and 2 at the top.
  value = evaluate(found, [[1.0, 1.0, 0.0, 1.0]], SCORES)
  assert value == pytest.approx(3.0 / 2 / 7, rel=1e-6)


def test_a_hit_rate_is_no_ratio():
  with pytest.raises(ValueError, match="must be False for the metric 'hits'"):
    CounterfactualMetric(PositionBias(2), "hits", self_normalized=True)
