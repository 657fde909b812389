"""Tests of ultra_tfr.logged_order, and of the weight that it moves."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

import oracles
from ultra_tfr import logged_order
from ultra_tfr.baselines.pointwise import AffineCorrectionLoss
from ultra_tfr.baselines.pointwise import RegressionEMLoss
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.feedback import pack_feedback
from ultra_tfr.layers import PositionBias
from ultra_tfr.logged_order import LoggedOrderGuard
from ultra_tfr.losses import InversePropensityLoss
from ultra_tfr.losses import UnbiasedLoss
from ultra_tfr.losses import UnbiasedPairwiseLoss

K = 4
CURVE = [1.0, 0.5, 0.25, 0.2]


def _bias(weight=0.25, **arguments):
  arguments.setdefault("examination", CURVE)
  return PositionBias(K, logged_order_weight=weight,
                      **{"trust_bias": None, **arguments})


def _model(bias, **arguments):
  """A model whose score is its one feature, and that does not learn."""
  model = tf.keras.Sequential([tf.keras.layers.Reshape(
      [-1], input_shape=(None, 1))])
  model.compile(loss=UnbiasedPairwiseLoss(bias, **arguments))
  return model


def _lists(feedback, scores=None, positions=None):
  """Features and feedback; by default scores are right: the feedback's."""
  feedback = np.asarray(feedback, np.float32)
  scores = np.asarray(feedback if scores is None else scores, np.float32)
  return scores[..., np.newaxis], pack_feedback(feedback, positions)


def _end_epoch(guard, model):
  guard.set_model(model)
  logs = {}
  guard.on_epoch_end(0, logs)
  return logs


CLICKED_LAST = np.tile([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]], [4, 1])


class TestTheWeightOfTheLoss:

  @pytest.mark.parametrize("weight", [0.0, 0.5, 3.0])
  def test_adds_the_double_loop(self, weight):
    scores = [[0.3, -1.0, 2.0, 0.7], [1.0, 0.2, -0.4, 0.0]]
    feedback = [[1.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, -1.0]]
    options = {"reduction": "sum", "head_weight": 0.0, "feedback": "graded"}
    with_it, plain = (
        UnbiasedPairwiseLoss(_bias(part, examination=[.8, .4, .2, .1]),
                             **options)(feedback, scores)
        for part in (weight, None))
    added = sum(
        oracles.logistic_loss(row[a], row[b])
        for row, clicks, size in zip(scores, feedback, [4, 3])
        for a in range(size) for b in range(size) if clicks[a] > clicks[b])
    assert float(with_it) == pytest.approx(
        float(plain) + weight * added, rel=1e-5)

  def test_a_list_counts_by_its_weight(self):
    loss = UnbiasedPairwiseLoss(_bias(2.0), head_weight=0.0, reduction="sum")
    batch = tf.zeros([1, K]), [[0.3, -1.0, 2.0, 0.7]]
    assert float(loss(*batch, [[3.0]])) == pytest.approx(
        3 * float(loss(*batch)))

  def test_clipping_is_reported_without_it(self):
    counted = []
    for weight in (None, 4.0):
      loss = UnbiasedPairwiseLoss(_bias(weight), max_weight=0.5)
      loss.position_bias.start_collecting()
      loss([[1.0, 0.0, 0.0, 1.0]], [[0.3, -1.0, 2.0, 0.7]])
      counted.append(loss.position_bias.take_sums()["counters"].numpy())
    np.testing.assert_allclose(*counted)

  def test_a_large_weight_learns_from_feedback_as_it_is(self):
    """One click at the top outweighs debiased ones that are rarer below."""
    feedback = [[1.0, 0.0, 0.0, 0.0]] * 3 + [[0.0, 0.0, 0.0, 1.0]]
    for weight, first in ((0.0, 3), (16.0, 0)):
      loss = UnbiasedPairwiseLoss(_bias(weight))
      scores = tf.Variable(tf.zeros([1, K]))
      optimizer = tf.keras.optimizers.SGD(0.1)
      for _ in range(50):
        with tf.GradientTape() as tape:
          value = loss(feedback, tf.tile(scores, [4, 1]))
        optimizer.minimize(value, [scores], tape=tape)
      assert np.argmax(scores.numpy()[0]) == first

  def test_the_config_has_it(self):
    again = PositionBias.from_config(_bias(0.75).get_config())
    assert float(again.logged_order_weight) == 0.75
    assert PositionBias.from_config(
        _bias(None).get_config()).logged_order_weight is None


class TestGuard:

  @pytest.mark.parametrize("order, factor", [(1, 0.25), (-1, 4.0)])
  def test_less_for_a_better_ranker_and_more_for_a_worse_one(
      self, order, factor):
    bias = _bias()
    feedback, features = CLICKED_LAST, order * CLICKED_LAST
    guard = LoggedOrderGuard([_lists(feedback, features)])
    logs = _end_epoch(guard, _model(bias))
    assert float(bias.logged_order_weight) == 0.25 * factor
    assert logs["logged_order_weight"] == 0.25 * factor
    assert math.copysign(1, logs["val_lead"]) == order

  @pytest.mark.parametrize("feedback", [CLICKED_LAST[:, ::-1], CLICKED_LAST])
  def test_the_same_order_is_not_better(self, feedback):
    bias = _bias()
    data = [_lists(feedback, np.tile([4, 3, 2, 1], [12, 1]))]
    logs = _end_epoch(LoggedOrderGuard(data), _model(bias))
    assert (logs["val_lead"], logs["logged_order_weight"]) == (0.0, 1.0)

  def test_estimates_that_turn_the_logged_order_round_are_not_believed(self):
    """Under a good logger a steep curve made the reverse look best of all."""
    for scores, sign in (([1, 4, 3, 2], 1), ([1, 2, 3, 4], 1),
                         ([0, 3, 2, 4], -1)):
      bias = _bias()
      # The ranker is ahead of the logged order in all; only the last ranker is
      # ahead of the reverse, which starts with the third item, not the fourth.
      data = [_lists([[0, 0, 0, 1]] * 90 + [[0, 1, 0, 0]] * 30,
                     np.tile(scores, [120, 1]))]
      logs = _end_epoch(LoggedOrderGuard(data), _model(bias))
      assert logs["val_lead"] > 0
      assert sign * (logs["logged_order_weight"] - 0.25) > 0

  @pytest.mark.parametrize("kind, click", [("binary", 1), ("graded", 30)])
  @pytest.mark.parametrize("visits", [1, 2])
  # With scores alone the ranker would be judged by itself, so it is as good.
  @pytest.mark.parametrize("heads, sign, weight", [
      (2, 1, 0.0625), (2, -1, 1.0), (1, 1, 8 ** -0.5)])
  def test_what_nobody_sees_counts_as_a_head_says(
      self, heads, sign, weight, visits, kind, click):
    """Users stop at a click: rankers of what is below it got no credit."""
    bias = PositionBias(K, trust_bias=None, examination_model="browsing",
                        logged_order_weight=0.25)
    bias.examination.assign(np.tile([1.0, 0, 0, 0], K)[np.newaxis])
    bias.num_updates.assign(1)
    # What is best stands last; a head gives the logits, the ranker the same.
    features, feedback = _lists(np.tile([click, 0, 0, 0], [12, 1]),
                                sign * np.tile([0.0, -1.0, -2.0, 5.0], [12, 1]))
    if visits > 1:
      feedback = [feedback] * visits
    model = _model(bias, feedback=kind)
    if heads > 1:
      model = tf.keras.Sequential([tf.keras.layers.Lambda(
          lambda scores: tf.repeat(scores, heads, axis=2),
          input_shape=(None, 1))])
      model.compile(loss=UnbiasedPairwiseLoss(bias, feedback=kind))
    logs = _end_epoch(LoggedOrderGuard([(features, feedback)]), model)
    assert logs["logged_order_weight"] == pytest.approx(weight)

  @pytest.mark.parametrize("head, weight", [(1, 0.0625), (-1, 1.0)])
  def test_the_likeliest_relevance_head_is_a_witness(self, head, weight):
    bias = PositionBias(K, trust_bias="auto", logged_order_weight=0.25)
    bias.num_updates.assign(1)
    support = tf.math.log([0.1, 0.1, 0.7, 0.1])
    bias.evidence.assign(bias.evidence + support - bias._support())
    feedback = np.asarray(CLICKED_LAST, np.float32)
    logged = np.tile([4.0, 3.0, 2.0, 1.0], [len(feedback), 1])
    # The ranker follows the logged order, the third head the feedback.
    heads = np.stack([logged, logged, logged, head * feedback, logged], axis=2)
    model = tf.keras.Sequential([tf.keras.layers.Lambda(
        lambda x: x, input_shape=(None, 5))])
    model.compile(loss=UnbiasedPairwiseLoss(bias))
    _end_epoch(LoggedOrderGuard(
        [(heads.astype(np.float32), feedback)]), model)
    assert float(bias.logged_order_weight) == weight

  @pytest.mark.parametrize("share, start, weight", [
      (0.09, 0.25, 1.0), (0.11, 0.25, 0.0625), (1.1, 0.25, 0.0625),
      # Not beyond the bounds.
      (0.09, 2.0, 4.0), (0.11, 1 / 32, 1 / 64)])
  def test_it_has_to_be_better_by_a_tenth(self, share, start, weight):
    bias = _bias(start, examination=[1.0] * K)
    # The ranker turns two items round: of 100 clicks this many are its own.
    gap = 1.0 - 1.0 / math.log2(3)
    reverse = 1.0 / math.log2(3) - 0.5, 1.0 - 1.0 / math.log2(5)
    clicks = [0.0, 0.0]
    # clicks (second - first) gap = share (second, first) . reverse
    clicks[1] = 100.0
    clicks[0] = clicks[1] * (gap - share * reverse[0]) / (
        gap + share * reverse[1])
    data = [_lists([[clicks[0], clicks[1], 0, 0]] * 9, [[3, 4, 2, 1]] * 9)]
    logs = _end_epoch(LoggedOrderGuard(data), _model(bias))
    assert logs["val_lead"] > 0
    assert logs["logged_order_weight"] == weight

  def test_the_lead_is_that_of_plain_python(self):
    rng = np.random.default_rng(0)
    feedback = rng.integers(0, 2, [30, K]).astype(float)
    scores, positions = rng.normal(size=[30, K]), np.stack(
        [rng.permutation(K) + 1 for _ in range(30)])
    dcg = logged = gain = 0.0
    for c, s, k in zip(feedback, scores, positions):
      estimates = [c[a] / CURVE[k[a] - 1] for a in range(K)]
      for a in range(K):
        dcg += estimates[a] / math.log2(1 + sum(s >= s[a]))
        logged += estimates[a] / math.log2(1 + k[a])
        gain += estimates[a]
    # In two batches.
    data = [_lists(feedback[rows], scores[rows], positions[rows])
            for rows in (slice(0, 20), slice(20, 30))]
    logs = _end_epoch(LoggedOrderGuard(data), _model(_bias()))
    assert logs["val_lead"] == pytest.approx((dcg - logged) / gain, rel=1e-4)

  @pytest.mark.parametrize("overflow, contexts", [
      ("mask", False), ("pool", False), ("mask", True)])
  def test_padding_order_and_unknown_positions_change_nothing(
      self, overflow, contexts):
    rng = np.random.default_rng(1)
    feedback = rng.integers(0, 2, [20, 6]).astype(float)
    scores = rng.normal(size=[20, 6])
    positions = np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 0.0], [20, 1])
    ids = rng.integers(0, 2, 20) if contexts else None
    examination = [CURVE, [0.9, 0.8, 0.3, 0.1]] if contexts else CURVE

    def lead(order, junk):
      bias = _bias(overflow=overflow, examination=examination,
                   num_contexts=2 if contexts else 1)
      batch = [values[:, order] for values in (feedback, scores, positions)]
      for values, filler in zip(batch, junk):
        values[:, np.array(order) < 0] = filler
      data = (batch[1][..., np.newaxis].astype(np.float32),
              pack_feedback(batch[0], batch[2], ids))
      return _end_epoch(LoggedOrderGuard(data), _model(bias))["val_lead"]

    expected = lead([0, 1, 2, 3, 4, 5], ())
    assert expected != 0
    for order, junk in (([3, 1, 5, 0, 2, 4], ()),
                        ([2, -1, 0, 1, 3, 4, 5, -1], (-1.0, 7.0, 2.0)),
                        ([0, 1, -1, 2, 3, 4, 5], (np.nan, 9.0, 0.0))):
      assert lead(order, junk) == pytest.approx(expected, rel=1e-5)

  def test_bounds(self):
    for order, bound in ((1, 1 / 64), (-1, 4.0)):
      bias = _bias(1.0)
      guard = LoggedOrderGuard([_lists(CLICKED_LAST, order * CLICKED_LAST)])
      guard.set_model(_model(bias))
      for _ in range(10):
        guard.on_epoch_end(0)
      assert float(bias.logged_order_weight) == bound

  def test_examination_is_taken_out(self):
    # The logged order has more clicks at its top, but by examination alone.
    feedback = [[1, 0, 0, 0]] * 100 + [[0, 0, 0, 1]] * 60
    scores = np.tile([3, 2, 1, 4], [160, 1])
    for curve, weight in ((CURVE, 0.0625), ([1.0] * K, 1.0)):
      bias = _bias(examination=curve)
      _end_epoch(LoggedOrderGuard([_lists(feedback, scores)]), _model(bias))
      assert float(bias.logged_order_weight) == weight

  @pytest.mark.parametrize("kind, value", [("binary", 1), ("graded", 30)])
  def test_clicks_on_what_is_irrelevant_do_not_count(self, kind, value):
    """With the size of feedback trust put the better ranker behind."""
    # What the top gets beyond the others is such clicks.
    bias = _bias(trust_bias="position", examination=[1.0] * K,
                 trust_positive=[1.0] * K,
                 trust_negative=[0.6, 0.0, 0.0, 0.0])
    feedback = [[value, 0, 0, 0]] * 240 + [[0, 1, 0, 0]] * 160
    scores = np.tile([3, 4, 2, 1], [400, 1])
    _end_epoch(LoggedOrderGuard([_lists(feedback, scores)]),
               _model(bias, feedback=kind))
    assert float(bias.logged_order_weight) == 0.0625

  def test_weights_of_held_out_lists_count(self):
    features, feedback = _lists(
        [[0, 1, 0, 0]] * 40 + [[1, 0, 0, 0]] * 40,
        np.tile([3, 4, 2, 1], [80, 1]))
    for weights, weight in ((np.ones(80), 1.0),
                            (np.repeat([1.0, 0.1], 40), 0.0625)):
      bias = _bias(examination=[1.0] * K)
      _end_epoch(LoggedOrderGuard([(features, feedback, weights)]),
                 _model(bias))
      assert float(bias.logged_order_weight) == weight

  def test_without_feedback_the_weight_stays(self):
    noisy = {"trust_bias": "position", "examination": CURVE,
             "trust_positive": 1.0, "trust_negative": 0.5}
    for arguments, feedback in (
        ({}, np.zeros([3, K])),
        # No more clicks than irrelevant items get.
        (noisy, [[1, 0, 0, 0], [0, 0, 0, 0]]),
        # A single request.
        ({}, [[1, 0, 0, 0]])):
      bias = _bias(**arguments)
      logs = _end_epoch(LoggedOrderGuard(_lists(feedback)), _model(bias))
      assert logs["logged_order_weight"] == 0.25
      assert math.isnan(logs["val_lead"])

  def test_in_fit_with_em_and_a_dataset(self):
    bias = PositionBias(K, trust_bias="position", logged_order_weight=0.25)
    model = tf.keras.Sequential([tf.keras.layers.Dense(
        2, input_shape=(None, 1))])
    model.compile("adam", UnbiasedPairwiseLoss(bias))
    data = tf.data.Dataset.from_tensor_slices(_lists(CLICKED_LAST)).batch(5)
    fitted = model.fit(data, epochs=3, verbose=0,
                       validation_data=data,
                       callbacks=[PropensityEM(), LoggedOrderGuard(data)])
    weights = fitted.history["logged_order_weight"]
    assert len(weights) == 3
    assert all(b / a in (.25, 4.) or b in (1 / 64, 4.)
                 for a, b in zip([0.25, *weights], weights))
    # Judging it is no training: 3 epochs of 3 batches.
    assert float(bias.num_updates) == 9.0

  def test_a_checkpoint_has_the_weight(self, tmp_path):
    bias, again = _bias(), _bias()
    tf.train.Checkpoint(bias=bias).read(tf.train.Checkpoint(
        bias=_bias(4.0)).write(str(tmp_path / "bias"))).assert_consumed()
    assert float(bias.logged_order_weight) == 4.0
    assert float(again.logged_order_weight) == 0.25

  def test_replicas_share_the_weight(self):
    strategy = tf.distribute.MirroredStrategy(
        tf.config.list_logical_devices("CPU")[:2])
    with strategy.scope():
      bias = _bias()
      model = _model(bias)
    _end_epoch(LoggedOrderGuard([_lists(CLICKED_LAST)]), model)
    values = strategy.experimental_local_results(bias.logged_order_weight)
    assert [float(value) for value in values] == [0.0625] * len(values)


class TestGuardMessages:

  def test_a_bias_layer_without_the_weight(self):
    with pytest.raises(ValueError, match="^`LoggedOrderGuard` needs .* whose "
                       "bias layer has a `logged_order_weight`, .*"
                       r"logged_order_weight=0.25\)`.$"):
      LoggedOrderGuard([]).set_model(_model(_bias(None)))

  def test_no_em(self):
    bias = PositionBias(K, logged_order_weight=0.25, trust_bias=None)
    with pytest.raises(ValueError, match="^Without EM the layer "
                       "'position_bias' knows nothing .* give `fit` "
                       r"`ultra_tfr.callbacks.PropensityEM\(\)`, too.$"):
      _end_epoch(LoggedOrderGuard(_lists(CLICKED_LAST)), _model(bias))

  def test_a_score_that_is_no_number(self):
    data = _lists([[0, 1, 0, 0]], [[np.nan, 1, 2, 3]])
    with pytest.raises(ValueError, match="^The training diverged: .* lower the "
                       "learning rate.$"):
      _end_epoch(LoggedOrderGuard(data), _model(_bias()))

  def test_no_batches(self):
    data = (batch for batch in [_lists(CLICKED_LAST)])
    guard, model = LoggedOrderGuard(data), _model(_bias())
    _end_epoch(guard, model)
    with pytest.raises(ValueError, match="gives no batches; pass a tuple, or "
                       "batches that can be iterated again each epoch.$"):
      guard.on_epoch_end(1)

  def test_dwell_for_a_layer_of_clicks(self):
    bias = PositionBias(K, trust_bias="position", logged_order_weight=0.25)
    bias.num_updates.assign(1)
    guard = LoggedOrderGuard([_lists([[0.0, 31.5, 0.0, 0.0]])])
    with pytest.raises(ValueError, match="must hold clicks, 0 or 1 or their "
                       "means, .* but has 31.5; pack `feedback > 0`, or give "
                       "the loss `feedback='graded'`.$"):
      _end_epoch(guard, _model(bias))


def test_move_weight_needs_no_model():
  bias = _bias()
  ahead = logged_order.move_weight(bias, (np.array(
      [[1.0, 1.5, 0.4], [0.2, 0.1, 0.1], [0.1, 0.0, 0.0]]), [2.0, 2.0, 1.0]))
  assert ahead == pytest.approx(0.5)
  assert float(bias.logged_order_weight) == 0.0625


@pytest.mark.parametrize("witness, weight", [
    ([1.0, 1.5, 0.4], 0.0625), ([0.2, 0.1, 0.1], 1.0)])
def test_a_ranker_that_the_weight_does_not_touch_is_heard(witness, weight):
  """One that followed the logged order was never ahead of it, and stayed so."""
  bias = _bias()
  ahead = logged_order.move_weight(bias, (np.array(
      [[0.2, 0.1, 0.1], [0.2, 0.1, 0.1], [0.1, 0.0, 0.0], witness]),
                                          [2.0, 2.0, 1.0]))
  assert ahead == 0.0
  assert float(bias.logged_order_weight) == weight


@pytest.mark.parametrize("other, weight", [(1.4, 1.0), (1.6, 0.0625)])
def test_hypotheses_that_differ_keep_some_of_the_logged_order(other, weight):
  """Too steep a curve made a weak logged order look like none."""
  bias = _bias()
  logged_order.move_weight(bias, *(
      (np.array([[dcg] * 3, [1.0] * 3, [0.5] * 3]), np.ones(3))
      for dcg in (4.0, other)))
  assert float(bias.logged_order_weight) == weight


def test_the_guard_also_asks_the_simplest_hypothesis():
  """By the likeliest one the last item is best, by the other the first."""
  feedback = np.tile([[1, 0, 0, 0]] * 3 + [[0, 0, 0, 1]] * 2, [99, 1])
  weights = []
  for names in (["browsing"], ["browsing", "position"]):
    bias = PositionBias(K, trust_bias="auto", logged_order_weight=0.25)
    bias.num_updates.assign(1)
    bias.evidence.assign([0.0, 0.0, 500.0, 0.0])
    for model in bias.models:
      # Far down hardly anybody looks, as far as these hypotheses say.
      is_steep = model.hypothesis.name in names
      curve = [0.8, 0.4, 0.2, 0.08] if is_steep else [0.8] * K
      model.variables["examination"].assign(
          np.repeat([curve], model.num_distances, axis=1))
    features = np.tile([3.0, 2.0, 1.0, 4.0], [len(feedback), 1])
    model = _model(bias)
    _end_epoch(LoggedOrderGuard([_lists(feedback, features)]), model)
    weights.append(float(bias.logged_order_weight))
  assert weights[0] > 0.25 and weights[1] == 0.0625


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shift, weight", [
    (-1.0, 4.0), (-0.25, 2.0), (0.25, 1.0), (0.5, 0.5 ** 0.5), (2.0, 0.25)])
def test_it_moves_by_how_clearly_a_ranker_is_better(seed, shift, weight):
  """A lead that chance could give moved it as far as one that it could not."""
  rng = np.random.default_rng(seed)
  dcg, logged, reverse = rng.normal(size=[3, 40])
  reverse -= 3.0
  surplus = [d - c - 0.1 * (c - r) for d, c, r in zip(dcg, logged, reverse)]
  mean = sum(surplus) / 40
  error = math.sqrt(sum((x - mean) ** 2 for x in surplus) / 40 / 40)
  bias = _bias(1.0)
  # Shifted so that it is ahead by so many standard errors.
  logged_order.move_weight(bias, (np.stack(
      [dcg - mean + shift * error, logged, reverse]), np.ones(40)))
  assert float(bias.logged_order_weight) == pytest.approx(weight)


def test_one_ranker_must_be_better_by_all_hypotheses():
  """Of users like none, the likeliest hypothesis saw a lead that was not."""
  better, worse = [1.2, 1.3, 1.1], [0.8, 0.7, 0.9]
  for first, second, sign in (
      ((better, better), (better, worse), -1),
      ((better, better), (worse, worse), 1),
      ((better, worse), (worse, better), 1)):
    bias = _bias()
    logged_order.move_weight(bias, *(
        (np.array([ranker, [1.0] * 3, [0.5] * 3, witness]), np.ones(3))
        for ranker, witness in (first, second)))
    assert sign * (float(bias.logged_order_weight) - 0.25) > 0


@pytest.mark.parametrize("create", [
    RegressionEMLoss, AffineCorrectionLoss,
    lambda bias: UnbiasedLoss(bias, tfr.keras.losses.SoftmaxLoss()),
    lambda bias: InversePropensityLoss(bias, tfr.keras.losses.SoftmaxLoss())])
def test_a_loss_without_pairs_has_no_use_for_the_logged_order(create):
  """Its layer had the weight, but nobody read it."""
  bias = PositionBias(2, trust_bias=None, examination=[1.0, 0.5],
                      logged_order_weight=1.0)
  with pytest.raises(ValueError, match="does not heed the logged order, but "
                     "its layer has a `logged_order_weight`; leave that out"):
    create(bias)
