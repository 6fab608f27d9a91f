"""make_stages.py - logits into probabilities, stage by stage in the documented order, in double and with sorted lists.

Writes stages.json: rows of logits, settings, the text before, and the tokens that keep a probability, with it. What the
stages are is said in sampling/sampling.h and in HF transformers' logits processors of their names; frequency_penalty and
presence_penalty are those of OpenAI's API (mu[j] -> mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence), whose
c[j] counts the tokens that were sampled, as vLLM's output_bin_counts does. The standard library alone:

    python -B make_stages.py stages.json

A row in which a cut is within 1e-4 of another one is left out, but for those that are made to be met exactly.
"""

import collections
import json
import math
import random
import struct
import sys

dice = random.Random(7)
LARGEST = struct.unpack("f", bytes.fromhex("ffff7f7f"))[0]
DEAD = -math.inf


def as_float(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def next_float(x, steps):
    bits = struct.unpack("I", struct.pack("f", x))[0]
    return struct.unpack("f", struct.pack("I", bits + (steps if x > 0 else -steps)))[0]


class Unsure(Exception):
    pass


def order(x):
    return sorted((i for i in range(len(x)) if x[i] > DEAD), key=lambda i: (-x[i], i))


def row_of(logits, used_vocab, settings, bias, before, exact=False, prompt=0):
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
        if k < len(order(x)):
            near(x[kept[-1]], x[order(x)[k]], exact)
        x = [v if i in kept else DEAD for i, v in enumerate(x)]

    p = settings.get("top_p", 1)
    if p < 1 and max(x) > DEAD:
        by_logit = order(x)
        weights = [math.exp(x[i] - x[by_logit[0]]) for i in by_logit]
        whole, kept, sum_of = math.fsum(weights), 0, 0.0
        while kept == 0 or sum_of < p * whole:
            kept += 1
            sum_of = math.fsum(weights[:kept])
            if not exact and abs(sum_of / whole - p) < 1e-4:
                raise Unsure
        keep = set(by_logit[:kept])
        x = [v if i in keep else DEAD for i, v in enumerate(x)]

    p = settings.get("min_p", 0)
    if p > 0:
        least = max(x) + math.log(p)
        for v in x:
            if not exact and abs(v - least) < 1e-4:
                raise Unsure
        x = [v if v >= least else DEAD for v in x]

    if max(x) == DEAD:
        return [[0, 1.0]]
    e = [math.exp(v - max(x)) for v in x]
    whole = math.fsum(e)
    kept = [[i, v / whole] for i, v in enumerate(e)]
    return [[i, v] for i, v in kept if v > 2**-53]


def near(a, b, exact):
    if not exact and a != b and abs(a - b) < 1e-4:
        raise Unsure


CASES = []


def written(v):
    return v if math.isfinite(v) else str(v)


def case(logits, settings, bias={}, before=(), used_vocab=None, exact=False, made=None, prompt=0):
    used_vocab = len(logits) if used_vocab is None else used_vocab
    numbers = {k: float(v) for k, v in settings.items()}
    numbers.update({k: int(v) for k, v in settings.items() if k == "top_k"})
    try:
        kept = row_of(logits, used_vocab, numbers, {int(k): float(v) for k, v in bias.items()}, before, exact, prompt)
    except Unsure:
        return
    keys = list(settings)
    dice.shuffle(keys)  # the order of the file says nothing
    one = {"settings": [[k, settings[k]] for k in keys], "bias": bias, "before": list(before), "used_vocab": used_vocab}
    if prompt:
        one["prompt"] = prompt
    if made:
        assert len(kept) <= 300
        one["made"] = made
    else:
        one["row"] = [written(v) for v in logits]
    one["kept"] = [[i, float("%.10g" % p)] for i, p in kept]
    CASES.append(one)


def edges():
    tie = [1.5, 3.0, 3.0, -2.0, 3.0, 0.0]
    zeros = [-1.0, -0.0, 0.0, -0.0]
    nan, inf = math.nan, math.inf
    # ties: the lowest ids stay
    for k in "0", "1", "2", "3", "4", "5", "9":
        case(tie, {"top_k": k}, exact=True)
        case(zeros, {"top_k": k}, exact=True)
        case([-inf, 1.0, -inf, 1.0], {"top_k": k}, exact=True)
    # shares that are met exactly: n tokens alike; 0.3 is less than 3/10 as a double, and 0.7 less than 7/10
    for n, p in (8, "0.25"), (8, "0.5"), (8, "0.125"), (8, "0.1250001"), (10, "0.3"), (10, "0.7"), (4, "0.75"), (4, "0.7500001"), (5, "0"), (5, "1"):
        case([2.25] * n, {"top_p": p}, exact=True)
        case([-inf] + [-7.0] * n + [-inf], {"top_p": p}, exact=True)
    # min_p: the threshold lies between two floats
    for p in 0.25, 0.5, 0.1, 0.9, 1.0:
        at = as_float(math.log(p))
        row = [0.0, at, next_float(at, 1) if at else 0.0, next_float(at, -1) if at else -1e-7, next_float(at, 2) if at else -0.5]
        case(row, {"min_p": repr(p)}, exact=True)
        case([as_float(v + 64) for v in row], {"min_p": repr(p)}, exact=True)
    case([1.0, 1.0, 0.5], {"min_p": "1"}, exact=True)
    case([1.0, 1.0, 0.5], {"min_p": "0"}, exact=True)
    # temperatures from next to nothing to a million; equals stay equal, and 0 is another thing
    for t in "0", "5e-324", "1e-310", "1e-300", "1e-40", "1e-3", "0.5", "1", "2", "1000", "1e6":
        case(tie, {"temperature": t}, exact=True)
        case([1e-20, 2e-20, 2e-20], {"temperature": t}, exact=True)
        case([-3e38, 3e38, 3e38, 0.0], {"temperature": t}, exact=True)
        case([nan, inf, inf, -inf, 5.0], {"temperature": t}, exact=True)
    # what is no number, and nothing left
    for settings in ({}, {"temperature": "0"}, {"temperature": "0.5"}, {"top_k": "2"}, {"top_p": "0.5"}, {"min_p": "0.5"}):
        case([nan, 1.0, nan, 1.0, 0.25], settings, exact=True)
        case([nan, -inf, nan], settings)
        case([-inf, -inf, -3.0, -inf], settings)
        case([1.0, 2.0, 60.0, 50.0], settings, used_vocab=2)
    # penalties: once a token however often, above and below 0, ids that there are not
    said = (0, 0, 1, 1, 1, 2, 3, 6, 99, -1)
    row = [2.0, -2.0, 0.0, -0.0, 1.0, -1.0, -inf]
    for penalty in "1", "1.3", "2", "0.5", "100", "0.01":
        case(row, {"repetition_penalty": penalty}, before=said)
        case(row, {"repetition_penalty": penalty, "temperature": "0"}, before=said, exact=True)
        case([as_float(v) for v in (3e38, 1.0, -3e38)], {"repetition_penalty": penalty}, before=(0, 2))
    # biases: on one that is dead, on equals, beyond every float
    case(row, {"temperature": "1"}, {"0": "-1e9", "1": "3.5", "6": "5"})
    case(row, {"temperature": "0"}, {"5": "4"}, exact=True)
    case([1.0, 1.0, 1.0], {"top_k": "1"}, {"2": "0.5"}, exact=True)
    case([3e38, 3e38, 0.0], {}, {"0": "1e9", "2": "1e9"})
    # the order of stages: penalty before bias; both before temperature; top_k before top_p before min_p
    case([4.0, 3.0, 2.0, 1.0], {"repetition_penalty": "2", "temperature": "0.5"}, {"0": "1", "3": "2"}, before=(0, 3))
    case([1.0] * 8, {"top_k": "4", "top_p": "0.5"}, exact=True)
    case([3.0, 2.9, 2.8, 0.0, -1.0], {"top_p": "0.6", "min_p": "0.95"})
    case([3.0, 2.0, 1.0, 0.0], {"temperature": "2", "min_p": "0.5"})
    case([3.0, 2.0, 1.0, 0.0], {"temperature": "0.25", "top_p": "0.9"})


def random_row(n, kind):
    out = []
    for _ in range(n):
        v = dice.uniform(-6, 6)
        if kind == 1:
            v = math.floor(2 * v) / 2
        elif kind == 2 and dice.random() < 0.3:
            v = DEAD
        elif kind == 3:
            v *= 12
        elif kind == 4 and dice.random() < 0.1:
            v = math.nan
        out.append(as_float(v))
    return out


def random_settings():
    out = {}
    for key, values in (
        ("repetition_penalty", ["1.1", "1.7", "0.8"]), ("temperature", ["0", "0.3", "0.8", "1", "1.5", "7"]),
        ("top_k", ["1", "3", "7", "12", "0"]), ("top_p", ["0.1", "0.5", "0.83", "0.97"]), ("min_p", ["0.02", "0.2", "0.6"]),
    ):  # fmt: skip
        if dice.random() < 0.55:
            out[key] = dice.choice(values)
    return out


def made_row(n, seed, step):
    """A row too long to write down: multiples of step / 1024 by a linear congruence, as the test makes them again."""
    out = []
    for _ in range(n):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(((seed >> 44) % 12288 // step * step - 8192) / 1024)
    return out


def penalties():
    """Written last, so that the rows above stay as they are."""
    said = (0, 0, 1, 1, 1, 2, 3, 6, 99, -1, 1, 0, 4, 4)
    row = [2.0, -2.0, 0.0, -0.0, 1.0, -1.0, -math.inf]
    for prompt in 0, 2, 5, 14:
        for frequency, presence in ("0", "0"), ("0.7", "0"), ("0", "1.1"), ("0.5", "0.25"), ("-2", "2"), ("2", "-2"):
            settings = {"frequency_penalty": frequency, "presence_penalty": presence}
            case(row, settings, before=said, prompt=prompt)
            case(row, settings | {"temperature": "0"}, before=said, prompt=prompt, exact=True)
            case(row, settings | {"repetition_penalty": "1.5", "temperature": "0.5"}, {"1": "2"}, said, prompt=prompt)
    case([as_float(v) for v in (3e38, 1.0, -3e38)], {"frequency_penalty": "2"}, before=(0, 2))
    case([1.0, math.nan, 0.5], {"presence_penalty": "-2"}, before=(1, 1, 2))
    for i in range(60):
        n = dice.choice([3, 7, 12, 33])
        before = [dice.randrange(-1, n + 2) for _ in range(dice.randrange(0, 6 * n))]
        settings = random_settings()
        for key in "frequency_penalty", "presence_penalty":
            if dice.random() < 0.7:
                settings[key] = dice.choice(["0.1", "0.6", "1.7", "-0.4"])
        case(random_row(n, i % 5), settings, {}, before, n, prompt=dice.randrange(0, len(before) + 1))
    for i, n in enumerate((32767, 32768, 32769, 65537)):
        before = [n - 1, 3, 32767, 32768, 3, 3, n - 1, 65536, 32766, 32768, 32768]
        settings = {"frequency_penalty": "1.5", "presence_penalty": "0.3", "top_k": "25"}
        case(made_row(n, 77 + i, 1), settings, {}, before, n, made=[n, 77 + i, 1], exact=True, prompt=1)


def main():
    edges()
    for i in range(220):
        n = dice.choice([3, 7, 12, 17, 33])
        before = [dice.randrange(-1, n + 2) for _ in range(dice.randrange(0, 2 * n))]
        bias = {str(j): str(dice.choice([-3.5, 1.25, 40, -100])) for j in sorted(dice.sample(range(n), dice.randrange(0, 3)))}
        case(random_row(n, i % 5), random_settings(), bias, before, dice.choice([n, n, n - 1]))
    for i, n in enumerate((31, 32, 33, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 8193)):
        best = order(made_row(n, i, 1))[:6]
        before = [0, n - 1, n - 1, 31, 32, 63, 64] + best + best[:3] + [(x + 64) % n for x in best[3:]]
        for settings in ({"top_k": "25"}, {"top_p": "0.01"}, {"temperature": "0"}, {"temperature": "0.25", "min_p": "0.7"},
                         {"temperature": "0.05", "top_k": "40", "top_p": "0.6"}):  # fmt: skip
            with_penalty = dict(settings, repetition_penalty="0.8") if i % 2 else settings
            case(made_row(n, i, 1), with_penalty, {str(n - 1): "3"}, before, n - i % 3, made=[n, i, 1], exact=True)
        for settings in ({"top_k": "25"}, {"top_p": "0.001"}, {"temperature": "0"}, {"temperature": "0", "top_k": "3"}):
            case(made_row(n, i, 1024), settings, {}, [], n - i % 3, made=[n, i, 1024], exact=True)  # twelve numbers: ties in every chunk
    penalties()
    with open(sys.argv[1], "w") as f:
        f.write('{"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES) + "\n]}\n")
    print(len(CASES), "rows")


if __name__ == "__main__":
    main()
