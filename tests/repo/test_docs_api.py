"""Each public name is on exactly one API page of docs/."""

import collections
import importlib
import re
import types

import program_files
import ultra_tfr

_PAGES = sorted((program_files.ROOT / "docs" / "api").glob("*.md"))
_DOCUMENTED = [
    (page.name, name) for page in _PAGES for name in re.findall(
        r"^\.\. automodule:: (\S+)$", page.read_text(encoding="utf-8"), re.M)]


def _members(module):
  """What `automodule` shows, by the name of its home: as Sphinx finds it."""
  names = getattr(module, "__all__", None) or [
      name for name, value in vars(module).items()
      if getattr(value, "__module__", None) == module.__name__]
  values = {name: getattr(module, name) for name in names if name[0] != "_"}
  return {f"{value.__module__}.{value.__qualname__}"
          for value in values.values()
          if isinstance(value, (type, types.FunctionType))}


def _public(module):
  """Yields modules that a user gets to by public names."""
  yield module
  for name in getattr(module, "__all__", ()):
    value = getattr(module, name)
    if isinstance(value, types.ModuleType):
      yield from _public(value)


def test_each_public_name_is_on_one_page():
  pages = collections.defaultdict(list)
  for page, name in _DOCUMENTED:
    for member in _members(importlib.import_module(name)):
      pages[member].append(page)
  twice = {name: found for name, found in pages.items() if len(found) > 1}
  assert not twice
  public = {name for module in _public(ultra_tfr) for name in _members(module)}
  assert "ultra_tfr.layers.PositionBias" in public
  missing = public - pages.keys()
  assert not missing, f"add their modules to a page of docs/api: {missing}"


def test_all_pages_of_the_api_are_in_its_list():
  listed = (program_files.ROOT / "docs/api/index.md").read_text("utf-8")
  assert {page.stem for page in _PAGES} - {"index"} <= set(listed.split())
