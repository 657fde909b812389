"""Ranking quality on true labels, over all documents of each list."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking
from ultra_tfr.feedback import ranking_head
from ultra_tfr.metrics import on_ranking

TOPN = (3, 5, 10)
# Up to this grade, sums of gains 2^y - 1 over a list are finite in float32.
MAX_GRADE = 100


def score_lists(model, lists, batch_documents=8192):
  """Ranking scores of all documents.

  Args:
    model: a Keras model from `[B, L, F]` to scores or heads that scores each
      item by itself.
    lists: `data.lists.RankingLists`.
    batch_documents: documents in one call.

  Returns:
    `[D]` float32, in the order of `lists`.

  Raises:
    ValueError: if a score is not finite.
  """
  scores = []
  for start in range(0, len(lists.labels), batch_documents):
    # As one long list, since each item is scored by itself.
    rows = lists.features[np.newaxis, start:start + batch_documents]
    scores.append(np.asarray(ranking_head(model(rows, training=False)))[0])
  scores = np.concatenate(scores)
  if not np.isfinite(scores).all():
    raise ValueError(
        "The model's scores are not finite: training has diverged; lower the "
        "learning rate.")
  return scores


def ndcg(lists, scores, topn=TOPN, batch_lists=256):
  """NDCG of scores on the labels of the lists.

  TF-Ranking's metric (gain 2^y - 1), with the rules of
  `ultra_tfr.metrics.OnRanking`: ties rank the least relevant first, and lists
  without a relevant document do not count.

  Args:
    lists: `data.lists.RankingLists` with true labels.
    scores: `[D]`.
    topn: the cutoffs.
    batch_lists: lists in one call.

  Returns:
    A dict such as `{"ndcg@10": 0.5}`.

  Raises:
    ValueError: if a label is above 100.

  >>> from ultra_tfr.data.lists import RankingLists
  >>> lists = RankingLists(np.zeros([3, 1]), [0, 1, 2], [0, 3], [7])
  >>> ndcg(lists, np.array([1.0, 2.0, 3.0]), topn=(3,))
  {'ndcg@3': 1.0}
  """
  check_grades("The lists", lists.labels)
  metrics = {f"ndcg@{n}": on_ranking(tfr.keras.metrics.NDCGMetric(topn=n))
             for n in topn}
  padded = lists.pad_values(scores, 0.0)
  labels = lists.pad_values(lists.labels, -1.0)
  for start in range(0, len(lists), batch_lists):
    rows = slice(start, start + batch_lists)
    for metric in metrics.values():
      metric.update_state(labels[rows], tf.constant(padded[rows]))
  return {name: float(metric.result()) for name, metric in metrics.items()}


def check_grades(name, labels):
  """Raises a `ValueError` if a label is too high for the gain 2^y - 1.

  Args:
    name: of the file or lists with the labels.
    labels: an array.

  >>> check_grades("a.txt", np.array([100, 101]))
  Traceback (most recent call last):
  ValueError: a.txt: labels must be grades of at most 100, whose gains 2^y - ...
  """
  highest = labels.max(initial=0)
  if highest > MAX_GRADE:
    raise ValueError(
        f"{name}: labels must be grades of at most {MAX_GRADE}, whose gains "
        f"2^y - 1 can be summed, but there is {highest:g}; map them to fewer "
        "grades.")


def ndcg_by_list(lists, scores, topn=10, batch_lists=256):
  """NDCG of each list; the mean is that of `ndcg`.

  Args:
    lists: `data.lists.RankingLists` with true labels.
    scores: `[D]`.
    topn: the cutoff.
    batch_lists: lists in one call.

  Returns:
    `[Q]` float64, of the lists with a relevant document, in order.

  Raises:
    ValueError: if a label is above 100.

  >>> from ultra_tfr.data.lists import RankingLists
  >>> lists = RankingLists(np.zeros([4, 1]), [0, 1, 2, 0], [0, 3, 4], [7, 8])
  >>> ndcg_by_list(lists, np.array([1.0, 2.0, 3.0, 4.0])).tolist()
  [1.0]
  """
  check_grades("The lists", lists.labels)
  padded = lists.pad_values(scores, 0.0)
  labels = lists.pad_values(lists.labels, -1.0)
  found = []
  for start in range(0, len(lists), batch_lists):
    part = tf.constant(labels[start:start + batch_lists], tf.float32)
    gains = tf.exp(tf.nn.relu(part) * np.log(2.0)) - 1.0
    totals = counterfactual.request_totals(
        tf.constant(padded[start:start + batch_lists], tf.float32), gains,
        masking.valid_items(part), (topn,))
    ideal = totals.ideal_dcg[:, 0].numpy().astype(np.float64)
    found.append(totals.dcg[:, 0].numpy()[ideal > 0] / ideal[ideal > 0])
  return np.concatenate(found)


def evaluate(model, lists, topn=TOPN):
  """NDCG of a model, see `ndcg`.

  Args:
    model: as in `score_lists`.
    lists: `data.lists.RankingLists` with true labels.
    topn: the cutoffs.

  Returns:
    A dict such as `{"ndcg@10": 0.5}`.
  """
  return ndcg(lists, score_lists(model, lists), topn)
