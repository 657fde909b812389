r"""TF-Ranking's keras_dnn_tfrecord.py on the clicks of a log, unbiased.

A dense network on numbers, trained by TF-Ranking's pipeline on ELWC files. The
flags are those of TF-Ranking's program; --num_positions and --queries are new,
and what differs in the code is marked `Unbiased`:

    - tfr.keras.pipeline.SimplePipeline(
    + ultra_tfr.pipeline.UnbiasedPipeline(
    - tfr.keras.pipeline.SimpleDatasetBuilder(
    + ultra_tfr.pipeline.FeedbackDatasetBuilder(
    + position_spec=_POSITION,
    + valid_label_spec=_LABEL,
    + relevance=_scorer()

The files to train on have clicks and positions, those to validate on true
grades. The relevance tower says what clicks tell of relevance; it is trained
beside the ranking tower, and not exported. Any other loss of
docs/tf_ranking_losses.md goes by --loss, such as softmax_loss.

Command, which makes small files in place of a log (less than a minute):

    python examples/tfr/keras_dnn_tfrecord.py --model_dir=/tmp/dnn \
        --num_features=10 --num_train_steps=1000 --num_epochs=5 \
        --hidden_layer_dims=64,32 --learning_rate=.05 --dropout=0

Expected output after that of Keras:

    examination, true if simulated: [1.   0.9  0.71 0.5  0.41 0.29 0.16 ...]
    examination, estimated:         [1.   0.93 0.81 0.4  0.47 0.2  0.14 ...]

`val_metric/ndcg_10` is then about .97.
"""

import functools
import os

from absl import app
from absl import flags
import ultra_tfr  # Before TensorFlow Ranking.
import tensorflow as tf
import tensorflow_ranking as tfr

import simulated_elwc

flags.DEFINE_enum("strategy", "MirroredStrategy",
                  ["MirroredStrategy", "MultiWorkerMirroredStrategy"],
                  "What distributes the training.")
flags.DEFINE_string("model_dir", None, "Of models and TensorBoard's logs.",
                    required=True)
flags.DEFINE_string("train_input_pattern", None, "ELWC files with clicks.")
flags.DEFINE_string("valid_input_pattern", None, "ELWC files with grades.")
flags.DEFINE_string("optimizer", "adagrad", "A name of Keras.")
flags.DEFINE_float("learning_rate", 0.005, "Of the optimizer.")
flags.DEFINE_bool("convert_labels_to_binary", False, "Labels above 0 are 1.")
flags.DEFINE_float("dropout", 0.5, "Of hidden units.")
flags.DEFINE_bool("use_batch_norm", True, "Normalise by batches.")
flags.DEFINE_float("batch_norm_moment", 0.99, "Of their moving averages.")
flags.DEFINE_string("hidden_layer_dims", "128", "Sizes of hidden layers.")
flags.DEFINE_integer("train_batch_size", 16, "Lists of a training batch.")
flags.DEFINE_integer("valid_batch_size", 32, "Lists of a validation batch.")
flags.DEFINE_integer("num_train_steps", 100000, "Batches to train on.")
flags.DEFINE_integer("num_valid_steps", 100, "Batches of a validation.")
flags.DEFINE_integer("num_epochs", 100, "Validations.")
flags.DEFINE_integer("steps_per_execution", 10, "Batches of a function call.")
flags.DEFINE_integer("list_size", None, "Items of a training list.")
flags.DEFINE_integer("num_features", 136, "Features of an item.")
flags.DEFINE_string("loss", "approx_ndcg_loss", "A name of TF-Ranking.")
flags.DEFINE_bool("use_log1p", False, "Take signed logarithms of features.")
flags.DEFINE_bool("export_best_model", False, "Besides the last one.")
flags.DEFINE_integer("num_positions", 10, "Display positions with a bias.")

FLAGS = flags.FLAGS

_MASK = "example_list_mask"
_LABEL = ("utility", tf.io.FixedLenFeature([1], tf.float32, [-1.0]))
# Unbiased: what users did, and where the item stood.
_CLICK = (simulated_elwc.CLICK, tf.io.FixedLenFeature([1], tf.int64, [-1]))
_POSITION = (simulated_elwc.POSITION, tf.io.FixedLenFeature([1], tf.int64, [0]))


def _scorer():
  """A tower."""
  return tfr.keras.model.DNNScorer(
      hidden_layer_dims=[int(size) for size in
                         FLAGS.hidden_layer_dims.split(",")],
      output_units=1, activation=tf.nn.relu,
      input_batch_norm=FLAGS.use_batch_norm,
      use_batch_norm=FLAGS.use_batch_norm,
      batch_norm_moment=FLAGS.batch_norm_moment, dropout=FLAGS.dropout)


def _unbiased_loss(bias, reduction):
  """Unbiased: the loss that was asked for, of debiased clicks."""
  return ultra_tfr.losses.UnbiasedLoss(
      bias, tfr.keras.losses.get(FLAGS.loss, reduction=reduction))


def train_and_eval():
  """Trains with the pipeline; returns the layer that has learned the bias."""
  features = {
      f"custom_features_{i + 1}": tf.io.FixedLenFeature([1], tf.float32, [0.0])
      for i in range(FLAGS.num_features)}
  logarithms = {
      name: lambda t: tf.sign(t) * tf.math.log1p(tf.abs(t))
      for name in features} if FLAGS.use_log1p else {}
  model_builder = tfr.keras.model.ModelBuilder(
      input_creator=tfr.keras.model.FeatureSpecInputCreator({}, features),
      preprocessor=tfr.keras.model.PreprocessorWithSpec(logarithms),
      # Unbiased: a second tower.
      scorer=ultra_tfr.scorers.HeadsScorer(
          ranking=_scorer(), relevance=_scorer()),
      mask_feature_name=_MASK, name="keras_dnn_model")
  # Unbiased: the dataset builder takes clicks with their positions.
  dataset_builder = ultra_tfr.pipeline.FeedbackDatasetBuilder(
      context_feature_spec={}, example_feature_spec=features,
      mask_feature_name=_MASK, label_spec=_CLICK,
      position_spec=_POSITION,
      valid_label_spec=_LABEL,
      hparams=tfr.keras.pipeline.DatasetHparams(
          train_input_pattern=FLAGS.train_input_pattern,
          valid_input_pattern=FLAGS.valid_input_pattern,
          train_batch_size=FLAGS.train_batch_size,
          valid_batch_size=FLAGS.valid_batch_size, list_size=FLAGS.list_size,
          convert_labels_to_binary=FLAGS.convert_labels_to_binary))
  # Unbiased: the pipeline makes the loss from a bias layer, and runs EM.
  run = ultra_tfr.pipeline.UnbiasedPipeline(
      model_builder, dataset_builder, tfr.keras.pipeline.PipelineHparams(
          model_dir=FLAGS.model_dir, num_epochs=FLAGS.num_epochs,
          steps_per_epoch=FLAGS.num_train_steps // FLAGS.num_epochs,
          validation_steps=FLAGS.num_valid_steps,
          loss=ultra_tfr.pipeline.LOSS, optimizer=FLAGS.optimizer,
          learning_rate=FLAGS.learning_rate,
          steps_per_execution=FLAGS.steps_per_execution,
          export_best_model=FLAGS.export_best_model,
          best_exporter_metric="ndcg_5",
          best_exporter_metric_higher_better=True, strategy=FLAGS.strategy),
      functools.partial(ultra_tfr.layers.PositionBias, FLAGS.num_positions),
      loss=_unbiased_loss)
  run.train_and_validate(verbose=2)
  return run.position_bias


def main(_):
  tf.keras.utils.set_random_seed(1234)
  simulated_elwc.find_or_make(
      ["train_input_pattern", "valid_input_pattern"],
      lambda folder, queries: simulated_elwc.write_numbers(
          folder, queries, FLAGS.num_features, _LABEL[0]),
      os.path.join(FLAGS.model_dir, "data"))
  print(simulated_elwc.curves(train_and_eval()))


if __name__ == "__main__":
  app.run(main)
