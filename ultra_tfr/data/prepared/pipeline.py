"""The workers of `prepare-log` on Apache Beam."""

import functools
import logging
import os

from ultra_tfr import output
from ultra_tfr.data.prepared import manifest
from ultra_tfr.data.prepared import workers

_FOUND, _ITEMS = "found", "items"


def check_beam():
  """Raises a `ValueError` if Apache Beam is not installed."""
  # It warns of packages for clouds, which nobody asked for.
  before = logging.root.manager.disable
  logging.disable(logging.WARNING)
  try:
    import apache_beam  # noqa: F401
  except ImportError as error:
    raise ValueError(
        "`ultra-tfr prepare-log` needs Apache Beam, which cannot be imported "
        f"({error}); run: pip install 'ultra_tfr[beam]'") from error
  finally:
    logging.disable(before)


def run(plan, runner, options):
  """Prepares a log.

  Args:
    plan: `workers.Plan`.
    runner: of Beam, such as "DirectRunner".
    options: of Beam, a list such as ["--direct_num_workers=2"].

  Returns:
    What the manifest says, which is in the folder.

  Raises:
    ValueError: as `workers.conclude`.
  """
  import apache_beam as beam  # Only who prepares logs needs it.
  from apache_beam.options.pipeline_options import PipelineOptions

  with beam.Pipeline(runner, options=PipelineOptions(options)) as pipeline:
    read = (
        pipeline
        | "Files" >> beam.Create(range(len(plan.files)))
        # Or one worker would read all of them.
        | "Deal" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_read, plan).with_outputs(
            _FOUND, main="chunks"))
    found = beam.pvalue.AsSingleton(
        read[_FOUND]
        | "MergeFound" >> beam.CombineGlobally(
            functools.partial(_merge, workers.Found)))
    arranging = (
        read["chunks"]
        | "Group" >> beam.GroupByKey()
        | "Arrange" >> beam.FlatMap(_arrange, plan, found).with_outputs(
            _ITEMS, main="arranged"))
    arranged = beam.pvalue.AsSingleton(
        arranging["arranged"]
        | "MergeArranged" >> beam.CombineGlobally(
            functools.partial(_merge, workers.Arranged)))
    harvested = beam.pvalue.AsSingleton(
        arranging[_ITEMS]
        | "GroupItems" >> beam.GroupByKey()
        | "Harvest" >> beam.Map(_harvest, plan, found)
        | "MergeHarvested" >> beam.CombineGlobally(
            functools.partial(_merge, workers.Harvested)))
    _ = (pipeline
         | "Once" >> beam.Create([plan])
         | "Conclude" >> beam.Map(_conclude, found, arranged, harvested))
  result = output.read(os.path.join(plan.folder, manifest.FILE))
  if "error" in result:
    raise ValueError(result["error"])
  return result


def _read(number, plan):
  from apache_beam import pvalue

  for part in workers.read(plan, number):
    yield pvalue.TaggedOutput(_FOUND, part) if isinstance(
        part, workers.Found) else part


def _merge(kind, values):
  total = kind()
  for value in values:
    total.merge(value)
  return total


def _arrange(bucket_and_chunks, plan, found):
  from apache_beam import pvalue

  try:
    settled = workers.settle(plan, found)
  except ValueError:  # Said at the end.
    return
  for part in workers.arrange(plan, settled, *bucket_and_chunks):
    yield part if isinstance(part, workers.Arranged) else pvalue.TaggedOutput(
        _ITEMS, part)


def _harvest(bucket_and_tables, plan, found):
  return workers.harvest(plan, workers.settle(plan, found),
                         bucket_and_tables[1])


def _conclude(plan, found, arranged, harvested):
  """Writes the manifest, or what is wrong with the log."""
  try:
    result = workers.conclude(plan, found, arranged, harvested)
  except ValueError as error:
    result = {"error": str(error)}
  output.write(os.path.join(plan.folder, manifest.FILE), result)
