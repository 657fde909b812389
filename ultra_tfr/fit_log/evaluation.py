"""Rankers and the logged order on held-out feedback, side by side."""

from ultra_tfr import output
from ultra_tfr.evaluation import counterfactual
from ultra_tfr.evaluation.counterfactual import LogTotals
from ultra_tfr.fit_log import scoring

LOGGED = "logged order"
TOO_FEW = "too few clicks to judge"
# The end of a sentence that says that there is no bias to correct by.
UNCORRECTED = ("the feedback is taken as it is, which favours the logged "
               "order.")
_COLUMNS = ("dcg@10", "snips_dcg@10", "ndcg@10", "snips_mrr@10", "arp")
# Requests scored at a time.
_BATCH = 1024


class LogEvaluator:
  """Judges rankers by a log, all with the same propensities.

  Args:
    bias: the `Bias` to correct the feedback by, or None for raw feedback.
    binary: whether the feedback is 0 or 1.
    max_weight: cap of the inverse propensities, relative to position 1, or
      None.
    replicates: of the bootstrap over requests.
    level: of its intervals.
    seed: of its draws.
  """

  def __init__(self, bias, binary, *, max_weight=None, replicates=200,
               level=0.9, seed=0):
    self._bias, self._binary = bias, binary
    self._max_weight = max_weight
    self._options = {"replicates": replicates, "level": level, "seed": seed}
    self._totals, self._clicks = {}, {}

  def add(self, name, lists, model=None, bias=None):
    """Evaluates a ranker.

    Args:
      name: of the ranker.
      lists: a part of a `ClickLog`; the same requests for all rankers.
      model: its Keras model, or None for the logged order.
      bias: the `Bias` that was trained with it, to see how well both predict
        the clicks; by default the one that corrects the feedback.
    """
    bias = bias or self._bias
    totals = LogTotals(topn=(3, 5, 10), max_weight=self._max_weight)
    clicks = scoring.ClickRows()
    for batch in lists.batches(_BATCH):
      if model is None:
        scores = -batch.display_order
      else:
        scores, relevance = scoring.predict(model, batch)
        if bias is not None and relevance is not None:
          clicks.add(bias, relevance, batch)
      scoring.add_totals(totals, scores, batch, self._bias, self._binary)
    self._totals[name] = totals
    self._clicks[name] = clicks.likelihood()

  def results(self):
    """What was found.

    Returns:
      A dict ready for JSON, for each ranker a dict: "estimates" by name, each
      with "value", "low", "high" and "standard_error"; "minus_logged", the same
      for the paired differences to the logged order, and for all models but the
      first "minus_first", for those to the first model; counts, effective sizes
      and clipped share, as in `counterfactual.LogEvaluation`; "judgement",
      which is `TOO_FEW` if there are too few clicks for intervals, or else
      None; and for models with a relevance head the click "log_likelihood",
      "perplexity" and "perplexity_by_position".
    """
    found, first = {}, _first_model(self._totals)
    for name, totals in self._totals.items():
      summary = counterfactual.summarize(totals, **self._options)
      entry = {key: value for key, value in vars(summary).items()
               if key != "estimates"}
      entry["estimates"] = _plain(summary.estimates)
      entry["judgement"] = TOO_FEW if (
          summary.effective_requests < counterfactual.ENOUGH) else None
      if name != LOGGED and LOGGED in self._totals:
        entry["minus_logged"] = _plain(counterfactual.compare(
            totals, self._totals[LOGGED], **self._options))
      if name not in (LOGGED, first):
        entry["minus_first"] = _plain(counterfactual.compare(
            totals, self._totals[first], **self._options))
      clicks = self._clicks[name]
      if clicks is not None:
        entry["log_likelihood"] = clicks.log_likelihood
        entry["perplexity"] = clicks.perplexity
        entry["perplexity_by_position"] = output.plain(clicks.by_position)
      found[name] = entry
    return found


def table(results):
  """The rankers, and their differences to others, as rows of a table.

  Args:
    results: what `LogEvaluator.results` gave.

  Returns:
    Lists of texts, headings first.
  """
  rows = [["ranker", *_COLUMNS]]
  for name, entry in results.items():
    rows.append([name, *(_cell(entry["estimates"][key]) for key in _COLUMNS)])
  for other, difference in (("logged", "minus_logged"),
                            (_first_model(results), "minus_first")):
    for name, entry in results.items():
      if difference in entry:
        rows.append([f"{name} - {other}",
                     *("?" if entry["judgement"] else
                       _cell(entry[difference][key], "+")
                       for key in _COLUMNS)])
  return rows


def to_text(results, level=0.9):
  """The results as a table.

  Args:
    results: what `LogEvaluator.results` gave.
    level: of the intervals.

  Returns:
    A text of several lines.
  """
  lines = output.align(table(results))
  first = next(iter(results.values()))
  lines += [
      "", f"In brackets: {level:.0%} intervals, requests drawn again. "
      "dcg: feedback as if shown at the first position, discounted by rank; "
      "snips: divided by that feedback; arp: its average rank, lower is "
      "better.",
      f"{first['num_requests']} requests, {first['num_items_with_feedback']} "
      "items with feedback, which weighted count as "
      f"{first['effective_sample_size']:.0f}; {first['clipped_share']:.1%} of "
      "the weight was clipped."]
  if first["judgement"]:
    lines.append(
        f"{TOO_FEW[0].upper()}{TOO_FEW[1:]}: with the noise in them they say "
        f"as much as {first['effective_requests']:.0f} independent requests "
        f"with feedback, and intervals need {counterfactual.ENOUGH:.0f}.")
  for name, entry in results.items():
    if "perplexity" in entry:
      lines.append(f"{name}: click perplexity {entry['perplexity']:.4f} (1 is "
                   "perfect), log-likelihood per item "
                   f"{entry['log_likelihood']:.4f}")
  return output.printable("\n".join(lines))


def _first_model(rankers):
  """The first name that is not the logged order, or None."""
  return next((name for name in rankers if name != LOGGED), None)


def _cell(estimate, sign=""):
  value, low, high = (estimate[key] for key in ("value", "low", "high"))
  if value is None:
    return "-"
  ends = ", ".join("?" if end is None else f"{end:{sign}.4f}"
                   for end in (low, high))
  return f"{value:{sign}.4f} [{ends}]"


def _plain(estimates):
  return {name: output.plain(vars(estimate))
          for name, estimate in estimates.items()}
