// read_sglang.c - lines of SGLang's bench_serving (sglang/benchmark/serving.py). accept_length is of the server since it started, not of the run.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

static bool is_line(const struct json *o)
{
    return json_get(o, "output_throughput") != NULL && json_get(o, "accept_length") != NULL;
}

static char *prompts_of(const struct json *o, int64_t requests, int64_t tokens)
{
    char *name = field_text(o, "dataset_name");
    const struct json *rate = json_get(o, "request_rate"); // null: infinite
    char *limit = json_is_number(rate) ? xformat(", %g requests/s", json_number(rate))
                  : json_is_text(rate) ? xformat(", %s", json_text(rate))
                                       : xstrdup("");
    char *all = name == NULL || requests == 0 || tokens == 0 ? NULL
                                                             : xformat("%s, %lld requests, %lld prompt tokens%s", name,
                                                                       (long long)requests, (long long)tokens, limit);
    free(limit);
    free(name);
    return all;
}

static bool read_lines(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    for (int i = 0; i < from->n; i++) {
        const struct json *o = from->object[i], *server = json_get(o, "server_info");
        const bool ours = json_is_object(json_get(o, "speclab"));
        struct compared *row =
            compared_add(to, from->path, from->line[i], ours ? "speclab, SGLang's form" : "sglang bench_serving");
        int64_t tokens;
        if (!field_needed(from, i, o, "output_throughput", &row->tokens_per_s, err) ||
            !field_number(from, i, o, "accept_length", &row->length, err) ||
            !field_number(from, i, o, "mean_ttft_ms", &row->ttft_ms, err) ||
            !field_number(from, i, o, "mean_tpot_ms", &row->tpot_ms, err) ||
            !field_number(from, i, o, "mean_e2e_latency_ms", &row->latency_ms, err) ||
            !field_count(from, i, o, "completed", &row->requests, err) ||
            !field_count(from, i, o, "total_input_tokens", &tokens, err) ||
            !field_count(from, i, o, "max_concurrency", &row->batch, err))
            return false;
        row->speed_is = "output tokens / duration of the benchmark";
        row->length_is = isnan(row->length) ? NULL : "tokens / steps";
        row->model = field_text(server, "model_path");
        row->method = field_text(o, "tag");
        if (row->method == NULL)
            row->method = field_text(server, "speculative_algorithm");
        row->baseline = isnan(row->length);
        row->prompts = prompts_of(o, row->requests, tokens);
        row->prompts_counted = true;
        field_facts(o, row);
    }
    return true;
}

const struct compared_form sglang_form = { "SGLang's bench_serving", is_line, read_lines };
