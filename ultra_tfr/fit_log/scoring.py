"""Scores and click chances of logged requests, and their debiased feedback."""

import numpy as np
import tensorflow as tf

from ultra_tfr.bias import MAX_WEIGHT
from ultra_tfr.core.counterfactual import relevance_estimates
from ultra_tfr.data.click_log import requests as requests_lib
from ultra_tfr.evaluation import counterfactual
from ultra_tfr.feedback import split_heads


def click_probability(bias, relevance, batch):
  """P(feedback > 0) of items, given what was clicked above them.

  Args:
    bias: a `Bias`.
    relevance: `[S, B, L]`, as `predict` gives it.
    batch: a `LoggedBatch`.

  Returns:
    `[B, L]`.
  """
  relevant, irrelevant = bias.given_clicks(
      batch.positions, batch.contexts, _clicked(batch))
  irrelevant = 0.0 if irrelevant is None else irrelevant
  relevance = relevance[bias.relevance_head]
  return relevant * relevance + irrelevant * (1.0 - relevance)


def _clicked(batch):
  return (batch.feedback > 0) & (batch.weights > 0)


class ClickRows:
  """Gathers rows of a log with their chance of a click, to see how it fits."""

  def __init__(self):
    self._batches = []

  def add(self, bias, relevance, batch):
    """Adds a batch; see `click_probability`."""
    counts = batch.weights > 0
    self._batches.append([values[counts] for values in (
        batch.feedback, click_probability(bias, relevance, batch),
        batch.positions, batch.weights)])

  def likelihood(self):
    """The `counterfactual.ClickLikelihood`, or None without a batch."""
    if not self._batches:
      return None
    return counterfactual.click_likelihood(*(
        np.concatenate(values)[np.newaxis] for values in zip(*self._batches)))


def add_totals(totals, scores, batch, bias, binary):
  """Adds a batch to counterfactual totals, corrected by a bias.

  Args:
    totals: `LogTotals`.
    scores: `[B, L]`.
    batch: a `LoggedBatch`; items of weight 0 are left out, as padding is.
    bias: a `Bias`, or None for raw feedback.
    binary: whether the feedback is 0 or 1; only then is p0 used.
  """
  relevant, irrelevant, scale = _propensities(batch, bias, binary)
  feedback = np.where(batch.weights > 0, batch.feedback, -1.0)
  totals.update(scores, feedback, batch.positions, relevant, irrelevant,
                scale=scale, weights=batch.weights)


def debiased_feedback(batch, bias, binary, relevance=None):
  """Feedback of a batch with the bias taken out, for `held_out.judge`.

  Args:
    batch: as in `add_totals`.
    bias: as in `add_totals`.
    binary: as in `add_totals`.
    relevance: `[B, L]` probabilities of a model, which take the place of
      clicks where hardly anybody looks: see
      `core.counterfactual.relevance_estimates`. Then any feedback counts as one
      click, as in `logged_order`. Or None.

  Returns:
    A tuple of the estimates `[B, L]` times item weights, float64, and `[B, L]`
    booleans, the items that count.
  """
  feedback = batch.feedback.astype(np.float64)
  if relevance is not None:
    feedback, binary = np.sign(feedback), True
  relevant, irrelevant, scale = _propensities(batch, bias, binary)
  mask = ((batch.weights > 0) & (batch.feedback >= 0) &
          (batch.positions >= 1))
  max_weight = None
  if relevance is None:
    mask &= relevant > 0
  else:
    max_weight, relevance = MAX_WEIGHT, relevance.astype(np.float64)
  estimates, _, _ = relevance_estimates(
      feedback, mask, relevant, irrelevant,
      scale=scale, max_weight=max_weight, relevance=relevance)
  return estimates.numpy() * batch.weights, mask


def _propensities(batch, bias, binary):
  """p1, p0 (or None) given the clicks above, and their scale: `Bias.at`."""
  if bias is None:
    return np.ones(batch.feedback.shape), None, 1.0
  scale = bias.at(batch.positions, batch.contexts)[-1]
  relevant, irrelevant = bias.given_clicks(
      batch.positions, batch.contexts, _clicked(batch))
  if not binary and irrelevant is not None:
    return relevant, None, bias.click_relevant[batch.contexts, 0]
  return relevant, irrelevant, scale


def predict(model, batch):
  """Scores and relevance probabilities of a `LoggedBatch`.

  Args:
    model: a model made by `scorers.build_log_model`.
    batch: a `LoggedBatch`.

  Returns:
    A tuple of `[B, L]` ranking scores and `[S, B, L]` probabilities, those of
    each relevance head, or None for a model without one.
  """
  inputs = {name: tf.constant(value) for name, value in
            requests_lib.model_inputs(batch).items()}
  heads = split_heads(model(inputs, training=False))
  relevance = tf.sigmoid(heads[1:]).numpy() if len(heads) > 1 else None
  return heads[0].numpy(), relevance
