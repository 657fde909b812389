"""Tests of ultra_tfr.remote_folder."""

import os

import pytest

from ultra_tfr import files
from ultra_tfr import output
from ultra_tfr import remote_folder


def _folder(path, command="prepare", **options):
  return remote_folder.RemoteFolder(
      f"file://{path}", command, "--out", "whole.json", parts=["shards/"],
      **options)


def _write(folder, number):
  """What a command does; it leaves out what it wrote with another number."""
  with folder.staged("whole.json") as stage:
    files.make_folder(os.path.join(stage, "shards"))
    output.write(os.path.join(stage, "shards", f"{number}.json"), number)
    output.write(os.path.join(stage, "whole.json"), number)
    assert number >= 0, "wrong"


def test_what_is_whole_is_written_over_only_if_asked_for(tmp_path):
  path = tmp_path / "out"
  with _folder(path) as folder:
    _write(folder, 1)
  with pytest.raises(ValueError, match=(
      r"^--out: file://\S+ already holds a result; give another folder")):
    _folder(path).__enter__()
  with _folder(path, overwrite=True) as folder:
    _write(folder, 2)
  assert sorted(os.listdir(path / "shards")) == ["2.json"]
  assert output.read(f"file://{path}/whole.json") == 2


def test_what_failed_does_not_look_whole(tmp_path):
  with pytest.raises(AssertionError, match="wrong"), (
      _folder(tmp_path / "out")) as folder:
    _write(folder, -1)
  assert not (tmp_path / "out" / "whole.json").exists()
  with _folder(tmp_path / "out") as folder:
    _write(folder, 3)
  assert os.listdir(tmp_path / "out" / "shards") == ["3.json"]


def test_files_of_others_stay(tmp_path):
  (tmp_path / "notes.txt").touch()
  with pytest.raises(ValueError, match="holds files that prepare did not wri"):
    _folder(tmp_path).__enter__()
  with _folder(tmp_path / "out", "another") as folder:
    _write(folder, 1)
  with pytest.raises(ValueError, match="holds files that prepare did not wri"):
    _folder(tmp_path / "out", overwrite=True).__enter__()
  (tmp_path / "new" / "shards").mkdir(parents=True)
  with pytest.raises(ValueError, match="holds files that prepare did not wri"):
    _folder(tmp_path / "new").__enter__()
  with _folder(tmp_path / "last") as folder:
    (tmp_path / "last" / "rejected").mkdir(parents=True)
    with pytest.raises(ValueError, match="rejected/ is in the way, and is not"):
      folder.claim("rejected/")
