"""Tests of ultra_tfr.experiments.robustness."""

import pytest

from ultra_tfr.experiments import robustness
from ultra_tfr.experiments.robustness import Cell

PBM, DBN = Cell("pbm"), Cell("dbn")


def _result(*values):
  return {seed: {"labels": {"metrics": {"ndcg@10": value}}}
          for seed, value in enumerate(values)}


SUMMARY = robustness.Summary({
    PBM: {"naive-pairwise": _result(.8, .82), "unbiased": _result(.88, .90),
          "dla": _result(.892, .892), "oracle-pairwise": _result(.91)},
    DBN: {"naive-pairwise": _result(.85), "unbiased": _result(.86),
          "dla": _result(.80), "oracle-pairwise": _result(.9)},
}, ["naive-pairwise", "unbiased", "dla", "oracle-pairwise"])


def test_the_suite_has_26_different_cells():
  assert len(set(robustness.CELLS)) == len(robustness.CELLS) == 26
  assert len({str(cell) for cell in robustness.CELLS}) == 26


def test_the_worst_case_is_that_seen_from_naive():
  assert SUMMARY.worst("dla") == (DBN, pytest.approx(-.05))
  assert SUMMARY.worst("unbiased") == (DBN, pytest.approx(.01))
  assert SUMMARY.worst("ipw-known") is None


def test_nearly_the_best_counts_and_oracles_do_not_compete():
  assert SUMMARY.is_best("unbiased") == (2, 2)
  assert SUMMARY.is_best("unbiased", slack=.001) == (1, 2)
  assert SUMMARY.is_best("dla") == (1, 2)


def test_the_table_has_shares_of_the_gap_and_the_worst_case_in_bold():
  head, pbm, dbn = SUMMARY.rows("**{}**")
  assert head[1:] == ["naive-pairwise", "unbiased", "dla", "oracle-pairwise"]
  assert pbm == ["pbm, weak logger, click", "0.8100", "0.8900 (80%)",
                 "0.8920 (82%)", "0.9100"]
  assert dbn[2:4] == ["**0.8600 (20%)**", "**0.8000 (-100%)**"]
  assert SUMMARY.sentences()[1] == (
      "dla: worst case -0.0500 against naive-pairwise (dbn, weak logger, "
      "click); the best or within .003 of it in 1 of 2.")


def test_where_naive_is_as_good_as_true_labels_there_is_no_share():
  rows = robustness.Summary({PBM: {
      "naive-pairwise": _result(.9), "unbiased": _result(.9),
      "oracle-pairwise": _result(.901)}}, ["unbiased"]).rows()
  assert rows[1] == ["pbm, weak logger, click", "0.9000"]


@pytest.mark.parametrize("cell, expected", [
    (PBM, [*robustness.METHODS]),
    (DBN, [n for n in robustness.METHODS if n != "ipw-known"]),
    (Cell("pbm", feedback="dwell"),
     ["naive-pairwise", "unbiased", "ipw-known", "oracle-pairwise"]),
    (Cell("ubm", is_linear=True),
     ["naive-pairwise", "unbiased", "dla", "oracle-pairwise"])])
def test_methods_that_a_cell_has(cell, expected):
  assert cell.methods(robustness.METHODS) == expected
