"""Scores of logged requests, and the choice of a checkpoint by them."""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ultra_tfr import logged_order
from ultra_tfr.bias import Bias
from ultra_tfr.evaluation import held_out
from ultra_tfr.fit_log import scoring
from ultra_tfr.fit_log.scoring import predict

_MONITOR = "val_snips_dcg@10"
# At most so many requests are in a validation, which takes seconds on any log.
_VALIDATION_REQUESTS = 20000


class Validation(NamedTuple):
  """How a ranker does on the validation part.

  Attributes:
    dcg: `[N]`, DCG@10 of each request.
    gain: `[N]`, of each request.
    log_likelihood: of the clicks, a weighted mean over items; NaN without a
      bias or items.
  """

  dcg: np.ndarray
  gain: np.ndarray
  log_likelihood: float

  @property
  def value(self):
    """SNIPS DCG@10, NaN without feedback."""
    total = self.gain.sum()
    return float(self.dcg.sum() / total) if total > 0 else float("nan")


class KeepBest(tf.keras.callbacks.Callback):
  """Validates on the log each epoch and ends with the best weights.

  The value is SNIPS DCG@10 by the propensities of the moment. At the end all
  validations are judged again by the bias that training ends with, and the
  choice among them is `evaluation.held_out.last_as_good`. With a guard, the
  weight of the logged order moves by the same feedback, see `logged_order`.

  Args:
    log: a `ClickLog`. Without a validation part the last weights stay, and the
      logged order has no weight, since nothing could show a better one.
    method_name: of the method that is trained.
    layer: its bias layer, or None.
    has_guard: whether the layer has a `logged_order_weight` to move.

  Attributes:
    bias: the `Bias` that training ended with, or None without a layer.
    simpler: the `Bias` of the simplest hypothesis, if another one is likelier.
  """

  def __init__(self, log, method_name, layer, has_guard=False):
    super().__init__()
    self._valid = log.parts["valid"]
    self._binary = log.feedback_kind == "binary"
    self._method_name, self._layer = method_name, layer
    self._checkpoints = held_out.Checkpoints()
    self.bias = self.simpler = None
    # Predictions and validation of the weights that are kept.
    self._kept = None
    self._has_guard = has_guard

  def _bias(self):
    if self._layer is None:
      return None
    return Bias.of_layer(self._method_name, self._layer)

  def on_train_begin(self, logs=None):
    del logs
    if self._has_guard and not len(self._valid):
      self._layer.logged_order_weight.assign(0.0)

  def on_epoch_end(self, epoch, logs=None):
    if not np.isfinite(logs["loss"]):
      raise ValueError(
          "The training diverged: its loss was no number any more after "
          f"validation {epoch + 1}; lower the learning rate.")
    if not len(self._valid):
      return
    bias = self._bias()
    predictions = self._predict()
    (dcg,), gain = self._judge(predictions, bias)
    found = self._validation(dcg, gain, predictions, bias)
    logs[_MONITOR] = found.value
    if bias is not None:
      logs["val_log_likelihood"] = found.log_likelihood
    if self._has_guard:
      simplest = Bias.simplest_of_layer(self._method_name, self._layer)
      logs["val_lead"] = logged_order.move_weight(self._layer, *(
          self._judge(predictions, found, witness=bias.relevance_head)
          for found in (bias, simplest) if found is not None))
      logs["logged_order_weight"] = float(
          self._layer.logged_order_weight.numpy())
    self._checkpoints.keep(
        epoch, self.model.get_weights(), (predictions, found))

  @functools.cached_property
  def _batches(self):
    """The requests of all validations, read once."""
    batches, seen = [], 0
    for batch in self._valid.batches(1024):
      batches.append(batch)
      seen += len(batch.feedback)
      if seen >= _VALIDATION_REQUESTS:
        break
    return batches

  def _predict(self):
    """Scores and relevance of each batch, see `scoring.predict`."""
    return [predict(self.model, batch) for batch in self._batches]

  def _judge(self, predictions, bias, witness=None):
    """Judges the ranker, and for the guard three more: see `logged_order`.

    Only the guard, which asks for a relevance head as `witness`, takes the
    model's relevance for what nobody sees: what is told of a ranker rests on
    feedback alone.
    """
    def judged(batch, scores, relevance):
      rankings, of_unseen = [scores], None
      if witness is not None:
        order = batch.display_order
        rankings += [-order, order, relevance[witness]]
        of_unseen = relevance[bias.relevance_head]
      return rankings, *scoring.debiased_feedback(
          batch, bias, self._binary, of_unseen)

    return held_out.judge(
        judged(batch, *found)
        for batch, found in zip(self._batches, predictions))

  def _validation(self, dcg, gain, predictions, bias):
    """A `Validation`, which with a bias tells how likely the clicks are."""
    clicks = scoring.ClickRows()
    if bias is not None:
      for batch, (_, relevance) in zip(self._batches, predictions):
        clicks.add(bias, relevance, batch)
    likelihood = clicks.likelihood()
    return Validation(
        dcg, gain,
        float("nan") if likelihood is None else likelihood.log_likelihood)

  def on_train_end(self, logs=None):
    del logs
    # The bias is taken after the last step: it converges, and does not overfit.
    self.bias = self._bias()
    if self._layer is not None:
      self.simpler = Bias.simplest_of_layer(self._method_name, self._layer)

    def judge(epoch):
      self._kept = self._checkpoints.found(epoch)
      found = self.validation(self.bias)
      return found.dcg, found.gain

    best = self._checkpoints.choose(judge)
    if best is not None:
      self._kept = self._checkpoints.found(best)
      self.model.set_weights(self._checkpoints.weights(best))

  def validation(self, bias):
    """The `Validation` of the weights that are kept, by a bias or None.

    It is None without a validation part.
    """
    if self._kept is None or bias is None:
      return self._kept and self._kept[1]
    predictions, _ = self._kept
    (dcg,), gain = self._judge(predictions, bias)
    return self._validation(dcg, gain, predictions, bias)
