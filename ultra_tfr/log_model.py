"""Models of a click log's features: numbers, texts and missing values.

The preprocessing is part of the model, so serving takes what the log has.
"""

import json
import re

import numpy as np
import tensorflow as tf

from ultra_tfr import scorers


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class NumericFeatures(tf.keras.layers.Layer):
  """Signed log and standardisation; a missing value is the mean, and is told.

  Args:
    features: for each of the F features its "mean" and "variance" after the
      signed log, and the share "missing", as
      `data.log_statistics.FeatureStatistics` gives them. A feature that can be
      missing gets a second output, 1 where it is.
    name: the layer's name.

  >>> layer = NumericFeatures([{"mean": 0.0, "variance": 1.0, "missing": 0.1}])
  >>> layer(tf.constant([[0.0], [float("nan")]])).numpy().tolist()
  [[0.0, 0.0], [0.0, 1.0]]
  """

  def __init__(self, features, name="numeric_features"):
    # Half precision would lose large counts before the logarithm.
    super().__init__(name=name, autocast=False)
    # A string, since Keras would wrap a list and track it.
    self._features = json.dumps(features)
    self._mean = np.array([f["mean"] for f in features], np.float32)
    self._scale = np.sqrt([f["variance"] for f in features], dtype=np.float32)
    self._indicated = np.flatnonzero([f["missing"] > 0 for f in features])

  def call(self, inputs):
    """Transforms `[.., F]`, NaN where missing, to `[.., F + indicators]`."""
    values = tf.cast(inputs, tf.float32)
    missing = tf.math.is_nan(values)
    values = tf.where(missing, 0.0, values)
    logs = tf.sign(values) * tf.math.log1p(tf.abs(values))
    outputs = tf.where(missing, 0.0, (logs - self._mean) / self._scale)
    indicators = tf.gather(tf.cast(missing, tf.float32), self._indicated,
                           axis=-1)
    return tf.cast(tf.concat([outputs, indicators], axis=-1),
                   self.compute_dtype)

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {"features": json.loads(self._features), "name": self.name}


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class TextFeatures(tf.keras.layers.Layer):
  """Embeddings of texts; values never seen in training share one.

  Args:
    features: for each of the S features either its "vocabulary", or "bins", in
      which case it is hashed.
    max_units: size of the largest embedding; one of n values gets about the
      fourth root of n, times 3.
    name: the layer's name.

  >>> layer = TextFeatures([{"vocabulary": ["", "a"]}, {"bins": 10}])
  >>> layer(tf.constant([["a", "b"], ["new", "c"]])).shape
  TensorShape([2, 9])
  """

  def __init__(self, features, max_units=16, name="text_features"):
    super().__init__(name=name)
    self._features, self._max_units = json.dumps(features), max_units
    self._lookups, self._embeddings = [], []
    for feature in features:
      if "bins" in feature:
        lookup, size = tf.keras.layers.Hashing(
            feature["bins"]), feature["bins"]
      else:
        lookup = tf.keras.layers.StringLookup(
            vocabulary=feature["vocabulary"], mask_token=None)
        size = len(feature["vocabulary"]) + 1
      self._lookups.append(lookup)
      self._embeddings.append(tf.keras.layers.Embedding(
          size, min(max_units, round(3 * size ** 0.25))))

  def call(self, inputs):
    """Embeds `[.., S]` strings to `[.., units]`."""
    columns = tf.unstack(inputs, num=len(self._lookups), axis=-1)
    return tf.concat(
        [embed(lookup(column)) for lookup, embed, column in zip(
            self._lookups, self._embeddings, columns)], axis=-1)

  def get_config(self):
    """The constructor's arguments, ready for JSON."""
    return {"features": json.loads(self._features),
            "max_units": self._max_units, "name": self.name}


def build_log_model(statistics, num_heads=1, hidden_units=(128, 64),
                    activation="elu", layer_norm=True, dropout=0.0):
  """A model of a log's features with one tower a head.

  Args:
    statistics: of the features, as `ClickLog.statistics`.
    num_heads: as in `scorers.build_model`.
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.

  Returns:
    A Keras model from a dict of `"numeric"` `[B, L, F]` and `"texts"`
    `[B, L, S]`, those that there are, to `[B, L]` or `[B, L, num_heads]`.

  Raises:
    ValueError: if there is no feature.

  >>> model = build_log_model({"text": [], "numeric": [
  ...     {"name": "f", "mean": 0.0, "variance": 1.0, "missing": 0.0}]})
  >>> model({"numeric": tf.zeros([2, 3, 1])}).shape
  TensorShape([2, 3])
  """
  inputs, hidden = {}, []
  if statistics["numeric"]:
    inputs["numeric"] = tf.keras.Input(
        [None, len(statistics["numeric"])], name="numeric")
    hidden.append(NumericFeatures(statistics["numeric"])(inputs["numeric"]))
  if statistics["text"]:
    inputs["texts"] = tf.keras.Input(
        [None, len(statistics["text"])], dtype=tf.string, name="texts")
    hidden.append(TextFeatures(statistics["text"])(inputs["texts"]))
  if not inputs:
    raise ValueError(
        "The log has no feature to rank by; name some by `features`, such as "
        "'f_*'.")
  features = hidden[0] if len(hidden) == 1 else (
      tf.keras.layers.Concatenate()(hidden))
  return scorers.heads_on(inputs, features, num_heads, hidden_units, activation,
                          layer_norm, dropout)


def input_names(statistics):
  """The names by which the exported model takes each feature.

  Args:
    statistics: as in `build_log_model`.

  Returns:
    A dict from feature to input name: characters that TensorFlow does not
    allow in names are replaced by "_".

  >>> input_names({"numeric": [{"name": "price $"}], "text": []})
  {'price $': 'price__'}
  """
  names = {}
  for feature in [*statistics["numeric"], *statistics["text"]]:
    name = re.sub(r"[^A-Za-z0-9_]", "_", feature["name"])
    name = name if re.match(r"[A-Za-z]", name) else f"f{name}"
    while name in names.values():
      name += "_"
    names[feature["name"]] = name
  return names


def export_log_ranker(model, statistics, path):
  """Writes the ranking head alone, with one named input for each feature.

  The SavedModel needs plain TensorFlow only. Its signature takes each feature
  as `[B, L]`, floats (NaN where missing) or strings ("" where missing), and
  gives `scores` `[B, L]`.

  Args:
    model: a model made by `build_log_model`.
    statistics: the same as there.
    path: a directory.
  """
  ranker = scorers.ranking_model(model)
  names = input_names(statistics)
  kinds = {"numeric": tf.float32, "text": tf.string}
  specs = {
      names[feature["name"]]: tf.TensorSpec(
          [None, None], dtype, names[feature["name"]])
      for kind, dtype in kinds.items() for feature in statistics[kind]}

  @tf.function(input_signature=[specs])
  def serve(features):
    inputs = {}
    for kind, key in (("numeric", "numeric"), ("text", "texts")):
      if statistics[kind]:
        inputs[key] = tf.stack([features[names[feature["name"]]]
                                for feature in statistics[kind]], axis=-1)
    return {"scores": ranker(inputs, training=False)}

  module = tf.Module()
  module.ranker, module.serve = ranker, serve
  tf.saved_model.save(module, path, signatures={"serving_default": serve})
