"""view_facts.py - the rows of a synthetic database: batches, repeats, several pairs, an unfinished pair, texts cut by a stop string or by
the context, texts without tokens, no category; and benches.
"""

import json
import random

dice = random.Random(1900)
parts = random.Random(7)
waits = random.Random(27)
FACTS = {}  # table: rows


def put(table, **row):
    FACTS.setdefault(table, []).append(row)
    return row


def run(id, experiment, peers, kind, rule, options=None, **more):
    drafter = kind + (f"({', '.join(f'{k}={v}' for k, v in options.items())})" if options else "")
    row = dict(
        id=id, experiment=experiment, cell="c%d" % id, peers=peers, settings='{"cells": {"drafter": {"kind": "x", "tree": [[0], [1, 0]], "distinct": false, "min_p": 0.5}}, "limits": {"tokens": 8, "context": 40}, "seed": -5}' if peers == "A" else "{}", target="toy", target_hash="0123",
        model_type="q4_1", activations="int8", cache="f32", drafter=drafter, drafter_kind=kind, drafter_options=json.dumps(options or {}),
        drafter_hash=None if kind in ("none", "ngram") else "77", rule=rule, lossless=int("typical" not in rule), drafter_invariant=int(rule == "match"),
        marked_inflated=0, sampling="temperature=1", prompts="p.jsonl ab", seed=-5, batch=1, device="cpu", machine="m",
        revision="r", started="2026-01-01T00:00:00Z", finished="2026-01-02T00:00:00Z",
    )  # fmt: skip
    row.update(more)
    return put("run", **row)


NONE, LOOKUP, TREE, LOSSY, NONE_MATCH, MATCH, NONE_B, LOOKUP_B, EMPTY, NONE_E2, NOTHING, ALONE = range(1, 13)
run(NONE, "one", "A", "none", "rejection")
run(LOOKUP, "one", "A", "ngram", "rejection", {"longest": "3"})
run(TREE, "one", "A", "small", "rejection", {"widths": "[2, 2]"})
run(LOSSY, "one", "A", "small", "typical(epsilon=0.09)", {"tokens": "3"}, finished=None)
run(NONE_MATCH, "one", "A", "none", "match")
run(MATCH, "one", "A", "ngram", "match", {"longest": "2"})
run(NONE_B, "one", "B", "none", "rejection", batch=2, sampling="temperature=0", machine="n")
run(LOOKUP_B, "one", "B", "ngram", "rejection", {"longest": "3"}, batch=2, sampling="temperature=0", machine="n")
run(EMPTY, "one", "A", "medusa", "rejection", finished=None)
run(NONE_E2, "two", "A", "none", "rejection", sampling="temperature=0", target="other", target_hash="89", marked_inflated=1)
run(NOTHING, "two", "A", "ngram", "rejection", {"longest": "3"}, target="other", target_hash="89", marked_inflated=1)
run(ALONE, "two", "C", "ngram", "rejection", {"longest": "3"}, finished=None)
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
    decode = wall = at = 0
    while left > 0 or (step == 0 and stop == "string"):
        drafted, depth, accepted = drafts() if drafts else (0, 0, 0)
        in_text = min(accepted, left)
        new = min(accepted + 1, left)
        times = [dice.randrange(5, 60) for _ in range(3)] if drafts else [0, dice.randrange(300, 400), 0]
        crowd = batch if dice.random() < 0.8 else 1
        row = dict(sequence=id, step=step, drafted=drafted, depth=depth, accepted=in_text, tokens=new, expected=None,
                   variance=None, propose_ns=times[0], verify_ns=300 + times[1], advance_ns=times[2], batch=crowd, accepted_uncut=None, round=step // 3 if batch > 1 else 0)  # fmt: skip
        if record and not drafted:
            row.update(expected=0.0, variance=0.0)
        if record and drafted:
            found = trials(id, step, depth, accepted, drafted > depth) if dice.random() < 0.8 else accepted
            row.update(expected=round(dice.uniform(0, depth), 4), variance=round(dice.uniform(0, 1), 4),
                       accepted_uncut=accepted if dice.random() < 0.5 else None)  # fmt: skip
            assert found == accepted
            a = parts.randrange(drafted + 1)                       # draft tokens of the first of two parts, and the accepted ones among them
            of_a = min(a, in_text, max(in_text - (drafted - a), parts.randrange(in_text + 1)))
            for source, n, right in (("ngram", a, of_a), ("ngram+eagle3" if step % 2 else "eagle3", drafted - a, in_text - of_a)):
                if n > 0:
                    put("step_source", sequence=id, step=step, source=source, drafted=n, accepted=right)
            for rule, lossless in ("rejection", 1), ("block", 1), ("typical(epsilon=0.09)", 0), ("(bound)", 1):
                put("step_rule", sequence=id, step=step, rule=rule, lossless=lossless,
                    accepted=None if rule == "(bound)" else round(dice.uniform(0, depth), 4),
                    first=None if rule == "(bound)" and dice.random() < 0.5 else round(dice.random(), 4))  # fmt: skip
        at += 300 + waits.randrange(900)
        row["at_ns"] = at
        put("step", **row)
        share = PACE.get(r, 700) + dice.randrange(200)
        decode += share
        wall += share * crowd + 7
        left -= new
        step += 1
    put("sequence", id=id, run=r, pair=pair, prompt=prompt, prompt_id="p%d" % prompt, category=CATEGORY[prompt % 5],
        turn=turn, repeat=repeat, prompt_tokens=10 + prompt, new_tokens=len(tokens), steps=step,
        shared_tokens=waits.randrange(10) * (step % 2), prefill_ns=dice.randrange(1000, 3000), decode_ns=decode, wall_ns=wall, tokens=json.dumps(tokens, separators=(",", ":")),
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
            verify_ns=350, advance_ns=2, batch=1, accepted_uncut=None, round=0, at_ns=5000)  # fmt: skip
        s["steps"] += 1

# ---- slices: all of two runs are disturbed, of the others some; in each round of the pair with a batch one of the two; of a killed run the last one
# is not there

neighbours, seen = random.Random(5), set()
for s in FACTS["sequence"]:
    for t in FACTS["step"]:
        key = s["pair"], s["run"], t["round"]
        if t["sequence"] != s["id"] or key in seen:
            continue
        seen.add(key)
        disturbed = int(s["run"] in (LOSSY, ALONE) or neighbours.random() < 0.25)
        if s["run"] in (NONE_B, LOOKUP_B):
            disturbed = int((s["run"] == NONE_B) == (key[0] + key[2]) % 2)
        if neighbours.random() < 0.95:
            put("slice", pair=key[0], run=key[1], round=key[2], ns=neighbours.randrange(500, 2000), disturbed=disturbed,
                foreign_load=None if neighbours.random() < 0.1 else disturbed * 0.5 + 0.01)  # fmt: skip

# ---- benches


def bench(id, **more):
    row = dict(id=id, target="toy", target_hash="0123", model_type="q4_1", activations="int8", cache="f32", weight_bytes=1000,
               draft=None, draft_hash=None, draft_activations=None, device="cpu", machine="m", threads=2, revision="r",
               started="2026-01-01T00:00:00Z", overhead_ns=None, overhead_low_ns=None, overhead_high_ns=None, marked_inflated=0)  # fmt: skip
    row.update(more)
    put("bench", **row)


def rounds(b, n, counting, places, peers, rows, contexts=(0, 100), whats=("pass",), slots=(1,), mixture=False):
    for k in range(n):
        put("bench_round", bench=b, round=k, counts=int(k in counting), placement=places[k % len(places)], foreign_share=None,
            before_read=None, before_read_one=None, before_trip_ns=None, after_read=None, after_read_one=None, after_trip_ns=None)  # fmt: skip
        for what in whats:
            for context in contexts:
                for m, s in [(m, s) for m in rows for s in slots]:
                    for peer in range(peers + 1):
                        if peer and dice.random() < 0.1:
                            continue  # a peer that did not run in this round
                        ns = int((5000 + 120 * m * s + 3 * context) * (1 + 0.2 * peer) * dice.uniform(0.9, 1.3))
                        put("bench_time", bench=b, round=k, what=what, context=context, n=m, peer=peer, ns=ns, slots=s,
                            experts=40 + 7 * m * s + context // 50 if mixture and peer == 0 else None)


bench(1)
rounds(1, 3, (0, 1, 2), "S", 0, (1, 2))
bench(2, marked_inflated=1, overhead_ns=33.5)  # the latest of this machine
put("bench_peer", bench=2, peer=1, name="llama.cpp b5000")
put("bench_peer", bench=2, peer=2, name="another")
rounds(2, 8, (0, 1, 3, 4, 5, 6), ["S", "S", "D"], 2, (1, 2, 4, 8), mixture=True)
bench(3, machine="n", threads=4)  # no round counts, so all are used; no pass of one row
rounds(3, 2, (), ["unstable"], 0, (2, 4, 5), contexts=(0, 12, 14), whats=("pass", "prompt", "draft_step"))
bench(4, machine="o")  # passes of several slots
put("bench_peer", bench=4, peer=1, name="llama.cpp b5000")
rounds(4, 3, (0, 1, 2), "S", 1, (1, 2), contexts=(100,), slots=(1, 4, 16))
for b, place in (2, "S"), (3, "unstable"):
    put("cost", bench=b, placement=place, form="hinge" if b == 2 else "table", a=4900.5, b=110.25, s=40.5, n0=3.5, d=2.75, e=0.0625,
        hinge_error=0.1, hinge_rms=0.05, table_error=0.2, table_rms=0.1, step_a=None, step_d=None, step_error=None,
        u=2.5 if b == 2 else 0.0)  # fmt: skip
