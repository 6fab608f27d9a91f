"""view_report.py - the numbers of a report on the rows of view_facts.py (results/tally.h), and the answer files exported from them."""

import re

from interval_numbers import interval, units_interval
from view_numbers import SEQUENCE, STEPS_OF, run_sequences, runs, total

NONE = [None, None, None]


def columns(rows, *keys):
    return [[row[k] for row in rows] for k in keys]


def speed(rows, other=None, more=()):
    """Tokens over time of rows by prompt and unit, of those of another run with its prefix; more: a further time."""
    def of(prefix):
        return [[r[prefix + "new_tokens"] for r in rows], [sum(r[prefix + k] for k in ("decode_ns", *more)) for r in rows]]

    if not rows:
        return NONE
    prefixes = [""] if other is None else ["", other]
    return units_interval("ratio" if other is None else "ratios", [c for p in prefixes for c in of(p)], [[r[p + "steps"] for r in rows] for p in prefixes],
                          [r["prompt"] for r in rows], [r["unit"] for r in rows])  # fmt: skip


def lengths(sums):
    return interval("ratio", *columns(sums, "step_tokens", "steps")) if sums else NONE


def times(i, factor):
    return [None if x is None else x * factor for x in i]


def of_run(r, v, slices):
    """The statistics of a run, each with its interval."""
    sums = [x for x in v["sums"] if x["run"] == r["id"]]
    none = r["drafter_kind"] == "none"

    def over(kind, *keys):
        return interval(kind, *columns(sums, *keys)) if sums else NONE

    return dict(
        acceptance_rate=NONE if none else over("rate", "accepted_tokens", "drafted_tokens"),
        expected_rate=NONE if none else over("rate", "expected_tokens", "expected_drafted"),
        tokens_per_step=lengths(sums), ttft_ns=over("ratio", "ttft_ns", "first_tokens"),
        tokens_per_s=times(speed([x for x in v["own_slices"] if x["run"] == r["id"]]), 1e9),
        speedup=speed(slices, "none_"), end_to_end_speedup=speed(slices, "none_", ["prefill_ns"]))  # fmt: skip


def at_depths(v, r, below):
    """Acceptance at depths 1 to 8 over drafts, or over those tried."""
    out = []
    for depth in range(1, 9):
        rows = [x for x in v["depths"] if x["run"] == r["id"] and x["depth"] == depth]
        out.append(interval("rate", *columns(rows, "accepted", below)) if total(rows, "drafts_this_deep") else NONE)
    return out


def against(rows, slices):
    """Each run against each other one of the same prompts: within pairs if it shares any."""
    out = []
    for x in runs:
        for y in runs:
            both_of = [p for p in rows if p["run"] == x["id"] and p["against"] == y["id"]]
            in_pairs = max([p["in_pairs"] for p in both_of], default=0)
            used = [p for p in both_of if p["in_pairs"] == in_pairs]
            if not used:
                continue
            def over(kind, a, b):
                return interval(kind, *columns(used, a, b, "against_" + a, "against_" + b))
            rates = over("difference", "accepted_tokens", "drafted_tokens")
            rates = [rates[0]] + [None if z is None else max(-1, min(1, z)) for z in rates[1:]]
            times_of = [p for p in slices if (p["run"], p["against"], p["in_pairs"]) == (x["id"], y["id"], in_pairs)]
            out.append(dict(run=x["id"], against=y["id"], prompts=len(used), in_pairs=in_pairs, speed=speed(times_of, "against_"), acceptance=rates,
                            tokens_per_step=over("difference", "step_tokens", "steps"), ttft=over("ratios", "ttft_ns", "first_tokens")))  # fmt: skip
    return out


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
            category = {p["prompt"]: p["category"] for p in prompts if p["run"] == r["id"]}
            slices = mine_of["slices"]
            texts_of = [x for x in mine_of["texts"] if greedy or x["same_rule"]]
            different = sorted(((x["prompt"], x["turn"], x["repeat"]), x) for x in texts_of if not x["equal"])
            e = mine_of["expected"][0] if mine_of["expected"] else {}
            by_rank = {a["rank"]: a["rate"] for a in mine_of["by_rank"] if a["depth"] == 1}
            c["runs"].append(dict(
                run=r["id"], statistics=of_run(r, v, slices),
                by_category=[[speed([x for x in slices if category[x["prompt"]] == k], "none_"),
                              lengths([x for x in mine_of["sums"] if x["category"] == k])] for k in names],
                compared=len(texts_of), equal=sum(x["equal"] for x in texts_of),
                first=[different[0][1]["prompt_id"], different[0][1]["turn"], different[0][1]["first_difference"]] if different else None,
                rate=at_depths(v, r, "drafts"), conditional=at_depths(v, r, "tried"),
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
