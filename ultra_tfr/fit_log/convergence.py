"""EM run to convergence on a whole log, once training has ended.

In training, relevance and the chances of clicks by position move together, and
the latter rest on the last batches. Here relevance is that of the final model
and stays, so the E step needs a log only as a table of cells: how often, in a
slot, items of some relevance were clicked or not.
"""

import dataclasses
import functools

import numpy as np
from scipy import special
import tensorflow as tf

from ultra_tfr.bias import Bias
from ultra_tfr.core import em
from ultra_tfr.core import examination
from ultra_tfr.fit_log import scoring

# EM ends when no chance of a click moves by a larger part of itself in a round,
# or after so many rounds. Simulated and real logs take 20 to 150.
_TOLERANCE, _MOST_ROUNDS = 1e-5, 500
# Items of similar relevance are counted together, in bins of this width in the
# logit; and relevance keeps a distance from 0 and 1.
_WIDTH, _LEAST_RELEVANCE = 0.25, 1e-7
_BINS = 2 * 65 + 1
# At most so many requests are read, about as many as the longest training sees.
_MOST_REQUESTS = 200000
_BATCH = 1024
_TABLES = ("examination", "click_irrelevant", "examination_unclicked")


def converge(layer, biases, model, lists):
  """Moves the tables of a layer to where EM ends if relevance stays.

  It starts where training has ended and makes the same M step, with as many
  pseudo-clicks beside a click, but with the sums of all requests in place of
  running averages of batches.

  Args:
    layer: a `PositionBias`, trained with the model, as training has left it.
    biases: a dict of `Bias` by any name, taken from the layer: the hypotheses
      whose tables are to be moved.
    model: a model made by `scorers.build_log_model`, with a relevance logit for
      each hypothesis.
    lists: the training part of a `ClickLog`.

  Returns:
    The dict with the tables after the last round; None if there is nothing to
    move: examination is given, or comes with trust in pairs, of which items
    alone do not tell, or there was no training.
  """
  updates = float(layer.num_updates.numpy())
  if layer.examination_is_fixed or layer.trust_bias == "pairwise" or (
      not updates):
    return None
  heads = sorted({bias.relevance_head for bias in biases.values()})
  # As in `em.m_step`: a young average is a plain mean.
  unit = tf.maximum(
      em.step_size(updates, em.STEP_SIZE, em.STEP_DECAY), 1.0 / updates)
  for head, cells in _count(layer, heads, model, lists).items():
    hypothesis = layer.models[head]
    rule = layer.update_rule(hypothesis)
    start = {name: tf.convert_to_tensor(hypothesis.variables[name])
             for name in _TABLES if name in hypothesis.variables}
    size = tf.reduce_sum(layer.seen(hypothesis)[..., examination.COUNT])
    cells = (*cells[:-1], cells[-1] * size / tf.reduce_sum(cells[-1]))
    for name, table in _run(rule, start, cells, unit).items():
      hypothesis.variables[name].assign(table)
  return {name: dataclasses.replace(
      Bias.of_layer(bias.method, layer, _index(layer, bias)),
      at_end=bias.click_relevant) for name, bias in biases.items()}


def _index(layer, bias):
  """The `head` of `Bias.of_layer` for a bias: None for the likeliest."""
  head = bias.relevance_head
  return None if head == layer.likeliest else head


def _run(rule, tables, cells, unit):
  """The tables after the last round."""
  for _ in range(_MOST_ROUNDS):
    tables, change = _round(rule, tables, cells, unit)
    if change < _TOLERANCE:
      break
  return tables


@functools.partial(tf.function, autograph=False, reduce_retracing=True)
def _round(rule, tables, cells, unit):
  """An E and an M step: the new tables, and how far chances have moved."""
  slots, clicked, logits, weights = cells

  def look_up(name):
    return tf.gather(tf.reshape(tables[name], [-1]), slots)

  sums = tf.math.unsorted_segment_sum(
      weights[:, tf.newaxis] * examination.pointwise_statistics(
          clicked, logits, look_up("examination"),
          look_up("click_irrelevant") if "click_irrelevant" in tables else
          tf.zeros_like(logits)),
      slots, tf.size(tables["examination"]))
  new = em.step_on_all(rule, tables, sums, unit)
  change = tf.reduce_max([
      tf.reduce_max(tf.abs(new[name] - tables[name]) / new["examination"])
      for name in new])
  return {**tables, **new}, change


def _count(layer, heads, model, lists):
  """The cells of each hypothesis.

  Returns:
    A dict by head of slots `[N]`, booleans of clicks `[N]`, relevance logits
    `[N]` and sums of weights `[N]`.
  """
  found = {head: [] for head in heads}
  seen = 0
  for batch in lists.batches(_BATCH):
    counts = batch.weights > 0
    clicked = (batch.feedback > 0) & counts
    relevance = scoring.predict(model, batch)[1]
    weights = batch.weights[counts].astype(np.float64)
    weights *= len(weights) / max(weights.sum(), 1e-30)
    slots = layer.find_slots(
        tf.constant(batch.positions, tf.float32),
        tf.constant(batch.contexts, tf.float32))
    for head, parts in found.items():
      own = layer.models[head].slots(slots, tf.constant(clicked))
      parts.append(_in_cells(
          own.index.numpy()[counts], clicked[counts],
          relevance[head][counts].astype(np.float64), weights))
    seen += len(batch.requests)
    # Files of a part are random samples of it: the first ones will do.
    if seen >= _MOST_REQUESTS:
      break
  return {head: _merged(parts) for head, parts in found.items()}


def _in_cells(slots, clicked, relevance, weights):
  """The cell of each sum, and sums of weights, and of relevance with them."""
  relevance = np.clip(relevance, _LEAST_RELEVANCE, 1.0 - _LEAST_RELEVANCE)
  bins = np.round(special.logit(relevance) / _WIDTH) + _BINS // 2
  cells, place = np.unique(
      (2 * slots.astype(np.int64) + clicked) * _BINS + bins.astype(np.int64),
      return_inverse=True)
  return (cells, np.bincount(place, weights),
          np.bincount(place, weights * relevance))


def _merged(parts):
  """Cells of all batches, as tensors: see `_count`."""
  cells, weights, relevance = (
      np.concatenate(values) for values in zip(*parts))
  cells, place = np.unique(cells, return_inverse=True)
  weights, relevance = (
      np.bincount(place, values) for values in (weights, relevance))
  slots, clicked = np.divmod(cells // _BINS, 2)
  return (tf.constant(slots, tf.int32), tf.constant(clicked > 0),
          tf.constant(special.logit(relevance / weights), tf.float32),
          tf.constant(weights, tf.float32))
