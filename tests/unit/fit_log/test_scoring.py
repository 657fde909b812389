"""Tests of ultra_tfr.fit_log.scoring."""

import json
import types

import numpy as np
import pytest

from ultra_tfr import bias as bias_lib
from ultra_tfr.evaluation import counterfactual
from ultra_tfr.evaluation.counterfactual import LogTotals
from ultra_tfr.fit_log import scoring
from ultra_tfr.layers import PositionBias

P1 = np.array([[0.8, 0.4, 0.2], [0.9, 0.3, 0.1]])
P0 = np.array([[0.2, 0.1, 0.1], [0.0, 0.1, 0.05]])


def _bias(irrelevant=None):
  return bias_lib.Bias("unbiased", P1, irrelevant)


def _batch(feedback, positions, contexts, weights=None):
  feedback = np.array(feedback, np.float32)
  positions = np.array(positions)
  weights = (positions > 0) if weights is None else weights
  return types.SimpleNamespace(
      feedback=feedback, positions=positions, contexts=np.array(contexts),
      weights=np.array(weights, np.float32))


@pytest.mark.parametrize("irrelevant", [None, P0])
def test_values_by_position_and_context(irrelevant):
  positions = np.array([[3, 1, 2], [2, 3, 0]])
  contexts = np.array([[0, 0, 0], [1, 1, 0]])  # As padding has it.
  p1, p0, scale = _bias(irrelevant).at(positions, contexts)
  for i in np.ndindex(2, 3):
    c, k = contexts[i], max(positions[i] - 1, 0)
    assert p1[i] == P1[c, k]
    if irrelevant is None:
      assert p0 is None
      assert scale[i] == P1[c, 0]
    else:
      assert p0[i] == P0[c, k]
      assert scale[i] == P1[c, 0] - P0[c, 0]


def test_relative_is_1_at_the_first_position_of_each_context():
  np.testing.assert_allclose(
      _bias().relative(), [[1, .5, .25], [1, 1 / 3, 1 / 9]])


@pytest.mark.parametrize("trust", [None, "position", "pairwise"])
def test_round_trip_by_json(trust):
  layer = PositionBias(3, num_contexts=2, trust_bias=trust)
  bias = bias_lib.Bias.of_layer("name", layer)
  again = bias_lib.Bias.from_config(json.loads(json.dumps(bias.to_config())))
  assert again.method == "name"
  shapes = {"click_relevant": (2, 3)}
  if trust == "position":
    shapes["click_irrelevant"] = (2, 3)
  if trust == "pairwise":
    shapes.update(trust_positive=(2, 3, 3), trust_negative=(2, 3, 3))
  for name in ("click_relevant", "click_irrelevant", "trust_positive",
               "trust_negative"):
    value = getattr(bias, name)
    assert (value is not None) == (name in shapes)
    if value is not None:
      assert value.shape == shapes[name]
      assert value.dtype == getattr(again, name).dtype
      np.testing.assert_array_equal(value, getattr(again, name))


def test_a_layer_that_learns_does_not_change_the_bias():
  layer = PositionBias(2, trust_bias=None)
  bias = bias_lib.Bias.of_layer("name", layer)
  before = bias.click_relevant.copy()
  layer.examination.assign([[0.5, 0.25]])
  np.testing.assert_array_equal(bias.click_relevant, before)
  np.testing.assert_array_equal(
      bias_lib.Bias.of_layer("name", layer).click_relevant, [[0.5, 0.25]])


def test_click_probability():
  batch = _batch([[1, 0]], [[2, 3]], [[1, 1]])
  relevance = np.array([[0.5, 0.2]])
  np.testing.assert_allclose(
      scoring.click_probability(_bias(), relevance, batch), [[.15, .02]])
  np.testing.assert_allclose(
      scoring.click_probability(_bias(P0), relevance, batch),
      [[.3 * .5 + .1 * .5, .1 * .2 + .05 * .8]])


# Totals: one request, and the estimates of its items.

_SCORES = np.array([[1.0, 3.0, 2.0]])


def _dcg(estimates):
  """The sum over items of estimate by the discount of their ranks above."""
  return np.dot(estimates, 1 / np.log2([4, 2, 3]))


def _value(bias, batch, binary):
  totals = LogTotals(topn=(3,))
  scoring.add_totals(totals, _SCORES, batch, bias, binary)
  return counterfactual.summarize(totals).estimates["dcg@3"].value


@pytest.mark.parametrize("bias, binary, feedback, expected", [
    (None, True, [1, 0, 1], [1, 0, 1]),
    (_bias(), True, [1, 0, 1], [.8 / .2, 0, .8 / .4]),
    (_bias(P0), True, [1, 0, 1],
     [.6 * .9 / .1, .6 * -.2 / .6, .6 * .9 / .3]),
    # What an irrelevant item gets of graded feedback is not known.
    (_bias(P0), False, [2.5, 0, .5], [.8 / .2 * 2.5, 0, .8 / .4 * .5])])
def test_feedback_is_corrected(bias, binary, feedback, expected):
  batch = _batch([feedback], [[3, 1, 2]], [[0, 0, 0]])
  assert _value(bias, batch, binary) == pytest.approx(_dcg(expected), rel=1e-5)


def test_weights_count():
  batch = _batch([[1, 0, 1]], [[3, 1, 2]], [[0, 0, 0]], [[3, 1, 2]])
  # The request counts by the mean weight of its items.
  assert _value(_bias(), batch, True) == pytest.approx(
      _dcg([3 * 4, 0, 2 * 2]) / 2, rel=1e-5)


def test_an_item_of_weight_0_is_not_even_ranked():
  batch = _batch([[1, 1, 1]], [[3, 1, 2]], [[0, 0, 0]], [[1, 0, 1]])
  # Without the second, the others have the ranks 2 and 1.
  assert _value(_bias(), batch, True) == pytest.approx(
      4 / np.log2(3) + 2, rel=1e-5)


@pytest.mark.parametrize("table", [None, np.array([[0.2, 0.1, 0.0]])])
@pytest.mark.parametrize("binary, feedback", [
    (True, [1, 1, 0]), (False, [4, 2, 0])])
def test_a_model_stands_in_for_what_nobody_sees(binary, feedback, table):
  """Users stop at a click: below it a better ranker got no credit.

  Any feedback counts as one click, since only its chance is known by position.
  """
  bias = bias_lib.Bias("unbiased", np.array([[0.8, 0.4, 0.02]]), table)
  batch, clicks = (
      _batch([found, [0, 0, 0]], [[1, 2, 3], [1, 2, 0]],
             [[0, 0, 0], [0, 0, 0]], [[1, 2, 3], [1, 1, 0]])
      for found in (feedback, [1, 1, 0]))
  relevance = np.full([2, 3], 0.5, np.float32)
  plain, _ = scoring.debiased_feedback(clicks, bias, True)
  found, mask = scoring.debiased_feedback(batch, bias, binary, relevance)
  # Position 3 counts 20 times, not 40, so half of its scale is left.
  scale = 0.8 if table is None else 0.6
  plain[0, 2] = 3 * 0.5 * (scale - 20 * 0.02)
  np.testing.assert_allclose(found, plain, rtol=1e-6)
  assert mask.tolist() == [[True] * 3, [True, True, False]]
