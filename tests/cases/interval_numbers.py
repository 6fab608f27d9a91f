"""interval_numbers.py - the intervals of docs/results.md in floats and plain loops: linearised by prompt, with the quantiles of Student's t or of resamples."""

import math
import random


def quantile_t(freedom):
    """Student's t, 97.5 %: the finite series (Abramowitz and Stegun 26.7.3, 26.7.4), inverted by bisection."""
    def both_sides(t):
        angle = math.atan(t / math.sqrt(freedom))
        term, total_of, k = (math.cos(angle), 0.0, 1) if freedom % 2 else (1.0, 0.0, 0)
        while k <= freedom - 2:
            total_of += term
            term *= math.cos(angle) ** 2 * (k + 1) / (k + 2)
            k += 2
        if freedom % 2 == 0:
            return math.sin(angle) * total_of
        return 2 / math.pi * (angle + math.sin(angle) * total_of)

    low, high = 0.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if both_sides(middle) < 0.95 else (low, middle)
    return low


assert abs(quantile_t(1) - 12.7062047) < 1e-6 and abs(quantile_t(2) - 4.30265273) < 1e-7 and abs(quantile_t(9) - 2.26215716) < 1e-7


SIGNS = 1, -1, -1, 1, -1, 1, 1, -1  # of the logarithms of a change's sums: a speedup over an earlier one


class Twister:
    """The Mersenne Twister with the seeding of 2002, as GSL's: Python's own generator, whose state is set."""

    def __init__(self, seed):
        state = [seed]
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
        self.bits = random.Random()
        self.bits.setstate((3, tuple(state) + (624,), None))

    def below(self, n):
        return self.bits.getrandbits(32) * n >> 32


def bootstrap(kind, columns):
    """Bootstrap-t in floats: quantiles of (value - truth) / error from 1,999 resamples of the prompts. None: one is infinite."""
    n, source = len(columns[0]), Twister(1)

    def estimate(rows):
        s = [sum(r[k] for r in rows) for k in range(len(columns))]
        if kind == "change":
            v = math.log(s[0] / s[1] / (s[2] / s[3]) / (s[4] / s[5] / (s[6] / s[7])))
            u = [sum(SIGNS[k] * r[k] / s[k] for k in range(8)) for r in rows]
        elif kind == "ratios":
            v = math.log(s[0] / s[1] / (s[2] / s[3]))
            u = [r[0] / s[0] - r[1] / s[1] - r[2] / s[2] + r[3] / s[3] for r in rows]
        elif kind == "ratio":
            v, u = math.log(s[0] / s[1]), [r[0] / s[0] - r[1] / s[1] for r in rows]
        else:
            v = s[0] / s[1] - (s[2] / s[3] if kind == "difference" else 0)
            u = [r[0] / s[1] - s[0] * r[1] / s[1] ** 2 - (r[2] / s[3] - s[2] * r[3] / s[3] ** 2 if kind == "difference" else 0) for r in rows]
        return v, math.sqrt(n / (n - 1) * sum(x * x for x in u))

    rows = list(zip(*columns))
    value, error = estimate(rows)
    t = []
    for _ in range(1999):
        v, e = estimate([rows[i] for i in sorted(source.below(n) for _ in range(n))])
        t.append((v - value) / e if e > 1e-13 else (0.0 if abs(v - value) < 1e-13 else math.copysign(math.inf, v - value)))
    t.sort()
    if math.isinf(t[49]) or math.isinf(t[-50]):
        return None
    low, high = value - t[-50] * error, value - t[49] * error
    if kind == "rate":
        return max(0.0, low), min(1.0, high)
    return (low, high) if kind == "difference" else (math.exp(low), math.exp(high))


def interval(kind, *columns):
    """[value, low, high] of sums over prompts; kind: rate, ratio, ratios or difference. Columns: each a number per prompt."""
    columns = list(columns) + [[1.0] * len(columns[0])] * (4 - len(columns))
    n, (a, b, c, d) = len(columns[0]), (sum(v) for v in columns)
    if b <= 0 or d <= 0 or kind == "ratios" and min(a, c) <= 0:
        return [None, None, None]
    value = (a / b) / (c / d) if kind == "ratios" else a / b - c / d if kind == "difference" else a / b
    if kind == "rate" and value in (0, 1):
        others = 1 - 0.025 ** (1 / max(1, sum(x > 0 for x in columns[1])))
        return [value, None, None] if sum(x > 0 for x in columns[1]) < 2 else [value, 1 - others, 1.0] if value else [value, 0.0, others]
    if n < 2 or kind != "difference" and value <= 0:
        return [value, None, None]
    if kind == "ratios":
        u = [w / a - x / b - y / c + z / d for w, x, y, z in zip(*columns)]  # of the log
    elif kind == "difference":
        u = [w / b - a * x / b**2 - y / d + c * z / d**2 for w, x, y, z in zip(*columns)]
    else:
        u = [(w / a - x / b) / (1 if kind == "ratio" else 1 - value) for w, x in zip(*columns[:2])]  # of the log, of the logit
    error = math.sqrt(n / (n - 1) * sum(x * x for x in u))
    resampled = bootstrap(kind, columns) if 10 <= n < 50 and error > 1e-12 else None
    if resampled:
        return [value, *resampled]
    half = quantile_t(n - 1) * error
    if kind == "difference":
        return [value, value - half, value + half]
    if kind == "rate":
        odds = value / (1 - value)
        return [value, 1 / (1 + math.exp(half) / odds), 1 / (1 + math.exp(-half) / odds)]
    return [value, value * math.exp(-half), value * math.exp(half)]


def tails_t(t, freedom):
    """P(|T| > t) of Student's t with any degrees of freedom: the incomplete beta function's continued fraction (Abramowitz and Stegun 26.5.8)."""
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x))
    if x > (a + 1) / (a + b + 2):
        return 1 - front * fraction(b, a, 1 - x) / b
    return front * fraction(a, b, x) / a


def fraction(a, b, x):
    below = 1.0
    for m in range(400, 0, -1):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 + even / (1 + odd / below)
    return 1 / (1 - (a + b) * x / (a + 1) / below)


def quantile_of_any(freedom):
    low, high = 0.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if tails_t(middle, freedom) > 0.05 else (low, middle)
    return low


assert all(abs(quantile_of_any(k) - quantile_t(k)) < 1e-9 for k in (1, 2, 9, 30))


def units_interval(kind, columns, work, prompts, slices):
    """As `interval`, of ratio or ratios, by prompts and slices of time: what different prompts have in common in a slice, pair by pair. work: the steps of
    each pair of columns."""
    def by(keys, of):
        found = {}
        for k, x in zip(keys, of):
            found[k] = found.get(k, 0) + x
        return found

    names = sorted(set(prompts))
    per_prompt = [[by(prompts, c)[p] for p in names] for c in columns]
    base, n = interval(kind, *per_prompt), len(names)
    if base[0] is None or n < 2 or base[0] <= 0:
        return base
    clocked = list(columns)
    for k, w in enumerate(work):
        clocked[2 * k] = w
    totals = [sum(c) for c in clocked]
    shares = [[x / t for x in c] for c, t in zip(clocked, totals)]
    influence = [sum(sign * x for sign, x in zip(SIGNS, row)) for row in zip(*shares)]
    of_row = [sum(row) for row in zip(*shares)]
    of_slice = [by(slices, c) for c in shares]
    variance, weights, sets = 0.0, [], 0.0
    for s in sorted(set(slices)):
        here = [i for i in range(len(slices)) if slices[i] == s]
        u, w = (list(by([prompts[i] for i in here], [of[i] for i in here]).values()) for of in (influence, of_row))
        pairs = [(i, j) for i in range(len(u)) for j in range(len(u)) if i != j]
        weight = sum(w[i] * w[j] for i, j in pairs)
        if weight <= 0:
            continue
        most = max(range(len(shares)), key=lambda k: of_slice[k][s])
        share = of_slice[most][s]
        if share > 1 - 1e-9:
            return [base[0], None, None]
        common = sum(u[i] * u[j] for i, j in pairs) * (1 + sum(w) ** 2 / weight / n)
        variance += common / (1 - 2 * share + sum(x * x for x in of_slice[most].values()))
        weights.append(weight)
        sets += share
    if variance <= 0:
        return base
    sums = [sum(c) for c in per_prompt]
    own = n / (n - 1) * sum(sum(sign * x / t for sign, x, t in zip(SIGNS, row, sums)) ** 2 for row in zip(*per_prompt))
    freedom = max(1.0, sum(weights) ** 2 / sum(w * w for w in weights) - sets)
    t = quantile_of_any((own + variance) ** 2 / (own**2 / (n - 1) + variance**2 / freedom))
    low, high = (t * math.hypot(math.log(x / base[0]) / quantile_t(n - 1), math.sqrt(variance)) for x in base[1:])
    return [base[0], base[0] * math.exp(-low), base[0] * math.exp(high)]
