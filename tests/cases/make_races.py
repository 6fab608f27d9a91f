"""make_races.py - a second implementation of draws by address: drafts, coupled ones included, and the tokens of `match`.

Writes races.json. Rows are Markov tables: the row after a token depends on that token alone. A coupled draft is the token
with the smallest -log(1 - u_i) / q_i at each place of the text, `match` the one with the smallest -log(1 - u_i) / p_i, with
the same u_i of Philox at (seed, sequence, place, i); docs/exactness.md, sampling/rng.h. Sampled drafts invert the cumulative
sum at the address of their candidate. Needs the standard library only:

    python -B make_races.py races.json

"agreement": two rows, and the probability that the races over both have the same winner, in closed form: token i wins both if
every other time is later in both, so it is the sum over i of 1 / (sum over j of max(p_j / p_i, q_j / q_i)).
"""

import json
import random
import sys
from fractions import Fraction as F

from philox import DRAFT, Philox, invert

ONE = 4096
VOCAB = 7
NEAR = 1e-9
rng = random.Random(11)


class Unsure(Exception):
    pass


def row(n, zeros=0.0):
    weights = [0 if rng.random() < zeros else rng.random() ** 4 + 1e-3 for _ in range(n)]
    if sum(weights) == 0:
        weights[0] = 1
    out = [int(w / sum(weights) * ONE) for w in weights]
    out[out.index(max(out))] += ONE - sum(out)
    return out


def near_to(p):
    """A row close to p, like that of a good drafter."""
    q = row(len(p))
    out = [(3 * a + b) // 4 for a, b in zip(p, q)]
    out[out.index(max(out))] += ONE - sum(out)
    return out


def race(source, weight, place):
    x, gap = source.race([F(w, ONE) for w in weight], place)
    if gap < NEAR:
        raise Unsure
    return x


def pick(source, weight, node):
    x, near = invert(source.uniform(DRAFT, node), [F(w, ONE) for w in weight])
    if near < NEAR:
        raise Unsure
    return x


def drafted(source, root, q, shape):
    """Candidates in the order in which they are sampled: [token, parent, proposal]. shape: (pick, distinct, widths)."""
    how, distinct, widths = shape
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


SHAPES = [("coupled", True, [1, 1, 1, 1]), ("sampled", True, [1, 1, 1, 1]), ("sampled", True, [2, 2]), ("sampled", False, [3, 1]), ("sampled", True, [4])]


def main():
    p = [row(VOCAB) for _ in range(VOCAB)]
    q = [near_to(r) for r in p]
    sparse = [row(VOCAB, 0.5) for _ in range(VOCAB)]
    drafts, accepted = [], [0, 0]
    for seed in range(1, 161):
        shape = SHAPES[0] if seed % 2 else SHAPES[seed // 2 % len(SHAPES)]
        rows = sparse if seed % 5 == 0 else q
        sequence, root = seed * 31 + (seed % 4 << 40), seed % 50
        source = Philox(seed | (seed % 3 << 50), sequence, root)
        try:
            d = drafted(source, seed % VOCAB, rows, shape)
            tokens = matched(source, d, p)
        except Unsure:
            continue
        if shape[0] == "coupled" and rows is q:
            accepted[0] += len(tokens) - 1
            accepted[1] += 1
        drafts.append({"seed": source.seed, "sequence": sequence, "root": root, "pick": shape[0], "distinct": shape[1], "widths": shape[2],
                       "sparse": rows is sparse, "draft": d, "tokens": tokens})  # fmt: skip
    longs = []
    for n in (64, 511, 512, 513, 4096, 4097, 9001):  # around the chunk sizes of the program
        seed, place = 1000 + n, 3 + n % 5
        try:  # equal weights at every eleventh token, so that the winner may be anywhere
            longs.append([n, seed, place, race(Philox(seed, 5, 0), [2 if i % 11 == 3 else 0 for i in range(n)], place)])
        except Unsure:
            pass
    agreement = []
    for a, b in (p[0], q[0]), (p[1], q[1]), (p[2], p[3]), (sparse[0], p[4]), (p[5], p[5]), ([ONE] + [0] * 6, [0, ONE] + [0] * 5):
        rate = F(0)
        for i in range(VOCAB):
            if a[i] > 0 and b[i] > 0:
                rate += 1 / sum(max(F(a[j], a[i]), F(b[j], b[i])) for j in range(VOCAB))
        tv = sum(abs(F(x - y, ONE)) for x, y in zip(a, b)) / 2
        assert (1 - tv) / (1 + tv) <= rate <= 1 - tv  # Daliri, Musco, Suresh 2024; the upper bound holds for any coupling
        agreement.append([a, b, float(rate)])
    with open(sys.argv[1], "w") as f:
        f.write('{"one": %d, "p": %s, "q": %s, "sparse": %s,\n' % (ONE, p, q, sparse))
        f.write('"longs": %s,\n"agreement": %s,\n"drafts": [\n' % (longs, agreement))
        f.write(",\n".join(json.dumps(d, separators=(",", ":")) for d in drafts) + "\n]}\n")
    print(len(drafts), "drafts; coupled ones have", accepted[0] / accepted[1], "of 4 accepted;", len(longs), "long races")


if __name__ == "__main__":
    main()
