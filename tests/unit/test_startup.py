"""Tests of ultra_tfr.startup."""

import sys

from ultra_tfr import startup


def test_a_lazy_module_comes_when_it_is_used():
  sys.modules.pop("colorsys", None)
  module = startup.lazy_module("colorsys")
  assert "colorsys" not in sys.modules
  assert module.rgb_to_hsv(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
  assert "colorsys" in sys.modules
