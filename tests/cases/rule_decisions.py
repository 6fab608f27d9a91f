"""rule_decisions.py - the decision of every rule under given uniforms: last node, token, {node: (p, q) of its trial}."""

from fractions import Fraction as F

from philox import ACCEPT, BONUS, RESIDUAL, accept, invert
from rule_outputs import Unsure, blockwise_end, chain_terms, multipath_terms, normal, residual, spectr_terms, traversal_visit, typical_end, whole_chain

NEAR = F(1, 10**9)


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


def blockwise_verify(d, options, draws):
    return blockwise_end(d, options)


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
    "typical": typical_verify, "blockwise": blockwise_verify, "match": match_verify, "block": block_verify, "traversal": traversal_verify,
    "spectr": spectr_verify, "multipath": multipath_verify,
}  # fmt: skip
