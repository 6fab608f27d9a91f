// vllm.c - a run as vLLM would report it: the file of `vllm bench serve --save-result` (vllm/benchmarks/serve.py) and the counters of its
// /metrics (vllm/v1/spec_decode/metrics.py). The numbers are the views vllm_bench, vllm_metrics and vllm_positions.
#include <stdlib.h>

#include "core/json.h"
#include "results/exports/export_parts.h"
#include "results/query.h"
#include "results/tally.h"

static bool put_acceptance(const struct exported *e, struct json *o, struct error *err)
{
    if (e->run->baseline || e->run->drafts == 0)
        return true; // vLLM leaves the keys out if nothing was drafted
    struct json *rates =
        export_list(e, "SELECT acceptance_rate FROM vllm_positions WHERE run = ?1 ORDER BY position", err);
    if (rates == NULL ||
        !export_row(
            e,
            "SELECT 100.0 * acceptance_rate AS spec_decode_acceptance_rate, acceptance_length AS spec_decode_acceptance_length,"
            " num_drafts AS spec_decode_num_drafts, num_draft_tokens AS spec_decode_draft_tokens,"
            " num_accepted_tokens AS spec_decode_accepted_tokens FROM vllm_metrics WHERE run = ?1",
            o, err)) {
        json_free(rates);
        return false;
    }
    json_set(o, "spec_decode_per_position_acceptance_rates", rates);
    return true;
}

bool export_vllm_bench(const struct exported *e, struct text *to, struct error *err)
{
    struct json *o = json_new_object();
    json_set(o, "endpoint_type", json_new_text("speclab"));
    json_set(o, "backend", json_new_text("speclab"));
    json_set(o, "label", json_new_text(e->run->drafter));
    json_set(o, "model_id", json_new_text(e->of->target));
    json_set(o, "tokenizer_id", json_new_text(e->of->target));
    json_set(o, "num_prompts", json_new_int(e->run->sequences));
    json_set(o, "request_rate", json_new_text("inf"));
    json_set(o, "burstiness", json_new_number(1));
    json_set(o, "max_concurrency", json_new_int(e->of->batch));
    json_set(o, "failed", json_new_int(0));
    json_set(o, "request_goodput", json_new_null());
    bool ok = export_row(e, "SELECT strftime('%Y%m%d-%H%M%S', started) AS date FROM run WHERE id = ?1", o, err) &&
              export_row(e, "SELECT * FROM vllm_bench WHERE run = ?1", o, err) && put_acceptance(e, o, err);
    json_drop(o, "run");
    json_set(o, "speclab", export_facts(e));
    if (ok && json_get(o, "completed") != NULL)
        export_line(to, o);
    else
        json_free(o);
    return ok;
}

static void put_positions(struct text *to, const struct exported *e, struct query *q)
{
    export_metric(to, "vllm:spec_decode_num_accepted_tokens_per_pos", "counter", "Accepted tokens per draft position.");
    while (query_next(q)) {
        char *label = xformat("position=\"%lld\",", (long long)query_int(q, 0));
        export_sample(to, e, "vllm:spec_decode_num_accepted_tokens_per_pos_total", label, query_real(q, 1));
        free(label);
    }
}

bool export_vllm_metrics(const struct exported *e, struct text *to, struct error *err)
{
    static const char *const counter[][2] = {
        { "vllm:spec_decode_num_drafts", "Number of spec decoding drafts." },
        { "vllm:spec_decode_num_draft_tokens", "Number of draft tokens." },
        { "vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens." },
    };
    if (e->run->baseline)
        return true;
    struct query *q = query_open(
        e->s, "SELECT coalesce(num_drafts, 0), coalesce(num_draft_tokens, 0), coalesce(num_accepted_tokens, 0)"
              " FROM vllm_metrics WHERE run = ?1");
    query_put_int(q, e->run->run);
    if (query_next(q))
        for (int i = 0; i < 3; i++) {
            char *total = xformat("%s_total", counter[i][0]);
            export_metric(to, counter[i][0], "counter", counter[i][1]);
            export_sample(to, e, total, "", query_real(q, i));
            free(total);
        }
    if (!query_close(q, err))
        return false;
    q = query_open(e->s, "SELECT position, num_accepted_tokens FROM vllm_positions WHERE run = ?1 ORDER BY position");
    query_put_int(q, e->run->run);
    put_positions(to, e, q);
    return query_close(q, err);
}
