"""Tests of ultra_tfr.data.click_log.expressions."""

import copy
import dataclasses
import json
import math
import operator
import warnings

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from ultra_tfr.data.click_log import expressions
from ultra_tfr.data.click_log.expressions import Expression

NAN = math.nan
LOG = {
    "click": np.array([True, False, True]),
    "dwell": np.array([4., 0., NAN]),
    "grade": np.array([3, 1, 2]),
    "action": np.array(["buy", None, "view"], dtype=object),
    "price in $": np.array([2., 5., 1.], dtype=np.float32),
}


@pytest.mark.parametrize("text, expected", [
    ("click + .5 * log1p(dwell)", [1 + .5 * math.log(5), 0, NAN]),
    ("click + click", [2, 0, 2]),
    ("-click", [-1, 0, -1]),
    ("grade - 1 - 1", [1, -1, 0]),
    ("grade / 2 / 2", [.75, .25, .5]),
    ("-grade ** 2", [-9, -1, -4]),
    ("2 ** grade ** 2", [512, 2, 16]),
    ("not grade == 3", [0, 1, 1]),
    ("grade > 1 and click or grade == 1", [1, 1, 1]),
    ("col('price in $') * grade", [6, 5, 2]),
    ("3 if action == 'buy' else 1 if action == 'view' else 0", [3, NAN, 1]),
    ("action in ('buy', 'cart')", [1, NAN, 0]),
    ("isnull(action) + 2 * isnull(dwell)", [0, 1, 2]),
    ("isnull(action == 'buy')", [0, 1, 0]),
    ("coalesce(action == 'view', click)", [0, 0, 1]),
    # Both branches are computed, the condition decides.
    ("where(dwell > 0, log(dwell), -1)", [math.log(4), -1, NAN]),
    ("where(isnull(dwell), grade, dwell)", [4, 0, 2]),
    # Missing wins over everything.
    ("dwell ** 0", [1, 1, NAN]),
    ("1 ** dwell", [1, 1, NAN]),
    ("0 and dwell", [0, 0, NAN]),
    ("1 or dwell", [1, 1, NAN]),
    ("not dwell", [0, 1, NAN]),
    ("dwell != dwell", [0, 0, NAN]),
    ("0 < 9 < dwell", [0, 0, NAN]),
    ("min(dwell, 1)", [1, 0, NAN]),
    ("clip(grade, dwell, 9)", [4, 1, NAN]),
    # Not finite, without a warning.
    ("log(dwell)", [math.log(4), -math.inf, NAN]),
    ("grade / dwell", [.75, math.inf, NAN]),
    ("sqrt(1 - grade)", [NAN, 0, NAN]),
    ("exp(1000 * click)", [math.inf, 1, math.inf]),
    ("click + 9**9**9", [math.inf] * 3),
])
def test_values(text, expected):
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    result = Expression(text)(LOG)
  assert result.dtype == np.float64
  np.testing.assert_allclose(result, expected, rtol=1e-15)


# A plain-Python oracle. Trees are pairs of a text and a function of a row (a
# dict), which returns a number, or None for missing.


def _lift(function):
  def lifted(*values):
    if None in values:
      return None
    result = float(function(*values))
    return None if math.isnan(result) else result
  return lifted


def _call(template, function, *trees):
  """Fills the trees into a text, and applies a function to their values."""
  return (template.format(*(text for text, _ in trees)),
          lambda row: function(*(value(row) for _, value in trees)))


def _where(condition, yes, no):
  return None if condition is None else yes if condition else no


def _log(x):
  return math.log(x) if x > 0 else -math.inf if x == 0 else NAN


def _exp(x):
  return math.exp(x) if x < 709 else math.inf


def _divide(x, y):
  # Zeros are positive.
  return x / y if y else math.copysign(math.inf, x) if x else NAN


def _power(x, y):
  try:
    return math.pow(x, y)
  except OverflowError:
    return -math.inf if x < 0 and y % 2 == 1 else math.inf
  except ValueError:
    return NAN if x else math.inf


def _extend(table, trees):
  return st.one_of([
      st.tuples(*[trees] * template.count("{")).map(
          lambda parts, t=template, f=function: _call(t, f, *parts))
      for template, function in table.items()])


def _on_text(template, function):
  return template, lambda row: (
      None if row["s"] is None else float(function(row["s"])))


_TEXT = st.sampled_from([
    _on_text("(s == 'buy')", lambda s: s == "buy"),
    _on_text("('buy' != s)", lambda s: s != "buy"),
    _on_text("(col('s') in ['buy', 'cart'])", lambda s: s in ("buy", "cart")),
    _on_text("(s not in ('buy',))", lambda s: s != "buy"),
    ("isnull(s)", lambda row: float(row["s"] is None))])
_NUMBERS = st.sampled_from(["0", "1", "2.5", "3e0", ".5"]).map(
    lambda text: (text, lambda row: float(text)))
_COLUMNS = st.sampled_from([
    ("a", lambda row: row["a"]), ("col('b c')", lambda row: row["b c"])])
# Of small numbers, Python and NumPy compute these exactly.
_EXACT = st.recursive(_COLUMNS | _TEXT | _NUMBERS, lambda trees: _extend({
    "({} + {})": _lift(operator.add),
    "({} - {})": _lift(operator.sub),
    "({} * {})": _lift(operator.mul),
    "(-{})": _lift(operator.neg),
    "(+{})": _lift(operator.pos),
    "({} < {})": _lift(operator.lt),
    "({} <= {})": _lift(operator.le),
    "({} > {})": _lift(operator.gt),
    "({} >= {})": _lift(operator.ge),
    "({} == {})": _lift(operator.eq),
    "({} != {})": _lift(operator.ne),
    "({} < {} >= {} != {})": _lift(lambda x, y, z, u: x < y >= z != u),
    "({} and {} and {})": _lift(lambda x, y, z: bool(x and y and z)),
    "({} or {})": _lift(lambda x, y: bool(x or y)),
    "(not {})": _lift(operator.not_),
    "abs({})": _lift(abs),
    "floor({})": _lift(math.floor),
    "min({}, {})": _lift(min),
    "max({}, {}, {})": _lift(max),
    "clip({}, {}, {})": _lift(lambda x, low, high: min(max(x, low), high)),
    "({1} if {0} else {2})": _where,
    "where({}, {}, {})": _where,
    "coalesce({}, {})": lambda x, default: default if x is None else x,
    "isnull({})": lambda x: float(x is None),
}, trees), max_leaves=8)
# These may differ in the last digit, which nothing here makes larger; `+ 0`
# makes zeros positive.
_TREES = st.recursive(_EXACT | _extend({
    "log({})": _lift(_log),
    "log1p({})": _lift(lambda x: math.log1p(x) if x > -1 else _log(1 + x)),
    "exp({})": _lift(_exp),
    "sqrt({})": _lift(lambda x: math.sqrt(x) if x >= 0 else NAN),
    "(({} + 0) / ({} + 0))": _lift(_divide),
    "(({} + 0) ** {})": _lift(_power),
}, _EXACT), lambda trees: _extend({
    "-{}": _lift(operator.neg),
    "max({}, {})": _lift(max),
    "where(isnull({}), {}, {})": lambda x, y, z: y if x is None else z,
    "coalesce({}, {})": lambda x, default: default if x is None else x,
}, trees), max_leaves=4)
_VALUES = st.sampled_from([None, -3., -2., -1., -.5, 0., .5, 1., 2., 3.])
_ROWS = st.lists(st.fixed_dictionaries({
    "a": _VALUES, "b c": _VALUES,
    "s": st.sampled_from(["buy", "cart", "view", None])}), min_size=1,
    max_size=8)


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(_TREES, _ROWS)
def test_evaluation_equals_a_plain_python_oracle(tree, rows):
  text, function = tree
  log = {"a": np.array([row["a"] for row in rows], np.float64),
         "b c": np.array([row["b c"] for row in rows], np.float64),
         "s": np.array([row["s"] for row in rows], object)}
  expected = [function(row) for row in rows]
  np.testing.assert_allclose(
      Expression(f"0 * isnull(a) + {text}")(log),
      np.array(expected, np.float64), rtol=1e-12, err_msg=text)


def test_blocks_of_rows_change_nothing(monkeypatch):
  rows = 10
  log = {"a": np.arange(rows), "s": np.array(["x", "y"] * 5)}
  expression = Expression("a ** 2 + (s == 'x')")
  expected = [i ** 2 + (i % 2 == 0) for i in range(rows)]
  for block in (1, 3, 5, 10, 11):
    monkeypatch.setattr(expressions, "_BLOCK_ROWS", block)
    assert expression(log).tolist() == expected
  assert expression({"a": [], "s": []}).tolist() == []


def test_the_log_is_not_changed():
  column = np.array([1., 2.])
  result = Expression("click")({"click": column})
  result += 1.
  assert column.tolist() == [1., 2.]


@pytest.mark.parametrize("nothing", [
    np.full(2, None), np.full(2, NAN), np.full(2, NAN, dtype=object)])
def test_a_column_without_values_is_of_any_kind(nothing):
  for text in ("x + 1", "x == 'buy'", "x not in ('buy',)"):
    np.testing.assert_array_equal(Expression(text)({"x": nothing}), [NAN, NAN])
  assert Expression("isnull(x)")({"x": nothing}).tolist() == [1, 1]


def test_comparisons_are_evaluated_once():
  # Were middle operands evaluated for both sides, this would take 2^90 steps.
  text = "a"
  for _ in range(90):
    text = f"(0<={text}<=1)"
  assert Expression(text)({"a": [1., 2., NAN]}).tolist()[:2] == [1, 1]


def test_is_a_value():
  expression = Expression(" click + (action == 'buy') ")
  assert expression.text == "click + (action == 'buy')"
  assert repr(expression) == f"Expression(text={expression.text!r})"
  with pytest.raises(dataclasses.FrozenInstanceError):
    expression.text = "dwell"
  assert expression != Expression("dwell")
  config = json.loads(json.dumps(expression.get_config()))
  assert config == {"text": expression.text}
  for again in (Expression.from_config(config), copy.deepcopy(expression)):
    assert again == expression and hash(again) == hash(expression)
    np.testing.assert_array_equal(again(LOG), [2, NAN, 1])
  with pytest.raises(TypeError, match="name"):
    Expression.from_config({**config, "name": "a"})


@pytest.mark.parametrize("text, change, message", [
    ("click + like", {}, "`text` names the column 'like', which is not there, "
     "see character 9; the `columns` are 'action', 'click', 'dwell', 'grade'"),
    ("1 + action", {}, "`text` computes with the column 'action', which holds "
     "text such as 'buy', see character 5; text can only be compared"),
    ("(action == 'buy') * action", {}, "computes .* see character 21;"),
    ("action == grade", {}, "computes with the column 'action'"),
    ("isnull(-action)", {}, "computes with the column 'action'"),
    ("1 + action", {"action": np.array(["x" * 1000])}, r"such as 'x{39}, see"),
    ("1 + (grade == 'buy')", {}, "`text` compares the column 'grade', which "
     "holds numbers, with text, see character 6; compare it with numbers"),
    ("click", {"click": np.zeros([3, 1])}, r"'click' .* 1-D .* \[3, 1\] and"),
    ("click", {"click": 1.}, r"column 'click' must be a 1-D array .* \[\] and"),
    ("click", {"click": np.zeros(3, "datetime64[s]")}, "the dtype datetime64"),
    ("click", {"click": np.zeros(3, complex)}, "the dtype complex128"),
    ("click + dwell", {"dwell": np.zeros(1)}, "one length, but 'click' has 3 "
     "rows and 'dwell' has 1;"),
])
def test_bad_columns(text, change, message):
  with pytest.raises(ValueError, match=message):
    Expression(text)({**LOG, **change})
