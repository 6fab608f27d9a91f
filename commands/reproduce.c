// reproduce.c - a stored run as an experiment of its own, and what has changed of its inputs since.
#include "commands/reproduce.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "results/query.h"
#include "results/store.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

// ---- the stored run

static const char run_sql[] =
    "SELECT experiment, cell, settings, file, folder, model_path, prompts_path, target_hash, config_hash, tokenizer_hash,"
    " drafter_hash, prompts, drafter, rule, sampling, file IS NULL OR folder IS NULL OR config_hash IS NULL,"
    " drafter_kind = 'none', batch FROM run WHERE id = ?";

bool stored_run_read(struct store *s, int64_t id, struct stored_run *to, struct error *err)
{
    char **const text[] = { &to->experiment,  &to->cell,           &to->settings,     &to->file,
                            &to->folder,      &to->model_path,     &to->prompts_path, &to->target_hash,
                            &to->config_hash, &to->tokenizer_hash, &to->drafter_hash, &to->prompts,
                            &to->drafter,     &to->rule,           &to->sampling };
    *to = (struct stored_run){ .id = id };
    struct query *q = query_open(s, run_sql);
    query_put(q, SQL(id));
    const bool found = query_next(q);
    for (size_t i = 0; found && i < sizeof(text) / sizeof(*text); i++)
        *text[i] = xstrdup(query_text(q, (int)i));
    const bool unknown = found && query_int(q, 15) != 0;
    to->none = found && query_int(q, 16) != 0;
    to->batch = found ? query_int(q, 17) : 0;
    if (!query_close(q, err))
        return false;
    if (!found)
        return fail_usage(err, "%s: there is no run %lld in it", store_path(s), (long long)id);
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

bool stored_run_changes(struct stored_run *r, struct loaded_experiment *o, struct text *changes, struct error *err)
{
    struct group g;
    if (!group_open(&g, 0, o, err)) {
        if (*r->drafter_hash == '\0')
            return false;
        text_printf(changes, "changed    weights or configuration of the drafter: was %s, cannot be opened: %s\n",
                    r->drafter_hash, err->text);
        return true;
    }
    for (int i = 0; i < g.n; i++) {
        const struct cell_runner *c = &g.cell_runner[i];
        const struct pairing *p = &c->pairing;
        if (c->none != r->none)
            continue;
        r->drafts_vary = drafter_remembers(p->type, p->drafter_options) == DRAFTS_OF_OTHERS;
        r->texts_vary =
            r->drafts_vary && !p->rule->drafter_invariant && !(p->rule->exact && sampling_is_greedy(&p->sampling));
        if (strcmp(c->identity.hash, r->cell) != 0)
            put_changes(r, o, &c->identity, changes, err);
    }
    group_close(&g);
    return true;
}

// ---- the experiment

// The folder of a command's own that a path is below, by its name, speclab-KIND-XXXXXX; free() it. NULL: none.
static char *temporary_folder_of(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/speclab-")) != NULL;) {
        at++;
        const char *end = at + strcspn(at, "/");
        if (*end == '/' && end - at > 15 && end[-7] == '-')
            return xstrndup(path, (size_t)(end - path));
    }
    return NULL;
}

// A line for each file of the run that is gone, and one that says why if a command made it for its own time.
static void put_missing(const struct stored_run *r, struct text *to)
{
    const char *const what[] = { "weights of the target", "prompts" },
                      *const path[] = { r->model_path, r->prompts_path }, *const was[] = { r->target_hash, r->prompts };
    struct text why = { 0 };
    for (int i = 0; i < 2; i++) {
        if (*path[i] == '\0' || access(path[i], F_OK) == 0)
            continue;
        put_change(to, what[i], path[i], was[i], "not there");
        char *folder = temporary_folder_of(path[i]);
        if (folder != NULL && why.n == 0 && access(folder, F_OK) != 0)
            text_printf(
                &why,
                "           %s was the folder of a command (tune) for the time that it ran: no such run can be repeated\n",
                folder);
        free(folder);
    }
    if (why.n > 0)
        text_puts(to, why.s);
    free(why.s);
}

struct experiment *stored_run_experiment(struct stored_run *r, int limit, struct text *changes, struct error *err)
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
    struct experiment *e = experiment_of(file, "run.file", r->folder, err);
    if (e == NULL)
        put_missing(r, changes);
    return e;
}
