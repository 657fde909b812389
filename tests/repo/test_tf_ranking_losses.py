"""docs/tf_ranking_losses.md says of each loss of TF-Ranking what happens.

The lines are made here, by trying; one that is missing or wrong is printed, to
be put into the file.
"""

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import program_files
from ultra_tfr import ranking_losses
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss

_TEXT = (program_files.ROOT / "docs" / "tf_ranking_losses.md").read_text(
    encoding="utf-8")
_CLASSES = {
    name: value for name, value in vars(tfr.keras.losses).items()
    if isinstance(value, type) and name[0] != "_" and
    issubclass(value, tf.keras.losses.Loss)}
_NEW = {"CalibratedSoftmaxLoss"}  # Not in all versions of TF-Ranking.


def _refusal(wrapper, bias, loss):
  """The reason, or None if the loss works."""
  try:
    wrapper = wrapper(bias, loss)
  except ValueError as error:
    return re.search(r"cannot be debiased: (.*)\.$", str(error)).group(1)
  scores = tf.Variable([[0.3, 0.1, -0.2]])
  with tf.GradientTape() as tape:
    value = wrapper([[0.0, 1.0, 0.0]], scores)
  gradient = tape.gradient(value, scores).numpy()
  assert np.isfinite(value)
  assert np.isfinite(gradient).all() and gradient.any()
  return None


def _line(name):
  loss = _CLASSES[name]()
  bias = PositionBias(3, examination=[1.0, 0.5, 0.2])
  reasons = [_refusal(wrapper, bias, loss)
             for wrapper in (UnbiasedLoss, InversePropensityLoss)]
  assert reasons[0] == reasons[1]
  if reasons[0]:
    return f"| `{name}` | refused: {reasons[0]} | | |"
  treatment = ranking_losses.DebiasedLoss(loss).treatment
  return (f"| `{name}` | {treatment.enters} | {treatment.learned} | "
          f"{treatment.known} |")


@pytest.mark.parametrize("name", _CLASSES)
def test_the_table_tells_what_happens(name):
  line = _line(name)
  assert line in _TEXT.splitlines(), line


def test_the_table_has_no_other_losses():
  listed = set(re.findall(r"^\| `(\w+Loss)` ", _TEXT, re.M))
  assert listed - _NEW == _CLASSES.keys() - _NEW
