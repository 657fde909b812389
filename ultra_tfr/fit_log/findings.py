"""A diagnosis in plain sentences, and when to be careful."""

import numpy as np

from ultra_tfr import logged_order
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import leaks

# From this rank correlation on, the order shown is nearly that of the learned
# relevance, and position and relevance cannot be told apart. In simulated logs
# of 3,000 to 40,000 requests it is 0.6 to 0.9 if they were ordered by
# relevance, 0.2 if by a weak ranker, 0.4 if each item has one place, and 0 in
# random order. EM is off by up to 0.13 in the first, by 0.03 in the others.
STRONG_LOGGER = 0.5
# Curves that differ by more than this at some position disagree.
DISAGREEMENT = 0.1
# A value is off by more than chance if it is so many times as far from the
# estimate as the end of the interval: a report has many intervals.
BEYOND = 2.0
# If the effective sample size is below this share of the clicks, few decide.
SMALL_SAMPLE = 0.1
# Hypotheses that are closer than this, in log-likelihood, are equally good.
UNDECIDED = 3.0
# Fewer clicks than this at a position: its rate is known to 30 % at best.
FEW_CLICKS = 30
# Fewer requests than this with rows both with and without feedback are too few.
# What a ranker is worth on n of them is known to about 0.5 / sqrt(n), so 3 %.
FEW_INFORMATIVE = 300
# Position 1 is no good reference if its clicks are a smaller share than this of
# those of the most clicked position.
POOR_REFERENCE = 0.05
# More contexts than this get one sentence together.
_MOST_CONTEXTS = 6
_MOST_COUNTS = 20
# The names of curves in sentences.
_NAMES = {"trained": "EM", "em": "EM on this log",
          "randomized": "the randomised rows", "all_pairs": "harvesting",
          "fixed": "the given curve"}


def explain(diagnosis, level):
  """What a diagnosis means.

  Args:
    diagnosis: a `fit_log.diagnosis.Diagnosis`.
    level: of its intervals.

  Returns:
    Two lists of sentences: findings, and warnings that debiasing may hurt.
  """
  sentences, warnings = [], []
  _about_clicks(diagnosis, sentences, warnings)
  _about_evidence(diagnosis, sentences, warnings)
  _about_features(diagnosis, warnings)
  _about_users(diagnosis, sentences)
  _about_curves(diagnosis, sentences, level)
  _about_convergence(diagnosis, sentences, warnings)
  if not diagnosis.is_own:
    _about_the_model(diagnosis, sentences, warnings)
  _about_swaps(diagnosis, sentences, warnings)
  _about_logger(diagnosis, sentences, warnings)
  _about_guard(diagnosis, sentences)
  _about_agreement(diagnosis, sentences, warnings)
  _about_limits(diagnosis, warnings)
  _about_the_ranker(diagnosis, sentences, warnings)
  _about_weights(diagnosis, sentences, warnings)
  if diagnosis.method is not None:
    _about_method(diagnosis, sentences)
  return sentences, warnings


def is_sufficient(diagnosis):
  """Whether there is enough to say that nothing speaks against debiasing.

  Args:
    diagnosis: a `fit_log.diagnosis.Diagnosis` with its warnings.
  """
  return (diagnosis.method is not None and not diagnosis.warnings and
          click_prediction.deciding_part(
              diagnosis.click_prediction) is not None)


def _about_evidence(diagnosis, sentences, warnings):
  if not diagnosis.evidence:
    return
  for name, clicked in diagnosis.evidence["clicked"].items():
    if len(diagnosis.contexts) <= _MOST_CONTEXTS:
      sentences.append(
          f"Rows with feedback{_where(diagnosis, name)}: {sum(clicked)} of "
          f"{sum(diagnosis.evidence['shown'][name])}, by position "
          f"{', '.join(map(str, clicked[:_MOST_COUNTS]))}"
          f"{', ..' if len(clicked) > _MOST_COUNTS else ''}.")
  informative = diagnosis.evidence["informative_requests"]
  sentences.append(
      f"Of {diagnosis.num_requests} requests {informative} have rows with and "
      "without feedback: only these tell a ranker which item is the better "
      "one.")
  if informative < FEW_INFORMATIVE:
    warnings.append(
        f"The clicks are too few for a ranker: {informative} requests have "
        "rows with and without feedback, and with fewer than "
        f"{FEW_INFORMATIVE} it learns mostly chance. Gather more before you "
        "serve one.")
  clicked, shown = ({name: np.array(counts) for name, counts in
                     diagnosis.evidence[key].items()}
                    for key in ("clicked", "shown"))
  if len(clicked) > _MOST_CONTEXTS:  # All of them together.
    clicked, shown = ({"": sum(counts.values())} for counts in (clicked, shown))
  for name in clicked:
    where = "" if len(clicked) == 1 else f" for {name!r}"
    _about_positions(
        diagnosis.positions, clicked[name], shown[name], where, warnings)


def _about_positions(positions, clicked, shown, where, warnings):
  """What rows at each position, `[K]` counts, cannot tell."""
  always = (clicked == shown) & (shown > 0)
  if always.any():
    warnings.append(
        f"All rows at {_ranges(positions, always)}{where} have feedback: such "
        "a rate says nothing of users; see whether rows without feedback are "
        "missing.")
  if (clicked > 0).sum() == 1:
    only = positions[int(np.argmax(clicked))]
    warnings.append(
        f"All feedback{where} is at position {only}: nothing can be said of "
        "the others. See whether `position` is where the item was shown.")
    return
  if clicked[0] < POOR_REFERENCE * clicked.max():
    better = positions[int(np.argmax(clicked >= 0.5 * clicked.max()))]
    warnings.append(
        f"All curves are relative to position {positions[0]}, which has "
        f"{clicked[0]} clicks in {shown[0]} rows{where}: too few for that. "
        f"Compare with position {better}, and leave stray rows at position "
        f"{positions[0]} out.")
  few = (clicked < FEW_CLICKS) & (shown > 0)
  if few.any():
    warnings.append(
        f"Fewer than {FEW_CLICKS} clicks at {_ranges(positions, few)}{where}: "
        "how often users look there is known to some 30 % at best, whatever "
        "the method.")


def _about_features(diagnosis, warnings):
  found = diagnosis.leaks
  for name, area in found.get("clicks", {}).items():
    warnings.append(
        f"The feature {name!r} alone tells rows with feedback from others "
        f"(area under the curve {area:.3f}): it may be known only after the "
        "click. Leave it out, or nothing here means anything.")
  for name, correlation in found.get("position", {}).items():
    warnings.append(
        f"The feature {name!r} is a copy of the position (rank correlation "
        f"{correlation:.3f}): what it explains is missing in the curves. Leave "
        "it out.")
  for name, requests in found.get("identifying", {}).items():
    warnings.append(
        f"The feature {name!r} nearly identifies the row: half of them have a "
        f"value that {requests:.0f} or fewer requests share, where "
        f"{leaks.FEW_REQUESTS} are few. Relevance is learned by heart from it "
        "and examination falls too little: leave it out.")


def _about_clicks(diagnosis, sentences, warnings):
  found = diagnosis.click_prediction
  warnings += click_prediction.warnings(found)
  part = click_prediction.deciding_part(found)
  if part is not None and found[part]["num_clicks"] < FEW_CLICKS:
    warnings.append(
        f"Only {found[part]['num_clicks']} clicks of "
        f"{found[part]['num_requests']} requests are held out ({part}): what "
        "they say of the fit, and which checkpoint is the best one, is mostly "
        "chance. Hold out more, by `valid`, or gather more.")
  sentences += filter(None, [click_prediction.sentence(found)])


def _about_users(diagnosis, sentences):
  if not diagnosis.hypotheses or (
      diagnosis.click_prediction.get("kept") == click_prediction.SIMPLER):
    return
  (_, first), (_, second), *_ = diagnosis.hypotheses.items()
  if second["behind"] < UNDECIDED:
    sentences.append(
        f"Whether {first['words']}, or {second['words']}, the feedback does "
        "not tell; the first is taken.")
    return
  sentences.append(
      f"Of {len(diagnosis.hypotheses)} hypotheses about the users, the "
      f"feedback speaks for this one: {first['words']}. The next one, that "
      f"{second['words']}, made it less likely by {second['behind']:.0f} (a "
      "difference of log-likelihoods; below 3 nothing would be decided).")


def _about_curves(diagnosis, sentences, level):
  first, deepest = diagnosis.positions[0], diagnosis.positions[-1]
  kinds = {name: diagnosis.headline(name) for name in diagnosis.contexts}
  ends = {name: diagnosis.contexts[name][kind]["value"][-1]
          for name, kind in kinds.items() if kind is not None}
  ends = {name: value for name, value in ends.items() if value is not None}
  if len(ends) > _MOST_CONTEXTS:
    ends = sorted(ends.items(), key=lambda pair: pair[1])
    (least, low), (most, high) = ends[0], ends[-1]
    sentences.append(
        f"Position {deepest} is examined {low:.0%} (for {least!r}) to "
        f"{high:.0%} (for {most!r}) as often as position {first}.")
  else:
    sentences += [
        f"Position {deepest} is examined {value:.0%} as often as position "
        f"{first}{_where(diagnosis, name)}"
        f"{_by(kinds[name], diagnosis.contexts[name], level)}."
        for name, value in ends.items()]
  if diagnosis.method is None:
    more = ": give `features` to train one"
    if not ends:
      sentences.append(
          f"How often position {deepest} is examined, compared with position "
          f"{first}, this log does not tell without a model"
          f"{'' if diagnosis.click_prediction else more}.")
    sentences.append(
        "Harvesting assumes that positions change how often items are "
        "examined, and not how far they are trusted.")
    return
  sentences.append(
      f"The {level:.0%} intervals of EM are sampling error only, given the "
      "relevance that the model learned; an error of that relevance is not in "
      "them. Harvesting needs no such model, but assumes that positions "
      "change how often items are examined, and not how far they are trusted.")


def _by(kind, curves, level):
  """What gave the last value of a curve, and its interval, in words."""
  curve = curves[kind]
  if curve["low"] is None:
    return ""
  low, high = ("?" if curve[end][-1] is None else f"{curve[end][-1]:.0%}"
               for end in ("low", "high"))
  return f" by {_NAMES[kind]} ({level:.0%} interval {low} to {high})"


def _about_the_model(diagnosis, sentences, warnings):
  """How far this log differs from the one that the model was trained on."""
  if diagnosis.method is None:
    return
  for name, curves in diagnosis.contexts.items():
    where = _where(diagnosis, name)
    gap, beyond = _difference(curves["trained"], curves["em"])
    if beyond.any():
      warnings.append(
          f"Examination{where} is not what the model was trained with: EM on "
          f"this log differs by up to {gap[beyond].max():.2f}, at "
          f"{_ranges(diagnosis.positions, beyond)}, and not by chance. Train "
          "on this log, if its feedback is what counts.")
    elif np.isfinite(gap[1:]).any():
      sentences.append(
          f"The curve that the model was trained with differs{where} from EM "
          f"on this log by at most {np.nanmax(gap):.2f}.")


def _about_convergence(diagnosis, sentences, warnings):
  """How far EM was from convergence when training ended."""
  for name, curves in diagnosis.contexts.items():
    if not diagnosis.is_own or "em" not in curves or "trained" not in curves:
      continue
    where = _where(diagnosis, name)
    at_end = diagnosis.at_end.get(name)
    if at_end is not None:
      _about_the_end(diagnosis, curves, at_end, where, sentences, warnings)
      continue
    gap, beyond = _difference(curves["trained"], curves["em"])
    if beyond.any():
      warnings.append(
          "EM had not converged: with relevance fixed it moves on by up to "
          f"{gap[beyond].max():.2f}{where}, at "
          f"{_ranges(diagnosis.positions, beyond)}, and not by chance. Take "
          "that curve, or train longer.")
    elif np.isfinite(gap[1:]).any():
      sentences.append(
          "EM run to convergence, with relevance fixed, differs from the curve "
          f"at the end of training{where} by at most {np.nanmax(gap):.2f}.")


def _about_the_end(diagnosis, curves, at_end, where, sentences, warnings):
  """How far the curve moved from the end of training to convergence."""
  moved = np.abs(np.array(at_end, np.float64) -
                 np.array(curves["trained"]["value"], np.float64))
  _, beyond = _difference({"value": at_end}, curves["em"])
  beyond &= moved > DISAGREEMENT
  if beyond.any():
    warnings.append(
        "EM had not converged when training ended: run on with relevance "
        f"fixed, it moved the curve by up to {moved[beyond].max():.2f}{where}, "
        f"at {_ranges(diagnosis.positions, beyond)}, and not by chance. That "
        "curve is used, but relevance was learned beside the other one: train "
        "longer.")
  elif np.isfinite(moved[1:]).any():
    sentences.append(
        "EM was run to convergence after training, with relevance fixed, which "
        f"moved the curve{where} by at most {np.nanmax(moved):.2f}.")


def _about_swaps(diagnosis, sentences, warnings):
  positions = diagnosis.positions
  rests = "is not known" if diagnosis.method is None else (
      "rests on the model alone")
  if diagnosis.swap_counts is None:
    sentences.append(
        "Items are not identified (no `item` column), so it cannot be seen "
        "whether they change positions, nor can examination be harvested.")
    return
  if not np.any(diagnosis.swap_counts):
    warnings.append(
        "No item was shown at two positions: relevance and examination cannot "
        f"be told apart by the log, and the curve {rests}. "
        "Randomise a small share of the traffic, or take a known curve.")
    return
  apart = diagnosis.components != diagnosis.components[0]
  if np.any(apart):
    warnings.append(
        f"No chain of items that changed positions leads from position "
        f"{positions[0]} to {_ranges(positions, apart)}: their examination "
        f"relative to the others {rests}.")
  few = (diagnosis.num_swap_clicks < FEW_CLICKS) & ~apart
  if few.any():
    sentences.append(_about_few(
        _ranges(positions, few), few.sum() == 1, diagnosis.num_swap_clicks[few],
        "says little" if diagnosis.method is None else "rests on the model"))
  elif not np.any(apart):
    least = int(diagnosis.num_swap_clicks.min())
    checked = "checked without the model"
    sentences.append(
        f"At each position at least {least} clicks are on items that also "
        "appear elsewhere, so examination can be "
        f"{'harvested' if diagnosis.method is None else checked}.")


def _about_few(where, is_one, counts, then):
  low, high = counts.min(), counts.max()
  number = f"{low}" if low == high else f"{low} to {high}"
  clicks = "click" if high == 1 else "clicks"
  return (f"{where[0].upper()}{where[1:]} {'has' if is_one else 'have'} "
          f"{number} {clicks} on items that also appear elsewhere: the "
          f"estimate there {then}.")


def _about_logger(diagnosis, sentences, warnings):
  value = diagnosis.logger_strength.get("value")
  if value is None or not np.isfinite(value):
    return
  text = (f"The order shown agrees with the learned relevance to {value:.2f} "
          "(rank correlation within requests; 1 is the same order, 0 none).")
  if value < STRONG_LOGGER:
    sentences.append(text)
    return
  warnings.append(
      f"{text} So close to it, what stands high is what is relevant: debiasing "
      "has little to gain and may hurt. Compare with 'naive-pairwise' by "
      "`ultra-tfr evaluate-log`, or online.")


def _about_guard(diagnosis, sentences):
  weights = diagnosis.history.get("logged_order_weight")
  leads = diagnosis.history.get("val_lead")
  if not weights or not leads or None in (leads[-1], *weights):
    return
  # The last value came after the last step.
  weight = [logged_order.INITIAL_WEIGHT, *weights][-2]
  sentences.append(
      "At the end of training the ranker's SNIPS DCG@10 on held-out requests, "
      "any feedback counting as one click, was "
      f"{abs(leads[-1]):.3f} {'above' if leads[-1] > 0 else 'below'} that of "
      "the order shown. It learned from feedback as it is, which keeps to that "
      f"order, with the weight {weight:.2g}, where debiased feedback counts 1; "
      "the weight falls while the ranker, or the model's relevance, is clearly "
      "ahead.")


def _about_agreement(diagnosis, sentences, warnings):
  for name, curves in diagnosis.contexts.items():
    where, own = _where(diagnosis, name), diagnosis.headline(name)
    for kind in ("randomized", "all_pairs"):
      if kind not in curves or own in (None, kind):
        continue
      what = _NAMES[kind]
      subject = _NAMES[
          "fixed" if own == "trained" and diagnosis.fixed_to else own]
      subject = subject[0].upper() + subject[1:]
      gap, beyond = _difference(curves[own], curves[kind])
      if beyond.any():
        warnings.append(
            f"{subject} and {what} disagree{where} by up to "
            f"{gap[beyond].max():.2f}, at "
            f"{_ranges(diagnosis.positions, beyond)}, and not by chance: "
            f"trust {_NAMES[own] if own == 'randomized' else what} there.")
      elif np.isfinite(gap[1:]).any():
        largest = np.nanmax(gap)
        end = ", but by no more than chance allows" if (
            largest > DISAGREEMENT) else ""
        sentences.append(
            f"{subject} and {what} differ{where} by at most {largest:.2f}{end}."
        )


def _difference(curve, other):
  """The gap at each position, and where it is large and no chance."""
  value, theirs, low, high = (
      np.array(values, np.float64) for values in (
          curve["value"], other["value"], other["low"], other["high"]))
  end = np.where(value < theirs, low, high)  # NaN says nothing.
  gap = np.abs(value - theirs)
  return gap, (gap > DISAGREEMENT) & (gap > BEYOND * np.abs(end - theirs))


def _about_limits(diagnosis, warnings):
  for name, positions in diagnosis.at_limits.items():
    if np.any(positions):
      warnings.append(
          f"EM is at the floor or the cap of what it may find at "
          f"{_ranges(diagnosis.positions, positions)}"
          f"{_where(diagnosis, name)}: the value there is "
          "that limit, and no estimate.")


def _about_the_ranker(diagnosis, sentences, warnings):
  for name, entry in diagnosis.evaluation.items():
    difference = entry.get("minus_logged", {}).get("snips_dcg@10")
    if difference is None or None in (
        difference[end] for end in ("value", "low", "high")):
      continue
    text = (f"On held-out requests {name} is "
            f"{abs(difference['value']):.3f} "
            f"{'below' if difference['value'] < 0 else 'above'} the order "
            f"shown (SNIPS DCG@10, interval {difference['low']:+.3f} to "
            f"{difference['high']:+.3f})")
    if difference["high"] < 0:
      warnings.append(f"{text}: serve it only where the order shown cannot be "
                      "had.")
    else:
      sentences.append(f"{text}.")


def _about_weights(diagnosis, sentences, warnings):
  clicks = diagnosis.num_items_clicked
  if not clicks:
    warnings.append("There is no feedback in the log: nothing can be learned.")
    return
  if diagnosis.effective_sample_size is None:
    return
  share = diagnosis.effective_sample_size / clicks
  text = (f"Weighted by inverse propensities, the {clicks} items with feedback "
          f"count as {diagnosis.effective_sample_size:.0f}.")
  if share < SMALL_SAMPLE:
    warnings.append(f"{text} Few of them decide: clip weights, or show deep "
                    "positions more often.")
  else:
    sentences.append(text)
  if diagnosis.weight_clipped:
    sentences.append(f"{diagnosis.weight_clipped:.1%} of the pair weight was "
                     "clipped at the end of training.")


def _about_method(diagnosis, sentences):
  if diagnosis.fixed_to is None:
    sentences.append(
        f"The bias was estimated by the method {diagnosis.method}.")
  else:
    sentences.append(
        "The examination was not estimated: the model was trained with that "
        f"of {diagnosis.fixed_to}, by the method {diagnosis.method}.")
  shares = diagnosis.click_irrelevant
  if not shares or len(shares) > _MOST_CONTEXTS:
    return
  first, deepest = diagnosis.positions[0], diagnosis.positions[-1]
  sentences += [
      f"By it an irrelevant item that is seen is clicked {share[0]:.0%} as "
      f"often as a relevant one at position {first}, and {share[-1]:.0%} at "
      f"position {deepest}{_where(diagnosis, name)}."
      for name, share in shares.items()]
  sentences[-1] += (" A large share at the top alone means that users trust "
                    "what stands high.")


def _where(diagnosis, name):
  """The context in a sentence, where there is more than one."""
  return "" if len(diagnosis.contexts) == 1 else f" for {name!r}"


def _ranges(positions, chosen):
  """Position names in words, neighbours joined.

  >>> _ranges([1, 2, 3, 5], np.array([True, True, True, False]))
  'positions 1-3'
  """
  index = np.flatnonzero(chosen)
  runs = np.split(index, np.flatnonzero(np.diff(index) > 1) + 1)
  names = [str(positions[run[0]]) if len(run) == 1 else
           f"{positions[run[0]]}-{positions[run[-1]]}" for run in runs]
  word = "position" if len(index) == 1 else "positions"
  return f"{word} {', '.join(names)}"
