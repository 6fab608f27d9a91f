"""make_rules.py - a second implementation of every rule of verifier/rules, in fractions, from the formulas of the papers
(docs/exactness.md).

Writes rules.json: drafts with their rows of p and q, and for each rule the probability of every output (where the path ends
and which token follows) given the draft, computed exactly, and the rule's output under given uniforms, token for token. It
is independent of speclab and needs the standard library only:

    python -B make_rules.py rules.json

Rows are integers of 1/64 that add up to 64, so that they are exact in floats, or of 2^-24 that nearly add up to 2^24, as from
a softmax: those are divided by their sum. A draw whose uniform is within 1e-9 of a boundary is skipped, except in cases that
are on one by construction ("given"): there all numbers are exact.
"""

import itertools
import json
import math
import random
import sys
from fractions import Fraction as F

from philox import ACCEPT, BONUS, RESIDUAL, Given, Philox, accept, invert

DETERMINISTIC, SAMPLED, DISTINCT = range(3)
ONE = 64
NEAR = F(1, 10**9)


class Draft:
    def __init__(self, token, parent, proposal, p, q):
        self.token, self.parent, self.proposal = token, parent, proposal
        self.rows = {"p": p, "q": q}
        self.p, self.q = ([[F(x, sum(row)) for x in row] for row in rows] for rows in (p, q))
        self.n = len(token)

    def children(self, node):
        return [c for c in range(self.n) if self.parent[c] == node]

    def path(self, node):
        return [] if node < 0 else self.path(self.parent[node]) + [node]

    def measure_row(self, c):
        """The row that child c was sampled from: q, without the tokens of earlier siblings if without replacement."""
        node = self.parent[c]
        if self.proposal[c] == DETERMINISTIC:
            return [F(x == self.token[c]) for x in range(len(self.p[0]))]
        q = list(self.q[node])
        if self.proposal[c] == DISTINCT:
            for s in self.children(node):
                if s < c:
                    q[self.token[s]] = F(0)
            whole = sum(q)
            q = [x / whole for x in q]
        return q


def normal(row):
    whole = sum(row)
    return [x / whole for x in row]


def residual(p, q):
    left = [max(a - b, F(0)) for a, b in zip(p, q)]
    return (normal(left), True) if sum(left) > 0 else (p, False)


# ---- outputs: {(last node, token that follows): probability}, given the draft


def add(out, node, row, probability):
    for x, w in enumerate(row):
        if w > 0 and probability > 0:
            out[node, x] = out.get((node, x), F(0)) + probability * w


def rejection_outputs(d, options, acceptance):
    out = {}

    def go(node, reach):
        p = d.p[node]
        for c in d.children(node):
            q = d.measure_row(c)
            s = acceptance(p[d.token[c]], q[d.token[c]], options)
            go(c, reach * s)
            reach *= 1 - s
            p, _ = residual(p, q)
        add(out, node, p, reach)

    go(0, F(1))
    return out


def of_rejection(p, q, options):
    return min(F(1), p / q)


def of_lenient(p, q, options):
    return min(F(1), options["lenience"] * p / q)


def of_synthetic(p, q, options):
    return options["rate"]


def typical_end(d, options):
    """The last node, and {child: (its p, the threshold)} of the children that were tried."""
    accepted, trials, best = {0: 0.0}, {}, 0
    for node in range(d.n):
        if node not in accepted:
            continue
        entropy = -sum(float(x) * math.log(float(x)) for x in d.p[node] if x > 0)
        soft = float(options["delta"]) * math.exp(-entropy)
        threshold = min(float(options["epsilon"]), soft)
        for c in d.children(node):
            x = d.p[node][d.token[c]]
            trials[c] = (float(x), threshold)
            if threshold == soft and abs(float(x) - threshold) < 1e-9 and entropy != 0:
                raise Unsure
            if float(x) > threshold:
                accepted[c] = accepted[node] + math.log(float(x))
    for node in sorted(accepted):
        deeper = len(d.path(node)) - len(d.path(best))
        if deeper > 0 or (deeper == 0 and accepted[node] > accepted[best] + 1e-12):
            best = node
    return best, trials


def typical_outputs(d, options):
    out, (end, _) = {}, typical_end(d, options)
    add(out, end, d.p[end], F(1))
    return out


def match_outputs(d, options):
    out = {}

    def go(node, reach):
        for x, w in enumerate(d.p[node]):
            same = [c for c in d.children(node) if d.token[c] == x]
            if same:
                go(same[0], reach * w)
            else:
                add(out, node, [w * (y == x) for y in range(len(d.p[node]))], reach)

    go(0, F(1))
    return out


def chain_terms(d, nodes, q):
    """Sun et al. 2024, arXiv 2403.10444: b_i, h_i and the distribution after i tokens, along the chain `nodes` sampled from rows q."""
    k = len(nodes) - 1
    b = [F(1)]
    for i in range(1, k + 1):
        x = d.token[nodes[i]]
        b.append(min(F(1), b[-1] * d.p[nodes[i - 1]][x] / q[i - 1][x]))
    h, follows = [], []
    for i in range(k):
        p = [b[i] * x for x in d.p[nodes[i]]]
        left = [max(x - y, F(0)) for x, y in zip(p, q[i])]
        mass = sum(left)
        h.append(F(1) if i == 0 else mass / (mass + 1 - b[i]) if mass + 1 - b[i] > 0 else F(1))
        follows.append(normal(left) if mass > 0 else d.p[nodes[i]])
    return b, h + [b[k] if k > 0 else F(1)], follows + [d.p[nodes[k]]]


def from_the_end(out, nodes, h, follows):
    reach = F(1)
    for i in reversed(range(len(nodes))):
        add(out, nodes[i], follows[i], reach * h[i])
        reach *= 1 - h[i]
    assert reach == 0
    return out


def whole_chain(d):
    return d.path(d.n - 1)


def block_outputs(d, options):
    nodes = whole_chain(d)
    q = [d.measure_row(c) for c in nodes[1:]]
    _, h, follows = chain_terms(d, nodes, q)
    return from_the_end({}, nodes, h, follows)


def traversal_visit(d, node, a, stop):
    """The lemma of docs/exactness.md; stop(node, a, row) decides whether the walk stops at the node."""
    p = d.p[node]
    for c in d.children(node):
        q = d.measure_row(c)
        x = d.token[c]
        down = min(F(1), a * p[x] / q[x])
        if down > 0 and traversal_visit(d, c, down, stop):
            return True
        w = [max(a * y - z, F(0)) for y, z in zip(p, q)]
        mass = sum(w)
        if mass > 0:
            a, p = mass / (mass + 1 - a), normal(w)
        elif a < 1:
            a = F(0)
        if a == 0:
            break
    return stop(node, a, p)


def traversal_outputs(d, options):
    out, reach = {}, [F(1)]

    def stop(node, a, p):
        add(out, node, p, reach[0] * a)
        reach[0] *= 1 - a
        return False

    traversal_visit(d, 0, F(1), stop)
    return out


def spectr_terms(d, node):
    p, q, k = d.p[node], d.q[node], len(d.children(node))

    def beta(r):
        return sum(min(x / r, y) for x, y in zip(p, q))

    def fits(r):
        return 1 - (1 - beta(r)) ** k <= r * beta(r)

    low, high = F(1), F(1) if fits(F(1)) else F(k)
    while high - low > F(1, 2**44):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    b = beta(high)
    factor = (1 - (1 - b) ** k) / b if b > 0 else F(k)
    return high, [max(x - min(x / high, y) * factor, F(0)) for x, y in zip(p, q)]


def spectr_outputs(d, options):
    out = {}

    def go(node, reach):
        if not d.children(node):
            return add(out, node, d.p[node], reach)
        rho, left = spectr_terms(d, node)
        for c in d.children(node):
            x = d.token[c]
            s = min(F(1), d.p[node][x] / (rho * d.q[node][x]))
            go(c, reach * s)
            reach *= 1 - s
        add(out, node, normal(left) if sum(left) > F(1, 2**40) else d.p[node], reach)

    go(0, F(1))
    return out


def multipath_terms(d, rows):
    """The selected chain and the rows q', by enumeration: every possible chain, in lexicographic order, and the probability
    that it is the largest of k. rows(text): p and q after any text."""
    leaves = [n for n in range(1, d.n) if not d.children(n)]
    k, depth, vocab = len(d.children(0)), len(d.path(leaves[0])) - 1, len(d.p[0])

    def key(chain):
        out = []
        for i, x in enumerate(chain):
            p, q = rows(chain[:i])
            out.append((p[x] / q[x], x))
        return out

    def text(leaf):
        return tuple(d.token[n] for n in d.path(leaf)[1:])

    selected = max(leaves, key=lambda leaf: (key(text(leaf)), -leaf))
    chains = []
    for chain in itertools.product(range(vocab), repeat=depth):
        mass = F(1)
        for i, x in enumerate(chain):
            mass *= rows(chain[:i])[1][x]
        if mass > 0:
            chains.append((key(chain), chain, mass))
    chains.sort()
    largest, below = {}, F(0)
    for _, chain, mass in chains:
        largest[chain] = (below + mass) ** k - below**k
        below += mass
    assert below == 1
    nodes, skewed = d.path(selected), []
    for i in range(depth):
        s = text(selected)[:i]
        of = [sum(m for c, m in largest.items() if c[: i + 1] == s + (x,)) for x in range(vocab)]
        skewed.append(normal(of))
    return nodes, skewed


def multipath_outputs(d, options):
    if d.n == 1:
        return match_outputs(d, options)
    nodes, skewed = multipath_terms(d, options["rows"])
    _, h, follows = chain_terms(d, nodes, skewed)
    return from_the_end({}, nodes, h, follows)


OUTPUTS = {
    "rejection": lambda d, o: rejection_outputs(d, o, of_rejection),
    "lenient": lambda d, o: rejection_outputs(d, o, of_lenient),
    "synthetic": lambda d, o: rejection_outputs(d, o, of_synthetic),
    "typical": typical_outputs, "match": match_outputs, "block": block_outputs, "traversal": traversal_outputs,
    "spectr": spectr_outputs, "multipath": multipath_outputs,
}  # fmt: skip


# ---- the decision of a rule under given uniforms: last node, token, {node: (p, q) of its trial}


class Unsure(Exception):
    """A draw that another rounding order might decide differently."""


class Draws:
    empty = None  # number of empty residuals; None: the rule does not count them

    def __init__(self, source, exact):
        self.source, self.exact = source, exact

    def accept(self, node, num, den):
        u = self.source.uniform(ACCEPT, node) if 0 < num < den else F(0)
        if 0 < num < den and not self.exact and abs(u - F(num) / F(den)) < NEAR:
            raise Unsure
        return accept(u, num, den)

    def pick(self, row, purpose, node):
        x, near = invert(self.source.uniform(purpose, node), row)
        if near < NEAR and not self.exact:
            raise Unsure
        return x


def purpose_at(d, node):
    return RESIDUAL if d.children(node) else BONUS


def rejection_verify(d, options, draws, numerator):
    node, trials, draws.empty = 0, {}, 0
    while True:
        p = d.p[node]
        for c in d.children(node):
            q = d.measure_row(c)
            x = d.token[c]
            trials[c] = (numerator(p[x], q[x], options), q[x])
            if draws.accept(c, *trials[c]):
                node = c
                break
            p, left = residual(p, q)
            draws.empty += not left
        else:
            return node, draws.pick(p, purpose_at(d, node), node), trials


def typical_verify(d, options, draws):
    end, trials = typical_end(d, options)
    return end, draws.pick(d.p[end], purpose_at(d, end), end), trials


def match_verify(d, options, draws):
    node, trials, root = 0, {}, draws.source.root
    while True:
        x, gap = draws.source.race(d.p[node], root + len(d.path(node)))
        if gap < 1e-9:
            raise Unsure
        left, tokens = F(1), []
        for c in d.children(node):
            w = F(0) if d.token[c] in tokens else d.p[node][d.token[c]]
            trials[c] = (w / left if w > 0 else F(0), F(1))
            left -= w
            tokens.append(d.token[c])
            if d.token[c] == x:
                node = c
                break
        else:
            return node, x, trials


def last_test_first(d, draws, nodes, q):
    b, h, follows = chain_terms(d, nodes, q)
    trials = {}
    for i in range(1, len(nodes)):
        x = d.token[nodes[i]]
        trials[nodes[i]] = (b[i - 1] * d.p[nodes[i - 1]][x], q[i - 1][x])
    i = len(nodes) - 1
    while not draws.accept(nodes[i], h[i], F(1)):
        i -= 1
    return nodes[i], draws.pick(follows[i], purpose_at(d, nodes[i]), nodes[i]), trials


def block_verify(d, options, draws):
    nodes = whole_chain(d)
    at, x, trials = last_test_first(d, draws, nodes, [d.measure_row(c) for c in nodes[1:]])
    dead = [i for i in range(1, len(nodes)) if trials[nodes[i]][0] == 0]  # nodes that cannot be reached are not tried
    return at, x, {n: t for n, t in trials.items() if not dead or nodes.index(n) <= dead[0]}


def multipath_verify(d, options, draws):
    if d.n == 1:
        return 0, draws.pick(d.p[0], BONUS, 0), {}
    nodes, skewed = multipath_terms(d, options["rows"])
    return last_test_first(d, draws, nodes, skewed)


def traversal_verify(d, options, draws):
    result = []

    def stop(node, a, p):
        if not draws.accept(node, a, F(1)):
            return False
        result.append((node, draws.pick(p, purpose_at(d, node), node)))
        return True

    traversal_visit(d, 0, F(1), stop)
    return result[0] + (None,)


def spectr_verify(d, options, draws):
    node, trials = 0, {}
    while d.children(node):
        rho, left = spectr_terms(d, node)
        for c in d.children(node):
            trials[c] = (d.p[node][d.token[c]], rho * d.q[node][d.token[c]])
            if draws.accept(c, *trials[c]):
                node = c
                break
        else:
            row = normal(left) if sum(left) > F(1, 2**40) else d.p[node]
            return node, draws.pick(row, RESIDUAL, node), trials
    return node, draws.pick(d.p[node], BONUS, node), trials


VERIFY = {
    "rejection": lambda d, o, c: rejection_verify(d, o, c, lambda p, q, o: p),
    "lenient": lambda d, o, c: rejection_verify(d, o, c, lambda p, q, o: o["lenience"] * p),
    "synthetic": lambda d, o, c: rejection_verify(d, o, c, lambda p, q, o: o["rate"] * q),
    "typical": typical_verify, "match": match_verify, "block": block_verify, "traversal": traversal_verify,
    "spectr": spectr_verify, "multipath": multipath_verify,
}  # fmt: skip


# ---- drafts


def row(rng, vocab, family):
    if family == "softmax":
        e = [math.exp(rng.gauss(0, 2)) for _ in range(vocab)]
        return [int(x / sum(e) * 2**24) for x in e]
    if family == "one-hot":
        hot = rng.randrange(vocab)
        return [ONE * (x == hot) for x in range(vocab)]
    if family == "ties":
        return {2: [32, 32], 3: [16, 32, 16], 4: [16] * 4, 5: [8, 16, 16, 16, 8]}[vocab]
    cuts = sorted(rng.choices(range(ONE + 1), k=vocab - 1) if family == "zeros" else rng.sample(range(1, ONE), vocab - 1))
    out = [b - a for a, b in zip([0] + cuts, cuts + [ONE])]
    if family == "peaked":
        out = [1] * vocab
        out[rng.randrange(vocab)] += ONE - vocab
    if family == "zeros" and vocab > 2:
        x = rng.randrange(vocab)
        out[(x + 1) % vocab] += out[x]
        out[x] = 0
    return out


FAMILIES = ["dense", "zeros", "peaked", "ties", "one-hot", "same", "softmax"]
SHAPES = {  # parents
    "chain 1": [-1, 0], "chain 2": [-1, 0, 1], "chain 3": [-1, 0, 1, 2], "root": [-1],
    "two": [-1, 0, 0], "three": [-1, 0, 0, 0], "two by two": [-1, 0, 0, 1, 1, 2, 2],
    "odd": [-1, 0, 0, 1, 2, 2, 4, 4], "two chains": [-1, 0, 0, 1, 2, 3, 4], "three chains": [-1, 0, 0, 0, 1, 2, 3],
}  # fmt: skip


def draft(rng, vocab, shape, family, hows):
    """hows: proposals to select from. Rows belong to texts: nodes with equal texts have equal rows."""
    parent = SHAPES[shape]
    by_text = {}

    def rows(text):
        if text not in by_text:
            p = row(rng, vocab, rng.choice(FAMILIES[:5]) if family == "any" else "dense" if family == "same" else family)
            q = row(rng, vocab, "dense" if family in ("one-hot", "any") else family)
            by_text[text] = (p, list(p) if family == "same" else q)
        return by_text[text]

    token, proposal, text = [0], [DETERMINISTIC], [()]
    for c in range(1, len(parent)):
        p, q = rows(text[parent[c]])
        how = rng.choice(hows)
        earlier = [token[s] for s in range(1, c) if parent[s] == parent[c]]
        can = [x for x in range(vocab) if q[x] > 0 and not (how == DISTINCT and x in earlier)]
        if how == DETERMINISTIC or not can:
            how, can = (DETERMINISTIC, list(range(vocab)))
        token.append(rng.choices(can, [q[x] if how else 1 for x in can])[0])
        proposal.append(how)
        text.append(text[parent[c]] + (token[c],))
    for t in text:
        rows(t)
    d = Draft(token, parent, proposal, [by_text[t][0] for t in text], [by_text[t][1] for t in text])
    return d, lambda t: tuple([F(x, sum(r)) for x in r] for r in rows(t))


ANY = [DETERMINISTIC, SAMPLED, DISTINCT]
TREES = ["root", "chain 1", "chain 3", "two", "three", "two by two", "odd"]
TAKES = {
    "rejection": (TREES, ANY), "lenient": (TREES, ANY), "synthetic": (TREES, ANY), "typical": (TREES, ANY),
    "match": (TREES, ANY), "traversal": (TREES, ANY), "block": (["root", "chain 1", "chain 2", "chain 3"], ANY),
    "spectr": (["chain 2", "two", "three", "two by two"], [SAMPLED]),
    "multipath": (["chain 1", "chain 3", "two", "three", "two chains", "three chains"], [SAMPLED]),
}  # fmt: skip
OPTIONS = {
    "lenient": [{"lenience": "1.1"}, {"lenience": "1.5"}, {"lenience": "4"}, {"lenience": "1"}],
    "synthetic": [{"rate": "0.7"}, {"rate": "0.25"}, {"rate": "0"}, {"rate": "1"}],
    "typical": [{"epsilon": "0.09", "delta": "0.3"}, {"epsilon": "0.25", "delta": "1"}, {"epsilon": "1", "delta": "0.6"},
                {"epsilon": "0", "delta": "0.3"}, {"epsilon": "1", "delta": "1"}],
}  # fmt: skip


def values(options, rows=None):
    return {**{k: F(v) for k, v in options.items()}, "rows": rows}


def number(x):
    return float("%.13g" % x)


def case(rule, options, d, rows, seeds):
    o = values(options, rows)
    vocab = len(d.p[0])
    outputs = OUTPUTS[rule](d, o)
    assert sum(outputs.values()) == 1
    verified = []
    for seed in seeds:
        sequence, root = seed * 7919 + (seed % 3 << 33), 5 + seed % 11
        draws = Draws(Philox(seed, sequence, root), False)
        try:
            last, x, trials = VERIFY[rule](d, o, draws)
        except Unsure:
            continue
        verified.append([seed, sequence, root, last, x, draws.empty])
        if trials is not None and len(verified) <= 2:
            verified[-1].append([[c, number(t[0]), number(t[1])] for c, t in sorted(trials.items())])
    expected = {"expected": expected_acceptance(rule, o, d, rows)} if d.n > 1 and len(seeds) and seeds[0] % 5 in (1, 2) else {}
    return {
        **expected, "rule": rule, "options": options, "vocab": vocab, "token": d.token, "parent": d.parent, "proposal": d.proposal,
        "one": ONE if sum(d.rows["p"][0]) == ONE else 2**24, **d.rows,
        "outputs": [[node, x, number(w)] for (node, x), w in sorted(outputs.items())], "verified": verified,
    }  # fmt: skip


# ---- expected acceptance of a draft under every rule that takes it (experiments/expectation.h)


DEFAULTS = {"lenient": {"lenience": F("1.1")}, "synthetic": {"rate": F("0.7")}, "typical": {"epsilon": F("0.09"), "delta": F("0.3")}}


def expected_acceptance(rule, options, d, rows):
    """{rule: [E[accepted], probability that a token is accepted]}; the case's own rule has the variance too."""
    kinds = {d.proposal[c] for c in range(1, d.n)}
    branches = any(len(d.children(c)) > 1 for c in range(d.n))
    depths = {len(d.path(c)) for c in range(d.n) if not d.children(c)}
    chains = len(depths) == 1 and all(len(d.children(c)) < 2 for c in range(1, d.n))
    out = {}
    for other, outputs in OUTPUTS.items():
        if other == "block" and branches or other in ("spectr", "multipath") and kinds != {SAMPLED} or other == "multipath" and not (chains and rows):
            continue
        o = options if other == rule else {**DEFAULTS.get(other, {}), "rows": rows}
        by_depth = {}
        for (node, _), w in outputs(d, o).items():
            by_depth[len(d.path(node)) - 1] = by_depth.get(len(d.path(node)) - 1, F(0)) + w
        accepted = sum(k * w for k, w in by_depth.items())
        out[other] = [number(accepted), number(1 - by_depth.get(0, F(0)))]
        if other == rule:
            out[other].append(number(sum(k * k * w for k, w in by_depth.items()) - accepted**2))
    first = d.children(0)
    how = [SAMPLED if c == first[0] and d.proposal[c] == DISTINCT else d.proposal[c] for c in first]  # without earlier siblings both are the same
    if set(how) in ({DETERMINISTIC}, {SAMPLED}):
        vocab, bound = range(len(d.p[0])), F(1)
        for size in range(len(d.p[0]) + 1):  # every set of tokens bounds every coupling of p with the draft tokens
            for held in itertools.combinations(vocab, size):
                inside = F(all(d.token[c] in held for c in first))
                if d.proposal[first[0]] != DETERMINISTIC:
                    inside = sum(d.q[0][x] for x in held) ** len(first)
                bound = min(bound, sum(d.p[0][x] for x in held) + 1 - inside)
        out["(bound)"] = [None, number(bound)]
    else:
        out["(bound)"] = [None, None]
    return out


def boundary_case(rule, options, token, parent, proposal, p, q, edges):
    """edges: {(purpose, node): u} and the output by hand: (last node, token)."""
    d = Draft(token, parent, proposal, p, q)
    c = case(rule, options, d, None, [])
    c["given"] = []
    for u, expected in edges:
        draws = Draws(Given(u), True)
        last, x, _ = VERIFY[rule](d, values(options), draws)
        assert (last, x) == expected, (rule, u, (last, x), expected)
        c["given"].append([last, x, draws.empty, [[a, n, float(v)] for (a, n), v in u.items()]])
    return c


def edges():
    ulp = F(1, 2**53)
    half, quarter = F(1, 2), F(1, 4)
    one = ([0, 1], [-1, 0])
    p, q = [[16, 16, 32], [32, 16, 16]], [[16, 32, 16], [0, 0, 64]]
    # p / q at token 1 is 1/2; (p - q)+ has token 2 only. After it 1/2, 1/4, 1/4.
    walk = [
        ({(ACCEPT, 1): half, (RESIDUAL, 0): F(0)}, (0, 2)),
        ({(ACCEPT, 1): half - ulp, (BONUS, 1): half - ulp}, (1, 0)),
        ({(ACCEPT, 1): half - ulp, (BONUS, 1): half}, (1, 1)),
        ({(ACCEPT, 1): half - ulp, (BONUS, 1): half + quarter}, (1, 2)),
        ({(ACCEPT, 1): F(0), (BONUS, 1): 1 - ulp}, (1, 2)),
    ]
    yield boundary_case("rejection", {}, *one, [0, SAMPLED], p, q, walk)
    # block and traversal: b = 1/2, then (p - q)+ has 1/4 .. h_0 is 1, so it needs no uniform.
    yield boundary_case("block", {}, *one, [0, SAMPLED], p, q, walk)
    yield boundary_case("traversal", {}, *one, [0, SAMPLED], p, q, walk)
    # lenience 1.5: 1.5 * 16 / 32 is 3/4, and (p - q)+ is unchanged; lenience 2: always accepted.
    at = half + quarter
    lenient = [({(ACCEPT, 1): at, (RESIDUAL, 0): F(0)}, (0, 2)), ({(ACCEPT, 1): at - ulp, (BONUS, 1): F(0)}, (1, 0))]
    yield boundary_case("lenient", {"lenience": "1.5"}, *one, [0, SAMPLED], p, q, lenient)
    yield boundary_case("lenient", {"lenience": "2"}, *one, [0, SAMPLED], p, q, [({(BONUS, 1): F(0)}, (1, 0))])
    # rate 1/4 for any p and q: at p = 0, at p = q (empty residual: p is unchanged), and for a deterministic one-hot.
    for rows in ([[32, 0, 32], [32, 16, 16]], q), ([[16, 32, 16], [32, 16, 16]], q):
        at = quarter
        replacement = 2 if rows[0][0][1] == 0 else 1
        yield boundary_case(
            "synthetic", {"rate": "0.25"}, *one, [0, SAMPLED], *rows,
            [({(ACCEPT, 1): at - ulp, (BONUS, 1): F(0)}, (1, 0)), ({(ACCEPT, 1): at, (RESIDUAL, 0): half}, (0, replacement))],
        )  # fmt: skip
    hot = [[0, 64, 0]] * 4
    yield boundary_case(
        "synthetic", {"rate": "0.25"}, [0, 1, 1, 0], [-1, 0, 0, 0], [0, DETERMINISTIC, DETERMINISTIC, DETERMINISTIC], hot, hot,
        [({(ACCEPT, 1): half, (ACCEPT, 2): half, (ACCEPT, 3): half, (RESIDUAL, 0): half}, (0, 1)),
         ({(ACCEPT, 1): half, (ACCEPT, 2): F(0), (BONUS, 2): half}, (2, 1))],
    )  # fmt: skip
    # typical: p = epsilon is rejected, p above it accepted; at entropy 0 the threshold is delta.
    flat, end = [16, 16, 16, 16], [0, 32, 16, 16]
    t = {"epsilon": "0.25", "delta": "1"}
    yield boundary_case("typical", t, [0, 0, 1], [-1, 0, 0], [0, 0, 0], [[16, 32, 8, 8], end, end], [flat] * 3,
                      [({(RESIDUAL, 0): quarter, (BONUS, 2): quarter}, (2, 1))])  # fmt: skip
    for delta, last in ("1", 0), ("0.5", 1):
        hot = [[0, 64, 0, 0], [64, 0, 0, 0]]
        yield boundary_case("typical", {"epsilon": "1", "delta": delta}, [0, 1], [-1, 0], [0, 0], hot, [flat] * 2,
                          [({(RESIDUAL, 0): half, (BONUS, 1): half}, (last, 1 - last))])  # fmt: skip
    # typical: two paths of two, 1/2 * 1/4 and 1/4 * 1/2: the first; 1/2 * 1/4 and 1/4 * 3/4: the second; a longer one of 1/64
    # each is taken before both.
    t = {"epsilon": "0.01", "delta": "1"}
    top, a, b = [32, 16, 15, 1], [16, 32, 8, 8], [8, 32, 16, 8]
    parent, token, none = [-1, 0, 0, 1, 2], [0, 0, 1, 0, 1], [0] * 5
    yield boundary_case("typical", t, token, parent, none, [top, a, b, end, flat], [flat] * 5,
                      [({(BONUS, 3): quarter}, (3, 1))])  # fmt: skip
    yield boundary_case("typical", t, token, parent, none, [top, a, [4, 48, 4, 8], end, flat], [flat] * 5,
                      [({(BONUS, 4): quarter}, (4, 1))])  # fmt: skip
    yield boundary_case("typical", t, [0, 0, 1, 0, 3, 3, 3], [-1, 0, 0, 1, 0, 4, 5], [0] * 7,
                      [top, a, b, end, [1, 1, 61, 1], [1, 1, 61, 1], flat], [flat] * 7,
                      [({(BONUS, 6): quarter}, (6, 1))])  # fmt: skip


# ---- a check of the twin itself: summed over all possible drafts, an exact rule gives p


def lossless(rule, k, depth, rng):
    vocab, rows = 3, {}

    def at(text):
        if text not in rows:
            rows[text] = (row(rng, vocab, rng.choice(FAMILIES[:5])), row(rng, vocab, "dense"))
        return rows[text]

    parent = [-1] + [0] * k + [i for i in range(1, k * (depth - 1) + 1)]
    total = {}
    for tokens in itertools.product(range(vocab), repeat=k * depth):
        token, text, probability = [0] + list(tokens), [()], F(1)
        for c in range(1, len(parent)):
            probability *= F(at(text[parent[c]])[1][token[c]], ONE)
            text.append(text[parent[c]] + (token[c],))
        d = Draft(token, parent, [DETERMINISTIC] + [SAMPLED] * (k * depth), [at(t)[0] for t in text], [at(t)[1] for t in text])
        o = {"rows": lambda t: tuple([F(x, ONE) for x in r] for r in at(t))}
        for (node, x), w in OUTPUTS[rule](d, o).items():
            output = text[node] + (x,)
            total[output] = total.get(output, F(0)) + probability * w
    worst = F(0)
    for s in itertools.product(range(vocab), repeat=depth + 1):
        def p_of(text, begun):
            out = F(1)
            for i in range(begun, len(text)):
                out *= F(at(text[:i])[0][text[i]], ONE)
            return out
        got = sum(total.get(s[:i], F(0)) * p_of(s, i) for i in range(1, depth + 2))
        worst = max(worst, abs(got - p_of(s, 0)))
    return worst


def main():
    rng = random.Random(19)
    for rule, k, depth in [("rejection", 2, 1), ("rejection", 1, 3), ("match", 2, 1), ("block", 1, 3), ("traversal", 2, 2),
                           ("spectr", 2, 1), ("spectr", 3, 1), ("multipath", 2, 2), ("multipath", 3, 1)]:  # fmt: skip
        worst = lossless(rule, k, depth, rng)
        assert worst < (F(1, 10**11) if rule == "spectr" else F(1, 10**30)), (rule, k, depth, float(worst))
    assert lossless("spectr", 2, 1, rng) < F(1, 10**11)
    cases = list(edges())
    for rule, (shapes, hows) in TAKES.items():
        options = OPTIONS.get(rule, [{}])
        number_of = 0
        for shape in shapes:
            for family in FAMILIES + ["any"]:
                vocab = 3 + number_of % 3
                d, rows = draft(rng, vocab, shape, family, hows if number_of % 2 else [hows[number_of // 2 % len(hows)]])
                if shape == "root" and family != "dense":
                    continue
                seeds = range(1 + number_of, 7 + number_of)
                number_of += 1
                try:
                    cases.append(case(rule, options[number_of % len(options)], d, rows, seeds))
                except Unsure:  # a threshold of `typical` that is met exactly
                    pass
    with open(sys.argv[1], "w") as f:
        f.write('{"one": %d, "cases": [\n' % ONE)
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
        f.write("\n]}\n")
    print(len(cases), "cases,", sum(len(c["verified"]) for c in cases), "outputs under Philox")


if __name__ == "__main__":
    main()
