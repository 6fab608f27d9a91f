"""make_evidence.py - a plain second implementation of the tests and bets of `speclab exact`, on texts of a few hundred tokens.

Reads the texts over short rows, and what is to be decided, from evidence.json and writes it again with their evidence by docs/exactness.md,
section 6, and the comments of verifier/exact/evidence.h and verifier/exact/verdict.h: the mean of all bets, every test with its statistic and
p-value, Holm's correction and the verdict. Orders are sorted lists, means are sums over the vocabulary. Needs mpmath:

    python -B make_evidence.py evidence.json

A token of a text is [row of p, row of q or -1, deterministic tokens, token, index, bonus, u, begins]. Of the verdicts, one has bets just below the
limit and one just above it, and one each a smallest p-value that is detected, or not, at its level.
"""

import json
import math
import sys
from fractions import Fraction as F

from mpmath import erfc, exp, gammainc, inf, log1p, log10, mp, mpf, nsum, sqrt

mp.dps = 60
with open(sys.argv[1]) as f:
    READ = json.load(f)
ONE, VOCAB, END, ROWS = READ["one"], READ["vocab"], READ["end"], READ["rows"]
STAKES = [F(s) for s in "-1 -.3 -.1 -.03 -.01 .01 .03 .1 .3 1".split()]
CELLS, COARSE, SQUARE = 1024, 32, 8
WIDTH = {"log q/p": 6, "surprisal": 8}  # largest difference between a function's values; 1 for events


def before(order, p, token):
    """The mass of the tokens before this one in an order, given as a key by token."""
    return sum(p[v] for v in range(VOCAB) if order(v) < order(token))


def argmax(w):
    return max(range(VOCAB), key=lambda v: (w[v], -v))


class Part:
    def __init__(self):
        self.tokens = self.guided = 0
        self.cells = {o: [0] * COARSE for o in ORDERS}
        self.scores = {}  # function: [tokens, sum, variance]
        self.bets = {}  # (event, stake): log


ORDERS = ["guided", "p", "id"]


class Evidence:
    def __init__(self):
        self.impossible = 0
        self.cells = {o: [0] * CELLS for o in ORDERS}
        self.squares = {o: [[0] * SQUARE for _ in range(SQUARE)] for o in ORDERS}
        self.part = {k: Part() for k in ("all", "first", "later", "bonus")}

    def add_text(self, tokens):
        last = previous = None
        for p, q, deterministic, token, index, bonus, u, begins in tokens:
            if begins:
                last = previous = None
            p, q = [F(x, ONE) for x in ROWS[p]], [F(x, ONE) for x in ROWS[q]] if q >= 0 else None
            last = self.add(p, q, deterministic, token, index, bonus, F(u), last, previous)
            previous = token

    def add(self, p, q, deterministic, token, index, bonus, u, last, previous):
        if p[token] == 0:
            self.impossible += 1
            return None

        def guide(v):
            if v in deterministic:
                return (1, -deterministic.index(v))
            return (0, (q[v] / p[v] if q else p[v]) if p[v] > 0 else 0, v)

        orders = {"guided": guide, "p": lambda v: (p[v], v), "id": lambda v: v}
        uniform = {o: before(k, p, token) + u * p[token] for o, k in orders.items()}
        parts = [self.part["all"], self.part["bonus" if bonus else "later" if index else "first"]]
        for o, x in uniform.items():
            for n in CELLS, COARSE, SQUARE:
                assert abs(x * n - round(x * n)) > F(1, 10**7) or x == 0, "too close to a cell's edge"
            self.cells[o][int(x * CELLS)] += 1
            if last:
                self.squares[o][int(last[o] * SQUARE)][int(x * SQUARE)] += 1
            for part in parts:
                part.cells[o][int(x * COARSE)] += 1
        functions = {"argmax p": lambda v: v == argmax(p), "surprisal": lambda v: min(8, -math.log(p[v])), "end": lambda v: v == END}
        if previous is not None:
            functions["repeat"] = lambda v: v == previous
        if q:
            functions["log q/p"] = lambda v: max(-3, min(3, math.log(q[v] / p[v]))) if q[v] > 0 else -3
            functions["q > p"] = lambda v: q[v] > p[v]
            functions["argmax q"] = lambda v: v == argmax(q)
        if deterministic:
            functions["deterministic"] = lambda v: v in deterministic
        low = uniform["p"]
        events = {"argmax p": (token == argmax(p), p[argmax(p)]), "tail": (low < F(1, 100), F(1, 100)), "half": (low < F(1, 2), F(1, 2))}
        if q or deterministic:
            favoured = [v for v in range(VOCAB) if v in deterministic or q and q[v] > p[v]]
            first = deterministic[0] if deterministic else argmax(q)
            events["favoured"] = (token in favoured, sum(p[v] for v in favoured))
            events["draft token"] = (token == first, p[first])
        for part in parts:
            part.tokens += 1
            part.guided += bool(q or deterministic)
            for name, g in functions.items():
                values = {v: float(g(v)) for v in range(VOCAB) if p[v] > 0}
                mean = sum(float(p[v]) * g for v, g in values.items())
                variance = sum(float(p[v]) * (g - mean) ** 2 for v, g in values.items())
                if variance > 1e-9:
                    self.score(part, name, values[token] - mean, variance)
            self.score(part, "tail", float(low < F(1, 100)) - 0.01, 0.0099)
            for name, (won, probability) in events.items():
                for stake in STAKES:
                    s = float(stake)
                    factor = math.exp(s * won) / (float(probability) * math.exp(s) + 1 - float(probability))
                    part.bets[name, stake] = part.bets.get((name, stake), 0.0) + math.log(factor)
        return uniform

    @staticmethod
    def score(part, name, surplus, variance):
        s = part.scores.setdefault(name, [0, 0.0, 0.0])
        s[0] += 1
        s[1] += surplus
        s[2] += variance

    def log_e(self):
        if self.impossible:
            return math.inf
        bets = []
        for part in "all", "first", "bonus":
            for event in "argmax p", "tail", "half", "favoured", "draft token":
                bets += [math.exp(self.part[part].bets.get((event, s), 0.0)) for s in STAKES]
        return math.log(sum(bets) / len(bets))

    def tests(self):
        """[kind, of, part, statistic, log10 of p, tokens]"""
        whole = self.part["all"]
        n = whole.tokens
        out = [["impossible", "p = 0", "all", self.impossible, -math.inf if self.impossible else 0.0, n + self.impossible]]
        for o in ORDERS if whole.guided else ORDERS[1:]:
            below, distance = 0, F(0)
            for i, count in enumerate(self.cells[o]):
                below += count
                distance = max(distance, abs(F(below, n) - F(i + 1, CELLS)))
            out.append(["KS", o, "all", float(distance), kolmogorov(distance, n), n])
            pairs = sum(map(sum, self.squares[o]))
            expected = F(pairs, SQUARE**2)
            if expected >= 5:
                s = self.squares[o]
                line, column = [F(sum(r)) for r in s], [F(sum(r[k] for r in s)) for k in range(SQUARE)]
                chi = sum((s[i][k] - line[i] / SQUARE - column[k] / SQUARE + expected) ** 2 / expected for i in range(SQUARE) for k in range(SQUARE))
                out.append(["pairs", o, "all", float(chi), chi_square(chi, (SQUARE - 1) ** 2), pairs])
        for name, part in self.part.items():
            for o in ORDERS if part.guided else ORDERS[1:]:
                if part.tokens >= 5 * COARSE:
                    chi = even(part.cells[o])
                    out.append(["chi-square", o, name, float(chi), chi_square(chi, COARSE - 1), part.tokens])
            for f, (seen, s, variance) in part.scores.items():
                out.append(["score", f, name, s / math.sqrt(variance), bennett(s, variance, WIDTH.get(f, 1)), seen])
        return out


def even(count):
    expected = F(sum(count), len(count))
    return sum((x - expected) ** 2 / expected for x in count)


def chi_square(chi, freedom):
    return float(log10(gammainc(mpf(freedom) / 2, mpf(chi.numerator) / chi.denominator / 2, inf, regularized=True)))


def kolmogorov(d, n):
    x = sqrt(mpf(n)) * mpf(d.numerator) / d.denominator
    x += 1 / (6 * sqrt(mpf(n))) + (x - 1) / (4 * mpf(n))
    return float(log10(2 * nsum(lambda k: (-1) ** (int(k) - 1) * exp(-2 * k * k * x * x), [1, 80], method="direct")))


def bennett(s, variance, width):
    x = abs(mpf(s)) * width / mpf(variance)
    h = (1 + x) * log1p(x) - x
    return float(log10(erfc(sqrt(mpf(variance) * h) / width)))


# ---- a verdict


def holm(tests):
    """log10 of the adjusted p-values."""
    order = sorted(range(len(tests)), key=lambda i: tests[i][4])
    out, largest = [0.0] * len(tests), -math.inf
    for k, i in enumerate(order):
        largest = max(largest, min(0.0, tests[i][4] + math.log10(len(tests) - k)))
        out[i] = largest
    return out


def verdict(level, streams, max_log_e, acceptance, rejected):
    """streams: the evidence of text, drafter, control and negative controls. A quarter of the level for each bet, half for the
    tests."""
    max_depth, accepted, expected, variance = acceptance
    mine = [["text"] + t for t in streams["text"].tests()] + [["drafter"] + t for t in streams["drafter"].tests()]
    z = (accepted - expected) / math.sqrt(variance)
    mine.append(["text", "acceptance", "accepted - E[accepted | draft]", "all", z, bennett(accepted - expected, variance, max(max_depth, 1)), 0])
    if sum(map(sum, rejected)) >= 5 * SQUARE**2:
        chi = even([x for r in rejected for x in r])
        mine.append(["drafter", "independence", "rejected token, replacement", "all", float(chi), chi_square(chi, SQUARE**2 - 1), 0])
    adjusted = holm([t[1:] for t in mine])
    alarm = {}
    for name in streams:
        if name in ("text", "drafter"):
            worst = [a for t, a in zip(mine, adjusted) if t[0] == name]
        else:
            worst = holm(streams[name].tests())
        bet = streams[name].log_e()
        if name == "text":
            bet = max(bet, max_log_e)
        alarm[name] = bet >= math.log(4 / level) or min(worst) < math.log10(level / 2)
    bias = alarm["text"] or alarm["drafter"]
    clear = not alarm["control"] and alarm["negative controls"]
    answer = "bias found" if bias else "no bias found" if clear else "no verdict"
    rows = [t[:4] + [finite(a)] for t, a in zip(mine, adjusted)]
    return {"answer": answer, "alarm": {k: bool(v) for k, v in alarm.items()}, "rows": rows, "z": z}


def finite(x):
    return x if math.isfinite(x) else None


def main():
    found, seen = {}, {}
    for name, t in READ["texts"].items():
        e = seen[name] = Evidence()
        e.add_text(t["tokens"])
        found[name] = {"tokens": t["tokens"], "log_e": finite(e.log_e()), "tests": [t[:4] + [finite(t[4])] + t[5:] for t in e.tests()]}
    verdicts = []
    for v in READ["verdicts"]:
        given = {k: v[k] for k in ("level", "of", "max_log_e", "acceptance", "rejected")}
        streams = {k: seen[n] for k, n in v["of"].items()}
        verdicts.append({**given, **verdict(v["level"], streams, v["max_log_e"], v["acceptance"], v["rejected"])})
    with open(sys.argv[1], "w") as f:
        f.write('{"one": %d, "vocab": %d, "end": %d, "rows": %s,\n"texts": {\n' % (ONE, VOCAB, END, json.dumps(ROWS)))
        f.write(",\n".join("%s: %s" % (json.dumps(k), json.dumps(t, separators=(",", ":"))) for k, t in found.items()))
        f.write('},\n"verdicts": [\n' + ",\n".join(json.dumps(v, separators=(",", ":")) for v in verdicts) + "]}\n")
    print({k: (t["log_e"], len(t["tests"])) for k, t in found.items()}, [v["answer"] for v in verdicts])


if __name__ == "__main__":
    main()
