"""Tests of ultra_tfr.fit_log.training: the choice among trainings by clicks."""

import numpy as np
import pytest

import click_logs
from ultra_tfr.fit_log import training


@pytest.mark.usefixtures("eagerly")
def test_weights_count_in_the_likelihood_of_validation_clicks():
  table = click_logs.small()
  found = {}
  for factor in (1.0, 5.0):
    clicked = table["click"].to_numpy() > 0
    weighted = click_logs.with_column(
        table, "w", np.where(clicked, factor, 1.0))
    with click_logs.read(weighted, columns=click_logs.columns(
        features=("f_0", "f_1"), weight="w"), valid=0.3) as log:
      fitted = training.fit(log, "unbiased", click_logs.SHORT)
    found[factor] = fitted.validation["log_likelihood"]
  assert found[5.0] < found[1.0] - 0.1


@pytest.mark.parametrize("kind, reason", [
    ("all clicked", "every row has feedback; the log needs a row for each item "
     "that was shown, not only for the clicked ones"),
    ("no click", "no row has feedback; check `feedback`"),
    ("one row", "are never in one request; check `query`")])
def test_a_log_that_cannot_teach(kind, reason):
  table = click_logs.small()
  if kind == "one row":
    table = table.filter(np.asarray(table["rank"]) == 1)
  else:
    table = click_logs.with_column(
        table, "click", np.full(len(table), int(kind == "all clicked")))
  with click_logs.read(table) as log:
    with pytest.raises(ValueError, match="There is nothing to learn from: no "
                       f"request .* of different feedback, since .*{reason}"):
      training.check_can_teach(log)


def test_a_log_that_can_teach():
  table = click_logs.small()
  with click_logs.read(table) as log:
    training.check_can_teach(log)
  # Values of feedback tell clicked items apart.
  table = table.filter(table["click"].to_numpy() > 0)
  with click_logs.read(table, columns=click_logs.columns("dwell_ms")) as log:
    training.check_can_teach(log)
