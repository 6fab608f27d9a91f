// runner.c - runs what the database lacks, so that compared texts are decoded side by side.
//
// For every group (cells that differ only in drafter or rule), repeat and prompt (with several slots: some prompts for
// each) there is a paired run: the cells that lack something decode it back to back, in an order that rotates between
// paired runs. plan.h defines what is missing; complete paired runs are skipped. A killed process loses only the
// sequences in progress: each finished one is stored in one transaction.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/environment.h"
#include "experiments/experiment.h"
#include "experiments/pairs/paired_run.h"
#include "models/config.h"
#include "models/model.h"
#include "results/query.h"
#include "results/store.h"
#include "verifier/rules/rule.h"

// Reports why a new run does not resume an existing one with the same settings: a file that they name has changed.
static bool report_changed_inputs(struct runner *r, const struct cell_runner *c, struct error *err)
{
    static const char sql[] =
        "SELECT r.drafter, r.rule, was.id, CASE"
        " WHEN was.prompts <> r.prompts THEN 'the prompts differ'"
        " WHEN was.target_hash <> r.target_hash THEN 'the target''s weights differ'"
        " WHEN was.drafter_hash IS NOT r.drafter_hash THEN 'the drafter''s weights or configuration differ'"
        " ELSE 'the target''s configuration, tokenizer or chat template differs' END"
        " FROM run AS r JOIN run AS was ON was.experiment = r.experiment AND was.settings = r.settings AND was.id < r.id"
        " WHERE r.id = ? AND NOT EXISTS (SELECT 1 FROM sequence WHERE run = r.id) ORDER BY was.id DESC LIMIT 1";
    struct query *q = query_again(r->store, sql);
    query_put(q, SQL(c->run));
    while (query_next(q))
        progress_line(&r->progress, "run %lld (%s, %s) does not resume run %lld: %s", (long long)c->run,
                      query_text(q, 0), query_text(q, 1), (long long)query_int(q, 2), query_text(q, 3));
    return query_close(q, err);
}

// A row of q is one token at temperature 0, so sampling siblings without replacement leaves an only child.
static void report_chain(struct runner *r, const struct cell_runner *c)
{
    const unsigned makes = drafter_makes(c->pairing.type, c->pairing.drafter_options);
    if (sampling_is_greedy(&c->pairing.sampling) && (makes & TAKES_WITHOUT_REPLACEMENT) != 0 &&
        (makes & OWN_TEMPERATURE) == 0)
        progress_line(
            &r->progress,
            "%s drafts chains, no trees: at temperature 0 q has one token to sample (pick: greedy has the most probable ones)",
            r->e->drafter.entry[c->cell.drafter].shown);
}

// Links to folders are followed, but not a link to the file: in the Hugging Face cache it leads from a commit to a
// nameless file.
static char *absolute_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? xstrdup(".") : slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
    char *real = realpath(folder, NULL);
    const char *name = slash != NULL ? slash + 1 : path;
    const bool inside = *name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    char *to =
        real == NULL || inside ? realpath(path, NULL) : xformat("%s/%s", strcmp(real, "/") != 0 ? real : "", name);
    free(folder);
    free(real);
    return to;
}

static bool find_row(struct runner *r, const struct group *g, struct cell_runner *c, struct error *err)
{
    const struct experiment *e = r->e;
    char *prompts = cell_prompts(r->loaded);
    char *folder = realpath(e->folder, NULL), *model = absolute_path(r->loaded->target.path),
         *prompts_path = realpath(e->prompts.path, NULL), *file = settings_line(e->file);
    struct run_row row = {
        .experiment = e->name,
        .cell = c->identity.hash,
        .peers = c->identity.peers,
        .settings = c->identity.settings,
        .file = file,
        .folder = folder,
        .model_path = model,
        .prompts_path = prompts_path,
        .config_hash = c->identity.config_hash,
        .tokenizer_hash = c->identity.tokenizer_hash[0] != '\0' ? c->identity.tokenizer_hash : NULL,
        .target = e->target,
        .drafter = e->drafter.entry[c->cell.drafter].shown,
        .rule = e->rule.entry[c->cell.rule].shown,
        .sampling = e->sampling.entry[c->cell.sampling].shown,
        .drafter_kind = c->pairing.type->name,
        .drafter_options = e->drafter.entry[c->cell.drafter].options,
        .device = e->device,
        .machine = c->identity.machine,
        .revision = speclab_revision(),
        .target_hash = c->identity.target_hash,
        .drafter_hash = c->identity.drafter_hash[0] != '\0' ? c->identity.drafter_hash : NULL,
        .prompts = prompts,
        .model_type = model_type(r->loaded->target.model),
        .activations = activations_names[model_activations(r->loaded->target.model)],
        .cache = type_facts[r->loaded->target.cache].name,
        .lossless = c->pairing.rule->exact,
        .drafter_invariant = c->pairing.rule->drafter_invariant,
        .marked_inflated = model_config(r->loaded->target.model)->inflated != NULL,
        .seed = e->seed,
        .batch = experiment_batch(e, g->batch),
    };
    bool ok = store_run(r->store, &row, &c->run, err) && report_changed_inputs(r, c, err);
    free(prompts);
    free(folder);
    free(model);
    free(prompts_path);
    free(file);
    return ok;
}

static bool run_prompts(struct runner *r, struct group *g, int number, struct error *err)
{
    const int batch = experiment_batch(r->e, g->batch);
    for (int i = 0; i < r->division.n; i++) {
        const struct part *p = &r->division.part[i];
        if (p->group != number || p->shard != r->e->shard.index)
            continue;
        struct paired_run o = paired_run_at(r->e, batch, p->repeat, p->first);
        if (!paired_run_decode(&o, r, g, err))
            return false;
    }
    return true;
}

static bool run_group(struct runner *r, int number, struct error *err)
{
    struct group g;
    if (!group_open(&g, number, r->loaded, err))
        return false;
    int64_t before = r->progress.ran, seen = r->progress.seen;
    bool ok = true;
    r->part = (struct shard_row){ r->e->shard.index, r->e->shard.of, r->division.work[number].hash,
                                  r->division.work[number].shards };
    for (int i = 0; i < g.n && ok; i++) {
        report_chain(r, &g.cell_runner[i]);
        ok = find_row(r, &g, &g.cell_runner[i], err) && store_shard(r->store, g.cell_runner[i].run, &r->part, err);
    }
    ok = ok && run_prompts(r, &g, number, err);
    int64_t ran = r->progress.ran - before;
    for (int i = 0; i < g.n && ok; i++) // if nothing ran, this only marks what a killed process left unmarked
        ok = g.cell_runner[i].failed || store_shard_finished(r->store, g.cell_runner[i].run, &r->part, ran > 0, err);
    if (ok)
        progress_line(&r->progress, "%s, batch %s: %d cells, %lld conversations decoded, %lld stored already",
                      r->e->sampling.entry[g.sampling].shown, r->e->batch.entry[g.batch].shown, g.n, (long long)ran,
                      (long long)(r->progress.seen - seen - ran));
    group_close(&g);
    return ok;
}

static bool take_store(struct store *s, const struct experiment *e, struct error *err)
{
    if (store_read_only(s))
        return fail(err, "%s: the database is read-only, results cannot go into it", store_path(s));
    return store_lock(s, e->name, err);
}

bool experiment_run_loaded(struct loaded_experiment *o, struct store *s, FILE *progress, const volatile int *stop,
                           struct error *err)
{
    const struct experiment *e = o->e;
    if (!take_store(s, e, err))
        return false;
    struct runner r = { .e = e, .loaded = o, .store = s, .stop = stop, .division = division_of(e, e->shard.of) };
    progress_begin(&r.progress, progress, division_conversations(&r.division, e, e->shard.index));
    bool ok = true;
    for (int g = 0; g < groups(e) && ok; g++)
        ok = division_count(&r.division, g, e->shard.index) == 0 || run_group(&r, g, err);
    struct error ignored;
    ok = slice_load_close(&r.load, s, ok ? err : &ignored) && ok;
    progress_end(&r.progress);
    if (r.full)
        progress_line(&r.progress, "conversations end before a turn that does not fit the context of %d", o->context);
    division_free(&r.division);
    return ok &&
           (r.failed == 0 || fail(err, "%d of its cells ended with an error of a plugin; finished texts are in %s",
                                  r.failed, store_path(s)));
}

// If there are more shards than paired runs, some have nothing to decode, and load no model.
static bool shard_is_empty(const struct experiment *e, FILE *progress)
{
    struct division d = division_of(e, e->shard.of);
    const bool empty = division_conversations(&d, e, e->shard.index) == 0;
    struct progress p;
    if (empty) {
        progress_begin(&p, progress, 0);
        progress_line(&p, "shard %d/%d has nothing to decode: there are %d paired runs", e->shard.index, e->shard.of,
                      d.n);
    }
    division_free(&d);
    return empty;
}

bool experiment_run(const struct experiment *e, struct store *s, FILE *progress, const volatile int *stop,
                    struct error *err)
{
    struct loaded_experiment o;
    if (!take_store(s, e, err))
        return false;
    if (shard_is_empty(e, progress))
        return true;
    if (!loaded_experiment_open(&o, e, err)) // a refusal before this costs no load
        return false;
    const bool ok = experiment_run_loaded(&o, s, progress, stop, err);
    loaded_experiment_close(&o);
    return ok;
}
