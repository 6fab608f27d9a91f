// group.c - opens what decodes: a target of an experiment, and the cells that are compared with each other over one
// copy of its weights; and records in which environment they run.
//
// Without a batch the cells use one cache, one after another (verifier/target_cache.h). In a batch they take turns, and
// each has its own.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "engine/prompts.h"
#include "experiments/cells.h"
#include "experiments/expectation.h"
#include "experiments/machine.h"
#include "experiments/pairs/paired_run.h"
#include "experiments/replay/packed_rows.h"
#include "experiments/recorder.h"
#include "kernels/backend.h"
#include "kernels/cpu/probe.h"
#include "models/model.h"
#include "verifier/target_cache.h"

// ---- a target: what depends on the model is resolved (chat template, context, end ids), and every prompt is checked
// before anything runs

// Returns whether a prompt is a text; chat: whether one is rendered as a chat.
static bool has_texts(const struct experiment *e, bool chat)
{
    for (int i = 0; i < e->prompts.n; i++)
        if (e->prompts.prompt[i].turn != NULL && !(chat && e->prompts.prompt[i].raw))
            return true;
    return false;
}

static bool resolve_text(struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    if ((has_texts(e, false) || e->n_stop > 0) && !target_needs_text(o->target, err))
        return false;
    const struct chat_request chat = { .name = e->chat, .variables = e->chat_variables };
    return !has_texts(e, true) || target_set_chat(o->target, chat, err);
}

static bool resolve_context(struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    int max = model_shape(o->target->model)->context;
    o->context = e->context;
    if (e->context <= max)
        return true;
    o->context = max;
    return !e->context_given ||
           settings_fail(err, settings_get(settings_get(e->file, "limits"), "context"),
                         "context: expected at most %d, which is the model's, found %d", max, e->context);
}

// Checks a prompt's first turn. Later turns depend on the model's answers; a conversation that outgrows the context
// ends there.
static bool check_prompt(struct loaded_experiment *o, const struct prompt *p, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = prompt_token_ids(o->target, p, NULL, 0, &ids, err);
    if (ok && ids.n >= (size_t)o->context)
        ok = fail(err, "%s:%d: prompt %s has %zu tokens, and the context is %d: no new token fits", o->e->prompts.path,
                  p->line, p->id, ids.n, o->context);
    if (ok && ids.n == 0)
        ok = fail(err, "%s:%d: prompt %s has no tokens", o->e->prompts.path, p->line, p->id);
    if ((int)ids.n > o->longest)
        o->longest = (int)ids.n;
    o->tokens += (int64_t)ids.n;
    free(ids.id);
    return ok;
}

// Hashes all that was read of the target. The tokenizer, if supported, reads files beyond the configuration.
static void identify(struct loaded_experiment *o)
{
    struct digest *d = digest_begin();
    digest_hash(d, model_identity(o->target->model));
    digest_hash(d, o->target->tokenizer != NULL ? tokenizer_hash(o->target->tokenizer) : (struct hash){ 0 });
    o->identity = digest_end(d);
    o->weights = model_hash(o->target->model);
}

// A feature that a device switches off changes no bit, so it is recorded with the processor and not with the arithmetic
// (results/store.h).
static void note_given_up(void *self, const char *sentence)
{
    struct loaded_experiment *o = self;
    char *before = o->processor;
    free(o->given_up);
    o->given_up = xstrdup(sentence);
    o->processor = xformat("%s; %s", before != NULL ? before : "", sentence);
    free(before);
}

static size_t available(const struct loaded_experiment *o)
{
    size_t left, all;
    struct backend *b = o->target->backend;
    return b->memory(b, &left, &all) ? left : machine_available();
}

bool loaded_experiment_open(struct loaded_experiment *o, const struct experiment *e, int target, struct error *err)
{
    struct error why;
    const struct entry *t = &e->target.entry[target];
    *o = (struct loaded_experiment){ .e = e, .which = target, .chosen = &t->target };
    const struct speclab_target_options options = { .device = t->target.device,
                                                    .activations = activations_names[t->target.activations],
                                                    .cache = kv_names[t->target.cache],
                                                    .chat =
                                                        "none", // until it is known that prompts are rendered as one
                                                    .folder = e->folder,
                                                    .threads = e->threads,
                                                    .log = note_given_up,
                                                    .log_self = o };
    o->target = speclab_target_open(t->target.model, &options, &why);
    if (o->target == NULL)
        return settings_fail(err, t->given, "%s", why.text);
    o->processor = machine_processor();
    o->available = available(o);
    identify(o);
    bool ok = resolve_text(o, err) && resolve_context(o, err);
    for (int i = 0; i < e->prompts.n && ok; i++)
        ok = check_prompt(o, &e->prompts.prompt[i], err);
    if (!ok)
        loaded_experiment_close(o);
    return ok;
}

void loaded_experiment_close(struct loaded_experiment *o)
{
    speclab_target_close(o->target);
    free(o->processor);
    free(o->given_up);
    *o = (struct loaded_experiment){ 0 };
}

// ---- the environment of its texts

struct environment environment_of(const struct loaded_experiment *o, const struct cell_runner *c)
{
    return (struct environment){
        o->processor, c->identity.arithmetic, speclab_revision(), o->read, o->read_one, o->round_trip, o->mhz
    };
}

// Measures the machine, in about a second.
static void probe_machine(struct loaded_experiment *o)
{
    struct prober *p = prober_create(o->e->threads);
    if (p == NULL)
        return;
    const struct machine_state s = machine_state_probe(p, o->e->threads);
    prober_destroy(p);
    o->read = s.all;
    o->read_one = s.one;
    o->round_trip = s.round_trip;
    o->mhz = machine_mhz();
}

bool environment_check(struct runner *r, struct cell_runner *c, struct error *err)
{
    const struct environment e = environment_of(r->loaded, c);
    char *change;
    if (c->environment_checked)
        return true;
    c->environment_checked = store_environment(r->store, c->run, &e, r->e->mix, &change, err);
    if (change != NULL)
        progress_line(&r->progress, "%s", change);
    free(change);
    if (c->environment_checked && r->e->probe && r->loaded->read == 0)
        probe_machine(r->loaded);
    return c->environment_checked;
}

// ---- a group

int group_cells(const struct experiment *e, int number)
{
    struct cell c = group_cell(e, number);
    int n = 0;
    for (c.rule = 0; c.rule < e->rule.n; c.rule++)
        for (c.drafter = 0; c.drafter < e->drafter.n; c.drafter++)
            n += experiment_has(e, c);
    return n;
}

struct speclab_decoder *cell_read(const struct experiment *e, struct cell cell, struct error *err)
{
    return decoder_read(e->drafter.entry[cell.drafter].settings, e->rule.entry[cell.rule].settings,
                        e->sampling.entry[cell.sampling].settings, err);
}

struct speclab_request cell_request(const struct experiment *e, int64_t sequence, const struct ids *prompt)
{
    return (struct speclab_request){ .sequence = sequence,
                                     .prompt = prompt->id,
                                     .n = (int)prompt->n,
                                     .max_tokens = e->new_tokens,
                                     .ignore_end = e->ignore_end,
                                     .stop = (const char *const *)e->stop,
                                     .n_stop = e->n_stop };
}

// The message of a failure to open begins with the place of the drafter in the file.
static bool refuse_cell(const struct experiment *e, struct cell cell, const struct error *why, struct error *err)
{
    const struct settings *given = e->drafter.entry[cell.drafter].given;
    if (error_is_plugin(why)) // it names a place in the plugin
        return fail_plugin(err, "%s", why->text);
    return given != NULL ? settings_fail(err, given, "%s", why->text) : fail(err, "%s", why->text);
}

static bool open_drafter(struct speclab_decoder *d, struct loaded_experiment *o, struct cell cell, struct error *err)
{
    const struct experiment *e = o->e;
    struct error why;
    if (!sampling_check(&d->sampling, o->target->used_vocab, &why))
        return settings_fail(err, e->sampling.entry[cell.sampling].given, "%s", why.text);
    d->seed = e->seed;
    return decoder_open_drafter(d, o->target, e->folder, experiment_batch(e, cell.batch), o->context, &why) ||
           refuse_cell(e, cell, &why, err);
}

static struct verifier_setup setup_of(struct speclab_decoder *d, struct cell cell, const struct loaded_experiment *o)
{
    return decoder_verifier(d, experiment_batch(o->e, cell.batch), o->context);
}

bool cell_open(struct speclab_decoder *d, struct loaded_experiment *o, struct cell cell, struct error *err)
{
    struct error why;
    if (!open_drafter(d, o, cell, err))
        return false;
    const struct verifier_setup setup = setup_of(d, cell, o);
    return decoder_open_verifier(d, &setup, &why) || refuse_cell(o->e, cell, &why, err);
}

static bool records_expected(const struct cell_runner *c, const struct experiment *e)
{
    return e->expected && !c->none && !decoder_shares_randomness(c->decoder);
}

// A row has one positive probability at temperature 0.
static bool check_rows(const struct cell_runner *c, const struct loaded_experiment *o, struct error *err)
{
    const struct speclab_decoder *d = c->decoder;
    const unsigned makes = drafter_makes(d->type, d->drafter_options);
    const bool sampled = (makes & (TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT)) != 0;
    const bool one_hot = sampling_is_greedy(&d->sampling) && (makes & OWN_TEMPERATURE) == 0;
    const int support = one_hot ? 1 : (int)model_shape(o->target->model)->vocab;
    struct error why;
    return o->e->rows == ROWS_NONE || c->none || rows_packable(d->drafter->nodes, sampled, o->e->rows, support, &why) ||
           settings_fail(err, settings_get(settings_get(o->e->file, "record"), "rows"), "%s: %s",
                         o->e->drafter.entry[c->cell.drafter].shown, why.text);
}

static bool open_cell_drafter(struct cell_runner *c, struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    c->decoder = cell_read(e, c->cell, err);
    if (c->decoder == NULL)
        return false;
    const int kept = c->none ? ROWS_NONE : e->rows;
    c->recorder = recorder_create(experiment_batch(e, c->cell.batch), e->trials, kept);
    c->decoder->listener = recorder_listener(c->recorder, records_expected(c, e) || kept != ROWS_NONE);
    const bool ok = open_drafter(c->decoder, o, c->cell, err) && check_rows(c, o, err);
    if (ok)
        c->identity = cell_identity(o, c->cell, c->decoder->drafter);
    return ok;
}

// Returns false if there are more than MAX_TAPS in total.
static bool add_taps(struct taps *all, const struct taps *more)
{
    for (int i = 0; i < more->n; i++) {
        int k = 0;
        while (k < all->n && all->layer[k] != more->layer[i])
            k++;
        if (k == MAX_TAPS)
            return false;
        all->layer[k] = more->layer[i];
        all->n = k < all->n ? all->n : k + 1;
    }
    return true;
}

// Returns the shape of the largest cache that a cell needs, and all taps that the cells read of prompts.
static struct kv_shape shared_shape(const struct group *g, const struct loaded_experiment *o, struct taps *taps,
                                    bool *prompts)
{
    struct verifier_setup s = setup_of(g->cell_runner[0].decoder, g->cell_runner[0].cell, o);
    struct kv_shape all = verifier_cache_shape(&s);
    *taps = (struct taps){ 0 };
    *prompts = o->e->share_prompts;
    for (int i = 0; i < g->n; i++) {
        s = setup_of(g->cell_runner[i].decoder, g->cell_runner[i].cell, o);
        const struct kv_shape one = verifier_cache_shape(&s);
        all.length = one.length > all.length ? one.length : all.length;
        all.pending = one.pending > all.pending ? one.pending : all.pending;
        *prompts = add_taps(taps, &s.taps) && *prompts;
    }
    return all;
}

static bool open_shared_cache(struct group *g, struct loaded_experiment *o, struct error *err)
{
    struct taps taps;
    bool prompts;
    const struct kv_shape shape = shared_shape(g, o, &taps, &prompts);
    g->cache_bytes = target_cache_bytes(o->target->model, &shape, &taps, prompts);
    g->cache = target_cache_create(o->target->model, &shape, &taps, prompts, err);
    return g->cache != NULL;
}

// Returns the number of tokens that a text can reach: memory beyond them is never touched. Later turns contain answers
// of any length.
static int reach(const struct loaded_experiment *o)
{
    const int most = o->longest + o->e->new_tokens;
    return experiment_turns(o->e) == o->e->prompts.n && most < o->context ? most : o->context;
}

// Returns what a drafter takes of the memory of the target's device, which may be the host.
static size_t drafter_bytes(const struct drafter *d, struct backend *b)
{
    size_t ignored;
    return (d->backend == NULL || d->backend == b ? d->bytes : 0) +
           (b->memory(b, &ignored, &ignored) ? 0 : d->host_bytes);
}

// Checks what the cells' caches and logits, their drafters and larger passes take of the memory that was free before
// they were opened. Rows of the target's cache beyond those that a text can reach are never touched; drafters' caches
// count whole.
static bool check_memory(const struct group *g, const struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    const int batch = experiment_batch(e, g->batch);
    const struct model *m = o->target->model;
    size_t bytes =
        model_scratch_bytes(model_shape(m), model_rows(m)) - model_scratch_bytes(model_shape(m), TARGET_ROWS);
    for (int i = 0; i < g->n; i++) {
        struct speclab_decoder *d = g->cell_runner[i].decoder;
        const struct verifier_setup s = decoder_verifier(d, batch, reach(o));
        bytes += verifier_bytes(&s) + drafter_bytes(d->drafter, o->target->backend);
    }
    return o->available == 0 || bytes <= o->available ||
           fail(
               err,
               "%s: batch %d: its %d cells take turns, each with a cache and a drafter of its own, which take %.1f MB, and %.1f MB are "
               "available: divide the cells among experiments, or use a smaller batch, fewer new_tokens or a smaller context",
               e->path, batch, g->n, (double)bytes / 1e6, (double)o->available / 1e6);
}

static bool open_cell_verifier(struct cell_runner *c, struct loaded_experiment *o, struct target_cache *shared,
                               struct error *err)
{
    const struct experiment *e = o->e;
    struct error why;
    struct speclab_decoder *d = c->decoder;
    struct verifier_setup setup = setup_of(d, c->cell, o);
    setup.shared = shared;
    if (!decoder_open_verifier(d, &setup, &why))
        return refuse_cell(e, c->cell, &why, err);
    struct expecter *expecter = NULL;
    if (records_expected(c, e))
        expecter = expecter_create(d->rule, d->rule_options, drafter_makes(d->type, d->drafter_options),
                                   d->drafter->nodes, (int)model_shape(o->target->model)->vocab);
    recorder_set_drafter(c->recorder, d->drafter, expecter);
    return true;
}

// Different entries may be one cell: `default` and the value to which it resolves.
static bool is_new(const struct group *g, const struct cell_runner *c, const struct experiment *e, struct error *err)
{
    for (const struct cell_runner *other = g->cell_runner; other < c; other++)
        if (strcmp(other->identity.hash, c->identity.hash) == 0) {
            const struct entry *d = e->drafter.entry;
            const struct settings *given = d[c->cell.drafter].given, *first = d[other->cell.drafter].given;
            return settings_fail(err, given,
                                 "cells.drafter: %s is the same cell as %s on line %d, once its defaults are resolved",
                                 d[c->cell.drafter].shown, d[other->cell.drafter].shown, first->line);
        }
    return true;
}

static void close_cell(struct cell_runner *c)
{
    speclab_decoder_destroy(c->decoder);
    recorder_destroy(c->recorder);
    identity_free(&c->identity);
    free(c->environment_stored);
    *c = (struct cell_runner){ 0 };
}

// A cell whose plugin fails at once is left out, the last one of the group. Returns false for any other error.
static bool leave_out(struct group *g, const struct experiment *e, const struct error *why)
{
    struct cell_runner *c = &g->cell_runner[g->n - 1];
    if (!error_is_plugin(why))
        return false;
    text_printf(&g->failures, "%s: %s; the cell is left out\n", e->drafter.entry[c->cell.drafter].shown, why->text);
    close_cell(c);
    g->n--;
    g->failed++;
    return true;
}

static bool open_cells(struct group *g, struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    g->cell_runner = xcalloc((size_t)(e->rule.n * e->drafter.n), sizeof(*g->cell_runner));
    for (int r = 0; r < e->rule.n; r++)
        for (int d = 0; d < e->drafter.n; d++) {
            const struct cell cell = {
                .sampling = g->sampling, .batch = g->batch, .rule = r, .drafter = d, .target = g->target
            };
            if (!experiment_has(e, cell))
                continue;
            struct cell_runner *c = &g->cell_runner[g->n++];
            c->cell = cell;
            c->none = d == e->none;
            if (!open_cell_drafter(c, o, err)) {
                if (!leave_out(g, e, err))
                    return false;
            } else if (!is_new(g, c, e, err))
                return false;
        }
    if (experiment_batch(e, g->batch) == 1 ? !open_shared_cache(g, o, err) : !check_memory(g, o, err))
        return false;
    for (int i = 0; i < g->n; i++)
        if (!open_cell_verifier(&g->cell_runner[i], o, g->cache, err))
            return false;
    return true;
}

bool group_open(struct group *g, int number, struct loaded_experiment *o, struct error *err)
{
    const struct cell shared = group_cell(o->e, number);
    *g = (struct group){ .sampling = shared.sampling, .batch = shared.batch, .target = shared.target };
    if (open_cells(g, o, err))
        return true;
    group_close(g);
    return false;
}

void group_close(struct group *g)
{
    for (int i = 0; i < g->n; i++)
        close_cell(&g->cell_runner[i]);
    target_cache_destroy(g->cache);
    free(g->cell_runner);
    free(g->failures.s);
    *g = (struct group){ 0 };
}

bool group_is_whole(struct group *g, struct error *err)
{
    if (g->failed == 0)
        return true;
    fail(err, "%.*s", (int)strcspn(g->failures.s, "\n"), g->failures.s);
    group_close(g);
    return false;
}
