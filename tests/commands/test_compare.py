"""Tests of `ultra-tfr compare`: ultra_tfr.commands.compare."""

import json
import re
import subprocess
import sys

import pytest

from command_line import Calls
from ultra_tfr import methods
from ultra_tfr.experiments import peers

_TINY = ["--train_queries=60", "--steps=20", "--validate_every=10",
         "--batch_size=32", "--hidden_units=16"]
_FEW = ["--methods=oracle-pairwise,naive-pairwise,unbiased,dla"]


def _run(words, folder, timeout=900):
  return subprocess.run(
      [sys.executable, "-m", "ultra_tfr.cli", "compare", *words], cwd=folder,
      capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder in which four methods were compared with two seeds."""
  folder = tmp_path_factory.mktemp("compare")
  done = _run([*_TINY, *_FEW, "--feedback=click,dwell", "--runs=2",
               "--json=out.json", "--markdown=out.md", "--plot=plots",
               "--jobs=2"], folder)
  assert done.returncode == 0, done.stderr
  (folder / "out.txt").write_text(done.stdout, encoding="utf-8")
  return folder


@pytest.mark.slow
def test_the_tables_have_a_block_for_each_kind_of_feedback(folder):
  text = (folder / "out.txt").read_text(encoding="utf-8")
  click, dwell = text.split("dwell feedback, synthetic")
  for name in ("oracle-pairwise", "naive-pairwise", "unbiased"):
    assert name in click and name in dwell
  row = next(line for line in dwell.splitlines() if line.startswith("dla"))
  assert set(row.split()[1:]) == {"-"}
  assert "[14/14]" in text


@pytest.mark.slow
def test_the_json_has_the_shape_of_all_commands(folder):
  found = json.loads((folder / "out.json").read_text())
  assert found["runs"] == 2 and found["failed"] == {}
  assert found["world"]["settings"]["steps"] == 20
  entry = found["results"]["click"]["methods"]["unbiased"]
  assert len(entry["ndcg@10"]["runs"]) == 2
  curves = found["results"]["click"]["examination"]
  assert curves["true"][0] == curves["estimated"]["unbiased"][0] == 1
  assert set(found["comparison"]["click"]["dla"]) == {
      "gap_closed", "minus_unbiased"}
  assert set(found["results"]["dwell"]["methods"]) == {
      "oracle-pairwise", "naive-pairwise", "unbiased"}


@pytest.mark.slow
def test_the_markdown_says_how_it_was_made(folder):
  text = (folder / "out.md").read_text(encoding="utf-8")
  assert "ultra-tfr compare" in text and "--steps 20" in text
  assert "tensorflow 2." in text
  assert text.count("| unbiased |") == 2
  assert (folder / "plots" / "examination-click.png").stat().st_size > 1000


@pytest.mark.slow
def test_finished_runs_are_taken_and_others_added(folder):
  done = _run([*_TINY, *_FEW, "--runs=3", "--json=more.json"], folder)
  assert done.returncode == 0, done.stderr
  # Two seeds of four methods are there; one seed of them is not.
  assert "12 runs, of which 8 are in" in done.stdout
  assert "[4/4]" in done.stdout
  first, more = (json.loads((folder / name).read_text())["results"]["click"]
                 for name in ("out.json", "more.json"))
  assert (more["methods"]["dla"]["ndcg@10"]["runs"][:2] ==
          first["methods"]["dla"]["ndcg@10"]["runs"])


_LETOR = ["compare", *_TINY, "--methods=naive-pairwise", "--dataset=letor:zero",
          "--runs=1"]
# One that stands for all: each has tests of its own.
_PEER = "lightgbm-position"
# Calls that work, one that does not fit its files, and two without a library.
_CALLS = {
    "letor": [*_LETOR, "--index_base=0", "--non_finite=zero",
              "--markdown=out.md"],
    "letor from 1": _LETOR,
    "peers": ["compare", *_TINY, f"--methods={_PEER}",
              "--feedback=click,dwell", "--runs=1", "--json=peers.json"],
    "named": ["compare", *_TINY, "--methods=unbiased,xgboost-unbiased"],
    # Ends before any run, after 'all' has been looked up.
    "every": ["compare", *_TINY, "--json=no-such-folder/x.json"],
}
_WRONG = {
    "method": (["--methods=unbiased,no-such"], "There is no method 'no-such'"),
    "twice": (["--methods=unbiased,unbiased"], "must name each method once"),
    "feedback": (["--feedback=click,likes"],
                 "--feedback must be of click, dwell"),
    "dataset": (["--dataset=nothing"],
                "must be 'synthetic', 'letor:FOLDER' or"),
    "no data": (["--dataset=letor:no-such-folder"], "no-such-folder"),
    "no folder": (["--json=no-such-folder/x.json"], "does not exist"),
    "index base": (
        ["--index_base=0"],
        "--index_base is for LETOR files, but --dataset is synthetic; leave "),
    # What is read is not written: a table in place of the data would be known
    # at the next call alone.
    "json": (["--dataset=letor:sets", "--json=./sets/vali.txt"],
             "--json ./sets/vali.txt would change sets/v"),
    "link": (["--dataset=letor:sets", "--markdown=link.txt"],
             "--markdown link.txt would change sets/train.t"),
    "one file": (["--dataset=letor:sets", "--json=x", "--markdown=./x"],
                 "--markdown ./x would change x, which is"),
    "plot and json": (
        ["--dataset=letor:sets", "--plot=.", "--json=examination-click.png"],
        "--json examination-click.png would change ./examination-*.png"),
    "plot": (["--dataset=letor:sets", "--plot=sets"],
             "--plot: sets holds files that ultra-tfr compare did not write"),
    "suite": (
        ["--suite=robustness", "--logger=weak"],
        "--logger is of one world, but --suite has 26; leave one of them out."),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
  folder = tmp_path_factory.mktemp("calls")
  for name, text in (
      ("sets", "1 qid:1 1:1\n0 qid:1 1:0\n"),
      ("zero", "".join(
          f"{doc % 3} qid:{query} 0:{doc % 3} 1:1.7976931348623157e+308\n"
          for query in range(1, 9) for doc in range(12)))):
    (folder / name).mkdir()
    for part in ("train.txt", "vali.txt", "test.txt"):
      (folder / name / part).write_text(text)
  (folder / "link.txt").symlink_to("sets/train.txt")
  # Found before the real one: the commands are called in this folder.
  (folder / "xgboost.py").write_text("raise ImportError('gone')\n")
  # A suite has hidden units of its own.
  called = {**_CALLS, **{
      name: ["compare", *_TINY[:-1], "--methods=naive-pairwise", *words]
      for name, (words, _) in _WRONG.items()}}
  if not peers.PEERS[_PEER].can_load():
    del called["peers"]
  return Calls(folder, called)


@pytest.mark.parametrize("name", _WRONG)
def test_wrong_calls_get_one_sentence(calls, name):
  assert calls.read(name, "status") == "1"
  assert _WRONG[name][1] in calls.read(name, "err")
  assert "Traceback" not in calls.read(name, "err")


def test_letor_files_that_count_from_0_and_hold_the_largest_number(calls):
  assert "naive-pairwise" in calls.out("letor")
  text = (calls.folder / "out.md").read_text(encoding="utf-8")
  assert "--non_finite zero" in text and "--index_base 0" in text
  # The files do not fit the default flags.
  assert calls.read("letor from 1", "status") == "1"
  assert "expected feature indexes from 1" in (
      calls.read("letor from 1", "err") + calls.read("letor from 1", "out"))


def test_peers_run_on_clicks_like_any_method(calls):
  pytest.importorskip(peers.PEERS[_PEER].library)
  click, dwell = calls.out("peers").split("dwell feedback, synthetic")
  row = next(line for line in dwell.splitlines() if line.startswith(_PEER))
  assert set(row.split()[1:]) == {"-"}
  assert f"\n{_PEER}" in click.partition("click feedback, synthetic")[2]
  results = calls.json("peers")["results"]
  assert set(results["click"]["methods"]) == {_PEER}


def test_peers_without_their_library(calls):
  assert calls.read("named", "status") == "1"
  assert "xgboost cannot be imported (gone); get it with: pip install" in (
      calls.read("named", "err"))
  assert "Traceback" not in calls.read("named", "err")
  assert "runs, of" not in calls.read("named", "out")
  line, = calls.read("every", "out").splitlines()
  assert line.startswith("Without ") and "xgboost-unbiased" in line
  assert line.endswith("pip install 'ultra_tfr[peers]'.")


@pytest.mark.release
def test_the_suite_of_all_worlds(tmp_path):
  """Which users there are nobody knows: a table of one world says little."""
  words = [*_TINY[:-1], "--suite=robustness", "--runs=1",
           "--methods=naive-pairwise,ipw-known"]
  done = _run([*words, "--json=out.json", "--markdown=out.md"], tmp_path)
  assert done.returncode == 0, done.stderr
  assert "26 of 26: pbm-sparse, weak logger, click" in done.stdout
  cells = json.loads((tmp_path / "out.json").read_text())["cells"]
  assert len(cells) == 26
  assert all("naive-pairwise" in cell["ndcg@10"] for cell in cells)
  table = (tmp_path / "out.md").read_text()
  assert table.count("\n| ") == 28 and "ipw-known: worst case" in table
  assert "--suite robustness" in table and "--click_model" not in table


@pytest.mark.release
def test_all_methods_in_one_command(tmp_path):
  done = _run([*_TINY, "--feedback=click,dwell", "--runs=1", "--jobs=2",
               "--json=out.json"], tmp_path)
  assert done.returncode == 0, done.stderr
  results = json.loads((tmp_path / "out.json").read_text())["results"]
  assert list(results["click"]["methods"]) == [
      *(name for name, method in methods.METHODS.items()
        if "click" in method.feedback),
      *(name for name, peer in peers.PEERS.items() if peer.can_load())]
  assert set(results["dwell"]["methods"]) == {
      name for name, method in methods.METHODS.items()
      if "dwell" in method.feedback}


@pytest.mark.slow
def test_runs_of_other_data_are_not_taken(tmp_path):
  """After the labels had changed the old table was printed, and seeds of old
  and new data were mixed."""
  def write(grade):
    for name in ("train.txt", "vali.txt", "test.txt"):
      (tmp_path / name).write_text("".join(
          f"{doc % grade} qid:{query} 1:{doc % 3} 2:{doc}\n"
          for query in range(1, 9) for doc in range(12)))

  words = [*_TINY, "--dataset=letor:.", "--methods=naive-pairwise", "--runs=1",
           "--steps=2", "--validate_every=2"]
  for grade, there in ((3, 0), (3, 1), (2, 0)):
    write(grade)
    done = _run(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"1 runs, of which {there} are in" in done.stdout
  # A damaged result is no traceback.
  for file in tmp_path.glob("compare-runs/*/click*.json"):
    file.write_text("{}")
  done = _run(words, tmp_path)
  assert done.returncode == 1
  assert re.search(r"^ultra-tfr compare: compare-runs/\w+/click-naive-pairwise-"
                   "seed-0.json: is damaged, .*; remove it", done.stderr,
                   re.MULTILINE), done.stderr
