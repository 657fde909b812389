"""The method in plain Python: double loops over the items of one list.

Slow and simple on purpose. Nothing here knows TensorFlow or the package: the
formulas are written down once more, in probabilities and in float64, so that
an error in the tensors cannot be repeated here. Probabilities must lie inside
(0, 1); what happens at 0 and 1 is tested elsewhere.

A list is a dict of equally long Python lists, as `random_lists` makes them.
"""

import math
import random


def random_lists(seed, num_lists=5, num_items=6, num_positions=4,
                 num_contexts=1, num_grades=3, padding=0.25, min_beta=0.02):
  """Random lists with padding at any place.

  Args:
    seed: of the random numbers.
    num_lists: how many lists.
    num_items: items of a list, padding included.
    num_positions: display positions are 1 to this, and may repeat.
    num_contexts: context ids are 0 up to this.
    num_grades: feedback is 0 up to this.
    padding: share of items that are padding.
    min_beta: the smallest relevance probability.

  Returns:
    A list of dicts with "valid", "feedback", "position", "context", "score",
    "beta" (relevance probability) and "weight", each of `num_items` entries.
  """
  rng = random.Random(seed)
  lists = []
  for _ in range(num_lists):
    context = rng.randrange(num_contexts)
    valid = [rng.random() >= padding for _ in range(num_items)]
    lists.append({
        "valid": valid,
        "feedback": [float(rng.randrange(num_grades)) if v else 0.0
                     for v in valid],
        "position": [rng.randint(1, num_positions) for _ in valid],
        "context": [context] * num_items,
        "score": [rng.gauss(0.0, 1.0) for _ in valid],
        "beta": [rng.uniform(min_beta, 0.98) for _ in valid],
        "weight": [rng.uniform(0.5, 2.0) if v else 0.0 for v in valid],
    })
  return lists


def column(lists, key):
  """One entry of all lists, as nested lists `[B][L]`."""
  return [items[key] for items in lists]


def softplus(x):
  """log(1 + exp(x))."""
  return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x):
  """1 / (1 + exp(-x))."""
  return 1.0 / (1.0 + math.exp(-x))


def logit(p):
  """The inverse of `sigmoid`."""
  return math.log(p / (1.0 - p))


# Pointwise.


def click_probability(beta, p1, p0):
  """pi = P(c > 0)."""
  return p1 * beta + p0 * (1.0 - beta)


def relevance_posterior(clicked, beta, p1, p0):
  """P(r > 0 | c)."""
  pi = click_probability(beta, p1, p0)
  return beta * p1 / pi if clicked else beta * (1.0 - p1) / (1.0 - pi)


def examination_posterior(clicked, beta, theta):
  """P(e = 1 | c) of the position-based model."""
  return 1.0 if clicked else theta * (1.0 - beta) / (1.0 - theta * beta)


def pointwise_statistics(lists, p1, p0, num_slots, slot_of):
  """Sums per slot of 1, c > 0, q, q where c > 0, P(e = 1 | c) where c = 0.

  Args:
    lists: as `random_lists` makes them.
    p1: `[S]`, by slot; theta without trust bias.
    p0: `[S]`, by slot.
    num_slots: S.
    slot_of: a function of context and position.

  Returns:
    `[S][5]`.
  """
  sums = [[0.0] * 5 for _ in range(num_slots)]
  for items in lists:
    for a, valid in enumerate(items["valid"]):
      if not valid:
        continue
      slot = slot_of(items["context"][a], items["position"][a])
      clicked = items["feedback"][a] > 0
      beta, weight = items["beta"][a], items["weight"][a]
      q = relevance_posterior(clicked, beta, p1[slot], p0[slot])
      e = examination_posterior(clicked, beta, p1[slot])
      row = sums[slot]
      row[0] += weight
      row[1] += weight * clicked
      row[2] += weight * q
      row[3] += weight * q * clicked
      row[4] += weight * e * (not clicked)
  return sums


# Pairwise. `theta_i` and `theta_j` belong to the items a and b of the pair.


def observed_preference(gamma, beta_a, plus, minus):
  """g' = P(c_a > c_b | both examined), clipped to beta_a."""
  gamma = min(gamma, beta_a)
  return min(plus * gamma + minus * (1.0 - gamma), beta_a)


def outcome(theta_i, theta_j, beta_a, gamma, plus, minus):
  """Q = P(c_a > c_b), equation (14)."""
  seen = observed_preference(gamma, beta_a, plus, minus)
  return theta_i * theta_j * seen + theta_i * (1.0 - theta_j) * beta_a


def pair_table(theta_i, theta_j, beta_a, gamma, plus, minus):
  """P(state | c_a > c_b) and P(state | c_a <= c_b), by name of the state."""
  gamma = min(gamma, beta_a)
  q = outcome(theta_i, theta_j, beta_a, gamma, plus, minus)
  both = theta_i * theta_j
  # What g' has beyond eps+ gamma is noise; the clip to beta_a takes from it.
  noise = observed_preference(gamma, beta_a, plus, minus) - plus * gamma
  return {
      "greater": {
          "preferred": both * plus * gamma / q,
          "not_preferred": both * noise / q,
          "unexamined": theta_i * (1.0 - theta_j) * beta_a / q,
      },
      "not_greater": {
          "preferred": both * (1.0 - plus) * gamma / (1.0 - q),
          "not_preferred": both * (1.0 - gamma - noise) / (1.0 - q),
          "rest": (theta_i * (1.0 - theta_j) * (1.0 - beta_a) +
                   1.0 - theta_i) / (1.0 - q),
      },
  }


def preference_posterior(greater, theta_i, theta_j, beta_a, gamma, plus,
                         minus):
  """P(r_a > r_b | c)."""
  gamma = min(gamma, beta_a)
  q = outcome(theta_i, theta_j, beta_a, gamma, plus, minus)
  shown = theta_i * (theta_j * plus + 1.0 - theta_j)
  return gamma * shown / q if greater else gamma * (1.0 - shown) / (1.0 - q)


def preference_given_examined(beta_a, gamma, plus, minus):
  """m, equation (15)."""
  gamma = min(gamma, beta_a)
  return plus * gamma / observed_preference(gamma, beta_a, plus, minus)


def examined_given_preferred(form, theta_j, theta_unclicked_j, beta_a, beta_b,
                             gamma, plus, minus):
  """h in its three forms, equation (17) and ours."""
  if form == "item":
    return theta_j * (1.0 - beta_b) / (1.0 - theta_j * beta_b)
  t = {"prior": theta_j, "position": theta_unclicked_j}[form]
  seen = observed_preference(gamma, beta_a, plus, minus)
  return t * seen / (t * seen + (1.0 - t) * beta_a)


def binary_preference(beta_a, beta_b):
  """gamma of independent binary relevance."""
  return beta_a * (1.0 - beta_b)


def graded_preference(beta_a, beta_b, u_a, u_b, tau):
  """gamma with an order among two relevant items."""
  return (binary_preference(beta_a, beta_b) +
          beta_a * beta_b * sigmoid(u_a - u_b - tau))


def ordered_pairs(items):
  """All (a, b), a != b, of valid items."""
  size = range(len(items["valid"]))
  return [(a, b) for a in size for b in size
          if a != b and items["valid"][a] and items["valid"][b]]


def trust_statistics(lists, theta, gamma, plus, minus, num_positions):
  """Numerators and the rest of the denominators of eps+^ and eps-^.

  Args:
    lists: as `random_lists` makes them, of one context.
    theta: `[K]`.
    gamma: a function of (list index, a, b).
    plus: eps+, `[K][K]`.
    minus: eps-, `[K][K]`.
    num_positions: K.

  Returns:
    `[K][K][4]`: sums of P(1, 1, r_a > r_b | c) where c_a > c_b and where not,
    then the same of P(1, 1, r_a <= r_b | c); weighted by the weight of a.
  """
  size = range(num_positions)
  sums = [[[0.0] * 4 for _ in size] for _ in size]
  for number, items in enumerate(lists):
    for a, b in ordered_pairs(items):
      i, j = items["position"][a] - 1, items["position"][b] - 1
      table = pair_table(theta[i], theta[j], items["beta"][a],
                         gamma(number, a, b), plus[i][j], minus[i][j])
      greater = items["feedback"][a] > items["feedback"][b]
      group = table["greater" if greater else "not_greater"]
      cell, weight = sums[i][j], items["weight"][a]
      cell[0 if greater else 1] += weight * group["preferred"]
      cell[2 if greater else 3] += weight * group["not_preferred"]
  return sums


# Pair weights, for pairs with c_a > c_b.


def ipw_weight(second_clicked, theta_i, theta_j, h):
  """Equation (11)."""
  return (1.0 if second_clicked else h) / (theta_i * theta_j)


def bayes_ipw_weight(second_clicked, theta_i, theta_j, h, m):
  """Equation (16)."""
  return m * ipw_weight(second_clicked, theta_i, theta_j, h)


def closed_form_weight(second_clicked, beta_a, beta_b, p1_i, p0_i, p1_j, p0_j):
  """The unbiased weight under position-level trust bias."""
  if second_clicked:
    return 1.0 / (p1_i * p1_j)
  pi_a = click_probability(beta_a, p1_i, p0_i)
  pi_b = click_probability(beta_b, p1_j, p0_j)
  return beta_a / pi_a * (1.0 - beta_b) / (1.0 - pi_b)


# Losses.


def logistic_loss(s_a, s_b):
  """log(1 + exp(-(s_a - s_b)))."""
  return softplus(s_b - s_a)


def hinge_loss(s_a, s_b):
  """max(0, 1 - (s_a - s_b))."""
  return max(0.0, 1.0 - (s_a - s_b))


def pair_loss_sums(items, weight, pair_loss=logistic_loss, min_gap=0.0):
  """For each item the weighted sum over the pairs that it wins.

  Args:
    items: a list.
    weight: a function of (a, b).
    pair_loss: a function of two scores.
    min_gap: differences of feedback up to this are ties.

  Returns:
    `[L]`.
  """
  sums = [0.0] * len(items["valid"])
  for a, b in ordered_pairs(items):
    if items["feedback"][a] - items["feedback"][b] > min_gap:
      sums[a] += weight(a, b) * pair_loss(items["score"][a], items["score"][b])
  return sums


def weighted_mean(sums, weights, valid):
  """The mean over valid items, each times its weight, of all lists."""
  pairs = [(s * w, v) for row in zip(sums, weights, valid)
           for s, w, v in zip(*row)]
  return sum(s for s, v in pairs if v) / sum(v for _, v in pairs)


def weighted_sum(sums, weights, valid):
  """The sum over valid items, each times its weight, of all lists."""
  return sum(s * w for row in zip(sums, weights, valid)
             for s, w, v in zip(*row) if v)


# Metric weights.


def exponential_gain(label):
  """2^label - 1."""
  return 2.0**label - 1.0


def linear_gain(label):
  """The label."""
  return label


def ranks(items):
  """1-based ranks by score; ties go by display position, then by index."""
  size = range(len(items["valid"]))
  order = sorted(
      (a for a in size if items["valid"][a]),
      key=lambda a: (-items["score"][a], items["position"][a], a))
  return {a: rank for rank, a in enumerate(order, start=1)}


def ndcg_weights(items, gain, smooth_fraction=0.0):
  """|delta NDCG| times the number of items, as TF-Ranking scales it.

  Args:
    items: a list; its feedback is the label.
    gain: a function of a label.
    smooth_fraction: 1 is the change of NDCG when a and b swap ranks; 0 is
      LambdaLoss's, where the discount depends on the distance of the ranks.

  Returns:
    A function of (a, b).
  """
  def discount(rank):
    return 1.0 / math.log2(1.0 + rank)

  rank = ranks(items)
  gains = {a: gain(items["feedback"][a]) for a in rank}
  ideal = sum(g * discount(k) for k, g in enumerate(
      sorted(gains.values(), reverse=True), start=1))

  def weight(a, b):
    if ideal == 0.0:
      return 0.0
    distance = abs(rank[a] - rank[b])
    relative = abs(discount(distance) - discount(distance + 1))
    absolute = abs(discount(rank[a]) - discount(rank[b]))
    change = (1.0 - smooth_fraction) * relative + smooth_fraction * absolute
    return len(rank) * abs(gains[a] - gains[b]) * change / ideal

  return weight


# M step.


def em_ratio(numerator, denominator, current):
  """An estimate, or the current value of a cell without observations."""
  return numerator / denominator if denominator > 0 else current


def step_size(t, initial, decay):
  """alpha_t of equation (20)."""
  return initial * (1.0 + t)**-decay


def newton_shift(scores, targets, weights, shift):
  """The Newton step of sigmoid(s + shift), with a ridge of one observation."""
  gradient, curvature = 0.0, 1.0
  for s, target, weight in zip(scores, targets, weights):
    p = sigmoid(s + shift)
    gradient += weight * (target - p)
    curvature += weight * p * (1.0 - p)
  return gradient / curvature
