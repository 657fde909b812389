"""Tests that several processes train as one device does."""

import pathlib
import re
import time

import numpy as np
import pytest
import tensorflow as tf

import process_groups
import worker_program

SCENARIOS = ("none", "pairwise")
EXAMPLE = pathlib.Path(__file__).resolve().parents[2].joinpath(
    "examples", "distributed.py")
SMALL = ["--epochs=1", "--queries=200", "--batch_size=64"]


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
  """What each of two workers has after its training."""
  folder = tmp_path_factory.mktemp("workers")
  files = [folder / f"{i}.npz" for i in range(2)]
  process_groups.run(
      [[worker_program.__file__, "--strategy=workers", f"--out={file}",
        f"--scenarios={','.join(SCENARIOS)}"] for file in files],
      folder, process_groups.two_workers())
  return [dict(np.load(file)) for file in files]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.smoke
def test_two_workers_train_as_one_device(workers, scenario):
  for worker in workers:
    worker_program.assert_as_one_device(worker, scenario)


@pytest.mark.slow
def test_each_worker_gets_its_part(workers):
  assert [int(worker["replicas"]) for worker in workers] == [2, 2]
  for phase, lists in worker_program.PHASES.items():
    parts = np.concatenate(
        [worker[f"split/{phase}"] for worker in workers], axis=1)
    assert parts[:, :, 0].sum() == lists
    clicks = worker_program.make_data(phase)[1][..., 0].sum()
    assert parts[:, :, 1].sum() == clicks
  np.testing.assert_array_equal(workers[1]["split/empty"][-1], [[0, 0]])
  assert not workers[1]["split/clicks_on_one_replica"][..., 1].any()


def _numbers(printed):
  """The last curve that the example printed, and NDCG."""
  curve = re.search(r"estimated: \[([^\]]*)\]", printed).group(1)
  ndcg = re.search(r"true labels: (\S+)", printed).group(1)
  return [float(ndcg), *map(float, curve.split())]


@pytest.mark.release
def test_example(tmp_path):
  command = [str(EXAMPLE), *SMALL, f"--export_to={tmp_path / 'model'}"]
  one, = process_groups.run([[*command, "--logical_devices=2"]], tmp_path)
  chief, other = process_groups.run(
      [command] * 2, tmp_path, process_groups.two_workers())
  for printed in (one, chief):
    assert "replicas: 2" in printed
  assert "replicas" not in other
  # Rounded to two and three digits.
  np.testing.assert_allclose(_numbers(chief), _numbers(one), atol=.011)
  serve = tf.saved_model.load(
      str(tmp_path / "model")).signatures["serving_default"]
  width = serve.structured_input_signature[1]["features"].shape[-1]
  assert serve(features=tf.zeros([2, 3, width]))["scores"].shape == [2, 3]


# Starts a child, tells its number, and hangs or fails.
_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


@pytest.mark.parametrize("seconds, code, fails", [
    (600, 0, True), (0, 3, True), (0, 0, False)])
def test_no_process_is_left_behind(tmp_path, seconds, code, fails):
  file = tmp_path / "child"
  arguments = ["-c", _PARENT, str(file), str(seconds), str(code)]
  if fails:
    with pytest.raises(AssertionError, match=f"^{code or None}: "):
      process_groups.run([arguments], tmp_path, timeout=3)
  else:
    process_groups.run([arguments], tmp_path, timeout=20)
  child = pathlib.Path("/proc", file.read_text(), "status")
  # Who takes over a killed child needs a moment to bury it.
  deadline = time.monotonic() + 10
  while _lives(child) and time.monotonic() < deadline:
    time.sleep(.05)
  assert not _lives(child)


def _lives(status):
  try:
    return "State:\tZ" not in status.read_text()
  except (FileNotFoundError, ProcessLookupError):
    return False
