"""What is said of a release is the same everywhere."""

import re

import program_files
import ultra_tfr


def _read(name):
  return (program_files.ROOT / name).read_text(encoding="utf-8")


def test_version_and_date_are_the_same_everywhere():
  citation = dict(re.findall(r"^([\w-]+): (.+)$", _read("CITATION.cff"), re.M))
  version, date = re.search(
      r"^## ([\d.]+) \((.+)\)$", _read("CHANGELOG.md"), re.M).groups()
  assert version == ultra_tfr.__version__ == citation["version"]
  assert date == citation["date-released"]


def test_the_pages_on_installing_name_each_extra():
  """An extra that no page names is found by nobody."""
  listed = _read("setup.py").partition("extras_require={")[2].partition("},")[0]
  extras = re.findall(r'^        "(\w+)": ', listed, re.M)
  assert {"beam", "bench", "docs", "peers", "test", "tfds"} <= set(extras)
  named = re.findall(r"^\| `\.\[(\w+)\]`", _read("docs/install.md"), re.M)
  assert sorted(named) == sorted(extras)
