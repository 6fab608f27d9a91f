"""view_queries.py - what each query of results/*.sql must say about the rows of view_facts.py."""

import json
from decimal import ROUND_HALF_UP, Decimal

from view_facts import FACTS, RUN
from view_numbers import SEQUENCE, of, ratio, run_sequences, runs, steps, total

QUERIES = {}


def rounded(x, digits):
    return None if x is None else float(Decimal(x).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def query(name, rows):
    QUERIES[name] = {"columns": list(rows[0]), "rows": [list(r.values()) for r in rows]}


def by_category(prompts):
    out = []
    for r in runs:
        own = [p for p in prompts if p["run"] == r["id"]]
        for category in {p["category"] for p in own}:
            some = [p for p in own if p["category"] == category]
            ss = [s for s in run_sequences(r["id"]) if s["category"] == category]
            up = ratio(ratio(total(some, "new_tokens"), total(some, "decode_ns")), ratio(total(some, "none_new_tokens"), total(some, "none_decode_ns")))
            row = dict(experiment=r["experiment"], sampling=r["sampling"], batch=r["batch"], category=category, drafter=r["drafter"],
                       rule=r["rule"], prompts=len(some), speedup=rounded(up, 3),
                       tokens_per_step=rounded(ratio(total(ss, "new_tokens"), total(ss, "steps")), 3))  # fmt: skip
            out.append(((r["experiment"], r["peers"], min(p["prompt"] for p in some), r["id"]), row))
    assert len({k for k, _ in out}) == len(out)
    return [row for _, row in sorted(out, key=lambda x: x[0])]


def losing_prompts(prompts):
    lost = sorted((p for p in prompts if p["speedup"] is not None and p["speedup"] < 1), key=lambda p: p["speedup"])
    assert len({p["speedup"] for p in lost}) == len(lost) and 3 <= len(lost) <= 40
    return [dict(experiment=RUN[p["run"]]["experiment"], drafter=RUN[p["run"]]["drafter"], rule=RUN[p["run"]]["rule"], prompt_id=p["prompt_id"],
                 category=p["category"], sequences=p["sequences"], speedup=rounded(p["speedup"], 3)) for p in lost]  # fmt: skip


def verify_cost():
    where = ["target", "target_hash", "activations", "cache", "device", "machine"]
    groups = {}
    for t in steps:
        r = RUN[SEQUENCE[t["sequence"]]["run"]]
        if t["batch"] == 1:
            groups.setdefault(tuple(r[k] for k in where) + (t["drafted"],), []).append(t)
    out = []
    for k, ts in sorted(groups.items()):
        plain = groups.get(k[:-1] + (0,))
        ns = total(ts, "verify_ns") / len(ts)
        out.append(dict(target=k[0], activations=k[2], cache=k[3], device=k[4], machine=k[5], drafted=k[6], steps=len(ts),
                        verify_ms=rounded(ns / 1e6, 3),
                        times_a_plain_step=rounded(ns / (total(plain, "verify_ns") / len(plain)), 3) if plain else None,
                        tokens_per_step=rounded(total(ts, "tokens") / len(ts), 3)))  # fmt: skip
    return out


def bench_cost(passes):
    out = []
    alike = ["target_hash", "activations", "cache", "device", "machine", "threads"]
    for p in passes:
        b = of("bench", id=p["bench"])[0]
        latest = max(x["id"] for x in FACTS["bench"] if all(x[k] == b[k] for k in alike))
        if p["what"] != "pass" or p["bench"] != latest:
            continue
        one = [x for x in passes if x["what"] == "pass" and x["n"] == 1 and x["slots"] == 1
               and all(x[k] == p[k] for k in ("bench", "placement", "context", "peer"))]  # fmt: skip
        name = [x["name"].split(" ")[0] for x in of("bench_peer", bench=b["id"]) if x["peer"] == p["peer"]]
        out.append(((b["target"], b["id"], p["placement"], p["context"], p["slots"], p["n"], p["peer"]), dict(
            target=b["target"], inflated=b["marked_inflated"], type=b["model_type"], activations=b["activations"], threads=b["threads"],
            placement=p["placement"], context=p["context"], slots=p["slots"], n=p["n"], engine=name[0] if name else "speclab", rounds=p["rounds"],
            ms=rounded(p["median_ns"] / 1e6, 2), c=rounded(p["median_ns"] / one[0]["median_ns"], 2) if one else None,
            ratio=rounded(p["ratio"], 2) if p["peer"] else None, ratio_low=rounded(p["ratio_low"], 2) if p["peer"] else None,
            ratio_high=rounded(p["ratio_high"], 2) if p["peer"] else None)))  # fmt: skip
    return [row for _, row in sorted(out, key=lambda x: x[0])]


PROMPTS = [{"id": "p0", "turns": ["a", "b"]}, {"id": "p1", "turns": ["c"]}, {"id": "p2", "turns": ["d"], "category": "chat"}, {"id": "p3"}]


def answers_query(answers):
    first = min(r["id"] for r in runs if r["drafter_kind"] == "none" and r["sampling"] == "temperature=0")
    out = []
    for i, line in enumerate(PROMPTS):
        turns = sorted((a["turn"], a["text"]) for a in answers if a["run"] == first and a["repeat"] == 0 and a["prompt"] == i)
        if turns:
            line = dict(line, answer=[text for _, text in turns])
            out.append({"line": json.dumps(line, separators=(",", ":"))})
    return out
