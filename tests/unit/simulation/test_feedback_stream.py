"""Tests of ultra_tfr.simulation.feedback_stream."""

import numpy as np
import pytest
import tensorflow as tf

from ultra_tfr.simulation.click_models import CascadeModel
from ultra_tfr.simulation.click_models import PositionBasedModel
from ultra_tfr.simulation.click_models import TrustBiasModel
from ultra_tfr.simulation.dwell import simulate_dwell
from ultra_tfr.simulation.feedback_stream import FeedbackStream

NUM_LISTS = 7
LIST_SIZE = 5


def _labels():
  labels = np.random.default_rng(0).integers(
      0, 5, [NUM_LISTS, LIST_SIZE]).astype(np.float32)
  labels[1, 3:] = -1
  labels[4, 1:] = -1
  return labels


def _stream(feedback="click", seed=0, labels=None, model=None):
  labels = _labels() if labels is None else labels
  # The only feature tells which list it is.
  features = np.zeros([*labels.shape, 1])
  features += np.arange(len(labels))[:, np.newaxis, np.newaxis]
  return FeedbackStream(features, labels, model or PositionBasedModel(),
                        feedback, seed)


def _batches(dataset, count):
  """`count` batches as (ids of the lists, targets)."""
  return [(features[:, 0, 0].astype(int), targets) for features, targets in
          dataset.take(count).as_numpy_iterator()]


@pytest.mark.parametrize("feedback", ["click", "dwell"])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 50])
def test_feedback_does_not_depend_on_the_batch_size(batch_size, feedback):
  stream = _stream(feedback)
  size = min(batch_size, NUM_LISTS)
  per_epoch = NUM_LISTS // size
  for i, (ids, targets) in enumerate(
      _batches(stream.dataset(batch_size), 3 * per_epoch)):
    assert targets.shape == (size, LIST_SIZE)
    np.testing.assert_array_equal(
        targets, stream.draw(i // per_epoch)[ids])


def test_feedback_does_not_depend_on_prefetching():
  stream = _stream("dwell")
  plain = _batches(stream.dataset(3), 6)
  ahead = _batches(stream.dataset(3).prefetch(4), 6)
  again = _batches(_stream("dwell").dataset(3), 6)
  for other in (ahead, again):
    for (ids, targets), (other_ids, other_targets) in zip(plain, other):
      np.testing.assert_array_equal(ids, other_ids)
      np.testing.assert_array_equal(targets, other_targets)


def test_two_iterators_do_not_disturb_each_other():
  dataset = _stream().dataset(2)
  one, two = (iter(dataset.as_numpy_iterator()) for _ in range(2))
  for _ in range(5):
    np.testing.assert_array_equal(next(one)[1], next(two)[1])


def test_feedback_is_fresh_in_each_epoch():
  labels = np.full([100, LIST_SIZE], 2.0)
  stream = _stream(labels=labels)
  first, second = stream.draw(0), stream.draw(1)
  assert (first != second).mean() > 0.1
  np.testing.assert_array_equal(first, stream.draw(0))
  assert (first != _stream(labels=labels, seed=1).draw(0)).mean() > 0.1


def test_order_of_lists_is_new_in_each_epoch_and_by_seed():
  batches = _batches(_stream().dataset(NUM_LISTS), 4)
  orders = {tuple(ids) for ids, _ in batches}
  assert len(orders) == 4
  other = _batches(_stream(seed=1).dataset(NUM_LISTS), 1)[0][0]
  assert tuple(other) != tuple(batches[0][0])


@pytest.mark.parametrize("feedback", ["click", "dwell"])
def test_padding_is_minus_one_and_nothing_else(feedback):
  labels = _labels()
  stream = _stream(feedback)
  for epoch in range(3):
    feedback_values = stream.draw(epoch)
    assert feedback_values.dtype == np.float32
    np.testing.assert_array_equal(feedback_values == -1, labels < 0)
    assert (feedback_values[labels >= 0] >= 0).all()


def test_clicks_follow_the_click_model():
  labels = np.full([4000, 3], 4.0)
  stream = _stream(
      labels=labels, model=PositionBasedModel([0.9, 0.5, 0.1]))
  clicks = stream.draw(0)
  assert set(np.unique(clicks)) == {0.0, 1.0}
  # The highest grade is always clicked where it is examined.
  np.testing.assert_allclose(clicks.mean(axis=0), [0.9, 0.5, 0.1], atol=0.03)


def test_dwell_is_click_plus_dwell_time():
  labels = _labels()
  clicks = _stream("click").draw(2)
  values = _stream("dwell").draw(2)
  dwell = simulate_dwell(labels, clicks, (0, 2))
  valid = labels >= 0
  np.testing.assert_allclose(values[valid], (clicks + dwell)[valid], rtol=1e-6)
  np.testing.assert_array_equal(values[valid] > 0, clicks[valid] > 0)
  assert (values[clicks > 0] > 1).all()


def test_dwell_reckons_with_the_largest_grade_of_the_click_model():
  labels = np.full([50, 2], 2.0)
  model = PositionBasedModel([1.0], max_grade=2)
  values = _stream("dwell", labels=labels, model=model).draw(0)
  dwell = simulate_dwell(labels, np.ones_like(labels), (0, 0), max_grade=2)
  np.testing.assert_allclose(values, 1 + dwell, rtol=1e-6)


def test_every_list_is_seen_though_batches_leave_a_rest():
  ids = np.concatenate([ids for ids, _ in _batches(_stream().dataset(4), 30)])
  counts = np.bincount(ids, minlength=NUM_LISTS)
  # 30 epochs of 4 of the 7 lists.
  assert counts.sum() == 120
  assert counts.min() >= 8


def test_no_list_comes_twice_in_an_epoch():
  batches = _batches(_stream().dataset(3), 8)
  for first, second in zip(batches[::2], batches[1::2]):
    assert len({*first[0], *second[0]}) == 6


def test_learning_from_labels():
  stream = _stream()
  for ids, targets in _batches(stream.dataset(3, "labels"), 5):
    np.testing.assert_array_equal(targets, _labels()[ids])


@pytest.mark.parametrize("feedback", ["click", "dwell"])
def test_learning_from_clicks_of_users_who_examine_everything(feedback):
  stream = _stream(feedback)
  dataset = stream.dataset(NUM_LISTS, "clicks_examined")
  for epoch, (ids, targets) in enumerate(_batches(dataset, 3)):
    np.testing.assert_array_equal(targets, stream.draw_examined(epoch)[ids])
    np.testing.assert_array_equal(targets == -1, (_labels() < 0)[ids])
    assert set(np.unique(targets)) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("model", [
    PositionBasedModel([0.9, 0.5, 0.1]), CascadeModel(),
    TrustBiasModel(click_noise=0.05)])
def test_clicks_of_who_examines_everything_have_no_bias(model):
  labels = np.tile([[2.0, 2.0, 2.0], [4.0, 4.0, 4.0]], [4000, 1])
  stream = _stream(labels=labels, model=model)
  clicks = stream.draw_examined(0)
  # By grade alone: the same at each position, whatever the click model.
  for grade in (2, 4):
    np.testing.assert_allclose(
        clicks[labels[:, 0] == grade].mean(axis=0),
        np.full(3, model.attraction(grade)), atol=0.03)
  assert (clicks != stream.draw_examined(1)).mean() > 0.1
  np.testing.assert_array_equal(clicks, stream.draw_examined(0))


def test_who_examines_everything_clicks_what_they_clicked_and_more():
  stream = _stream(labels=np.full([500, 3], 3.0))
  some, everything = stream.draw(2), stream.draw_examined(2)
  assert (everything >= some).all()
  assert everything.sum() > some.sum() + 100


@pytest.mark.parametrize("learn_from", ["feedback", "labels"])
@pytest.mark.parametrize("start", [0, 1, 2, 3, 5])
def test_start_skips_batches(start, learn_from):
  # Two batches an epoch.
  stream = _stream()
  whole = _batches(stream.dataset(3, learn_from), 8)
  rest = _batches(stream.dataset(3, learn_from, start=start), 8 - start)
  assert len(rest) == 8 - start
  for (ids, targets), (other_ids, other_targets) in zip(whole[start:], rest):
    np.testing.assert_array_equal(ids, other_ids)
    np.testing.assert_array_equal(targets, other_targets)


def test_start_is_asked_for_when_iteration_begins():
  step = tf.Variable(0, dtype=tf.int64)
  stream = _stream()
  whole = _batches(stream.dataset(3), 8)
  dataset = stream.dataset(3, start=lambda: step)
  for begin in (4, 1):
    step.assign(begin)
    for (ids, targets), (other_ids, other_targets) in zip(
        whole[begin:], _batches(dataset, 3)):
      np.testing.assert_array_equal(ids, other_ids)
      np.testing.assert_array_equal(targets, other_targets)


def test_what_is_skipped_is_not_drawn(monkeypatch):
  stream, drawn = _stream(), []
  real = stream.draw
  monkeypatch.setattr(
      stream, "draw", lambda epoch: drawn.append(epoch) or real(epoch))
  _batches(stream.dataset(3, start=1000 * 2 + 1), 1)
  assert drawn[0] == 1000


def test_start_before_the_first_batch():
  with pytest.raises(ValueError, match=(
      "`start` must be the number of batches to skip, at least 0, but is -1")):
    _stream().dataset(3, start=-1)


def test_unknown_targets():
  with pytest.raises(ValueError, match="`learn_from` must be one of .*'labels'"
                     ".*but is 'clicks'"):
    _stream().dataset(3, "clicks")


def test_dataset_has_static_shapes():
  features, targets = _stream().dataset(3).element_spec
  assert features.shape.as_list() == [3, LIST_SIZE, 1]
  assert targets.shape.as_list() == [3, LIST_SIZE]


def test_unknown_feedback():
  with pytest.raises(ValueError, match="`feedback` must be one of .*'click', "
                     "'dwell'.*but is 'views'"):
    _stream("views")
