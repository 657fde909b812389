"""The operations that an expression is made of, and their evaluation.

A tree is made of the named tuples below, with Python floats for constants. In
all operations NaN means "missing", and what is computed from a missing value is
missing, except where the operation is about missing values.
"""

import ast
from collections.abc import Mapping
import functools
from typing import Any
from typing import NamedTuple

import numpy as np


class Column(NamedTuple):
  """The numbers of a column."""
  name: str


class OneOf(NamedTuple):
  """Whether a column of text has one of these values: 1 or 0."""
  column: str
  texts: tuple


class Chain(NamedTuple):
  """Comparisons such as a < b <= c, by keys of OPERATORS: 1 or 0."""
  operators: tuple
  operands: tuple


class Apply(NamedTuple):
  """An operation, by its key in OPERATORS (a type) or FUNCTIONS (a name)."""
  operation: Any
  operands: tuple


def _strict(function):
  """Makes the result of a NumPy function missing where any argument is."""
  def strict(*arguments):
    missing = functools.reduce(np.logical_or, map(np.isnan, arguments))
    return np.where(missing, np.nan, function(*arguments))
  return strict


def _folded(function):
  """Makes a function of two arguments one of any number."""
  return lambda *arguments: functools.reduce(function, arguments)


def _choose(condition, yes, no):
  return np.where(
      np.isnan(condition), np.nan, np.where(condition != 0., yes, no))


# By type of AST node.
OPERATORS = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    # In NumPy, NaN to the power 0 and 1 to the power NaN are 1.
    ast.Pow: _strict(np.power),
    ast.UAdd: np.positive,
    ast.USub: np.negative,
    ast.Not: _strict(np.logical_not),
    ast.And: _folded(_strict(np.logical_and)),
    ast.Or: _folded(_strict(np.logical_or)),
    ast.Lt: _strict(np.less),
    ast.LtE: _strict(np.less_equal),
    ast.Gt: _strict(np.greater),
    ast.GtE: _strict(np.greater_equal),
    ast.Eq: _strict(np.equal),
    ast.NotEq: _strict(np.not_equal),
}
# By name, with the names of the arguments; "..." stands for any number more.
FUNCTIONS = {
    "abs": (np.abs, ("x",)),
    "clip": (np.clip, ("x", "low", "high")),
    "coalesce": (
        lambda x, default: np.where(np.isnan(x), default, x), ("x", "default")),
    "exp": (np.exp, ("x",)),
    "floor": (np.floor, ("x",)),
    "isnull": (lambda x: np.isnan(x).astype(np.float64), ("x",)),
    "log": (np.log, ("x",)),
    "log1p": (np.log1p, ("x",)),
    "max": (_folded(np.maximum), ("x", "y", "...")),
    "min": (_folded(np.minimum), ("x", "y", "...")),
    "sqrt": (np.sqrt, ("x",)),
    "where": (_choose, ("condition", "a", "b")),
}


def evaluate(node, columns: Mapping[str, tuple[np.ndarray, np.ndarray]]):
  """Computes the values of a tree.

  Args:
    node: the tree.
    columns: by name, the `[rows]` float64 numbers and the `[rows]` texts. The
      numbers of a column of text are NaN where it is missing, and else 0.

  Returns:
    float64 `[rows]`, or a number for a tree without columns.

  Example:
    >>> import numpy as np
    >>> double = Apply(ast.Mult, (2., Column("dwell")))
    >>> evaluate(double, {"dwell": (np.array([1., np.nan]), None)}).tolist()
    [2.0, nan]
  """
  if isinstance(node, float):
    return node
  if isinstance(node, Column):
    return columns[node.name][0]
  if isinstance(node, OneOf):
    numbers, texts = columns[node.column]
    found = functools.reduce(
        np.logical_or, (texts == text for text in node.texts))
    return np.where(np.isnan(numbers), np.nan, found)
  operands = [evaluate(operand, columns) for operand in node.operands]
  if isinstance(node, Chain):
    return OPERATORS[ast.And](*[
        OPERATORS[operator](left, right) for operator, left, right
        in zip(node.operators, operands, operands[1:])])
  if node.operation in OPERATORS:
    return OPERATORS[node.operation](*operands)
  return FUNCTIONS[node.operation][0](*operands)
