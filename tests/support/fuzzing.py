"""Feeds made-up and damaged input to readers, for a number of seconds."""

import itertools
import random
import re
import signal
import time

import hypothesis
from hypothesis import strategies as st
import pytest

# Seconds of each fuzz test. Those that every run has, half a minute in all,
# have the same examples each time; those of `pytest -m release` have new ones.
_SHORT, _LONG = 2, 120
SECONDS = pytest.mark.parametrize("seconds", [
    pytest.param(_SHORT, id="short"),
    pytest.param(_LONG, id="long", marks=pytest.mark.release)])
# No example may take so long, in seconds.
_HANG = 60
# What readers may stumble over.
_TOKENS = (
    b"", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r", b"\r\n", b"\t", b" ",
    b",", b";", b'"', b'""', b'\\"', b"'", b"\\", b"#", b":", b"_", b"=", b"-",
    b"{", b"}", b"[", b"]", b"null", b"true", b"NaN", b"nan", b"inf", b"-inf",
    b"1e400", b"-1", b"0", b"007", b"1_0", b"0x1", b"2147483648", b"1.5e-320",
    b"9223372036854775808", b"18446744073709551616", b"NA", b"qid:",
    "٣".encode(), "\u2028".encode(), "ﬀ".encode(), b"\xed\xa0\x80",
    b"2024-01-31 12:00:00 -0700")


def fuzz(strategy, check, seconds):
  """Feeds examples to a check until the time is over.

  Args:
    strategy: of hypothesis.
    check: a function of an example that fails if something is wrong.
    seconds: how long. With `_SHORT` the examples are the same in every run, as
      far as time allows.
  """
  def guarded(example):
    with _no_hang():
      check(example)

  # A round has few examples, since hypothesis knows no end by time.
  run = hypothesis.settings(
      max_examples=20, deadline=None, database=None, print_blob=True,
      suppress_health_check=list(hypothesis.HealthCheck))(
          hypothesis.given(strategy)(guarded))
  end = time.monotonic() + seconds
  first = 0 if seconds == _SHORT else random.getrandbits(32)
  for number in itertools.count(first):
    hypothesis.seed(number)(run)()
    if time.monotonic() > end:
      return


class _no_hang:  # pylint: disable=invalid-name
  """Lets what takes too long fail."""

  def __enter__(self):
    def stop(number, frame):
      raise AssertionError(f"takes more than {_HANG} s")
    self._before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANG)

  def __exit__(self, *unused):
    signal.alarm(0)
    signal.signal(signal.SIGALRM, self._before)


def damaged(*seeds):
  """A strategy of bytes: the seeds, each with a few places changed.

  Args:
    *seeds: bytes of small valid files.
  """
  place = st.floats(0, 1)
  change = st.tuples(
      st.sampled_from(["replace", "insert", "cut", "repeat", "end", "flip"]),
      place, place, st.sampled_from(_TOKENS))
  return st.builds(
      _change, st.sampled_from(seeds), st.lists(change, min_size=1, max_size=4))


def _change(text, changes):
  for kind, first, second, token in changes:
    start = int(first * len(text))
    if kind == "flip" and text:
      start = min(start, len(text) - 1)
      text = text[:start] + bytes([text[start] ^ (1 << int(second * 7))]) + (
          text[start + 1:])
      continue
    end = min(len(text), start + int(second * 30))
    middle = {"replace": token, "insert": token + text[start:end], "cut": b"",
              "repeat": 2 * text[start:end]}.get(kind, b"")
    text = text[:start] + middle + (b"" if kind == "end" else text[end:])
  return text


def json_values(leaves=None):
  """A strategy of anything that JSON can hold, and some that it cannot."""
  leaves = leaves or st.one_of(
      st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
  return st.recursive(leaves, lambda part: st.one_of(
      st.lists(part, max_size=3),
      st.dictionaries(st.text(max_size=3), part, max_size=3)), max_leaves=4)


def with_changes(value):
  """A strategy of a JSON value with one or two of its parts changed.

  Args:
    value: dicts, lists, numbers, texts, booleans and None.
  """
  places = list(_places(value))
  return st.builds(
      _set_all, st.just(value), st.lists(
          st.tuples(st.sampled_from(places), st.one_of(
              json_values(), st.sampled_from([_GONE]))),
          min_size=1, max_size=2))


_GONE = object()


def _places(value, path=()):
  yield path
  parts = value.items() if isinstance(value, dict) else (
      enumerate(value) if isinstance(value, list) else ())
  for name, part in parts:
    yield from _places(part, (*path, name))


def _set_all(value, changes):
  for path, new in changes:
    value = _set(value, path, new)
  return value


def _set(value, path, new):
  if not path:
    return None if new is _GONE else new
  name, *rest = path
  there = isinstance(value, dict) and name in value or (
      isinstance(value, list) and isinstance(name, int) and name < len(value))
  if not there:  # An earlier change has taken it away.
    return value
  copy = value.copy()
  if not rest and new is _GONE:
    del copy[name]
  else:
    copy[name] = _set(value[name], rest, new)
  return copy


def outcome(call, *words):
  """What a call gives, or None if it refuses its input as it should.

  Args:
    call: a function without arguments.
    *words: one of these, such as a path, is in each message.
  """
  try:
    return call()
  except (ValueError, FileNotFoundError) as error:
    # Errors of others would come with types and words of their own.
    assert type(error).__module__.split(".")[0] in ("builtins", "ultra_tfr")
    assert not isinstance(error, UnicodeError), repr(error)
    text = str(error)
    assert re.match(r".*[.:^]\s*$", text, re.DOTALL), repr(text)
    assert text.count("\n") <= 2, repr(text)
    assert not words or any(str(word) in text for word in words), repr(text)
    return None
