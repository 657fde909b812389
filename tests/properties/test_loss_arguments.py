"""Tests of the arguments of the loss, of its bias layer and of its callback."""

import inspect
import itertools

import numpy as np
import pytest
import tensorflow as tf

from catalogue import DCG
from catalogue import EXAMINATION
from catalogue import NDCG
from catalogue import NUM_POSITIONS
from catalogue import PAIRWISE
from catalogue import tensors
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
    "annealing": ("ipw", [0, 2, 10]),
    "normalize_weights": ("ipw", [False, True]),
    "seed": ("ipw_sample", [1, 2]),
    "reduction": ("ipw", [tf.keras.losses.Reduction.AUTO,
                          tf.keras.losses.Reduction.SUM,
                          tf.keras.losses.Reduction.NONE]),
    "name": ("ipw", ["a", "b"]),
}


def _value(entry, loss):
  return entry.run(entry, entry.make_batch(), loss).totals["value"]


def _parameters(function):
  return set(inspect.signature(function).parameters) - {"self", "cls"}


def _differ(outcomes):
  for a, b in itertools.combinations(outcomes, 2):
    assert a.shape != b.shape or np.abs(a - b).max() > 1e-6


@pytest.mark.parametrize("argument", LOSS_ARGUMENTS)
def test_each_argument_of_the_loss_changes_the_outcome(argument):
  assert LOSS_ARGUMENTS.keys() == _parameters(UnbiasedPairwiseLoss.__init__)
  if argument == "position_bias":
    _differ([_value(PAIRWISE["ipw"], PAIRWISE[name].make()) for name in (
        "ipw", "position_trust", "pairwise_trust_one_head")])
    return
  name, values = LOSS_ARGUMENTS[argument]
  outcomes = []
  for value in values:
    loss = PAIRWISE[name].make(**{argument: value})
    if argument == "name":
      assert loss.name == loss.get_config()["name"] == value
      return
    if argument == "annealing":  # It is of batches of EM.
      loss.position_bias.num_updates.assign(1.)
    tf.keras.utils.set_random_seed(0)
    outcomes.append(_value(PAIRWISE[name], loss))
  _differ(outcomes)


def test_seed_repeats_the_draws():
  entry, values = PAIRWISE["ipw_sample"], []
  for seed in (1, 1, 2):
    tf.keras.utils.set_random_seed(0)
    values.append(_value(entry, entry.make(seed=seed)))
  assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("argument, values", [
    ("lambda_weight", [None, NDCG()]), ("max_weight", [None, .5]),
    ("seed", [1, 2]), ("reduction", ["auto", "sum"]), ("name", ["a", "b"]),
    ("position_bias", [
        PositionBias(NUM_POSITIONS, examination=EXAMINATION),
        PositionBias(NUM_POSITIONS, trust_bias="pairwise")])])
def test_each_argument_of_the_paper_preset_changes_the_outcome(
    argument, values):
  arguments = {"lambda_weight", "max_weight", "seed", "reduction", "name",
               "position_bias"}
  assert arguments == _parameters(UnbiasedPairwiseLoss.paper)
  entry, outcomes = PAIRWISE["paper"], []
  for value in values:
    tf.keras.utils.set_random_seed(0)
    loss = entry.make(**{argument: value})
    if argument == "name":
      assert loss.name == value
      return
    outcomes.append(_value(entry, loss))
  _differ(outcomes)


# What stays, then values of the argument.
_POSITION = {"trust_bias": "position", "examination": EXAMINATION}
BIAS_ARGUMENTS = {
    "num_positions": ({}, [NUM_POSITIONS, 3]),
    "num_contexts": ({}, [1, 2]),
    "trust_bias": ({}, ["auto", None, "position", "pairwise"]),
    "examination_model": ({}, ["position", "browsing"]),
    "examination": ({}, [None, EXAMINATION, EXAMINATION[::-1]]),
    "trust_positive": ({"trust_bias": "pairwise", "trust_negative": .1},
                       [.5, .9]),
    "trust_negative": ({**_POSITION, "trust_positive": .9}, [.1, .3]),
    "initial_examination": ({}, ["click_rate", .9, EXAMINATION]),
    "initial_scale": ({}, [.9, .5]),
    "initial_click_irrelevant": ({"trust_bias": "position"}, [.02, .3]),
    "smoothing": ({}, [20., 1.]),
    "prior_clicks": ({"trust_bias": "position",
                      "initial_examination": EXAMINATION}, [0., 20.]),
    "min_examination": ({}, [1e-3, .9]),
    "overflow": ({"num_positions": 3}, ["mask", "pool"]),
    "logged_order_weight": ({}, [None, .5, 2.]),
    "name": ({}, ["a", "b"]),
}


def train(bias_arguments, em_arguments=None, steps=3):
  """Loss and propensities after a few batches, without a model in the way."""
  em_arguments = em_arguments or {}
  bias = PositionBias(**{
      "num_positions": NUM_POSITIONS, "trust_bias": None, **bias_arguments})
  loss = UnbiasedPairwiseLoss(bias)
  model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  model.compile("sgd", loss)
  callback = PropensityEM(**em_arguments)
  callback.set_model(model)
  callback.on_train_begin()
  callback.on_epoch_begin(0)
  values = []
  for step in range(steps):
    batch = PAIRWISE[
        "contexts" if bias.num_contexts > 1 else "ipw"].make_batch()
    batch["feedback"] = np.roll(batch["feedback"], step, axis=0)
    callback.on_train_batch_begin(step)
    values.append(loss(*tensors(batch)).numpy())
    callback.on_train_batch_end(step)
  callback.on_epoch_end(0)
  callback.on_train_end()
  return np.concatenate([values, bias.tables()["examination"].ravel()])


@pytest.mark.parametrize("argument", BIAS_ARGUMENTS)
@pytest.mark.usefixtures("eagerly")
def test_each_argument_of_the_bias_layer_changes_the_outcome(argument):
  assert BIAS_ARGUMENTS.keys() == _parameters(PositionBias.__init__)
  kept, values = BIAS_ARGUMENTS[argument]
  if argument == "name":
    assert [PositionBias(2, name=n,
        trust_bias=None).name for n in values] == values
    return
  _differ([train({**kept, argument: value}) for value in values])


@pytest.mark.usefixtures("eagerly")
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
    "update_every": ({"initial_examination": .9}, [1, 2]),
}


@pytest.mark.parametrize("argument", EM_ARGUMENTS)
@pytest.mark.usefixtures("eagerly")
def test_each_argument_of_the_callback_changes_the_outcome(argument):
  # That one needs a checkpoint that was restored: test_saving.py has it.
  assert EM_ARGUMENTS.keys() | {"partial_restore"} == _parameters(
      PropensityEM.__init__)
  if argument == "position_bias":
    # Of two losses it chooses the one that is updated.
    biases = [
        PositionBias(2, initial_examination=.5, trust_bias=None, name=name)
        for name in ("first", "second")]
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


def test_unknown_arguments_of_the_paper_preset_are_errors():
  with pytest.raises(TypeError, match="unexpected keyword.*'exmination'"):
    UnbiasedPairwiseLoss.paper(PositionBias(3, trust_bias=None), exmination=1)


@pytest.mark.parametrize("y_true, y_pred, message", [
    (np.zeros([2, 3]), np.zeros([2, 3, 4]),
     "`y_pred` must have 2 heads .*but has 4 heads; see"),
    (np.zeros([2, 3]), np.zeros([2]), r"`y_pred` .*shape \(2,\)"),
    (np.zeros([2]), np.zeros([2, 3]), r"`y_true` .*\(2,\); build it with"),
    (np.zeros([2, 3, 4]), np.zeros([2, 3]), r"`y_true` .*\(2, 3, 4\)"),
])
def test_bad_shapes(y_true, y_pred, message):
  loss = PAIRWISE["ipw"].make()
  with pytest.raises(ValueError, match=message):
    loss(tf.constant(y_true), tf.constant(y_pred))


@pytest.mark.parametrize("shape", [[2, 4], [2, 1], [1, 3], [2, 4, 2]])
def test_feedback_and_scores_of_different_sizes(shape):
  # Broadcasting would make a loss of it, a wrong one.
  with pytest.raises(ValueError, match="`y_pred`.*`y_true`|`y_true`.*`y_pred`"):
    PAIRWISE["ipw"].make()(tf.zeros([2, 3]), tf.zeros(shape))


def test_a_tower_needs_three_heads():
  with pytest.raises(ValueError, match="needs a model with three heads.* 2; "):
    PAIRWISE["ipw_tower"].make()(tf.zeros([1, 3]), tf.zeros([1, 3, 2]))
