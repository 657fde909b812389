"""What all tests share: a quiet TensorFlow, seeds, and the data folder."""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ultra_tfr.compat  # noqa: I001  (first: it selects tf.keras)
import pytest
import tensorflow as tf

import forked_calls

# Their asserts then tell values, as those of tests do.
pytest.register_assert_rewrite(
    "catalogue", "command_line", "em_tables")

if "PYTEST_XDIST_WORKER" in os.environ:
  # Each worker would otherwise start as many threads as there are cores.
  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# The subject of those is the repository: a copy of the tests, made to try an
# installation, lies beside none.
collect_ignore = [] if (_ROOT / "BUILD").exists() else ["repo"]


def pytest_report_header():
  """Says whether the source tree or an installed wheel is tested."""
  package = pathlib.Path(ultra_tfr.compat.__file__).parent
  return f"ultra_tfr: {package}; tensorflow: {tf.__version__}"


@pytest.fixture(autouse=True)
def _seeds():
  tf.keras.utils.set_random_seed(0)


@pytest.fixture
def eagerly():
  """Trains without graphs: to trace one takes longer than a few steps."""
  tf.config.run_functions_eagerly(True)
  yield
  tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def plain_tensorflow(tmp_path_factory):
  """Runs programs in processes that have TensorFlow, and nothing of ours."""
  process = forked_calls.PlainTensorFlow(
      tmp_path_factory.mktemp("programs"),
      pathlib.Path(ultra_tfr.compat.__file__).parents[1])
  yield process.run
  process.close()


@pytest.fixture(scope="session")
def shared_data():
  """The folder of real ranking data that lies next to the repository."""
  path = _ROOT.parent / "shared" / "data"
  if not path.is_dir():
    pytest.skip(f"needs the ranking data of {path}, which is not there")
  return path
