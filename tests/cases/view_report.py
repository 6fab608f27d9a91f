"""view_report.py - the numbers of a report on the rows of view_facts.py (results/tally.h), and the answer files exported from them."""

import math
import re

from view_numbers import SEQUENCE, STEPS_OF, run_sequences, runs


def quantile_t(freedom):
    """Student's t, 97.5 %: the finite series (Abramowitz and Stegun 26.7.3, 26.7.4), inverted by bisection."""
    def both_sides(t):
        angle = math.atan(t / math.sqrt(freedom))
        term, total_of, k = (math.cos(angle), 0.0, 1) if freedom % 2 else (1.0, 0.0, 0)
        while k <= freedom - 2:
            total_of += term
            term *= math.cos(angle) ** 2 * (k + 1) / (k + 2)
            k += 2
        if freedom % 2 == 0:
            return math.sin(angle) * total_of
        return 2 / math.pi * (angle + math.sin(angle) * total_of)

    low, high = 0.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if both_sides(middle) < 0.95 else (low, middle)
    return low


assert abs(quantile_t(1) - 12.7062047) < 1e-6 and abs(quantile_t(2) - 4.30265273) < 1e-7 and abs(quantile_t(9) - 2.26215716) < 1e-7


def interval(prompts):
    """The speedup of docs/results.md with its interval; one observation per prompt."""
    four = [[p[k] for p in prompts] for k in ("new_tokens", "decode_ns", "none_new_tokens", "none_decode_ns")]
    a, b, c, d = (sum(v) for v in four)
    if not prompts or min(a, b, c, d) <= 0:
        return [None, None, None]
    value, n = (a / b) / (c / d), len(prompts)
    if n < 2:
        return [value, None, None]
    squares = sum((w / a - x / b - y / c + z / d) ** 2 for w, x, y, z in zip(*four))
    half = quantile_t(n - 1) * math.sqrt(n / (n - 1) * squares)
    return [value, value * math.exp(-half), value * math.exp(half)]


def comparisons(v, prompts):
    out = []
    for first in runs:
        mine = [r for r in runs if (r["experiment"], r["peers"]) == (first["experiment"], first["peers"])]
        if first is not mine[0]:
            continue
        own = [s for r in mine for s in run_sequences(r["id"])]
        names = sorted({s["category"] for s in own if s["category"]}, key=lambda c: min(s["prompt"] for s in own if s["category"] == c))
        greedy = first["sampling"] == "temperature=0"
        c = dict(experiment=first["experiment"], peers=first["peers"], greedy=greedy, n_prompts=len({s["prompt"] for s in own}),
                 limits="tokens: 8, context: 40" if first["peers"] == "A" else "", turns=max(s["turn"] for s in own) + 1,
                 repeats=max(s["repeat"] for s in own) + 1,
                 categories=[[k, len({s["prompt"] for s in own if s["category"] == k})] for k in names], runs=[])  # fmt: skip
        for r in sorted(mine, key=lambda r: (r["drafter_kind"] != "none", r["id"])):
            mine_of = {k: [x for x in v[k] if x["run"] == r["id"]] for k in v}
            by_prompt = [p for p in prompts if p["run"] == r["id"]]
            texts_of = [x for x in mine_of["texts"] if greedy or x["same_rule"]]
            different = sorted(((x["prompt"], x["turn"], x["repeat"]), x) for x in texts_of if not x["equal"])
            e = mine_of["expected"][0] if mine_of["expected"] else {}
            by_depth = {a["depth"]: a for a in mine_of["acceptance"]}
            by_rank = {a["rank"]: a["rate"] for a in mine_of["by_rank"] if a["depth"] == 1}
            c["runs"].append(dict(
                run=r["id"], speedup=interval(by_prompt), by_category=[interval([p for p in by_prompt if p["category"] == k]) for k in names],
                compared=len(texts_of), equal=sum(x["equal"] for x in texts_of),
                first=[different[0][1]["prompt_id"], different[0][1]["turn"], different[0][1]["first_difference"]] if different else None,
                rate=[by_depth.get(d, {}).get("rate") for d in range(1, 9)], conditional=[by_depth.get(d, {}).get("conditional_rate") for d in range(1, 9)],
                by_rank=[by_rank.get(k) for k in range(8)], expected=e.get("expected_tokens"), accepted=e.get("accepted_tokens"), z=e.get("z")))  # fmt: skip
        out.append(c)
    return out


# ---- exported files


def answer_files(answers):
    """Spec-Bench's answer files by name: a line per prompt, a choice per repeat, an entry per turn."""
    out = {}
    for r in runs:
        name = re.sub("[^A-Za-z0-9._]+", "-", "%s-run%d-%s-%s" % (r["experiment"], r["id"], r["drafter"], r["rule"])).strip("-")
        lines = []
        own = [a for a in answers if a["run"] == r["id"]]
        for prompt in sorted({a["prompt"] for a in own}):
            same = [a for a in own if a["prompt"] == prompt]
            choices = []
            for repeat in sorted({a["repeat"] for a in same}):
                turns = sorted((a for a in same if a["repeat"] == repeat), key=lambda a: a["turn"])
                choices.append({
                    "index": repeat, "turns": [SEQUENCE[a["sequence"]]["tokens"] if a["text"] is None else a["text"] for a in turns],
                    "decoding_steps": [a["steps"] for a in turns], "new_tokens": [a["new_tokens"] for a in turns],
                    "wall_time": [a["wall_ns"] / 1e9 for a in turns],
                    "accept_lengths": [t["tokens"] for a in turns for t in STEPS_OF[a["sequence"]]]})  # fmt: skip
            first = min(same, key=lambda a: (a["repeat"], a["turn"]))
            lines.append({"question_id": first["prompt_id"], "category": first["category"], "answer_id": name + "-" + first["prompt_id"],
                          "model_id": name, "choices": choices, "tstamp": 1767225600})  # fmt: skip
        out[name] = lines
    return out
