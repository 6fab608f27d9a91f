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
import random
import sys
from fractions import Fraction as F

from philox import ACCEPT, BONUS, RESIDUAL, Given
from rule_outputs import DETERMINISTIC, ONE, OUTPUTS, SAMPLED, Draft, Unsure
from rule_decisions import VERIFY, Draws
from rule_drafts import FAMILIES, OPTIONS, TAKES, case, draft, row, values


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
    # blockwise: tokens 1, 3, 2 of four by probability, 2 before 0 by nothing but its id's order; ids within 1 of 1; two of any kind.
    by_rank, chain = [8, 28, 8, 20], ([0, 3, 0, 2], [-1, 0, 1, 2], [0] * 4)
    for o, last in ({"accept": "top_k", "k": "2"}, 1), ({"accept": "top_k", "k": "3"}, 2), ({"accept": "top_k", "k": "4"}, 3), \
                   ({"accept": "distance", "epsilon": "1"}, 0), ({"accept": "distance", "epsilon": "2"}, 3), \
                   ({"accept": "top_k", "k": "1", "minimum_block": "3"}, 2):  # fmt: skip
        o = {"k": "1", "epsilon": "0", "minimum_block": "1", **o}
        yield boundary_case("blockwise", o, *chain, [by_rank] * 4, [flat] * 4, [({}, (last, 1))])


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
