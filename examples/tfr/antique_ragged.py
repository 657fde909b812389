r"""TF-Ranking's antique_ragged.py on the clicks of a log, unbiased.

Queries and documents of words, as ragged tensors from the files to the scores;
trained by `model.fit`, or by TF-Ranking's pipeline with --use_pipeline. The
flags are those of TF-Ranking's program; --num_positions and --queries are new,
and what differs in the code is marked `Unbiased`:

    - loss = tfr.keras.losses.get(loss=FLAGS.loss, ragged=True)
    + ultra_tfr.losses.UnbiasedLoss(bias, tfr.keras.losses.get(
    - callbacks=[tensorboard]
    + callbacks=[ultra_tfr.callbacks.PropensityEM(), tensorboard]
    - tfr.keras.pipeline.SimplePipeline
    + ultra_tfr.pipeline.UnbiasedPipeline(

The files to train on have clicks, and list items in the order of display; those
to validate on have true grades. The model is functional, since the pipeline
exports the ranking head of such models only. Any other loss of
docs/tf_ranking_losses.md that takes ragged tensors goes by --loss, such as
softmax_loss.

Command, which makes small files in place of a log (some two minutes):

    python examples/tfr/antique_ragged.py --model_dir=/tmp/ragged \
        --num_train_steps=1000 --num_epochs=5 --learning_rate=.05

Expected output after that of Keras:

    examination, true if simulated: [1.   0.9  0.71 0.5  0.41 0.29 0.16 ...]
    examination, estimated:         [1.   0.89 0.7  0.4  0.41 0.32 0.12 ...]

`val_metric/ndcg_10` is then about .89.
"""

import os

from absl import app
from absl import flags
import ultra_tfr  # Before TensorFlow Ranking.
import tensorflow as tf
import tensorflow_ranking as tfr

import simulated_elwc

flags.DEFINE_string("train_input_pattern", None, "ELWC files with clicks.")
flags.DEFINE_string("eval_input_pattern", None, "ELWC files with grades.")
flags.DEFINE_string("vocab_file_path", None, "A word a line.")
flags.DEFINE_integer("vocab_size", 30522, "Words that are told apart.")
flags.DEFINE_integer("embedding_dimension", 20, "Of words.")
flags.DEFINE_multi_integer("hidden_layer_dims", [20, 10],
                           "Sizes of hidden layers.")
flags.DEFINE_string("loss", "approx_ndcg_loss", "A name of TF-Ranking.")
flags.DEFINE_float("learning_rate", 0.005, "Of Adagrad.")
flags.DEFINE_integer("train_batch_size", 16, "Lists of a training batch.")
flags.DEFINE_integer("eval_batch_size", 64, "Lists of a validation batch.")
flags.DEFINE_integer("num_epochs", 100, "Validations.")
flags.DEFINE_string("model_dir", None, "Of models and TensorBoard's logs.",
                    required=True)
flags.DEFINE_integer("num_train_steps", 100000, "Batches to train on.")
flags.DEFINE_integer("num_valid_steps", 100, "Batches of a validation at most.")
flags.DEFINE_bool("use_pipeline", False, "Train by TF-Ranking's pipeline.")
flags.DEFINE_integer("num_positions", 10, "Display positions with a bias.")

FLAGS = flags.FLAGS

_LABEL, _MASK = "relevance", "example_list_mask"
_QUERY, _DOCUMENT = "query_tokens", "document_tokens"
_WORDS = tf.io.RaggedFeature(tf.string)


def _dataset(pattern, batch_size, label):
  """One pass over the lists, in any order: ragged words and labels."""
  dataset = tfr.data.build_ranking_dataset(
      pattern, tfr.data.ELWC, batch_size, {_QUERY: _WORDS},
      {_DOCUMENT: _WORDS, label: tf.io.FixedLenFeature([], tf.int64, 0)},
      mask_feature_name=_MASK, num_epochs=1, shuffle_buffer_size=1000)

  def take_label(features):
    documents, labels = (
        tf.ragged.boolean_mask(features[name], features[_MASK])
        for name in (_DOCUMENT, label))
    return ({_QUERY: features[_QUERY], _DOCUMENT: documents},
            tf.cast(labels, tf.float32))

  return dataset.map(take_label)


def _datasets():
  # Unbiased: what is trained on is clicks.
  return (_dataset(FLAGS.train_input_pattern, FLAGS.train_batch_size,
                   simulated_elwc.CLICK).repeat(),
          _dataset(FLAGS.eval_input_pattern, FLAGS.eval_batch_size, _LABEL))


class _Builder(tfr.keras.model.AbstractModelBuilder):
  """Builds the model, also for the pipeline."""

  def build(self):
    """A functional model with ragged scores `[B, None]`."""
    query = tf.keras.Input([None], name=_QUERY, dtype=tf.string, ragged=True)
    documents = tf.keras.Input(
        [None, None], name=_DOCUMENT, dtype=tf.string, ragged=True)
    ids = tf.keras.layers.StringLookup(
        max_tokens=FLAGS.vocab_size, vocabulary=FLAGS.vocab_file_path)
    table = tf.keras.layers.Embedding(
        FLAGS.vocab_size, FLAGS.embedding_dimension)
    of_query = tf.reduce_mean(table(ids(query)), axis=1)
    of_documents = tf.reduce_mean(table(ids(documents)), axis=2)
    of_query = tf.ones_like(of_documents) * of_query[:, tf.newaxis]
    tower = tf.keras.Sequential([
        tf.keras.layers.BatchNormalization(),
        *(tf.keras.layers.Dense(size, tf.nn.relu)
          for size in FLAGS.hidden_layer_dims), tf.keras.layers.Dense(1)])
    scores = tf.keras.layers.TimeDistributed(tower)(
        tf.concat([of_query, of_documents], axis=2))
    return tf.keras.Model({_QUERY: query, _DOCUMENT: documents},
                          tf.squeeze(scores, axis=2))


def _unbiased_loss(bias, reduction=tf.keras.losses.Reduction.AUTO):
  """Unbiased: the loss that was asked for, of debiased clicks."""
  return ultra_tfr.losses.UnbiasedLoss(bias, tfr.keras.losses.get(
      loss=FLAGS.loss, reduction=reduction, ragged=True))


def _bias():
  """Unbiased: the layer that learns the bias."""
  return ultra_tfr.layers.PositionBias(FLAGS.num_positions)


def train_by_fit():
  """Trains with `fit`; returns the layer that has learned the bias."""
  train, valid = _datasets()
  model, bias = _Builder().build(), _bias()
  model.compile(
      tf.keras.optimizers.Adagrad(FLAGS.learning_rate),
      loss=_unbiased_loss(bias),
      metrics=tfr.keras.metrics.default_keras_metrics(ragged=True))
  tensorboard = tf.keras.callbacks.TensorBoard(FLAGS.model_dir)
  model.fit(
      train, epochs=FLAGS.num_epochs,
      steps_per_epoch=FLAGS.num_train_steps // FLAGS.num_epochs,
      validation_data=valid.take(FLAGS.num_valid_steps),
      # Unbiased: EM moves the layer.
      callbacks=[ultra_tfr.callbacks.PropensityEM(), tensorboard], verbose=2)
  model.save(os.path.join(FLAGS.model_dir, "export"))
  return bias


def train_by_pipeline():
  """Trains with the pipeline; returns the layer that has learned the bias."""
  # Unbiased: the pipeline makes the loss from a bias layer, and runs EM. Its
  # metrics take ragged tensors as they are.
  run = ultra_tfr.pipeline.UnbiasedPipeline(
      _Builder(), tfr.keras.pipeline.NullDatasetBuilder(*_datasets()),
      tfr.keras.pipeline.PipelineHparams(
          model_dir=FLAGS.model_dir, num_epochs=FLAGS.num_epochs,
          steps_per_epoch=FLAGS.num_train_steps // FLAGS.num_epochs,
          validation_steps=FLAGS.num_valid_steps,
          loss=ultra_tfr.pipeline.LOSS, optimizer="adagrad",
          learning_rate=FLAGS.learning_rate, steps_per_execution=10,
          export_best_model=True, best_exporter_metric="ndcg_5",
          best_exporter_metric_higher_better=True,
          strategy="MirroredStrategy"), _bias, loss=_unbiased_loss)
  run.train_and_validate(verbose=2)
  return run.position_bias


def main(_):
  tf.keras.utils.set_random_seed(1234)
  simulated_elwc.find_or_make(
      ["train_input_pattern", "eval_input_pattern", "vocab_file_path"],
      lambda folder, queries: simulated_elwc.write_texts(
          folder, queries, _LABEL), os.path.join(FLAGS.model_dir, "data"))
  print(simulated_elwc.curves(
      train_by_pipeline() if FLAGS.use_pipeline else train_by_fit()))


if __name__ == "__main__":
  app.run(main)
