"""docs/tf_ranking_losses.md says of each part of TF-Ranking what happens.

The lines are made here, by trying each part: it works, or it is refused with a
reason. A line that is missing or wrong is printed, to be put into the file.
"""

import functools
import inspect
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import losses_impl

import program_files
from ultra_tfr import ranking_losses
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import CounterfactualMetric
from ultra_tfr.metrics import on_ranking

_LOSSES, _LAMBDA_WEIGHTS, _METRICS = (
    re.split(r"^## .*$", (
        program_files.ROOT / "docs" / "tf_ranking_losses.md").read_text(
            encoding="utf-8"), flags=re.M))


def _classes(module, base):
  return {name: value for name, value in vars(module).items()
          if isinstance(value, type) and name[0] != "_" and
          issubclass(value, base)}


_CLASSES = _classes(tfr.keras.losses, tf.keras.losses.Loss)
_NEW = {"CalibratedSoftmaxLoss"}  # Not in all versions of TF-Ranking.


def _bias():
  return PositionBias(3, examination=[1.0, 0.5, 0.2])


def _refusal(create):
  """The reason; if there is none, what was created, and None."""
  try:
    return create(), None
  except ValueError as error:
    # What comes before says that it cannot be, what comes after is a remedy.
    found = re.search(r" (?:cannot|must) be .*?: (.*)\.$", str(error))
    return None, found.group(1)


def _try(loss):
  """The value, after a look at the gradient."""
  scores = tf.Variable([[0.3, 0.1, -0.2]])
  with tf.GradientTape() as tape:
    value = loss([[0.0, 1.0, 0.0]], scores)
  gradient = tape.gradient(value, scores).numpy()
  assert np.isfinite(value)
  assert np.isfinite(gradient).all() and gradient.any()
  return float(value)


def _loss_line(name):
  loss = _CLASSES[name]()
  reasons = []
  for wrapper in (UnbiasedLoss, InversePropensityLoss):
    wrapped, reason = _refusal(lambda w=wrapper: w(_bias(), loss))
    reasons.append(reason)
    if wrapped:
      _try(wrapped)
  assert reasons[0] == reasons[1]
  if reasons[0]:
    return f"| `{name}` | refused: {reasons[0]} | | |"
  treatment = ranking_losses.DebiasedLoss(loss).treatment
  return (f"| `{name}` | {treatment.enters} | {treatment.learned} | "
          f"{treatment.known} |")


@pytest.mark.parametrize("name", _CLASSES)
def test_the_table_tells_what_happens(name):
  line = _loss_line(name)
  assert line in _LOSSES.splitlines(), line


def _listed(text):
  return set(re.findall(r"^\| `(\w+)` ", text, re.M))


def test_the_table_has_no_other_losses():
  assert _listed(_LOSSES) - _NEW == _CLASSES.keys() - _NEW


def _takers():
  """Losses that take weights and lambda weights: name -> how to make one."""
  found = {"UnbiasedPairwiseLoss": lambda lambda_weight: UnbiasedPairwiseLoss(
      _bias(), lambda_weight=lambda_weight)}
  for cls, treatment in ranking_losses.TREATMENTS.items():
    parameters = inspect.signature(cls.__init__).parameters
    if treatment.enters == "weights" and "lambda_weight" in parameters:
      # What it does to a lambda weight, `UnbiasedLoss` does, too.
      found[cls.__name__] = lambda lambda_weight, cls=cls: (
          InversePropensityLoss(_bias(), cls(lambda_weight=lambda_weight)))
  return found


_TAKERS = _takers()


@functools.cache
def _plain(name):
  """The value without a lambda weight."""
  return _try(_TAKERS[name](None))


_WEIGHTS = _classes(tfr.keras.losses, losses_impl._LambdaWeight)
_ARGUMENTS = {  # Without these nothing changes in so small a list.
    "PrecisionLambdaWeight": {"topn": 1},
    "ListMLELambdaWeight": {"rank_discount_fn": tfr.keras.utils.inverse},
}


def _outcome(cls, name):
  """What happens to a lambda weight in a loss."""
  lambda_weight = cls(**_ARGUMENTS.get(cls.__name__, {}))
  loss, reason = _refusal(lambda: _TAKERS[name](lambda_weight))
  if reason:
    return f"refused: {reason}"
  # Not left out in silence. (The difference of two labels, 0 and 1, is 1, and
  # the loss of Yeti's name has a lambda weight of its own for None.)
  value = _try(loss)
  if cls is not tfr.keras.losses.LabelDiffLambdaWeight and "Yeti" not in name:
    assert value != pytest.approx(_plain(name), rel=1e-4)
  return "works"


@pytest.mark.parametrize("name", _WEIGHTS)
def test_the_table_tells_what_happens_to_lambda_weights(name):
  outcomes = {taker: _outcome(_WEIGHTS[name], taker) for taker in _TAKERS}
  softmax = {outcome for taker, outcome in outcomes.items()
             if "Softmax" in taker}
  pairs = {outcome for taker, outcome in outcomes.items()
           if "Softmax" not in taker}
  assert len(softmax) == len(pairs) == 1, outcomes
  line = f"| `{name}` | {pairs.pop()} | {softmax.pop()} |"
  assert line in _LAMBDA_WEIGHTS.splitlines(), line


def test_the_table_has_no_other_lambda_weights():
  assert _listed(_LAMBDA_WEIGHTS) == _WEIGHTS.keys()


_METRIC_CLASSES = _classes(tfr.keras.metrics, tf.keras.metrics.Metric)
_COUNTERFACTUAL = {  # TF-Ranking's names for them.
    "MRRMetric": "mrr", "HitsMetric": "hits", "ARPMetric": "arp",
    "PrecisionMetric": "precision", "RecallMetric": "recall",
    "PrecisionIAMetric": "precision_ia", "MeanAveragePrecisionMetric": "map",
    "NDCGMetric": "ndcg", "DCGMetric": "dcg", "AlphaDCGMetric": "alpha_dcg",
    "OPAMetric": "ordered_pair_accuracy",
}


def _metric_outcome(create, word):
  metric, reason = _refusal(create)
  if reason:
    return f"refused: {reason}"
  values = []
  for scores in ([[0.3, 0.2, -0.2]], [[0.1, 0.2, -0.2]]):
    metric.reset_state()
    metric.update_state([[0.0, 1.0, 0.0]], scores)
    values.append(float(metric.result()))
  assert np.isfinite(values).all()
  assert values[0] != values[1]
  return word


@pytest.mark.parametrize("name", _METRIC_CLASSES)
def test_the_table_tells_what_happens_to_metrics(name):
  cls = _METRIC_CLASSES[name]
  # All of three items are relevant or not wherever they are.
  arguments = {} if name in ("ARPMetric", "OPAMetric") else {"topn": 1}
  key = _COUNTERFACTUAL[name]
  ranking = _metric_outcome(lambda: on_ranking(cls(**arguments)), "works")
  counterfactual = _metric_outcome(
      lambda: CounterfactualMetric(_bias(), key, topn=1), f"`\"{key}\"`")
  line = f"| `{name}` | {ranking} | {counterfactual} |"
  assert line in _METRICS.splitlines(), line


def test_the_table_has_no_other_metrics():
  assert _listed(_METRICS) == _METRIC_CLASSES.keys()
