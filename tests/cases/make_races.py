"""make_races.py - a second implementation of draws by address: drafts, coupled ones included, and the tokens of `match`.

Reads the rows and the settings of races.json and writes it again. Rows are Markov tables: the row after a token depends on that token alone;
those of q are near to p's, the sparse ones have zeros. A coupled draft is the token with the smallest -log(1 - u_i) / q_i at each place of the
text, `match` the one with the smallest -log(1 - u_i) / p_i, with the same u_i of Philox at (seed, sequence, place, i); docs/exactness.md,
sampling/rng.h. Sampled drafts invert the cumulative sum at the address of their candidate. No draw is within 1e-9 of another decision. Needs the
standard library only:

    python -B make_races.py races.json

"longs": lengths around the chunk sizes of the program, the seed, the place and the winner of rows whose weights are equal at every eleventh
token. "agreement": two rows, and the probability that the races over both have the same winner, in closed form: token i wins both if
every other time is later in both, so it is the sum over i of 1 / (sum over j of max(p_j / p_i, q_j / q_i)).
"""

import json
import sys
from fractions import Fraction as F

from philox import DRAFT, Philox, invert

ONE = 4096
NEAR = 1e-9


def race(source, weight, place):
    x, gap = source.race([F(w, ONE) for w in weight], place)
    assert gap >= NEAR
    return x


def pick(source, weight, node):
    x, near = invert(source.uniform(DRAFT, node), [F(w, ONE) for w in weight])
    assert near >= NEAR
    return x


def drafted(source, root, q, how, distinct, widths):
    """Candidates in the order in which they are sampled: [token, parent, proposal]."""
    found, frontier = [[root, -1, 0]], [0]
    for depth, width in enumerate(widths):
        level = []
        for c in frontier:
            weight = list(q[found[c][0]])
            for _ in range(width):
                if how == "coupled":
                    x, kind = race(source, weight, source.root + depth + 1), 0
                else:
                    x, kind = pick(source, weight, len(found)), 2 if distinct and width > 1 else 1
                level.append(len(found))
                found.append([x, c, kind])
                if distinct and width > 1:
                    weight[x] = 0
                    if sum(weight) == 0:
                        break
        frontier = level
    return found


def matched(source, draft, p):
    """The tokens that `match` emits along the draft."""
    node, tokens = 0, []
    while True:
        x = race(source, p[draft[node][0]], source.root + len(tokens) + 1)
        tokens.append(x)
        accepted = [c for c in range(len(draft)) if draft[c][1] == node and draft[c][0] == x]
        if not accepted:
            return tokens
        node = accepted[0]


def agreement(a, b):
    rate = F(0)
    for i in range(len(a)):
        if a[i] > 0 and b[i] > 0:
            rate += 1 / sum(max(F(a[j], a[i]), F(b[j], b[i])) for j in range(len(a)))
    tv = sum(abs(F(x - y, ONE)) for x, y in zip(a, b)) / 2
    assert (1 - tv) / (1 + tv) <= rate <= 1 - tv  # Daliri, Musco, Suresh 2024; the upper bound holds for any coupling
    return float(rate)


def main(path):
    with open(path) as f:
        read = json.load(f)
    p, q, sparse = read["p"], read["q"], read["sparse"]
    for d in read["drafts"]:
        source = Philox(d["seed"], d["sequence"], d["root"])
        d["draft"] = drafted(source, d["draft"][0][0], sparse if d["sparse"] else q, d["pick"], d["distinct"], d["widths"])
        d["tokens"] = matched(source, d["draft"], p)
    longs = [[n, seed, place, race(Philox(seed, 5, 0), [2 if i % 11 == 3 else 0 for i in range(n)], place)] for n, seed, place, _ in read["longs"]]
    agreed = [[a, b, agreement(a, b)] for a, b, _ in read["agreement"]]
    with open(path, "w") as f:
        f.write('{"one": %d, "p": %s, "q": %s, "sparse": %s,\n' % (ONE, p, q, sparse))
        f.write('"longs": %s,\n"agreement": %s,\n"drafts": [\n' % (longs, agreed))
        f.write(",\n".join(json.dumps(d, separators=(",", ":")) for d in read["drafts"]) + "\n]}\n")
    print(len(read["drafts"]), "drafts,", len(longs), "long races")


if __name__ == "__main__":
    main(*sys.argv[1:])
