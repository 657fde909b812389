"""Click logs prepared without Apache Beam, for tests."""

import os

import numpy as np

from ultra_tfr import output
from ultra_tfr.data.prepared import manifest
from ultra_tfr.data.prepared import workers


def make_plan(log, folder, columns, **options):
  """The `workers.Plan` of a new folder.

  Args:
    log: a list of files.
    folder: a `pathlib.Path`, where the new folder is made, and one of rejected
      rows.
    columns: `LogColumns`.
    **options: of `workers.make_plan`.
  """
  out = folder / f"out-{len(os.listdir(folder))}"
  os.makedirs(out)
  return workers.make_plan(
      log, columns, str(out), str(folder / "rejected"), max_rejected=.1,
      **options)


def prepare(plan, seed=0):
  """Lets all workers work one after another, in any order.

  Args:
    plan: a `workers.Plan`.
    seed: of the order.

  Returns:
    The manifest, which is in the folder.
  """
  rng = np.random.default_rng(seed)
  found, arranged, buckets = workers.Found(), workers.Arranged(), {}
  for number in rng.permutation(len(plan.files)).tolist():
    for part in workers.read(plan, number):
      if isinstance(part, workers.Found):
        found.merge(part)
      else:
        buckets.setdefault(part[0], []).append(part[1])
  settled = workers.settle(plan, found)
  harvested, items = workers.Harvested(), {}
  for bucket in rng.permutation(list(buckets)).tolist():
    rng.shuffle(chunks := list(buckets[bucket]))
    for part in workers.arrange(plan, settled, bucket, [
        workers.Chunk(*chunk) for chunk in chunks]):
      if isinstance(part, workers.Arranged):
        arranged.merge(part)
      else:
        items.setdefault(part[0], []).append(part[1])
  for bucket in rng.permutation(list(items)).tolist():
    harvested.merge(workers.harvest(plan, settled, items[bucket]))
  result = workers.conclude(plan, found, arranged, harvested)
  output.write(os.path.join(plan.folder, manifest.FILE), result)
  return result
