"""ELWC files with feedback as a dataset of TF-Ranking's Keras pipeline."""

import re
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.data import elwc
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.logged_order import LoggedOrderGuard
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

TENSORS = "score"  # The signature that takes tensors.
_SERVABLE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*")
_CHECKED_LISTS = 100
LOSS = "unbiased_pairwise_loss"


class FeedbackDatasetBuilder(tfr.keras.pipeline.BaseDatasetBuilder):
  """Reads ELWC and packs feedback, positions and contexts into `y_true`.

  As TF-Ranking's `SimpleDatasetBuilder`, but files may end in `.gz`, and specs
  are compared with the first lists, so that a wrong name is noticed instead of
  read as its default. Lists are shuffled, items never. Lists longer than
  `list_size` keep their first items, with the positions of the log;
  `lost_feedback` counts the feedback on the others.

  Args:
    context_feature_spec: feature specs of the lists by name.
    example_feature_spec: feature specs of the items by name.
    mask_feature_name: the name of the mask among the features.
    label_spec: the name and `tf.io.FixedLenFeature` of the feedback.
    hparams: `tfr.keras.pipeline.DatasetHparams`.
    sample_weight_spec: name and feature of the weights of items, or None.
    position_spec: name and feature of the 1-based display positions; None if
      lists are in the order of display.
    bias_context_spec: name and feature of a list's context id, for a bias layer
      with contexts, or None. The model sees it if `context_feature_spec` has it
      too.
    valid_label_spec: name and feature of the labels to validate on; None for
      the feedback. With true labels only ranking metrics mean something;
      `val_loss` is 0 where the lists have no positions.

  Raises:
    ValueError: if the model would see the feedback or the positions.

  >>> one = lambda default: tf.io.FixedLenFeature([1], tf.int64, default)
  >>> elwc.write_elwc("log", elwc.ElwcLists(
  ...     {"x": [5, 6, 7], "click": [0, 1, 0], "rank": [2, 1, 4]}, [0, 2, 3]))
  >>> builder = FeedbackDatasetBuilder(
  ...     {}, {"x": one(0)}, "mask", ("click", one(-1)),
  ...     tfr.keras.pipeline.DatasetHparams("log", "log", 2, 2),
  ...     position_spec=("rank", one(0)))
  >>> _, y_true = next(iter(builder.build_valid_dataset()))
  >>> y_true.numpy().tolist()
  [[[0.0, 2.0], [1.0, 1.0]], [[0.0, 4.0], [-1.0, 0.0]]]
  """

  def __init__(self, context_feature_spec, example_feature_spec,
               mask_feature_name, label_spec, hparams, sample_weight_spec=None,
               *, position_spec=None, bias_context_spec=None,
               valid_label_spec=None):
    self._specs = {
        "label": _with_default(label_spec, -1),
        "valid_label": _with_default(valid_label_spec or label_spec, -1),
        "position": _with_default(position_spec, 0),
        "weight": _with_default(sample_weight_spec, 1)}
    for spec in self._specs.values():
      if spec and spec[0] in example_feature_spec:
        raise ValueError(
            "`example_feature_spec` must be what the model may see, but has "
            f"{spec[0]!r}, which is unknown when items are served; remove it.")
    self._bias_context = bias_context_spec
    super().__init__(
        context_feature_spec, example_feature_spec,
        dict(s for k, s in self._specs.items() if s and k != "valid_label"),
        mask_feature_name, hparams,
        dict([bias_context_spec] if bias_context_spec else []))
    self._counts = tf.Variable([0, 0], trainable=False, dtype=tf.int64)

  def build_train_dataset(self, num_epochs=None):
    """A `tf.data.Dataset` of features, `y_true` of `pack_feedback`, weights.

    Args:
      num_epochs: passes over the files; None for no end.

    Raises:
      ValueError: if none of the first lists has the feedback or position, or a
        feature has another type.
    """
    self._check_files(self._hparams.train_input_pattern)
    return self._batches("train", self._hparams.list_size, num_epochs)

  def build_valid_dataset(self, num_epochs=None):
    """As `build_train_dataset`, in the order of the files."""
    size = self._hparams.valid_list_size or self._hparams.list_size
    return self._batches("valid", size, num_epochs)

  def check_held_out_feedback(self):
    """Raises a `ValueError` if validation lists have labels, not feedback."""
    if self._specs["valid_label"][0] != self._specs["label"][0]:
      raise ValueError(
          "`logged_order_weight` is moved by held-out feedback, but validation "
          f"lists have the label {self._specs['valid_label'][0]!r}; leave "
          "`valid_label_spec` or the weight out.")

  def lost_feedback(self):
    """Counts of training items with feedback: beyond `list_size`, and all."""
    return tuple(self._counts.numpy().tolist())

  def build_signatures(self, model):
    """TF-Ranking's signatures, and one that takes tensors.

    Args:
      model: a Keras model from a dict of features to scores.

    Returns:
      A dict of functions. The default is that of lists (ELWC) and not, as in
      TF-Ranking, that of single items (`tf.Example`). `TENSORS` takes the
      model's inputs by name and gives "scores", `[B, L]`; it is left out where
      a feature is not of fixed length, or has a name that TensorFlow does not
      take for an input.
    """
    signatures = super().build_signatures(model)
    # With TF-Ranking's default, a list (ELWC) would be read as an item without
    # features, and get the score of their default values.
    signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY] = (
        signatures[tf.saved_model.PREDICT_METHOD_NAME])
    features = {**self._context_feature_spec, **self._example_feature_spec}
    if not all(isinstance(spec, tf.io.FixedLenFeature) and
               _SERVABLE_NAME.fullmatch(name)
               for name, spec in features.items()):
      return signatures
    specs = {name: tf.TensorSpec(tensor.shape, tensor.dtype, name)
             for name, tensor in model.input.items()}

    @tf.function(input_signature=[specs])
    def score(features):
      return {"scores": model(features, training=False)}

    signatures[TENSORS] = score
    return signatures

  def _batches(self, part, list_size, num_epochs):
    label = self._specs["label" if part == "train" else "valid_label"]
    context = {**self._context_feature_spec, **self._training_only_context_spec}
    example = {**self._example_feature_spec, **self._training_only_example_spec}
    example.pop(self._specs["label"][0])
    example.update([label])

    def parse(serialized):
      if list_size and part == "train":
        whole = tfr.data.parse_from_example_list(
            serialized, example_feature_spec=dict([label]))[label[0]]
        found = tf.cast(whole > 0, tf.int64)
        self._counts.assign_add(tf.stack(
            [tf.reduce_sum(found[:, list_size:]), tf.reduce_sum(found)]))
      return tfr.data.parse_from_example_list(
          serialized, list_size, context, example,
          mask_feature_name=self._mask_feature_name)

    reader = self._hparams.dataset_reader
    return tfr.data.build_ranking_dataset_with_parsing_fn(
        getattr(self._hparams, f"{part}_input_pattern"), parse,
        getattr(self._hparams, f"{part}_batch_size"),
        elwc.open_records if reader is tf.data.TFRecordDataset else reader,
        num_epochs=num_epochs, shuffle=part == "train",
        shuffle_buffer_size=1000, sloppy_ordering=part == "train").map(
            lambda features: self._features_and_labels(features, label[0]),
            tf.data.AUTOTUNE)

  def _features_and_labels(self, features, label=None):
    mask = features[self._mask_feature_name]

    def take(name, padding):
      values = tf.reshape(tf.cast(features.pop(name), tf.float32),
                          tf.shape(mask))
      return tf.where(mask, values, padding)

    feedback = take(label or self._specs["label"][0], -1.0)
    if self._hparams.convert_labels_to_binary:
      feedback = tf.where(feedback > 0, 1.0, feedback)
    positions, weight = (spec and take(spec[0], 0.0) for spec in (
        self._specs["position"], self._specs["weight"]))
    name, contexts = self._bias_context and self._bias_context[0], None
    if name:
      contexts = tf.reshape(features[name], [-1, 1])
      if name not in self._context_feature_spec:
        features.pop(name)
    y_true = pack_feedback(feedback, positions, contexts)
    return (features, y_true) if weight is None else (features, y_true, weight)

  def _check_files(self, pattern):
    """Compares the specs with what the first lists hold."""
    if self._hparams.dataset_reader is not tf.data.TFRecordDataset:
      return
    sample = elwc.read_elwc(pattern, False, _CHECKED_LISTS)
    for unit, held, specs, own in (
        ("lists", sample.context, self._context_feature_spec,
         self._training_only_context_spec),
        ("items", sample.examples, self._example_feature_spec,
         self._training_only_example_spec)):
      for name, spec in {**specs, **own}.items():
        dtype = _dtype(held[name]) if name in held else None
        if dtype == spec.dtype:
          continue
        message = (
            f"Feature {name!r} of the {unit} should be {spec.dtype.name}, but "
            f"in {pattern} it is {dtype.name if dtype else 'missing'}; there "
            f"are {', '.join(held) or 'none'}: correct the spec.")
        if dtype or name in own:
          raise ValueError(message)
        warnings.warn(message, stacklevel=3)


def _with_default(spec, default):
  """A spec (name, feature) with a default, which padding needs; or None."""
  if spec is None or spec[1].default_value is not None:
    return spec
  return spec[0], tf.io.FixedLenFeature([1], spec[1].dtype, default)


def _dtype(values):
  """The dtype of a feature as read."""
  value = next(v for v in values.ravel() if v is not None)
  kind = np.asarray(value).dtype.kind
  return {"f": tf.float32, "i": tf.int64}.get(kind, tf.string)


class UnbiasedPipeline(tfr.keras.pipeline.ModelFitPipeline):
  """`ModelFitPipeline` with unbiased loss, EM, and export of the ranking head.

  TF-Ranking's hyperparameters hold; `loss` must be "unbiased_pairwise_loss".
  Metrics are TF-Ranking's NDCG, under its names, on the ranking head. Exported
  models need no `ultra_tfr`, no feedback and no positions.

  Args:
    model_builder: a `tfr.keras.model.AbstractModelBuilder` of a model with one
      score an item, or with the heads of a `scorers.HeadsScorer`.
    dataset_builder: a `FeedbackDatasetBuilder`; or one of TF-Ranking's, such as
      `NullDatasetBuilder` of datasets that give what the loss takes. With
      `SimpleDatasetBuilder` the label is the feedback, lists are in the order
      of display, and exports have TF-Ranking's default signature, that of
      single items.
    hparams: `tfr.keras.pipeline.PipelineHparams`.
    position_bias: a function that makes a `PositionBias`, such as
      `functools.partial(PositionBias, 10)`; called in the strategy's scope.
      With its `logged_order_weight` a `LoggedOrderGuard` moves that weight by
      the feedback of the validation files.
    loss: a function that makes the loss from the bias layer and `reduction`.
    em: a function that makes the `PropensityEM`.
    gain_fn: the gain of NDCG, None for 2^y - 1; dwell times and the like need
      `tfr.keras.utils.identity`.

  Attributes:
    position_bias: the bias layer, None before the loss is built. After training
      it has the values of the model exported last, so those of the best model
      if that one is exported.

  Raises:
    ValueError: if `hparams` name another loss, or would choose the worst model.
  """

  def __init__(self, model_builder, dataset_builder, hparams, position_bias, *,
               loss=UnbiasedPairwiseLoss, em=PropensityEM, gain_fn=None):
    super().__init__(model_builder, dataset_builder, hparams)
    if hparams.loss != LOSS:
      raise ValueError(f"`hparams.loss` must be {LOSS!r} in this pipeline, but "
                       f"is {hparams.loss!r}; for it use TF-Ranking's own.")
    chooses = hparams.export_best_model or hparams.early_stopping_patience
    monitor = hparams.best_exporter_metric if chooses else ""
    if monitor[:4] == "ndcg" and not hparams.best_exporter_metric_higher_better:
      raise ValueError(f"`best_exporter_metric_higher_better` must be True for "
                       f"{monitor!r}, but is False; set it.")
    if hparams.automatic_reduce_lr or monitor == "loss":
      warnings.warn(
          "The validation loss moves with the propensities; rather monitor "
          "'ndcg_5', and set `automatic_reduce_lr` to False.", stacklevel=2)
    self._make_bias, self._make_loss, self._make_em = position_bias, loss, em
    self._gain_fn = gain_fn
    self.position_bias = None

  def build_loss(self):
    """The bias layer and the loss on it."""
    self.position_bias = self._make_bias()
    return self._make_loss(self.position_bias,
                           reduction=self._hparams.loss_reduction)

  def build_metrics(self, prefix="metric/"):
    """NDCG of the ranking head at 1, 5, 10 and over all items."""
    return [on_ranking(tfr.keras.metrics.NDCGMetric(
        f"{prefix}ndcg{topn and f'_{topn}' or ''}", topn=topn,
        gain_fn=self._gain_fn)) for topn in (1, 5, 10, None)]

  def build_weighted_metrics(self):
    """The same, weighted."""
    return self.build_metrics("weighted_metric/")

  def build_callbacks(self):
    """EM, guard, the report on truncation, and TF-Ranking's callbacks."""
    guards = [_CheckExport()]
    reads_feedback = isinstance(self._dataset_builder, FeedbackDatasetBuilder)
    if reads_feedback:
      guards.append(_ReportLostFeedback(self._dataset_builder))
    if self.position_bias.logged_order_weight is not None:
      if reads_feedback:
        self._dataset_builder.check_held_out_feedback()
      held_out = self._dataset_builder.build_valid_dataset(num_epochs=1)
      guards.append(LoggedOrderGuard(
          held_out.take(self._hparams.validation_steps)))
    return [self._make_em(self.position_bias), *guards,
            *super().build_callbacks()]

  def export_saved_model(self, model, export_to, checkpoint=None):
    """Writes the ranking head alone; see `ModelFitPipeline` for the rest."""
    if checkpoint:
      model.load_weights(checkpoint)
    ranker = scorers.ranking_model(model)
    signatures = self._dataset_builder.build_signatures(ranker)
    # Signatures need no traces of the layers, which double size and time;
    # without signatures traces are all that can be called.
    ranker.save(export_to, save_traces=signatures is None,
                signatures=signatures)


class _CheckExport(tf.keras.callbacks.Callback):
  """Refuses before training a model that could not be exported after it."""

  def set_model(self, model):
    super().set_model(model)
    scorers.ranking_model(model)


class _ReportLostFeedback(tf.keras.callbacks.Callback):
  """Logs, and warns once, how much feedback was beyond `list_size`."""

  def __init__(self, builder):
    super().__init__()
    self._builder, self._has_warned = builder, False

  def on_epoch_end(self, epoch, logs=None):
    lost, found = self._builder.lost_feedback()
    logs["feedback_lost"] = lost / max(found, 1)
    if lost and not self._has_warned:
      self._has_warned = True
      warnings.warn(
          f"{lost} of {found} items with feedback were beyond `list_size`, and "
          "nothing is learned from them; raise `list_size`.", stacklevel=2)
