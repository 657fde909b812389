"""Shallow towers: predictions that use the position in training only.

The position's part of the prediction is in the loss. So the model never sees a
position, and there is nothing to switch off when it is served.
"""

import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr.baselines import position_tables
from ultra_tfr.core import position_effects
from ultra_tfr.feedback import count

_MODES = (None, "additive", "product")
# The predictions of each kind of loss, in the order of the tower's modes.
_PREDICTIONS = {"click": ("click",), "value": ("value",),
                "click+value": ("click", "value")}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class ShallowTower(position_tables.PositionTables):
  """The learned effect of the display position on each prediction of a loss.

  Args:
    num_positions: K, the positions of a table.
    modes: for each prediction of the loss how position k acts on it, by a
      learned g_k: `"additive"`, f + g_k; `"product"`, sigmoid(f) sigmoid(g_k),
      for clicks only; or None, not at all.
    num_contexts: C, one table for each context id of the packed feedback.
    overflow: as in `PositionTables`.
    name: the layer's name.

  Raises:
    ValueError: if an argument is out of range.

  Source: additive: Zhao et al., "Recommending What Video to Watch Next: A
  Multitask Ranking System", RecSys 2019; product: Guo et al., "PAL: A
  Position-bias Aware Learning Framework for CTR Prediction in Live Recommender
  Systems", RecSys 2019.

  >>> ShallowTower(3, ["product"]).effects_0.numpy()
  array([[0., 0., 0.]], dtype=float32)
  """

  def __init__(self, num_positions, modes, *, num_contexts=1, overflow="mask",
               name="shallow_tower"):
    modes = tuple(modes)
    if not modes:
      raise ValueError(
          f"`modes` must be a list with one of {_MODES} for each prediction of "
          f"the loss, but is {modes}.")
    for mode in modes:
      checks.check_choice("modes", mode, _MODES)
    super().__init__(
        num_positions, num_contexts, overflow,
        {f"effects_{i}": 0.0 for i, _ in enumerate(modes)},
        num_sums=2 * len(modes), name=name)
    self.modes = modes

  def effects(self, index):
    """The variable g of a prediction, `[C, K]`.

    Args:
      index: of the prediction, from 0.
    """
    return getattr(self, f"effects_{index}")

  def propensities(self):
    """The propensities of a tower with a product, as numpy arrays.

    Returns:
      A dict with "examination", sigmoid(g_k) / sigmoid(g_1): `[K]`, or `[C, K]`
      with several contexts.

    Raises:
      ValueError: if no mode is a product: a number that is added to a logit or
        a value is no propensity.
    """
    curves = self.curves()
    if "examination" not in curves:
      raise ValueError(
          f"The tower {self.name!r} has no propensities, since its modes are "
          f"{list(self.modes)}; take 'product', or look at `curves()`.")
    return {"examination": self._learned(curves["examination"])}

  def curves(self):
    """See `PositionTables`."""
    curves = {}
    for i, mode in enumerate(self.modes):
      if mode == "product":
        seen = tf.sigmoid(self.effects(i)).numpy()
        curves["examination"] = seen / seen[:, :1]
      elif mode == "additive":
        curves[f"position_effect_{i}"] = self.effects(i).numpy()
    return curves

  def _move_tables(self, sums, num_batches, rate):
    del num_batches
    return [
        (self.effects(i), position_effects.scoring_step(
            self.effects(i), self._by_position(sums[:, 2 * i]),
            self._by_position(sums[:, 2 * i + 1]), rate))
        for i, mode in enumerate(self.modes) if mode is not None]

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {**super().get_config(), "modes": list(self.modes)}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class ShallowTowerLoss(base.LearningLoss):
  r"""Pointwise loss of predictions to which the position is added.

  `predicts` says what is learned from the feedback c:

  *   `"click"`: cross-entropy of c > 0. The score is the click's logit f.
  *   `"value"`: squared error of c. The score is the predicted value f.
  *   `"click+value"`: c is the sum of a click and a value that unclicked items
      do not have, such as a dwell time: the click is c > 0, and the value is c
      minus the click. The loss is the sum of both losses. Items rank by the sum
      of both predictions,

          s = sigmoid(z) + d

      with z the logit of a click and d the predicted value. The first head of a
      model is always its ranking score, so the two heads are s and z, and d is
      s - sigmoid(z). The gradient of the value's loss reaches s alone, as if d
      were a network of its own.

  Args:
    position_bias: a `ShallowTower` with a mode for each prediction.
    predicts: see above.
    reduction: as in Keras; the mean is over valid items.
    name: the loss's name.

  Raises:
    ValueError: if arguments do not fit.

  Source: as in `ShallowTower`; the two predictions and their sum: the baselines
  V1 to V4 of Ren, Tang & Zhu, "Unbiased Pairwise Learning to Rank in
  Recommender Systems", AAAI 2022.

  >>> loss = ShallowTowerLoss(ShallowTower(2, ["additive"]), predicts="value")
  >>> float(loss([[0.0, 3.0]], [[0.0, 1.0]]))
  2.0
  """

  has_weights = False

  def __init__(self, position_bias, *, predicts="click",
               reduction=tf.keras.losses.Reduction.AUTO,
               name="shallow_tower_loss"):
    checks.check_choice("predicts", predicts, tuple(_PREDICTIONS))
    super().__init__(position_bias, ShallowTower, reduction, name)
    self._predicts = predicts
    self._predictions = _PREDICTIONS[predicts]
    self.num_heads = len(self._predictions)
    modes = list(position_bias.modes)
    if len(modes) != self.num_heads:
      raise ValueError(
          f"`position_bias` must have {self.num_heads} mode(s) for "
          f"`predicts={predicts!r}`, but has {modes}; give one a prediction.")
    for prediction, mode in zip(self._predictions, modes):
      if mode == "product" and prediction == "value":
        raise ValueError(
            f"`position_bias` has the modes {modes} for `predicts="
            f"{predicts!r}`, but a product is for clicks; take 'additive' or "
            "None for values.")

  def _learn(self, batch):
    layer, heads = self.position_bias, batch.heads
    clicked = batch.feedback > 0
    values = batch.feedback
    predicted = {prediction: heads[0] for prediction in self._predictions}
    if len(heads) > 1:
      values -= tf.cast(clicked, tf.float32)
      predicted = {"click": heads[1], "value": heads[0] - tf.stop_gradient(
          tf.sigmoid(heads[1]))}
    losses, columns = tf.zeros_like(heads[0]), []
    for i, (prediction, mode) in enumerate(zip(self._predictions, layer.modes)):
      effects = batch.slots.lookup(layer.effects(i))
      if mode is None:
        effects = tf.zeros_like(effects)
      if prediction == "value":
        effect = position_effects.additive_value(
            values, predicted["value"], effects)
      else:
        click = (position_effects.product_click if mode == "product" else
                 position_effects.additive_click)
        effect = click(clicked, predicted["click"], effects)
      losses += effect.losses
      columns += [batch.weights * effect.gradients,
                  batch.weights * effect.curvatures]
    nothing = tf.zeros([])
    return base.Learned(
        losses, lambda: {"tables": batch.slots.sums(
            tf.stack(columns, axis=-1))},
        count(clicked), nothing, nothing)

  def _options(self):
    return {"predicts": self._predicts}
