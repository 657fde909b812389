"""Ranking lists as TF-Ranking's files hold them, from arrays and tables."""

import dataclasses

import numpy as np

from ultra_tfr import checks
from ultra_tfr.data.lists import RankingLists


@dataclasses.dataclass(frozen=True, eq=False)
class ElwcLists:
  """Features of N lists with D items in all, flat, as ELWC files hold them.

  A feature is an array with a row an item (or list): `[D]`, `[D, K]`, or an
  object array of arrays. None in it stands for what the file leaves out.

  Attributes:
    examples: features of the items by name, labels and positions among them.
    row_splits: int64 `[N + 1]`, where each list starts, and D.
    context: features of the lists by name.

  Raises:
    ValueError: if a shape does not fit, or a value cannot be stored.

  >>> lists = ElwcLists({"click": [0, 1, 0]}, [0, 2, 3], {"query_id": [7, 8]})
  >>> lists.pad({"click": -1})[0]["click"].tolist()
  [[0, 1], [0, -1]]
  """

  examples: dict[str, np.ndarray]
  row_splits: np.ndarray
  context: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    splits = checks.as_int64("row_splits", self.row_splits)
    if splits.size < 1 or splits[0] or np.any(np.diff(splits) < 0):
      raise ValueError("`row_splits` must rise from 0 to the number of items, "
                       f"but is {splits[:5].tolist()}..; correct it.")
    object.__setattr__(self, "row_splits", splits)
    for field, rows in (("examples", int(splits[-1])), ("context", len(self))):
      columns = {}
      for name, values in getattr(self, field).items():
        where, values = f"{field}[{name!r}]", np.asarray(values)
        checks.check_shape(where, values, (rows, *values.shape[1:]),
                              "one row an item or list")
        columns[name] = storable(where, values)
      object.__setattr__(self, field, columns)

  def __len__(self):
    """Number of lists."""
    return len(self.row_splits) - 1

  @classmethod
  def from_padded(cls, examples, mask, context=None):
    """Takes padded arrays.

    Args:
      examples: `[N, L]` or `[N, L, K]` arrays by name.
      mask: `[N, L]` Booleans, which slots hold an item.
      context: `[N]` or `[N, K]` arrays by name.
    """
    mask = np.asarray(mask, bool)
    arrays = {name: np.asarray(values) for name, values in examples.items()}
    for name, values in arrays.items():
      checks.check_shape(f"examples[{name!r}]", values,
                            (*mask.shape, *values.shape[2:]), "as `mask`")
    return cls({name: values[mask] for name, values in arrays.items()},
               splits_of(mask.sum(axis=1)), context or {})

  def pad(self, fills=None):
    """The opposite of `from_padded`: arrays by name, and the mask.

    Args:
      fills: what fills short lists, by name; else 0 or "".
    """
    sizes, padded = np.diff(self.row_splits), {}
    mask = np.arange(sizes.max(initial=0)) < sizes[:, np.newaxis]
    for name, values in self.examples.items():
      fill = (fills or {}).get(name, "" if values.dtype == object else 0)
      padded[name] = np.full(mask.shape + values.shape[1:], fill, values.dtype)
      padded[name][mask] = values
    return padded, mask

  @classmethod
  def from_ranking_lists(cls, lists, examples=None, context=None):
    """Takes `RankingLists`, as "features", "label", "query_id" and "doc_id".

    Args:
      lists: `RankingLists`.
      examples: more features of the documents by name, such as clicks.
      context: more features of the lists by name.
    """
    ids = {} if lists.doc_ids is None else {"doc_id": lists.doc_ids}
    return cls({"features": lists.features, "label": lists.labels, **ids,
                **(examples or {})}, lists.row_splits,
               {"query_id": lists.query_ids, **(context or {})})

  def to_ranking_lists(self, features="features", label="label"):
    """`RankingLists` of the features with these names; ids as there."""
    _check_names("examples", [features, label], self.examples)
    queries = self.context.get("query_id", np.arange(len(self)))
    return RankingLists(
        self.examples[features].reshape(self.row_splits[-1], -1),
        self.examples[label], self.row_splits, np.array(queries.tolist()),
        self.examples.get("doc_id"))

  @classmethod
  def from_frame(cls, frame, query, context=()):
    """Takes a pandas `DataFrame` with a row an item, in the order of its rows.

    Args:
      frame: the `DataFrame`.
      query: the column whose values tell the lists apart.
      context: columns that have one value in all rows of a query.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"query": ["a", "b", "a"], "click": [1, 0, 1]})
    >>> ElwcLists.from_frame(frame, "query").examples["click"].tolist()
    [1, 1, 0]
    """
    keys = [query, *context]
    _check_names("frame", keys, frame.columns)
    codes = frame[query].factorize()[0]
    if np.any(codes < 0):
      raise ValueError(f"`frame` must have a query in each row, but row "
                       f"{codes.argmin()} of {query!r} is empty; fill it.")
    order = np.argsort(codes, kind="stable")
    splits = splits_of(np.bincount(codes))
    first = order[splits[:-1]]
    values = {name: _of_series(frame[name]) for name in frame.columns}
    for name in context:
      texts = frame[name].map(str).to_numpy()
      wrong = texts != texts[first][codes]
      if np.any(wrong):
        raise ValueError(
            f"`context` must name columns with one value a query, but {name!r} "
            f"has several for {frame[query].iloc[wrong.argmax()]!r}; omit it.")
    return cls({name: values[name][order] for name in values
                if name not in keys}, splits,
               {name: values[name][first] for name in keys})

  def to_frame(self):
    """A pandas `DataFrame` with a row an item; contexts are repeated."""
    import pandas as pd  # Optional: nothing else here needs it.
    rows = np.repeat(np.arange(len(self)), np.diff(self.row_splits))
    columns = {name: values[rows] for name, values in self.context.items()}
    columns.update(self.examples)
    return pd.DataFrame({name: list(values) if values.ndim > 1 else values
                         for name, values in columns.items()})


def storable(name, values):
  """Checks numbers and converts them to what a file holds."""
  kind = values.dtype.kind
  if kind in "OUS":
    return values.astype(object)
  with np.errstate(over="ignore"):
    stored = values.astype(np.float32 if kind == "f" else np.int64)
  # Fractions are rounded as anywhere in TensorFlow; ids and times must not.
  wrong = kind not in "biuf" or (stored != values) & (
      values == np.floor(values))
  if np.any(wrong):
    raise ValueError(f"`{name}` must fit int64, float32 or text, but has the "
                     f"{values.dtype} {values[wrong].flat[0]}; convert it.")
  return stored


def _check_names(where, names, present):
  for name in names:
    if name not in present:
      raise ValueError(f"`{where}` must have {name!r}, but has only "
                       f"{', '.join(map(str, present))}; correct the name.")


def splits_of(sizes):
  """The row splits, int64 `[N + 1]`, of lists with these `[N]` sizes."""
  return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _of_series(series):
  """Values of a pandas column; None for what is missing in texts."""
  if isinstance(series.dtype, np.dtype) and series.dtype != object:
    return series.to_numpy()
  return series.astype(object).where(series.notna(), None).to_numpy()
