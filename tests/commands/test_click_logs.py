"""Tests of `ultra-tfr fit-log`, `diagnose`, `evaluate-log` and `score`."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
from pyarrow import csv
from pyarrow import parquet
import pytest

import click_logs
from command_line import Calls

_COLUMNS = {
    "query": "request_id", "position": "rank", "feedback": "click",
    "features": "f_*,category", "context": "device", "item": "item_id",
    "timestamp": "timestamp"}
_TINY = ["--steps=4", "--validate_every=2", "--batch_size=64",
         "--hidden_units=8"]


def _flags(changes):
  words = {**_COLUMNS, "log": "first.parquet", **changes}
  return [f"--{name}={value}" for name, value in words.items()
          if value is not None]


def _fit(folder, *more, **changes):
  return ["fit-log", f"--model_dir={folder}", *_flags(changes), *_TINY, *more]


def _diagnose(*more, **changes):
  return ["diagnose", *_flags(changes), *_TINY, *more]


def _evaluate(models, log, *more):
  return ["evaluate-log", f"--model_dir={models}", f"--log={log}",
          "--replicates=20", *more]


def _score(log, *more):
  return ["score", "--model_dir=model", f"--log={log}", "--out=scored.csv",
          *more]


# So many that clicks are predicted better than by rates alone.
_ENOUGH = ["--steps=40", "--validate_every=20"]
_GOOD = {
    "fit": _fit("model", "--json=fit.json", "--seed=3", *_ENOUGH,
                randomized="randomized"),
    "unjustified": _fit("unjustified", "--json=unjustified.json", "--seed=3"),
    "naive": _fit("naive", "--json=naive.json", "--method=naive-pairwise"),
    "bare": _fit("bare", "--json=bare.json", "--method=unbiased-bayes",
                 "--valid=0", "--test=0", "--rejected=thrown.csv",
                 "--num_positions=3", "--max_rejected=0.05", log="odd.csv",
                 timestamp=None, item=None, context=None,
                 feedback="click + 0.5*log1p(dwell_ms/1000)"),
    "known": _fit("known", "--json=known.json",
                  "--examination=1.25,1,.5,.25,.2"),
    "own": _diagnose("--report_dir=own", "--json=own.json", "--valid=0",
                     *_ENOUGH),
    "other": ["diagnose", "--log=second.csv", "--model_dir=model",
              "--report_dir=other", "--json=other.json"],
    "alone": ["diagnose", *_flags({"features": None}), "--report_dir=alone",
              "--json=alone.json", "--randomized=randomized"],
    "remarked": ["diagnose", "--log=second.csv", "--model_dir=model",
                 "--report_dir=remarked", "--json=remarked.json",
                 "--randomized=shuffled", "--item=timestamp"],
    "test": _evaluate("model,naive/", "first.parquet", "--part=test",
                      "--json=test.json"),
    "all": _evaluate("model", "second.csv", "--json=all.json"),
    "naive all": _evaluate("naive", "second.csv"),
    "odd all": _evaluate("model", "odd.csv", "--max_weight=2",
                         "--max_rejected=0.05"),
    "score": _score("second.csv", "--keep=item_id,device", "--json=score.json"),
    **{f"help {name}": [name, "--help"]
       for name in ("fit-log", "diagnose", "evaluate-log", "score")},
}
_MODEL = ["diagnose", "--log=second.csv", "--model_dir=model",
          "--report_dir=new"]
# Name -> (words, pattern of the message).
_BAD = {
    "no log": (_fit("new", log="none.csv"), "none.csv: there is no such f"),
    "no column": (_fit("new", feedback="klick"), "no column 'klick'"),
    "no feature": (_fit("new", features="g_*"), r"'g_\*'"),
    "no --features": (_fit("new", features=None), "--features"),
    "folder exists": (_fit("model"), "--model_dir: model already holds a "
                      "result; give another folder, or --overwrite"),
    "folder of another command": (
        _fit("own", "--overwrite"),
        "--model_dir: own is a folder of ultra-tfr diagnose, and not of ultra"),
    "folder of somebody else": (
        _fit("mine", "--overwrite"),
        "--model_dir: mine holds files that ultra-tfr fit-log did not write"),
    "report into a model": (
        _diagnose("--report_dir=model", "--overwrite"),
        "--report_dir: model is a folder of ultra-tfr fit-log, and not of ult"),
    "folder is a file": (_fit("second.csv"),
                         "--model_dir second.csv must be a folder"),
    "steps": (_fit("new", "--steps=5"), r"`steps` \(5\) must be a multiple of"),
    "method": (_fit("new", "--method=oracle-pairwise"),
               "--method=oracle-pairwise: value should be one of <unbiased"),
    "learning rate": (_fit("new", "--learning_rate=0"),
                      "--learning_rate must be a positive number, but is 0.0"),
    "shares": (_fit("new", "--valid=0.6", "--test=0.6"),
               "`valid` and `test` must be shares that sum to at most 1"),
    "json": (_fit("new", "--json=none/x.json"), "--json none/x.json: the fol"),
    "rejected": (_fit("new", "--rejected=none/x.csv"),
                 "--rejected none/x.csv: the folder .* does not exist"),
    "rejected over the log": (
        _fit("new", "--rejected=link.csv", log="second.csv"),
        "--rejected link.csv would change second.csv, which is needed; name a"),
    "json over the log": (_fit("new", "--json=first.parquet"),
                          "--json first.parquet would change first.parquet"),
    "json over the rejected": (
        _fit("new", "--json=x.csv", "--rejected=./x.csv"),
        "--rejected ./x.csv would change x.csv"),
    "json over the model": (
        _fit("model", "--overwrite", "--json=model/log.json"),
        "--json model/log.json would change model/log.json"),
    "json over a model": (
        _evaluate("model", "second.csv", "--json=model/log.json"),
        "--json model/log.json would change model/log.json"),
    "rejected over a model": (
        [*_MODEL, "--rejected=model/training_model.keras"],
        "--rejected model/training_model.keras would change model/training"),
    "a request too long": (
        _fit("new", "--num_positions=10", log="long.csv", timestamp=None,
             context=None, item=None, features="f"),
        "longest request has 100000 rows, .* GB of memory. Keep the first row"),
    "too many rejected": (
        _fit("rejected", log="odd.csv"),
        r"24 of 2024 rows are rejected \(rejected/rejected_rows.csv lists "
        "them.*raise `max_rejected`"),
    "stricter": (
        _fit("bare", "--overwrite", "--max_rejected=0", log="odd.csv"),
        r"\(bare/rejected_rows.csv lists them"),
    "a curve for another method": (
        _fit("new", "--examination=1,.5", "--method=unbiased-bayes"),
        "--method unbiased-bayes takes no --examination; take unbiased-ipw"),
    "a curve too short": (
        _fit("new", "--examination=1,.5"),
        "`examination` .* a number above 0 for each of the 5 positions"),
    "no model": (_evaluate("second", "first.parquet"),
                 "second: there is no log.json, so this is no --model_dir"),
    "folder of something else": (_evaluate("own", "first.parquet"),
                                 "own: there is no log.json"),
    "no test part": (_evaluate("bare", "odd.csv", "--part=test"),
                     "--part=test is empty.*--test 0.*--part=all"),
    "mixed models": (_evaluate("model,bare", "first.parquet"),
                     "bare was trained with other columns than model; eval"),
    "odd rows": (_evaluate("model", "odd.csv"), "^[^(]* 24 of 2024 rows are"),
    "max_weight": (_evaluate("model", "second.csv", "--max_weight=0"),
                   "--max_weight=0.0: must be greater than 0"),
    "no features to score": (
        _score("wrong.csv"), "no column 'request_id', 'f_0', .* model needs"),
    "scores over the log": (
        _score("second.csv", "--out=link.csv"),
        "--out link.csv would change second.csv"),
    "scores in no format": (
        _score("second.csv", "--out=scored.txt"),
        "`--out` must end in .parquet or .csv"),
    "wrong log": (_evaluate("model", "wrong.csv"), "no column 'request_id'"),
    "two sources": ([*_MODEL, "--query=request_id"],
                    "--query is given beside --model_dir"),
    "context twice": ([*_MODEL, "--context=device"],
                      "--context is given beside --model_dir"),
    "training twice": ([*_MODEL, "--learning_rate=0.1"],
                       "--learning_rate is given beside --model_dir"),
    "training without features": (
        _diagnose(features=None),
        "--hidden_units is given, but there are no --features"),
    "no source": (["diagnose", "--log=first.parquet", "--query=request_id"],
                  "--position is missing; give --query, --position"),
    "naive diagnosis": (_diagnose("--method=naive-pairwise"),
                        "--method naive-pairwise estimates no bias"),
    "diagnosis of naive": (
        ["diagnose", "--log=second.csv", "--model_dir=naive"],
        "--model_dir naive: .* estimates no bias"),
    "report exists": (_diagnose("--report_dir=own"),
                      "--report_dir: own already holds a result"),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
  """What came of all calls."""
  folder = tmp_path_factory.mktemp("calls")
  table = click_logs.small()
  marks = np.arange(len(table)) % 5 == 0
  parquet.write_table(
      click_logs.with_column(table, "randomized", marks),
      folder / "first.parquet")
  other = click_logs.simulate_log(
      300, positions=click_logs.POSITIONS, num_items=60, seed=9)[0]
  csv.write_csv(
      click_logs.with_column(
          other, "shuffled", np.arange(len(other)) % 10 < 5),
      folder / "second.csv")
  (folder / "mine" / "model").mkdir(parents=True)
  with open(folder / "long.csv", "w") as file:
    file.write("request_id,rank,click,f\n")
    file.writelines(f"{row // 3},{row % 3},{row % 2},{row}\n"
                    for row in range(900))
    file.writelines(f"x,{row},{row % 2},{row}\n" for row in range(100000))
  (folder / "link.csv").symlink_to("second.csv")
  csv.write_csv(other.select(["rank", "click"]), folder / "wrong.csv")
  # The small log again, and 24 rows more than a hundredth that are no good.
  csv.write_csv(table, folder / "odd.csv")
  with open(folder / "odd.csv", "a") as file:
    file.writelines(f'"x",{rank},"i","mobile",1,0,0\n'.replace("\n", ",,,\n")
                    for rank in range(24))
  bad = {name: words for name, (words, _) in _BAD.items()}
  return Calls(folder, {**_GOOD, **bad})


def _files(calls, folder):
  """What is in a folder, but for the manifest."""
  return sorted({*os.listdir(calls.folder / folder)} - {".ultra_tfr.json"})


# Fitting.


def test_fit(calls):
  text, written = calls.out("fit"), calls.json("fit")
  assert list(written) == [
      "method", "validation", "click_prediction", "summary", "bias", "history",
      "evaluation", "diagnosis", "seconds", "versions"]
  assert np.shape(written["bias"]["click_relevant"]) == (2, 5)
  assert written["history"]["step"] == [20, 40]
  assert list(written["evaluation"]) == ["logged order", written["method"]]
  for line in ("Training unbiased for 40 batches of 64 requests ...",
               "On the test part:", "Diagnosing the log ...",
               "The ranking model is in model/model.",
               "The report is model/report/report.html."):
    assert line in text.splitlines()
  for sentence in written["diagnosis"]["sentences"]:
    assert sentence in text.splitlines()
  for warning in written["diagnosis"]["warnings"]:
    assert f"WARNING: {warning}" in text.splitlines()
  curve = written["diagnosis"]["contexts"]["mobile"]["trained"]["value"]
  assert re.search(r"mobile, EM +" + " +".join(f"{v:.2f}" for v in curve), text)
  assert "randomized" in written["diagnosis"]["contexts"]["mobile"]


def test_the_folder_says_how_it_was_made(calls):
  """It holds what --flagfile takes, and the manifest lists it."""
  comment, *lines = (
      calls.folder / "model" / "flags.txt").read_text().splitlines()
  assert comment.startswith("# ultra-tfr fit-log, version ")
  # Of a flag that is given twice the last value counts.
  given = {word.partition("=")[0]: word for word in _GOOD["fit"][1:]}
  assert sorted(lines) == sorted(given.values())
  manifest = json.loads(
      (calls.folder / "model" / ".ultra_tfr.json").read_text())
  assert "flags.txt" in manifest["files"]


def test_what_the_users_are_like_is_found_in_one_training(calls):
  written = calls.json("fit")
  assert written["method"] == "unbiased" == written["bias"]["method"]
  with open(calls.folder / "model" / "log.json") as file:
    kept = json.load(file)
  assert kept["bias"] == written["bias"]
  assert kept["validation"] == written["validation"]
  assert written["history"]["val_log_likelihood"][-1] == pytest.approx(
      written["validation"]["log_likelihood"], abs=0.05)
  found = written["bias"]["hypotheses"]
  assert set(found) == {"position", "trust", "browsing", "browsing_trust"}
  assert found == written["diagnosis"]["hypotheses"]
  assert sum(entry["share"] for entry in found.values()) == pytest.approx(1)
  likeliest = list(found.values())[0]
  assert likeliest["behind"] == 0
  assert likeliest["words"] in " ".join(written["diagnosis"]["sentences"])


def test_what_a_fit_is_worth_beside_click_rates_is_told(calls):
  text, written = calls.out("fit"), calls.json("fit")["click_prediction"]
  assert written["kept"] == "fit"
  for part in ("valid", "test"):
    for name in ("one_rate", "rate_by_position", "fit"):
      values = written[part][name]
      assert "{log_likelihood:.4f} ({perplexity:.4f})".format(**values) in text
  page = (calls.folder / "model" / "report" / "report.html").read_text()
  assert "one click rate per position" in page


def test_what_no_better_than_rates_predicts_is_not_served(calls):
  """A fit that a click rate by position beats was exported in silence."""
  text, written = calls.out("unjustified"), calls.json("unjustified")
  assert "WARNING: No debiasing is justified by this log: unbiased pre" in text
  assert "Training naive-pairwise, the ranker to serve ..." in text
  assert written["method"] == "naive-pairwise" and written["bias"] is None
  assert list(written["evaluation"]) == ["logged order", "naive-pairwise"]
  assert written["click_prediction"]["kept"] is None
  with open(calls.folder / "unjustified" / "log.json") as file:
    kept = json.load(file)
  assert kept["click_prediction"] == written["click_prediction"]
  assert kept["bias"] is None
  assert written["diagnosis"]["warnings"][0].startswith("No debiasing is justi")
  page = (calls.folder / "unjustified" / "report" / "report.html").read_text()
  assert '<p class="alarm">No debiasing is justified by this log' in page


def test_without_validation_the_same_is_trained(calls):
  assert calls.json("bare")["validation"] == {}
  assert len(calls.json("own")["diagnosis"]["hypotheses"]) == 4


def test_files_of_a_fit(calls):
  assert _files(calls, "model") == [
      "flags.txt", "log.json", "logs", "model", "report",
      "training_model.keras"]
  assert _files(calls, "model/report") == [
      "curves.png", "diagnosis.json", "history.png", "rates.png",
      "report.html", "swaps.png"]
  with open(calls.folder / "model" / "report" / "diagnosis.json") as file:
    found = json.load(file)
  summary = found.pop("summary")
  assert found == calls.json("fit")["diagnosis"]
  assert summary == calls.json("fit")["summary"]


def test_without_bias(calls):
  written = calls.json("naive")
  assert written["bias"] is None
  assert "diagnosis" not in written
  assert list(written["evaluation"]) == ["logged order", "naive-pairwise"]
  assert _files(calls, "naive") == [
      "flags.txt", "log.json", "logs", "model", "training_model.keras"]
  assert "Diagnosing" not in calls.out("naive")
  assert "naive-pairwise estimates no bias: the feedback is taken as it is" in (
      calls.out("naive"))


def test_bare_log(calls):
  text, written = calls.out("bare"), calls.json("bare")
  assert "evaluation" not in written
  assert "On the test part" not in text
  assert written["summary"]["positions"] == [1, 2, 3]
  assert list(written["diagnosis"]["contexts"]) == ["all"]
  assert np.shape(written["bias"]["trust_positive"]) == (1, 3, 3)
  assert "trust.png" in _files(calls, "bare/report")
  assert "swaps.png" not in _files(calls, "bare/report")


def test_a_known_curve_is_kept(calls):
  """No flag took what the report said to trust."""
  written = calls.json("known")
  assert written["method"] == "unbiased-ipw"
  assert written["bias"]["fixed_to"] == "the numbers given"
  np.testing.assert_allclose(
      written["bias"]["click_relevant"], [[1, .8, .4, .2, .16]] * 2, rtol=1e-6)
  assert "mobile, given" in calls.out("known")
  assert "that of the numbers given, by the method" in calls.out("known")


# Rejected rows.


def test_rejected_rows_are_where_they_are_said_to_be(calls):
  for path in ("rejected/rejected_rows.csv", "bare/rejected_rows.csv",
               "thrown.csv"):
    assert (calls.folder / path).read_text().count("\n") == 25
  assert "thrown.csv lists the 24 rejected rows." in calls.out("bare")
  assert "lists the" not in calls.out("odd all")
  assert "rejected: 24 rows" in calls.out("odd all")
  # Nothing else is a surprise in the folder that the user is in.
  assert {name for name in os.listdir(calls.folder) if "reject" in name} == {
      "rejected"}


# Diagnosing.


def test_diagnosis_of_a_log_of_its_own(calls):
  text, written = calls.out("own"), calls.json("own")
  assert list(written) == ["diagnosis", "seconds", "versions"]
  assert written["diagnosis"]["method"] == "unbiased"
  assert written["diagnosis"]["sentences"][0] in text
  assert "The bias was estimated by the method unbiased." in text
  assert written["diagnosis"]["num_requests"] == 400
  assert re.search("Training unbiased .*The report is own/report.html.", text,
                   re.DOTALL)
  assert "report.html" in _files(calls, "own")
  assert "log.json" not in _files(calls, "own")


def test_diagnosis_with_a_model(calls):
  written = calls.json("other")["diagnosis"]
  assert written["num_requests"] == 300
  assert "Training" not in calls.out("other")
  fitted = calls.json("fit")
  for c, name in enumerate(written["contexts"]):
    curve = np.array(fitted["bias"]["click_relevant"][c])
    np.testing.assert_allclose(
        written["contexts"][name]["trained"]["value"], curve / curve[0])


def test_diagnosis_without_a_model(calls):
  text, written = calls.out("alone"), calls.json("alone")["diagnosis"]
  assert written["method"] is None
  assert set(written["contexts"]["mobile"]) == {
      "adjacent", "pivot", "all_pairs", "randomized"}
  assert written["evidence"] == calls.json("own")["diagnosis"]["evidence"]
  assert "Training" not in text and "EM" not in text
  assert _files(calls, "alone") == [
      "curves.png", "diagnosis.json", "rates.png", "report.html", "swaps.png"]


def test_a_log_of_another_time_has_columns_of_its_own(calls):
  """--randomized was refused beside --model_dir."""
  before, now = (calls.json(name)["diagnosis"]["contexts"]["mobile"]
                 for name in ("other", "remarked"))
  assert "randomized" in now and "randomized" not in before
  assert now["em"] == before["em"]
  assert now["all_pairs"] != before["all_pairs"]


# Evaluating.


def test_evaluation_of_the_test_part(calls):
  text, written = calls.out("test"), calls.json("test")["rankers"]
  assert list(written) == ["logged order", "model", "naive"]
  # What fit-log said of it, but for the number of replicates.
  fitted = calls.json("fit")
  evaluation = fitted["evaluation"][fitted["method"]]
  for key, estimate in written["model"]["estimates"].items():
    assert estimate["value"] == pytest.approx(
        evaluation["estimates"][key]["value"])
  assert written["model"]["perplexity"] == pytest.approx(
      evaluation["perplexity"])
  assert "perplexity" not in written["naive"]
  assert "The test part of the log:" in text
  # A difference, or "?" and the reason why there is none.
  found = re.search(r"^naive - logged +([+?-])", text, re.MULTILINE)[1]
  assert (found == "?") == ("Too few clicks to judge" in text)


def test_evaluation_of_another_log(calls):
  written = calls.json("all")["rankers"]
  assert [ranker["num_requests"] for ranker in written.values()] == [300, 300]
  assert "The whole log; if a model was trained on it" in calls.out("all")
  assert "No model has a bias: the feedback is taken as it is" in (
      calls.out("naive all"))


# Scoring.


def test_scores_of_a_log(calls):
  with open(calls.folder / "second.csv") as file:
    rows = sum(1 for _ in file) - 1
  counts = calls.json("score")
  assert (counts["rows"], counts["requests"]) == (rows, 300)
  assert f"scored.csv has {rows} rows of 300 requests" in calls.out("score")
  written = csv.read_csv(calls.folder / "scored.csv")
  assert written.column_names == ["item_id", "device", "score", "rank"]
  assert written["rank"].to_pylist().count(1) == 300


@pytest.mark.parametrize("name", _BAD)
def test_wrong_calls(calls, name):
  calls.check_wrong(name, _BAD[name][1], "Training|Diagnosing")


@pytest.mark.parametrize("name, flags", [
    ("fit-log", [*_COLUMNS, "weight", "randomized", "positions", "overwrite",
                 "num_positions", "valid", "test", "method", "steps",
                 "learning_rate", "hidden_units"]),
    ("diagnose", [*_COLUMNS, "method", "steps", "report_dir", "overwrite"]),
    ("evaluate-log", ["part", "max_weight", "replicates"]),
    ("score", ["out", "keep"])])
def test_help(calls, name, flags):
  text = calls.out(f"help {name}")
  for flag in (*flags, "log", "model_dir", "max_rejected", "rejected", "json",
               "seed"):
    assert re.search(rf"^ *--(\[no\])?{flag}:", text, re.MULTILINE), flag


@pytest.mark.parametrize("kind", [
    signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_leaves_no_copy_of_the_log_behind(tmp_path, kind):
  """It stayed in the temporary folder, five times as large as the log."""
  (tmp_path / "tmp").mkdir()
  parquet.write_table(click_logs.small(), tmp_path / "first.parquet")
  words = _fit("new", "--steps=100000", "--validate_every=100000")
  with subprocess.Popen(
      [sys.executable, "-m", "ultra_tfr.cli", *words], cwd=tmp_path, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
      env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}) as process:
    try:
      for line in process.stdout:
        if line.startswith("Training"):
          break
      assert any("ultra_tfr_log" in name for name in os.listdir(
          tmp_path / "tmp"))
      process.send_signal(kind)
      _, errors = process.communicate(timeout=100)
    finally:
      process.kill()
  assert process.returncode == 128 + kind, errors[-2000:]
  assert f"ultra-tfr fit-log: ended by {kind.name}." in errors
  assert "Traceback" not in errors
  assert not any("ultra_tfr" in name for name in os.listdir(tmp_path / "tmp"))
  assert not (tmp_path / "new" / "log.json").exists()
