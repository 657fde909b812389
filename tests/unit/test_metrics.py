"""Tests of ultra_tfr.metrics."""


import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import pairs
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking
from ultra_tfr.scorers import build_model

METRICS = {
    "ndcg": lambda: tfr.keras.metrics.NDCGMetric(topn=3, name="ndcg"),
    "dcg": lambda: tfr.keras.metrics.DCGMetric(name="dcg"),
    "mrr": lambda: tfr.keras.metrics.MRRMetric(name="mrr"),
    "map": lambda: tfr.keras.metrics.MeanAveragePrecisionMetric(name="map"),
    "arp": lambda: tfr.keras.metrics.ARPMetric(name="arp"),
    "precision": lambda: tfr.keras.metrics.PrecisionMetric(
        topn=2, name="precision"),
}


def evaluate(metric, *arguments, **keywords):
  metric.reset_state()
  metric.update_state(*arguments, **keywords)
  return float(metric.result())


def make_batch(seed=0, num_lists=5, size=6):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, 4, [num_lists, size]).astype(np.float32)
  labels[:, 0] = 1.
  labels[1, 4:] = -1.
  return labels, rng.normal(size=[num_lists, size]).astype(np.float32)


@pytest.mark.parametrize("name", METRICS)
def test_equals_tf_ranking_without_ties(name):
  labels, scores = make_batch()
  expected = evaluate(METRICS[name](), labels, scores)
  assert evaluate(on_ranking(METRICS[name]()), labels, scores) == (
      pytest.approx(expected, rel=1e-6))


@pytest.mark.parametrize("name", METRICS)
def test_heads_and_packed_feedback(name):
  labels, scores = make_batch()
  metric = on_ranking(METRICS[name]())
  expected = evaluate(metric, labels, scores)
  rng = np.random.default_rng(1)
  positions = np.argsort(rng.random(labels.shape), axis=1) + 1
  for contexts in (None, np.arange(len(labels))):
    for heads in (2, 3):
      y_pred = rng.normal(size=[*labels.shape, heads]).astype(np.float32)
      y_pred[..., 0] = scores
      packed = pack_feedback(labels, positions, contexts)
      assert evaluate(metric, packed, y_pred) == pytest.approx(expected)


@pytest.mark.parametrize("name", METRICS)
def test_order_and_padding_change_nothing(name):
  labels, scores = make_batch()
  scores = np.round(scores)  # Many ties.
  metric = on_ranking(METRICS[name]())
  expected = evaluate(metric, labels, scores)
  order = np.random.default_rng(2).permutation(labels.shape[1])
  assert evaluate(metric, labels[:, order], scores[:, order]) == (
      pytest.approx(expected))
  padding = np.full([len(labels), 3], -1., np.float32)
  assert evaluate(
      metric, np.concatenate([padding, labels], 1),
      np.concatenate([padding * np.nan, scores], 1)) == pytest.approx(expected)


def test_ties_go_to_the_least_relevant():
  metric = on_ranking(METRICS["mrr"]())
  assert evaluate(metric, [[1., 0., 0.]], [[.5, .5, .5]]) == (
      pytest.approx(1 / 3))
  assert evaluate(metric, [[1., 0., 0.]], [[.5, .5, .1]]) == .5
  # The same each time, which TF-Ranking's draws are not.
  values = {evaluate(metric, [[1., 0.] * 4], [[0.] * 8]) for _ in range(5)}
  assert len(values) == 1


def test_constant_scores_are_not_rewarded():
  """On lists in the order of their labels constant scores looked perfect."""
  worst = (1. / np.log2([3, 4, 5]) @ [1., 3., 7.]) / (
      [7., 3., 1.] @ (1. / np.log2([2, 3, 4])))
  for labels in ([3., 2., 1., 0.], [0., 1., 2., 3.], [2., 0., 3., 1.]):
    metric = on_ranking(tfr.keras.metrics.NDCGMetric())
    metric.update_state([labels], [[.5] * 4])
    # Less than the .749981 of random ties: least relevant first.
    np.testing.assert_allclose(metric.result().numpy(), worst, rtol=1e-6)
  assert worst < .749981


def test_labels_beyond_integers_and_half_precision_scores():
  metric = on_ranking(METRICS["mrr"]())
  scores = tf.constant([[1., 2., 3.]], tf.float16)
  assert evaluate(metric, tf.constant([[0, 1, 0]], tf.int64), scores) == .5
  assert evaluate(metric, tf.constant([[False, True, False]]), scores) == .5


def test_labels_up_to_999_with_a_linear_gain():
  """Ranks as labels overflow exponential gains; a linear one must do."""
  labels = np.arange(1000, dtype=np.float32)[np.newaxis]
  metric = on_ranking(tfr.keras.metrics.NDCGMetric(
      gain_fn=lambda label: label))
  metric.update_state(labels, labels)
  np.testing.assert_allclose(metric.result().numpy(), 1., rtol=1e-6)


def test_mask():
  metric = on_ranking(METRICS["mrr"]())
  labels, scores = [[0., 1., -2.]], [[2., 1., 3.]]
  assert evaluate(metric, labels, scores) == .5
  assert evaluate(
      metric, labels, scores, mask=tf.constant([[True] * 3])) == (
          pytest.approx(1 / 3))
  assert evaluate(
      metric, labels, scores, mask=tf.constant([[False, True, True]])) == .5


def test_an_explicit_mask_wins_over_negative_labels():
  """True labels below 0 were taken for padding."""
  labels = tf.constant([[-2., 1., 0.]])
  everything = tf.constant([[True] * 3])
  np.testing.assert_array_equal(
      pairs.preferred(labels, everything)[0],
      [[False, False, False], [True, False, True], [True, False, False]])
  np.testing.assert_array_equal(
      pairs.ranks(tf.constant([[3., 2., 1.]]), tf.zeros([1, 3]), everything),
      [[1, 2, 3]])
  # The item of -2 is ahead of the relevant one.
  for metric, expected in (
      (tfr.keras.metrics.NDCGMetric(), 1 / np.log2(3)),
      (tfr.keras.metrics.MRRMetric(), .5)):
    metric = on_ranking(metric)
    metric.update_state(labels, [[3., 2., 1.]], mask=everything)
    np.testing.assert_allclose(metric.result().numpy(), expected, rtol=1e-6)


def test_a_masked_item_takes_no_rank():
  """Items of weight 0 still took ranks from the others."""
  mask = tf.constant([[False, True, True]])
  for labels in ([[1., 1., 0.]], [[-2., 1., 0.]]):
    assert pairs.ranks(tf.constant([[3., 2., 1.]]), tf.zeros([1, 3]),
                       mask).numpy().tolist() == [[3, 1, 2]]
    for metric in (tfr.keras.metrics.NDCGMetric(),
                   tfr.keras.metrics.MRRMetric()):
      metric = on_ranking(metric)
      metric.update_state(labels, [[3., 2., 1.]], mask=mask)
      assert metric.result().numpy() == 1.


@pytest.mark.parametrize("weights, expected", [
    (None, .75), (2., .75), ([1., 0.], .5), ([0., 1.], 1.),
    ([[1.], [3.]], .875), ([[1., 1.], [3., 3.]], .875)])
def test_weights(weights, expected):
  metric = on_ranking(METRICS["mrr"]())
  labels, scores = [[1., 0.], [1., 0.]], [[1., 2.], [2., 1.]]
  assert evaluate(metric, labels, scores, weights) == pytest.approx(expected)


def test_bad_weights():
  with pytest.raises(ValueError, match="`sample_weight` must be a number or"):
    evaluate(on_ranking(METRICS["mrr"]()), [[1., 0.]] * 2, [[1., 0.]] * 2,
             [1., 2., 3.])


def test_lists_without_a_relevant_item_do_not_count():
  """Tools disagree whether they count as 0, as 1 or not at all."""
  metric = on_ranking(METRICS["ndcg"]())
  assert evaluate(metric, [[0., 0.]], [[1., 2.]]) == 0.  # Nothing to average.
  assert evaluate(metric, [[1., 0.], [0., 0.]], [[1., 0.]] * 2) == 1.
  assert evaluate(
      metric, [[0., 0.], [1., 0.], [-1., -1.]], [[1., 2.]] * 3) == (
          pytest.approx(1 / np.log2(3)))


def test_equal_in_training_and_evaluation():
  rng = np.random.default_rng(0)
  features = rng.normal(size=[12, 4, 2]).astype(np.float32)
  clicks = (rng.random([12, 4]) < .3).astype(np.float32)
  assert not np.all(np.any(clicks, axis=1))
  packed = pack_feedback(clicks, np.tile([[2, 1, 4, 3]], [12, 1])).numpy()
  names = ("ndcg", "mrr", "precision")
  model = build_model(2, num_heads=2, hidden_units=[])
  model.compile(
      tf.keras.optimizers.SGD(0.), UnbiasedPairwiseLoss(PositionBias(4,
          trust_bias=None)),
      metrics=[on_ranking(METRICS[name]()) for name in names])
  history = model.fit(
      features, packed, batch_size=5, verbose=0,
      validation_data=(features, packed), callbacks=[PropensityEM()]).history
  logs = model.evaluate(features, packed, verbose=0, return_dict=True)
  some = np.any(clicks, axis=1)
  for name in names:
    alone = evaluate(
        on_ranking(METRICS[name]()), clicks[some], model(features[some]))
    assert alone > 0
    for value in (history[name][0], history[f"val_{name}"][0], logs[name]):
      assert value == pytest.approx(alone, rel=1e-5)


def test_state_adds_up_and_resets():
  metric = on_ranking(METRICS["mrr"]())
  metric.update_state([[1., 0.]], [[1., 2.]])
  metric.update_state([[1., 0.]], [[2., 1.]])
  assert float(metric.result()) == .75
  metric.reset_state()
  metric.update_state([[1., 0.]], [[2., 1.]])
  assert float(metric.result()) == 1.


def test_names():
  assert on_ranking(METRICS["ndcg"]()).name == "ndcg"
  assert on_ranking(METRICS["ndcg"](), name="other").name == "other"


@pytest.mark.parametrize("jit_compile", [False, True])
def test_inside_a_function(jit_compile):
  labels, scores = make_batch()
  scores = np.round(scores)
  expected = evaluate(on_ranking(METRICS["mrr"]()), labels, scores)
  metric = on_ranking(METRICS["mrr"]())

  @tf.function(jit_compile=jit_compile)
  def update(labels, scores):
    metric.update_state(labels, scores)

  update(tf.constant(labels), tf.constant(scores))
  assert float(metric.result()) == pytest.approx(expected)


@pytest.mark.parametrize("y_true, y_pred", [
    ([2, 3, 4], [2, 3]), ([2], [2]), ([2, 3], [2, 3, 1])])
def test_bad_shapes(y_true, y_pred):
  with pytest.raises(ValueError, match="must have the shape"):
    on_ranking(METRICS["mrr"]()).update_state(
        tf.zeros(y_true), tf.zeros(y_pred))


def test_ragged_metrics():
  """`default_keras_metrics(ragged=True)` takes ragged tensors alone."""
  labels, scores = make_batch()
  labels[2, :] = 0.
  weights = np.arange(1., 6.)[:, np.newaxis]
  for dense, ragged in zip(tfr.keras.metrics.default_keras_metrics(),
                           tfr.keras.metrics.default_keras_metrics(
                               ragged=True)):
    if dense.name not in ("metric/ndcg_3", "metric/map", "metric/arp"):
      continue
    expected = evaluate(on_ranking(dense), labels, scores, weights)
    metric = on_ranking(ragged)
    assert evaluate(metric, labels, scores, weights) == pytest.approx(expected)
    lists = [tf.ragged.boolean_mask(part, labels >= 0)
             for part in (labels, scores)]
    assert evaluate(metric, *lists, weights) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [
    tfr.keras.metrics.PrecisionIAMetric, tfr.keras.metrics.AlphaDCGMetric])
def test_labels_of_subtopics(metric):
  """They would be taken for feedback, positions and contexts."""
  with pytest.raises(ValueError, match=(
      f"cannot be a `{metric.__name__}`: its labels are of subtopics, where")):
    on_ranking(metric())
