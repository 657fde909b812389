"""Click models: simulated clicks on lists with known relevance grades.

All models share the attraction a = e + (1-e) (2^y-1)/(2^ymax-1) of an item of
grade y, with a click noise e, and differ in what the user examines:

    "pbm"      PositionBasedModel    by the position alone
    "ubm"      UserBrowsingModel     by the position and the last click above
    "cascade"  CascadeModel          top down until a click (DCM: or beyond)
    "dbn"      DynamicBayesianModel  top down until satisfied or tired
    "trust"    TrustBiasModel        by position; clicks, too, depend on it
"""

import numpy as np

from ultra_tfr import checks
from ultra_tfr.simulation import base

# P(examination) by position from eye tracking, Joachims et al., "Accurately
# Interpreting Clickthrough Data as Implicit Feedback", SIGIR 2005.
_EXAMINATION = (.68, .61, .48, .34, .28, .20, .11, .10, .08, .06)

# A factor of examination by which about one item in 200 is clicked.
_SPARSE = .07

# P(examination) by position (rows) and distance to the last click above, the
# last column for none: Dupret & Piwowarski, SIGIR 2008, as used by the
# toolbox of Tran, Yang & Ai, "ULTRA", CIKM 2021.
_EXAMINATION_BY_DISTANCE = (
    (1.,),
    (.98, 1.),
    (1., .62, .95),
    (1., .77, .42, .82),
    (1., .92, .55, .31, .69),
    (1., .96, .63, .40, .22, .54),
    (1., .99, .73, .46, .29, .17, .47),
    (1., 1., .89, .52, .35, .24, .14, .43),
    (1., 1., .95, .68, .40, .29, .19, .12, .41),
    (1., 1., 1., .96, .52, .36, .27, .18, .12, .43),
)


class PositionBasedModel(base.ClickModel):
  """P(examined at k) = examination[k]^eta (Richardson et al., WWW 2007).

  Attributes:
    examination_by_position: probabilities by position; the last continues.
      `examination=[1.]` examines everything.
    eta: severity of the position bias; 0 is none.

  Example:
    >>> PositionBasedModel(eta=2.).examination(2).round(4).tolist()
    [0.4624, 0.3721]
  """

  def __init__(self, examination=None, eta: float = 1.,
               click_noise: float = .1, max_grade: int = 4):
    super().__init__(click_noise, max_grade)
    self.eta = checks.check_not_negative("eta", eta)
    self.examination_by_position = checks.check_curve(
        "examination", _EXAMINATION if examination is None else examination)

  def examination(self, num_positions: int) -> np.ndarray:
    """Returns P(examined) at the positions 1 to `num_positions`, float64."""
    return base.at_positions(
        self.examination_by_position, np.arange(num_positions) + 1) ** self.eta

  def _simulate(self, labels, positions, uniforms):
    propensity = base.at_positions(
        self.examination_by_position, positions) ** self.eta
    examined = uniforms[0] < propensity
    click_given_examined = self._click_given_examined(labels, positions)
    return examined & (uniforms[1] < click_given_examined), examined, propensity

  def _click_given_examined(self, labels, positions):
    del positions  # Only examination depends on the position here.
    return self.attraction(labels)


class TrustBiasModel(PositionBasedModel):
  """Position bias and trust: users click irrelevant items high up, too.

      P(click | examined at k) = e+_k a + e-_k (1 - a),   a the attraction
      e+_k = 1 - (k + 1) / 100,    e-_k = .65 / k,        k = 1, 2, ...

  both kept in [0, 1], with e-_k <= e+_k also in very long lists. Source:
  Agarwal et al., "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW
  2019; values: Vardasbi, Oosterhuis & de Rijke, "When Inverse Propensity
  Scoring does not Work", CIKM 2020. `click_noise=0` makes a = P(relevant) as
  there; otherwise the noise enters by a, as in the toolbox ULTRA.

  Attributes:
    trust_positive, trust_negative: e+ and e- by position where given, the
      last value continues; None: the formulas above.

  Example:
    >>> positive, negative = TrustBiasModel().trust(2)
    >>> positive.round(3).tolist(), negative.round(3).tolist()
    ([0.98, 0.97], [0.65, 0.325])
  """

  def __init__(self, examination=None, eta: float = 1.,
               click_noise: float = .1, max_grade: int = 4,
               trust_positive=None, trust_negative=None):
    super().__init__(examination, eta, click_noise, max_grade)
    self.trust_positive = (
        None if trust_positive is None else
        checks.check_curve("trust_positive", trust_positive))
    self.trust_negative = (
        None if trust_negative is None else
        checks.check_curve("trust_negative", trust_negative))

  def trust(self, num_positions: int):
    """Returns `(e+, e-)` at the positions 1 to `num_positions`, float64."""
    return self._trust(np.arange(num_positions) + 1)

  def _trust(self, positions):
    k = np.maximum(positions, 1)
    positive = (
        np.clip(1. - (k + 1) / 100., 0., 1.) if self.trust_positive is None
        else base.at_positions(self.trust_positive, k))
    negative = (
        .65 / k if self.trust_negative is None
        else base.at_positions(self.trust_negative, k))
    return positive, np.minimum(negative, positive)

  def _click_given_examined(self, labels, positions):
    positive, negative = self._trust(positions)
    attraction = self.attraction(labels)
    return positive * attraction + negative * (1. - attraction)


class UserBrowsingModel(base.ClickModel):
  """P(examined at k | last click at k' above) = examination[k, k - k']^eta.

  Source: Dupret & Piwowarski, "A User Browsing Model to Predict Search Engine
  Click Data from Past Observations", SIGIR 2008.

  Attributes:
    table: float64 `[K, K]`, by position k and distance, 0 above the diagonal.
      It is given as rows of the lengths 1 to K: row k has the probabilities at
      the distances 1 to k - 1, then the one for no click above. The last row
      continues, and in it the longest distance.
    eta: severity of the bias, 0 is none.

  Example:
    >>> model = UserBrowsingModel(examination=[[1.], [.5, .75]], click_noise=0.)
    >>> model.sample([[4, 0], [0, 4]], seed=1).propensity.tolist()
    [[1.0, 0.5], [1.0, 0.75]]
  """

  def __init__(self, examination=None, eta: float = 1.,
               click_noise: float = .1, max_grade: int = 4):
    super().__init__(click_noise, max_grade)
    self.eta = checks.check_not_negative("eta", eta)
    rows = _EXAMINATION_BY_DISTANCE if examination is None else examination
    self.table = np.zeros((len(rows), len(rows)))
    for index, row in enumerate(rows):
      row = checks.check_curve("examination", row)
      if row.size != index + 1:
        raise ValueError(
            f"Row {index + 1} of `examination` must have {index + 1} values, "
            f"but has {row.size}; give one for each distance to the last click "
            "above, then one for no click.")
      self.table[index, :row.size] = row

  def _simulate(self, labels, positions, uniforms):
    size = self.table.shape[0]
    attracted = uniforms[1] < self.attraction(labels)
    rows = np.clip(positions, 1, size) - 1
    clicks = np.zeros(labels.shape, dtype=bool)
    examined = np.zeros(labels.shape, dtype=bool)
    propensity = np.zeros(labels.shape)
    last_click = np.zeros(labels.shape[0], dtype=np.int64)
    for item in range(labels.shape[1]):
      row, position = rows[:, item], positions[:, item]
      # Below the last row of the table, a far click still differs from none.
      distance = np.clip(position - last_click, 1, max(size - 1, 1))
      column = np.where(last_click == 0, row, distance - 1)
      propensity[:, item] = self.table[row, column] ** self.eta
      examined[:, item] = uniforms[0, :, item] < propensity[:, item]
      clicks[:, item] = examined[:, item] & attracted[:, item]
      last_click = np.where(clicks[:, item], position, last_click)
    return clicks, examined, propensity


class _SequentialModel(base.ClickModel):
  """Users go from the first item down, and stop at random after each."""

  def _continuation(self, labels, positions):
    """P(going on | examined, no click) and the same after a click."""
    raise NotImplementedError

  def _simulate(self, labels, positions, uniforms):
    attraction = self.attraction(labels)
    after_skip, after_click = self._continuation(labels, positions)
    attracted = uniforms[1] < attraction
    going_on = uniforms[0] < np.where(attracted, after_click, after_skip)
    examined = np.ones(labels.shape, dtype=bool)
    examined[:, 1:] = np.logical_and.accumulate(going_on, axis=1)[:, :-1]
    clicks = examined & attracted
    # P(examined | clicks above): a click shows that its item was examined,
    # a skip makes it less likely, by Bayes' rule.
    propensity = np.zeros(labels.shape)
    current = np.ones(labels.shape[0])
    for item in range(labels.shape[1]):
      propensity[:, item] = current
      no_click = 1. - current * attraction[:, item]
      skipped = current * (1. - attraction[:, item])
      posterior = np.divide(
          skipped, no_click, out=np.zeros_like(current), where=no_click > 0)
      current = np.where(clicks[:, item], after_click[:, item],
                         posterior * after_skip[:, item])
    return clicks, examined, propensity


class CascadeModel(_SequentialModel):
  """Users go on after a skip, and after a click at k with continuation[k].

  Sources: Craswell et al., "An Experimental Comparison of Click Position-Bias
  Models", WSDM 2008 (the cascade model: a click ends the session); Guo, Liu &
  Wang, "Efficient Multiple-Click Models in Web Search", WSDM 2009 (the
  dependent click model, DCM: continuation > 0).

  Attributes:
    continuation: probabilities by position; a number is for all positions,
      and the last of a vector continues.

  Example:
    >>> model = CascadeModel(click_noise=0.)
    >>> model.sample([[0, 4, 4]], seed=1).propensity.tolist()
    [[1.0, 1.0, 0.0]]
  """

  def __init__(self, continuation=0., click_noise: float = .1,
               max_grade: int = 4):
    super().__init__(click_noise, max_grade)
    self.continuation = checks.check_curve(
        "continuation", np.atleast_1d(continuation))

  def _continuation(self, labels, positions):
    return np.ones(labels.shape), base.at_positions(
        self.continuation, positions)


class DynamicBayesianModel(_SequentialModel):
  """Users stop when a clicked item satisfies them, or else when tired.

      P(satisfied | click, grade y) = satisfaction (2^y-1)/(2^ymax-1)
      P(going on | not satisfied)   = continuation

  Source: Chapelle & Zhang, "A Dynamic Bayesian Network Click Model for Web
  Search Ranking", WWW 2009, whose gamma is `continuation`.

  Attributes:
    satisfaction: P(satisfied) by a clicked item of the highest grade.
    continuation: the perseverance gamma.

  Example:
    >>> model = DynamicBayesianModel(1., .5, click_noise=0.)
    >>> model.sample([[0, 4, 4]], seed=1).propensity[0, :2].tolist()
    [1.0, 0.5]
  """

  def __init__(self, satisfaction: float = .9, continuation: float = .9,
               click_noise: float = .1, max_grade: int = 4):
    super().__init__(click_noise, max_grade)
    self.satisfaction = float(
        checks.check_probabilities("satisfaction", satisfaction))
    self.continuation = float(
        checks.check_probabilities("continuation", continuation))

  def _continuation(self, labels, positions):
    del positions  # Only the items' grades matter.
    satisfied = self.satisfaction * self.relevance(labels)
    return (np.full(labels.shape, self.continuation),
            self.continuation * (1. - satisfied))


def sparse_position_based_model(click_noise: float = .1,
                                max_grade: int = 4) -> PositionBasedModel:
  """Users who click one item in two hundred: most lists get no feedback.

  Args:
    click_noise: as in `PositionBasedModel`.
    max_grade: likewise.

  >>> sparse_position_based_model().examination(2).round(4).tolist()
  [0.0476, 0.0427]
  """
  return PositionBasedModel(
      np.multiply(_SPARSE, _EXAMINATION), click_noise=click_noise,
      max_grade=max_grade)


# By the names of the command line.
CLICK_MODELS = {
    "pbm": PositionBasedModel,
    "pbm-sparse": sparse_position_based_model,
    "ubm": UserBrowsingModel,
    "cascade": CascadeModel,
    "dbn": DynamicBayesianModel,
    "trust": TrustBiasModel,
}
