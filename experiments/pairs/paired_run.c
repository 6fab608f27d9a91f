// paired_run.c - decodes some prompts with the cells that lack them, which take turns.
//
// plan.c alone decides what is decoded, from what the database has. With several slots the cells take turns in slices of about a second, so that
// they meet the same states of the machine; each keeps its slots and caches.
#include "experiments/pairs/paired_run.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "experiments/pairs/cell_part.h"
#include "experiments/pairs/conversation.h"
#include "experiments/environment.h"
#include "experiments/pairs/plan.h"
#include "experiments/recorder.h"
#include "results/store.h"
#include "verifier/target_cache.h"

enum { REFILLS = 8 }; // prompts of a paired run, for each of several slots
// A slice of an experiment's slice_ns ends earlier with a LEAST_ROUNDS-th of the tokens that its cell may decode, but not before a fifth of slice_ns.
enum { LEAST_ROUNDS = 16 };

static const struct cell_runner *none_of(const struct experiment *e, const struct group *g, const struct cell_runner *c)
{
    const struct cell_runner *none = g->cell_runner;
    while (!none->none || none->cell.rule != experiment_baseline_rule(e, c->cell.rule))
        none++;
    return none;
}

static bool open_conversations(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                               const struct group *g, struct history *history, struct error *err)
{
    for (int k = 0; k < g->n * o->n; k++) {
        const struct cell_runner *c = &g->cell_runner[k / o->n];
        const struct prompt *p = &loaded->e->prompts.prompt[o->first + k % o->n];
        if (!conversation_open(&o->conversation[k], loaded, s, c->run, none_of(loaded->e, g, c)->run, p, o->repeat,
                               &history[k], err))
            return false;
    }
    return true;
}

int paired_run_prompts(int batch)
{
    return batch == 1 ? 1 : REFILLS * batch;
}

struct paired_run paired_run_at(const struct experiment *e, int batch, int repeat, int first)
{
    const int left = e->prompts.n - first, most = paired_run_prompts(batch);
    return (struct paired_run){
        .number = first / most + repeat,
        .batch = batch,
        .repeat = repeat,
        .first = first,
        .n = left < most ? left : most,
    };
}

bool paired_run_open(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                     const struct group *g, struct error *err)
{
    size_t all = (size_t)g->n * (size_t)o->n;
    o->conversation = xcalloc(all, sizeof(*o->conversation));
    o->due = xcalloc(all, sizeof(*o->due));
    struct history *history = xcalloc(all, sizeof(*history));
    int *none = xcalloc((size_t)g->n, sizeof(*none));
    for (int c = 0; c < g->n; c++)
        none[c] = (int)(none_of(loaded->e, g, &g->cell_runner[c]) - g->cell_runner);
    bool ok = open_conversations(o, loaded, s, g, history, err);
    if (ok)
        plan_turns(&(struct stored){ g->n, o->n, none, history }, o->due);
    free(history);
    free(none);
    return ok;
}

void paired_run_close(struct paired_run *o, const struct group *g)
{
    for (int k = 0; k < g->n * o->n; k++)
        conversation_close(&o->conversation[k]);
    free(o->conversation);
    free(o->due);
}

static bool takes_part(const struct paired_run *o, int c)
{
    for (int i = 0; i < o->n; i++)
        if (o->due[c * o->n + i].from != PLAN_NOTHING)
            return true;
    return false;
}

int paired_run_missing(const struct paired_run *o, int c)
{
    int n = 0;
    for (int i = 0; i < o->n; i++)
        n += o->due[c * o->n + i].missing;
    return n;
}

// ---- slices

// The cell of a round's k-th slice, of n. Rounds alternate between an order and its reverse, so that what changes evenly with time costs all cells
// alike in two rounds; the first order rotates between paired runs.
static int turn_of(const struct paired_run *o, int round, int k, int n)
{
    return ((round % 2 == 0 ? k : n - 1 - k) + o->number) % n;
}

// The first slice of a round ends by its time; it sets *tokens, how many its cell has decoded in all, and the other cells decode as many. So all
// cells go through the same prompts side by side. Without a batch a cell has one slice, of all its texts.
static bool slice_is_over(const struct cell_part *p, int64_t tokens, int64_t before, int64_t ns)
{
    const int64_t now = cell_part_tokens(p);
    if (p->over || p->o->batch == 1)
        return p->over;
    if (tokens > 0)
        return now >= tokens;
    const struct experiment *e = p->r->e;
    return ns >= e->slice_ns ||
           (ns >= e->slice_ns / 5 && (now - before) * LEAST_ROUNDS >= (int64_t)p->o->n * e->new_tokens);
}

// Its row is stored also after a failure or an interruption: texts that have ended in it are.
static bool run_slice(struct cell_part *p, int round, int64_t *tokens, struct error *err)
{
    struct slice_load *const load = &p->r->load;
    slice_load_begin(load);
    const int64_t began = clock_ns(), before = cell_part_tokens(p);
    bool ok = true;
    recorder_set_round(p->c->recorder, round);
    do
        ok = cell_part_step(p, err);
    while (ok && !slice_is_over(p, *tokens, before, clock_ns() - began));
    ok = ok && decoder_pause(p->c->decoder, err);
    if (*tokens == 0)
        *tokens = cell_part_tokens(p);
    struct error ignored;
    const struct slice_row row = { .pair = p->o->pair, .run = p->c->run, .round = round, .ns = clock_ns() - began };
    return slice_load_end(load, p->r->store, &row, ok ? err : &ignored) && ok;
}

static bool run_round(const struct paired_run *o, struct cell_part *part, int n, int round, int *left,
                      struct error *err)
{
    int64_t tokens = 0;
    for (int k = 0; k < n; k++) {
        struct cell_part *p = &part[turn_of(o, round, k, n)];
        if (p->over)
            continue;
        const bool ok = run_slice(p, round, &tokens, err);
        if (!ok || p->over) {
            progress_done(&p->r->progress, ok ? p->missing : 0);
            *left -= 1;
        }
        if (!ok)
            return false;
    }
    return true;
}

static bool run_cells(struct paired_run *o, struct runner *r, struct group *g, struct error *err)
{
    struct cell_part *part = xcalloc((size_t)g->n, sizeof(*part));
    int n = 0;
    bool ok = true;
    for (int c = 0; c < g->n; c++)
        if (takes_part(o, c))
            part[n++] = (struct cell_part){ r, &g->cell_runner[c], &o->conversation[c * o->n], o,
                                            .missing = paired_run_missing(o, c) };
    for (int k = 0; k < n && ok; k++)
        ok = environment_check(r, part[k].c, err);
    for (int k = 0; k < n && ok; k++)
        ok = part[k].c->warm || cell_warm_up(r, part[k].c, o->first, err);
    if (g->cache != NULL)
        target_cache_clear(g->cache);
    ok = ok && (n == 0 || store_new_pair(r->store, r->e->name, &o->pair, err));
    for (int k = 0; k < n && ok; k++)
        ok = cell_part_open(&part[k], &o->due[(part[k].conversation - o->conversation)], err);
    int left = n;
    for (int round = 0; left > 0 && ok; round++)
        ok = run_round(o, part, n, round, &left, err);
    for (int k = 0; k < n; k++)
        cell_part_close(&part[k]);
    free(part);
    return ok;
}

static bool any_is_full(const struct paired_run *o, const struct group *g)
{
    for (int k = 0; k < g->n * o->n; k++)
        if (o->conversation[k].full)
            return true;
    return false;
}

bool paired_run_decode(struct paired_run *o, struct runner *r, struct group *g, struct error *err)
{
    bool ok = paired_run_open(o, r->loaded, r->store, g, err);
    for (int c = 0; c < g->n && ok; c++) {
        progress_skip(&r->progress, o->n - paired_run_missing(o, c));
        ok = paired_run_missing(o, c) == 0 || store_shard_unfinished(r->store, g->cell_runner[c].run, &r->part, err);
    }
    ok = ok && run_cells(o, r, g, err);
    r->full = r->full || any_is_full(o, g);
    paired_run_close(o, g);
    return ok;
}
