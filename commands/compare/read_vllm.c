// read_vllm.c - results of `vllm bench serve --save-result` (also --append-result: an object a line), `latency` and `throughput --output-json`:
// vllm/benchmarks/serve.py, latency.py, throughput.py. They do not state the machine, nor which prompts, unless --metadata machine=.. does.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

static bool is_serve(const struct json *o)
{
    return json_get(o, "output_throughput") != NULL && json_get(o, "total_token_throughput") != NULL;
}

// With a rate of requests below infinity the traffic is part of what was asked.
static char *counted(const struct json *o, int64_t requests, int64_t tokens)
{
    const struct json *rate = json_get(o, "request_rate");
    if (requests != 0 && tokens != 0 && json_is_number(rate))
        return xformat("%lld requests, %lld prompt tokens, %g requests/s", (long long)requests, (long long)tokens,
                       json_number(rate));
    return requests == 0 || tokens == 0
               ? NULL
               : xformat("%lld requests, %lld prompt tokens", (long long)requests, (long long)tokens);
}

static bool read_acceptance(const struct compared_objects *from, int i, struct compared *row, struct error *err)
{
    static const char positions[] = "spec_decode_per_position_acceptance_rates";
    const struct json *o = from->object[i];
    double percent;
    if (!field_number(from, i, o, "spec_decode_acceptance_rate", &percent, err) ||
        !field_number(from, i, o, "spec_decode_acceptance_length", &row->length, err) ||
        !field_positions(from, i, json_get(o, positions), positions, row, err))
        return false;
    row->rate = percent / 100;
    row->length_is = isnan(row->length) ? NULL : "1 + accepted / drafts";
    row->position_is = "of drafts";
    return true;
}

// --label, which is the backend's name unless given.
static char *label_of(const struct json *o)
{
    char *label = field_text(o, "label");
    if (label == NULL || strcmp(label, json_text(json_get(o, "backend"))) != 0)
        return label;
    free(label);
    return NULL;
}

static bool read_serve(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    for (int i = 0; i < from->n; i++) {
        const struct json *o = from->object[i];
        const bool ours = json_is_object(json_get(o, "speclab"));
        struct compared *row =
            compared_add(to, from->path, from->line[i], ours ? "speclab, vLLM's form" : "vllm bench serve");
        int64_t tokens;
        if (!field_needed(from, i, o, "output_throughput", &row->tokens_per_s, err) ||
            !field_number(from, i, o, "mean_ttft_ms", &row->ttft_ms, err) ||
            !field_number(from, i, o, "mean_tpot_ms", &row->tpot_ms, err) ||
            !field_number(from, i, o, "mean_e2el_ms", &row->latency_ms, err) ||
            !field_count(from, i, o, "completed", &row->requests, err) ||
            !field_count(from, i, o, "total_input_tokens", &tokens, err) ||
            !field_count(from, i, o, "max_concurrency", &row->batch, err) || !read_acceptance(from, i, row, err))
            return false;
        row->speed_is = "output tokens / duration of the benchmark";
        row->model = field_text(o, "model_id");
        row->method = label_of(o);
        row->machine = field_text(o, "machine");
        row->prompts = counted(o, row->requests, tokens);
        row->prompts_counted = true;
        field_facts(o, row);
    }
    return true;
}

const struct compared_form vllm_serve_form = { "vllm bench serve", is_serve, read_serve };

static bool is_latency(const struct json *o)
{
    return json_get(o, "avg_latency") != NULL && json_get(o, "latencies") != NULL;
}

static bool read_latency(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    for (int i = 0; i < from->n; i++) {
        struct compared *row = compared_add(to, from->path, from->line[i], "vllm bench latency");
        if (!field_needed(from, i, from->object[i], "avg_latency", &row->latency_ms, err))
            return false;
        row->latency_ms *= 1e3;
    }
    return true;
}

const struct compared_form vllm_latency_form = { "vllm bench latency", is_latency, read_latency };

static bool is_throughput(const struct json *o)
{
    return json_get(o, "elapsed_time") != NULL && json_get(o, "tokens_per_second") != NULL;
}

static bool read_throughput(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    for (int i = 0; i < from->n; i++) {
        const struct json *o = from->object[i];
        struct compared *row = compared_add(to, from->path, from->line[i], "vllm bench throughput");
        if (!field_needed(from, i, o, "tokens_per_second", &row->tokens_per_s, err) ||
            !field_count(from, i, o, "num_requests", &row->requests, err))
            return false;
        row->speed_is = "prompt and output tokens / time";
    }
    return true;
}

const struct compared_form vllm_throughput_form = { "vllm bench throughput", is_throughput, read_throughput };
