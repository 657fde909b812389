"""Rows of a log, flat and with a model's predictions, for diagnosis."""

import itertools
import math
from typing import NamedTuple

import numpy as np

from ultra_tfr.data.click_log.reading.reading import PARTS
from ultra_tfr.fit_log import checkpoints

# Requests scored at a time, at most.
_BATCH = 1024


class LogSample(NamedTuple):
  """Rows of some requests of a log, each `[R]`; none of weight 0.

  Attributes:
    items: int64, -1 if unknown.
    positions: int64 from 1.
    places: int64 from 1, in the order shown; where deep positions share one,
      their items have places of their own.
    contexts: int64 ids.
    clicked: booleans, feedback > 0.
    requests: int64, a number that stands for the request.
    weights: float64.
    randomized: booleans.
    relevance: the model's relevance probabilities.
    is_complete: whether these are all requests of the log.
  """

  items: np.ndarray
  positions: np.ndarray
  places: np.ndarray
  contexts: np.ndarray
  clicked: np.ndarray
  requests: np.ndarray
  weights: np.ndarray
  randomized: np.ndarray
  relevance: np.ndarray
  is_complete: bool


def draw(log, model, max_requests=200000):
  """Takes requests of all parts, in equal shares, with predictions.

  Args:
    log: a `ClickLog`.
    model: a Keras model of its features.
    max_requests: how many at most, but for what rounding up adds, so that
      memory is bounded.

  Returns:
    A `LogSample`.
  """
  total = sum(len(log.parts[part]) for part in PARTS)
  share = min(1.0, max_requests / max(total, 1))
  columns = []
  for part in PARTS:
    wanted = math.ceil(share * len(log.parts[part]))
    if not wanted:
      continue
    count = math.ceil(wanted / _BATCH)
    # Files of a part are random samples of it: the first ones will do.
    batches = log.parts[part].batches(math.ceil(wanted / count))
    columns += [_flat(batch, model)
                for batch in itertools.islice(batches, count)]
  return LogSample(*map(np.concatenate, zip(*columns)), share == 1.0)


def _flat(batch, model):
  _, relevance = checkpoints.predict(model, batch)
  counts = batch.weights > 0
  requests = np.broadcast_to(batch.requests[:, np.newaxis], counts.shape)
  return [
      np.asarray(values)[counts] for values in (
          batch.items, batch.positions.astype(np.int64), batch.places,
          batch.contexts.astype(np.int64), batch.feedback > 0, requests,
          batch.weights.astype(np.float64), batch.randomized,
          relevance)]
