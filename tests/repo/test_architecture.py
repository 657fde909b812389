"""Holds the structure of the package: imports, BUILD, sizes, docstrings."""

import ast
import sys

import pytest

import program_files

if sys.version_info < (3, 10):
  pytest.skip("sys.stdlib_module_names is new in Python 3.10; the sources are "
              "the same for all versions", allow_module_level=True)

ROOT = program_files.ROOT
FRONT = "ultra_tfr"
MAX_LINES = 600
# What a distribution is called where its module is not.
_THIRD_PARTY = "//third_party/py/"


def _name(path):
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path
           for path in sorted((ROOT / "ultra_tfr").rglob("*.py"))}
SOURCES = [*MODULES.values(), ROOT / "ultra_tfr_start.py",
           *sorted((ROOT / "examples").rglob("*.py"))]
# Methods that a base class calls and documents.
OVERRIDES = {
    "build", "call", "compute_output_shape", "from_config", "get_config",
    "on_batch_end", "on_epoch_begin", "on_epoch_end", "on_predict_begin",
    "on_predict_end", "on_test_begin", "on_test_end", "on_train_batch_begin",
    "on_train_batch_end", "on_train_begin", "on_train_end", "reset_state",
    "result", "set_model", "update_state",
}


def _tree(path):
  return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _where(path, node):
  return f"{path.relative_to(ROOT)}:{node.lineno}"


def _imports(path):
  """Yields (node, name) of what a file imports: modules of ours, packages."""
  for node in ast.walk(_tree(path)):
    if isinstance(node, ast.Import):
      found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, f"{_where(path, node)}: a relative import"
      found = [f"{node.module}.{alias.name}" for alias in node.names]
    elif (isinstance(node, ast.Call) and
          ast.unparse(node.func) == "lazy_module"):
      found = [node.args[0].value]
    elif (isinstance(node, ast.Call) and
          ast.unparse(node.func) == "importlib.import_module" and
          isinstance(node.args[0], ast.JoinedStr) and
          isinstance(node.args[0].values[0], ast.Constant)):
      # A module of a package that is chosen at run time.
      found = [node.args[0].values[0].value.rstrip(".")]
    else:
      continue
    for name in found:
      package = name.split(".")[0]
      if package == FRONT:
        # A name in a module counts as the module.
        yield node, name if name in MODULES else name.rpartition(".")[0]
      elif package not in sys.stdlib_module_names:
        yield node, package


def _read_build():
  """The rules of BUILD, (kind, arguments) in order; it is read, never run."""
  constants = {}

  def values(node):
    if isinstance(node, ast.List):
      return [value for part in node.elts for value in values(part)]
    if isinstance(node, ast.Name):
      return [constants[node.id]]
    if isinstance(node, ast.BinOp):
      left, right = values(node.left), values(node.right)
      if isinstance(node.left, (ast.Call, ast.List)):
        return left + right
      return [left[0] + right[0]]
    if isinstance(node, ast.Call):
      assert node.func.id == "glob", ast.unparse(node)
      patterns = values(node.args[0])
      found = {pattern: sorted(ROOT.glob(pattern)) for pattern in patterns}
      assert all(found.values()), f"BUILD: no file for one of {patterns}"
      return [str(path.relative_to(ROOT))
              for paths in found.values() for path in paths]
    return [node.value]

  def rule(call):
    return call.func.id, {
        part.arg: values(part.value) for part in call.keywords
        if part.arg in ("name", "srcs", "data", "deps", "testonly") and
        not (part.arg == "name" and isinstance(part.value, ast.BinOp))}

  rules = []
  for node in ast.parse((ROOT / "BUILD").read_text(encoding="utf-8")).body:
    if isinstance(node, ast.Assign):
      constants[node.targets[0].id] = node.value.value
    elif isinstance(node.value, ast.ListComp):
      loop = node.value.generators[0]
      for value in values(loop.iter):
        constants[loop.target.id] = value
        rules.append(rule(node.value.elt))
    elif isinstance(node.value, ast.Call):
      rules.append(rule(node.value))
  return rules


RULES = _read_build()
WINGS = {given["name"][0]: (given["srcs"], set(given["deps"]))
         for kind, given in RULES if kind in ("py_library", "py_binary") and
         given["srcs"][0].startswith("ultra_tfr/")}
WING_OF = {file: wing for wing, (files, _) in WINGS.items() for file in files}


def test_each_file_has_one_wing():
  files = [file for files, _ in WINGS.values() for file in files]
  assert sorted(files) == sorted(
      str(path.relative_to(ROOT)) for path in MODULES.values())


def test_wings_are_built_on_earlier_ones():
  seen = set()
  for wing, (_, deps) in WINGS.items():
    later = {dep for dep in deps if dep[0] == ":"} - seen
    assert not later, f"BUILD: {wing} depends on {later}, which come later"
    seen.add(f":{wing}")


@pytest.mark.parametrize("wing", WINGS)
def test_imports_are_those_that_build_allows(wing):
  files, deps = WINGS[wing]
  used = set()
  for file in files:
    for node, name in _imports(ROOT / file):
      if name.split(".")[0] != FRONT:
        target = _THIRD_PARTY + name
      else:
        assert name != FRONT or not file.startswith("ultra_tfr/"), (
            f"{file}: imports the package's front: import the module itself")
        target = ":" + WING_OF[str(MODULES[name].relative_to(ROOT))]
      used.add(target)
      assert target in deps or target == f":{wing}", (
          f"{_where(ROOT / file, node)}: {wing} imports {name}, but BUILD does "
          f"not allow it to depend on {target}")
  assert deps <= used, f"BUILD: {wing} does not need {sorted(deps - used)}"


def test_each_file_of_the_tests_has_one_rule():
  tests = ROOT / "tests"
  files = [file for kind, given in RULES if kind == "py_test" or
           "testonly" in given for file in given["srcs"]]
  assert sorted(files) == sorted(
      str(path.relative_to(ROOT)) for path in tests.rglob("*.py")), (
          "BUILD names the folders of tests/ that hold tests; a test is in "
          "one of them, and what tests share in tests/support")
  stray = {path.name for path in tests.iterdir() if path.is_dir()} - {
      "__pycache__", *(file.split("/")[1] for file in files)}
  assert not stray, f"folders of tests/ without a rule in BUILD: {stray}"


def test_unit_tests_mirror_the_package():
  """A file of unit/ names the module that it tests, and perhaps a topic."""
  unit = ROOT / "tests" / "unit"
  for path in unit.rglob("*.py"):
    folder = ROOT / "ultra_tfr" / path.parent.relative_to(unit)
    modules = {module.stem for module in folder.glob("*.py")}
    stem = path.stem[len("test_"):]
    assert any(stem == module or stem.startswith(f"{module}_")
               for module in modules), (
        f"{path.relative_to(ROOT)} is named after no module of {folder}")


@pytest.mark.parametrize("name", MODULES)
def test_privates_of_others_stay_in_one_room(name):
  """Attributes of other objects that begin with _ are not ours to use."""
  public = {"_replace", "_fields", "_exit"}  # Of namedtuples, and of `os`.
  found = [f"{_where(MODULES[name], node)}: {ast.unparse(node)}"
           for node in ast.walk(_tree(MODULES[name]))
           if isinstance(node, ast.Attribute) and node.attr[0] == "_"
           and not node.attr.endswith("__") and node.attr not in public
           and ast.unparse(node.value) not in ("self", "cls", "super()")]
  assert not found or name == "ultra_tfr.keras_guards", found


def test_keras_finds_every_registered_object():
  registering = {name for name, path in MODULES.items()
                 if "register_keras_serializable(" in path.read_text()}
  assert len(registering) > 5
  front = [MODULES[FRONT], MODULES[f"{FRONT}.baselines"]]
  missing = registering - {
      name for path in front for _, name in _imports(path)}
  assert not missing, (
      f"{FRONT} must import {missing}, or `load_model` would not know their "
      "objects")


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_short(name):
  lines = len(MODULES[name].read_text(encoding="utf-8").splitlines())
  assert lines <= MAX_LINES, (
      f"{name} has {lines} lines, the limit is {MAX_LINES}: split it by idea")


def _unsafe(node):
  """Says what is unsafe about a node, or None."""
  if isinstance(node, (ast.Import, ast.ImportFrom)):
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
      names.append(node.module)
    for module in ("pickle", "cPickle", "dill", "cloudpickle", "joblib"):
      if module in names:
        return f"{module} runs code of the files that it reads"
  if isinstance(node, ast.Call):
    if isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
      return f"{node.func.id} runs code of its input"
    if ast.unparse(node.func) == "yaml.load":
      return "yaml.load runs code of the files that it reads: use safe_load"
    if ast.unparse(node.func).split(".")[-1] in (
        "load_model", "model_from_config", "model_from_json", "func_load"):
      return "a Keras model is code: read its weights alone"
    for keyword in node.keywords:
      if (keyword.arg == "allow_pickle"
          and getattr(keyword.value, "value", True) is not False):
        return "allow_pickle runs code of the files that it reads"
  return None


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.name))
def test_no_code_is_run_from_data(path):
  found = [f"{_where(path, node)}: {_unsafe(node)}"
           for node in ast.walk(_tree(path)) if _unsafe(node)]
  assert not found, "\n".join(found)


@pytest.mark.parametrize("name", MODULES)
def test_no_signature_swallows_typos(name):
  path = MODULES[name]
  found = [
      f"{_where(path, node)}: **{node.args.kwarg.arg} accepts any misspelt "
      "argument: name the arguments"
      for node in ast.walk(_tree(path))
      if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
      and node.args.kwarg]
  assert not found, "\n".join(found)


def _undocumented(node, path, in_subclass=False):
  """Yields what is public below a node and has no docstring."""
  for child in node.body:
    if not isinstance(child, (ast.ClassDef, ast.FunctionDef)):
      continue
    if child.name.startswith("_"):
      continue
    inherited = in_subclass and child.name in OVERRIDES
    if not ast.get_docstring(child) and not inherited:
      yield f"{_where(path, child)}: {child.name} has no docstring"
    if isinstance(child, ast.ClassDef):
      yield from _undocumented(child, path, in_subclass=bool(child.bases))


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_is_documented(name):
  path = MODULES[name]
  tree = _tree(path)
  found = list(_undocumented(tree, path))
  if not ast.get_docstring(tree):
    found.append(f"{path.relative_to(ROOT)}: the module has no docstring")
  assert not found, "\n".join(found)
