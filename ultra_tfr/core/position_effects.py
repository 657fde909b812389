"""Models in which the display position acts beside the item's own prediction.

    additive click   P(c > 0) = sigmoid(f + g)           (Zhao et al., 2019)
    additive value   E[y] = f + g                        (Zhao et al., 2019)
    product click    P(c > 0) = sigmoid(f) sigmoid(g)    (PAL, Guo et al., 2019)

f is the item's part, g the position's. f is learned by gradients that go
through the model; g by damped scoring steps: the sum of the gradients over the
sum of the (expected) curvatures, position by position.
"""

from typing import NamedTuple

import tensorflow as tf


class Effect(NamedTuple):
  """The loss of each item, and its slope in the position's effect g.

  Attributes:
    losses: `[B, L]`.
    gradients: `[B, L]`, the derivative with respect to g.
    curvatures: `[B, L]`, the expected second derivative, >= 0.
  """

  losses: tf.Tensor
  gradients: tf.Tensor
  curvatures: tf.Tensor


def additive_click(clicked, logits, effects):
  """Cross-entropy of sigmoid(f + g).

  Args:
    clicked: `[B, L]` booleans, c > 0.
    logits: `[B, L]`, f.
    effects: `[B, L]`, g of each item's position.

  Returns:
    `Effect`.

  >>> effect = additive_click(tf.constant([[True]]), tf.constant([[1.0]]),
  ...                         tf.constant([[-1.0]]))
  >>> [round(float(part[0, 0]), 4) for part in effect]
  [0.6931, -0.5, 0.25]
  """
  targets = tf.cast(clicked, logits.dtype)
  chance = tf.sigmoid(logits + effects)
  return Effect(
      tf.nn.sigmoid_cross_entropy_with_logits(targets, logits + effects),
      chance - targets, chance * (1.0 - chance))


def additive_value(values, predictions, effects):
  """Squared error of f + g.

  Args:
    values: `[B, L]`, y.
    predictions: `[B, L]`, f.
    effects: `[B, L]`, g of each item's position.

  Returns:
    `Effect`.

  >>> effect = additive_value(tf.constant([[5.0]]), tf.constant([[1.0]]),
  ...                         tf.constant([[1.0]]))
  >>> [float(part[0, 0]) for part in effect]
  [9.0, -6.0, 2.0]
  """
  excess = predictions + effects - values
  return Effect(tf.square(excess), 2.0 * excess, 2.0 * tf.ones_like(excess))


def log_product(logits, effects):
  """log P and log(1 - P) of P = sigmoid(f) sigmoid(g).

  Args:
    logits: `[B, L]`, f.
    effects: `[B, L]`, g.

  Returns:
    Two `[B, L]` tensors, finite for finite input of any size.

  >>> [round(float(x), 4) for x in log_product(0.0, 0.0)]
  [-1.3863, -0.2877]
  """
  seen, clicked = tf.nn.softplus(-effects), tf.nn.softplus(-logits)
  # 1 - P = sigmoid(-f) (1 + exp(f - softplus(g))): a sum without cancellation.
  missed = (tf.nn.softplus(logits - tf.nn.softplus(effects)) -
            tf.nn.softplus(logits))
  return -(seen + clicked), missed


def product_click(clicked, logits, effects):
  """Cross-entropy of sigmoid(f) sigmoid(g): clicked if seen, times seen.

  Args:
    clicked: `[B, L]` booleans, c > 0.
    logits: `[B, L]`, f.
    effects: `[B, L]`, g of each item's position.

  Returns:
    `Effect`.

  >>> effect = product_click(tf.constant([[True, False]]), tf.zeros([1, 2]),
  ...                        tf.zeros([1, 2]))
  >>> effect.losses.numpy().round(4)
  array([[1.3863, 0.2877]], dtype=float32)
  """
  log_clicked, log_missed = log_product(logits, effects)
  # The odds of a click are at most 1 / sigmoid(-g): no exponent is above 0.
  log_unseen = -tf.nn.softplus(effects)
  odds = log_clicked - log_missed
  return Effect(
      -tf.where(clicked, log_clicked, log_missed),
      tf.where(clicked, -tf.exp(log_unseen), tf.exp(log_unseen + odds)),
      tf.exp(2.0 * log_unseen + odds))


def scoring_step(effects, gradient, curvature, rate):
  """A damped step: g - rate (sum of gradients) / (1 + sum of curvatures).

  Args:
    effects: `[...]`, g by position.
    gradient: `[...]`, summed by position.
    curvature: `[...]`, summed by position.
    rate: the share of the full step to take.

  Returns:
    The new g; unchanged where nothing was observed.

  >>> scoring_step(tf.zeros([2]), tf.constant([-4.0, 0.0]),
  ...              tf.constant([7.0, 0.0]), 0.5).numpy().tolist()
  [0.25, 0.0]
  """
  # One observation of ridge: without data the step is 0, not 0/0.
  return effects - rate * gradient / (1.0 + curvature)
