"""The dual learning algorithm, DLA (Ai et al., SIGIR 2018)."""

import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr.baselines import position_tables
from ultra_tfr.core import list_softmax
from ultra_tfr.core import masking
from ultra_tfr.core import position_effects
from ultra_tfr.feedback import count


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class PropensityLogits(position_tables.PositionTables):
  """Learned propensity logits g by position, for `DualLearningLoss`.

  Args:
    num_positions: K, the positions of the table.
    num_contexts: C, one table for each context id of the packed feedback.
    overflow: as in `PositionTables`.
    name: the layer's name.

  Raises:
    ValueError: if an argument is out of range.

  >>> PropensityLogits(3).propensity_logits.numpy()
  array([[0., 0., 0.]], dtype=float32)
  """

  def __init__(self, num_positions, *, num_contexts=1, overflow="mask",
               name="propensity_logits"):
    super().__init__(num_positions, num_contexts, overflow,
                     {"propensity_logits": 0.0}, num_sums=2, name=name)

  @property
  def examination(self):
    """theta_k / theta_1 = exp(g_k - g_1), a tensor `[C, K]`."""
    logits = self.propensity_logits
    return tf.exp(logits - logits[:, :1])

  def propensities(self):
    """The propensities as numpy arrays.

    Returns:
      A dict with "examination", relative to position 1: `[K]`, or `[C, K]`
      with several contexts.
    """
    return {"examination": self._learned(self.examination.numpy())}

  def curves(self):
    """See `PositionTables`."""
    return {"examination": self.examination.numpy()}

  def _move_tables(self, sums, num_batches, rate):
    del num_batches
    logits = position_effects.scoring_step(
        self.propensity_logits, self._by_position(sums[:, 0]),
        self._by_position(sums[:, 1]), rate)
    return [(self.propensity_logits, masking.clip_logits(logits))]


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class DualLearningLoss(base.LearningLoss):
  r"""Ranking scores and propensities, each learned with weights of the other.

  For each list with scores f, propensity logits g and clicked items a:

      loss = - sum_a exp(g_1 - g_a) log softmax(f)_a
             - sum_a exp(f_1 - f_a) log softmax(g)_a

  where 1 is the first displayed item of the list and g_a the logit of a's
  display position. Weights carry no gradient. The gradient of the first term
  reaches the model. The second term adds its value to the loss, and moves the
  layer by `ultra_tfr.callbacks.PropensityEM`. Any feedback above 0 is a click.

  Args:
    position_bias: a `PropensityLogits`.
    max_weight: cap of the weights, or None. They are ratios to the first item
      and unbounded: an item with a low score that is clicked by mistake gets a
      huge weight.
    reduction: as in Keras. The mean is over valid items (TF-Ranking's softmax
      loss has the mean over lists); with SUM the first term is TF-Ranking's
      softmax loss with weights.
    name: the loss's name.

  Raises:
    ValueError: if an argument is out of range.

  Source: Ai, Bi, Luo, Guo & Croft, "Unbiased Learning to Rank with Unbiased
  Propensity Estimation", SIGIR 2018.

  >>> loss = DualLearningLoss(PropensityLogits(2), reduction="sum")
  >>> round(float(loss([[0.0, 1.0]], [[0.0, 0.0]])), 4)  # 2 log 2
  1.3863
  """

  def __init__(self, position_bias, *, max_weight=10.0,
               reduction=tf.keras.losses.Reduction.AUTO,
               name="dual_learning_loss"):
    super().__init__(position_bias, PropensityLogits, reduction, name)
    # The weight of the first item is 1.
    self._max_weight = checks.check_max_weight(max_weight, least=1)

  def _learn(self, batch):
    clicks = tf.cast(batch.feedback > 0, tf.float32)
    scores = batch.heads[0]
    logits = batch.slots.lookup(self.position_bias.propensity_logits)
    weights, cut = self._weights(logits, batch)
    losses = list_softmax.weighted_cross_entropy(
        scores, clicks * weights, batch.mask)[0]
    relevance_weights, _ = self._weights(scores, batch)
    losses += list_softmax.weighted_cross_entropy(
        logits, clicks * relevance_weights, batch.mask)[0]
    _, gradient, curvature = list_softmax.weighted_cross_entropy(
        logits, clicks * relevance_weights * batch.weights, batch.mask)
    return base.Learned(
        losses, lambda: {"tables": batch.slots.sums(
            tf.stack([gradient, curvature], axis=-1))},
        count(batch.feedback > 0), tf.reduce_sum(clicks * weights),
        tf.reduce_sum(clicks * cut))

  def _weights(self, logits, batch):
    return list_softmax.relative_weights(
        logits, batch.positions, batch.mask, self._max_weight)

  def _options(self):
    return {"max_weight": self._max_weight}
