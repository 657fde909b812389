"""The bias of a log's positions as plain numbers, and what it corrects."""

import dataclasses
from typing import Optional

import numpy as np

from ultra_tfr.evaluation import counterfactual


@dataclasses.dataclass(frozen=True, eq=False)
class Bias:
  """What a trained model says about positions.

  Attributes:
    method: its name.
    click_relevant: `[C, K]`, p1: theta, or with trust bias theta times it.
    click_irrelevant: `[C, K]`, p0, or None.
    trust_positive: `[C, K, K]`, or None.
    trust_negative: `[C, K, K]`, or None.

  >>> bias = Bias("unbiased-ipw", np.array([[0.8, 0.4]]))
  >>> Bias.from_config(bias.to_config()).click_relevant.tolist()
  [[0.8, 0.4]]
  """

  method: str
  click_relevant: np.ndarray
  click_irrelevant: Optional[np.ndarray] = None
  trust_positive: Optional[np.ndarray] = None
  trust_negative: Optional[np.ndarray] = None

  def to_config(self):
    """The values, ready for JSON."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()}

  @classmethod
  def from_config(cls, config):
    """Rebuilds what `to_config` described."""
    return cls(**{name: np.array(value) if isinstance(value, list) else value
                  for name, value in config.items()})

  @classmethod
  def of_layer(cls, method, layer):
    """The present values of a `PositionBias`."""
    def values(name):
      variable = getattr(layer, name, None)
      # As JSON holds them: what is saved is what was used.
      return None if variable is None else variable.numpy().astype(np.float64)
    return cls(method, values("examination"), values("click_irrelevant"),
               values("trust_positive"), values("trust_negative"))

  def relative(self):
    """p1 relative to the first position of each context, `[C, K]`."""
    return self.click_relevant / self.click_relevant[:, :1]

  def at(self, positions, contexts):
    """p1, p0 (or None) and their scale, of items.

    Args:
      positions: `[B, L]` from 1, 0 in padding.
      contexts: `[B, L]` ids.

    Returns:
      A tuple of p1 `[B, L]`, p0 `[B, L]` or None, and p1 (minus p0) at the
      first position of the context, `[B, L]`.

    >>> bias = Bias("unbiased-ipw", np.array([[0.8, 0.4], [0.9, 0.1]]))
    >>> relevant, _, scale = bias.at(np.array([[2, 1]]), np.array([[0, 1]]))
    >>> relevant.tolist(), scale.tolist()
    ([[0.4, 0.9]], [[0.8, 0.9]])
    """
    place = np.maximum(positions, 1) - 1
    relevant = self.click_relevant[contexts, place]
    first = self.click_relevant[contexts, 0]
    if self.click_irrelevant is None:
      return relevant, None, first
    irrelevant = self.click_irrelevant[contexts, place]
    return relevant, irrelevant, first - self.click_irrelevant[contexts, 0]


def click_probability(bias, relevance, batch):
  """P(feedback > 0) of items by a bias and their relevance.

  Args:
    bias: a `Bias`.
    relevance: `[B, L]` probabilities.
    batch: a `LoggedBatch`.

  Returns:
    `[B, L]`.
  """
  relevant, irrelevant, _ = bias.at(batch.positions, batch.contexts)
  irrelevant = 0.0 if irrelevant is None else irrelevant
  return relevant * relevance + irrelevant * (1.0 - relevance)


class ClickRows:
  """Rows of a log with the chance of a click, to see how well it fits."""

  def __init__(self):
    self._batches = []

  def add(self, bias, relevance, batch):
    """Adds a batch; see `click_probability`."""
    counts = batch.weights > 0
    self._batches.append([values[counts] for values in (
        batch.feedback, click_probability(bias, relevance, batch),
        batch.positions, batch.weights)])

  def likelihood(self):
    """The `counterfactual.ClickLikelihood`, or None without a batch."""
    if not self._batches:
      return None
    return counterfactual.click_likelihood(*(
        np.concatenate(values)[np.newaxis] for values in zip(*self._batches)))


def add_totals(totals, scores, batch, bias, binary):
  """Adds a batch to counterfactual totals, corrected by a bias.

  Args:
    totals: `LogTotals`.
    scores: `[B, L]`.
    batch: a `LoggedBatch`; items of weight 0 count as little as padding.
    bias: a `Bias`, or None to take the feedback as it is.
    binary: whether the feedback is 0 or 1; only then is p0 used.
  """
  if bias is None:
    relevant, irrelevant, scale = np.ones(scores.shape), None, 1.0
  else:
    relevant, irrelevant, scale = bias.at(batch.positions, batch.contexts)
    if not binary and irrelevant is not None:
      irrelevant, scale = None, bias.click_relevant[batch.contexts, 0]
  feedback = np.where(batch.weights > 0, batch.feedback, -1.0)
  totals.update(scores, feedback, batch.positions, relevant, irrelevant,
                scale=scale, weights=batch.weights)
