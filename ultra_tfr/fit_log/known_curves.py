"""Examination that need not be estimated: given, or told by the log alone."""

import dataclasses
import os
from typing import Any

import numpy as np

from ultra_tfr import output
from ultra_tfr.fit_log import diagnosis

# What the log can tell by itself, and the name of the curve in a diagnosis.
FROM_LOG = {"randomized": "randomized", "harvested": "all_pairs"}
_WORDS = {"randomized": "the randomised rows of the log",
          "harvested": "what is harvested from the log"}


@dataclasses.dataclass(frozen=True, eq=False)
class KnownCurves:
  """Examination that a training takes as it is.

  Attributes:
    values: `[C, K]`, positive, by context; curves relative to the first
      position may be above 1.
    source: where they are from, in words.
  """

  values: np.ndarray
  source: str


def find(text: str, log: Any) -> KnownCurves:
  """The curves that a user names.

  Args:
    text: "randomized" for the click rates of randomised rows, "harvested" for
      harvesting by all pairs, both of the training part; numbers by position
      for all contexts, such as "1,.8,.5"; or a JSON file with such a list, or
      with a dict of one for each context.
    log: a `ClickLog`.

  Returns:
    `KnownCurves`.

  Raises:
    ValueError: if they are no numbers above 0 for all positions of the log, or
      the log does not tell them.
  """
  if text in FROM_LOG:
    return KnownCurves(_of_log(text, log), _WORDS[text])
  if os.path.splitext(text)[1].lower() == ".json":
    found, source = output.read(text), text
  else:
    found, source = _numbers(text), "the numbers given"
  names = list(log.contexts)
  if not isinstance(found, dict):
    found = dict.fromkeys(names, found)
  if set(found) != set(names):
    raise ValueError(
        f"`examination` ({source}) must have a curve for each context, "
        f"{', '.join(map(repr, names))}, but has "
        f"{', '.join(map(repr, found)) or 'none'}.")
  for name in names:
    if not output.has_form(found[name], [float]) or (
        len(found[name]) != len(log.positions)) or min(found[name]) <= 0:
      raise ValueError(
          f"`examination` ({source}) must have a number above 0 for each of "
          f"the {len(log.positions)} positions of the log, but has "
          f"{found[name]!r:.60} for {name!r}.")
  return KnownCurves(np.array([found[name] for name in names], float), source)


def _numbers(text):
  try:
    return [float(part) for part in text.split(",")]
  except ValueError as error:
    raise ValueError(
        "`examination` must be numbers by position, such as 1,.8,.5, a .json "
        f"file, or one of {', '.join(FROM_LOG)}, but is {text!r:.60}."
    ) from error


def _of_log(text, log):
  sample = diagnosis.draw(log, parts=("train",))
  options = {"replicates": 1, "level": 0.9, "seed": 0}
  found = diagnosis.curves_by_log(
      sample, log, diagnosis.harvest(sample, log, **options), options)
  curves = []
  for name in log.contexts:
    curve = found[name].get(FROM_LOG[text])
    value = np.array(
        curve["value"] if curve else [None] * len(log.positions), float)
    unknown = ~(value > 0)
    if unknown.any():
      where = ", ".join(str(log.positions[i]) for i in np.flatnonzero(unknown))
      raise ValueError(
          f"`examination` {text!r}: the training part does not tell how often "
          f"position {where} is examined"
          f"{'' if len(log.contexts) == 1 else f' for {name!r}'}; it takes "
          f"clicks on {_NEEDED[text]}. Give numbers, or estimate it.")
    curves.append(value)
  return np.array(curves)


_NEEDED = {
    "randomized": "rows that `randomized` marks, at that position and at the "
                  "first",
    "harvested": "items that were seen at that position and elsewhere, up to "
                 "the first, which `item` tells apart"}
