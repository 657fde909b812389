"""How Sphinx builds the documentation: `sphinx-build -W docs build/docs`."""

import re

from docutils import nodes
from latex2mathml import converter
from sphinx.util import inspect

import ultra_tfr

project = "ultra_tfr"
copyright = "the ultra_tfr authors"
release = ultra_tfr.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.ipynb_checkpoints"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
# Notebooks show what they gave when last written; `.ci/run` runs them.
nb_execution_mode = "off"

html_theme = "furo"
html_title = f"ultra_tfr {release}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_math_renderer = "mathml"

# Single backquotes are code, as in the Markdown of the docstrings.
default_role = "code"
napoleon_use_rtype = False
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# Inherited ones of ours, too; `is_foreign` leaves out those of Keras.
autodoc_default_options = {"members": True, "inherited-members": True}
napoleon_use_ivar = True

# What Keras calls, and not a user.
_OF_KERAS = {
    "build", "call", "compute_output_shape", "from_config", "get_config",
    "reset_state", "result", "set_model", "update_state"}
_BULLET = re.compile(r"(\*|\d+\.) +")


def mark_literal_blocks(app, what, name, obj, options, lines):
  """Lets indented text be code, as in Markdown; Sphinx would quote it."""
  del app, what, name, obj, options  # Those of the event; only lines count.
  found, outside, is_literal = [], 0, False
  for i, line in enumerate(lines):
    indent = len(line) - len(line.lstrip())
    if line.strip():
      if is_literal and indent <= outside:
        is_literal = False
      if (not is_literal and i and not lines[i - 1].strip() and
          indent > outside + 1 and not line.lstrip().startswith(">>>")):
        found += [" " * outside + "::", ""]
        is_literal = True
      if not is_literal:
        bullet = _BULLET.match(line.lstrip())
        outside = indent + (bullet.end() if bullet else 0)
    found.append(line)
  lines[:] = found


def is_foreign(app, what, name, obj, skip, options):
  """Whether a member is not to be shown: another library's, or for Keras."""
  del app, options
  home = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
  for_keras = what == "class" and (name in _OF_KERAS or name.startswith("on_"))
  return skip or for_keras or not home.startswith("ultra_tfr")


def signature_of_class(app, what, name, obj, options, arguments, returned):
  """The arguments of `__init__`, where Keras hides them by its `__new__`."""
  del app, name, options, arguments  # Those of the event.
  if what != "class" or "__init__" not in vars(obj):
    return None
  return inspect.stringify_signature(
      inspect.signature(obj.__init__, bound_method=True),
      unqualified_typehints=True), returned


def visit_math(translator, node):
  """Writes a formula as MathML, which browsers show without any script."""
  is_block = node.tagname == "math_block"
  formula = converter.convert(
      node.astext(), display="block" if is_block else "inline")
  translator.body.append(
      f'<div class="formula">{formula}</div>' if is_block else formula)
  raise nodes.SkipNode


def setup(app):
  """Connects the functions above."""
  app.connect("autodoc-process-docstring", mark_literal_blocks, priority=1)
  app.connect("autodoc-process-signature", signature_of_class)
  app.connect("autodoc-skip-member", is_foreign)
  app.add_html_math_renderer(
      "mathml", (visit_math, None), (visit_math, None))
