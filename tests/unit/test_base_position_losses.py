"""Properties that all baseline losses have, one table for all of them."""

import itertools
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

import oracles
from ultra_tfr.base import PositionTables
from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias

K = 4
CURVE = [.9, .6, .4, .25]


def _towers(modes, predicts, contexts=1):
  return ShallowTowerLoss(
      ShallowTower(K, modes, num_contexts=contexts), predicts=predicts)


# Name: what makes the loss, and the heads of the model.
CONFIGURATIONS = {
    "dla": (lambda: DualLearningLoss(PropensityLogits(K), max_weight=1.5), 1),
    "dla_uncapped": (
        lambda: DualLearningLoss(PropensityLogits(K), max_weight=None), 1),
    "dla_contexts": (
        lambda: DualLearningLoss(PropensityLogits(K, num_contexts=2)), 1),
    "ratios": (lambda: PairwiseDebiasingLoss(ClickRatios(K)), 1),
    "ratios_capped": (lambda: PairwiseDebiasingLoss(
        ClickRatios(K, regularization=1.0, num_contexts=2), max_weight=1.5), 1),
    "additive_click": (lambda: _towers(["additive"], "click"), 1),
    "product_click": (lambda: _towers(["product"], "click", 2), 1),
    "additive_value": (lambda: _towers(["additive"], "value"), 1),
    "v2": (lambda: _towers(["additive", None], "click+value"), 2),
    "v4": (lambda: _towers(["product", "additive"], "click+value"), 2),
    "regression_em": (lambda: RegressionEMLoss(
        PositionBias(K, initial_examination=CURVE)), 1),
    "regression_em_trust": (lambda: RegressionEMLoss(PositionBias(
        K, trust_bias="position", initial_examination=CURVE)), 1),
    "affine": (lambda: AffineCorrectionLoss(PositionBias(
        K, trust_bias="position", examination=CURVE, trust_positive=.9,
        trust_negative=.2)), 1),
    "affine_learned": (lambda: AffineCorrectionLoss(PositionBias(
        K, trust_bias="position", initial_examination=CURVE,
        num_contexts=2), max_weight=2.0), 1),
}
# Compiling is what takes time here; these have between them all of the code.
COMPILED = ["dla", "ratios_capped", "product_click", "v4",
            "regression_em_trust", "affine_learned"]
everything = pytest.mark.parametrize("name", CONFIGURATIONS)


def make_loss(name):
  """The named loss, with tables that differ everywhere."""
  loss = CONFIGURATIONS[name][0]()
  if isinstance(loss.position_bias, PositionTables):
    rng = np.random.default_rng(1)
    for variable in loss.position_bias.weights:
      if variable.shape in ([1, K], [2, K]):
        variable.assign(rng.uniform(.3, 1.2, size=variable.shape))
  return loss


def make_batch(name, seed=0):
  """Packed feedback and scores with padding, of two contexts."""
  lists = oracles.random_lists(seed, num_positions=K, num_contexts=2)
  rng = np.random.default_rng(seed)
  valid = np.array(oracles.column(lists, "valid"))
  feedback = np.array(oracles.column(lists, "feedback"))
  feedback = np.where(feedback > 0, feedback + rng.random(feedback.shape), 0.0)
  scores = np.array(oracles.column(lists, "score"), np.float32)
  if CONFIGURATIONS[name][1] == 2:
    scores = np.stack([scores, rng.normal(size=scores.shape)], axis=-1)
  y_true = pack_feedback(
      np.where(valid, feedback, -1.0),
      np.where(valid, oracles.column(lists, "position"), 0),
      oracles.column(lists, "context"))
  return y_true.numpy(), scores.astype(np.float32)


def run(loss, y_true, y_pred, compiled=None):
  """Loss, its gradient, and the sums that it collects."""
  y_true, y_pred = tf.constant(y_true), tf.constant(y_pred)
  loss.position_bias.start_collecting()

  def step():
    with tf.GradientTape() as tape:
      tape.watch(y_pred)
      value = loss(y_true, y_pred)
    return value, tape.gradient(value, y_pred)

  if compiled is not None:
    step = tf.function(step, jit_compile=compiled == "jit")
  value, gradient = step()
  return value.numpy(), gradient.numpy(), {
      key: value.numpy() for key, value in loss.position_bias.take_sums()
      .items()}


def assert_same(actual, expected, rtol=1e-5, atol=1e-5):
  np.testing.assert_allclose(actual[0], expected[0], rtol=rtol, atol=atol)
  np.testing.assert_allclose(actual[1], expected[1], rtol=rtol, atol=atol)
  assert actual[2].keys() == expected[2].keys()
  for key, value in expected[2].items():
    np.testing.assert_allclose(actual[2][key], value, rtol=rtol, atol=1e-4)


@everything
def test_something_happens(name):
  _, gradient, sums = run(make_loss(name), *make_batch(name))
  assert np.abs(gradient).max() > 1e-3
  assert all(np.abs(value).max() > 0 for value in sums.values())


@pytest.mark.parametrize(
    "name, compiled", [(name, "graph") for name in CONFIGURATIONS] +
    [(name, "jit") for name in COMPILED])
def test_compiled_equals_eager(name, compiled):
  batch = make_batch(name)
  assert_same(run(make_loss(name), *batch, compiled),
              run(make_loss(name), *batch))


@everything
def test_order_of_items_is_irrelevant(name):
  y_true, y_pred = make_batch(name)
  order = np.random.default_rng(5).permutation(y_true.shape[1])
  plain = run(make_loss(name), y_true, y_pred)
  moved = run(make_loss(name), y_true[:, order], y_pred[:, order])
  assert_same(moved, (plain[0], plain[1][:, order], plain[2]))


@everything
def test_order_of_lists_is_irrelevant(name):
  y_true, y_pred = make_batch(name)
  plain = run(make_loss(name), y_true, y_pred)
  moved = run(make_loss(name), y_true[::-1], y_pred[::-1])
  assert_same(moved, (plain[0], plain[1][::-1], plain[2]))


@everything
@pytest.mark.parametrize("missing", [-1.0, float("nan")])
def test_padding_changes_nothing(name, missing):
  y_true, y_pred = make_batch(name)
  lists, items = y_true.shape[:2]
  more = np.full([lists, 3, 3], missing, np.float32)
  more[..., 1:] = [2, 0]
  garbage = np.full([lists, 3, *y_pred.shape[2:]], np.nan, np.float32)
  plain = run(make_loss(name), y_true, y_pred)
  padded = run(make_loss(name), np.concatenate([y_true, more], 1),
               np.concatenate([y_pred, garbage], 1))
  assert_same((padded[0], padded[1][:, :items], padded[2]), plain)
  assert not padded[1][:, items:].any()
  assert not padded[1][:, :items][y_true[..., 0] < 0].any()


@everything
@pytest.mark.parametrize("scale", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("kind", ["some", "none", "all", "padding"])
def test_everything_is_finite(name, scale, kind):
  y_true, y_pred = make_batch(name)
  if kind != "some":
    value = {"none": 0.0, "all": 1.0, "padding": -1.0}[kind]
    y_true[..., 0] = np.where(y_true[..., 0] < 0, -1.0, value)
  found = run(make_loss(name), y_true, scale * y_pred)
  assert np.isfinite(found[0])
  assert np.isfinite(found[1]).all()
  assert all(np.isfinite(value).all() for value in found[2].values())
  if kind == "padding":
    assert found[0] == 0
    assert not found[1].any()


@everything
def test_config_round_trip(name):
  loss, batch = make_loss(name), make_batch(name)
  described = json.loads(json.dumps(tf.keras.losses.serialize(loss)))
  again = tf.keras.losses.deserialize(described)
  assert type(again) is type(loss)
  assert again.get_config() == loss.get_config()
  assert again.position_bias is not loss.position_bias
  for old, new in zip(loss.position_bias.weights, again.position_bias.weights):
    new.assign(old)
  assert_same(run(again, *batch), run(loss, *batch))


@everything
def test_reductions_and_weights(name):
  y_true, y_pred = make_batch(name)
  loss, results = make_loss(name), {}
  valid = (y_true[..., 0] >= 0) & (
      y_true[..., 2] < loss.position_bias.num_contexts)
  weights = np.random.default_rng(2).uniform(.5, 2, valid.shape)
  for reduction in ("auto", "none", "sum"):
    loss.reduction = reduction
    results[reduction] = loss(y_true, y_pred, weights).numpy()
  loss.reduction = "none"
  plain = loss(y_true, y_pred).numpy()
  np.testing.assert_allclose(results["none"], plain * weights, rtol=1e-5)
  np.testing.assert_allclose(loss.call(y_true, y_pred), plain)
  np.testing.assert_allclose(
      results["sum"], results["none"].sum(), rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
      results["auto"], results["sum"] / valid.sum(), rtol=1e-4, atol=1e-5)


@everything
def test_weights_weigh_the_sums(name):
  y_true, y_pred = make_batch(name)
  loss = make_loss(name)
  loss.position_bias.start_collecting()
  sums = []
  for weight in (1.0, 3.0):
    loss(y_true, y_pred, weight)
    sums.append(loss.position_bias.take_sums())
  has_tables = isinstance(loss.position_bias, PositionTables)
  key = "tables" if has_tables else "pointwise"
  np.testing.assert_allclose(sums[1][key], 3 * sums[0][key], rtol=1e-5)


@everything
def test_nothing_is_collected_while_the_gate_is_closed(name):
  loss, batch = make_loss(name), make_batch(name)
  loss(*batch)
  assert not any(np.any(s) for s in loss.position_bias.take_sums().values())


@everything
def test_a_forgotten_callback_is_noticed(name):
  loss, (y_true, y_pred) = make_loss(name), make_batch(name)
  scores = tf.Variable(y_pred)

  def step():
    with tf.GradientTape() as tape:
      value = loss(y_true, scores)
    tape.gradient(value, scores)

  with warnings.catch_warnings():
    warnings.simplefilter("error")
    loss(y_true, scores)  # Evaluation is no training.
    if loss.position_bias.is_updated_by_em or name == "affine":
      step()  # All is given: there is nothing to update.
      return
  with pytest.warns(UserWarning, match="is being trained.*PropensityEM"):
    step()
  loss.position_bias.start_collecting()
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    step()


@everything
def test_wrong_heads(name):
  loss, (y_true, y_pred) = make_loss(name), make_batch(name)
  heads = CONFIGURATIONS[name][1]
  wrong = np.zeros([*y_pred.shape[:2], 3], np.float32)
  shape = r"\[lists, items\]" if heads == 1 else r"\[lists, items, 2\]"
  with pytest.raises(ValueError, match=(
      f"needs `y_pred` of the shape {shape}, but `y_pred` has 3 head.*"
      f"`num_heads={heads}`")):
    loss(y_true, wrong)


@everything
def test_scores_of_another_list_size(name):
  loss, (y_true, y_pred) = make_loss(name), make_batch(name)
  with pytest.raises(ValueError, match="`y_pred` must score the items of "):
    loss(y_true, y_pred[:, :-1])


def test_a_layer_of_another_loss():
  layers = {DualLearningLoss: PropensityLogits(K),
            PairwiseDebiasingLoss: ClickRatios(K),
            ShallowTowerLoss: ShallowTower(K, ["additive"])}
  for loss, layer in itertools.product(layers, layers.values()):
    if layer is layers[loss]:
      loss(layer)
      continue
    with pytest.raises(ValueError, match=(
        f"`position_bias` must be a `{type(layers[loss]).__name__}`, but is")):
      loss(layer)
