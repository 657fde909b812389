r"""How far an examination curve is off, by the clicks that it rests on.

Logs of 30 to 10,000 clicks are fitted with the defaults of `ultra-tfr fit-log`.
Their users look at ten positions alike (flat), or less and less (steep, 1/k).
The error of a curve is the mean over positions 2 to 10 of its distance from the
truth, both relative to position 1; that of a known curve is 0. EM's curve
stands beside click rates by position, which take relevance for examination, and
harvesting, which needs items that moved and no model. "Debiased" are the logs
in which the fit predicts held-out clicks better than click rates do; in the
others `ultra-tfr fit-log` serves a ranker without debiasing, and says so.

Command (about ten minutes on one core):

    python examples/evidence.py

Expected output: the table of examples/results/evidence.md.
"""

import collections

from absl import app
from absl import flags
import numpy as np
import ultra_tfr
from ultra_tfr.experiments import tables
from ultra_tfr.fit_log import click_prediction
from ultra_tfr.fit_log import training

_CLICKS = flags.DEFINE_list(
    "clicks", ["30", "100", "300", "1000", "10000"], "Sizes of the logs.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Logs of each size.", lower_bound=1)

_NUM_POSITIONS = 10
_TRUTHS = {"flat": np.ones(_NUM_POSITIONS),
           "steep": 1 / np.arange(1, _NUM_POSITIONS + 1)}
_COLUMNS = ultra_tfr.data.LogColumns(
    query="request_id", position="rank", feedback="click",
    features=("f_*", "category", "is_new"), item="item_id",
    timestamp="timestamp")
_VALIDATE_EVERY = 100


def _make_log(truth, num_clicks, seed):
  """A log with the first so many clicks of users with that examination."""
  # Requests with as many clicks, and some to spare.
  trial, _ = ultra_tfr.simulation.simulate_log(
      200, examination={"any": .9 * truth}, seed=seed)
  rate = np.sum(trial["click"].to_numpy()) / 200
  table, _ = ultra_tfr.simulation.simulate_log(
      max(20, round(num_clicks / rate)), examination={"any": .9 * truth},
      seed=seed)
  return table


def _errors(truth, num_clicks, seed):
  """Errors by the name of the curve, the largest value of EM's, and more."""
  table = _make_log(truth, num_clicks, seed)
  with ultra_tfr.data.read_click_log(table, _COLUMNS) as log:
    size = len(log.parts["train"])
    batch_size = training.default_batch_size(size)
    settings = ultra_tfr.fit_log.Settings(
        hidden_units=(128, 64), learning_rate=2e-3, batch_size=batch_size,
        validate_every=_VALIDATE_EVERY,
        steps=training.default_steps(size, batch_size, _VALIDATE_EVERY))
    fitted = ultra_tfr.fit_log.fit(
        log, "unbiased", settings, seed=seed).settled()
    found = ultra_tfr.fit_log.diagnose(log, fitted)
    rates = click_prediction.click_rates(click_prediction.click_counts(
        log.parts["train"], 1, _NUM_POSITIONS))[0]
  curves = next(iter(found.contexts.values()))
  estimates = {"EM": fitted.bias.click_relevant[0], "click rates": rates,
               "harvesting": curves["all_pairs"]["value"]}
  result = {}
  for name, curve in estimates.items():
    curve = np.array(curve, float)
    result[name] = np.mean(np.abs(curve[1:] / curve[0] - truth[1:]))
  em = fitted.bias.click_relevant[0]
  return {**result, "largest": max(em / em[0]), "debiased": fitted.is_justified,
          "clicks": np.sum(table["click"].to_numpy())}


def main(_):
  rows = [["truth", "clicks", "EM", "largest value of EM", "click rates",
           "harvesting", "debiased"]]
  for name, truth in _TRUTHS.items():
    for size in map(int, _CLICKS.value):
      found = collections.defaultdict(list)
      for seed in range(_SEEDS.value):
        for key, value in _errors(truth, size, seed).items():
          found[key].append(value)

      def spread(key, found=found):
        values = np.array(found[key], float)
        known = values[np.isfinite(values)]
        if not known.size:
          return "unknown"
        return f"{np.mean(known):.3f} ({np.max(known):.3f})" + (
            f", unknown in {values.size - known.size}"
            if known.size < values.size else "")

      rows.append([
          name, f"{np.mean(found['clicks']):.0f}", spread("EM"),
          f"{max(found['largest']):.2f}", spread("click rates"),
          spread("harvesting"),
          f"{sum(found['debiased'])} of {_SEEDS.value}"])
  print("### Error of examination curves by clicks, "
        f"{_SEEDS.value} logs each\n")
  print(tables.to_markdown(rows))
  print("\nMean (and largest) over logs of the mean distance from the truth at "
        "positions 2 to 10, relative to position 1.")


if __name__ == "__main__":
  app.run(main)
