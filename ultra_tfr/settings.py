"""What all trainings of `train`, `compare` and `fit-log` share."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
  """What all methods share, so that they compete on equal terms.

  Attributes:
    hidden_units: of each tower but that of relevance.
    relevance_units: of the tower of relevance, which is never served. (In the
      paper's methods it is as the others.)
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.
    batch_size: lists in a batch.
    steps: batches in all.
    learning_rate: of Adam at the start; it falls to 0 by a cosine.
    validate_every: steps between two validations, a Keras epoch; if `steps` is
      smaller, there is one validation, at the end.

  Raises:
    ValueError: if the steps are not a whole number of epochs.
  """

  hidden_units: tuple[int, ...] = (512, 256, 128)
  relevance_units: tuple[int, ...] = (128, 64)
  activation: str = "elu"
  layer_norm: bool = True
  dropout: float = 0.0
  batch_size: int = 256
  steps: int = 2000
  learning_rate: float = 1e-3
  validate_every: int = 100

  def __post_init__(self):
    if self.steps > self.validate_every and self.steps % self.validate_every:
      raise ValueError(
          f"`steps` ({self.steps}) must be a multiple of `validate_every` "
          f"({self.validate_every}), so that the last checkpoint is validated "
          "too; change one of them.")

  @property
  def steps_per_epoch(self) -> int:
    """Steps before each validation."""
    return min(self.validate_every, self.steps)
