"""Tests that nothing is learned outside of the training steps of `fit`."""

import numpy as np
import pytest
import tensorflow as tf

from callback_fits import NUM_POSITIONS
from callback_fits import fit
from callback_fits import make_data
from callback_fits import make_model
from ultra_tfr import keras_guards
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss


def _interrupting(model):
  """A `fit` that a user stops at the third batch, within the step."""
  callback = tf.keras.callbacks.Callback()

  def interrupt(batch, logs=None):
    if batch == 2:
      raise KeyboardInterrupt

  callback.on_train_batch_begin = interrupt
  fit(model, make_data(), [PropensityEM(), callback])


def _failing(model):
  """A `fit` whose input fails at the third batch."""
  features, feedback = make_data(24)

  def batches():
    for i in range(2):
      yield features[8 * i:8 * i + 8], feedback[8 * i:8 * i + 8]
    raise OSError("the disk is gone")

  data = tf.data.Dataset.from_generator(batches, output_signature=(
      tf.TensorSpec([8, NUM_POSITIONS, 3]),
      tf.TensorSpec([8, NUM_POSITIONS, 2])))
  model.fit(data, verbose=0, callbacks=[PropensityEM()])


@pytest.mark.parametrize("stopped", [_interrupting, _failing])
def test_evaluation_after_an_interrupted_fit(stopped):
  """The batches of that evaluation were learned from by the next `fit`."""
  bias = PositionBias(NUM_POSITIONS)
  model = make_model(bias)
  with pytest.raises((KeyboardInterrupt, tf.errors.OpError)):
    stopped(model)
  assert bias.num_updates.numpy() == 2
  model.evaluate(*make_data(), verbose=0)
  assert not any(np.any(s) for s in bias.take_sums().values())
  # Nor what only the next `fit` can tell from a step: a loss called by hand.
  model.loss(make_data()[1], tf.zeros([48, NUM_POSITIONS, 2]))
  fit(model, make_data(8))
  assert bias.num_updates.numpy() == 3


def test_validation_after_data_of_unknown_size():
  """Their end comes within a step, which left the gate open to validation."""
  biases = []
  for is_known in (True, False):
    biases.append(PositionBias(NUM_POSITIONS))
    model = make_model(biases[-1])
    data, validation = (
        tf.data.Dataset.from_tensor_slices(make_data(24, seed)).batch(8)
        for seed in range(2))
    if not is_known:
      data = data.filter(lambda *_: True)
    model.fit(data, validation_data=validation, verbose=0,
              callbacks=[PropensityEM()])
    assert biases[-1].num_updates.numpy() == 3
  for known, unknown in zip(*(bias.weights for bias in biases)):
    np.testing.assert_array_equal(known, unknown)


def test_the_m_step_in_the_graph_of_a_step_and_the_one_called_after_it(
    monkeypatch):
  """It is called after the step in loops other than Keras's own `fit`."""
  learned = []
  for is_in_graph in (True, False):
    bias, seen = PositionBias(NUM_POSITIONS, trust_bias=None), []
    model, first = make_model(bias, 1), tf.keras.callbacks.Callback()

    def evaluate(batch, logs=None, bias=bias, model=model, seen=seen):
      seen.append(bias.num_updates.numpy())
      if not bias.is_collecting:
        model.loss(make_data(8, seed=1)[1], tf.zeros([8, NUM_POSITIONS]))

    first.on_train_batch_end = evaluate
    if not is_in_graph:
      monkeypatch.setattr(keras_guards, "running_fits", lambda model: 0)
    train = model.make_train_function()
    fit(model, make_data(24), [first, PropensityEM()])
    assert model.train_function is train
    assert seen == ([1, 2, 3] if is_in_graph else [0, 1, 2])
    learned.append(bias.get_weights())
  for in_graph, after in zip(*learned):
    np.testing.assert_allclose(in_graph, after, rtol=1e-5)


def test_a_fit_within_a_step_of_a_fit():
  bias = PositionBias(NUM_POSITIONS)
  model, nested = make_model(bias), tf.keras.callbacks.Callback()
  nested.on_train_batch_begin = lambda batch, logs=None: (
      batch == 1 and fit(model, make_data(8, seed=1)))
  fit(model, make_data(24), [PropensityEM(), nested])
  assert bias.num_updates.numpy() == 3 + 1


@pytest.mark.parametrize("save", [
    lambda bias, path: tf.train.Checkpoint(bias=bias).write(path),
    lambda bias, path: np.save(path, np.array(
        bias.get_weights(), dtype=object), allow_pickle=True)])
def test_what_is_saved_within_a_step_is_restored_closed(save, tmp_path):
  """A checkpoint of the middle of a batch had the gate open for good."""
  path = str(tmp_path / "saved.npy")
  bias, restored = PositionBias(2), PositionBias(2)
  bias.start_collecting()
  save(bias, path)
  if (tmp_path / "saved.npy").exists():
    restored.set_weights(list(np.load(path, allow_pickle=True)))
  else:
    tf.train.Checkpoint(bias=restored).read(path).assert_consumed()
  UnbiasedPairwiseLoss(restored)([[1., 0.]], tf.zeros([1, 2]))
  assert not any(np.any(s) for s in restored.take_sums().values())
