"""Feedback expressions: pandas' numbers, or one message with the place."""

import string
import warnings

from hypothesis import strategies as st
import numpy as np
import pandas as pd

import fuzzing
from ultra_tfr.data.click_log.expressions import Expression

_FRAME = pd.DataFrame({
    "click": [0., 1., np.nan, 3., -2.5], "dwell": [0., 1e300, 2., np.inf, -1.],
    "action": ["buy", "view", None, "", "cart"]})
_WORDS = st.one_of(
    st.sampled_from([
        "click", "dwell", "action", "log1p(", "clip(", "where(", "coalesce(",
        'col("', '"', "'", "buy", "(", ")", "[", "]", ",", ".", "+", "-", "*",
        "**", "/", "//", "%", "<", "<=", "==", "!=", " in ", " not in ",
        " and ", " or ", "not ", " if ", " else ", "1", "0", "1e3", "1e999",
        "1_0", "0x1", "1j", "True", "None", "lambda: ", "__import__", "\n",
        "\\", "\x00", "ﬀ", "#", ":=", "{", "}", "@", "~", "f\"{click}\"",
        " is ", "...", "*click"]),
    st.text(string.printable, max_size=3), st.text(max_size=2))


@fuzzing.SECONDS
def test_any_text(seconds):
  columns = {name: _FRAME[name].to_numpy(object if name == "action" else None)
             for name in _FRAME}
  columns["action"] = np.array(["buy", "view", None, "", "cart"], object)

  def check(words):
    found = fuzzing.outcome(lambda: Expression("".join(words)), "`text` ")
    if found is None:
      return
    values = fuzzing.outcome(lambda: found(columns))
    if values is not None:
      assert values.shape == (5,) and values.dtype == np.float64
      assert Expression.from_config(found.get_config()) == found

  fuzzing.fuzz(st.lists(_WORDS, min_size=1, max_size=12), check, seconds)


# Numbers have a point, since those of an expression are floats: pandas knows
# whole ones too, whose zero has no sign to divide by.
_NUMBERS = st.recursive(
    st.sampled_from(["click", "dwell", "1.", "2.5"]),
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part,
                  st.sampled_from(["+", "-", "*", "/"]), part),
        st.builds("(-{})".format, part),
        st.builds("{}({})".format, st.sampled_from(
            ["abs", "exp", "floor", "log1p", "sqrt"]), part)), max_leaves=8)


@fuzzing.SECONDS
def test_arithmetic_is_that_of_pandas(seconds):
  columns = {name: _FRAME[name].to_numpy() for name in ("click", "dwell")}

  def check(text):
    text = f"click + {text}"
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      try:
        expected = _FRAME.eval(text, engine="python").to_numpy()
      except ZeroDivisionError:
        return  # Of two numbers; columns divide as NumPy does.
    np.testing.assert_array_equal(
        Expression(text)(columns), np.asarray(expected, np.float64))

  fuzzing.fuzz(_NUMBERS, check, seconds)
