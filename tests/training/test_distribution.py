"""Tests that replicas, executions, XLA and precisions change no result."""

import types

import numpy as np
import pytest
import tensorflow as tf

import process_groups
from ultra_tfr import callbacks
from ultra_tfr import layers
from ultra_tfr import losses
from ultra_tfr import scorers
import worker_program
from worker_program import NUM_POSITIONS
from worker_program import PHASES
from worker_program import SCENARIOS

LISTS = 8


# One with plain steps, and one with several in an execution.
FEW = ("none", "several_steps")


def _train_on_two_replicas(folder, scenarios):
  process_groups.run(
      [[worker_program.__file__, "--strategy=mirrored",
        f"--out={folder / 'out.npz'}", f"--scenarios={','.join(scenarios)}"]],
      folder)
  return dict(np.load(folder / "out.npz"))


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
  """What two replicas of one process have after their training."""
  return _train_on_two_replicas(tmp_path_factory.mktemp("mirrored"), FEW)


@pytest.mark.parametrize("scenario", FEW)
@pytest.mark.smoke
def test_two_replicas_train_as_one_device(mirrored, scenario):
  """Users' variables that change in a replica failed, or did not add up."""
  worker_program.assert_as_one_device(mirrored, scenario)


@pytest.fixture(scope="module")
def mirrored_others(tmp_path_factory):
  """The same of the other scenarios."""
  return _train_on_two_replicas(
      tmp_path_factory.mktemp("others"), sorted({*SCENARIOS} - {*FEW}))


@pytest.mark.parametrize("scenario", sorted({*SCENARIOS} - {*FEW}))
@pytest.mark.slow
@pytest.mark.smoke
def test_two_replicas_train_as_one_device_in_other_ways(
    mirrored_others, scenario):
  worker_program.assert_as_one_device(mirrored_others, scenario)


def test_the_replicas_get_what_the_phases_are_named_for(mirrored):
  assert mirrored["replicas"] == 2
  lists = {phase: mirrored[f"split/{phase}"][..., 0] for phase in PHASES}
  assert lists["even"].tolist() == [[4, 4]] * 2
  assert lists["uneven"].tolist() == [[4, 4], [4, 4], [3, 2]]
  assert lists["empty"].tolist() == [[4, 4], [1, 0]]
  clicks = mirrored["split/clicks_on_one_replica"][..., 1]
  assert clicks[:, 0].min() > 0
  assert clicks[:, 1].tolist() == [0, 0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_poisoned_batch_leaves_no_trace_in_half_precision(mirrored, replicas):
  """Keras left the batch out of the model, and it froze the tables.

  Of two replicas one had the poison: the other's half is learned from.
  """
  found = (
      {key: mirrored[f"poisoned/{key}"] for key in (
          "tables", "weights", "skipped", "updates")}
      if replicas == 2 else
      worker_program.train_poisoned(tf.distribute.get_strategy()))
  assert found["skipped"].tolist() == [1 / replicas]
  assert found["updates"] == 3 - 1 / replicas
  assert np.isfinite(found["tables"]).all()
  first, second, third = found["weights"]
  np.testing.assert_array_equal(first, second)
  assert np.isfinite(third).all()
  assert abs(third - second).max() > 1e-3
  first, second, third = found["tables"]
  assert (abs(second - first).max() > 1e-3) == (replicas == 2)
  assert abs(third - second).max() > 1e-3


def test_evaluation_on_two_replicas_never_reaches_the_tables(mirrored):
  # But for the gate and the accumulators' zeros, all of them.
  np.testing.assert_array_equal(
      mirrored["none/after/tables"], mirrored["none/empty/tables"][-1])


def _make_data(batches=3):
  rng = np.random.default_rng(1)
  shape = [batches * LISTS, NUM_POSITIONS]
  features = rng.normal(size=[*shape, 3]).astype(np.float32)
  clicks = rng.random(shape) < .8 / np.arange(1, NUM_POSITIONS + 1)
  return features, clicks.astype(np.float32)


def _make_dataset():
  """All sizes are known, as a TPU needs it."""
  return tf.data.Dataset.from_tensor_slices(_make_data()).batch(
      LISTS, drop_remainder=True)


def _make_model(bias, heads=2, learning_rate=.1, jit_compile=False,
                annealing=500):
  tf.keras.utils.set_random_seed(0)
  model = scorers.build_model(3, num_heads=heads, hidden_units=[4])
  model.compile(tf.keras.optimizers.SGD(learning_rate),
                losses.UnbiasedPairwiseLoss(bias, annealing=annealing),
                jit_compile=jit_compile)
  return model


@pytest.mark.parametrize("trust_bias, heads", [
    (None, 2), pytest.param("pairwise", 3, marks=pytest.mark.slow)])
@pytest.mark.smoke
def test_xla_changes_nothing(trust_bias, heads):
  """Losses that select items have sizes that XLA cannot compile."""
  results = []
  for jit_compile in (False, True):
    bias = layers.PositionBias(NUM_POSITIONS, trust_bias=trust_bias)
    model = _make_model(bias, heads, jit_compile=jit_compile)
    history = model.fit(_make_dataset(), epochs=2, verbose=0,
                        callbacks=[callbacks.PropensityEM()]).history
    results.append([
        history["loss"], *model.get_weights(),
        *[variable.numpy() for variable in bias.weights],
        model.evaluate(_make_dataset(), verbose=0),
        model.predict(_make_dataset(), verbose=0)])
  assert bias.num_updates.numpy() == 6
  for plain, compiled in zip(*results):
    np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-5)


@pytest.fixture
def set_policy():
  """Sets the global policy until the end of a test."""
  before = tf.keras.mixed_precision.global_policy()
  yield tf.keras.mixed_precision.set_global_policy
  tf.keras.mixed_precision.set_global_policy(before)


@pytest.mark.parametrize("name, jit_compile", [
    ("float16", False),
    pytest.param("bfloat16", True, marks=pytest.mark.slow)])
def test_mixed_precision_keeps_float32_statistics(
    set_policy, name, jit_compile):
  thetas = []
  for policy in ("float32", f"mixed_{name}"):
    set_policy(policy)
    bias = layers.PositionBias(NUM_POSITIONS, trust_bias=None)
    model = _make_model(
        bias, jit_compile=jit_compile and policy != "float32")
    history = model.fit(_make_dataset(), epochs=2, verbose=0,
                        callbacks=[callbacks.PropensityEM()]).history
    thetas.append(bias.examination.numpy())
  tower = model.get_layer(scorers.RANKING_LAYER)
  assert tower.layers[0].compute_dtype == name
  assert model.output.dtype == tf.float32
  assert {variable.dtype for variable in bias.weights} == {tf.float32}
  assert np.isfinite(history["loss"]).all()
  assert all(np.isfinite(variable.numpy()).all() for variable in bias.weights)
  assert np.ptp(thetas[1]) > .1
  # Theta hardly depends on the rounding of the towers.
  np.testing.assert_allclose(thetas[1], thetas[0], atol=.01)


class _Watch(tf.keras.callbacks.Callback):
  """Theta before each batch, its loss, and how often the step was traced."""

  def __init__(self, bias):
    super().__init__()
    self._bias, self.thetas, self.losses, self.traces = bias, [], [], []

  def on_train_batch_begin(self, batch, logs=None):
    self.thetas.append(self._bias.examination.numpy())

  def on_train_batch_end(self, batch, logs=None):
    # Keras logs the mean over the batches so far.
    self.losses.append(logs["loss"] * (batch + 1) - sum(self.losses))
    self.traces.append(
        self.model.train_function.experimental_get_tracing_count())


@pytest.mark.parametrize("jit_compile", [
    False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_compiled_step_sees_each_theta(jit_compile):
  """What a user's callback changed did not reach a step traced before it.

  So it is with Python numbers, and so it must not be with propensities.
  """
  # One batch again and again by a model that stands still: the loss can change
  # with the propensities only.
  features, clicks = [values[:LISTS] for values in _make_data()]
  bias = layers.PositionBias(NUM_POSITIONS, initial_examination=.9,
      trust_bias=None)
  model = _make_model(bias, learning_rate=0.0, jit_compile=jit_compile,
                      annealing=0)
  watch = _Watch(bias)
  data = tf.data.Dataset.from_tensors((features, clicks)).repeat(4)
  model.fit(data, verbose=0,
            callbacks=[callbacks.PropensityEM(step_size=.5), watch])
  assert len(set(watch.traces)) == 1
  expected = []
  for theta in watch.thetas:
    known = layers.PositionBias(NUM_POSITIONS, examination=theta)
    expected.append(float(
        losses.UnbiasedPairwiseLoss(known)(clicks, model(features))))
  assert np.ptp(expected) > .01
  np.testing.assert_allclose(watch.losses, expected, rtol=1e-5)


def test_the_callback_compiles_nothing(monkeypatch):
  """A callback that compiles the model breaks the `fit` that it is part of."""
  bias = layers.PositionBias(NUM_POSITIONS, trust_bias=None)
  model, watch = _make_model(bias), _Watch(bias)
  monkeypatch.setattr(model, "compile", lambda *_: pytest.fail("compiled"))
  steps, optimizer = [], model.optimizer
  for _ in range(2):
    model.fit(_make_dataset(), verbose=0,
              callbacks=[callbacks.PropensityEM(), watch])
    steps.append(model.train_function)
  assert steps[0] is steps[1]
  assert len(set(watch.traces)) == 1
  with_m_step, = vars(steps[0])["with_m_steps"].values()
  assert with_m_step.experimental_get_tracing_count() == 1
  assert model.optimizer is optimizer


@pytest.mark.parametrize("layer_outside, model_outside", [
    (True, False), (False, True)])
def test_a_layer_from_another_scope_is_an_error(layer_outside, model_outside):
  """Who leaves a layer or model outside of the strategy's scope is told so.

  TensorFlow fails too, but in words about the variables.
  """
  strategy = tf.distribute.MirroredStrategy(["CPU:0"])
  outside = tf.distribute.get_strategy()
  with (outside if layer_outside else strategy).scope():
    bias = layers.PositionBias(NUM_POSITIONS, name="bias", trust_bias=None)
  with (outside if model_outside else strategy).scope():
    model = _make_model(bias)
  with pytest.raises(ValueError, match=(
      "The layer 'bias' was created outside of the scope of the model's "
      "distribution strategy; create it inside `with strategy.scope")):
    model.fit(_make_dataset(), verbose=0, callbacks=[callbacks.PropensityEM()])


def test_parameter_servers_are_refused():
  strategy = object.__new__(tf.distribute.ParameterServerStrategy)
  bias = layers.PositionBias(NUM_POSITIONS, trust_bias=None)
  model = types.SimpleNamespace(
      loss=losses.UnbiasedPairwiseLoss(bias), distribute_strategy=strategy)
  with pytest.raises(ValueError, match=(
      "`PropensityEM` needs all workers to train in step, and those of "
      "`ParameterServerStrategy` do not; use `MirroredStrategy` or `Multi")):
    callbacks.PropensityEM().set_model(model)
