"""Tests of ultra_tfr.experiments.run."""

import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr import logged_order
from ultra_tfr import methods
from ultra_tfr import scorers
from ultra_tfr import trainer
from ultra_tfr.data import synthetic
from ultra_tfr.evaluation import ranking
from ultra_tfr.experiments import run
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.simulation.click_models import CascadeModel
from ultra_tfr.simulation.click_models import PositionBasedModel

NUM_POSITIONS = 5
SETTINGS = trainer.Settings(
    hidden_units=(8, 4), batch_size=16, steps=6, learning_rate=3e-3,
    validate_every=2)

# Nothing of this package, and not TF-Ranking either.
_SERVE = """
import sys
import numpy as np
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
(_, inputs), outputs = (
    served.structured_input_signature, served.structured_outputs)
assert list(inputs) == ["features"], inputs
assert list(outputs) == ["scores"], outputs
assert inputs["features"].shape.as_list() == [None, None, 40]
assert outputs["scores"].shape.as_list() == [None, None]
features = np.load(sys.argv[2])
scores = served(features=tf.constant(features))["scores"]
assert not {"ultra_tfr", "tensorflow_ranking"} & set(sys.modules)
np.save(sys.argv[3], scores.numpy())
"""


@pytest.fixture(scope="module")
def data():
  return synthetic.generate(40, 12, 12, num_features=40, max_size=12, seed=1)


@pytest.fixture(scope="module")
def task(data):
  return task_lib.make_task(
      *data, PositionBasedModel(), num_positions=NUM_POSITIONS,
      initial_fraction=0.1)


@pytest.fixture(scope="module")
def dwell_task(data):
  return task_lib.make_task(
      *data, PositionBasedModel(), feedback="dwell",
      num_positions=NUM_POSITIONS)


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory):
  """The outcome of one training, and its folder."""
  folder = tmp_path_factory.mktemp("trained")
  return run.run("unbiased", task, SETTINGS, model_dir=str(folder)), folder


def _files(folder):
  return [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]


def _logged(folder):
  """Tag -> numbers of the TensorBoard logs."""
  values = {}
  for path in _files(folder):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "images":
          continue
        values.setdefault(value.tag, []).append(
            float(tf.make_ndarray(value.tensor)) if value.HasField("tensor")
            else value.simple_value)
  return values


def test_task(task, data):
  assert task.num_positions == NUM_POSITIONS
  assert task.stream.labels.shape == (40, NUM_POSITIONS)
  assert (task.valid, task.test) == (data.valid, data.test)
  np.testing.assert_array_equal(task.train_features, data.train.features)
  np.testing.assert_allclose(
      task.true_examination, PositionBasedModel().examination(NUM_POSITIONS))


def test_the_initial_ranker_is_better_than_chance_with_enough_labels(data):
  shown = {}
  for fraction in (0.01, 1.0):
    shown[fraction] = task_lib.make_task(
        *data, PositionBasedModel(), num_positions=NUM_POSITIONS,
        initial_fraction=fraction).stream.labels
  average = data.train.labels.mean()
  assert shown[1.0].mean() > average + 0.2
  assert shown[1.0].mean() > shown[0.01].mean()


def test_a_task_depends_on_its_arguments(data):
  def stream(model=None, **arguments):
    # The logger that needs no training.
    return task_lib.make_task(
        *data, model or PositionBasedModel(), num_positions=NUM_POSITIONS,
        logger="random", **arguments)

  base = stream()
  np.testing.assert_array_equal(
      base.stream.draw(0), stream().stream.draw(0))
  assert (base.stream.draw(0) != stream(seed=1).stream.draw(0)).any()
  assert stream(feedback="dwell").stream.draw(0).max() > 1
  assert stream(CascadeModel()).true_examination is None


def test_metrics_and_examination(trained, task):
  outcome, _ = trained
  assert list(outcome.metrics) == ["ndcg@3", "ndcg@5", "ndcg@10"]
  assert all(0 < value < 1 for value in outcome.metrics.values())
  assert outcome.metrics == ranking.evaluate(outcome.model, task.test)
  assert outcome.examination.shape == (NUM_POSITIONS,)
  assert outcome.examination[0] == 1
  assert outcome.seconds > 0


def test_exactly_the_steps_asked_for(trained):
  assert trained[0].model.optimizer.iterations.numpy() == 6


@pytest.mark.usefixtures("eagerly")
def test_fewer_steps_than_between_validations(task):
  settings = trainer.Settings((4,), batch_size=16, steps=3)
  outcome = run.run("naive-pairwise", task, settings)
  assert outcome.model.optimizer.iterations.numpy() == 3
  assert outcome.examination is None


def test_steps_that_are_no_multiple():
  with pytest.raises(
      ValueError, match=r"`steps` \(7\) must be a multiple of "
      r"`validate_every` \(3\)"):
    trainer.Settings(steps=7, validate_every=3)


def test_logs_have_the_examination_by_position(trained):
  outcome, folder = trained
  logged = _logged(folder / "logs")
  for rank in range(1, NUM_POSITIONS + 1):
    assert len(logged[f"epoch_examination_{rank}"]) == 3
  assert len(logged["epoch_ndcg@10"]) == 3
  # The estimate is the last one, whichever checkpoint is chosen: validation
  # says nothing about propensities, and more feedback makes them better.
  curve = [logged[f"epoch_examination_{rank}"][-1]
           for rank in range(1, NUM_POSITIONS + 1)]
  np.testing.assert_allclose(outcome.examination, curve, rtol=1e-5)


def test_the_model_is_the_best_of_the_validations(trained, task):
  outcome, folder = trained
  best = max(_logged(folder / "logs")["epoch_ndcg@10"])
  assert ranking.evaluate(outcome.model, task.valid)["ndcg@10"] == (
      pytest.approx(best, abs=1e-6))


@pytest.mark.usefixtures("eagerly")
def test_the_best_checkpoint_is_restored_though_not_the_last(
    task, monkeypatch, tmp_path):
  values, seen = iter([0.1, 0.9, 0.2]), []
  real = ranking.evaluate

  def evaluate(model, lists, *args):
    if lists is not task.valid:
      return real(model, lists, *args)
    seen.append(model.get_weights())
    return {"ndcg@10": next(values)}

  monkeypatch.setattr(ranking, "evaluate", evaluate)
  outcome = run.run("unbiased", task, SETTINGS, model_dir=str(tmp_path))
  assert len(seen) == 3
  for found, expected in zip(outcome.model.get_weights(), seen[1]):
    np.testing.assert_array_equal(found, expected)
  assert np.abs(seen[1][0] - seen[2][0]).max() > 0
  # So is the file.
  outcome.model.set_weights(seen[2])
  outcome.model.load_weights(str(tmp_path / "checkpoints" / "best"))
  for found, expected in zip(outcome.model.get_weights(), seen[1]):
    np.testing.assert_array_equal(found, expected)


def test_checkpoints_are_written(trained):
  _, folder = trained
  names = {path.name for path in _files(folder / "checkpoints")}
  assert "best.index" in names


def test_plain_tensorflow_serves_the_ranking_head(
    trained, task, plain_tensorflow, tmp_path):
  outcome, folder = trained
  features = task.test.pad()[0]
  np.save(tmp_path / "features.npy", features)
  done = plain_tensorflow(
      _SERVE, tmp_path, str(folder / "model"), str(tmp_path / "features.npy"),
      str(tmp_path / "scores.npy"))
  assert done.returncode == 0, done.stderr[-2000:]
  np.testing.assert_allclose(
      np.load(tmp_path / "scores.npy"),
      outcome.model.predict(features, verbose=0)[..., 0],
      rtol=1e-4, atol=1e-5)


def test_the_exported_model_is_the_ranking_head_alone(trained, tmp_path):
  outcome, folder = trained
  exported = str(folder / "model" / "variables" / "variables")
  shapes = dict(tf.train.list_variables(exported))
  size = sum(int(np.prod(shape)) for name, shape in shapes.items()
             if "VARIABLE_VALUE" in name)
  ranker = scorers.ranking_model(outcome.model)
  assert abs(size - ranker.count_params()) <= 5
  assert not [name for name in shapes if "bias_layer" in name
              or "examination" in name or "relevance" in name]
  outcome.model.save(str(tmp_path / "whole"))
  assert _size(folder / "model") < 0.7 * _size(tmp_path / "whole")


def _size(folder):
  return sum(path.stat().st_size for path in _files(folder))


def test_the_seed_decides_everything(trained, task):
  again = run.run("unbiased", task, SETTINGS)
  other = run.run("unbiased", task, SETTINGS, seed=1)
  assert again.metrics == pytest.approx(trained[0].metrics, abs=1e-6)
  np.testing.assert_allclose(
      again.examination, trained[0].examination, rtol=1e-5)
  assert other.metrics != again.metrics


@pytest.mark.usefixtures("eagerly")
def test_ipw_known_gives_no_estimate(task):
  settings = trainer.Settings((4,), batch_size=16, steps=1)
  assert run.run("ipw-known", task, settings).examination is None


@pytest.mark.usefixtures("eagerly")
def test_dwell(dwell_task):
  settings = trainer.Settings((4,), batch_size=16, steps=2)
  outcome = run.run("unbiased", dwell_task, settings, feedback="dwell")
  assert np.isfinite(outcome.examination).all()


# tests/unit/test_methods.py trains all of them without the runs around it.
@pytest.mark.parametrize("name", [
    name if name in ("unbiased", "naive-pairwise", "dla", "baseline-v4") else
    pytest.param(name, marks=pytest.mark.slow) for name in methods.METHODS])
@pytest.mark.usefixtures("eagerly")
def test_every_method(name, task, dwell_task):
  feedback = methods.find(name).feedback[-1]
  settings = trainer.Settings((4,), batch_size=16, steps=3)
  outcome = run.run(
      name, task if feedback == "click" else dwell_task, settings,
      feedback=feedback)
  assert all(0 < value < 1 for value in outcome.metrics.values())
  if methods.find(name).estimates_examination:
    assert outcome.examination.shape == (NUM_POSITIONS,)
    assert outcome.examination[0] == 1
  else:
    assert outcome.examination is None


@pytest.mark.parametrize("name, is_guarded", [
    ("unbiased", True), ("unbiased-ipw", False),
    pytest.param("naive-pairwise", False, marks=pytest.mark.slow),
    pytest.param("dla", False, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("eagerly")
def test_the_guard_sees_the_held_out_lists_each_epoch(
    name, is_guarded, task, monkeypatch):
  calls = []
  monkeypatch.setattr(
      logged_order, "move_weight", lambda bias, *found: calls.append(found))
  run.run(name, task, SETTINGS)
  assert len(calls) == 3 * is_guarded
  for dcg, gain in itertools.chain(*calls):
    # Ranker, logged order, its reverse, and the relevance head.
    assert (dcg.shape, gain.shape) == ((4, 12), (12,))
    assert len(np.unique(np.sum([*dcg, gain], axis=1))) == 5
    assert np.isfinite(dcg).all() and np.isfinite(gain).all()


def test_a_method_that_is_not_for_the_feedback(task):
  with pytest.raises(ValueError, match="is for dwell feedback, but `feedback`"):
    run.run("baseline-v3", task, SETTINGS)


@pytest.mark.usefixtures("eagerly")
def test_the_sum_of_two_predictions_is_exported(dwell_task, tmp_path):
  outcome = run.run("baseline-v4", dwell_task, SETTINGS, feedback="dwell",
                         model_dir=str(tmp_path))
  served = tf.saved_model.load(str(tmp_path / "model"))
  features = dwell_task.test.pad()[0]
  heads = outcome.model.predict(features, verbose=0)
  scores = served.signatures["serving_default"](
      features=tf.constant(features))["scores"]
  # The first head; the second is the click's logit, part of the sum.
  np.testing.assert_allclose(scores, heads[..., 0], rtol=1e-4, atol=1e-5)
  assert np.abs(heads[..., 0] - heads[..., 1]).max() > 1e-2


def test_unknown_method(task):
  with pytest.raises(ValueError, match="There is no method 'best'"):
    run.run("best", task, SETTINGS)
