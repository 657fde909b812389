"""Tests of ultra_tfr.simulation.shop_log."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor

from ultra_tfr.simulation import shop_log
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.shop_log import simulate_log

GAPS = (1, 2, 3, 5, 6, 8, 9, 12)


@pytest.fixture(scope="module")
def weak():
  return simulate_log(20000, positions=GAPS, randomized=.25, seed=1)


@pytest.fixture(scope="module", params=shop_log.LOGGERS)
def small(request):
  """A log of each logger, without randomised requests."""
  return request.param, *simulate_log(
      3000, positions=(1, 3, 4), num_items=300, logger=request.param, seed=2)


def _column(log, name):
  return log[name].to_numpy()


def _grid(log, truth, values):
  """Values of the rows, by request and position."""
  order = np.lexsort((_column(log, "rank"), _column(log, "request_id")))
  return np.asarray(values)[order].reshape(-1, len(truth.positions))


# Shape.


def test_columns(weak):
  log, truth = weak
  assert log.schema == pa.schema([
      ("request_id", pa.string()), ("rank", pa.int64()),
      ("item_id", pa.string()), ("device", pa.string()),
      ("timestamp", pa.int64()), ("click", pa.int64()),
      ("dwell_ms", pa.int64()), ("randomized", pa.bool_()),
      *((f"f_{i}", pa.float64()) for i in range(8)),
      ("category", pa.string()), ("brand", pa.string()),
      ("is_new", pa.bool_())])
  assert log.num_rows == 20000 * 8
  missing = {name: log[name].null_count / log.num_rows
             for name in log.column_names if log[name].null_count}
  assert missing == {"f_4": pytest.approx(.15, abs=.05),
                     "f_5": pytest.approx(.2, abs=.05)}
  for name in ("f_2", "f_3", "f_7"):  # Heavy tails.
    assert stats.skew(_column(truth.catalogue, name)) > 2
  assert len(log["category"].unique()) == 12
  assert len(log["brand"].unique()) > 200


def test_requests_are_whole_and_rows_in_no_order(weak):
  log, truth = weak
  assert truth.positions.tolist() == list(GAPS)
  ranks = _grid(log, truth, _column(log, "rank"))
  assert np.all(ranks == GAPS)
  for name in ("request_id", "device", "timestamp", "randomized"):
    values = _grid(log, truth, _column(log, name))
    assert np.all(values == values[:, :1]), name
  items = np.sort(_grid(log, truth, _column(log, "item_id")), axis=1)
  assert np.all(items[:, 1:] != items[:, :-1])
  requests = _column(log, "request_id")
  assert len(np.unique(requests)) == 20000
  assert np.mean(requests[1:] == requests[:-1]) < .001
  assert abs(stats.spearmanr(
      np.arange(log.num_rows), _column(log, "timestamp")).statistic) < .01


def test_time_covers_the_days():
  log, _ = simulate_log(5000, days=3, seed=0)
  days = np.unique(_column(log, "timestamp") // 86400)
  assert np.diff(days).tolist() == [1, 1]


def test_features_are_those_of_the_catalogue(weak):
  log, truth = weak
  catalogue = truth.catalogue
  assert catalogue.column_names == [
      "item_id", *log.column_names[log.column_names.index("f_0"):]]
  row = {item: i for i, item in enumerate(catalogue["item_id"].to_pylist())}
  rows = np.array([row[item] for item in log["item_id"].to_pylist()])
  np.testing.assert_array_equal(truth.attraction, truth.item_attraction[rows])
  for name in catalogue.column_names:
    assert log[name].combine_chunks() == catalogue[name].take(
        rows).combine_chunks(), name


# Truth.


def test_attraction_is_spread_and_learnable(weak):
  _, truth = weak
  attraction = truth.item_attraction
  assert np.all((attraction > 0) & (attraction < 1))
  low, high = np.quantile(attraction, [.05, .99])
  assert low < .04 and high > .8
  items = truth.catalogue
  numbers = np.stack([_column(items, name).astype(float) for name in (
      *(f"f_{i}" for i in range(8)), "is_new")], axis=1)
  # Trees take NaN for missing.
  assert np.isnan(numbers[:, 5]).sum() == items["f_5"].null_count
  codes = items["category"].combine_chunks().dictionary_encode().indices
  category = np.eye(12)[codes.to_numpy()]
  logits = np.log(attraction / (1 - attraction))

  def explained(features):
    model = HistGradientBoostingRegressor(
        max_iter=60, max_leaf_nodes=15, random_state=0)
    model.fit(features[:1500], logits[:1500])
    return model.score(features[1500:], logits[1500:])

  both = explained(np.hstack([numbers, category]))
  assert .6 < both < .99
  assert both > explained(numbers) + .1
  assert both > explained(category) + .3


def test_examination_by_device(weak):
  _, truth = weak
  assert list(truth.examination) == ["desktop", "mobile"]
  for device, eta in (("desktop", .7), ("mobile", 1.2)):
    model = PositionBasedModel(eta=eta)
    np.testing.assert_allclose(
        truth.examination[device], [model.examination(k)[-1] for k in GAPS])


def _expected(log, truth):
  """P(click) of each row, by the formula."""
  place = np.searchsorted(truth.positions, _column(log, "rank"))
  examination = np.select(
      [_column(log, "device") == device for device in truth.examination],
      [curve[place] for curve in truth.examination.values()])
  a = truth.attraction
  return examination * (a + truth.trust_negative[place] * (1 - a))


def _check_rates(log, truth, bins):
  """Click rates in each bin of each device and rank are the expected ones."""
  expected, click = _expected(log, truth), _column(log, "click")
  device, rank = _column(log, "device"), _column(log, "rank")
  for d in truth.examination:
    for k in truth.positions:
      for b in np.unique(bins):
        rows = (device == d) & (rank == k) & (bins == b)
        error = np.sqrt((expected * (1 - expected))[rows].sum())
        difference = (click - expected)[rows].sum()
        assert abs(difference) < 4.5 * error + 1e-9, (d, k, b)


def test_clicks_follow_examination_and_attraction(weak):
  log, truth = weak
  _check_rates(log, truth, np.digitize(truth.attraction, [.2, .5]))


def test_clicks_with_trust_bias_and_own_devices():
  log, truth = simulate_log(
      20000, positions=(1, 2, 4), seed=3, trust_negative=[.6, .2, 0.],
      examination={"tv": [1., .9, .2], "watch": .5})
  assert truth.trust_negative.tolist() == [.6, .2, 0.]
  assert truth.examination["watch"].tolist() == [.5, .5, .5]
  shares = np.unique(_column(log, "device"), return_counts=True)
  assert shares[0].tolist() == ["tv", "watch"]
  np.testing.assert_allclose(shares[1] / log.num_rows, .5, atol=.02)
  _check_rates(log, truth, np.digitize(truth.attraction, [.2, .5]))


def test_randomised_click_rates_show_the_examination():
  log, truth = simulate_log(30000, positions=GAPS, randomized=1., seed=1)
  for device, curve in truth.examination.items():
    rows = _column(log, "device") == device
    rank, click = _column(log, "rank")[rows], _column(log, "click")[rows]
    rates = np.array([click[rank == k].mean() for k in GAPS])
    np.testing.assert_allclose(rates / rates[0], curve / curve[0], atol=.07)


def test_dwell_only_where_clicked_and_of_the_item(weak):
  log, truth = weak
  click, dwell = _column(log, "click"), _column(log, "dwell_ms")
  np.testing.assert_array_equal(dwell > 0, click == 1)
  row = {item: i for i, item in enumerate(
      truth.catalogue["item_id"].to_pylist())}
  rows = np.array([row[item] for item in log["item_id"].to_pylist()])
  ratio = (dwell / truth.item_dwell_ms[rows])[click == 1]
  assert ratio.mean() == pytest.approx(1., abs=.03)
  logs = np.log(ratio)
  assert logs.std() == pytest.approx(.7, abs=.02)
  assert abs(stats.skew(logs)) < .1
  assert np.std(np.log(truth.item_dwell_ms)) > .5


# Loggers.


def test_share_of_randomised_requests(weak):
  log, truth = weak
  chosen = _grid(log, truth, _column(log, "randomized"))[:, 0]
  assert chosen.mean() == pytest.approx(.25, abs=.02)
  attraction = _grid(log, truth, truth.attraction)
  assert np.all(np.diff(attraction[~chosen].mean(axis=0)) < 0)
  means = attraction[chosen].mean(axis=0)
  assert np.ptp(means) < .03
  # The same items are shown, in another order.
  assert means.mean() == pytest.approx(attraction[~chosen].mean(), abs=.01)


def test_loggers_do_what_they_say(small):
  name, log, truth = small
  assert set(log["randomized"].to_pylist()) == {name == "random"}
  attraction = _grid(log, truth, truth.attraction)
  items = _grid(log, truth, _column(log, "item_id"))
  places = {}
  for k in range(3):
    for item in np.unique(items[:, k]):
      places.setdefault(item, set()).add(k)
  moving = np.mean([len(found) > 1 for found in places.values()])
  correlation = stats.spearmanr(
      np.tile(np.arange(3), len(attraction)), attraction.ravel()).statistic
  if name == "relevance":
    assert np.all(np.diff(attraction, axis=1) <= 0)
  elif name == "fixed":
    assert moving == 0.
    assert correlation < -.15
  elif name == "weak":
    assert moving > .8
    assert -.3 < correlation < -.05
    in_order = np.mean(np.all(np.diff(attraction, axis=1) <= 0, axis=1))
    assert 1 / 6 < in_order < .5
  else:
    assert moving > .95
    assert abs(correlation) < .03


@pytest.mark.parametrize("logger", ["random", "fixed"])
def test_popular_items_are_shown_more(logger):
  log, _ = simulate_log(5000, logger=logger, seed=4)
  _, counts = np.unique(_column(log, "item_id"), return_counts=True)
  # Popularity is exp(z): a normal z has its 95 % quantile at 1.64.
  ratio = np.quantile(counts, .95) / np.median(counts)
  assert ratio == pytest.approx(np.exp(1.64), rel=.2)


def test_as_few_items_as_possible():
  log, truth = simulate_log(500, positions=(1, 2), num_items=8, seed=0)
  items = _grid(log, truth, _column(log, "item_id"))
  assert np.all(items[:, 0] != items[:, 1])
  # The weak logger's noise turns pairs round.
  pairs = set(map(tuple, items.tolist()))
  assert sum((b, a) in pairs for a, b in pairs) > len(pairs) / 4


# Seeds and errors.


def test_the_same_seed_gives_the_same_table():
  first, truth = simulate_log(500, randomized=.1, seed=7)
  second, again = simulate_log(500, randomized=.1, seed=7)
  assert first == second
  np.testing.assert_array_equal(truth.attraction, again.attraction)
  assert simulate_log(500, randomized=.1, seed=8)[0] != first


def test_another_log_of_the_same_shop():
  _, first = simulate_log(10, logger="fixed", seed=7)
  _, second = simulate_log(20, logger="random", positions=(1, 5), seed=7)
  assert first.catalogue == second.catalogue
  np.testing.assert_array_equal(first.item_attraction, second.item_attraction)


@pytest.mark.parametrize("change, message", [
    ({"num_requests": 0}, "`num_requests` .* at least 1, but is 0"),
    ({"num_items": 39}, "`num_items` must be at least 40 .* 10 `positions` .*"
     "is 39; give more items"),
    ({"positions": (1, 3, 3)}, r"`positions` must be rising .* \[1, 3, 3\]"),
    ({"positions": (0, 1)}, r"`positions` must be rising .* \[0, 1\]"),
    ({"positions": ()}, "`positions` must hold integers"),
    ({"positions": (1., 2.)}, "`positions` must hold integers.* float64"),
    ({"examination": {}}, "`examination` must name at least one device"),
    ({"examination": {"tv": [.5, .4]}},
     r"`examination\['tv'\]` must have the shape \[10\].*\[2\]"),
    ({"examination": {"tv": 1.5}}, r"`examination\['tv'\]` .*\[0, 1\].* 1.5"),
    ({"trust_negative": -.1}, r"`trust_negative` .*\[0, 1\].* -0.1"),
    ({"trust_negative": [.1]}, r"`trust_negative` .* shape \[10\].* \[1\]"),
    ({"logger": "best"}, "`logger` must be one of .*'weak'.* is 'best'"),
    ({"randomized": 2}, r"`randomized` must be in \[0, 1\], but is 2"),
    ({"days": 0}, "`days` .* at least 1, but is 0"),
])
def test_bad_arguments(change, message):
  with pytest.raises(ValueError, match=message):
    simulate_log(**{"num_requests": 10, **change})
