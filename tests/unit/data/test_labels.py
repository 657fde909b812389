"""Tests of ultra_tfr.data.labels."""

import json

import numpy as np
import pytest

from ultra_tfr.data import labels

_ACTIONS = {
    "click": np.array([[1, 0, 1], [0, 1, 1]]),
    "dwell": np.array([[4., 0., 9.], [0., np.nan, 16.]]),
}


def test_weighted_sum():
  result = labels.weighted_sum(_ACTIONS, {"click": 2., "dwell": .5})
  assert result.dtype == np.float32
  assert result.tolist() == [[4, 0, 6.5], [0, -1, 10]]


def test_weighted_product():
  result = labels.weighted_product(_ACTIONS, {"click": 1, "dwell": .5})
  assert result.tolist() == [[2, 0, 3], [0, -1, 4]]


def test_actions_without_a_weight_are_not_used():
  result = labels.weighted_sum(_ACTIONS, {"click": 1.})
  assert result.tolist() == [[1, 0, 1], [0, 1, 1]]


def test_from_function():
  seen = {}

  def function(actions):
    seen.update(actions)
    return actions["click"] + (actions["dwell"] > 5.)

  result = labels.from_function(_ACTIONS, function)
  assert result.tolist() == [[1, 0, 2], [0, -1, 2]]
  assert seen["dwell"][1, 1] == 0.


def test_dwell_of_any_unit_may_be_skewed_or_missing():
  """Users' dwell is in seconds or milliseconds, up to hours, or missing.

  A missing time is masked, and what cannot be a time is an error by name.
  """
  dwell = np.array([0., 1500., 2000000., np.nan])
  in_ms = labels.weighted_sum({"dwell": dwell}, {"dwell": 1.})
  in_s = labels.weighted_sum({"dwell": dwell / 1000.}, {"dwell": 1.})
  assert in_ms.tolist() == [0, 1500, 2000000, -1]
  assert np.argsort(in_ms).tolist() == np.argsort(in_s).tolist()
  synthesis = labels.LabelSynthesis(
      "weighted_sum", {"dwell": 1.}, transforms={"dwell": "log1p"})
  np.testing.assert_allclose(
      synthesis({"dwell": dwell}), [0, np.log1p(1500), np.log1p(2e6), -1],
      rtol=1e-6)
  for bad in (-5., -np.inf, np.inf):
    with pytest.raises(ValueError, match=(
        rf"action 'dwell' .*{bad} at \[1\].*NaN for missing")):
      labels.weighted_sum({"dwell": [1., bad]}, {"dwell": 1.})
    with pytest.raises(ValueError, match="action 'dwell'"):
      synthesis({"dwell": [1., bad]})


def test_label_synthesis_scales_then_clips_then_transforms():
  synthesis = labels.LabelSynthesis(
      "weighted_sum", {"click": 1., "dwell": 2.}, scales={"dwell": .001},
      clips={"dwell": 60.}, transforms={"dwell": "log1p"})
  result = synthesis({"click": [1, 1], "dwell": [3000., 2e6]})
  np.testing.assert_allclose(
      result, [1 + 2 * np.log(4), 1 + 2 * np.log(61)], rtol=1e-6)
  product = labels.LabelSynthesis(
      "weighted_product", {"click": 1., "dwell": 2.}, scales={"dwell": .5})
  assert product({"click": [1, 0], "dwell": [6., 6.]}).tolist() == [9, 0]


def test_label_synthesis_round_trips_through_json():
  synthesis = labels.LabelSynthesis(
      "weighted_product", {"click": 1, "dwell": .5}, scales={"dwell": .001},
      clips={"dwell": 60}, transforms={"dwell": "log1p"})
  config = json.loads(json.dumps(synthesis.get_config()))
  again = labels.LabelSynthesis.from_config(config)
  assert again == synthesis
  np.testing.assert_array_equal(again(_ACTIONS), synthesis(_ACTIONS))
  with pytest.raises(TypeError, match="clip_all"):
    labels.LabelSynthesis.from_config({**config, "clip_all": 1})


@pytest.mark.parametrize("arguments, message", [
    ({"kind": "sum"}, "`kind` must be .*'sum'"),
    ({"weights": {}}, "`weights` must name at least one action"),
    ({"weights": {"click": np.nan}}, "`weights` .*finite.*'click' has nan"),
    ({"scales": {"click": 0.}}, "`scales` .*positive.*'click' has 0.0"),
    ({"clips": {"click": -1}}, "`clips` .*positive.*'click' has -1.0"),
    ({"clips": {"dwell": 1}}, "`clips` names the action 'dwell'.* click"),
    ({"scales": {"dwell": 1}}, "`scales` names the action 'dwell'"),
    ({"transforms": {"dwell": "log1p"}}, "`transforms` names the action"),
    ({"transforms": {"click": "log"}}, "`transforms` .*'click'.*'log'"),
])
def test_label_synthesis_bad_arguments(arguments, message):
  good = {"kind": "weighted_sum", "weights": {"click": 1.}}
  labels.LabelSynthesis(**good)
  with pytest.raises(ValueError, match=message):
    labels.LabelSynthesis(**{**good, **arguments})


def test_unknown_actions_name_the_known_ones():
  for combine in (labels.weighted_sum, labels.weighted_product):
    with pytest.raises(ValueError, match="'like'.*known ones are click, dwell"):
      combine(_ACTIONS, {"like": 1.})
  synthesis = labels.LabelSynthesis("weighted_sum", {"like": 1.})
  with pytest.raises(ValueError, match="'like'.*known ones are click, dwell"):
    synthesis(_ACTIONS)


def test_shapes_must_agree():
  with pytest.raises(ValueError, match=(
      r"'click' has \[2\] and 'dwell' has \[1\]")):
    labels.weighted_sum(
        {"click": [1, 0], "dwell": [1]}, {"click": 1., "dwell": 1.})
  with pytest.raises(ValueError, match=r"shape \[2\], but has \[\]"):
    labels.from_function({"click": [1, 0]}, lambda actions: 3.)
  with pytest.raises(ValueError, match="`actions` .* empty"):
    labels.from_function({}, lambda actions: 3.)


@pytest.mark.parametrize("call, value", [
    (lambda: labels.weighted_sum({"hide": [0, 2]}, {"hide": -1.}), "-2.0"),
    (lambda: labels.weighted_product({"hide": [1, 0]}, {"hide": -1.}), "inf"),
    (lambda: labels.weighted_sum({"hide": [0, 1e30]}, {"hide": 1e30}), "inf"),
    (lambda: labels.from_function(
        {"hide": [0, 1]}, lambda a: np.array([0., np.nan])), "nan"),
])
def test_results_must_be_finite_and_not_negative(call, value):
  with pytest.raises(ValueError, match=rf"feedback .*{value} at \[1\]"):
    call()
