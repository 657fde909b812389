"""The robustness suite: does one method hold whatever the users are like?

26 cells differ in users, loggers, kinds of feedback and rankers, and compare
the same methods. A method is as robust as its worst cell, relative to the
method that knows nothing of bias.
"""

from collections.abc import Iterable
import dataclasses

import numpy as np

from ultra_tfr import trainer
from ultra_tfr.experiments import comparison
from ultra_tfr.experiments import peers
from ultra_tfr.experiments import tables
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.methods import METHODS as ALL_METHODS
from ultra_tfr.simulation.click_models import CLICK_MODELS

USERS = ("pbm", "trust", "ubm", "dbn", "cascade")
LOGGERS = ("irrelevant", "weak", "strong")
SPARSE = "pbm-sparse"
METHODS = ("naive-pairwise", "unbiased", "dla", "ipw-known",
           "lightgbm-position", "oracle-pairwise")
_NAIVE, _ORACLE = "naive-pairwise", "oracle-pairwise"
# If true labels gain less than this over naive, a share of the gap is a share
# of noise, and is not shown.
_SMALLEST_GAP = 0.005


@dataclasses.dataclass(frozen=True)
class Cell:
  """One world of the suite.

  Attributes:
    users: a key of `CLICK_MODELS`.
    logger: see `experiments.loggers`.
    feedback: `"click"` or `"dwell"`.
    is_linear: whether the ranker is linear, instead of a tower.
  """

  users: str
  logger: str = "weak"
  feedback: str = "click"
  is_linear: bool = False

  def __str__(self):
    ranker = ", linear ranker" if self.is_linear else ""
    return f"{self.users}, {self.logger} logger, {self.feedback}{ranker}"

  def world(self, settings: trainer.Settings, train_queries: int,
            data_seed: int) -> comparison.World:
    """The `World` of the cell.

    Args:
      settings: of all cells; those of a linear ranker have no hidden units.
      train_queries: of the synthetic data.
      data_seed: of the synthetic data.
    """
    if self.is_linear:
      settings = dataclasses.replace(settings, hidden_units=())
    return comparison.World(
        "synthetic", self.logger, self.users, settings,
        train_queries=train_queries, data_seed=data_seed)


  def methods(self, names: Iterable[str]) -> list[str]:
    """The methods that can run in this cell.

    Left out are those that need the true examination where the users have no
    such curve, those for the other kind of feedback, and trees where the ranker
    is to be linear.

    Args:
      names: of methods.
    """
    has_curve = task_lib.true_curve(CLICK_MODELS[self.users](), 1) is not None

    def exists(name):
      if name in peers.PEERS and self.is_linear:
        return False
      method = comparison.find(name)
      return self.feedback in method.feedback and (
          has_curve or not getattr(method, "knows_examination", False))

    return [name for name in names if exists(name)]


CELLS = (
    *(Cell(users, logger) for users in USERS for logger in LOGGERS),
    *(Cell(users, feedback="dwell") for users in USERS),
    *(Cell(users, is_linear=True) for users in USERS),
    Cell(SPARSE),
)


class Summary:
  """The table of the suite.

  Args:
    results: a dict by `Cell` of dicts by method of dicts by seed of what
      `experiments.comparison.execute` gave; what is missing is shown as "-".
    names: of the methods, in order.
    select: the pick of the checkpoint that counts, `"labels"` or `"clicks"`.
  """

  def __init__(self, results, names=METHODS, select="labels"):
    self._names = list(names)
    self._means = {
        cell: {name: float(np.mean([run[select]["metrics"]["ndcg@10"]
                                    for run in by_seed.values()]))
               for name, by_seed in by_method.items() if by_seed}
        for cell, by_method in results.items()}

  def worst(self, name):
    """The cell in which a method is least ahead of naive, and by how much.

    Args:
      name: of a method.

    Returns:
      A tuple (`Cell`, difference of NDCG@10), or None without a result.
    """
    ahead = {cell: means[name] - means[_NAIVE]
             for cell, means in self._means.items()
             if {name, _NAIVE} <= {*means}}
    if not ahead:
      return None
    cell = min(ahead, key=ahead.get)
    return cell, ahead[cell]

  def is_best(self, name, slack=0.003):
    """In how many cells a method is nearly the best of those without oracles.

    Args:
      name: of a method.
      slack: how far below the best still counts.

    Returns:
      A tuple of the number of these cells and of all that have the method.
    """
    found = [means[name] >= max(
        value for other, value in means.items()
        if other not in ALL_METHODS or not ALL_METHODS[other].is_oracle) - slack
             for means in self._means.values() if name in means]
    return sum(found), len(found)

  def rows(self, bold="{}"):
    """The cells of the table, with a heading.

    Args:
      bold: how the worst case of a method is written.

    Returns:
      A list of lists of text: NDCG@10, and in brackets the share of the way
      from naive to true labels, where there is one.
    """
    worst = {name: self.worst(name) for name in self._names}
    rows = [["users, logger, feedback", *self._names]]
    for cell, means in self._means.items():
      row = [str(cell)]
      for name in self._names:
        if name not in means:
          row.append("-")
          continue
        text = f"{means[name]:.4f}{self._share(means, name)}"
        is_worst = (name not in (_NAIVE, _ORACLE) and worst[name] and
                    worst[name][0] == cell)
        row.append(bold.format(text) if is_worst else text)
      rows.append(row)
    return rows

  def sentences(self):
    """What the table says of each method, lines of text."""
    lines = []
    for name in self._names:
      if name in (_NAIVE, _ORACLE) or self.worst(name) is None:
        continue
      cell, ahead = self.worst(name)
      best, count = self.is_best(name)
      lines.append(
          f"{name}: worst case {ahead:+.4f} against {_NAIVE} ({cell}); the "
          f"best or within .003 of it in {best} of {count}.")
    return lines

  def _share(self, means, name):
    if name in (_NAIVE, _ORACLE) or not {_NAIVE, _ORACLE} <= {*means}:
      return ""
    gap = means[_ORACLE] - means[_NAIVE]
    if gap < _SMALLEST_GAP:
      return ""
    share = tables.share_of_gap(means[_NAIVE], means[_ORACLE], means[name])
    return f" ({share:.0%})"
