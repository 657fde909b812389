"""Tests of what shows how far a command is."""

import types

import pytest

from ultra_tfr.commands import click_logs
from ultra_tfr.commands import common


@pytest.fixture
def log(tmp_path, monkeypatch):
  """The log that --log names, and whether a terminal reads the output."""
  path = tmp_path / "log.csv"
  path.write_text("q,p,c\n" + "1,2,3\n" * 500)
  monkeypatch.setattr(
      click_logs, "FLAGS", types.SimpleNamespace(log=[str(path)]))
  return lambda is_terminal: monkeypatch.setattr(
      common, "verbosity", lambda: int(is_terminal))


def test_a_terminal_is_told_how_much_is_left(log, capsys):
  """Nobody knew how long the reading of a large log would take."""
  log(is_terminal=True)
  with click_logs.progress() as shown:
    shown(10)
    shown(10)
    assert not capsys.readouterr().err
    shown(30)
  # The bar is wiped away at the end.
  assert capsys.readouterr().out.endswith("\r")


def test_a_file_gets_no_bar(log, capsys):
  log(is_terminal=False)
  with click_logs.progress() as shown:
    shown(10)
  assert not capsys.readouterr().out
