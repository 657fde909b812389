"""What a click log can tell about the bias of its positions, and what not."""

import dataclasses
import math
from typing import NamedTuple
from typing import Optional

import numpy as np

from ultra_tfr import output
from ultra_tfr.data.click_log.reading import PARTS
from ultra_tfr.evaluation import click_model_fit
from ultra_tfr.evaluation import harvesting
from ultra_tfr.fit_log import findings
from ultra_tfr.fit_log import leaks
from ultra_tfr.fit_log import scoring

# At or beyond these, p1 is at the floor or cap of a bias layer, 0.001 and 1.
_FLOOR, _CAP = 1.001e-3, 0.9999
# At most so many requests are scored at a time.
_BATCH = 1024


@dataclasses.dataclass(frozen=True)
class Diagnosis:
  """What was found out about a log.

  Attributes:
    method: the method that estimated the bias; None without a model.
    positions: as in the log, in order.
    contexts: for each context, by name, a dict of curves by name, see
      `diagnose`: each a dict of lists "value", and "low" and "high" or None.
    swap_counts: `[K, K]`, the items seen at both positions in one context; None
      where items are not identified. An item in two contexts counts as two.
    num_items: `[K]`, the items seen at the position and elsewhere, likewise.
    num_swap_clicks: `[K]`, the clicks on these items there, likewise.
    components: `[K]`, positions with the same number are connected by swaps,
      likewise.
    logger_strength: a dict of "value", "low" and "high": Spearman's correlation
      within requests between the order shown and the learned relevance, not the
      ranker, which may have been made to follow that order. Empty without a
      model.
    trust: `[C, K, K]` matrices by name, or an empty dict.
    click_irrelevant: by context `[K]`, p0 / p1: how often an irrelevant item
      that is seen gets feedback, relative to a relevant one; empty if the
      method has no p0.
    history: of the training, see `fit_log.training.FittedLog`; empty if the
      model was not trained on this log.
    num_requests: how many requests the diagnosis rests on.
    num_items_clicked: rows with feedback among them.
    effective_sample_size: of these, with inverse propensities as weights;
      None without a model.
    weight_clipped: the share of pair weight that the loss clipped at the end of
      training, or None.
    sentences: what this means, for people.
    warnings: why debiasing may hurt, for people.
    hypotheses: what speaks for each hypothesis about the users, see
      `PositionBias.hypotheses`; None if the method has a single one, or the
      model was not trained on this log.
    evidence: a dict of "shown" and "clicked", numbers of rows `[K]` by context,
      and "informative_requests", the number of requests that have rows with and
      rows without feedback.
    is_own: whether the model was trained on this log.
    click_prediction: see `FittedLog`.
    leaks: suspicious features, see `leaks.find`.
    at_limits: by context `[K]` booleans, where p1 is at its floor or cap; empty
      without a model.
    evaluation: of the ranker on the test part, see `LogEvaluator.results`.
    fixed_to: the source of the examination that the model was trained with, in
      words; None if it was estimated.
    at_end: by context `[K]`, the model's curve at the end of training, before
      EM was run to convergence; empty where it was not.
  """

  method: Optional[str]
  positions: list
  contexts: dict
  swap_counts: Optional[np.ndarray]
  num_items: Optional[np.ndarray]
  num_swap_clicks: Optional[np.ndarray]
  components: Optional[np.ndarray]
  logger_strength: dict
  trust: dict
  click_irrelevant: dict
  history: dict
  num_requests: int
  num_items_clicked: int
  effective_sample_size: Optional[float]
  weight_clipped: Optional[float]
  sentences: list
  warnings: list
  hypotheses: Optional[dict] = None
  evidence: dict = dataclasses.field(default_factory=dict)
  is_own: bool = True
  click_prediction: dict = dataclasses.field(default_factory=dict)
  leaks: dict = dataclasses.field(default_factory=dict)
  at_limits: dict = dataclasses.field(default_factory=dict)
  evaluation: dict = dataclasses.field(default_factory=dict)
  fixed_to: Optional[str] = None
  at_end: dict = dataclasses.field(default_factory=dict)

  def headline(self, context):
    """The kind of curve to speak of first, in a context; None if there is none.

    It is the model's curve if the model was trained on this log, and EM on this
    log if it was not; without a model it is a curve that the log tells alone.
    """
    curves = self.contexts[context]
    if self.method is not None:
      return "trained" if self.is_own else "em"
    return next((kind for kind in ("randomized", "all_pairs") if any(
        value is not None for value in
        curves.get(kind, {"value": [None]})["value"][1:])), None)

  def to_json(self):
    """The findings as nested dicts, NaN as None."""
    return output.plain(dataclasses.asdict(self))


def diagnose(log, fitted=None, *, evaluation=None, replicates=200, level=0.9,
             seed=0, max_requests=200000):
  """Examines a log, with a model or without one.

  The curves of a context, each relative to position 1:

      "trained"     the model's own, after EM was run to convergence on the
                    training part (see `Bias.at_end` where not)
      "em"          EM on this log, with the relevance of the model held fixed;
                    without pseudo-clicks; its intervals hold sampling error
                    only
      "adjacent", "pivot", "all_pairs"  intervention harvesting: from items
                    that were seen at several positions, without any model
      "randomized"  the click rate where the order was random

  Args:
    log: a `ClickLog`.
    fitted: a `fit_log.training.FittedLog` with a bias, trained on this log or
      on another one; None for what the log tells alone. A model is left out if
      its debiasing is not justified (`FittedLog.is_justified`).
    evaluation: what `LogEvaluator.results` says of rankers on the test part, or
      None.
    replicates: of the bootstrap over requests.
    level: of its intervals.
    seed: of its draws.
    max_requests: how many requests to read at most. What is harvested from a
      prepared log is of all its requests, with the draws made when it was
      prepared, unless the level is another one than there.

  Returns:
    A `Diagnosis`.

  Raises:
    ValueError: if the method estimated no bias.
  """
  model = fitted
  if fitted is not None and not fitted.is_justified:
    model = None  # It would tell nothing that is to be trusted.
  if model is not None and model.bias is None:
    raise ValueError(
        "The model was trained by a method that estimates no bias; diagnose "
        "one that was trained by 'unbiased' or 'unbiased-ipw', or without a "
        "model.")
  sample = draw(log, model, max_requests)
  options = {"replicates": replicates, "level": level, "seed": seed}
  is_own = (model is not None and not log.follows_schema and
            log.schema() == model.schema)
  contexts = {name: {} for name in log.contexts}
  of_model = {"method": None, "logger_strength": {}, "trust": {},
              "click_irrelevant": {}, "history": {}, "weight_clipped": None,
              "effective_sample_size": None}
  if model is not None:
    curves, of_model = _by_model(sample, model, log.contexts, options, is_own)
    contexts.update(curves)
  of_all = log.harvest is not None and log.harvest["level"] == level
  harvested = log.harvest if of_all else harvest(sample, log, **options)
  for name, curves in curves_by_log(sample, log, harvested, options).items():
    contexts[name] = output.plain({**contexts[name], **curves})
  result = Diagnosis(
      positions=list(log.positions), contexts=contexts,
      **{field: np.array(harvested[name]) if harvested else None
         for field, name in (
             ("swap_counts", "swap_counts"), ("num_items", "num_items"),
             ("num_swap_clicks", "num_clicks"), ("components", "components"))},
      click_prediction=(
          fitted.click_prediction
          if is_own or fitted is not None and model is None else {}),
      num_requests=len(np.unique(sample.requests)),
      num_items_clicked=int(sample.clicked.sum()),
      leaks=leaks.find(log) if log.columns.features else {},
      evaluation=evaluation or {}, sentences=[], warnings=[],
      evidence=_evidence(sample, log),
      is_own=is_own, **of_model)
  sentences, warnings = findings.explain(result, level)
  if not sample.is_complete:
    sentences.insert(0, f"The diagnosis rests on {result.num_requests} of "
                     f"{sum(log.summary['requests'].values())} requests"
                     f"{', harvesting on all' if of_all else ''}.")
  return dataclasses.replace(result, sentences=sentences, warnings=warnings)


def _by_model(sample, fitted, contexts, options, is_own):
  """What a model tells: curves by context, and a dict of `Diagnosis` fields."""
  bias = fitted.bias
  relative = bias.relative()
  fit = click_model_fit.fit_click_model(
      sample.positions, sample.contexts, sample.clicked, sample.relevance,
      sample.requests, bias.click_relevant, bias.click_irrelevant, **options)
  curves = {
      name: {"trained": {"value": relative[c], "low": None, "high": None},
             "em": {part: values[c]
                    for part, values in _parts(fit.examination).items()}}
      for c, name in enumerate(contexts)}
  follows = click_model_fit.position_follows_scores(
      sample.relevance, sample.display_order, sample.requests, **options)
  weight = sample.weights[sample.clicked] / relative[
      sample.contexts, sample.positions - 1][sample.clicked]
  history = fitted.history if is_own else {}
  return curves, {
      "method": bias.method, "logger_strength": _parts(follows),
      "trust": {name: getattr(bias, name)
                for name in ("trust_positive", "trust_negative")
                if getattr(bias, name) is not None},
      "click_irrelevant": {} if bias.click_irrelevant is None else {
          name: bias.click_irrelevant[c] / bias.click_relevant[c]
          for c, name in enumerate(contexts)},
      "hypotheses": bias.hypotheses if is_own else None, "history": history,
      "fixed_to": bias.fixed_to,
      "at_end": {} if bias.at_end is None else {
          name: (bias.at_end[c] / bias.at_end[c, :1]).tolist()
          for c, name in enumerate(contexts)},
      "effective_sample_size": float(weight.sum() ** 2 / max(
          np.square(weight).sum(), np.finfo(np.float64).tiny)),
      "weight_clipped": [None, *history.get("weight_clipped", [])][-1],
      "at_limits": {
          name: ((bias.click_relevant[c] <= _FLOOR) |
                 (bias.click_relevant[c] >= _CAP)).tolist()
          for c, name in enumerate(contexts)}}


def harvest(sample, log, replicates=200, level=0.9, seed=0):
  """What is harvested from a sample, in the form of `harvesting.tell`.

  Args:
    sample: a `LogSample`.
    log: the `ClickLog` that it was drawn from.
    replicates: as in `harvesting.harvest`, and so are the others.
    level: see there.
    seed: see there.

  Returns:
    A dict; None if no item is known.
  """
  if not (sample.items >= 0).any():
    return None
  return harvesting.tell(harvesting.sums_by_context(
      sample.items, sample.positions, sample.clicked, sample.requests,
      len(log.positions), sample.weights, sample.contexts, log.contexts,
      replicates, seed), level)


def curves_by_log(sample, log, harvested, options):
  """Curves that need no model.

  Args:
    sample: a `LogSample`.
    log: the `ClickLog` that it was drawn from.
    harvested: what `harvest` gives.
    options: of the bootstrap, see `harvesting.harvest`.

  Returns:
    A dict by context of curves by name, see `diagnose`: those of harvesting if
    there are items, and "randomized" if there are such rows.
  """
  curves = {}
  for c, name in enumerate(log.contexts):
    curves[name] = dict(harvested["contexts"][name]) if harvested else {}
    rows = sample.contexts == c
    if sample.randomized[rows].any():
      curves[name]["randomized"] = _parts(harvesting.randomized_click_rate(
          sample.positions[rows], sample.clicked[rows], sample.requests[rows],
          sample.randomized[rows], len(log.positions), sample.weights[rows],
          **options))
  return curves


def _evidence(sample, log):
  """`Diagnosis.evidence`."""
  shape = (len(log.contexts), len(log.positions))
  slot = np.ravel_multi_index((sample.contexts, sample.positions - 1), shape)
  counts = {
      name: np.bincount(slot, rows, np.prod(shape)).astype(int).reshape(shape)
      for name, rows in (("shown", None), ("clicked", sample.clicked))}
  request = np.unique(sample.requests, return_inverse=True)[1]
  clicked = np.bincount(request, sample.clicked)
  return {
      **{name: dict(zip(log.contexts, table.tolist()))
         for name, table in counts.items()},
      "informative_requests": int(
          ((clicked > 0) & (clicked < np.bincount(request))).sum())}


def _parts(estimate):
  return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


class LogSample(NamedTuple):
  """Rows of some requests of a log, each `[R]`; none of weight 0.

  Attributes:
    items: int64, -1 if unknown.
    positions: int64 from 1.
    display_order: int64 from 1; items differ in it even where deep positions
      share one.
    contexts: int64 ids.
    clicked: booleans, feedback > 0.
    requests: int64, a number that stands for the request.
    weights: float64.
    randomized: booleans.
    relevance: the model's relevance probabilities, NaN without a model.
    is_complete: whether these are all requests of the log.
  """

  items: np.ndarray
  positions: np.ndarray
  display_order: np.ndarray
  contexts: np.ndarray
  clicked: np.ndarray
  requests: np.ndarray
  weights: np.ndarray
  randomized: np.ndarray
  relevance: np.ndarray
  is_complete: bool


def draw(log, fitted=None, max_requests=200000, parts=PARTS):
  """Takes requests of parts, in equal shares, with predictions.

  Args:
    log: a `ClickLog`.
    fitted: a `fit_log.training.FittedLog` with a bias, or None.
    max_requests: how many at most, which bounds memory; rounding up may add a
      few.
    parts: names of the parts.

  Returns:
    A `LogSample`.
  """
  total = sum(len(log.parts[part]) for part in parts)
  share = min(1.0, max_requests / max(total, 1))
  columns = []
  for part in parts:
    wanted = math.ceil(share * len(log.parts[part]))
    if not wanted:
      continue
    count = math.ceil(wanted / _BATCH)
    # Files of a part are random samples of it: the first ones will do.
    for batch in log.parts[part].batches(math.ceil(wanted / count)):
      columns.append(_flat(batch, fitted))
      wanted -= len(batch.requests)
      if wanted <= 0:
        break
  return LogSample(*map(np.concatenate, zip(*columns)), share == 1.0)


def _flat(batch, fitted):
  counts = batch.weights > 0
  relevance = np.full(counts.shape, np.nan)
  if fitted is not None:
    relevance = scoring.predict(fitted.model, batch)[1][
        fitted.bias.relevance_head]
  requests = np.broadcast_to(batch.requests[:, np.newaxis], counts.shape)
  return [
      np.asarray(values)[counts] for values in (
          batch.items, batch.positions.astype(np.int64), batch.display_order,
          batch.contexts.astype(np.int64), batch.feedback > 0, requests,
          batch.weights.astype(np.float64), batch.randomized,
          relevance)]
