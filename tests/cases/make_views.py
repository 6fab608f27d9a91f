"""make_views.py - recomputes every published number with plain loops over rows, independently of the SQL.

Writes views_facts.sql, the rows of a synthetic database (batches, repeats, several pairs, an unfinished pair, texts cut by
a stop string or by the context, texts without tokens, no category), and views.json, the expected result of each view of
results/views.sql and each query of results/. docs/results.md defines the numbers; no SQL is read or run. Needs only the
standard library:

    python -B make_views.py views_facts.sql views.json
"""

import json
import math
import random
import re
import sys
from decimal import ROUND_HALF_UP, Decimal

dice = random.Random(1900)
FACTS = {}  # table: rows


def put(table, **row):
    FACTS.setdefault(table, []).append(row)
    return row


# ---- facts


def run(id, experiment, peers, drafter, rule, **more):
    kind = drafter.split("(")[0]
    row = dict(
        id=id, experiment=experiment, cell="c%d" % id, peers=peers, settings="{drafter: {}, limits: {tokens: 8, context: 40}, seed: -5}" if peers == "A" else "{}", target="toy", target_hash="0123",
        model_type="q4_1", activations="int8", cache="f32", drafter=drafter, drafter_kind=kind,
        drafter_hash=None if kind in ("none", "ngram") else "77", rule=rule, lossless=int("typical" not in rule), drafter_invariant=int(rule == "match"),
        marked_inflated=0, sampling="temperature=1", prompts="p.jsonl ab", seed=-5, batch=1, device="cpu", machine="m",
        revision="r", started="2026-01-01T00:00:00Z", finished="2026-01-02T00:00:00Z",
    )  # fmt: skip
    row.update(more)
    return put("run", **row)


NONE, LOOKUP, TREE, LOSSY, NONE_MATCH, MATCH, NONE_B, LOOKUP_B, EMPTY, NONE_E2, NOTHING, ALONE = range(1, 13)
run(NONE, "one", "A", "none", "rejection")
run(LOOKUP, "one", "A", "ngram(longest=3)", "rejection")
run(TREE, "one", "A", "small(widths=[2, 2])", "rejection")
run(LOSSY, "one", "A", "small(tokens=3)", "typical(epsilon=0.09)", finished=None)
run(NONE_MATCH, "one", "A", "none", "match")
run(MATCH, "one", "A", "ngram(longest=2)", "match")
run(NONE_B, "one", "B", "none", "rejection", batch=2, sampling="temperature=0", machine="n")
run(LOOKUP_B, "one", "B", "ngram(longest=3)", "rejection", batch=2, sampling="temperature=0", machine="n")
run(EMPTY, "one", "A", "medusa", "rejection", finished=None)
run(NONE_E2, "two", "A", "none", "rejection", sampling="temperature=0", target="other", target_hash="89", marked_inflated=1)
run(NOTHING, "two", "A", "ngram(longest=3)", "rejection", target="other", target_hash="89", marked_inflated=1)
run(ALONE, "two", "C", "ngram(longest=3)", "rejection", finished=None)
RUN = {r["id"]: r for r in FACTS["run"]}

CATEGORY = ["code", None, "chat", "code", "chat"]
PACE = {NONE: 900, LOOKUP: 640, TREE: 480, LOSSY: 390, NONE_MATCH: 950, MATCH: 2600, NONE_B: 600, LOOKUP_B: 1300}
text_of = {}  # (peers, prompt, turn): the text of all lossless runs, as at temperature 0


def pair(id, experiment="one"):
    put("pair", id=id, experiment=experiment, started="2026-01-01T00:00:%02dZ" % id)


def trials(sequence, step, drafted, accepted, tree):
    """Acceptance tests of one draft; in a tree, some after an elder sibling that was rejected. Returns the accepted tokens."""
    n_accepted, node = 0, 1
    for depth in range(1, drafted + 1):
        ranks = 2 if tree and dice.random() < 0.4 else 1
        for rank in range(ranks):
            is_accepted = depth <= accepted and rank == ranks - 1
            proposal = dice.randrange(3)
            p = round(dice.random(), 3)
            put("trial", sequence=sequence, step=step, node=node, depth=depth, rank=rank, token=dice.randrange(9), proposal=proposal,
                p=None if dice.random() < 0.1 else p, q=round(0.05 + dice.random() * 0.9, 3) if proposal else None,
                accepted=int(is_accepted))  # fmt: skip
            node += 1
            n_accepted += is_accepted
        if not is_accepted:
            break
    return n_accepted


def sequence(r, pair, prompt, turn, repeat, tokens, stop="end", drafts=None, record=False):
    """Steps until the tokens are used up; drafts(): (drafted, depth, accepted) of a step. The last is cut."""
    id = len(FACTS.get("sequence", [])) + 1
    left, step, batch = len(tokens), 0, RUN[r]["batch"]
    decode = wall = 0
    while left > 0 or (step == 0 and stop == "string"):
        drafted, depth, accepted = drafts() if drafts else (0, 0, 0)
        in_text = min(accepted, left)
        new = min(accepted + 1, left)
        times = [dice.randrange(5, 60) for _ in range(3)] if drafts else [0, dice.randrange(300, 400), 0]
        crowd = batch if dice.random() < 0.8 else 1
        row = dict(sequence=id, step=step, drafted=drafted, depth=depth, accepted=in_text, tokens=new, expected=None,
                   variance=None, propose_ns=times[0], verify_ns=300 + times[1], advance_ns=times[2], batch=crowd, accepted_uncut=None)  # fmt: skip
        if record and not drafted:
            row.update(expected=0.0, variance=0.0)
        if record and drafted:
            found = trials(id, step, depth, accepted, drafted > depth) if dice.random() < 0.8 else accepted
            row.update(expected=round(dice.uniform(0, depth), 4), variance=round(dice.uniform(0, 1), 4),
                       accepted_uncut=accepted if dice.random() < 0.5 else None)  # fmt: skip
            assert found == accepted
            for rule, lossless in ("rejection", 1), ("block", 1), ("typical(epsilon=0.09)", 0), ("(bound)", 1):
                put("step_rule", sequence=id, step=step, rule=rule, lossless=lossless,
                    accepted=None if rule == "(bound)" else round(dice.uniform(0, depth), 4),
                    first=None if rule == "(bound)" and dice.random() < 0.5 else round(dice.random(), 4))  # fmt: skip
        put("step", **row)
        share = PACE.get(r, 700) + dice.randrange(200)
        decode += share
        wall += share * crowd + 7
        left -= new
        step += 1
    put("sequence", id=id, run=r, pair=pair, prompt=prompt, prompt_id="p%d" % prompt, category=CATEGORY[prompt % 5],
        turn=turn, repeat=repeat, prompt_tokens=10 + prompt, new_tokens=len(tokens), steps=step,
        prefill_ns=dice.randrange(1000, 3000), decode_ns=decode, wall_ns=wall, tokens=json.dumps(tokens, separators=(",", ":")),
        text_hash="00", text=None if prompt == 4 else "text %d.%d" % (prompt, turn), stop=stop)  # fmt: skip
    return id


def chain():
    drafted = dice.randrange(0, 6)
    return drafted, drafted, dice.randrange(0, drafted + 1)


def tree():
    depth = dice.randrange(1, 4)
    return depth + dice.randrange(0, 4), depth, dice.randrange(0, depth + 1)


DRAFTS = {LOOKUP: chain, TREE: tree, LOSSY: chain, MATCH: chain, LOOKUP_B: chain}


def text_tokens(r, prompt, turn, n):
    key = (RUN[r]["peers"], prompt, turn)
    text = text_of.setdefault(key, [dice.randrange(50) for _ in range(16)])[:n]
    if r == LOSSY and dice.random() < 0.6:
        text[dice.randrange(len(text))] = 99
    return text


def conversation(r, pair, prompt, repeat, turns=2, cut_at=None):
    for turn in range(turns):
        n = 5 + (prompt + turn) % 4
        if r == LOSSY:
            n += dice.randrange(-1, 3)
        stop = "context" if cut_at == turn else "limit"
        text = text_tokens(r, prompt, turn, n)
        if r == LOOKUP and (prompt, turn, repeat) in ((3, 1, 0), (3, 0, 1)) or r == LOOKUP_B and prompt > 0:
            text[2 + turn] = 97
        sequence(r, pair, prompt, turn, repeat, text, stop, DRAFTS.get(r), r in (TREE, LOSSY))
        if cut_at == turn:
            return


number = 0
for prompt in range(5):
    for repeat in range(2):
        number += 1
        pair(number)
        for r in (NONE, LOOKUP, TREE, LOSSY, MATCH) + ((NONE_MATCH,) if prompt >= 2 else ()):
            if r == LOSSY and prompt == 4 or r == TREE and repeat == 1:
                continue
            if r == TREE and prompt == 1:
                conversation(r, number, prompt, repeat, cut_at=0)
            else:
                conversation(r, number, prompt, repeat)
pair(11)  # a cell added later, paired with none again: prompt 0 has two pairs
for r in NONE, MATCH:
    conversation(r, 11, 0, 0, turns=1)
    conversation(r, 11, 0, 1, turns=1)
next(s for s in FACTS["sequence"] if s["run"] == MATCH and s["prompt"] == 3)["category"] = "zz"  # the file was changed
pair(12)  # interrupted before none ran
sequence(LOOKUP, 12, 5, 0, 0, text_tokens(LOOKUP, 5, 0, 6), "end", chain)
sequence(NONE_B, 12, 5, 0, 0, text_tokens(NONE_B, 5, 0, 6), "end")  # other peers
pair(13)  # a text that is a prefix of the other's, both ways; a stop string that removed whole steps
sequence(NONE, 13, 6, 0, 0, [1, 2, 3, 4], "end")
sequence(LOOKUP, 13, 6, 0, 0, [1, 2], "end", chain)
sequence(LOSSY, 13, 6, 0, 0, [1, 2, 3, 4, 5], "end", chain)
sequence(MATCH, 13, 6, 0, 0, [], "string", chain)
sequence(NONE, 13, 7, 0, 0, [], "string")
sequence(LOOKUP, 13, 7, 0, 0, [], "string", chain)
for prompt in range(3):
    pair(14 + prompt)
    for r in NONE_B, LOOKUP_B:
        conversation(r, 14 + prompt, prompt, 0, turns=1)
pair(17, "two")
sequence(NONE_E2, 17, 0, 0, 0, [5, 6, 7], "end")
pair(18)
conversation(NONE_B, 18, 0, 1)
sequence(ALONE, 17, 0, 0, 0, [3, 1], "end", chain)
sequence(NOTHING, 17, 0, 0, 0, [], "end", chain)  # no step, no time
for s in FACTS["sequence"]:
    if s["run"] == LOOKUP and s["stop"] == "string":  # a stop string over two steps: all remaining tokens are the first's
        put("step", sequence=s["id"], step=1, drafted=3, depth=3, accepted=0, tokens=0, expected=None, variance=None, propose_ns=9,
            verify_ns=350, advance_ns=2, batch=1, accepted_uncut=None)  # fmt: skip
        s["steps"] += 1

# ---- benches


def bench(id, **more):
    row = dict(id=id, target="toy", target_hash="0123", model_type="q4_1", activations="int8", cache="f32", weight_bytes=1000,
               draft=None, draft_hash=None, draft_activations=None, device="cpu", machine="m", threads=2, revision="r",
               started="2026-01-01T00:00:00Z", overhead_ns=None, overhead_low_ns=None, overhead_high_ns=None, marked_inflated=0)  # fmt: skip
    row.update(more)
    put("bench", **row)


def rounds(b, n, counting, places, peers, rows, contexts=(0, 100), whats=("pass",)):
    for k in range(n):
        put("bench_round", bench=b, round=k, counts=int(k in counting), placement=places[k % len(places)], foreign_share=None,
            before_read=None, before_read_one=None, before_trip_ns=None, after_read=None, after_read_one=None, after_trip_ns=None)  # fmt: skip
        for what in whats:
            for context in contexts:
                for m in rows:
                    for peer in range(peers + 1):
                        if peer and dice.random() < 0.1:
                            continue  # a peer that did not run in this round
                        ns = int((5000 + 120 * m + 3 * context) * (1 + 0.2 * peer) * dice.uniform(0.9, 1.3))
                        put("bench_time", bench=b, round=k, what=what, context=context, n=m, peer=peer, ns=ns)


bench(1)
rounds(1, 3, (0, 1, 2), "S", 0, (1, 2))
bench(2, marked_inflated=1)  # the latest of this machine
put("bench_peer", bench=2, peer=1, name="llama.cpp b5000")
put("bench_peer", bench=2, peer=2, name="another")
rounds(2, 8, (0, 1, 3, 4, 5, 6), ["S", "S", "D"], 2, (1, 2, 4, 8))
bench(3, machine="n", threads=4)  # no round counts, so all are used; no pass of one row
rounds(3, 2, (), ["unstable"], 0, (2, 4), contexts=(0,), whats=("pass", "prompt", "draft_step"))
for b, place in (2, "S"), (3, "unstable"):
    put("cost", bench=b, placement=place, form="hinge" if b == 2 else "table", a=4900.5, b=110.25, s=40.5, n0=3.5, d=2.75, e=0.0625,
        hinge_error=0.1, hinge_rms=0.05, table_error=0.2, table_rms=0.1, step_a=None, step_d=None, step_error=None)  # fmt: skip


# ---- plain arithmetic

runs, sequences, steps = FACTS["run"], FACTS["sequence"], FACTS["step"]


def of(table, **known):
    return [row for row in FACTS[table] if all(row[k] == v for k, v in known.items())]


SEQUENCE = {s["id"]: s for s in sequences}
STEPS_OF = {s["id"]: [t for t in steps if t["sequence"] == s["id"]] for s in sequences}
TRIALS_OF = {s["id"]: [t for t in FACTS["trial"] if t["sequence"] == s["id"]] for s in sequences}


def run_sequences(r):
    return [s for s in sequences if s["run"] == r]


def run_steps(r):
    return [t for s in run_sequences(r) for t in STEPS_OF[s["id"]]]


def ratio(a, b):
    return None if a is None or b is None or b == 0 else a / b


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


def total(rows, key):
    return sum(row[key] for row in rows)


VIEWS = {}


def view(name, key, rows):
    """key: the columns that identify a row; both sides are sorted by them."""
    rows = sorted(rows, key=lambda row: [row[k] for k in key])
    columns = list(rows[0])
    assert all(list(row) == columns for row in rows), name
    assert len({tuple(row[k] for k in key) for row in rows}) == len(rows), name
    VIEWS[name] = {"order": ", ".join(key), "columns": columns, "rows": [list(row.values()) for row in rows]}
    return rows


def outcome():
    found = {}
    for r in runs:
        for t in run_steps(r["id"]):
            if t["drafted"] > 0:
                cut = int(t["tokens"] == t["accepted"])
                row = found.setdefault((r["id"], t["depth"], t["accepted"], cut), [0, 0, 0])
                row[0] += 1
                row[1] += t["drafted"]
                row[2] += t["drafted"] > t["depth"]
    return [dict(run=k[0], depth=k[1], accepted=k[2], cut=k[3], drafts=v[0], drafted=v[1], trees=v[2]) for k, v in found.items()]


def acceptance():
    out = []
    for r in runs:
        drafts = [t for t in run_steps(r["id"]) if t["drafted"] > 0]
        for depth in range(1, 20):
            deep = [t for t in drafts if t["depth"] >= depth]
            if not deep:
                continue
            tried = accepted = 0
            for t in drafts:
                accepted += t["accepted"] >= depth
                ended = t["tokens"] == t["accepted"]  # the next token is not known
                if t["depth"] >= depth and t["accepted"] >= depth - 1 and not (ended and t["accepted"] == depth - 1):
                    tried += 1
            out.append(dict(run=r["id"], depth=depth, drafts=len(drafts), drafts_this_deep=len(deep), tried=tried, accepted=accepted,
                            rate=accepted / len(drafts), conditional_rate=ratio(accepted, tried)))  # fmt: skip
    return out


def acceptance_by_rank():
    groups = {}
    for t in FACTS["trial"]:
        groups.setdefault((SEQUENCE[t["sequence"]]["run"], t["depth"], t["rank"]), []).append(t)
    out = []
    for (r, depth, rank), ts in groups.items():
        probability = []
        for t in ts:
            if t["p"] is not None:
                probability.append(t["p"] if t["proposal"] == 0 else min(1.0, t["p"] / t["q"]))
        out.append(dict(run=r, depth=depth, rank=rank, tried=len(ts), accepted=total(ts, "accepted"), rate=total(ts, "accepted") / len(ts),
                        mean_p=mean(t["p"] for t in ts), rejection_rate=mean(probability)))  # fmt: skip
    return out


def expected():
    out = []
    for r in runs:
        n = accepted = 0
        want = variance = 0.0
        for t in run_steps(r["id"]):
            if t["drafted"] == 0 or t["expected"] is None:
                continue
            uncut = t["accepted_uncut"]
            if uncut is None:  # in a step that the end of the text cut: the accepted trials
                uncut = t["accepted"]
                if t["tokens"] == t["accepted"]:
                    tests = [g for g in TRIALS_OF[t["sequence"]] if g["step"] == t["step"] and g["accepted"]]
                    uncut = max(uncut, len(tests))
            n += 1
            accepted += uncut
            want += t["expected"]
            variance += t["variance"]
        if n:
            out.append(dict(run=r["id"], steps=n, accepted_tokens=accepted, expected_tokens=want, variance=variance,
                            z=(accepted - want) / math.sqrt(variance) if variance > 0 else None))  # fmt: skip
    return out


def by_rule():
    groups = {}
    for x in FACTS["step_rule"]:
        groups.setdefault((SEQUENCE[x["sequence"]]["run"], x["rule"], x["lossless"]), []).append(x)
    return [dict(run=k[0], rule=k[1], lossless=k[2], drafts=len(v), accepted=mean(x["accepted"] for x in v),
                 first=mean(x["first"] for x in v), known=sum(x["first"] is not None for x in v)) for k, v in groups.items()]  # fmt: skip


def steps_view():
    out = []
    for r in runs:
        ts = run_steps(r["id"])
        if not ts:
            continue
        drafts = [t for t in ts if t["drafted"] > 0]
        row = dict(run=r["id"], steps=len(ts), drafts=len(drafts), drafted_tokens=total(ts, "drafted"), accepted_tokens=total(ts, "accepted"),
                   new_tokens=total(ts, "tokens"), tokens_per_step=total(ts, "tokens") / len(ts), max_depth=max(t["depth"] for t in ts),
                   trees=sum(t["drafted"] > t["depth"] for t in ts))  # fmt: skip
        for clock in "propose_ns", "verify_ns", "advance_ns":
            row[clock] = sum(t[clock] / t["batch"] for t in ts)
        out.append(row)
    return out


def timing(of_steps):
    out = []
    for s in of_steps:
        decode = total(run_sequences(s["run"]), "decode_ns")
        known = s["propose_ns"] + s["verify_ns"] + s["advance_ns"]
        out.append(dict(
            run=s["run"], decode_ns=decode, propose_ns=s["propose_ns"], verify_ns=s["verify_ns"], advance_ns=s["advance_ns"],
            other_ns=decode - known, propose_share=ratio(s["propose_ns"], decode), verify_share=ratio(s["verify_ns"], decode),
            advance_share=ratio(s["advance_ns"], decode), other_share=ratio(decode - known, decode),
            propose_ns_per_step=s["propose_ns"] / s["steps"], verify_ns_per_step=s["verify_ns"] / s["steps"],
            advance_ns_per_step=s["advance_ns"] / s["steps"]))  # fmt: skip
    return out


def partner(s):
    r, found = RUN[s["run"]], []
    for b in sequences:
        n = RUN[b["run"]]
        same = all(b[k] == s[k] for k in ("pair", "prompt", "turn", "repeat"))
        if same and n["drafter_kind"] == "none" and n["peers"] == r["peers"]:
            found.append((n["rule"] != r["rule"], n["id"], b))
    return min(found, key=lambda f: f[:2])[2] if found else None


PARTNER = {s["id"]: partner(s) for s in sequences if RUN[s["run"]]["drafter_kind"] != "none"}


def both(r, prompt=None):
    """Paired sequences of a run, each with its partner of none."""
    return [(s, PARTNER[s["id"]]) for s in run_sequences(r)
            if PARTNER.get(s["id"]) is not None and prompt in (None, s["prompt"])]  # fmt: skip


def pace(rows, *clocks):
    return ratio(total(rows, "new_tokens"), sum(total(rows, c) for c in clocks))


def speedup(pairs, *clocks):
    return ratio(pace([s for s, _ in pairs], *clocks), pace([n for _, n in pairs], *clocks))


def paired_prompts(r):
    return sorted({s["prompt"] for s, _ in both(r)})


def speed_by_prompt():
    out = []
    for r in runs:
        for prompt in paired_prompts(r["id"]):
            pairs = both(r["id"], prompt)
            own, none = [s for s, _ in pairs], [n for _, n in pairs]
            names = [s["category"] for s in own if s["category"] is not None]
            out.append(dict(
                run=r["id"], prompt=prompt, prompt_id=own[0]["prompt_id"], category=min(names) if names else None, sequences=len(own),
                new_tokens=total(own, "new_tokens"), decode_ns=total(own, "decode_ns"), prefill_ns=total(own, "prefill_ns"),
                none_new_tokens=total(none, "new_tokens"), none_decode_ns=total(none, "decode_ns"),
                none_prefill_ns=total(none, "prefill_ns"), speedup=speedup(pairs, "decode_ns"),
                end_to_end_speedup=speedup(pairs, "decode_ns", "prefill_ns")))  # fmt: skip
    return out


def speed():
    out = []
    for r in runs:
        own, pairs = run_sequences(r["id"]), both(r["id"])
        if not own:
            continue
        ratios = [speedup(both(r["id"], p), "decode_ns") for p in paired_prompts(r["id"])]
        logs = [math.log(x) for x in ratios if x is not None and x > 0]  # a prompt without tokens has no ratio
        tokens = total(own, "new_tokens")
        decode, prefill, wall = (total(own, k) for k in ("decode_ns", "prefill_ns", "wall_ns"))
        out.append(dict(
            run=r["id"], sequences=len(own), prompts=len({s["prompt"] for s in own}), new_tokens=tokens, decode_ns=decode, prefill_ns=prefill,
            tokens_per_s=ratio(tokens * 1e9, decode), end_to_end_tokens_per_s=ratio(tokens * 1e9, decode + prefill),
            sequence_tokens_per_s=ratio(tokens * 1e9, wall), speedup=speedup(pairs, "decode_ns") if pairs else None,
            speedup_geometric=math.exp(sum(logs) / len(logs)) if logs else None,
            end_to_end_speedup=speedup(pairs, "decode_ns", "prefill_ns") if pairs else None,
            paired_prompts=len(paired_prompts(r["id"])) if pairs else None, paired_sequences=len(pairs) if pairs else None,
            unpaired_sequences=None if r["drafter_kind"] == "none" else len(own) - len(pairs)))  # fmt: skip
    return out


def texts():
    out = []
    for r in runs:
        for s, n in both(r["id"]):
            a, b = json.loads(s["tokens"]), json.loads(n["tokens"])
            at = 0
            while at < min(len(a), len(b)) and a[at] == b[at]:
                at += 1
            out.append(dict(run=r["id"], sequence=s["id"], prompt=s["prompt"], prompt_id=s["prompt_id"], turn=s["turn"], repeat=s["repeat"],
                            none=n["id"], same_rule=int(RUN[n["run"]]["rule"] == r["rule"]), equal=int(a == b),
                            first_difference=None if a == b else at))  # fmt: skip
    return out


def run_summary(v):
    out = []
    for r in runs:
        a, s, t = (next((x for x in v[name] if x["run"] == r["id"]), {}).get for name in ("speed", "steps", "timing"))
        drafts = r["drafter_kind"] != "none"
        compared = [x for x in v["texts"] if x["run"] == r["id"]]
        row = {"run": r["id"]}
        for k in "experiment peers target model_type activations cache drafter drafter_kind rule lossless marked_inflated sampling".split():
            row[k] = r[k]
        row["prompt_file"] = r["prompts"]
        for k in "seed batch device machine revision".split():
            row[k] = r[k]
        row["finished"] = int(r["finished"] is not None)
        row.update({k: a(k) for k in ("sequences", "prompts", "new_tokens")})
        row.update({k: s(k) for k in ("steps", "tokens_per_step", "max_depth", "trees")})
        row.update({k: s(k) if drafts else None for k in ("drafts", "drafted_tokens", "accepted_tokens")})
        row["acceptance_rate"] = ratio(s("accepted_tokens"), s("drafted_tokens")) if drafts else None
        row.update({k: a(k) for k in "decode_ns prefill_ns tokens_per_s end_to_end_tokens_per_s sequence_tokens_per_s speedup "
                    "speedup_geometric end_to_end_speedup paired_prompts paired_sequences unpaired_sequences".split()})  # fmt: skip
        row.update({k: t(k) for k in ("propose_share", "verify_share", "advance_share", "other_share")})
        row["compared_texts"] = len(compared) if compared else None
        row["equal_texts"] = total(compared, "equal") if compared else None
        out.append(row)
    return out


def vllm_metrics():
    out = []
    for r in runs:
        ts = run_steps(r["id"])
        row = dict(run=r["id"], num_drafts=None, num_draft_tokens=None, num_accepted_tokens=None, acceptance_rate=None,
                   acceptance_length=None)  # fmt: skip
        if r["drafter_kind"] != "none" and ts:
            drafts, drafted, accepted = sum(t["drafted"] > 0 for t in ts), total(ts, "drafted"), total(ts, "accepted")
            longer = ratio(accepted, drafts)
            row.update(num_drafts=drafts, num_draft_tokens=drafted, num_accepted_tokens=accepted, acceptance_rate=ratio(accepted, drafted),
                       acceptance_length=None if longer is None else 1 + longer)  # fmt: skip
        out.append(row)
    return out


def answer():
    out = []
    for s in sequences:
        same = [e["pair"] for e in run_sequences(s["run"]) if all(e[k] == s[k] for k in ("prompt", "turn", "repeat"))]
        if s["pair"] == min(same):
            wall = s["prefill_ns"] + (s["decode_ns"] if RUN[s["run"]]["batch"] == 1 else s["wall_ns"])
            out.append(dict(sequence=s["id"], run=s["run"], prompt=s["prompt"], prompt_id=s["prompt_id"], category=s["category"], turn=s["turn"],
                            repeat=s["repeat"], new_tokens=s["new_tokens"], steps=s["steps"], text=s["text"], wall_ns=wall))  # fmt: skip
    return out


def spec_bench(answers):
    out = []
    for r in runs:
        own = [a for a in answers if a["run"] == r["id"] and a["repeat"] == 0]
        if not own:
            continue
        paces = []
        for prompt in {a["prompt"] for a in own}:
            same = [a for a in own if a["prompt"] == prompt]
            paces.append(ratio(total(same, "new_tokens") * 1e9, total(same, "wall_ns")))
        out.append(dict(run=r["id"], questions=len(paces), new_tokens=total(own, "new_tokens"),
                        mean_accepted_tokens=ratio(total(own, "new_tokens"), total(own, "steps")), tokens_per_s=mean(paces)))  # fmt: skip
    return out


def eagle(accepted):
    out = []
    for r in runs:
        ts = run_steps(r["id"])
        row = dict(run=r["id"], tau=None, alpha_0=None, alpha_1=None, alpha_2=None, alpha_3=None, alpha_4=None)
        if r["drafter_kind"] != "none" and ts:
            row["tau"] = total(ts, "tokens") / len(ts)
            if not any(t["drafted"] > t["depth"] for t in ts):
                for a in accepted:
                    if a["run"] == r["id"] and a["depth"] <= 5:
                        row["alpha_%d" % (a["depth"] - 1)] = a["conditional_rate"]
        out.append(row)
    return out


def medusa():
    out = []
    for r in runs:
        pairs = both(r["id"])
        if not pairs:
            continue
        own, none = [s for s, _ in pairs], [n for _, n in pairs]
        rate = ratio(total(own, "new_tokens"), total(own, "steps"))
        over = ratio(ratio(total(own, "decode_ns"), total(own, "steps")), ratio(total(none, "decode_ns"), total(none, "steps")))
        out.append(dict(run=r["id"], acceleration_rate=rate, overhead=over, speedup=ratio(rate, over)))
    return out


def quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] * (1 - (at - low)) + values[high] * (at - low)


def bench_pass():
    groups = {}
    for t in FACTS["bench_time"]:
        b = t["bench"]
        r = next(x for x in of("bench_round", bench=b) if x["round"] == t["round"])
        if not r["counts"] and any(x["counts"] for x in of("bench_round", bench=b)):
            continue
        ours = of("bench_time", bench=b, round=t["round"], what=t["what"], context=t["context"], n=t["n"], peer=0)[0]
        key = (b, r["placement"], t["what"], t["context"], t["n"], t["peer"])
        groups.setdefault(key, []).append((t["ns"], t["ns"] / ours["ns"]))
    out = []
    for k, v in groups.items():
        ns, times = [x for x, _ in v], [x for _, x in v]
        out.append(dict(
            bench=k[0], placement=k[1], what=k[2], context=k[3], n=k[4], peer=k[5], rounds=len(v), median_ns=quantile(ns, 0.5),
            low_ns=quantile(ns, 0.25), high_ns=quantile(ns, 0.75), min_ns=min(ns), max_ns=max(ns), ratio=quantile(times, 0.5),
            ratio_low=quantile(times, 0.25), ratio_high=quantile(times, 0.75)))  # fmt: skip
    return out


def cost_of_pass(passes):
    out = []
    for p in passes:
        if p["what"] != "pass" or p["peer"] != 0:
            continue
        same = [x for x in passes if (x["bench"], x["placement"], x["context"], x["what"], x["n"], x["peer"])
                == (p["bench"], p["placement"], p["context"], "pass", 1, 0)]  # fmt: skip
        k = next(iter(of("cost", bench=p["bench"], placement=p["placement"])), None)
        hinge = None
        if k is not None:
            over = p["n"] - k["n0"] if p["n"] > k["n0"] else 0
            hinge = k["a"] + k["b"] * p["n"] + k["s"] * over + k["d"] * p["context"] + k["e"] * p["n"] * p["context"]
        out.append(dict(bench=p["bench"], placement=p["placement"], context=p["context"], n=p["n"], rounds=p["rounds"], median_ns=p["median_ns"],
                        c=p["median_ns"] / same[0]["median_ns"] if same else None, form=k["form"] if k else None, hinge_ns=hinge,
                        hinge_error=None if hinge is None else hinge / p["median_ns"] - 1))  # fmt: skip
    return out


# ---- the queries of results/*.sql

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
        one = [x for x in passes if x["what"] == "pass" and x["n"] == 1
               and all(x[k] == p[k] for k in ("bench", "placement", "context", "peer"))]  # fmt: skip
        name = [x["name"].split(" ")[0] for x in of("bench_peer", bench=b["id"]) if x["peer"] == p["peer"]]
        out.append(((b["target"], b["id"], p["placement"], p["context"], p["n"], p["peer"]), dict(
            target=b["target"], inflated=b["marked_inflated"], type=b["model_type"], activations=b["activations"], threads=b["threads"],
            placement=p["placement"], context=p["context"], n=p["n"], engine=name[0] if name else "speclab", rounds=p["rounds"],
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


# ---- the numbers of a report (results/tally.h)


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


def main():
    v = {}
    v["outcome"] = view("outcome", ["run", "depth", "accepted", "cut"], outcome())
    v["acceptance"] = view("acceptance", ["run", "depth"], acceptance())
    v["by_rank"] = view("acceptance_by_rank", ["run", "depth", "rank"], acceptance_by_rank())
    v["expected"] = view("expected", ["run"], expected())
    view("by_rule", ["run", "rule", "lossless"], by_rule())
    v["steps"] = view("steps", ["run"], steps_view())
    v["timing"] = view("timing", ["run"], timing(v["steps"]))
    view("paired", ["run", "sequence"], [dict(run=SEQUENCE[s]["run"], sequence=s, none=n["id"] if n else None) for s, n in PARTNER.items()])
    prompts = view("speed_by_prompt", ["run", "prompt"], speed_by_prompt())
    v["speed"] = view("speed", ["run"], speed())
    v["texts"] = view("texts", ["run", "sequence"], texts())
    view("run_summary", ["run"], run_summary(v))
    view("vllm_metrics", ["run"], vllm_metrics())
    view("vllm_positions", ["run", "position"], [
        dict(run=a["run"], position=a["depth"] - 1, num_accepted_tokens=a["accepted"], num_drafts=a["drafts"], acceptance_rate=a["rate"])
        for a in v["acceptance"]])  # fmt: skip
    answers = view("answer", ["sequence"], answer())
    view("spec_bench", ["run"], spec_bench(answers))
    view("eagle", ["run"], eagle(v["acceptance"]))
    view("medusa", ["run"], medusa())
    passes = view("bench_pass", ["bench", "placement", "what", "context", "n", "peer"], bench_pass())
    view("cost_of_pass", ["bench", "placement", "context", "n"], cost_of_pass(passes))
    query("answers", answers_query(answers))
    query("bench_cost", bench_cost(passes))
    query("by_category", by_category(prompts))
    query("losing_prompts", losing_prompts(prompts))
    query("verify_cost", verify_cost())

    def sql(x):
        return "NULL" if x is None else "'%s'" % x.replace("'", "''") if isinstance(x, str) else repr(x)

    with open(sys.argv[1], "w") as f:
        for table in "run pair sequence step trial step_rule bench bench_peer bench_round bench_time cost".split():
            rows = FACTS[table]
            for i in range(0, len(rows), 40):
                values = ",".join("(%s)" % ",".join(sql(x) for x in row.values()) for row in rows[i : i + 40])
                f.write("INSERT INTO %s (%s) VALUES %s\n" % (table, ", ".join(rows[0]), values))
    with open(sys.argv[2], "w") as f:
        f.write('{"prompts": %s,\n' % json.dumps("\n".join(json.dumps(p, separators=(",", ":")) for p in PROMPTS) + "\n"))
        for part, last in (("views", ","), ("queries", ",")):
            f.write('"%s": {\n' % part)
            tables = VIEWS if part == "views" else QUERIES
            f.write(",\n".join("%s: %s" % (json.dumps(k), json.dumps(t, separators=(",", ":"))) for k, t in tables.items()))
            f.write("\n}%s\n" % last)
        f.write('"answer_files": {\n' + ",\n".join("%s: %s" % (json.dumps(k), json.dumps(a, separators=(",", ":"))) for k, a in answer_files(answers).items()) + "\n},\n")
        f.write('"comparisons": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in comparisons(v, prompts)) + "\n]}\n")
    print(len(sequences), "texts,", len(steps), "steps,", sum(len(t["rows"]) for t in VIEWS.values()), "rows of", len(VIEWS), "views")


if __name__ == "__main__":
    main()
