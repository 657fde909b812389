"""The names that users can choose from, without the code behind them.

The command line checks and explains names before it loads TensorFlow.
"""

import warnings

# The kinds of feedback.
FEEDBACK = ("click", "dwell")

# The method that takes a known examination.
TAKES_EXAMINATION = "unbiased-ipw"

# Names of `methods.METHODS`, and one line for people.
METHODS = {
    "oracle-pairwise": "pairwise loss on true labels: the upper bound",
    "oracle-pointwise": "squared error of true labels",
    "oracle-clicks": "pairwise loss on clicks of users who examine everything",
    "naive-pairwise": "pairwise loss on feedback as if it were relevance",
    "naive-pointwise": "pointwise loss on feedback as if it were relevance",
    "naive-lambda": "pairwise loss with NDCG weights as if it were relevance",
    "ipw-known": "pairwise loss weighted by 1 / (true examination)",
    "unbiased":
        "closed-form weights, EM of four kinds of users; keeps a strong order",
    "unbiased-bayes": "Bayes-IPW, pairwise trust bias by EM",
    "unbiased-ipw": "IPW, examination by EM, or known",
    "unbiased-softmax":
        "softmax loss with weights of items, EM of four kinds of users",
    "paper-opt": "loss_opt as published: Bayes-IPW with NDCG weights",
    "paper-bayes": "loss_Bayes-IPW as published",
    "paper-ipw": "loss_IPW as published",
    "regression-em": "regression EM: cross-entropy against P(relevant | click)",
    "dla": "dual learning: scores and propensities weigh each other",
    "pairwise-debiasing":
        "pairwise loss over t+ t-, ratios by position (Unbiased LambdaMART)",
    "trust-affine":
        "cross-entropy of clicks corrected for examination and trust",
    "baseline-v1": "V1: position added to the prediction of the feedback",
    "baseline-v2": "V2: click with position added, plus dwell",
    "baseline-v3": "V3: click by PAL, plus dwell",
    "baseline-v4": "V4: click by PAL, plus dwell with position added",
}

# Methods that can be trained on a click log: they learn from feedback alone,
# with a bias for each context or without one. In the order of the help.
FOR_LOGS = ("unbiased", "unbiased-bayes", "unbiased-ipw", "naive-pairwise",
            "paper-opt", "paper-bayes", "paper-ipw")

# Names of earlier versions, and what they are now.
ALIASES = {"unbiased-trust": "unbiased"}

# Names of `experiments.peers.PEERS`.
PEERS = ("lightgbm-position", "xgboost-unbiased")

# Names of `simulation.click_models.CLICK_MODELS`.
CLICK_MODELS = ("pbm", "pbm-sparse", "ubm", "cascade", "dbn", "trust")

# What orders the lists that simulated users see, see `experiments.loggers`.
LOGGERS = ("irrelevant", "random", "weak", "strong")

# What the time of a row in a click log may be.
TIME_FORMS = ("seconds since 1970, or as in 2024-01-31, 2024-01-31T12:00, "
              "2024-01-31 12:00:00.5, each also with Z, UTC, +01 or -07:00")


def resolve_method(name):
  """The name that a method has today.

  Args:
    name: a key of `METHODS`, or of `ALIASES`, which warns.

  Returns:
    A key of `METHODS`.

  Raises:
    ValueError: if there is no such method.

  >>> resolve_method("unbiased")
  'unbiased'
  """
  if name in ALIASES:
    warnings.warn(
        f"The method {name!r} is {ALIASES[name]!r} now, which finds out by "
        "itself whether users trust what stands high.", stacklevel=3)
    return ALIASES[name]
  if name not in METHODS:
    raise ValueError(
        f"There is no method {name!r}; the methods are {', '.join(METHODS)}.")
  return name
