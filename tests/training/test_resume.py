"""A training that was killed goes on as if nothing had happened."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import killed_training
from ultra_tfr import trainer
from ultra_tfr.data import synthetic
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import run
from ultra_tfr.experiments import runs
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import PositionBasedModel

# Backups after each 3 steps: of 8 steps 2 are lost, and a batch of the resumed
# training is in the middle of an epoch of Keras, and of one of the data.
_FITS = {
    "whole": killed_training.fit("position", False, "never", "whole.npz"),
    "killed": killed_training.fit("position", False, "backup", "x.npz", 8),
    "killed again": killed_training.fit(
        "position", False, "backup", "x.npz", 5),
    "resumed": killed_training.fit("position", False, "backup", "resumed.npz"),
    "pairs whole": killed_training.fit(
        "pairwise", True, "never", "pairs whole.npz"),
    "pairs killed": killed_training.fit("pairwise", True, "pairs", "x.npz", 14),
    "pairs resumed": killed_training.fit(
        "pairwise", True, "pairs", "pairs resumed.npz"),
}


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
  return killed_training.Trainings(tmp_path_factory.mktemp("fits"), _FITS)


@pytest.mark.slow
@pytest.mark.parametrize("whole, resumed, killed", [
    ("whole", "resumed", ["killed", "killed again"]),
    ("pairs whole", "pairs resumed", ["pairs killed"])])
def test_killed_in_the_middle_of_an_epoch(fits, whole, resumed, killed):
  for name in killed:
    fits.check_killed(name)
  expected, found = fits.state(whole), fits.state(resumed)
  assert list(found) == list(expected)
  for name, value in expected.items():
    np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-6,
                               err_msg=name)
  # All 20 steps, and each of them once.
  assert found["optimizer_0"] == found["num_updates:0"] == 20
  assert np.ptp(found["examination:0"]) > 0.01
  if whole.startswith("pairs"):
    assert np.ptp(found["trust_negative:0"]) > 1e-4


# The command line.

_WORDS = ["train", "--train=train.txt", "--test=test.txt", "--steps=12",
          "--validate_every=4", "--batch_size=8", "--hidden_units=8",
          "--learning_rate=0.01", "--num_positions=4",
          "--method=unbiased,unbiased-bayes"]
_CALLS = {
    "whole": killed_training.command(
        [*_WORDS, "--model_dir=whole", "--json=whole.json"]),
    # In the second epoch of the first method, then of the second.
    "first": killed_training.command([*_WORDS, "--model_dir=m"], 7),
    "other": killed_training.command(
        [*_WORDS, "--model_dir=m", "--learning_rate=0.02"]),
    "second": killed_training.command([*_WORDS, "--model_dir=m"], 8 + 6),
    "last": killed_training.command(
        [*_WORDS, "--model_dir=m", "--json=last.json"]),
    "all": killed_training.command(
        [*_WORDS, "--model_dir=m", "--json=all.json"]),
}


def _letor(num_lists, seed):
  rng = np.random.default_rng(seed)
  lines = []
  for qid in range(num_lists):
    for grade in rng.integers(0, 3, 6):
      values = rng.normal(size=4) + grade
      pairs = " ".join(f"{i}:{v:.4f}" for i, v in enumerate(values, start=1))
      lines.append(f"{grade} qid:{qid} {pairs}\n")
  return "".join(lines)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
  folder = tmp_path_factory.mktemp("calls")
  (folder / "train.txt").write_text(_letor(30, 0))
  (folder / "test.txt").write_text(_letor(10, 1))
  return killed_training.Trainings(folder, _CALLS)


def _results(calls, name):
  calls.out(name)
  return json.loads((calls.folder / f"{name}.json").read_text())["results"]


@pytest.mark.slow
def test_the_same_call_resumes(calls):
  for name in ("first", "second"):
    calls.check_killed(name)
  lines = calls.out("last").splitlines()[:3]
  assert lines == [
      "unbiased, seed 0, is finished: its result is in "
      f"{os.path.join('m', 'unbiased')}.",
      "Training unbiased-bayes, seed 0 ...",
      "Resuming at step 4, from "
      f"{os.path.join('m', 'unbiased-bayes', 'backup')}."]
  assert "Resuming at step 4" in calls.read("second", "out")


@pytest.mark.slow
def test_the_results_are_those_of_an_uninterrupted_call(calls):
  whole, found = (
      _results(calls, name)["click"] for name in ("whole", "last"))
  assert list(found["methods"]) == ["unbiased", "unbiased-bayes"]
  for name, metrics in whole["methods"].items():
    for metric, values in metrics.items():
      assert found["methods"][name][metric]["runs"] == pytest.approx(
          values["runs"], abs=1e-6)
    np.testing.assert_allclose(
        found["examination"]["estimated"][name],
        whole["examination"]["estimated"][name], rtol=1e-6)
  assert found["examination"]["true"] == whole["examination"]["true"]


@pytest.mark.parametrize("file", ["model/variables/variables",
                                  "checkpoints/best"])
@pytest.mark.parametrize("method", ["unbiased", "unbiased-bayes"])
@pytest.mark.slow
def test_the_models_are_those_of_an_uninterrupted_call(calls, method, file):
  calls.out("last")
  whole, found = (tf.train.load_checkpoint(str(calls.folder / name / file))
                  for name in (f"whole/{method}", f"m/{method}"))
  names = [name for name in whole.get_variable_to_shape_map()
           if "VARIABLE_VALUE" in name and "save_counter" not in name]
  assert len(names) > 4
  for name in names:
    np.testing.assert_allclose(found.get_tensor(name), whole.get_tensor(name),
                               rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_what_was_only_for_resuming_is_removed(calls):
  calls.out("last")
  for name in ("whole", "m"):
    assert sorted(os.listdir(calls.folder / name / "unbiased")) == [
        ".ultra_tfr.json", "checkpoints", "flags.txt", "logs", "model",
        "result.json", "settings.json"]


@pytest.mark.slow
def test_other_settings_are_an_error(calls):
  assert calls.read("other", "status") == "1"
  assert (
      "ultra-tfr train: --model_dir: "
      f"{os.path.join('m', 'unbiased')} holds a training with --learning_rate "
      "0.01, but now it is 0.02; call with the same flags to go on with it, or "
      "give another folder, or --overwrite to start anew.\n"
  ) in calls.read("other", "err")
  assert calls.read("other", "out") == ""


@pytest.mark.slow
def test_a_finished_call_gives_its_results_again(calls):
  assert _results(calls, "all") == _results(calls, "last")
  assert "Training" not in calls.out("all")


# In this process: what the parts do.

_SETTINGS = trainer.Settings((4,), batch_size=16, steps=6, validate_every=2)


@pytest.fixture(scope="module")
def task():
  data = synthetic.generate(20, 8, 8, num_features=40, max_size=12, seed=1)
  return task_lib.make_task(
      *data, PositionBasedModel(), num_positions=4, initial_fraction=0.2)


class _Killed(Exception):
  """Stands for the end of a process."""


def _validations(monkeypatch, task, values):
  """Makes validation give these values; returns the weights it sees."""
  real, values, seen = ranking.evaluate, iter(values), []

  def evaluate(model, lists, *args):
    if lists is not task.valid:
      return real(model, lists, *args)
    value = next(values)
    if value is None:
      raise _Killed
    seen.append(model.get_weights())
    return {"ndcg@10": value}

  monkeypatch.setattr(ranking, "evaluate", evaluate)
  return seen


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_the_best_before_the_end_stays_the_best(task, monkeypatch, tmp_path):
  first = _validations(monkeypatch, task, [0.9, None])
  with pytest.raises(_Killed):
    run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  keeper = run.checkpoints.KeepBest(
      task.valid, task.valid_stream, folder=str(tmp_path))
  assert keeper._picked == {"labels": 2, "clicks": None}
  second = _validations(monkeypatch, task, [0.1, 0.2])
  outcome = run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  assert (len(first), len(second)) == (1, 2)
  for found, expected in zip(outcome.model.get_weights(), first[0]):
    np.testing.assert_array_equal(found, expected)
  outcome.model.set_weights(second[1])
  outcome.model.load_weights(str(tmp_path / "checkpoints" / "best"))
  np.testing.assert_array_equal(outcome.model.get_weights()[0], first[0][0])


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_validation_that_was_counted_is_not_counted_again(
    task, monkeypatch, tmp_path):
  # The end comes between what `KeepBest` writes and the backup.
  def end(self, epoch, logs=None):
    raise _Killed

  first = _validations(monkeypatch, task, [0.5])
  with monkeypatch.context() as patch:
    patch.setattr(tf.keras.callbacks.BackupAndRestore, "on_epoch_end", end)
    with pytest.raises(_Killed):
      run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  # The first of them would be the best, if rounding errors counted.
  second = _validations(monkeypatch, task, [0.5 + 1e-9, 0.1, 0.2])
  outcome = run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  assert len(second) == 3
  for found, expected in zip(outcome.model.get_weights(), first[0]):
    np.testing.assert_allclose(found, expected, rtol=1e-6)
  assert outcome.model.optimizer.iterations.numpy() == 6


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_method_with_another_layer_resumes_too(task, monkeypatch, tmp_path):
  real = tf.keras.callbacks.BackupAndRestore.on_epoch_end

  def end(self, epoch, logs=None):
    if epoch:
      raise _Killed
    real(self, epoch, logs)

  expected = run.run("dla", task, _SETTINGS)
  with monkeypatch.context() as patch:
    patch.setattr(tf.keras.callbacks.BackupAndRestore, "on_epoch_end", end)
    with pytest.raises(_Killed):
      run.run("dla", task, _SETTINGS, model_dir=str(tmp_path))
  found = run.run("dla", task, _SETTINGS, model_dir=str(tmp_path))
  assert found.model.optimizer.iterations.numpy() == 6
  for weights, same in zip(found.model.get_weights(),
                           expected.model.get_weights()):
    np.testing.assert_allclose(weights, same, rtol=1e-6, atol=1e-6)
  np.testing.assert_allclose(
      found.examination, expected.examination, rtol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_after_the_last_step_nothing_is_trained_again(
    task, monkeypatch, tmp_path, capsys):
  whole = run.run("unbiased", task, _SETTINGS)
  with monkeypatch.context() as patch:
    patch.setattr(run.scorers, "export_ranker", _raise_killed)
    with pytest.raises(_Killed):
      run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  assert not (tmp_path / "result.json").exists()
  seen = _validations(monkeypatch, task, [])
  found = run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  assert not seen
  assert "Resuming at step 6" in capsys.readouterr().out
  assert found.metrics == pytest.approx(whole.metrics, abs=1e-6)
  np.testing.assert_allclose(found.examination, whole.examination, rtol=1e-6)
  assert runs.result(str(tmp_path))["metrics"] == found.metrics


def _raise_killed(*_):
  raise _Killed


# The folder.


def test_a_folder_of_something_else_is_left_alone(task, tmp_path):
  """`train` removed `result.json`, and replaced the model of `fit-log`."""
  (tmp_path / "result.json").write_text("{}")
  with pytest.raises(ValueError, match=(
      "holds files that ultra-tfr train did not write; give an empty folder")):
    run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  assert (tmp_path / "result.json").read_text() == "{}"


def test_only_what_differs_is_named(tmp_path):
  folder = str(tmp_path / "new")
  settings = {"seed": 0, "hidden_units": ["8", "4"], "valid": None}
  runs.check(folder, settings)
  assert not os.path.exists(folder)
  with runs.open_folder(folder) as opened:
    runs.write_settings(opened, settings)
  runs.check(folder, settings)
  for other, message in (
      ({**settings, "hidden_units": ["8"]}, "--hidden_units 8,4, but .* 8;"),
      ({**settings, "valid": "v.txt"}, "--valid None, but now it is v.txt;"),
      ({"seed": 0, "valid": None}, "--hidden_units 8,4, but now it is None;")):
    with pytest.raises(ValueError, match=message):
      runs.check(folder, other)


def test_clearing_leaves_what_is_not_ours(tmp_path):
  with runs.open_folder(tmp_path) as opened:
    runs.write_settings(opened, {})
    runs.begin(opened)
    for name in ("backup", "model", "logs", "checkpoints", "mine"):
      (tmp_path / name).mkdir()
      (tmp_path / name / "file").write_text("")
    for name in ("result.json", "best.npz", "notes.txt"):
      (tmp_path / name).write_text("{}")
    opened.clear()
  assert sorted(os.listdir(tmp_path)) == [
      ".ultra_tfr.json", "mine", "model", "notes.txt"]


def test_another_file_of_that_name_is_another_training(tmp_path):
  """After labels had changed, the old result was printed as the new one."""
  for folder, text in (("a", "1 qid:1 1:1\n"), ("b", "0 qid:1 1:1\n"),
                       ("c", "1 qid:1 1:1\n")):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "train.txt").write_text(text)
  first, second, third = (
      runs.digest(tmp_path / folder / "train.txt") for folder in "abc")
  assert first == third != second
  with runs.open_folder(tmp_path / "model") as folder:
    runs.write_settings(folder, {"train": first, "version": "0.1.0"})
  runs.check(tmp_path / "model", {"train": third, "version": "0.1.0"})
  for settings, message in (
      ({"train": second, "version": "0.1.0"}, f"with --train {first}, but now"),
      ({"train": first, "version": "2.0"},
       "with ultra_tfr 0.1.0, but now it is 2.0; install that version to go"),
      ({"train": second, "version": "2.0"}, "with ultra_tfr 0.1.0, but now")):
    with pytest.raises(ValueError, match=message):
      runs.check(tmp_path / "model", settings)


def test_a_training_of_before_versions_were_kept(tmp_path):
  """0.1.0 kept no version: a flag that is new looked like the reason."""
  with runs.open_folder(tmp_path) as folder:
    runs.write_settings(folder, {"train": "a.txt"})
  with pytest.raises(ValueError, match=(
      "with ultra_tfr 0.1.0, but now it is 0.2.0; install that "
      "version to go on with it, or give another folder")):
    runs.check(tmp_path, {
        "train": "a.txt", "relevance_units": ["4"], "version": "0.2.0"})


@pytest.mark.parametrize("name, text", [
    ("settings.json", "[1]"), ("settings.json", "{"), ("settings.json", ""),
    ("result.json", "{}"), ("result.json", "[]"),
    ("result.json", '{"metrics": {}, "examination": null, "seconds": 1}'),
    ("result.json", '{"metrics": {"ndcg@10": null}, "seconds": 1}'),
    ("result.json", '{"metrics": {"ndcg@10": NaN}, "examination": null, '
     '"seconds": 1}')])
def test_damaged_files_of_a_training(tmp_path, name, text):
  (tmp_path / name).write_text(text)
  with pytest.raises(ValueError, match=f"^{tmp_path}/{name}: .*damaged.*; .*"):
    runs.check(tmp_path, {})
    runs.result(tmp_path)


def _half(path):
  content = path.read_bytes()
  path.write_bytes(content[:len(content) // 2])


def _empty(path):
  path.write_bytes(b"")


@pytest.fixture(scope="module")
def killed_folder(task, tmp_path_factory):
  """The folder of a training that ended in its third validation."""
  folder = tmp_path_factory.mktemp("killed")
  with pytest.MonkeyPatch.context() as patch:
    _validations(patch, task, [0.9, 0.8, None])
    with pytest.raises(_Killed):
      run.run("unbiased", task, _SETTINGS, model_dir=str(folder / "model"))
  return folder / "model"


@pytest.mark.parametrize("damage", [_half, _empty])
@pytest.mark.parametrize("pattern", [
    "best.npz", "backup/**/checkpoint", "backup/**/*.index",
    "backup/**/*.data-*"])
@pytest.mark.usefixtures("eagerly")
def test_a_damaged_backup_is_told_by_one_sentence(
    task, killed_folder, tmp_path, pattern, damage):
  """It ended in a traceback, or in a training that began anew by half."""
  shutil.copytree(killed_folder, tmp_path, dirs_exist_ok=True)
  found = list(tmp_path.glob(pattern))
  assert found
  for path in found:
    damage(path)
  with pytest.raises(ValueError, match=(
      rf"^{tmp_path}/(best.npz|backup): is damaged \(.*\); give another "
      "folder, or --overwrite to start anew.$")) as error:
    run.run("unbiased", task, _SETTINGS, model_dir=str(tmp_path))
  assert "\n" not in str(error.value)
