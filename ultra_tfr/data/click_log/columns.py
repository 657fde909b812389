"""Which column of a click log means what."""

import dataclasses
import fnmatch
from typing import Any
from typing import Callable
from typing import Optional
from typing import Union

from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import elwc_rows
from ultra_tfr.data.click_log.expressions import Expression

# Row numbers that pandas writes, or makes of what it wrote; no pattern is meant
# to match them.
_ROW_NUMBERS = ("", "__index_level_*__", "Unnamed: *")


@dataclasses.dataclass(frozen=True)
class LogColumns:
  """The roles of a log's columns.

  A column with a role is never a feature, even where a pattern such as `*`
  matches it: the model must see neither the position nor the feedback.

  Attributes:
    query: the request (one ranked list shown to one user) that a row is of;
      several columns tell it together. In ELWC files "(record)" stands for the
      number of the record.
    position: where the item was displayed: a number, or the name of a slot. In
      ELWC files "(place)" stands for the item's place in the record, from 1.
    feedback: an expression over columns, such as "click + 0.5*log1p(dwell)"
      (see `data.click_log.expressions`), or a function from a dict of `[rows]`
      arrays by name to `[rows]`. The dict has all columns of numbers or texts
      that have no role and are no features.
    features: names, or patterns such as "f_*". Name nothing that is known only
      after the display. A feature is a text if its stored type says so: texts
      and dictionaries in Parquet and Arrow, `str` and `category` in pandas. In
      other files, such as CSV, it is a text if more than a tenth of its first
      values (1,000 or more) are no numbers. If most of them are numbers all the
      same, that is an error, which `text` or `numbers` settles.
    context: something that bias may depend on, such as the device.
    item: what identifies the item; several columns identify it together. An
      item should be equally relevant wherever it occurs: if that depends on a
      query text, name that column too. An item column may be a feature as well,
      if `features` names it.
    weight: of the row in training and evaluation, at least 0.
    timestamp: seconds since 1970, a date, or text such as 2026-01-31,
      2026-01-31T12:00:00.5Z or 2026-01-31 12:00:00 -07:00, in UTC where it has
      no zone; with it the parts are split by time.
    randomized: true where the row's request was shown in random order.
    text: features that are texts, whatever they look like; names or patterns.
    numbers: features that are numbers, likewise: rows with anything else are
      rejected.

  Raises:
    ValueError: if a role is missing, or a column has two of them.

  >>> columns = LogColumns("request_id", "rank", "click", ("f_*", "brand"))
  >>> columns.resolve(["request_id", "rank", "click", "f_1", "f_2", "brand"])
  ('f_1', 'f_2', 'brand')
  """

  query: Union[str, tuple[str, ...]]
  position: str
  feedback: Union[str, Callable[[dict[str, Any]], Any]]
  features: tuple[str, ...] = ()
  context: Optional[str] = None
  item: tuple[str, ...] = ()
  weight: Optional[str] = None
  timestamp: Optional[str] = None
  randomized: Optional[str] = None
  text: tuple[str, ...] = ()
  numbers: tuple[str, ...] = ()

  def __post_init__(self):
    for name in ("features", "item", "text", "numbers"):
      value = getattr(self, name)
      value = (value,) if isinstance(value, str) else tuple(value)
      object.__setattr__(self, name, value)
    if isinstance(self.query, (list, tuple)):
      object.__setattr__(self, "query", self.query[0] if len(
          self.query) == 1 else tuple(self.query))
    for name, names in (("query", self.query_columns),
                        ("position", (self.position,))):
      if not names or not all(isinstance(part, str) for part in names):
        raise ValueError(f"`{name}` must be the name of a column, but is "
                         f"{getattr(self, name)!r}.")
    self.expression()
    seen = {}
    for role, column in self._named_roles():
      # An item may well be identified by a context.
      if role != "item" and column in seen:
        raise ValueError(
            f"The column {column!r} cannot be both `{seen[column]}` and "
            f"`{role}`; name another column.")
      if role != "item":
        seen[column] = role

  @property
  def query_columns(self) -> tuple[Any, ...]:
    """The columns that tell the request."""
    return self.query if isinstance(self.query, tuple) else (self.query,)

  def expression(self):
    """The `Expression` of the feedback, or the user's function."""
    if callable(self.feedback):
      return self.feedback
    return Expression(self.feedback)

  def feedback_columns(self, available):
    """Columns that the feedback is made from.

    Args:
      available: the names of the log's columns.

    Returns:
      A tuple of names. For a user's function these are all columns that have no
      role and are no features, since a column that it reads must not be one.

    Raises:
      ValueError: if none is left.
    """
    expression = self.expression()
    if isinstance(expression, Expression):
      return expression.columns
    taken = {column for _, column in self._named_roles()}
    taken.update(self.resolve(available))
    left = tuple(name for name in available if name not in taken)
    if not left:
      raise ValueError(
          "`features` leaves no column to the function `feedback`; name the "
          "features alone, for example by a pattern such as 'f_*'.")
    return left

  def resolve(self, available):
    """Finds the features.

    Args:
      available: the names of the log's columns.

    Returns:
      The names of the feature columns, in the order of the log.

    Raises:
      ValueError: if a column is missing, a pattern matches nothing, or a
        column with a role is named as a feature.
    """
    available = list(available)
    roles = {}
    for role, column in self._named_roles():
      roles.setdefault(column, role)
    expression = self.expression()
    if isinstance(expression, Expression):
      for column in expression.columns:
        if roles.get(column, "item") == "item":
          roles[column] = "feedback"
    for column, role in roles.items():
      if column not in available:
        raise ValueError(
            f"The log has no column {column!r}, which `{role}` names; its "
            f"columns are {batches.in_one_line(available)}.")
    roles = {elwc_rows.RECORD: "query", elwc_rows.PLACE: "position", **roles}
    chosen = set()
    for pattern in self.features:
      if roles.get(pattern, "item") != "item":
        raise ValueError(
            f"`features` names {pattern!r}, which is the `{roles[pattern]}`; "
            "a model that sees it could not be served, or would learn the "
            "bias. Leave it out.")
      found = [pattern] if pattern in available else [
          name for name in available if name not in roles and
          fnmatch.fnmatchcase(name, pattern) and not any(
              fnmatch.fnmatchcase(name, other) for other in _ROW_NUMBERS)]
      if not found:
        raise ValueError(
            f"`features` has {pattern!r}, which matches no column; the columns "
            "without another role are "
            f"{', '.join(n for n in available if n not in roles)}.")
      chosen.update(found)
    return tuple(name for name in available if name in chosen)

  def declared(self, available):
    """What `text` and `numbers` say of features.

    Args:
      available: the names of the log's columns.

    Returns:
      A dict from names of features to whether they are texts.

    Raises:
      ValueError: if a pattern matches no feature, or one is said to be both.
    """
    features, found = self.resolve(available), {}
    for role, is_text in (("text", True), ("numbers", False)):
      for pattern in getattr(self, role):
        matched = [pattern] if pattern in features else fnmatch.filter(
            features, pattern)
        if not matched:
          raise ValueError(
              f"`{role}` has {pattern!r}, which matches no feature; they are "
              f"{', '.join(features)}.")
        for name in matched:
          if found.setdefault(name, is_text) != is_text:
            raise ValueError(f"The feature {name!r} cannot be both `text` and "
                             "`numbers`; name it in one of them.")
    return found

  def needed(self, available):
    """All columns that must be read, in the order of the log."""
    wanted = {column for _, column in self._named_roles()}
    wanted.update(self.resolve(available))
    wanted.update(self.feedback_columns(available))
    return tuple(name for name in available if name in wanted)

  def _named_roles(self):
    """Yields (role, column) of all roles but features and feedback."""
    for column in self.query_columns:
      yield "query", column
    for role in ("position", "context", "weight", "timestamp", "randomized"):
      if getattr(self, role) is not None:
        yield role, getattr(self, role)
    for column in self.item:
      yield "item", column

  def get_config(self):
    """The arguments, ready for JSON.

    Raises:
      ValueError: if the feedback is a function, which JSON cannot hold.
    """
    if callable(self.feedback):
      raise ValueError(
          "`feedback` is a function, which cannot be saved with a model; give "
          "an expression, such as 'click + 0.5*log1p(dwell)'.")
    config = dataclasses.asdict(self)
    return {name: list(value) if isinstance(value, tuple) else value
            for name, value in config.items()}

  @classmethod
  def from_config(cls, config):
    """Rebuilds what `get_config` described."""
    return cls(**config)
