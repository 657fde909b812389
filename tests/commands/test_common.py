"""Tests of what the commands share."""

from absl import flags
import pytest

from ultra_tfr.commands import common


def _values(words):
  values = flags.FlagValues()
  flags.DEFINE_list("log", None, "", flag_values=values)
  flags.DEFINE_string("feedback", "click", "", flag_values=values)
  flags.DEFINE_string("flagfile", "", "", flag_values=values)
  flags.DEFINE_float("rate", 0.5, "", short_name="r", flag_values=values)
  flags.DEFINE_boolean("progress", None, "", flag_values=values)
  values(["program", *words])
  return values


def _written(words):
  comment, *lines, end = common.flags_text(
      _values(words), "fit-log").split("\n")
  assert comment.startswith("# ultra-tfr fit-log, version ") and not end
  return lines


@pytest.mark.parametrize("words", [
    [], ["--log=a.csv,b c.csv", "--feedback=click + 0.5*log1p(x/1000)"],
    ["--feedback=click"], ["--noprogress", "-r", "0.1"], ["--progress"],
    ["--feedback", "# 'a'  \"b\""]])
def test_flags_of_a_run_repeat_it(words, tmp_path):
  """A run could be repeated only by who had kept its command line."""
  values = _values(words)
  path = tmp_path / common.FLAGS_FILE
  path.write_text(common.flags_text(values, "fit-log"))
  again = _values([f"--flagfile={path}"])
  for name in values:
    if name != "flagfile":
      assert again[name].value == values[name].value
      assert again[name].present == values[name].present


def test_flags_that_are_left_out_stay_so(tmp_path):
  assert _written([]) == []
  (tmp_path / "file").write_text("--rate=0.3\n")
  assert _written([f"--flagfile={tmp_path / 'file'}"]) == ["--rate=0.3"]


@pytest.mark.parametrize("value", ["click\n+ 1", "\t", "a "])
def test_what_a_line_cannot_hold_is_told(value):
  line, = _written([f"--feedback={value}"])
  assert line == f"# Give --feedback anew: a line cannot hold {value!r}."
