"""What is known of positions, and taking it out of feedback."""

import dataclasses
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr.core import counterfactual
from ultra_tfr.core import masking

# Cap of inverse propensities, relative to position 1, where held-out feedback
# judges a ranker: larger ones add more noise than they take bias away.
MAX_WEIGHT = 20.0


def debiased_feedback(
    position_bias: Any, feedback: tf.Tensor, positions: tf.Tensor,
    contexts: Optional[tf.Tensor], *, has_noise: bool = True,
    max_weight: Optional[float] = None) -> tuple[tf.Tensor, tf.Tensor]:
  """Feedback with a layer's present propensities taken out, item by item.

  Args:
    position_bias: a `PositionBias`.
    feedback: `[B, L]`, as `unpack_feedback` gives it, and so are the others.
    positions: `[B, L]`.
    contexts: `[B, L]`.
    has_noise: whether p0 is taken off, with `trust_bias="position"`. It is a
      chance of clicks, so feedback must be 0 or 1, or a mean of that.
    max_weight: cap of the weights relative to position 1, or None.

  Returns:
    A tuple of the estimates `[B, L]` on the scale of position 1 of the item's
    context, see `core.counterfactual.relevance_estimates`, and `[B, L]`
    booleans, the items that count.
  """
  slots = position_bias.find_slots(positions, contexts)
  first = position_bias.examination[:, :1]
  click_relevant = slots.lookup(position_bias.examination)
  click_irrelevant = None
  mask = tf.logical_and(masking.valid_items(feedback), slots.valid)
  mask = tf.logical_and(mask, click_relevant > 0)
  if position_bias.trust_bias == "position" and has_noise:
    first -= position_bias.click_irrelevant[:, :1]
    click_irrelevant = slots.lookup(position_bias.click_irrelevant)
  scale = slots.lookup(
      tf.broadcast_to(first, position_bias.examination.shape))
  estimates, _, _ = counterfactual.relevance_estimates(
      feedback, mask, click_relevant, click_irrelevant, scale=scale,
      max_weight=max_weight)
  return estimates, mask


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
  def of_layer(cls, method: str, layer: Any) -> "Bias":
    """The present values of a `PositionBias`."""
    def values(name):
      variable = getattr(layer, name, None)
      # As JSON holds them: what is saved is what was used.
      return None if variable is None else variable.numpy().astype(np.float64)
    return cls(method, values("examination"), values("click_irrelevant"),
               values("trust_positive"), values("trust_negative"))

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
