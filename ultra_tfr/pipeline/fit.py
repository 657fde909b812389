"""TF-Ranking's Keras pipeline with unbiased loss, EM and export."""

import warnings

import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.logged_order import LoggedOrderGuard
from ultra_tfr.losses import UnbiasedPairwiseLoss
from ultra_tfr.metrics import on_ranking

LOSS = "unbiased_pairwise_loss"


class UnbiasedPipeline(tfr.keras.pipeline.ModelFitPipeline):
  """`ModelFitPipeline` with unbiased loss, EM, and export of the ranking head.

  TF-Ranking's hyperparameters hold; `loss` must be "unbiased_pairwise_loss".
  Metrics are TF-Ranking's NDCG, under its names, on the ranking head. Exported
  models need no `ultra_tfr`, no feedback and no positions.

  Args:
    model_builder: a `tfr.keras.model.AbstractModelBuilder` of a model with one
      score an item, or with the heads of a `scorers.HeadsScorer`.
    dataset_builder: a `FeedbackDatasetBuilder`.
    hparams: `tfr.keras.pipeline.PipelineHparams`.
    position_bias: a function that makes a `PositionBias`, such as
      `functools.partial(PositionBias, 10)`; called in the strategy's scope.
      With its `logged_order_weight` a `LoggedOrderGuard` moves that weight by
      the feedback of the validation files.
    loss: a function that makes the loss of the bias layer and `reduction`.
    em: a function that makes the `PropensityEM`.
    gain_fn: the gain of NDCG, None for 2^y - 1; dwell times and the like need
      `tfr.keras.utils.identity`.

  Attributes:
    position_bias: the bias layer, once there is a loss. After training it is
      that of the model exported last: the best one's, if that is exported.

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
    guards = []
    if self.position_bias.logged_order_weight is not None:
      self._dataset_builder.check_held_out_feedback()
      held_out = self._dataset_builder.build_valid_dataset(num_epochs=1)
      guards.append(LoggedOrderGuard(
          held_out.take(self._hparams.validation_steps)))
    return [self._make_em(self.position_bias), *guards,
            _ReportLostFeedback(self._dataset_builder),
            *super().build_callbacks()]

  def export_saved_model(self, model, export_to, checkpoint=None):
    """Writes the ranking head alone; see `ModelFitPipeline` for the rest."""
    if checkpoint:
      model.load_weights(checkpoint)
    ranker = ranker_of(model)
    # Signatures need no traces of the layers, which double size and time.
    ranker.save(export_to, save_traces=False,
                signatures=self._dataset_builder.build_signatures(ranker))


class _ReportLostFeedback(tf.keras.callbacks.Callback):

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


def ranker_of(model):
  """The ranking head of a model, without other heads, optimizer and bias."""
  output = model.output
  if output.shape.rank == 2:
    return tf.keras.Model(model.input, output)
  layer, node, _ = output._keras_history
  heads = tf.nest.flatten(layer.inbound_nodes[node].keras_inputs)
  if len(heads) != output.shape[-1] or heads[0].shape.rank != 2:
    raise ValueError(
        "The model must end with a stack of its heads, each [lists, items], but"
        f" ends with the layer {layer.name!r}; use `scorers.HeadsScorer`.")
  return tf.keras.Model(model.input, heads[0])
