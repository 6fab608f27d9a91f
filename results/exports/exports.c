// exports.c - `report --export`: files of the runs in the forms of other projects, one or two per run.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "results/exports/export_parts.h"
#include "results/kept_views.h"
#include "results/output_files.h"
#include "results/query.h"
#include "results/report.h"
#include "results/report_parts.h"
#include "results/tally.h"

// ---- shared by the forms

void export_line(struct text *to, struct json *line)
{
    char *s = json_write(line);
    text_printf(to, "%s\n", s);
    free(s);
    json_free(line);
}

static struct json *value_of(const struct query *q, int at)
{
    if (query_is_null(q, at))
        return json_new_null();
    if (query_is_text(q, at))
        return json_new_text(query_text(q, at));
    return query_is_int(q, at) ? json_new_int(query_int(q, at)) : json_new_number(query_real(q, at));
}

bool export_row(const struct exported *e, const char *sql, struct json *o, struct error *err)
{
    struct query *q = query_open(e->s, sql);
    query_put_int(q, e->run->run);
    if (query_next(q))
        for (int i = 0; i < query_columns(q); i++)
            json_set(o, query_column(q, i), value_of(q, i));
    return query_close(q, err);
}

struct json *export_list(const struct exported *e, const char *sql, struct error *err)
{
    struct json *list = json_new_array();
    struct query *q = query_open(e->s, sql);
    query_put_int(q, e->run->run);
    while (query_next(q))
        json_push(list, value_of(q, 0));
    if (query_close(q, err))
        return list;
    json_free(list);
    return NULL;
}

struct json *export_facts(const struct exported *e)
{
    struct json *o = json_new_object();
    json_set(o, "experiment", json_new_text(e->of->experiment));
    json_set(o, "run", json_new_int(e->run->run));
    json_set(o, "drafter", json_new_text(e->run->drafter));
    json_set(o, "rule", json_new_text(e->run->rule));
    json_set(o, "lossless", json_new_bool(e->run->lossless));
    json_set(o, "marked_inflated", json_new_bool(e->run->inflated));
    json_set(o, "finished", json_new_bool(e->run->finished));
    json_set(o, "sampling", json_new_text(e->of->sampling));
    json_set(o, "prompts", json_new_text(e->of->prompts));
    json_set(o, "device", json_new_text(e->run->device));
    json_set(o, "machine", json_new_text(e->run->machine));
    json_set(o, "revision", json_new_text(e->run->revision));
    return o;
}

void export_metric(struct text *to, const char *name, const char *type, const char *about)
{
    text_printf(to, "# HELP %s %s\n# TYPE %s %s\n", name, about, name, type);
}

void export_sample(struct text *to, const struct exported *e, const char *name, const char *labels, double value)
{
    text_printf(to, "%s{%smodel_name=\"%s\"} %.17g\n", name, labels, e->name, value);
}

// ---- views, once

// The views that the forms read. One is computed over all runs, whichever is asked for.
static const struct {
    enum report_format format;
    struct kept_view view[5];
} views[] = {
    { REPORT_VLLM, { { "vllm_bench", NULL }, { "vllm_metrics", NULL }, { "vllm_positions", NULL } } },
    { REPORT_SGLANG, { { "vllm_bench", NULL }, { "sglang_metrics", NULL } } },
    { REPORT_NVIDIA,
      { { "nvidia_profile", NULL },
        { "nvidia_positions", NULL },
        { "nvidia_lengths", NULL },
        { "nvidia_categories", NULL } } },
    { REPORT_GOLDEN, { { "vllm_metrics", NULL }, { "vllm_positions", NULL } } },
};

const struct kept_view *exports_views(enum report_format format, int *n)
{
    *n = 0;
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (views[i].format == format) {
            while (views[i].view[*n].name != NULL)
                ++*n;
            return views[i].view;
        }
    return NULL;
}

// ---- files

static const struct {
    enum report_format format;
    const char *ending;
    bool (*put)(const struct exported *e, struct text *to, struct error *err);
} forms[] = {
    { REPORT_SPEC_BENCH, ".jsonl", export_spec_bench },
    { REPORT_VLLM, ".json", export_vllm_bench },
    { REPORT_VLLM, ".prom", export_vllm_metrics },
    { REPORT_SGLANG, ".jsonl", export_sglang_bench },
    { REPORT_SGLANG, ".prom", export_sglang_metrics },
    { REPORT_NVIDIA, ".speculation_profile.json", export_nvidia_profile },
};
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

// At most 120 characters, with the number of the run in it, whatever the names are; no hidden file.
static char *name_of(const struct comparison *c, const struct tally *t)
{
    char *s = xformat("%.60s-run%lld-%s-%s", c->experiment, (long long)t->run, t->drafter, t->rule);
    size_t n = 0;
    for (const char *at = s; *at != '\0' && n < 120; at++) {
        const bool plain = isalnum((unsigned char)*at) || (strchr("._-", *at) != NULL && (n > 0 || *at != '.'));
        if ((plain && *at != '-') || (n > 0 && s[n - 1] != '-'))
            s[n++] = plain ? *at : '-';
    }
    while (n > 0 && s[n - 1] == '-')
        n--;
    s[n] = '\0';
    return s;
}

static bool put_file(const char *directory, const char *name, const char *ending, const struct text *content,
                     struct text *out, struct error *err)
{
    char *path = xformat("%s/%s%s", directory, name, ending);
    const bool ok = output_file(path, content, out, err);
    free(path);
    return ok;
}

static bool put_run(const struct exported *e, const struct report_options *o, struct text *out, struct error *err)
{
    bool ok = true;
    for (int i = 0; ok && i < FORMS; i++) {
        struct text content = { 0 };
        if (forms[i].format != o->format)
            continue;
        text_puts(&content, "");
        ok = forms[i].put(e, &content, err);
        if (ok && content.n > 0)
            ok = put_file(o->directory, e->name, forms[i].ending, &content, out, err);
        free(content.s);
    }
    return ok;
}

// One file for all runs.
static bool put_golden(const struct report_options *o, const struct text *entries, struct text *out, struct error *err)
{
    struct text content = { 0 };
    if (entries->n == 0)
        return fail(err, "no run has drafts, so nothing is expected of any");
    text_printf(&content, "{\"acceptance_lengths\": [\n%s\n]}\n", entries->s);
    const bool ok = put_file(o->directory, "golden", ".json", &content, out, err);
    free(content.s);
    return ok;
}

bool report_files(struct store *s, const struct comparisons *c, const struct report_options *o, struct text *out,
                  struct error *err)
{
    if (o->directory == NULL)
        return fail(err, "exports need a folder");
    if (!output_folder(o->directory, err))
        return false;
    struct text golden = { 0 };
    const size_t before = out->n;
    int n;
    const struct kept_view *views_of_form = exports_views(o->format, &n);
    bool ok = views_keep(s, views_of_form, n, err);
    text_puts(&golden, "");
    for (int i = 0; ok && i < c->n; i++)
        for (int k = 0; ok && k < c->comparison[i].n; k++) {
            const struct tally *run = &c->comparison[i].run[k];
            char *name = name_of(&c->comparison[i], run);
            const struct exported e = { s, &c->comparison[i], run, name };
            ok = o->format == REPORT_GOLDEN ? export_golden(&e, &golden, err) : put_run(&e, o, out, err);
            free(name);
        }
    ok = ok && (o->format != REPORT_GOLDEN || put_golden(o, &golden, out, err));
    if (ok && out->n == before)
        ok = fail(err, "%s: nothing to write: no run has the drafts or texts that this form is made of", o->directory);
    free(golden.s);
    views_forget(s, views_of_form, n);
    return ok;
}
