"""Tests that a prepared log trains alike on one device and on several."""

import json
import shutil
import types

import numpy as np
from pyarrow import parquet
import pytest
import tensorflow as tf

import click_logs
import prepared_logs
import process_groups
import replicas_program
from replicas_program import NUM_REPLICAS
from replicas_program import SEED
from ultra_tfr import distribution
from ultra_tfr import trainer
from ultra_tfr.commands import click_logs as click_logs_of_commands
from ultra_tfr.data.prepared import manifest
from ultra_tfr.data.prepared import shards
from ultra_tfr.fit_log import training


def _prepare(table, folder, features=click_logs.FEATURES):
  """The folder of a prepared log, whose requests differ in length."""
  kept = np.random.default_rng(0).random(len(table)) < .8
  parquet.write_table(table.filter(kept), folder / "log.parquet")
  plan = prepared_logs.make_plan([str(folder / "log.parquet")], folder,
                                 click_logs.columns(features=features))
  # Of which two replicas share one.
  plan.num_buckets = 5
  prepared_logs.prepare(plan)
  return plan.folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """The folder of a small log."""
  return _prepare(click_logs.small(), tmp_path_factory.mktemp("prepared"),
                  ("f_0", "category"))


@pytest.fixture
def one_device(monkeypatch):
  """Gives one device the batches of two replicas."""
  def training_batches(self, batch_size, seed):
    batches = self.replica_batches(
        range(NUM_REPLICAS), NUM_REPLICAS, batch_size, seed)
    fillings = {"numeric": 0.0, "texts": ""}
    return batches.unbatch().padded_batch(batch_size, padding_values=(
        {name: fillings[name] for name in batches.element_spec[0]}, -1.0, 0.0))

  monkeypatch.setattr(shards.Shards, "training_batches", training_batches)


def _check(path, expected):
  """Asserts that what was written is a training on one device."""
  with open(path) as file:
    found = json.load(file)
  np.testing.assert_allclose(
      found["bias"]["click_relevant"], expected.bias.click_relevant, atol=1e-5)
  assert np.ptp(expected.bias.click_relevant) > .01
  assert (found["bias"]["at_end"] is None) == (expected.bias.at_end is None)
  for name in ("loss", "val_log_likelihood", "val_snips_dcg@10", "val_lead",
               "logged_order_weight", "examination_change", "step"):
    np.testing.assert_allclose(
        found["history"][name], expected.history[name], rtol=1e-5, atol=1e-5,
        err_msg=name)


def test_two_replicas_train_as_one_device(prepared, tmp_path, one_device):
  file = tmp_path / "found.json"
  process_groups.run(
      [[replicas_program.__file__, prepared, str(file)]], tmp_path)
  _check(file, replicas_program.fit(prepared))


def test_a_log_too_small_for_the_workers_is_told_at_once(
    prepared, monkeypatch):
  """And not when all of them are there."""
  monkeypatch.setattr(click_logs_of_commands, "FLAGS", types.SimpleNamespace(
      distribution="multi_worker", batch_size=None))
  log = manifest.read_prepared(prepared)
  with pytest.raises(ValueError, match=(
      r"training part has 3\d\d requests, too few for 1000 replicas")):
    click_logs_of_commands.make_strategy(log, distribution.Cluster(1000, 1))


def _read_on(model, loss, dataset, *_):
  """In place of a training."""
  del model, loss
  list(dataset.take(20))


def _lose_worker(*_):
  raise tf.errors.UnavailableError(None, None, "Collective ops is aborted")


@pytest.mark.parametrize("train, message", [
    (_read_on, r"^\S+/train-00003\S+: is no whole shard of this prepared log"),
    (_lose_worker, "since another worker has ended or cannot be reached; see")])
def test_what_ends_a_training_is_told(
    prepared, tmp_path, monkeypatch, train, message):
  """TensorFlow's tracebacks name neither the file nor what to do."""
  folder = shutil.copytree(prepared, tmp_path / "damaged")
  damaged, = folder.glob("shards/train-00003*")
  damaged.write_bytes(damaged.read_bytes()[:-30])
  monkeypatch.setattr(trainer, "fit", train)
  # It reads all of a small log, before the training.
  monkeypatch.setattr(training, "_highest_rate", lambda log: .3)
  with pytest.raises(ValueError, match=message):
    replicas_program.fit(str(folder))


@pytest.mark.release
def test_two_workers_train_as_one_device(tmp_path, one_device):
  """Each with its own shards; one writes, the other ends well, too."""
  folder, settings = _prepare(
      click_logs.simulated()[0], tmp_path), click_logs.SETTINGS
  words = [
      f"--{name}={value}" for name, value in vars(settings).items()
      if name in ("batch_size", "steps", "validate_every", "learning_rate")]
  chief, other = process_groups.run([[
      "-m", "ultra_tfr.cli", "fit-log", f"--prepared={folder}", *words,
      f"--seed={SEED}", "--hidden_units=32,16",
      "--distribution=multi_worker", f"--model_dir={tmp_path / 'model'}",
      f"--json={tmp_path / 'found.json'}"]] * 2, tmp_path,
      process_groups.two_workers())
  assert "The ranking model is in" in chief
  assert other.splitlines()[-1] == "The training has ended."
  log = manifest.read_prepared(folder)
  fitted = training.fit(log, "unbiased", settings, seed=SEED)
  _check(tmp_path / "found.json", fitted)
  assert fitted.bias.at_end is not None  # EM was run to convergence.
  again = training.load(str(tmp_path / "model"))
  np.testing.assert_allclose(
      again.bias.click_relevant, fitted.bias.click_relevant, atol=1e-5)
