"""Tests of ultra_tfr.pipeline."""

import functools
import itertools
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_serving.apis import input_pb2

from ultra_tfr import pipeline
from ultra_tfr import scorers
from ultra_tfr.data import elwc
from ultra_tfr.layers import PositionBias
from ultra_tfr.scorers import HeadsScorer

_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
_FLOAT = tf.io.FixedLenFeature([1], tf.float32, 0.0)
_INT = functools.partial(tf.io.FixedLenFeature, [1], tf.int64)
_CLICK = ("click", tf.io.FixedLenFeature([1], tf.float32))
_RANK = ("rank", _INT())
_CONTEXT = {"topic": _FLOAT}
_EXAMPLE = {"1": _FLOAT, "x": tf.io.FixedLenFeature([3], tf.float32, [0.0] * 3)}


def _lists(num_lists=48, seed=0, max_size=6):
  """Lists whose items stand at odd positions, and may be clicked."""
  rng = np.random.default_rng(seed)
  sizes = rng.integers(2, max_size + 1, num_lists)
  splits = np.concatenate([[0], np.cumsum(sizes)])
  docs = splits[-1]
  x = rng.normal(size=[docs, 3]).astype(np.float32)
  grade = (x.sum(axis=1) > 0).astype(np.int64) * 2
  rank = 1 + np.arange(docs) - np.repeat(splits[:-1], sizes)
  return elwc.ElwcLists({
      "x": x, "1": rng.normal(size=docs), "doc": np.arange(docs),
      "grade": grade, "weight": 1.0 + np.arange(docs) % 2,
      "rank": 2 * rank - 1,
      "click": (rng.random(docs) < (.1 + .8 * (grade > 0)) / rank) * 3.0,
  }, splits, {"topic": rng.normal(size=num_lists),
              "device": np.arange(num_lists) % 2})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
  """A pattern of two files, one of them compressed, and their lists."""
  folder = tmp_path_factory.mktemp("files")
  for i, ending in enumerate(["", ".gz"]):
    elwc.write_elwc(folder / f"train-{i}.tfrecord{ending}", _lists(seed=i))
  pattern = str(folder / "train-*")
  return pattern, elwc.read_elwc(pattern)


def _builder(pattern, example=None, list_size=None, batch=8, binary=False,
             label=_CLICK, position=_RANK, context=None, valid=None,
             weight=None, context_spec=None):
  return pipeline.FeedbackDatasetBuilder(
      _CONTEXT if context_spec is None else context_spec, example or _EXAMPLE,
      "mask", label, tfr.keras.pipeline.DatasetHparams(
          pattern, pattern, batch, batch, list_size,
          convert_labels_to_binary=binary), weight, position_spec=position,
      bias_context_spec=context, valid_label_spec=valid)


@pytest.mark.parametrize("list_size", [None, 3, 9])
def test_order_and_positions_survive_truncation(
    files, list_size):
  """A limit of the list size kept items at random, and dropped their clicks.

  What is kept is the head of each list, with its positions, and lost feedback
  is counted.
  """
  pattern, lists = files
  example = {"doc": _INT(-1), **_EXAMPLE}
  builder = _builder(pattern, example, list_size)
  seen = []
  for features, y_true in builder.build_train_dataset(num_epochs=1):
    assert sorted(features) == ["1", "doc", "mask", "topic", "x"]
    for docs, x, y in zip(features["doc"].numpy()[..., 0],
                          features["x"].numpy(), y_true.numpy()):
      valid = docs >= 0
      # The two files count their documents from 0.
      match = np.flatnonzero((lists.examples["x"] == x[0]).all(axis=1))[0]
      rows = np.arange(match, match + valid.sum())
      np.testing.assert_array_equal(docs[valid], lists.examples["doc"][rows])
      np.testing.assert_array_equal(y[valid], np.stack(
          [lists.examples["click"][rows], lists.examples["rank"][rows]], -1))
      assert (y[~valid] == [-1, 0]).all()
      assert match in lists.row_splits
      size = np.diff(lists.row_splits)[list(lists.row_splits).index(match)]
      assert valid.sum() == min(size, list_size or size)
      seen.append(match)
  assert sorted(seen) == lists.row_splits[:-1].tolist()
  assert seen != sorted(seen)  # They were shuffled.
  clicked = lists.examples["click"] > 0
  rank = (lists.examples["rank"] + 1) // 2
  if list_size:
    expected = (clicked[rank > list_size].sum(), clicked.sum())
    assert builder.lost_feedback() == expected
    assert (expected[0] > 0) == (list_size == 3)


def test_what_y_true_is_packed_of(files):
  pattern, lists = files
  first = int(lists.row_splits[1])
  click = lists.examples["click"][:first].tolist()
  rank = lists.examples["rank"][:first].tolist()

  def read(build, **options):
    batch = next(iter(build(_builder(pattern, **options))))
    return (batch[0], *(part.numpy()[0, :first].tolist() for part in batch[1:]))

  valid = pipeline.FeedbackDatasetBuilder.build_valid_dataset
  assert read(valid, position=None)[1] == click
  assert read(valid)[1] == [list(y) for y in zip(click, rank)]
  features, y_true = read(valid, context=("device", _INT(0)), binary=True)
  assert y_true == [[min(c, 1.0), r, 0.0] for c, r in zip(click, rank)]
  assert "device" not in features
  features, y_true, weight = read(
      valid, position=None, context=("device", _INT(0)),
      context_spec={"device": _INT(0)}, weight=("weight", _FLOAT))
  assert y_true == [[c, k + 1.0, 0.0] for k, c in enumerate(click)]
  assert "device" in features
  assert weight == lists.examples["weight"][:first].tolist()
  grade = lists.examples["grade"][:first].tolist()
  assert read(valid, valid=("grade", _INT()))[1] == [
      list(y) for y in zip(grade, rank)]


def _endless_records(path):
  """A source that never ends: whoever wants all of it waits forever."""
  del path

  def records():
    for click in itertools.count():
      lists = input_pb2.ExampleListWithContext()
      feature = lists.examples.add().features.feature
      feature["click"].float_list.value.append(click)
      feature["1"].float_list.value.append(click)
      yield lists.SerializeToString()

  return tf.data.Dataset.from_generator(
      records, output_signature=tf.TensorSpec([], tf.string))


def test_files_are_streamed_and_can_be_read_again(tmp_path):
  """Readers took whole files into the memory, which logs do not fit in."""
  path = tmp_path / "log"
  path.touch()  # Its name is looked up, its content is not read.
  builder = pipeline.FeedbackDatasetBuilder(
      {}, {"1": _FLOAT}, "mask", _CLICK, tfr.keras.pipeline.DatasetHparams(
          str(path), str(path), 4, 4, dataset_reader=_endless_records))
  dataset = builder.build_valid_dataset().take(2)
  for _ in range(2):
    clicks = [y_true.numpy()[:, 0].tolist() for _, y_true in dataset]
    assert clicks == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("options, error, message", [
    ({"label": ("clik", _FLOAT)}, ValueError, "'clik' of the items .* missing"),
    ({"position": ("pos", _INT())}, ValueError, "'pos' .* missing.*rank"),
    ({"context": ("phone", _INT())}, ValueError,
     "'phone' of the lists .* are device, t"),
    ({"label": ("click", _INT())}, ValueError,
     "'click' .* int64, but .* float32"),
    ({"example": {"x": tf.io.FixedLenFeature([3], tf.string)}}, ValueError,
     "'x' of the items should be string, but in .* it is float32"),
    ({"example": {"bm25": _FLOAT}}, UserWarning, "'bm25' .* missing"),
    ({"example": {"rank": _INT()}}, ValueError, "`example_feature.*rank"),
])
def test_wrong_names_and_types_are_told(files, options, error, message):
  """A user misspelt a feature: all had its default, and the loss stayed 0."""
  expect = pytest.warns if error is UserWarning else pytest.raises
  with expect(error, match=message):
    _builder(files[0], **options).build_train_dataset()


class _AttentionScorer(tfr.keras.model.Scorer):
  """Items see each other, by TF-Ranking's attention."""

  def __call__(self, context_features, example_features, mask):
    items = tf.concat([example_features[k] for k in sorted(_EXAMPLE)], -1)
    hidden = tfr.keras.layers.DocumentInteractionAttention(
        num_heads=1, head_size=4, num_layers=1, dropout=.1)(
            inputs=(items, mask))
    return tf.squeeze(tf.keras.layers.Dense(1)(hidden), -1)


def _gam():
  return tfr.keras.model.GAMScorer(
      example_hidden_layer_dims=[8], context_hidden_layer_dims=[8])


_GRADE = ("grade", _INT())


def _dnn(units=8):
  return tfr.keras.model.DNNScorer(hidden_layer_dims=[units], output_units=1)


def _pipeline(files, model_dir, scorer=_dnn, epochs=1, heads=2, strategy=None,
              export=False, position_bias=None, crash_in=None,
              valid=_GRADE, **hparams):
  scorer = scorer() if heads == 1 else HeadsScorer(scorer(), scorer())
  hparams = {"best_exporter_metric": "ndcg_5", "loss": pipeline.LOSS,
             "best_exporter_metric_higher_better": True, **hparams}
  hparams = tfr.keras.pipeline.PipelineHparams(
      str(model_dir), epochs, 20, 2, .01, export_best_model=export,
      strategy=strategy, **hparams)
  run = _Recorded(
      tfr.keras.model.ModelBuilder(
          tfr.keras.model.FeatureSpecInputCreator(_CONTEXT, _EXAMPLE),
          tfr.keras.model.PreprocessorWithSpec(), scorer, "mask"),
      _builder(files[0], list_size=4, valid=valid), hparams,
      position_bias or functools.partial(PositionBias, 8))
  run.crash_in = crash_in
  return run


class _Recorded(pipeline.UnbiasedPipeline):
  """Keeps what happens, and crashes in the epoch `crash_in`."""

  def build_callbacks(self):
    self.logs = []

    def on_epoch_end(epoch, logs):
      self.logs.append({
          "updates": self.position_bias.num_updates.numpy(), **logs})
      if epoch == self.crash_in:
        raise KeyboardInterrupt

    return super().build_callbacks() + [
        tf.keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)]

  def export_saved_model(self, model, export_to, checkpoint=None):
    super().export_saved_model(model, export_to, checkpoint)
    self.model = model


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
  """A pipeline that has run, and its folder."""
  folder = tmp_path_factory.mktemp("trained")
  run = _pipeline(files, folder, functools.partial(_dnn, 64), 2, export=True)
  with pytest.warns(UserWarning, match="items with feedback were beyond"):
    run.train_and_validate()
  return run, folder


@pytest.mark.smoke
def test_tf_rankings_callbacks_and_exports_work(trained):
  run, folder = trained
  # Ten steps an execution, 20 steps in each of two epochs.
  assert [log["updates"] for log in run.logs] == [20, 40]
  for log in run.logs:
    assert log["examination_1"] == 1 > log["examination_7"] > 0
    # Clicks are noise in part; the grades follow from the features.
    assert log["metric/ndcg_5"] < .9 < log["val_metric/ndcg_5"] <= 1
    assert 0 < log["feedback_lost"] < .5
  names = {path.name for path in folder.rglob("*")}
  assert {"train", "validation", "best_checkpoint", "latest_model",
          "best_model_by_metric"} <= names


@pytest.mark.slow
def test_a_run_that_crashed_is_resumed(files, tmp_path):
  run = _pipeline(files, tmp_path, epochs=2, crash_in=0)
  with pytest.raises(KeyboardInterrupt):
    run.train_and_validate()
  again = _pipeline(files, tmp_path, epochs=2)
  again.train_and_validate()
  # The first epoch was backed up before the crash, with its propensities.
  assert [log["updates"] for log in again.logs] == [40]


@pytest.mark.slow
def test_the_logged_order_is_followed_by_held_out_feedback(files, tmp_path):
  guarded = functools.partial(
      PositionBias, 8, trust_bias=None, logged_order_weight=0.25)
  run = _pipeline(files, tmp_path, epochs=2, valid=None, position_bias=guarded)
  run.train_and_validate()
  weights = [0.25, *(log["logged_order_weight"] for log in run.logs)]
  assert len(weights) == 3
  # Two epochs reach neither bound, where the weight stays.
  assert all(b != a and 0.25 <= b / a <= 4.0
             for a, b in zip(weights, weights[1:]))
  with pytest.raises(ValueError, match="^`logged_order_weight` is moved by "
                     "held-out feedback, but .* label 'grade'; leave"):
    _pipeline(files, tmp_path, position_bias=guarded).train_and_validate()


def _serve(plain_tensorflow, path, arrays):
  """Scores of both signatures, in a process that has TensorFlow only."""
  np.savez(path / "in.npz", **arrays)
  done = plain_tensorflow(_SERVE, path, str(path), TF_USE_LEGACY_KERAS="0")
  assert done.returncode == 0, done.stderr[-2000:]
  with np.load(path / "out.npz") as out:
    return dict(out)


_SERVE = """
import sys
import numpy as np
import tensorflow as tf
path = sys.argv[1]
model = tf.saved_model.load(path)
arrays = np.load(path + "/in.npz")
elwcs = [r for r in tf.data.TFRecordDataset(str(arrays["lists"]))]
examples = [r for r in tf.data.TFRecordDataset(str(arrays["items"]))]
names = ("1", "x", "topic", "mask")
out = {
    "predict": model.signatures["tensorflow/serving/predict"](
        tf.stack(elwcs))["outputs"],
    "alone": model.signatures["tensorflow/serving/predict"](
        tf.stack(elwcs[:1]))["outputs"],
    "default": model.signatures["serving_default"](tf.stack(elwcs))["outputs"],
    "regress": model.signatures["tensorflow/serving/regress"](
        tf.stack(examples))["outputs"],
    "score": model.signatures["score"](
        **{n: tf.constant(arrays[n]) for n in names})["scores"]}
np.savez(path + "/out.npz", **{k: v.numpy() for k, v in out.items()})
for name in ("ultra_tfr", "tensorflow_ranking", "tf_keras"):
  assert name not in sys.modules, name
"""


@pytest.mark.smoke
def test_serving_needs_only_tensorflow(trained, plain_tensorflow, tmp_path):
  """Users' exports took ELWC only, or had lost the names of their inputs.

  Both signatures, of ELWC and of tensors, give the model's own scores.
  """
  run, folder = trained
  path = folder / "export" / "best_model_by_metric"
  # What is served has no feedback and no positions, and lists of 9 items.
  lists = _lists(num_lists=6, seed=5, max_size=9)
  bare = elwc.ElwcLists({k: lists.examples[k] for k in _EXAMPLE},
                        lists.row_splits, {"topic": lists.context["topic"]})
  elwc.write_elwc(tmp_path / "bare", bare)
  rows = np.repeat(np.arange(6), np.diff(lists.row_splits))
  with tf.io.TFRecordWriter(str(tmp_path / "examples")) as writer:
    for i, row in enumerate(rows):
      features = {"x": bare.examples["x"][i], "1": [bare.examples["1"][i]],
                  "topic": [bare.context["topic"][row]]}
      writer.write(tf.train.Example(features=tf.train.Features(feature={
          k: tf.train.Feature(float_list=tf.train.FloatList(value=v))
          for k, v in features.items()})).SerializeToString())
  columns, mask = bare.pad()
  size = mask.shape[1]
  # More padding, which must change nothing.
  columns["1"] = np.pad(columns["1"], [(0, 0), (0, 3)])[..., np.newaxis]
  columns["x"] = np.pad(columns["x"], [(0, 0), (0, 3), (0, 0)])
  padded = np.pad(mask, [(0, 0), (0, 3)])
  topic = bare.context["topic"][:, np.newaxis]
  out = _serve(plain_tensorflow, path, {
      **columns, "topic": topic, "mask": padded,
      "lists": str(tmp_path / "bare"), "items": str(tmp_path / "examples")})
  expected = run.model({**columns, "topic": topic, "mask": padded})[
      ..., 0].numpy()[:, :size]
  assert np.std(expected[mask]) > .01
  for scores in (out["predict"], out["default"], out["score"][:, :size]):
    np.testing.assert_allclose(scores[mask], expected[mask], atol=1e-5)
  np.testing.assert_allclose(out["regress"], expected[mask], atol=1e-5)
  first = mask[0].sum()
  np.testing.assert_allclose(out["alone"][0], expected[0, :first], atol=1e-5)
  # Without a list that is longer than the others, too.
  assert out["alone"].shape == (1, first) and first < size


def test_export_is_smaller_than_the_training_model(trained, tmp_path):
  run, folder = trained
  tfr.keras.pipeline.ModelFitPipeline.export_saved_model(
      run, run.model, str(tmp_path))

  def size(path, pattern):
    return sum(p.stat().st_size for p in path.rglob(pattern) if p.is_file())

  exported = folder / "export" / "latest_model"
  for pattern, part in (("variables.data*", .3), ("*", .6)):
    share = size(exported, pattern) / size(tmp_path, pattern)
    print(f"{pattern}: {share:.2f} of the training model")
    assert share < part
  names = [name for name, _ in tf.train.list_variables(
      str(exported / "variables" / "variables"))]
  assert not [n for n in names if "position_bias" in n or "optimizer" in n]


@pytest.mark.parametrize("scorer, heads, strategy", [
    (_gam, 2, None), (_AttentionScorer, 2, None),
    (_dnn, 1, "MirroredStrategy")])
@pytest.mark.slow
def test_any_scorer(files, tmp_path, scorer, heads, strategy):
  run = _pipeline(files, tmp_path, scorer, heads=heads, strategy=strategy)
  run.train_and_validate()
  assert run.logs[0]["updates"] == 20
  elwcs = list(elwc.open_records(
      files[0].replace("*", "0.tfrecord")).as_numpy_iterator())
  predict = tf.saved_model.load(str(tmp_path / "export" / "latest_model")
                                ).signatures["tensorflow/serving/predict"]
  scores = predict(tf.constant(elwcs))["outputs"].numpy()
  for i in range(8):
    alone = predict(tf.constant(elwcs[i:i + 1]))["outputs"].numpy()[0]
    np.testing.assert_allclose(scores[i, :len(alone)], alone, atol=1e-5)


@pytest.mark.parametrize("hparams, error, message", [
    ({"loss": "softmax_loss"}, ValueError, "'unbiased_pairwise_loss' in this"),
    ({"best_exporter_metric_higher_better": False}, ValueError,
     "for 'ndcg_5', but"),
    ({"best_exporter_metric": "loss"}, UserWarning, "moves with the prop"),
    ({"automatic_reduce_lr": True}, UserWarning, "moves with the propensities"),
])
def test_hparams_that_mislead(files, tmp_path, hparams, error, message):
  expect = pytest.warns if error is UserWarning else pytest.raises
  with expect(error, match=message):
    _pipeline(files, tmp_path, export=True, **hparams)


class _Subclassed(tf.keras.Model):

  def call(self, inputs):
    return inputs["x"][..., 0]


class _Given(tfr.keras.model.AbstractModelBuilder):
  """Builds the model that it is given."""

  def __init__(self, model):
    self._model = model

  def build(self):
    return self._model


def _of_arrays(model, folder):
  """A pipeline on datasets of arrays, as TF-Ranking's own builder takes them.
  """
  lists = ({"x": tf.random.normal([4, 3, 2])}, tf.one_hot([0, 1, 2, 0], 3))
  dataset = tf.data.Dataset.from_tensors(lists)
  return pipeline.UnbiasedPipeline(
      _Given(model), tfr.keras.pipeline.NullDatasetBuilder(dataset, dataset),
      tfr.keras.pipeline.PipelineHparams(
          str(folder), 1, 1, 1, 0.1, pipeline.LOSS, strategy=None),
      functools.partial(PositionBias, 3))


@pytest.mark.usefixtures("eagerly")
def test_datasets_of_ones_own(tmp_path):
  """The epoch ended in "no attribute 'lost_feedback'"."""
  inputs = tf.keras.Input([3, 2], name="x")
  scores = tf.keras.layers.Reshape([3])(tf.keras.layers.Dense(1)(inputs))
  run = _of_arrays(tf.keras.Model({"x": inputs}, scores), tmp_path)
  run.train_and_validate()
  assert run.position_bias.num_updates.numpy() == 1
  exported = tf.saved_model.load(str(tmp_path / "export" / "latest_model"))
  # Without signatures of the builder the model itself is what can be called.
  assert exported({"x": tf.zeros([1, 3, 2])}).shape == [1, 3]


def test_a_model_that_cannot_be_exported_is_refused_at_once(tmp_path):
  """All of the training was done when export failed."""
  run = _of_arrays(_Subclassed(), tmp_path)
  with pytest.raises(ValueError, match=(
      "functional Keras model only, but .* is a `_Subclassed` that has no")):
    run.train_and_validate()
  assert run.position_bias.num_updates.numpy() == 0


def test_heads_that_cannot_be_told_apart():
  inputs = tf.keras.Input([None, 2])
  model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs))
  with pytest.raises(ValueError, match="ends with the layer 'dense"):
    scorers.ranking_model(model)


@pytest.mark.slow
def test_example(tmp_path):
  command = [sys.executable, str(_EXAMPLES / "elwc_pipeline.py"),
             f"--make_data={tmp_path}", "--queries=40", "--num_epochs=1",
             f"--train_input_pattern={tmp_path}/train-*.tfrecord.gz",
             f"--valid_input_pattern={tmp_path}/valid.tfrecord.gz",
             f"--model_dir={tmp_path}/model", "--batch_size=8",
             "--steps_per_epoch=10", "--validation_steps=1"]
  out = subprocess.run(command, check=True, capture_output=True, text=True)
  assert "examination, estimated:         [1." in out.stdout
  model = tf.saved_model.load(str(tmp_path / "model/export/latest_model"))
  scores = model.signatures["score"](
      features=tf.random.normal([2, 3, 136]), mask=tf.ones([2, 3], tf.bool))
  assert scores["scores"].shape == [2, 3]
