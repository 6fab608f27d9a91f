// dry_run.c - `speclab run --dry-run --json`: the cells of an experiment, what is done of each, memory, and the
// estimated time. python/speclab/words/run.py makes text of it.
//
// Everything is opened as for a run (so a draft model with another vocabulary is an error here too), but nothing is
// decoded or written. The time estimate uses earlier runs of the same target in the database; without any, it assumes
// that the weights are read once a token at ASSUMED_BANDWIDTH, and `assumes_bandwidth` states that.
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/machine.h"
#include "experiments/pairs/paired_run.h"
#include "experiments/pairs/plan.h"
#include "experiments/replay/packed_rows.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/model.h"
#include "results/query.h"
#include "results/store.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

enum { MAX_NEEDS = 32 };       // devices
#define ASSUMED_BANDWIDTH 10e9 // bytes a second
// Bytes of a stored text, of its tokens and of its steps, without what `record` adds.
enum { TEXT_BYTES = 300, TOKEN_BYTES = 10, STEP_BYTES = 50 };

struct plan {
    const struct experiment *e;
    struct loaded_experiment opened;
    struct store *store; // NULL: no database
    struct division division;
    struct json *targets, *cells; // arrays
    int64_t turns;                // number of turns to be decoded
    double ns;                    // estimated time of these turns
    bool from_bandwidth;          // part of the time is estimated from the bandwidth, not from earlier runs
    // The memory of a device, for the group that needs most.
    struct need {
        struct backend *backend; // the first is the target's
        size_t bytes, caches,
            verify_request; // total; the parts of the target's caches, and of the workspace shared by verification
    } need[MAX_NEEDS];
    int needs;
};

static bool find_run(const struct plan *p, struct cell_runner *c, struct error *err)
{
    if (p->store == NULL)
        return true;
    struct query *q = query_open(p->store, "SELECT id FROM run WHERE experiment = ?1 AND cell = ?2");
    query_put(q, SQL(p->e->name), SQL(c->identity.hash));
    if (query_next(q))
        c->run = query_int(q, 0);
    return query_close(q, err);
}

// Finds the nanoseconds of a new token in earlier runs with this drafter, otherwise with `none`. 0: no earlier run.
static bool pace(const struct plan *p, const struct cell_runner *c, double *ns, struct error *err)
{
    const char *drafter[] = { p->e->drafter.entry[c->cell.drafter].shown, drafter_types[0]->name };
    const struct speclab_target *t = p->opened.target;
    const char *activations = activations_names[model_activations(t->model)], *cache = type_facts[t->cache].name;
    err->text[0] = '\0';
    *ns = 0;
    for (int i = 0; i < 2 && p->store != NULL && *ns == 0 && err->text[0] == '\0'; i++)
        *ns = (double)store_ns_per_token(p->store, c->identity.target_hash, activations, cache, drafter[i], err);
    return err->text[0] == '\0';
}

// Counts, for each cell runner of a group, conversations that are done, and turns still to be decoded, including those
// that are repeated because another cell of the pair is due. Returns the number of conversations; -1 on failure.
static int count_due(const struct plan *p, const struct group *g, int number, int *done, int *turns, struct error *err)
{
    int all = 0;
    for (int k = 0; k < p->division.n; k++) {
        const struct part *part = &p->division.part[k];
        if (part->group != number || part->shard != p->e->shard.index)
            continue;
        struct paired_run o = paired_run_at(p->e, experiment_batch(p->e, g->batch), part->repeat, part->first);
        bool ok = paired_run_open(&o, &p->opened, p->store, g, err);
        for (int c = 0; c < g->n && ok; c++) {
            done[c] += o.n - paired_run_missing(&o, c);
            for (int i = 0; i < o.n; i++)
                if (o.due[c * o.n + i].from != PLAN_NOTHING)
                    turns[c] += p->e->prompts.prompt[o.first + i].n_turns - o.due[c * o.n + i].from;
        }
        paired_run_close(&o, g);
        if (!ok)
            return -1;
        all += o.n;
    }
    return all;
}

// The note that a run would print on a changed environment, or the error with which it would refuse to continue; null:
// none.
static struct json *environment_json(const struct plan *p, const struct cell_runner *c)
{
    const struct environment e = environment_of(&p->opened, c);
    struct error refusal;
    char *changed;
    const bool ok = store_environment(p->store, c->run, &e, p->e->mix, &changed, &refusal);
    struct json *j = json_new_text(ok ? changed : refusal.text);
    free(changed);
    return j;
}

// The identity of a cell, and what may vary from run to run because its drafts depend on other texts or clocks.
static struct json *json_of_cell(const struct plan *p, const struct cell_runner *c, int done, int all, int turns)
{
    const struct experiment *e = p->e;
    const struct speclab_decoder *d = c->decoder;
    const struct identity *id = &c->identity;
    const bool drafts_vary = drafter_remembers(d->type, d->drafter_options) == DRAFTS_OF_OTHERS,
               texts_vary =
                   drafts_vary && !d->rule->drafter_invariant && !(d->rule->exact && sampling_is_greedy(&d->sampling));
    struct error unused;
    char *prompts = cell_prompts(&p->opened);
    struct json *j = json_object_of(
        JSON("cell", id->hash), JSON("baseline", c->none), JSON("conversations", all), JSON("done", done),
        JSON("turns", turns), JSON("drafts_vary", drafts_vary), JSON("texts_vary", texts_vary),
        JSON("target_hash", id->target_hash), JSON("config_hash", id->config_hash),
        JSON("tokenizer_hash", id->tokenizer_hash), JSON("drafter_hash", id->drafter_hash), JSON("prompts", prompts),
        JSON("target", c->cell.target), JSON("sampling", e->sampling.entry[c->cell.sampling].shown),
        JSON("batch", e->batch.entry[c->cell.batch].shown), JSON("rule", e->rule.entry[c->cell.rule].shown),
        JSON("drafter", e->drafter.entry[c->cell.drafter].shown),
        JSON("environment", turns > 0 && c->run != 0 ? environment_json(p, c) : json_new_null()),
        JSON("settings", json_parse(id->settings, strlen(id->settings), "settings", &unused)));
    free(prompts);
    return j;
}

static bool add_cell(struct plan *p, const struct cell_runner *c, int done, int all, int turns, struct error *err)
{
    double ns;
    if (!pace(p, c, &ns, err))
        return false;
    if (ns == 0 && turns > 0) {
        ns = model_pass_bytes(p->opened.target->model, 1) / ASSUMED_BANDWIDTH * 1e9;
        p->from_bandwidth = true;
    }
    p->turns += turns;
    p->ns += ns * turns * p->e->new_tokens;
    json_push(p->cells, json_of_cell(p, c, done, all, turns));
    return true;
}

static struct need *need_on(struct need need[MAX_NEEDS], int *n, struct backend *b)
{
    int i = 0;
    while (i < *n && need[i].backend != b)
        i++;
    if (i == *n && *n < MAX_NEEDS)
        need[(*n)++] = (struct need){ .backend = b };
    return &need[i < MAX_NEEDS ? i : MAX_NEEDS - 1];
}

// Adds the memory of a pairing, by device.
static void add_needs(const struct speclab_target *t, const struct speclab_decoder *of, struct need need[MAX_NEEDS],
                      int *n)
{
    struct error unused; // the host's backend is already open
    const struct verifier_setup *v = verifier_setup(of->verifier);
    const struct drafter *d = of->drafter;
    struct need *on = need_on(need, n, t->backend);
    on->bytes += verifier_bytes(v);
    on->caches += verifier_cache_bytes(v);
    const size_t verify_request = verifier_verify_bytes(v);
    if (verify_request > on->verify_request) {
        on->bytes += verify_request - on->verify_request;
        on->verify_request = verify_request;
    }
    if (d->bytes > 0)
        need_on(need, n, d->backend != NULL ? d->backend : t->backend)->bytes += d->bytes;
    if (d->host_bytes > 0)
        need_on(need, n, devices_get(t->devices, "cpu", &unused))->bytes += d->host_bytes;
}

static bool add_group(struct plan *p, int number, struct error *err)
{
    struct group g;
    if (!group_open(&g, number, &p->opened, err) || !group_is_whole(&g, err))
        return false;
    struct need need[MAX_NEEDS];
    int needs = 0;
    bool ok = true;
    for (int i = 0; i < g.n && ok; i++)
        ok = find_run(p, &g.cell_runner[i], err);
    int *done = xcalloc((size_t)g.n, sizeof(*done)), *turns = xcalloc((size_t)g.n, sizeof(*turns));
    const int all = ok ? count_due(p, &g, number, done, turns, err) : -1;
    ok = all >= 0;
    for (int i = 0; i < g.n && ok; i++) {
        ok = add_cell(p, &g.cell_runner[i], done[i], all, turns[i], err);
        add_needs(p->opened.target, g.cell_runner[i].decoder, need, &needs);
    }
    need[0].caches += g.cache_bytes;
    need[0].bytes += g.cache_bytes;
    for (int i = 0; i < needs; i++) {
        struct need *largest = need_on(p->need, &p->needs, need[i].backend);
        if (need[i].bytes > largest->bytes)
            *largest = need[i];
    }
    free(done);
    free(turns);
    group_close(&g);
    return ok;
}

// What a device needs. `of`: its memory, of a device with its own; `available`: what the host has for the target.
static struct json *need_json(const struct plan *p, const struct need *n, size_t more)
{
    const struct speclab_target *t = p->opened.target;
    size_t free_bytes, all;
    const bool own = n->backend->memory(n->backend, &free_bytes, &all);
    const bool available = !own && n->backend == t->backend && p->opened.available > 0;
    return json_object_of(
        JSON("device", devices_name(t->devices, n->backend)), JSON("bytes", n->bytes + more),
        JSON("of", own ? json_new_int((json_int_t)all) : json_new_null()),
        JSON("available", available ? json_new_int((json_int_t)p->opened.available) : json_new_null()));
}

// The target that is open.
static struct json *target_json(struct plan *p)
{
    const struct loaded_experiment *o = &p->opened;
    const struct speclab_target *t = o->target;
    const struct model *m = t->model;
    const size_t weights = model_bytes(m) + model_table_bytes(m),
                 scratch = model_scratch_bytes(model_shape(m), model_rows(m));
    struct json *devices = json_new_array();
    need_on(p->need, &p->needs, t->backend); // it has none if the shard has no group of this target
    for (int i = 0; i < p->needs; i++)
        json_push(devices, need_json(p, &p->need[i], i == 0 ? weights + scratch : 0));
    return json_object_of(JSON("name", p->e->target.entry[o->which].shown), JSON("model", o->chosen->model),
                          JSON("weights", model_type(m)), JSON("activations", activations_names[model_activations(m)]),
                          JSON("cache", type_facts[t->cache].name), JSON("device", o->chosen->device),
                          JSON("inflated", json_new_bool(model_config(m)->inflated != NULL)),
                          JSON("processor", o->processor), JSON("backend", t->backend->describe(t->backend)),
                          JSON("chat", t->chat.label), JSON("prompt_tokens", (double)o->tokens / p->e->prompts.n),
                          JSON("longest", o->longest), JSON("context", o->context), JSON("weight_bytes", weights),
                          JSON("scratch_bytes", scratch), JSON("cache_bytes", p->need[0].caches),
                          JSON("devices", devices));
}

static struct json *shard_json(const struct plan *p)
{
    const struct experiment *e = p->e;
    const struct shard s = e->shard;
    int own = 0;
    for (int i = 0; i < p->division.n; i++)
        own += p->division.part[i].shard == s.index;
    return json_object_of(JSON("index", s.index), JSON("of", s.of), JSON("by_slurm", s.by_slurm), JSON("pairs", own),
                          JSON("conversations", division_conversations(&p->division, e, s.index)));
}

static struct json *plan_json(const struct plan *p)
{
    const struct experiment *e = p->e;
    int listed;
    const int left_out = experiment_left_out(e, &listed);
    return json_object_of(
        JSON("experiment", e->name), JSON("turns", p->turns), JSON("estimated_ns", p->ns),
        JSON("assumes_bandwidth", p->from_bandwidth),
        JSON("bytes", (double)p->turns * (TEXT_BYTES + (double)e->new_tokens * (TOKEN_BYTES + STEP_BYTES))),
        JSON("records_more", json_new_bool(e->trials || e->expected || e->rows != ROWS_NONE)),
        JSON("all_cells", experiment_cells(e)), JSON("listed_cells", listed), JSON("left_out", left_out),
        JSON("all_pairs", p->division.n), JSON("none_added", e->none_added), JSON("prompts_file", e->prompts_file),
        JSON("prompts", e->prompts.n), JSON("prompt_turns", experiment_turns(e)), JSON("repeat", e->repeat),
        JSON("new_tokens", e->new_tokens), JSON("shard", e->shard.of > 1 ? shard_json(p) : json_new_null()),
        JSON("targets", p->targets), JSON("cells", p->cells));
}

static bool add_target(struct plan *p, int target, struct error *err)
{
    const int first = target * target_groups(p->e);
    if (!loaded_experiment_open(&p->opened, p->e, target, err))
        return false;
    p->needs = 0;
    bool ok = true;
    for (int g = first; g < first + target_groups(p->e) && ok; g++)
        ok = division_count(&p->division, g, p->e->shard.index) == 0 || add_group(p, g, err);
    if (ok)
        json_push(p->targets, target_json(p));
    loaded_experiment_close(&p->opened);
    return ok;
}

struct json *experiment_dry_run(const struct experiment *e, struct store *s, struct error *err)
{
    struct plan p = { .e = e, .store = s, .targets = json_new_array(), .cells = json_new_array() };
    p.division = division_of(e, e->shard.of);
    bool ok = true;
    for (int target = 0; target < e->target.n && ok; target++)
        ok = add_target(&p, target, err);
    struct json *j = plan_json(&p);
    division_free(&p.division);
    if (ok)
        return j;
    json_free(j);
    return NULL;
}
