"""Models with the heads that the losses need, and export of the ranker alone.

For TF-Ranking's `ModelBuilder` there is `HeadsScorer`; for plain `[B, L, F]`
feature tensors `build_model`.
"""

import json
import re

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import checks
from ultra_tfr import keras_guards
from ultra_tfr.core import em
from ultra_tfr.core import feature_scale
from ultra_tfr.feedback import HEADS
from ultra_tfr.layers import INITIAL_SCALE

RANKING_LAYER = "ranking_scores"
RELEVANCE_LAYER = "relevance_logits"
_ROWS_AT_A_TIME = 65536


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class SignedLog(tf.keras.layers.Layer):
  """`sign(x) log(1 + |x|)`: tames heavy-tailed features of either sign.

  >>> SignedLog()(tf.constant([0.0, -1.0])).numpy().round(3)
  array([ 0.   , -0.693], dtype=float32)
  """

  def call(self, inputs):
    """Transforms any float tensor."""
    return feature_scale.signed_log(inputs)


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
    A `NumericFeatures`; it keeps the statistics, so serving takes raw features.

  Raises:
    ValueError: if there is no row.

  >>> layer = feature_preprocessing(np.array([[0.0], [2.0]], np.float32))
  >>> layer(tf.constant([[0.0], [2.0]])).numpy().round(3)
  array([[-1.],
         [ 1.]], dtype=float32)
  """
  rows = features[mask] if mask is not None else features
  mean, variance = _log_moments(rows.reshape(-1, features.shape[-1]))
  return NumericFeatures(
      [{"mean": float(m),
        "variance": max(float(v), feature_scale.MIN_VARIANCE),
        "missing": 0.0, "constant": bool(v <= feature_scale.MIN_VARIANCE)}
       for m, v in zip(mean, variance)], name="preprocessing")


def _log_moments(rows):
  """Mean and variance `[F]` of the signed log of `[D, F]` values.

  Some rows at a time, so that a large collection may stay in its file.
  """
  if not len(rows):
    raise ValueError(
        "`features` must have at least one row that counts, to take mean and "
        f"variance from, but {list(rows.shape)} is left; check `mask`.")
  counts, means, variances = [], [], []
  for start in range(0, len(rows), _ROWS_AT_A_TIME):
    part = rows[start:start + _ROWS_AT_A_TIME]
    logs = feature_scale.signed_log(np.asarray(part))
    counts.append(len(part))
    means.append(logs.mean(axis=0))
    variances.append(logs.var(axis=0))
  mean = np.average(means, axis=0, weights=counts)
  between = np.square(np.subtract(means, mean))
  return mean, np.average(variances + between, axis=0, weights=counts)


def tower(hidden_units, activation="elu", layer_norm=True, dropout=0.0,
          name=None, units=1):
  """A feed-forward scorer of one item.

  Args:
    hidden_units: sizes of the hidden layers.
    activation: of the hidden layers.
    layer_norm: normalise before each activation.
    dropout: rate after each activation.
    name: of the layer that gives the score.
    units: scores of an item.

  Returns:
    A Keras layer `[.., F]` -> `[.., units]`.

  >>> tower([4])(tf.zeros([2, 3, 5])).shape
  TensorShape([2, 3, 1])
  """
  layers = []
  for size in hidden_units:
    layers.append(tf.keras.layers.Dense(size))
    if layer_norm:
      layers.append(tf.keras.layers.LayerNormalization())
    layers.append(tf.keras.layers.Activation(activation))
    if dropout:
      layers.append(tf.keras.layers.Dropout(dropout))
  # Losses compute in float32; half-precision scores would tie.
  layers.append(tf.keras.layers.Dense(units, dtype=tf.float32))
  return tf.keras.Sequential(layers, name=name)


def build_model(num_features, preprocessing=None, num_heads=1,
                hidden_units=(512, 256, 128), activation="elu",
                layer_norm=True, dropout=0.0, relevance_units=None,
                num_relevance=1):
  """A model of item features with one tower a head.

  Args:
    num_features: F.
    preprocessing: a layer that the features go through first, or None.
    num_heads: 1 for scores, 2 with relevance, 3 with preference.
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.
    relevance_units: sizes of the hidden layers of the relevance tower; None for
      those of the others. It is never served, and a relevance that is too
      simple makes EM attribute the rest to positions, so it should be large
      enough whatever the ranking score is.
    num_relevance: relevance logits on that tower, one for each hypothesis of
      the bias layer (4 for `PositionBias(..)`).

  Returns:
    A Keras model from `[B, L, F]` to scores `[B, L]`, or with more heads to
    `[B, L, 1 + num_relevance]`, or `[B, L, 2 + num_relevance]` with preference.

  Raises:
    ValueError: if an argument is out of range.

  >>> build_model(5, num_heads=2, hidden_units=[4])(tf.zeros([1, 3, 5])).shape
  TensorShape([1, 3, 2])
  """
  num_features = checks.check_count("num_features", num_features)
  features = tf.keras.Input([None, num_features], name="features")
  hidden = preprocessing(features) if preprocessing else features
  return heads_on(features, hidden, num_heads, hidden_units, activation,
                  layer_norm, dropout, relevance_units, num_relevance)


def heads_on(inputs, hidden, num_heads, hidden_units, activation, layer_norm,
             dropout, relevance_units=None, num_relevance=1):
  """A model with one tower a head on preprocessed features.

  Args:
    inputs: the Keras inputs of the model.
    hidden: `[B, L, H]`, made from them.
    num_heads: as in `build_model`.
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.
    relevance_units: as in `build_model`.
    num_relevance: as in `build_model`.

  Returns:
    A Keras model from the inputs, as `build_model` makes it.

  Raises:
    ValueError: if an argument is out of range.
  """
  if num_heads not in range(1, len(HEADS) + 1):
    raise ValueError(
        f"`num_heads` must be 1 (ranking), 2 (and relevance) or 3 (and "
        f"preference), but is {num_heads}.")
  for name, units in (("hidden_units", hidden_units),
                      ("relevance_units", relevance_units or [])):
    for size in units:
      checks.check_count(name, size)
  if not checks.is_number(dropout) or not 0 <= dropout < 1:
    raise ValueError(f"`dropout` must be in [0, 1), but is {dropout!r}.")
  scores = []
  for head in HEADS[:num_heads]:
    name = RANKING_LAYER if head == "ranking" else f"{head}_logits"
    sizes, count = hidden_units, 1
    if head == "relevance":
      count = num_relevance
      sizes = hidden_units if relevance_units is None else relevance_units
    scores.append(tower(sizes, activation, layer_norm, dropout, name=name,
                        units=count)(hidden))
  if num_heads == 1:
    output = tf.keras.layers.Reshape([-1], dtype=tf.float32)(scores[0])
  else:
    output = tf.keras.layers.Concatenate(dtype=tf.float32)(scores)
  return tf.keras.Model(inputs, output)


def start_relevance(model, click_rate, click_irrelevant=0.0):
  """Starts the relevance head where it explains clicks, instead of at one half.

  In a model with scores alone the score is the relevance logit, so it starts
  there, and the same for all items: of items that are seldom seen, EM would
  confirm the values of a random start for long.

  Args:
    model: a model made by `build_model`.
    click_rate: the rate of feedback at the most clicked position, where EM
      starts from `layers.INITIAL_SCALE`.
    click_irrelevant: p0 as a share of p1 where EM starts, or `[S]`, one for
      each relevance logit; see `core.em.relevance_start`.

  >>> model = build_model(5, num_heads=2, hidden_units=[4])
  >>> start_relevance(model, 0.09)
  >>> tf.sigmoid(model(tf.zeros([1, 1, 5]))[0, 0, 1]).numpy().round(3)
  0.1
  """
  probability = em.relevance_start(
      click_rate, INITIAL_SCALE, tf.constant(click_irrelevant))[0]
  logits = tf.math.log(probability) - tf.math.log1p(-probability)
  if RELEVANCE_LAYER in [layer.name for layer in model.layers]:
    last = model.get_layer(RELEVANCE_LAYER).layers[-1]
  else:
    last = model.get_layer(RANKING_LAYER).layers[-1]
    last.kernel.assign(tf.zeros_like(last.kernel))
  last.bias.assign(tf.broadcast_to(logits, last.bias.shape))


def ranking_model(model):
  """The ranking head of a model, without other heads, optimizer and bias.

  Args:
    model: a functional Keras model with scores `[B, L]`, or one that ends with
      the stack or concatenation of its heads, as those of `build_model` do.

  Returns:
    A Keras model with scores `[B, L]` that shares its layers.

  Raises:
    ValueError: if the model does not end in such a way, or is not functional.

  >>> model = build_model(5, num_heads=2, hidden_units=[4])
  >>> ranking_model(model)(tf.zeros([1, 3, 5])).shape
  TensorShape([1, 3])
  """
  try:
    output = model.output
  except AttributeError as error:
    raise ValueError(
        "The ranking head can be taken from a functional Keras model only, "
        f"but {model.name!r} is a `{type(model).__name__}` that has no graph "
        "of its layers; make it by `tf.keras.Model(inputs, outputs)`."
    ) from error
  if output.shape.rank == 2:
    return tf.keras.Model(model.input, output)
  layer, heads = keras_guards.origin(output)
  ranking = heads[0]
  count = sum(1 if head.shape.rank == 2 else head.shape[-1] for head in heads)
  if ranking.shape.rank == 3 and ranking.shape[-1] == 1:
    ranking = tf.keras.layers.Reshape([-1])(ranking)
  if count != output.shape[-1] or ranking.shape.rank != 2:
    raise ValueError(
        "The model must end with a stack of its heads, each [lists, items], but"
        f" ends with the layer {layer.name!r}; use `scorers.HeadsScorer`.")
  return tf.keras.Model(model.input, ranking)


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

  _save(ranker, serve, path)


def _save(ranker, serve, path):
  """Writes a function of a Keras model, and what it needs of the model."""
  module = tf.Module()
  module.serve = serve
  # Not the model itself: Keras would trace each of its layers, too.
  module.weights = ranker.variables
  module.tables = [layer.lookup_table for layer in ranker.submodules
                   if hasattr(layer, "lookup_table")]
  tf.saved_model.save(module, path, signatures={"serving_default": serve})


@tf.keras.utils.register_keras_serializable(package="ultra_tfr")
class NumericFeatures(tf.keras.layers.Layer):
  """Signed log and standardisation; missing values get the mean and a mark.

  An infinite value counts as missing: no training row has one. Nothing was
  learned about a feature that was constant in training, so any later value
  counts as that constant.

  Args:
    features: for each of the F features a dict of "mean" and "variance" after
      the signed log, the share "missing", and "constant" if it is, as
      `data.click_log.summary.FeatureStatistics` gives them. A feature that
      was missing in some rows gets a second output, 1 where it is missing.
    name: the layer's name.

  >>> layer = NumericFeatures([{"mean": 0.0, "variance": 1.0, "missing": 0.1}])
  >>> layer(tf.constant([[0.0], [float("nan")]])).numpy().tolist()
  [[0.0, 0.0], [0.0, 1.0]]
  """

  def __init__(self, features, name="numeric_features"):
    # Half precision would lose large counts before the logarithm.
    super().__init__(name=name, autocast=False)
    # A string, since Keras would wrap a list and track it.
    self._features = json.dumps(checks.plain(features))
    self._mean = np.array([f["mean"] for f in features], np.float32)
    self._scale = np.sqrt([np.inf if f.get("constant") else f["variance"]
                           for f in features], dtype=np.float32)
    self._indicated = np.flatnonzero([f["missing"] > 0 for f in features])

  def call(self, inputs):
    """Transforms `[.., F]`, NaN where missing, to `[.., F + indicators]`."""
    values = tf.cast(inputs, tf.float32)
    missing = ~tf.math.is_finite(values)
    values = tf.where(missing, 0.0, values)
    logs = feature_scale.signed_log(values)
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
    max_units: size of the largest embedding; that of a feature with n values
      is about 3 times the fourth root of n.
    name: the layer's name.

  >>> layer = TextFeatures([{"vocabulary": ["", "a"]}, {"bins": 10}])
  >>> layer(tf.constant([["a", "b"], ["new", "c"]])).shape
  TensorShape([2, 9])
  """

  def __init__(self, features, max_units=16, name="text_features"):
    super().__init__(name=name)
    features = checks.plain(features)
    self._features = json.dumps(features)
    self._max_units = checks.check_count("max_units", max_units)
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
          size, min(self._max_units, round(3 * size ** 0.25))))

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
                    activation="elu", layer_norm=True, dropout=0.0,
                    relevance_units=None, num_relevance=1):
  """A model of a log's features with one tower a head.

  Args:
    statistics: of the features, as `ClickLog.statistics`.
    num_heads: as in `scorers.build_model`.
    hidden_units: of each tower.
    activation: of each tower.
    layer_norm: of each tower.
    dropout: of each tower.
    relevance_units: as in `build_model`.
    num_relevance: as in `build_model`.

  Returns:
    A Keras model from a dict of `"numeric"` `[B, L, F]` and `"texts"`
    `[B, L, S]`, without a key that has no feature, to what `build_model` says.

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
  return heads_on(inputs, features, num_heads, hidden_units, activation,
                  layer_norm, dropout, relevance_units, num_relevance)


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
  ranker = ranking_model(model)
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

  _save(ranker, serve, path)
