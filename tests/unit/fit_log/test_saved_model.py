"""Tests of ultra_tfr.fit_log.saved_model: loading a file runs nothing in it."""

import copy
import functools
import io
import json
import os
import pathlib
import shutil
import tempfile
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

import program_files
from ultra_tfr import scorers
from ultra_tfr.fit_log import saved_model
from ultra_tfr.fit_log import training

_NUMERIC = {"name": "f", "mean": 0.5, "variance": 4.0, "missing": 0.1}
_STATISTICS = {
    "numeric": [_NUMERIC, {**_NUMERIC, "name": "g", "missing": 0.0}],
    "text": [{"name": "colour", "vocabulary": ["red", "blue"]},
             {"name": "brand", "bins": 7}]}
_TOWERS = {"num_heads": 2, "hidden_units": [4, 3], "activation": "relu",
           "layer_norm": False, "dropout": 0.25, "relevance_units": [5, 2],
           "num_relevance": 4}
_SAVED_BY_0_1_0 = (
    program_files.ROOT / "tests" / "support" / "saved_0_1_0" / "model_dir")
_REMEDY = r"train it again by `ultra-tfr fit-log`\.$"
_FIRST = "layers/sequential/layers/dense/vars"


@functools.cache
def _built():
  return scorers.build_log_model(_STATISTICS, **_TOWERS)


@functools.cache
def _saved():
  """The bytes of its file."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.keras")
    _built().save(path, save_format="keras")
    return pathlib.Path(path).read_bytes()


def _parts(content=None):
  with zipfile.ZipFile(io.BytesIO(content or _saved())) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def _write(path, parts, compression=zipfile.ZIP_STORED):
  with zipfile.ZipFile(path, "w", compression) as archive:
    for name, content in parts.items():
      archive.writestr(name, content)


def _read(path, towers=_TOWERS):
  return saved_model.read(str(path), _STATISTICS, towers)


def _inputs():
  return {"numeric": tf.constant([[[1.0, 2.0], [np.nan, -5.0]]]),
          "texts": tf.constant([[["red", "x"], ["", "y"]]])}


def _command(marker):
  """A layer by which Keras 2 runs a shell command while it loads a model."""
  return {
      "module": "keras.layers", "class_name": "Lambda",
      "config": {
          "name": "shell", "trainable": True, "dtype": "float32",
          "function": {"module": "os", "class_name": "function",
                       "config": "system", "registered_name": "system"},
          "function_type": "function", "output_shape": None,
          "output_shape_type": "raw", "arguments": {}},
      "registered_name": None, "name": "shell",
      "inbound_nodes": [[["_CONSTANT_VALUE", -1, f"touch {marker}", {}]]]}


def _bewitch(path, marker):
  """Puts that layer into a file."""
  parts = _parts(path.read_bytes())
  config = json.loads(parts["config.json"])
  config["config"]["layers"].insert(0, _command(marker))
  _write(path, {**parts, "config.json": json.dumps(config)})


@pytest.mark.parametrize("changes", [
    {}, {"hidden_units": []}, {"layer_norm": True, "dropout": 0.0},
    {"num_heads": 1, "relevance_units": [4, 3], "num_relevance": 1}])
def test_a_model_is_built_again_from_its_description(tmp_path, changes):
  towers = {**_TOWERS, **changes}
  model = scorers.build_log_model(_STATISTICS, **towers)
  model.save(str(tmp_path / "model.keras"), save_format="keras")
  found = saved_model.describe(model.get_config())
  assert found == towers
  assert json.loads(json.dumps(found)) == found
  for given in (found, None):  # 0.1.0 described it in the file alone.
    np.testing.assert_array_equal(
        _read(tmp_path / "model.keras", given)(_inputs()), model(_inputs()))


def test_the_program_in_a_model_is_never_run(tmp_path):
  """A folder from a stranger ran a shell command when it was evaluated."""
  marker, path = tmp_path / "marker", tmp_path / "model.keras"
  path.write_bytes(_saved())
  _bewitch(path, marker)
  for towers in (_TOWERS, None):
    np.testing.assert_array_equal(
        _read(path, towers)(_inputs()), _built()(_inputs()))
  assert not marker.exists()


def test_the_program_in_a_folder_of_0_1_0_is_never_run(tmp_path):
  """As long as 0.1.0's folders load, theirs are a way in, too."""
  marker, folder = tmp_path / "marker", tmp_path / "models"
  shutil.copytree(_SAVED_BY_0_1_0, folder)
  _bewitch(folder / "training_model.keras", marker)
  training.load(str(folder))
  assert not marker.exists()


def test_a_program_in_place_of_an_activation_is_never_run(tmp_path):
  """The description is no better known than the file beside it."""
  marker, path = tmp_path / "marker", tmp_path / "model.keras"
  path.write_bytes(_saved())
  for activation in (_command(marker), None, 3):
    with pytest.raises(ValueError, match="its activation is no name"):
      _read(path, {**_TOWERS, "activation": activation})
  with pytest.raises(ValueError, match="Unknown activation"):
    _read(path, {**_TOWERS, "activation": "os.system"})
  assert not marker.exists()


def test_an_activation_without_a_name_is_not_saved():
  """It could not be loaded again."""
  model = scorers.build_log_model(
      _STATISTICS, hidden_units=(4,), activation=lambda x: x)
  with pytest.raises(ValueError, match="must be a name, such as 'elu'"):
    saved_model.describe(model.get_config())


def _to_hdf5(path):
  with h5py.File(path, "w") as file:
    file.attrs["keras_version"] = "2.15.0"
    file.attrs["model_config"] = json.dumps({
        "class_name": "Sequential", "config": {
            "name": "s", "layers": [{"class_name": "Lambda", "config": {
                "function": ["4wEAAAA=", None, None],
                "function_type": "lambda", "batch_input_shape": [None, 1]}}]}})


def _to_folder(path):
  tf.saved_model.save(tf.Module(), str(path))


@pytest.mark.parametrize("make", [
    _to_hdf5, _to_folder, lambda path: path.write_text("{}"),
    lambda path: path.write_bytes(b""), lambda path: path.mkdir(),
    lambda path: path.write_bytes(_saved()[:-300]),
    lambda path: _write(path, {"config.json": "{}"})])
def test_other_files_are_refused(tmp_path, make):
  """Keras takes HDF5 and SavedModels by their content, whatever their name."""
  path = tmp_path / "model.keras"
  make(path)
  for towers in (_TOWERS, None):
    with pytest.raises(ValueError, match=f"{path}: holds no .*{_REMEDY}") as e:
      _read(path, towers)
    assert "\n" not in str(e.value)


def _external(file):
  del file[f"{_FIRST}/0"]
  file[_FIRST].create_dataset(
      "0", (16, 4), "f4", external=[("/etc/passwd", 0, 256)])


def _linked(file):
  del file[f"{_FIRST}/0"]
  file[f"{_FIRST}/0"] = h5py.ExternalLink("other.h5", "/0")


def _soft(file):
  file[f"{_FIRST}/7"] = h5py.SoftLink("/layers")


def _endless(file):
  file["layers/again"] = file["layers"]


def _huge(file):
  del file[f"{_FIRST}/0"]
  file[_FIRST].create_dataset("0", (1 << 40,), "f4")


def _packed(file):
  del file[f"{_FIRST}/0"]
  file[_FIRST].create_dataset("0", (1 << 24,), "f4", compression="gzip")


def _virtual(file):
  layout = h5py.VirtualLayout((16, 4), "f4")
  layout[:] = h5py.VirtualSource("other.h5", "0", (16, 4))
  del file[f"{_FIRST}/0"]
  file[_FIRST].create_virtual_dataset("0", layout)


def _transposed(file):
  values = file[f"{_FIRST}/0"][()].T
  del file[f"{_FIRST}/0"]
  file[f"{_FIRST}/0"] = values


def _missing(file):
  del file["layers/sequential_1"]


def _infinite(file):
  file[f"{_FIRST}/0"][0, 0] = np.inf


@pytest.mark.parametrize("change, reason", [
    (_external, "0 is no plain array"), (_linked, "0 is a link"),
    (_soft, "7 is a link"), (_endless, "again is there twice|is there twice"),
    (_huge, "0 is no plain array"), (_packed, "0 is no plain array"),
    (_virtual, "0 is no plain array"), (_transposed, ""), (_missing, ""),
    (_infinite, "a weight is no number")])
def test_weights_are_arrays_of_the_right_shapes_in_this_file(
    tmp_path, change, reason):
  """HDF5 can name other files, or unpack to more than memory holds."""
  parts = _parts()
  (tmp_path / "weights.h5").write_bytes(parts["model.weights.h5"])
  with h5py.File(tmp_path / "weights.h5", "r+") as file:
    change(file)
  parts["model.weights.h5"] = (tmp_path / "weights.h5").read_bytes()
  path = tmp_path / "model.keras"
  _write(path, parts)
  with pytest.raises(ValueError, match=rf"\(({reason}).*{_REMEDY}"):
    _read(path)


def test_a_packed_file_is_not_unpacked(tmp_path):
  """A few bytes may unpack to all memory."""
  path = tmp_path / "model.keras"
  _write(path, _parts(), zipfile.ZIP_DEFLATED)
  with pytest.raises(ValueError, match="it is compressed"):
    _read(path)


@pytest.mark.parametrize("change", [
    {"hidden_units": [10**12]}, {"hidden_units": [5, 3]}, {"num_heads": 3},
    {"hidden_units": ["4", 3]}, {"hidden_units": None}, {"num_heads": -1},
    {"layer_norm": True}, {"more": 1}])
def test_a_description_that_is_not_of_these_weights(tmp_path, change):
  """A wrong one costs an error, and no memory."""
  path = tmp_path / "model.keras"
  path.write_bytes(_saved())
  with pytest.raises(ValueError, match=_REMEDY):
    _read(path, {**_TOWERS, **change})


def test_a_vocabulary_larger_than_the_file(tmp_path):
  """It is stated in a few bytes."""
  path = tmp_path / "model.keras"
  path.write_bytes(_saved())
  statistics = {**_STATISTICS, "text": [{"name": "brand", "bins": 10**11}]}
  with pytest.raises(ValueError, match="bytes are too few"):
    saved_model.read(str(path), statistics, _TOWERS)


# The description.


def _paths(value, path=()):
  """The paths to all parts of a value of JSON."""
  yield path
  if isinstance(value, dict):
    for name, part in value.items():
      yield from _paths(part, (*path, name))
  elif isinstance(value, list):
    for index in {0, len(value) - 1} if value else ():
      yield from _paths(value[index], (*path, index))


def _changed(value, path, change):
  value = copy.deepcopy(value)
  if not path:
    return change(value)
  part = value
  for name in path[:-1]:
    part = part[name]
  part[path[-1]] = change(part[path[-1]])
  return value


_CHANGES = {
    "null": lambda _: None, "a number": lambda _: -1.5, "a text": lambda _: "x",
    "a list": lambda _: [[]], "a dict": lambda _: {"a": 1},
    "true": lambda _: True, "infinite": lambda _: float("inf"),
    "huge": lambda _: 10**400, "empty": lambda value: type(value)(),
    "twice": lambda value: value * 2}


@pytest.mark.parametrize("change", _CHANGES)
def test_a_damaged_description_is_told_by_one_sentence(tmp_path, change):
  """144 of 554 changes of log.json ended in a traceback or without a path."""
  written = json.loads((_SAVED_BY_0_1_0 / "log.json").read_text())
  path = tmp_path / "log.json"
  for place in list(_paths(written)):
    try:
      changed = _changed(written, place, _CHANGES[change])
    except TypeError:  # There is no such change of this part.
      continue
    path.write_text(json.dumps(changed))
    try:
      found = saved_model.read_description(str(path))
    except ValueError as error:
      assert str(error).startswith(f"{path}: ") and str(error).endswith(
          "train it again by `ultra-tfr fit-log`."), (place, error)
      assert "\n" not in str(error)
      continue
    # What is still a description can be used.
    bias, schema = found["bias"], found["schema"]
    if bias is not None:
      shape = (len(schema["contexts"]), len(schema["positions"]))
      assert np.shape(bias["click_relevant"]) == shape, place
    scorers.input_names(schema["statistics"])


@pytest.mark.parametrize("text", [
    "", "{", "[1]", "{}", "null", "\xff\xfe", "NaN", "[" * 100000,
    '{"schema": {}}'])
def test_half_a_description(tmp_path, text):
  (tmp_path / "log.json").write_text(text, encoding="latin-1")
  (tmp_path / "training_model.keras").write_bytes(_saved())
  with pytest.raises(ValueError, match=r"/log.json: .*damaged; \w.*\.$") as e:
    training.load(str(tmp_path))
  assert "\n" not in str(e.value)


@pytest.mark.parametrize("place, value", [
    (("bias", "click_relevant", 0, 0), 1.5),
    (("bias", "click_relevant", 1, 4), 0), (("bias", "click_relevant"), [[1]]),
    (("bias", "click_irrelevant", 0, 1), 0.99),
    (("bias", "click_relevant", 0), [0.5]),
    (("schema", "positions"), [1, 2, 3, 8, 5]),
    (("schema", "positions"), [1, 1, 3, 5, 8]),
    (("schema", "split"), [0.6, 0.6]), (("schema", "split"), [0.1]),
    (("schema", "statistics", "numeric", 0, "mean"), 1e300),
    (("schema", "statistics", "numeric", 0, "variance"), 0),
    (("schema", "columns", "query"), "rank"), (("history", "step"), []),
    (("schema", "feedback_kind"), "x")])
def test_numbers_that_cannot_be_those_of_a_model(tmp_path, place, value):
  """They were found in the middle of an evaluation, or never."""
  written = json.loads((_SAVED_BY_0_1_0 / "log.json").read_text())
  path = tmp_path / "log.json"
  path.write_text(json.dumps(written))
  saved_model.read_description(str(path))
  path.write_text(json.dumps(_changed(written, place, lambda _: value)))
  with pytest.raises(ValueError, match=f"^{path}: is no .*, so it is damaged"):
    saved_model.read_description(str(path))
