r"""Unbiased training in a loop of your own, without `fit`.

What `ultra_tfr.callbacks.PropensityEM` does inside `fit` takes three lines in a
loop: open the gate before a training step, close it afterwards, and run the M
step on the sums that the loss collected. A checkpoint of such a loop is
`tf.train.Checkpoint(model=model, optimizer=optimizer, position_bias=bias)`.

Command (about 20 seconds on two cores):

    python examples/custom_loop.py

Expected output:

    step 200: NDCG@10 on true labels 0.815
    step 400: NDCG@10 on true labels 0.813
    step 600: NDCG@10 on true labels 0.802
    examination, true:      [1.   0.9  0.71 0.5  0.41]
    examination, estimated: [1.   0.8  0.52 0.35 0.27]

The curve comes closer with more queries and steps: `ultra-tfr demo` has them.
"""

import ultra_tfr
import tensorflow as tf

from ultra_tfr import scorers
from ultra_tfr.experiments import task as task_lib
from ultra_tfr.data import synthetic
from ultra_tfr.evaluation import ranking
from ultra_tfr.simulation.click_models import PositionBasedModel

_STEPS = 600


def make_train_step(model, loss, optimizer):
  """A function of one batch that takes a gradient step."""

  @tf.function
  def train_step(features, feedback):
    with tf.GradientTape() as tape:
      # The E step is in the loss: it adds to the sums of its bias layer.
      value = loss(feedback, model(features, training=True))
    gradients = tape.gradient(value, model.trainable_weights)
    optimizer.apply_gradients(zip(gradients, model.trainable_weights))
    return value

  return train_step


def train(model, bias, loss, optimizer, batches):
  """Trains, and yields the number of each step after it."""
  train_step = make_train_step(model, loss, optimizer)
  for step, (features, feedback) in enumerate(batches, start=1):
    bias.start_collecting()  # From here on, what the loss sees is counted ..
    train_step(features, feedback)
    bias.stop_collecting()  # .. until here: evaluation must not be.
    bias.update()  # The M step. Its arguments are those of `PropensityEM`.
    yield step


def main():
  data = synthetic.generate(num_train=1000, num_valid=100, num_test=200, seed=0)
  task = task_lib.make_task(*data, PositionBasedModel(), num_positions=5)

  tf.keras.utils.set_random_seed(0)
  bias = ultra_tfr.layers.PositionBias(num_positions=5, trust_bias="position")
  loss = ultra_tfr.losses.UnbiasedPairwiseLoss(bias)
  model = scorers.build_model(
      task.train_features.shape[1],
      scorers.feature_preprocessing(task.train_features), num_heads=2,
      hidden_units=(32,))
  optimizer = tf.keras.optimizers.Adam(2e-3)

  batches = task.stream.dataset(batch_size=128).take(_STEPS)
  for step in train(model, bias, loss, optimizer, batches):
    if step % 200 == 0:
      ndcg = ranking.evaluate(model, task.test)["ndcg@10"]
      print(f"step {step}: NDCG@10 on true labels {ndcg:.3f}", flush=True)

  print("examination, true:     ", (task.true_examination /
                                    task.true_examination[0]).round(2))
  print("examination, estimated:", bias.propensities()["examination"].round(2))


if __name__ == "__main__":
  main()
