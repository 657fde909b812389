"""The bias layer: what is known or learned about display positions."""

from typing import Any
from typing import Literal
from typing import Optional
import warnings

import numpy as np
from numpy.typing import ArrayLike
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import checks
from ultra_tfr.core import em
from ultra_tfr.core import examination as examination_lib
from ultra_tfr.core import trust as trust_lib
from ultra_tfr.feedback import TensorLike

_TRUST_BIAS = (None, "position", "pairwise")
# Where EM starts theta at the most clicked position.
INITIAL_SCALE = 0.9


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class PositionBias(base.LearningLayer):
  """Propensities by display position, learned by EM or given.

  The layer holds the variables; the loss reads them and adds the sums of its E
  step to accumulators; `ultra_tfr.callbacks.PropensityEM` turns those into new
  values after each batch. No gradient ever reaches them.

  Three models of feedback (`trust_bias`):

  *   None: the position-based model. A relevant item gets feedback with the
      probability theta_k that position k is examined.
  *   `"position"`: relevant and irrelevant items get feedback with the
      probabilities p1_k and p0_k (Agarwal et al., 2019). Only these two
      products are identified, not theta.
  *   `"pairwise"`: eps+_ij and eps-_ij of Ren et al. (AAAI 2022): the chances
      that a pair of examined items at i, j shows its true order.

  Args:
    num_positions: K, the positions of the table.
    num_contexts: C, one table for each context id of the packed feedback.
    trust_bias: see above.
    examination: known propensities, `[K]` or `[C, K]` in [0, 1]; then theta is
      not estimated. (theta- still is where EM runs: it depends on the items.)
    trust_positive: known trust in relevant items: e+_k (a number or `[K]`, with
      `trust_bias="position"`) or eps+_ij (a number or `[K, K]`, with
      `"pairwise"`).
    trust_negative: e-_k or eps-_ij likewise; given together with
      `trust_positive`, and with `"position"` also with `examination`.
    initial_examination: where EM starts: `"click_rate"` for the smoothed rate
      of feedback by position in the first batches, a number for a constant, or
      `[K]` or `[C, K]` values.
    initial_scale: theta of the most clicked position at a click-rate start.
      Clicks fix theta times relevance only, so this fixes the scale.
    initial_click_irrelevant: p0 at the start, as a share of p1, with
      `trust_bias="position"`; None for 0.02. Where users trust what stands
      high, EM finds the truth from 0.3.
    smoothing: observations that the mean click rate counts for at the start.
    min_examination: a floor for learned theta, and so a cap for weights.
    overflow: positions beyond K: `"mask"` leaves those items out, `"pool"` lets
      them share the last position, `"error"` makes the callback raise.
    logged_order_weight: how much the logged order counts: in an
      `UnbiasedPairwiseLoss` each pair also gets so many times the weight that
      its positions alone would give it, see `core.weights.logged_order_weights`
      (0 until EM has seen items). None leaves it out. A number is where
      `ultra_tfr.logged_order.LoggedOrderGuard` starts; without that callback it
      stays. It is saved with the layer.
    name: the layer's name.

  Raises:
    ValueError: if an argument is out of range or arguments do not fit.

  >>> bias = PositionBias(3, examination=[0.8, 0.4, 0.2])
  >>> bias.propensities()["examination"]
  array([1.  , 0.5 , 0.25], dtype=float32)
  """

  def __init__(
      self, num_positions: int, *, num_contexts: int = 1,
      trust_bias: Optional[Literal["position", "pairwise"]] = None,
      examination: Optional[ArrayLike] = None,
      trust_positive: Optional[ArrayLike] = None,
      trust_negative: Optional[ArrayLike] = None,
      initial_examination: ArrayLike = "click_rate",
      initial_scale: float = INITIAL_SCALE,
      initial_click_irrelevant: Optional[float] = None, smoothing: float = 20.0,
      min_examination: float = 1e-3,
      overflow: Literal["mask", "pool", "error"] = "mask",
      logged_order_weight: Optional[float] = None, name: str = "position_bias"):
    super().__init__(name, num_positions, num_contexts, overflow)
    self._config = {
        "num_positions": self.num_positions, "num_contexts": self.num_contexts,
        "trust_bias": trust_bias, "examination": _listed(examination),
        "trust_positive": _listed(trust_positive),
        "trust_negative": _listed(trust_negative),
        "initial_examination": _listed(initial_examination),
        "initial_scale": initial_scale,
        "initial_click_irrelevant": initial_click_irrelevant,
        "smoothing": smoothing, "min_examination": min_examination,
        "overflow": overflow, "logged_order_weight": logged_order_weight,
    }
    checks.check_choice("trust_bias", trust_bias, _TRUST_BIAS)
    for argument, share in (("initial_scale", initial_scale),
                            ("min_examination", min_examination)):
      if not 0 < share <= 1:
        raise ValueError(f"`{argument}` must be in (0, 1], but is {share}.")
    for argument, value in (("smoothing", smoothing),
                            ("logged_order_weight", logged_order_weight)):
      if value is not None and not 0 <= value < np.inf:
        raise ValueError(
            f"`{argument}` must be >= 0 and finite, but is {value}.")
    self.trust_bias = trust_bias
    self._check_click_irrelevant(initial_click_irrelevant)
    self._click_irrelevant_share: float = (
        0.02 if initial_click_irrelevant is None else initial_click_irrelevant)
    self.examination_is_fixed = examination is not None
    self.trust_is_fixed = trust_positive is not None
    self._check_trust(trust_positive, trust_negative)
    self.starts_from_clicks = (
        not self.examination_is_fixed and
        isinstance(initial_examination, str))
    if self.starts_from_clicks and initial_examination != "click_rate":
      raise ValueError(
          "`initial_examination` must be 'click_rate', a number or values by "
          f"position, but is {initial_examination!r}.")
    self._create_parameters(
        examination if self.examination_is_fixed else initial_examination,
        trust_positive, trust_negative)
    size = self.num_contexts * self.num_positions
    shapes = {"pointwise": (size, examination_lib.NUM_STATISTICS),
              "calibration": (em.NUM_SUMS,),
              "counters": (base.NUM_COUNTERS,)}
    if self.learns_pairwise_trust:
      shapes["trust"] = (size, num_positions, trust_lib.NUM_STATISTICS)
    self._create_sums(shapes, {"pointwise", "trust"} & set(shapes))

  def _check_click_irrelevant(self, share):
    if share is None:
      return
    if not 0 <= share < 1:
      raise ValueError("`initial_click_irrelevant` must be in [0, 1), but is "
                       f"{share}.")
    if self.trust_bias != "position":
      raise ValueError(
          "`initial_click_irrelevant` needs `trust_bias='position'`, but "
          f"`trust_bias` is {self.trust_bias!r}; set it, or leave the start "
          "out.")

  def _check_trust(self, trust_positive, trust_negative):
    if (trust_positive is None) != (trust_negative is None):
      raise ValueError(
          "`trust_positive` and `trust_negative` must be given together, but "
          "only one of them is.")
    if not self.trust_is_fixed:
      return
    if np.any(np.less(trust_positive, trust_negative)):
      raise ValueError(
          "`trust_positive` must be at least `trust_negative`, since relevant "
          f"items are not clicked less, but {trust_positive} and "
          f"{trust_negative} are given.")
    if self.trust_bias is None:
      raise ValueError(
          "`trust_positive` is given, but `trust_bias` is None; set it to "
          "'position' or 'pairwise'.")
    if self.trust_bias == "position" and not self.examination_is_fixed:
      raise ValueError(
          "`trust_positive` with `trust_bias='position'` needs `examination` "
          "too, since only their product is identified.")

  def _create_parameters(self, examination, trust_positive, trust_negative):
    tables = (self.num_contexts, self.num_positions)
    if self.starts_from_clicks:
      theta = np.full(tables, self._config["initial_scale"], np.float32)
    else:
      argument = ("examination" if self.examination_is_fixed else
                  "initial_examination")
      theta = checks.check_table(argument, examination, tables)
    irrelevant = self._click_irrelevant_share * theta
    if self.trust_bias == "position" and self.trust_is_fixed:
      irrelevant = theta * checks.check_table(
          "trust_negative", trust_negative, tables)
      theta = theta * checks.check_table(
          "trust_positive", trust_positive, tables)
    elif self.trust_bias == "position" and self.examination_is_fixed:
      raise ValueError(
          "`examination` with `trust_bias='position'` needs `trust_positive` "
          "and `trust_negative` too, since only their products are identified.")
    self.examination = self._parameter("examination", theta)
    self.examination_unclicked = self._parameter(
        "examination_unclicked", theta)
    if self.trust_bias == "position":
      self.click_irrelevant = self._parameter("click_irrelevant", irrelevant)
    if self.trust_bias == "pairwise":
      pair_tables = (self.num_contexts, self.num_positions, self.num_positions)
      positive = 0.9 if trust_positive is None else trust_positive
      negative = 0.05 if trust_negative is None else trust_negative
      for argument, value in (
          ("trust_positive", positive), ("trust_negative", negative)):
        setattr(self, argument, self._parameter(
            argument, checks.check_table(argument, value, pair_tables)))
    # Where one score serves as ranking score and as relevance logit.
    self.relevance_shift = self._parameter("relevance_shift", 0.0)
    weight = self._config["logged_order_weight"]
    self.logged_order_weight = None if weight is None else self._parameter(
        "logged_order_weight", weight)

  @property
  def learns_pairwise_trust(self) -> bool:
    """Whether eps+ and eps- are estimated."""
    return self.trust_bias == "pairwise" and not self.trust_is_fixed

  @property
  def is_fixed(self) -> bool:
    """Whether every propensity is given, so that EM has nothing to do."""
    return self.examination_is_fixed and not self.learns_pairwise_trust

  def call(self, positions: TensorLike,
           contexts: Optional[TensorLike] = None) -> tf.Tensor:
    """Examination probabilities at display positions.

    Args:
      positions: `[B, L]`, 1-based.
      contexts: `[B, L]` ids, or None.

    Returns:
      `[B, L]` theta, 0 where the position is outside the table.
    """
    slots = self.find_slots(
        tf.cast(positions, tf.float32),
        None if contexts is None else tf.cast(contexts, tf.float32))
    theta = slots.lookup(self.examination)
    return tf.where(slots.valid, theta, tf.zeros_like(theta))

  def mean_relevance(self) -> tf.Tensor:
    """r_k: the mean of P(r > 0 | c) of the items seen so far at each position.

    Returns:
      A tensor `[C, K]`, 0 where nothing was seen.
    """
    sums = tf.reshape(
        self._averages["pointwise"],
        [self.num_contexts, self.num_positions, examination_lib.NUM_STATISTICS])
    return tf.math.divide_no_nan(sums[..., examination_lib.RELEVANT],
                                 sums[..., examination_lib.COUNT])

  def scale(self) -> tf.Tensor:
    """theta_1 squared, the one constant by which all pair weights are scaled.

    With several contexts theta_1 is their mean: one constant for all pairs.
    """
    return tf.square(tf.reduce_mean(self.examination[:, 0]))

  def _learned_names(self):
    names = ["relevance_shift", "examination", "examination_unclicked"]
    if self.trust_bias == "position":
      names.append("click_irrelevant")
    if self.trust_bias == "pairwise":
      names += ["trust_positive", "trust_negative"]
    return names

  def prepare_update(self, step_size: float = 0.05, step_decay: float = 0.05,
                     averaging: str = "statistics", warmup: int = 20) -> None:
    """Compiles the M step, so that the first batch does not wait for it.

    Args:
      step_size: as in `update`.
      step_decay: as in `update`.
      averaging: as in `update`.
      warmup: as in `update`.
    """
    sums = {key: tf.convert_to_tensor(v) for key, v in self._sums.items()}
    em.m_step.get_concrete_function(*self._m_step_inputs(
        sums, base.Steps(step_size, step_decay, averaging, warmup)))

  def _move(self, sums, steps):
    state, averages = em.m_step(*self._m_step_inputs(sums, steps))
    for name, value in state.items():
      getattr(self, name).assign(value)
    for key, value in averages.items():
      self._averages[key].assign(value)

  def _m_step_inputs(self, sums, steps):
    """The arguments of `core.em.m_step`."""
    names = ["num_updates", *self._learned_names()]
    state = {name: tf.convert_to_tensor(getattr(self, name)) for name in names}
    averages = {k: tf.convert_to_tensor(v) for k, v in self._averages.items()}
    return (self._update_rule(steps.averaging), state, averages, sums,
            sums["counters"][base.BATCHES],
            *(tf.constant(value, tf.float32) for value in (
                steps.step_size, steps.step_decay, steps.warmup)))

  def _update_rule(self, averaging):
    own = {name: self._config[name] for name in (
        "trust_bias", "min_examination", "initial_scale", "smoothing")}
    return em.UpdateRule(
        initial_click_irrelevant=self._click_irrelevant_share,
        averaging=averaging, examination_is_fixed=self.examination_is_fixed,
        trust_is_fixed=self.trust_is_fixed,
        starts_from_clicks=self.starts_from_clicks, **own)

  def curves(self) -> dict[str, np.ndarray]:
    """The examination relative to position 1: see `LearningLayer.curves`."""
    theta = self.examination.numpy()
    return {"examination": theta / np.maximum(
        theta[:, :1], np.finfo(np.float32).tiny)}

  def tables(self) -> dict[str, np.ndarray]:
    """The examination as it is: see `LearningLayer.tables`."""
    return {"examination": self.examination.numpy()}

  def propensities(self) -> dict[str, np.ndarray]:
    """The propensities as numpy arrays.

    Returns:
      A dict. "examination": relative to position 1, `[K]`, or `[C, K]` with
      several contexts; theta/theta_1, with `trust_bias="position"` p1/p1_1.
      "examination_unclicked": theta-/theta_1. With `trust_bias="position"`
      also "click_relevant" p1 and "click_irrelevant" p0; with `"pairwise"`
      "trust_positive" and "trust_negative", `[K, K]` or `[C, K, K]`.
    """
    if not self.is_fixed and self.num_updates.numpy() == 0:
      warnings.warn(
          "These propensities are the starting values: no EM step has run. "
          "Pass `ultra_tfr.callbacks.PropensityEM()` to `fit`.", stacklevel=2)

    def squeeze(tables):
      return tables[0] if self.num_contexts == 1 else tables

    theta = self.examination.numpy()
    result = {"examination": squeeze(self.curves()["examination"])}
    if self.trust_bias == "position":
      result["click_relevant"] = squeeze(theta)
      result["click_irrelevant"] = squeeze(self.click_irrelevant.numpy())
    else:
      first = np.maximum(theta[:, :1], np.finfo(np.float32).tiny)
      unclicked = self.examination_unclicked.numpy()
      result["examination_unclicked"] = squeeze(unclicked / first)
    if self.trust_bias == "pairwise":
      result["trust_positive"] = squeeze(self.trust_positive.numpy())
      result["trust_negative"] = squeeze(self.trust_negative.numpy())
    return result

  def get_config(self) -> dict[str, Any]:
    """The constructor's arguments, ready for JSON."""
    return {"name": self.name, **self._config}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Any:
    """Builds a layer with the same arguments; learned values are not in it."""
    return cls(**config)


def _listed(value):
  """Arrays as nested lists, for JSON."""
  if value is None or isinstance(value, (str, int, float)):
    return value
  return np.asarray(value).tolist()
