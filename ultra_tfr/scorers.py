"""Models with the heads that the losses need, and export of the ranker alone.

For TF-Ranking's `ModelBuilder` there is `HeadsScorer`; for plain `[B, L, F]`
feature tensors `build_model`.
"""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.heads import HEADS

RANKING_LAYER = "ranking_scores"
RELEVANCE_LAYER = "relevance_logits"
_ROWS_AT_A_TIME = 65536


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class SignedLog(tf.keras.layers.Layer):
  """sign(x) log(1 + |x|): tames heavy-tailed features of either sign.

  >>> SignedLog()(tf.constant([0.0, -1.0])).numpy().round(3)
  array([ 0.   , -0.693], dtype=float32)
  """

  def call(self, inputs):
    """Transforms any float tensor."""
    return tf.sign(inputs) * tf.math.log1p(tf.abs(inputs))


class HeadsScorer(tfr.keras.model.Scorer):
  """A TF-Ranking scorer for each head, stacked on a last axis.

  Args:
    ranking: the `tfr.keras.model.Scorer` of the ranking score.
    relevance: the scorer of the relevance logit.
    preference: optionally, the scorer of the preference logit.

  >>> dnn = lambda: tfr.keras.model.DNNScorer(hidden_layer_dims=[4],
  ...                                              output_units=1)
  >>> scorer = HeadsScorer(dnn(), dnn())
  >>> scorer({}, {"x": tf.zeros([2, 3, 1])}, tf.ones([2, 3], tf.bool)).shape
  TensorShape([2, 3, 2])
  """

  def __init__(self, ranking, relevance, preference=None):
    self._scorers = [s for s in (ranking, relevance, preference)
                     if s is not None]

  def __call__(self, context_features, example_features, mask):
    """Scores items.

    Args:
      context_features: a dict of `[B, ..]` tensors.
      example_features: a dict of `[B, L, ..]` tensors.
      mask: `[B, L]` booleans.

    Returns:
      `[B, L, heads]` float32 logits.
    """
    return tf.stack(
        [tf.cast(s(context_features, example_features, mask), tf.float32)
         for s in self._scorers], axis=-1)


def feature_preprocessing(features, mask=None):
  """Signed log, then standardisation fitted on training features.

  Args:
    features: `[.., F]` numpy array of the training part.
    mask: optional `[..]` booleans, which rows count.

  Returns:
    A Keras layer; it keeps the statistics, so serving takes raw features.

  Raises:
    ValueError: if there is no row.

  >>> layer = feature_preprocessing(np.array([[0.0], [2.0]], np.float32))
  >>> layer(tf.constant([[0.0], [2.0]])).numpy().round(3)
  array([[-1.],
         [ 1.]], dtype=float32)
  """
  rows = features[mask] if mask is not None else features
  mean, variance = _log_moments(rows.reshape(-1, features.shape[-1]))
  # A constant feature would be blown up by the smallest rounding error.
  variance = np.where(variance > 1e-8, variance, 1.0)
  return tf.keras.Sequential(
      [SignedLog(),
       tf.keras.layers.Normalization(mean=mean, variance=variance)],
      name="preprocessing")


def _log_moments(rows):
  """Mean and variance `[F]` of the signed log of `[D, F]` values.

  Some rows at a time: those of large collections stay in their file.
  """
  if not len(rows):
    raise ValueError(
        "`features` must have at least one row that counts, to take mean and "
        f"variance from, but {list(rows.shape)} is left; check `mask`.")
  counts, means, variances = [], [], []
  for start in range(0, len(rows), _ROWS_AT_A_TIME):
    part = rows[start:start + _ROWS_AT_A_TIME]
    logs = np.sign(part) * np.log1p(np.abs(part))
    counts.append(len(part))
    means.append(logs.mean(axis=0))
    variances.append(logs.var(axis=0))
  mean = np.average(means, axis=0, weights=counts)
  between = np.square(np.subtract(means, mean))
  return mean, np.average(variances + between, axis=0, weights=counts)


def tower(hidden_units, activation="elu", layer_norm=True, dropout=0.0,
          name=None):
  """A feed-forward scorer of one item.

  Args:
    hidden_units: sizes of the hidden layers.
    activation: of the hidden layers.
    layer_norm: normalise before each activation.
    dropout: rate after each activation.
    name: of the layer that gives the score.

  Returns:
    A Keras layer `[.., F]` -> `[.., 1]`.

  >>> tower([4])(tf.zeros([2, 3, 5])).shape
  TensorShape([2, 3, 1])
  """
  layers = []
  for units in hidden_units:
    layers.append(tf.keras.layers.Dense(units))
    if layer_norm:
      layers.append(tf.keras.layers.LayerNormalization())
    layers.append(tf.keras.layers.Activation(activation))
    if dropout:
      layers.append(tf.keras.layers.Dropout(dropout))
  # Losses compute in float32; half-precision scores would tie.
  layers.append(tf.keras.layers.Dense(1, dtype=tf.float32))
  return tf.keras.Sequential(layers, name=name)


def build_model(num_features, preprocessing=None, num_heads=1,
                hidden_units=(512, 256, 128), activation="elu",
                layer_norm=True, dropout=0.0):
  """A model of item features with one tower a head.

  Args:
    num_features: F.
    preprocessing: a layer that the features go through first, or None.
    num_heads: 1 for scores, 2 with relevance, 3 with preference.
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.

  Returns:
    A Keras model from `[B, L, F]` to `[B, L]`, or `[B, L, num_heads]`.

  Raises:
    ValueError: if there is no such number of heads.

  >>> build_model(5, num_heads=2, hidden_units=[4])(tf.zeros([1, 3, 5])).shape
  TensorShape([1, 3, 2])
  """
  features = tf.keras.Input([None, num_features], name="features")
  hidden = preprocessing(features) if preprocessing else features
  return heads_on(features, hidden, num_heads, hidden_units, activation,
                  layer_norm, dropout)


def heads_on(inputs, hidden, num_heads, hidden_units, activation, layer_norm,
             dropout):
  """A model with one tower a head on preprocessed features.

  Args:
    inputs: the Keras inputs of the model.
    hidden: `[B, L, H]`, made from them.
    num_heads: as in `build_model`.
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.

  Returns:
    A Keras model from the inputs to `[B, L]`, or `[B, L, num_heads]`.

  Raises:
    ValueError: if there is no such number of heads.
  """
  if num_heads not in range(1, len(HEADS) + 1):
    raise ValueError(
        f"`num_heads` must be 1 (ranking), 2 (and relevance) or 3 (and "
        f"preference), but is {num_heads}.")
  scores = []
  for head in HEADS[:num_heads]:
    name = RANKING_LAYER if head == "ranking" else f"{head}_logits"
    scores.append(tower(hidden_units, activation, layer_norm, dropout,
                        name=name)(hidden))
  if num_heads == 1:
    output = tf.keras.layers.Reshape([-1], dtype=tf.float32)(scores[0])
  else:
    output = tf.keras.layers.Concatenate(dtype=tf.float32)(scores)
  return tf.keras.Model(inputs, output)


def start_relevance(model, probability):
  """Starts the relevance head near a probability, instead of at one half.

  A start far above the truth makes examination seem rare, and a small tower can
  then settle on the opposite of relevance, which EM confirms. The rate of
  feedback at the most clicked position, divided by the examination that EM
  starts from there, is near the truth.

  In a model with scores alone the score is the relevance logit, and it also
  starts flat, the same for all items: what a random start says of items that
  are seldom seen EM would confirm for long.

  Args:
    model: a model made by `build_model`.
    probability: of relevance; kept in [0.01, 0.5].

  >>> model = build_model(5, num_heads=2, hidden_units=[4])
  >>> start_relevance(model, 0.1)
  >>> tf.sigmoid(model(tf.zeros([1, 1, 5]))[0, 0, 1]).numpy().round(3)
  0.1
  """
  probability = float(np.clip(probability, 0.01, 0.5))
  if RELEVANCE_LAYER in [layer.name for layer in model.layers]:
    last = model.get_layer(RELEVANCE_LAYER).layers[-1]
  else:
    last = model.get_layer(RANKING_LAYER).layers[-1]
    last.kernel.assign(tf.zeros_like(last.kernel))
  last.bias.assign([np.log(probability / (1.0 - probability))])


def ranking_model(model):
  """The ranking head of a `build_model` model, without the other towers.

  Args:
    model: a model made by `build_model`.

  Returns:
    A Keras model from `[B, L, F]` to `[B, L]` that shares its layers.

  >>> model = build_model(5, num_heads=2, hidden_units=[4])
  >>> ranking_model(model)(tf.zeros([1, 3, 5])).shape
  TensorShape([1, 3])
  """
  scores = model.get_layer(RANKING_LAYER).get_output_at(-1)
  return tf.keras.Model(model.input, tf.keras.layers.Reshape([-1])(scores))


def export_ranker(model, path):
  """Writes the ranking head alone, for serving.

  The SavedModel needs plain TensorFlow only, takes `features` `[B, L, F]` as
  they are in the data, and gives `scores` `[B, L]`; positions, feedback and the
  propensities stay behind.

  Args:
    model: a model made by `build_model`.
    path: a directory.
  """
  ranker = ranking_model(model)
  signature = tf.TensorSpec(ranker.input_shape, tf.float32, name="features")

  @tf.function(input_signature=[signature])
  def serve(features):
    return {"scores": ranker(features, training=False)}

  module = tf.Module()
  module.ranker, module.serve = ranker, serve
  tf.saved_model.save(module, path, signatures={"serving_default": serve})
