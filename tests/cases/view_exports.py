"""view_exports.py - what each view of results/views_exports.sql must say about the rows of view_facts.py, and the files exported from them."""

import json
from statistics import pstdev

from view_numbers import STEPS_OF, mean, percentile, ratio, run_sequences, run_steps, runs, total


def milliseconds(values):
    """mean, median, standard deviation and 99th percentile of nanoseconds."""
    if not values:
        return [None] * 4
    return [sum(values) / len(values) / 1e6, percentile(values, 0.5) / 1e6, pstdev([float(v) for v in values]) / 1e6, percentile(values, 0.99) / 1e6]


def arrivals(s):
    """Times at which tokens of a text arrive, from the beginning of its prefill, and how many."""
    return [(s["prefill_ns"] + t["at_ns"], t["tokens"], t["step"]) for t in STEPS_OF[s["id"]] if t["tokens"] > 0]


def vllm_bench():
    out = []
    for r in runs:
        own = run_sequences(r["id"])
        if not own:
            continue
        duration = (total(own, "prefill_ns") + total(own, "decode_ns")) / 1e9
        tokens, prompts = total(own, "new_tokens"), total(own, "prompt_tokens")
        first = [a[0][0] for a in map(arrivals, own) if a and a[0][2] == 0]
        per_token = []
        for s in own:
            if s["new_tokens"] > 1:
                ats = [t["at_ns"] for t in STEPS_OF[s["id"]]]
                per_token.append((max(ats) - min(ats)) / (s["new_tokens"] - 1))
        between = [g for s in own for g, _ in gaps(s)]
        row = dict(run=r["id"], duration=duration, completed=len(own), total_input_tokens=prompts, total_output_tokens=tokens,
                   request_throughput=ratio(len(own), duration), output_throughput=ratio(tokens, duration), total_token_throughput=ratio(prompts + tokens, duration))  # fmt: skip
        for name, values in (("ttft", first), ("tpot", per_token), ("itl", between)):
            row.update(zip(("mean_%s_ms" % name, "median_%s_ms" % name, "std_%s_ms" % name, "p99_%s_ms" % name), milliseconds(values)))
        out.append(row)
    return out


def gaps(s):
    """(time since the step before, tokens) of each step after the first that has tokens."""
    steps, out = STEPS_OF[s["id"]], []
    for before, t in zip(steps, steps[1:]):
        if t["tokens"] > 0:
            out.append((t["at_ns"] - before["at_ns"], t["tokens"]))
    return out


def sglang_metrics():
    out = []
    for r in runs:
        own, ts = run_sequences(r["id"]), run_steps(r["id"])
        if not own:
            continue
        drafts = r["drafter_kind"] != "none" and ts
        duration = (total(own, "prefill_ns") + total(own, "decode_ns")) / 1e9
        each = [g / n for s in own for g, n in gaps(s) for _ in range(n)]  # as bench_serving does: a step's time for each of its tokens
        e2e = [(s["prefill_ns"] + s["wall_ns"]) / 1e6 for s in own]
        out.append(dict(run=r["id"], accept_length=total(ts, "tokens") / len(ts) if drafts else None,
                        spec_accept_rate=ratio(total(ts, "accepted"), len(ts) * max(t["drafted"] for t in ts)) if drafts else None,
                        input_throughput=ratio(total(own, "prompt_tokens"), duration), mean_itl_ms=ratio(mean(each), 1e6),
                        mean_e2e_latency_ms=mean(e2e), concurrency=ratio(sum(e2e), duration * 1e3)))  # fmt: skip
    return out


def speculating():
    """Runs with a drafter that proposed something, and their steps that added tokens."""
    for r in runs:
        if r["drafter_kind"] != "none":
            ts = [t for t in run_steps(r["id"]) if t["tokens"] > 0]
            if ts:
                yield r["id"], ts, max(t["depth"] for t in run_steps(r["id"]))


def nvidia_lengths():
    return [dict(run=r, length=n, steps=sum(t["tokens"] == n for t in ts)) for r, ts, _ in speculating() for n in sorted({t["tokens"] for t in ts})]


def nvidia_positions():
    out = []
    for r, ts, depth in speculating():
        before = 1.0
        for i in range(depth):
            marginal = sum(t["tokens"] >= i + 2 for t in ts) / len(ts)
            out.append(dict(run=r, position=i, marginal=marginal, conditional=marginal / before if before > 0 else 0.0))
            before = marginal
    return out


def nvidia_profile():
    out = []
    for r, ts, depth in speculating():
        if depth > 0:
            of_texts = [[t["tokens"] for t in STEPS_OF[s["id"]] if t["tokens"] > 0] for s in run_sequences(r)]
            out.append(dict(run=r, num_speculative_tokens=depth, mean_accept_length=total(ts, "tokens") / len(ts),
                            mean_accept_length_per_request=mean(sum(n) / len(n) for n in of_texts if n),
                            implied_mean_accept_length=1 + sum(sum(t["tokens"] >= i + 2 for t in ts) / len(ts) for i in range(depth))))  # fmt: skip
    return out


def nvidia_categories():
    out = []
    for r, _, _ in speculating():
        for c in sorted({s["category"] for s in run_sequences(r) if s["category"] is not None}):
            ts = [t for s in run_sequences(r) if s["category"] == c for t in STEPS_OF[s["id"]] if t["tokens"] > 0]
            if ts:
                out.append(dict(run=r, category=c, mean_accept_length=total(ts, "tokens") / len(ts)))
    return out


def setting():
    def leaves(key, value):
        if isinstance(value, dict):
            for k, v in value.items():
                yield from leaves(f"{key}.{k}" if key and key != "cells" else k, v)
        else:
            yield key, json.dumps(value, separators=(",", ":")) if isinstance(value, list) else value

    return [dict(run=r["id"], key=k, value=int(v) if isinstance(v, bool) else v) for r in runs for k, v in leaves("", json.loads(r["settings"]))]
