"""Ranked lists of documents of different lengths, kept flat in numpy.

All documents of all lists are stored one after the other and `row_splits` says
where each list starts, as in `tf.RaggedTensor`. So a data set takes no padding
until a batch is made, and one very long list costs nothing to the others.
"""

import dataclasses
from typing import Optional
from typing import Union

import numpy as np

from ultra_tfr import checks


@dataclasses.dataclass(frozen=True, eq=False)
class RankingLists:
  """Documents of N lists, flat, with the places where each list starts.

  List `n` is made of the documents `row_splits[n]` to `row_splits[n + 1] - 1`.
  The arrays are converted to the dtypes below and must not be changed later.

  Attributes:
    features: float32 `[D, F]`, one row a document.
    labels: float32 `[D]`, relevance grades or feedback. Negative means
      "masked", as everywhere in this library.
    row_splits: int64 `[N + 1]`, from 0 to D, never falling.
    query_ids: `[N]`, one identifier a list.
    doc_ids: optional object `[D]`, one identifier a document.

  Raises:
    ValueError: if a shape does not fit, `row_splits` does not lead from 0 to D
      without falling, or a label is not finite.

  Example:
    >>> import numpy as np
    >>> lists = RankingLists(
    ...     features=np.arange(6).reshape(3, 2), labels=[1, 0, 2],
    ...     row_splits=[0, 2, 3], query_ids=["a", "b"])
    >>> len(lists), lists.num_features, lists.list_sizes.tolist()
    (2, 2, [2, 1])
    >>> lists.pad()[1].tolist()
    [[1.0, 0.0], [2.0, -1.0]]
  """

  features: np.ndarray
  labels: np.ndarray
  row_splits: np.ndarray
  query_ids: np.ndarray
  doc_ids: Optional[np.ndarray] = None

  def __post_init__(self):
    # The class is frozen for its users; here the inputs become arrays once.
    def convert(name, dtype):
      array = np.asarray(getattr(self, name), dtype=dtype)
      object.__setattr__(self, name, array)
      return array

    features = convert("features", np.float32)
    labels = convert("labels", np.float32)
    row_splits = checks.check_integers("row_splits", self.row_splits)
    object.__setattr__(self, "row_splits", row_splits)
    query_ids = convert("query_ids", None)
    if features.ndim != 2:
      raise ValueError(
          "`features` must have the shape [documents, features], but has the "
          f"shape {list(features.shape)}; reshape it.")
    num_docs = features.shape[0]
    checks.check_shape("labels", labels, (num_docs,), "one label a document")
    if row_splits.ndim != 1 or row_splits.size < 1:
      raise ValueError(
          "`row_splits` must have the shape [lists + 1], but has the shape "
          f"{list(row_splits.shape)}; give where each list starts, and the "
          "number of documents at the end.")
    if (row_splits[0] != 0 or row_splits[-1] != num_docs or
        np.any(np.diff(row_splits) < 0)):
      raise ValueError(
          "`row_splits` must lead from 0 to the number of documents "
          f"({num_docs}) without falling, but it goes from {row_splits[0]} to "
          f"{row_splits[-1]}, smallest step "
          f"{np.diff(row_splits).min(initial=0)}; give where each list starts, "
          "and the number of documents at the end.")
    checks.check_shape(
        "query_ids", query_ids, (row_splits.size - 1,), "one id a list")
    if self.doc_ids is not None:
      doc_ids = convert("doc_ids", object)
      checks.check_shape(
          "doc_ids", doc_ids, (num_docs,), "one id a document")
    if not np.all(np.isfinite(labels)):
      bad = int(np.flatnonzero(~np.isfinite(labels))[0])
      raise ValueError(
          f"`labels` must be finite, but document {bad} has {labels[bad]}; "
          "use -1 for a missing label.")

  def __len__(self) -> int:
    """Number of lists."""
    return self.row_splits.size - 1

  @property
  def num_features(self) -> int:
    """Number of features of a document."""
    return self.features.shape[1]

  @property
  def list_sizes(self) -> np.ndarray:
    """int64 `[N]`, the number of documents of each list."""
    return np.diff(self.row_splits)

  def select(self, indices) -> "RankingLists":
    """Takes lists by index or by a Boolean mask, in the order given.

    Args:
      indices: int `[M]` indices of lists (a list may be taken twice), or bool
        `[N]`.

    Returns:
      The `M` lists chosen.

    Raises:
      IndexError: if an index is not that of a list.

    Example:
      >>> lists = RankingLists([[0.], [1.], [2.]], [0, 1, 2], [0, 2, 3], [7, 8])
      >>> lists.select([1, 0]).labels.tolist()
      [2.0, 0.0, 1.0]
    """
    chosen = np.arange(len(self))[np.asarray(indices, dtype=_index_type(
        indices))]
    sizes = self.list_sizes[chosen]
    splits = _splits_of(sizes)
    docs = np.arange(splits[-1]) + np.repeat(
        self.row_splits[chosen] - splits[:-1], sizes)
    return self._take(docs, splits, self.query_ids[chosen])

  def sort_by(self, scores, top: Optional[int] = None) -> "RankingLists":
    """Orders the documents of each list by descending score.

    Documents of equal score keep their order, so the result does not depend
    on the platform.

    Args:
      scores: `[D]`, one number a document, of this object's order.
      top: how many documents of each list to keep; None keeps all.

    Returns:
      The same lists, reordered, and cut to `top` documents where it is given.

    Raises:
      ValueError: if the shape of `scores` does not fit, a score is NaN, or
        `top` is not a positive integer.

    Example:
      >>> lists = RankingLists([[0.], [1.], [2.]], [0, 1, 2], [0, 3], ["q"])
      >>> lists.sort_by([.1, .3, .2], top=2).labels.tolist()
      [1.0, 2.0]
    """
    scores = np.asarray(scores)
    checks.check_shape(
        "scores", scores, self.labels.shape, "one score a document")
    if np.any(np.isnan(scores)):
      raise ValueError(
          "`scores` must be numbers, but document "
          f"{int(np.flatnonzero(np.isnan(scores))[0])} has NaN; a model that "
          "scores NaN has to be repaired first.")
    sizes = self.list_sizes
    # lexsort is stable and its last key is the first criterion.
    order = np.lexsort((-scores.astype(np.float64),
                        np.repeat(np.arange(len(self)), sizes)))
    if top is None:
      return self._take(order, self.row_splits, self.query_ids)
    top = checks.check_count("top", top)
    rank = np.arange(sizes.sum()) - np.repeat(self.row_splits[:-1], sizes)
    splits = _splits_of(np.minimum(sizes, top))
    return self._take(order[rank < top], splits, self.query_ids)

  def pad(self, list_size: Optional[int] = None
         ) -> tuple[np.ndarray, np.ndarray]:
    """Makes rectangular arrays: features 0 and label -1 fill short lists.

    Args:
      list_size: L, the number of documents of each list in the result; None
        takes the longest list's.

    Returns:
      `(features, labels)`: float32 `[N, L, F]` and `[N, L]`.

    Raises:
      ValueError: if a list has more than `list_size` documents: nothing is
        dropped silently.

    Example:
      >>> lists = RankingLists([[5.], [6.], [7.]], [0, 1, 2], [0, 2, 3], [1, 2])
      >>> features, labels = lists.pad(3)
      >>> features[..., 0].tolist()
      [[5.0, 6.0, 0.0], [7.0, 0.0, 0.0]]
      >>> labels.tolist()
      [[0.0, 1.0, -1.0], [2.0, -1.0, -1.0]]
    """
    return (self.pad_values(self.features, 0., list_size),
            self.pad_values(self.labels, -1., list_size))

  def pad_values(self, values, fill: float, list_size: Optional[int] = None
                ) -> np.ndarray:
    """Makes a rectangular array of values, one for each document.

    Args:
      values: `[D]` or `[D, F]`, in the order of the documents.
      fill: what fills short lists.
      list_size: L, as in `pad`.

    Returns:
      float32 `[N, L]` or `[N, L, F]`.

    Raises:
      ValueError: as `pad`.

    Example:
      >>> lists = RankingLists([[5.], [6.], [7.]], [0, 1, 2], [0, 2, 3], [1, 2])
      >>> lists.pad_values([.1, .2, .5], 0.).tolist() == [[
      ...     np.float32(.1), np.float32(.2)], [.5, 0.]]
      True
    """
    values, sizes = np.asarray(values), self.list_sizes
    longest = int(sizes.max(initial=0))
    if list_size is None:
      list_size = longest
    else:
      list_size = checks.check_count("list_size", list_size)
    if longest > list_size:
      raise ValueError(
          f"`list_size` is {list_size}, but the list of query "
          f"{self.query_ids[int(sizes.argmax())]} has {longest} documents; "
          f"choose which to keep with sort_by(scores, top={list_size}) first, "
          "or give a larger `list_size`.")
    valid = np.arange(list_size) < sizes[:, np.newaxis]
    padded = np.full(valid.shape + values.shape[1:], fill, np.float32)
    padded[valid] = values
    return padded

  def widen(self, num_features: int) -> "RankingLists":
    """Appends features that are 0, the value of what sparse files leave out.

    Args:
      num_features: the number of features to have, at least the present one.

    Returns:
      The same lists.

    Raises:
      ValueError: if there are more features already.

    Example:
      >>> lists = RankingLists([[5.]], [0], [0, 1], [7])
      >>> lists.widen(2).features.tolist()
      [[5.0, 0.0]]
    """
    missing = num_features - self.num_features
    if missing < 0:
      raise ValueError(
          f"`num_features` must be at least {self.num_features}, the number of "
          f"features there are, but is {num_features}; give the larger one.")
    return dataclasses.replace(
        self, features=np.pad(self.features, [(0, 0), (0, missing)]))

  def _take(self, docs, row_splits, query_ids) -> "RankingLists":
    return RankingLists(
        self.features[docs], self.labels[docs], row_splits, query_ids,
        None if self.doc_ids is None else self.doc_ids[docs])


def split(lists: RankingLists, part: Union[int, float], seed: int
         ) -> tuple[RankingLists, RankingLists]:
  """Splits by query at random; both parts keep the order of the lists.

  Args:
    lists: the lists to split.
    part: the size of the first part: an int is a number of lists, a float in
      (0, 1) a fraction of them, rounded.
    seed: seed of the choice; the same seed gives the same parts.

  Returns:
    `(first, second)`, both with at least one list.

  Raises:
    ValueError: if `part` leaves one of the two without a list.

  Example:
    >>> lists = RankingLists([[0.]] * 4, [0, 1, 2, 3], range(5), range(4))
    >>> first, second = split(lists, .25, seed=1)
    >>> len(first), len(second)
    (1, 3)
  """
  is_count = isinstance(part, (int, np.integer)) and not isinstance(part, bool)
  count = int(part) if is_count else int(round(part * len(lists)))
  if not 0 < count < len(lists):
    raise ValueError(
        f"`part` must leave lists on both sides of the split, but {part} puts "
        f"{count} of {len(lists)} lists into the first part; give an int from "
        f"1 to {len(lists) - 1} or a fraction.")
  chosen = np.zeros(len(lists), dtype=bool)
  chosen[np.random.default_rng(seed).permutation(len(lists))[:count]] = True
  return lists.select(chosen), lists.select(~chosen)


def _splits_of(sizes) -> np.ndarray:
  return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _index_type(indices):
  # An empty Python list has float dtype, which numpy rejects as an index.
  return None if np.size(indices) else np.int64
