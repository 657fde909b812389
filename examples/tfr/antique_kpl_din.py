r"""TF-Ranking's antique_kpl_din.py on the clicks of a log, unbiased.

Queries and documents of words, whose items look at each other by attention;
`model.fit` trains on ELWC files. The flags are those of TF-Ranking's program;
--num_positions and --queries are new, and what differs in the code is marked
`Unbiased`:

    - loss = tfr.keras.losses.get(loss=FLAGS.loss)
    + bias = ultra_tfr.layers.PositionBias(FLAGS.num_positions)
    + loss = ultra_tfr.losses.UnbiasedLoss(
    +     bias, tfr.keras.losses.get(loss=FLAGS.loss))
    - callbacks=[tensorboard]
    + callbacks=[ultra_tfr.callbacks.PropensityEM(), tensorboard]

The files to train on have clicks, and list items in the order of display; those
to validate on have true grades. Any other loss of docs/tf_ranking_losses.md
goes by --loss, such as softmax_loss.

Command, which makes small files in place of a log (some two minutes):

    python examples/tfr/antique_kpl_din.py --model_dir=/tmp/din \
        --hidden_layer_dims=32,16 --num_train_steps=1000 --num_epochs=5 \
        --learning_rate=.05 --dropout_rate=0

Expected output after that of Keras:

    examination, true if simulated: [1.   0.9  0.71 0.5  0.41 0.29 0.16 ...]
    examination, estimated:         [1.   0.81 0.69 0.34 0.41 0.32 0.03 ...]

`val_metric/ndcg_10` is then about .87.
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
flags.DEFINE_string("test_input_pattern", None, "ELWC files with grades.")
flags.DEFINE_string("vocab_file_path", None, "A word a line.")
flags.DEFINE_integer("vocab_size", 30522, "Words that are told apart.")
flags.DEFINE_float("learning_rate", 0.005, "Of Adagrad.")
flags.DEFINE_float("dropout_rate", 0.5, "Of hidden units and attention.")
flags.DEFINE_bool("use_batch_norm", True, "Normalise by batches.")
flags.DEFINE_float("batch_normalization_moment", 0.99,
                   "Of their moving averages.")
flags.DEFINE_list("hidden_layer_dims", ["64"], "Sizes of hidden layers.")
flags.DEFINE_integer("train_batch_size", 16, "Lists of a training batch.")
flags.DEFINE_integer("eval_batch_size", 64, "Lists of another batch.")
flags.DEFINE_integer("num_train_steps", 15000, "Batches to train on.")
flags.DEFINE_integer("num_epochs", 100, "Validations.")
flags.DEFINE_integer("list_size", 50, "Items of a list.")
flags.DEFINE_string("loss", "approx_ndcg_loss", "A name of TF-Ranking.")
flags.DEFINE_integer("embedding_dimension", 20, "Of words.")
flags.DEFINE_string("model_dir", None, "Of models and TensorBoard's logs.",
                    required=True)
flags.DEFINE_bool("use_document_interaction", True,
                  "Let items look at each other.")
flags.DEFINE_integer("num_attention_layers", 1, "Of that.")
flags.DEFINE_integer("num_attention_heads", 1, "Of each of these layers.")
flags.DEFINE_integer("head_size", 128, "Of each of these heads.")
flags.DEFINE_integer("num_positions", 10, "Display positions with a bias.")

FLAGS = flags.FLAGS

_LABEL, _MASK = "relevance", "example_list_mask"
_QUERY, _DOCUMENT = "query_tokens", "document_tokens"
_WORDS = tf.io.RaggedFeature(tf.string)


def _dataset(pattern, batch_size, label=_LABEL, is_training=False):
  """Features and labels; lists are shuffled for training, items never."""
  dataset = tfr.data.build_ranking_dataset(
      pattern, tfr.data.ELWC, batch_size, {_QUERY: _WORDS},
      {_DOCUMENT: _WORDS,
       label: tf.io.FixedLenFeature([1], tf.int64, [-1])},
      list_size=FLAGS.list_size, mask_feature_name=_MASK,
      reader=tf.data.TFRecordDataset, shuffle=is_training,
      num_epochs=None if is_training else 1)

  def take_label(features):
    labels = tf.squeeze(features.pop(label), axis=2)
    return features, tf.cast(labels, tf.float32)

  return dataset.map(take_label)


def _embedded(words):
  """The mean embedding of the words of each query and of each document."""
  ids = tf.keras.layers.StringLookup(
      max_tokens=FLAGS.vocab_size, vocabulary=FLAGS.vocab_file_path)
  table = tf.keras.layers.Embedding(
      FLAGS.vocab_size, FLAGS.embedding_dimension)
  to_dense = tf.keras.layers.Lambda(lambda x: x.to_tensor() if isinstance(
      x, tf.RaggedTensor) else x)
  return [to_dense(tf.reduce_mean(table(ids(part)), axis=-2))
          for part in words]


def _model():
  """A functional model with a score `[B, L]` for each document."""
  query = tf.keras.Input([None], name=_QUERY, dtype=tf.string, ragged=True)
  documents = tf.keras.Input(
      [None, None], name=_DOCUMENT, dtype=tf.string, ragged=True)
  mask = tf.keras.Input([None], name=_MASK, dtype=tf.bool)
  of_query, of_documents = _embedded([query, documents])
  context, items = {"query": of_query}, {"document": of_documents}
  if FLAGS.use_document_interaction:
    together = tfr.keras.layers.ConcatFeatures()((context, items, mask))
    items["interaction"] = tfr.keras.layers.DocumentInteractionAttention(
        FLAGS.num_attention_heads, FLAGS.head_size, FLAGS.num_attention_layers,
        dropout=FLAGS.dropout_rate)((together, mask))
  context, items = tfr.keras.layers.FlattenList()((context, items, mask))
  hidden = tf.concat([*context.values(), *items.values()], axis=1)
  tower = tfr.keras.layers.create_tower(
      [int(size) for size in FLAGS.hidden_layer_dims], 1,
      activation=tf.nn.relu, input_batch_norm=FLAGS.use_batch_norm,
      use_batch_norm=FLAGS.use_batch_norm,
      batch_norm_moment=FLAGS.batch_normalization_moment,
      dropout=FLAGS.dropout_rate)
  scores = tfr.keras.layers.RestoreList()((tower(hidden), mask))
  return tf.keras.Model(
      {_QUERY: query, _DOCUMENT: documents, _MASK: mask}, scores,
      name="din_ranking_model")


def train_and_eval():
  """Trains with `fit`; returns the layer that has learned the bias."""
  # Unbiased: a bias layer, and the loss that was asked for on debiased clicks.
  bias = ultra_tfr.layers.PositionBias(FLAGS.num_positions)
  loss = ultra_tfr.losses.UnbiasedLoss(
      bias, tfr.keras.losses.get(loss=FLAGS.loss))
  model = _model()
  model.compile(tf.keras.optimizers.Adagrad(FLAGS.learning_rate), loss=loss,
                metrics=tfr.keras.metrics.default_keras_metrics())
  tensorboard = tf.keras.callbacks.TensorBoard(FLAGS.model_dir)
  model.fit(
      # Unbiased: what is trained on is clicks.
      _dataset(FLAGS.train_input_pattern, FLAGS.train_batch_size,
               simulated_elwc.CLICK, is_training=True),
      steps_per_epoch=FLAGS.num_train_steps // FLAGS.num_epochs,
      epochs=FLAGS.num_epochs,
      validation_data=_dataset(FLAGS.eval_input_pattern, FLAGS.eval_batch_size),
      # Unbiased: EM moves the layer.
      callbacks=[ultra_tfr.callbacks.PropensityEM(), tensorboard], verbose=2)
  if FLAGS.test_input_pattern is not None:
    model.evaluate(_dataset(FLAGS.test_input_pattern, FLAGS.eval_batch_size),
                   verbose=2)
  model.save(
      os.path.join(FLAGS.model_dir, "export"), save_traces=False,
      signatures=tfr.keras.saved_model.Signatures(
          model, context_feature_spec={_QUERY: _WORDS},
          example_feature_spec={_DOCUMENT: _WORDS}, mask_feature_name=_MASK)())
  return bias


def main(_):
  tf.keras.utils.set_random_seed(1234)
  simulated_elwc.find_or_make(
      ["train_input_pattern", "eval_input_pattern", "vocab_file_path"],
      lambda folder, queries: simulated_elwc.write_texts(
          folder, queries, _LABEL), os.path.join(FLAGS.model_dir, "data"))
  print(simulated_elwc.curves(train_and_eval()))


if __name__ == "__main__":
  app.run(main)
