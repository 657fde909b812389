"""Examination by position from a click log alone, without a relevance model.

An item that was displayed at two positions was as relevant at one as at the
other. Under the position-based model, P(click | item d at k) = p_k r_d, its
click rates differ by examination alone. Such interventions are harvested from
the log as it is: Agarwal, Zaitsev, Wang, Li, Najork and Joachims, "Estimating
Position Bias without Intrusive Interventions", WSDM 2019.
"""

import dataclasses
import functools
import operator

import numpy as np
from scipy import sparse
from scipy import special
from scipy.sparse import csgraph

from ultra_tfr import checks
from ultra_tfr import output
from ultra_tfr.evaluation import bootstrap

# So many numbers are in the largest temporary array.
_BLOCK = 1 << 21


@dataclasses.dataclass(frozen=True, eq=False)
class Harvest:
  """Examination relative to position 1, and what it rests on.

  Attributes:
    adjacent: a `bootstrap.Estimate` of `[K]`, see `adjacent_chain`.
    pivot: likewise, see `pivot`.
    all_pairs: likewise, see `all_pairs`; the most precise.
    swap_counts: `[K, K]` int, the items seen at both positions; 0 on the
      diagonal.
    num_items: `[K]` int, the items seen at the position that were seen
      elsewhere, too.
    num_clicks: `[K]` int, rows with feedback of these items there.
    components: `[K]` int; positions with the same number are connected by
      pairs with enough swaps. Position 1 has the number 0.
  """

  adjacent: bootstrap.Estimate
  pivot: bootstrap.Estimate
  all_pairs: bootstrap.Estimate
  swap_counts: np.ndarray
  num_items: np.ndarray
  num_clicks: np.ndarray
  components: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class HarvestSums:
  """Sums over items that tell a `Harvest`.

  Those of a log that is in many places are added, if all rows of an item are in
  one of them.

  Attributes:
    pairs: `[1 + B, K, K]`, A of `pair_clicks`, of the log and B replicates.
    seen: `[K, K]` int, the items seen at both positions; on the diagonal those
      seen there and elsewhere.
    num_clicks: `[K]` int, see `Harvest`.
  """

  pairs: np.ndarray
  seen: np.ndarray
  num_clicks: np.ndarray

  def __add__(self, other):
    return HarvestSums(self.pairs + other.pairs, self.seen + other.seen,
                       self.num_clicks + other.num_clicks)

  def counts(self, min_swaps=1):
    """The counts of a `Harvest`, a dict by name."""
    swap_counts = self.seen - np.diag(np.diagonal(self.seen))
    return {"swap_counts": swap_counts,
            "num_items": np.diagonal(self.seen).copy(),
            "num_clicks": self.num_clicks,
            "components": csgraph.connected_components(
                swap_counts >= min_swaps, directed=False)[1]}

  def curves(self, level=0.9):
    """The `CURVES`, a dict of `bootstrap.Estimate` by name."""
    return {name: bootstrap.ratio_estimate(
        curve(self.pairs[0]), curve(self.pairs[1:]), level)
            for name, curve in CURVES.items()}


def harvest(items, positions, clicked, requests, num_positions, weights=None,
            replicates=200, level=0.9, seed=0, min_swaps=1):
  """Estimates examination from items that were seen at several positions.

  Nothing has to be known of the items but which is which. The intervals are
  percentiles over requests drawn again: in simulated logs of 20,000 rows, 90 %
  intervals hold the truth in 88 to 91 % of the cases, and in more cases where
  each item is seen a few times only.

  Args:
    items: `[R]` int, the item in each row of the log; -1 if unknown.
    positions: `[R]` int, 1-based, where it was displayed; 0 if unknown. Rows of
      which anything is unknown do not count.
    clicked: `[R]` bool, feedback > 0.
    requests: `[R]` int, any number for each request.
    num_positions: K.
    weights: `[R]`, how many displays the row stands for; None for 1.
    replicates: bootstrap replicates.
    level: the share of replicates in the interval.
    seed: of the bootstrap.
    min_swaps: positions are connected if at least so many items were seen at
      both.

  Returns:
    A `Harvest`. Position 1 is 1 by definition, and positions of which the log
    does not tell are NaN. `high` is NaN where `low` is 0: so few clicks do not
    show how many there might have been.

  Raises:
    ValueError: if an argument is not as above.

  Source: Agarwal et al., "Estimating Position Bias without Intrusive
  Interventions", WSDM 2019.

  >>> rows = [(7, 1, True), (7, 2, False), (7, 2, True), (7, 1, True)]
  >>> items, positions, clicked = zip(*rows)
  >>> result = harvest(items, positions, clicked, [0, 1, 2, 3], 2)
  >>> result.pivot.value.tolist(), result.swap_counts.tolist()
  ([1.0, 0.5], [[0, 1], [1, 0]])
  """
  checks.check_level(level)
  min_swaps = checks.check_count("min_swaps", min_swaps)
  sums = harvest_sums(
      items, positions, clicked, requests, num_positions, weights, replicates,
      seed)
  return Harvest(**sums.curves(level), **sums.counts(min_swaps))


def harvest_sums(items, positions, clicked, requests, num_positions,
                 weights=None, replicates=200, seed=0):
  """What `harvest` estimates from, of some items.

  Args:
    items: as in `harvest`, and so are the others.
    positions: see there.
    clicked: see there.
    requests: see there.
    num_positions: see there.
    weights: see there.
    replicates: see there.
    seed: see there.

  Returns:
    `HarvestSums`.

  Raises:
    ValueError: as in `harvest`.
  """
  num_positions = checks.check_count("num_positions", num_positions)
  positions, requests = checks.check_rows(positions, requests, num_positions)
  clicked = checks.check_booleans("clicked", clicked, positions.shape)
  items = checks.check_integers("items", items)
  checks.check_shape("items", items, positions.shape, "one for each row")
  weights = checks.check_weights(weights, positions.shape)
  replicates = checks.check_count("replicates", replicates)
  known = (items >= 0) & (positions > 0) & (weights > 0)
  items = np.unique(items[known], return_inverse=True)[1]
  cells, cell = np.unique(
      items * num_positions + positions[known] - 1, return_inverse=True)
  owner, position = cells // num_positions, cells % num_positions + 1
  # An item that stays at one position tells nothing, and often most do.
  moving = np.bincount(owner)[owner] > 1
  kept = moving[cell]
  cell = (np.cumsum(moving) - 1)[cell[kept]]
  owner, position = owner[moving], position[moving]
  rows = np.flatnonzero(known)[kept]
  # Rows of an item are neighbours now.
  order = np.argsort(cell, kind="stable")
  rows, cell = rows[order], cell[order]
  pairs = np.zeros((1 + replicates, num_positions, num_positions))
  for i, j in _blocks_of_items(owner, 1 + replicates):
    part = slice(*np.searchsorted(cell, [i, j]))
    pairs += pair_clicks(owner[i:j], position[i:j], *_counts_by_draw(
        cell[part] - i, j - i, weights[rows[part]], clicked[rows[part]],
        requests[rows[part]], replicates, seed), num_positions)
  seen = sparse.csr_matrix(
      (np.ones(len(owner), np.int64), (owner, position - 1)),
      (owner.max(initial=-1) + 1, num_positions))
  return HarvestSums(
      pairs, (seen.T @ seen).toarray(), np.bincount(
          position[cell] - 1, clicked[rows], num_positions).astype(int))


def sums_by_context(items, positions, clicked, requests, num_positions,
                    weights, contexts, names, replicates=200, seed=0):
  """`harvest_sums` of each context.

  Args:
    items: as in `harvest`, and so are the others.
    positions: see there.
    clicked: see there.
    requests: see there.
    num_positions: see there.
    weights: see there.
    contexts: `[R]` int, the id of each row's context.
    names: of the contexts, by id.
    replicates: as in `harvest`.
    seed: as in `harvest`.

  Returns:
    A dict of `HarvestSums` by name.
  """
  return {name: harvest_sums(
      items[rows], positions[rows], clicked[rows], requests[rows],
      num_positions, weights[rows], replicates, seed)
          for c, name in enumerate(names) for rows in [contexts == c]}


def tell(sums, level=0.9):
  """What a log tells, by context and in all.

  Args:
    sums: a dict of `HarvestSums` by context. An item that changes its position
      together with the context tells nothing, so it counts as another item in
      each.
    level: of the intervals.

  Returns:
    A dict ready for JSON, NaN as None: "contexts" has for each one the `CURVES`
    by name, each a dict of lists "value", "low" and "high", and "level" is that
    of the intervals; "swap_counts", "num_items", "num_clicks" and "components"
    are as in `Harvest`, of all contexts together.
  """
  return output.plain({
      "level": level,
      "contexts": {context: {name: {
          part: getattr(estimate, part) for part in ("value", "low", "high")}
                             for name, estimate in found.curves(level).items()}
                   for context, found in sums.items()},
      **functools.reduce(operator.add, sums.values()).counts()})


def randomized_click_rate(positions, clicked, requests, randomized,
                          num_positions, weights=None, replicates=200,
                          level=0.9, seed=0):
  """Examination as the click rate by position where the order was random.

  Args:
    positions: `[R]` int, 1-based; 0 if unknown.
    clicked: `[R]` bool, feedback > 0.
    requests: `[R]` int, any number for each request.
    randomized: `[R]` bool, whether the row was displayed in random order.
    num_positions: K.
    weights: `[R]`, how many displays the row stands for; None for 1.
    replicates: bootstrap replicates.
    level: the share of replicates in the interval.
    seed: of the bootstrap.

  Returns:
    A `bootstrap.Estimate` of `[K]`, relative to position 1; NaN where nothing
    was displayed, and everywhere without a click at position 1. `high` is NaN
    where `low` is 0, as in `harvest`.

  Raises:
    ValueError: if an argument is not as above, or no row is randomised.

  Source: Joachims, Swaminathan and Schnabel, "Unbiased Learning-to-Rank with
  Biased Feedback", WSDM 2017.

  >>> randomized_click_rate([1, 1, 2, 2], [True, True, True, False],
  ...                       [0, 1, 0, 1], [True] * 4, 2).value.tolist()
  [1.0, 0.5]
  """
  num_positions = checks.check_count("num_positions", num_positions)
  positions, requests = checks.check_rows(positions, requests, num_positions)
  clicked = checks.check_booleans("clicked", clicked, positions.shape)
  randomized = checks.check_booleans(
      "randomized", randomized, positions.shape)
  weights = checks.check_weights(weights, positions.shape)
  rows = np.flatnonzero(randomized & (positions > 0))
  if not len(rows):
    raise ValueError(
        "`randomized` must mark some rows with a position, but marks none; "
        "without randomised rows use `harvest`.")
  draws, request = bootstrap.draw_requests(
      requests[rows], replicates, level, seed)
  shape = (num_positions, draws.shape[1])
  place = (positions[rows] - 1, request)
  shown = sparse.csr_matrix((weights[rows], place), shape)
  clicks = sparse.csr_matrix((weights[rows] * clicked[rows], place), shape)

  def relative(times):
    rate = ratio(clicks @ times, shown @ times)
    return ratio(rate, rate[:1]).T

  return bootstrap.ratio_estimate(
      relative(np.ones((shape[1], 1)))[0],
      np.concatenate([relative(draws[part].T.astype(np.float64))
                      for part in _parts(draws)]), level)


def _parts(draws):
  """Slices of the replicates of `[B, N]` draws, about `_BLOCK` numbers each."""
  step = max(1, _BLOCK // max(1, draws.shape[1]))
  return [slice(i, i + step) for i in range(0, len(draws), step)]


def _blocks_of_items(owner, num_draws):
  """Yields pairs of a first cell and a last one, of whole items."""
  # The first cells of items, and the end.
  starts = np.append(np.flatnonzero(np.diff(owner, prepend=-1)), len(owner))
  step = max(1, _BLOCK // 8 // num_draws)
  bounds = np.unique(starts[np.searchsorted(
      starts, np.append(np.arange(0, len(owner), step), len(owner)))])
  yield from zip(bounds[:-1], bounds[1:])


def _counts_by_draw(cell, num_cells, weights, clicked, requests, replicates,
                    seed):
  """Displays and clicks of cells, as they are and with requests drawn again.

  Args:
    cell: `[R]`, sorted.
    num_cells: M.
    weights: `[R]`.
    clicked: `[R]` bool.
    requests: `[R]`.
    replicates: B.
    seed: of the draws.

  Returns:
    Two arrays `[M, 1 + B]`.
  """
  shown, clicks = np.zeros([2, num_cells, 1 + replicates])
  step = max(1, _BLOCK // (1 + replicates))
  for start in range(0, len(cell), step):
    part = slice(start, start + step)
    drawn = np.ones([len(cell[part]), 1 + replicates])
    drawn[:, 1:] = bootstrap.draws_of(requests[part], replicates, seed)
    drawn *= weights[part, np.newaxis]
    shown += _sum_by(cell[part], drawn, num_cells)
    wins = clicked[part]
    clicks += _sum_by(cell[part][wins], drawn[wins], num_cells)
  return shown, clicks


def pair_clicks(items, positions, shown, clicked, num_positions):
  """A[k, k'] = sum_d c_dk n_dk' / (n_dk + n_dk'), the Mantel-Haenszel sums.

  Over items d seen at both positions, with n displays and c clicks. Under the
  position-based model E A[k, k'] / E A[k', k] = p_k / p_k', however few the
  displays of each item are.

  Args:
    items: `[M]` int; each row is one item at one position, and the rows of an
      item are neighbours.
    positions: `[M]` int, 1-based.
    shown: `[M, ..]`, n_dk: a (weighted) number of displays.
    clicked: `[M, ..]`, c_dk: how many of them got a click.
    num_positions: K.

  Returns:
    `[.., K, K]`.

  Source: Mantel and Haenszel, "Statistical Aspects of the Analysis of Data from
  Retrospective Studies of Disease", 1959, as a ratio of risks.

  >>> pair_clicks(np.array([7, 7]), np.array([1, 2]), np.array([30.0, 10.0]),
  ...             np.array([12.0, 2.0]), num_positions=2).tolist()
  [[0.0, 3.0], [1.5, 0.0]]
  """
  inner = shown.shape[1:]
  shown, clicked = (
      np.reshape(count, (len(items), int(np.prod(inner))))
      for count in (shown, clicked))
  index = positions - 1
  sums = np.zeros((num_positions**2, shown.shape[1]))
  # The pairs of an item lie at most K - 1 rows apart.
  for gap in range(1, num_positions):
    first = np.flatnonzero(items[gap:] == items[:-gap])
    if not len(first):
      break
    second = first + gap
    total = shown[first] + shown[second]
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    for one, other in ((first, second), (second, first)):
      pair = index[one] * num_positions + index[other]
      sums += _sum_by(pair, clicked[one] * shown[other] * scale, len(sums))
  return sums.T.reshape(*inner, num_positions, num_positions)


def adjacent_chain(pairs):
  """Examination as a product over neighbouring positions.

  p_k / p_1 is the product of A[j+1, j] / A[j, j+1] over j < k. Errors add up
  along the chain, and it ends where two neighbours share no clicked item.

  Args:
    pairs: `[.., K, K]`, A of `pair_clicks`.

  Returns:
    `[.., K]`, NaN after the end of the chain.

  >>> adjacent_chain(np.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
  [1.0, 0.5]
  """
  curve = np.cumprod(
      ratio(np.diagonal(pairs, -1, -2, -1), np.diagonal(pairs, 1, -2, -1)),
      axis=-1)
  # Below a position without clicks there is nothing to be relative to.
  ended = np.cumsum(curve == 0, axis=-1) > (curve == 0)
  curve = np.where(ended, np.nan, curve)
  return np.concatenate([np.ones_like(pairs[..., :1, 0]), curve], axis=-1)


def pivot(pairs):
  """Examination from the exchange with position 1 alone: A[k, 1] / A[1, k].

  Args:
    pairs: `[.., K, K]`, A of `pair_clicks`.

  Returns:
    `[.., K]`, NaN at positions where no item was seen that got a click at
    position 1.

  >>> pivot(np.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
  [1.0, 0.5]
  """
  curve = ratio(pairs[..., :, 0], pairs[..., 0, :])
  curve[..., 0] = 1.0
  return curve


def all_pairs(pairs, tolerance=1e-10, max_iterations=200):
  """Examination from all pairs at once, also those far from position 1.

  The curve maximises a Bradley-Terry likelihood, position k winning against k'
  A[k, k'] times:

      sum_{k != k'} A[k, k'] log(p_k / (p_k + p_k'))

  It differs from the paper's AllPairs, which has the click rates p_k r_kk' and
  maximises over r_kk' for each pair of positions, too. This likelihood is
  conditional on a click at one of the two positions, which leaves no r_kk' to
  be estimated. Damped Newton steps find the maximum: the usual fixed-point (MM)
  iterations need tens of thousands where items move to neighbouring positions
  only.

  Args:
    pairs: `[.., K, K]`, A of `pair_clicks`.
    tolerance: the iterations end when no log p_k moves by more.
    max_iterations: after which they end at the latest.

  Returns:
    `[.., K]`, relative to position 1. It is 0, the limit, where a chain of wins
    leads from position 1 to a position and none leads back, and NaN where none
    leads there.

  Source: Bradley and Terry, "Rank Analysis of Incomplete Block Designs", 1952;
  Ford, "Solution of a Ranking Problem from Binary Comparisons", 1957, says when
  a maximum exists; Bach, "Self-concordant analysis for logistic regression",
  2010, has the damping.

  >>> all_pairs(np.array([[0.0, 8.0, 4.0], [4.0, 0.0, 2.0],
  ...                     [1.0, 1.0, 0.0]])).round(4).tolist()
  [1.0, 0.5, 0.25]
  """
  size = pairs.shape[-1]
  diagonal = np.eye(size, dtype=bool)
  reaches = (pairs > 0) | diagonal
  for _ in range(size.bit_length()):  # Chains of twice the length each time.
    reaches = reaches.astype(np.float32) @ reaches.astype(np.float32) > 0
  below, above = reaches[..., 0, :], reaches[..., :, 0]
  inside = below & above
  # At the limit, pairs of which one is outside add nothing to the likelihood.
  wins = np.where(
      inside[..., :, None] & inside[..., None, :] & ~diagonal, pairs, 0.0)
  both = wins + np.swapaxes(wins, -1, -2)
  logs = np.zeros(inside.shape)
  for _ in range(max_iterations):
    chance = special.expit(logs[..., :, None] - logs[..., None, :])
    gradient = (wins - both * chance).sum(axis=-1)
    curvature = both * chance * (1.0 - chance)
    # Ones keep the equations of the positions outside solvable.
    total = np.where(inside, curvature.sum(axis=-1), 1.0)
    hessian = np.where(diagonal, total[..., None], -curvature)
    step = np.linalg.solve(
        hessian[..., 1:, 1:], gradient[..., 1:, None])[..., 0]
    largest = (step.max(axis=-1, initial=0.0, keepdims=True) -
               step.min(axis=-1, initial=0.0, keepdims=True))
    logs[..., 1:] += step * np.log1p(largest) / np.maximum(largest, 1e-300)
    if np.all(largest < tolerance):
      break
  return np.where(inside, np.exp(logs), np.where(below, 0.0, np.nan))


# By their names in a `Harvest`.
CURVES = {"adjacent": adjacent_chain, "pivot": pivot, "all_pairs": all_pairs}


def _sum_by(groups, values, num_groups):
  """Sums of the rows of `values` `[M, B]` by group, `[num_groups, B]`."""
  members = sparse.csc_matrix(
      (np.ones(len(groups)), groups, np.arange(len(groups) + 1)),
      (num_groups, len(groups)))
  return members @ values


def ratio(numerator, denominator):
  """Their ratio, NaN where the denominator is not positive.

  >>> ratio(np.array([1.0, 1.0]), np.array([2.0, 0.0])).tolist()
  [0.5, nan]
  """
  return numerator / np.where(denominator > 0, denominator, np.nan)
