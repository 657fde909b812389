"""Trains small models under a strategy, and writes the results.

    python worker_program.py --strategy=mirrored --out=FILE.npz --scenarios=a,b

The tests of distribution compare this with the same training on one device.
"""

import contextlib
import functools

import ultra_tfr.compat  # noqa: F401  (first: it selects tf.keras)

# isort: split

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import callbacks
from ultra_tfr import feedback
from ultra_tfr import layers
from ultra_tfr import losses
from ultra_tfr import metrics
from ultra_tfr import scorers
from ultra_tfr.baselines import dual_learning

NUM_POSITIONS = 4
BATCH_SIZE = 8
# Lists of each `fit`, one after the other on the same model. Eight lists are a
# batch; of a last batch of one list the second of two replicas gets nothing.
PHASES = {"even": 16, "clicks_on_one_replica": 16, "uneven": 21, "empty": 9}


def _pairwise(trust_bias, **options):
  def build():
    bias = layers.PositionBias(NUM_POSITIONS, trust_bias=trust_bias)
    return (losses.UnbiasedPairwiseLoss(bias, **options),
            callbacks.PropensityEM())
  return build


def _position_with_lambda_weight():
  weight = tfr.keras.losses.NDCGLambdaWeight()
  return _pairwise(
      "position", lambda_weight=weight, normalize_weights=True)()


def _dual_learning():
  layer = dual_learning.PropensityLogits(NUM_POSITIONS)
  return (dual_learning.DualLearningLoss(layer),
          callbacks.PositionUpdates())


def _sgd(rate):
  return lambda: tf.keras.optimizers.SGD(rate)


def _adam():
  # The output bias of a pairwise loss has no gradient but rounding errors,
  # which Adam's usual epsilon would blow up.
  return tf.keras.optimizers.Adam(1e-2, epsilon=1e-3)


_NO_TRUST_BIAS, _SGD = _pairwise(None), _sgd(.1)
# What each scenario changes of `train`'s defaults.
SCENARIOS = {
    "none": {"evaluates": True},
    "position": {"build": _position_with_lambda_weight, "heads": 1,
                 "optimizer": _adam, "weighted": True, "in_scope": True},
    "pairwise": {"build": _pairwise("pairwise"), "heads": 3},
    # All hypotheses, each with a relevance head of its own.
    "several_steps": {"build": _pairwise("auto", reduction="sum"), "heads": 2,
                      "num_relevance": 4, "optimizer": _sgd(1e-3),
                      "steps_per_execution": 2},
    "dual_learning": {"build": _dual_learning, "heads": 1},
}


def make_data(phase, seed=0):
  """Features, packed clicks and weights of lists."""
  rng = np.random.default_rng(seed)
  shape = [PHASES[phase], NUM_POSITIONS]
  features = rng.normal(size=[*shape, 3]).astype(np.float32)
  positions = np.argsort(rng.random(shape), axis=1) + 1
  clicks = rng.random(shape) < .8 / positions
  if phase == "clicks_on_one_replica":
    clicks[np.arange(len(clicks)) % BATCH_SIZE >= BATCH_SIZE // 2] = False
  weights = rng.choice([.5, 1., 3.], size=shape[0]).astype(np.float32)
  return features, feedback.pack_feedback(clicks, positions).numpy(), weights


def make_dataset(phase, weighted=False):
  """The data as global batches, the same for any strategy."""
  data = make_data(phase)[:3 if weighted else 2]
  options = tf.data.Options()
  # Each worker reads all lists and keeps its part of each batch.
  options.experimental_distribute.auto_shard_policy = (
      tf.data.experimental.AutoShardPolicy.DATA)
  return tf.data.Dataset.from_tensor_slices(data).batch(
      BATCH_SIZE).with_options(options)


def clicks_by_replica(strategy, phase):
  """`[batches, replicas, 2]`: lists and clicks that each local replica gets."""
  rows = []
  for batch in strategy.experimental_distribute_dataset(make_dataset(phase)):
    rows.append([[len(packed), packed.numpy()[..., 0].sum()] for packed in
                 strategy.experimental_local_results(batch[1])])
  return np.array(rows)


class _Recorder(tf.keras.callbacks.Callback):
  """The variables of the bias layer and of the model after each batch."""

  def __init__(self, layer):
    super().__init__()
    self._layer = layer
    self.tables, self.weights = [], []

  def on_train_batch_end(self, batch, logs=None):
    self.tables.append(_flat(self._layer.weights))
    self.weights.append(_flat(self.model.trainable_weights))


def _flat(variables):
  return np.concatenate([np.ravel(variable.numpy()) for variable in variables])


def train(strategy, build=_NO_TRUST_BIAS, heads=2, num_relevance=1,
          optimizer=_SGD, weighted=False, steps_per_execution=1,
          in_scope=False, evaluates=False):
  """Trains one model.

  Args:
    strategy: where to.
    build: gives loss and callback.
    heads: of the model.
    num_relevance: relevance logits of a model with two heads or more.
    optimizer: gives an optimizer.
    weighted: with weights of lists.
    steps_per_execution: as in Keras.
    in_scope: call `fit` inside of the scope.
    evaluates: record evaluation and prediction afterwards.

  Returns:
    A dict of arrays. For each phase "{phase}/loss"; "{phase}/tables", all
    variables of the bias layer after each execution, `[executions, n]`; and
    afterwards "{phase}/weights" of the model and "{phase}/updates", the batches
    that EM has seen. "propensities" are what users are told at the end.
  """
  tf.keras.utils.set_random_seed(0)
  with strategy.scope():
    model = scorers.build_model(3, num_heads=heads, hidden_units=[4],
                                num_relevance=num_relevance)
    loss, callback = build()
    ndcg = [metrics.on_ranking(tfr.keras.metrics.NDCGMetric(name="ndcg"))]
    model.compile(optimizer(), loss, metrics=ndcg if evaluates else None,
                  steps_per_execution=steps_per_execution)
    # Or Keras would trace each step twice, which is what takes the time here.
    model.optimizer.build(model.trainable_variables)
  layer, results = loss.position_bias, {}
  for phase in PHASES:
    recorder = _Recorder(layer)
    scope = strategy.scope() if in_scope else contextlib.nullcontext()
    with scope:
      history = model.fit(make_dataset(phase, weighted), verbose=0,
                          callbacks=[callback, recorder])
    # Of the epoch: Keras adds up the workers' losses in the logs of a batch.
    results[f"{phase}/loss"] = np.array(history.history["loss"])
    results[f"{phase}/tables"] = np.array(recorder.tables)
    results[f"{phase}/weights"] = _flat(model.weights)
    results[f"{phase}/updates"] = layer.num_updates.numpy()
  results["propensities"] = np.array(layer.propensities()["examination"])
  if evaluates:
    data = make_dataset("uneven")
    results["evaluate"] = np.array(model.evaluate(data, verbose=0))
    results["predict"] = model.predict(data, verbose=0)
    results["after/tables"] = _flat(layer.weights)
  return results


def train_poisoned(strategy):
  """Trains in half precision on three batches; one list of the second is NaN.

  Args:
    strategy: where to. The poison goes to the first of two replicas.

  Returns:
    A dict of arrays: "tables" and "weights" of the model, `[3, n]`, after each
    batch; "skipped", what the logs say of the epoch, and "updates".
  """
  tf.keras.utils.set_random_seed(0)
  features, packed, _ = make_data("uneven")
  features[BATCH_SIZE] = np.nan
  before = tf.keras.mixed_precision.global_policy()
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    with strategy.scope():
      model = scorers.build_model(3, num_heads=2, hidden_units=[4])
      loss, callback = _NO_TRUST_BIAS()
      # A scale that fits at once: the first batches are not to be skipped.
      model.compile(tf.keras.mixed_precision.LossScaleOptimizer(
          _SGD(), initial_scale=8), loss)
    recorder = _Recorder(loss.position_bias)
    history = model.fit(
        tf.data.Dataset.from_tensor_slices((features, packed)).batch(
            BATCH_SIZE), verbose=0, callbacks=[callback, recorder]).history
  finally:
    tf.keras.mixed_precision.set_global_policy(before)
  return {"tables": np.array(recorder.tables),
          "weights": np.array(recorder.weights),
          "skipped": np.array(history["batches_skipped"]),
          "updates": loss.position_bias.num_updates.numpy()}


@functools.cache
def train_on_one_device(name):
  """What `train` gives for a scenario without a strategy."""
  return train(tf.distribute.get_strategy(), **SCENARIOS[name])


def assert_as_one_device(results, scenario):
  """Asserts that a strategy trained as one device does.

  Args:
    results: what `main` wrote.
    scenario: a key of `SCENARIOS`.
  """
  expected = train_on_one_device(scenario)
  for key, value in expected.items():
    np.testing.assert_allclose(
        results[f"{scenario}/{key}"], value, rtol=1e-5, atol=1e-5, err_msg=key)
  batches = np.cumsum([-(-lists // BATCH_SIZE) for lists in PHASES.values()])
  assert batches.tolist() == [
      results[f"{scenario}/{phase}/updates"] for phase in PHASES]
  # There was something to learn.
  tables = np.concatenate([expected[f"{phase}/tables"] for phase in PHASES])
  assert np.ptp(tables, axis=0).max() > .01


def _make_strategy(name):
  if name == "workers":
    return tf.distribute.MultiWorkerMirroredStrategy()
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * 2)
  return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main(_):
  strategy = _make_strategy(flags.FLAGS.strategy)
  results = {}
  for name in flags.FLAGS.scenarios:
    for key, value in train(strategy, **SCENARIOS[name]).items():
      results[f"{name}/{key}"] = value
  for phase in PHASES:
    results[f"split/{phase}"] = clicks_by_replica(strategy, phase)
  if flags.FLAGS.strategy == "mirrored":
    for key, value in train_poisoned(strategy).items():
      results[f"poisoned/{key}"] = value
  results["replicas"] = strategy.num_replicas_in_sync
  np.savez(flags.FLAGS.out, **results)


if __name__ == "__main__":
  flags.DEFINE_enum("strategy", None, ["mirrored", "workers"], "Where to.")
  flags.DEFINE_string("out", None, "An npz file.")
  flags.DEFINE_list("scenarios", None, "Keys of SCENARIOS.")
  app.run(main)
