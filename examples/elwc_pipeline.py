r"""Unbiased training with TF-Ranking's pipeline on ELWC files of a click log.

The flags are those of TF-Ranking's examples. Positions are read from the files
with the clicks; the exported model needs neither.

Commands; the first one makes small files out of synthetic data and simulated
clicks, in place of a log:

    python examples/elwc_pipeline.py --make_data=/tmp/elwc
    python examples/elwc_pipeline.py \
        --train_input_pattern=/tmp/elwc/train-*.tfrecord.gz \
        --valid_input_pattern=/tmp/elwc/valid.tfrecord.gz \
        --model_dir=/tmp/elwc/model

Expected output after that of Keras, in about a minute on two cores:

    examination, true if simulated: [1.   0.9  0.71 0.5  0.41 0.29 0.16 ...]
    examination, estimated:         [1.   0.8  0.66 0.39 0.35 0.19 0.13 ...]

The estimate is that of the best epoch, which has a `val_metric/ndcg_10` of
about 0.82 on true labels. The models are in `model_dir` below `export`, beside
the logs for TensorBoard. They are the ranking head alone, and plain TensorFlow
serves them:

    model = tf.saved_model.load("/tmp/elwc/model/export/best_model_by_metric")
    model.signatures["score"](features=..., mask=...)["scores"]
"""

import functools
import os

from absl import app
from absl import flags
import numpy as np
import ultra_tfr  # Before TensorFlow Ranking.
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import pipeline
from ultra_tfr import scorers
from ultra_tfr.data import elwc
from ultra_tfr.data import synthetic
from ultra_tfr.simulation.click_models import PositionBasedModel

_TRAIN = flags.DEFINE_string("train_input_pattern", None, "ELWC with clicks.")
_VALID = flags.DEFINE_string("valid_input_pattern", None, "ELWC with labels.")
_MODEL_DIR = flags.DEFINE_string("model_dir", None, "Of logs and models.")
_BATCH = flags.DEFINE_integer("batch_size", 64, "Lists in a batch.")
_LIST_SIZE = flags.DEFINE_integer("list_size", 10, "Items of a training list.")
_EPOCHS = flags.DEFINE_integer("num_epochs", 5, "Epochs.")
_STEPS = flags.DEFINE_integer("steps_per_epoch", 100, "Steps of an epoch.")
_VALID_STEPS = flags.DEFINE_integer("validation_steps", 3, "After an epoch.")
_RATE = flags.DEFINE_float("learning_rate", 2e-3, "Of Adam.")
_STRATEGY = flags.DEFINE_string("strategy", None, "Such as MirroredStrategy.")
_MAKE_DATA = flags.DEFINE_string("make_data", None, "Where to make files.")
_QUERIES = flags.DEFINE_integer("queries", 2000, "Queries to make.")
_SEED = flags.DEFINE_integer("seed", 0, "Of data and weights.")

_NUM_FEATURES, _NUM_POSITIONS = 136, 10
_EXAMPLE_SPEC = {"features": tf.io.FixedLenFeature(
    [_NUM_FEATURES], tf.float32, [0.0] * _NUM_FEATURES)}
_CLICK = ("click", tf.io.FixedLenFeature([1], tf.int64, -1))
_POSITION = ("position", tf.io.FixedLenFeature([1], tf.int64, 0))
_LABEL = ("label", tf.io.FixedLenFeature([1], tf.float32, -1.0))


def _make_data(folder):
  """Writes clicks on ten items a query, and labels to validate on."""
  os.makedirs(folder, exist_ok=True)
  data = synthetic.generate(num_train=_QUERIES.value, seed=_SEED.value)
  # A poor ranker's order, in which relevant items are a bit more often on top.
  rng = np.random.default_rng(_SEED.value)
  shown = data.train.sort_by(
      data.train.labels + rng.normal(scale=2.0, size=len(data.train.labels)),
      top=_NUM_POSITIONS)
  for part, chosen in enumerate(np.array_split(np.arange(len(shown)), 2)):
    lists = shown.select(chosen)
    labels = lists.pad_values(lists.labels, -1.0)
    clicks = PositionBasedModel().sample(labels, (_SEED.value, part)).clicks
    positions = np.broadcast_to(1 + np.arange(labels.shape[1]), labels.shape)
    columns = {"features": lists.pad_values(lists.features, 0.0),
               "click": clicks.astype(np.int64), "position": positions}
    elwc.write_elwc(
        os.path.join(folder, f"train-{part}.tfrecord.gz"),
        elwc.ElwcLists.from_padded(columns, labels >= 0))
  elwc.write_elwc(os.path.join(folder, "valid.tfrecord.gz"),
                  elwc.ElwcLists.from_ranking_lists(data.valid))


def _train():
  """Trains on the clicks, and exports the ranking head."""
  tf.keras.utils.set_random_seed(_SEED.value)
  sample = elwc.read_elwc(_TRAIN.value, max_lists=1000).examples["features"]
  preprocessing = scorers.feature_preprocessing(sample)
  tower = functools.partial(tfr.keras.model.DNNScorer,
                            hidden_layer_dims=[128, 64], output_units=1)
  model_builder = tfr.keras.model.ModelBuilder(
      tfr.keras.model.FeatureSpecInputCreator({}, _EXAMPLE_SPEC),
      tfr.keras.model.PreprocessorWithSpec({"features": preprocessing}),
      scorers.HeadsScorer(ranking=tower(), relevance=tower()), "mask")
  dataset_builder = pipeline.FeedbackDatasetBuilder(
      {}, _EXAMPLE_SPEC, "mask", _CLICK,
      tfr.keras.pipeline.DatasetHparams(
          _TRAIN.value, _VALID.value, train_batch_size=_BATCH.value,
          valid_batch_size=100, list_size=_LIST_SIZE.value, valid_list_size=40),
      position_spec=_POSITION, valid_label_spec=_LABEL)
  run = pipeline.UnbiasedPipeline(
      model_builder, dataset_builder, tfr.keras.pipeline.PipelineHparams(
          model_dir=_MODEL_DIR.value, num_epochs=_EPOCHS.value,
          steps_per_epoch=_STEPS.value, validation_steps=_VALID_STEPS.value,
          learning_rate=_RATE.value, loss=pipeline.LOSS,
          strategy=_STRATEGY.value, export_best_model=True,
          best_exporter_metric="ndcg_10",
          best_exporter_metric_higher_better=True),
      functools.partial(ultra_tfr.layers.PositionBias, _NUM_POSITIONS,
                        trust_bias="position"))
  run.train_and_validate(verbose=2)
  true = PositionBasedModel().examination(_NUM_POSITIONS)
  print("examination, true if simulated:", (true / true[0]).round(2))
  print("examination, estimated:        ",
        run.position_bias.propensities()["examination"].round(2))


def main(_):
  if not (_MAKE_DATA.value or _MODEL_DIR.value):
    raise app.UsageError("Give --make_data, or the patterns and --model_dir.")
  if _MAKE_DATA.value:
    _make_data(_MAKE_DATA.value)
  if _MODEL_DIR.value:
    _train()


if __name__ == "__main__":
  app.run(main)
