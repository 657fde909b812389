"""Tests of ultra_tfr.scorers."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr

from ultra_tfr import scorers


def _features(num_lists=3, size=4, num_features=5, seed=0):
  rng = np.random.default_rng(seed)
  return rng.normal(
      size=[num_lists, size, num_features]).astype(np.float32)


@pytest.mark.parametrize("heads, shape", [
    (1, [3, 4]), (2, [3, 4, 2]), (3, [3, 4, 3])])
def test_shapes_and_types(heads, shape):
  model = scorers.build_model(5, num_heads=heads, hidden_units=[4])
  assert model.output_shape == (None, None, heads)[:2 + (heads > 1)]
  scores = model(_features())
  assert scores.shape == shape
  assert scores.dtype == tf.float32


def test_layers_are_named_by_head():
  model = scorers.build_model(5, num_heads=3, hidden_units=[4])
  names = [layer.name for layer in model.layers]
  for name in (scorers.RANKING_LAYER, "relevance_logits",
               "preference_logits"):
    assert name in names
  outputs = model(_features()).numpy()
  ranking = model.get_layer(scorers.RANKING_LAYER)(_features()).numpy()
  np.testing.assert_allclose(outputs[..., 0], ranking[..., 0], rtol=1e-6)


def test_towers_share_nothing():
  model = scorers.build_model(5, num_heads=2, hidden_units=[4])
  with tf.GradientTape(persistent=True) as tape:
    scores = model(_features())
    parts = [tf.reduce_sum(scores[..., head]) for head in range(2)]
  # Both heads have all variables of their own, or none of a variable's.
  for variable in model.trainable_weights:
    used = [g is not None and bool(np.any(g)) for g in (
        tape.gradient(part, variable) for part in parts)]
    assert not all(used)


def test_items_are_scored_alone():
  model = scorers.build_model(5, num_heads=2, hidden_units=[4])
  features = _features()
  scores = model(features).numpy()
  order = [2, 0, 3, 1]
  np.testing.assert_allclose(
      model(features[:, order]), scores[:, order], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
      model(features[:1, :2]), scores[:1, :2], rtol=1e-5, atol=1e-6)


def test_each_argument_changes_the_model():
  base = dict(num_features=5, hidden_units=(4,))
  plain = scorers.build_model(**base)
  assert plain.count_params() == 5 * 4 + 4 + 2 * 4 + 4 + 1
  assert scorers.build_model(
      **base, layer_norm=False).count_params() == plain.count_params() - 8
  assert scorers.build_model(
      5, hidden_units=(4, 3)).count_params() > plain.count_params()

  def outputs(**arguments):
    tf.keras.utils.set_random_seed(0)
    return scorers.build_model(**base, **arguments)(
        _features(), training=True).numpy()

  assert np.abs(outputs(activation="relu") - outputs()).max() > 1e-3
  assert np.abs(outputs(dropout=.5) - outputs()).max() > 1e-3
  assert np.abs(outputs(
      preprocessing=scorers.SignedLog()) - outputs()).max() > 1e-3
  np.testing.assert_array_equal(outputs(), outputs())


def test_half_precision_ends_in_float32():
  policy = tf.keras.mixed_precision.global_policy()
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    for heads in (1, 2):
      model = scorers.build_model(5, num_heads=heads, hidden_units=[4])
      assert model(_features()).dtype == tf.float32
  finally:
    tf.keras.mixed_precision.set_global_policy(policy)


@pytest.mark.parametrize("heads", [2, 3])
def test_relevance_head_alone_starts_at_a_probability(heads):
  model = scorers.build_model(5, num_heads=heads, hidden_units=[4])
  features = np.random.default_rng(0).normal(size=[2, 3, 5])
  before = model(features).numpy()
  scorers.start_relevance(model, 0.2 * 0.9)  # EM starts at .9.
  moved = model(features).numpy() - before
  np.testing.assert_allclose(
      moved, np.log(0.25) * (np.arange(heads) == 1) + np.zeros([2, 3, heads]),
      atol=1e-6)


@pytest.mark.parametrize("hidden_units", [[], [4]])
def test_scores_that_are_relevance_logits_start_flat(hidden_units):
  model = scorers.build_model(5, hidden_units=hidden_units)
  scorers.start_relevance(model, 0.2 * 0.9)  # EM starts at .9.
  features = np.random.default_rng(0).normal(size=[2, 3, 5])
  np.testing.assert_allclose(model(features), np.full([2, 3], np.log(0.25)),
                             atol=1e-6)


@pytest.mark.parametrize("heads", [0, 4])
def test_bad_number_of_heads(heads):
  with pytest.raises(ValueError, match=f"`num_heads` .* {heads}"):
    scorers.build_model(5, num_heads=heads, hidden_units=[4])


@pytest.mark.parametrize("name", ["model.keras", "saved_model"])
def test_save_and_load(name, tmp_path):
  features = 100. * np.abs(_features())
  model = scorers.build_model(
      5, scorers.feature_preprocessing(features), num_heads=2,
      hidden_units=[4])
  model.save(str(tmp_path / name))
  again = tf.keras.models.load_model(str(tmp_path / name))
  np.testing.assert_allclose(
      again.predict(features, verbose=0), model.predict(features, verbose=0),
      rtol=1e-5)


def test_signed_log():
  values = tf.constant([-1e6, -1., 0., 1., 1e6])
  result = scorers.SignedLog()(values).numpy()
  np.testing.assert_allclose(
      result, np.sign(values) * np.log1p(np.abs(values)), rtol=1e-6)
  np.testing.assert_array_equal(result, -result[::-1])


def test_preprocessing_standardises_the_logs():
  features = np.exp(3. * _features(num_lists=50))
  features[..., 1] *= -1.
  features[..., 2] = 7.  # Constant: neither NaN nor blown up.
  result = scorers.feature_preprocessing(features)(features).numpy()
  np.testing.assert_allclose(result.mean(axis=(0, 1)), np.zeros(5), atol=1e-4)
  np.testing.assert_allclose(
      result.std(axis=(0, 1)), [1, 1, 0, 1, 1], atol=1e-3)


def test_what_training_never_saw_hardly_moves_a_score():
  """A constant feature that changes, or an infinite one, took scores away."""
  features = np.abs(_features(num_lists=50))
  features[..., 2] = 7.
  layer = scorers.feature_preprocessing(features)
  model = scorers.build_model(5, layer, hidden_units=[4])
  usual = model(features[:1]).numpy()
  for place, values in ((2, (0., -1e30, np.inf, np.nan)),
                        (1, (np.inf, -np.inf, np.nan))):
    for value in values:
      changed = features[:1].copy()
      changed[..., place] = value
      mean = features[:1].copy()
      mean[..., place] = np.expm1(np.log1p(features[..., place]).mean())
      np.testing.assert_allclose(model(changed), model(mean), atol=1e-5)
  np.testing.assert_allclose(layer(features[:1])[..., 2], 0.)
  assert np.ptp(usual) > 0


def test_preprocessing_of_some_rows():
  features = _features()
  mask = np.ones([3, 4], bool)
  mask[:, 2:] = False
  padded = np.where(mask[..., np.newaxis], features, 1e9).astype(np.float32)
  np.testing.assert_allclose(
      scorers.feature_preprocessing(padded, mask)(features),
      scorers.feature_preprocessing(features[:, :2])(features), rtol=1e-5)


def test_preprocessing_of_more_rows_than_are_read_at_a_time(monkeypatch):
  features = _features(num_lists=50)
  features[:20, :, 0] += 9.  # The parts differ in their means.
  whole = scorers.feature_preprocessing(features)(features)
  monkeypatch.setattr(scorers, "_ROWS_AT_A_TIME", 7)
  np.testing.assert_allclose(
      scorers.feature_preprocessing(features)(features), whole, atol=1e-5)


def test_preprocessing_needs_a_row():
  with pytest.raises(ValueError, match="`features` must have at least one row"):
    scorers.feature_preprocessing(_features(), np.zeros([3, 4], bool))


def _dnn(units=4):
  return tfr.keras.model.DNNScorer(
      hidden_layer_dims=[units], output_units=1)


@pytest.mark.parametrize("heads", [2, 3])
def test_heads_scorer(heads):
  tf.keras.utils.set_random_seed(0)
  scorer = scorers.HeadsScorer(*[_dnn() for _ in range(heads)])
  mask = tf.constant([[True, True, True, False]] * 3)
  scores = scorer({}, {"x": tf.constant(_features())}, mask)
  assert scores.shape == [3, 4, heads]
  assert scores.dtype == tf.float32
  assert np.all(np.ptp(scores.numpy()[:, :3], axis=2) > 0)
  # What TF-Ranking's scorers give for padding.
  np.testing.assert_allclose(
      scores[:, 3], np.full([3, heads], np.log(1e-10)), rtol=1e-5)


def test_heads_scorer_in_the_model_builder():
  class Inputs(tfr.keras.model.InputCreator):
    def __call__(self):
      return {}, {"x": tf.keras.Input([None, 5], name="x")}

  builder = tfr.keras.model.ModelBuilder(
      input_creator=Inputs(),
      preprocessor=lambda context, example, mask: (context, example),
      scorer=scorers.HeadsScorer(_dnn(), _dnn()),
      mask_feature_name="mask", name="two_heads")
  model = builder.build()
  scores = model({"x": _features(), "mask": np.ones([3, 4], bool)})
  assert scores.shape == [3, 4, 2]


@pytest.mark.parametrize("arguments, message", [
    ({"num_features": "3"}, "`num_features` must be a whole number"),
    ({"hidden_units": "64"}, "`hidden_units` must be a whole number .* '6'"),
    ({"relevance_units": [8.5]}, "`relevance_units` must be .* 8.5"),
    ({"dropout": "0.1"}, r"`dropout` must be in \[0, 1\), but is '0.1'")])
def test_texts_for_numbers_are_refused(arguments, message):
  """They were taken for sizes, or failed with the words of TensorFlow."""
  with pytest.raises(ValueError, match=message):
    scorers.build_model(**{"num_features": 3, **arguments})
