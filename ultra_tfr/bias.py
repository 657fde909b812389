"""Position bias as plain values, and taking it out of feedback."""

import dataclasses
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking
from ultra_tfr.core import positions as positions_lib

# Cap of inverse propensities, relative to position 1, where held-out feedback
# judges a ranker: larger ones add more noise than they remove bias.
MAX_WEIGHT = 20.0


def debiased_feedback(
    position_bias: Any, feedback: tf.Tensor, positions: tf.Tensor,
    contexts: Optional[tf.Tensor], *, max_weight: Optional[float] = None,
    relevance: Optional[tf.Tensor] = None,
    hypothesis: Optional[int] = None) -> tuple[tf.Tensor, tf.Tensor]:
  """Feedback with a layer's present propensities taken out, item by item.

  Where users browse, propensities depend on the clicks above an item. A mean of
  clicks does not tell these, so there the mean propensities of each position
  are taken.

  Args:
    position_bias: a `PositionBias`.
    feedback: `[B, L]` clicks, or their mean over visits, as
      `feedback.unpack_feedback` gives them.
    positions: `[B, L]`, likewise.
    contexts: `[B, L]` or None, likewise.
    max_weight: cap of the weights relative to position 1, or None.
    relevance: `[S, B, L]`, the chance that each item is relevant, by the
      model's logits for each hypothesis, which takes the place of what the
      cap takes away; or None.
    hypothesis: the index of that whose propensities count; None for the
      likeliest.

  Returns:
    A tuple of the estimates `[B, L]` on the scale of position 1 of the item's
    context, see `core.counterfactual.relevance_estimates`, and `[B, L]`
    booleans, the items that count.
  """
  slots = position_bias.find_slots(positions, contexts)
  if hypothesis is None:
    hypothesis = tf.argmax(position_bias.shares())
  relevant, irrelevant = position_bias.click_tables(hypothesis)
  first = relevant[:, :1]
  clicked = masking.zero_where_invalid(
      masking.valid_items(feedback), feedback)
  is_visit = tf.reduce_all(clicked == tf.sign(clicked))
  given_clicks = position_bias.click_parameters(slots, clicked > 0)[:2]

  def chances(given, table):
    return tf.where(
        is_visit, tf.gather(given, hypothesis), slots.lookup(table))

  click_relevant = chances(given_clicks[0], relevant)
  click_irrelevant = None
  mask = tf.logical_and(masking.valid_items(feedback), slots.valid)
  if relevance is None:
    mask = tf.logical_and(mask, click_relevant > 0)
  else:
    relevance = tf.gather(relevance, hypothesis)
  if irrelevant is not None:
    first -= irrelevant[:, :1]
    click_irrelevant = chances(given_clicks[1], irrelevant)
  scale = slots.lookup(tf.broadcast_to(first, relevant.shape))
  estimates, _, _ = counterfactual.relevance_estimates(
      feedback, mask, click_relevant, click_irrelevant, scale=scale,
      max_weight=max_weight, relevance=relevance)
  return estimates, mask


def at_most_one(examination: Any) -> Any:
  """Scales a curve relative to position 1 down to probabilities, if need be.

  Args:
    examination: None, a number, or a curve `[K]` or `[C, K]`. Contexts keep
      their proportions.

  Returns:
    What was given, divided by its largest value if that is above 1.

  >>> at_most_one([1.0, 1.25, 0.5]).tolist()
  [0.8, 1.0, 0.4]
  """
  values = np.asarray(examination)
  if values.ndim == 0 or values.dtype.kind not in "iuf":
    return examination
  highest = np.max(values, initial=0.0)
  return values / highest if 1.0 < highest < np.inf else examination


def check_known_trust(trust_bias: Optional[str], examination: Any,
                      trust_positive: Any, trust_negative: Any) -> None:
  """Raises a `ValueError` if the arguments of a layer do not fit.

  Args:
    trust_bias: as in `PositionBias`.
    examination: as in `PositionBias`.
    trust_positive: as in `PositionBias`.
    trust_negative: as in `PositionBias`.
  """
  if (trust_positive is None) != (trust_negative is None):
    raise ValueError(
        "`trust_positive` and `trust_negative` must be given together, but "
        "only one of them is.")
  if trust_positive is None:
    return
  if np.any(np.less(trust_positive, trust_negative)):
    raise ValueError(
        "`trust_positive` must be at least `trust_negative`, since relevant "
        f"items are not clicked less, but {trust_positive} and "
        f"{trust_negative} are given.")
  if trust_bias is None:
    raise ValueError(
        "`trust_positive` is given, but `trust_bias` is None; set it to "
        "'position' or 'pairwise'.")
  if trust_bias == "position" and examination is None:
    raise ValueError(
        "`trust_positive` with `trust_bias='position'` needs `examination` "
        "too, since only their product is identified.")


def check_examination_model(
    trust_bias: Optional[str], examination_model: Optional[str],
    examination_is_fixed: bool, trust_is_fixed: bool) -> None:
  """Raises a `ValueError` if what is to be learned is given, or has no model.

  Args:
    trust_bias: of a `PositionBias`.
    examination_model: likewise.
    examination_is_fixed: whether examination is given.
    trust_is_fixed: whether trust is given.
  """
  if trust_bias == "auto" and trust_is_fixed:
    raise ValueError("`trust_bias='auto'` finds out what users are like, but "
                     "their trust is given; leave one of them out.")
  if examination_model == "browsing" and (
      examination_is_fixed or trust_bias == "pairwise"):
    raise ValueError(
        "`examination_model='browsing'` learns its tables, and has no trust "
        "of pairs; leave `examination` out and take `trust_bias` 'auto', "
        "None or 'position'.")


def known_arguments(layer: Any, trust_bias: Optional[str],
                    trust_positive: Any,
                    trust_negative: Any) -> tuple[Any, Any, Any, Any]:
  """Arguments for a `PositionBias` that is fixed to the values of another.

  Args:
    layer: the other `PositionBias`.
    trust_bias: the argument that the new layer is given beside `layer`.
    trust_positive: likewise.
    trust_negative: likewise.

  Returns:
    A tuple of `examination`, `trust_bias`, `trust_positive` and
    `trust_negative`.

  Raises:
    ValueError: if something else is given for what the layer knows.
  """
  relevant, irrelevant = layer.click_tables()
  model = "position" if irrelevant is not None else layer.trust_bias
  if (trust_bias not in ("auto", model) or trust_positive is not None or
      trust_negative is not None):
    raise ValueError(
        f"`examination` is the layer {layer.name!r}, which knows its trust "
        f"bias, {model!r}, too; leave the arguments about trust out.")
  if irrelevant is not None:
    # Only products with examination are identified, so p1 goes there, and e-
    # is p0 as a share of p1.
    return relevant.numpy(), model, 1.0, np.minimum(
        tf.math.divide_no_nan(irrelevant, relevant), 1.0)
  if model == "pairwise":
    return (relevant.numpy(), model, layer.trust_positive.numpy(),
            layer.trust_negative.numpy())
  return relevant.numpy(), model, None, None


@dataclasses.dataclass(frozen=True, eq=False)
class Bias:
  """What a trained model says about positions.

  Attributes:
    method: its name.
    click_relevant: `[C, K]`, p1: theta, or with trust bias by position theta
      e+. This and all below are those of the likeliest hypothesis, if there
      are several.
    click_irrelevant: `[C, K]`, p0, or None.
    trust_positive: `[C, K, K]`, or None.
    trust_negative: `[C, K, K]`, or None.
    browsing_relevant: `[C, K, D]`, p1 by distance to the last click above, see
      `core.positions.browsing_slots`; None unless users browse.
    browsing_irrelevant: `[C, K, D]`, p0 likewise, or None.
    hypotheses: what `PositionBias.hypotheses` says, None for a single one.
    relevance_head: the index of the relevance logit that goes with them.
    fixed_to: the source of the examination, in words, if it was given; None if
      it was estimated.
    at_end: `[C, K]`, p1 at the end of training, where EM was run to convergence
      after that; None where it was not.

  >>> bias = Bias("unbiased-ipw", np.array([[0.8, 0.4]]))
  >>> Bias.from_config(bias.to_config()).click_relevant.tolist()
  [[0.8, 0.4]]
  """

  method: str
  click_relevant: np.ndarray
  click_irrelevant: Optional[np.ndarray] = None
  trust_positive: Optional[np.ndarray] = None
  trust_negative: Optional[np.ndarray] = None
  browsing_relevant: Optional[np.ndarray] = None
  browsing_irrelevant: Optional[np.ndarray] = None
  hypotheses: Optional[dict[str, dict[str, Any]]] = None
  relevance_head: int = 0
  fixed_to: Optional[str] = None
  at_end: Optional[np.ndarray] = None

  def to_config(self) -> dict[str, Any]:
    """The values, ready for JSON."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Rebuilds what `to_config` described."""
    values: dict[str, Any] = {
        name: np.array(value) if isinstance(value, list) else value
        for name, value in config.items()}
    return cls(**values)

  @classmethod
  def of_layer(cls, method: str, layer: Any,
               head: Optional[int] = None) -> "Bias":
    """The present values of a `PositionBias`.

    Args:
      method: its name.
      layer: the layer.
      head: the index of a hypothesis that does not browse; None for the
        likeliest.
    """
    def plain(values):
      # As JSON holds them, so a loaded model computes with the same numbers.
      return None if values is None else values.numpy().astype(np.float64)

    model = layer.models[layer.likeliest if head is None else head]

    def browsing(name):
      if model.num_distances == 1 or name not in model.variables:
        return None
      return plain(tf.reshape(model.variables[name], [
          layer.num_contexts, layer.num_positions, model.num_distances]))

    relevant, irrelevant = layer.click_tables(head)
    return cls(
        method, plain(relevant), plain(irrelevant),
        plain(model.variables.get("trust_positive")),
        plain(model.variables.get("trust_negative")),
        browsing("examination"), browsing("click_irrelevant"),
        layer.hypotheses() if len(layer.models) > 1 else None,
        layer.likeliest if head is None else head)

  @classmethod
  def simplest_of_layer(cls, method: str, layer: Any) -> Optional["Bias"]:
    """The values of the hypothesis that users look at each position by itself.

    Args:
      method: its name.
      layer: a `PositionBias`.

    Returns:
      A `Bias`; None if that hypothesis is the likeliest or the only one, so
      that `of_layer` gives it, or if the layer does not have it.
    """
    return None if layer.simplest is None else cls.of_layer(
        method, layer, layer.simplest)

  @property
  def predicts_clicks(self) -> bool:
    """Whether it gives each item a chance of a click.

    Pairwise trust bias does not: it is a model of pairs of items.
    """
    return self.trust_positive is None

  def relative(self) -> np.ndarray:
    """p1 relative to the first position of each context, `[C, K]`."""
    return self.click_relevant / self.click_relevant[:, :1]

  def at(
      self, positions: np.ndarray, contexts: np.ndarray
  ) -> tuple[np.ndarray, Optional[np.ndarray], np.ndarray]:
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

  def given_clicks(
      self, positions: np.ndarray, contexts: np.ndarray, clicked: np.ndarray
  ) -> tuple[np.ndarray, Optional[np.ndarray]]:
    """p1 and p0 (or None) of items, given the clicks above each.

    Args:
      positions: `[B, L]` from 1, 0 in padding.
      contexts: `[B, L]` ids.
      clicked: `[B, L]` booleans.

    Returns:
      A tuple of p1 `[B, L]`, and p0 `[B, L]` or None.

    >>> bias = Bias("unbiased", np.array([[0.8, 0.4]]),
    ...             browsing_relevant=np.array([[[0.8, 0.8], [0.5, 0.1]]]))
    >>> ones = np.ones([1, 2], bool)
    >>> bias.given_clicks(np.array([[1, 2]]), np.zeros([1, 2], int), ones)
    (array([[0.8, 0.1]]), None)
    """
    if self.browsing_relevant is None:
      return self.at(positions, contexts)[:2]
    count, size, distances = self.browsing_relevant.shape
    index = positions_lib.browsing_slots(
        positions_lib.find_slots(
            tf.constant(positions, tf.float32),
            tf.constant(contexts, tf.float32), size, count),
        tf.constant(clicked), distances).index.numpy()
    return self.browsing_relevant.ravel()[index], (
        None if self.browsing_irrelevant is None else
        self.browsing_irrelevant.ravel()[index])
