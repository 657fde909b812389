r"""From a table of impressions to a ranker and its position bias, in Python.

Writes a simulated shop's log to a Parquet file (two devices, ads between the
positions, prices, categories, dwell times), reads it back as any log would be
read, trains on it, and compares with the truth, which only a simulation has.

Command (about half a minute on two cores):

    python examples/click_log.py --log=/tmp/impressions.parquet

Expected output, after a summary of the log:

    mobile   true       1.00  0.88  0.66  0.34  0.23  0.10  0.08  0.05
    mobile   EM         1.00  0.87  0.66  0.34  0.23  0.11  0.08  0.05
    mobile   harvested  1.00  0.88  0.65  0.34  0.23  0.10  0.07  0.05
    desktop  true       1.00  0.93  0.78  0.54  0.42  0.26  0.22  0.18
    desktop  EM         1.00  0.89  0.74  0.53  0.42  0.25  0.22  0.16
    desktop  harvested  1.00  0.94  0.76  0.52  0.42  0.25  0.22  0.14

    logged order  DCG@10 2.498 (2.407 to 2.624)
    unbiased      DCG@10 2.934 (2.783 to 3.118)

With the same file, on the command line:

    ultra-tfr fit-log --log /tmp/impressions.parquet --query request_id \
        --position rank --feedback 'click + 0.5*log1p(dwell_ms/1000)' \
        --features 'f_*,category,brand,is_new' --context device \
        --item item_id --timestamp timestamp --model_dir /tmp/shop
"""

from absl import app
from absl import flags
import numpy as np
from pyarrow import parquet
import ultra_tfr

_LOG = flags.DEFINE_string(
    "log", "impressions.parquet", "File to write the simulated log to.")
_REQUESTS = flags.DEFINE_integer("requests", 20000, "Requests in the log.")
_STEPS = flags.DEFINE_integer("steps", 600, "Batches to train on.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the log and the training.")
_MAKE_ONLY = flags.DEFINE_boolean(
    "make_only", False, "Write the log, and stop.")

_COLUMNS = ultra_tfr.data.LogColumns(
    query="request_id", position="rank",
    feedback="click + 0.5*log1p(dwell_ms/1000)",
    features=("f_*", "category", "brand", "is_new"), context="device",
    item="item_id", timestamp="timestamp")


def main(_):
  table, truth = ultra_tfr.simulation.simulate_log(
      _REQUESTS.value, positions=(1, 2, 3, 5, 6, 8, 9, 12), seed=_SEED.value)
  parquet.write_table(table, _LOG.value)
  print(f"Wrote {len(table)} rows to {_LOG.value}.")
  if _MAKE_ONLY.value:
    return

  with ultra_tfr.data.read_click_log(_LOG.value, _COLUMNS) as log:
    print(log.summary_text(), "\n")
    settings = ultra_tfr.fit_log.Settings(
        hidden_units=(128, 64), steps=_STEPS.value, learning_rate=2e-3)
    fitted = ultra_tfr.fit_log.fit(
        log, "unbiased", settings, seed=_SEED.value)
    found = ultra_tfr.fit_log.diagnose(log, fitted)
    evaluator = ultra_tfr.fit_log.LogEvaluator(fitted.bias, binary=False)
    evaluator.add(ultra_tfr.fit_log.LOGGED, log.parts["test"])
    evaluator.add("unbiased", log.parts["test"], fitted.model)

  for device, curves in found.contexts.items():
    true_curve = truth.examination[device] / truth.examination[device][0]
    for name, curve in (("true", true_curve),
                        ("EM", curves["trained"]["value"]),
                        ("harvested", curves["all_pairs"]["value"])):
      values = "  ".join(f"{value:.2f}" for value in np.array(curve, float))
      print(f"{device:8} {name:10} {values}")
  print()
  for name, ranker in evaluator.results().items():
    estimate = ranker["estimates"]["dcg@10"]
    print(f"{name:13} DCG@10 {estimate['value']:.3f} "
          f"({estimate['low']:.3f} to {estimate['high']:.3f})")


if __name__ == "__main__":
  app.run(main)
