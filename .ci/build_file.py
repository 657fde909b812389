"""Renders the Bazel file `BUILD` from the imports of the source files.

One `py_library` a module, one `py_test` a test file:

    python .ci/build_file.py --write    # after a module or an import changed
    python .ci/build_file.py --check    # exit code 1 if BUILD is out of date
"""

import argparse
import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
_PACKAGE = "ultra_tfr"
_HEADER = '''\
# Description:
# Unbiased learning to rank for TensorFlow Ranking.
# Rendered from the imports: python .ci/build_file.py --write

package(default_visibility = ["//visibility:public"])

licenses(["notice"])
'''


def modules(root=ROOT):
  """Returns {dotted name: path} of the package's modules."""
  found = {}
  for path in sorted((root / _PACKAGE).rglob("*.py")):
    parts = path.relative_to(root).with_suffix("").parts
    found[".".join(p for p in parts if p != "__init__")] = path
  return found


def imports(path, known):
  """Returns the modules that a file imports, anywhere in it.

  Args:
    path: The source file.
    known: The dotted names by which modules of this repository are imported.

  Returns:
    A set: full dotted names for modules in `known`, the first part of the name
    for all others. `from a import b` counts as `a.b` if that is a module.
  """
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      if node.level:
        raise ValueError(
            f"{path}:{node.lineno}: expected an absolute import, but it is "
            f"relative: write `from {_PACKAGE}... import ...`.")
      for alias in node.names:
        full = f"{node.module}.{alias.name}"
        names.add(full if full in known else node.module)
  return {n if n in known else n.partition(".")[0] for n in names}


def _label(name):
  """`ultra_tfr.core.masking` -> `core_masking`; other names stay."""
  return name.replace(f"{_PACKAGE}.", "", 1).replace(".", "_")


def _dependencies(path, known):
  internal, external = set(), set()
  for name in imports(path, known):
    if name in known:
      internal.add(f":{_label(name)}")
    elif name not in sys.stdlib_module_names:
      external.add(f"//third_party/py/{name}")
  return sorted(internal) + sorted(external)


def _rule(kind, name, path, root, deps):
  lines = [f"{kind}(", f'    name = "{name}",']
  lines.append(f'    srcs = ["{path.relative_to(root).as_posix()}"],')
  if deps:
    lines.append("    deps = [")
    lines.extend(f'        "{dep}",' for dep in deps)
    lines.append("    ],")
  return "\n".join([*lines, ")"])


def entries(root=ROOT):
  """Returns {rule name: rule text} of the whole file, in its order."""
  package = modules(root)
  tests = sorted((root / "tests").rglob("*.py"))
  helpers = {p.stem: p for p in tests if not p.stem.startswith("test_")}
  known = {**package, **helpers}
  rules = {}
  for kind, files in (
      ("py_library", package),
      ("py_library", helpers),
      ("py_test", {p.stem: p for p in tests if p.stem not in helpers}),
  ):
    for name, path in files.items():
      deps = _dependencies(path, known)
      if kind == "py_test" and "conftest" in helpers:
        # pytest loads it, so no test imports it.
        deps = sorted({":conftest", *deps}, key=lambda d: (d[0] != ":", d))
      label = _label(name)
      if label in rules:
        raise ValueError(
            f"{path}: expected a BUILD name of its own, but {label!r} is "
            "taken: rename the file.")
      rules[label] = _rule(kind, label, path, root, deps)
  return rules


def render(root=ROOT):
  """Returns the text that `BUILD` must have."""
  return "\n\n".join([_HEADER.rstrip("\n"), *entries(root).values()]) + "\n"


def main():
  """Writes or checks `BUILD`; returns the exit code."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  mode = parser.add_mutually_exclusive_group(required=True)
  mode.add_argument("--write", action="store_true")
  mode.add_argument("--check", action="store_true")
  target = ROOT / "BUILD"
  if parser.parse_args().write:
    target.write_text(render(), encoding="utf-8")
  elif not target.exists() or target.read_text(encoding="utf-8") != render():
    print("BUILD is out of date: run python .ci/build_file.py --write")
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
