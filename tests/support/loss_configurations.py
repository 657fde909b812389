"""Configurations of the pairwise loss, one table for all, for tests."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

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
    "logged_order": (2, {"trust_bias": "position",
                         "logged_order_weight": .7}, {}),
    "logged_order_ndcg": (1, {"logged_order_weight": 2., "num_contexts": 2},
                          {"lambda_weight": NDCG(), "max_weight": .8}),
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
  if bias.logged_order_weight is not None:
    seen = bias._averages["pointwise"]
    seen.assign(np.sort(rng.uniform(1., 9., seen.shape))[:, ::-1])
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
  contexts = None
  if CONFIGURATIONS[name][1].get("num_contexts", 1) > 1:
    contexts = rng.integers(0, 2, [num_lists, 1])
  heads = CONFIGURATIONS[name][0]
  scores = rng.normal(size=[num_lists, size, heads])
  weights = rng.uniform(.5, 2., [num_lists, size])
  return {"feedback": feedback, "positions": positions.astype(np.float32),
          "contexts": contexts, "scores": scores.astype(np.float32),
          "weights": weights.astype(np.float32)}


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
