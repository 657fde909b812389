r"""Unbiased training on many devices, of one machine or of several.

On one machine it trains on all GPUs, or, to try it out, on logical devices of
the CPU (about a minute on two cores):

    python examples/distributed.py --logical_devices=2 --epochs=5

Expected output:

    replicas: 2
    NDCG@10 on true labels: 0.852
    examination, true:      [1.   0.9  0.71 0.5  0.41 0.29 0.16 0.15 0.12 0.09]
    examination, estimated: [1.   0.93 0.72 0.49 0.37 0.28 0.16 0.11 0.09 0.08]

With several machines start the same command on each, with the environment
variable TF_CONFIG set; two processes on one machine:

    CLUSTER='"cluster": {"worker": ["localhost:2301", "localhost:2302"]}'
    for I in 0 1; do
      TF_CONFIG="{$CLUSTER, \"task\": {\"type\": \"worker\", \"index\": $I}}" \
        python examples/distributed.py --epochs=5 &
    done; wait

Only the first one, the chief, prints and exports. The numbers do not depend on
the number of devices, up to rounding: there is one estimate of examination,
from the sums over all of them.
"""

import os

from absl import app
from absl import flags
import ultra_tfr  # Before TensorFlow.
import tensorflow as tf

from ultra_tfr import distribution
from ultra_tfr import scorers
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.data import synthetic
from ultra_tfr.evaluation import ranking
from ultra_tfr.simulation.click_models import PositionBasedModel

_LOGICAL_DEVICES = flags.DEFINE_integer(
    "logical_devices", 1, "Into how many devices to split the CPU.")
_EPOCHS = flags.DEFINE_integer("epochs", 5, "Epochs of 100 batches.")
_QUERIES = flags.DEFINE_integer("queries", 2000, "Training queries.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Lists in a global batch, that of all devices together.")
_SEED = flags.DEFINE_integer("seed", 0, "Of data, clicks and weights.")
_EXPORT_TO = flags.DEFINE_string(
    "export_to", None, "Folder for the ranking model.")


def _make_strategy():
  """The strategy: before anything else touches TensorFlow's devices."""
  if _LOGICAL_DEVICES.value > 1:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * _LOGICAL_DEVICES.value)
  return distribution.make_strategy(
      distribution.MULTI_WORKER if "TF_CONFIG" in os.environ else
      distribution.MIRRORED)


def _make_dataset(task):
  """Global batches, of which each replica gets its part.

  `DATA` means that each worker reads everything and keeps its part of each
  batch. So all must see the same lists in the same order: the stream draws from
  its seed, and a shuffle of your own needs a fixed `seed`. With many files,
  `FILE` reads each on one worker only; which lists meet in a batch then depends
  on the number of workers. `AUTO`, the default, takes `FILE` where it can.
  """
  options = tf.data.Options()
  options.experimental_distribute.auto_shard_policy = (
      tf.data.experimental.AutoShardPolicy.DATA)
  return task.stream.dataset(_BATCH_SIZE.value).with_options(options)


def _build_model(task):
  return scorers.build_model(
      task.train_features.shape[1],
      scorers.feature_preprocessing(task.train_features), num_heads=2,
      hidden_units=(128, 64))


def main(_):
  strategy = _make_strategy()
  tf.keras.utils.set_random_seed(_SEED.value)
  data = synthetic.generate(num_train=_QUERIES.value, seed=_SEED.value)
  task = task_lib.make_task(*data, PositionBasedModel(), seed=_SEED.value)

  # All that has variables is created in the scope, the bias layer too.
  with strategy.scope():
    model = _build_model(task)
    bias = ultra_tfr.layers.PositionBias(num_positions=10)
    model.compile(tf.keras.optimizers.Adam(1e-3),
                  ultra_tfr.losses.UnbiasedPairwiseLoss(bias))
  model.fit(
      _make_dataset(task), steps_per_epoch=100, epochs=_EPOCHS.value,
      callbacks=[ultra_tfr.callbacks.PropensityEM()], verbose=0)

  if not distribution.is_chief(strategy):
    return
  # A copy without the strategy, under which all workers would have to take part
  # in prediction.
  ranker = _build_model(task)
  ranker.set_weights(model.get_weights())
  ndcg = ranking.evaluate(ranker, task.test)["ndcg@10"]
  print(f"replicas: {strategy.num_replicas_in_sync}")
  print(f"NDCG@10 on true labels: {ndcg:.3f}")
  print("examination, true:     ", (task.true_examination /
                                    task.true_examination[0]).round(2))
  print("examination, estimated:", bias.propensities()["examination"].round(2))
  if _EXPORT_TO.value:
    scorers.export_ranker(ranker, _EXPORT_TO.value)


if __name__ == "__main__":
  app.run(main)
