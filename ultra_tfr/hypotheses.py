"""What users may be like: hypotheses that a bias layer holds side by side.

Where EM ends depends on where it starts, and no single model of users is right
everywhere. So a `PositionBias` runs all hypotheses in one training, each with
its own tables and relevance logits, and the likelihood of what users did tells
which to believe.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from ultra_tfr.core import examination
from ultra_tfr.core import positions as positions_lib

# Slots of a position where users browse: no click above it, the last click
# above it at a distance of 1 to 8, and further away.
NUM_DISTANCES = 10


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """One hypothesis about the users.

  Attributes:
    name: a word, for logs and files.
    browses: whether examination depends on the last click above, and not on
      the position alone.
    click_irrelevant: p0 at the start, as a share of p1.
    initial_power: the power of the relative click rates at which theta starts.
      Where users browse, click rates fall for another reason, too: lists
      without a click so far are those with few relevant items. So theta starts
      at their square root there.
    words: what it says of users, in plain words.
  """

  name: str
  browses: bool
  click_irrelevant: float
  initial_power: float
  words: str


SIMPLEST = "position"
HYPOTHESES = (
    Hypothesis(SIMPLEST, False, 0.02, 1.0,
               "users look at each position by itself"),
    Hypothesis("trust", False, 0.3, 1.0,
               "users look at each position by itself, and trust what stands "
               "high"),
    Hypothesis("browsing", True, 0.02, 0.5,
               "where users look depends on where they clicked before"),
    Hypothesis("browsing_trust", True, 0.3, 0.5,
               "where users look depends on where they clicked before, and "
               "they trust what stands high"),
)
# What browsing amounts to if examination after a click is less than this share
# of examination without one.
_STOPS, _STOPPING = 0.2, "users stop after a click"


class ClickModel(NamedTuple):
  """The variables of one hypothesis about the users, in a `PositionBias`.

  Attributes:
    hypothesis: a `Hypothesis`.
    suffix: at the end of the names of its variables and sums in the layer.
    num_distances: D, slots of a position.
    variables: a dict by name: "examination" `[C, K * D]` and others.
  """

  hypothesis: Hypothesis
  suffix: str
  num_distances: int
  variables: dict[str, tf.Variable]

  def slots(self, slots: positions_lib.Slots,
            clicked: tf.Tensor) -> positions_lib.Slots:
    """Where items look up these variables, from slots by position."""
    if self.num_distances == 1:
      return slots
    return positions_lib.browsing_slots(slots, clicked, self.num_distances)

  def num_slots(self, num_positions: int) -> int:
    """How many slots of a context can be seen at all.

    At position k a click above is at a distance of k - 1 at most.
    """
    return sum(min(k, self.num_distances)
               for k in range(1, num_positions + 1))

  def key(self, name: str) -> str:
    """The layer's name for a sum of the hypothesis."""
    return name + self.suffix if name != "trust" else name

  def own(self, sums: dict[str, Any]) -> dict[str, Any]:
    """The layer's sums of this hypothesis, under names without the suffix."""
    return {name: sums[self.key(name)]
            for name in ("pointwise", "calibration", "trust")
            if self.key(name) in sums}

  def by_position(self, name: str, seen: tf.Tensor) -> tf.Tensor:
    """A table by position: the mean over distances, by how often seen.

    Args:
      name: of the variable.
      seen: running statistics `[C, K, D, 5]`, see
        `examination.pointwise_statistics`.

    Returns:
      `[C, K]`.
    """
    table = tf.convert_to_tensor(self.variables[name])
    if self.num_distances == 1:
      return table
    table = tf.reshape(table, tf.shape(seen)[:3])
    count = seen[..., examination.COUNT]
    total = tf.reduce_sum(count, axis=2)
    mean = tf.math.divide_no_nan(tf.reduce_sum(count * table, axis=2), total)
    return tf.where(total > 0, mean, table[..., 0])

  def words(self, seen: tf.Tensor) -> str:
    """What the hypothesis says of users, in the light of its learned tables.

    Args:
      seen: as in `by_position`.

    Returns:
      A clause in plain words.
    """
    if self.num_distances == 1:
      return self.hypothesis.words
    table = tf.reshape(self.variables["examination"], tf.shape(seen)[:3])
    count = seen[:, :, 1:, examination.COUNT]
    after = tf.reduce_sum(count * table[:, :, 1:])
    without_click = tf.reduce_sum(count * table[:, :, :1])
    if float(after) < _STOPS * float(without_click):
      return _STOPPING
    return self.hypothesis.words
