"""Training on several devices or machines: the strategy, and who does what.

What the environment variable TF_CONFIG says is read without TensorFlow.
"""

import json
import os
import signal
import threading
from typing import Any
from typing import NamedTuple
from typing import Optional

from ultra_tfr import output
from ultra_tfr.startup import lazy_module

tf = lazy_module("tensorflow")

MIRRORED, MULTI_WORKER = KINDS = ("mirrored", "multi_worker")
_VARIABLE = "TF_CONFIG"
_EXAMPLE = ('{"cluster": {"worker": ["host1:2301", "host2:2301"]}, '
            '"task": {"type": "worker", "index": 0}}')
_FORM = {"cluster": {str: [str]}, "task": {"type": str, "index": int}}


class Cluster(NamedTuple):
  """The processes that train together.

  Attributes:
    num_workers: how many there are.
    number: of this one, from 0, which is the chief: it alone writes.
  """

  num_workers: int = 1
  number: int = 0

  @property
  def is_chief(self) -> bool:
    """Whether this process writes what comes of the training."""
    return self.number == 0


def find_cluster(kind: Optional[str]) -> Cluster:
  """The processes that train together.

  Args:
    kind: one of `KINDS`, or None for one device.

  Returns:
    A `Cluster`; for `MULTI_WORKER` it is that of TF_CONFIG.

  Raises:
    ValueError: if TF_CONFIG is not as `MultiWorkerMirroredStrategy` needs it.

  >>> find_cluster(MIRRORED).is_chief
  True
  """
  if kind != MULTI_WORKER:
    return Cluster()
  text = os.environ.get(_VARIABLE)
  if not text:
    raise ValueError(
        f"The distribution {MULTI_WORKER} needs the environment variable "
        f"{_VARIABLE} in each worker, and it is not set; set it to such as "
        f"{_EXAMPLE}, with the index of the worker.")
  try:
    found = json.loads(text)
  except ValueError:
    found = None
  workers = _addresses(found) if output.has_form(found, _FORM) else []
  task = (found["task"]["type"], found["task"]["index"]) if workers else None
  if task not in workers:
    raise ValueError(
        f"The environment variable {_VARIABLE} must name the addresses of a "
        "cluster's workers, and the task as one of them, but is "
        f"{text!r:.200}; set it to such as {_EXAMPLE}.")
  return Cluster(len(workers), workers.index(task))


def _addresses(found):
  """Type and index of all workers, the chief first."""
  return [(kind, index) for kind in ("chief", "worker")
          for index in range(len(found["cluster"].get(kind, [])))]


def num_replicas(kind: str, cluster: Cluster) -> int:
  """How many devices train in step, before a strategy waits for all workers.

  Args:
    kind: one of `KINDS`.
    cluster: of `find_cluster`. All its workers have as many GPUs as this one.

  Returns:
    The `num_replicas_in_sync` that the strategy will have.
  """
  if kind == MIRRORED:
    return len(_devices())
  gpus = tf.config.list_physical_devices("GPU")
  return cluster.num_workers * max(1, len(gpus))


def _devices():
  return (tf.config.list_logical_devices("GPU") or
          tf.config.list_logical_devices("CPU"))


def make_strategy(kind: str) -> Any:
  """A `tf.distribute.Strategy` over all GPUs, or over the CPU without any.

  Args:
    kind: `MIRRORED` for those of this machine; `MULTI_WORKER` for those of all
      workers of TF_CONFIG, which are waited for. It must come before anything
      else that TensorFlow does in this process.
  """
  if kind == MULTI_WORKER:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if threading.current_thread() is threading.main_thread():
      # TensorFlow has taken the signal for news of a preemption, and goes on.
      signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return strategy
  return tf.distribute.MirroredStrategy([device.name for device in _devices()])


def is_chief(strategy: Any) -> bool:
  """Whether this process is the one of a strategy that writes.

  Args:
    strategy: a `tf.distribute.Strategy`.
  """
  resolver = strategy.cluster_resolver
  if resolver is None or not resolver.task_type:
    return True
  has_chief = "chief" in resolver.cluster_spec().jobs
  return resolver.task_type == "chief" or (
      not has_chief and resolver.task_id == 0)


def own_part(strategy: Optional[Any], batch_size: int) -> int:
  """How many requests of a batch are on this machine.

  Args:
    strategy: a `tf.distribute.Strategy`, or None for one device.
    batch_size: requests in a batch of all replicas together.
  """
  if strategy is None:
    return batch_size
  own = len(strategy.extended.worker_devices)
  return batch_size * own // strategy.num_replicas_in_sync


def of_chief(strategy: Any, value: float) -> float:
  """A number that the chief knows, on all workers.

  Args:
    strategy: a `tf.distribute.Strategy`; all its workers must call this.
    value: the number; what other workers give for it does not matter.
  """
  values = strategy.experimental_distribute_values_from_function(
      lambda context: tf.constant(
          value if context.replica_id_in_sync_group == 0 else 0, tf.float32))
  return float(strategy.reduce("SUM", values, axis=None))
