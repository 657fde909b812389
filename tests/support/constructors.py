"""What constructors of the classes in the catalogue refuse, and how."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow_ranking as tfr

from catalogue import STATISTICS
from ultra_tfr.baselines.dual_learning import DualLearningLoss
from ultra_tfr.baselines.dual_learning import PropensityLogits
from ultra_tfr.baselines.pairwise_debiasing import ClickRatios
from ultra_tfr.baselines.pairwise_debiasing import PairwiseDebiasingLoss
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.baselines.shallow_tower import ShallowTower
from ultra_tfr.baselines.shallow_tower import ShallowTowerLoss
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.layers import PositionBias
from ultra_tfr.logged_order import LoggedOrderGuard
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import ClickLogLikelihood
from ultra_tfr.metrics import CounterfactualMetric
from ultra_tfr.metrics import OnRanking
from ultra_tfr.scorers import NumericFeatures
from ultra_tfr.scorers import SignedLog
from ultra_tfr.scorers import TextFeatures


class Constraint(NamedTuple):
  """Values that a constructor refuses for an argument.

  Attributes:
    argument: its name.
    expected: how the error says what is expected.
    wrong: values.
    needs: other arguments that must be there for it to count.
    remedy: how the error ends.
  """

  argument: str
  expected: str
  wrong: tuple[Any, ...]
  needs: Mapping[str, Any] = {}
  remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Constructor:
  """The arguments of a class.

  Attributes:
    valid: a function that gives arguments with which it works.
    constraints: of its arguments.
    free: arguments of which any value will do, and those that Keras checks.
  """

  valid: Callable[[], Mapping[str, Any]]
  constraints: tuple[Constraint, ...]
  free: frozenset[str]


_NAN, _INF = float("nan"), float("inf")
_LOSS_FREE = frozenset({"name", "reduction"})  # Keras checks the latter.


def _one_of(argument, *choices, wrong=("else", 3), **keywords):
  return Constraint(argument, f"one of {choices}", wrong, **keywords)


def _whole(argument, least=1):
  return Constraint(argument, f"a whole number of at least {least}",
                    (least - 1, -7, 2.5, True, _NAN, _INF, "2"))


def _share(argument):
  return Constraint(argument, "in (0, 1]", (0., -.5, 2., _NAN, None, "1"))


def _probability(argument, wrong=(-.5, 1.5, _NAN), **keywords):
  return Constraint(argument, "in [0, 1]", wrong, **keywords)


def _not_negative(argument, wrong=(-1., _NAN, _INF, "2", True), **keywords):
  return Constraint(argument, "at least 0", wrong, **keywords)


def _cap(expected="greater than 0", wrong=(0., -1., _NAN, "2", True)):
  return Constraint("max_weight", expected, wrong)


def _instance(argument, expected, *wrong, **keywords):
  return Constraint(argument, expected, ("bias", None, *wrong), **keywords)


def _flag(argument):
  return Constraint(argument, "True or False", ("False", 1, None))


_SEED = Constraint("seed", "a whole number or None", (1.5, "2", True, _NAN))


def _layer_of_loss(layer_class, *wrong):
  return _instance("position_bias", f"a `{layer_class.__name__}`", *wrong,
                   remedy="; create one and pass it to the loss.")


_TABLES = (_whole("num_positions"), _whole("num_contexts"),
           _one_of("overflow", "mask", "pool", "error"))
_BIAS = _layer_of_loss(PositionBias, PropensityLogits(2))
_METRIC_BIAS = _instance(
    "position_bias", "a `ultra_tfr.layers.PositionBias`", PropensityLogits(2),
    remedy="; pass the one of the loss.")
_PAIR_TRUST = {"trust_bias": "pairwise"}
_TRUST = {"trust_bias": "position"}

CONSTRUCTORS = {
    PositionBias: Constructor(lambda: {"num_positions": 3}, (
        *_TABLES,
        _one_of("trust_bias", "auto", None, "position", "pairwise"),
        _one_of("examination_model", None, "position", "browsing"),
        _probability("examination"), _probability("examination", ("1", True)),
        _probability("trust_positive", (1.5, _NAN),
                     needs={**_PAIR_TRUST, "trust_negative": 0.}),
        _probability("trust_negative", (-.5, _NAN),
                     needs={**_PAIR_TRUST, "trust_positive": 1.}),
        _probability("initial_examination"),
        Constraint("initial_examination",
                   "'click_rate', a number or values by position", ("rate",)),
        _share("initial_scale"), _share("min_examination"),
        Constraint("initial_click_irrelevant", "in [0, 1)",
                   (1., -.5, _NAN, "0"), _TRUST),
        _not_negative("smoothing"), _not_negative("smoothing", (None,)),
        _not_negative("prior_clicks"),
        _not_negative("logged_order_weight"),
    ), frozenset({"name"})),
    PropensityLogits: Constructor(
        lambda: {"num_positions": 3}, _TABLES, frozenset({"name"})),
    ClickRatios: Constructor(lambda: {"num_positions": 3}, (
        *_TABLES, _not_negative("regularization"), _share("min_ratio"),
    ), frozenset({"name"})),
    ShallowTower: Constructor(lambda: {"num_positions": 3, "modes": [None]}, (
        *_TABLES, _one_of("modes", None, "additive", "product",
                          wrong=(["else"], ["additive", 3])),
        Constraint("modes", "one of", ((),)),
    ), frozenset({"name"})),
    UnbiasedPairwiseLoss: Constructor(
        lambda: {"position_bias": PositionBias(3, trust_bias=None)}, (
            _BIAS, Constraint(
                "lambda_weight", "a TF-Ranking lambda weight or None",
                ("ndcg", 1., tfr.keras.losses.NDCGLambdaWeight)),
            _one_of("feedback", "binary", "graded"),
            _one_of("preference", "relevance", "tower"),
            _one_of("targets", "expected", "sample"),
            _one_of("examination_posterior", "item", "prior", "position"),
            Constraint("examination_posterior", "'item' with `trust_bias=",
                       ("prior", "position"),
                       {"position_bias": PositionBias(2, **_TRUST)}),
            _one_of("pair_loss", "logistic", "hinge"), _cap(),
            Constraint("temperature", "greater than 0.0",
                       (0., -1., _NAN, "2", None)),
            _flag("normalize_trust"), _flag("normalize_weights"), _SEED,
            _not_negative("tie_threshold"), _not_negative("min_gap"),
            _not_negative("head_weight"), _not_negative("annealing"),
        ), _LOSS_FREE),
    UnbiasedLoss: Constructor(
        lambda: {"position_bias": PositionBias(3, trust_bias=None),
                 "loss": tfr.keras.losses.SoftmaxLoss()},
        (_BIAS, _instance("loss", "a `Loss`"), _cap(),
         _not_negative("head_weight"), _not_negative("annealing")),
        frozenset({"name"})),
    InversePropensityLoss: Constructor(
        lambda: {"position_bias": PositionBias(3, examination=.5),
                 "loss": tfr.keras.losses.SoftmaxLoss()},
        (_BIAS, _instance("loss", "a `Loss`")), frozenset({"name"})),
    DualLearningLoss: Constructor(
        lambda: {"position_bias": PropensityLogits(3)},
        (_layer_of_loss(PropensityLogits, PositionBias(2, trust_bias=None)),
         _cap("at least 1", (0., .5, -1., _NAN, "2"))), _LOSS_FREE),
    PairwiseDebiasingLoss: Constructor(
        lambda: {"position_bias": ClickRatios(3)},
        (_layer_of_loss(ClickRatios, PositionBias(2, trust_bias=None)),
         _cap()), _LOSS_FREE),
    ShallowTowerLoss: Constructor(
        lambda: {"position_bias": ShallowTower(3, [None])},
        (_layer_of_loss(ShallowTower, PositionBias(2, trust_bias=None)),
         _one_of("predicts", "click", "value", "click+value")), _LOSS_FREE),
    RegressionEMLoss: Constructor(
        lambda: {"position_bias": PositionBias(3, trust_bias=None)},
        (_BIAS, _one_of("targets", "expected", "sample"), _SEED),
        _LOSS_FREE),
    AffineCorrectionLoss: Constructor(
        lambda: {"position_bias": PositionBias(3, examination=.5)},
        (_BIAS, _cap()), _LOSS_FREE),
    OnRanking: Constructor(
        lambda: {"metric": tfr.keras.metrics.MRRMetric()},
        (_instance("metric", "a Keras metric", tfr.keras.metrics.MRRMetric),),
        frozenset({"name"})),
    CounterfactualMetric: Constructor(
        lambda: {"position_bias": PositionBias(3, trust_bias=None)}, (
            _METRIC_BIAS, _one_of("metric", "dcg", "ndcg", "arp", "mrr",
                                  "precision", "recall", "hits", "map"),
            _whole("topn"), _cap(), _flag("self_normalized")),
        frozenset({"name"})),
    ClickLogLikelihood: Constructor(
        lambda: {"position_bias": PositionBias(3,
            trust_bias=None)}, (_METRIC_BIAS,),
        frozenset({"name"})),
    PropensityEM: Constructor(dict, (
        Constraint("position_bias", "a `LearningLayer`", ("bias",)),
        _share("step_size"), _not_negative("step_decay"),
        _one_of("averaging", "statistics", "parameters"),
        _not_negative("warmup"), _whole("update_every"),
        _flag("partial_restore")), frozenset()),
    # It looks at its data when it needs them.
    LoggedOrderGuard: Constructor(
        lambda: {"validation_data": None}, (), frozenset({"validation_data"})),
    SignedLog: Constructor(dict, (), frozenset()),
    # Statistics of a log are right, or the log could not be read.
    NumericFeatures: Constructor(lambda: {"features": STATISTICS}, (),
                                 frozenset({"features", "name"})),
    TextFeatures: Constructor(lambda: {"features": []}, (_whole("max_units"),),
                              frozenset({"features", "name"})),
}
