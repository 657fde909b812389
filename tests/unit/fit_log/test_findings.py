"""Tests of ultra_tfr.fit_log.findings."""

import types

import numpy as np
import pytest

from ultra_tfr.fit_log import findings
from ultra_tfr.fit_log.diagnosis import Diagnosis

CURVE = [1.0, 0.8, 0.5, 0.2]


def _curve(value, half_width=0.02):
  value = np.array(value, np.float64)
  ends = {"low": value - half_width, "high": value + half_width}
  return {"value": value.tolist(),
          **{name: [None if np.isnan(v) else v for v in end.tolist()]
             for name, end in ends.items()}}


def _trained(value=CURVE):
  return {"value": list(value), "low": None, "high": None}


def _explain(contexts=None, level=0.9, **changes):
  fields = {
      "method": "unbiased-ipw",
      "positions": [1, 2, 3, 5],
      "contexts": contexts or {"all": {"trained": _trained()}},
      "swap_counts": np.full((4, 4), 100), "num_items": np.full(4, 900),
      "num_swap_clicks": np.full(4, 150),
      "components": np.zeros(4, int),
      "logger_strength": {"value": 0.2, "low": 0.1, "high": 0.3}, "trust": {},
      "click_irrelevant": {}, "history": {}, "num_requests": 1000,
      "num_items_clicked": 500, "effective_sample_size": 200.0,
      "weight_clipped": None, "sentences": [], "warnings": [],
      "click_prediction": {}, "leaks": {}, "at_limits": {},
      "evaluation": {}}
  assert set(changes) <= {*fields, "evidence", "is_own", "at_end"}
  return findings.explain(Diagnosis(**{**fields, **changes}), level)


def _has(texts, *parts):
  return sum(all(part in text for part in parts) for text in texts) == 1


def test_nothing_to_warn_of():
  sentences, warnings = _explain()
  assert not warnings
  assert sentences == [
      "Position 5 is examined 20% as often as position 1.",
      "The 90% intervals of EM are sampling error only, given the relevance "
      "that the model learned; an error of that relevance is not in them. "
      "Harvesting needs no such model, but assumes that positions change how "
      "often items are examined, and not how far they are trusted.",
      "At each position at least 150 clicks are on items that also appear "
      "elsewhere, so examination can be checked without the model.",
      "The order shown agrees with the learned relevance to 0.20 (rank "
      "correlation within requests; 1 is the same order, 0 none).",
      "Weighted by inverse propensities, the 500 items with feedback count as "
      "200.", "The bias was estimated by the method unbiased-ipw."]


def test_trust_is_told():
  sentences, _ = _explain(
      method="unbiased-trust",
      click_irrelevant={"all": np.array([0.64, 0.3, 0.2, 0.04])})
  assert sentences[-2:] == [
      "The bias was estimated by the method unbiased-trust.",
      "By it an irrelevant item that is seen is clicked 64% as often as a "
      "relevant one at position 1, and 4% at position 5. A large share at the "
      "top alone means that users trust what stands high."]


def test_the_level_is_told():
  assert _has(_explain(level=0.5)[0], "The 50% intervals of EM")


@pytest.mark.parametrize("count", [2, 6, 7, 50])
def test_contexts(count):
  contexts = {f"c{i}": {"trained": _trained([1, .8, .5, .1 + .01 * i])}
              for i in range(count)}
  sentences, _ = _explain(contexts)
  if count <= 6:
    for i in range(count):
      assert _has(sentences, f"Position 5 is examined {10 + i}% as often as "
                  f"position 1 for 'c{i}'.")
  else:
    assert _has(sentences, "Position 5 is examined 10% (for 'c0') to "
                f"{9 + count}% (for 'c{count - 1}') as often as position 1.")
  assert len([text for text in sentences if "is examined" in text]) == (
      count if count <= 6 else 1)


def test_how_far_training_left_em_from_its_end_is_told():
  """Of the same log a report said 1.64 in front and 1.04 further down."""
  sentences, warnings = _explain(
      {"all": {"trained": _trained(), "em": _curve([1, .75, .5, .2])}})
  assert not warnings
  assert _has(sentences, "EM run to convergence",
              "the end of training by at most 0.05.")
  _, warnings = _explain(
      {"all": {"trained": _trained(), "em": _curve([1, .8, .2, .2])}})
  assert len(warnings) == 1
  assert _has(warnings, "EM had not converged", "0.30, at position 3")


def test_how_far_em_moved_after_training_is_told():
  """The curve at the end of training was used, the converged one shown."""
  contexts = {"all": {"trained": _trained(), "em": _curve(CURVE)}}
  sentences, warnings = _explain(contexts, at_end={"all": [1, .83, .5, .2]})
  assert not warnings
  assert _has(sentences, "EM was run to convergence after training, with "
              "relevance fixed, which moved the curve by at most 0.03.")
  _, warnings = _explain(contexts, at_end={"all": [1, .8, .2, .2]})
  assert len(warnings) == 1
  assert _has(warnings, "EM had not converged when training ended",
              "moved the curve by up to 0.30, at position 3",
              "That curve is used")


# Held-out clicks.


def _clicks(kept, fit=-.3):
  return {"kept": kept, "method": "unbiased", "valid": {
      "num_requests": 9, "num_clicks": 40, **{
          name: {"log_likelihood": value} for name, value in (
              ("rate_by_position", -.2), ("fit", fit), ("simpler", -.1))}}}


@pytest.mark.parametrize("kept, words", [
    (None, "No debiasing is justified by this log"),
    ("simpler", "The simplest hypothesis about the users (-0.1000) is taken")])
def test_what_predicts_clicks_no_better_than_rates_is_warned_of(kept, words):
  _, warnings = _explain(click_prediction=_clicks(kept))
  assert len(warnings) == 1 and words in warnings[0]
  sentences, warnings = _explain(click_prediction=_clicks("fit", -.05))
  assert not warnings
  assert _has(sentences, "predicts more than one click rate per position does")


# Evidence.


def _evidence(clicked, shown=None, informative=500):
  return {"clicked": {"all": list(clicked)},
          "shown": {"all": list(shown or [10000] * len(clicked))},
          "informative_requests": informative}


def test_enough_evidence_is_no_warning():
  _, warnings = _explain(evidence=_evidence([900, 400, 200, 31]))
  assert not warnings


@pytest.mark.parametrize("informative, few", [(299, True), (300, False)])
def test_clicks_that_are_too_few_for_a_ranker(informative, few):
  """From 92 clicks a ranker was exported without a word."""
  _, warnings = _explain(evidence=_evidence([900] * 4, None, informative))
  assert len(warnings) == few
  assert _has(warnings, "too few for a ranker: 299 requests have rows") == few


@pytest.mark.parametrize("clicked, where", [
    ([900, 29, 12, 30], "positions 2-3"), ([900, 400, 200, 0], "position 5")])
def test_positions_with_few_clicks(clicked, where):
  _, warnings = _explain(evidence=_evidence(clicked))
  assert len(warnings) == 1
  assert _has(warnings, f"Fewer than 30 clicks at {where}: how often")


def test_a_position_that_was_never_shown_has_no_few_clicks():
  assert not _explain(evidence=_evidence(
      [900, 400, 200, 0], [9000, 9000, 9000, 0]))[1]


def test_all_clicks_at_one_position():
  """All clicks at position 1 passed as 'nothing speaks against debiasing'."""
  _, warnings = _explain(evidence=_evidence([900, 0, 0, 0]))
  assert len(warnings) == 1
  assert _has(warnings, "All feedback is at position 1: nothing can be said")


def test_a_click_rate_of_one():
  _, warnings = _explain(evidence=_evidence(
      [400, 500, 300, 200], [9000, 500, 9000, 9000]))
  assert len(warnings) == 1
  assert _has(warnings, "All rows at position 2 have feedback")


@pytest.mark.parametrize("clicked, poor", [
    ([2, 900, 400, 200], True), ([45, 900, 400, 200], False)])
def test_stray_rows_at_the_first_position(clicked, poor):
  """Three rows at a position 0, to which every curve then was relative."""
  _, warnings = _explain(evidence=_evidence(clicked, [3, 9000, 9000, 9000] if
                                            poor else None))
  assert _has(warnings, "relative to position 1, which has 2 clicks in 3 rows: "
              "too few for that. Compare with position 2") == poor
  assert len(warnings) == 2 * poor


def test_positions_of_many_contexts_are_one_warning():
  contexts = {f"c{i}": {"trained": _trained()} for i in range(7)}
  evidence = {"clicked": {name: [90, 40, 20, 3] for name in contexts},
              "shown": {name: [900] * 4 for name in contexts},
              "informative_requests": 500}
  _, warnings = _explain(contexts, evidence=evidence)
  assert len(warnings) == 1 and _has(warnings, "clicks at position 5: how")


# Features.


@pytest.mark.parametrize("kind, words", [
    ("clicks", ("'dwell' alone tells rows", ".998): it may be known only af")),
    ("position", ("'dwell' is a copy of the position", "0.998")),
    ("identifying", ("'dwell' nearly identifies the row", "1 or fewer"))])
def test_features_that_give_the_answer_away(kind, words):
  nothing = {"clicks": {}, "position": {}, "identifying": {}}
  assert not _explain(leaks=nothing)[1]
  _, warnings = _explain(leaks={**nothing, kind: {"dwell": 0.998}})
  assert len(warnings) == 1 and _has(warnings, *words)


# EM and the ranker.


def test_em_at_its_floor_or_cap():
  _, warnings = _explain(at_limits={"all": [False, False, True, True]})
  assert len(warnings) == 1
  assert _has(warnings, "at the floor or the cap", "at positions 3-5: the")
  assert not _explain(at_limits={"all": [False] * 4})[1]


@pytest.mark.parametrize("value, low, high, is_worse", [
    (-.2, -.3, -.1, True), (-.2, -.5, .1, False), (.2, .1, .3, False)])
def test_a_ranker_below_the_order_shown(value, low, high, is_worse):
  """A ranker worse than the order shown got a green box."""
  evaluation = {"logged order": {}, "unbiased": {"minus_logged": {
      "snips_dcg@10": {"value": value, "low": low, "high": high}}}}
  sentences, warnings = _explain(evaluation=evaluation)
  side = "below" if value < 0 else "above"
  assert _has(warnings if is_worse else sentences,
              f"unbiased is 0.200 {side} the order shown")
  assert len(warnings) == is_worse


@pytest.mark.parametrize("low", [None, .1])
def test_a_ranker_that_cannot_be_judged(low):
  estimate = {"value": None, "low": low, "high": None}
  sentences, warnings = _explain(evaluation={"unbiased": {"minus_logged": {
      "snips_dcg@10": estimate}}})
  assert not any("order shown (SNIPS" in text for text in sentences + warnings)


@pytest.mark.parametrize("num_clicks, few", [(29, True), (30, False)])
def test_too_few_held_out_clicks(num_clicks, few):
  """Ten requests of validation were enough for a green box."""
  found = _clicks("fit", -.05)
  found["valid"]["num_clicks"] = num_clicks
  _, warnings = _explain(click_prediction=found)
  assert len(warnings) == few
  assert _has(warnings, "Only 29 clicks of 9 requests are held out") == few


def _is_sufficient(**changes):
  fields = {"method": "unbiased", "warnings": [],
            "click_prediction": _clicks("fit")}
  return findings.is_sufficient(types.SimpleNamespace(**{**fields, **changes}))


def test_green_needs_a_model_no_warning_and_held_out_clicks():
  assert _is_sufficient()
  assert not _is_sufficient(method=None)
  assert not _is_sufficient(warnings=["Beware."])
  assert not _is_sufficient(click_prediction={})


# Swaps.


def test_no_items():
  sentences, warnings = _explain(
      swap_counts=None, num_items=None, num_swap_clicks=None, components=None)
  assert not warnings
  assert _has(sentences, "no `item` column", "cannot be seen")


def test_no_swaps():
  sentences, warnings = _explain(
      swap_counts=np.zeros((4, 4), int), num_swap_clicks=np.zeros(4, int),
      components=np.arange(4))
  assert len(warnings) == 1
  assert _has(warnings, "No item was shown at two positions", "model alone")
  assert not any("elsewhere" in text for text in sentences)


@pytest.mark.parametrize("components, where", [
    ([0, 0, 1, 1], "positions 3-5"), ([0, 0, 0, 1], "position 5"),
    ([0, 1, 0, 2], "positions 2, 5")])
def test_positions_apart(components, where):
  sentences, warnings = _explain(components=np.array(components))
  assert len(warnings) == 1
  assert _has(warnings, f"leads from position 1 to {where}: their examination")
  assert not any("At each position" in text for text in sentences)


@pytest.mark.parametrize("clicks, expected", [
    ([12, 12, 150, 12], "Positions 1-2, 5 have 12 clicks on items that "
     "also appear elsewhere: the estimate there rests on the model."),
    ([150, 150, 3, 29], "Positions 3-5 have 3 to 29 clicks on items that "
     "also appear elsewhere: the estimate there rests on the model."),
    ([30, 30, 30, 1], "Position 5 has 1 click on items that also appear "
     "elsewhere: the estimate there rests on the model."),
    ([30, 31, 32, 33], "At each position at least 30 clicks are on items that "
     "also appear elsewhere, so examination can be checked without the "
     "model.")])
def test_few_clicks_on_items_that_move(clicks, expected):
  """Many items with hardly a click were called enough to harvest."""
  sentences, warnings = _explain(num_swap_clicks=np.array(clicks))
  assert not warnings
  assert [text for text in sentences if "elsewhere" in text] == [expected]


def test_positions_apart_are_not_called_few():
  sentences, _ = _explain(components=np.array([0, 0, 1, 1]),
                          num_swap_clicks=np.array([50, 9, 5, 5]))
  assert [text for text in sentences if "elsewhere" in text] == [
      "Position 2 has 9 clicks on items that also appear elsewhere: the "
      "estimate there rests on the model."]


def test_names_of_slots():
  sentences, _ = _explain(positions=["Top", "main-1", "main-2", "side"],
                          num_swap_clicks=np.array([150, 5, 5, 150]))
  assert _has(sentences, "Position side is examined 20% as often as position "
              "Top.")
  assert _has(sentences, "Positions main-1-main-2 have 5 clicks on")


# The logger.


@pytest.mark.parametrize("value, is_strong", [
    (findings.STRONG_LOGGER, True), (findings.STRONG_LOGGER - .01, False),
    (1.0, True), (-0.8, False)])
def test_strong_logger(value, is_strong):
  sentences, warnings = _explain(logger_strength={
      "value": value, "low": value, "high": value})
  assert _has(warnings if is_strong else sentences,
              f"agrees with the learned relevance to {value:.2f}")
  assert _has(warnings, "may hurt", "naive-pairwise") == is_strong


def test_strength_that_is_not_known():
  sentences, warnings = _explain(
      logger_strength={"value": float("nan"), "low": None, "high": None})
  assert not any("agrees" in text for text in sentences + warnings)


# The guard.


@pytest.mark.parametrize("weights, lead, parts", [
    ([2.0, 4.0, 2.0], -0.0124, (
        "0.012 below that of the order shown. It learned from feedback as it "
        "is, which keeps to that order, with the weight 4, where",)),
    # The only weight that any step had is the first one.
    ([0.0625], 0.003, ("0.003 above", "with the weight 0.25,")),
    ([0.03125, 0.015625], 0.09, ("0.090 above", "the weight 0.031,"))])
def test_whether_the_order_shown_was_followed(weights, lead, parts):
  sentences, warnings = _explain(history={
      "logged_order_weight": weights, "val_lead": [-0.1, lead]})
  assert _has(sentences, *parts)
  assert not warnings


@pytest.mark.parametrize("history", [
    {}, {"logged_order_weight": [0.25], "val_lead": [None]}])
def test_nothing_was_held_out_or_there_is_no_guard(history):
  sentences, _ = _explain(history=history)
  assert not any("learned that order" in text for text in sentences)


# Agreement.


@pytest.mark.parametrize("kind, what", [
    ("randomized", "the randomised rows"), ("all_pairs", "harvesting")])
def test_agreement(kind, what):
  def explain(value, half_width):
    return _explain({"all": {"trained": _trained(),
                             kind: _curve(value, half_width)}})

  sentences, warnings = explain([1, .75, .58, .2], 0.01)
  assert not warnings
  assert _has(sentences, f"EM and {what} differ by at most 0.08.")
  # Beyond the limit, but the intervals are wide.
  sentences, warnings = explain([1, .8, .5, .5], 0.2)
  assert not warnings
  assert _has(sentences, f"EM and {what} differ by at most 0.30, but by no "
              "more than chance allows.")
  # And narrow; the other gap is none.
  sentences, warnings = explain([1, .6, .35, .2], [0, .2, .05, .05])
  assert warnings == [
      f"EM and {what} disagree by up to 0.15, at position 3, and not by "
      f"chance: trust {what} there."]
  assert not any("differ" in text for text in sentences)


def test_disagreement_of_one_context():
  contexts = {"a": {"trained": _trained(), "all_pairs": _curve(CURVE)},
              "b": {"trained": _trained(), "all_pairs": _curve([1, 1, 1, 1])}}
  sentences, warnings = _explain(contexts)
  assert _has(sentences, "EM and harvesting differ for 'a' by at most 0.00.")
  assert _has(warnings, "EM and harvesting disagree for 'b' by up to 0.80, at "
              "positions 2-5")


@pytest.mark.parametrize("missing", ["low", "high"])
def test_an_unknown_end_is_no_disagreement(missing):
  curve = _curve([1, .8, .5, .6 if missing == "low" else .05])
  curve[missing] = [None] * 4
  assert not _explain(
      {"all": {"trained": _trained(), "all_pairs": curve}})[1]


def test_nothing_to_agree_with():
  curve = {"value": [1.0, None, None, None], "low": [None] * 4,
           "high": [None] * 4}
  sentences, warnings = _explain(
      {"all": {"trained": _trained(), "all_pairs": curve}})
  assert not warnings
  assert not any("differ" in text for text in sentences)


# Weights.


def test_weights():
  sentences, warnings = _explain(effective_sample_size=49.0)
  assert _has(warnings, "the 500 items with feedback count as 49. Few of them "
              "decide")
  sentences, warnings = _explain(effective_sample_size=51.0,
                                 weight_clipped=0.25)
  assert not warnings
  assert _has(sentences, "25.0% of the pair weight was clipped")


def test_no_feedback():
  _, warnings = _explain(num_items_clicked=0, effective_sample_size=0.0)
  assert warnings == [
      "There is no feedback in the log: nothing can be learned."]


# Evidence.


def test_evidence_is_counted():
  """Shares of three decimals said nothing of 30 clicks."""
  sentences, _ = _explain(evidence={
      "shown": {"all": [90, 80, 70, 60]}, "clicked": {"all": [9, 8, 0, 1]},
      "informative_requests": 11})
  assert sentences[:2] == [
      "Rows with feedback: 18 of 300, by position 9, 8, 0, 1.",
      "Of 1000 requests 11 have rows with and without feedback: only these "
      "tell a ranker which item is the better one."]


# Another log than that of the model.


def _explain_other(own, other, **changes):
  return _explain({"all": {"trained": _trained(own), "em": _curve(other)}},
                  is_own=False, **changes)


def test_another_log_is_spoken_of_by_its_own_curve():
  sentences, warnings = _explain_other(CURVE, [1.0, 0.82, 0.45, 0.25])
  assert not warnings
  assert _has(sentences, "Position 5 is examined 25% as often as position 1 by "
              "EM on this log (90% interval 23% to 27%).")
  assert _has(sentences, "the model was trained with differs from EM on this "
              "log by at most 0.05.")


def test_a_log_that_is_not_what_the_model_was_trained_with():
  _, warnings = _explain_other(CURVE, [1.0, 0.8, 0.9, 0.6])
  assert len(warnings) == 1
  assert _has(warnings, "differs by up to 0.40, at positions 3-5, and not by "
              "chance. Train on this log")


# No model.


_NO_MODEL = {"method": None, "is_own": False, "logger_strength": {},
             "effective_sample_size": None}


def test_what_is_told_without_a_model():
  sentences, warnings = _explain(
      {"all": {"all_pairs": _curve([1, .8, .5, .25])}}, **_NO_MODEL)
  assert not warnings
  assert sentences == [
      "Position 5 is examined 25% as often as position 1 by harvesting (90% "
      "interval 23% to 27%).",
      "Harvesting assumes that positions change how often items are examined, "
      "and not how far they are trusted.",
      "At each position at least 150 clicks are on items that also appear "
      "elsewhere, so examination can be harvested."]


def test_randomised_rows_and_harvesting_are_compared_without_a_model():
  def explain(value):
    return _explain({"all": {"all_pairs": _curve(value),
                             "randomized": _curve(CURVE)}}, **_NO_MODEL)

  assert _has(explain(CURVE)[0], "The randomised rows and harvesting differ by "
              "at most 0.00.")
  assert _has(explain([1, .8, .9, .2])[1], "The randomised rows and harvesting "
              "disagree by up to 0.40, at position 3, and not by chance: trust "
              "the randomised rows there.")


def test_a_log_that_tells_nothing_without_a_model():
  curve = {"value": [1.0, None, None, None], "low": [None] * 4,
           "high": [None] * 4}
  sentences, warnings = _explain(
      {"all": {"all_pairs": curve}}, swap_counts=np.zeros((4, 4), int),
      num_swap_clicks=np.zeros(4, int), components=np.arange(4), **_NO_MODEL)
  assert _has(sentences, "this log does not tell without a model")
  assert _has(warnings, "the curve is not known")
  assert not any("rests on the model" in text for text in sentences + warnings)
