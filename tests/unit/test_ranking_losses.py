"""Tests of ultra_tfr.ranking_losses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.ranking_losses import REFUSED
from ultra_tfr.ranking_losses import TREATMENTS
from ultra_tfr.ranking_losses import DebiasedLoss

CURVE = [0.8, 0.5, 0.2, 0.1]
FEEDBACK = tf.constant([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, -1.0]])
SCORES = tf.constant([[0.3, -0.2, 0.1, 0.5], [0.2, 0.4, -0.3, 9.0]])


@pytest.mark.parametrize("cls", [
    cls for cls in TREATMENTS if "lambda_weight" in cls().get_config()])
def test_debiased_labels_take_no_lambda_weight(cls):
  """Its gain, exponential in a label of 1 / theta = 20, would be a million."""
  loss = cls(lambda_weight=tfr.keras.losses.NDCGLambdaWeight())
  if TREATMENTS[cls].enters == "label":
    with pytest.raises(ValueError, match=(
        f"`NDCGLambdaWeight` in a `{cls.__name__}`: .* leave it out")):
      DebiasedLoss(loss)
  else:
    DebiasedLoss(loss)


@pytest.mark.parametrize("lambda_weight, message", [
    (tfr.keras.losses.ListMLELambdaWeight(), "it has no weights of pairs"),
    (tfr.keras.losses.PrecisionLambdaWeight(), "it has no `topn`"),
])
def test_lambda_weights_that_no_pair_can_have_are_refused(
    lambda_weight, message):
  """They failed in the first batch, with TensorFlow's words about None."""
  with pytest.raises(ValueError, match=message):
    UnbiasedPairwiseLoss(PositionBias(4), lambda_weight=lambda_weight)
  with pytest.raises(ValueError, match=message):
    DebiasedLoss(tfr.keras.losses.PairwiseHingeLoss(
        lambda_weight=lambda_weight))


def test_lambda_weights_that_a_softmax_would_not_heed_are_refused():
  """TF-Ranking takes the weight without a word, and trains as without it."""
  with pytest.raises(ValueError, match="TF-Ranking heeds `DCGLambdaWeight`"):
    DebiasedLoss(tfr.keras.losses.SoftmaxLoss(
        lambda_weight=tfr.keras.losses.PrecisionLambdaWeight(topn=2)))


@pytest.mark.parametrize("wrapper", [UnbiasedLoss, InversePropensityLoss])
@pytest.mark.parametrize("cls", REFUSED)
def test_what_cannot_be_debiased_is_refused(cls, wrapper):
  """Weights of items that TF-Ranking makes one of the list change nothing."""
  nearest = getattr(tfr.keras.losses, REFUSED[cls][1])
  assert nearest in TREATMENTS
  with pytest.raises(ValueError, match=(
      f"`tfr.keras.losses.{cls.__name__}` cannot be debiased: .*; take "
      f"`tfr.keras.losses.{nearest.__name__}`")):
    wrapper(PositionBias(4, examination=CURVE), cls())


def test_other_losses_are_refused_and_subclasses_are_not():
  with pytest.raises(ValueError, match=(
      "`loss` must be one of TF-Ranking's losses.*`MeanSquaredError`; take "
      "one of SoftmaxLoss, ")):
    DebiasedLoss(tf.keras.losses.MeanSquaredError())

  class Mine(tfr.keras.losses.ApproxNDCGLoss):
    pass

  assert DebiasedLoss(Mine()).treatment.enters == "label"


@pytest.mark.parametrize("wrapper", [UnbiasedLoss, InversePropensityLoss])
def test_means_in_the_scope_of_a_strategy(wrapper):
  """TF-Ranking's pipelines train there, and Keras refused the inner mean."""
  def make():
    return wrapper(PositionBias(4, examination=CURVE),
                   tfr.keras.losses.SoftmaxLoss())

  strategy = tf.distribute.MirroredStrategy(["CPU:0"])
  with strategy.scope():
    loss = make()
  found = strategy.run(loss, args=(FEEDBACK, SCORES))
  assert float(found) == pytest.approx(float(make()(FEEDBACK, SCORES)))


def test_a_click_far_down_counts_more_than_one_at_the_top():
  """TF-Ranking makes weights of items one of the list: so labels have to."""
  feedback, scores = [[1.0, 0.0, 0.0, 1.0]], tf.Variable(tf.zeros([1, 4]))
  for cls in (tfr.keras.losses.ApproxNDCGLoss, tfr.keras.losses.ApproxMRRLoss):
    loss = InversePropensityLoss(PositionBias(4, examination=CURVE), cls())
    with tf.GradientTape() as tape:
      value = loss(feedback, scores)
    pull = -tape.gradient(value, scores).numpy()[0]
    assert pull[3] > 2.0 * pull[0]


@pytest.mark.parametrize("wrapper", [UnbiasedLoss, InversePropensityLoss])
@pytest.mark.parametrize("cls", [
    tfr.keras.losses.ApproxNDCGLoss, tfr.keras.losses.ApproxMRRLoss])
def test_a_single_click_keeps_its_weight(cls, wrapper):
  """Most lists have one click; its weight was divided away with the ideal."""
  loss = wrapper(PositionBias(4, examination=CURVE), cls(reduction="sum"))
  pulls = []
  for feedback in ([[1.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]):
    scores = tf.Variable(tf.zeros([1, 4]))
    with tf.GradientTape() as tape:
      value = loss(feedback, scores)
    pulls.append(tape.gradient(value, scores).numpy().min())
  assert pulls[1] / pulls[0] == pytest.approx(CURVE[0] / CURVE[3], rel=1e-4)


def test_lists_count_by_the_relevance_that_they_have():
  """The ideal is that of the relevance head, and no list outweighs all."""
  loss = UnbiasedLoss(
      PositionBias(4, examination=CURVE), head_weight=0.0,
      loss=tfr.keras.losses.ApproxNDCGLoss(reduction="sum"))
  discounts = 1.0 / np.log1p(np.arange(1, 5))
  # Of equal scores all have the rank in the middle.
  discount = 1.0 / np.log1p(2.5)
  for logit, relevance in ((-1.0, 1 / (1 + np.e)), (1.0, np.e / (1 + np.e)),
                           (-20.0, 1e-3)):
    heads = tf.stack([tf.zeros([1, 4]), tf.fill([1, 4], logit)], 2)
    value = float(loss([[1.0, 0.0, 0.0, 0.0]], heads))
    # A quarter is the click, the rest what was expected of the four.
    expected = CURVE[0] * relevance
    gains = 0.25 + 0.75 * 4 * expected
    assert value == pytest.approx(
        -gains * discount / (expected * discounts.sum()), rel=1e-4)


@pytest.mark.parametrize("cls", [
    cls for cls, treatment in TREATMENTS.items()
    if treatment.best is not None and not hasattr(cls(), "_gumbel_sampler")])
@pytest.mark.parametrize("unit", [1.0, 30.0])
def test_approximate_ranks_take_labels_mostly_from_a_head(cls, unit):
  """In the units of the feedback; a score that said so would teach itself."""
  bias = PositionBias(4, examination=CURVE)
  loss = UnbiasedLoss(bias, cls(reduction="sum"), head_weight=0.0)
  feedback = np.array([[0.0, unit, 0.0, 0.0]], np.float32)
  scores = np.array([[0.2, -0.1, 0.4, 0.0]], np.float32)
  beta = np.array([[0.3, 0.2, 0.6, 0.5]], np.float32)
  logits = np.log(beta / (1.0 - beta))
  expected = unit * CURVE[0] * beta
  clicked = CURVE[0] / np.array(CURVE) * feedback
  debiased = DebiasedLoss(cls(reduction="sum"))

  def of_labels(labels, expected):
    labels, expected = (
        tf.constant(part, tf.float32) for part in (labels, expected))
    ones = tf.ones_like(labels)
    return float(debiased(labels, scores, ones > 0, ones, ones, expected))

  assert float(loss(feedback, np.stack([scores, logits], 2))) == pytest.approx(
      of_labels(0.25 * clicked + 0.75 * expected, expected), rel=1e-5)
  # Without a head they are clicks alone.
  beta = 1.0 / (1.0 + np.exp(-scores))
  assert float(loss(feedback, scores)) == pytest.approx(
      of_labels(clicked, unit * CURVE[0] * beta), rel=1e-5)


def test_large_gains_stay_linear():
  """2^label - 1 of a label of 1 / theta = 1000 is no number."""
  loss = InversePropensityLoss(
      PositionBias(2, examination=[1.0, 1e-3]),
      tfr.keras.losses.ApproxNDCGLoss(reduction="sum"))
  both = float(loss([[1.0, 1.0]], [[0.0, 0.0]]))
  # Gains of 1 and 1000, each at rank 1.5, over the best order of two clicks.
  expected = -1001.0 / np.log(2.5) / (1.0 / np.log(2) + 1.0 / np.log(3))
  assert both == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("cls", [
    cls for cls in TREATMENTS if not hasattr(cls(), "_gumbel_sampler")])
def test_ragged_losses(cls):
  """They take ragged tensors alone, of which padded ones are made here."""
  bias = PositionBias(4, examination=CURVE)
  dense, ragged = (
      InversePropensityLoss(bias, cls(reduction="sum", ragged=ragged))
      for ragged in (False, True))
  expected = float(dense(FEEDBACK, SCORES, [[1.0], [2.0]]))
  assert float(ragged(FEEDBACK, SCORES, [[1.0], [2.0]])) == pytest.approx(
      expected, rel=1e-5)
  mask = FEEDBACK >= 0
  lists = [tf.ragged.boolean_mask(part, mask) for part in (FEEDBACK, SCORES)]
  assert float(ragged(*lists, [[1.0], [2.0]])) == pytest.approx(
      expected, rel=1e-5)
