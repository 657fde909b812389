"""Feedback written as an expression of a log's columns, for command lines.

    click + 0.5 * log1p(dwell_seconds)
    where(action in ("buy", "cart"), 2, click) / col("price in $")

An expression is read into a tree of a few operations, which NumPy evaluates on
whole arrays; no text is ever run as code. It can be made of:

  numbers     1, .5, 1e3; arithmetic + - * / **
  columns     by name; col("any name") for names that are no identifiers
  conditions  < <= > >= == != (also chained), and, or, not: 1 if true, else 0;
              as a condition, any number but 0 is true
  choice      a if condition else b, or where(condition, a, b)
  functions   abs, clip, coalesce, exp, floor, isnull, log, log1p, max, min,
              sqrt
  text        action == "buy", action != "buy", action in ("buy", "cart"),
              action not in ("buy", "cart")

NaN means "missing", and so does None in a column of text. What is computed
from a missing value is missing, conditions included: `0 and x` is missing where
x is. Exceptions are isnull(x), which is 1 or 0, coalesce(x, default), and the
branch that a choice does not take.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from ultra_tfr.data.click_log import expression_parser

# Bounds the memory of intermediate results, and keeps them in the cache.
_BLOCK_ROWS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Expression:
  """Feedback as an expression of columns; the module says what it can be.

  Attributes:
    text: the expression, at most 2000 characters; spaces around it are cut.

  Raises:
    ValueError: if the text is no expression as above, names no column, or is
      too long or too deeply nested. The message shows the place.

  Example:
    >>> import numpy as np
    >>> feedback = Expression('click + 0.5 * (action == "buy")')
    >>> feedback.columns
    ('click', 'action')
    >>> feedback({"click": np.array([1., 0., np.nan]),
    ...           "action": np.array(["buy", "view", "buy"])}).tolist()
    [1.5, 0.0, nan]
    >>> Expression("2 * click.real")
    Traceback (most recent call last):
    ...
    ValueError: `text` has a node of type Attribute, see character 5; ...
      2 * click.real
          ^
  """

  text: str

  def __post_init__(self):
    if not isinstance(self.text, str):
      raise ValueError(
          '`text` must be a string, such as "click + 0.5 * dwell", but is '
          f"{self.text!r}.")
    object.__setattr__(self, "text", self.text.strip())
    object.__setattr__(self, "_parser", expression_parser.Parser(self.text))

  @property
  def columns(self) -> tuple[str, ...]:
    """The names of the columns, in the order of their first appearance."""
    return tuple(self._parser.columns)

  @property
  def text_columns(self) -> tuple[str, ...]:
    """The names of the columns that are compared with text."""
    return tuple(self._parser.as_text)

  def __call__(self, columns: Mapping[str, Any]) -> np.ndarray:
    """Evaluates the expression for all rows.

    Args:
      columns: `[rows]` arrays by name, at least those that the expression
        names: numbers with NaN, or text with None, where a value is missing.
        A column without any value may be either.

    Returns:
      float64 `[rows]`, NaN where missing. The logarithm of 0, a division by 0
      and the like silently give infinities and NaN: check what comes out.

    Raises:
      ValueError: if a column is not there, is not 1-D, differs in length, or
        holds text where numbers are needed, or numbers where text is.
    """
    arrays = {name: self._read(columns, name) for name in self.columns}
    first = self.columns[0]
    rows = len(arrays[first][0])
    for name, (numbers, _) in arrays.items():
      if len(numbers) != rows:
        raise ValueError(
            f"All `columns` must have one length, but {first!r} has {rows} "
            f"rows and {name!r} has {len(numbers)}; give one value a row.")
    result = np.empty(rows)
    with np.errstate(all="ignore"):
      for start in range(0, rows, _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        result[block] = expression_parser.evaluate(self._parser.tree, {
            name: (numbers[block], texts[block])
            for name, (numbers, texts) in arrays.items()})
    return result

  def get_config(self) -> dict[str, Any]:
    """Returns the constructor's argument in a plain dict."""
    return dataclasses.asdict(self)

  @classmethod
  def from_config(cls, config: Mapping[str, Any]) -> "Expression":
    """Rebuilds what `get_config` described."""
    return cls(**config)

  def _read(self, columns, name) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers and texts of a column, as `evaluate` takes them."""
    parser = self._parser
    if name not in columns:
      raise expression_parser.error(
          self.text, parser.columns[name],
          f"names the column {name!r}, which is not there",
          f"the `columns` are {', '.join(sorted(map(repr, columns)))}")
    array = np.asarray(columns[name])
    if array.ndim != 1 or array.dtype.kind not in "biufOU":
      raise ValueError(
          f"The column {name!r} must be a 1-D array of numbers or text, but "
          f"has the shape {list(array.shape)} and the dtype {array.dtype}; "
          "convert it.")
    if array.dtype.kind in "OU":
      texts = array.astype(object, copy=False)
      missing = np.equal(texts, None) | np.not_equal(texts, texts)
      if name in parser.as_number and not missing.all():
        raise expression_parser.error(
            self.text, parser.as_number[name],
            f"computes with the column {name!r}, which holds text such as "
            f"{texts[~missing][0]!r:.40}", expression_parser.TEXT_REMEDY)
      return np.where(missing, np.nan, 0.), texts
    numbers = array.astype(np.float64, copy=False)
    if name in parser.as_text and not np.isnan(numbers).all():
      raise expression_parser.error(
          self.text, parser.as_text[name],
          f"compares the column {name!r}, which holds numbers, with text",
          "compare it with numbers, as in x == 1 or x == 2")
    return numbers, np.broadcast_to(np.array(None), numbers.shape)
