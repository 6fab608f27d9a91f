"""view_predictions.py - what the views of predictions must say about the rows of view_facts.py, by plain loops: a pass costs what the
hinge's formula or two linear interpolations say, never pieces; a predicted run is a loop over its steps."""

from view_facts import FACTS, RUN
from view_numbers import PARTNER, SEQUENCE, STEPS_OF, mean, of, ratio, run_sequences, run_steps, runs, sequences, total

FAR = 1e18


def pass_view():
    out, together = [], {}
    for s in sequences:
        before = max(s["prompt_tokens"] - 1, 0)
        for t in STEPS_OF[s["id"]]:
            row = dict(run=s["run"], sequence=s["id"], step=t["step"], batch=t["batch"], drafted=t["drafted"], depth=t["depth"], accepted=t["accepted"],
                       tokens=t["tokens"], context=before, draft_ns=t["propose_ns"] + t["advance_ns"], verify_ns=t["verify_ns"], rows=t["drafted"] + 1.0)  # fmt: skip
            before += t["tokens"]
            out.append(row)
            if t["batch"] > 1:
                together.setdefault((s["run"], s["pair"], t["batch"], t["propose_ns"], t["verify_ns"], t["advance_ns"]), []).append(row)
    for (_, _, batch, *_), rows in together.items():
        all_rows = batch * sum(r["drafted"] + 1 for r in rows) / len(rows)
        for r in rows:
            r["rows"] = all_rows
    return out


def bench_of_run():
    out = []
    for r in runs:
        fits = []
        for b in FACTS["bench"]:
            same = all(b[k] == r[k] for k in ("target_hash", "activations", "cache", "device"))
            if same and (r["machine"] == b["machine"] or r["machine"].startswith(b["machine"] + "; drafter on ")):
                for k in of("cost", bench=b["id"]):
                    counts = sum(x["counts"] for x in of("bench_round", bench=b["id"], placement=k["placement"]))
                    fits.append((-b["id"], -counts, k["placement"], k, b))
        if fits:
            *_, k, b = min(fits, key=lambda f: f[:3])
            out.append(dict(run=r["id"], bench=b["id"], **{x: "table" if x == "form" and k["u"] else k[x] for x in "placement form a b s n0 d e".split()}, overhead_ns=b["overhead_ns"]))
    return out


def mean_batch(run):
    """Sequences of a pass, over all passes of the paired sequences."""
    batches = [t["batch"] for s, n in PARTNER.items() if n is not None and SEQUENCE[s]["run"] == run for t in STEPS_OF[s]]
    return len(batches) / sum(1 / b for b in batches)


class Grid:
    """ns[rows, context], linear between points and beyond them."""

    def __init__(self, ns):
        self.ns = ns
        self.rows, self.contexts = sorted({k[0] for k in ns}), sorted({k[1] for k in ns})

    @staticmethod
    def between(places, x):
        if len(places) == 1:
            return places[0], places[0], 0.0
        at = 0
        while at + 2 < len(places) and x > places[at + 1]:
            at += 1
        return places[at], places[at + 1], (x - places[at]) / (places[at + 1] - places[at])

    def __call__(self, rows, context):
        a, b, u = self.between(self.rows, rows)
        c, d, v = self.between(self.contexts, context)
        near, later = (self.ns[a, y] + u * (self.ns[b, y] - self.ns[a, y]) for y in (c, d))
        return near + v * (later - near)

    def pieces(self):
        for i in range(max(1, len(self.rows) - 1)):
            for k in range(max(1, len(self.contexts) - 1)):
                limits = []
                for places, at in (self.rows, i), (self.contexts, k):
                    limits += [-FAR if at == 0 else places[at], FAR if at >= len(places) - 2 else places[at + 1]]
                yield limits


class Hinge:
    def __init__(self, f):
        self.f = f

    def __call__(self, n, context):
        f = self.f
        return f["a"] + f["b"] * n + f["s"] * max(0, n - f["n0"]) + f["d"] * context + f["e"] * n * context

    def pieces(self):
        return [[-FAR, self.f["n0"], -FAR, FAR], [self.f["n0"], FAR, -FAR, FAR]]


def costs(passes, measured, fitted):
    """{(run, source): a function of rows and context}"""
    out = {}
    for f in fitted:
        here = [p for p in measured if (p["bench"], p["placement"], p["what"], p["peer"], p["slots"]) == (f["bench"], f["placement"], "pass", 0, 1)]
        out[f["run"], "bench"] = Hinge(f) if f["form"] == "hinge" else Grid({(p["n"], p["context"]): p["median_ns"] for p in here})
    for r in runs:
        seen, here = {}, [p for p in passes if RUN[p["run"]]["peers"] == r["peers"]]
        for p in here:
            seen.setdefault(p["rows"], []).append(p)
        if seen:
            enough = min(8, max(len(v) for v in seen.values()))
            known = {n: mean(p["verify_ns"] for p in v) for n, v in seen.items() if len(v) >= enough}
            factor = {n: known[n] / out[r["id"], "bench"](n, mean(p["context"] for p in seen[n])) for n in known if (r["id"], "bench") in out}
            out[r["id"], "steps"] = Grid({(n, 0.0): v for n, v in {**scaled(r["id"], factor, here, measured, fitted, out), **known}.items()})
    return out


def scaled(run, factor, passes, measured, fitted, out):
    """What the bench's own numbers of rows take among passes whose time is known: {rows: ns}"""
    ns = {}
    for f in (f for f in fitted if f["run"] == run):
        for n in {float(p["n"]) for p in measured if (p["bench"], p["placement"], p["what"], p["peer"], p["slots"]) == (f["bench"], f["placement"], "pass", 0, 1)} - set(factor):
            low, high = max((k for k in factor if k < n), default=None), min((k for k in factor if k > n), default=None)
            low, high = high if low is None else low, low if high is None else high
            share = 0 if low == high else (n - low) / (high - low)
            ns[n] = out[run, "bench"](n, mean(p["context"] for p in passes)) * ((1 - share) * factor[low] + share * factor[high])
    return ns
    return out


def cost_piece(cost):
    """Coefficients from the function's values at four places within the piece."""
    out = []
    for (run, source), f in cost.items():
        for rows_from, rows_to, from_context, to_context in f.pieces():
            n = [rows_from, rows_to] if FAR not in (-rows_from, rows_to) else [rows_to - 1, rows_to] if rows_to < FAR else [rows_from + 1e-3, rows_from + 1]
            c = ([from_context, to_context] if FAR not in (-from_context, to_context) else [to_context - 1, to_context] if to_context < FAR else [from_context + 1e-3, from_context + 1])
            n, c = ([x if abs(x) < FAR else float(i) for i, x in enumerate(p)] for p in (n, c))
            v = [[f(x, y) for y in c] for x in n]
            e = (v[1][1] - v[1][0] - v[0][1] + v[0][0]) / (n[1] - n[0]) / (c[1] - c[0])
            b = (v[1][0] - v[0][0]) / (n[1] - n[0]) - e * c[0]
            d = (v[0][1] - v[0][0]) / (c[1] - c[0]) - e * n[0]
            out.append(dict(run=run, source=source, above_rows=rows_from, to_rows=rows_to, above_context=from_context, to_context=to_context,
                            a=v[0][0] - b * n[0] - d * c[0] - e * n[0] * c[0], b=b, d=d, e=e))  # fmt: skip
    return out


def predicted_time(passes, fitted, cost):
    out = []
    for r in runs:
        pairs = [(s, PARTNER[s["id"]]) for s in run_sequences(r["id"]) if PARTNER.get(s["id"]) and STEPS_OF[s["id"]] and STEPS_OF[PARTNER[s["id"]]["id"]]]
        for source in ("bench", "steps"):
            if not pairs or (r["id"], source) not in cost:
                continue
            own = [p for s, _ in pairs for p in passes if p["sequence"] == s["id"]]
            none = [p for _, n in pairs for p in passes if p["sequence"] == n["id"]]
            f = next((f for f in fitted if f["run"] == r["id"]), None)
            row = dict(run=r["id"], source=source, bench=f["bench"] if source == "bench" else None, steps=len(own))
            row.update({k: total(own, k) for k in ("tokens", "depth", "accepted")})
            row["perfect_tokens"] = sum(p["depth"] + 1 for p in own)
            row["decode_ns"] = sum(s["decode_ns"] for s, _ in pairs)
            row["verify_ns"] = sum(p["verify_ns"] / p["batch"] for p in own)
            row["draft_ns"] = sum(p["draft_ns"] / p["batch"] for p in own)
            row["pass_ns"] = sum(cost[p["run"], source](p["rows"], p["context"]) / p["batch"] for p in own)
            row["rows"], row["context"] = mean(p["rows"] for p in own), mean(p["context"] for p in own)
            row["batch"] = mean_batch(r["id"])
            row.update(none_steps=len(none), none_tokens=total(none, "tokens"), none_decode_ns=sum(n["decode_ns"] for _, n in pairs))
            row["none_verify_ns"] = sum(p["verify_ns"] / p["batch"] for p in none)
            row["none_pass_ns"] = sum(cost[p["run"], source](p["rows"], p["context"]) / p["batch"] for p in none)
            row["none_rows"], row["none_context"] = mean(p["rows"] for p in none), mean(p["context"] for p in none)
            outside = (row["none_decode_ns"] - row["none_verify_ns"]) / len(none)
            row["overhead_ns"] = f["overhead_ns"] if source == "bench" and f["overhead_ns"] is not None else outside
            out.append(row)
    return out


def prediction_by_length(times, cost):
    out = []
    for p in times:
        f, batch = cost[p["run"], p["source"]], p["batch"]
        steps = [t for s in run_sequences(p["run"]) if PARTNER.get(s["id"]) for t in STEPS_OF[s["id"]]]
        lengths = [] if any(t["drafted"] > t["depth"] for t in steps) else list(range(max(t["depth"] for t in steps) + 1))
        for length in [None] + lengths:
            tokens = ns = depth = 0
            for t in steps:
                limit = t["accepted"] if length is None else length
                drafted = min(t["drafted"], limit)
                tokens += min(t["tokens"], limit + 1)
                depth += drafted
                ns += f(batch * (drafted + 1), p["context"]) / batch
            step = ns / len(steps) + (ratio(p["draft_ns"], p["depth"]) or 0) * depth / len(steps) + p["overhead_ns"]
            none = (p["none_pass_ns"] + p["overhead_ns"] * p["none_steps"]) / p["none_tokens"]
            out.append(dict(run=p["run"], source=p["source"], length=length, tokens_per_step=tokens / len(steps), step_ns=step, speedup=tokens / len(steps) / step * none))
    return out


def prediction(times, cost, lengths, accepted, speeds):
    out = []
    for p in times:
        r, batch, n, m = p["run"], p["batch"], p["steps"], p["none_steps"]
        by_depth = [a for a in accepted if a["run"] == r]
        alpha = ratio(sum(a["accepted"] for a in by_depth), sum(a["tried"] for a in by_depth)) or 0
        own, none = p["pass_ns"] + p["draft_ns"] + p["overhead_ns"] * n, p["none_pass_ns"] + p["overhead_ns"] * m
        plain = p["none_tokens"] / none  # predicted tokens of none in a ns
        drafted = 1.0 * p["depth"] / n
        leviathan = 1 + sum(alpha**i for i in range(1, int(drafted) + 1)) if drafted == int(drafted) else (1 - alpha ** (drafted + 1)) / (1 - alpha)
        at_mean = cost[r, p["source"]](p["rows"], p["context"]) / batch + p["draft_ns"] / n + p["overhead_ns"]
        all_steps = run_steps(r)
        bounds = [t["depth"] * x["first"] for s in run_sequences(r) for t in STEPS_OF[s["id"]]
                  for x in of("step_rule", sequence=s["id"], step=t["step"], rule="(bound)") if x["first"] is not None]  # fmt: skip
        per_draft = mean(bounds)
        mine = [x for x in lengths if (x["run"], x["source"]) == (r, p["source"])]
        chains = [x for x in mine if x["length"] is not None]
        best = max(chains, key=lambda x: x["speedup"]) if chains else None
        share = sum(t["drafted"] > 0 for t in all_steps) / len(all_steps)
        out.append(dict(
            run=r, source=p["source"], bench=p["bench"], speedup=next(x["speedup"] for x in speeds if x["run"] == r),
            leviathan=leviathan / (1 + p["draft_ns"] / n / (p["none_decode_ns"] / m)), by_position=(1 + p["accepted"] / n) / at_mean / plain,
            replay=p["tokens"] / own / plain, time_factor=p["decode_ns"] / own, none_time_factor=p["none_decode_ns"] / none,
            verify_factor=p["verify_ns"] / p["pass_ns"], none_verify_factor=p["none_verify_ns"] / p["none_pass_ns"],
            overhead_factor=ratio((p["decode_ns"] - p["verify_ns"] - p["draft_ns"]) / n, p["overhead_ns"]), draft_share=p["draft_ns"] / own,
            best_length=best["length"] if best else None, best_length_speedup=best["speedup"] if best else None,
            perfect_length=next(x["speedup"] for x in mine if x["length"] is None), perfect_drafter=p["perfect_tokens"] / own / plain,
            perfect_rule=None if per_draft is None else (n + per_draft * share * n) / own / plain))  # fmt: skip
    return out
