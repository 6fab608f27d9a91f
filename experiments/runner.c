// runner.c - divides an experiment over processes (division.h), and runs what the database lacks, so that compared
// texts are decoded side by side.
//
// For every group (cells that differ only in drafter or rule), repeat and prompt (with several slots: some prompts for
// each) there is a paired run: the cells that lack something decode it back to back, in an order that rotates between
// paired runs. plan.h defines what is missing; complete paired runs are skipped. A killed process loses only the
// sequences in progress: each finished one is stored in one transaction.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/machine.h"
#include "experiments/experiment.h"
#include "experiments/pairs/paired_run.h"
#include "models/config.h"
#include "models/model.h"
#include "results/query.h"
#include "results/store.h"
#include "verifier/rules/rule.h"

// ---- dealing paired runs to processes

static int least(const int64_t *load, int shards)
{
    int at = 0;
    for (int i = 1; i < shards; i++)
        at = load[i] < load[at] ? i : at;
    return at;
}

static int by_cost(const void *a, const void *b)
{
    const struct part *x = *(struct part *const *)a, *y = *(struct part *const *)b;
    return x->cost != y->cost ? (x->cost < y->cost ? 1 : -1) : x < y ? -1 : x > y;
}

void parts_deal(struct part *part, int n, int shards)
{
    int64_t *load = xcalloc((size_t)shards, sizeof(*load));
    struct part **order = xcalloc((size_t)n + 1, sizeof(*order));
    for (int i = 0; i < n; i++)
        order[i] = &part[i];
    qsort(order, (size_t)n, sizeof(*order), by_cost);
    for (int i = 0; i < n; i++) {
        order[i]->shard = least(load, shards);
        load[order[i]->shard] += order[i]->cost;
    }
    free(order);
    free(load);
}

static void add_group(struct division *d, size_t *capacity, const struct experiment *e, int group)
{
    const int batch = experiment_batch(e, group_cell(e, group).batch), cells = group_cells(e, group);
    for (int repeat = 0; repeat < e->repeat; repeat++)
        for (int first = 0; first < e->prompts.n; first += paired_run_prompts(batch)) {
            const struct paired_run o = paired_run_at(e, batch, repeat, first);
            struct part p = { .group = group, .repeat = repeat, .first = first, .n = o.n };
            int64_t turns = 0;
            for (int i = 0; i < o.n; i++)
                turns += e->prompts.prompt[first + i].n_turns;
            // The cells multiply a rounded number, so that another drafter multiplies all costs and changes no shard.
            p.cost = cells * llround((double)turns * 1000 / sqrt(batch));
            array_reserve(d->part, *capacity, d->n + 1);
            d->part[d->n++] = p;
        }
}

// Hashes the division with its shards. Another sampling or batch deals all groups anew, and shards of two deals
// together may leave prompts out.
static void hash_work(struct division *d, const struct experiment *e)
{
    bool *has = xcalloc(MAX_SHARDS, sizeof(*has));
    d->work = xcalloc((size_t)groups(e), sizeof(*d->work));
    for (int i = 0; i < d->n;) {
        const int group = d->part[i].group, first = i;
        struct digest *h = digest_begin();
        for (int k = 0; k < e->prompts.n; k++)
            digest_int(h, e->prompts.prompt[k].number);
        for (; i < d->n && d->part[i].group == group; i++) {
            digest_int(h, d->part[i].repeat);
            digest_int(h, d->part[i].first);
            digest_int(h, d->part[i].n);
            digest_int(h, d->part[i].shard);
            d->work[group].shards += !has[d->part[i].shard];
            has[d->part[i].shard] = true;
        }
        for (int k = first; k < i; k++)
            has[d->part[k].shard] = false;
        hash_write(digest_end(h), d->work[group].hash);
    }
    free(has);
}

struct division division_of(const struct experiment *e, int shards)
{
    struct division d = { 0 };
    size_t capacity = 0;
    for (int target = 0; target < e->target.n; target++) {
        const int first = d.n;
        for (int group = target * target_groups(e); group < (target + 1) * target_groups(e); group++)
            if (group_cells(e, group) > 0)
                add_group(&d, &capacity, e, group);
        parts_deal(d.part + first, d.n - first, shards > 1 ? shards : 1);
    }
    hash_work(&d, e);
    return d;
}

void division_free(struct division *d)
{
    free(d->part);
    free(d->work);
    *d = (struct division){ 0 };
}

int division_count(const struct division *d, int group, int shard)
{
    int n = 0;
    for (int i = 0; i < d->n; i++)
        n += d->part[i].group == group && d->part[i].shard == shard;
    return n;
}

int64_t division_conversations(const struct division *d, const struct experiment *e, int shard)
{
    int64_t n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->part[i].shard == shard)
            n += (int64_t)d->part[i].n * group_cells(e, d->part[i].group);
    return n;
}

// ---- one process

// Reports why a new run does not resume an existing one with the same settings: a file that they name has changed.
static bool report_changed_inputs(struct runner *r, const struct cell_runner *c, struct error *err)
{
    static const char sql[] =
        "SELECT r.drafter, r.rule, was.id, CASE"
        " WHEN was.prompts <> r.prompts THEN 'the prompts differ'"
        " WHEN was.target_hash <> r.target_hash THEN 'the target''s weights differ'"
        " WHEN was.drafter_hash IS NOT r.drafter_hash THEN 'the drafter''s weights, configuration or plugin differ'"
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
    const unsigned makes = drafter_makes(c->decoder->type, c->decoder->drafter_options);
    if (sampling_is_greedy(&c->decoder->sampling) && (makes & TAKES_WITHOUT_REPLACEMENT) != 0 &&
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
    char *folder = realpath(e->folder, NULL), *model = absolute_path(r->loaded->target->path),
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
        .target = r->loaded->chosen->model,
        .drafter = e->drafter.entry[c->cell.drafter].shown,
        .rule = e->rule.entry[c->cell.rule].shown,
        .sampling = e->sampling.entry[c->cell.sampling].shown,
        .drafter_kind = c->decoder->type->name,
        .drafter_options = e->drafter.entry[c->cell.drafter].options,
        .device = r->loaded->chosen->device,
        .machine = c->identity.machine,
        .revision = speclab_revision(),
        .target_hash = c->identity.target_hash,
        .drafter_hash = c->identity.drafter_hash[0] != '\0' ? c->identity.drafter_hash : NULL,
        .prompts = prompts,
        .model_type = model_type(r->loaded->target->model),
        .activations = activations_names[model_activations(r->loaded->target->model)],
        .cache = type_facts[r->loaded->target->cache].name,
        .lossless = c->decoder->rule->exact,
        .drafter_invariant = c->decoder->rule->drafter_invariant,
        .marked_inflated = model_config(r->loaded->target->model)->inflated != NULL,
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
    r->failed += g.failed;
    for (char *rest = g.failures.s, *line; g.failed > 0 && (line = strsep(&rest, "\n")) != NULL && *line != '\0';)
        progress_line(&r->progress, "%s", line);
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
        progress_line(&r->progress, "%s%s%s, batch %s: %d cells, %lld conversations decoded, %lld stored already",
                      r->e->target.n > 1 ? r->e->target.entry[g.target].shown : "", r->e->target.n > 1 ? ", " : "",
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

// Runs the groups of the target that is open.
static bool run_target(struct runner *r, struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = r->e;
    const int first = o->which * target_groups(e);
    bool ok = true;
    r->loaded = o;
    r->full = false;
    for (int g = first; g < first + target_groups(e) && ok; g++)
        ok = division_count(&r->division, g, e->shard.index) == 0 || run_group(r, g, err);
    if (r->full)
        progress_line(&r->progress, "conversations end before a turn that does not fit the context of %d", o->context);
    return ok;
}

static bool has_work(const struct runner *r, int target)
{
    const int n = target_groups(r->e);
    for (int g = target * n; g < (target + 1) * n; g++)
        if (division_count(&r->division, g, r->e->shard.index) > 0)
            return true;
    return false;
}

static struct runner runner_open(const struct experiment *e, struct store *s, FILE *progress, const volatile int *stop)
{
    struct runner r = { .e = e, .store = s, .stop = stop, .division = division_of(e, e->shard.of) };
    progress_begin(&r.progress, progress, e->log, division_conversations(&r.division, e, e->shard.index));
    return r;
}

// Returns ok, or false if slices could not be stored.
static bool runner_close(struct runner *r, bool ok, struct error *err)
{
    struct error ignored;
    ok = slice_load_close(&r->load, r->store, ok ? err : &ignored) && ok;
    progress_end(&r->progress);
    division_free(&r->division);
    return ok &&
           (r->failed == 0 || fail(err, "%d of its cells ended with an error of a plugin; finished texts are in %s",
                                   r->failed, store_path(r->store)));
}

bool experiment_run_loaded(struct loaded_experiment *o, struct store *s, FILE *progress, const volatile int *stop,
                           struct error *err)
{
    if (!take_store(s, o->e, err))
        return false;
    struct runner r = runner_open(o->e, s, progress, stop);
    return runner_close(&r, run_target(&r, o, err), err);
}

// Each target is opened once. If there are more shards than paired runs, some have nothing to decode, and load no
// model.
bool experiment_run(const struct experiment *e, struct store *s, FILE *progress, const volatile int *stop,
                    struct error *err)
{
    if (!take_store(s, e, err)) // a refusal costs no load
        return false;
    struct runner r = runner_open(e, s, progress, stop);
    bool ok = true, any = false;
    for (int target = 0; target < e->target.n && ok; target++) {
        struct loaded_experiment o;
        if (!has_work(&r, target))
            continue;
        any = true;
        ok = loaded_experiment_open(&o, e, target, err);
        if (!ok)
            break;
        ok = run_target(&r, &o, err);
        loaded_experiment_close(&o);
    }
    if (!any)
        progress_line(&r.progress, "shard %d/%d has nothing to decode: there are %d paired runs", e->shard.index,
                      e->shard.of, r.division.n);
    return runner_close(&r, ok, err);
}
