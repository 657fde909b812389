"""Tests of ultra_tfr.fit_log.known_curves, and of training with them."""

import json

import numpy as np
import pytest

import click_logs
from ultra_tfr.fit_log import diagnosis
from ultra_tfr.fit_log import known_curves
from ultra_tfr.fit_log import training

CURVE = [1.0, 0.9, 0.6, 0.4, 0.2]
NUMBERS = "1,.9,.6,.4,.2"


@pytest.fixture(scope="module", name="log")
def _log():
  with click_logs.read(click_logs.small()) as log:
    yield log


def test_numbers_are_for_all_contexts(log):
  known = known_curves.find(NUMBERS, log)
  assert known.values.tolist() == [CURVE, CURVE]
  assert known.source == "the numbers given"


@pytest.mark.parametrize("content, expected", [
    (CURVE, [CURVE, CURVE]),
    ({"desktop": CURVE[::-1], "mobile": CURVE}, [CURVE, CURVE[::-1]])])
def test_a_file_may_have_a_curve_for_each_context(
    log, tmp_path, content, expected):
  assert log.contexts == ["mobile", "desktop"]
  path = tmp_path / "curve.json"
  path.write_text(json.dumps(content))
  known = known_curves.find(str(path), log)
  assert known.values.tolist() == expected
  assert known.source == str(path)


@pytest.mark.parametrize("name, kind", known_curves.FROM_LOG.items())
def test_what_the_log_tells_is_that_of_a_diagnosis(name, kind):
  """The report said "trust the randomised rows", and no flag could do so."""
  log, _ = click_logs.easy()
  known = known_curves.find(name, log)
  truth = click_logs.simulated()[1]
  for c, context in enumerate(log.contexts):
    np.testing.assert_allclose(
        known.values[c], click_logs.true_curve(truth, context),
        atol=0.3 if name == "randomized" else 0.1)
  # Of the training part: the rest judges.
  sample = diagnosis.draw(log, parts=("train",))
  options = {"replicates": 1, "level": 0.5, "seed": 7}
  found = diagnosis.curves_by_log(
      sample, log, diagnosis.harvest(sample, log, **options), options)[
          log.contexts[1]][kind]
  np.testing.assert_array_equal(known.values[1], found["value"])


@pytest.mark.parametrize("content, pattern", [
    ("1,.5", "a number above 0 for each of the 5 positions.* for 'mobile'"),
    ("1,.5,0,.1,.1", "a number above 0"),
    ("steep", "must be numbers by position, such as 1,.8,.5, a .json file, or "
     "one of randomized, harvested, but is 'steep'"),
    ({"mobile": CURVE}, "a curve for each context, 'mobile', 'desktop', but "
     "has 'mobile'"),
    ([1, None, 1, 1, 1], "a number above 0"),
    ("randomized", "'randomized': the training part does not tell how often "
     "position 1, 2, 3, 5, 8 is examined for 'mobile'; it takes clicks on rows"
     " that `randomized` marks")])
def test_messages(log, tmp_path, content, pattern):
  if not isinstance(content, str):
    (tmp_path / "x.json").write_text(json.dumps(content))
    content = str(tmp_path / "x.json")
  with pytest.raises(ValueError, match=pattern):
    known_curves.find(content, log)


@pytest.mark.usefixtures("eagerly")
def test_a_training_keeps_the_curve_and_says_so(log, tmp_path):
  known = known_curves.find("1.25,1,.5,.25,.2", log)
  fitted = training.fit(
      log, "unbiased-ipw", click_logs.SHORT, known=known)
  # Scaled to at most 1, and no more.
  np.testing.assert_allclose(
      fitted.bias.click_relevant, known.values / 1.25, rtol=1e-6)
  fitted.save(str(tmp_path / "m"))
  again = training.load(str(tmp_path / "m")).bias
  assert again.fixed_to == fitted.bias.fixed_to == "the numbers given"
  found = diagnosis.diagnose(log, fitted, replicates=10)
  assert any("was not estimated: the model was trained with that of the "
             "numbers given, by the method unbiased-ipw" in text
             for text in found.sentences)
  assert not any("was estimated" in text for text in found.sentences)
  np.testing.assert_allclose(
      found.contexts["mobile"]["trained"]["value"], [1, .8, .4, .2, .16],
      rtol=1e-6)


def test_other_methods_take_no_curve(log):
  with pytest.raises(ValueError, match="takes no known `examination`; choose "
                     "'unbiased-ipw'"):
    training.fit(log, "unbiased", click_logs.SHORT,
                 known=known_curves.find(NUMBERS, log))
