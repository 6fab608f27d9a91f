"""view_numbers.py - what each view of results/views*.sql must say about the rows of view_facts.py, by plain loops (docs/results.md)."""

import json
import math
from statistics import pstdev

from view_facts import FACTS, RUN

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
    rows = sorted(rows, key=lambda row: [(row[k] is not None, row[k]) for k in key])  # NULL first, as in SQLite
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
                row = found.setdefault((r["id"], SEQUENCE[t["sequence"]]["prompt"], t["depth"], t["accepted"], cut), [0, 0, 0])
                row[0] += 1
                row[1] += t["drafted"]
                row[2] += t["drafted"] > t["depth"]
    return [dict(run=k[0], prompt=k[1], depth=k[2], accepted=k[3], cut=k[4], drafts=v[0], drafted=v[1], trees=v[2]) for k, v in found.items()]


def at_depth(drafts, depth):
    tried = accepted = 0
    for t in drafts:
        accepted += t["accepted"] >= depth
        ended = t["tokens"] == t["accepted"]  # the next token is not known
        if t["depth"] >= depth and t["accepted"] >= depth - 1 and not (ended and t["accepted"] == depth - 1):
            tried += 1
    return dict(drafts=len(drafts), drafts_this_deep=sum(t["depth"] >= depth for t in drafts), tried=tried, accepted=accepted)


def acceptance():
    out = []
    for r in runs:
        drafts = [t for t in run_steps(r["id"]) if t["drafted"] > 0]
        for depth in range(1, 20):
            row = at_depth(drafts, depth)
            if row["drafts_this_deep"]:
                out.append(dict(run=r["id"], depth=depth, **row, rate=row["accepted"] / row["drafts"], conditional_rate=ratio(row["accepted"], row["tried"])))
    return out


def acceptance_by_prompt():
    out = []
    for r in runs:
        for prompt in sorted({s["prompt"] for s in run_sequences(r["id"])}):
            drafts = [t for t in run_steps(r["id"]) if t["drafted"] > 0 and SEQUENCE[t["sequence"]]["prompt"] == prompt]
            if drafts:
                out += [dict(run=r["id"], prompt=prompt, depth=depth, **at_depth(drafts, depth)) for depth in range(1, max(t["depth"] for t in steps) + 1)]
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


def by_source():
    groups = {}
    for x in FACTS["step_source"]:
        groups.setdefault((SEQUENCE[x["sequence"]]["run"], x["source"]), []).append(x)
    accepted = {}
    for (run, _), v in groups.items():
        accepted[run] = accepted.get(run, 0) + total(v, "accepted")
    return [dict(run=run, source=source, steps=len(v), drafted=total(v, "drafted"), accepted=total(v, "accepted"),
                 rate=total(v, "accepted") / total(v, "drafted"), share=total(v, "accepted") / accepted[run] if accepted[run] else None)
            for (run, source), v in groups.items()]  # fmt: skip


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
            found.append((n["rule"] != r["rule"], n["rule"] != "rejection", n["id"], b))
    return min(found, key=lambda f: f[:3])[3] if found else None


PARTNER = {s["id"]: partner(s) for s in sequences if RUN[s["run"]]["drafter_kind"] != "none"}


def both(r, prompt=None):
    """Paired sequences of a run, each with its partner of none."""
    return [(s, PARTNER[s["id"]]) for s in run_sequences(r)
            if PARTNER.get(s["id"]) is not None and prompt in (None, s["prompt"])]  # fmt: skip


def paired_prompts(r):
    return sorted({s["prompt"] for s, _ in both(r)})


def step_share(t):
    return (t["propose_ns"] + t["verify_ns"] + t["advance_ns"]) / t["batch"]


def is_disturbed(s, t):
    return any(x["disturbed"] for x in FACTS["slice"] if (x["pair"], x["run"], x["round"]) == (s["pair"], s["run"], t["round"]))


def text_rounds():
    out = []
    for s in sequences:
        for number in sorted({t["round"] for t in STEPS_OF[s["id"]]}):
            mine = [t for t in STEPS_OF[s["id"]] if t["round"] == number]
            share = sum(map(step_share, mine)) / sum(map(step_share, STEPS_OF[s["id"]]))
            out.append(dict(run=s["run"], sequence=s["id"], pair=s["pair"], prompt=s["prompt"], round=number, steps=len(mine), new_tokens=total(mine, "tokens"),
                            decode_ns=share * s["decode_ns"], prefill_ns=s["prefill_ns"] if mine[0]["step"] == 0 else 0,
                            disturbed=int(is_disturbed(s, mine[0]))))  # fmt: skip
    return out


ROUNDS = text_rounds()
ROUNDS_OF = {s["id"]: [x for x in ROUNDS if x["sequence"] == s["id"]] for s in sequences}
PARTS = "steps new_tokens decode_ns prefill_ns".split()


def by_unit(rows, keys):
    """Sums of rows by prompt and unit: a round of a pair."""
    found = {}
    for x in rows:
        unit = found.setdefault((x["prompt"], x["pair"] * 2**20 + x["round"]), dict.fromkeys(keys, 0))
        for k in keys:
            unit[k] += x[k]
    return [dict(prompt=k[0], unit=k[1], **x) for k, x in sorted(found.items())]


def undisturbed(rows, which):
    """Rows of slices that count: those for which `which` is false, or all if there are none."""
    return [x for x in rows if not which(x)] or rows


def sums_by_slice():
    out = []
    for r in runs:
        mine = [x for x in ROUNDS if x["run"] == r["id"]]
        out += [dict(run=r["id"], **x) for x in by_unit(undisturbed(mine, lambda x: x["disturbed"]), PARTS)]
    return out


SLICE = {(x["pair"], x["run"], x["round"]): x["disturbed"] for x in FACTS["slice"]}


def of_two(pairs, prefix, parts):
    """The rounds of paired texts with the sums of the one and, prefixed, of the other. slices: what is known of both runs' slices of that round."""
    rows = []
    for both_of in pairs:
        for which, s in enumerate(both_of):
            for x in ROUNDS_OF[s["id"]]:
                mine = {k: x[k] for k in parts}, {k: 0 for k in parts}
                rows.append(dict(sequence=s["id"], prompt=x["prompt"], pair=x["pair"], round=x["round"], unit=x["pair"] * 2**20 + x["round"],
                                 slices=[SLICE[k] for q in both_of if (k := (x["pair"], q["run"], x["round"])) in SLICE],
                                 **{k: mine[which][k] for k in parts}, **{prefix + k: mine[1 - which][k] for k in parts}))  # fmt: skip
    return rows


def all_disturbed(known):
    """known: lists of two, of each round that both runs have a slice of."""
    known = [x for x in known if len(x) == 2]
    return int(bool(known) and all(map(any, known)))


def speed_by_slice():
    out = []
    for r in runs:
        rows = of_two(both(r["id"]), "none_", PARTS)
        every = all_disturbed(x["slices"] for x in rows)
        keys = PARTS + ["none_" + k for k in PARTS]
        out += [dict(run=r["id"], **x, all_disturbed=every) for x in by_unit([x for x in rows if every or not any(x["slices"])], keys)]
    return out


def against_by_slice(of_runs):
    out = []
    for x in runs:
        for y in runs:
            if x is y:
                continue
            mine, other = run_sequences(x["id"]), run_sequences(y["id"])
            both_have = [(a, b) for a in mine for b in other if all(a[k] == b[k] for k in ("pair", "prompt", "turn", "repeat"))]
            head = dict(run=x["id"], against=y["id"])
            places = {(p, n) for p, r, n in SLICE if r == x["id"]}
            every = all_disturbed([SLICE[p, r["id"], n] for r in (x, y) if (p, r["id"], n) in SLICE] for p, n in places)
            keys = "sequence prompt unit steps new_tokens decode_ns against_steps against_new_tokens against_decode_ns".split()
            out += [dict(head, in_pairs=1, **{k: z[k] for k in keys}) for z in of_two(both_have, "against_", PARTS[:3]) if every or not any(z["slices"])]
            common = {s["prompt"] for s in mine} & {s["prompt"] for s in other} if x["prompts"] == y["prompts"] else ()
            for z in of_runs:
                if z["prompt"] in common and z["run"] in (x["id"], y["id"]):
                    own = {k: z[k] for k in PARTS[:3]}, {k: 0 for k in PARTS[:3]}
                    left, right = own if z["run"] == x["id"] else own[::-1]
                    out.append(dict(head, in_pairs=0, sequence=None, prompt=z["prompt"], unit=z["unit"], **left, **{"against_" + k: n for k, n in right.items()}))
    return out


def pace(rows, prefix, *clocks):
    return ratio(total(rows, prefix + "new_tokens"), sum(total(rows, prefix + c) for c in clocks))


def speedup(rows, *clocks):
    """Of rows of speed_by_slice."""
    return ratio(pace(rows, "", *clocks), pace(rows, "none_", *clocks))


def gap():
    out = []
    for s in sequences:
        before = -s["prefill_ns"]
        for t in STEPS_OF[s["id"]]:
            if t["tokens"] > 0:
                out.append(dict(run=s["run"], sequence=s["id"], step=t["step"], first=int(t["step"] == 0), tokens=t["tokens"], ns=t["at_ns"] - before))
            before = t["at_ns"]
    return out


def percentile(values, share):
    """numpy's default: linear between the two nearest."""
    values, at = sorted(values), (len(values) - 1) * share
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def latency(gaps):
    out = []
    for r in runs:
        own = [g for g in gaps if g["run"] == r["id"]]
        per_token = []
        for s in run_sequences(r["id"]):
            if s["new_tokens"] > 1:
                ats = [t["at_ns"] for t in STEPS_OF[s["id"]]]
                per_token.append((max(ats) - min(ats)) / (s["new_tokens"] - 1))
        for what, values in (("itl", [g["ns"] for g in own if not g["first"]]), ("tpot", per_token), ("ttft", [g["ns"] for g in own if g["first"]])):
            if values:
                out.append(dict(run=r["id"], what=what, n=len(values), mean_ns=sum(values) / len(values), sd_ns=pstdev([float(x) for x in values]), p50_ns=percentile(values, 0.5),
                                p95_ns=percentile(values, 0.95), p99_ns=percentile(values, 0.99)))  # fmt: skip
    return out


SUMS = "steps step_tokens drafted_tokens accepted_tokens expected_tokens expected_drafted first_tokens ttft_ns".split()


def sums_by_text():
    out = []
    for s in sequences:
        ts = STEPS_OF[s["id"]]
        known = [t for t in ts if t["drafted"] > 0 and t["expected"] is not None]
        begun = bool(ts) and ts[0]["tokens"] > 0
        row = {k: s[k] for k in ("run", "id", "pair", "prompt", "turn", "repeat", "prompt_id", "category", "new_tokens", "decode_ns", "prefill_ns")}
        row = {"sequence" if k == "id" else k: x for k, x in row.items()}
        row.update(steps=len(ts), step_tokens=total(ts, "tokens"), drafted_tokens=total(ts, "drafted"), accepted_tokens=total(ts, "accepted"),
                   expected_tokens=float(total(known, "expected")), expected_drafted=total(known, "drafted"), first_tokens=int(begun),
                   ttft_ns=s["prefill_ns"] + ts[0]["at_ns"] if begun else 0)  # fmt: skip
        out.append(row)
    return out


def sums_by_prompt(of_texts):
    out = []
    for r in runs:
        for prompt in sorted({s["prompt"] for s in run_sequences(r["id"])}):
            own = [x for x in of_texts if x["run"] == r["id"] and x["prompt"] == prompt]
            names = [x["category"] for x in own if x["category"] is not None]
            out.append(dict(run=r["id"], prompt=prompt, prompt_id=own[0]["prompt_id"], category=min(names) if names else None, sequences=len(own),
                            **{k: total(own, k) for k in ["new_tokens", "decode_ns", "prefill_ns"] + SUMS}))  # fmt: skip
    return out


def against_by_prompt(of_texts):
    keys = "first_tokens ttft_ns steps step_tokens drafted_tokens accepted_tokens".split()
    same_text = ("pair", "prompt", "turn", "repeat")
    out = []
    for x in runs:
        for y in runs:
            for prompt in range(20) if x is not y else ():
                mine, other = ([t for t in of_texts if t["run"] == r["id"] and t["prompt"] == prompt] for r in (x, y))
                both_have = [(a, b) for a in mine for b in other if all(a[k] == b[k] for k in same_text)]
                for in_pairs, left, right in (1, [a for a, _ in both_have], [b for _, b in both_have]), (0, mine, other):
                    if left and right and (in_pairs or x["prompts"] == y["prompts"]):
                        out.append(dict(run=x["id"], against=y["id"], in_pairs=in_pairs, prompt=prompt, **{k: total(left, k) for k in keys},
                                        **{"against_" + k: total(right, k) for k in keys}))  # fmt: skip
    return out


def speed_by_prompt(by_slice):
    out = []
    for r in runs:
        for prompt in paired_prompts(r["id"]):
            own = [s for s, _ in both(r["id"], prompt)]
            rows = [x for x in by_slice if x["run"] == r["id"] and x["prompt"] == prompt]
            names = [s["category"] for s in own if s["category"] is not None]
            if rows:
                out.append(dict(
                    run=r["id"], prompt=prompt, prompt_id=own[0]["prompt_id"], category=min(names) if names else None, sequences=len(own),
                    **{p + k: total(rows, p + k) for p in ("", "none_") for k in PARTS[1:]}, speedup=speedup(rows, "decode_ns"),
                    end_to_end_speedup=speedup(rows, "decode_ns", "prefill_ns"), all_disturbed=rows[0]["all_disturbed"]))  # fmt: skip
    return out


def speed(of_runs, by_slice, by_prompt):
    out = []
    for r in runs:
        own, pairs = run_sequences(r["id"]), both(r["id"])
        if not own:
            continue
        counted, paired_rows = ([x for x in rows if x["run"] == r["id"]] for rows in (of_runs, by_slice))
        ratios = [x["speedup"] for x in by_prompt if x["run"] == r["id"]]
        logs = [math.log(x) for x in ratios if x is not None and x > 0]  # a prompt without tokens has no ratio
        tokens = total(own, "new_tokens")
        slices = of("slice", run=r["id"])
        per_s = [ratio(total(counted, "new_tokens") * 1e9, sum(total(counted, c) for c in clocks)) for clocks in (["decode_ns"], ["decode_ns", "prefill_ns"])]
        out.append(dict(
            run=r["id"], sequences=len(own), prompts=len({s["prompt"] for s in own}), new_tokens=tokens, decode_ns=total(own, "decode_ns"),
            prefill_ns=total(own, "prefill_ns"), tokens_per_s=per_s[0], end_to_end_tokens_per_s=per_s[1],
            sequence_tokens_per_s=ratio(tokens * 1e9, total(own, "wall_ns")), speed_prompts=len({x["prompt"] for x in counted}) if counted else None,
            disturbed_share=ratio(sum(x["ns"] for x in slices if x["disturbed"]), total(slices, "ns")) if slices else None,
            speedup=speedup(paired_rows, "decode_ns") if pairs else None,
            speedup_geometric=math.exp(sum(logs) / len(logs)) if logs else None,
            end_to_end_speedup=speedup(paired_rows, "decode_ns", "prefill_ns") if pairs else None,
            speedup_disturbed=paired_rows[0]["all_disturbed"] if pairs else None, paired_prompts=len(ratios) if pairs else None, paired_sequences=len(pairs) if pairs else None,
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
                    "speedup_geometric end_to_end_speedup disturbed_share speedup_disturbed speed_prompts paired_prompts paired_sequences unpaired_sequences".split()})  # fmt: skip
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
        ours = of("bench_time", bench=b, round=t["round"], what=t["what"], context=t["context"], n=t["n"], peer=0, slots=t["slots"])[0]
        key = (b, r["placement"], t["what"], t["context"], t["n"], t["peer"], t["slots"])
        groups.setdefault(key, []).append((t["ns"], t["ns"] / ours["ns"], t["experts"]))
    out = []
    for k, v in groups.items():
        ns, times = [x[0] for x in v], [x[1] for x in v]
        out.append(dict(
            bench=k[0], placement=k[1], what=k[2], context=k[3], n=k[4], peer=k[5], rounds=len(v), median_ns=quantile(ns, 0.5),
            low_ns=quantile(ns, 0.25), high_ns=quantile(ns, 0.75), min_ns=min(ns), max_ns=max(ns), ratio=quantile(times, 0.5),
            ratio_low=quantile(times, 0.25), ratio_high=quantile(times, 0.75), slots=k[6], experts=v[0][2]))  # fmt: skip
    return out


def cost_of_pass(passes):
    out = []
    for p in passes:
        if p["what"] != "pass" or p["peer"] != 0 or p["slots"] != 1:
            continue
        same = [x for x in passes if (x["bench"], x["placement"], x["context"], x["what"], x["n"], x["peer"], x["slots"])
                == (p["bench"], p["placement"], p["context"], "pass", 1, 0, 1)]  # fmt: skip
        k = next(iter(of("cost", bench=p["bench"], placement=p["placement"])), None)
        hinge = None
        if k is not None:
            over = p["n"] - k["n0"] if p["n"] > k["n0"] else 0
            hinge = k["a"] + k["b"] * p["n"] + k["s"] * over + k["d"] * p["context"] + k["e"] * p["n"] * p["context"]
            hinge += k["u"] * (p["experts"] or 0)
        out.append(dict(bench=p["bench"], placement=p["placement"], context=p["context"], n=p["n"], rounds=p["rounds"], median_ns=p["median_ns"],
                        c=p["median_ns"] / same[0]["median_ns"] if same else None, form=k["form"] if k else None, hinge_ns=hinge,
                        hinge_error=None if hinge is None else hinge / p["median_ns"] - 1, experts=p["experts"]))  # fmt: skip
    return out
