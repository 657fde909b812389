"""Properties that every configuration of the loss has, one table for all."""

import inspect
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

NUM_POSITIONS = 6
EXAMINATION = [.9, .7, .55, .4, .3, .2]
NDCG = tfr.keras.losses.NDCGLambdaWeight
DCG = tfr.keras.losses.DCGLambdaWeight
PRECISION = tfr.keras.losses.PrecisionLambdaWeight

# Name: heads of the model, arguments of the bias layer and of the loss.
CONFIGURATIONS = {
    "ipw": (1, {}, {}),
    "ipw_two_heads": (2, {}, {}),
    "ipw_prior": (2, {}, {"examination_posterior": "prior"}),
    "ipw_position": (2, {}, {"examination_posterior": "position"}),
    "ipw_sample": (2, {}, {"targets": "sample"}),
    "ipw_tower": (3, {}, {"preference": "tower", "tie_threshold": .5,
                          "examination_posterior": "prior"}),
    "fixed": (1, {"examination": EXAMINATION}, {}),
    "contexts": (2, {"num_contexts": 2}, {}),
    "pool": (1, {"num_positions": 4, "overflow": "pool",
                 "initial_examination": EXAMINATION[:4]}, {}),
    "mask": (1, {"num_positions": 4, "overflow": "mask",
                 "initial_examination": EXAMINATION[:4]}, {}),
    "position_trust": (1, {"trust_bias": "position"}, {}),
    "position_trust_fixed": (
        2, {"trust_bias": "position", "examination": EXAMINATION,
            "trust_positive": .9, "trust_negative": .1}, {}),
    "pairwise_trust_item": (2, {"trust_bias": "pairwise"}, {}),
    "pairwise_trust_prior": (2, {"trust_bias": "pairwise"},
                             {"examination_posterior": "prior"}),
    "pairwise_trust_one_head": (1, {"trust_bias": "pairwise"},
                                {"normalize_trust": False}),
    "pairwise_trust_fixed": (
        1, {"trust_bias": "pairwise", "trust_positive": .8,
            "trust_negative": .1}, {"examination_posterior": "position"}),
    "paper": (3, {"trust_bias": "pairwise"}, "paper"),
    "paper_opt": (3, {"trust_bias": "pairwise"}, "paper_opt"),
    "ndcg": (2, {}, {"lambda_weight": NDCG(topn=3, smooth_fraction=.25)}),
    "dcg": (1, {}, {"lambda_weight": DCG()}),
    "precision": (1, {}, {"lambda_weight": PRECISION(topn=2)}),
    "hinge": (1, {}, {"pair_loss": "hinge"}),
    "clipped": (2, {}, {"max_weight": .8, "temperature": 2.}),
    "graded_one_head": (1, {}, {"feedback": "graded",
                                "lambda_weight": NDCG()}),
    "graded_two_heads": (2, {"trust_bias": "pairwise"},
                         {"feedback": "graded", "min_gap": .2}),
    "graded_three_heads": (3, {"trust_bias": "pairwise"},
                           {"feedback": "graded"}),
    "sum": (2, {}, {"reduction": tf.keras.losses.Reduction.SUM,
                    "head_weight": 3.}),
    "normalized": (1, {}, {"normalize_weights": True}),
}
NAMES = list(CONFIGURATIONS)
# Compiling is what takes time here; these have between them all of the code.
COMPILED_ALWAYS = {
    "ipw", "fixed", "contexts", "position_trust", "pairwise_trust_prior",
    "pairwise_trust_fixed", "paper_opt", "hinge", "precision",
    "graded_three_heads", "normalized"}
MANY_HEADS = [n for n in NAMES if CONFIGURATIONS[n][0] > 1]


def make_loss(configuration, **changes):
  """The named loss, with a bias layer of values that differ everywhere."""
  _, bias_arguments, arguments = CONFIGURATIONS[configuration]
  bias_arguments = {"num_positions": NUM_POSITIONS, **bias_arguments}
  if "examination" not in bias_arguments:
    bias_arguments.setdefault("initial_examination", EXAMINATION)
  bias = PositionBias(**bias_arguments)
  rng = np.random.default_rng(1)
  for table, low, high in (("examination_unclicked", .1, .6),
                           ("trust_positive", .6, .95),
                           ("trust_negative", .01, .2)):
    if hasattr(bias, table) and not (
        bias.trust_is_fixed and table.startswith("trust")):
      variable = getattr(bias, table)
      variable.assign(rng.uniform(low, high, variable.shape))
  bias.start_collecting()
  if isinstance(arguments, str):
    if arguments == "paper_opt":
      changes = {"lambda_weight": NDCG(), **changes}
    return UnbiasedPairwiseLoss.paper(bias, **changes)
  return UnbiasedPairwiseLoss(bias, **{**arguments, **changes})


def make_batch(name, num_lists=4, size=5):
  """Feedback, positions, contexts, heads and weights; lists of many sizes."""
  rng = np.random.default_rng(2)
  graded = name.startswith("graded")
  feedback = (rng.random([num_lists, size]) < .5).astype(np.float32)
  feedback[0] = [1, 0, 1, 0, 0]
  if graded:
    feedback *= rng.uniform(.5, 40., feedback.shape)
  feedback[1, 3:] = -1.
  feedback[2, :] = -1.
  positions = np.stack([
      rng.permutation(NUM_POSITIONS)[:size] + 1 for _ in range(num_lists)])
  contexts = rng.integers(0, 2, [num_lists, 1]) if name == "contexts" else None
  heads = CONFIGURATIONS[name][0]
  scores = rng.normal(size=[num_lists, size, heads])
  weights = rng.uniform(.5, 2., [num_lists, size])
  return {"feedback": feedback, "positions": positions.astype(np.float32),
          "contexts": contexts, "scores": scores.astype(np.float32),
          "weights": weights.astype(np.float32)}


def rearranged(batch, order, rng=None):
  """Items in a new order; -1 in it is padding, with arbitrary other values."""
  result = dict(batch)
  order = np.asarray(order)
  padding = order < 0
  for key, filler in (("feedback", -1.), ("positions", 0.),
                      ("scores", np.nan), ("weights", 1.)):
    result[key] = batch[key][:, order]
    result[key][:, padding] = filler
  if rng is not None:
    # Whatever a reader leaves in padded places must not matter.
    shape = result["positions"][:, padding].shape
    result["positions"][:, padding] = rng.integers(0, 9, shape)
    result["feedback"][:, padding] = rng.choice([-1., np.nan], shape)
    result["scores"][:, padding] = -23.03
  return result


def tensors(batch):
  y_true = pack_feedback(
      batch["feedback"], batch["positions"], batch["contexts"])
  scores = tf.constant(batch["scores"])
  if scores.shape[2] == 1:
    scores = scores[..., 0]
  return y_true, scores, tf.constant(batch["weights"])


def value_and_gradient(loss, y_true, y_pred, weights):
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred, weights)
  return value, tape.gradient(value, y_pred)


def evaluate(loss, batch):
  """Loss, gradient `[B, L, heads]` and EM sums, as numpy."""
  loss.position_bias.take_sums()
  value, gradient = value_and_gradient(loss, *tensors(batch))
  return value.numpy(), *read(loss, gradient)


def read(loss, gradient):
  gradient = gradient.numpy()
  if gradient.ndim == 2:
    gradient = gradient[..., np.newaxis]
  return gradient, {
      k: v.numpy() for k, v in loss.position_bias.take_sums().items()}


def assert_same(actual, expected, order=None, tolerance=1e-5):
  value, gradient, sums = actual
  expected_value, expected_gradient, expected_sums = expected
  assert abs(expected_value) > 1e-3  # Nothing is shown by comparing zeros.
  np.testing.assert_allclose(value, expected_value, rtol=tolerance)
  if order is not None:
    order = np.asarray(order)
    assert not np.any(gradient[:, order < 0])
    padded, gradient = gradient, np.zeros_like(expected_gradient)
    gradient[:, order[order >= 0]] = padded[:, order >= 0]
  np.testing.assert_allclose(
      gradient, expected_gradient, rtol=tolerance, atol=tolerance)
  assert sums.keys() == expected_sums.keys()
  for key, total in sums.items():
    np.testing.assert_allclose(
        total, expected_sums[key], rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.fixture
def constant_draws(monkeypatch):
  """Draws of `targets="sample"` that do not depend on the order of items."""
  monkeypatch.setattr(
      tf.random, "uniform", lambda shape, seed=None: tf.fill(shape, .4))


@pytest.mark.parametrize("name", NAMES)
def test_permuting_and_padding_change_nothing(name, constant_draws):
  loss, batch = make_loss(name), make_batch(name)
  expected = evaluate(loss, batch)
  assert expected[2]["counters"][2] > 0
  rng = np.random.default_rng(3)
  for order, arbitrary in (
      ([3, 0, 4, 1, 2], None),                     # Permuted.
      ([0, 1, 2, 3, 4, -1, -1], None),             # Padded further.
      ([-1, 0, 1, -1, 2, 3, -1, 4], rng),          # Padded in the middle.
  ):
    actual = evaluate(loss, rearranged(batch, order, arbitrary))
    assert_same(actual, expected, order)


@pytest.mark.parametrize("name", [
    name if name in COMPILED_ALWAYS else
    pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def test_compiled_equals_eager(name, constant_draws):
  loss, batch = make_loss(name), make_batch(name)
  expected = evaluate(loss, batch)
  step = tf.function(lambda *xs: value_and_gradient(loss, *xs))
  value, gradient = step(*tensors(batch))
  assert_same((value.numpy(), *read(loss, gradient)), expected)
  compiled = tf.function(
      lambda *xs: value_and_gradient(loss, *xs), jit_compile=True)
  value, gradient = compiled(*tensors(batch))
  assert_same((value.numpy(), *read(loss, gradient)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_finite_at_the_extremes(name):
  loss, batch = make_loss(name), make_batch(name)
  bias = loss.position_bias
  extremes = np.tile([0., 1.], NUM_POSITIONS)
  rng = np.random.default_rng(4)
  for attempt in range(3):
    batch["scores"] = rng.choice(
        [-1e4, 0., 1e4], size=batch["scores"].shape).astype(np.float32)
    for variable in (bias.examination, bias.examination_unclicked):
      size = int(np.prod(variable.shape))
      variable.assign(np.reshape(
          extremes[attempt % 2:][:size] if size < 11 else
          np.resize(extremes, size), variable.shape))
    if bias.trust_bias == "pairwise":
      bias.trust_positive.assign(tf.ones_like(bias.trust_positive))
      bias.trust_negative.assign(tf.zeros_like(bias.trust_negative))
    elif bias.trust_bias == "position":
      bias.click_irrelevant.assign(bias.examination * (attempt != 1))
    value, gradient, sums = evaluate(loss, batch)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    for key, total in sums.items():
      assert np.all(np.isfinite(total)), key


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_reaches_the_bias_layer(name):
  loss, batch = make_loss(name), make_batch(name)
  variables = loss.position_bias.weights
  assert variables
  assert not loss.position_bias.trainable_weights
  with tf.GradientTape() as tape:
    tape.watch(variables)
    value = loss(*tensors(batch))
  assert all(g is None for g in tape.gradient(value, variables))


@pytest.mark.parametrize("name", MANY_HEADS)
def test_heads_learn_apart(name, constant_draws):
  batch = make_batch(name)
  # The gradients are linear in the weight of the cross-entropies.
  gradients = {}
  for weight in (0., 1., 2.):
    loss = make_loss(name)
    loss._options["head_weight"] = weight
    _, gradients[weight], _ = evaluate(loss, batch)
  none, one, two = (gradients[w] for w in (0., 1., 2.))
  assert np.any(none[..., 0])
  # The ranking head learns from pairs alone, and the others not from pairs.
  np.testing.assert_allclose(one[..., 0], none[..., 0], atol=1e-6)
  assert not np.any(none[..., 1:])
  assert np.any(one[..., 1])
  np.testing.assert_allclose(two[..., 1:], 2 * one[..., 1:], atol=1e-6)
  # Nor do they learn from where the ranking scores are.
  batch["scores"][..., 0] *= -3.
  loss = make_loss(name)
  loss._options["head_weight"] = 1.
  _, other, _ = evaluate(loss, batch)
  np.testing.assert_allclose(other[..., 1:], one[..., 1:], atol=1e-6)
  assert np.abs(other[..., 0] - one[..., 0]).max() > 1e-4


def test_relevance_does_not_learn_from_the_preference_task():
  batch = make_batch("ipw_tower")
  loss = make_loss("ipw_tower")
  _, gradient, _ = evaluate(loss, batch)
  assert np.any(gradient[..., 2])
  batch["scores"][..., 2] *= -2.
  _, other, _ = evaluate(loss, batch)
  np.testing.assert_allclose(other[..., 1], gradient[..., 1], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_config_round_trip(name, constant_draws):
  loss, batch = make_loss(name), make_batch(name)
  text = json.dumps(loss.get_config())
  again = UnbiasedPairwiseLoss.from_config(json.loads(text))
  assert json.dumps(again.get_config()) == text
  # The learned values are in checkpoints, not in the config.
  again.position_bias.start_collecting()
  again.position_bias.set_weights(loss.position_bias.get_weights())
  assert_same(evaluate(again, batch), evaluate(loss, batch), tolerance=1e-7)


def test_from_config_leaves_the_config_alone():
  config = json.loads(json.dumps(make_loss("precision").get_config()))
  text = json.dumps(config)
  UnbiasedPairwiseLoss.from_config(config)
  assert json.dumps(config) == text


def test_configuration_names_the_registered_classes():
  loss = make_loss("ndcg")
  description = tf.keras.losses.serialize(loss)
  again = tf.keras.losses.deserialize(json.loads(json.dumps(description)))
  assert isinstance(again, UnbiasedPairwiseLoss)
  assert isinstance(again.position_bias, PositionBias)
  assert isinstance(again.lambda_weight, NDCG)


def test_sampled_targets_have_the_expectation():
  batch = make_batch("ipw_sample")
  loss = make_loss("ipw_sample", seed=5)
  expected = evaluate(make_loss("ipw_two_heads"), batch)[1][..., 1]
  tf.keras.utils.set_random_seed(5)
  draws = np.stack([
      evaluate(loss, batch)[1][..., 1] for _ in range(150)])
  error = draws.std(axis=0) / np.sqrt(len(draws))
  assert np.any(error > 0)
  np.testing.assert_array_less(
      np.abs(draws.mean(axis=0) - expected), 5 * error + 1e-5)


def test_sampled_targets_compile():
  loss, batch = make_loss("paper"), make_batch("paper")
  step = tf.function(
      lambda *xs: value_and_gradient(loss, *xs), jit_compile=True)
  value, gradient = step(*tensors(batch))
  assert np.isfinite(value) and np.all(np.isfinite(gradient))


# What changing each argument must change: name -> what stays, values. All
# values of an argument must give different outcomes.
LOSS_ARGUMENTS = {
    "position_bias": None,  # Tested by hand below.
    "lambda_weight": ("ipw", [None, NDCG(), DCG()]),
    "feedback": ("graded_three_heads", ["binary", "graded"]),
    "preference": ("ipw_tower", ["relevance", "tower"]),
    "targets": ("ipw_two_heads", ["expected", "sample"]),
    "examination_posterior": ("pairwise_trust_item",
                              ["item", "prior", "position"]),
    "max_weight": ("ipw", [None, 1., .5]),
    "temperature": ("ipw", [1., 2.]),
    "normalize_trust": ("pairwise_trust_item", [True, False]),
    "tie_threshold": ("ipw_tower", [0., 1.]),
    "min_gap": ("graded_two_heads", [0., 10.]),
    "pair_loss": ("ipw", ["logistic", "hinge"]),
    "head_weight": ("ipw_two_heads", [1., 0.]),
    "normalize_weights": ("ipw", [False, True]),
    "seed": ("ipw_sample", [1, 2]),
    "reduction": ("ipw", [tf.keras.losses.Reduction.AUTO,
                          tf.keras.losses.Reduction.SUM,
                          tf.keras.losses.Reduction.NONE]),
    "name": ("ipw", ["a", "b"]),
}


def _parameters(function):
  return set(inspect.signature(function).parameters) - {"self", "cls"}


def _differ(outcomes):
  for a, b in itertools.combinations(outcomes, 2):
    assert a.shape != b.shape or np.abs(a - b).max() > 1e-6


@pytest.mark.parametrize("argument", LOSS_ARGUMENTS)
def test_each_argument_of_the_loss_changes_the_outcome(argument):
  assert LOSS_ARGUMENTS.keys() == _parameters(UnbiasedPairwiseLoss.__init__)
  if argument == "position_bias":
    batch = make_batch("ipw")
    _differ([np.array(evaluate(make_loss(name), batch)[0])
             for name in ("ipw", "position_trust", "pairwise_trust_one_head")])
    return
  name, values = LOSS_ARGUMENTS[argument]
  batch, outcomes = make_batch(name), []
  for value in values:
    loss = make_loss(name, **{argument: value})
    if argument == "name":
      assert loss.name == loss.get_config()["name"] == value
      return
    tf.keras.utils.set_random_seed(0)
    outcomes.append(np.array(evaluate(loss, batch)[0]))
  _differ(outcomes)


def test_seed_repeats_the_draws():
  batch, values = make_batch("ipw_sample"), []
  for seed in (1, 1, 2):
    tf.keras.utils.set_random_seed(0)
    values.append(evaluate(make_loss("ipw_sample", seed=seed), batch)[0])
  assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("argument, values", [
    ("lambda_weight", [None, NDCG()]), ("max_weight", [None, .5]),
    ("seed", [1, 2]), ("reduction", ["auto", "sum"]), ("name", ["a", "b"]),
    ("position_bias", ["paper", "paper_fixed"])])
def test_each_argument_of_the_paper_preset_changes_the_outcome(
    argument, values):
  arguments = {"lambda_weight", "max_weight", "seed", "reduction", "name",
               "position_bias"}
  assert arguments == _parameters(UnbiasedPairwiseLoss.paper)
  batch, outcomes = make_batch("paper"), []
  for value in values:
    tf.keras.utils.set_random_seed(0)
    if argument == "position_bias":
      loss = make_loss("paper")
      if value == "paper_fixed":
        loss = UnbiasedPairwiseLoss.paper(
            PositionBias(NUM_POSITIONS, examination=EXAMINATION))
    else:
      loss = make_loss("paper", **{argument: value})
    if argument == "name":
      assert loss.name == value
      return
    outcomes.append(np.array(evaluate(loss, batch)[0]))
  _differ(outcomes)


# What stays, then values of the argument.
_POSITION = {"trust_bias": "position", "examination": EXAMINATION}
BIAS_ARGUMENTS = {
    "num_positions": ({}, [NUM_POSITIONS, 3]),
    "num_contexts": ({}, [1, 2]),
    "trust_bias": ({}, [None, "position", "pairwise"]),
    "examination": ({}, [None, EXAMINATION, EXAMINATION[::-1]]),
    "trust_positive": ({"trust_bias": "pairwise", "trust_negative": .1},
                       [.5, .9]),
    "trust_negative": ({**_POSITION, "trust_positive": .9}, [.1, .3]),
    "initial_examination": ({}, ["click_rate", .9, EXAMINATION]),
    "initial_scale": ({}, [.9, .5]),
    "initial_click_irrelevant": ({"trust_bias": "position"}, [.02, .3]),
    "smoothing": ({}, [20., 1.]),
    "min_examination": ({}, [1e-3, .9]),
    "overflow": ({"num_positions": 3}, ["mask", "pool"]),
    "name": ({}, ["a", "b"]),
}


def train(bias_arguments, em_arguments=None, steps=3):
  """Loss and propensities after a few batches, without a model in the way."""
  em_arguments = em_arguments or {}
  bias = PositionBias(**{"num_positions": NUM_POSITIONS, **bias_arguments})
  loss = UnbiasedPairwiseLoss(bias)
  model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  model.compile("sgd", loss)
  callback = PropensityEM(**em_arguments)
  callback.set_model(model)
  callback.on_train_begin()
  values = []
  for step in range(steps):
    batch = make_batch("contexts" if bias.num_contexts > 1 else "ipw")
    batch["feedback"] = np.roll(batch["feedback"], step, axis=0)
    callback.on_train_batch_begin(step)
    values.append(loss(*tensors(batch)).numpy())
    callback.on_train_batch_end(step)
  callback.on_train_end()
  return np.concatenate([values, bias.examination.numpy().ravel()])


@pytest.mark.parametrize("argument", BIAS_ARGUMENTS)
def test_each_argument_of_the_bias_layer_changes_the_outcome(argument):
  assert BIAS_ARGUMENTS.keys() == _parameters(PositionBias.__init__)
  kept, values = BIAS_ARGUMENTS[argument]
  if argument == "name":
    assert [PositionBias(2, name=n).name for n in values] == values
    return
  _differ([train({**kept, argument: value}) for value in values])


def test_overflow_error_is_no_mask():
  with pytest.raises(ValueError, match="outside of the bias layer's 3 pos"):
    train({"num_positions": 3, "overflow": "error"})


# Arguments of the bias layer that stay, then values of the argument.
EM_ARGUMENTS = {
    "position_bias": None,  # Tested by hand below.
    "step_size": ({"initial_examination": .9}, [.9, .7]),
    "step_decay": ({"initial_examination": .9}, [0., .5]),
    "averaging": ({"initial_examination": .9}, ["statistics", "parameters"]),
    "warmup": ({}, [0, 20]),
}


@pytest.mark.parametrize("argument", EM_ARGUMENTS)
def test_each_argument_of_the_callback_changes_the_outcome(argument):
  # That one needs a checkpoint that was restored: test_saving.py has it.
  assert EM_ARGUMENTS.keys() | {"partial_restore"} == _parameters(
      PropensityEM.__init__)
  if argument == "position_bias":
    # Of two losses it chooses the one that is updated.
    biases = [PositionBias(2, initial_examination=.5) for _ in range(2)]
    inputs = tf.keras.Input([2])
    model = tf.keras.Model(inputs, [inputs, inputs])
    losses = [UnbiasedPairwiseLoss(bias) for bias in biases]
    model.compile("sgd", losses)
    callback = PropensityEM(biases[1])
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_train_batch_begin(0)
    for loss in losses:
      loss([[1., 0.]], [[1., 0.]])
    callback.on_train_batch_end(0)
    assert [float(bias.num_updates) for bias in biases] == [0., 1.]
    return
  kept, values = EM_ARGUMENTS[argument]
  common = {"step_size": .9} if argument == "step_decay" else {}
  if argument == "step_size":
    common = {"averaging": "parameters"}
  _differ([train(kept, {**common, argument: v}) for v in values])


@pytest.mark.parametrize("make", [
    lambda: PositionBias(3, exmination=[1., .5, .2]),
    lambda: UnbiasedPairwiseLoss(PositionBias(3), exmination=1),
    lambda: UnbiasedPairwiseLoss.paper(PositionBias(3), exmination=1),
    lambda: PropensityEM(exmination=1)])
def test_unknown_arguments_are_errors(make):
  with pytest.raises(TypeError, match="unexpected keyword.*'exmination'"):
    make()


@pytest.mark.parametrize("arguments, message", [
    ({"position_bias": "bias"}, "`position_bias` must be a .* 'bias'; create"),
    ({"feedback": "clicks"}, "`feedback` must be one of .*'clicks'"),
    ({"preference": "x"}, "`preference` must be one of .*'x'"),
    ({"targets": "x"}, "`targets` must be one of .*'x'"),
    ({"examination_posterior": "x"}, "`examination_posterior` must be one of"),
    ({"pair_loss": "x"}, r"`pair_loss` must be one of \('logistic', 'hinge'\)"),
    ({"temperature": 0.}, "`temperature` must be greater than 0.0, but is 0.0"),
    ({"max_weight": -1.}, "`max_weight` must be greater than 0.0, but is -1.0"),
    ({"tie_threshold": -1.}, "`tie_threshold` must be at least 0, but is -1.0"),
    ({"min_gap": -1.}, "`min_gap` must be at least 0, but is -1.0"),
    ({"head_weight": -1.}, "`head_weight` must be at least 0, but is -1.0"),
    ({"position_bias": PositionBias(2, trust_bias="position"),
      "examination_posterior": "prior"},
     "must be 'item' with `trust_bias='position'`.* but is 'prior'"),
])
def test_bad_arguments(arguments, message):
  arguments = {"position_bias": PositionBias(2), **arguments}
  with pytest.raises(ValueError, match=message):
    UnbiasedPairwiseLoss(arguments.pop("position_bias"), **arguments)


@pytest.mark.parametrize("y_true, y_pred, message", [
    (np.zeros([2, 3]), np.zeros([2, 3, 4]), r"`y_pred` .*\(2, 3, 4\); stack"),
    (np.zeros([2, 3]), np.zeros([2]), r"`y_pred` .*shape \(2,\)"),
    (np.zeros([2]), np.zeros([2, 3]), r"`y_true` .*\(2,\); build it with"),
    (np.zeros([2, 3, 4]), np.zeros([2, 3]), r"`y_true` .*\(2, 3, 4\)"),
])
def test_bad_shapes(y_true, y_pred, message):
  loss = make_loss("ipw")
  with pytest.raises(ValueError, match=message):
    loss(tf.constant(y_true), tf.constant(y_pred))


@pytest.mark.parametrize("shape", [[2, 4], [2, 1], [1, 3], [2, 4, 2]])
def test_feedback_and_scores_of_different_sizes(shape):
  # Broadcasting would make a loss of it, a wrong one.
  with pytest.raises(ValueError, match="`y_pred`.*`y_true`|`y_true`.*`y_pred`"):
    make_loss("ipw")(tf.zeros([2, 3]), tf.zeros(shape))


def test_a_tower_needs_three_heads():
  with pytest.raises(ValueError, match="needs a model with three heads.* 2; "):
    make_loss("ipw_tower")(tf.zeros([1, 3]), tf.zeros([1, 3, 2]))
