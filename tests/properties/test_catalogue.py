"""Properties that all losses, layers, metrics and callbacks have."""

from collections.abc import Mapping
import inspect
import json
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from catalogue import CATALOGUE
from catalogue import LAYERS
from catalogue import LOSSES
from catalogue import PROPERTIES
from catalogue import Outcome
from catalogue import assert_same
from catalogue import outcome_of
from catalogue import tensors
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

# Compiling is what takes time here. These have between them all of the code,
# and XLA compiles them always; with the slow tests each entry is compiled by
# one way at least, and before a release by both.
COMPILED_ALWAYS = (
    "ipw", "position_trust", "graded_three_heads", "inverse_propensity", "dla",
    "v4", "regression_em_trust", "signed_log", "numeric_features",
    "on_ranking_MRRMetric", "counterfactual_ndcg", "click_log_likelihood")
COMPILED_BY_XLA = (
    *COMPILED_ALWAYS, "pairwise_trust_prior", "hinge", "precision",
    "graded_one_head", "ratios_capped", "product_click", "affine_learned")
# Wings that use the others and have nothing for `compile` and `fit` of users.
_PROGRAMS = ("commands", "experiments", "fit_log", "pipeline")
_KINDS = (tf.keras.losses.Loss, tf.keras.layers.Layer,
          tf.keras.metrics.Metric, tf.keras.callbacks.Callback)


def having(name):
  """Parametrises a test over the entries that have a property."""
  assert name in PROPERTIES
  return pytest.mark.parametrize("entry", [
      pytest.param(entry, id=entry.name) for entry in CATALOGUE.values()
      if name not in entry.lacks])


@pytest.fixture(autouse=True)
def _seeds(monkeypatch):
  """Draws of `targets="sample"` that do not depend on the order of items.

  In place of seeds, for which TensorFlow would build all kernels anew.
  """
  monkeypatch.setattr(
      tf.random, "uniform", lambda shape, seed=None: tf.fill(shape, .4))


def test_every_public_object_is_in_the_catalogue():
  # What registers with Keras is loaded by `import ultra_tfr`, so all is here.
  public = {
      value for path, module in list(sys.modules.items())
      if path.startswith("ultra_tfr.") and path.split(".")[1] not in _PROGRAMS
      for name, value in vars(module).items()
      if isinstance(value, type) and issubclass(value, _KINDS) and
      value.__module__ == path and name[0] != "_"}
  # What others inherit is a contract, and those that inherit it are listed.
  contracts = {one for one in public for other in public
               if issubclass(other, one) and other is not one}
  missing = public - contracts - {
      type(entry.make()) for entry in CATALOGUE.values()}
  assert not missing, f"tests/support/catalogue.py lacks {missing}"
  assert len(public - contracts) > 12


def rearranged(batch, order, rng=None):
  """Items in a new order; -1 in it is padding, with arbitrary other values."""
  result = {}
  order = np.asarray(order)
  padding = order < 0
  for key, filler in (("feedback", -1.), ("positions", 0.), ("contexts", 0.),
                      ("scores", np.nan), ("weights", 1.)):
    result[key] = batch[key]
    if batch[key] is not None:
      result[key] = batch[key][:, order]
      result[key][:, padding] = filler
  if rng is not None:
    # Whatever a reader leaves in padded places must not matter.
    shape = result["positions"][:, padding].shape
    result["positions"][:, padding] = rng.integers(0, 9, shape)
    result["feedback"][:, padding] = rng.choice([-1., np.nan], shape)
    result["weights"][:, padding] = rng.choice([np.nan, -2., 7.], shape)
    scores = result["scores"][:, padding]
    result["scores"][:, padding] = rng.choice(
        [-23.03, np.inf, np.nan], scores.shape)
    if result["contexts"] is not None:
      result["contexts"][:, padding] = rng.integers(0, 9, shape)
  return result


@having("order")
@pytest.mark.usefixtures("eagerly")
def test_order_and_padding_change_nothing(entry):
  subject, batch = entry.make(), entry.make_batch()
  expected, rng = outcome_of(entry), np.random.default_rng(3)
  for order, arbitrary in (
      ([3, 0, 4, 1, 2], None),                     # Permuted, lists too.
      ([0, 1, 2, 3, 4, -1, -1], None),             # Padded further.
      ([-1, 0, 1, -1, 2, 3, -1, 4], rng),          # Padded in the middle.
  ):
    moved = rearranged(batch, order, arbitrary)
    lists = slice(None, None, -1 if arbitrary is None else 1)
    totals, items = entry.run(entry, {
        key: None if values is None else values[lists]
        for key, values in moved.items()}, subject)
    assert_same(Outcome(totals, {
        key: values[lists] for key, values in items.items()}), expected, order)


def _tier(entry, how):
  """Marks of the test that compiles an entry by "graph" or "jit"."""
  if how != ("jit" if entry.name in COMPILED_BY_XLA else "graph"):
    return pytest.mark.release
  return () if entry.name in COMPILED_ALWAYS else pytest.mark.slow


@pytest.mark.parametrize("entry, how", [
    pytest.param(entry, how, id=f"{entry.name}-{how}", marks=_tier(entry, how))
    for entry in CATALOGUE.values() if "compiled" not in entry.lacks
    for how in ("graph", "jit")])
def test_compiled_equals_eager(entry, how):
  actual = entry.run(entry, entry.make_batch(), compiled=how)
  assert_same(actual, outcome_of(entry))


@having("float64")
@pytest.mark.usefixtures("eagerly")
def test_double_precision_changes_nothing(entry):
  batch = entry.make_batch()
  batch["scores"] = batch["scores"].astype(np.float64)
  assert_same(entry.run(entry, batch), outcome_of(entry))


# Where propensities and towers can get to.
_LIMITS = {"examination": (0., 1.), "examination_unclicked": (0., 1.),
           "click_irrelevant": (0., 0.), "trust_positive": (1., 1.),
           "trust_negative": (0., 0.), "propensity_logits": (-30., 30.),
           "clicked_ratio": (1e-3, 1.), "unclicked_ratio": (1e-3, 1.),
           "effects_0": (-30., 30.), "effects_1": (-30., 30.)}


def _to_the_limits(layer, attempt):
  for variable in layer.weights:
    name = variable.name.split(":")[0]
    if name in _LIMITS:
      limits = np.roll(_LIMITS[name], attempt)
      variable.assign(np.resize(limits, variable.shape))
  # A click on an irrelevant item is as likely as on a relevant one.
  if getattr(layer, "trust_bias", None) == "position" and attempt == 2:
    layer.click_irrelevant.assign(layer.examination)


@having("extremes")
@pytest.mark.usefixtures("eagerly")
def test_finite_at_the_extremes(entry):
  subject, batch = entry.make(), entry.make_batch()
  layer = getattr(subject, "position_bias", subject)
  # Each list again and again: as it is, all clicked, and without a click.
  feedback = np.concatenate([
      np.where(batch["feedback"] < 0, -1., value)
      for value in (batch["feedback"], batch["feedback"], 1., 0.)])
  batch = {key: None if values is None else np.concatenate([values] * 4)
           for key, values in batch.items()}
  scale = np.repeat([1e4, 0., 1e2, 1e4], len(feedback) // 4)
  rng = np.random.default_rng(4)
  kinds = [feedback] * 3
  if entry.name in {**LOSSES, **LAYERS}:
    # Without any feedback metrics are NaN, and say so.
    kinds += [np.minimum(feedback, 0.), np.full_like(feedback, -1.)]
  for attempt, batch["feedback"] in enumerate(kinds):
    scores = rng.choice([-1., 0., 1.], size=batch["scores"].shape)
    batch["scores"] = (scale[:, np.newaxis, np.newaxis] * scores).astype(
        np.float32)
    if hasattr(layer, "num_positions"):
      _to_the_limits(layer, attempt)
    outcome = entry.run(entry, batch, subject)
    for part in outcome:
      for key, values in part.items():
        assert np.all(np.isfinite(values)), key
    if entry.name in LOSSES and attempt == 4:
      assert outcome.totals["value"] == 0
      assert not outcome.items["gradient"].any()


@having("gradient")
def test_no_gradient_reaches_the_bias_layer(entry):
  loss = entry.make()
  variables = loss.position_bias.weights
  assert variables
  assert not loss.position_bias.trainable_weights
  with tf.GradientTape() as tape:
    tape.watch(variables)
    value = loss(*tensors(entry.make_batch()))
  assert all(g is None for g in tape.gradient(value, variables))


def _keras_module(subject):
  if isinstance(subject, tf.keras.losses.Loss):
    return tf.keras.losses
  if isinstance(subject, tf.keras.metrics.Metric):
    return tf.keras.metrics
  return tf.keras.layers


def _serialized(subject):
  """JSON text of an object, and the function that makes it again."""
  if isinstance(subject, tf.keras.losses.Loss):
    module = tf.keras.losses
  elif isinstance(subject, tf.keras.metrics.Metric):
    module = tf.keras.metrics
  else:
    module = tf.keras.layers
  return json.dumps(module.serialize(subject)), module.deserialize


def _revived(entry, subject):
  """The object, from text; with learned values, which are in checkpoints."""
  text, deserialize = _serialized(subject)
  again = deserialize(json.loads(text))
  assert type(again) is type(subject)
  assert _serialized(again)[0] == text
  source, target = (getattr(thing, "position_bias", thing)
                    for thing in (subject, again))
  assert source is not target
  if isinstance(source, tf.keras.layers.Layer):
    for layer in (source, target):
      if not layer.built:
        entry.run(entry, entry.make_batch(), layer)
    target.set_weights(source.get_weights())
  return again


@having("config")
@pytest.mark.usefixtures("eagerly")
def test_config_round_trip(entry):
  subject = entry.make()
  assert tf.keras.utils.get_registered_name(
      type(subject)) == f"ultra_tfr>{type(subject).__name__}"
  config = json.loads(json.dumps(subject.get_config()))
  text = json.dumps(config)
  assert json.dumps(type(subject).from_config(config).get_config()) == text
  assert json.dumps(config) == text  # It is left alone.
  actual = entry.run(entry, entry.make_batch(), _revived(entry, subject))
  assert_same(actual, outcome_of(entry), tolerance=1e-7)


def _of_numpy(value, whole, real):
  """NumPy's numbers and arrays for Python's, inside of containers too."""
  if isinstance(value, Mapping):
    return {key: _of_numpy(part, whole, real) for key, part in value.items()}
  if isinstance(value, list):
    if isinstance(value[0], (float, list)):
      return np.array(value)
    return [_of_numpy(part, whole, real) for part in value]
  for python, numpy in ((bool, np.bool_), (int, whole), (float, real)):
    if isinstance(value, python):
      return numpy(value)
  return value


def _made_of_numpy(entry, whole, real, **optional):
  """The object, made with all its arguments of NumPy's types.

  Args:
    entry: of the catalogue.
    whole: the type of whole numbers.
    real: that of others.
    **optional: for arguments that are None.
  """
  def arguments(function, given):
    found = {
        name: optional.get(name) if parameter.default is None else
        parameter.default for name, parameter in inspect.signature(
            function).parameters.items()
        if parameter.default != parameter.empty}
    return _of_numpy({**found, **given}, whole, real)

  made = arguments(entry.factory, entry.arguments)
  if entry.layer is not None:
    made["position_bias"] = entry.make_layer(**arguments(*entry.layer))
  return entry.make(**made)


@having("numpy_arguments")
@pytest.mark.usefixtures("eagerly")
def test_numbers_of_numpy_are_numbers(entry):
  other = _made_of_numpy(entry, np.int64, np.float32)
  if "config" not in entry.lacks:
    other = _revived(entry, other)
  assert_same(entry.run(entry, entry.make_batch(), other), outcome_of(entry))


@having("numpy_arguments")
@pytest.mark.usefixtures("eagerly")
def test_numbers_of_any_width_are_numbers(entry):
  """`max_weight=np.float32(20)` gave a config that is no JSON.

  And a smoothing of an np.int64 ended in the first M step.
  """
  other = _made_of_numpy(entry, np.int16, np.float16, max_weight=30., seed=3)
  if "config" not in entry.lacks:
    json.dumps(other.get_config())
  entry.run(entry, entry.make_batch(), other)


def test_what_is_wrapped_may_have_numbers_of_numpy():
  topn, temperature = np.int64(3), np.float32(2.)
  for wrapper in (
      on_ranking(tfr.keras.metrics.NDCGMetric(topn=topn)),
      UnbiasedPairwiseLoss(PositionBias(2, trust_bias=None), lambda_weight=(
          tfr.keras.losses.NDCGLambdaWeight(topn=topn))),
      InversePropensityLoss(
          PositionBias(2, examination=.5),
          tfr.keras.losses.SoftmaxLoss(temperature=temperature))):
    config = json.loads(json.dumps(wrapper.get_config()))
    assert type(wrapper).from_config(config).get_config() == config
