"""Tests of ultra_tfr.fit_log.click_prediction."""

import dataclasses
import types

import numpy as np
import pytest

import click_logs
from ultra_tfr.bias import Bias
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import training

FIT, SIMPLER = click_prediction.FIT, click_prediction.SIMPLER
ONE_RATE, BY_POSITION = (
    click_prediction.ONE_RATE, click_prediction.BY_POSITION)


def _part(num_clicks=50, **likelihoods):
  return {"num_requests": 400, "num_clicks": num_clicks, **{
      name: {"log_likelihood": value, "perplexity": float(np.exp(-value))}
      for name, value in likelihoods.items()}}


def _found(**changes):
  parts = {"valid": _part(one_rate=-.21, rate_by_position=-.2, fit=-.1)}
  parts.update(changes)
  return {**parts, "kept": click_prediction.choose(parts),
          "method": "unbiased"}


# The choice.


@pytest.mark.parametrize("likelihoods, kept", [
    ({"fit": -.1}, FIT), ({"fit": -.3}, None), ({"fit": -.2}, None),
    ({"fit": -.3, "simpler": -.1}, SIMPLER), ({"fit": -.3, "simpler": -.2},
                                              None),
    ({"fit": -.19, "simpler": -.1}, FIT)])
def test_a_fit_must_beat_the_rate_by_position(likelihoods, kept):
  """Users got curves of fits that a click rate by position would have beaten.
  """
  found = _found(valid=_part(one_rate=-.4, rate_by_position=-.2, **likelihoods))
  assert found["kept"] == kept


def test_validation_decides_and_the_test_part_only_without_it():
  good, bad = (_part(rate_by_position=-.2, fit=value) for value in (-.1, -.3))
  choose = click_prediction.choose
  assert choose({"valid": bad, "test": good}) is None
  assert choose({"valid": good, "test": bad}) == FIT
  assert choose({"test": bad}) is None
  # Where nothing is held out, or no click is, nothing speaks against it.
  nothing = {**bad, "num_clicks": 0}
  assert choose({"valid": nothing, "test": bad}) is None
  assert choose({"valid": nothing}) == FIT == choose({})


# Words.


def test_what_is_said():
  good, simple, bad = (_found(valid=_part(
      rate_by_position=-.2, fit=fit, simpler=simpler)) for fit, simpler in (
          (-.1, -.3), (-.3, -.1), (-.3, -.4)))
  assert not click_prediction.warnings(good)
  assert "-0.1000 and -0.2000." in click_prediction.sentence(good)
  warning, = click_prediction.warnings(simple)
  assert "-0.3000, and by the rates -0.2000. The simplest hyp" in warning
  assert "-0.1000 and -0.2000." in click_prediction.sentence(simple)
  warning, = click_prediction.warnings(bad)
  assert warning.startswith("No debiasing is justified by this log: unbiased "
                            "predicts the 50 clicks of 400 requests held out ")
  assert not click_prediction.sentence(bad)
  assert not click_prediction.warnings({})
  assert not click_prediction.sentence({})


def test_all_three_are_in_the_table():
  rows = click_prediction.to_rows(_found(
      test=_part(7, one_rate=-.5, rate_by_position=-.4, fit=-.3)))
  assert rows == [
      ["log-likelihood of held-out items (perplexity)", "valid, 50 clicks",
       "test, 7 clicks"],
      ["one click rate", "-0.2100 (1.2337)", "-0.5000 (1.6487)"],
      ["one click rate per position", "-0.2000 (1.2214)", "-0.4000 (1.4918)"],
      ["unbiased", "-0.1000 (1.1052)", "-0.3000 (1.3499)"]]


# Rates.


def _lists(feedback, weights):
  """A part of a log with one batch, of positions from 1."""
  feedback, weights = np.array(feedback, np.float32), np.array(weights)
  positions = np.broadcast_to(np.arange(feedback.shape[1]) + 1, feedback.shape)
  batch = types.SimpleNamespace(
      feedback=feedback, weights=weights, positions=positions,
      contexts=np.zeros(feedback.shape, int))
  return types.SimpleNamespace(batches=lambda size: iter([batch, batch]))


def test_rows_count_by_weight_and_padding_does_not():
  lists = _lists([[1, 0], [0, -1], [3, 0]], [[6., 2.], [1., 0.], [0., 3.]])
  expected = np.array([[[1, 5]], [[6, 0]]]) * 4 / 12
  for most, times in ((1, 1), (None, 2)):
    np.testing.assert_allclose(
        click_prediction.click_counts(lists, 1, 2, most), times * expected)


def test_rates_of_many_rows_are_their_own():
  counts = np.array([[[1e6, 3e6, 0.]], [[1e6, 1e6, 0.]]])
  np.testing.assert_allclose(
      click_prediction.click_rates(counts), [[.5, .25, 1 / 3]], atol=1e-4)


# A fit.


def test_a_good_fit_predicts_more_than_rates():
  _, fitted = click_logs.easy()
  found = fitted.click_prediction
  assert found["kept"] == FIT and fitted.is_justified
  assert fitted.settled() is fitted
  for part in ("valid", "test"):
    values = [found[part][name]["log_likelihood"]
              for name in (ONE_RATE, BY_POSITION, FIT)]
    assert values == sorted(values)


def test_one_rate_by_hand():
  log, fitted = click_logs.easy()
  train, test = (
      np.concatenate([batch.feedback[batch.weights > 0] > 0 for batch in
                      log.parts[part].batches(1000)])
      for part in ("train", "test"))
  rate, share = train.mean(), test.mean()
  found = fitted.click_prediction["test"]
  assert found["num_clicks"] == test.sum()
  assert found["num_requests"] == len(log.parts["test"])
  assert found[ONE_RATE]["log_likelihood"] == pytest.approx(
      share * np.log(rate) + (1 - share) * np.log(1 - rate))


def test_an_absurd_curve_is_not_kept():
  """On few clicks EM found position 2 examined 747 times as often as 1."""
  log, fitted = click_logs.easy()
  size = fitted.bias.click_relevant.shape
  absurd = Bias("unbiased", np.broadcast_to(
      np.r_[.001, np.full(size[1] - 1, .747)], size))
  found = click_prediction.compare(log, fitted.model, {FIT: absurd})
  assert found["kept"] is None
  unjustified = dataclasses.replace(fitted, click_prediction=found)
  assert not unjustified.is_justified
  assert unjustified.settled() is unjustified
  found = click_prediction.compare(
      log, fitted.model, {FIT: absurd, SIMPLER: fitted.bias})
  settled = dataclasses.replace(
      fitted, bias=absurd, click_prediction=found, simpler=fitted.bias
  ).settled()
  assert settled.is_justified and settled.bias is fitted.bias


@pytest.mark.usefixtures("eagerly")
def test_the_ranker_without_debiasing_knows_why(tmp_path):
  fitted = training.FittedLog(
      None, None, {}, {}, {}, {"kept": None, "method": "unbiased",
                               "valid": _part(fit=-1.0)})
  with click_logs.read(click_logs.small(), columns=click_logs.columns(
      features=("f_0", "f_1"))) as log:
    plain = training.fit_without_debiasing(log, fitted, click_logs.SHORT)
  assert plain.bias is None and not plain.is_justified
  plain.save(str(tmp_path / "saved"))
  again = training.load(str(tmp_path / "saved"))
  assert again.click_prediction == fitted.click_prediction
  assert not again.is_justified
