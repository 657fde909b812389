"""Tests of when `PropensityEM` updates, and of what it reads for that."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from callback_fits import NUM_POSITIONS
from small_losses import linear_model
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

LISTS = np.eye(NUM_POSITIONS, dtype=np.float32)


def attach(loss, **arguments):
  """The callback, with no model in the way."""
  callback, model = PropensityEM(**arguments), linear_model()
  model.compile("sgd", loss)
  callback.set_model(model)
  callback.on_train_begin()
  callback.on_epoch_begin(0)
  return callback


def train(callback, loss, lists):
  """A step on each list of feedback."""
  for batch, feedback in enumerate(lists):
    callback.on_train_batch_begin(batch)
    loss([feedback], tf.zeros([1, NUM_POSITIONS, 2]))
    callback.on_train_batch_end(batch)


def forbid_reads(monkeypatch):
  """Makes it an error to bring the value of a tensor to the host."""
  tensor = next(c for c in type(tf.constant(0)).__mro__ if "numpy" in vars(c))
  for name in ("numpy", "__array__", "__bool__", "__float__", "__int__"):
    assert name in vars(tensor)
    monkeypatch.setattr(
        tensor, name, lambda *_, name=name: pytest.fail(f"{name} was called"))


@pytest.mark.parametrize("overflow", ["mask", "error"])
def test_no_batch_waits_for_the_device(overflow, monkeypatch):
  """Each batch read counters, so that no step was prepared meanwhile."""
  loss = UnbiasedPairwiseLoss(PositionBias(3, overflow=overflow))
  step = tf.function(loss)
  callback = attach(loss)
  train(callback, step, LISTS)
  callback.on_epoch_begin(0)
  with monkeypatch.context() as patch:
    forbid_reads(patch)
    with pytest.raises(pytest.fail.Exception, match="numpy was called"):
      loss.position_bias.num_updates.numpy()
    train(callback, step, LISTS)
  logs = {}
  if overflow == "error":
    with pytest.raises(ValueError, match="^1 items of one batch are outside"):
      callback.on_epoch_end(0, logs)
  else:
    with pytest.warns(UserWarning, match=r"left out \(1 in one batch\)"):
      callback.on_epoch_end(0, logs)
  assert loss.position_bias.num_updates.numpy() == 2 * len(LISTS)
  assert logs["batches_skipped"] == 0


def test_keras_reads_no_loss_for_the_hooks_of_a_batch():
  """It did after each batch, to hand the callback a number it never used."""
  found = []

  class Spy(PropensityEM):

    def on_train_batch_end(self, batch, logs=None):
      super().on_train_batch_end(batch, logs)
      found.append(logs["loss"])

  model = linear_model()
  model.compile("sgd", UnbiasedPairwiseLoss(PositionBias(NUM_POSITIONS)))
  model.fit(np.zeros([4, NUM_POSITIONS, 2], np.float32), LISTS[:1].repeat(4, 0),
            verbose=0, callbacks=[Spy()])
  assert found and all(map(tf.is_tensor, found))


def test_counters_of_more_batches_than_are_kept_are_all_counted():
  loss = UnbiasedPairwiseLoss(PositionBias(NUM_POSITIONS))
  callback = attach(loss)
  callback.on_train_batch_begin(0)
  step = tf.function(loss)
  for batch in range(70):
    callback.on_train_batch_begin(batch)
    step(LISTS[:1], tf.fill([1, NUM_POSITIONS, 2], np.nan if batch < 66 else 0))
    callback.on_train_batch_end(batch)
  logs = {}
  with pytest.warns(UserWarning, match=r"\(66 in this epoch\)"):
    callback.on_epoch_end(0, logs)
  assert logs["batches_skipped"] == 66


def test_batches_that_are_not_finite_are_told_once():
  loss = UnbiasedPairwiseLoss(PositionBias(NUM_POSITIONS))
  callback = attach(loss)
  for epoch in range(2):
    train(callback, loss, LISTS)
    callback.on_train_batch_begin(4)
    loss(LISTS[:1], tf.fill([1, NUM_POSITIONS, 2], np.nan))
    callback.on_train_batch_end(4)
    logs = {}
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      callback.on_epoch_end(epoch, logs)
    callback.on_epoch_begin(epoch + 1)
    told = [str(w.message) for w in caught]
    assert len(told) == (epoch == 0)
    assert all("'position_bias' (1 in this epoch); check" in m for m in told)
    assert logs["batches_skipped"] == 1
    assert logs["weight_clipped"] == 0
  assert loss.position_bias.num_updates.numpy() == 8


@pytest.mark.parametrize("update_every, ends, expected", [
    (1, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
    (2, [0, 1, 2, 3, 4], [0, 2, 2, 4, 4]),
    (9, [0, 1, 2, 3, 4], [0, 0, 0, 0, 0]),
    # Executions of two steps.
    (1, [1, 3, 4], [2, 4, 5]), (3, [1, 3, 4], [0, 4, 4])])
@pytest.mark.usefixtures("eagerly")
def test_update_every(update_every, ends, expected):
  bias = PositionBias(NUM_POSITIONS)
  loss = UnbiasedPairwiseLoss(bias)
  callback, found = attach(loss, update_every=update_every), []
  for epoch in range(2):
    callback.on_epoch_begin(epoch)
    for first, end in zip([-1, *ends], ends):
      callback.on_train_batch_begin(first + 1)
      for _ in range(end - first):
        loss(LISTS, tf.zeros([*LISTS.shape, 2]))
      callback.on_train_batch_end(end)
      found.append(bias.num_updates.numpy() - 5 * epoch)
    # The rest of the epoch comes with its end.
    callback.on_epoch_end(epoch, {})
    assert bias.num_updates.numpy() == 5 * (epoch + 1)
  assert found == 2 * expected


def test_bad_update_every():
  with pytest.raises(ValueError, match="`update_every` must be"):
    PropensityEM(update_every=0)
