"""make_statistics.py - quantiles, intervals, tails, sample sizes and fits, computed with forty digits or in fractions.

Reads what statistics.json asks and writes it again with the answers, but for the quantiles and the sample sizes, which are asked below. Formulas: docs/results.md (intervals), docs/exactness.md, the comments of results/statistics/statistics.h and
verifier/exact/verdict.h; least squares as normal equations in fractions. Needs mpmath:

    python -B make_statistics.py statistics.json
"""

import functools
import json
import sys
from fractions import Fraction as F

from interval_numbers import SIGNS, bootstrap
from mpmath import betainc, erfc, erfinv, exp, expm1, findroot, gammainc, inf, log, log1p, log10, mp, mpf, nsum, sqrt

mp.dps = 40


def number(x):
    return float("%.16g" % float(x))


# ---- Student's t, and intervals that use it


def quantile_t(p, freedom):
    p, v = mpf(p), mpf(freedom)
    if p == 0.5:
        return mpf(0)
    if p < 0.5:
        return -quantile_t(1 - p, freedom)
    # the two tails are 2 (1 - p) = I_x(v / 2, 1 / 2) with x = v / (v + t^2); by bisection in log t
    low, high = mpf(-60), mpf(60)
    for _ in range(160):
        middle = (low + high) / 2
        t = exp(middle)
        tails = betainc(v / 2, mpf(1) / 2, 0, v / (v + t * t), regularized=True)
        low, high = (middle, high) if tails > 2 * (1 - p) else (low, middle)
    return exp((low + high) / 2)


def quantiles():
    out = []
    for p in 0.975, 0.5, 0.51, 0.75, 0.9, 0.999999, 0.025, 1e-6, 0.3:
        for freedom in 1, 2, 3, 4, 9, 79, 480, 5000, 2.5:
            out.append([p, freedom, number(quantile_t(p, freedom))])
    return out


@functools.cache
def t975(n):
    return quantile_t("0.975", n - 1)


def exact(f):
    return mpf(f.numerator) / f.denominator


def linear(kind, columns):
    """The statistic, its identity-scale influences by prompt, in fractions: derivatives by the sums times the prompt's numbers."""
    if kind == "change":
        rows = [[F(x) for x in v] for v in columns]
        total = [sum(v) for v in rows]
        value = total[0] * total[3] * total[5] * total[6] / (total[1] * total[2] * total[4] * total[7])
        return value, [value * sum(SIGNS[k] * row[k] / total[k] for k in range(8)) for row in zip(*rows)]
    a, b, c, d = ([F(x) for x in v] for v in columns)
    A, B, C, D = sum(a), sum(b), sum(c), sum(d)
    if kind in ("rate", "ratio"):
        return A / B, [x / B - A * y / B**2 for x, y in zip(a, b)]
    if kind == "difference":
        return A / B - C / D, [w / B - A * x / B**2 - y / D + C * z / D**2 for w, x, y, z in zip(a, b, c, d)]
    value = (A / B) / (C / D)
    return value, [value * (w / A - x / B - y / C + z / D) for w, x, y, z in zip(a, b, c, d)]


def scaled(kind, value, influences, identity=False):
    """Value and standard error on the scale: identity, log, or logit of a rate."""
    n = len(influences)
    error = sqrt(mpf(n) / (n - 1) * exact(sum(u * u for u in influences)))
    v = exact(value)
    if identity or kind == "difference":
        return v, error
    return (log(v / (1 - v)), error / (v * (1 - v))) if kind == "rate" else (log(v), error / v)


def unscaled(kind, x):
    return x if kind == "difference" else 1 / (1 + exp(-x)) if kind == "rate" else exp(x)


def prompts_for(error):
    """The least number of prompts with which Student's half-width is 2 % of the value."""
    z = normal_quantile(0.025)

    def t(n):  # Abramowitz and Stegun 26.7.5
        v = mpf(n - 1)
        return t975(n) if n < 300 else z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2) + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)

    n = max(2, int((z * error / mpf("0.02")) ** 2))
    while t(n) * error > mpf("0.02") * sqrt(n):
        n += 1
    return n


def interval(kind, *columns):
    value, influences = linear(kind, columns)
    n = len(influences)
    if n < 2:
        return [number(exact(value)), None, None, None]
    if kind == "rate" and value in (0, 1):
        k = sum(x > 0 for x in columns[1])
        other = mpf("0.025") ** (mpf(1) / k)
        return [number(exact(value)), number(other if value else 0), number(1 if value else 1 - other), None]
    v, error = scaled(kind, value, influences)
    relative = sqrt(n) * scaled("ratio", value, influences)[1] if kind != "difference" else None
    resampled = bootstrap(kind, columns) if 10 <= n < 50 else None
    half = t975(n) * error
    low, high = resampled or (unscaled(kind, v - half), unscaled(kind, v + half))
    return [number(exact(value)), number(low), number(high), prompts_for(relative) if relative is not None else None]


def units_interval(kind, columns, work, prompts, slices):
    """Two-way clustered: every pair of different prompts in a slice adds the product of their influences through the clock, which works in the place of
    numerators where they are given."""
    def over_prompts(rows):
        return [sum(x for x, p in zip(rows, prompts) if p == prompt) for prompt in sorted(set(prompts))]

    by_prompt = [over_prompts(v) for v in columns]
    n = len(by_prompt[0])
    value, influences = linear(kind, by_prompt)
    v, error = scaled(kind, value, influences)
    replaced = [[F(x) for x in v] for v in columns]
    for k, w in enumerate(work or []):
        if w:
            replaced[2 * k] = [F(x) * sum(replaced[2 * k]) / sum(F(y) for y in w) for x in w]
    through_clock = linear(kind, replaced)[1]
    total = [sum(v) for v in replaced]
    used = 2 if kind in ("rate", "ratio") else len(columns)

    def in_slice(of, s):
        at = {}
        for x, p, q in zip(of, prompts, slices):
            if q == s:
                at[p] = at.get(p, 0) + x
        return list(at.values())

    share_of_row = [sum(replaced[k][i] / total[k] for k in range(used)) for i in range(len(prompts))]
    share = {s: [sum(in_slice(replaced[k], s)) / total[k] for k in range(used)] for s in set(slices)}
    variance, weights, sets = F(0), [], F(0)
    for s in sorted(set(slices)):
        u, w = in_slice(through_clock, s), in_slice(share_of_row, s)
        common = sum(u[i] * u[j] for i in range(len(u)) for j in range(len(u)) if i != j)
        weight = sum(w[i] * w[j] for i in range(len(u)) for j in range(len(u)) if i != j)
        if not weight:
            continue
        most = max(share[s])
        if most == 1:
            return [number(exact(value)), None, None, None]
        left = 1 - 2 * most + sum(share[q][share[s].index(most)] ** 2 for q in share)
        variance += common * (1 + sum(w) ** 2 / weight / n) / left
        weights.append(weight)
        sets += most
    base = interval(kind, *by_prompt)
    if variance <= 0:
        return base
    clock = sqrt(exact(variance)) * error / sqrt(mpf(n) / (n - 1) * exact(sum(u * u for u in influences)))  # on the scale of the error
    freedom = max(1, exact(sum(weights) ** 2 / sum(w * w for w in weights) - sets))
    both = error**2 + clock**2
    t = quantile_t("0.975", both**2 / (error**4 / (n - 1) + clock**4 / freedom))

    def to_scale(x):
        return mpf(x) if kind == "difference" else log(mpf(x) / (1 - mpf(x))) if kind == "rate" else log(mpf(x))

    low, high = (t * sqrt(((to_scale(x) - v) / t975(n)) ** 2 + clock**2) for x in base[1:3])
    # on the scale of a ratio's logarithm
    relative = sqrt(n * both) * (1 - exact(value) if kind == "rate" else 1)
    return [number(exact(value)), number(unscaled(kind, v - low)), number(unscaled(kind, v + high)), None if kind == "difference" else prompts_for(relative)]


# ---- tails


def log10_normal(z):
    return log10(erfc(abs(mpf(z)) / sqrt(2)))


def chi_square(x, v):
    return log10(gammainc(mpf(v) / 2, mpf(x) / 2, inf, regularized=True))


def even(count):
    expected = F(sum(count), len(count))
    stat = sum((x - expected) ** 2 / expected for x in count)
    return number(stat), number(chi_square(mpf(stat.numerator) / stat.denominator, len(count) - 1))


def of_sum(s, variance, width):
    x = abs(mpf(s)) * mpf(width) / mpf(variance)
    h = (1 + x) * log1p(x) - x
    return number(log10_normal(sqrt(2 * mpf(variance) * h) / mpf(width)))


def kolmogorov(d, n):
    y = sqrt(mpf(n)) * mpf(d)
    y += 1 / (6 * sqrt(mpf(n))) + (y - 1) / (4 * mpf(n))  # Vrbik 2018
    return number(log10(2 * nsum(lambda k: (-1) ** (int(k) - 1) * exp(-2 * k * k * y * y), [1, 60], method="direct")))


def normal_quantile(tail):
    if tail >= 1e-5:
        return sqrt(2) * erfinv(1 - 2 * mpf(tail))
    return findroot(lambda z: log(erfc(z / sqrt(2)) / 2) - log(mpf(tail)), sqrt(-2 * log(mpf(tail))))


# ---- sample sizes


def sizes():
    stakes = ["-1", "-.3", "-.1", "-.03", "-.01", ".01", ".03", ".1", ".3", "1"]
    out = []
    for alpha, power, tests in ("1e-6", "0.999", 1), ("0.05", "0.9", 80), ("1e-3", "0.5", 12):
        for size in "0.3", "0.05", "0.012", "0.8":
            d = min(mpf(size), mpf("0.5"))
            a, b = mpf(alpha), normal_quantile(1 - mpf(power))
            score = (normal_quantile(a / tests / 2) + b) ** 2 / (4 * d**2)
            ks = (sqrt(log(2 * tests / a) / 2) + b / 2) ** 2 / d**2
            best = inf
            for stake in stakes:
                s = mpf(stake)
                mean, spread = s * (mpf("0.5") + d) - log1p(expm1(s) / 2), abs(s) * sqrt(mpf("0.25") - d**2)
                if mean > 0:  # n mean - b spread sqrt(n) = log(150 / alpha)
                    goal = log(150 / a)
                    root = (b * spread + sqrt((b * spread) ** 2 + 4 * mean * goal)) / (2 * mean)
                    best = min(best, root**2)
            out.append([float(alpha), float(power), tests, float(size), number(score), number(ks), number(best) if best < inf else None])
    return out


# ---- cost model of a pass


def least_squares(points, terms):
    """Coefficients that minimize the sum of squares of (sum of coefficient x term / ns - 1), in fractions."""
    rows = [[F(t(n, c)) / ns for t in terms] for n, c, ns in points]
    k = len(terms)
    m = [[sum(r[i] * r[j] for r in rows) for j in range(k)] + [sum(r[i] for r in rows)] for i in range(k)]
    for i in range(k):
        pivot = next(r for r in range(i, k) if m[r][i] != 0)
        m[i], m[pivot] = m[pivot], m[i]
        m[i] = [x / m[i][i] for x in m[i]]
        for r in range(k):
            if r != i:
                m[r] = [x - m[r][i] * y for x, y in zip(m[r], m[i])]
    fit = [m[i][k] for i in range(k)]
    errors = [sum(f * x for f, x in zip(fit, r)) - 1 for r in rows]
    return fit, sum(e * e for e in errors) / len(errors), max(abs(e) for e in errors)


def hinge(points):
    ns = sorted({n for n, _, _ in points})
    contexts = sorted({c for _, c, _ in points})
    flat, slope = [lambda n, c: 1], [lambda n, c: n] if len(ns) > 1 else []
    behind = [lambda n, c: c] if len(contexts) > 1 else []
    both = [lambda n, c: n * c] if len(contexts) > 1 and len(ns) > 1 else []
    fit, square, worst = least_squares(points, flat + slope + behind + both)
    found = [(square, F(ns[0]), fit, worst, False)]
    for low, high in zip(ns, ns[1:]) if len(ns) >= 4 else []:
        for quarter in range(4):
            n0 = low + F(quarter * (high - low), 4)
            if n0 > ns[0]:
                over = [lambda n, c, n0=n0: max(F(0), n - n0)]
                fit, square, worst = least_squares(points, flat + slope + over + behind + both)
                found.append((square, n0, fit, worst, True))
    square, n0, fit, worst, bent = min(found, key=lambda f: f[0])
    close = [f for f in found if f[1] != n0 and f[0] < square * F(101, 100)]
    assert not close, "another hinge does nearly as well"
    fit = list(fit)
    names = ["a"] + ["b"] * bool(slope) + ["s"] * bent + ["d"] * bool(behind) + ["e"] * bool(both)
    of = {k: F(0) for k in "absde"}
    of.update(zip(names, fit))
    return of, n0, square, worst


def table(points, n, c):
    """Linear interpolation, and extrapolation beyond the outer points."""
    def along(pairs, x):
        pairs = sorted(pairs)
        if len(pairs) == 1:
            return pairs[0][1]
        (x0, y0), (x1, y1) = next(((a, b) for a, b in zip(pairs, pairs[1:]) if x <= b[0]), (pairs[-2], pairs[-1]))
        return y0 + F(x - x0) * (y1 - y0) / (x1 - x0)
    return along([(k, along([(m, F(ns)) for m, kk, ns in points if kk == k], n)) for k in {k for _, k, _ in points}], c)


def fit(points, step, at):
    """What is fitted to the times of passes and of steps, and the times that the table says at some places."""
    points = [tuple(p) for p in points]
    of, n0, square, worst = hinge(points)
    between = []
    for c in sorted({c for _, c, _ in points}):
        near = sorted((n, ns) for n, cc, ns in points if cc == c)
        for (n1, y1), (n2, y2), (n3, y3) in zip(near, near[1:], near[2:]):
            between.append((y1 + F(n2 - n1, n3 - n1) * (y3 - y1)) / y2 - 1)
    terms = [lambda n, c: 1] + ([lambda n, c: c] if len(step) > 1 else [])
    line, _, step_max_error = least_squares([(1, c, ns) for c, ns in step], terms)
    return {
        "points": points, "n0": number(n0), **{k: number(v) for k, v in of.items()}, "rms": number(sqrt(mpf(square.numerator) / square.denominator)),
        "max_error": number(worst), "form": "hinge" if worst <= F(1, 20) else "table",
        "table_rms": number(sqrt(mpf(float(sum(e * e for e in between) / len(between))))) if between else 0,
        "table_max_error": number(max(abs(e) for e in between)) if between else 0, "table": [(n, c, number(table(points, n, c))) for n, c in at],
        "step": step, "step_a": number(line[0]), "step_d": number(line[1]) if len(line) > 1 else 0, "step_max_error": number(step_max_error)}  # fmt: skip


def main(path):
    with open(path) as f:
        read = json.load(f)
    tails = read["tails"]
    parts = {
        "quantile_t": quantiles(),
        "intervals": [{"of": x["of"], "rows": x["rows"], "interval": interval(x["of"], *x["rows"])} for x in read["intervals"]],
        "units": [{**x, "interval": units_interval(x["of"], x["rows"], x["work"], x["prompt"], x["slice"])} for x in read["units"]],
        "tails": {
            "chi": [[x, v, number(chi_square(x, v))] for x, v, _ in tails["chi"]], "even": [[c, *even(c)] for c, *_ in tails["even"]],
            "sum": [[*x[:3], of_sum(*x[:3])] for x in tails["sum"]], "kolmogorov": [[d, n, kolmogorov(d, n)] for d, n, _ in tails["kolmogorov"]],
            "normal": [[t, number(normal_quantile(t))] for t, _ in tails["normal"]]},
        "sizes": sizes(),
        "fits": [fit(x["points"], x["step"], [place[:2] for place in x["table"]]) for x in read["fits"]],
    }  # fmt: skip
    with open(path, "w") as f:
        f.write("{" + ",\n".join("%s: %s" % (json.dumps(k), json.dumps(v, separators=(",", ":"))) for k, v in parts.items()) + "}\n")
    print({k: len(v) for k, v in parts.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
