"""The folder of a prepared log: shards, and a manifest that says what they are.

`manifest.json` comes last: a folder that has one is whole.
"""

import os

import numpy as np

from ultra_tfr import files
from ultra_tfr import output
from ultra_tfr.data.click_log import batches
from ultra_tfr.data.click_log import schemas
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import PARTS
from ultra_tfr.data.click_log.reading import ClickLog
from ultra_tfr.data.prepared.shards import Shards

COMMAND, FILE = "ultra-tfr prepare-log", "manifest.json"
# In the folder.
SHARDS = "shards"
# Of what is written here; another one is not read.
FORMAT = 1
_COUNTS = {str: int}
_FORM = {
    "format": int, "log": str, "schema": schemas.FORM,
    "summary": {
        "requests": _COUNTS, "rows": _COUNTS, "rejected": _COUNTS,
        "rejected_values": {str: str}, "longest_request": int,
        "requests_of_one_row": int, "requests_without_feedback": int,
        "informative_requests": int,
        "binary_feedback": bool, "positions": ([int], [str]),
        "by_position": {str: {
            "shown": [int], "clicked": [int], "with_feedback": [(float, None)],
            "mean_feedback": [(float, None)]}},
        "numeric_features": [str], "text_features": [str], "mixed": dict,
        "missing": {str: float}},
    "shards": {part: [{"file": str, "requests": int, "rows": int}]
               for part in PARTS}}
_CURVE = {end: [(float, None)] for end in ("value", "low", "high")}
# Of logs with items, see `harvesting.tell`; older manifests lack it.
_HARVEST = (None, {
    "level": float, "contexts": {str: {str: _CURVE}}, "swap_counts": [[int]],
    "num_items": [int], "num_clicks": [int], "components": [int]})


def describe(name, log, shards):
  """What a manifest says, ready for JSON.

  Args:
    name: of the log, for people.
    log: a `ClickLog` whose parts nobody looks at.
    shards: a dict of lists by part, each a dict of the "file", and how many
      "requests" and "rows" it holds.
  """
  return {"format": FORMAT, "log": name, "schema": log.schema(),
          "summary": log.summary, "harvest": log.harvest, "shards": shards,
          "versions": output.versions()}


def read_prepared(folder):
  """Reads a log that `ultra-tfr prepare-log` prepared.

  It has the same requests, parts, batches and statistics as `read_click_log` of
  that log would give, but takes no time to read and no memory beyond a shard.

  Args:
    folder: its path.

  Returns:
    A `ClickLog`. Its rows stay in the folder, which must stay as it is.

  Raises:
    ValueError: if it is no such folder, or not whole.
  """
  path = os.path.join(folder, FILE)
  found = output.read(path)
  if found is None:
    raise ValueError(
        f"{folder}: there is no {FILE}, so this is no --out of `{COMMAND}` "
        "that has ended; give another folder, or prepare the log.")
  if isinstance(found, dict) and found.get("format") not in (FORMAT, None):
    raise ValueError(
        f"{path}: is of the format {found['format']!r:.20}, and this version "
        f"of ultra_tfr reads {FORMAT}; prepare the log again.")
  try:
    if not output.has_form(found, _FORM):
      raise ValueError("it has not the form of one")
    schemas.check(found["schema"])
    _check_harvest(found)
    parts = {part: _shards(folder, part, found) for part in PARTS}
  except (ValueError, TypeError) as error:
    raise ValueError(
        f"{path}: is no description of a prepared log ({error}), so it is "
        "damaged; prepare the log again.") from error
  there = set(files.names_in(os.path.join(folder, SHARDS)))
  for name in (entry["file"] for part in PARTS
               for entry in found["shards"][part]):
    if name not in there:
      raise ValueError(
          f"{os.path.join(folder, SHARDS, name)} is missing, though {path} "
          "names it; copy it anew, or prepare the log again.")
  schema = found["schema"]
  return ClickLog(
      None, LogColumns.from_config(schema["columns"]), schema["positions"],
      schema["pool_deeper"], schema["contexts"], tuple(schema["split"]), parts,
      schema["statistics"], found["summary"], batches.make_dialect(
          None, schema.get("null_values"), schema.get("decimal"), {}),
      harvest=found.get("harvest"))


def _check_harvest(manifest):
  """Raises a `ValueError` if it is not that of the positions and contexts."""
  harvest, schema = manifest.get("harvest"), manifest["schema"]
  if not output.has_form(harvest, _HARVEST):
    raise ValueError("its harvest has not the form of one")
  if harvest is None:
    return
  rows = [*harvest["swap_counts"], *(harvest[name] for name in (
      "swap_counts", "num_items", "num_clicks", "components"))]
  rows += [values for curves in harvest["contexts"].values()
           for curve in curves.values() for values in curve.values()]
  if {*harvest["contexts"]} != {*schema["contexts"]} or {
      *map(len, rows)} != {len(schema["positions"])}:
    raise ValueError("its harvest is of another log")


def _shards(folder, part, manifest):
  """The `Shards` of a part."""
  entries, paths = manifest["shards"][part], []
  for entry in entries:
    name = entry["file"]
    if os.path.basename(name) != name or entry["requests"] < 1:
      raise ValueError(f"{name!r:.60} is no shard of it")
    paths.append(os.path.join(folder, SHARDS, name))
  statistics = manifest["schema"]["statistics"]
  return Shards(
      paths, [entry["requests"] for entry in entries],
      int(np.sum([entry["rows"] for entry in entries], dtype=np.int64)),
      len(statistics["numeric"]), len(statistics["text"]))
