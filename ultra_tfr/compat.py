"""Makes `import tensorflow_ranking` work, also on TensorFlow >= 2.16.

TensorFlow Ranking speaks Keras 2 and imports `tf.estimator`. TensorFlow 2.16
made Keras 3 its default and dropped the estimators. Importing this module
selects Keras 2 (the `tf-keras` package) as `tf.keras` and provides a stub of
`tf.estimator`; on older TensorFlow it does nothing. Python 3.11 dropped a
function that `tfr.metrics.eval_metric` calls, which is there again.
`import ultra_tfr` imports this first.
"""

import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import re
import sys
import types

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
# The values that TensorFlow takes for "yes".
_ENABLED = ("1", "true", "True")
_NO_ESTIMATORS = (
    "TensorFlow >= 2.16 has no estimators, so there is no `tf.estimator.{}`: "
    "use TF-Ranking's Keras API (`tfr.keras`, `ultra_tfr.pipeline`), or run "
    "this on TensorFlow 2.15.")
# The names under which the module `tensorflow` is distributed.
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tf-nightly")


def ensure_tfr_importable() -> None:
  """Prepares TensorFlow for `import tensorflow_ranking`.

  Idempotent. `import tensorflow` may come before, as long as nothing has used
  `tf.keras`.

  Raises:
    ImportError: If TensorFlow or `tf-keras` is missing, if the environment
      asks for Keras 3, or if Keras 3 is already loaded as `tf.keras`.

  Example:

    >>> ensure_tfr_importable()
    >>> import tensorflow_ranking
    >>> hasattr(tensorflow_ranking.keras, "pipeline")
    True
  """
  version = _tensorflow_version()
  if tuple(map(int, re.findall(r"\d+", version)[:2])) >= (2, 16):
    _select_legacy_keras(version)
    _provide_estimator_stub()
  if not hasattr(inspect, "getargspec"):
    inspect.getargspec = inspect.getfullargspec  # Has what TF-Ranking reads.


def _tensorflow_version() -> str:
  """Returns TensorFlow's version without importing it.

  Importing would be too early: TensorFlow reads the environment when it loads.
  """
  if "tensorflow" in sys.modules:
    return sys.modules["tensorflow"].__version__
  for name in _DISTRIBUTIONS:
    try:
      return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  raise ImportError(
      "ultra_tfr expects TensorFlow, but none of the packages "
      f"{', '.join(_DISTRIBUTIONS)} is installed: install ultra_tfr with pip, "
      "which brings a TensorFlow that fits.")


def _select_legacy_keras(version: str) -> None:
  """Makes `tf.keras` Keras 2, or raises an `ImportError` with the remedy."""
  preset = os.environ.get(_LEGACY_KERAS)
  if preset is not None and preset not in _ENABLED:
    raise ImportError(
        "ultra_tfr expects Keras 2 as tf.keras, but the environment variable "
        f"{_LEGACY_KERAS} is {preset!r}, which selects Keras 3 on TensorFlow "
        f"{version}: unset it or set it to '1'.")
  if importlib.util.find_spec("tf_keras") is None:
    major, minor = version.split(".")[:2]
    raise ImportError(
        "ultra_tfr expects the package tf-keras (Keras 2) next to TensorFlow "
        f"{version}, but it is not installed: run "
        f"`pip install 'tf-keras=={major}.{minor}.*'`.")
  os.environ[_LEGACY_KERAS] = "1"
  import tensorflow as tf
  flavour = tf.keras.__name__
  if not flavour.startswith("tf_keras."):
    if preset is None:
      # The process stays with Keras 3; half of it would follow the variable.
      del os.environ[_LEGACY_KERAS]
    raise ImportError(
        "ultra_tfr expects Keras 2 as tf.keras, but Keras 3 is already loaded "
        f"there ({flavour}): import ultra_tfr before anything that uses "
        f"tf.keras, or set the environment variable {_LEGACY_KERAS}=1 before "
        "Python starts.")
  # If TensorFlow was loaded before the variable was set, `from tensorflow.keras
  # import ...` would still find Keras 3 and silently make it `tf.keras`.
  directory = str(pathlib.Path(tf.keras.__file__).parents[1])
  if directory not in tf.__path__:
    tf.__path__.insert(0, directory)


def _provide_estimator_stub() -> None:
  """Adds what TensorFlow Ranking reads of `tf.estimator` while it loads."""
  import tensorflow as tf
  for parent in (tf, tf.compat.v1):
    if not hasattr(parent, "estimator"):
      stub = types.ModuleType(f"{parent.__name__}.estimator", "A stub.")
      stub.__getattr__ = _missing_of_estimators
      stub.ModeKeys = _ModeKeys
      stub.Estimator = _EstimatorUnavailable
      parent.estimator = stub


class _ModeKeys:
  TRAIN = "train"
  EVAL = "eval"
  PREDICT = "infer"


def _missing_of_estimators(name: str) -> None:
  raise AttributeError(_NO_ESTIMATORS.format(name))


class _EstimatorUnavailable:
  """Only ever seen by `isinstance`."""

  @property
  def __init__(self):
    # Looked up before it is called: the sentence comes whatever the arguments.
    raise NotImplementedError(_NO_ESTIMATORS.format("Estimator"))


ensure_tfr_importable()
