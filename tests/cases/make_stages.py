"""make_stages.py - logits into probabilities, stage by stage in the documented order, in double and with sorted lists.

Reads stages.json, whose cases are rows of logits, settings and the text before, and writes it again with the tokens that keep a probability,
with it ("kept"). What the stages are is said in sampling/sampling.h and in HF transformers' logits processors of their names;
frequency_penalty and presence_penalty are those of OpenAI's API (mu[j] -> mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence),
whose c[j] counts the tokens that were sampled, as vLLM's output_bin_counts does. The standard library alone:

    python -B make_stages.py stages.json

The cases: ties, shares and thresholds that are met exactly or lie between two floats, temperatures from next to nothing to a million, numbers
that are none, nothing left, penalties above and below 0, biases, pairs of stages whose order matters; random ones, in none of which a cut is
within 1e-4 of another one; and rows around the sizes of chunks ("made"), some of few distinct numbers.
"""

import collections
import json
import math
import struct
import sys

LARGEST = struct.unpack("f", bytes.fromhex("ffff7f7f"))[0]
DEAD = -math.inf


def order(x):
    return sorted((i for i in range(len(x)) if x[i] > DEAD), key=lambda i: (-x[i], i))


def row_of(logits, used_vocab, settings, bias, before, prompt):
    x = []
    for i, v in enumerate(logits):
        x.append(DEAD if i >= used_vocab or math.isnan(v) else min(v, LARGEST))

    penalty = settings.get("repetition_penalty", 1)
    for i in set(before):
        if 0 <= i < len(x):
            x[i] = x[i] / penalty if x[i] > 0 else x[i] * penalty

    sampled = collections.Counter(before[prompt:])
    for j in range(len(x)):
        x[j] -= sampled[j] * settings.get("frequency_penalty", 0) + (sampled[j] > 0) * settings.get("presence_penalty", 0)

    for i, b in bias.items():
        x[i] = x[i] + b

    temperature = settings.get("temperature", 1)
    if temperature == 0:
        best = order(x)[:1]
        x = [v if i in best else DEAD for i, v in enumerate(x)]
    elif temperature != 1 and max(x) > DEAD:
        top = max(x)
        x = [(v - top) / temperature for v in x]

    k = settings.get("top_k", 0)
    if k > 0:
        kept = order(x)[:k]
        x = [v if i in kept else DEAD for i, v in enumerate(x)]

    p = settings.get("top_p", 1)
    if p < 1 and max(x) > DEAD:
        by_logit = order(x)
        weights = [math.exp(x[i] - x[by_logit[0]]) for i in by_logit]
        whole, kept, sum_of = math.fsum(weights), 0, 0.0
        while kept == 0 or sum_of < p * whole:
            kept += 1
            sum_of = math.fsum(weights[:kept])
        keep = set(by_logit[:kept])
        x = [v if i in keep else DEAD for i, v in enumerate(x)]

    p = settings.get("min_p", 0)
    if p > 0:
        least = max(x) + math.log(p)
        x = [v if v >= least else DEAD for v in x]

    top = max(x)
    if top == DEAD:
        return [[0, 1.0]]
    e = [math.exp(v - top) for v in x]
    whole = math.fsum(e)
    kept = [[i, v / whole] for i, v in enumerate(e)]
    return [[i, v] for i, v in kept if v > 2**-53]


def made_row(n, seed, step):
    """A row too long to write down: multiples of step / 1024 by a linear congruence, as the test makes them again."""
    out = []
    for _ in range(n):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(((seed >> 44) % 12288 // step * step - 8192) / 1024)
    return out


def main(path):
    with open(path) as f:
        cases = json.load(f)["cases"]
    for c in cases:
        logits = made_row(*c["made"]) if "made" in c else [float(v) for v in c["row"]]
        settings = {k: int(v) if k == "top_k" else float(v) for k, v in c["settings"]}
        bias = {int(k): float(v) for k, v in c["bias"].items()}
        kept = row_of(logits, c["used_vocab"], settings, bias, c["before"], c.get("prompt", 0))
        c["kept"] = [[i, float("%.10g" % p)] for i, p in kept]
    with open(path, "w") as f:
        f.write('{"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
    print(len(cases), "rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
