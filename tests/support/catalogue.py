"""All public losses, layers, metrics and callbacks, for tests of them all.

An `Entry` is one object in one configuration: data that say how it is made, of
what batches, and which properties it cannot have. `run` gives its outcome on a
batch in one form, whatever the kind of object, so that a property is one test
over the whole catalogue.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.logged_order import LoggedOrderGuard
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import ClickLogLikelihood
from ultra_tfr.metrics import CounterfactualMetric
from ultra_tfr.metrics import on_ranking
from ultra_tfr.scorers import NumericFeatures
from ultra_tfr.scorers import SignedLog
from ultra_tfr.scorers import TextFeatures

NUM_POSITIONS = 6
EXAMINATION = [.9, .7, .55, .4, .3, .2]
NDCG = tfr.keras.losses.NDCGLambdaWeight
DCG = tfr.keras.losses.DCGLambdaWeight
PRECISION = tfr.keras.losses.PrecisionLambdaWeight
SUM = tf.keras.losses.Reduction.SUM

# The tables of the test properties, by which an entry says why it has not one.
PROPERTIES = ("order", "compiled", "extremes", "gradient", "config",
              "float64", "numpy_arguments", "losses_of_items")
# What learned variables are in tests: values that differ everywhere.
_RANGES = {
    "examination_unclicked": (.1, .6), "trust_positive": (.6, .95),
    "trust_negative": (.01, .2), "propensity_logits": (-1., 1.),
    "clicked_ratio": (.3, 1.2), "unclicked_ratio": (.3, 1.2),
    "effects_0": (-1., 1.), "effects_1": (-1., 1.), "embeddings": (-1., 1.)}


class Outcome(NamedTuple):
  """What an object makes of a batch.

  Attributes:
    totals: arrays by name that have no axis of items.
    items: `[B, L, n]` arrays by name, zeros in padding.
  """

  totals: dict[str, np.ndarray]
  items: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """A public object in one configuration.

  Attributes:
    name: of the entry.
    factory: the class, or another public function that makes the object.
    arguments: those of the factory, but for `position_bias`.
    layer: what makes the `position_bias`, and its arguments; None without one.
    run: a function of the entry, a batch, the object (by default a new one)
      and, of what can be compiled, how to (None, "graph" or "jit"); gives an
      `Outcome`.
    heads: how many `y_pred` has, or how many features a layer takes.
    feedback: "clicks", "grades" from 0 to 4, or "seconds".
    lacks: why it has not some of `PROPERTIES`, by their names.
    learns_from: for a layer or a callback: the entry of the loss.
  """

  name: str
  factory: Callable[..., Any]
  arguments: Mapping[str, Any]
  run: Callable[..., Outcome]
  layer: Optional[tuple[type, Mapping[str, Any]]] = None
  heads: int = 1
  feedback: str = "clicks"
  lacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
  learns_from: Optional["Entry"] = None

  def __post_init__(self):
    assert set(self.lacks) <= set(PROPERTIES), self.name

  def make_layer(self, **changes):
    """The bias layer, with tables of values that differ everywhere."""
    layer_class, arguments = self.layer
    return vary(layer_class(
        **{"num_positions": NUM_POSITIONS, **arguments, **changes}))

  def make(self, **changes):
    """The object, with some arguments changed."""
    arguments = {**self.arguments, **changes}
    if self.layer is not None and "position_bias" not in arguments:
      arguments["position_bias"] = self.make_layer()
    return self.factory(**arguments)

  def make_batch(self, num_lists=4, size=5):
    """Feedback, positions, contexts, scores and weights; lists of many sizes.

    Args:
      num_lists: B.
      size: L.

    Returns:
      A dict of float32 arrays `[B, L]`; scores are `[B, L, heads]`, and
      contexts None where the layer has but one.
    """
    rng = np.random.default_rng(2)
    feedback = (rng.random([num_lists, size]) < .5).astype(np.float32)
    feedback[0] = [1, 0, 1, 0, 0]
    if self.feedback == "seconds":
      feedback *= rng.uniform(.5, 40., feedback.shape)
    elif self.feedback == "grades":
      feedback *= rng.integers(1, 5, feedback.shape)
    feedback[1, 3:] = -1.
    feedback[2, :] = -1.
    positions = np.stack([
        rng.permutation(NUM_POSITIONS)[:size] + 1 for _ in range(num_lists)])
    contexts = None
    layer = self.layer or (self.learns_from and self.learns_from.layer)
    if layer and layer[1].get("num_contexts", 1) > 1:
      contexts = np.repeat(rng.integers(0, 2, [num_lists, 1]), size, axis=1)
      contexts = contexts.astype(np.float32)
    scores = rng.normal(size=[num_lists, size, self.heads])
    weights = rng.uniform(.5, 2., [num_lists, size])
    return {"feedback": feedback.astype(np.float32),
            "positions": positions.astype(np.float32), "contexts": contexts,
            "scores": rng.choice(["", "a", "b", "c"], scores.shape)
                      if self.feedback == "texts" else
                      scores.astype(np.float32),
            "weights": weights.astype(np.float32)}


@functools.cache
def outcome_of(entry):
  """The outcome of a new object on the entry's batch."""
  return entry.run(entry, entry.make_batch())


def vary(layer):
  """The layer, with learned tables of values that differ everywhere."""
  rng = np.random.default_rng(1)
  for variable in layer.weights:
    name = variable.name.split(":")[0].split("/")[-1]
    is_given = name.startswith("trust") and layer.trust_is_fixed
    if name in _RANGES and not is_given:
      variable.assign(rng.uniform(*_RANGES[name], variable.shape))
    if name == "average_pointwise" and layer.logged_order_weight is not None:
      seen = np.sort(rng.uniform(1., 9., variable.shape))
      variable.assign(seen[:, ::-1])
  return layer


# From a batch to an outcome.


def tensors(batch):
  """`y_true`, `y_pred` and weights, in the dtype of the scores."""
  scores = tf.constant(batch["scores"])
  y_true = tf.cast(pack_feedback(
      batch["feedback"], batch["positions"], batch["contexts"]), scores.dtype)
  if scores.shape[2] == 1:
    scores = scores[..., 0]
  return y_true, scores, tf.cast(batch["weights"], scores.dtype)


def value_and_gradient(loss, y_true, y_pred, weights):
  """The loss and its gradient by `y_pred`."""
  with tf.GradientTape() as tape:
    tape.watch(y_pred)
    value = loss(y_true, y_pred, weights)
  return value, tape.gradient(value, y_pred)


def _compiled(function, how):
  if how is None:
    return function
  return tf.function(function, jit_compile=how == "jit")


def run_loss(entry, batch, loss=None, compiled=None):
  """Value, gradient, and the sums that the layer learns from."""
  loss = loss or entry.make()
  layer = loss.position_bias
  layer.start_collecting()
  layer.take_sums()
  value, gradient = _compiled(
      lambda *xs: value_and_gradient(loss, *xs), compiled)(*tensors(batch))
  gradient = np.reshape(gradient, batch["scores"].shape)
  sums = {key: value.numpy() for key, value in layer.take_sums().items()}
  return Outcome({"value": value.numpy(), **sums}, {"gradient": gradient})


def _moves(layer, work):
  """By how much the layer's variables move, which then are as before."""
  before = layer.get_weights()
  work()
  after = layer.get_weights()
  layer.set_weights(before)
  return {variable.name: new - old for variable, new, old in zip(
      layer.weights, after, before)}


def run_learning_layer(entry, batch, layer=None):
  """What one update by the loss's sums moves."""
  layer = layer or entry.make()
  loss = entry.learns_from.make(position_bias=layer)

  def work():
    layer.start_collecting()
    loss(*tensors(batch))
    layer.update(warmup=0)
    layer.stop_collecting()

  return Outcome(_moves(layer, work), {})


def run_feature_layer(entry, batch, layer=None, compiled=None):
  """The layer's outputs, without those of padding."""
  layer = layer or entry.make()
  if not layer.built:
    layer(batch["scores"])
    vary(layer)
  outputs = _compiled(layer, compiled)(tf.constant(batch["scores"])).numpy()
  valid = batch["feedback"][..., np.newaxis] >= 0
  return Outcome({}, {"outputs": np.where(valid, outputs, 0.)})


def run_metric(entry, batch, metric=None, compiled=None):
  """The result after one batch."""
  metric = metric or entry.make()
  metric.reset_state()

  def update(*arguments):
    metric.update_state(*arguments)

  _compiled(update, compiled)(*tensors(batch))
  return Outcome({"result": metric.result().numpy()}, {})


def run_propensity_em(entry, batch, callback=None, steps=3):
  """What a few batches move, and the logs, without a model in the way."""
  callback = callback or entry.make()
  loss = entry.learns_from.make()
  model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  model.compile("sgd", loss)
  callback.set_model(model)
  logs = {}

  def work():
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for number in range(steps):
      callback.on_train_batch_begin(number)
      loss(*tensors({**batch, "weights": batch["weights"] * (1 + number)}))
      callback.on_train_batch_end(number)
    callback.on_epoch_end(0, logs)
    callback.on_train_end()

  moves = _moves(loss.position_bias, work)
  return Outcome({**moves, **{k: np.array(v) for k, v in logs.items()}}, {})


def run_logged_order_guard(entry, batch, guard=None):
  """The weight and the lead after an epoch; the scores are the features."""
  del guard  # It is made of the batch.
  loss = entry.learns_from.make()
  model = tf.keras.Sequential([
      tf.keras.layers.Reshape([-1], input_shape=(None, 1))])
  model.compile(loss=loss)
  loss.position_bias.num_updates.assign(1)  # As if EM had run.
  y_true, scores, weights = tensors(batch)
  guard = entry.factory((scores[..., tf.newaxis], y_true, weights))
  guard.set_model(model)
  logs = {}
  guard.on_epoch_end(0, logs)
  return Outcome({key: np.array(value) for key, value in logs.items()}, {})


def assert_same(actual, expected, order=None, tolerance=1e-5):
  """Outcomes are the same, but for the order of items; -1 in it is padding."""
  assert actual.totals.keys() == expected.totals.keys()
  assert actual.items.keys() == expected.items.keys()
  # Nothing is shown by comparing zeros.
  assert max(np.abs(values).max() for part in expected
             for values in part.values()) > 1e-3
  for key, values in actual.totals.items():
    np.testing.assert_allclose(values, expected.totals[key], rtol=tolerance,
                               atol=tolerance, err_msg=key)
  for key, values in actual.items.items():
    if order is not None:
      order = np.asarray(order)
      assert not np.any(values[:, order < 0])
      padded, values = values, np.zeros_like(expected.items[key])
      values[:, order[order >= 0]] = padded[:, order >= 0]
    np.testing.assert_allclose(values, expected.items[key], rtol=tolerance,
                               atol=tolerance, err_msg=key)


# The entries. Of the pairwise loss: heads of the model, arguments of the bias
# layer and of the loss.
_PAIRWISE = {
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
    "paper": (3, {"trust_bias": "pairwise"}, {}),
    "paper_opt": (3, {"trust_bias": "pairwise"}, {"lambda_weight": NDCG()}),
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
    "sum": (2, {}, {"reduction": SUM, "head_weight": 3.}),
    "normalized": (1, {}, {"normalize_weights": True}),
    "browsing": (2, {"examination_model": "browsing"}, {}),
    "browsing_trust": (1, {"trust_bias": "position",
                           "examination_model": "browsing"}, {}),
    "hypotheses": (5, {"trust_bias": "auto", "logged_order_weight": .7}, {}),
    "hypotheses_two_heads": (2, {"trust_bias": "auto", "num_contexts": 2},
                             {"lambda_weight": NDCG(), "max_weight": .8}),
    "hypotheses_one_head": (1, {"trust_bias": "auto"}, {}),
    "hypotheses_graded": (3, {"trust_bias": "auto",
                              "examination_model": "position"},
                          {"feedback": "graded"}),
}
# Of the others: the loss, its layer, their arguments, and heads.
_OTHERS = {
    "inverse_propensity": (
        InversePropensityLoss, {"loss": tfr.keras.losses.PairwiseLogisticLoss(
            reduction=SUM)}, PositionBias, {"examination": EXAMINATION}, 1),
    "inverse_propensity_softmax": (
        InversePropensityLoss, {"loss": tfr.keras.losses.SoftmaxLoss(
            reduction=SUM, temperature=2.), "name": "mine"}, PositionBias,
        {"num_positions": 4, "num_contexts": 2, "overflow": "pool",
         "examination": [EXAMINATION[:4], EXAMINATION[1:5]]}, 2),
    "inverse_propensity_approx_ndcg": (
        InversePropensityLoss, {"loss": tfr.keras.losses.ApproxNDCGLoss()},
        PositionBias, {"examination": EXAMINATION}, 1),
    "unbiased_softmax": (
        UnbiasedLoss, {"loss": tfr.keras.losses.SoftmaxLoss(),
                       "max_weight": 1.1}, PositionBias,
        {"trust_bias": "auto"}, 5),
    "unbiased_sigmoid": (
        UnbiasedLoss, {"loss": tfr.keras.losses.SigmoidCrossEntropyLoss(
            reduction=SUM)}, PositionBias, {"num_contexts": 2}, 1),
    "unbiased_approx_ndcg": (
        UnbiasedLoss, {"loss": tfr.keras.losses.ApproxNDCGLoss(),
                       "head_weight": 2., "name": "mine"}, PositionBias,
        {"trust_bias": "position"}, 2),
    "unbiased_pairwise_mse": (
        UnbiasedLoss, {"loss": tfr.keras.losses.PairwiseMSELoss(
            reduction=SUM)}, PositionBias, {"examination": EXAMINATION}, 1),
    "dla": (DualLearningLoss, {"max_weight": 1.5}, PropensityLogits, {}, 1),
    "dla_uncapped": (DualLearningLoss, {"max_weight": None}, PropensityLogits,
                     {"num_positions": 4, "overflow": "pool"}, 1),
    "dla_contexts": (DualLearningLoss, {}, PropensityLogits,
                     {"num_contexts": 2}, 1),
    "ratios": (PairwiseDebiasingLoss, {}, ClickRatios, {}, 1),
    "ratios_capped": (PairwiseDebiasingLoss, {"max_weight": 1.5}, ClickRatios,
                      {"regularization": 1., "num_contexts": 2}, 1),
    "additive_click": (ShallowTowerLoss, {}, ShallowTower,
                       {"modes": ["additive"]}, 1),
    "product_click": (ShallowTowerLoss, {}, ShallowTower,
                      {"modes": ["product"], "num_contexts": 2}, 1),
    "additive_value": (ShallowTowerLoss, {"predicts": "value"}, ShallowTower,
                       {"modes": ["additive"], "num_positions": 4}, 1),
    "v2": (ShallowTowerLoss, {"predicts": "click+value"}, ShallowTower,
           {"modes": ["additive", None]}, 2),
    "v4": (ShallowTowerLoss, {"predicts": "click+value"}, ShallowTower,
           {"modes": ["product", "additive"]}, 2),
    "regression_em": (RegressionEMLoss, {}, PositionBias, {}, 1),
    "regression_em_sample": (RegressionEMLoss, {"targets": "sample"},
                             PositionBias, {}, 1),
    "regression_em_trust": (RegressionEMLoss, {}, PositionBias,
                            {"trust_bias": "position"}, 1),
    "affine": (AffineCorrectionLoss, {}, PositionBias,
               {"trust_bias": "position", "examination": EXAMINATION,
                "trust_positive": .9, "trust_negative": .2}, 1),
    "affine_learned": (AffineCorrectionLoss, {"max_weight": 2.}, PositionBias,
                       {"trust_bias": "position", "num_contexts": 2}, 1),
}


def _layer(layer_class, arguments):
  if layer_class is PositionBias and "examination" not in arguments:
    arguments = {"trust_bias": None, "initial_examination": EXAMINATION,
                 **arguments}
  return layer_class, arguments


PAIRWISE = {
    name: Entry(
        name, UnbiasedPairwiseLoss.paper if name.startswith("paper") else
        UnbiasedPairwiseLoss, arguments, run_loss, _layer(PositionBias, layer),
        heads, "seconds" if name.startswith("graded") else "clicks")
    for name, (heads, layer, arguments) in _PAIRWISE.items()}
_INNER = {"losses_of_items": "Its inner loss reduces as TF-Ranking does."}
LOSSES = {**PAIRWISE, **{
    name: Entry(name, loss, arguments, run_loss, _layer(layer_class, layer),
                heads, "grades", _INNER if loss is UnbiasedLoss else {})
    for name, (loss, arguments, layer_class, layer, heads) in _OTHERS.items()}}


def _learning_layer(name):
  """The layer of a loss, which learns from that loss's batches."""
  loss = LOSSES[name]
  layer_class, arguments = loss.layer
  return Entry(
      f"layer_of_{name}", lambda **changed: vary(layer_class(**changed)),
      {"num_positions": NUM_POSITIONS, **arguments}, run_learning_layer,
      heads=loss.heads, feedback=loss.feedback, learns_from=loss,
      lacks={"gradient": "The test of its loss watches its variables.",
             "compiled": "Its update always is, and its loss has that test."})


_NO_BIAS = {"gradient": "There is no bias layer in it."}
STATISTICS = [{"mean": .1, "variance": 2., "missing": 0.},
               {"mean": -.2, "variance": .5, "missing": .3}]
LAYERS = {entry.name: entry for entry in (
    *map(_learning_layer, (
        "ipw_two_heads", "contexts", "position_trust", "pairwise_trust_item",
        "logged_order_ndcg", "browsing_trust", "hypotheses", "dla_contexts",
        "ratios_capped", "v4")),
    Entry("signed_log", SignedLog, {}, run_feature_layer, heads=2,
          lacks=_NO_BIAS),
    Entry("numeric_features", NumericFeatures, {"features": STATISTICS},
          run_feature_layer, heads=2, lacks=_NO_BIAS),
    Entry("text_features", TextFeatures,
          {"features": [{"vocabulary": ["", "a", "b"]}, {"bins": 5}],
           "max_units": 3}, run_feature_layer, heads=2, feedback="texts",
          lacks={**_NO_BIAS, "extremes": "Its inputs are texts.",
                 "float64": "Its inputs are texts.",
                 "compiled": "XLA has no texts."}),
)}


def _ranking(metric, **arguments):
  """A function that wraps a new metric each time: metrics have a state."""
  return lambda: on_ranking(metric(**arguments), name="mine")


_FREE = {"gradient": "Nobody differentiates a metric."}
_KNOWN = (PositionBias, {"examination": EXAMINATION, "trust_bias": "position",
                         "trust_positive": .9, "trust_negative": .2})
_CONTEXTS = (PositionBias, {"num_positions": 4, "num_contexts": 2,
                            "examination": [EXAMINATION[:4],
                                            EXAMINATION[2:]]})
METRICS = {entry.name: entry for entry in (
    *(Entry(f"on_ranking_{metric.__name__}", _ranking(metric, **arguments), {},
            run_metric, heads=heads, feedback="grades", lacks=_FREE)
      for heads, metric, arguments in (
          (1, tfr.keras.metrics.NDCGMetric, {"topn": 3}),
          (2, tfr.keras.metrics.DCGMetric, {}),
          (3, tfr.keras.metrics.MRRMetric, {}),
          (1, tfr.keras.metrics.MeanAveragePrecisionMetric, {}),
          (2, tfr.keras.metrics.ARPMetric, {}),
          (1, tfr.keras.metrics.PrecisionMetric, {"topn": 2}))),
    *(Entry(f"counterfactual_{metric}", CounterfactualMetric,
            {"metric": metric, **arguments}, run_metric, layer, heads,
            lacks=_FREE)
      for metric, heads, layer, arguments in (
          ("dcg", 1, _KNOWN, {"topn": 3}),
          ("ndcg", 2, _CONTEXTS, {"topn": None}),
          ("arp", 1, _CONTEXTS, {"max_weight": 1.5}),
          ("mrr", 3, _KNOWN, {"self_normalized": True, "name": "mine"}),
          ("precision", 1, _KNOWN, {"topn": 3, "self_normalized": True}),
          ("recall", 2, _CONTEXTS, {"topn": 2}),
          ("hits", 1, _CONTEXTS, {"topn": 2, "max_weight": 1.5}),
          ("map", 1, _KNOWN, {"topn": None}))),
    Entry("click_log_likelihood", ClickLogLikelihood, {"name": "mine"},
          run_metric, _KNOWN, 2, lacks=_FREE),
    Entry("click_log_likelihood_contexts", ClickLogLikelihood, {}, run_metric,
          _CONTEXTS, lacks=_FREE),
)}

_CALLBACK = {"gradient": "The losses have that property.",
             "compiled": "It works between steps.",
             "config": "Keras callbacks have none; the layer is saved."}
CALLBACKS = {entry.name: entry for entry in (
    *(Entry(f"propensity_em_{name}", PropensityEM, arguments,
            run_propensity_em, heads=LOSSES[name].heads,
            feedback=LOSSES[name].feedback, lacks=_CALLBACK,
            learns_from=LOSSES[name])
      for name, arguments in (
          ("ipw", {"step_size": .5, "step_decay": .1, "warmup": 1}),
          ("contexts", {"averaging": "parameters"}),
          ("ratios", {"step_size": .5}))),
    Entry("logged_order_guard", LoggedOrderGuard, {"validation_data": None},
          run_logged_order_guard,
          learns_from=LOSSES["logged_order_ndcg"],
          lacks={**_CALLBACK, "numpy_arguments": "It takes data alone."}),
)}

CATALOGUE = {**LOSSES, **LAYERS, **METRICS, **CALLBACKS}
