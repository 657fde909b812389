"""The baseline methods in plain Python: loops over the items of one list.

Like `oracles`, whose lists they take: nothing here knows TensorFlow or the
package, and all is float64.
"""

import math

import oracles


def valid_items(items):
  """Indices of the valid items of a list."""
  return [a for a, valid in enumerate(items["valid"]) if valid]


def softmax(items, values):
  """The softmax of `values` over the valid items, 0 elsewhere."""
  real = valid_items(items)
  total = sum(math.exp(values[a]) for a in real)
  return [math.exp(values[a]) / total if a in real else 0.0
          for a, _ in enumerate(values)]


def first_value(items, values):
  """The mean value of the valid items at the smallest position."""
  real = valid_items(items)
  top = min(items["position"][a] for a in real)
  first = [values[a] for a in real if items["position"][a] == top]
  return sum(first) / len(first)


def relative_weight(items, values, a, max_weight):
  """exp(v_1 - v_a), capped."""
  weight = math.exp(first_value(items, values) - values[a])
  return weight if max_weight is None else min(weight, max_weight)


def dual_losses(items, logits, max_weight):
  """For each item the two terms of the dual learning loss.

  Args:
    items: a list.
    logits: `[K]`, g by position.
    max_weight: the cap, or None.

  Returns:
    `[L]` of the ranking term, and `[L]` of the propensity term.
  """
  scores = items["score"]
  by_item = [logits[k - 1] for k in items["position"]]
  ranking, propensity = [0.0] * len(scores), [0.0] * len(scores)
  for a in valid_items(items):
    if items["feedback"][a] > 0:
      ranking[a] = -relative_weight(items, by_item, a, max_weight) * math.log(
          softmax(items, scores)[a])
      propensity[a] = -relative_weight(items, scores, a, max_weight) * math.log(
          softmax(items, by_item)[a])
  return ranking, propensity


def ratio_sums(lists, clicked_ratio, unclicked_ratio):
  """S+ and S- of pairwise debiasing by position.

  Args:
    lists: lists of one context.
    clicked_ratio: `[K]`, t+.
    unclicked_ratio: `[K]`, t-.

  Returns:
    `[K][2]`, weighted by the weight of the preferred item.
  """
  sums = [[0.0, 0.0] for _ in clicked_ratio]
  for items in lists:
    for a, b in oracles.ordered_pairs(items):
      if items["feedback"][a] > items["feedback"][b]:
        i, j = items["position"][a] - 1, items["position"][b] - 1
        loss = items["weight"][a] * oracles.logistic_loss(
            items["score"][a], items["score"][b])
        sums[i][0] += loss / unclicked_ratio[j]
        sums[j][1] += loss / clicked_ratio[i]
  return sums


def ratios(sums, current, p, minimum):
  """t = (S / S_1)^(1 / (1 + p)) where there is something to divide."""
  return [
      max((s / sums[0])**(1.0 / (1.0 + p)), minimum)
      if s > 0 and sums[0] > 0 else now for s, now in zip(sums, current)]


def click_chance(mode, logit, effect):
  """P(click) of a shallow tower."""
  if mode == "product":
    return oracles.sigmoid(logit) * oracles.sigmoid(effect)
  return oracles.sigmoid(logit + (effect if mode == "additive" else 0.0))


def cross_entropy(target, chance):
  """Of a target that may be any number."""
  return -target * math.log(chance) - (1.0 - target) * math.log(1.0 - chance)


def click_loss(mode, clicked, logit, effect):
  """Cross-entropy of a click."""
  return cross_entropy(float(clicked), click_chance(mode, logit, effect))


def value_loss(mode, value, prediction, effect):
  """Squared error of a value."""
  return (value - prediction - (effect if mode == "additive" else 0.0))**2


def corrected_click(clicked, p1, p0):
  """c' = (c - p0) / (p1 - p0)."""
  return (float(clicked) - p0) / (p1 - p0)
