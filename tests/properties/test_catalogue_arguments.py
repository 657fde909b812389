"""What constructors refuse, and with what words: one table for all."""

import inspect

import pytest

from catalogue import CATALOGUE
from constructors import CONSTRUCTORS


def _name(value):
  return getattr(value, "__name__", None)


@pytest.mark.parametrize("cls", CONSTRUCTORS, ids=_name)
def test_every_argument_is_constrained_or_free(cls):
  constructor = CONSTRUCTORS[cls]
  cls(**constructor.valid())
  parameters = {
      name for name, parameter in inspect.signature(cls).parameters.items()
      if parameter.kind not in (parameter.VAR_POSITIONAL,
                                parameter.VAR_KEYWORD)}
  constrained = {one.argument for one in constructor.constraints}
  assert not constrained & constructor.free
  assert constrained | constructor.free == parameters


def test_every_class_has_its_constraints():
  assert CONSTRUCTORS.keys() == {
      type(entry.make()) for entry in CATALOGUE.values()}


@pytest.mark.parametrize("cls, constraint", [
    pytest.param(cls, one, id=f"{cls.__name__}-{one.argument}")
    for cls, constructor in CONSTRUCTORS.items()
    for one in constructor.constraints])
def test_errors_say_what_was_expected_and_what_came(cls, constraint):
  for wrong in constraint.wrong:
    arguments = {**CONSTRUCTORS[cls].valid(), **constraint.needs,
                 constraint.argument: wrong}
    with pytest.raises(ValueError) as caught:
      cls(**arguments)
    message = str(caught.value)
    # Of a list the message tells the value that is wrong.
    came = wrong[-1] if isinstance(wrong, list) else wrong
    assert message.startswith(f"`{constraint.argument}` must be "), message
    assert constraint.expected in message
    assert f"but is {came!r}" in message
    assert message.endswith(constraint.remedy)


@pytest.mark.parametrize("cls", CONSTRUCTORS, ids=_name)
def test_unknown_arguments_are_errors(cls):
  with pytest.raises(TypeError, match=(
      "(unexpected keyword|not understood).*'exmination'")):
    cls(**CONSTRUCTORS[cls].valid(), exmination=1)
