"""A batch that is not finite leaves no trace in anything that learns."""

import numpy as np
import pytest
import tensorflow as tf

from catalogue import LOSSES
from catalogue import tensors
from catalogue import value_and_gradient
from ultra_tfr import base

# One loss for each kind of layer and of E step.
KINDS = [LOSSES[name] for name in (
    "ipw", "ipw_two_heads", "contexts", "position_trust", "pairwise_trust_item",
    "graded_three_heads", "logged_order_ndcg", "normalized", "browsing_trust",
    "hypotheses", "hypotheses_one_head", "dla_contexts", "ratios_capped",
    "product_click", "additive_value", "v4", "regression_em", "affine_learned")]
VALUES = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38], np.float32)
everything = pytest.mark.parametrize("entry", KINDS, ids=lambda e: e.name)


def poisoned(batch, rng):
  """The batch with some values of one of its tensors replaced."""
  name = rng.choice([key for key, values in batch.items()
                     if values is not None])
  values = batch[name].copy()
  places = rng.integers(0, values.size, rng.integers(1, 4))
  values.flat[places] = rng.choice(VALUES, places.size)
  return {**batch, name: values}


def state(layer):
  return [variable.numpy() for variable in layer.weights]


def pack(batch):
  """`tensors`, also of what `pack_feedback` refuses: a stream may hold it."""
  y_true, y_pred, weights = tensors({
      **batch, "feedback": np.zeros_like(batch["feedback"]),
      "positions": np.zeros_like(batch["positions"]),
      "contexts": None if batch["contexts"] is None else
                  np.zeros_like(batch["contexts"])})
  parts = [batch[key] for key in ("feedback", "positions", "contexts")
           if batch[key] is not None]
  assert y_true.shape[2] == len(parts)
  return tf.constant(np.stack(parts, axis=-1)), y_pred, weights


def learn(layer, loss, batch):
  """Whether the batch was left out of one update."""
  layer.start_collecting()
  loss(*pack(batch))
  layer.stop_collecting()
  counters = layer.update(warmup=0).numpy()
  assert counters[base.BATCHES] + counters[base.SKIPPED] == 1
  return bool(counters[base.SKIPPED])


@everything
def test_any_tensor_may_be_poisoned(entry):
  """One NaN score made each later loss NaN, for good."""
  loss, batch, rng = entry.make(), entry.make_batch(), np.random.default_rng(0)
  layer, skipped = loss.position_bias, 0
  nan = batch["scores"].copy()
  nan[0, 0] = np.nan
  for bad in ({**batch, "scores": nan},
              *(poisoned(batch, rng) for _ in range(8))):
    before = state(layer)
    if learn(layer, loss, bad):
      skipped += 1
      np.testing.assert_equal(state(layer), before)
    assert all(np.isfinite(values).all() for values in state(layer))
    assert skipped > 0  # The first of them is left out in any case.
  updates = float(layer.num_updates)
  assert not learn(layer, loss, batch)
  assert float(layer.num_updates) == updates + 1 == 10 - skipped
  value, gradient = value_and_gradient(loss, *tensors(batch))
  assert np.isfinite(value)
  assert np.isfinite(gradient).all()


@everything
def test_the_gradient_of_other_lists_is_as_without_the_poison(entry):
  loss, batch = entry.make(reduction="sum"), entry.make_batch()
  loss.position_bias.start_collecting()
  nan = batch["scores"].copy()
  nan[0, 0] = np.nan
  gradients = [value_and_gradient(loss, *tensors({**batch, "scores": s}))[1]
               for s in (nan, batch["scores"])]
  assert not np.isfinite(gradients[0]).all()
  np.testing.assert_allclose(gradients[0][1:], gradients[1][1:], rtol=1e-6)
