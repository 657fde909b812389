"""Judging rankers by held-out feedback alone, and choosing among them."""

import numpy as np
import tensorflow as tf

from ultra_tfr.core import counterfactual
from ultra_tfr.evaluation.counterfactual import row_blocks

_TOPN = 10


def judge(batches):
  """DCG@10 of rankings by feedback that training does not see.

  The sum over requests, divided by that of the gain, is SNIPS DCG@10.

  Args:
    batches: an iterable of (rankings, estimates, mask): V `[B, L]` scores, the
      highest ranks first; feedback `[B, L]` with the bias taken out, times item
      weights; and `[B, L]` booleans, the items that count. The logged order is
      minus the positions, its reverse the positions.

  Returns:
    A tuple of `[V, N]` DCG of each ranking and request, and `[N]` the gain of
    each request, the sum of its estimates, which is the same for all rankings.

  Raises:
    ValueError: if a score is no number.

  >>> dcg, gain = judge([([np.array([[2.0, 1.0]]), np.array([[1.0, 2.0]])],
  ...                     np.array([[1.0, 0.0]]), np.array([[True, True]]))])
  >>> dcg.round(2).tolist(), gain.tolist()
  ([[1.0], [0.63]], [1.0])
  """
  found = [_judge_rows(*(np.asarray(part)[..., rows, :] for part in batch))
           for batch in batches for rows in row_blocks(np.shape(batch[-1]))]
  dcg, gain = zip(*found)
  return np.concatenate(dcg, axis=1), np.concatenate(gain)


def _judge_rows(rankings, estimates, mask):
  if not np.isfinite(rankings[:, mask]).all():
    raise ValueError(
        "The training diverged: a score of the held-out lists is no number; "
        "lower the learning rate.")
  totals = [
      counterfactual.request_totals(
          tf.constant(scores, estimates.dtype), tf.constant(estimates), mask,
          (_TOPN,)) for scores in rankings]
  return (np.stack([order.dcg[:, 0] for order in totals]),
          totals[0].gain.numpy())


def mean_estimates(debias, visits):
  """Feedback with the bias taken out, of lists that were shown several times.

  Args:
    debias: a function of `[N, L, ...]` feedback that gives `[N, L]` estimates
      and mask.
    visits: V `[B, L, ...]` arrays, the feedback of each visit. The bias is
      taken out of each visit, since where users look may depend on what they
      clicked.

  Returns:
    A tuple of the means of the estimates, and `[B, L]` booleans, the items that
    count.

  >>> means, _ = mean_estimates(lambda feedback: (feedback * 2, feedback >= 0),
  ...                           [np.array([[1.0]]), np.array([[0.0]])])
  >>> means.numpy()
  array([[1.]])
  """
  estimates, mask = (
      tf.reshape(part, [len(visits), -1, part.shape[-1]])
      for part in debias(tf.concat(visits, axis=0)))
  return tf.reduce_mean(estimates, axis=0), tf.reduce_any(mask, axis=0)


def last_as_good(dcg, gain, slack=2.0):
  """The last of several rankers that is not clearly worse than the best.

  Feedback judges with much noise, and the best of many values is the luckiest:
  where the steps of a training fall towards 0, a later checkpoint that looks a
  little worse is mostly the better one. A ranker is clearly worse if its SNIPS
  DCG, sum(DCG) / sum(gain), is below the best by more than `slack` standard
  errors of the difference, paired by request.

  Args:
    dcg: `[V, N]`, of each ranker for each request, see `judge`.
    gain: `[N]`, of each request.
    slack: a number of standard errors; with 0 the last of the best is chosen.

  Returns:
    An index in 0 .. V - 1; V - 1 if no SNIPS DCG is a number.

  >>> dcg = np.array([[0.0, 0.0, 0.1], [0.5, 0.9, 0.8], [0.9, 0.2, 0.9]])
  >>> last_as_good(dcg, np.ones(3)), last_as_good(dcg, np.ones(3), slack=0.0)
  (2, 1)
  """
  dcg, gain = np.asarray(dcg, np.float64), np.asarray(gain, np.float64)
  total = gain.sum()
  with np.errstate(divide="ignore", invalid="ignore"):
    values = dcg.sum(axis=1) / total
  if not np.isfinite(values).any():
    return len(values) - 1
  best = int(np.nanargmax(values))
  behind = values[best] - values
  # What a request adds to the difference beyond its share, by the delta method.
  residuals = dcg[best] - dcg - behind[:, np.newaxis] * gain
  count = len(gain)
  errors = np.sqrt(
      (residuals**2).sum(axis=1) * count / max(count - 1, 1)) / abs(total)
  return int(np.flatnonzero(behind <= slack * errors)[-1])


class Checkpoints:
  """Weights of a model at each validation, of which feedback chooses one.

  Values compare only if the same propensities corrected the feedback, and
  propensities move while a model trains. So the choice comes at the end, when
  the last propensities can judge all checkpoints.

  Args:
    slack: as in `last_as_good`; 0 for a training whose steps do not fall.

  >>> checkpoints = Checkpoints()
  >>> checkpoints.keep(100, [np.zeros(2)], found="scores of the validation")
  >>> checkpoints.choose(lambda step: (np.ones(3), np.ones(3)))
  100
  >>> checkpoints.weights(100)
  [array([0., 0.])]
  """

  def __init__(self, slack=2.0):
    self._slack = slack
    self._kept = {}

  @property
  def steps(self):
    """The steps that were kept, in order."""
    return sorted(self._kept)

  def keep(self, step, weights, found=None):
    """Remembers a validation.

    Args:
      step: batches that the model has seen.
      weights: of the model, a list of arrays.
      found: any result of the validation that `choose` needs.
    """
    self._kept[step] = weights, found

  def weights(self, step):
    """The weights of a step."""
    return self._kept[step][0]

  def found(self, step):
    """What the validation of a step found."""
    return self._kept[step][1]

  def choose(self, judge):
    """The step that `last_as_good` chooses.

    Args:
      judge: a function from a step to DCG and gain of each request, each `[N]`.
        The gain is the same for all steps.

    Returns:
      A step, or None if none was kept.
    """
    steps, found = self.steps, []
    for step in steps:
      dcg, gain = judge(step)
      found.append(dcg)
    return steps[last_as_good(found, gain, self._slack)] if steps else None
