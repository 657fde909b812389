"""Tests of ultra_tfr.log_training: the choice among trainings by clicks."""

import types

import numpy as np
import pytest

import click_logs
from ultra_tfr import log_training
from ultra_tfr import methods


@pytest.mark.parametrize("values, expected", [
    ([-0.3, -0.2], "b"), ([-0.2, -0.3], "a"), ([-0.2, -0.2], "a"),
    ([None, -0.2], "b"), ([None, None], "a")])
def test_the_likeliest(values, expected):
  fitted = {name: types.SimpleNamespace(validation={"log_likelihood": value})
            for name, value in zip("ab", values)}
  assert log_training.likeliest(fitted) == expected
  assert log_training.likeliest(
      {"c": types.SimpleNamespace(validation={})}) == "c"


def test_which_methods_predict_clicks():
  for name in log_training.METHODS:
    method = methods.find(name)
    predicts = method.estimates_examination and (
        method.layer(2).trust_bias != "pairwise")
    assert predicts == (name in log_training.PREDICT_CLICKS)


def test_weights_count_in_the_likelihood_of_validation_clicks():
  table = click_logs.small()
  found = {}
  for factor in (1.0, 5.0):
    clicked = table["click"].to_numpy() > 0
    weighted = click_logs.with_column(
        table, "w", np.where(clicked, factor, 1.0))
    with click_logs.read(weighted, columns=click_logs.columns(
        features=("f_0", "f_1"), weight="w"), valid=0.3) as log:
      fitted = log_training.fit(log, "unbiased", click_logs.SHORT)
    found[factor] = fitted.validation["log_likelihood"]
  assert found[5.0] < found[1.0] - 0.1
