// dry_run.c - `speclab run --dry-run`: the cells of an experiment, what is done of each, memory, and the estimated
// time.
//
// Everything is opened as for a run (so a draft model with another vocabulary is an error here too), but nothing is
// decoded or written. The time estimate uses earlier runs of the same target in the database; without any, it assumes
// that the weights are read once a token at ASSUMED_BANDWIDTH, and the output states that.
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
#include "experiments/progress.h"
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
    FILE *out;
    struct division division;
    struct text cells;   // the table, printed after the summary
    struct json *json;   // the cells, an array; NULL: text is printed
    int64_t turns;       // number of turns to be decoded
    double ns;           // estimated time of these turns
    bool from_bandwidth; // part of the time is estimated from the bandwidth, not from earlier runs
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

// Adds the note that a run would print on a changed environment, or the error with which it would refuse to continue.
static void add_environment(struct plan *p, const struct cell_runner *c)
{
    const struct environment e = environment_of(&p->opened, c);
    struct error refusal;
    char *changed;
    bool ok = store_environment(p->store, c->run, &e, p->e->mix, &changed, &refusal);
    if (!ok || changed != NULL)
        text_printf(&p->cells, "      %s\n", ok ? changed : refusal.text);
    free(changed);
}

// The identity of a cell, and what may vary from run to run because its drafts depend on other texts or clocks.
static struct json *json_of_cell(const struct plan *p, const struct cell_runner *c, int done, int all, int turns)
{
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
    text_printf(&p->cells, "  %s  %5d of %-5d  %s, %s\n", c->identity.hash, done, all,
                p->e->drafter.entry[c->cell.drafter].shown, p->e->rule.entry[c->cell.rule].shown);
    if (turns > 0 && c->run != 0)
        add_environment(p, c);
    if (p->json != NULL)
        json_push(p->json, json_of_cell(p, c, done, all, turns));
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
    text_printf(&p->cells, "\n%s, batch %s\n", p->e->sampling.entry[g.sampling].shown,
                p->e->batch.entry[g.batch].shown);
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

static double megabytes(size_t bytes)
{
    return (double)bytes / 1e6;
}

// Prints " of the 85899 on cuda:0", ", 20123 are available", for a device with separate memory, or if several devices
// are used.
static void print_place(const struct plan *p, struct backend *b)
{
    size_t free_bytes, all;
    const bool own = b->memory(b, &free_bytes, &all);
    if (own)
        fprintf(p->out, " of the %.0f", megabytes(all));
    else if (b == p->opened.target->backend && p->opened.available > 0)
        fprintf(p->out, ", %.0f are available", megabytes(p->opened.available));
    if (own || p->needs > 1)
        fprintf(p->out, " on %s", devices_name(p->opened.target->devices, b));
    fprintf(p->out, ": ");
}

static void print_memory(const struct plan *p)
{
    const struct speclab_target *t = p->opened.target;
    const struct need *n = &p->need[0]; // the target's device
    const size_t weights = model_bytes(t->model) + model_table_bytes(t->model),
                 scratch = model_scratch_bytes(model_shape(t->model), model_rows(t->model));
    fprintf(p->out, "memory   %.0f MB", megabytes(weights + scratch + n->bytes));
    print_place(p, t->backend);
    fprintf(p->out, "weights %.1f, scratch %.1f; largest group: %s caches %.1f, logits and drafters %.1f\n",
            megabytes(weights), megabytes(scratch), type_facts[t->cache].name, megabytes(n->caches),
            megabytes(n->bytes - n->caches));
    for (int i = 1; i < p->needs; i++) {
        fprintf(p->out, "         %.1f MB", megabytes(p->need[i].bytes));
        print_place(p, p->need[i].backend);
        fprintf(p->out, "drafters\n");
    }
}

static void print_shard(const struct plan *p)
{
    const struct experiment *e = p->e;
    const struct shard s = e->shard;
    int own = 0;
    for (int i = 0; i < p->division.n; i++)
        own += p->division.part[i].shard == s.index;
    fprintf(p->out, "shard    %d/%d%s: %d of %d paired runs, %lld of %lld conversations; what follows is of these\n",
            s.index, s.of, s.by_slurm ? ", by SLURM_ARRAY_TASK_ID" : "", own, p->division.n,
            (long long)division_conversations(&p->division, e, s.index),
            (long long)experiment_cells(e) * e->prompts.n * e->repeat);
}

// The target that is open.
static void print_target(const struct plan *p)
{
    const struct experiment *e = p->e;
    const struct model *m = p->opened.target->model;
    fprintf(p->out, "target   %s: %s weights, %s activations, %s cache, on %s%s\n         %s, %s\n",
            p->opened.chosen->model, model_type(m), activations_names[model_activations(m)],
            type_facts[p->opened.target->cache].name, p->opened.chosen->device,
            model_config(m)->inflated != NULL ? "; marked as inflated" : "", p->opened.processor,
            p->opened.target->backend->describe(p->opened.target->backend));
    fprintf(p->out,
            "prompts  %s, chat %s, first turns of %.0f tokens on average, %d at most;\n"
            "         at most %d new tokens a turn, context %d\n",
            e->prompts_file, p->opened.target->chat.label, (double)p->opened.tokens / e->prompts.n, p->opened.longest,
            e->new_tokens, p->opened.context);
    print_memory(p);
}

static void print_end(const struct plan *p)
{
    const struct experiment *e = p->e;
    int listed;
    const int left_out = experiment_left_out(e, &listed);
    char time[32];
    progress_time((int64_t)p->ns, time, sizeof(time));
    if (p->turns == 0)
        fprintf(p->out, "time     none: all results are in the database\n");
    else
        fprintf(p->out, "time     at most %s to decode %lld turns, without prompts%s\n", time, (long long)p->turns,
                p->from_bandwidth
                    ? ";\n         estimated from the size of the weights at 10 GB/s, as the database has no such run"
                    : ", at the speed of\n         earlier runs in the database");
    if (p->turns > 0)
        fprintf(p->out, "disk     at most %.1f MB for these turns%s\n",
                (double)p->turns * (TEXT_BYTES + (double)e->new_tokens * (TOKEN_BYTES + STEP_BYTES)) / 1e6,
                e->trials || e->expected || e->rows != ROWS_NONE ? ", without what `record` adds" : "");
    if (e->shard.of > 1)
        print_shard(p);
    if (left_out > 0)
        fprintf(p->out, "cells    %d of the %d that the lists make are left out by zip or exclude\n", left_out, listed);
    if (e->none_added)
        fprintf(p->out, "cells    the baseline `none` was added to the list of drafters\n");
    if (e->repeat > 1)
        fprintf(p->out, "done     conversations, over all repeats\n");
}

static bool add_target(struct plan *p, int target, struct error *err)
{
    const struct experiment *e = p->e;
    const int first = target * target_groups(e);
    if (!loaded_experiment_open(&p->opened, e, target, err))
        return false;
    p->needs = 0;
    if (e->target.n > 1)
        text_printf(&p->cells, "\n%s\n", e->target.entry[target].shown);
    bool ok = true;
    for (int g = first; g < first + target_groups(e) && ok; g++)
        ok = division_count(&p->division, g, e->shard.index) == 0 || add_group(p, g, err);
    if (ok)
        print_target(p);
    loaded_experiment_close(&p->opened);
    return ok;
}

bool experiment_dry_run(const struct experiment *e, struct store *s, bool as_json, FILE *out, struct error *err)
{
    char *summary = NULL;
    size_t bytes;
    struct plan p = { .e = e, .store = s, .out = open_memstream(&summary, &bytes) };
    p.json = as_json ? json_new_array() : NULL;
    if (p.out == NULL)
        memory_out(0);
    p.division = division_of(e, e->shard.of);
    fprintf(p.out, "%s: %d cells, %d prompts of %d turns, %d %s\n", e->name, experiment_cells(e), e->prompts.n,
            experiment_turns(e), e->repeat, e->repeat == 1 ? "repeat" : "repeats");
    text_puts(&p.cells, "\n  cell              conversations   drafter, rule\n");
    bool ok = true;
    for (int target = 0; target < e->target.n && ok; target++)
        ok = add_target(&p, target, err);
    print_end(&p);
    fclose(p.out);
    if (ok && as_json) {
        json_print(json_object_of(JSON("experiment", e->name), JSON("turns", p.turns), JSON("estimated_ns", p.ns),
                                  JSON("cells", json_incref(p.json))),
                   out);
    } else if (ok) { // nothing is printed of an experiment that cannot be opened
        fputs(summary, out);
        fputs(p.cells.s, out);
    }
    json_free(p.json);
    free(summary);
    free(p.cells.s);
    division_free(&p.division);
    return ok;
}
