"""Examination curves from the clicks that positions win from each other.

All start from one table, A of `pair_clicks`: how the items that were seen at
two positions were clicked at one and at the other.
"""

import numpy as np
from scipy import sparse
from scipy import special


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
  maximises over r_kk' for each pair of positions, too. Here one conditions on
  there being a click at one of the two, which leaves no r_kk' to be estimated.
  Damped Newton steps find the maximum: the usual fixed-point (MM) iterations
  come in tens of thousands where items move to neighbouring positions only.

  Args:
    pairs: `[.., K, K]`, A of `pair_clicks`.
    tolerance: ends when no log p_k moves by more.
    max_iterations: ends at the latest.

  Returns:
    `[.., K]`, relative to position 1. 0, the limit, where a chain of wins leads
    from position 1 to there and none back; NaN where none leads there.

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
