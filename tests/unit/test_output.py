"""Tests of ultra_tfr.output: what is written."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import stat

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


def test_errors_about_other_files_name_those(tmp_path):
  with pytest.raises(OSError) as error:
    with output.new_file(tmp_path / "a.txt"):
      open(tmp_path / "other")  # pylint: disable=consider-using-with
  assert error.value.filename == str(tmp_path / "other")
  with pytest.raises(KeyError):
    with output.errors_of("a.txt"):
      raise KeyError("mine")


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
