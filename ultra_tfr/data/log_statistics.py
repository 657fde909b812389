"""What the features of a log look like: for preprocessing, saved with a model.

Means, variances and vocabularies are those of the training part, gathered while
it is read.
"""

import collections

import numpy as np
import pyarrow.compute as pc


class FeatureStatistics:
  """Gathers statistics of features, batch after batch.

  Args:
    numeric_features: their names.
    text_features: their names.
    max_vocabulary: values of a text feature that are told apart; a feature
      with more of them is hashed into so many bins.
  """

  def __init__(self, numeric_features, text_features, max_vocabulary=10000):
    self._names = list(numeric_features)
    self._text_names = list(text_features)
    self._max_vocabulary = max_vocabulary
    size = len(self._names)
    self._count, self._missing = np.zeros(size), np.zeros(size)
    self._sum, self._squares = np.zeros(size), np.zeros(size)
    self._values = {name: collections.Counter() for name in text_features}

  def add(self, rows):
    """Adds training `Rows`."""
    values = rows.numeric.astype(np.float64)
    known = ~np.isnan(values)
    logs = np.where(known, np.sign(values) * np.log1p(np.abs(values)), 0.0)
    self._count += known.sum(axis=0)
    self._missing += (~known).sum(axis=0)
    self._sum += logs.sum(axis=0)
    self._squares += np.square(logs).sum(axis=0)
    for name, column in zip(self._text_names, rows.texts):
      counter = self._values[name]
      if counter is None:
        continue
      found = pc.value_counts(column)
      counter.update(dict(zip(found.field("values").to_pylist(),
                              found.field("counts").to_pylist())))
      if len(counter) > self._max_vocabulary:
        # From now on it is hashed; its values need not be kept.
        self._values[name] = None

  def to_config(self):
    """The statistics, ready for JSON.

    Returns:
      A dict: "numeric", for each feature its "name", "mean" and "variance"
      after the signed log, and the share "missing"; "text", for each feature
      its "name" and either "vocabulary" (by falling count) or "bins".
    """
    count = np.maximum(self._count, 1.0)
    mean = self._sum / count
    variance = np.maximum(self._squares / count - np.square(mean), 0.0)
    rows = np.maximum(self._count + self._missing, 1.0)
    text = []
    for name, counter in self._values.items():
      if counter is None:
        text.append({"name": name, "bins": self._max_vocabulary})
      else:
        ordered = sorted(counter, key=lambda v, c=counter: (-c[v], v))
        text.append({"name": name, "vocabulary": ordered})
    return {
        "numeric": [
            {"name": name, "mean": float(mean[i]),
             # A constant would be blown up by the smallest rounding error.
             "variance": float(variance[i]) if variance[i] > 1e-8 else 1.0,
             "missing": float(self._missing[i] / rows[i])}
            for i, name in enumerate(self._names)],
        "text": text}
