"""rule_drafts.py - random drafts for every rule, and what rules.json says of one."""

import itertools
import math
from fractions import Fraction as F

from philox import Philox
from rule_outputs import DETERMINISTIC, DISTINCT, ONE, OUTPUTS, SAMPLED, Draft, Unsure
from rule_decisions import VERIFY, Draws


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
    "blockwise": (TREES, ANY),
}  # fmt: skip
OPTIONS = {
    "lenient": [{"lenience": "1.1"}, {"lenience": "1.5"}, {"lenience": "4"}, {"lenience": "1"}],
    "synthetic": [{"rate": "0.7"}, {"rate": "0.25"}, {"rate": "0"}, {"rate": "1"}],
    "typical": [{"epsilon": "0.09", "delta": "0.3"}, {"epsilon": "0.25", "delta": "1"}, {"epsilon": "1", "delta": "0.6"},
                {"epsilon": "0", "delta": "0.3"}, {"epsilon": "1", "delta": "1"}],
    "blockwise": [{"accept": a, "k": k, "epsilon": e, "minimum_block": m} for a, k, e, m in (
        ("top_k", "2", "2", "1"), ("distance", "2", "1", "1"), ("top_k", "1", "0", "1"), ("top_k", "2", "2", "2"), ("distance", "2", "0", "3"))],
}  # fmt: skip


def values(options, rows=None):
    return {**{k: v if k == "accept" else F(v) for k, v in options.items()}, "rows": rows}


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


DEFAULTS = {"lenient": {"lenience": F("1.1")}, "synthetic": {"rate": F("0.7")}, "typical": {"epsilon": F("0.09"), "delta": F("0.3")},
            "blockwise": {"accept": "top_k", "k": F(2), "epsilon": F(2), "minimum_block": F(1)}}


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
