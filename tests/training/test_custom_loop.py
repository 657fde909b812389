"""Training without `fit`: examples/custom_loop.py."""

import numpy as np
import pytest
import tensorflow as tf

import program_files
from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.feedback_stream import FeedbackStream

_PATH = program_files.ROOT / "examples" / "custom_loop.py"
_STEPS = 12


@pytest.fixture(scope="module")
def example():
  return program_files.load(_PATH)


def _stream():
  rng = np.random.default_rng(0)
  return FeedbackStream(rng.normal(size=[40, 4, 3]),
                        rng.integers(0, 5, [40, 4]), PositionBasedModel())


def _parts(trust_bias):
  tf.keras.utils.set_random_seed(0)
  bias = PositionBias(4, trust_bias=trust_bias)
  model = scorers.build_model(3, num_heads=2, hidden_units=[4])
  return bias, model, UnbiasedPairwiseLoss(bias), tf.keras.optimizers.Adam(.01)


@pytest.mark.parametrize("trust_bias", [
    "position", pytest.param("pairwise", marks=pytest.mark.slow)])
def test_the_loop_gives_what_fit_gives(example, trust_bias):
  bias, model, loss, optimizer = _parts(trust_bias)
  model.compile(optimizer, loss)
  model.fit(_stream().dataset(8), steps_per_epoch=_STEPS, verbose=0,
            callbacks=[PropensityEM()])
  other_bias, other, loss, optimizer = _parts(trust_bias)
  before = other.get_weights()
  for _ in example.train(other, other_bias, loss, optimizer,
                         _stream().dataset(8).take(_STEPS)):
    # Not counted: the gate is closed.
    loss(tf.ones([1, 4]), tf.zeros([1, 4, 2]))
  assert optimizer.iterations.numpy() == _STEPS
  assert other_bias.num_updates.numpy() == _STEPS
  for found, expected in zip(
      [*other.get_weights(), *(v.numpy() for v in other_bias.weights)],
      [*model.get_weights(), *(v.numpy() for v in bias.weights)]):
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
  assert np.abs(other.get_weights()[0] - before[0]).max() > .01
  assert np.ptp(other_bias.examination.numpy()) > .01


def test_the_loop_goes_on_from_a_checkpoint(example, tmp_path):
  def parts():
    bias, model, loss, optimizer = _parts("position")
    optimizer.build(model.trainable_weights)
    return bias, model, loss, optimizer, tf.train.Checkpoint(
        model=model, optimizer=optimizer, position_bias=bias)

  bias, model, loss, optimizer, checkpoint = parts()
  for step in example.train(model, bias, loss, optimizer,
                            _stream().dataset(8).take(_STEPS)):
    if step == 7:
      path = checkpoint.save(str(tmp_path / "checkpoint"))
  again, other, loss, optimizer, checkpoint = parts()
  checkpoint.restore(path).assert_consumed()
  batches = _stream().dataset(8, start=int(optimizer.iterations))
  for _ in example.train(other, again, loss, optimizer,
                         batches.take(_STEPS - 7)):
    pass
  for found, expected in zip(
      [*other.get_weights(), again.examination, again.num_updates],
      [*model.get_weights(), bias.examination, bias.num_updates]):
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
