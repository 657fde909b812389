"""Training a ranker and the bias of its positions from a click log."""

import contextlib
import dataclasses
import os
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr import choices
from ultra_tfr import distribution
from ultra_tfr import methods
from ultra_tfr import output
from ultra_tfr import scorers
from ultra_tfr import trainer
from ultra_tfr.bias import Bias
from ultra_tfr.checks import memory as _memory
from ultra_tfr.data.prepared.shards import Shards
from ultra_tfr.fit_log import checkpoints
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import convergence
from ultra_tfr.fit_log import new_rows
from ultra_tfr.fit_log import saved_model

COMMAND = "ultra-tfr fit-log"
SCHEMA_FILE, _MODEL_FILE = FILES = checks.FITTED_FILES
# The method to fall back to.
WITHOUT_DEBIASING = "naive-pairwise"
# What a step needs for each pair of items: float32 tensors and their gradients.
_PAIR_BYTES = 40
_PASSES, _FEWEST_STEPS, _MOST_STEPS = 10, 200, 3000
# `prior_clicks` of the bias layer where a pass over the log has more batches
# than the M step remembers, which is so many at its first step size, .05.
_PRIOR_CLICKS, _LAST_BATCHES = 20.0, 20
# What TensorFlow raises in the workers that are left.
_WORKER_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError)
# What `click_prediction.choose` gives, by the number that workers are told.
_KEPT = (None, click_prediction.SIMPLER, click_prediction.FIT)


@dataclasses.dataclass(frozen=True)
class FittedLog:
  """A ranker that was trained on a log.

  Attributes:
    model: the Keras model, with all heads.
    bias: `Bias`, or None for a method that estimates none.
    schema: how the log was read, see `ClickLog.schema`.
    history: a dict of lists by name, a value for each validation, None for
      NaN: "step", "loss", and with a validation part "val_snips_dcg@10"; with a
      bias also "examination_change" and "weight_clipped", see `PropensityEM`,
      and "val_log_likelihood", of clicks; with a guard "logged_order_weight"
      and "val_lead", see `logged_order.LoggedOrderGuard`.
    validation: a dict of what the parameters that were kept are worth on the
      validation part, by `bias`: "snips_dcg@10", and with a bias
      "log_likelihood" of clicks, a mean over items. Empty without that part.
      Between trainings with different biases, only "log_likelihood" compares.
    click_prediction: how likely held-out clicks are by the model and the bias,
      and by click rates alone, see `click_prediction.compare`; empty for a
      method that does not predict clicks.
    simpler: the `Bias` of the simplest hypothesis about the users, if there are
      several and another one is the likeliest; else None.
  """

  model: tf.keras.Model
  bias: Optional[Bias]
  schema: dict
  history: dict
  validation: dict
  click_prediction: dict = dataclasses.field(default_factory=dict)
  simpler: Optional[Bias] = None

  @property
  def is_justified(self) -> bool:
    """Whether nothing is known that speaks against the bias.

    False if click rates by position predict held-out clicks as well as the
    model does. A curve that was given is not put in doubt.
    """
    if self.bias is not None and self.bias.fixed_to is not None:
      return True
    return self.click_prediction.get(
        "kept", click_prediction.FIT) is not None

  def settled(self) -> "FittedLog":
    """The same, with the simpler bias if only that one is justified."""
    if self.click_prediction.get("kept") != click_prediction.SIMPLER:
      return self
    return dataclasses.replace(self, bias=self.simpler, simpler=None)

  def save(self, folder: str) -> None:
    """Writes everything that a later command needs.

    The folder gets the exported ranking model (`model`), the model with all
    heads (`training_model.keras`), and `log.json` with columns, positions,
    bias, and history.

    Args:
      folder: a directory, made if need be. It must be empty, or hold what this
        or `ultra-tfr fit-log` wrote there before, which is replaced as a whole.

    Raises:
      ValueError: if the folder holds other files, see `output.Folder`.
    """
    towers = saved_model.describe(self.model.get_config())
    with output.Folder(folder, COMMAND, overwrite=True) as owned, (
        owned.staged(SCHEMA_FILE)) as stage:
      scorers.export_log_ranker(
          self.model, self.schema["statistics"], os.path.join(stage, "model"))
      self.model.save(os.path.join(stage, _MODEL_FILE), save_format="keras")
      output.write(os.path.join(stage, SCHEMA_FILE), {
          "schema": self.schema, "history": self.history,
          "validation": self.validation,
          "click_prediction": self.click_prediction,
          "bias": self.bias and self.bias.to_config(),
          "model": towers,
          "inputs": scorers.input_names(self.schema["statistics"])})

  def score(self, frame: Any) -> Any:
    """Scores of new items, and their ranks within their requests.

    Args:
      frame: a table with the columns of the request and of the features, as in
        the log; nothing else is needed. A pandas `DataFrame`, or a table of
        pyarrow, polars or another library with the Arrow interface.

    Returns:
      A table of the rows of `frame`, in its order, with the columns "score" and
      "rank", from 1; of equal scores the earlier row ranks first. For pandas a
      `DataFrame` with the index of `frame`, for others a `pyarrow.Table`.

    Raises:
      ValueError: if a column is missing, or a row cannot be scored.
    """
    return new_rows.score_frame(self, frame)


def load(folder: str) -> "FittedLog":
  """Reads what `FittedLog.save` wrote.

  Args:
    folder: the directory.

  Returns:
    A `FittedLog`.

  Raises:
    ValueError: if there is no such model.
  """
  checks.check_fitted(folder)
  config = saved_model.read_description(os.path.join(folder, SCHEMA_FILE))
  model = saved_model.read(
      os.path.join(folder, _MODEL_FILE), config["schema"]["statistics"],
      config.get("model"))
  return FittedLog(model, config["bias"] and Bias.from_config(config["bias"]),
                   config["schema"], config["history"],
                   config["validation"], config.get("click_prediction", {}))


def default_batch_size(num_requests: int) -> int:
  """256 requests, or a thirty-second of a smaller log, but at least 8.

  EM learns from the last batches. If these hold a small log many times over,
  its relevance is learned by heart, and then explains all clicks.

  Args:
    num_requests: to train on.

  Returns:
    A number of requests.

  >>> default_batch_size(100000), default_batch_size(1000)
  (256, 31)
  """
  return min(max(num_requests // 32, 8), trainer.Settings().batch_size)


def default_steps(num_requests: int, batch_size: int,
                  validate_every: int) -> int:
  """About ten passes over a log, at least 200 batches and at most 3000.

  Args:
    num_requests: to train on.
    batch_size: requests in a batch.
    validate_every: the result is a multiple of this, or less than it.

  Returns:
    A number of batches.

  >>> default_steps(10000, 256, 100), default_steps(10, 256, 1000)
  (400, 200)
  """
  steps = round(_PASSES * num_requests / batch_size)
  steps = min(max(steps, _FEWEST_STEPS), _MOST_STEPS)
  if steps <= validate_every:
    return steps
  fewest, most = -(-_FEWEST_STEPS // validate_every), (
      _MOST_STEPS // validate_every)
  epochs = min(max(round(steps / validate_every), fewest), most)
  return epochs * validate_every


def fit(log: Any, method_name: str, settings: trainer.Settings, *,
        seed: int = 0, logs_folder: Optional[str] = None, verbose: int = 0,
        known: Optional[Any] = None,
        strategy: Optional[Any] = None) -> "FittedLog":
  """Trains a method on the training part of a log.

  The parameters that are kept are the last ones whose self-normalised DCG@10 on
  the validation part is not clearly below the best, see
  `evaluation.held_out.last_as_good`. All are judged by the propensities after
  the last step: values by different propensities do not compare. Without a
  validation part the last parameters are kept. If they predict held-out clicks
  better than click rates by position do, and there are 20 clicks a position,
  EM is run to convergence on the training part with their relevance, see
  `convergence`, except where there is trust in pairs.

  Weights of rows count relative to the mean weight of their batch, and rows of
  weight 0 are left out, as padding is.

  Args:
    log: a `ClickLog`.
    method_name: one of `choices.FOR_LOGS`.
    settings: `trainer.Settings`.
    seed: of initialisation and order.
    logs_folder: where TensorBoard logs go, or None.
    verbose: as in Keras's `fit`.
    known: `known_curves.KnownCurves` to take instead of estimating examination,
      for a method that `takes_examination`; or None.
    strategy: a `tf.distribute.Strategy` to train by, of a log that was
      prepared: each worker reads its own shards, see
      `Shards.replica_batches`, and the weights of rows count relative to their
      mean on each replica. All workers call this alike, but TensorBoard logs
      and the `click_prediction` are for the chief alone. None for one device.

  Returns:
    A `FittedLog`, whose model is of no strategy.

  Raises:
    ValueError: if there is no such method, a request is too long for the
      memory, the replicas of the strategy cannot share the batches, a file of
      the log is damaged, another worker has ended, or the training diverged.
  """
  checks.check_choice("method_name", method_name, choices.FOR_LOGS)
  check_memory(log, distribution.own_part(strategy, settings.batch_size))
  method = methods.find(method_name)
  arguments = method.model_arguments(settings)
  tf.keras.utils.set_random_seed(seed)
  with (strategy or tf.distribute.get_strategy()).scope():
    model = scorers.build_log_model(log.statistics, **arguments)
    loss, bias, callbacks = method.build(
        len(log.positions),
        "click" if log.feedback_kind == "binary" else "dwell",
        num_contexts=len(log.contexts),
        # In the batches that the M step remembers, a small log is repeated.
        prior_clicks=_PRIOR_CLICKS * max(
            1.0, _LAST_BATCHES * settings.batch_size / len(log.parts["train"])),
        examination=None if known is None else known.values)
    method.start(model, bias, _highest_rate(log))
  callbacks = list(callbacks)
  keeper = checkpoints.KeepBest(log, method_name, bias, method.has_guard)
  callbacks.append(keeper)
  if logs_folder is not None:
    # After `KeepBest`, which puts the validation result into the logs.
    callbacks += trainer.tensorboard(logs_folder, bias)
  has_weights = log.columns.weight is not None

  def targets(inputs, packed, weights):
    counts = weights > 0
    if has_weights:
      packed = tf.where(counts[..., tf.newaxis], packed, [-1.0, 0.0, 0.0])
      weights *= tf.math.divide_no_nan(
          tf.reduce_sum(tf.cast(counts, tf.float32)), tf.reduce_sum(weights))
    # Without a bias layer the loss is one of TF-Ranking's: feedback alone.
    packed = packed[..., 0] if bias is None else packed
    return (inputs, packed, weights) if has_weights else (inputs, packed)

  with _clear_errors(log.parts["train"]):
    history = trainer.fit(
        model, loss, _dataset(log, settings, seed, strategy, targets), settings,
        callbacks, verbose)
  every = settings.steps_per_epoch
  steps = range(every, settings.steps + 1, every)
  curves = {
      name: output.plain(values)
      for name, values in history.items()
      if name == "examination_change" or not name.startswith("examination_")}
  biases = {name: found for name, found in (
      (click_prediction.FIT, keeper.bias),
      (click_prediction.SIMPLER, keeper.simpler)) if found is not None}
  if strategy is not None:
    # A model of a strategy would need all workers to be saved.
    weights = model.get_weights()
    model = scorers.build_log_model(log.statistics, **arguments)
    model.set_weights(weights)
  found = {}
  if biases and keeper.bias.predicts_clicks:
    with _clear_errors(log.parts["train"]):
      biases, found = _run_on(log, model, bias, biases, strategy)
  estimated = biases.get(click_prediction.FIT)
  if estimated is not None and known is not None:
    estimated = dataclasses.replace(estimated, fixed_to=known.source)
  return FittedLog(
      model, estimated, log.schema(), {"step": [*steps], **curves},
      _validation(keeper, estimated), found,
      biases.get(click_prediction.SIMPLER))


def _run_on(log, model, layer, biases, strategy):
  """Runs EM to convergence where the log is fit for it.

  It is not if relevance predicts held-out clicks no better than click rates do:
  then it has learned clicks by heart and explains all of them, and EM would end
  at examination that is the same everywhere. Nor if positions have fewer clicks
  than pseudo-clicks, at whose flat curve EM would end.

  Args:
    log: a `ClickLog`.
    model: the model, of no strategy.
    layer: its `PositionBias`.
    biases: a dict of `Bias`, as `click_prediction.compare` takes it.
    strategy: as in `fit`.

  Returns:
    A tuple of the biases and what `click_prediction.compare` says of them, of
    which workers that are not the chief know only "kept".
  """
  def compare(biases):
    found = {}
    if strategy is None or distribution.is_chief(strategy):
      found = click_prediction.compare(log, model, biases)
    if strategy is not None:
      found["kept"] = _KEPT[int(distribution.of_chief(
          strategy, _KEPT.index(found.get("kept"))))]
    return found

  found = compare(biases)
  clicks = sum(sum(cells["clicked"])
               for cells in log.summary["by_position"].values())
  if found["kept"] is None or clicks < (
      _PRIOR_CLICKS * len(log.contexts) * len(log.positions)):
    return biases, found
  converged = convergence.converge(layer, biases, model, log.parts["train"])
  if converged is None:
    return biases, found
  again = compare(converged)
  return (biases, found) if again["kept"] is None else (converged, again)


@contextlib.contextmanager
def _clear_errors(part):
  """Says which file could not be read, or that a worker has ended."""
  try:
    yield
  except tf.errors.OpError as error:
    if isinstance(error, _WORKER_LOST):
      raise ValueError(
          "The training cannot go on, since another worker has ended or cannot "
          "be reached; see what it printed, and start all of them again."
      ) from error
    part.check()
    raise


def _dataset(log, settings, seed, strategy, targets):
  """What `fit` of Keras takes."""
  part, batch_size = log.parts["train"], settings.batch_size
  if strategy is None:
    return part.dataset(batch_size, seed).map(targets)
  if not isinstance(part, Shards):
    raise ValueError(
        "With a `strategy` the log must be a prepared one; prepare it by "
        "`ultra-tfr prepare-log`, and read it by `read_prepared`.")

  def read_own(context):
    count = context.num_replicas_in_sync
    own = count // context.num_input_pipelines
    first = context.input_pipeline_id * own
    return part.replica_batches(
        range(first, first + own), count, batch_size, seed).map(
            targets).prefetch(2)

  return strategy.distribute_datasets_from_function(read_own)


def fit_without_debiasing(log: Any, fitted: "FittedLog",
                          settings: trainer.Settings, *, seed: int = 0,
                          logs_folder: Optional[str] = None,
                          verbose: int = 0,
                          strategy: Optional[Any] = None) -> "FittedLog":
  """Trains the ranker to serve where no debiasing is justified.

  Args:
    log: a `ClickLog`.
    fitted: what was trained on it with debiasing.
    settings: as in `fit`.
    seed: as in `fit`.
    logs_folder: as in `fit`.
    verbose: as in `fit`.
    strategy: as in `fit`.

  Returns:
    A `FittedLog` without a bias, with the `click_prediction` of `fitted`.
  """
  plain = fit(log, WITHOUT_DEBIASING, settings, seed=seed,
              logs_folder=logs_folder, verbose=verbose, strategy=strategy)
  return dataclasses.replace(plain, click_prediction=fitted.click_prediction)


def _validation(keeper, bias):
  """`FittedLog.validation`."""
  found = keeper.validation(bias)
  if found is None:
    return {}
  values = {"snips_dcg@10": found.value}
  if bias is not None:
    values["log_likelihood"] = found.log_likelihood
  return output.plain(values)


def check_can_teach(log: Any) -> None:
  """Raises a `ValueError` if no request tells one item from another.

  Args:
    log: a `ClickLog`.
  """
  clicked = unclicked = False
  for batch in log.parts["train"].batches(1024):
    counts = batch.weights > 0
    highest = np.where(counts, batch.feedback, -np.inf).max(axis=1)
    lowest = np.where(counts, batch.feedback, np.inf).min(axis=1)
    if np.any(highest > lowest):
      return
    clicked |= bool(np.any(highest > 0))
    unclicked |= bool(np.any(lowest <= 0))
  if not clicked:
    reason = "no row has feedback; check `feedback`"
  elif not unclicked:
    reason = ("every row has feedback; the log needs a row for each item that "
              "was shown, not only for the clicked ones")
  else:
    reason = ("rows with and without feedback are never in one request; check "
              "`query`, whose rows are one list that was shown once")
  raise ValueError(
      "There is nothing to learn from: no request of the training part has two "
      f"items of different feedback, since {reason}.")


def check_memory(log: Any, batch_size: int) -> None:
  """Raises a `ValueError` if a batch would need more memory than there is.

  Args:
    log: a `ClickLog`.
    batch_size: requests in a batch, of those that are on this machine.
  """
  longest = log.summary["longest_request"]
  needed = _PAIR_BYTES * longest ** 2 * min(
      batch_size, sum(log.summary["requests"].values()))
  if needed > _memory():
    raise ValueError(
        f"The longest request has {longest} rows, and each pair of them is "
        f"compared: a batch of {batch_size} requests may need about "
        f"{needed / 1e9:.0f} GB of memory. Keep the first rows of each request "
        "by `max_items`, such as 100, or make the batches smaller.")


def _highest_rate(log):
  """The share of rows with feedback at the position that has the highest."""
  # A sample of the training part; nothing else may be known yet.
  return click_prediction.click_rates(click_prediction.click_counts(
      log.parts["train"], len(log.contexts), len(log.positions),
      most_batches=10)).max()
