"""Reads the text of an expression into a tree of known operations.

`expressions` says what can be written. Python's own parser reads the text; of
what it finds only the node types named here come through, and nothing is run.
"""

import ast
from collections.abc import Mapping
import functools
import math
from typing import Any
from typing import NamedTuple
import warnings

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

_MAX_CHARACTERS = 2000
_MAX_PARTS = 500
# Four calls a level: well below Python's limit of recursion.
_MAX_LEVELS = 100
_SHOWN_CHARACTERS = 70
_ALLOWED = (
    "allowed are numbers, names of columns, + - * / **, < <= > >= == !=, in, "
    'and, or, not, `a if condition else b`, col("any name") and the functions '
    + ", ".join(FUNCTIONS))
_TOO_MUCH = "write less, or add a column to the log"
TEXT_REMEDY = (
    "text can only be compared with a column of text, as in action == "
    '"buy" or action in ("buy", "cart"); compare with numbers by ==')


def error(text, place, problem, remedy=_ALLOWED) -> ValueError:
  """Returns an error that shows a place in the text, counted from 0."""
  start = max(0, min(place - _SHOWN_CHARACTERS // 2,
                     len(text) - _SHOWN_CHARACTERS))
  end = start + _SHOWN_CHARACTERS
  before = "..." * (start > 0)
  return ValueError(
      f"`text` {problem}, see character {place + 1}; {remedy}:\n"
      f"  {before}{text[start:end]}{'...' * (end < len(text))}\n"
      f"  {' ' * (len(before) + place - start)}^")


class Parser:
  """A text as a tree.

  Attributes:
    tree: the tree, for `evaluate`.
    columns: by name of a column, the place in the text where it first appears.
    as_number: the same for columns that must hold numbers.
    as_text: the same for columns that must hold text.

  Raises:
    ValueError: if the text is not as `expressions` describes.

  Example:
    >>> parser = Parser("2 * click")
    >>> parser.tree.operands
    (2.0, Column(name='click'))
    >>> parser.columns
    {'click': 4}
  """

  def __init__(self, text):
    self._text = text
    self._parts = 0
    self._levels = 0
    self.columns = {}
    self.as_number = {}
    self.as_text = {}
    self.tree = self._node(_parse(text))
    if not self.columns:
      raise error(
          text, 0, "names no column",
          "feedback must depend on the log, as in click + 0.5 * dwell")

  def _error(self, node, problem, remedy=_ALLOWED) -> ValueError:
    return error(self._text, self._place(node.col_offset), problem, remedy)

  def _place(self, offset) -> int:
    # Python's offsets count bytes.
    return len(self._text.encode()[:offset].decode())

  def _node(self, node):
    """Reads a node that stands for numbers."""
    self._parts += 1
    if self._parts > _MAX_PARTS or self._levels == _MAX_LEVELS:
      raise self._error(
          node, f"has over {_MAX_PARTS} parts or is over {_MAX_LEVELS} levels "
          "deep", _TOO_MUCH)
    if type(node) not in self._READERS:
      raise self._error(node, f"has a node of type {type(node).__name__}")
    self._levels += 1
    result = self._READERS[type(node)](self, node)
    self._levels -= 1
    return result

  def _nodes(self, *nodes) -> tuple:
    return tuple(map(self._node, nodes))

  def _constant(self, node) -> float:
    if isinstance(node.value, str):
      raise self._error(node, f"has the text {node.value!r}", TEXT_REMEDY)
    if type(node.value) not in (int, float):
      raise self._error(node, f"has the constant {node.value!r}")
    try:
      number = float(node.value)
    except OverflowError:
      number = math.inf
    if number == math.inf:
      raise self._error(
          node, "has a number above 1.7e308", "write a smaller one")
    return number

  def _name(self, node) -> Column:
    return Column(self._column(node, self.as_number))

  def _column(self, node, uses) -> str:
    """Returns the name of a column, and notes the use made of it."""
    if isinstance(node, ast.Call):
      self._identifier(node.func)
      if len(node.args) != 1 or node.keywords or not _is_text(node.args[0]):
        raise self._error(
            node, "calls col without a name", 'write col("any name")')
      name = node.args[0].value
    else:
      name = self._identifier(node)
      problem = None
      if name == "col" or name in FUNCTIONS:
        problem = f"names the function {name}, but does not call it"
      elif name.startswith("__") and name.endswith("__"):
        problem = f"has the name {name}, which Python reserves"
      if problem:
        raise self._error(
            node, problem, f'write col("{name}") if it is a column')
    for noted in (self.columns, uses):
      noted.setdefault(name, self._place(node.col_offset))
    return name

  def _identifier(self, node) -> str:
    """Returns a name, if Python reads it as it is written.

    Python takes a letter for its "compatible" one, such as a wide m for an m:
    the name would be another column's, or a function's, than it looks like.
    """
    written = self._text[
        self._place(node.col_offset):self._place(node.end_col_offset)]
    if written != node.id:
      raise self._error(
          node, f"has the name {written}, which Python reads as {node.id}",
          f'write col("{written}") if it is a column')
    return node.id

  def _unary(self, node) -> Apply:
    return self._apply(node.op, node.col_offset, node.operand)

  def _binary(self, node) -> Apply:
    return self._apply(
        node.op, node.left.end_col_offset, node.left, node.right)

  def _logical(self, node) -> Apply:
    return self._apply(node.op, node.col_offset, *node.values)

  def _apply(self, operator, offset, *operands) -> Apply:
    self._check_operator(operator, offset)
    return Apply(type(operator), self._nodes(*operands))

  def _check_operator(self, operator, offset):
    """Refuses an unknown operator, which comes at or after an offset."""
    if type(operator) not in (*OPERATORS, ast.In, ast.NotIn):
      rest = self._text[self._place(offset):].lstrip(" )")
      raise error(self._text, len(self._text) - len(rest),
                  f"has the operator {type(operator).__name__}")

  def _choice(self, node) -> Apply:
    # Read in the order of the text, which is that of `columns`.
    yes, condition, no = self._nodes(node.body, node.test, node.orelse)
    return Apply("where", (condition, yes, no))

  def _comparison(self, node):
    operands = (node.left, *node.comparators)
    for operator, left in zip(node.ops, operands):
      self._check_operator(operator, left.end_col_offset)
    operators = tuple(map(type, node.ops))
    if not {ast.In, ast.NotIn}.isdisjoint(operators) or any(
        map(_is_text, operands)):
      return self._text_comparison(node, operators, operands)
    return Chain(operators, self._nodes(*operands))

  def _text_comparison(self, node, operators, operands):
    column, *texts = operands
    if operators in [(ast.In,), (ast.NotIn,)]:
      texts = texts[0].elts if isinstance(
          texts[0], (ast.Tuple, ast.List)) else []
    elif operators not in [(ast.Eq,), (ast.NotEq,)]:
      texts = []
    elif _is_text(column):
      column, texts = texts[0], [column]
    if not (texts and all(map(_is_text, texts)) and _is_column(column)):
      raise self._error(node, "has an unknown comparison of text", TEXT_REMEDY)
    found = OneOf(
        self._column(column, self.as_text), tuple([t.value for t in texts]))
    if operators[0] in (ast.NotEq, ast.NotIn):
      return Apply(ast.Not, (found,))
    return found

  def _call(self, node):
    if not isinstance(node.func, ast.Name):
      raise self._error(
          node, f"calls a node of type {type(node.func).__name__}")
    name = self._identifier(node.func)
    if name == "col":
      return self._name(node)
    if name not in FUNCTIONS:
      raise self._error(node, f"calls {name}, which is no function")
    _, names = FUNCTIONS[name]
    count = len(node.args)
    right = count >= len(names) - 1 if "..." in names else count == len(names)
    if not right or node.keywords:
      raise self._error(
          node, f"calls {name} with other arguments than it has",
          f"write {name}({', '.join(names)})")
    if name == "isnull" and _is_column(node.args[0]):
      # The column may be of any kind: missing texts are NaN as numbers, too.
      operands = Column(self._column(node.args[0], {})),
    else:
      operands = self._nodes(*node.args)
    return Apply(name, operands)

  _READERS = {
      ast.BinOp: _binary,
      ast.BoolOp: _logical,
      ast.Call: _call,
      ast.Compare: _comparison,
      ast.Constant: _constant,
      ast.IfExp: _choice,
      ast.Name: _name,
      ast.UnaryOp: _unary,
  }


def _parse(text) -> ast.AST:
  # Null bytes, line breaks, lone surrogates, and marks that turn text around.
  shown = "".join(
      c if c.isprintable() else "?" for c in text[:_MAX_CHARACTERS])
  if len(text) > _MAX_CHARACTERS:
    raise error(
        shown, _MAX_CHARACTERS,
        f"has {len(text)} characters, over {_MAX_CHARACTERS}", _TOO_MUCH)
  for place, (character, printable) in enumerate(zip(text, shown)):
    if character != printable:
      raise error(
          shown, place, f"has the unprintable character {character!r}",
          r'write one line, and escapes in quotes, as in col("a\tb")')
  try:
    with warnings.catch_warnings():
      # Python warns of `1if click else 0` and the like.
      warnings.simplefilter("ignore")
      return ast.parse(text, mode="eval").body
  except SyntaxError as reason:
    # Python's second sentence suggests things that are not allowed here.
    problem = f"cannot be read ({reason.msg.partition('. ')[0]})"
    # 0 or None is the end, and Python may count a line break after it.
    place = min((reason.offset or len(text) + 1) - 1, len(text))
  except (RecursionError, MemoryError):
    problem, place = "is nested too deeply", 0
  raise error(text, place, problem)


def _is_text(node) -> bool:
  return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_column(node) -> bool:
  return isinstance(node, ast.Name) or (
      isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
      and node.func.id == "col")
