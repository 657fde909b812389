"""What `ClickLog.schema` gives, read back from a file of JSON."""

from ultra_tfr import output
from ultra_tfr.data.click_log.columns import LogColumns

_FEATURE = {"name": str, "mean": float, "variance": float, "missing": float}
# See `output.has_form`.
FORM = {
    "columns": {"query": (str, [str]), "position": str, "feedback": str,
                "features": [str], "item": [str], **dict.fromkeys(
                    ("context", "weight", "timestamp", "randomized"),
                    (str, None))},
    "positions": ([int], [str]), "pool_deeper": bool, "contexts": [str],
    "split": [float], "feedback_kind": str,
    "statistics": {
        "numeric": [_FEATURE],
        "text": [({"name": str, "vocabulary": [str]},
                  {"name": str, "bins": int})]}}


def check(schema):
  """Raises a `ValueError` or `TypeError` if it cannot be a schema.

  Args:
    schema: of the form `FORM`.
  """
  LogColumns.from_config(schema["columns"])
  for name in ("positions", "contexts"):
    if not schema[name] or len(set(schema[name])) < len(schema[name]):
      raise ValueError(f"its {name} are not each there once")
  if isinstance(schema["positions"][0], int) and (
      schema["positions"] != sorted(schema["positions"])):
    raise ValueError("its positions are in no order")
  if len(schema["split"]) != 2 or not all(
      0 <= share <= 1 for share in [*schema["split"], sum(schema["split"])]):
    raise ValueError("its split are no two shares")
  if not output.has_form(schema.get("null_values"), ([str], None)) or (
      schema.get("decimal", ".") not in (".", ",")):
    raise ValueError("its values are written in no known way")
  if schema["feedback_kind"] not in ("binary", "graded"):
    raise ValueError("its kind of feedback is unknown")
  numeric, text = (schema["statistics"][kind] for kind in ("numeric", "text"))
  names = [feature["name"] for feature in [*numeric, *text]]
  if not names or len(set(names)) < len(names):
    raise ValueError("its features are not each there once")
  for feature in numeric:
    # Of signed logarithms of float32, which are below 89.
    if not (abs(feature["mean"]) < 100 and 0 < feature["variance"] < 1e4 and
            0 <= feature["missing"] <= 1 and
            feature.get("constant", False) in (True, False)):
      raise ValueError(f"the statistics of {feature['name']!r} are none")
