// read_llama.c - results of llama.cpp: llama-bench (tools/llama-bench/README.md; -o json, jsonl, csv), and responses of llama-server, whose
// `timings` (tools/server/server-common.cpp) say how many draft tokens were accepted. llama-bench measures passes without sampling, and drafts nothing.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

// ---- llama-bench

static bool is_bench(const struct json *o)
{
    return json_get(o, "build_commit") != NULL && json_get(o, "avg_ts") != NULL;
}

static bool is_setting(const char *key)
{
    static const char *const others[] = { "build_",  "cpu_info",  "gpu_info", "model_",  "n_prompt", "n_gen",
                                          "n_depth", "test_time", "avg_",     "stddev_", "samples_" };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strncmp(key, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

static bool varies(const struct compared_objects *from, const char *key)
{
    char *first = json_write(json_get(from->object[0], key));
    bool other = false;
    for (int i = 1; i < from->n && !other; i++) {
        const struct json *value = json_get(from->object[i], key);
        char *text = value != NULL ? json_write(value) : xstrdup("");
        other = strcmp(first, text) != 0;
        free(text);
    }
    free(first);
    return other;
}

// "tg128 @ d512", as llama-bench's own table names it, and the settings that are not the same in the whole file.
static bool test_of(const struct compared_objects *from, int i, struct compared *row, struct error *err)
{
    double prompt, generated, depth;
    const struct json *o = from->object[i];
    if (!field_needed(from, i, o, "n_prompt", &prompt, err) || !field_needed(from, i, o, "n_gen", &generated, err) ||
        !field_number(from, i, o, "n_depth", &depth, err))
        return false;
    struct text name = { 0 };
    text_puts(&name, "");
    if (prompt > 0)
        text_printf(&name, "pp%.0f", prompt);
    if (generated > 0)
        text_printf(&name, "%stg%.0f", prompt > 0 ? "+" : "", generated);
    if (depth > 0)
        text_printf(&name, " @ d%.0f", depth);
    row->prompts = xstrdup(name.s);
    row->speed_is = generated == 0 ? "prompt tokens / time of passes"
                    : prompt == 0  ? "generated tokens / time of passes, sampling excluded"
                                   : "prompt and generated tokens / time of passes";
    for (void *at = json_first(from->object[0]); at != NULL; at = json_next(from->object[0], at))
        if (is_setting(json_key(at)) && json_get(o, json_key(at)) != NULL && varies(from, json_key(at))) {
            char *value = json_write(json_get(o, json_key(at)));
            text_printf(&name, ", %s=%s", json_key(at), value);
            free(value);
        }
    row->method = name.s;
    return true;
}

static char *machine_of(const struct json *o)
{
    char *cpu = field_text(o, "cpu_info"), *gpu = field_text(o, "gpu_info"), *backend = field_text(o, "backends");
    const struct json *threads = json_get(o, "n_threads");
    char *all = cpu == NULL
                    ? NULL
                    : xformat("%s%s%s, %s, %.0f threads", cpu, gpu != NULL ? ", " : "", gpu != NULL ? gpu : "",
                              backend != NULL ? backend : "?", json_is_number(threads) ? json_number(threads) : 0.0);
    free(cpu);
    free(gpu);
    free(backend);
    return all;
}

static bool read_bench(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    for (int i = 0; i < from->n; i++) {
        const struct json *o = from->object[i];
        struct compared *row = compared_add(to, from->path, from->line[i], "llama-bench");
        if (!field_needed(from, i, o, "avg_ts", &row->tokens_per_s, err) || !test_of(from, i, row, err))
            return false;
        char *path = field_text(o, "model_filename");
        row->model = path != NULL && strrchr(path, '/') != NULL ? xstrdup(strrchr(path, '/') + 1)
                     : path != NULL                             ? xstrdup(path)
                                                                : NULL;
        free(path);
        row->machine = machine_of(o);
        row->sampling = xstrdup("none: random tokens");
        row->prompts_in_row = row->baseline = true;
        row->batch = 1;
    }
    return true;
}

const struct compared_form llama_bench_form = { "llama-bench", is_bench, read_bench };

// ---- llama-server

static bool is_response(const struct json *o)
{
    return json_is_object(json_get(o, "timings"));
}

struct timing_sums {
    double prompt, tokens, ms, drafted, accepted, after_first;
    bool drafts;
};

static bool add_response(const struct compared_objects *from, int i, struct timing_sums *to, struct error *err)
{
    const struct json *t = json_get(from->object[i], "timings");
    double prompt, n, ms, drafted, accepted;
    if (!field_needed(from, i, t, "predicted_n", &n, err) || !field_needed(from, i, t, "predicted_ms", &ms, err) ||
        !field_needed(from, i, t, "prompt_n", &prompt, err) || !field_number(from, i, t, "draft_n", &drafted, err) ||
        !field_number(from, i, t, "draft_n_accepted", &accepted, err))
        return false;
    to->prompt += prompt;
    to->tokens += n;
    to->ms += ms;
    if (isnan(drafted) || isnan(accepted))
        return true;
    to->drafts = true;
    to->drafted += drafted;
    to->accepted += accepted;
    to->after_first += fmax(n - 1, 0);
    return true;
}

static bool read_responses(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    struct timing_sums sum = { 0 };
    struct compared *row = compared_add(to, from->path, 0, "llama-server");
    for (int i = 0; i < from->n; i++)
        if (!add_response(from, i, &sum, err))
            return false;
    if (!(sum.ms > 0))
        return field_fail(from, 0, err, "predicted_ms: expected a time above 0 in some response");
    row->model = field_text(from->object[0], "model");
    row->requests = from->n;
    row->prompts = xformat("%d requests, %.0f prompt tokens", from->n, sum.prompt);
    row->prompts_counted = true;
    row->tokens_per_s = 1e3 * sum.tokens / sum.ms;
    row->speed_is = "generated tokens / time of generation";
    row->baseline = !sum.drafts;
    row->method = xstrdup(sum.drafts ? "drafted" : "none");
    if (sum.drafted > 0)
        row->rate = sum.accepted / sum.drafted;
    if (sum.drafts &&
        sum.after_first > sum.accepted) { // each other token is of a step of its own; the first is the prompt's
        row->length = sum.after_first / (sum.after_first - sum.accepted);
        row->length_is = "tokens / steps, steps = tokens - accepted";
    }
    return true;
}

const struct compared_form llama_server_form = { "llama-server", is_response, read_responses };
