"""Small ELWC files with simulated clicks, to try the programs beside it with.

They stand in place of a log. Users of `PositionBasedModel` click on five to ten
items a list in the order of a poor ranker; a validation file has true grades.
"""

import os

from absl import app
from absl import flags
import numpy as np
from ultra_tfr.data import elwc
from ultra_tfr.simulation.click_models import PositionBasedModel

_QUERIES = flags.DEFINE_integer("queries", 1000, "Lists of the files made.")

# Of what the files hold besides features.
CLICK, POSITION = "click", "position"
MAX_ITEMS = 10
_WORDS = np.array([f"word{i:02d}" for i in range(60)])
_NUM_TOKENS, _NUM_QUERY_TOKENS = 8, 3


def find_or_make(names, write, folder):
  """Sets flags that name files to files made here, if none of them is given.

  Args:
    names: of the flags.
    write: a function of a folder and a number of lists that writes the files
      and gives their paths, in the order of `names`.
    folder: where they go.

  Raises:
    app.UsageError: if only some of the flags are given.
  """
  missing = [name for name in names if flags.FLAGS[name].value is None]
  if not missing:
    return
  if len(missing) < len(names):
    raise app.UsageError(
        f"--{missing[0]} is missing; give all of --{', --'.join(names)}, or "
        "none of them to try the program with files that it makes.")
  os.makedirs(folder, exist_ok=True)
  for name, path in zip(names, write(folder, _QUERIES.value)):
    flags.FLAGS[name].value = path


def write_numbers(folder, num_lists, num_features, label):
  """Writes items with a feature for each of `num_features` numbers.

  Args:
    folder: where the files go.
    num_lists: how many lists each of them has.
    num_features: how many features "custom_features_1", .. an item has.
    label: the feature with the true grade, a float.

  Returns:
    A tuple of the paths of the files to train and to validate on.
  """
  def draw(rng, shape):
    values = rng.normal(size=(*shape, num_features))
    return values[..., :3].sum(axis=-1), {
        f"custom_features_{i + 1}": values[..., i]
        for i in range(num_features)}, {}

  return _write(folder, num_lists, draw, label, np.float32)


def write_texts(folder, num_lists, label):
  """Writes queries and documents of words, and a file with all words.

  Args:
    folder: where the files go.
    num_lists: how many lists each of them has.
    label: the feature with the true grade, an integer.

  Returns:
    A tuple of the paths of the files to train and to validate on, and of the
    vocabulary.
  """
  def draw(rng, shape):
    words = rng.integers(len(_WORDS), size=(*shape, _NUM_TOKENS))
    query = rng.integers(len(_WORDS), size=(shape[0], _NUM_QUERY_TOKENS))
    # The later a word in the vocabulary, the better the document.
    return words.mean(axis=-1), {"document_tokens": _WORDS[words]}, {
        "query_tokens": _WORDS[query]}

  vocabulary = os.path.join(folder, "vocab.txt")
  with open(vocabulary, "w", encoding="utf-8") as file:
    file.write("\n".join(_WORDS) + "\n")
  return *_write(folder, num_lists, draw, label, np.int64), vocabulary


def _write(folder, num_lists, draw, label, label_type):
  """Writes a file with clicks and one with grades; gives their paths."""
  paths = [os.path.join(folder, f"{part}.tfrecord")
           for part in ("train", "valid")]
  for seed, path in enumerate(paths):
    rng = np.random.default_rng(seed)
    shape = num_lists, MAX_ITEMS
    appeal, examples, context = draw(rng, shape)
    sizes = rng.integers(MAX_ITEMS // 2, MAX_ITEMS + 1, num_lists)
    mask = np.arange(MAX_ITEMS) < sizes[:, np.newaxis]
    # Half of the items are of no use, few are of the highest grade, 4.
    grades = np.searchsorted(np.quantile(appeal, [.5, .7, .85, .95]), appeal)
    # A poor ranker's order: better items are a bit more often on top.
    noise = 2.0 * appeal.std() * rng.normal(size=shape)
    order = np.argsort(np.where(mask, -appeal + noise, np.inf), axis=1)
    grades, *values = (
        np.take_along_axis(array, order.reshape(
            order.shape + (1,) * (array.ndim - 2)), axis=1)
        for array in (grades, *examples.values()))
    examples = dict(zip(examples, values))
    if seed:
      examples[label] = grades.astype(label_type)
    else:
      labels = np.where(mask, grades, -1)
      clicks = PositionBasedModel().sample(labels, seed).clicks
      examples[CLICK] = clicks.astype(np.int64)
      examples[POSITION] = np.broadcast_to(1 + np.arange(MAX_ITEMS), shape)
    elwc.write_elwc(path, elwc.ElwcLists.from_padded(examples, mask, context))
  return tuple(paths)


def curves(bias):
  """The true curve of the simulated users and that of a layer, as two lines."""
  true = PositionBasedModel().examination(bias.num_positions)
  estimated = bias.propensities()["examination"]
  return (f"examination, true if simulated: {(true / true[0]).round(2)}\n"
          f"examination, estimated:         {estimated.round(2)}")
