#include "commands/reproduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "results/query.h"
#include "results/store.h"
#include "statistics/intervals.h"

// ---- the stored run

static const char run_sql[] =
    "SELECT experiment, cell, settings, file, folder, model_path, prompts_path, target_hash, config_hash, tokenizer_hash,"
    " drafter_hash, prompts, drafter, rule, sampling, file IS NULL OR folder IS NULL OR config_hash IS NULL,"
    " drafter_kind = 'none' FROM run WHERE id = ?";

bool stored_run_read(struct store *s, int64_t id, struct stored_run *to, struct error *err)
{
    char **const text[] = { &to->experiment,  &to->cell,           &to->settings,     &to->file,
                            &to->folder,      &to->model_path,     &to->prompts_path, &to->target_hash,
                            &to->config_hash, &to->tokenizer_hash, &to->drafter_hash, &to->prompts,
                            &to->drafter,     &to->rule,           &to->sampling };
    *to = (struct stored_run){ .id = id };
    struct query *q = query_open(s, run_sql);
    query_put_int(q, id);
    const bool found = query_next(q);
    for (size_t i = 0; found && i < sizeof(text) / sizeof(*text); i++)
        *text[i] = xstrdup(query_text(q, (int)i));
    const bool unknown = found && query_int(q, 15) != 0;
    to->none = found && query_int(q, 16) != 0;
    if (!query_close(q, err))
        return false;
    if (!found)
        return fail(err, "%s: there is no run %lld in it", store_path(s), (long long)id);
    if (unknown)
        return fail(err, "%s: run %lld: its file, folder or hashes are not stored", store_path(s), (long long)id);
    to->given = yaml_parse(to->file, strlen(to->file), "run.file", err);
    to->resolved = to->given != NULL ? yaml_parse(to->settings, strlen(to->settings), "run.settings", err) : NULL;
    return to->resolved != NULL;
}

void stored_run_free(struct stored_run *r)
{
    char *const text[] = { r->experiment,   r->cell,         r->settings,    r->file,        r->folder,
                           r->model_path,   r->prompts_path, r->target_hash, r->config_hash, r->tokenizer_hash,
                           r->drafter_hash, r->prompts,      r->drafter,     r->rule,        r->sampling };
    for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++)
        free(text[i]);
    settings_free(r->given);
    settings_free(r->resolved);
    *r = (struct stored_run){ 0 };
}

struct experiment *stored_run_experiment(struct stored_run *r, int limit, struct error *err)
{
    static const char *const keys[] = { "cells", "threads" };
    struct settings *file = settings_copy(r->given), *prompts = settings_get(file, "prompts");
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (settings_get(r->resolved, keys[i]) != NULL)
            settings_put(file, keys[i], settings_copy(settings_get(r->resolved, keys[i])));
    if (limit > 0 && prompts != NULL && prompts->kind == SETTINGS_MAP) {
        char *text = xformat("%d", limit);
        settings_put(prompts, "limit", settings_scalar(text));
        free(text);
    }
    return experiment_of(file, "run.file", r->folder, err);
}

// ---- what changed

static void put_change(struct text *to, const char *what, const char *path, const char *was, const char *is)
{
    if (strcmp(was, is) != 0)
        text_printf(to, "changed    %s%s%s%s: was %s, is %s\n", what, *path != '\0' ? " (" : "", path,
                    *path != '\0' ? ")" : "", *was != '\0' ? was : "none", *is != '\0' ? is : "none");
}

static void put_scalar(struct text *to, const struct settings *s)
{
    if (s == NULL)
        text_puts(to, "not there");
    else
        settings_write(s, to);
}

// Appends a line for every key whose value differs.
static void put_differences(struct text *to, const char *key, const struct settings *was, const struct settings *is)
{
    struct text a = { 0 }, b = { 0 };
    put_scalar(&a, was);
    put_scalar(&b, is);
    const bool maps = was != NULL && is != NULL && was->kind == SETTINGS_MAP && is->kind == SETTINGS_MAP;
    if (maps && strcmp(a.s, b.s) != 0) {
        for (int i = 0; i < was->n + is->n; i++) {
            const char *name = i < was->n ? was->key[i] : is->key[i - was->n];
            if (i >= was->n && settings_get(was, name) != NULL)
                continue;
            char *path = xformat("%s%s%s", key, *key != '\0' ? "." : "", name);
            put_differences(to, path, settings_get(was, name), settings_get(is, name));
            free(path);
        }
    } else if (strcmp(a.s, b.s) != 0)
        text_printf(to, "changed    settings, %s: was %s, is %s\n", key, a.s, b.s);
    free(a.s);
    free(b.s);
}

static void put_changes(const struct stored_run *r, const struct loaded_experiment *o, const struct identity *is,
                        struct text *to, struct error *err)
{
    struct settings *settings = yaml_parse(is->settings, strlen(is->settings), "settings", err);
    char *prompts = cell_prompts(o);
    put_change(to, "weights of the target", o->target.path, r->target_hash, is->target_hash);
    if (strcmp(r->target_hash, is->target_hash) == 0)
        put_change(to, "configuration of the target", o->target.path, r->config_hash, is->config_hash);
    put_change(to, "tokenizer of the target", o->target.path, r->tokenizer_hash, is->tokenizer_hash);
    put_change(to, "weights or configuration of the drafter", "", r->drafter_hash, is->drafter_hash);
    put_change(to, "prompts", o->e->prompts.path, r->prompts, prompts);
    put_differences(to, "", r->resolved, settings);
    if (to->n == 0)
        put_change(to, "the hash of the same settings and inputs, by this revision", "", r->cell, is->hash);
    settings_free(settings);
    free(prompts);
}

bool stored_run_changes(const struct stored_run *r, const struct experiment *e, struct text *changes, struct error *err)
{
    struct loaded_experiment loaded;
    struct group g;
    if (!loaded_experiment_open(&loaded, e, TARGET_ROWS, err))
        return false;
    const bool ok = group_open(&g, 0, &loaded, err);
    for (int i = 0; ok && i < g.n; i++) {
        const struct cell_runner *c = &g.cell_runner[i];
        if (c->none == r->none && strcmp(c->identity.hash, r->cell) != 0)
            put_changes(r, &loaded, &c->identity, changes, err);
    }
    if (ok)
        group_close(&g);
    loaded_experiment_close(&loaded);
    return ok;
}

// ---- comparison

enum { SUMS = 4 }; // of a prompt: tokens and time of the run, and of none in the same pairs

struct prompt_sums {
    int64_t prompt;
    double of[SUMS];
};

struct speeds {
    size_t n;
    struct prompt_sums *prompt; // (n) ascending
};

// Of the run's sequences, or of those that are paired with none.
static bool read_speeds(struct store *s, int64_t run, bool none, struct speeds *to, struct error *err)
{
    struct query *q = query_open(
        s,
        none
            ? "SELECT prompt, sum(new_tokens), sum(decode_ns), 1, 1 FROM sequence WHERE run = ?1 GROUP BY prompt ORDER BY prompt"
            : "SELECT prompt, new_tokens, decode_ns, none_new_tokens, none_decode_ns FROM speed_by_prompt"
              " WHERE run = ?1 ORDER BY prompt");
    *to = (struct speeds){ 0 };
    query_put_int(q, run);
    while (query_next(q)) {
        to->prompt = xrealloc(to->prompt, (to->n + 1) * sizeof(*to->prompt));
        struct prompt_sums *p = &to->prompt[to->n++];
        p->prompt = query_int(q, 0);
        for (int i = 0; i < SUMS; i++)
            p->of[i] = query_real(q, 1 + i);
    }
    return query_close(q, err);
}

// Drops the prompts that `other` lacks.
static void keep_common(struct speeds *s, const struct speeds *other)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < s->n; i++) {
        while (k < other->n && other->prompt[k].prompt < s->prompt[i].prompt)
            k++;
        if (k < other->n && other->prompt[k].prompt == s->prompt[i].prompt)
            s->prompt[n++] = s->prompt[i];
    }
    s->n = n;
}

// (a's sum i / a's sum i + 1) / (b's sum k / b's sum k + 1) over prompts; both have the same ones.
static struct interval ratio_over_prompts(const struct speeds *a, int i, const struct speeds *b, int k)
{
    double *sum[SUMS];
    for (int v = 0; v < SUMS; v++)
        sum[v] = xmalloc((a->n + 1) * sizeof(double));
    for (size_t p = 0; p < a->n; p++) {
        sum[0][p] = a->prompt[p].of[i];
        sum[1][p] = a->prompt[p].of[i + 1];
        sum[2][p] = b->prompt[p].of[k];
        sum[3][p] = b->prompt[p].of[k + 1];
    }
    const struct interval r = interval_of(STATISTIC_RATIO_OF_RATIOS, sum[0], sum[1], sum[2], sum[3], a->n);
    for (int v = 0; v < SUMS; v++)
        free(sum[v]);
    return r;
}

static double tokens_per_s(const struct speeds *s)
{
    double tokens = 0, ns = 0;
    for (size_t p = 0; p < s->n; p++) {
        tokens += s->prompt[p].of[0];
        ns += s->prompt[p].of[1];
    }
    return ns > 0 ? tokens * 1e9 / ns : NAN;
}

static void put_interval(struct text *to, struct interval i)
{
    text_printf(to, "%.3f", i.value);
    if (!isnan(i.low))
        text_printf(to, " [%.3f, %.3f]", i.low, i.high);
}

static bool compare_speeds(const struct stored_run *r, struct store *then, struct store *now, int64_t id,
                           struct text *report, bool *same, struct error *err)
{
    struct speeds was = { 0 }, is = { 0 };
    const bool ok = read_speeds(then, r->id, r->none, &was, err) && read_speeds(now, id, r->none, &is, err);
    if (ok) {
        keep_common(&was, &is);
        keep_common(&is, &was);
        const struct interval a = ratio_over_prompts(&was, 0, &was, 2), b = ratio_over_prompts(&is, 0, &is, 2),
                              speed = ratio_over_prompts(&is, 0, &was, 0);
        const bool known = !isnan(a.low), inside = known && b.value >= a.low && b.value <= a.high;
        if (!r->none && was.n > 0) {
            text_printf(report, "speedup    on %zu prompts: was ", was.n);
            put_interval(report, a);
            text_puts(report, ", is ");
            put_interval(report, b);
            text_puts(report, known ? inside ? ": inside\n" : ": outside\n" : "; one prompt has no interval\n");
        }
        if (was.n > 0) {
            text_printf(report, "tokens/s   was %.1f, is %.1f: ratio ", tokens_per_s(&was), tokens_per_s(&is));
            put_interval(report, speed);
            text_puts(report, "\n");
        }
        *same = *same && (r->none || !known || inside);
    }
    free(was.prompt);
    free(is.prompt);
    return ok;
}

// ---- texts

// The number of tokens that two lists "[1,2,3]" begin with alike.
static int common_tokens(const char *a, const char *b)
{
    int n = 0;
    for (; *a == *b && *a != '\0'; a++, b++)
        n += *a == ',';
    return n;
}

// The first of several texts of one turn, as JSON; NULL: there is none. The caller frees it.
static char *stored_tokens(struct store *s, int64_t run, int64_t prompt, int64_t turn, int64_t repeat,
                           struct error *err)
{
    struct query *q =
        query_again(s, "SELECT tokens FROM sequence WHERE run = ? AND prompt = ? AND turn = ? AND repeat = ?"
                       " ORDER BY pair LIMIT 1");
    query_put_int(q, run);
    query_put_int(q, prompt);
    query_put_int(q, turn);
    query_put_int(q, repeat);
    char *tokens = query_next(q) ? xstrdup(query_text(q, 0)) : NULL;
    if (query_close(q, err))
        return tokens;
    free(tokens);
    return NULL;
}

static bool compare_texts(const struct stored_run *r, struct store *then, struct store *now, int64_t id,
                          struct text *report, bool *same, struct error *err)
{
    int64_t texts = 0, equal = 0;
    char *first = NULL;
    struct error failure = { "" };
    struct query *q = query_open(now, "SELECT prompt, turn, repeat, prompt_id, tokens FROM sequence WHERE run = ?"
                                      " ORDER BY prompt, repeat, turn, pair");
    query_put_int(q, id);
    while (query_next(q) && failure.text[0] == '\0') {
        char *was = stored_tokens(then, r->id, query_int(q, 0), query_int(q, 1), query_int(q, 2), &failure);
        const bool is_equal = was != NULL && strcmp(was, query_text(q, 4)) == 0;
        texts += was != NULL;
        equal += is_equal;
        if (was != NULL && !is_equal && first == NULL)
            first = xformat("; first difference: prompt %s, turn %lld, token %d", query_text(q, 3),
                            (long long)query_int(q, 1), common_tokens(was, query_text(q, 4)));
        free(was);
    }
    bool ok = query_close(q, err);
    if (ok && failure.text[0] != '\0') {
        *err = failure;
        ok = false;
    }
    if (ok && texts == 0)
        ok = fail(err, "%s: run %lld has no text of these prompts", store_path(then), (long long)r->id);
    text_printf(report, "texts      %lld of %lld are equal%s\n", (long long)equal, (long long)texts,
                first != NULL ? first : "");
    *same = *same && equal == texts;
    free(first);
    return ok;
}

// ---- where both were decoded

struct place { // the last row of table environment
    char *text[3];
    double probe[3];
};

static bool read_place(struct store *s, int64_t run, struct place *to, struct error *err)
{
    struct query *q = query_open(s, "SELECT revision, processor, arithmetic, read_bytes_per_s / 1e9, round_trip_ns, mhz"
                                    " FROM environment WHERE run = ? ORDER BY id DESC LIMIT 1");
    *to = (struct place){ 0 };
    query_put_int(q, run);
    const bool found = query_next(q);
    for (int i = 0; i < 3; i++) {
        to->text[i] = xstrdup(found ? query_text(q, i) : "");
        to->probe[i] = found ? query_real(q, 3 + i) : NAN;
    }
    return query_close(q, err);
}

static bool compare_places(const struct stored_run *r, struct store *then, struct store *now, int64_t id,
                           struct text *report, struct error *err)
{
    static const char *const name[] = { "revision", "processor", "arithmetic" }, *const probe[] = { "GB/s read",
                                                                                                    "ns round trip",
                                                                                                    "MHz" };
    struct place was = { 0 }, is = { 0 };
    const bool ok = read_place(then, r->id, &was, err) && read_place(now, id, &is, err);
    for (int i = 0; ok && i < 3; i++)
        if (strcmp(was.text[i], is.text[i]) != 0)
            text_printf(report, "%-10s was %s, is %s\n", name[i], was.text[i], is.text[i]);
    int n = 0;
    for (int i = 0; ok && i < 3; i++)
        if (!isnan(was.probe[i]) && !isnan(is.probe[i]))
            text_printf(report, "%s%s was %.*f, is %.*f", n++ == 0 ? "machine    " : "; ", probe[i], i == 0,
                        was.probe[i], i == 0, is.probe[i]);
    if (n > 0)
        text_puts(report, "\n");
    for (int i = 0; i < 3; i++) {
        free(was.text[i]);
        free(is.text[i]);
    }
    return ok;
}

bool stored_run_compare(const struct stored_run *r, struct store *then, struct store *now, struct text *report,
                        bool *same, struct error *err)
{
    struct query *q = query_open(now, "SELECT id FROM run WHERE experiment = ? AND cell = ?");
    query_put_text(q, r->experiment);
    query_put_text(q, r->cell);
    const int64_t id = query_next(q) ? query_int(q, 0) : 0;
    *same = true;
    return query_close(q, err) && compare_places(r, then, now, id, report, err) &&
           compare_texts(r, then, now, id, report, same, err) && compare_speeds(r, then, now, id, report, same, err);
}
