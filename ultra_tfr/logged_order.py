"""Following the logged order until the ranker is better than it."""

import functools

import numpy as np
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr.bias import MAX_WEIGHT
from ultra_tfr.bias import debiased_feedback
from ultra_tfr.core import masking
from ultra_tfr.evaluation import held_out
from ultra_tfr.feedback import item_weights
from ultra_tfr.feedback import split_heads
from ultra_tfr.feedback import unpack_feedback

# Where the weight starts; debiased feedback has the weight 1.
INITIAL_WEIGHT = 1 / 4
# How far it moves up if no ranker is better than the logged order, down if one
# is, and down if hypotheses differ in whether it is far better. And by which
# factor at most an epoch.
_HIGHEST, _LOWEST, _IN_DOUBT, _FACTOR = 4.0, 1 / 64, 1.0, 4.0
# The lead of a better ranker over the logged order must be this share of the
# lead of the logged order over its reverse. On simulated lists the lead of a
# trained ranker is below .08 of that if lists were ordered by a ranker of all
# labels, in part from the model's own relevance; .14 to .6 if by one of few
# labels; and more than twice that if by what does not matter, or if examination
# is thought to fall faster than it does.
_BETTER, _FAR_BETTER = 1 / 10, 1.0
# And by so many standard errors more. On 300 simulated lists, shown to users
# like one of the hypotheses, leads were on average .9 and more where the logged
# order was by few labels, and below -1 where it was by all of them.
_STANDARD_ERRORS = 1 / 4


class LoggedOrderGuard(tf.keras.callbacks.Callback):
  """Moves `logged_order_weight` of the bias layer by held-out feedback.

  A logged order may come from a ranker that is better than what debiased clicks
  can teach. Clicks as they are keep to it: what stands high gets more of them.
  So the loss learns from both, and at the end of each epoch the ranker, the
  logged order and its reverse are judged by feedback that training does not
  see, with the propensities of the moment taken out (SNIPS DCG@10, as in
  `ultra_tfr.evaluation.counterfactual`). Any feedback counts as one click: the
  propensities are chances of feedback, and say nothing of how much longer a
  visit is at the top, or if what was clicked is irrelevant. What is hardly ever
  examined, as all below a click where users stop at it, counts with the
  relevance that a head of the model gives it (see
  `core.counterfactual.relevance_estimates`), or the logged order would look
  better than it is. A ranker is better if its lead over the logged order is
  larger than a tenth of the lead of the logged order over its reverse, and if
  it is ahead of the reverse, too, since propensities by which that is the best
  of the three are wrong. If the model has a relevance head, the ranker that the
  likeliest hypothesis makes of it is a second witness: the weight does not
  touch it, while a ranker that follows the logged order is never far ahead of
  it. One of them must be better by the likeliest hypothesis and by the
  simplest, of users who look at each position by itself, too: of users whom
  none describes, each alone may flatter it. The more standard errors it is
  better, the more the weight of clicks as they are goes down, by a factor of 4
  an epoch at most, and to 1/64 at last: a logged order that says little of
  relevance soon counts for nothing. By as much it goes up if none is better by
  a quarter of a standard error, to 4 at last, where the ranker is nearly what
  it would be without debiasing. So what chance decides moves it little. But if
  one is ahead of the logged order by more than that is of its reverse, and not
  so by the simplest hypothesis, propensities are in doubt, and the weight goes
  no lower than 1: then clicks as they are count as much as the others, and
  steady them. The judgement is as good as the propensities.

  Logs get `logged_order_weight`, and `val_lead`, the lead of the ranker in
  SNIPS DCG@10 (NaN if there is no feedback to tell; then the weight stays).
  EM does not depend on the weight if the model has a relevance head that shares
  no layers with the ranking head. Put the callback before a `BackupAndRestore`,
  which then saves the weight of the same epoch.

  Source: ours. That a logged order deserves to be kept until there is evidence
  against it is the idea of Oosterhuis & de Rijke, "Robust Generalization and
  Safe Query-Specialization in Counterfactual Learning to Rank", WWW 2021, who
  choose between rankers by bounds of their difference.

  Args:
    validation_data: lists that training does not see, (inputs, y_true) or
      (inputs, y_true, weights) as a tuple, or a finite `tf.data.Dataset` or
      Python list of such batches, which is iterated each epoch. `y_true` is as
      for the loss. If the same lists were shown several times, it may be a
      Python list with a `y_true` for each visit. (The mean of clicks will do,
      too, but does not tell what browsing users saw.) All of several workers
      must be given the same.

  Raises:
    ValueError: if the model's loss has no bias layer with
      `logged_order_weight`; if no EM has run in the first epoch; if
      `validation_data` gives no batches, or feedback above 1 where the layer
      has p0 and the loss takes binary feedback; or if a score is no number.

  >>> from ultra_tfr.callbacks import PropensityEM
  >>> from ultra_tfr.layers import PositionBias
  >>> from ultra_tfr.losses import UnbiasedPairwiseLoss
  >>> bias = PositionBias(2, logged_order_weight=1.0)
  >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1),
  ...                              tf.keras.layers.Reshape([-1])])
  >>> model.compile(loss=UnbiasedPairwiseLoss(bias))
  >>> lists = tf.zeros([2, 2, 3]), tf.constant([[1.0, 0.0]] * 2)
  >>> _ = model.fit(*lists, verbose=0, callbacks=[
  ...     PropensityEM(), LoggedOrderGuard(lists)])
  >>> float(bias.logged_order_weight)
  4.0
  """

  def __init__(self, validation_data):
    super().__init__()
    is_batch = isinstance(validation_data, tuple)
    self._data = [validation_data] if is_batch else validation_data
    self._bias = self._is_binary = None

  def set_model(self, model):
    """Finds the bias layer."""
    super().set_model(model)
    for loss in base.learning_losses(model.loss):
      if loss.uses_logged_order:
        self._bias = loss.position_bias
        self._is_binary = loss.options.feedback == "binary"
        return
    raise ValueError(
        "`LoggedOrderGuard` needs a model compiled with an "
        "`ultra_tfr.losses.UnbiasedPairwiseLoss` whose bias layer has a "
        "`logged_order_weight`, but the loss is "
        f"{model.loss!r}; create the layer with `PositionBias(.., "
        f"logged_order_weight={INITIAL_WEIGHT})`.")

  def on_epoch_end(self, epoch, logs=None):
    """Judges by held-out feedback, and moves the weight."""
    del epoch
    if not self._bias.is_fixed and not int(self._bias.num_updates):
      raise ValueError(
          f"Without EM the layer {self._bias.name!r} knows nothing of "
          "positions, so `LoggedOrderGuard` could not judge; give `fit` "
          "`ultra_tfr.callbacks.PropensityEM()`, too.")
    hypotheses = [
        index for index in (self._bias.likeliest, self._bias.simplest)
        if index is not None]
    batches = [
        self._rankings(
            hypotheses, *tf.keras.utils.unpack_x_y_sample_weight(batch))
        for batch in self._data]
    if not batches:
      raise ValueError(
          "`validation_data` of `LoggedOrderGuard` gives no batches; pass "
          "a tuple, or batches that can be iterated again each epoch.")
    ahead = move_weight(self._bias, *map(held_out.judge, zip(*batches)))
    if logs is not None:
      logs["val_lead"] = ahead
      logs["logged_order_weight"] = float(
          self._bias.logged_order_weight.numpy())

  def _rankings(self, hypotheses, inputs, y_true, sample_weight):
    """A batch of `held_out.judge` for each hypothesis, the likeliest first.

    Its relevance head is the witness by all of them.
    """
    visits = y_true if isinstance(y_true, list) else [y_true]
    feedback, positions, _ = unpack_feedback(visits[0])
    heads = split_heads(self.model(inputs, training=False), feedback)
    rankings, relevance = [heads[0], -positions, positions], None
    # With scores alone the ranker would be judged by itself.
    if len(heads) > 1:
      logits = self._bias.relevance_logits(heads)
      rankings.append(logits[hypotheses[0]])
      relevance = tf.tile(tf.sigmoid(logits), [1, len(visits), 1])

    def batch(hypothesis):
      estimates, mask = held_out.mean_estimates(functools.partial(
          self._debias, relevance=relevance, hypothesis=hypothesis), visits)
      return rankings, estimates * item_weights(sample_weight, mask), mask

    return [batch(hypothesis) for hypothesis in hypotheses]

  def _debias(self, y_true, relevance, hypothesis):
    """Estimates and mask, `[B, L]` each."""
    feedback, positions, contexts = unpack_feedback(y_true)
    if not self._is_binary:
      feedback = tf.sign(feedback)
    estimates, mask = debiased_feedback(
        self._bias, feedback, positions, contexts, max_weight=MAX_WEIGHT,
        relevance=relevance, hypothesis=hypothesis)
    most = np.max(masking.zero_where_invalid(mask, feedback), initial=0.0)
    if self._bias.has_click_irrelevant and most > 1.0:
      raise ValueError(
          "`validation_data` of `LoggedOrderGuard` must hold clicks, 0 or 1 or "
          "their means, where feedback is binary and the bias layer has clicks "
          f"on irrelevant items, but has {most:g}; pack `feedback > 0`, or "
          "give the loss `feedback='graded'`.")
    return estimates, mask


def move_weight(position_bias, *judgements):
  """Moves the weight of the logged order, see `LoggedOrderGuard`.

  Args:
    position_bias: a `PositionBias` with `logged_order_weight`.
    *judgements: what `evaluation.held_out.judge` gives, by the likeliest
      hypothesis and by others that must agree: DCG of the ranker, the logged
      order, its reverse and of rankers that the weight does not touch, the same
      for all hypotheses; and the gain.

  Returns:
    The lead of the ranker over the logged order in SNIPS DCG. NaN for a single
    request, and if there is no more feedback than irrelevant items would get:
    then nothing can be told, and the weight stays as it is.
  """
  (dcg, logged, *_), gain = judgements[0]
  if not np.sum(gain) > 0 or len(gain) < 2:
    return float("nan")
  weight = float(position_bias.logged_order_weight.numpy())
  better, far_better = (
      np.array([_standard_errors(found, share) for found in judgements])
      for share in (_BETTER, _FAR_BETTER))
  surplus = better.min(axis=0).max()
  is_far = far_better.max(axis=1) > _STANDARD_ERRORS
  lowest = _IN_DOUBT if is_far[0] and not is_far.all() else _LOWEST
  moved = weight * _FACTOR ** np.clip(_STANDARD_ERRORS - surplus, -1, 1)
  # No further than that where propensities come to be in doubt, either.
  position_bias.logged_order_weight.assign(np.clip(
      max(moved, lowest), weight / _FACTOR, min(weight * _FACTOR, _HIGHEST)))
  return float(np.sum(dcg - logged) / np.sum(gain))


def _standard_errors(judgement, share):
  """How many each ranker is beyond a share of the logged order's own lead."""
  dcg, logged, reverse, *witnesses = np.asarray(judgement[0], np.float64)

  def errors(surplus):
    # Where all requests agree there is no doubt.
    noise = np.std(surplus) * len(surplus)**0.5 + np.finfo(surplus.dtype).eps
    return surplus.sum() / noise

  # Estimates by which the reverse is the best of the three are wrong.
  return [min(errors(found - logged - share * (logged - reverse)),
              errors(found - reverse)) for found in (dcg, *witnesses)]
