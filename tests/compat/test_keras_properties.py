"""What users of TF-Ranking's Keras classes count on, of ours around them.

Where every position is examined alike there is nothing to debias, so values
are TF-Ranking's own, on each supported stack.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import OnRanking
from ultra_tfr.metrics import on_ranking
from ultra_tfr.ranking_losses import TREATMENTS

pytestmark = pytest.mark.smoke

LABELS = tf.constant([[0., 1., 0., 1.], [1., 0., 0., -1.]])
SCORES = tf.constant([[.3, -.2, .1, .5], [.2, .4, -.3, 9.]])
WEIGHTS = tf.constant([[2.], [.5]])
LOSSES = [cls for cls in TREATMENTS
          # These draw at random.
          if "Gumbel" not in cls.__name__ and "Yeti" not in cls.__name__]


def _bias():
  return PositionBias(4, examination=1.)


@pytest.mark.parametrize("reduction", ["auto", "sum"])
@pytest.mark.parametrize("cls", LOSSES)
def test_losses_without_bias_are_those_of_tf_ranking(cls, reduction):
  inner = cls(reduction=reduction)
  loss = InversePropensityLoss(_bias(), inner)
  assert float(loss(LABELS, SCORES, WEIGHTS)) == pytest.approx(
      float(inner(LABELS, SCORES, WEIGHTS)), rel=1e-5)
  # Padding moves nothing.
  wider = tf.pad(LABELS, [[0, 0], [0, 2]], constant_values=-1.)
  scores = tf.pad(SCORES, [[0, 0], [0, 2]], constant_values=7.)
  assert float(loss(wider, scores, WEIGHTS)) == pytest.approx(
      float(inner(wider, scores, WEIGHTS)), rel=1e-5)


@pytest.mark.parametrize("lambda_weight", [
    None, tfr.keras.losses.PrecisionLambdaWeight(topn=2)])
def test_pairs_without_bias_are_those_of_tf_ranking(lambda_weight):
  """A sum over pairs, with the lambda weight of each."""
  theirs = tfr.keras.losses.PairwiseLogisticLoss(
      reduction="sum", lambda_weight=lambda_weight)
  ours = UnbiasedPairwiseLoss(
      _bias(), reduction="sum", lambda_weight=lambda_weight)
  assert float(ours(LABELS, SCORES)) == pytest.approx(
      float(theirs(LABELS, SCORES)), rel=1e-5)


@pytest.mark.parametrize("loss", [
    UnbiasedPairwiseLoss(_bias()),
    InversePropensityLoss(_bias(), tfr.keras.losses.ApproxNDCGLoss())])
def test_losses_survive_their_config(loss):
  config = json.loads(json.dumps(loss.get_config()))
  again = type(loss).from_config(config)
  assert float(again(LABELS, SCORES)) == pytest.approx(
      float(loss(LABELS, SCORES)))


@pytest.mark.parametrize("metric", [
    tfr.keras.metrics.NDCGMetric, tfr.keras.metrics.DCGMetric,
    tfr.keras.metrics.MRRMetric, tfr.keras.metrics.ARPMetric,
    tfr.keras.metrics.PrecisionMetric, tfr.keras.metrics.RecallMetric,
    tfr.keras.metrics.MeanAveragePrecisionMetric,
    tfr.keras.metrics.OPAMetric])
def test_metrics_on_the_ranking_head_are_those_of_tf_ranking(metric):
  """Of scores that differ, and lists with something relevant."""
  ours, theirs = on_ranking(metric()), metric()
  heads = tf.stack([SCORES, -SCORES], axis=2)
  for target, scores in ((ours, heads), (theirs, SCORES)):
    target.update_state(LABELS, scores, WEIGHTS)
    target.update_state(LABELS[:1], scores[:1])
  assert float(ours.result()) == pytest.approx(float(theirs.result()), rel=1e-5)
  again = OnRanking.from_config(json.loads(json.dumps(ours.get_config())))
  again.update_state(LABELS, heads)
  ours.reset_state()
  ours.update_state(LABELS, heads)
  np.testing.assert_allclose(again.result(), ours.result())
