"""Tests of what `compare` runs on: stored runs, processes, tables."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import stats

import program_files
import short_runs
from ultra_tfr.experiments import processes
from ultra_tfr.experiments import tables
from ultra_tfr.experiments.runs import Run
from ultra_tfr.experiments.runs import RunStore
from ultra_tfr.experiments.tables import Table

RUN = Run("click", "unbiased", 3)


def test_both_tests_are_paired_t_tests():
  rng = np.random.default_rng(0)
  base = rng.uniform(size=[4, 50])
  better = base + 0.02 + 0.05 * rng.normal(size=base.shape)
  found = tables.difference(dict(enumerate(better)), dict(enumerate(base)))
  assert found.value == pytest.approx((better - base).mean())
  assert found.p_seeds == pytest.approx(
      stats.ttest_rel(better.mean(axis=1), base.mean(axis=1)).pvalue)
  assert found.p_queries == pytest.approx(
      stats.ttest_rel(better.mean(axis=0), base.mean(axis=0)).pvalue)


def test_only_common_seeds_are_compared():
  found = tables.difference(
      {0: [0.5, 0.6], 1: [0.9, 0.9]}, {0: [0.4, 0.4], 2: [0.0, 0.0]})
  assert found.value == pytest.approx(0.15)
  assert math.isnan(found.p_seeds)  # One seed shows no spread.
  assert tables.difference({0: [0.5]}, {1: [0.5]}) is None


def test_equal_runs_have_no_p_value():
  found = tables.difference({0: [0.5, 0.6], 1: [0.5, 0.6]},
                                {0: [0.5, 0.6], 1: [0.5, 0.6]})
  assert found.value == 0 and math.isnan(found.p_seeds)


def test_other_queries_cannot_be_paired():
  with pytest.raises(ValueError, match="same test queries.*2 and 3.*same data"):
    tables.difference({0: [0.5, 0.6]}, {0: [0.5, 0.6, 0.7]})


def test_a_store_keeps_runs_between_calls(tmp_path):
  RunStore(tmp_path, {"steps": 10}).write(RUN, {"seconds": 1.5})
  again = RunStore(tmp_path, {"steps": 10})
  assert again.read(RUN) == {"seconds": 1.5}
  assert again.read(Run("dwell", "unbiased", 3)) is None
  assert again.read(Run("click", "unbiased", 4)) is None
  assert again.read(Run("click", "dla", 3)) is None


def test_other_settings_do_not_mix(tmp_path):
  RunStore(tmp_path, {"steps": 10}).write(RUN, {"seconds": 1.5})
  other = RunStore(tmp_path, {"steps": 20})
  assert other.read(RUN) is None
  with open(os.path.join(other.folder, "settings.json")) as file:
    assert json.load(file) == {"steps": 20}


def test_a_half_written_result_is_no_result(tmp_path, monkeypatch):
  store = RunStore(tmp_path, {})

  def fail(value, file, indent):
    file.write('{"seconds"')
    raise KeyboardInterrupt

  monkeypatch.setattr(json, "dump", fail)
  with pytest.raises(KeyboardInterrupt):
    store.write(RUN, {"seconds": 1.0})
  assert store.read(RUN) is None


def test_a_failed_run_does_not_lose_the_others(capsys):
  results = {}
  failed = processes.execute(
      [1, 2, 3, 4], short_runs.square, 1,
      lambda run, result, error: results.update({run: result}))
  assert results == {1: 1, 2: 4, 3: None, 4: 16}
  assert list(failed) == [3]
  assert "three is not possible" in failed[3]
  output = capsys.readouterr()
  assert "[4/4]" in output.out and "3: FAILED" in output.out
  assert "three is not possible" in output.err
  _check_beginnings(output.out.splitlines(), [1, 2, 3, 4], jobs=1)


def _check_beginnings(lines, runs, jobs):
  """It is said what runs, which begins when another one has ended."""
  count = len(runs)
  begun = [f"[{i}/{count}] {run} ..." for i, run in enumerate(runs, start=1)]
  assert lines[:jobs] == begun[:jobs]
  for i in range(jobs, count):
    ended = [line for line in lines[:lines.index(begun[i])]
             if "done" in line or "FAILED" in line]
    assert len(ended) > i - jobs


def test_a_process_that_dies_is_reported_and_does_not_lose_the_rest(capsys):
  results, runs = {}, [0, 1, 2, 3, 4]
  failed = processes.execute(
      runs, short_runs.die, 2,
      lambda run, result, error: results.update({run: result}))
  assert "process died" in failed[1]
  # 3 fails by itself, unless it is the one that ran when 1 died: at most one
  # other is lost so.
  assert 3 in failed and len(failed) <= 3
  lost = [run for run in failed if "process died" in failed[run]]
  assert len(lost) <= 2
  assert 3 in lost or "three is not possible" in failed[3]
  assert set(results) == set(runs)
  assert all(results[run] == run ** 2 for run in set(results) - set(failed))
  _check_beginnings(capsys.readouterr().out.splitlines(), runs, jobs=2)


@pytest.mark.parametrize("how", [
    signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_stopped_comparison_leaves_no_process_behind(how, tmp_path):
  program = program_files.ROOT / "tests" / "support" / "endless_runs.py"
  files = [tmp_path / name for name in "ab"]
  parent = subprocess.Popen(
      [sys.executable, program, *files], start_new_session=True)
  try:
    _wait_for(lambda: all(file.exists() for file in files))
    parent.send_signal(how)
    parent.wait(120)
    _wait_for(lambda: not _group_lives(parent.pid))
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()


def _wait_for(condition, seconds=300):
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline, "waited too long"
    time.sleep(0.1)


def _group_lives(group):
  try:
    os.killpg(group, 0)
  except ProcessLookupError:
    return False
  return True


def _result(ndcg, by_clicks=None, seconds=10.0):
  def pick(values):
    mean = float(np.mean(values))
    return {"metrics": {f"ndcg@{n}": mean for n in (3, 5, 10)},
            "by_query": list(values)}
  return {"labels": pick(ndcg), "clicks": pick(by_clicks or ndcg),
          "examination": None, "true_examination": None, "seconds": seconds}


@pytest.fixture
def results():
  return {
      "oracle-pairwise": {0: _result([0.9, 0.9]), 1: _result([0.9, 0.9])},
      "naive-pairwise": {0: _result([0.5, 0.5]), 1: _result([0.5, 0.52])},
      "unbiased": {0: _result([0.8, 0.8], [0.7, 0.7]),
                   1: _result([0.8, 0.84], [0.7, 0.7])}}


def test_the_table_has_all_rows_and_marks_the_best(results):
  table = Table(results, ["oracle-pairwise", "naive-pairwise", "unbiased",
                          "dla"])
  head, *rows = table.rows("**{}**")
  by_name = {row[0]: dict(zip(head, row)) for row in rows}
  assert list(by_name) == ["oracle-pairwise", "naive-pairwise", "unbiased",
                           "dla"]
  assert by_name["unbiased"]["NDCG@10"] == "**0.8100 ± 0.0141**"
  assert by_name["oracle-pairwise"]["NDCG@10"] == "0.9000 ± 0.0000"
  assert by_name["unbiased"]["@10 by clicks"] == "0.7000 ± 0.0000"
  # (0.81 - 0.505) / (0.9 - 0.505)
  assert by_name["unbiased"]["gap closed"] == "77%"
  assert by_name["naive-pairwise"]["gap closed"] == "0%"
  assert by_name["naive-pairwise"]["minus unbiased"] == "-0.3050"
  assert by_name["unbiased"]["minus unbiased"] == ""
  assert set(list(by_name["dla"].values())[1:]) == {"-"}


def test_the_other_pick_can_count(results):
  table = Table(results, ["naive-pairwise", "unbiased"], select="clicks")
  head, _, row = table.rows()
  cells = dict(zip(head, row))
  assert cells["NDCG@10"].startswith("0.7000")
  assert cells["@10 by labels"].startswith("0.8100")


def test_the_markdown_is_a_table(results):
  lines = Table(results, list(results)).to_markdown().split("\n")
  assert len(lines) == 5
  assert len({line.count("|") for line in lines}) == 1
  assert set(lines[1]) <= set("|- ")


def test_without_a_reference_there_is_no_difference(results):
  del results["unbiased"]
  table = Table(results, ["naive-pairwise"])
  assert table.difference("naive-pairwise") is None
