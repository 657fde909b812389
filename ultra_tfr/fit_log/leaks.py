"""Features that give the answer away, or that only tell rows apart.

A column that is known only after the click, a copy of the position, and a text
that few requests share are no features to rank by: a model learns clicks by
heart from them, and positions are left to explain the wrong things.
"""

import numpy as np

from ultra_tfr.evaluation import bootstrap

# No honest feature alone tells clicks so well: the area under the ROC curve.
CLICKS_ALONE = 0.95
# Only a copy of the position has such a rank correlation with it.
POSITION_ALONE = 0.98
# A text identifies rows if half of them have values that fewer requests have.
FEW_REQUESTS = 5
# Fewer clicks in the sample tell nothing of a feature.
_FEWEST_CLICKS = 10
_MOST_ROWS = 50000
# Stands for a missing number: below all of float32.
_LOWEST = -1e300


def find(log):
  """Looks at each feature alone, in a sample of the training part.

  Args:
    log: a `ClickLog`.

  Returns:
    A dict of dicts by name of feature, only with suspicious ones: "clicks", the
    area under the ROC curve (1 minus it if low values are clicked); "position",
    the rank correlation, without its sign; "identifying", the median over rows
    of the number of requests that share the value.
  """
  columns, rows = [], 0
  for batch in log.parts["train"].batches(1024):
    counts = batch.weights > 0
    requests = np.broadcast_to(batch.requests[:, np.newaxis], counts.shape)
    columns.append([values[counts] for values in (
        batch.numeric, batch.texts, batch.feedback > 0, batch.positions,
        requests)])
    rows += counts.sum()
    if rows >= _MOST_ROWS:
      break
  if not columns:
    return {"clicks": {}, "position": {}, "identifying": {}}
  numeric, texts, clicked, positions, requests = map(
      np.concatenate, zip(*columns))
  names = [[feature["name"] for feature in log.statistics[kind]]
           for kind in ("numeric", "text")]
  return suspicious(dict(zip(names[0], numeric.T)),
                    dict(zip(names[1], texts.T)), clicked, positions, requests)


def suspicious(numeric, texts, clicked, positions, requests):
  """As `find`, from columns.

  Args:
    numeric: a dict of `[R]` by name, NaN where missing.
    texts: a dict of `[R]` by name, of anything that can be sorted.
    clicked: `[R]` bool.
    positions: `[R]`.
    requests: `[R]` int.

  Returns:
    As there.

  >>> clicked = np.arange(100) % 5 == 0
  >>> suspicious({"dwell": np.where(clicked, 9.0, 0.0)}, {}, clicked,
  ...            np.arange(100) % 3, np.arange(100) // 3)["clicks"]
  {'dwell': 1.0}
  """
  found = {"clicks": {}, "position": {}, "identifying": {}}
  # A text becomes a number: the mean of its value in the other half of the
  # requests, so that no row speaks for itself.
  half = np.unique(requests, return_inverse=True)[1] % 2
  by_click = {name: np.nan_to_num(np.asarray(values, np.float64), nan=_LOWEST)
              for name, values in numeric.items()}
  by_position = dict(by_click)
  for name, values in texts.items():
    code = np.unique(values, return_inverse=True)[1]
    by_click[name] = _of_the_other_half(code, half, clicked)
    by_position[name] = _of_the_other_half(code, half, positions)
    pairs = np.unique(np.stack([code, requests]), axis=1)[0]
    shared = np.median(np.bincount(pairs)[code])
    if shared < FEW_REQUESTS:
      found["identifying"][name] = float(shared)
  if min(clicked.sum(), (~clicked).sum()) >= _FEWEST_CLICKS:
    for name, values in by_click.items():
      area = _area(values, clicked)
      if area >= CLICKS_ALONE:
        found["clicks"][name] = area
  for name, values in by_position.items():
    correlation = _rank_correlation(values, positions)
    if correlation >= POSITION_ALONE:
      found["position"][name] = correlation
  return found


def _of_the_other_half(code, half, target):
  """The mean of a target in rows of the same value in the other half."""
  size = (2, code.max() + 1)
  cell = np.ravel_multi_index((half, code), size)
  target = np.asarray(target, np.float64)
  # With one row at the overall mean, for values that the other half lacks.
  sums = target.mean() + np.bincount(cell, target, np.prod(size)).reshape(size)
  counts = 1.0 + np.bincount(cell, minlength=np.prod(size)).reshape(size)
  return (sums / counts)[1 - half, code]


def _area(values, clicked):
  """The area under the ROC curve, or 1 minus it if that is more."""
  ranks = bootstrap.centred_ranks(np.zeros(len(values), np.int64), values)
  above = ranks[clicked].sum() / (clicked.sum() * (~clicked).sum())
  return float(0.5 + abs(above))


def _rank_correlation(values, others):
  """Spearman's correlation without its sign; 0 of a constant."""
  a, b = (bootstrap.centred_ranks(np.zeros(len(each), np.int64), each)
          for each in (values, others))
  size = np.sqrt((a @ a) * (b @ b))
  return float(abs(a @ b) / size) if size > 0 else 0.0
