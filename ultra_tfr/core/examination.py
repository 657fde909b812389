"""Pointwise E step: was the item examined, is it relevant?

One model covers two cases. With `click_relevant` p1 and `click_irrelevant` p0,
the chances of feedback on a relevant and on an irrelevant item at a position,

    P(c > 0) = p1 beta + p0 (1 - beta) = pi

where beta is the item's relevance. p0 = 0 and p1 = theta is the position-based
model (Richardson et al., 2007); p0 > 0 adds position-level trust bias or click
noise (Agarwal et al., 2019). Everything is written in terms of two bounded
item factors, which are free of 0/0 by construction:

    clicked_factor    beta / pi              = 1 / (p1 + p0 exp(-r))
    unclicked_factor  (1 - beta) / (1 - pi)  = 1 / (1 - p0 + (1 - p1) exp(r))

with r the relevance logit.
"""

import tensorflow as tf

from ultra_tfr.core import masking


def clicked_factor(relevance_logits, click_relevant, click_irrelevant):
  """beta / pi: the debiasing weight of an item that got feedback.

  Args:
    relevance_logits: `[B, L]`, the logit of beta.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position.

  Returns:
    `[B, L]`, at most 1 / p1.

  >>> clicked_factor(tf.constant([[0.0]]), tf.constant([[0.5]]),
  ...                tf.constant([[0.0]])).numpy()
  array([[2.]], dtype=float32)
  """
  odds = tf.exp(-masking.clip_logits(relevance_logits))
  click_relevant = masking.floor_probability(click_relevant)
  return 1.0 / (click_relevant + click_irrelevant * odds)


def unclicked_factor(relevance_logits, click_relevant, click_irrelevant):
  """(1 - beta) / (1 - pi): the debiasing weight of an item that got none.

  Args:
    relevance_logits: `[B, L]`, the logit of beta.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position.

  Returns:
    `[B, L]`, at most 1 / (1 - p0).

  >>> unclicked_factor(tf.constant([[0.0]]), tf.constant([[0.5]]),
  ...                  tf.constant([[0.0]])).numpy()
  array([[0.6666667]], dtype=float32)
  """
  odds = tf.exp(masking.clip_logits(relevance_logits))
  return 1.0 / masking.floor_probability(
      1.0 - click_irrelevant + (1.0 - click_relevant) * odds)


def log_likelihood(clicked, relevance_logits, click_relevant, click_irrelevant):
  """log P(c): log pi where there is feedback, log (1 - pi) elsewhere.

  Args:
    clicked: `[B, L]` booleans, c > 0.
    relevance_logits: `[B, L]`, the logit of beta.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position.

  Returns:
    `[B, L]`, finite.

  >>> log_likelihood(tf.constant([[True]]), tf.zeros([1, 1]),
  ...                tf.constant([[0.5]]), tf.zeros([1, 1])).numpy().round(4)
  array([[-1.3863]], dtype=float32)
  """
  logits = masking.clip_logits(relevance_logits)
  factors = tf.where(
      clicked,
      clicked_factor(logits, click_relevant, click_irrelevant),
      unclicked_factor(logits, click_relevant, click_irrelevant))
  # beta = pi * (beta / pi), and likewise for 1 - beta.
  return tf.math.log_sigmoid(tf.where(clicked, logits, -logits)) - tf.math.log(
      factors)


def relevance_posterior(clicked, relevance_logits, click_relevant,
                        click_irrelevant):
  """P(r > 0 | c): the E step for relevance (Wang et al., 2018).

  Args:
    clicked: `[B, L]` booleans, c > 0.
    relevance_logits: `[B, L]`, the logit of beta.
    click_relevant: `[B, L]`, p1 of each item's position.
    click_irrelevant: `[B, L]`, p0 of each item's position.

  Returns:
    `[B, L]` probabilities.

  >>> relevance_posterior(tf.constant([[False, True]]),
  ...                     tf.math.log([[0.4 / 0.6] * 2]),
  ...                     tf.constant([[0.5] * 2]),
  ...                     tf.zeros([1, 2])).numpy().round(4)
  array([[0.25, 1.  ]], dtype=float32)
  """
  # The floor makes the posterior of feedback at p1 = p0 = 0 its limit, 1.
  given = masking.floor_probability(click_relevant) * clicked_factor(
      relevance_logits, click_relevant, click_irrelevant)
  odds = tf.exp(masking.clip_logits(relevance_logits))
  not_given = (1.0 - click_relevant) * odds * unclicked_factor(
      relevance_logits, click_relevant, click_irrelevant)
  return tf.where(clicked, given, not_given)


def examination_posterior(clicked, relevance_logits, examination):
  """P(e = 1 | c) of the position-based model.

  1 where there is feedback, else theta (1 - beta) / (1 - theta beta).

  Args:
    clicked: `[B, L]` booleans, c > 0.
    relevance_logits: `[B, L]`, the logit of beta.
    examination: `[B, L]`, theta of each item's position.

  Returns:
    `[B, L]` probabilities.

  >>> examination_posterior(tf.constant([[False, True]]),
  ...                       tf.math.log([[0.4 / 0.6] * 2]),
  ...                       tf.constant([[0.5] * 2])).numpy().round(4)
  array([[0.375, 1.   ]], dtype=float32)
  """
  unclicked = examination * unclicked_factor(
      relevance_logits, examination, tf.zeros_like(examination))
  return tf.where(clicked, tf.ones_like(unclicked), unclicked)


# The columns of the pointwise statistics, in this order.
COUNT, CLICKED, RELEVANT, RELEVANT_CLICKED, EXAMINED_UNCLICKED = range(5)
NUM_STATISTICS = 5


def pointwise_statistics(clicked, relevance_logits, click_relevant,
                         click_irrelevant, weights=None):
  """What each item adds to the sums for the M step.

  Args:
    clicked: `[B, L]` booleans, c > 0.
    relevance_logits: `[..., B, L]`, the logit of beta.
    click_relevant: `[..., B, L]`, p1 (theta without trust bias).
    click_irrelevant: `[..., B, L]`, p0.
    weights: `[B, L]`, what an item counts for, or None for 1.

  Returns:
    `[..., B, L, 5]`: 1, whether c > 0, P(r > 0 | c), the same where c > 0, and
    P(e = 1 | c) where c = 0.

  >>> pointwise_statistics(
  ...     tf.constant([[True, False]]), tf.zeros([1, 2]),
  ...     tf.constant([[0.5, 0.5]]), tf.zeros([1, 2])).numpy().round(3)
  array([[[1.   , 1.   , 1.   , 1.   , 0.   ],
          [1.   , 0.   , 0.333, 0.   , 0.333]]], dtype=float32)
  """
  relevant = relevance_posterior(
      clicked, relevance_logits, click_relevant, click_irrelevant)
  examined = examination_posterior(clicked, relevance_logits, click_relevant)
  is_clicked = tf.cast(clicked, relevant.dtype)
  ones = tf.ones_like(relevant)
  statistics = tf.stack(
      [ones, is_clicked * ones, relevant, is_clicked * relevant,
       (1.0 - is_clicked) * examined])
  if weights is not None:
    statistics *= weights
  # Numbers that are moved one by one into their places are moved slowly.
  return tf.transpose(statistics, [*range(1, statistics.shape.rank), 0])
