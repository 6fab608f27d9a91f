"""rule_outputs.py - the probability of every output of every rule given a draft: {(last node, token that follows): probability}, in
fractions, from the formulas of the papers (docs/exactness.md).
"""

import itertools
import math
from fractions import Fraction as F

DETERMINISTIC, SAMPLED, DISTINCT = range(3)
ONE = 64


class Unsure(Exception):
    """A draw that another rounding order might decide differently."""


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


def blockwise_end(d, options):
    """Stern et al. 2018, section 5: the last node, and {child: (1 if it was accepted else 0, 1)} of the children that were tried."""
    node, trials = 0, {}
    while True:
        row = d.p[node]
        ranked = sorted(range(len(row)), key=lambda x: (-row[x], x))
        if options["accept"] == "top_k":
            accepted = {x for x in ranked[: int(options["k"])] if row[x] > 0}
        else:
            accepted = {x for x in ranked if abs(x - ranked[0]) <= options["epsilon"]}
        if len(d.path(node)) < options["minimum_block"]:
            accepted = set(ranked)
        for c in d.children(node):
            trials[c] = (F(d.token[c] in accepted), F(1))
            if d.token[c] in accepted:
                node = c
                break
        else:
            return node, ranked[0], trials


def blockwise_outputs(d, options):
    end, x, _ = blockwise_end(d, options)
    return {(end, x): F(1)}


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
    "typical": typical_outputs, "blockwise": blockwise_outputs, "match": match_outputs, "block": block_outputs, "traversal": traversal_outputs,
    "spectr": spectr_outputs, "multipath": multipath_outputs,
}  # fmt: skip
