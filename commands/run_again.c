// run_again.c - runs a stored run again and compares the results.
//
// The stored run becomes an experiment: its file, with the cell and the threads that it had. Changes of its inputs are
// found before anything is decoded. run_compare.c compares what is stored of both runs.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/run_again.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "results/query.h"
#include "results/store.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

enum { STORED_TEXTS = 15 }; // columns of run_sql

struct again_run {
    const struct again *o;
    struct store *then;
    struct stored_run run;
    union {
        struct { // "": none
            char *experiment, *cell, *settings, *file, *folder, *model_path, *prompts_path, *target_hash, *config_hash,
                *tokenizer_hash, *drafter_hash, *prompts, *drafter, *rule, *sampling;
        };
        char *text[STORED_TEXTS];
    };
    struct settings *given, *resolved; // file and settings, parsed
    struct text changes;               // a line for everything that differs from what the run had
};

// ---- the stored run

static const char run_sql[] =
    "SELECT experiment, cell, settings, file, folder, model_path, prompts_path, target_hash, config_hash, tokenizer_hash,"
    " drafter_hash, prompts, drafter, rule, sampling, file IS NULL OR folder IS NULL OR config_hash IS NULL,"
    " drafter_kind = 'none' FROM run WHERE id = ?";

static bool read_run(struct again_run *r, int64_t id, struct error *err)
{
    struct query *q = query_open(r->then, run_sql);
    query_put(q, SQL(id));
    const bool found = query_next(q), unknown = found && query_int(q, STORED_TEXTS) != 0;
    for (int i = 0; found && i < STORED_TEXTS; i++)
        r->text[i] = xstrdup(query_text(q, i));
    r->run = (struct stored_run){ id, r->experiment, r->cell, .none = found && query_int(q, STORED_TEXTS + 1) != 0 };
    if (!query_close(q, err))
        return false;
    if (!found)
        return fail_usage(err, "%s: there is no run %lld in it", r->o->db, (long long)id);
    if (unknown)
        return fail(err, "%s: run %lld: its file, folder or hashes are not stored", r->o->db, (long long)id);
    r->given = yaml_parse(r->file, strlen(r->file), "run.file", err);
    r->resolved = r->given != NULL ? yaml_parse(r->settings, strlen(r->settings), "run.settings", err) : NULL;
    return r->resolved != NULL;
}

// ---- what changed

static void put_change(struct text *to, const char *what, const char *path, const char *was, const char *is)
{
    if (strcmp(was, is) != 0)
        text_printf(to, "changed    %s%s%s%s: was %s, is %s\n", what, *path != '\0' ? " (" : "", path,
                    *path != '\0' ? ")" : "", *was != '\0' ? was : "none", *is != '\0' ? is : "none");
}

// Appends a line for every key whose value differs.
static void put_differences(struct text *to, const char *key, const struct settings *was, const struct settings *is)
{
    char *a = was != NULL ? settings_line(was) : xstrdup("not there"),
         *b = is != NULL ? settings_line(is) : xstrdup("not there");
    const bool maps = was != NULL && is != NULL && was->kind == SETTINGS_MAP && is->kind == SETTINGS_MAP;
    if (maps && strcmp(a, b) != 0) {
        for (int i = 0; i < was->n + is->n; i++) {
            const char *name = i < was->n ? was->key[i] : is->key[i - was->n];
            if (i >= was->n && settings_get(was, name) != NULL)
                continue;
            char *path = xformat("%s%s%s", key, *key != '\0' ? "." : "", name);
            put_differences(to, path, settings_get(was, name), settings_get(is, name));
            free(path);
        }
    } else if (strcmp(a, b) != 0)
        text_printf(to, "changed    settings, %s: was %s, is %s\n", key, a, b);
    free(a);
    free(b);
}

static bool put_changes(struct again_run *r, const struct loaded_experiment *o, const struct identity *is,
                        struct error *err)
{
    struct text *to = &r->changes;
    struct settings *settings = yaml_parse(is->settings, strlen(is->settings), "settings", err);
    char *prompts = cell_prompts(o);
    put_change(to, "weights of the target", o->target->path, r->target_hash, is->target_hash);
    if (strcmp(r->target_hash, is->target_hash) == 0)
        put_change(to, "configuration of the target", o->target->path, r->config_hash, is->config_hash);
    put_change(to, "tokenizer of the target", o->target->path, r->tokenizer_hash, is->tokenizer_hash);
    put_change(to, "weights or configuration of the drafter", "", r->drafter_hash, is->drafter_hash);
    put_change(to, "prompts", o->e->prompts.path, r->prompts, prompts);
    put_differences(to, "", r->resolved, settings);
    if (to->n == 0)
        put_change(to, "the hash of the same settings and inputs, by this revision", "", r->cell, is->hash);
    settings_free(settings);
    free(prompts);
    return settings != NULL;
}

// Compares the cell with the stored one, and finds out what of it may vary.
static bool find_changes(struct again_run *r, struct loaded_experiment *o, struct error *err)
{
    struct group g;
    bool ok = true;
    if (!group_open(&g, 0, o, err) || !group_is_whole(&g, err)) {
        if (*r->drafter_hash == '\0')
            return false;
        text_printf(&r->changes, "changed    weights or configuration of the drafter: was %s, cannot be opened: %s\n",
                    r->drafter_hash, err->text);
        return true;
    }
    for (int i = 0; ok && i < g.n; i++) {
        const struct cell_runner *c = &g.cell_runner[i];
        const struct speclab_decoder *p = c->decoder;
        if (c->none != r->run.none)
            continue;
        r->run.drafts_vary = drafter_remembers(p->type, p->drafter_options) == DRAFTS_OF_OTHERS;
        r->run.texts_vary =
            r->run.drafts_vary && !p->rule->drafter_invariant && !(p->rule->exact && sampling_is_greedy(&p->sampling));
        ok = strcmp(c->identity.hash, r->cell) == 0 || put_changes(r, o, &c->identity, err);
    }
    group_close(&g);
    return ok;
}

// A line for each file of the run that is gone, and one that says why if a command had made it for its own time.
static void put_missing(struct again_run *r)
{
    const char *const what[] = { "weights of the target", "prompts" },
                      *const path[] = { r->model_path, r->prompts_path }, *const was[] = { r->target_hash, r->prompts };
    char *folder = NULL; // folder of the command
    for (int i = 0; i < 2; i++) {
        const char *made = strstr(path[i], "/speclab-tune-");
        if (*path[i] == '\0' || access(path[i], F_OK) == 0)
            continue;
        put_change(&r->changes, what[i], path[i], was[i], "not there");
        if (made != NULL && folder == NULL)
            folder = xstrndup(path[i], (size_t)(made + 1 + strcspn(made + 1, "/") - path[i]));
    }
    if (folder != NULL && access(folder, F_OK) != 0)
        text_printf(
            &r->changes,
            "           %s was the folder of a command (tune) for the time that it ran: no such run can be repeated\n",
            folder);
    free(folder);
}

// ---- the run again

// The experiment of this cell alone, with the prompts and repeats of its file. NULL: it failed, or a file that it needs
// is not where the run had it.
static struct experiment *experiment_again(struct again_run *r, struct error *err)
{
    static const char *const keys[] = { "cells", "threads" };
    struct settings *file = settings_copy(r->given), *prompts = settings_get(file, "prompts");
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (settings_get(r->resolved, keys[i]) != NULL)
            settings_put(file, keys[i], settings_copy(settings_get(r->resolved, keys[i])));
    if (r->o->limit > 0 && prompts != NULL && prompts->kind == SETTINGS_MAP) {
        char *text = xformat("%lld", r->o->limit);
        settings_put(prompts, "limit", settings_scalar(text));
        free(text);
    }
    struct experiment *e = experiment_of(file, "run.file", r->folder, err);
    if (e != NULL)
        e->probe = !r->o->no_probe;
    return e;
}

// Decodes into a database, then compares.
static bool run_into(struct again_run *r, const char *path, struct loaded_experiment *o, bool *same, struct error *err)
{
    struct text report = { 0 };
    struct store *now = store_open(path, err);
    const bool ok = now != NULL && experiment_run_loaded(o, now, stderr, interrupt_catch(), err) &&
                    stored_run_compare(&r->run, r->then, now, &report, same, err);
    if (ok)
        printf("%s", report.s);
    store_close(now);
    free(report.s);
    return ok;
}

// Without --out the database is in a folder of the command's own, in $TMPDIR or /tmp: nobody else can put a journal
// beside it.
static bool decode_again(struct again_run *r, struct loaded_experiment *o, bool *same, struct error *err)
{
    static const char *const suffix[] = { "", "-wal", "-shm" };
    if (r->o->out != NULL)
        return run_into(r, r->o->out, o, same, err);
    const char *base = getenv("TMPDIR");
    char *folder = xformat("%s/speclab-again-XXXXXX", base != NULL && *base != '\0' ? base : "/tmp");
    const bool made = mkdtemp(folder) != NULL;
    char *path = xformat("%s/again.db", folder);
    const bool ok =
        made ? run_into(r, path, o, same, err) : fail(err, "%s: could not be created: %s", folder, strerror(errno));
    for (int i = 0; made && i < 3; i++) {
        char *file = xformat("%s%s", path, suffix[i]);
        unlink(file);
        free(file);
    }
    if (made)
        rmdir(folder);
    free(folder);
    free(path);
    return ok;
}

// Finds out whether the inputs are those of the run, and if they are, decodes.
static bool reproduce(struct again_run *r, bool *same, struct error *err)
{
    struct loaded_experiment o = { 0 };
    printf("run %-6lld %s: %s, %s, %s\n", (long long)r->run.id, r->experiment, r->drafter, r->rule, r->sampling);
    struct experiment *e = experiment_again(r, err);
    bool ok = e != NULL && loaded_experiment_open(&o, e, 0, err) && find_changes(r, &o, err);
    if (ok && r->changes.n == 0) {
        printf("inputs     are the same: model, drafter, tokenizer, prompts and settings\n");
        ok = decode_again(r, &o, same, err);
    }
    if (e == NULL)
        put_missing(r);
    if (r->changes.n > 0 && (ok || e == NULL)) {
        printf("%snot reproduced: it would be another run\n", r->changes.s);
        *same = false;
        ok = true;
    }
    loaded_experiment_close(&o);
    experiment_free(e);
    return ok;
}

bool run_again(const struct again *o, bool *same, struct error *err)
{
    struct again_run r = { .o = o, .then = store_open_existing(o->db, err) };
    const bool ok = r.then != NULL && read_run(&r, o->run, err) && reproduce(&r, same, err);
    for (int i = 0; i < STORED_TEXTS; i++)
        free(r.text[i]);
    settings_free(r.given);
    settings_free(r.resolved);
    free(r.changes.s);
    store_close(r.then);
    return ok;
}
