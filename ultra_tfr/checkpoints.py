"""The choice of a checkpoint: by true labels, or by clicks alone."""

import numpy as np
import tensorflow as tf

from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking
from ultra_tfr.evaluation import ranking
from ultra_tfr.heads import ranking_head

PICKS = ("labels", "clicks")
# Visits of each validation list, so that clicks decide with little noise.
_SESSIONS = 20
# Inverse propensities beyond this add more noise than they take bias away.
_MIN_EXAMINATION = 0.05
_BATCH_LISTS = 1024


class KeepBest(tf.keras.callbacks.Callback):
  """Validates at the end of each epoch and remembers the best weights.

  `"labels"` is NDCG@10 on true labels; `"clicks"` is the self-normalised DCG@10
  of simulated feedback on the lists that users saw, with the inverse of what
  the method knows of examination as weights. Training ends with the best
  weights by labels.

  Args:
    valid: `RankingLists` with true labels.
    valid_stream: `FeedbackStream` of the same lists as users saw them.
    curve: a function that gives the examination `[K]` of the moment, or None
      where the method knows none.
  """

  def __init__(self, valid, valid_stream, curve=lambda: None):
    super().__init__()
    self._valid, self._stream, self._curve = valid, valid_stream, curve
    self._feedback = np.sum([
        np.maximum(valid_stream.draw(epoch), 0.0) for epoch in range(_SESSIONS)
    ], axis=0, dtype=np.float32)
    self._best = dict.fromkeys(PICKS, -np.inf)
    self._weights = {}

  def on_epoch_end(self, epoch, logs=None):
    """Validates."""
    del epoch
    values = {
        "labels": ranking.evaluate(self.model, self._valid, (10,))["ndcg@10"],
        "clicks": self._by_clicks()}
    if logs is not None:
      logs["val_ndcg@10"] = values["labels"]
      logs["val_snips_dcg@10"] = values["clicks"]
    better = [pick for pick in PICKS if values[pick] > self._best[pick]]
    if better:
      weights = self.model.get_weights()
      for pick in better:
        self._best[pick], self._weights[pick] = values[pick], weights

  def on_train_end(self, logs=None):
    """Ends with the best weights by labels."""
    del logs
    self.restore("labels")

  def restore(self, pick):
    """Gives the model the weights of a pick; the last ones if none was best.

    Args:
      pick: `"labels"` or `"clicks"`.
    """
    if pick in self._weights:
      self.model.set_weights(self._weights[pick])

  def picks_agree(self):
    """Whether labels and clicks chose the same weights."""
    first, second = (self._weights.get(pick) for pick in PICKS)
    return first is second

  def _by_clicks(self):
    features, labels = self._stream.features, self._stream.labels
    curve = self._curve()
    examination = np.ones(labels.shape[1]) if curve is None else np.maximum(
        np.asarray(curve) / curve[0], _MIN_EXAMINATION)
    gains = discounted = 0.0
    for start in range(0, len(labels), _BATCH_LISTS):
      rows = slice(start, start + _BATCH_LISTS)
      mask = masking.valid_items(tf.constant(labels[rows]))
      totals = counterfactual.request_totals(
          ranking_head(self.model(features[rows], training=False)),
          tf.constant(self._feedback[rows] / examination, tf.float32), mask,
          (10,))
      gains += float(tf.reduce_sum(totals.gain))
      discounted += float(tf.reduce_sum(totals.dcg))
    return discounted / gains if gains else 0.0
