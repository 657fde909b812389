"""Tests of which expressions are refused, by way of `Expression`."""

import ast
import builtins
import os
import subprocess
import time
import warnings

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from ultra_tfr.data.click_log import expression_parser
from ultra_tfr.data.click_log.expressions import Expression

HOSTILE = [
    "__import__('os').system('touch /tmp/x')",
    "dwell.__class__.__mro__[1].__subclasses__()",
    "eval('1')", "exec('1')", "open('x')", "print(dwell)", "dwell.tofile('x')",
    "(lambda: dwell)()", "lambda: dwell", "[dwell for click in dwell]",
    "(dwell for click in dwell)", "{dwell: 1}", "{dwell}", "[dwell]", "dwell,",
    "f'{dwell}'", "dwell[0]", "dwell.size", "(dwell := 1)", "dwell = 1",
    "min(*dwell, 1)", "max(dwell, 1, key=abs)", "log(x=dwell)", "log(**dwell)",
    "col(*dwell)", "col('dwell', x=1)", "col(dwell)", "col('dw' + 'ell')",
    "where(click, 'a', 'b')", "coalesce(action, 'buy')", "'a' * 999999999",
    "__class__", "__builtins__", "await dwell", "yield dwell", "dwell; click",
    "import os", "dwell\x00", "dwell\n+ click", "dwell\\", "dwell \u202e+ 1",
    "'\ud800' == action", "\ufeffdwell", "dwell if click", "...", "None",
    "dwell + None", "True", "dwell * 1j", "b'buy' == action", "log", "col",
    "(log)", "dwell % 2", "dwell // 2", "dwell @ click", "dwell & click",
    "dwell | click", "dwell ^ click", "dwell << 9", "dwell >> 9", "~dwell",
    "dwell is click", "dwell is not None", "log(dwell, 2)", "log()",
    "min(dwell)", "clip(dwell, 1)", "where(click, 1)", "isnull()",
    "isnull(1)", "action < 'buy'", "action == 'buy' == 'buy'", "'a' == 'a'",
    "action == 'buy' == click", "action in 'buy'", "action in ()",
    "action in (click, 'buy')", "action in ('buy', *action)",
    "action in {'buy'}", "'buy' in action", "grade in (1, 2)",
    "abs(action) in ('buy',)", "abs(action) == 'buy'", "1 < dwell in ('a',)",
    # NFKC makes these min, log, __import__, dwell and col.
    "\uff4d\uff49\uff4e(dwell, 1)", "l\u00bag(dwell)", "\uff3f_import__('os')",
    "\U0001d41d + 1", "\uff43ol('action') == 'buy'",
    "isnull(\uff43ol('action'))",
    "9" * 1900 + "*dwell", "1e999 * dwell", "-1e999 + dwell", "1", "9**9**9",
    "", " ", "# dwell", "-" * 1999 + "x", "(" * 1000 + "x", "not " * 499 + "x",
    "lambda:(" * 250, "x<(" * 199 + "x" + ")" * 199, "+".join(["x"] * 102),
    "min(" + "x," * 500 + "x)", "x if x else " * 150 + "x", "x**" * 600 + "x",
    "dwell" + " " * 2000 + "+ 1", "x" * 2001, "\0" * 100000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_hostile_text_is_refused_and_never_run(text, monkeypatch):
  compile_text, import_module = builtins.compile, builtins.__import__

  def run(*_):
    raise AssertionError("something was run")

  def only_parse(source, filename, mode, flags, **options):
    assert flags & ast.PyCF_ONLY_AST, "text was made into code"
    return compile_text(source, filename, mode, flags, **options)

  def only_import_unicodedata(name, *arguments):
    # Python's parser does, for letters.
    assert name == "unicodedata", f"{name} was imported"
    return import_module(name, *arguments)

  start = time.perf_counter()
  with monkeypatch.context() as patch:
    patch.setattr(os, "system", run)
    patch.setattr(subprocess, "Popen", run)
    for name in ("eval", "exec", "open"):
      patch.setattr(builtins, name, run)
    patch.setattr(builtins, "compile", only_parse)
    patch.setattr(builtins, "__import__", only_import_unicodedata)
    with pytest.raises(ValueError) as caught:
      Expression(text)
  assert time.perf_counter() - start < 1.
  _check_message(caught.value)


def _check_message(error):
  """The message is ours: a sentence, the place, and nothing unprintable."""
  assert type(error) is ValueError
  sentence, shown, caret = str(error).split("\n")
  assert sentence.startswith("`text` ") and "see character" in sentence
  assert caret.strip() == "^" and caret.index("^") <= len(shown)
  assert (sentence + shown).isprintable() and len(shown) <= 78


_TOKENS = st.sampled_from([
    *"abx()[]{},.:+-*/%<>=!&|~'\"#@;\\ 019", "**", "==", "!=", "<=", ":=",
    " in ", " not ", " and ", " or ", " if ", " else ", " is ", " for ",
    "lambda ", "None", "True", "__class__", "col(", "col('a')", "'buy'",
    "('buy',)", "1e9", "1e999", "\uff4d", "\u00b5", "\u0301", "\t", "\0",
    "\ud800",
    *(f"{name}(" for name in expression_parser.FUNCTIONS)])


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(st.one_of(
    st.text(), st.lists(_TOKENS, max_size=30).map("".join)))
@hypothesis.example("a**9**9**9**9 / 0")
def test_any_text_is_an_expression_or_a_value_error(text):
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
      expression = Expression(text)
      result = expression({
          name: np.array([0., 1.5, np.nan]) for name in expression.columns})
    except ValueError as error:
      _check_message(error)
    else:
      assert result.dtype == np.float64 and result.shape == (3,)
      assert expression.columns and expression == Expression(text)


@pytest.mark.parametrize("text, message", [
    ("2 * click.real", "node of type Attribute, see character 5; allowed are "
     "numbers, .* the functions abs, clip, .*:\n  2 [*] click.real\n {6}\\^$"),
    # Characters, not bytes.
    ("\u00e9\u00e9 + x[0]", "type Subscript, .* 6; .*\n {7}\\^$"),
    ("(a + b ) % c", "the operator Mod, see character 10; .*\n {11}\\^$"),
    ("1 < a is b", "the operator Is, see character 7;"),
    ("a + ~b", "the operator Invert, see character 5;"),
    ("a + foo(b)", "calls foo, which is no function, .* 5; allowed are"),
    ("min + 1", r'function min, but does not .* 1; write col\("min"\) if it'),
    ("a + col", r'function col, but does not .* 5; write col\("col"\) if it'),
    ("__x__", r'the name __x__, which Python reserves, .*col\("__x__"\)'),
    ("a + \uff4d", "the name \uff4d, which Python reads as m, see character 5; "
     r'write col\("\uff4d"\)'),
    ("col(click)", r'calls col without a name, .* write col\("any name"\)'),
    ("a * clip(b, 1)", r"calls clip with other .* 5; write clip\(x, low, high"),
    ("min(a)", r"calls min with other .* write min\(x, y, \.\.\.\)"),
    ("exp(a, b)", r"calls exp with other arguments .* write exp\(x\)"),
    ("a + 'buy'", "the text 'buy', see character 5; text can only be compared "
     'with a column of text, as in action == "buy"'),
    ("a + (b < 'c')", "unknown comparison of text, see character 6; text can"),
    ("a in (1, 2)", "unknown comparison of text.*; compare with numbers by =="),
    ("a * True", "the constant True, see character 5; allowed are"),
    ("a * 1e309", "a number above 1.7e308, see character 5; write a smaller"),
    ("2 * 3", "names no column, .*; feedback must depend on the log"),
    ("a = 1", r"cannot be read \([^.]*\), see character 3; allowed .*\n {4}\^"),
    ("a +", r"cannot be read .*; allowed .*\n {4,5}\^$"),
    ("min(a b)", r"cannot be read \(invalid syntax[^.]*\), see"),
    ("a +\n b", r"unprintable character '\\n', see character 4; .* a \+\? b\n"),
    ("x" * 2001, "has 2001 characters, over 2000, see character 2001; write"),
    ("+".join("a" * 102), "over 500 parts or is over 100 levels deep, .*; w"),
    ("a+" * 50 + "b.c", r"character 101; .*\n  \.\.\..*\+b\.c\n {72}\^$"),
])
def test_messages(text, message):
  with pytest.raises(ValueError, match="(?s)`text` .*" + message):
    Expression(text)


def test_limits_are_no_stricter_than_they_say():
  assert len(Expression("+".join(["a"] * 100)).columns) == 1
  assert len(Expression("-" * 99 + "a").columns) == 1
  wide = Expression(f"max({','.join(f'a{i}' for i in range(390))})")
  assert len(wide.columns) == 390
  assert Expression("a" * 2000).columns == ("a" * 2000,)


def test_columns_come_in_the_order_of_the_text():
  expression = Expression(
      "(b if a < 2 else c) + where(d, e, b) * ('x' == f) - isnull(g)")
  assert expression.columns == tuple("bacdefg")
  assert expression.text_columns == ("f",)


def test_any_name_is_a_column_in_quotes():
  names = ["min", "col", "class", "__x__", "a b", "\uff4d", "", "1", "'", "\t"]
  expression = Expression(" + ".join(f"col({name!r})" for name in names))
  assert expression.columns == tuple(names)
  assert Expression("caf\u00e9 + _ + x__ + __y").columns == (
      "caf\u00e9", "_", "x__", "__y")


def test_pythons_warnings_are_not_the_users():
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    expression = Expression(r"(1if click else 0) * (action == '\d')")
  log = {"click": [1, 1], "action": [r"\d", "d"]}
  assert expression(log).tolist() == [1, 0]


@pytest.mark.parametrize("text", [None, 3, b"click", ["click"]])
def test_only_strings_are_read(text):
  with pytest.raises(ValueError, match="`text` must be a string, such as"):
    Expression(text)
