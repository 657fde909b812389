"""Tests of the arguments of the loss, of its bias layer and of its callback."""

import inspect
import itertools

import numpy as np
import pytest
import tensorflow as tf

from loss_configurations import DCG
from loss_configurations import EXAMINATION
from loss_configurations import NDCG
from loss_configurations import NUM_POSITIONS
from loss_configurations import evaluate
from loss_configurations import make_batch
from loss_configurations import make_loss
from loss_configurations import tensors
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

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
    "logged_order_weight": ({}, [None, .5, 2.]),
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
    ({"max_weight": -1.}, "`max_weight` must be greater than 0, but is -1.0"),
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
