"""Whether a fit predicts held-out clicks better than click rates alone do.

A click rate by position knows nothing of items. If a model of relevance and
bias predicts the clicks of new requests no better, it has learned neither, and
nothing that it says of positions is to be trusted.
"""

import itertools

import numpy as np

from ultra_tfr import output
from ultra_tfr.bias import Bias
from ultra_tfr.fit_log import scoring

FIT, SIMPLER = "fit", "simpler"
ONE_RATE, BY_POSITION = "one_rate", "rate_by_position"
# The first of these with clicks decides; the other one is for people to see.
PARTS = ("valid", "test")
UNJUSTIFIED = "No debiasing is justified by this log"
# The click rate of all positions counts for so many rows in that of each.
_SMOOTHING = 20.0
# At most so many requests of a part are read: seconds on any log.
_MOST_REQUESTS = 20000
_BATCH = 1024


def click_counts(lists, num_contexts, num_positions, most_batches=None):
  """Rows without and with feedback.

  Args:
    lists: a part of a `ClickLog`.
    num_contexts: C.
    num_positions: K.
    most_batches: how many batches of 1024 requests to read; None for all.

  Returns:
    `[2, C, K]` sums of weights, each relative to the mean of its batch.
  """
  shape = (2, num_contexts, num_positions)
  sums = np.zeros(np.prod(shape))
  for batch in itertools.islice(lists.batches(_BATCH), most_batches):
    counts = batch.weights > 0
    slot = np.ravel_multi_index(
        ((batch.feedback > 0)[counts], batch.contexts[counts],
         batch.positions[counts] - 1), shape)
    weights = batch.weights[counts].astype(np.float64)
    weights *= len(weights) / max(weights.sum(), 1e-30)
    sums += np.bincount(slot, weights, len(sums))
  return sums.reshape(shape)


def click_rates(counts):
  """Click rates by position; with few rows they are near to the rate of all.

  Args:
    counts: `[2, C, K]`, rows without and with feedback.

  Returns:
    `[C, K]`.

  >>> click_rates(np.array([[[80., 0.]], [[20., 0.]]])).tolist()
  [[0.2, 0.2]]
  """
  whole = counts.sum(axis=(1, 2))
  mean = whole[1] / max(whole.sum(), 1e-30)
  return (counts[1] + _SMOOTHING * mean) / (counts.sum(axis=0) + _SMOOTHING)


def compare(log, model, biases):
  """How likely held-out clicks are by a fit, and by click rates alone.

  Args:
    log: a `ClickLog`.
    model: a Keras model with relevance heads.
    biases: a dict of `Bias` by name: FIT, and maybe SIMPLER.

  Returns:
    A dict ready for JSON. For each part with requests it has a dict of
    "num_requests", "num_clicks", and for each of `biases` and for ONE_RATE and
    BY_POSITION, the click rates of the training part, a dict of the mean
    "log_likelihood" of an item and the "perplexity". "kept" is what `choose`
    says, and "method" the name of the method.
  """
  counts = click_counts(
      log.parts["train"], len(log.contexts), len(log.positions))
  by_position = click_rates(counts)
  mean = counts[1].sum() / max(counts.sum(), 1e-30)
  # A click rate is p1 for items that are all relevant.
  rates = {ONE_RATE: Bias(ONE_RATE, np.full_like(by_position, mean)),
           BY_POSITION: Bias(BY_POSITION, by_position)}
  found = {}
  for part in PARTS:
    rows = {name: scoring.ClickRows() for name in (*rates, *biases)}
    num_requests = num_clicks = 0
    for batch in itertools.islice(
        log.parts[part].batches(_BATCH), -(-_MOST_REQUESTS // _BATCH)):
      _, relevance = scoring.predict(model, batch)
      for name, rate in rates.items():
        rows[name].add(rate, np.ones_like(relevance), batch)
      for name, bias in biases.items():
        rows[name].add(bias, relevance, batch)
      num_requests += len(batch.requests)
      num_clicks += int(((batch.feedback > 0) & (batch.weights > 0)).sum())
    if num_requests:
      found[part] = {"num_requests": num_requests, "num_clicks": num_clicks}
      for name, one in rows.items():
        likelihood = one.likelihood()
        found[part][name] = output.plain({
            "log_likelihood": likelihood.log_likelihood,
            "perplexity": likelihood.perplexity})
  return {**found, "kept": choose(found), "method": biases[FIT].method}


def choose(found):
  """The first fit that predicts clicks better than rates by position do.

  Args:
    found: what `compare` says of parts.

  Returns:
    FIT, SIMPLER, or None if neither does; FIT also if no click is held out, so
    that nothing can be said.

  >>> choose({"valid": {
  ...     "num_clicks": 9, BY_POSITION: {"log_likelihood": -0.2},
  ...     FIT: {"log_likelihood": -0.3}, SIMPLER: {"log_likelihood": -0.1}}})
  'simpler'
  """
  part = deciding_part(found)
  if part is None:
    return FIT
  part = found[part]
  bar = part[BY_POSITION]["log_likelihood"]
  return next((name for name in (FIT, SIMPLER)
               if name in part and part[name]["log_likelihood"] > bar), None)


def deciding_part(found):
  """The first part with clicks, or None: what `choose` looks at."""
  return next((part for part in PARTS
               if part in found and found[part]["num_clicks"]), None)


def warnings(found):
  """What speaks against a fit, for people.

  Args:
    found: what `compare` gave, or an empty dict for a method that predicts no
      clicks.

  Returns:
    A list of sentences, empty or with one.
  """
  part = deciding_part(found)
  if part is None or found["kept"] == FIT:
    return []
  values = found[part]
  text = (
      f"{found['method']} predicts the {values['num_clicks']} clicks of "
      f"{values['num_requests']} requests held out ({part}) no better than one "
      "click rate per position: their log-likelihood per item is "
      f"{values[FIT]['log_likelihood']:.4f}, and by the rates "
      f"{values[BY_POSITION]['log_likelihood']:.4f}.")
  if found["kept"] == SIMPLER:
    return [f"{text} The simplest hypothesis about the users "
            f"({values[SIMPLER]['log_likelihood']:.4f}) is taken instead."]
  return [f"{UNJUSTIFIED}: {text} Neither its curve nor its ranker is to be "
          "trusted."]


def sentence(found):
  """What speaks for a fit, or "" where nothing is known or nothing does."""
  part = deciding_part(found)
  if part is None or found["kept"] is None:
    return ""
  values = found[part]
  return (
      f"Of the {values['num_clicks']} clicks of {values['num_requests']} "
      f"requests held out ({part}) {found['method']} predicts more than one "
      "click rate per position does: log-likelihoods per item "
      f"{values[found['kept']]['log_likelihood']:.4f} and "
      f"{values[BY_POSITION]['log_likelihood']:.4f}.")


def to_rows(found):
  """What was found as the rows of a table.

  Args:
    found: what `compare` gave.

  Returns:
    Lists of texts, headings first.
  """
  parts = [part for part in PARTS if part in found]
  words = {ONE_RATE: "one click rate",
           BY_POSITION: "one click rate per position",
           FIT: found["method"],
           SIMPLER: f"{found['method']}, simplest hypothesis"}
  rows = [["log-likelihood of held-out items (perplexity)", *(
      f"{part}, {found[part]['num_clicks']} clicks" for part in parts)]]
  for name, text in words.items():
    if all(name in found[part] for part in parts):
      rows.append([text, *(
          "{log_likelihood:.4f} ({perplexity:.4f})".format(**found[part][name])
          for part in parts)])
  return rows
