"""Tests of ultra_tfr.evaluation.plots."""

import sys

import pytest

from ultra_tfr.evaluation import plots

PNG = b"\x89PNG\r\n\x1a\n"


def _png(path, *args):
  plots.plot_examination(str(path), *args)
  content = path.read_bytes()
  assert content.startswith(PNG)
  assert len(content) > 5000
  return content


def test_a_png_is_written(tmp_path):
  _png(tmp_path / "curve.png", {"unbiased": [1.0, 0.6]}, [1.0, 0.5], "Bias")


def test_everything_given_is_drawn(tmp_path):
  one = {"unbiased": [1.0, 0.6, 0.4]}
  two = {**one, "unbiased-ipw": [1.0, 0.7, 0.5]}
  true = [1.0, 0.5, 0.3]
  pictures = [
      _png(tmp_path / f"{i}.png", *arguments) for i, arguments in enumerate(
          [(one,), (two,), ({}, true), (one, true), (one, true, "Bias")])]
  assert len(set(pictures)) == len(pictures)
  assert pictures[0] == _png(tmp_path / "again.png", one)


def test_ndcg_gets_a_panel_of_its_own(tmp_path):
  """--plot showed whether the curve is right, and not what it is good for."""
  path = tmp_path / "curve.svg"
  plots.plot_examination(
      str(path), {"unbiased": [1.0, 0.6]}, ndcg={"unbiased": [.89, .88],
                                                 "naive$": [.84]})
  assert path.read_text().count("<g id=\"axes_") == 2


def test_the_ending_chooses_the_format(tmp_path):
  path = tmp_path / "curve.svg"
  plots.plot_examination(str(path), {"unbiased": [1.0, 0.6]})
  assert "<svg" in path.read_text()


def test_no_window_system_is_chosen(tmp_path):
  before = "matplotlib.pyplot" in sys.modules
  _png(tmp_path / "curve.png", {"unbiased": [1.0]})
  assert ("matplotlib.pyplot" in sys.modules) == before


def test_nothing_to_plot(tmp_path):
  path = tmp_path / "curve.png"
  with pytest.raises(ValueError, match="no examination curve to plot: .* "
                     "train one that does, such as 'unbiased'"):
    plots.plot_examination(str(path), {})
  assert not path.exists()


def test_unknown_format(tmp_path):
  with pytest.raises(ValueError, match="'abc' is not supported"):
    plots.plot_examination(str(tmp_path / "x.abc"), {"unbiased": [1.0]})


@pytest.mark.parametrize("name", ["a$b.txt", "$x_$", "$", "a_b^c", "\\alpha$"])
def test_any_name_is_drawn_as_it_is(tmp_path, name):
  """A file name with `$` made --plot fail after all training."""
  plots.plot_examination(
      tmp_path / "a.png", {name: [1.0, 0.6]}, [1.0, 0.5], name)
  plots.plot_uplift(tmp_path / "b.svg", [[.1, -.1, .3]], [[.1, -.1, .3]],
                    "clicks", name)
  assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.svg"]
