"""Simulated dwell time: graded feedback that depends on the position, too."""

import numpy as np
from scipy import special

from ultra_tfr import checks
from ultra_tfr.simulation import base


def simulate_dwell(labels, clicks, seed, positions=None, rank_offset: int = 1,
                   max_grade_divisor: str = "grade", noise: float = .1,
                   max_grade: int = 4) -> np.ndarray:
  """Draws the dwell time d = c delta_i w of each clicked item.

      delta_i ~ N(2 / sqrt(i+2), .4 / sqrt(i+2))       the bias of the position
      w       ~ N(e + (1-e) y, (sqrt(y) + e) / D)      the item's own dwell time

  with means and standard deviations, both truncated to >= 0 (exactly what
  re-drawing until >= 0 gives), i the position, y the grade and e the noise.
  The synthesised feedback is click + dwell:

      labels.weighted_sum({"click": clicks, "dwell": dwell},
                          {"click": 1., "dwell": 1.})

  As with clicks, an item's dwell time depends on the seed, the number of lists
  and the item's place in display order, and not on padding. Clicks drawn from
  the same seed are independent of it.

  Args:
    labels: `[N, L]` true grades, negative for padding.
    clicks: `[N, L]` 0 or 1 of any dtype; negative is allowed on padding.
    seed: an int, or a sequence of ints such as (seed, epoch).
    positions: `[N, L]` 1-based display positions, 0 for items that were not
      displayed. None: item l is at position l + 1.
    rank_offset: i at the first position: 1 is the paper's, 0 that of its
      authors' code.
    max_grade_divisor: D, "grade" for ymax + 2, the paper's, or "sqrt" for
      sqrt(ymax + 2), that of its authors' code.
    noise: e, in [0, 1].
    max_grade: ymax.

  Returns:
    float32 `[N, L]`, 0 where there is no click.

  Raises:
    ValueError: if a shape, a grade, a click, a position or an option is not
      as above.

  Source: Ren, Tang & Zhu, "Unbiased Pairwise Learning to Rank in Recommender
  Systems", AAAI 2022, the experiments on continuous feedback.

  Example:
    >>> dwell = simulate_dwell([[4, 4, 0, -1]], [[1, 0, 1, 0]], seed=(1, 0))
    >>> (dwell > 0).tolist()
    [[True, False, True, False]]
  """
  if rank_offset not in (0, 1):
    raise ValueError(
        f"`rank_offset` must be 0 or 1, but is {rank_offset}; 1 is the "
        "paper's.")
  if max_grade_divisor not in ("grade", "sqrt"):
    raise ValueError(
        '`max_grade_divisor` must be "grade" or "sqrt", but is '
        f'{max_grade_divisor!r}; "grade" is the paper\'s.')
  noise = float(checks.check_probabilities("noise", noise))
  labels = base.grades(labels, max_grade)
  clicks = np.asarray(clicks, dtype=np.float64)
  if clicks.shape != labels.shape:
    raise ValueError(
        f"`clicks` must have the labels' shape {list(labels.shape)}, but have "
        f"the shape {list(clicks.shape)}; give one click an item.")
  bad = ~np.isin(clicks, (0., 1.)) & (labels >= 0)
  if np.any(bad):
    raise ValueError(
        f"`clicks` must be 0 or 1, but there is {clicks[bad][0]} at "
        f"{np.argwhere(bad)[0].tolist()}; simulate dwell from clicks.")
  display = base.Display(labels, positions)
  grades = np.maximum(display.labels, 0.)
  root = np.sqrt(
      np.maximum(display.positions - 1, 0) + rank_offset + 2.)
  divisor = max_grade + 2.
  if max_grade_divisor == "sqrt":
    divisor = np.sqrt(divisor)
  uniforms = base.draw_uniforms(seed, grades.shape, per_item=2, stream=1)
  delta = _truncated_normal(2. / root, .4 / root, uniforms[0])
  own = _truncated_normal(
      noise + (1. - noise) * grades, (np.sqrt(grades) + noise) / divisor,
      uniforms[1])
  return display.put_back(delta * own) * (clicks > 0)


def _truncated_normal(mean, deviation, uniform) -> np.ndarray:
  """Maps uniforms in [0, 1) to normal numbers of at least 0, by quantiles."""
  # Where the deviation is 0 (no noise, grade 0), so is the mean: it stays 0.
  deviation = np.maximum(deviation, np.finfo(np.float64).tiny)
  # Z >= -mean/deviation, and -Z has the same distribution: the upper tail of Z
  # is the lower one of -Z, where quantiles are accurate.
  accepted = special.ndtr(mean / deviation)
  return np.maximum(
      mean - deviation * special.ndtri((1. - uniform) * accepted), 0.)
