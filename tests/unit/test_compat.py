"""Each path through `ultra_tfr.compat`, in a Python process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import ultra_tfr.compat

_KERAS_3 = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16)
needs_keras_3 = pytest.mark.skipif(
    not _KERAS_3,
    reason=f"TensorFlow {tf.__version__} has no Keras 3 to be confused with")

_USES_TFR = """
import tensorflow as tf
import tensorflow_ranking as tfr
loss = tfr.keras.losses.PairwiseLogisticLoss()([[1., 0.]], [[2., 1.]])
assert abs(float(loss) - 0.15663) < 1e-4, loss
assert issubclass(tfr.keras.pipeline.ModelFitPipeline,
                  tfr.keras.pipeline.AbstractPipeline)
assert isinstance(tfr.keras.losses.PairwiseLogisticLoss(),
                  tf.keras.losses.Loss)
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", loss=tfr.keras.losses.MeanSquaredLoss())
print("ok")
"""


def _run(code, tmp_path, **environment):
  """Runs code on the package that is under test; returns the process."""
  env = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
  env["PYTHONPATH"] = str(pathlib.Path(ultra_tfr.compat.__file__).parents[1])
  return subprocess.run(
      [sys.executable, "-c", code], env={**env, **environment}, cwd=tmp_path,
      capture_output=True, text=True, timeout=120)


def _assert_works(result):
  assert result.returncode == 0, result.stderr
  assert result.stdout.endswith("ok\n")


def _error(result):
  """Returns the one line of the ImportError that a process must end in."""
  assert result.returncode == 1, result.stdout
  last = result.stderr.strip().splitlines()[-1]
  assert last.startswith("ImportError: ultra_tfr expects "), result.stderr
  return last


@pytest.mark.smoke
def test_fresh_import(tmp_path):
  _assert_works(_run("import ultra_tfr.compat" + _USES_TFR, tmp_path))


@pytest.mark.slow
@pytest.mark.smoke
def test_import_twice_and_preset(tmp_path):
  code = ("import ultra_tfr.compat as compat\n"
          "compat.ensure_tfr_importable()" + _USES_TFR)
  preset = {"TF_USE_LEGACY_KERAS": "True"} if _KERAS_3 else {}
  _assert_works(_run(code, tmp_path, **preset))


@pytest.mark.smoke
def test_tensorflow_first_with_keras_untouched(plain_tensorflow, tmp_path):
  _assert_works(plain_tensorflow(
      "import tensorflow\nimport ultra_tfr.compat" + _USES_TFR, tmp_path))


def test_tensorflow_first_then_import_from_keras(plain_tensorflow, tmp_path):
  code = """
import tensorflow as tf
import ultra_tfr.compat
from tensorflow.keras import layers
assert "keras.src" in layers.Dense.__module__, layers.Dense.__module__
assert layers.Dense.__module__.startswith("{}"), layers.Dense.__module__
assert layers.Dense is tf.keras.layers.Dense
print("ok")
""".format("tf_keras" if _KERAS_3 else "keras")
  _assert_works(plain_tensorflow(code, tmp_path))


@pytest.mark.slow
@needs_keras_3
def test_standalone_keras_3_may_come_first(tmp_path):
  _assert_works(_run(
      "import keras\nimport ultra_tfr.compat" + _USES_TFR, tmp_path))


@needs_keras_3
@pytest.mark.parametrize("use", [
    "import tensorflow as tf; tf.keras.Model",
    "from tensorflow.keras import layers",
])
def test_a_loaded_keras_3_is_an_import_error(use, plain_tensorflow, tmp_path):
  """Users' models of Keras 3 were refused late, far from the wrong import."""
  message = _error(
      plain_tensorflow(f"{use}\nimport ultra_tfr.compat", tmp_path))
  assert "Keras 3 is already loaded" in message
  assert "import ultra_tfr before anything that uses tf.keras" in message


@needs_keras_3
def test_failure_leaves_the_environment_alone(plain_tensorflow, tmp_path):
  _assert_works(plain_tensorflow("""
import os
import tensorflow as tf
tf.keras.Model
try:
  import ultra_tfr.compat
except ImportError:
  assert "TF_USE_LEGACY_KERAS" not in os.environ
  print("ok")
""", tmp_path))


@needs_keras_3
@pytest.mark.parametrize("first", ["", "import tensorflow\n"])
def test_environment_asks_for_keras_3(first, tmp_path):
  message = _error(_run(
      f"{first}import ultra_tfr.compat", tmp_path, TF_USE_LEGACY_KERAS="0"))
  assert "TF_USE_LEGACY_KERAS is '0'" in message
  assert "unset it or set it to '1'" in message


@needs_keras_3
def test_tf_keras_missing(tmp_path):
  code = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = (
    lambda name, *rest: None if name == "tf_keras" else found(name, *rest))
import ultra_tfr.compat
"""
  message = _error(_run(code, tmp_path))
  major_minor = ".".join(tf.__version__.split(".")[:2])
  assert f"pip install 'tf-keras=={major_minor}.*'" in message


def test_tensorflow_missing(tmp_path):
  code = """
import importlib.metadata
def missing(name):
  raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = missing
import ultra_tfr.compat
"""
  assert "install ultra_tfr with pip" in _error(_run(code, tmp_path))


@needs_keras_3
def test_estimators_that_are_not_there_say_so():
  """Estimator code ended in `module has no attribute`, or `takes no arguments`.
  """
  for module in (tf.estimator, tf.compat.v1.estimator):
    with pytest.raises(AttributeError, match=(
        r">= 2.16 has no estimators.*`tf.estimator.RunConfig`: use .*2\.15")):
      _ = module.RunConfig
    with pytest.raises(NotImplementedError, match="`tf.estimator.Estimator`"):
      module.Estimator(model_fn=print)


def test_eval_metric_works():
  """It calls a function of `inspect` that Python 3.11 dropped."""
  with tf.Graph().as_default():
    value = tfr.metrics.eval_metric(
        tfr.metrics.mean_reciprocal_rank, labels=tf.constant([[0., 1., 0.]]),
        predictions=tf.constant([[3., 2., 1.]]))
  assert value == 0.5


@pytest.mark.skipif(_KERAS_3, reason="TensorFlow >= 2.16 needs the variable")
def test_old_tensorflow_is_left_alone(tmp_path):
  _assert_works(_run("""
import os
import ultra_tfr.compat
assert "TF_USE_LEGACY_KERAS" not in os.environ
import tensorflow as tf
assert hasattr(tf.estimator, "EstimatorSpec")
print("ok")
""", tmp_path))
