"""Tests of ultra_tfr.ranker."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
import sklearn
from sklearn import base
from sklearn import model_selection
from sklearn.utils import estimator_checks

from ultra_tfr import ranker as ranker_lib
from ultra_tfr import trainer
from ultra_tfr.data.click_log.columns import LogColumns
from ultra_tfr.data.click_log.reading import read_click_log
from ultra_tfr.fit_log import training
from ultra_tfr.ranker import UnbiasedRanker
from ultra_tfr.settings import Settings

_SIZE = 4


def _data(num_requests=60):
  """Features, clicks, positions and ids of made-up requests."""
  draws = np.random.default_rng(0)
  count = num_requests * _SIZE
  X = draws.normal(size=(count, 3))
  positions = np.tile(np.arange(_SIZE) + 1, num_requests)
  clicks = (draws.random(count) < 1 / positions) & (X[:, 0] > -.5)
  return X, clicks, positions, np.repeat(np.arange(num_requests), _SIZE)


X, CLICKS, POSITIONS, IDS = _data()
WHERE = {"positions": POSITIONS, "group": IDS}


def _ranker(**options):
  return UnbiasedRanker(**{
      "method": "naive-pairwise", "hidden_units": (4,), "steps": 2, **options})


@pytest.fixture
def untrained(monkeypatch):
  """No training: what is tested is what goes in and what comes out."""
  monkeypatch.setattr(
      trainer, "fit", lambda *arguments, **named: {"loss": [0.0]})


@pytest.fixture
def logs(monkeypatch):
  """A list that gets the rows of each log that would be trained on."""
  found = []

  def fit(log, *unused, **named):
    del unused, named
    found.append({
        part: list(lists.batches(1000)) for part, lists in log.parts.items()})
    raise InterruptedError

  monkeypatch.setattr(training, "fit", fit)
  return found


def _log(logs, X=X, clicks=CLICKS, valid=0, **named):
  with pytest.raises(InterruptedError):
    _ranker(valid=valid).fit(X, clicks, **{**WHERE, **named})
  batch, = logs.pop()["train"]
  return batch


# What the trainer gives.


@pytest.mark.usefixtures("eagerly")
def test_it_gives_the_numbers_of_the_trainer():
  """The estimator is a face: the same log, seed and settings."""
  ranker = UnbiasedRanker(
      "unbiased-ipw", hidden_units=(4,), relevance_units=(3,), steps=2,
      validate_every=1, batch_size=16, learning_rate=.01, random_state=5)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # Two steps learn nothing.
    ranker.fit(X, CLICKS, **WHERE)
  frame = pd.DataFrame(X, columns=["f0", "f1", "f2"]).assign(
      q=IDS, p=POSITIONS, c=CLICKS)
  with read_click_log(
      frame, LogColumns("q", "p", "c", ("f*",)), test=0) as log:
    fitted = training.fit(log, "unbiased-ipw", Settings(
        hidden_units=(4,), relevance_units=(3,), steps=2, validate_every=1,
        batch_size=16, learning_rate=.01), seed=5)
  np.testing.assert_array_equal(ranker.predict(X), fitted.score(frame)["score"])
  np.testing.assert_array_equal(
      ranker.fitted_.bias.click_relevant, fitted.bias.click_relevant)
  assert ranker.fitted_.history == fitted.history
  assert ranker.fitted_.validation == fitted.validation
  np.testing.assert_allclose(ranker.examination_, (
      fitted.bias.click_relevant / fitted.bias.click_relevant[0, 0]))
  assert ranker.positions_ == [1, 2, 3, 4]
  np.testing.assert_allclose(  # Whatever the order, and in parts.
      ranker.predict(X[:3][::-1]), ranker.predict(X)[:3][::-1], rtol=1e-5)
  _check_score(ranker)
  _check_pickled(ranker)


def _check_score(ranker):
  """By the clicks that the bias was taken out of, and by a given one."""
  curve = ranker.examination_[0]
  value = ranker.score(X, CLICKS, **WHERE)
  scores = ranker.predict(X).reshape(-1, _SIZE)
  ranks = (-scores).argsort(axis=1).argsort(axis=1)

  def expected(curve):
    gains = CLICKS.reshape(-1, _SIZE) / np.asarray(curve)
    return (gains / np.log2(ranks + 2)).sum() / gains.sum()

  assert value == pytest.approx(expected(curve), abs=1e-5)
  given = [1., .5, .4, .1]
  ranker.set_params(score_examination=given)
  assert ranker.score(X, CLICKS, **WHERE) == pytest.approx(
      expected(given), abs=1e-5)
  assert np.isnan(ranker.score(X, CLICKS * 0, **WHERE))
  ranker.set_params(score_examination=[1., .5])
  with pytest.raises(ValueError, match="`score_examination` must be a number "
                     "or have the shape"):
    ranker.score(X, CLICKS, **WHERE)
  with pytest.raises(ValueError, match="`contexts` must be given to both"):
    ranker.score(X, CLICKS, contexts=IDS, **WHERE)


def _check_pickled(ranker):
  again = pickle.loads(pickle.dumps(ranker))
  np.testing.assert_array_equal(again.predict(X), ranker.predict(X))
  assert again.get_params() == ranker.get_params()


def test_a_fit_that_is_not_justified_warns(untrained, monkeypatch):
  """A fit no better than click rates is told, as `fit-log` tells it."""
  monkeypatch.setattr(ranker_lib.click_prediction, "warnings",
                      lambda found: ["Neither is to be trusted."])
  with pytest.warns(UserWarning, match="^Neither is to be trusted") as told:
    _ranker().fit(X, CLICKS, **WHERE)
  assert told[0].filename == __file__


# Requests.


def _assert_same(batch, other):
  order, others = batch.numeric[:, 0, 0].argsort(), (
      other.numeric[:, 0, 0].argsort())
  for name in ("numeric", "feedback", "positions", "weights", "contexts"):
    np.testing.assert_array_equal(
        getattr(batch, name)[order], getattr(other, name)[others])


@pytest.mark.parametrize("group", [
    IDS.tolist(), IDS + 1000, IDS / 2, pd.Series(IDS).astype(str),
    [f"request {i}" for i in IDS], np.full(len(X) // _SIZE, _SIZE),
    pd.Categorical(IDS.astype(str))], ids=str)
def test_groups_are_ids_or_sizes(group, logs):
  _assert_same(_log(logs, group=group), _log(logs))


def test_rows_of_a_request_may_be_anywhere(logs):
  order = np.random.default_rng(1).permutation(len(X))
  _assert_same(_log(logs), _log(
      logs, X[order], CLICKS[order], group=IDS[order],
      positions=POSITIONS[order]))


def test_rows_are_in_the_order_shown_unless_positions_say_else(logs):
  order = np.argsort(POSITIONS, kind="stable")  # Requests lie in each other.
  _assert_same(_log(logs), _log(
      logs, X[order], CLICKS[order], group=IDS[order], positions=None))


def test_contexts_and_weights(logs):
  batch = _log(logs, contexts=np.where(IDS % 2, "phone", "tablet"),
               sample_weight=IDS + 1.)
  assert set(np.unique(batch.contexts)) == {0, 1}
  assert batch.weights.max() == IDS.max() + 1


def test_sizes_of_different_requests(logs):
  batch = _log(logs, X[:5], [1, 0, 0, 1, 0], group=[2, 3], positions=None)
  assert sorted((batch.positions > 0).sum(axis=1)) == [2, 3]


_WRONG = {
    "no group": ({"group": None}, "`group` must be given: an id"),
    "ones": ({"group": np.ones(len(X), int)}, "`group` is 1 for each of the "
             "240 rows, which may be one request or as many of a single row"),
    "sizes of others": ({"group": [4] * 59}, "`group` must be an id for each "
                        "of the 240 rows, .* but has 59 entries that sum to "
                        "236; give one of both"),
    "sizes of 0": ({"group": [240, 0]}, "whole numbers from 1, .* 2 entries"),
    "few ids": ({"group": ["a", "b"]}, "but has 2 entries; give one of both"),
    "missing ids": ({"group": np.where(IDS, IDS, np.nan)}, "missing in some"),
    "ids of two types": ({"group": np.array([1, "a"] * 120, object)},
                         "all numbers or all texts, but has int, str"),
    "a matrix": ({"group": np.ones([240, 1])}, "must be a vector, .*240, 1"),
    "positions from 0": ({"positions": POSITIONS - 1},
                         "`positions` must be whole numbers from 1"),
    "a position twice": ({"group": IDS // 2}, "`positions` must differ within "
                         "a request, but 1 comes twice in that of `group` 0"),
    "few positions": ({"positions": [1, 2]}, "`positions` must have the shape"),
    "texts": ({"positions": ["top"] * 240}, "`positions` must be numbers, but"),
    "negative": ({"clicks": CLICKS - 1.}, "`clicks` must be in 0 to any"),
    "no clicks": ({"clicks": None}, "`clicks` must be given"),
    "no difference": ({"clicks": CLICKS * 0}, "There is nothing to learn from"),
    "no weights": ({"sample_weight": IDS * 0}, "is zero in all; leave it out"),
    "weights": ({"sample_weight": -IDS}, "`sample_weight` must be in 0"),
    "X of one row": ({"X": X[0]}, "Expected 2D array"),
    "values of X": ({"X": np.array([[1, "a", {}]] * 240, object)},
                    r"`X\[:, 2\]` must be numbers or texts"),
    "columns": ({"X": pd.DataFrame(X, columns=["a", "b", "_clicks"])},
                "`X` has a column '_clicks', a name that is needed here"),
    "no rows": ({"X": pd.DataFrame(X)[:0]}, "`X` has no row"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_argument_gets_one_sentence(name):
  arguments, pattern = _WRONG[name]
  with pytest.raises(ValueError, match=pattern):
    _ranker().fit(**{"X": X, "clicks": CLICKS, **WHERE, **arguments})


def test_a_method_that_is_none():
  with pytest.raises(ValueError, match="There is no method 'best'"):
    _ranker(method="best").fit(X, CLICKS, **WHERE)


# Tables.


def _frame():
  return pd.DataFrame({
      "n": X[:, 0], "t": np.where(X[:, 1] > 0, "a", "b"),
      "c": pd.Categorical(np.where(X[:, 2] > 0, "x", "y"))},
      index=np.arange(len(X))[::-1])


@pytest.mark.parametrize("make", [
    lambda frame: frame,
    lambda frame: pa.Table.from_pandas(frame, preserve_index=False)])
def test_tables(make, untrained):
  ranker = _ranker().fit(make(_frame()), CLICKS, **WHERE)
  text = ranker.fitted_.schema["statistics"]["text"]
  assert [feature["name"] for feature in text] == ["t", "c"]
  assert ranker.predict(make(_frame())).shape == (len(X),)
  assert 0 < ranker.score(make(_frame()), CLICKS, **WHERE) <= 1


def test_another_column_is_refused(untrained):
  ranker = _ranker().fit(_frame(), CLICKS, **WHERE)
  with pytest.raises(ValueError, match="Feature names unseen at fit time"):
    ranker.predict(_frame().rename(columns={"t": "u"}))


def test_a_position_that_fit_did_not_see(untrained):
  ranker = _ranker().fit(X, CLICKS, **WHERE)
  with pytest.raises(ValueError, match="position that the model does not know"):
    ranker.score(X, CLICKS, group=IDS, positions=POSITIONS + 1)


# scikit-learn.


def test_a_search_keeps_requests_whole(untrained, monkeypatch):
  seen, fit = [], training.fit

  def record(log, *arguments, **named):
    batch, = log.parts["train"].batches(1000)
    seen.append(batch.positions)
    return fit(log, *arguments, **named)

  monkeypatch.setattr(training, "fit", record)
  with sklearn.config_context(enable_metadata_routing=True):
    search = model_selection.GridSearchCV(
        _ranker(valid=0), {"hidden_units": [(2,), (4,)]}, error_score="raise",
        cv=model_selection.GroupKFold(2))
    search.fit(X, CLICKS, groups=IDS, **WHERE)
  assert [len(positions) for positions in seen] == [30] * 4 + [60]
  for positions in seen:
    np.testing.assert_array_equal(
        positions, np.tile(np.arange(_SIZE) + 1, [len(positions), 1]))
  assert np.isfinite(search.cv_results_["mean_test_score"]).all()
  assert search.predict(X).shape == (len(X),)


def test_a_search_without_routing_says_what_to_do():
  with pytest.raises(ValueError, match="turn on metadata routing by"):
    model_selection.cross_val_score(
        _ranker(), X, CLICKS, groups=IDS, error_score="raise",
        cv=model_selection.GroupKFold(2))


def test_a_clone_has_the_arguments():
  ranker = UnbiasedRanker("paper-ipw", hidden_units=(), random_state=None)
  assert base.clone(ranker).get_params() == ranker.get_params()


@pytest.mark.parametrize("state, seed", [
    (7, 7), (np.int64(7), 7), (np.random.RandomState(3),
                               np.random.RandomState(3).randint(2**31 - 1))])
def test_seeds(state, seed, monkeypatch):
  seeds = []

  def fit(*arguments, seed, verbose):
    del arguments, verbose
    seeds.append(seed)
    raise InterruptedError

  monkeypatch.setattr(training, "fit", fit)
  with pytest.raises(InterruptedError):
    _ranker(random_state=state).fit(X, CLICKS, **WHERE)
  assert seeds == [seed]


def _threes(X):
  """Ids of requests of three rows."""
  count = X.shape[0] if sparse.issparse(X) else len(np.asarray(X))
  return np.arange(count) // 3


class InThrees(UnbiasedRanker):
  """Gives the checks of scikit-learn, which know no requests, some of three."""

  def fit(self, X, y, sample_weight=None):
    """Fits on rows in the order shown."""
    return super().fit(X, y, group=_threes(X), sample_weight=sample_weight)

  def score(self, X, y, sample_weight=None):
    """Judges likewise."""
    return super().score(
        X, y, group=_threes(X), sample_weight=sample_weight)


# The checks that do not apply, and why.
NOT_FOR_RANKERS = {
    "check_fit2d_1sample": "an item alone has no order",
    "check_sample_weight_equivalence_on_dense_data":
        "a row of weight 2 is not the same item shown twice at one position",
    # Scores are float32: they agree to 1e-5, and these want 1e-7.
    "check_methods_sample_order_invariance": "tested above, to 1e-5",
    "check_methods_subset_invariance": "tested above, to 1e-5",
    "check_array_api_input": "features are arrays of NumPy or tables",
}


def _checks():
  ranker = InThrees("naive-pairwise", hidden_units=(2,), steps=1, valid=0)
  return {
      f"{i}-{check.func.__name__}": (estimator, check)
      for i, (estimator, check) in enumerate(
          estimator_checks.estimator_checks_generator(ranker, legacy=True))
      if check.func.__name__ not in NOT_FOR_RANKERS}


CHECKS = _checks()


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_scikit_learn(name, untrained):
  estimator, check = CHECKS[name]
  check(estimator)


@pytest.mark.release
@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_scikit_learn_with_training(name):
  estimator, check = CHECKS[name]
  check(estimator)


def test_checks_that_are_left_out_exist():
  for name in NOT_FOR_RANKERS:
    assert hasattr(estimator_checks, name)
  assert len(CHECKS) > 30
