"""Features on one scale: the signed log, and which of them vary."""

import numpy as np
import tensorflow as tf

# The least variance of the signed log of a feature. Less is the rounding of a
# constant, which dividing by it would blow up.
MIN_VARIANCE = 1e-8


def signed_log(values):
  """sign(x) log(1 + |x|): tames heavy-tailed values of either sign.

  Args:
    values: a float tensor, or a NumPy array, which stays one.

  Returns:
    A tensor or array of that shape.

  >>> signed_log(tf.constant([0.0, -1.0])).numpy().round(3)
  array([ 0.   , -0.693], dtype=float32)
  >>> signed_log(np.array([0.0, -1.0])).round(3)
  array([ 0.   , -0.693])
  """
  if isinstance(values, np.ndarray):
    return np.sign(values) * np.log1p(np.abs(values))
  return tf.sign(values) * tf.math.log1p(tf.abs(values))
