"""The bias layer: what is known or learned about display positions."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import Literal
from typing import Optional
import warnings

import numpy as np
from numpy.typing import ArrayLike
import tensorflow as tf

from ultra_tfr import base
from ultra_tfr import bias as bias_lib
from ultra_tfr import checks
from ultra_tfr import hypotheses as hypotheses_lib
from ultra_tfr.core import em
from ultra_tfr.core import examination as examination_lib
from ultra_tfr.core import positions as positions_lib
from ultra_tfr.core import trust as trust_lib
from ultra_tfr.feedback import TensorLike

AUTO: Literal["auto"] = "auto"
_TRUST_BIAS = (AUTO, None, "position", "pairwise")
_EXAMINATION_MODELS = (None, "position", "browsing")
# theta of the most clicked position where EM starts.
INITIAL_SCALE = 0.9


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class PositionBias(base.LearningLayer):
  """Propensities by display position, learned by EM or given.

  The layer holds the variables; the loss reads them and adds the sums of its E
  step to accumulators; `ultra_tfr.callbacks.PropensityEM` turns those into new
  values after each batch. No gradient ever reaches them.

  Models of feedback (`trust_bias`):

  *   `"auto"`: finds out what users are like. Four hypotheses run side by side
      (two, if `examination_model` is given), see `ultra_tfr.hypotheses`: users
      look at each position by itself, or browse, each with little or with much
      trust in what stands high. Each hypothesis has tables of p1 and p0 and a
      relevance logit of its own, and counts by how likely it made the feedback
      of recent batches, judged before it learned from them. The model should
      have a ranking score and a relevance logit for each, five heads in all.
      With one relevance head, or scores alone, all hypotheses share that logit,
      and each adds a shift of its own. If `examination` is given, there is
      nothing to find out, and the layer is the position-based model.
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
    examination_model: what examination depends on: the `"position"`; or, where
      users browse (`"browsing"`), the position and the distance to the last
      click above it, see `core.positions.browsing_slots`. A distance seldom
      seen borrows from its position. None stands for both, as hypotheses, with
      `trust_bias="auto"`, and for the position otherwise.
    examination: known propensities, `[K]` or `[C, K]`; then theta is not
      estimated. (theta- still is where EM runs: it depends on the items.) A
      curve relative to position 1 may exceed 1: it is scaled to at most 1. Or
      a `PositionBias`: what it has learned, trust included, as it is now.
    trust_positive: known trust in relevant items: e+_k (a number or `[K]`, with
      `trust_bias="position"`) or eps+_ij (a number or `[K, K]`, with
      `"pairwise"`).
    trust_negative: e-_k or eps-_ij likewise; given together with
      `trust_positive`, and with `"position"` also with `examination`.
    initial_examination: where EM starts: `"click_rate"` for the smoothed rate
      of feedback by position in the first batches (its square root where users
      browse), a number for a constant, or `[K]` or `[C, K]` values.
    initial_scale: theta of the most clicked position at a click-rate start.
      Clicks fix theta times relevance only, so this fixes the scale.
    initial_click_irrelevant: p0 at the start, as a share of p1, with
      `trust_bias="position"`; None for 0.02. Where users trust what stands
      high, EM finds the truth from 0.3.
    smoothing: observations that the mean click rate counts for in the
      click-rate start, and that the mean of a position counts for in each of
      its distances.
    prior_clicks: clicks by which p1 of each position is drawn to a smooth curve
      through all, and p0 to 0, see `core.shrinkage.shrink_to_evidence`: for
      small logs, 20 or so. The M step remembers the last 20 batches or so; if
      these repeat the same clicks, take as many times more.
    min_examination: a floor for learned theta, and so a cap for weights.
    overflow: positions beyond K: `"mask"` leaves those items out, `"pool"` lets
      them share the last position, `"error"` raises when the epoch ends.
    logged_order_weight: how much the logged order counts: an
      `UnbiasedPairwiseLoss` adds this to the weight of each pair with
      c_a > c_b. Debiased, a pair at the first position counts 1, and feedback
      as it is makes a ranker keep to the order that was shown. None leaves it
      out. `ultra_tfr.logged_order.LoggedOrderGuard` starts there and moves it;
      without that callback it stays. It is saved with the layer.
    name: the layer's name.

  Raises:
    ValueError: if an argument is out of range or arguments do not fit.

  >>> bias = PositionBias(3, examination=[0.8, 0.4, 0.2])
  >>> bias.propensities()["examination"]
  array([1.  , 0.5 , 0.25], dtype=float32)
  """

  def __init__(
      self, num_positions: int, *, num_contexts: int = 1,
      trust_bias: Optional[Literal["auto", "position", "pairwise"]] = AUTO,
      examination_model: Optional[Literal["position", "browsing"]] = None,
      examination: Any = None,
      trust_positive: Optional[ArrayLike] = None,
      trust_negative: Optional[ArrayLike] = None,
      initial_examination: ArrayLike = "click_rate",
      initial_scale: float = INITIAL_SCALE,
      initial_click_irrelevant: Optional[float] = None, smoothing: float = 20.0,
      prior_clicks: float = 0.0, min_examination: float = 1e-3,
      overflow: Literal["mask", "pool", "error"] = "mask",
      logged_order_weight: Optional[float] = None, name: str = "position_bias"):
    super().__init__(name, num_positions, num_contexts, overflow)
    if isinstance(examination, PositionBias):
      examination, trust_bias, trust_positive, trust_negative = (
          bias_lib.known_arguments(
              examination, trust_bias, trust_positive, trust_negative))
    self._config = checks.plain({
        "num_positions": self.num_positions, "num_contexts": self.num_contexts,
        "trust_bias": trust_bias, "examination_model": examination_model,
        "examination": examination, "trust_positive": trust_positive,
        "trust_negative": trust_negative,
        "initial_examination": initial_examination,
        "initial_scale": checks.check_share("initial_scale", initial_scale),
        "initial_click_irrelevant": initial_click_irrelevant,
        "smoothing": checks.check_not_negative("smoothing", smoothing),
        "prior_clicks": checks.check_not_negative("prior_clicks", prior_clicks),
        "min_examination": checks.check_share(
            "min_examination", min_examination),
        "overflow": overflow,
        "logged_order_weight": (
            None if logged_order_weight is None else checks.check_not_negative(
                "logged_order_weight", logged_order_weight)),
    })
    examination = bias_lib.at_most_one(examination)
    checks.check_choice("trust_bias", trust_bias, _TRUST_BIAS)
    if trust_bias == AUTO and examination is not None:
      trust_bias = None
    checks.check_choice(
        "examination_model", examination_model, _EXAMINATION_MODELS)
    self.trust_bias = trust_bias
    self._check_click_irrelevant(initial_click_irrelevant)
    self.examination_is_fixed = examination is not None
    self.trust_is_fixed = trust_positive is not None
    bias_lib.check_known_trust(
        trust_bias, examination, trust_positive, trust_negative)
    bias_lib.check_examination_model(
        trust_bias, examination_model, self.examination_is_fixed,
        self.trust_is_fixed)
    self.starts_from_clicks = (
        not self.examination_is_fixed and
        isinstance(initial_examination, str))
    if self.starts_from_clicks and initial_examination != "click_rate":
      raise ValueError(
          "`initial_examination` must be 'click_rate', a number or values by "
          f"position, but is {initial_examination!r}.")
    # Wrapped in a function: in a tuple, Keras would find and save variables.
    self._models = functools.partial(tuple, [
        self._create_model(
            hypothesis, "" if trust_bias != AUTO else f"_{hypothesis.name}",
            examination if self.examination_is_fixed else initial_examination,
            trust_positive, trust_negative)
        for hypothesis in self._hypotheses(
            examination_model, initial_click_irrelevant)])
    if trust_bias == AUTO:
      self.evidence = self._parameter("evidence", np.zeros(len(self.models)))
    else:
      for name, variable in self.models[0].variables.items():
        setattr(self, name, variable)
    self.logged_order_weight = (
        None if logged_order_weight is None else
        self._parameter("logged_order_weight", logged_order_weight))
    shapes: dict[str, tuple[int, ...]] = {}
    for model in self.models:
      size = self.num_contexts * self.num_positions * model.num_distances
      shapes["pointwise" + model.suffix] = (
          size, examination_lib.NUM_STATISTICS)
      shapes["calibration" + model.suffix] = (em.NUM_SUMS,)
    shapes["counters"] = (base.NUM_COUNTERS,)
    if trust_bias == AUTO:
      shapes["log_likelihood"] = (len(self.models),)
    if self.learns_pairwise_trust:
      shapes["trust"] = (
          self.num_contexts * self.num_positions, self.num_positions,
          trust_lib.NUM_STATISTICS)
    self._create_sums(shapes, {
        key for key in shapes if key.startswith(("pointwise", "trust"))})

  def _check_click_irrelevant(self, share):
    if share is None:
      return
    if not checks.is_number(share) or not 0 <= share < 1:
      raise ValueError("`initial_click_irrelevant` must be in [0, 1), but is "
                       f"{share!r}.")
    if self.trust_bias != "position":
      raise ValueError(
          "`initial_click_irrelevant` needs `trust_bias='position'`, but "
          f"`trust_bias` is {self.trust_bias!r}; set it, or leave the start "
          "out.")

  def _hypotheses(self, examination_model, initial_click_irrelevant):
    """The `Hypothesis` that the layer holds."""
    found = [h for h in hypotheses_lib.HYPOTHESES
             if self.trust_bias == AUTO and examination_model is None or
             h.browses == (examination_model == "browsing")]
    if self.trust_bias == AUTO:
      return found
    # A single hypothesis starts with little click noise, unless told otherwise.
    share = initial_click_irrelevant
    return found[:1] if share is None else [
        dataclasses.replace(found[0], click_irrelevant=share)]

  def _create_model(self, hypothesis, suffix, examination, trust_positive,
                    trust_negative):
    """Creates the `ClickModel` of a hypothesis and its variables."""
    num_distances = min(
        hypotheses_lib.NUM_DISTANCES, self.num_positions
    ) if hypothesis.browses else 1
    tables = (self.num_contexts, self.num_positions)
    if self.starts_from_clicks:
      theta = np.full(tables, self._config["initial_scale"], np.float32)
    else:
      argument = ("examination" if self.examination_is_fixed else
                  "initial_examination")
      theta = checks.check_table(argument, examination, tables)
    irrelevant = hypothesis.click_irrelevant * theta
    if self.trust_bias == "position" and self.trust_is_fixed:
      irrelevant = theta * checks.check_table(
          "trust_negative", trust_negative, tables)
      theta = theta * checks.check_table(
          "trust_positive", trust_positive, tables)
    elif self.trust_bias == "position" and self.examination_is_fixed:
      raise ValueError(
          "`examination` with `trust_bias='position'` needs `trust_positive` "
          "and `trust_negative` too, since only their products are identified.")
    theta, irrelevant = (np.repeat(table, num_distances, axis=1)
                         for table in (theta, irrelevant))
    start = {"examination": theta}
    if self.trust_bias != AUTO:
      start["examination_unclicked"] = theta
    if self.has_click_irrelevant:
      start["click_irrelevant"] = irrelevant
    if self.trust_bias == "pairwise":
      pair_tables = (self.num_contexts, self.num_positions, self.num_positions)
      for argument, value, default in (
          ("trust_positive", trust_positive, 0.9),
          ("trust_negative", trust_negative, 0.05)):
        start[argument] = checks.check_table(
            argument, default if value is None else value, pair_tables)
    # Added to a relevance logit that hypotheses or the ranking score share.
    start["relevance_shift"] = 0.0
    return hypotheses_lib.ClickModel(hypothesis, suffix, num_distances, {
        name: self._parameter(name + suffix, value)
        for name, value in start.items()})

  @classmethod
  def fixed(cls, other: Any, name: str = "fixed_bias") -> Any:
    """A layer that is fixed to what another one has learned so far.

    For training in two stages: one model learns the bias, another the ranker.

    Args:
      other: a `PositionBias`. Of several hypotheses the likeliest is taken, and
        where users browse its means by position.
      name: the name of the new layer.

    Returns:
      A `PositionBias` with the same contexts, trust bias and overflow.

    >>> old = PositionBias(2, initial_examination=[0.8, 0.4])
    >>> PositionBias.fixed(old).propensities()["click_relevant"]
    array([0.8, 0.4], dtype=float32)
    """
    checks.check_instance("other", other, cls, "pass a layer that has learned")
    return cls(other.num_positions, num_contexts=other.num_contexts,
               examination=other, overflow=other.overflow, name=name)

  @property
  def models(self) -> tuple[hypotheses_lib.ClickModel, ...]:
    """The hypotheses with their variables; a single one unless `"auto"`."""
    return self._models()

  @property
  def has_click_irrelevant(self) -> bool:
    """Whether the layer has p0, the chance of a click on an irrelevant item."""
    return self.trust_bias in (AUTO, "position")

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
    theta = slots.lookup(self.click_tables()[0])
    return tf.where(slots.valid, theta, tf.zeros_like(theta))

  def seen(self, model: hypotheses_lib.ClickModel) -> tf.Tensor:
    """Running statistics `[C, K, D, 5]`."""
    return tf.reshape(
        self._averages["pointwise" + model.suffix],
        [self.num_contexts, self.num_positions, model.num_distances,
         examination_lib.NUM_STATISTICS])

  def shares(self) -> tf.Tensor:
    """How far each hypothesis is believed, `[S]`, with the sum 1."""
    return tf.stop_gradient(tf.nn.softmax(self._support()))

  def _support(self):
    """What speaks for each hypothesis, `[S]`: its evidence less its size.

    Each parameter, p1 and p0 of each slot, costs 1, as in Akaike's criterion.
    Otherwise browsing would win too early: until relevance is learned, its many
    slots also tell lists with many relevant items from others.
    """
    if len(self.models) == 1:
      return tf.zeros([1])
    return self.evidence - [
        2.0 * self.num_contexts * model.num_slots(self.num_positions)
        for model in self.models]

  def scales(self) -> tf.Tensor:
    """theta squared of the most examined position, by hypothesis, `[S]`.

    That is the first one, if anything is clicked there. Where users browse it
    is theta without a click above; with several contexts, of their mean.
    """
    return tf.stack([
        tf.square(tf.reduce_max(tf.reduce_mean(
            model.variables["examination"][:, ::model.num_distances], axis=0)))
        for model in self.models])

  def scale(self) -> tf.Tensor:
    """theta_1 squared, the one constant by which all pair weights are scaled.

    It is the mean of `scales` over the hypotheses, weighted by `shares`.
    """
    return tf.tensordot(self.shares(), self.scales(), 1)

  def mixture(self, power: Optional[tf.Tensor] = None) -> tf.Tensor:
    """The factor of each hypothesis in the sum of their pair weights, `[S]`.

    Each counts by its share and on its own scale, raised to `power`: clicks
    identify theta up to a constant only, and that differs by hypothesis. The
    loss multiplies the sum by `scale`, raised likewise.
    """
    shares, scales = self.shares(), self.scales()
    relative = tf.math.divide_no_nan(scales, tf.tensordot(shares, scales, 1))
    return shares * (relative if power is None else relative ** power)

  def click_parameters(
      self, slots: positions_lib.Slots, clicked: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, list[positions_lib.Slots]]:
    """p1 and p0 of items by each hypothesis, and their slots.

    Args:
      slots: of `find_slots`.
      clicked: `[B, L]` booleans, c > 0.

    Returns:
      A tuple of p1 `[S, B, L]` (theta without trust bias), p0 `[S, B, L]`, and
      S `Slots` for the tables of each.
    """
    # Hypotheses with the same distances share their slots.
    one_of_each = {model.num_distances: model for model in self.models}
    shared = {distances: model.slots(slots, clicked)
              for distances, model in one_of_each.items()}
    own = [shared[model.num_distances] for model in self.models]

    def lookup(name):
      return tf.stack([of_model.lookup(model.variables[name])
                       for of_model, model in zip(own, self.models)])
    relevant = lookup("examination")
    return relevant, (lookup("click_irrelevant") if self.has_click_irrelevant
                      else tf.zeros_like(relevant)), own

  def relevance_logits(self, heads: Sequence[tf.Tensor]) -> tf.Tensor:
    """The logits of relevance by each hypothesis.

    Args:
      heads: `[B, L]` tensors, as in `feedback.split_heads`: the ranking score,
        and a relevance logit for each hypothesis, one for all, or none: then
        the score is the logit.

    Returns:
      `[S, B, L]`.

    Raises:
      ValueError: if it is another number of heads.
    """
    size = len(self.models)
    # With a single hypothesis there may be a preference head, too.
    if len(heads) not in (1, 2, 1 + size, 3 if size == 1 else 2):
      raise ValueError(
          f"`y_pred` must have {1 + size} heads for the layer {self.name!r}, a "
          f"ranking score and {size} relevance logit(s), or one for all, or "
          f"scores alone, but has {len(heads)} heads; see `build_model`.")
    if self.has_own_heads(heads):
      return tf.stack(heads[1:1 + size])
    shifts = tf.stack([
        model.variables["relevance_shift"] for model in self.models])
    return heads[-1] + tf.stop_gradient(shifts[:, tf.newaxis, tf.newaxis])

  def has_own_heads(self, heads: Sequence[tf.Tensor]) -> bool:
    """Whether there is a relevance logit for each hypothesis."""
    return len(heads) > len(self.models)

  def click_tables(
      self, hypothesis: Optional[int] = None
  ) -> tuple[tf.Tensor, Optional[tf.Tensor]]:
    """p1 and p0 by position of a hypothesis.

    Where users browse they are means over the distances that were seen.

    Args:
      hypothesis: its index; None for the likeliest.

    Returns:
      A tuple of p1 `[C, K]` (theta without trust bias) and p0 `[C, K]`, if any.
    """
    if hypothesis is None:
      hypothesis = tf.argmax(self._support())

    def table(name):
      return tf.gather(tf.stack([model.by_position(name, self.seen(model))
                                 for model in self.models]), hypothesis)
    return table("examination"), (
        table("click_irrelevant") if self.has_click_irrelevant else None)

  @property
  def likeliest(self) -> int:
    """The index of the likeliest hypothesis, whose values the layer reports."""
    return int(np.argmax(self._support().numpy()))

  @property
  def simplest(self) -> Optional[int]:
    """The index of `SIMPLEST`; None if it is the likeliest or not there."""
    index = next((i for i, model in enumerate(self.models)
                  if model.hypothesis.name == hypotheses_lib.SIMPLEST), None)
    return None if index == self.likeliest else index

  def hypotheses(self) -> dict[str, dict[str, Any]]:
    """What speaks for each hypothesis about the users, the likeliest first.

    Returns:
      A dict by name: "words" says what it means, "share" how far it is
      believed, and "behind" how much less likely it made recent feedback than
      the likeliest: the difference of running log-likelihoods, each less 1 for
      each parameter. Below about 3 nothing is decided.
    """
    shares = self.shares().numpy()
    support = self._support().numpy()
    found: dict[str, dict[str, Any]] = {
        model.hypothesis.name: {
            "words": model.words(self.seen(model)), "share": float(share),
            "behind": float(support.max() - own)}
        for model, share, own in zip(self.models, shares, support)}
    return dict(sorted(found.items(), key=lambda item: item[1]["behind"]))

  def scalars(self) -> dict[str, float]:
    """The shares of the hypotheses: see `LearningLayer.scalars`."""
    if len(self.models) == 1:
      return {}
    return {f"hypothesis_{model.hypothesis.name}": float(share)
            for model, share in zip(self.models, self.shares().numpy())}

  def _learned_variables(self):
    found = {name + model.suffix: variable for model in self.models
             for name, variable in model.variables.items()}
    return found if self.trust_bias != AUTO else {
        **found, "evidence": self.evidence}

  def _move(self, sums, steps):
    states, averages, evidence = em.m_steps(*self._m_step_inputs(sums, steps))
    moved = [(self.num_updates, states[0]["num_updates"])]
    for model, state, seen in zip(self.models, states, averages):
      moved += [(variable, state[name])
                for name, variable in model.variables.items()]
      moved += [(self._averages[model.key(key)], value)
                for key, value in seen.items()]
    if self.trust_bias == AUTO:
      moved.append((self.evidence, evidence))
    return moved

  def _m_step_inputs(self, sums, steps):
    """The arguments of `core.em.m_steps`."""
    averages = {k: tf.convert_to_tensor(v) for k, v in self._averages.items()}
    step = tf.convert_to_tensor(self.num_updates)
    states = [
        {"num_updates": step, **{
            name: tf.convert_to_tensor(v) for name, v in
            model.variables.items()}}
        for model in self.models]
    none = tf.zeros([len(self.models)])
    return (tuple(self.update_rule(model, steps.averaging)
                  for model in self.models),
            tuple(states), tuple(model.own(averages) for model in self.models),
            tuple(model.own(sums) for model in self.models),
            tf.convert_to_tensor(getattr(self, "evidence", none)),
            sums.get("log_likelihood", none),
            sums["counters"][base.BATCHES], steps.step_size, steps.step_decay,
            steps.warmup)

  def update_rule(self, model: hypotheses_lib.ClickModel,
                  averaging: str = "statistics") -> em.UpdateRule:
    """What an M step of a hypothesis does."""
    own = {name: self._config[name] for name in (
        "min_examination", "initial_scale", "smoothing", "prior_clicks")}
    return em.UpdateRule(
        trust_bias="position" if self.trust_bias == AUTO else self.trust_bias,
        initial_click_irrelevant=model.hypothesis.click_irrelevant,
        initial_power=model.hypothesis.initial_power,
        averaging=averaging, examination_is_fixed=self.examination_is_fixed,
        trust_is_fixed=self.trust_is_fixed,
        starts_from_clicks=self.starts_from_clicks,
        num_distances=model.num_distances, **own)

  def curves(self) -> dict[str, np.ndarray]:
    """The examination relative to position 1: see `LearningLayer.curves`."""
    theta = self.click_tables()[0].numpy()
    return {"examination": theta / np.maximum(
        theta[:, :1], np.finfo(np.float32).tiny)}

  def tables(self) -> dict[str, np.ndarray]:
    """The examination as it is: see `LearningLayer.tables`."""
    return {"examination": self.click_tables()[0].numpy()}

  def propensities(self) -> dict[str, np.ndarray]:
    """The propensities as numpy arrays.

    Returns:
      A dict of arrays `[K]`, or `[C, K]` with several contexts, of the
      likeliest hypothesis if there are several. "examination" is relative to
      position 1: theta/theta_1, or p1/p1_1 with `trust_bias` `"auto"` or
      `"position"`, which also have "click_relevant" p1 and "click_irrelevant"
      p0. Without p0 there is "examination_unclicked", theta-/theta_1. With
      `"pairwise"` there are also "trust_positive" and "trust_negative",
      `[K, K]` or `[C, K, K]`.
    """
    if not self.is_fixed and self.num_updates.numpy() == 0:
      warnings.warn(
          "These propensities are the starting values: no EM step has run. "
          "Pass `ultra_tfr.callbacks.PropensityEM()` to `fit`.", stacklevel=2)

    def squeeze(tables):
      return tables[0] if self.num_contexts == 1 else tables

    theta, irrelevant = self.click_tables()
    theta = theta.numpy()
    result = {"examination": squeeze(self.curves()["examination"])}
    if irrelevant is not None:
      result["click_relevant"] = squeeze(theta)
      result["click_irrelevant"] = squeeze(irrelevant.numpy())
    else:
      first = np.maximum(theta[:, :1], np.finfo(np.float32).tiny)
      unclicked = self.models[0].by_position(
          "examination_unclicked", self.seen(self.models[0])).numpy()
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
