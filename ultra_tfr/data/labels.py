"""Label synthesis: one feedback value from several user actions.

A click, a dwell time, a purchase and so on become the feedback c of the loss,
c = Phi(action_1, ..., action_M): a weighted sum, a weighted product, or a
function of the user's. Every function here takes the actions as a mapping from
names to arrays of one shape, for which NaN means "missing": such an item gets
the feedback -1, which masks it. A negative action is an error.

Source: Ren, Tang & Zhu, "Unbiased Pairwise Learning to Rank in Recommender
Systems", AAAI 2022, equation (6).
"""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import Callable
from typing import Optional

import numpy as np


def weighted_sum(actions: Mapping[str, Any],
                 weights: Mapping[str, float]) -> np.ndarray:
  """Synthesises c = sum over m of weight_m * action_m, equation (6).

  Args:
    actions: arrays of one shape by name, of at least 0, NaN where missing.
      Those without a weight are not used.
    weights: a factor by name of an action. A factor converts the unit, too:
      0.001 for an action in milliseconds is 1 for the same in seconds.

  Returns:
    float32 array of the actions' shape, of at least 0, and -1 where an action
    that is used is missing.

  Raises:
    ValueError: if a weight is for no action, shapes differ, an action is
      negative or infinite, or a result is.

  Example:
    >>> import numpy as np
    >>> weighted_sum({"click": [1, 0, 1], "dwell": [3., 0., np.nan]},
    ...              {"click": 1., "dwell": .5}).tolist()
    [2.5, 0.0, -1.0]
  """
  weights = _numbers("weights", weights)
  return from_function(
      _used("weights", weights, actions),
      lambda used: sum(weight * used[name] for name, weight in weights.items()))


def weighted_product(actions: Mapping[str, Any],
                     exponents: Mapping[str, float]) -> np.ndarray:
  """Synthesises c = product over m of action_m ^ exponent_m, equation (6).

  Args:
    actions: arrays of one shape by name, of at least 0, NaN where missing.
      Those without an exponent are not used.
    exponents: an exponent by name of an action. 0^0 is 1.

  Returns:
    float32 array of the actions' shape, of at least 0, and -1 where an action
    that is used is missing.

  Raises:
    ValueError: if an exponent is for no action, shapes differ, an action is
      negative or infinite, or a result is (0 to a negative power).

  Example:
    >>> weighted_product({"click": [1, 0], "dwell": [9., 4.]},
    ...                  {"click": 1., "dwell": .5}).tolist()
    [3.0, 0.0]
  """
  exponents = _numbers("exponents", exponents)

  def product(used):
    result = 1.
    for name, exponent in exponents.items():
      result = result * used[name] ** exponent
    return result

  return from_function(_used("exponents", exponents, actions), product)


def from_function(
    actions: Mapping[str, Any],
    function: Callable[[Mapping[str, np.ndarray]], Any]) -> np.ndarray:
  """Synthesises c = function(actions), equation (6) with any Phi.

  Args:
    actions: arrays of one shape by name, of at least 0, NaN where missing.
    function: gets the actions as a dict of float64 arrays, in which a missing
      value is 0, and returns an array of the same shape.

  Returns:
    float32 array of the actions' shape, of at least 0, and -1 where any
    action is missing, whatever `function` returned there.

  Raises:
    ValueError: if there is no action, shapes differ, an action is negative or
      infinite, or a result is negative, not finite, or of another shape.

  Example:
    >>> from_function({"click": [1, 1], "dwell": [2., 40.]},
    ...               lambda a: a["click"] * (a["dwell"] > 10.)).tolist()
    [0.0, 1.0]
  """
  if not actions:
    raise ValueError(
        "`actions` must hold at least one array by name, but is empty; give "
        'for example {"click": clicks}.')
  arrays = {
      name: _checked_action(name, values) for name, values in actions.items()}
  first = next(iter(arrays))
  shape = arrays[first].shape
  for name, array in arrays.items():
    if array.shape != shape:
      raise ValueError(
          f"All `actions` must have one shape, but '{first}' has "
          f"{list(shape)} and '{name}' has {list(array.shape)}; give one value "
          "an item for each.")
  missing = np.zeros(shape, dtype=bool)
  for array in arrays.values():
    missing |= np.isnan(array)
  # Overflow and 0 to a negative power are reported below, with the place.
  with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
    result = np.asarray(function({
        name: np.where(missing, 0., array) for name, array in arrays.items()}))
    if result.shape != shape:
      raise ValueError(
          f"The synthesised feedback must have the actions' shape "
          f"{list(shape)}, but has {list(result.shape)}; return one value an "
          "item.")
    result = np.where(missing, -1., result).astype(np.float32)
  bad = ~missing & ~(np.isfinite(result) & (result >= 0.))
  if np.any(bad):
    raise ValueError(
        "The synthesised feedback must be finite and at least 0, but is "
        f"{result[bad][0]} at {_place(bad)}; negative feedback would mask the "
        "item, so change the weights, exponents or function.")
  return result


@dataclasses.dataclass(frozen=True)
class LabelSynthesis:
  """A label synthesis as data, to be saved with a model.

  Each action is scaled, then clipped, then transformed, each only where it is
  asked for, and then combined:

      c = sum or product over m of  f_m(min(scale_m * action_m, clip_m))

  with weight_m as factor of the sum, and as exponent of the product. One
  action alone gives the same order of items in any unit and with any
  transform; where actions are added, scales decide what counts more.

  Attributes:
    kind: "weighted_sum" or "weighted_product".
    weights: factors, or exponents for "weighted_product", by name of action.
    scales: unit conversions by name, e.g. {"dwell": .001} from ms to s.
    clips: upper limits by name, in the unit after scaling.
    transforms: by name; "log1p" is log(1 + x), for skewed actions.

  Raises:
    ValueError: if the kind or a transform is unknown, there is no weight, a
      number is not finite, a scale or clip is not positive, or an option is
      for an action that has no weight.

  Example:
    >>> synthesis = LabelSynthesis(
    ...     "weighted_sum", {"click": 1., "dwell": 1.},
    ...     scales={"dwell": .001}, clips={"dwell": 60.})
    >>> synthesis({"click": [1, 1], "dwell": [2500, 2000000]}).tolist()
    [3.5, 61.0]
    >>> LabelSynthesis.from_config(synthesis.get_config()) == synthesis
    True
  """

  kind: str
  weights: Mapping[str, float]
  scales: Optional[Mapping[str, float]] = None
  clips: Optional[Mapping[str, float]] = None
  transforms: Optional[Mapping[str, str]] = None

  def __post_init__(self):
    if self.kind not in ("weighted_sum", "weighted_product"):
      raise ValueError(
          '`kind` must be "weighted_sum" or "weighted_product", but is '
          f"{self.kind!r}; use from_function for others.")
    # Plain dicts of numbers compare equal and go into JSON.
    object.__setattr__(self, "weights", _numbers("weights", self.weights))
    for option in ("scales", "clips"):
      numbers = _numbers(option, getattr(self, option) or {}, positive=True)
      object.__setattr__(self, option, numbers)
    object.__setattr__(self, "transforms", dict(self.transforms or {}))
    for name, transform in self.transforms.items():
      if transform != "log1p":
        raise ValueError(
            f"`transforms` must be \"log1p\" for '{name}', but is "
            f"{transform!r}; leave the action out for no transform.")
    for option in ("scales", "clips", "transforms"):
      _check_known(option, getattr(self, option), self.weights)

  def __call__(self, actions: Mapping[str, Any]) -> np.ndarray:
    """Returns the float32 feedback, -1 where missing; see `weighted_sum`."""
    prepared = {
        name: self._prepare(name, values)
        for name, values in _used("weights", self.weights, actions).items()}
    combine = (weighted_sum if self.kind == "weighted_sum" else
               weighted_product)
    return combine(prepared, self.weights)

  def _prepare(self, name, values) -> np.ndarray:
    values = _checked_action(name, values) * self.scales.get(name, 1.)
    values = np.minimum(values, self.clips.get(name, np.inf))
    return np.log1p(values) if name in self.transforms else values

  def get_config(self) -> dict[str, Any]:
    """Returns the constructor's arguments as plain dicts."""
    return dataclasses.asdict(self)

  @classmethod
  def from_config(cls, config: Mapping[str, Any]) -> "LabelSynthesis":
    """Rebuilds what `get_config` described."""
    return cls(**config)


def _checked_action(name, values) -> np.ndarray:
  array = np.asarray(values, dtype=np.float64)
  bad = (array < 0.) | np.isinf(array)
  if np.any(bad):
    raise ValueError(
        f"The action '{name}' must be finite and at least 0, but is "
        f"{array[bad][0]} at {_place(bad)}; use NaN for missing values.")
  return array


def _used(option, numbers, actions) -> dict[str, Any]:
  _check_known(option, numbers, actions)
  return {name: actions[name] for name in numbers}


def _check_known(option, names, known):
  for name in names:
    if name not in known:
      raise ValueError(
          f"`{option}` names the action '{name}', which is unknown; the known "
          f"ones are {', '.join(sorted(known))}.")


def _numbers(option, numbers, positive=False) -> dict[str, float]:
  numbers = {name: float(number) for name, number in numbers.items()}
  for name, number in numbers.items():
    if not np.isfinite(number) or (positive and number <= 0.):
      raise ValueError(
          f"`{option}` must be {'positive' if positive else 'finite'} numbers, "
          f"but '{name}' has {number}; give another number.")
  if not numbers and not positive:
    raise ValueError(
        f"`{option}` must name at least one action, but is empty; give for "
        'example {"click": 1.}.')
  return numbers


def _place(bad) -> list:
  return np.argwhere(bad)[0].tolist()
