"""Cases that users ran into: streams of lists, of any length, also ragged."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_serving.apis import input_pb2

from loss_configurations import CONFIGURATIONS
from loss_configurations import make_batch
from loss_configurations import make_loss
import ultra_tfr
from ultra_tfr import scorers
from ultra_tfr.pipeline import FeedbackDatasetBuilder

LENGTHS = (1, 7, 120)
_CLICK = ("click", tf.io.FixedLenFeature([1], tf.float32, -1.0))


def _endless_records(path):
  """A source that never ends: whoever wants all of it waits forever."""
  del path

  def records():
    for click in itertools.count():
      lists = input_pb2.ExampleListWithContext()
      feature = lists.examples.add().features.feature
      feature["click"].float_list.value.append(click)
      feature["x"].float_list.value.append(click)
      yield lists.SerializeToString()

  return tf.data.Dataset.from_generator(
      records, output_signature=tf.TensorSpec([], tf.string))


def test_case_a51_files_are_streamed_and_can_be_read_again(tmp_path):
  (tmp_path / "log").touch()  # Its name is looked up, its content is not read.
  builder = FeedbackDatasetBuilder(
      {}, {"x": tf.io.FixedLenFeature([1], tf.float32, 0.0)}, "mask", _CLICK,
      tfr.keras.pipeline.DatasetHparams(
          str(tmp_path / "log"), str(tmp_path / "log"), 4, 4,
          dataset_reader=_endless_records))
  dataset = builder.build_valid_dataset().take(2)
  for _ in range(2):
    clicks = [y_true.numpy()[:, 0].tolist() for _, y_true in dataset]
    assert clicks == [[0, 1, 2, 3], [4, 5, 6, 7]]


def _lists(num_features=3):
  rng = np.random.default_rng(0)
  splits = np.cumsum([0, *LENGTHS])
  clicks = (rng.random(splits[-1]) < .3).astype(np.float32)
  clicks[[0, 1, 2]] = [1, 1, 0]
  features = rng.normal(size=[splits[-1], num_features]).astype(np.float32)
  return [tf.RaggedTensor.from_row_splits(values, splits)
          for values in (features, clicks)]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_case_a52_lists_of_any_length(jit_compile):
  features, clicks = _lists()
  losses, curves = [], []
  # Padded to the longest of a batch, and to a static length as TPUs need it.
  for size in (None, 150):
    x = features.to_tensor(0.0, [None, size, 3])
    y = clicks.to_tensor(-1.0, [None, size])
    tf.keras.utils.set_random_seed(1)
    model = scorers.build_model(3, num_heads=2, hidden_units=[4])
    bias = ultra_tfr.layers.PositionBias(120)
    model.compile("sgd", ultra_tfr.losses.UnbiasedPairwiseLoss(bias),
                  jit_compile=jit_compile)
    history = model.fit(
        tf.data.Dataset.from_tensors((x, y)).repeat(3), verbose=0,
        callbacks=[ultra_tfr.callbacks.PropensityEM(warmup=0)])
    losses.append(history.history["loss"])
    curves.append(bias.examination.numpy())
    assert model.predict(x[:1, :1], verbose=0).shape == (1, 1, 2)
  np.testing.assert_allclose(*losses, rtol=1e-5)
  np.testing.assert_allclose(*curves, rtol=1e-5)
  assert curves[0].std() > .01


@pytest.mark.parametrize("name", [
    n for n in CONFIGURATIONS if "sample" not in n and "paper" not in n])
def test_case_a53_ragged_lists_are_padded(name):
  batch = make_batch(name)
  # Padding at the ends, as ragged lists have it: their own sizes.
  batch["feedback"] = np.where(batch["feedback"] < 0, 0, batch["feedback"])
  sizes = [5, 2, 0, 4]
  packed = ultra_tfr.pack_feedback(
      batch["feedback"], batch["positions"], batch["contexts"])
  scores = batch["scores"] if batch["scores"].shape[2] > 1 else (
      batch["scores"][..., 0])
  valid = np.arange(5) < np.array(sizes)[:, np.newaxis]
  ragged = [tf.RaggedTensor.from_tensor(tf.constant(values), sizes)
            for values in (packed, scores, batch["weights"])]
  packed = tf.where(valid[..., np.newaxis], packed, [-1.0, 0.0, 0.0][
      :packed.shape[2]])
  found, sums = [], []
  for y_true, y_pred, weights in (ragged, (packed, scores, batch["weights"])):
    loss = make_loss(name)
    found.append(float(loss(y_true, y_pred, weights)))
    sums.append(loss.position_bias.take_sums())
  np.testing.assert_allclose(*found, rtol=1e-6)
  assert found[0] != 0
  for key, values in sums[0].items():
    np.testing.assert_allclose(values, sums[1][key], rtol=1e-6, err_msg=key)


def test_case_a53_ragged_feedback_is_packed():
  feedback = tf.ragged.constant([[1., 0.], [0.]])
  positions = tf.ragged.constant([[3, 1], [2]])
  assert ultra_tfr.pack_feedback(feedback, positions).numpy().tolist() == [
      [[1, 3], [0, 1]], [[0, 2], [-1, 0]]]
  # A tensor of other lists is no reason to guess.
  with pytest.raises(ValueError, match="`positions` must have the shape"):
    ultra_tfr.pack_feedback(feedback, [[3, 1, 2], [2, 0, 0]])


@pytest.mark.parametrize("heads", [1, 2])
def test_case_a53_fit_and_metrics_on_ragged_lists(heads):
  features, clicks = _lists()
  results = []
  for is_ragged in (True, False):
    tf.keras.utils.set_random_seed(1)
    inputs = tf.keras.Input([None, 3], ragged=is_ragged)
    scores = tf.keras.layers.Dense(heads)(inputs)
    if heads == 1:
      scores = tf.keras.layers.Lambda(lambda x: tf.squeeze(x, -1))(scores)
    model = tf.keras.Model(inputs, scores)
    bias = ultra_tfr.layers.PositionBias(120)
    model.compile(
        "sgd", ultra_tfr.losses.UnbiasedPairwiseLoss(bias), metrics=[
            ultra_tfr.metrics.on_ranking(tfr.keras.metrics.NDCGMetric("ndcg"))])
    batch = (features, clicks) if is_ragged else (
        features.to_tensor(), clicks.to_tensor(-1.0))
    history = model.fit(
        tf.data.Dataset.from_tensors(batch).repeat(2), verbose=0,
        callbacks=[ultra_tfr.callbacks.PropensityEM()])
    results.append([history.history["loss"], history.history["ndcg"],
                    *model.get_weights(), bias.examination.numpy()])
  for ragged, padded in zip(*results):
    np.testing.assert_allclose(ragged, padded, rtol=1e-4, atol=1e-6)
