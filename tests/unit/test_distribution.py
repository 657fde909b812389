"""Tests of ultra_tfr.distribution."""

import ctypes
import json
import os
import signal
import types

import pytest
import tensorflow as tf

from ultra_tfr import distribution

WORKERS = {"cluster": {"worker": ["a:1", "b:1"]},
           "task": {"type": "worker", "index": 1}}
CHIEF = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


@pytest.mark.parametrize("config, expected", [
    (WORKERS, (2, 1)),
    ({"cluster": CHIEF, "task": {"type": "chief", "index": 0}}, (3, 0)),
    ({"cluster": CHIEF, "task": {"type": "worker", "index": 1}}, (3, 2))])
def test_the_cluster_is_that_of_the_environment(monkeypatch, config, expected):
  monkeypatch.setenv("TF_CONFIG", json.dumps(config))
  cluster = distribution.find_cluster("multi_worker")
  assert cluster == expected
  assert cluster.is_chief == (cluster.number == 0)
  assert distribution.find_cluster("mirrored") == (1, 0)
  gpus = max(1, len(tf.config.list_physical_devices("GPU")))
  assert distribution.num_replicas(
      "multi_worker", cluster) == cluster.num_workers * gpus


@pytest.mark.parametrize("text", [
    "{", "[]", "{}", '{"cluster": {"worker": []}, "task": {}}',
    json.dumps({**WORKERS, "task": {"type": "worker", "index": 2}}),
    json.dumps({"cluster": CHIEF, "task": {"type": "ps", "index": 0}})])
def test_a_wrong_environment_is_told(monkeypatch, text):
  """TensorFlow waited for workers that there are none of, or named a field."""
  monkeypatch.setenv("TF_CONFIG", text)
  with pytest.raises(ValueError, match=(
      "^The environment variable TF_CONFIG must name the addresses of .* but "
      r"is '.*; set it to such as \{.*\}\.$")):
    distribution.find_cluster("multi_worker")


def test_a_missing_environment_is_told(monkeypatch):
  monkeypatch.delenv("TF_CONFIG", raising=False)
  with pytest.raises(ValueError, match="it is not set; set it to such as"):
    distribution.find_cluster("multi_worker")


def test_a_strategy_of_this_machine():
  strategy = distribution.make_strategy("mirrored")
  assert strategy.num_replicas_in_sync == distribution.num_replicas(
      "mirrored", distribution.Cluster())
  assert distribution.is_chief(strategy)
  assert distribution.of_chief(strategy, 2.0) == 2.0


def test_a_worker_can_be_ended(monkeypatch):
  """TensorFlow's strategy of several workers made them ignore SIGTERM."""
  def make():
    ctypes.CDLL(None).signal(signal.SIGTERM, 1)  # SIG_IGN, beside Python.

  monkeypatch.setattr(distribution, "tf", types.SimpleNamespace(
      distribute=types.SimpleNamespace(MultiWorkerMirroredStrategy=make)))
  seen = []
  before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
  try:
    distribution.make_strategy("multi_worker")
    os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]
  finally:
    signal.signal(signal.SIGTERM, before)


def test_memory_is_needed_for_the_part_of_a_batch_that_is_here():
  """A batch for 16 machines was refused for want of memory on each."""
  strategy = types.SimpleNamespace(
      extended=types.SimpleNamespace(worker_devices=["a", "b"]),
      num_replicas_in_sync=16)
  assert distribution.own_part(strategy, 256) == 32
  assert distribution.own_part(None, 256) == 256
