"""Reads the model in a folder of `fit-log`, and runs nothing that is in there.

A `.keras` file says which layers a model has, and those can be any code. So no
layer is built from it: the towers are built as `log.json` describes them, and
only numbers, of the shapes that the towers have, are read from the file.
"""

import json
import zipfile

import h5py
import numpy as np

from ultra_tfr import output
from ultra_tfr import scorers
from ultra_tfr.data.click_log import schemas

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_REMEDY = "train it again by `ultra-tfr fit-log`"
_MATRICES = ([[[float]]], None)
# Forms of parts of log.json, see `output.has_form`.
_HYPOTHESIS = {"words": str, "share": float, "behind": float}
# The fields of a bias that are no tables.
_NO_CHANCES = ("method", "hypotheses", "relevance_head", "fixed_to")
_FORM = {
    "schema": schemas.FORM,
    "history": {str: [(float, None)]}, "validation": {str: (float, None)},
    "bias": ({"method": str, "click_relevant": [[float]],
              "click_irrelevant": ([[float]], None),
              "trust_positive": _MATRICES, "trust_negative": _MATRICES}, None)}


def describe(config):
  """The arguments of `scorers.build_log_model` that a model was built with.

  Args:
    config: what `get_config` of the model gives.

  Returns:
    A dict ready for JSON, of all arguments but the statistics.

  Raises:
    ValueError: if the activation has no name.

  >>> statistics = {"text": [], "numeric": [
  ...     {"name": "f", "mean": 0.0, "variance": 1.0, "missing": 0.0}]}
  >>> model = scorers.build_log_model(statistics, 2, (4,), "relu", False)
  >>> list(describe(model.get_config()).values())
  [2, [4], 'relu', False, 0.0, [4], 1]
  """
  towers = [layer["config"]["layers"] for layer in config["layers"]
            if layer["class_name"] == "Sequential"]

  def values(kind, name, towers=towers):
    return [layer["config"][name] for layers in towers for layer in layers
            if layer["class_name"] == kind]

  # The first tower gives the ranking score, the second one relevance.
  *hidden_units, _ = values("Dense", "units", towers[:1])
  *relevance_units, num_relevance = (
      values("Dense", "units", towers[1:2]) or [*hidden_units, 1])
  activation = [*values("Activation", "activation"), "elu"][0]
  if not isinstance(activation, str):  # Anything else may be code.
    raise ValueError(
        "The `activation` must be a name, such as 'elu', for the model to be "
        f"saved and loaded, but is {activation!r:.60}.")
  return {
      "num_heads": len(towers), "hidden_units": hidden_units,
      "activation": activation,
      "layer_norm": bool(values("LayerNormalization", "name")),
      "dropout": [*values("Dropout", "rate"), 0.0][0],
      "relevance_units": relevance_units, "num_relevance": num_relevance}


def read_description(path):
  """What `log.json` says.

  Args:
    path: the file.

  Returns:
    A dict, as `FittedLog.save` writes it.

  Raises:
    ValueError: if it cannot be what was written.
  """
  found = output.read(path)
  try:
    if not output.has_form(found, _FORM):
      raise ValueError("it has not the form of one")
    schemas.check(found["schema"])
    if not all(found["history"].values()) or not found["history"].get("step"):
      raise ValueError("its history is empty")
    if found["bias"] is not None:
      _check_bias(found["bias"], len(found["schema"]["contexts"]),
                  len(found["schema"]["positions"]))
  except (ValueError, TypeError) as error:
    raise ValueError(
        f"{path}: is no description of a model ({_first_line(error)}), so it "
        f"is damaged; {_REMEDY}.") from error
  return found


def _check_bias(bias, num_contexts, num_positions):
  shape = (num_contexts, num_positions)
  hypotheses, head = bias.get("hypotheses"), bias.get("relevance_head", 0)
  if not output.has_form(hypotheses, (None, {str: _HYPOTHESIS})) or (
      head not in range(len(hypotheses or [None]))):
    raise ValueError("its hypotheses are none")
  if not isinstance(bias.get("fixed_to"), (str, type(None))):
    raise ValueError("its fixed_to is no text")
  for name, value in bias.items():
    if name in _NO_CHANCES or value is None:
      continue
    values = np.array(value, np.float64)
    wanted = shape + shape[1:] * name.startswith("trust")
    if name.startswith("browsing"):  # Also by distance.
      wanted += values.shape[2:3] or (1,)
    if values.shape != wanted or not ((values >= 0) & (values <= 1)).all():
      raise ValueError(f"its {name} are no chances of that many positions")
  relevant = np.array(bias["click_relevant"])
  if not (relevant > np.array(bias["click_irrelevant"] or 0.0)).all():
    raise ValueError("its click_relevant are not all above click_irrelevant")


def read(path, statistics, towers=None):
  """Builds a model and gives it the weights of a file.

  Args:
    path: a `.keras` file of such a model.
    statistics: of the features, as `scorers.build_log_model` takes them.
    towers: the other arguments of that function, see `describe`; None for a
      model that 0.1.0 saved, which has them in the file alone.

  Returns:
    The model.

  Raises:
    ValueError: if the file holds anything else.
  """
  try:
    with zipfile.ZipFile(path) as archive:
      if towers is None:
        towers = describe(json.loads(archive.read(_CONFIG))["config"])
      # Compressed, a small file may fill the memory; Keras compresses nothing.
      info = archive.getinfo(_WEIGHTS)
      if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError("it is compressed")
      _check_towers(statistics, towers, info.file_size)
      model = scorers.build_log_model(statistics, **towers)
      with archive.open(info) as stream, h5py.File(stream) as file:
        _check_arrays(file, info.file_size, set())
    model.load_weights(path)
    if not all(np.isfinite(value).all() for value in model.get_weights()):
      raise ValueError("a weight is no number")
    return model
  # What a hostile or damaged file raises is not known beforehand.
  except Exception as error:  # pylint: disable=broad-except
    raise ValueError(
        f"{path}: holds no weights of the model that log.json describes "
        f"({_first_line(error)}); {_REMEDY}.") from error


def _check_towers(statistics, towers, size):
  """Raises unless towers can be built, and fit into a file of `size` bytes."""
  if not isinstance(towers["activation"], str):
    raise ValueError("its activation is no name")
  embedded = sum(part["bins"] if "bins" in part else len(part["vocabulary"])
                 for part in statistics["text"])
  smallest = embedded + sum(towers["hidden_units"]) + sum(
      towers["relevance_units"])
  if smallest * np.dtype(np.float32).itemsize > size:
    raise ValueError(f"{size} bytes are too few for it")


def _check_arrays(group, size, seen):
  """Raises unless a group holds only arrays, in this file, each once."""
  for name in group:
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
      raise ValueError(f"{name} is a link")
    item = group[name]
    address = h5py.h5o.get_info(item.id).addr
    if address in seen:
      raise ValueError(f"{name} is there twice")
    seen.add(address)
    if isinstance(item, h5py.Group):
      _check_arrays(item, size, seen)
    # An array that is stored elsewhere may be any file, and one that is packed
    # may be more than memory holds.
    elif (not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiu" or
          item.external or item.is_virtual or item.chunks or
          item.nbytes > size):
      raise ValueError(f"{name} is no plain array")


def _first_line(error):
  return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
