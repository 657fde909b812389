"""Losses with `PositionTables`: in `fit`, saved and loaded."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import callback_fits
from ultra_tfr import scorers
from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.callbacks import PositionUpdates
from ultra_tfr.feedback import pack_feedback

K = callback_fits.NUM_POSITIONS
# Name: the layer from its number of positions and contexts, loss, and heads.
LOSSES = {
    "dla": (PropensityLogits, DualLearningLoss, 1),
    "ratios": (ClickRatios, PairwiseDebiasingLoss, 1),
    "tower": (
        lambda k, num_contexts=1, overflow="mask": ShallowTower(
            k, ["product", "additive"], num_contexts=num_contexts,
            overflow=overflow),
        lambda tower: ShallowTowerLoss(tower, predicts="click+value"), 2),
}
# What one layer shows in `fit` the others show in the slow tests.
everything = pytest.mark.parametrize("name", [
    "dla", pytest.param("tower", marks=pytest.mark.slow),
    pytest.param("ratios", marks=pytest.mark.release)])


def make_data(num_lists=48, seed=0):
  """Clicks and dwell: feedback is not 1."""
  return callback_fits.make_data(num_lists, seed, value=1.5)


def make_model(name, seed=0, num_positions=K, num_contexts=1, overflow="mask",
               **arguments):
  """A compiled model and the layer of its loss."""
  make_layer, loss, heads = LOSSES[name]
  tf.keras.utils.set_random_seed(seed)
  layer = make_layer(num_positions, num_contexts=num_contexts,
                     overflow=overflow)
  model = scorers.build_model(3, num_heads=heads, hidden_units=[4])
  model.compile("sgd", loss(layer), **arguments)
  return model, layer


def fit(model, data, callbacks=None, **arguments):
  arguments = {"batch_size": 8, "shuffle": False, "verbose": 0, **arguments}
  callbacks = [PositionUpdates()] if callbacks is None else callbacks
  return model.fit(*data, callbacks=callbacks, **arguments).history


def state(layer):
  return [variable.numpy() for variable in layer.weights]


def assert_same_state(layer, expected, rtol=0.0, atol=0.0):
  for actual, value in zip(state(layer), expected):
    np.testing.assert_allclose(actual, value, rtol=rtol, atol=atol)


@everything
@pytest.mark.usefixtures("eagerly")
def test_tables_move_and_validation_never_reaches_them(name):
  states = []
  for validation in (None, make_data(num_lists=16, seed=1)):
    model, layer = make_model(name)
    fit(model, make_data(), epochs=2, validation_data=validation)
    model.evaluate(*make_data(seed=2), verbose=0)
    model.predict(make_data()[0], verbose=0)
    assert layer.num_updates.numpy() == 12
    assert all(np.ptp(curve) > .01 for curve in layer.curves().values())
    states.append(state(layer))
  assert_same_state(layer, states[0])


@everything
@pytest.mark.usefixtures("eagerly")
def test_evaluation_by_a_callback_of_the_user(name):
  other, states = make_data(seed=1), []
  for evaluates in (False, True):
    model, layer = make_model(name)
    callback = tf.keras.callbacks.Callback()
    if evaluates:
      callback.on_train_batch_end = lambda batch, logs=None: (
          callback.model.evaluate(*other, verbose=0))  # noqa: B023
    fit(model, make_data(), [PositionUpdates(), callback])
    states.append(state(layer))
  for one, two in zip(*states):
    np.testing.assert_allclose(one, two, rtol=1e-6)


@everything
@pytest.mark.usefixtures("eagerly")
def test_logs(name):
  model, layer = make_model(name)
  starts = layer.curves()
  history = fit(model, make_data(), epochs=2)
  for curve, tables in layer.curves().items():
    for rank in range(1, K + 1):
      assert history[f"{curve}_{rank}"][-1] == pytest.approx(
          tables[0, rank - 1], rel=1e-6)
    first = np.array(
        [history[f"{curve}_{rank}"][0] for rank in range(1, K + 1)])
    changes = [abs(first - starts[curve][0]).max(),
               abs(tables[0] - first).max()]
    np.testing.assert_allclose(history[f"{curve}_change"], changes, rtol=1e-4)
  assert ("weight_clipped" in history) == (name != "tower")


def test_share_of_clipped_weight():
  layer = PropensityLogits(2)
  layer.propensity_logits.assign([[0.0, -np.log(4.0)]])
  model = tf.keras.Sequential([tf.keras.layers.Reshape([2])])
  model.compile("sgd", DualLearningLoss(layer, max_weight=2.0))
  history = fit(model, (np.zeros([1, 2, 1]), np.array([[1.0, 1.0]])))
  # Weights 1 and 4, the latter cut to 2.
  assert history["weight_clipped"] == [pytest.approx(2 / 5)]


@everything
@pytest.mark.usefixtures("eagerly")
def test_contexts(name):
  features, packed = make_data(200)
  contexts = np.arange(200) % 2
  # In the second context the last position is as good as the first.
  clicks = packed[..., 0].copy()
  rng = np.random.default_rng(3)
  clicks[contexts == 1] = rng.random([100, K]) < .4
  packed = pack_feedback(clicks, packed[..., 1], contexts).numpy()
  model, layer = make_model(name, num_contexts=2)
  history = fit(model, (features, packed),
                [PositionUpdates(step_size=.2, step_decay=0.0)], epochs=3)
  for curve, tables in layer.curves().items():
    assert tables.shape == (2, K)
    assert f"{curve}_context_1_{K}" in history
    if curve in ("examination", "clicked_ratio"):
      assert tables[0, -1] < .55 < tables[1, -1]
  if hasattr(layer, "propensities"):
    assert layer.propensities()["examination"].shape == (2, K)


@everything
def test_steps_per_execution_loses_no_sums(name):
  totals = []
  for steps in (1, 5):
    model, layer = make_model(name, steps_per_execution=steps)
    model.optimizer.learning_rate = 0.0
    # Variables, since it is part of the graph of a step.
    total = {key: tf.Variable(v) for key, v in layer.take_sums().items()}
    update = layer.update

    def record(layer=layer, total=total, update=update, **arguments):
      sums = layer.take_sums()
      for key, value in sums.items():
        total[key].assign_add(value)
      layer.move_gate(True)
      layer.collect(sums)
      layer.move_gate(False)
      return update(**arguments)

    layer.update = record
    # A step of next to nothing, so that all batches see the same tables.
    fit(model, make_data(), [PositionUpdates(step_size=1e-9)])
    assert layer.num_updates.numpy() == 6
    totals.append({key: value.numpy() for key, value in total.items()})
  # Batches, overflow, and what there was to learn from.
  assert totals[0]["counters"][2] > 20
  np.testing.assert_array_equal(
      totals[1]["counters"][:3], totals[0]["counters"][:3])
  if name != "ratios":  # Their first update is a whole one.
    assert np.abs(totals[0]["tables"]).max() > 1
    np.testing.assert_allclose(
        totals[1]["tables"], totals[0]["tables"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [
    pytest.param("dla", marks=pytest.mark.slow),
    *(pytest.param(name, marks=pytest.mark.release)
      for name in ("ratios", "tower"))])
def test_compiled_fit_equals_plain_fit(name):
  results = []
  for jit_compile in (False, True):
    model, layer = make_model(name, jit_compile=jit_compile)
    history = fit(model, make_data(), epochs=2)
    results.append([history["loss"], *model.get_weights()[:4], *state(layer)])
  for plain, compiled in zip(*results):
    np.testing.assert_allclose(plain, compiled, rtol=1e-3, atol=1e-4)


@everything
@pytest.mark.parametrize("path", ["weights", "model.weights.h5"])
@pytest.mark.usefixtures("eagerly")
def test_weights_bring_the_tables_back(name, path, tmp_path):
  model, layer = make_model(name)
  fit(model, make_data())
  model.save_weights(str(tmp_path / path))
  other, again = make_model(name, seed=1)
  callback = PositionUpdates()
  callback.set_model(other)
  other.load_weights(str(tmp_path / path))
  assert_same_state(again, state(layer))


@everything
@pytest.mark.parametrize("path", ["saved_model", "model.keras"])
@pytest.mark.usefixtures("eagerly")
def test_a_saved_model_brings_the_tables_back(name, path, tmp_path):
  features, feedback = make_data()
  model, layer = make_model(name)
  fit(model, (features, feedback))
  model.save(str(tmp_path / path))
  loaded = tf.keras.models.load_model(str(tmp_path / path))
  np.testing.assert_allclose(
      loaded.predict(features, verbose=0), model.predict(features, verbose=0),
      rtol=1e-5)
  if path == "saved_model":
    assert_same_state(loaded.position_bias, state(layer))
  fit(loaded, (features, feedback))
  fit(model, (features, feedback))
  found = loaded.loss.position_bias
  if path == "model.keras":
    assert found.num_updates.numpy() == layer.num_updates.numpy() == 12
    assert_same_state(found, state(layer), rtol=1e-4, atol=1e-5)


@everything
@pytest.mark.usefixtures("eagerly")
def test_a_second_fit_goes_on(name):
  model, layer = make_model(name)
  fit(model, make_data())
  fit(model, make_data())
  assert layer.num_updates.numpy() == 12


def test_values_of_the_start_are_told_from_learned_ones():
  model, layer = make_model("dla")
  with pytest.warns(UserWarning, match=(
      "values of 'propensity_logits' are where it starts: nothing has moved")):
    layer.propensities()
  fit(model, make_data(8))
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    layer.propensities()


@everything
def test_overflow(name):
  data = make_data(8)
  model, _ = make_model(name, num_positions=2, overflow="error")
  with pytest.raises(ValueError, match=(
      "16 items of one batch are outside of the bias layer's 2 pos")):
    fit(model, data)
  model, _ = make_model(name, num_positions=2)
  with pytest.warns(UserWarning, match="Items outside of .* are left out"):
    fit(model, data)
  model, layer = make_model(name, num_positions=2, overflow="pool")
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    fit(model, make_data())
  assert all(np.ptp(curve) > 0 for curve in layer.curves().values())


@everything
@pytest.mark.usefixtures("eagerly")
def test_nothing_to_learn_from(name):
  features, feedback = make_data(8)
  feedback[..., 0] = 0
  model, layer = make_model(name)
  with pytest.warns(UserWarning, match="No list of this epoch had feedback to"):
    history = fit(model, (features, feedback))
  assert np.isfinite(history["loss"]).all()
  assert all(np.isfinite(values).all() for values in state(layer))


def test_a_layer_from_outside_of_the_strategy():
  loss = DualLearningLoss(PropensityLogits(K))
  with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    model = scorers.build_model(3, hidden_units=[4])
    model.compile("sgd", loss)
  with pytest.raises(ValueError, match=(
      "'propensity_logits' was created outside of the scope of the model's")):
    fit(model, make_data())
