// sglang.c - a run as SGLang would report it: the line of its bench_serving (sglang/benchmark/serving.py) and the gauges of its /metrics
// (sglang/srt/observability/metrics_collector.py). The numbers are the views sglang_metrics and vllm_bench.
#include "core/json.h"
#include "results/exports/export_parts.h"
#include "results/query.h"
#include "results/tally.h"

// Of the inter-token latencies only the mean: SGLang counts a step's time once for each of its tokens.
static const char line_sql[] =
    "SELECT v.duration, v.completed, v.total_input_tokens, v.total_output_tokens, v.request_throughput, s.input_throughput,"
    " v.output_throughput, v.total_token_throughput AS total_throughput, s.mean_e2e_latency_ms, v.mean_ttft_ms, v.median_ttft_ms,"
    " v.std_ttft_ms, v.p99_ttft_ms, v.mean_tpot_ms, v.median_tpot_ms, v.std_tpot_ms, v.p99_tpot_ms, s.mean_itl_ms, s.concurrency,"
    " s.accept_length FROM vllm_bench AS v JOIN sglang_metrics AS s ON s.run = v.run WHERE v.run = ?1";

bool export_sglang_bench(const struct exported *e, struct text *to, struct error *err)
{
    struct json *o = json_new_object();
    json_set(o, "tag", json_new_text(e->name));
    json_set(o, "backend", json_new_text("speclab"));
    json_set(o, "dataset_name", json_new_text(e->of->prompts));
    json_set(o, "request_rate", json_new_text("inf"));
    json_set(o, "max_concurrency", json_new_int(e->of->batch));
    const bool ok = export_row(e, line_sql, o, err);
    struct json *info = json_new_object();
    json_set(info, "model_path", json_new_text(e->of->target));
    json_set(o, "server_info", info);
    json_set(o, "speclab", export_facts(e));
    if (ok && json_get(o, "completed") != NULL)
        export_line(to, o);
    else
        json_free(o);
    return ok;
}

bool export_sglang_metrics(const struct exported *e, struct text *to, struct error *err)
{
    static const char *const gauge[][2] = {
        { "sglang:spec_accept_length",
          "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward)." },
        { "sglang:spec_accept_rate", "Speculative acceptance rate (accepted drafts / proposed drafts)." },
    };
    struct query *q = query_open(
        e->s,
        "SELECT accept_length, spec_accept_rate FROM sglang_metrics WHERE run = ?1 AND accept_length IS NOT NULL");
    query_put_int(q, e->run->run);
    if (query_next(q))
        for (int i = 0; i < 2; i++)
            if (!query_is_null(q, i)) {
                export_metric(to, gauge[i][0], "gauge", gauge[i][1]);
                export_sample(to, e, gauge[i][0], "", query_real(q, i));
            }
    return query_close(q, err);
}
