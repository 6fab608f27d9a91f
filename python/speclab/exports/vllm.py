"""A run in the forms of `vllm bench serve --save-result` and vLLM's /metrics. The numbers are the views vllm_*."""

from speclab.exports import dumps, metric, runs

_COUNTERS = {"num_drafts": "Number of spec decoding drafts.", "num_draft_tokens": "Number of draft tokens.",
             "num_accepted_tokens": "Number of accepted tokens."}  # fmt: skip
_ACCEPTANCE = """SELECT run, 100.0 * acceptance_rate AS spec_decode_acceptance_rate, acceptance_length AS spec_decode_acceptance_length,
    num_drafts AS spec_decode_num_drafts, num_draft_tokens AS spec_decode_draft_tokens, num_accepted_tokens AS spec_decode_accepted_tokens
    FROM vllm_metrics"""
_COUNTS = """SELECT run, coalesce(num_drafts, 0) AS num_drafts, coalesce(num_draft_tokens, 0) AS num_draft_tokens,
    coalesce(num_accepted_tokens, 0) AS num_accepted_tokens FROM vllm_metrics"""
_POSITIONS = "SELECT run, position, num_accepted_tokens AS accepted, acceptance_rate FROM vllm_positions ORDER BY run, position"
_DATE = "SELECT id AS run, strftime('%Y%m%d-%H%M%S', started) AS date FROM run"


def files(results):
    queries = {"bench": "SELECT * FROM vllm_bench", "acceptance": _ACCEPTANCE, "counts": _COUNTS, "positions": _POSITIONS, "date": _DATE}
    for run, of in runs(results, **queries):
        if of.bench:
            line = {"endpoint_type": "speclab", "backend": "speclab", "label": run["drafter"], "model_id": run["target"],
                    "tokenizer_id": run["target"], "num_prompts": run["sequences"], "request_rate": "inf", "burstiness": 1.0,
                    # fmt: skip.
                    "max_concurrency": run["batch"], "failed": 0, "request_goodput": None} | of.date[0] | of.bench[0]
            if run["drafts"]:  # vLLM leaves the keys out if nothing was drafted
                line |= of.acceptance[0] | {"spec_decode_per_position_acceptance_rates": [row["acceptance_rate"] for row in of.positions]}
            yield f"{run.name}.json", dumps(line | {"speclab": run.facts}) + "\n"
        if not run["baseline"]:
            metrics = [metric(f"vllm:spec_decode_{key}", "counter", about, [("", of.counts[0][key])], run) for key, about in _COUNTERS.items()]
            metrics.append(metric("vllm:spec_decode_num_accepted_tokens_per_pos", "counter", "Accepted tokens per draft position.",
                                  # fmt: skip.
                                  [(f'position="{row["position"]}",', row["accepted"]) for row in of.positions], run))
            yield f"{run.name}.prom", "".join(metrics)
