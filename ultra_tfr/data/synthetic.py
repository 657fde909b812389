"""Web-search-like ranking data, made on the spot.

Stands in for the large public collections (MSLR-WEB30K has 136 features and
five grades with shares near these) where nothing can be downloaded: features
of very different scales, partly heavy-tailed, some describing the query only
and some worthless; relevance is a nonlinear function of what the features show
through noise.
"""

from typing import NamedTuple

import numpy as np

from ultra_tfr import checks
from ultra_tfr.data.lists import RankingLists

# Shares of the grades 0..4.
GRADE_SHARES = (0.52, 0.32, 0.125, 0.025, 0.01)

_DOCUMENT_TRAITS = 6
_QUERY_TRAITS = 4
_QUERY_FEATURES = 16
_NOISE_FEATURES = 12


class SyntheticData(NamedTuple):
  """Three parts drawn from one world.

  Attributes:
    train: `RankingLists`.
    valid: `RankingLists`.
    test: `RankingLists`.
  """

  train: RankingLists
  valid: RankingLists
  test: RankingLists


def generate(num_train=2000, num_valid=300, num_test=600, *, num_features=136,
             min_size=8, max_size=40, noise=0.25, seed=0):
  """Draws a world and three sets of queries from it.

  Args:
    num_train: training queries.
    num_valid: validation queries.
    num_test: test queries.
    num_features: features of a document, at least 40.
    min_size: documents of the shortest list.
    max_size: documents of the longest list.
    noise: standard deviation of the part of relevance that no feature explains,
      relative to the spread of the rest.
    seed: the same seed gives the same data.

  Returns:
    `SyntheticData`.

  Raises:
    ValueError: if a size is out of range.

  >>> data = generate(20, 5, 5, seed=1)
  >>> len(data.train), data.train.num_features
  (20, 136)
  """
  for name, value, least in (
      ("num_train", num_train, 1), ("num_valid", num_valid, 1),
      ("num_test", num_test, 1), ("num_features", num_features, 40),
      ("min_size", min_size, 2), ("max_size", max_size, min_size)):
    checks.check_count(name, value, least)
  rng = np.random.default_rng(seed)
  world = _World(num_features, noise, rng)
  counts = (num_train, num_valid, num_test)
  sizes = rng.integers(min_size, max_size + 1, size=sum(counts))
  features, relevance = world.draw(sizes, rng)
  edges = np.quantile(relevance, np.cumsum(GRADE_SHARES)[:-1])
  grades = np.searchsorted(edges, relevance)
  whole = RankingLists(
      features=features, labels=grades,
      row_splits=np.concatenate([[0], np.cumsum(sizes)]),
      query_ids=np.arange(len(sizes)))
  parts = np.split(np.arange(len(sizes)), np.cumsum(counts)[:-1])
  return SyntheticData(*(whole.select(part) for part in parts))


class _World:
  """How relevance and features follow from hidden traits."""

  def __init__(self, num_features, noise, rng):
    traits = _DOCUMENT_TRAITS + _QUERY_TRAITS
    hidden = 12
    self._noise = noise
    self._mix = rng.normal(size=(traits, hidden)) / np.sqrt(traits)
    self._bend = rng.uniform(-1.0, 1.0, size=hidden)
    self._out = rng.normal(size=hidden) / np.sqrt(hidden)
    self._line = rng.normal(size=_DOCUMENT_TRAITS) / np.sqrt(_DOCUMENT_TRAITS)
    shown = num_features - _QUERY_FEATURES - _NOISE_FEATURES
    self._shows = rng.normal(size=(_DOCUMENT_TRAITS, shown))
    # Each feature shows few traits, as a real one does.
    self._shows *= rng.random(self._shows.shape) < 0.3
    self._blur = rng.uniform(0.2, 0.8, size=shown)
    self._shows_query = rng.normal(size=(_QUERY_TRAITS, _QUERY_FEATURES))
    self._kind = rng.permutation(np.arange(num_features) % 4)
    self._scale = 10.0 ** rng.uniform(-2.0, 3.0, size=num_features)

  def draw(self, sizes, rng):
    """Features `[D, F]` and relevance `[D]` of lists of the given sizes."""
    docs, query = int(sizes.sum()), np.repeat(np.arange(len(sizes)), sizes)
    traits = rng.normal(size=(docs, _DOCUMENT_TRAITS))
    topics = rng.normal(size=(len(sizes), _QUERY_TRAITS))
    both = np.concatenate([traits, topics[query]], axis=1)
    relevance = np.tanh(both @ self._mix + self._bend) @ self._out
    relevance = 2.0 * _standard(relevance) + _standard(traits @ self._line)
    # Some queries have more good answers than others.
    relevance = _standard(relevance) + 0.4 * rng.normal(size=len(sizes))[query]
    relevance += self._noise * rng.normal(size=docs)
    shown = traits @ self._shows
    shown += self._blur * rng.normal(size=shown.shape)
    query_features = topics @ self._shows_query
    worthless = rng.normal(size=(docs, _NOISE_FEATURES))
    plain = np.concatenate([shown, query_features[query], worthless], axis=1)
    return self._disguise(plain).astype(np.float32), relevance

  def _disguise(self, plain):
    """Gives features the scales and tails of counts, scores and flags."""
    heavy = np.exp(np.clip(1.5 * plain, -12.0, 12.0))
    counts = np.floor(np.exp(np.clip(plain, -4.0, 8.0)))
    flags = (plain > 0.7).astype(np.float64)
    kinds = np.stack([plain * self._scale, heavy * self._scale, counts, flags])
    return np.take_along_axis(kinds, self._kind[np.newaxis, np.newaxis, :],
                              axis=0)[0]


def _standard(values):
  return (values - values.mean()) / values.std()
