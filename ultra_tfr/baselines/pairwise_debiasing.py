"""Pairwise debiasing, Unbiased LambdaMART's loss (Hu et al., WWW 2019)."""

import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr.baselines import position_tables
from ultra_tfr.core import em
from ultra_tfr.core import pairs
from ultra_tfr.core import preference_ratios
from ultra_tfr.core import weights as weights_lib
from ultra_tfr.feedback import count


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class ClickRatios(position_tables.PositionTables):
  """The ratios t+ and t- by position, for `PairwiseDebiasingLoss`.

  They are ratios to position 1 and no probabilities. Where a logger shows items
  in random order, t+ recovers the click model's examination theta_k / theta_1
  with `regularization=0`, and its square root with `regularization=1`. Where
  the order is not random it holds relevance, too.

  Args:
    num_positions: K, the positions of a table.
    num_contexts: C, one table for each context id of the packed feedback.
    regularization: p >= 0. Ratios are raised to the power 1 / (1 + p): larger
      values correct less.
    min_ratio: a floor for the ratios, and so a cap for weights; its inverse is
      their ceiling. While position 1 gets no feedback, the ratios stay as they
      are.
    overflow: as in `PositionTables`.
    name: the layer's name.

  Raises:
    ValueError: if an argument is out of range.

  >>> ClickRatios(3).clicked_ratio.numpy()
  array([[1., 1., 1.]], dtype=float32)
  """

  def __init__(self, num_positions, *, num_contexts=1, regularization=0.0,
               min_ratio=1e-3, overflow="mask", name="click_ratios"):
    super().__init__(
        num_positions, num_contexts, overflow,
        {"clicked_ratio": 1.0, "unclicked_ratio": 1.0},
        num_sums=preference_ratios.NUM_SUMS, name=name, is_averaged=True)
    self._regularization = checks.check_not_negative(
        "regularization", regularization)
    self._min_ratio = checks.check_share("min_ratio", min_ratio)

  def ratios(self):
    """The ratios as numpy arrays.

    Returns:
      A dict with "clicked_ratio" t+ and "unclicked_ratio" t-: `[K]`, or
      `[C, K]` with several contexts.
    """
    return {name: self._learned(values)
            for name, values in self.curves().items()}

  def curves(self):
    """See `PositionTables`."""
    return {"clicked_ratio": self.clicked_ratio.numpy(),
            "unclicked_ratio": self.unclicked_ratio.numpy()}

  def _move_tables(self, sums, num_batches, rate):
    step = tf.convert_to_tensor(self.num_updates)
    # While the average is young it is the plain mean of all that was seen.
    rate = tf.maximum(rate, num_batches / (step + num_batches))
    averages = em.average_statistics(
        self._averages["tables"], sums, num_batches, rate)
    return [(self._averages["tables"], averages), *(
        (table, preference_ratios.ratios(
            self._by_position(averages[:, column]), tf.convert_to_tensor(table),
            self._regularization, self._min_ratio,
            self._by_position(sums[:, column])))
        for column, table in (
            (preference_ratios.CLICKED, self.clicked_ratio),
            (preference_ratios.UNCLICKED, self.unclicked_ratio)))]

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {**super().get_config(), "regularization": self._regularization,
            "min_ratio": self._min_ratio}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class PairwiseDebiasingLoss(base.LearningLoss):
  r"""Pairwise logistic loss with weights 1 / (t+_i t-_j).

      loss = sum_{a, b: c_a > c_b} L_ab / (t+_i t-_j)
      L_ab = log(1 + exp(-(s_a - s_b)))

  with a at position i and b at position j. Weights carry no gradient. The
  ratios follow from sums of the same pair losses, see `core.preference_ratios`,
  which `ultra_tfr.callbacks.PropensityEM` averages over batches.

  t- belongs to an item that got no click, so the feedback should be clicks: of
  two items that both got feedback, the one with less counts as not clicked.

  Args:
    position_bias: a `ClickRatios`.
    max_weight: cap of the pair weights, or None.
    reduction: as in Keras; the mean is over valid items.
    name: the loss's name.

  Raises:
    ValueError: if an argument is out of range.

  Source: Hu, Wang, Peng & Li, "Unbiased LambdaMART: An Unbiased Pairwise
  Learning-to-Rank Algorithm", WWW 2019.

  >>> loss = PairwiseDebiasingLoss(ClickRatios(2), reduction="sum")
  >>> round(float(loss([[0.0, 1.0]], [[0.0, 0.0]])), 4)  # log 2
  0.6931
  """

  def __init__(self, position_bias, *, max_weight=None,
               reduction=tf.keras.losses.Reduction.AUTO,
               name="pairwise_debiasing_loss"):
    super().__init__(position_bias, ClickRatios, reduction, name)
    self._max_weight = checks.check_max_weight(max_weight)

  def _learn(self, batch):
    clicked = batch.slots.lookup(self.position_bias.clicked_ratio)
    unclicked = batch.slots.lookup(self.position_bias.unclicked_ratio)
    is_greater = pairs.preferred(batch.feedback, batch.mask)
    weights, cut = weights_lib.scale_and_clip(
        tf.where(is_greater, preference_ratios.pair_weights(clicked, unclicked),
                 0.0), 1.0, self._max_weight)
    pair_losses = pairs.logistic_loss(batch.heads[0])
    return base.Learned(
        tf.reduce_sum(tf.stop_gradient(weights) * pair_losses, axis=2),
        lambda: {"tables": preference_ratios.ratio_sums(
            tf.where(is_greater, pair_losses, 0.0) *
            batch.weights[:, :, tf.newaxis],
            clicked, unclicked, batch.slots)},
        count(is_greater), tf.reduce_sum(weights), tf.reduce_sum(cut))

  def _options(self):
    return {"max_weight": self._max_weight}
