"""Holds the structure of the package: imports, BUILD, sizes, docstrings."""

import ast
import sys

import pytest

import program_files

if sys.version_info < (3, 10):
  pytest.skip("sys.stdlib_module_names is new in Python 3.10; the sources are "
              "the same for all versions", allow_module_level=True)

ROOT = program_files.ROOT
build_file = program_files.load(".ci/build_file.py")
MODULES = build_file.modules()
SOURCES = [*MODULES.values(), *sorted((ROOT / "examples").rglob("*.py"))]

# A module imports from its own layer and from those above it in this list. The
# names are those below `ultra_tfr`; a package stands for all of its modules.
LAYERS = (
    {"core"},
    {"arguments", "callers", "json_files", "feedback", "heads", "reduction",
     "em_layer", "layers", "lambda_weights", "e_step", "training_watch",
     "losses", "callbacks", "metrics", "counterfactual_metrics", "scorers",
     "log_model", "position_tables", "position_losses", "position_updates",
     "dual_learning", "pairwise_debiasing", "pointwise_losses",
     "shallow_tower"},
    {"logged_order", "pipeline", "data", "simulation", "evaluation"},
    {"methods"},
    {"checkpoints", "run_folder", "training", "peers", "report", "log_bias",
     "log_checkpoints", "log_training", "log_sample", "findings", "diagnosis",
     "log_report", "log_evaluation"},
    {"comparison"},
    {"commands"},
    {"cli"},
)
# Importable from anywhere.
FOUNDATION = {"compat", "version"}
# The package's front; it may import everything, nothing in it may import it.
FRONT = "ultra_tfr"
# Only these know TensorFlow Ranking.
KNOW_TFR = {
    "ultra_tfr.compat",
    "ultra_tfr.losses",
    "ultra_tfr.metrics",
    "ultra_tfr.scorers",
    "ultra_tfr.pipeline",
    "ultra_tfr.experiments.loggers",
    "ultra_tfr.evaluation.ranking",
    "ultra_tfr.methods",
    "ultra_tfr.experiments.tables",
}
MAX_LINES = 320
# Methods that a base class calls and documents.
OVERRIDES = {
    "build", "call", "compute_output_shape", "from_config", "get_config",
    "on_batch_end", "on_epoch_begin", "on_epoch_end", "on_predict_begin",
    "on_predict_end", "on_test_begin", "on_test_end", "on_train_batch_begin",
    "on_train_batch_end", "on_train_begin", "on_train_end", "reset_state",
    "result", "set_model", "update_state",
}


def _layer(name):
  """The place of a module in LAYERS; -1 below all of them."""
  top = name.split(".")[1]
  if top in FOUNDATION:
    return -1
  for i, layer in enumerate(LAYERS):
    if top in layer:
      return i
  return pytest.fail(f"{name} belongs to no layer: add {top!r} to LAYERS above")


def _tree(path):
  return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _where(path, node):
  return f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("name", [n for n in MODULES if n != FRONT])
def test_imports_point_towards_the_core(name):
  layer = _layer(name)
  for imported in build_file.imports(MODULES[name], MODULES):
    assert imported != FRONT, (
        f"{name} imports the package's front: import the module itself")
    if imported in MODULES:
      assert _layer(imported) <= layer, (
          f"{name} imports {imported}, which is in a layer that comes after")


@pytest.mark.parametrize("name", MODULES)
def test_only_named_modules_know_tfr(name):
  if "tensorflow_ranking" in build_file.imports(MODULES[name], MODULES):
    assert name in KNOW_TFR, (
        f"{name} imports tensorflow_ranking: use one of {sorted(KNOW_TFR)}, or "
        "add it to KNOW_TFR above if it must know it")


def test_keras_finds_every_registered_object():
  registering = {name for name, path in MODULES.items()
                 if "register_keras_serializable(" in path.read_text()}
  assert len(registering) > 5
  missing = registering - set(build_file.imports(MODULES[FRONT], MODULES))
  assert not missing, (
      f"{FRONT} must import {missing}, or `load_model` would not know their "
      "objects")


def _parse_build(text):
  """Returns {rule name: AST dump} of the `py_*` rules of a BUILD file."""
  rules = {}
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.Call) and node.func.id.startswith("py_"):
      name = next(k.value.value for k in node.keywords if k.arg == "name")
      assert name not in rules, f"BUILD has two rules named {name!r}"
      rules[name] = ast.dump(node)
  return rules


def test_build_has_the_imports():
  actual = _parse_build((ROOT / "BUILD").read_text(encoding="utf-8"))
  expected = build_file.entries()
  wrong = [text for name, text in expected.items()
           if actual.get(name) != _parse_build(text)[name]]
  assert not wrong, (
      "BUILD should have these entries (python .ci/build_file.py --write):\n\n"
      + "\n\n".join(wrong))
  assert actual.keys() == expected.keys(), (
      "BUILD has entries of files that are gone: remove "
      f"{sorted(actual.keys() - expected.keys())}")


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
