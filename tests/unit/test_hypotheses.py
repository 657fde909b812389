"""Hypotheses about the users, side by side in one bias layer."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import ultra_tfr
from ultra_tfr import e_step
from ultra_tfr import hypotheses
from ultra_tfr.callbacks import PropensityEM
from ultra_tfr.core import examination
from ultra_tfr.feedback import read_batch
from ultra_tfr.layers import PositionBias
from ultra_tfr.losses import UnbiasedPairwiseLoss

K = 4
NAMES = [hypothesis.name for hypothesis in hypotheses.HYPOTHESES]


def distance_code(clicks, k):
  """0 without a click above item k, else the distance to the last one."""
  above = [m for m in range(k) if clicks[m]]
  return k - above[-1] if above else 0


def pattern_probability(clicks, relevance, relevant, irrelevant):
  """P(these clicks) of users who browse from the top, in plain Python."""
  probability = 1.0
  for k, clicked in enumerate(clicks):
    d = distance_code(clicks, k)
    click = (relevant[k][d] * relevance[k] +
             irrelevant[k][d] * (1.0 - relevance[k]))
    probability *= click if clicked else 1.0 - click
  return probability


def browsing_layer(relevant, irrelevant):
  layer = PositionBias(K, trust_bias="position", examination_model="browsing")
  layer.examination.assign(np.reshape(relevant, [1, K * K]))
  layer.click_irrelevant.assign(np.reshape(irrelevant, [1, K * K]))
  return layer


@pytest.mark.parametrize("with_noise", [False, True])
@pytest.mark.parametrize("looks_on", [None, 0.01, 0.001])
def test_pair_weights_are_exact_where_users_browse(with_noise, looks_on):
  # All 16 click patterns of a list, each as often as it happens: the mean
  # weight of a pair, in both orders, is the chance that it is so ordered; also
  # where users (nearly) stop at a click, and the model has to stand in.
  rng = np.random.default_rng(3)
  relevance = rng.uniform(0.2, 0.8, K)
  relevant = rng.uniform(0.3, 0.9, [K, K])
  irrelevant = with_noise * rng.uniform(0.05, 0.25, [K, K])
  if looks_on is not None:
    relevant[:, 1:] *= looks_on
    irrelevant[:, 1:] *= looks_on
  patterns = list(itertools.product([0, 1], repeat=K))
  chances = np.array([pattern_probability(p, relevance, relevant, irrelevant)
                      for p in patterns])
  assert chances.sum() == pytest.approx(1.0)
  logits = np.log(relevance / (1.0 - relevance))
  heads = np.tile(np.stack([0 * logits, logits], -1), [len(patterns), 1, 1])
  # The order of the items in a tensor is not that on the page.
  order = [2, 0, 3, 1]
  clicks = np.array(patterns, np.float32)[:, order]
  positions = np.tile(np.array(order) + 1, [len(patterns), 1])
  layer = browsing_layer(relevant, irrelevant)
  step = e_step.EStep(
      read_batch(ultra_tfr.pack_feedback(clicks, positions),
                 heads[:, order].astype(np.float32), None, layer),
      layer, e_step.Options())
  found = np.tensordot(chances, step.pair_weights() + step.unseen_weights(), 1)
  expected = relevance[order][:, np.newaxis] * (1 - relevance[order])
  np.fill_diagonal(expected, 0.0)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_likelihood_of_browsing_users_is_that_of_the_patterns():
  rng = np.random.default_rng(4)
  relevance = rng.uniform(0.2, 0.8, K)
  relevant = rng.uniform(0.3, 0.9, [K, K])
  irrelevant = rng.uniform(0.05, 0.25, [K, K])
  layer = browsing_layer(relevant, irrelevant)
  clicks = np.array(list(itertools.product([0, 1], repeat=K)), np.float32)
  logits = np.tile(np.log(relevance / (1 - relevance)), [len(clicks), 1])
  y_pred = np.stack([0 * logits, logits], -1).astype(np.float32)
  metric = ultra_tfr.metrics.ClickLogLikelihood(layer)
  metric.update_state(clicks, y_pred)
  expected = np.mean([
      np.log(pattern_probability(p, relevance, relevant, irrelevant))
      for p in clicks]) / K
  np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)


def test_several_hypotheses_weigh_pairs_by_how_far_each_is_believed():
  rng = np.random.default_rng(5)
  layer = PositionBias(K)
  singles = []
  for model in layer.models:
    size = K * model.num_distances
    own = rng.uniform(0.3, 0.9, [1, size]).astype(np.float32)
    model.variables["examination"].assign(own)
    model.variables["click_irrelevant"].assign(own * 0.2)
    single = PositionBias(
        K, trust_bias="position",
        examination_model="browsing" if model.num_distances > 1 else None)
    single.examination.assign(own)
    single.click_irrelevant.assign(own * 0.2)
    singles.append(single)
  shares = np.array([0.1, 0.2, 0.3, 0.4])
  sizes = 2 * np.array([4, 4, 10, 10])  # Each parameter costs 1.
  layer.evidence.assign(np.log(shares) + sizes)
  np.testing.assert_allclose(layer.shares(), shares, rtol=1e-5)
  clicks = (rng.random([6, K]) < 0.4).astype(np.float32)
  heads = rng.normal(size=[6, K, 5]).astype(np.float32)
  found = e_step.EStep(
      read_batch(clicks, heads, None, layer), layer,
      e_step.Options()).pair_weights() * layer.scale()
  expected = sum(
      share * single.scale() * e_step.EStep(
          read_batch(clicks, heads[..., [0, 1 + i]], None, single), single,
          e_step.Options()).pair_weights()
      for i, (share, single) in enumerate(zip(shares, singles)))
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def fit(world, seed=0, steps=250, heads=5, size=5):
  """A layer that saw clicks on items of known relevance."""
  rng = np.random.default_rng(seed)
  relevance = rng.uniform(0.05, 0.95, [steps * 64, size])
  draws = rng.random([2, steps * 64, size])
  clicks = world(relevance, *draws).astype(np.float32)
  logits = np.log(relevance / (1.0 - relevance)).astype(np.float32)
  y_pred = logits if heads == 1 else np.repeat(
      logits[..., np.newaxis], heads, -1)
  inputs = tf.keras.Input(y_pred.shape[1:])
  model = tf.keras.Model(inputs, tf.identity(inputs))
  layer = PositionBias(size)
  model.compile("sgd", UnbiasedPairwiseLoss(layer))
  history = model.fit(
      y_pred, clicks, batch_size=64, verbose=0, shuffle=False,
      callbacks=[PropensityEM()]).history
  return layer, model, history


CURVE = np.array([0.9, 0.7, 0.5, 0.35, 0.25])


def look_by_position(relevance, examined, clicked):
  return (examined < CURVE) & (clicked < relevance)


def trust_the_top(relevance, examined, clicked):
  noise = np.array([0.5, 0.25, 0.17, 0.13, 0.1])
  return (examined < CURVE) & (
      clicked < relevance + noise * (1 - relevance))


def stop_after_a_click(relevance, examined, clicked):
  clicks = (examined < 0.9) & (clicked < relevance)
  return clicks & (np.cumsum(clicks, axis=1) == 1)


@pytest.mark.parametrize("world, expected", [
    (look_by_position, {"position"}), (trust_the_top, {"trust"}),
    (stop_after_a_click, {"browsing"})])
def test_the_users_are_recognised(world, expected):
  layer, _, history = fit(world)
  found = layer.hypotheses()
  first = next(iter(found))
  assert {first} == expected
  assert found[first]["behind"] == 0
  second = list(found.values())[1]
  assert second["behind"] > 3
  assert sum(entry["share"] for entry in found.values()) == pytest.approx(1)
  assert history[f"hypothesis_{first}"][-1] > 0.9
  if world is look_by_position:
    np.testing.assert_allclose(
        layer.propensities()["examination"], CURVE / CURVE[0], atol=0.06)
  if world is stop_after_a_click:
    assert found[first]["words"] == "users stop after a click"


def test_with_scores_alone_each_hypothesis_has_a_shift():
  layer, model, _ = fit(look_by_position, heads=1, steps=40)
  shifts = [float(m.variables["relevance_shift"]) for m in layer.models]
  assert len(set(shifts)) == len(shifts)
  scores = tf.constant([[0.3, -0.2, 0.1, 0.0, 0.5]])
  np.testing.assert_allclose(
      layer.relevance_logits([scores])[:, 0],
      scores + np.array(shifts)[:, np.newaxis], rtol=1e-6)


def test_other_numbers_of_heads_are_errors():
  layer = PositionBias(3)
  with pytest.raises(ValueError, match=(
      "`y_pred` must have 5 heads for the layer 'position_bias', a ranking "
      r"score and 4 relevance logit\(s\), .* but has 3 heads; see `bui")):
    UnbiasedPairwiseLoss(layer)([[1., 0., 0.]], tf.zeros([1, 3, 3]))


def test_what_is_believed_is_saved(tmp_path):
  layer, model, _ = fit(trust_the_top, steps=40)
  path = str(tmp_path / "model.keras")
  model.save(path)
  again = tf.keras.models.load_model(path).loss.position_bias
  assert json.dumps(again.get_config()) == json.dumps(layer.get_config())
  np.testing.assert_array_equal(again.evidence, layer.evidence)
  for one, other in zip(again.models, layer.models):
    for name, variable in other.variables.items():
      np.testing.assert_array_equal(one.variables[name], variable)
  assert np.ptp(layer.evidence.numpy()) > 1


def test_a_seldom_seen_distance_borrows_from_its_position():
  layer = PositionBias(3, trust_bias="auto", examination_model="browsing",
                       smoothing=20.0, initial_examination=0.5)
  layer.start_collecting()
  loss = UnbiasedPairwiseLoss(layer)
  rng = np.random.default_rng(6)
  clicks = (rng.random([400, 3]) < 0.3).astype(np.float32)
  # Nobody clicked on both of the first two positions.
  clicks[clicks[:, 0] > 0, 1] = 0
  for _ in range(30):
    loss(clicks, tf.zeros([400, 3]))
    layer.update()
  first = layer.models[0]
  theta = tf.reshape(first.variables["examination"], [3, 3]).numpy()
  seen = layer.seen(first)[0, :, :, examination.COUNT].numpy()
  # Position 2 after a click on 1: seen, and never clicked.
  assert seen[1, 1] > 50
  assert theta[1, 1] < 0.2 * theta[1, 0]
  # At position 1 there is never a click above: it is that of the position.
  assert seen[0, 1] == 0
  np.testing.assert_allclose(theta[0], theta[0, 0], rtol=0.05)


@pytest.mark.parametrize("arguments, message", [
    ({"trust_positive": .9, "trust_negative": .1},
     "`trust_bias='auto'` finds out what users are like, but their trust is"),
    ({"examination": [1., .5], "trust_positive": .9, "trust_negative": .1},
     "`trust_bias` is None"),
    ({"examination_model": "browsing", "examination": [1., .5]},
     "`examination_model='browsing'` learns its tables"),
    ({"examination_model": "browsing", "trust_bias": "pairwise"},
     "`examination_model='browsing'` learns its tables"),
    ({"examination_model": "cascade"}, "`examination_model` must be one of"),
    ({"initial_click_irrelevant": .1},
     "`initial_click_irrelevant` needs `trust_bias='position'`")])
def test_arguments_that_do_not_fit(arguments, message):
  with pytest.raises(ValueError, match=message.replace("(", r"\(")):
    PositionBias(2, **arguments)


def test_known_examination_leaves_one_model_of_users():
  layer = PositionBias(2, examination=[1., .5])
  assert layer.trust_bias is None and len(layer.models) == 1
  assert len(PositionBias(2).models) == len(hypotheses.HYPOTHESES)


def test_hypotheses_have_names_of_their_own():
  assert len(set(NAMES)) == len(NAMES) == 4
