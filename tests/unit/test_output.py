"""Tests of ultra_tfr.output: what is written."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr import output


def _names(folder):
  return sorted(os.listdir(folder))


# Files.


def test_a_file_is_written_as_a_whole(tmp_path):
  path = tmp_path / "a.json"
  output.write(path, {"a": np.arange(2), "b": [np.nan, np.float32(np.inf)]})
  assert json.loads(path.read_text()) == {"a": [0, 1], "b": [None, None]}
  assert output.read(path) == {"a": [0, 1], "b": [None, None]}
  assert _names(tmp_path) == ["a.json"]
  with output.new_file(tmp_path / "b", "wb") as file:
    file.write(b"\x00\r\n")
  assert (tmp_path / "b").read_bytes() == b"\x00\r\n"


@pytest.mark.parametrize("end", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_file_leaves_the_old_one(tmp_path, end):
  path = tmp_path / "a.txt"
  path.write_text("old")
  with pytest.raises(end):
    with output.new_file(path) as file:
      file.write("half")
      file.flush()
      raise end
  assert path.read_text() == "old"
  assert _names(tmp_path) == ["a.txt"]


def test_permissions_are_those_of_other_files(tmp_path):
  """Files of `mkstemp` could be read by their owner alone."""
  (tmp_path / "mine").write_text("")
  output.write(tmp_path / "ours", {})
  modes = {stat.S_IMODE((tmp_path / name).stat().st_mode)
           for name in ("mine", "ours")}
  assert len(modes) == 1


def test_a_planted_link_is_not_followed(tmp_path):
  """`settings.json.part` was known beforehand; a link of that name in a shared
  folder let a training write over any file of its user."""
  (tmp_path / "mine.txt").write_text("mine")
  shared = tmp_path / "shared"
  shared.mkdir()
  for name in ("a.json", f"a.json.{os.getpid()}.part", "a.json.part"):
    (shared / name).symlink_to(tmp_path / "mine.txt")
  output.write(shared / "a.json", {})
  assert (tmp_path / "mine.txt").read_text() == "mine"
  assert json.loads((shared / "a.json").read_text()) == {}
  assert not (shared / "a.json").is_symlink()


def test_a_name_that_is_taken_meanwhile_is_not_written_to(
    tmp_path, monkeypatch):
  monkeypatch.setattr(output.secrets, "token_hex", lambda _: "known")
  (tmp_path / "mine.txt").write_text("mine")
  (tmp_path / ".known.part").symlink_to(tmp_path / "mine.txt")
  with pytest.raises(FileExistsError):
    output.write(tmp_path / "a.json", {})
  assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_pipe_is_written_to(tmp_path):
  """`--markdown /dev/stdout` and `--json >(jq .)` are no files to replace."""
  pipe = tmp_path / "pipe"
  os.mkfifo(pipe)
  reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
  output.write(pipe, {"a": 1})
  assert json.loads(os.read(reader, 100)) == {"a": 1}
  os.close(reader)
  assert stat.S_ISFIFO(pipe.stat().st_mode)


@contextlib.contextmanager
def _small_disk(size=1000):
  """No file may become larger than so many bytes."""
  old = resource.getrlimit(resource.RLIMIT_FSIZE)
  handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, old)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path):
  """"[Errno 28] No space left on device" did not say where."""
  path = tmp_path / "a.json"
  path.write_text("{}")
  with _small_disk(), pytest.raises(OSError) as error:
    output.write(path, ["x" * 10000])
  assert str(error.value.filename) == str(path)
  assert path.read_text() == "{}"
  assert _names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("write", [
    lambda path: output.write(path, {}),
    lambda path: tf.io.write_file(str(path), "x")])
def test_errors_name_the_file(tmp_path, write):
  """Also TensorFlow's, which are no `OSError` and would end in a traceback."""
  (tmp_path / "none").write_text("")
  path = tmp_path / "none" / "a.json"
  with pytest.raises(OSError) as error:
    with output.errors_of(str(path)):
      write(path)
  assert str(error.value.filename) == str(path)
  assert "\n" not in str(error.value)


def test_what_tensorflow_says_of_the_system_is_one_line(tmp_path):
  (tmp_path / "none").write_text("")
  with pytest.raises(OSError, match="/none/a.*[Nn]ot a directory") as error:
    with output.errors_of(None):
      tf.io.write_file(str(tmp_path / "none" / "a"), "x")
  assert "\n" not in str(error.value)


def test_errors_about_other_files_name_those(tmp_path):
  with pytest.raises(OSError) as error:
    with output.new_file(tmp_path / "a.txt"):
      open(tmp_path / "other")  # pylint: disable=consider-using-with
  assert error.value.filename == str(tmp_path / "other")
  with pytest.raises(KeyError):
    with output.errors_of("a.txt"):
      raise KeyError("mine")
  # A fault of ours, which needs its traceback.
  with pytest.raises(tf.errors.InvalidArgumentError):
    with output.errors_of("a.txt"):
      tf.reshape([1, 2], [3])


# What is read is not written.


@pytest.fixture
def logs(tmp_path, monkeypatch):
  """A folder with a log, that is the current one."""
  monkeypatch.chdir(tmp_path)
  pathlib.Path("logs").mkdir()
  for name in ("a.csv", "logs/b.csv"):
    pathlib.Path(name).write_text("x")
  os.symlink("a.csv", "link.csv")
  os.link("a.csv", "hard.csv")
  os.symlink("logs", "shortcut")
  return tmp_path


@pytest.mark.parametrize("path, source", [
    ("a.csv", "a.csv"), ("./logs/../a.csv", "a.csv"), ("link.csv", "a.csv"),
    ("a.csv", "link.csv"), ("hard.csv", "a.csv"), ("logs/new.csv", "logs"),
    ("shortcut/new.csv", "logs"), ("logs/b.csv", "shortcut"),
    ("logs/new.csv", "logs/*.csv"), ("shortcut/new.csv", "logs/*"),
    ("logs/deep/new.csv", "logs"), ("new.csv", "*.csv"),
    ("new.csv", "new.csv")])
def test_what_is_read_is_not_written(logs, path, source):
  """`--rejected a.csv` truncated the log `a.csv` before it was read."""
  with pytest.raises(ValueError, match="^--json .* would change .*, which is"):
    output.check_is_no_input("--json", path, ["other.csv", source])
  with pytest.raises(ValueError):
    output.check_is_no_input("--json", str(logs / path), [str(logs / source)])


@pytest.mark.parametrize("path, source", [
    (None, "a.csv"), ("b.csv", "a.csv"), ("a.csv.json", "a.csv"),
    ("logs.json", "logs"), ("new.json", "*.csv"), ("out/new.csv", "logs/*.csv"),
    ("a[1].csv", "a.csv")])
def test_other_files_are_written(logs, path, source):
  del logs
  output.check_is_no_input("--json", path, [source])


def test_brackets_in_a_name_are_no_pattern(logs):
  (logs / "[ab].csv").write_text("x")
  output.check_is_no_input("--json", "a.csv", ["[ab].csv"])
  with pytest.raises(ValueError):
    output.check_is_no_input("--json", "[ab].csv", ["[ab].csv"])


# Folders.


def _open(path, **options):
  return output.Folder(
      path, "ultra-tfr fit-log", "--model_dir", **{
          "marker": "log.json", **options})


def _make(path, text="old", **options):
  """A folder with a result of ours."""
  with _open(path, **options) as folder:
    folder.remove("report")
    with folder.staged("log.json") as stage:
      for name in ("log.json", "model/weights", "model/deep/graph"):
        file = pathlib.Path(stage, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
      # SavedModels have one that may be empty.
      pathlib.Path(stage, "model", "assets").mkdir()
    pathlib.Path(folder.claim("report/")).mkdir(exist_ok=True)
    pathlib.Path(folder, "report", "page").write_text(text)


def _texts(path):
  """The files of a folder, but for the manifest."""
  return {str(file.relative_to(path)): file.read_text()
          for file in sorted(pathlib.Path(path).rglob("*"))
          if file.is_file() and file.name != ".ultra_tfr.json"}


_RESULT = {name: "old" for name in (
    "log.json", "model/weights", "model/deep/graph", "report/page")}


def test_a_folder_is_made_and_overwritten_on_demand(tmp_path):
  path = tmp_path / "deep" / "shop"
  _make(path)
  assert _texts(path) == _RESULT
  with pytest.raises(ValueError, match=(
      "^--model_dir: .*/shop already holds a result; give another folder, or "
      "--overwrite.$")):
    _make(path)
  _make(path, "new", overwrite=True)
  assert _texts(path) == dict.fromkeys(_RESULT, "new")
  assert _names(path) == [".ultra_tfr.json", "log.json", "model", "report"]


@pytest.mark.parametrize("name", [
    "model/mine.txt", "report/page", "log.json", "rejected_rows.csv", ".hidden"
])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_others_is_left_alone(tmp_path, name, overwrite):
  """`fit-log` replaced one's own `model` and `report`, `train --overwrite`
  removed `logs` and `checkpoints` of a folder that never held a training."""
  (tmp_path / name).parent.mkdir(exist_ok=True)
  (tmp_path / name).write_text("mine")
  with pytest.raises(ValueError, match=(
      "--model_dir: .* holds files that ultra-tfr fit-log did not write; give "
      "an empty folder, or a new one")):
    _make(tmp_path, overwrite=overwrite)
  assert _texts(tmp_path) == {name: "mine"}


def test_a_folder_of_another_command_is_left_alone(tmp_path):
  """The exported model of `train` became that of `fit-log`, while `train` said
  that it had finished."""
  with output.Folder(tmp_path, "ultra-tfr train") as folder:
    pathlib.Path(folder.claim("settings.json")).write_text("")
  with pytest.raises(ValueError, match=(
      "is a folder of ultra-tfr train, and not of ultra-tfr fit-log; give")):
    _make(tmp_path, overwrite=True)


def test_overwriting_leaves_what_others_added(tmp_path):
  _make(tmp_path)
  for name in ("notes.txt", "model/mine.txt"):
    (tmp_path / name).write_text("mine")
  with _open(tmp_path, overwrite=True) as folder:
    folder.clear()
  assert _texts(tmp_path) == {"notes.txt": "mine", "model/mine.txt": "mine"}
  with pytest.raises(ValueError, match=(
      "model/mine.txt is in the way, and is not of ultra-tfr fit-log; move")):
    _make(tmp_path)
  assert _texts(tmp_path) == {"notes.txt": "mine", "model/mine.txt": "mine"}
  (tmp_path / "model" / "mine.txt").unlink()
  _make(tmp_path)
  assert _texts(tmp_path) == {**_RESULT, "notes.txt": "mine"}


def test_what_took_the_place_of_ours_is_left_alone(tmp_path):
  """A link to somewhere else is removed, and not what it leads to."""
  for name in ("shop", "elsewhere"):
    _make(tmp_path / name)
  shop, elsewhere = tmp_path / "shop", tmp_path / "elsewhere"
  os.rename(shop / "model", tmp_path / "moved")
  (shop / "model").symlink_to(elsewhere / "model")
  with _open(shop, overwrite=True) as folder:
    with pytest.raises(ValueError, match="is elsewhere; give another folder"):
      folder.clear()
  assert _texts(elsewhere) == _RESULT
  with output.Folder(tmp_path / "running", "ultra-tfr train") as folder:
    os.symlink(elsewhere, folder.claim("logs/").rstrip("/"))
    folder.clear()
  assert _texts(elsewhere) == _RESULT
  assert not (tmp_path / "running").exists()


@pytest.mark.parametrize("files", [
    ["../mine.txt"], ["/etc/passwd"], ["model/../../mine.txt"], [""], ["."],
    [7], "mine.txt", None, ["model//x"]])
def test_a_made_up_manifest_removes_nothing(tmp_path, files):
  (tmp_path / "mine.txt").write_text("mine")
  shop = tmp_path / "shop"
  shop.mkdir()
  (shop / ".ultra_tfr.json").write_text(json.dumps(
      {"command": "ultra-tfr fit-log", "files": files}))
  with pytest.raises(ValueError, match="ultra_tfr.json is damaged; give anoth"):
    _make(shop, overwrite=True)
  assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", "[" * 100000])
def test_a_damaged_manifest(tmp_path, text):
  (tmp_path / ".ultra_tfr.json").write_text(text, encoding="latin-1")
  with pytest.raises(ValueError, match=r"ultra_tfr.json:? is .*damaged"):
    _make(tmp_path)


_HOLD = """
import sys, time
from ultra_tfr import output
with output.Folder(sys.argv[1], "ultra-tfr fit-log") as folder:
  open(folder.claim("logs/").rstrip("/"), "w").close()
  print("held", flush=True)
  time.sleep(60)
"""


def test_a_folder_has_one_writer(tmp_path):
  """Two `fit-log` ended in a mix of both, with a status of 0."""
  with subprocess.Popen(
      [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE,
      text=True) as other:
    assert other.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=(
        "--model_dir: .* is being written by another process; wait until it")):
      _make(tmp_path)
    assert _names(tmp_path) == [".ultra_tfr.json", "logs"]
    other.kill()
  # What it left is ours to replace.
  _make(tmp_path)
  with _open(tmp_path, overwrite=True) as folder:
    folder.clear()
    assert _names(folder) == [".ultra_tfr.json"]


def test_folders_within_one_process_are_the_same(tmp_path):
  with _open(tmp_path) as outer:
    with _open(f"{tmp_path}/.", overwrite=True) as inner:
      assert inner is outer
      pathlib.Path(inner.claim("log.json")).write_text("")
    assert (tmp_path / ".ultra_tfr.json").exists()
  with _open(tmp_path, overwrite=True):
    pass


def test_a_folder_in_which_nothing_was_written_is_as_before(tmp_path):
  with pytest.raises(KeyError):
    with _open(tmp_path / "new") as folder:
      folder.claim("log.json", "logs/")
      raise KeyError
  assert _names(tmp_path) == []
  with _open(tmp_path):
    pass
  assert _names(tmp_path) == []


@pytest.mark.parametrize("step", range(30))
def test_a_killed_command_leaves_nothing_that_looks_whole(
    tmp_path, monkeypatch, step):
  """Killed between its files, `fit-log --overwrite` left the new model with
  the old bias."""
  _make(tmp_path)
  calls = []

  def until_killed(act):
    def wrapped(*args):
      calls.append(act)
      if len(calls) > step:
        raise KeyboardInterrupt
      return act(*args)
    return wrapped

  with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
    for module, name in ((os, "replace"), (os, "remove"),
                         (output.shutil, "rmtree")):
      patch.setattr(module, name, until_killed(getattr(module, name)))
    _make(tmp_path, "new", overwrite=True)
  found = {name: text for name, text in _texts(tmp_path).items()
           if name in _RESULT and "report" not in name}
  if "log.json" in found:
    assert len(found) == 3 and len(set(found.values())) == 1, found
  # The next call goes on from there.
  _make(tmp_path, "third", overwrite=True)
  found = _texts(tmp_path)
  assert {name: found.get(name) for name in _RESULT} == dict.fromkeys(
      _RESULT, "third")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
  (tmp_path / "file").write_text("")
  for path in (tmp_path / "file", tmp_path / "file" / "deep"):
    with pytest.raises(ValueError, match=(
        f"--model_dir {path} must be a folder, but {tmp_path}/file is a file")):
      _make(path)


# For people.


def test_a_folder_of_a_cluster_is_no_folder_of_this_machine(tmp_path):
  """A folder named "gs:" was made in the working directory."""
  with pytest.raises(ValueError, match=(
      "^--model_dir gs://b/m must be a folder of this machine; give another")):
    output.Folder("gs://b/m", "fit-log", "--model_dir").__enter__()


def test_json_is_written_and_read_by_its_address(tmp_path):
  output.write(f"file://{tmp_path}/a.json", {"a": 1})
  assert output.read(f"file://{tmp_path}/a.json") == {"a": 1}
  assert output.read(f"file://{tmp_path}/b.json") is None
  assert _names(tmp_path) == ["a.json"]


def test_control_characters_are_shown():
  """A value of a log cleared the screen, or changed the terminal's title."""
  text = "\x1b]0;x\x07 \x9b2J \u202e \udcff \t\r"
  assert output.printable(f"a\n{text}é😀\u200d") == (
      "a\n\\x1b]0;x\\x07 \\x9b2J \\u202e \\udcff \\t\\ré😀\u200d")
  assert output.align([["\x1b", "1"], ["ab", "10"]]) == [
      "\\x1b   1", "ab    10"]


@pytest.mark.parametrize("form, good, bad", [
    (float, [0, -1.5, 1e308], [None, True, "1", [], 10**400, float("inf"),
                               float("nan")]),
    (int, [0, 2**70], [1.0, True, None]), (str, ["", "a"], [None, 1]),
    (bool, [True], [1, None]), ((None, str), [None, "a"], [1, False]),
    ([str], [[], ["a"]], ["a", [1], None, {}]),
    ({"a": int}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": "x"}, [], None]),
    ({str: [int]}, [{}, {"x": [1], "y": []}], [{"x": 1}, [], None])])
def test_forms_of_json(form, good, bad):
  assert all(output.has_form(value, form) for value in good)
  assert not any(output.has_form(value, form) for value in bad)
