"""Rows of a log, checked and converted; what is rejected, and why."""

import contextlib

import numpy as np
import pyarrow as pa

from ultra_tfr import choices
from ultra_tfr.data.click_log import elwc_rows
from ultra_tfr.data.click_log import values as values_lib
from ultra_tfr.data.click_log.batches import Rows
from ultra_tfr.data.click_log.expressions import Expression

MAX_CONTEXTS = 100
_LARGEST = np.finfo(np.float32).max


class _BatchReader:
  """Reads columns of one raw batch after another, and marks rows to reject.

  Attributes:
    examples: by reason of rejection, a tuple of the value in the first such
      row, None if there is none, and of what to do about it, or "".
  """

  def __init__(self, decimal=".", sources=()):
    self._sources = {name: i for i, name in enumerate(sources)}
    self._decimal = decimal
    self._batch, self._rejects = None, None
    self.examples = {}

  def sources(self):
    """The names of the sources, in the order of `Rows.source`."""
    return list(self._sources)

  def _begin(self, batch):
    """Takes a batch up; returns the number of its source."""
    self._batch = batch
    self._rejects = np.full(len(batch.rows), None, object)
    return self._sources.setdefault(batch.source, len(self._sources))

  def _end(self):
    """The rows that stay, `[R]` booleans, and (source, row, reason) of others.
    """
    batch, kept = self._batch, np.equal(self._rejects, None)
    return kept, [
        *((batch.source, bad.row, bad.reason) for bad in batch.malformed),
        *((batch.source, int(batch.rows[i]), self._rejects[i])
          for i in np.flatnonzero(~kept))]

  def _get(self, name):
    """A column; rows of bytes that are no text are rejected."""
    array = self._batch.columns[name]
    with self._usable(name):
      array, wrong = values_lib.plain(array, self._batch.missing)
    self._reject(wrong, f"{name} is no UTF-8 text")
    return array

  @contextlib.contextmanager
  def _usable(self, name):
    """Explains errors of pyarrow: the type of a column cannot be used."""
    try:
      yield
    except pa.ArrowException as error:
      raise ValueError(
          f"{self._batch.source}: the column {name!r} is of the type "
          f"{self._batch.columns[name].type}, which cannot be used here; make "
          "it a number or a text, or leave it out.") from error

  def _reject(self, wrong, reason, values=None, remedy=""):
    """Marks rows; the first reason stays.

    Args:
      wrong: `[R]` booleans.
      reason: a few words.
      values: `[R]` values or the name of a column, to show the first wrong one.
      remedy: what to do about it.
    """
    if not wrong.any():
      return
    self._rejects[wrong & np.equal(self._rejects, None)] = reason
    if reason not in self.examples:
      if isinstance(values, str):
        values = self._get(values)
      value = None if values is None else values[int(np.argmax(wrong))]
      value = value.as_py() if isinstance(value, pa.Scalar) else value
      self.examples[reason] = (None if value is None else str(value), remedy)

  def _read_numbers(self, name):
    """Numbers, NaN where missing or wrong, and where they are wrong."""
    array = self._get(name)
    with self._usable(name):
      return values_lib.numbers(array, self._decimal)

  def _texts(self, name):
    array = self._get(name)
    with self._usable(name):
      return values_lib.texts(array)

  def _requests(self, source, query):
    texts = [self._texts(name) for name in query]
    if elwc_rows.RECORD in query:  # Records are counted anew in each file.
      place = query.index(elwc_rows.RECORD)
      texts[place] = pa.compute.binary_join_element_wise(
          str(source), texts[place], ":")
    found = values_lib.hashes(_joined(texts))
    self._reject(found < 0, f"no request id in {', '.join(query)}")
    return found

  def _numeric_features(self, names):
    features = np.empty([len(self._rejects), len(names)], np.float32)
    for i, name in enumerate(names):
      values, wrong = self._read_numbers(name)
      self._reject(
          wrong, f"{name} is no number", name, "name words that stand for a "
          "missing value by `null_values`, a decimal comma by `decimal`, and a "
          "column of texts by `text`")
      self._reject(np.abs(values) > _LARGEST, f"{name} is infinite", values)
      features[:, i] = _to_float32(values)
    return features

  def _text_features(self, names):
    return [self._texts(name).fill_null("") for name in names]


class FeatureReader(_BatchReader):
  """Converts what a model needs to score rows, batch after batch.

  Args:
    query: the columns of the request.
    numeric_features: the names of features that are numbers.
    text_features: of those that are texts.
    decimal: as in `Dialect`.
  """

  def __init__(self, query, numeric_features, text_features, decimal="."):
    super().__init__(decimal)
    self._query = query
    self._numeric, self._text = list(numeric_features), list(text_features)

  def read(self, batch):
    """Converts a batch.

    Args:
      batch: a `RawBatch`.

    Returns:
      A tuple of `[R]` booleans, the rows that can be scored; the requests,
      numeric and text features of these, as in `Rows`; and (source, row,
      reason) of the others, with those that are no rows at all.

    Raises:
      ValueError: if a column cannot be used.
    """
    source = self._begin(batch)
    request = self._requests(source, self._query)
    numeric = self._numeric_features(self._numeric)
    texts = self._text_features(self._text)
    kept, rejected = self._end()
    mask = pa.array(kept)
    return (kept, request[kept], numeric[kept],
            [text.filter(mask) for text in texts], rejected)


class RowReader(_BatchReader):
  """Converts raw batches, batch after batch.

  Whether a column holds numbers or texts is decided before: by `learn`, or else
  by the first batch.

  Args:
    columns: `LogColumns`.
    available: the names of the log's columns.
    slots: the names of the positions in order, or None where positions are
      numbers.
    contexts: the names of the contexts that are known already.
    new_contexts: whether rows with other contexts are kept.
    features: a pair of lists, the names of the features that are numbers and of
      those that are texts; None to decide it by the values.
    decimal: as in `Dialect`.
    sources: the names of the sources that are known already, in their order.

  Attributes:
    numeric_features: the names of the features that are numbers.
    text_features: the names of those that are texts.
    mixed: by name of a text feature that nobody declared one and that has
      numbers among its values: the share of these, and one of them.
    contexts: names by id; more are added as they appear.
  """

  def __init__(self, columns, available, slots=None, contexts=(),
               new_contexts=True, features=None, decimal=".", sources=()):
    super().__init__(decimal, sources)
    self._columns = columns
    self._declared = columns.declared(available)
    self.mixed = {}
    self._expression = columns.expression()
    self._feedback_columns = columns.feedback_columns(available)
    self._feedback_texts = None
    self._features = columns.resolve(available)
    self._slots = slots
    self._ids = {name: i for i, name in enumerate(contexts)}
    self._new_contexts = new_contexts
    self.numeric_features, self.text_features = features or (None, None)

  @property
  def contexts(self):
    """Names of the contexts by id."""
    return list(self._ids)

  def read(self, batch):
    """Converts a batch.

    Args:
      batch: a `RawBatch`.

    Returns:
      A tuple of `Rows`, or None without any, and a list of (source, row,
      reason) of rejected rows.

    Raises:
      ValueError: if positions are names and their order is not known, there
        are too many contexts, or a column cannot be used.
    """
    source = self._begin(batch)
    size = len(batch.rows)
    if not size:
      return None, self._end()[1]
    if self._feedback_texts is None:
      self.learn(batch.source, {
          name: values_lib.known(array, batch.missing)
          for name, array in batch.columns.items()})
    roles = self._columns
    request = self._requests(source, roles.query_columns)
    position = self._positions()
    feedback = self._feedback()
    weight = self._numbers(roles.weight, np.ones(size))
    self._reject(weight < 0, f"a negative {roles.weight}", weight)
    time = self._times()
    randomized = self._numbers(roles.randomized, np.zeros(size))
    numeric = self._numeric_features(self.numeric_features)
    texts = self._text_features(self.text_features)
    items = self._items()
    # Last, since only rows that stay may bring a context.
    context = self._contexts()
    kept, rejected = self._end()
    arrays = (request, position, _to_float32(feedback), context, items,
              _to_float32(weight), time, randomized > 0, batch.rows,
              np.full(size, source, np.int32), numeric)
    mask = pa.array(kept)
    return Rows(*(array[kept] for array in arrays),
                [text.filter(mask) for text in texts]), rejected

  def undecided(self):
    """Names of the columns whose values decide if they are numbers or texts."""
    names = [self._columns.position] if self._slots is None else []
    if not isinstance(self._expression, Expression):
      names += self._feedback_columns
    if self.numeric_features is None:
      names += [name for name in self._features if name not in self._declared]
    return list(dict.fromkeys(names))

  def learn(self, source, values, stored=None):
    """Decides which columns are texts.

    Args:
      source: where the values are from.
      values: pyarrow arrays by name, as `sources.first_values` gives them for
        the columns of `undecided`.
      stored: as `sources.stored_kinds` gives it, or None.

    Raises:
      ValueError: if positions are names and their order is not known, or most
        values of a feature are numbers, but too many are not.
    """
    stored = stored or {}

    def is_text(name):
      return stored[name] if name in stored else values_lib.is_text(
          values[name], self._decimal)

    if isinstance(self._expression, Expression):
      self._feedback_texts = self._expression.text_columns
    else:
      self._feedback_columns = [
          name for name in self._feedback_columns if
          values_lib.is_number_or_text(values[name].type)]
      self._feedback_texts = [
          name for name in self._feedback_columns if is_text(name)]
    if self.numeric_features is None:
      self.text_features = []
      for name in self._features:
        if self._declared.get(name) or (
            name not in self._declared and is_text(name)):
          self.text_features.append(name)
          if name not in self._declared:
            self._note_numbers(source, name, values[name], name in stored)
      self.numeric_features = [
          name for name in self._features if name not in self.text_features]
    position = self._columns.position
    if self._slots is None and values_lib.is_text(
        values[position], self._decimal):
      names = pa.compute.unique(
          _part(values[position], self._decimal, True)).to_pylist()
      raise ValueError(
          f"{source}: the positions in {position!r} are names "
          f"({', '.join(names[:5])}{', ..' if len(names) > 5 else ''}); say "
          "their order by `positions`, the first one first.")

  def _note_numbers(self, source, name, values, is_stored):
    """Notes numbers among the values of a feature that is read as a text."""
    numbers = _part(values, self._decimal, False)
    share = len(numbers) / max(len(values), 1)
    if not len(numbers):
      return
    if share > 0.5 and not is_stored:
      other = _part(values, self._decimal, True)[0].as_py()
      raise ValueError(
          f"{source}: {1 - share:.1%} of the first values of {name!r} are no "
          f"numbers, such as {other!r:.60}; name what stands for a missing "
          "value by `null_values`, a decimal comma by `decimal`, or say what "
          "the column is by `numbers` or `text`.")
    self.mixed[name] = (share, numbers[0].as_py())

  def _numbers(self, name, default, remedy=""):
    """Numbers of a column that must have one in each row."""
    if name is None:
      return default
    values, wrong = self._read_numbers(name)
    self._reject(wrong, f"{name} is no number", name, remedy)
    self._reject(np.isnan(values), f"{name} is missing")
    self._reject(np.abs(values) > _LARGEST, f"{name} is infinite", values)
    return values

  def _positions(self):
    name = self._columns.position
    if self._slots is not None:
      codes = pa.compute.index_in(
          self._texts(name), pa.array(self._slots, pa.string()))
      values = pa.compute.fill_null(codes, -1).to_numpy(zero_copy_only=False)
      self._reject(values < 0, f"{name} is none of the known slots", name,
                   "name all of them by `positions`")
      return values.astype(np.int64)
    values = self._numbers(
        name, None, "name the positions in their order by `positions`")
    self._reject((values < 0) | (values != np.floor(values)) |
                 (values > 1e9), f"{name} is no whole number from 0", values)
    return np.where(np.equal(self._rejects, None), values, 0).astype(np.int64)

  def _feedback(self):
    arrays = {}
    for name in self._feedback_columns:
      if name in self._feedback_texts:
        arrays[name] = np.array(self._texts(name).to_pylist(), object)
        continue
      arrays[name], wrong = self._read_numbers(name)
      # A user's function may never use the column.
      if isinstance(self._expression, Expression) and wrong.any():
        value = self._get(name)[int(np.argmax(wrong))].as_py()
        self._reject(wrong, f"{name} is no number", name,
                     "compare it with a text, as in `feedback` "
                     f"{_operand(name)} == {value!r:.40}")
    with np.errstate(all="ignore"):
      values = np.asarray(self._expression(arrays), np.float64)
    if values.shape != self._rejects.shape:
      raise ValueError(
          "`feedback` must give one number a row, of the shape "
          f"{list(self._rejects.shape)}, but gave the shape "
          f"{list(values.shape)}; return an array as long as the columns.")
    name = _operand(self._feedback_columns[0])
    self._reject(np.isnan(values), "the feedback is missing", None,
                 "say what counts then, as in `feedback` "
                 f"coalesce({name}, 0)")
    self._reject(np.abs(values) > _LARGEST, "the feedback is infinite", values)
    self._reject(values < 0, "the feedback is negative", values,
                 f"bound it, as in `feedback` max({name}, 0)")
    return values

  def _times(self):
    name = self._columns.timestamp
    if name is None:
      return np.zeros(len(self._rejects))
    array = self._get(name)
    with self._usable(name):
      values, wrong = values_lib.seconds(array)
    self._reject(wrong | ~np.isfinite(values), f"no time in {name}", name,
                 f"times are {choices.TIME_FORMS}")
    return values

  def _contexts(self):
    size = len(self._rejects)
    name = self._columns.context
    if name is None:
      return np.zeros(size, np.int32)
    texts = self._texts(name)
    self._reject(texts.is_null().to_numpy(zero_copy_only=False),
                 f"{name} is missing")
    kept = texts.filter(pa.array(np.equal(self._rejects, None)))
    if self._new_contexts:
      for value in pa.compute.unique(kept).to_pylist():
        self._ids.setdefault(value, len(self._ids))
    check_contexts(name, self._ids, self._batch.source)
    codes = pa.compute.index_in(
        texts, pa.array(list(self._ids), pa.string()))
    ids = pa.compute.fill_null(codes, -1).to_numpy(zero_copy_only=False)
    self._reject(ids < 0, f"{name} is none of the known contexts", name)
    return ids.astype(np.int32)

  def _items(self):
    names = self._columns.item
    if not names:
      return np.full(len(self._rejects), -1, np.int64)
    return values_lib.hashes(_joined([self._texts(name) for name in names]))


def check_contexts(name, contexts, source):
  """Raises a `ValueError` if there are more contexts than can be.

  Args:
    name: of the column.
    contexts: their names.
    source: where they are from.
  """
  if len(contexts) > MAX_CONTEXTS:
    raise ValueError(
        f"{source}: `context` {name!r} has more than {MAX_CONTEXTS} values, "
        "and each gets a bias of its own; take a coarser column.")


def _part(values, decimal, others):
  """The values that are numbers, or (`others`) those that are not, as strings.
  """
  texts = values_lib.texts(values)
  found, wrong = values_lib.numbers(texts, decimal)
  return texts.filter(pa.array(wrong if others else ~np.isnan(found)))


def _joined(texts):
  """Several columns as one, missing where one of them is."""
  # A separator that no key has, so that "a","bc" is not "ab","c".
  return texts[0] if len(texts) == 1 else (
      pa.compute.binary_join_element_wise(*texts, "\x1f"))


def _operand(name):
  """A column as an expression names it."""
  return name if name.isidentifier() else f'col("{name}")'


def _to_float32(values):
  # What overflows is rejected.
  with np.errstate(over="ignore"):
    return values.astype(np.float32)
