"""Tests of ultra_tfr.files."""

import os

import pyarrow as pa
from pyarrow import fs
import pytest

from ultra_tfr import files

TREE = ["day=1/a b.csv", "day=1/x/c.csv", "day=2/e%20.csv", ".hidden/d.csv",
        "top.txt"]


@pytest.fixture(params=["file", "memory"])
def root(request, tmp_path, monkeypatch):
  """The address of some files: on a disk, or where there are no folders."""
  if request.param == "file":
    root = f"file://{tmp_path}/there"
  else:
    fsspec = pytest.importorskip("fsspec")
    storage = fs.PyFileSystem(fs.FSSpecHandler(
        fsspec.get_filesystem_class("memory")(skip_instance_cache=True)))
    monkeypatch.setattr(files, "_connect", lambda _: (storage, "bucket"))
    root = f"memory://bucket{tmp_path}"
  for name in TREE:
    files.make_folder(f"{root}/{os.path.dirname(name)}")
    path = tmp_path / "part"
    path.write_text(name)
    files.upload(str(path), f"{root}/{name}")
    path.unlink()
  return root


def test_what_is_there(root):
  assert files.names_in(root) == [".hidden", "day=1", "day=2", "top.txt"]
  assert files.names_in(f"{root}/none") == []
  found = [(files.exists(path), files.is_folder(path)) for path in (
      root, f"{root}/day=1", f"{root}/top.txt", f"{root}/none")]
  assert found == [(True, True), (True, True), (True, False), (False, False)]
  names = files.of_each(files.size, [f"{root}/{name}" for name in TREE])
  assert names == list(map(len, TREE))


@pytest.mark.parametrize("pattern", [
    "day=*/*.csv", "**/*.csv", "day=1/**", "*", "day=[2-9]/*", "*/*%20.csv",
    "day=?/x/*", "none/*", "day=1/a b.csv"])
def test_patterns_find_what_glob_finds(root, tmp_path, pattern):
  here = tmp_path / "here"
  for name in TREE:
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).touch()
  wanted = [os.path.relpath(path, here) for path in files.find(here / pattern)]
  found = files.find(f"{root}/{pattern}")
  # But for the folder whose content `**` stands for.
  assert [path[len(root) + 1:] for path in found] == [
      path for path in wanted if f"{path}/**" != pattern]


def test_reading_writing_and_removing(root):
  path = f"{root}/day=1/a b.csv"
  assert files.read(path) == b"day=1/a b.csv"
  copy = files.local(path)
  assert copy == files.local(path) and copy.endswith("a b.csv")
  with open(copy) as file:
    assert file.read() == "day=1/a b.csv"
  with pa.input_stream(files.source(path)) as stream:
    assert stream.read() == b"day=1/a b.csv"
  for _ in range(2):
    files.remove(f"{root}/day=1")
    files.remove(f"{root}/top.txt")
  assert files.names_in(root) == [".hidden", "day=2"]


def test_paths_of_this_machine_stay_as_they_are(tmp_path):
  (tmp_path / "a").write_text("a")
  for function in (files.source, files.local):
    assert function("a b") == "a b"
  assert files.names_in(tmp_path) == ["a"]
  assert files.read(tmp_path / "a") == b"a" and files.size(tmp_path / "a") == 1
  files.make_folder(tmp_path / "b" / "c")
  assert files.is_folder(tmp_path / "b" / "c")


@pytest.mark.parametrize("path", ["none://bucket/a.csv", "http://host/a.csv"])
def test_unknown_storage_is_told_in_one_sentence(path):
  with pytest.raises(ValueError, match=(
      f"^{path}: its storage cannot be reached: .*; pyarrow reads gs://, ")):
    files.exists(path)


def test_no_pattern_searches_all_buckets():
  assert files.find("gs://*/a.csv") == files.find("gs://buck*") == []
