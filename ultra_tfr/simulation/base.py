"""What all simulated feedback shares: checks, draws, order and base class."""

from typing import NamedTuple

import numpy as np

from ultra_tfr import checks


class Simulated(NamedTuple):
  """Simulated feedback, each float32 `[N, L]` and 0 on padding.

  Attributes:
    clicks: 0 or 1.
    examined: 0 or 1, what a log never shows.
    propensity: P(examined | the clicks at the positions above).
  """

  clicks: np.ndarray
  examined: np.ndarray
  propensity: np.ndarray


class ClickModel:
  """Base class: what all click models share.

  Attributes:
    click_noise: e, P(click | examined) at grade 0, in [0, 1].
    max_grade: ymax, the grade that is always clicked if examined, at least 1.

  Raises:
    ValueError: if an argument is out of range.
  """

  def __init__(self, click_noise: float = .1, max_grade: int = 4):
    self.click_noise = float(
        checks.check_probabilities("click_noise", click_noise))
    self.max_grade = checks.check_count("max_grade", max_grade)

  def relevance(self, labels) -> np.ndarray:
    """Returns (2^y-1)/(2^ymax-1) of grades y, float64, and 0 on padding.

    Args:
      labels: true grades of any shape: whole numbers up to `max_grade`, or
        negative for padding.

    Raises:
      ValueError: if a grade is fractional, NaN or above `max_grade`.
    """
    labels = grades(labels, self.max_grade)
    return (np.exp2(np.maximum(labels, 0.)) - 1.) / (2. ** self.max_grade - 1.)

  def attraction(self, labels) -> np.ndarray:
    """Returns P(click | examined) of grades, float64, and 0 on padding.

    It is e + (1-e) (2^y-1)/(2^ymax-1), the gain of expected reciprocal rank
    (Chapelle et al., CIKM 2009) with a click noise e, as in Ai et al.,
    "Unbiased Learning to Rank with Unbiased Propensity Estimation", SIGIR 2018.

    Args:
      labels: as in `relevance`.

    Raises:
      ValueError: as `relevance`.

    Example:
      >>> ClickModel().attraction([0, 1, 2, 3, 4, -1]).round(2).tolist()
      [0.1, 0.16, 0.28, 0.52, 1.0, 0.0]
    """
    noisy = self.click_noise + (1. - self.click_noise) * self.relevance(labels)
    return np.where(np.asarray(labels) < 0, 0., noisy)

  def sample(self, labels, seed, positions=None) -> Simulated:
    """Draws one session for each list.

    The draws are made for the whole array in a fixed order: they depend on
    the seed, on the number of lists, and on an item's place in display order,
    but on no batch size, and not on how far lists are padded.

    Args:
      labels: `[N, L]` true grades, negative for padding.
      seed: an int, or a sequence of ints such as (seed, epoch).
      positions: `[N, L]` 1-based display positions, different within a list,
        0 for items that were not displayed. None: item l is at position l+1.

    Returns:
      The `Simulated` feedback, in the order of `labels`.

    Raises:
      ValueError: if the shape, a grade or a position is not as above.

    Example:
      >>> from ultra_tfr.simulation import click_models
      >>> model = click_models.PositionBasedModel([1.], click_noise=0.)
      >>> model.sample([[4, 0, -1]], seed=(3, 0)).clicks.tolist()
      [[1.0, 0.0, 0.0]]
    """
    display = Display(grades(labels, self.max_grade), positions)
    uniforms = draw_uniforms(seed, display.labels.shape, per_item=2)
    clicks, examined, propensity = self._simulate(
        display.labels, display.positions, uniforms)
    return Simulated(*(
        display.put_back(array) for array in (clicks, examined, propensity)))

  def _simulate(self, labels, positions, uniforms):
    """Like `sample`, in display order, padding last and not masked.

    Args:
      labels: `[N, L]`, -1 in padding.
      positions: `[N, L]`, 0 in padding.
      uniforms: `[2, N, L]` in [0, 1).

    Returns:
      Clicks, examined (both bool) and propensity, each `[N, L]`.
    """
    raise NotImplementedError


class Display:
  """Lists in display order: by position, items that are not displayed last.

  So click models see the same arrays wherever a list has its padding.

  Attributes:
    labels: float64 `[N, L]`, -1 at the end of short lists.
    positions: int64 `[N, L]`, 0 at the end of short lists.

  Example:
    >>> display = Display(np.array([[-1., 2., 1.]]), [[0, 5, 3]])
    >>> display.labels.tolist(), display.positions.tolist()
    ([[1.0, 2.0, -1.0]], [[3, 5, 0]])
    >>> display.put_back(np.array([[10., 20., 30.]])).tolist()
    [[0.0, 20.0, 10.0]]
  """

  def __init__(self, labels: np.ndarray, positions=None):
    if labels.ndim != 2:
      raise ValueError(
          "`labels` must have the shape [lists, list_size], but has the shape "
          f"{list(labels.shape)}; put a single list into brackets.")
    if positions is None:
      positions = np.broadcast_to(
          np.arange(labels.shape[1]) + 1, labels.shape)
    positions = np.asarray(positions)
    if (positions.shape != labels.shape or
        not np.all((positions >= 0) & (positions == np.floor(positions)))):
      raise ValueError(
          "`positions` must be whole numbers from 0 of the labels' shape "
          f"{list(labels.shape)}, but are of the shape "
          f"{list(positions.shape)} from {positions.min(initial=0)}; count "
          "from 1 and use 0 for items that were not displayed.")
    displayed = (labels >= 0) & (positions > 0)
    last = np.iinfo(np.int64).max
    keys = np.where(displayed, positions, last).astype(np.int64)
    self._order = np.argsort(keys, axis=1, kind="stable")
    keys = np.take_along_axis(keys, self._order, axis=1)
    twice = (keys[:, 1:] == keys[:, :-1]) & (keys[:, 1:] < last)
    if np.any(twice):
      place = np.argwhere(twice)[0]
      raise ValueError(
          "`positions` must differ within a list, but list "
          f"{place[0]} has position {keys[place[0], place[1]]} twice; give "
          "each item a position of its own.")
    self._displayed = keys < last
    self.labels = np.where(
        self._displayed, np.take_along_axis(labels, self._order, axis=1), -1.)
    self.positions = np.where(self._displayed, keys, 0)

  def put_back(self, values) -> np.ndarray:
    """Undoes the order of `[N, L]` values: float32, 0 if not displayed."""
    result = np.zeros(values.shape, np.float32)
    np.put_along_axis(
        result, self._order, np.where(self._displayed, values, 0.).astype(
            np.float32), axis=1)
    return result


def draw_uniforms(seed, shape, per_item: int, stream: int = 0) -> np.ndarray:
  """Draws uniform numbers, the same for an item however far lists are padded.

  They are drawn item after item, each for all lists, so longer lists only add
  numbers at the end.

  Args:
    seed: an int of at least 0, or a sequence of such.
    shape: (N, L).
    per_item: M, how many numbers each item needs.
    stream: another stream gives independent numbers from the same seed.

  Returns:
    float64 `[M, N, L]` in [0, 1).

  Example:
    >>> short, long = (draw_uniforms(7, (2, n), per_item=1) for n in (3, 5))
    >>> bool(np.all(short == long[..., :3]))
    True
  """
  if seed is None:
    raise ValueError(
        "`seed` must be an int or a sequence of ints, but is None; feedback is "
        "always reproducible.")
  generator = np.random.default_rng(
      np.random.SeedSequence(seed, spawn_key=(stream,)))
  num_lists, list_size = shape
  return generator.random((list_size, per_item, num_lists)).transpose(1, 2, 0)


def grades(labels, max_grade: int) -> np.ndarray:
  """Returns labels as float64; negative is padding, others must be grades."""
  labels = np.asarray(labels, dtype=np.float64)
  bad = ~((labels < 0) | (
      (labels == np.floor(labels)) & (labels <= max_grade)))
  if np.any(bad):
    raise ValueError(
        f"`labels` must be whole grades from 0 to `max_grade` {max_grade}, or "
        f"negative for padding, but there is {labels[bad][0]} at "
        f"{np.argwhere(bad)[0].tolist()}; round the labels, or give the "
        "highest grade as `max_grade`.")
  return labels


def at_positions(values: np.ndarray, positions) -> np.ndarray:
  """Looks up values by 1-based position; the last value continues."""
  return values[np.clip(positions, 1, values.size) - 1]
