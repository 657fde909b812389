"""A click log as a company would have it, with the truth behind it.

A shop shows a few items for each request, in the order of a logger. Users
examine an item by its position and device, and click on examined items by their
attraction. The log has one row an item shown, in no order, and columns of all
kinds: numbers (some heavy-tailed, some missing), strings of few and of many
values, and a Boolean. What no company knows is in the `LogTruth`.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import special

from ultra_tfr import checks
from ultra_tfr.simulation.click_models import PositionBasedModel

LOGGERS = ("weak", "fixed", "relevance", "random")

_START = 1704067200  # Midnight of 2024-01-01, UTC.
_DAY = 86400
# On a small screen, users get less far down.
_ETA_BY_DEVICE = {"desktop": .7, "mobile": 1.2}
_CATEGORIES = ("bags", "books", "cameras", "garden", "games", "kitchen",
               "music", "pets", "shoes", "sports", "toys", "watches")
# Candidates of a request for each item that it shows.
_CHOICE = 2
# The weak logger's score: attraction, its preference for an item, noise.
_BY_APPEAL, _BY_ITEM, _BY_REQUEST = .5, 1., .5
_DWELL_DEVIATION = .7


@dataclasses.dataclass(frozen=True, eq=False)
class LogTruth:
  """The truth behind a log, which a log does not show.

  With an item of attraction a at the k-th of the positions,

      P(click) = examination[k] (a + trust_negative[k] (1 - a)).

  Attributes:
    positions: int64 `[K]`, the values of the column `rank`, rising.
    examination: float64 `[K]` in the order of `positions`, by device.
    trust_negative: float64 `[K]`, P(click | examined) of an item that attracts
      nobody.
    attraction: float64 `[R]`, of the item in each row of the log.
    catalogue: one row for each item: `item_id` and its features, as in the log.
    item_attraction: float64 `[I]`, in the order of the catalogue.
    item_dwell_ms: float64 `[I]`, mean dwell time of a click, likewise.
  """

  positions: np.ndarray
  examination: Mapping[str, np.ndarray]
  trust_negative: np.ndarray
  attraction: np.ndarray
  catalogue: pa.Table
  item_attraction: np.ndarray
  item_dwell_ms: np.ndarray


def simulate_log(num_requests, *, num_items=2000,
                 positions=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), examination=None,
                 trust_negative=0., logger="weak", randomized=0., days=14,
                 seed=0):
  """Simulates the log of a shop.

  The loggers choose the items of a request out of candidates, which are drawn
  from the catalogue by popularity, and order them:

      "weak"       by attraction, hidden by a preference of its own for each
                   item and by noise, so that items change their positions
      "fixed"      each item stands at one position only, the weak logger's best
                   ones highest: bias and relevance cannot be told apart
      "relevance"  by attraction
      "random"     at random

  Args:
    num_requests: N.
    num_items: I, the size of the catalogue; the same seed and size give the
      same catalogue.
    positions: `[K]` the display positions that hold items, rising, from 1. Gaps
      are places of something else, such as advertisements.
    examination: P(examined) by device, each `[K]` or one number; devices are
      equally frequent. None: "desktop" and "mobile", which fall as in
      `PositionBasedModel`, "mobile" faster.
    trust_negative: P(click | examined) of an item that attracts nobody, `[K]`
      or one number.
    logger: one of `LOGGERS`.
    randomized: the share of the requests whose items are shuffled before they
      are shown, whatever the logger; "random" shuffles all.
    days: the time that requests come in, evenly.
    seed: of all draws.

  Returns:
    A tuple of the log, a `pyarrow.Table` of N K rows in no order, and its
    `LogTruth`. The columns are `request_id`, `rank` (the display position),
    `item_id`, `device`, `timestamp` (s), `click` (0 or 1), `dwell_ms` (0
    without a click), `randomized`, and the item's features: `f_0` to `f_7`,
    `category`, `brand` and `is_new`.

  Raises:
    ValueError: if an argument is out of range.

  Source: P(click) is that of `click_models.PositionBasedModel` and, with
  `trust_negative`, of `click_models.TrustBiasModel` with e+ = 1.

  Example:
    >>> log, truth = simulate_log(100, positions=(1, 2, 4), seed=1)
    >>> log.num_rows, sorted(set(log["rank"].to_pylist()))
    (300, [1, 2, 4])
    >>> truth.examination["desktop"].round(2).tolist()
    [0.76, 0.71, 0.47]
  """
  num_requests = checks.check_count("num_requests", num_requests)
  days = checks.check_count("days", days)
  checks.check_choice("logger", logger, LOGGERS)
  randomized = float(checks.check_probabilities("randomized", randomized))
  positions = _checked_positions(positions)
  size = len(positions)
  examination = _curves(examination, positions)
  trust_negative = _by_position("trust_negative", trust_negative, size)
  num_items = checks.check_count("num_items", num_items)
  if num_items < 2 * _CHOICE * size:
    raise ValueError(
        f"`num_items` must be at least {2 * _CHOICE * size} to fill {size} "
        f"`positions` in various ways, but is {num_items}; give more items.")
  # Two streams, so that a longer log is of the same shop.
  of_items, of_requests = (
      np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
  items = _draw_catalogue(of_items, num_items)
  shown, shuffled = _show(
      of_requests, items, logger, num_requests, size, randomized)
  devices = list(examination)
  device = of_requests.integers(len(devices), size=num_requests)
  attraction = items.attraction[shown]
  chance = np.stack(list(examination.values()))[device] * (
      attraction + trust_negative * (1. - attraction))
  click = of_requests.random(shown.shape) < chance
  dwell = items.dwell[shown] * np.exp(
      _DWELL_DEVIATION * of_requests.normal(size=shown.shape))
  time = _START + np.sort(
      of_requests.integers(days * _DAY, size=num_requests))
  rows = of_requests.permutation(shown.size)
  request, place = np.divmod(rows, size)
  item = shown.ravel()[rows]
  log = pa.table({
      "request_id": _names("r", num_requests).take(request),
      "rank": positions[place],
      "item_id": items.table["item_id"].take(item),
      "device": pa.array(devices).take(device[request]),
      "timestamp": time[request],
      "click": click.ravel()[rows].astype(np.int64),
      "dwell_ms": np.where(click, np.ceil(dwell), 0.).ravel()[rows].astype(
          np.int64),
      "randomized": shuffled[request],
      **{name: items.table[name].take(item)
         for name in items.table.column_names if name != "item_id"}})
  # From the median of a lognormal distribution to its mean.
  mean_dwell = items.dwell * np.exp(_DWELL_DEVIATION ** 2 / 2.)
  return log, LogTruth(
      positions, examination, trust_negative, items.attraction[item],
      items.table, items.attraction, mean_dwell)


class _Catalogue(NamedTuple):
  """Items."""
  table: pa.Table
  attraction: np.ndarray
  popularity: np.ndarray
  dwell: np.ndarray
  logger_score: np.ndarray


def _draw_catalogue(rng, count):
  """Items whose attraction follows from their features."""
  traits = rng.normal(size=(count, 6))
  category = rng.choice(len(_CATEGORIES), count, p=_zipf(len(_CATEGORIES)))
  num_brands = max(2, count // 5)
  brand = rng.choice(num_brands, count, p=_zipf(num_brands))
  is_new = rng.random(count) < .2
  # Stated, not drawn: categories matter as much with every seed.
  by_category = rng.permutation(np.linspace(-1.2, 1.2, len(_CATEGORIES)))
  appeal = (
      1.5 * np.tanh(1.5 * traits[:, 0]) - .8 * np.abs(traits[:, 1]) +
      .8 * traits[:, 2] * np.where(is_new, -1., 1.) + .5 * traits[:, 3] +
      by_category[category] + .3 * rng.normal(size=num_brands)[brand] +
      .2 * rng.normal(size=count))
  appeal = (appeal - appeal.mean()) / appeal.std()
  unknown = rng.random(count) < .15
  table = pa.table({
      "item_id": _names("i", count),
      "f_0": traits[:, 0],
      "f_1": 100. + 15. * traits[:, 1],
      "f_2": 20. * np.exp(1.5 * traits[:, 2]),
      "f_3": np.floor(np.exp(2. + 1.2 * traits[:, 3])),
      "f_4": pa.array(traits[:, 4], mask=unknown),
      # New items have no history.
      "f_5": pa.array(np.exp(2. * traits[:, 0] + rng.normal(size=count)),
                      mask=is_new),
      "f_6": rng.random(count),
      "f_7": np.exp(2. * traits[:, 5]),
      "category": pa.array(_CATEGORIES).take(category),
      "brand": _names("brand ", num_brands).take(brand),
      "is_new": is_new})
  return _Catalogue(
      table=table, attraction=special.expit(1.4 * appeal - 1.2),
      popularity=np.exp(rng.normal(size=count)),
      dwell=np.exp(9. + .5 * appeal + .5 * traits[:, 4]),
      logger_score=_BY_APPEAL * appeal + _BY_ITEM * rng.normal(size=count))


def _show(rng, items, logger, num_requests, size, randomized):
  """What each request shows: items `[N, K]`, and whether shuffled, `[N]`."""
  score = items.logger_score
  if logger == "fixed":
    shown = np.stack([
        rng.choice(part, num_requests, p=_shares(items.popularity[part]))
        for part in np.array_split(np.argsort(-score), size)], axis=1)
  else:
    shown = _draw_distinct(
        rng, _shares(items.popularity), num_requests, _CHOICE * size)
    if logger == "weak":
      score = score[shown] + _BY_REQUEST * rng.normal(size=shown.shape)
    elif logger == "relevance":
      score = items.attraction[shown]
    else:
      score = rng.random(shown.shape)
    order = np.argsort(-score, axis=1)[:, :size]
    shown = np.take_along_axis(shown, order, axis=1)
  shuffled = rng.random(num_requests) < randomized
  shown[shuffled] = rng.permuted(shown[shuffled], axis=1)
  return shown, shuffled | (logger == "random")


def _draw_distinct(rng, shares, num_rows, size):
  """Draws `[num_rows, size]` indices, different within a row."""
  drawn, wanted = (np.ones((num_rows, size), t) for t in (np.int64, bool))
  rows = np.arange(num_rows)
  while len(rows):
    part = drawn[rows]
    part[wanted] = rng.choice(len(shares), wanted.sum(), p=shares)
    drawn[rows] = part
    # A stable sort keeps the first of equal ones in front.
    order = np.argsort(part, axis=1, kind="stable")
    part = np.take_along_axis(part, order, axis=1)
    repeated = np.zeros_like(wanted)
    repeated[:, 1:] = part[:, 1:] == part[:, :-1]
    np.put_along_axis(wanted, order, repeated, axis=1)
    unfinished = wanted.any(axis=1)
    rows, wanted = rows[unfinished], wanted[unfinished]
  return drawn


def _checked_positions(positions):
  positions = checks.check_integers("positions", positions)
  if (positions.ndim != 1 or not positions.size or positions[0] < 1 or
      np.any(np.diff(positions) < 1)):
    raise ValueError(
        "`positions` must be rising whole numbers from 1, but are "
        f"{positions.tolist()}; give the display positions of items.")
  return positions


def _curves(examination, positions):
  """Examination `[K]` by device."""
  if examination is None:
    return {device: PositionBasedModel(eta=eta).examination(
        positions[-1])[positions - 1] for device, eta in _ETA_BY_DEVICE.items()}
  if not examination:
    raise ValueError(
        "`examination` must name at least one device, but is empty; give for "
        'example {"desktop": [.7, .4, .2]}.')
  return {device: _by_position(f"examination[{device!r}]", curve,
                               len(positions))
          for device, curve in examination.items()}


def _by_position(name, values, size):
  values = checks.check_probabilities(name, values)
  if values.ndim:
    checks.check_shape(name, values, (size,), "one for each of `positions`")
  return np.broadcast_to(values, size)


def _names(prefix, count):
  width = len(str(count - 1))
  return pa.array([f"{prefix}{i:0{width}d}" for i in range(count)])


def _zipf(count):
  return _shares(1. / np.arange(1, count + 1))


def _shares(weights):
  return weights / weights.sum()
