"""Tests of ultra_tfr.metrics.ClickLogLikelihood."""

import math

import numpy as np
import pytest
import tensorflow as tf

from metric_batches import SIZE
from metric_batches import evaluate
from metric_batches import make_batch
from metric_batches import make_bias
from metric_batches import make_model
from metric_batches import packed
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.evaluation import counterfactual
from ultra_tfr.layers import PositionBias
from ultra_tfr.metrics import ClickLogLikelihood


def click_log_likelihood(batch, logits, bias, weights=None):
  """The mean by loops."""
  total, count = 0.0, 0.0
  for i, j in np.ndindex(batch["clicks"].shape):
    click, place = batch["clicks"][i, j], batch["positions"][i, j]
    if click < 0 or place > bias.num_positions:
      continue
    slot = int(batch["contexts"][i, 0]), int(place) - 1
    beta = 1.0 / (1.0 + math.exp(-logits[i, j]))
    chance = float(bias.examination[slot]) * beta
    if bias.trust_bias == "position":
      chance += float(bias.click_irrelevant[slot]) * (1.0 - beta)
    weight = 1.0 if weights is None else float(weights[i, j])
    total += weight * math.log(chance if click else 1.0 - chance)
    count += weight
  return total / count


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("trust_bias", [None, "position", "pairwise"])
def test_likelihood_equals_loops(trust_bias, heads):
  bias, batch = make_bias(trust_bias), make_batch(6)
  bias.relevance_shift.assign(-0.7)
  scores = batch["features"][..., :heads]
  logits = scores[..., 1] if heads > 1 else scores[..., 0] - 0.7
  y_pred = scores[..., 0] if heads == 1 else scores
  metric = ClickLogLikelihood(bias)
  for weights in (None, batch["weights"]):
    assert evaluate(metric, packed(batch), y_pred, weights) == pytest.approx(
        click_log_likelihood(batch, logits, bias, weights), rel=1e-5)


def test_likelihood_is_that_of_the_evaluation_of_logs():
  bias, batch = make_bias("position", contexts=1), make_batch(9, contexts=1)
  batch["positions"] = np.minimum(batch["positions"], 4)
  logits = batch["features"][..., 1]
  beta, place = 1.0 / (1.0 + np.exp(-logits)), batch["positions"] - 1
  p1, p0 = (table.numpy()[0][place] for table in (
      bias.examination, bias.click_irrelevant))
  found = counterfactual.click_likelihood(
      batch["clicks"], p1 * beta + p0 * (1.0 - beta), batch["positions"],
      batch["weights"])
  assert evaluate(
      ClickLogLikelihood(bias), packed(batch), batch["features"][..., :2],
      batch["weights"]) == pytest.approx(found.log_likelihood, rel=1e-5)


def test_items_of_weight_0_may_have_any_score():
  metric = ClickLogLikelihood(PositionBias(2, examination=[1.0, 0.5]))
  right = evaluate(metric, [[1.0, -1.0]], [[0.3, 0.0]])
  assert evaluate(metric, [[1.0, 1.0]], [[0.3, float("nan")]],
                  [[1.0, 0.0]]) == pytest.approx(right)


def test_likelihood_of_batches_adds_up():
  bias, batch = make_bias("position"), make_batch(7)
  metric, y_true = ClickLogLikelihood(bias), packed(batch)
  whole = evaluate(metric, y_true, batch["features"][..., :2])
  metric.reset_state()
  for rows in (slice(0, 3), slice(3, None)):
    metric.update_state(y_true[rows], batch["features"][rows, :, :2])
  assert float(metric.result()) == pytest.approx(whole, rel=1e-6)


def test_likelihood_without_items_and_at_the_extremes():
  metric = ClickLogLikelihood(PositionBias(2, examination=[1.0, 1e-3]))
  assert math.isnan(metric.result())
  assert math.isnan(evaluate(metric, [[-1.0, float("nan")]], [[1.0, 2.0]]))
  for click in (0.0, 1.0):
    for logit in (-1e9, 1e9):
      assert np.isfinite(evaluate(metric, [[click] * 2], [[logit] * 2]))


def test_likelihood_is_highest_at_the_truth():
  rng = np.random.default_rng(8)
  truth = PositionBias(2, examination=[0.9, 0.3])
  logits = rng.normal(size=[4000, 2]).astype(np.float32)
  chance = truth.examination.numpy() / (1.0 + np.exp(-logits))
  clicks = (rng.random(chance.shape) < chance).astype(np.float32)
  values = [
      evaluate(ClickLogLikelihood(PositionBias(2, examination=[0.9, second])),
               clicks, np.stack([np.zeros_like(logits), logits], axis=2))
      for second in (0.2, 0.3, 0.4)]
  assert np.argmax(values) == 1


@pytest.mark.smoke
def test_likelihood_in_compile_and_saved(tmp_path):
  bias, batch = PositionBias(SIZE, trust_bias=None), make_batch(3)
  batch["contexts"] *= 0
  model = make_model(bias, metrics=[ClickLogLikelihood(bias)])
  data = batch["features"], packed(batch)
  model.fit(*data, verbose=0, callbacks=[PropensityEM(warmup=1)])
  found = model.evaluate(*data, verbose=0, return_dict=True)
  scores = model.predict(batch["features"], verbose=0)
  assert found["click_log_likelihood"] == pytest.approx(click_log_likelihood(
      batch, scores + float(bias.relevance_shift), bias), rel=1e-5)
  model.save(tmp_path / "model.keras")
  again = tf.keras.models.load_model(tmp_path / "model.keras")
  assert again.predict(batch["features"], verbose=0) == pytest.approx(scores)
