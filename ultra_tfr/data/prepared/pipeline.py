"""The workers of `prepare-log` on Apache Beam."""

import functools
import logging
import os

from ultra_tfr import output
from ultra_tfr.data.prepared import manifest
from ultra_tfr.data.prepared import workers

_FOUND = "found"


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
    arranged = beam.pvalue.AsSingleton(
        read["chunks"]
        | "Group" >> beam.GroupByKey()
        | "Arrange" >> beam.FlatMap(_arrange, plan, found)
        | "MergeArranged" >> beam.CombineGlobally(
            functools.partial(_merge, workers.Arranged)))
    _ = (pipeline
         | "Once" >> beam.Create([plan])
         | "Conclude" >> beam.Map(_conclude, found, arranged))
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
  try:
    settled = workers.settle(plan, found)
  except ValueError:  # Said at the end.
    return
  yield workers.arrange(plan, settled, *bucket_and_chunks)


def _conclude(plan, found, arranged):
  """Writes the manifest, or what is wrong with the log."""
  try:
    result = workers.conclude(plan, found, arranged)
  except ValueError as error:
    result = {"error": str(error)}
  output.write(os.path.join(plan.folder, manifest.FILE), result)
