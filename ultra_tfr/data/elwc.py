"""TF-Ranking's files of `ExampleListWithContext`, from arrays and back.

They hold int64, float32 and bytes: Booleans come back as int64, and texts as
objects of type str or bytes.
"""

import array
import dataclasses
import os

from google.protobuf.message import DecodeError
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import input_pb2

from ultra_tfr import checks
from ultra_tfr.data.lists import RankingLists


def open_records(path):
  """The records of a TFRecord file (a string or tensor); gzip if `.gz`."""
  is_gzip = tf.strings.regex_full_match(path, r"(?i).*\.gz")
  return tf.data.TFRecordDataset(path, tf.where(is_gzip, "GZIP", ""))


def write_elwc(path, lists):
  """Writes `ElwcLists`, one record a list; compressed if it ends in `.gz`."""
  path = os.fspath(path)
  examples, context = (
      {name: _rows(name, values) for name, values in columns.items()}
      for columns in (lists.examples, lists.context))
  compression = "GZIP" if path.lower().endswith(".gz") else ""
  with tf.io.TFRecordWriter(path, compression) as writer:
    splits = lists.row_splits.tolist()
    for i, (start, end) in enumerate(zip(splits, splits[1:])):
      elwc = input_pb2.ExampleListWithContext()
      _fill(elwc.context, context, i)
      for row in range(start, end):
        _fill(elwc.examples.add(), examples, row)
      writer.write(elwc.SerializeToString())


def read_elwc(paths, texts=True, max_lists=None):
  """Reads ELWC files into memory.

  Args:
    paths: a path or pattern, or a list of them; `.gz` is decompressed.
    texts: whether to decode bytes to str, in all features or in those named.
    max_lists: how many lists to read; None for all.

  Returns:
    `ElwcLists`, features in alphabetical order. Where an item lacks a feature
    there is NaN among floats, an empty array if others have several values, and
    None otherwise.

  Raises:
    ValueError: if there is no file, or one is no ELWC, or of other types.
  """
  sizes, items, examples, context = [], 0, {}, {}
  for path in tf.nest.flatten(paths):
    files = sorted(tf.io.gfile.glob(os.fspath(path)))
    if not files:
      raise ValueError(f"There is no file {path}; correct the path or pattern.")
    for file in files:
      left = -1 if max_lists is None else max_lists - len(sizes)
      try:
        for record in open_records(file).take(left).as_numpy_iterator():
          elwc = input_pb2.ExampleListWithContext.FromString(record)
          _gather(elwc.context, context, len(sizes), file)
          for example in elwc.examples:
            _gather(example, examples, items, file)
            items += 1
          sizes.append(len(elwc.examples))
      except (DecodeError, tf.errors.DataLossError) as error:
        raise ValueError(f"{file}: is no TFRecord file of ELWC, or is damaged "
                         f"({error}); write it again.") from error
  examples, context = (
      {k: _restore(k, rows, texts, *found[k]) for k in sorted(found)}
      for found, rows in ((examples, items), (context, len(sizes))))
  return ElwcLists(examples, splits_of(sizes), context)


def _rows(name, values):
  """A column as the field of a `Feature`, and a list of values for each row."""
  if values.dtype != object:
    kind = "float_list" if values.dtype.kind == "f" else "int64_list"
    return kind, values.reshape(len(values), -1).tolist()
  rows = [[] if value is None else list(value) if isinstance(
      value, (list, tuple, np.ndarray)) else [value] for value in values]
  flat = [value for row in rows for value in row]
  if all(isinstance(value, (str, bytes)) for value in flat):
    return "bytes_list", [[value.encode() if isinstance(value, str) else value
                           for value in row] for row in rows]
  numbers = np.asarray(flat)
  if numbers.dtype.kind not in "biuf":
    raise ValueError(f"Feature {name!r} must be only numbers or only texts, "
                     "but is neither; convert it.")
  numbers = storable(name, numbers)
  ends = np.cumsum([len(row) for row in rows])[:-1]
  return _rows(name, numbers)[0], [
      part.tolist() for part in np.split(numbers, ends)]


def _fill(message, columns, row):
  for name, (kind, rows) in columns.items():
    if rows[row]:
      getattr(message.features.feature[name], kind).value.extend(rows[row])


def _gather(message, columns, row, file):
  """Adds the features of a message to the columns.

  These are tuples by name: the field, rows, numbers of values, and values.
  """
  for name, feature in message.features.feature.items():
    kind = feature.WhichOneof("kind")
    if kind:
      column = columns.setdefault(name, (
          kind, [], [], [] if kind == "bytes_list" else
          array.array("f" if kind == "float_list" else "q")))
      if column[0] != kind:
        raise ValueError(f"{file}: feature {name!r} is a {kind}, but before a "
                         f"{column[0]}; write it with one type.")
      column[1].append(row)
      column[2].append(len(getattr(feature, kind).value))
      column[3].extend(getattr(feature, kind).value)


def _restore(name, size, texts, kind, rows, counts, values):
  """The array of a feature, from what `_gather` found of it."""
  if kind == "bytes_list" and (texts is True or texts and name in texts):
    try:
      values = [value.decode() for value in values]
    except UnicodeDecodeError as error:
      raise ValueError(f"Feature {name!r} is no UTF-8; name those that are in "
                       "`texts`.") from error
  flat = np.array(values, object if kind == "bytes_list" else None)
  sizes = np.zeros(size, np.int64)
  sizes[rows] = counts
  if sizes.min() == sizes.max():
    return flat if sizes[0] == 1 else flat.reshape(size, sizes[0])
  restored = np.full(size, None)
  if sizes.max() == 1:
    restored[sizes == 1] = flat
    return restored.astype(flat.dtype) if kind == "float_list" else restored
  restored[:] = np.split(flat, np.cumsum(sizes)[:-1])
  return restored


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
    splits = checks.check_integers("row_splits", self.row_splits)
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
      fills: the values that fill short lists, by name; otherwise 0 or "".
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
