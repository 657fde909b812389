"""Simulated users in front of displayed lists: feedback, fresh every epoch."""

import numpy as np
import tensorflow as tf

from ultra_tfr import checks
from ultra_tfr import choices
from ultra_tfr.data.labels import weighted_sum
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.dwell import simulate_dwell

FEEDBACK = choices.FEEDBACK
LEARN_FROM = ("feedback", "labels", "clicks_examined")


class FeedbackStream:
  """Batches of displayed lists with feedback drawn afresh each epoch.

  The feedback of an epoch is drawn for all lists at once from (seed, epoch), so
  it does not depend on batch size, prefetching or the number of workers.

  Args:
    features: `[N, L, F]`, item l displayed at position l + 1.
    labels: `[N, L]` true grades, negative for padding.
    click_model: a `simulation.click_models` model.
    feedback: `"click"` for clicks, `"dwell"` for click + dwell time, the label
      that the paper synthesises (equation 6).
    seed: of the feedback and of the order of lists.

  >>> from ultra_tfr.simulation.click_models import PositionBasedModel
  >>> stream = FeedbackStream(np.zeros([1, 2, 3]), [[4.0, -1.0]],
  ...                         PositionBasedModel([1.0]), seed=1)
  >>> stream.draw(epoch=0)
  array([[ 1., -1.]], dtype=float32)
  """

  def __init__(self, features, labels, click_model, feedback="click", seed=0):
    checks.check_choice("feedback", feedback, FEEDBACK)
    self.features = np.asarray(features, np.float32)
    self.labels = np.asarray(labels, np.float32)
    self._click_model, self._feedback = click_model, feedback
    self._seed = seed

  def draw(self, epoch):
    """The feedback of an epoch.

    Args:
      epoch: from 0.

    Returns:
      `[N, L]` float32, -1 in padding.
    """
    seed = (self._seed, epoch)
    values = self._click_model.sample(self.labels, seed).clicks
    if self._feedback == "dwell":
      dwell = simulate_dwell(self.labels, values, seed,
                             max_grade=self._click_model.max_grade)
      values = weighted_sum({"click": values, "dwell": dwell},
                            {"click": 1.0, "dwell": 1.0})
    return np.where(self.labels < 0, np.float32(-1.0), values)

  def draw_examined(self, epoch):
    """The clicks of users who examine everything: feedback without any bias.

    They click each item with its attraction, whatever its position and the
    clicks above. Under a position-based model they are the users of `draw`:
    they click what they clicked there, and more.

    Args:
      epoch: from 0.

    Returns:
      `[N, L]` float32, -1 in padding.
    """
    model = PositionBasedModel(
        [1.0], click_noise=self._click_model.click_noise,
        max_grade=self._click_model.max_grade)
    clicks = model.sample(self.labels, (self._seed, epoch)).clicks
    return np.where(self.labels < 0, np.float32(-1.0), clicks)

  def _targets(self, learn_from, epoch):
    if learn_from == "labels":
      return self.labels
    if learn_from == "clicks_examined":
      return self.draw_examined(epoch)
    return self.draw(epoch)

  def dataset(self, batch_size, learn_from="feedback", start=0):
    """An endless dataset of (features, targets), reshuffled each epoch.

    The batches of an epoch depend on (seed, epoch) alone, so batches that
    `start` skips are not even drawn, and a training that was restored in the
    middle of an epoch goes on with the next batch:

        model.fit(
            stream.dataset(256, start=lambda: model.optimizer.iterations),
            callbacks=[PropensityEM(),
                       tf.keras.callbacks.BackupAndRestore(folder, 50)],
            steps_per_epoch=100, epochs=20)

    Keras restores before it begins to iterate, and the function is called then.

    Args:
      batch_size: lists in a batch; a data set with fewer lists gives them all.
      learn_from: `"feedback"`; `"labels"` for the true grades; or
        `"clicks_examined"` for `draw_examined`, clicks whatever the feedback.
      start: batches to skip, those trained on before; or a function that gives
        their number, called each time that iteration begins.

    Returns:
      A `tf.data.Dataset` of `[B, L, F]` and `[B, L]`.

    Raises:
      ValueError: if there is no such target, or `start` is negative.
    """
    checks.check_choice("learn_from", learn_from, LEARN_FROM)
    if not callable(start) and start < 0:
      raise ValueError(
          "`start` must be the number of batches to skip, at least 0, but is "
          f"{start}.")
    count = len(self.labels)
    size = min(batch_size, count)

    def batches():
      skipped = int(start() if callable(start) else start)
      epoch, batch = divmod(skipped, count // size)
      while True:
        targets = self._targets(learn_from, epoch)
        order = np.random.default_rng((self._seed, epoch)).permutation(count)
        # Lists left over come up in other epochs, which have another order.
        for first in range(batch * size, count - size + 1, size):
          chosen = order[first:first + size]
          yield self.features[chosen], targets[chosen]
        epoch, batch = epoch + 1, 0

    shape = self.features.shape[1:]
    return tf.data.Dataset.from_generator(batches, output_signature=(
        tf.TensorSpec([size, *shape]),
        tf.TensorSpec([size, shape[0]]))).prefetch(tf.data.AUTOTUNE)
