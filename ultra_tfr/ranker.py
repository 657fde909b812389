"""A ranker with the interface of scikit-learn, over the trainer of logs."""

import numbers
from typing import Any
from typing import Optional
from typing import Union
import warnings

import numpy as np
import pyarrow as pa
from sklearn import base
from sklearn import utils
from sklearn.utils import metadata_routing
from sklearn.utils import validation

from ultra_tfr import checks
from ultra_tfr import choices
from ultra_tfr.bias import Bias
from ultra_tfr.bias import at_most_one
from ultra_tfr.data.click_log import sources
from ultra_tfr.data.click_log import values as values_lib
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.evaluation import held_out
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import new_rows
from ultra_tfr.fit_log import scoring
from ultra_tfr.fit_log import training
from ultra_tfr.fit_log.checkpoints import Validation
from ultra_tfr.settings import Settings

# Columns beside those of the features.
_REQUEST, _POSITION, _CLICKS, _CONTEXT, _WEIGHT = _ROLES = (
    "_request", "_position", "_clicks", "_context", "_weight")
_DEFAULT = Settings()
# What `fit` and `score` get of a search, where it is given.
_REQUESTED = {
    "clicks": metadata_routing.UNUSED, "positions": True, "group": True,
    "contexts": True, "sample_weight": True}
# Requests that `score` looks at a time.
_BATCH = 1024


class UnbiasedRanker(base.BaseEstimator):
  """Unbiased learning to rank with the interface of scikit-learn.

  A thin face: `fit` makes a click log of its arguments and trains on it as
  `ultra_tfr.fit_log.fit` does, so the numbers are those of `ultra-tfr fit-log`.
  Features are the columns of `X`: numbers (NaN where missing) and, in frames of
  pandas and polars and tables of pyarrow, also texts, categories and booleans.

  `group` says which rows are one request, a list that was shown once, in one of
  two ways. With as many entries as `X` has rows they are ids, numbers or texts,
  as the `qid` of XGBoost, and rows of a request may be anywhere. With fewer
  they are sizes of requests that come one after another and sum to the number
  of rows, as the `group` of LightGBM. A 1 for each row could be both, and is
  refused.

  In a search or a cross-validation rows are taken apart, so `group` must be
  ids, and metadata routing must be on. Then nothing else is needed:

      sklearn.set_config(enable_metadata_routing=True)
      search = GridSearchCV(UnbiasedRanker(), {"steps": [500, 1000]},
                            cv=GroupKFold(3))
      search.fit(X, clicks, positions=positions, group=ids, groups=ids)

  Clicks that are corrected by different propensities do not compare, and each
  fit estimates its own. So give a search `score_examination`, such as what one
  fit before it has estimated.

  Args:
    method: how to train, one of those of `ultra-tfr fit-log --method`.
    hidden_units: of the ranker; () for a linear one.
    relevance_units: of the tower that estimates relevance, which is not served.
    steps: batches to train on; None for ten passes over the log, but at least
      200 batches and at most 3000.
    batch_size: requests in a batch; None for 256, or a thirty-second of a
      smaller log, but at least 8.
    learning_rate: of Adam at the start; it falls to 0 by a cosine.
    validate_every: steps between two validations.
    valid: share of the requests by which the checkpoint is chosen, and the
      logged order judged; 0 for none.
    num_positions: deeper positions share the last of so many; None for none.
    score_examination: examination by position, `[K]` or `[C, K]`, relative to
      the first one or not, by which `score` corrects clicks; None for what this
      fit estimated, which for "naive-pairwise" is nothing.
    random_state: a seed, the same as `--seed`; or a `RandomState` or None, of
      which each fit draws one.
    verbose: as in Keras's `fit`.

  Attributes:
    fitted_: the `ultra_tfr.fit_log.FittedLog`: model, bias, history. Its `save`
      writes the ranker for TF Serving and the folder that commands read.
    examination_: `[C, K]` p1 by context and position, relative to the first
      position, of the likeliest hypothesis about the users; None for a method
      that estimates none.
    positions_: the K positions.
    n_features_in_: columns of `X`.
    feature_names_in_: their names, if all are texts.

  >>> X = np.random.default_rng(0).normal(size=(60, 2))
  >>> ranker = UnbiasedRanker("naive-pairwise", hidden_units=(), steps=1)
  >>> clicks, ids = X[:, 0] > 0.5, np.repeat(np.arange(20), 3)
  >>> ranker.fit(X, clicks, positions=np.tile([1, 2, 3], 20), group=ids)
  UnbiasedRanker(hidden_units=(), method='naive-pairwise', steps=1)
  >>> ranker.predict(X[:5]).shape
  (5,)
  """

  # The names begin with those of the class for what reads them.
  __metadata_request__fit = _REQUESTED
  __metadata_request__score = _REQUESTED

  def __init__(self, method: str = "unbiased", *,
               hidden_units: tuple[int, ...] = (128, 64),
               relevance_units: tuple[int, ...] = _DEFAULT.relevance_units,
               steps: Optional[int] = None,
               batch_size: Optional[int] = None,
               learning_rate: float = 2e-3,
               validate_every: int = _DEFAULT.validate_every,
               valid: float = 0.1, num_positions: Optional[int] = None,
               score_examination: Any = None,
               random_state: Union[int, np.random.RandomState, None] = 0,
               verbose: int = 0):
    self.method = method
    self.hidden_units = hidden_units
    self.relevance_units = relevance_units
    self.steps = steps
    self.batch_size = batch_size
    self.learning_rate = learning_rate
    self.validate_every = validate_every
    self.valid = valid
    self.num_positions = num_positions
    self.score_examination = score_examination
    self.random_state = random_state
    self.verbose = verbose

  def __sklearn_tags__(self) -> Any:
    """What scikit-learn should know: what may be in `X` and `clicks`."""
    tags = super().__sklearn_tags__()
    tags.input_tags.allow_nan = tags.input_tags.string = True
    tags.target_tags.required = tags.target_tags.positive_only = True
    return tags

  def fit(self, X: Any, clicks: Any, *, positions: Any = None,
          group: Any = None, contexts: Any = None,
          sample_weight: Any = None) -> "UnbiasedRanker":
    """Trains the ranker, and estimates the bias of positions.

    Args:
      X: `[n, features]`, a row for each item that was shown: an array, a pandas
        `DataFrame`, or a table with the Arrow interface.
      clicks: `[n]` feedback, 0 or 1 or any number of at least 0.
      positions: `[n]` where the items were shown, from 1; None if the rows of
        each request are in the order shown.
      group: ids of the requests, `[n]`, or their sizes; see above.
      contexts: `[n]` of what bias may depend on, such as the device, or None.
      sample_weight: `[n]` of at least 0, or None.

    Returns:
      This object.

    Raises:
      ValueError: if an argument is not as described, or there is nothing to
        learn from.
    """
    table = self._log(X, clicks, positions, group, contexts, sample_weight,
                      reset=True)
    names = sources.column_names(table)
    columns = LogColumns(
        _REQUEST, _POSITION, _CLICKS,
        tuple(name for name in names if name not in _ROLES),
        context=_CONTEXT if _CONTEXT in names else None,
        weight=_WEIGHT if _WEIGHT in names else None)
    method = choices.resolve_method(self.method)
    with read_click_log(
        table, columns, valid=self.valid, test=0, max_rejected=0,
        num_positions=self.num_positions) as log:
      training.check_can_teach(log)
      num_requests = len(log.parts["train"])
      batch_size = self.batch_size or training.default_batch_size(num_requests)
      steps = self.steps or training.default_steps(
          num_requests, batch_size, self.validate_every)
      settings = Settings(
          hidden_units=tuple(self.hidden_units),
          relevance_units=tuple(self.relevance_units),
          batch_size=batch_size, steps=steps,
          learning_rate=self.learning_rate, validate_every=self.validate_every)
      self.fitted_ = training.fit(
          log, method, settings, seed=self._seed(),
          verbose=self.verbose).settled()
    for sentence in click_prediction.warnings(self.fitted_.click_prediction):
      warnings.warn(sentence, stacklevel=2)
    return self

  def predict(self, X: Any) -> np.ndarray:
    """Ranks items by their features alone.

    Args:
      X: `[n, features]`, as in `fit`.

    Returns:
      `[n]` scores; in a request the highest one ranks first.

    Raises:
      ValueError: if the features are not those of `fit`.
    """
    validation.check_is_fitted(self, "fitted_")
    rows = self._features(X, reset=False)
    return new_rows.scores_of(
        self.fitted_, _with_columns(rows, {_REQUEST: np.zeros(len(rows), int)}))

  def score(self, X: Any, clicks: Any, *, positions: Any = None,
            group: Any = None, contexts: Any = None,
            sample_weight: Any = None) -> float:
    """How well the ranking does by clicks on the order that was shown.

    Args:
      X: as in `fit`, and so are the others, of requests that `fit` did not see.
      clicks: see there.
      positions: see there.
      group: see there.
      contexts: those of `fit` alone.
      sample_weight: see there.

    Returns:
      Self-normalised DCG@10 by the clicks with the bias of positions taken out:
      1 if all that was clicked ranks first, NaN without clicks. Values compare
      if the bias is the same, see `score_examination`.

    Raises:
      ValueError: if an argument is not as described.
    """
    validation.check_is_fitted(self, "fitted_")
    schema = self.fitted_.schema
    if (contexts is None) != (schema["columns"]["context"] is None):
      raise ValueError(
          "`contexts` must be given to both `fit` and `score`, or to none of "
          "them, since each context has a bias of its own.")
    table = self._log(X, clicks, positions, group, contexts, sample_weight,
                      reset=False)
    schema = {**schema, "columns": {
        **schema["columns"],
        "weight": None if sample_weight is None else _WEIGHT}}
    bias = self._judging_bias()
    with read_click_log(
        table, schema=schema, valid=0, test=0, max_rejected=0) as log:
      (dcg,), gain = held_out.judge(
          ([scoring.predict(self.fitted_.model, batch)[0]],
           *scoring.debiased_feedback(
               batch, bias, schema["feedback_kind"] == "binary"))
          for batch in log.parts["train"].batches(_BATCH))
    return Validation(dcg, gain, float("nan")).value

  @property
  def examination_(self) -> Optional[np.ndarray]:
    """`[C, K]`, see above."""
    bias = self.fitted_.bias
    return None if bias is None else (
        bias.click_relevant / bias.click_relevant[:, :1])

  @property
  def positions_(self) -> list[int]:
    """The positions, see above."""
    return self.fitted_.schema["positions"]

  def _judging_bias(self):
    """The `Bias` that `score` takes out of clicks, or None."""
    if self.score_examination is None:
      return self.fitted_.bias
    shape = (len(self.fitted_.schema["contexts"]), len(self.positions_))
    curves = np.broadcast_to(checks.check_table(
        "score_examination", at_most_one(self.score_examination), shape), shape)
    checks.check_values(
        "score_examination", curves, ~((curves > 0) & (curves <= 1)),
        "be numbers above 0", "give a curve by position")
    return Bias("score_examination", curves.astype(np.float64))

  def _seed(self):
    if isinstance(self.random_state, numbers.Integral):
      return int(self.random_state)
    return int(utils.check_random_state(self.random_state).randint(2**31 - 1))

  def _features(self, X, reset):
    """The features as a pandas `DataFrame` or a pyarrow table."""
    if not (sources.is_frame(X) or hasattr(X, "__arrow_c_stream__")):
      X = validation.validate_data(
          self, X, reset=reset, dtype=None, ensure_all_finite=False)
      return pa.table({f"x{i}": _array(f"X[:, {i}]", column)
                       for i, column in enumerate(X.T)})
    validation.validate_data(self, X, reset=reset, skip_check_array=True)
    rows = sources.in_memory(X, "X")
    if sources.is_frame(rows):
      rows = rows.set_axis(list(map(str, rows.columns)), axis=1)
    if not len(rows):
      raise ValueError("`X` has no row; give a row for each item shown.")
    taken = [name for name in _ROLES if name in sources.column_names(rows)]
    if taken:
      raise ValueError(
          f"`X` has a column {taken[0]!r}, a name that is needed here; rename "
          "it, or leave it out.")
    return rows

  def _log(self, X, clicks, positions, group, contexts, sample_weight, reset):
    """Features and what happened to the items in one table."""
    rows = self._features(X, reset)
    if clicks is None:
      raise ValueError(
          "`clicks` must be given: this estimator requires y to be passed, but "
          "the target y is None.")
    clicks = utils.column_or_1d(clicks, warn=True)
    clicks = _numbers("clicks", clicks, len(rows))
    checks.check_range("clicks", clicks, 0, None,
                       "leave out items that were not shown")
    ids = _request_ids(group, len(rows))
    requests = np.unique(ids, return_inverse=True)[1]
    if positions is None:
      positions = new_rows.ranks_within(requests, np.zeros(len(rows)))
    else:
      positions = _positions(positions, requests, ids)
    columns = {_REQUEST: ids, _POSITION: positions, _CLICKS: clicks}
    if contexts is not None:
      columns[_CONTEXT] = _vector("contexts", contexts, len(rows))
    if sample_weight is not None:
      columns[_WEIGHT] = _numbers("sample_weight", sample_weight, len(rows))
      checks.check_range("sample_weight", columns[_WEIGHT], 0, None,
                         "give each row a weight")
      if not columns[_WEIGHT].any():
        raise ValueError("`sample_weight` must be above 0 in some row, but is "
                         "zero in all; leave it out, and all count alike.")
    return _with_columns(rows, columns)


def _with_columns(rows, columns):
  """A frame or a table with more columns."""
  if sources.is_frame(rows):
    return rows.assign(**columns)
  for name, values in columns.items():
    rows = rows.append_column(name, _array(name.lstrip("_"), values))
  return rows


def _array(name, values):
  """A pyarrow array of a vector."""
  try:
    found = pa.array(values.tolist() if values.dtype == object else values)
    if not values_lib.is_number_or_text(found.type):
      raise TypeError(f"its values are of the type {found.type}")
    return found
  except (pa.ArrowException, OverflowError, TypeError) as error:
    raise ValueError(
        f"`{name}` must be numbers or texts, but is neither ({error}); give "
        "all its values one type.") from error


def _vector(name, values, length):
  """`[n]` values of any type."""
  values = np.asarray(values)
  checks.check_shape(name, values, (length,), "a value for each row of `X`")
  return values


def _numbers(name, values, length):
  """`[n]` float64."""
  values = _vector(name, values, length)
  try:
    return values.astype(np.float64)
  except (TypeError, ValueError) as error:
    raise ValueError(
        f"`{name}` must be numbers, but {error}; convert them first."
    ) from error


def _request_ids(group, length):
  """`[n]` ids of the requests."""
  if group is None:
    raise ValueError(
        "`group` must be given: an id of the request for each row, or the "
        "sizes of the requests. (In a search turn on metadata routing by "
        "sklearn.set_config(enable_metadata_routing=True).)")
  group = np.asarray(group)
  if group.ndim != 1 or not len(group):
    raise ValueError(
        "`group` must be a vector, of an id for each row or of sizes, but has "
        f"the shape {list(group.shape)}; give one of them.")
  are_whole = group.dtype.kind in "iu"
  if len(group) == length:
    if are_whole and length > 1 and (group == 1).all():
      raise ValueError(
          f"`group` is 1 for each of the {length} rows, which may be one "
          "request or as many of a single row; give an id for each row, such "
          "as 0, if it is one.")
    if any(one is None or one != one for one in group.tolist()):
      raise ValueError(
          "`group` must say the request of each row, but is missing in some; "
          "leave those rows out.")
    if group.dtype == object:
      group = _of_one_type(group)
    return group
  if are_whole and (group >= 1).all() and group.sum() == length:
    return np.repeat(np.arange(len(group)), group)
  sizes = f" that sum to {group.sum()}" if are_whole else ""
  raise ValueError(
      f"`group` must be an id for each of the {length} rows, or whole numbers "
      f"from 1, sizes of requests that sum to {length}, but has {len(group)} "
      f"entries{sizes}; give one of both.")


def _of_one_type(group):
  kinds = {type(one) for one in group}
  if len(kinds) == 1:
    group = np.array(group.tolist())
  if group.dtype.kind not in "iufUb":
    raise ValueError(
        "`group` must hold ids that are all numbers or all texts, but has "
        f"{', '.join(sorted(kind.__name__ for kind in kinds))}; convert them.")
  return group


def _positions(positions, requests, ids):
  """`[n]` int64, each once in its request."""
  values = _numbers("positions", positions, len(requests))
  checks.check_values("positions", values, ~(
      (values >= 1) & (values < 2**31) & (values == np.floor(values))),
                      "be whole numbers from 1", "count them from 1")
  values = values.astype(np.int64)
  order = np.lexsort((values, requests))
  again = (np.diff(requests[order]) == 0) & (np.diff(values[order]) == 0)
  if again.any():
    row = order[np.flatnonzero(again)[0] + 1]
    raise ValueError(
        f"`positions` must differ within a request, but {values[row]} comes "
        f"twice in that of `group` {ids[row]}; give each showing of a list an "
        "id of its own.")
  return values
