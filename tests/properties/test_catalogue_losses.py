"""Properties of all losses that learn: reductions, weights, gate, messages."""

import itertools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from catalogue import LOSSES
from catalogue import outcome_of
from catalogue import tensors
from catalogue import value_and_gradient
from ultra_tfr.base import LearningLoss

LEARNING = {name: entry for name, entry in LOSSES.items()
            if isinstance(entry.make(), LearningLoss)}


def _over(entries):
  return pytest.mark.parametrize("entry", entries, ids=lambda e: e.name)


everything = _over(LEARNING.values())


@pytest.fixture(autouse=True)
def _seeds(monkeypatch):
  """Draws of `targets="sample"` that are the same each time.

  In place of seeds, for which TensorFlow would build all kernels anew.
  """
  monkeypatch.setattr(
      tf.random, "uniform", lambda shape, seed=None: tf.fill(shape, .4))


@everything
def test_something_happens(entry):
  outcome = outcome_of(entry)
  for values in (*outcome.totals.values(), *outcome.items.values()):
    assert np.abs(values).max() > 1e-3
  # But not to padding.
  is_padding = entry.make_batch()["feedback"] < 0
  assert not outcome.items["gradient"][is_padding].any()


@_over([e for e in LEARNING.values() if "losses_of_items" not in e.lacks])
def test_reductions_and_weights(entry):
  loss, batch = entry.make(), entry.make_batch()
  y_true, y_pred, weights = tensors(batch)
  slots = loss.position_bias.find_slots(
      batch["positions"], batch["contexts"])
  valid = (batch["feedback"] >= 0) & slots.valid.numpy()
  results = {}
  for reduction in ("auto", "none", "sum"):
    loss.reduction = reduction
    results[reduction] = loss(y_true, y_pred, weights).numpy()
  loss.reduction = "none"
  plain = loss(y_true, y_pred).numpy()
  assert not plain[~valid].any()
  np.testing.assert_allclose(loss.call(y_true, y_pred), plain)
  if not loss.uses_logged_order:  # Its pairs have the weights of both items.
    np.testing.assert_allclose(results["none"], plain * weights, rtol=1e-5)
  np.testing.assert_allclose(
      results["sum"], results["none"].sum(), rtol=1e-4, atol=1e-5)
  count = (weights.numpy() if loss.normalize_weights else valid)[valid].sum()
  np.testing.assert_allclose(
      results["auto"], results["sum"] / count, rtol=1e-4, atol=1e-5)


@everything
def test_weights_weigh_the_sums(entry):
  batch, once = entry.make_batch(), outcome_of(entry)
  thrice = entry.run(entry, {**batch, "weights": 3. * batch["weights"]})
  for key in once.totals.keys() - {"value", "counters"}:
    np.testing.assert_allclose(
        thrice.totals[key], 3 * once.totals[key], rtol=1e-5, atol=1e-5)


@everything
def test_only_training_is_collected_and_needs_the_callback(entry):
  loss, (y_true, y_pred, weights) = entry.make(), tensors(entry.make_batch())
  layer = loss.position_bias
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    loss(y_true, y_pred)  # Evaluation is no training.
    if layer.is_fixed:
      value_and_gradient(loss, y_true, y_pred, weights)
      return
  with pytest.warns(UserWarning, match="is being trained.*PropensityEM"):
    value_and_gradient(loss, y_true, y_pred, weights)
  assert not any(np.any(values) for values in layer.take_sums().values())
  layer.start_collecting()
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    value_and_gradient(loss, y_true, y_pred, weights)
  assert all(np.any(values) for values in layer.take_sums().values())


@_over(LOSSES.values())
def test_scores_of_another_list_size(entry):
  loss, (y_true, y_pred, _) = entry.make(), tensors(entry.make_batch())
  with pytest.raises(ValueError, match="`y_pred` must score the items of "):
    loss(y_true, y_pred[:, :-1])


@_over([e for e in LEARNING.values() if e.make().num_heads is not None])
def test_wrong_heads(entry):
  loss, (y_true, y_pred, _) = entry.make(), tensors(entry.make_batch())
  wrong = tf.zeros([*y_pred.shape[:2], 3])
  shape = r"\[lists, items\]" if entry.heads == 1 else r"\[lists, items, 2\]"
  with pytest.raises(ValueError, match=(
      f"needs `y_pred` of the shape {shape}, but `y_pred` has 3 head.*"
      f"`num_heads={entry.heads}`")):
    loss(y_true, wrong)


def test_a_layer_of_another_loss():
  entries = {entry.factory: entry for entry in LEARNING.values()
             if isinstance(entry.factory, type)}
  layers = {loss: entry.make_layer() for loss, entry in entries.items()}
  assert len(layers) == 7
  for loss, layer in itertools.product(layers, layers.values()):
    if type(layer) is type(layers[loss]):
      continue
    with pytest.raises(ValueError, match=(
        f"`position_bias` must be a `{type(layers[loss]).__name__}`, but is")):
      entries[loss].make(position_bias=layer)
