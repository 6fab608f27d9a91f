"""A run in SGLang's forms: the line of its bench_serving and the gauges of its /metrics. The numbers are views."""

from speclab.exports import dumps, metric, runs

# Inter-token latencies are exported as their mean only: SGLang counts a step's time once for each of its tokens.
_LINE = """SELECT v.run, v.duration, v.completed, v.total_input_tokens, v.total_output_tokens, v.request_throughput, s.input_throughput,
    v.output_throughput, v.total_token_throughput AS total_throughput, s.mean_e2e_latency_ms, v.mean_ttft_ms, v.median_ttft_ms,
    v.std_ttft_ms, v.p99_ttft_ms, v.mean_tpot_ms, v.median_tpot_ms, v.std_tpot_ms, v.p99_tpot_ms, s.mean_itl_ms, s.concurrency,
    s.accept_length FROM vllm_bench AS v JOIN sglang_metrics AS s ON s.run = v.run"""
_GAUGES = {"spec_accept_length": "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
           "spec_accept_rate": "Speculative acceptance rate (accepted drafts / proposed drafts)."}  # fmt: skip
_RATES = "SELECT run, accept_length AS spec_accept_length, spec_accept_rate FROM sglang_metrics WHERE accept_length IS NOT NULL"


def files(results):
    for run, of in runs(results, lines=_LINE, gauges=_RATES):
        for row in of.lines:
            yield f"{run.name}.jsonl", dumps({"tag": run.name, "backend": "speclab", "dataset_name": run["prompt_file"], "request_rate": "inf",
                                              "max_concurrency": run["batch"], **row, "server_info": {"model_path": run["target"]},
                                              "speclab": run.facts}) + "\n"  # fmt: skip
        for row in of.gauges:
            yield f"{run.name}.prom", "".join(metric(f"sglang:{key}", "gauge", _GAUGES[key], [("", value)], run)
                                              for key, value in row.items() if value is not None)  # fmt: skip
