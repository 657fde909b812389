"""The names in ultra_tfr.choices are those of what there is."""

import pytest

from ultra_tfr import choices
from ultra_tfr import methods
from ultra_tfr.experiments import peers
from ultra_tfr.simulation import click_models


def test_each_name_stands_for_something():
  assert list(choices.METHODS) == list(methods.METHODS)
  assert sorted(choices.CLICK_MODELS) == sorted(click_models.CLICK_MODELS)
  assert list(choices.PEERS) == list(peers.PEERS)
  assert set(choices.FOR_LOGS) <= set(choices.METHODS)
  assert set(choices.ALIASES.values()) <= set(choices.METHODS)


def test_a_method_that_a_program_has_added_is_found(monkeypatch):
  added = methods.Method(lambda layer, feedback: None, summary="of a user")
  monkeypatch.setitem(methods.METHODS, "mine", added)
  assert methods.find("mine") is added
  with pytest.raises(ValueError, match="There is no method 'yours'; the meth"):
    methods.find("yours")
