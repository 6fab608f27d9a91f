// recorder.c - records steps: each slot has arrays of steps, trials, expectations and drafts with their rows, reused for the slot's next sequence.
#include "experiments/recorder.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "experiments/expectation.h"
#include "experiments/replay/packed_rows.h"
#include "engine/transcript.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

struct recording { // of one sequence
    enum { FREE, RECORDING, DONE } state;
    int64_t sequence;
    struct step_row *step; // (n_steps)
    size_t n_steps, steps_capacity;
    struct trial_row *trial; // (n_trials) of all steps, in order
    size_t n_trials, trials_capacity;
    struct expected_row *expected; // (n_expected) likewise
    size_t n_expected, expected_capacity;
    uint8_t *source; // (n_sources) likewise: of each step's draft tokens, then of its accepted ones
    size_t n_sources, sources_capacity;
    struct source_row *by_source; // (by_source_capacity) of recorder_take
    size_t by_source_capacity;
    struct draft_row *draft; // (n_drafts) of each step, with arrays of their own; empty unless rows are recorded
    size_t n_drafts, drafts_capacity;
    int32_t *token; // (n)
    int n;
    int64_t prefill_ns, decode_ns, wall_ns;
    int shared;
    const char *stop;
};

struct pending_step { // a verified step that is not reported yet; reused by the next step with this draft
    const struct draft *draft;
    struct expectation expectation;
    struct text rows; // not compressed yet
};

struct recorder {
    int slots;
    bool trials;
    int round;
    int64_t tokens;
    struct expecter *expecter;    // NULL: expectations are not recorded
    int rows;                     // entries of a row that are recorded, ROWS_FULL or ROWS_NONE
    int vocab;                    // of the rows
    struct pending_step *pending; // (n_pending)
    int n_pending;
    struct recording *recording; // (slots)
    int parts;                   // of the drafter
    char **source_name;          // (2^parts) by the bits of draft.source
};

static struct recording *recording_of(struct recorder *r, int64_t sequence)
{
    for (int i = 0; i < r->slots; i++)
        if (r->recording[i].state == RECORDING && r->recording[i].sequence == sequence)
            return &r->recording[i];
    return NULL; // not recorded: a warm-up or a filler
}

static bool is_on_path(const struct step *s, int node)
{
    for (int i = 1; i < s->verification->n; i++)
        if (s->verification->node[i] == node)
            return true;
    return false;
}

static void add_source(struct recording *g, uint8_t source)
{
    array_reserve(g->source, g->sources_capacity, g->n_sources + 1);
    g->source[g->n_sources++] = source;
}

static void record_sources(struct recording *g, const struct step *s)
{
    for (int node = 1; node < s->draft->n; node++)
        add_source(g, s->draft->source[node]);
    for (int i = 1; i <= transcript_accepted(s); i++)
        add_source(g, s->draft->source[s->verification->node[i]]);
}

// All acceptance tests of a step, also beyond the end of a text: these are raw facts, and views cut them.
static void record_trials(const struct recorder *r, struct recording *g, const struct step *s)
{
    const struct draft *d = s->draft;
    for (int node = 1; node < d->n; node++) {
        if (isnan(s->verification->trial_p[node]))
            continue;
        array_reserve(g->trial, g->trials_capacity, g->n_trials + 1);
        bool deterministic = d->proposal[node] == DETERMINISTIC;
        g->trial[g->n_trials++] = (struct trial_row){ node,
                                                      draft_depth(d, node),
                                                      draft_rank(d, node),
                                                      d->token[node],
                                                      d->proposal[node],
                                                      s->verification->trial_p[node],
                                                      deterministic ? NAN : s->verification->trial_q[node],
                                                      is_on_path(s, node),
                                                      r->parts > 0 ? r->source_name[d->source[node]] : NULL };
    }
}

static struct pending_step *pending_of(const struct recorder *r, const struct draft *d)
{
    for (int i = 0; i < r->n_pending; i++)
        if (r->pending[i].draft == d)
            return &r->pending[i];
    return NULL;
}

// The token that rule `match` draws after a node, which rows with missing entries do not tell.
static struct drawn draw_of(const struct recorder *r, const struct verified *j, int node)
{
    struct rng *rng = j->request->rng;
    const struct address at = { FOR_TOKEN, rng->root + draft_depth(j->request->draft, node) + 1, 0 };
    return r->rows == ROWS_FULL || rng->pick_row == NULL
               ? (struct drawn){ -1, -1 }
               : (struct drawn){ at.position, rng->pick_row(rng, j->p->row(j->p, node), r->vocab, at) };
}

// p of every node, then q of every node with children that were drawn from it.
static void pack_rows(struct recorder *r, const struct verified *j, struct text *to)
{
    const struct draft *d = j->request->draft;
    r->vocab = j->p->vocab;
    to->n = 0;
    for (int row = 0; row < 2 * d->n; row++) {
        const int node = row % d->n;
        int32_t child[MAX_NODES];
        int n = 0, sampled = 0;
        for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c)) {
            child[n++] = d->token[c];
            sampled += d->proposal[c] != DETERMINISTIC;
        }
        if (row < d->n)
            row_pack(j->p->row(j->p, node), r->vocab, r->rows, child, n, draw_of(r, j, node), to);
        else if (sampled > 0)
            row_pack(d->q->row(d->q, node), r->vocab, r->rows, child, n, (struct drawn){ -1, -1 }, to);
    }
}

static void observe(void *self, const struct verified *j)
{
    struct recorder *r = self;
    struct pending_step *p = pending_of(r, j->request->draft);
    if (p == NULL) {
        r->pending = xrealloc(r->pending, (size_t)(r->n_pending + 1) * sizeof(*r->pending));
        p = &r->pending[r->n_pending++];
        *p = (struct pending_step){ .draft = j->request->draft };
    }
    if (r->expecter != NULL)
        expect(r->expecter, j, &p->expectation);
    if (r->rows != ROWS_NONE)
        pack_rows(r, j, &p->rows);
}

static void *copy_of(const void *from, size_t bytes)
{
    return memcpy(xmalloc(bytes + 1), from, bytes);
}

static void record_draft(const struct recorder *r, struct recording *g, const struct step *s, const struct text *rows)
{
    const size_t nodes = (size_t)s->draft->n, ids = nodes * sizeof(int32_t);
    array_reserve(g->draft, g->drafts_capacity, g->n_drafts + 1);
    struct draft_row *to = &g->draft[g->n_drafts++];
    *to = (struct draft_row){ .position = s->position,
                              .n = s->draft->n,
                              .token = copy_of(s->draft->token, ids),
                              .parent = copy_of(s->draft->parent, ids),
                              .proposal = copy_of(s->draft->proposal, nodes),
                              .n_out = s->verification->n,
                              .out = copy_of(s->verification->token, (size_t)s->verification->n * sizeof(int32_t)),
                              .entries = r->rows == ROWS_FULL ? 0 : r->rows };
    to->rows = rows_pack(rows, r->vocab, &to->bytes);
}

static void free_drafts(struct recording *g)
{
    for (size_t i = 0; i < g->n_drafts; i++) {
        const struct draft_row *d = &g->draft[i];
        free((void *)d->token);
        free((void *)d->parent);
        free((void *)d->proposal);
        free((void *)d->out);
        free((void *)d->rows);
    }
    g->n_drafts = 0;
}

static void record_expected(struct recording *g, const struct expectation *x)
{
    for (int i = 0; i < x->n; i++) {
        array_reserve(g->expected, g->expected_capacity, g->n_expected + 1);
        g->expected[g->n_expected++] =
            (struct expected_row){ x->by[i].rule, x->by[i].lossless, x->by[i].accepted, x->by[i].first };
    }
}

static void record_step(void *self, const struct step *s)
{
    struct recorder *r = self;
    struct recording *g = recording_of(r, s->sequence);
    r->tokens += s->kept;
    if (g == NULL)
        return;
    size_t before = g->n_trials;
    if (r->trials)
        record_trials(r, g, s);
    if (r->parts > 0)
        record_sources(g, s);
    const struct pending_step *p = pending_of(r, s->draft);
    const struct expectation *x = p != NULL && r->expecter != NULL ? &p->expectation : NULL;
    if (x != NULL)
        record_expected(g, x);
    if (r->rows != ROWS_NONE)
        record_draft(r, g, s, &p->rows);
    array_reserve(g->step, g->steps_capacity, g->n_steps + 1);
    g->step[g->n_steps++] = (struct step_row){
        .drafted = s->draft->n - 1,
        .depth = draft_max_depth(s->draft),
        .accepted = transcript_accepted(s),
        .expected = x != NULL ? x->accepted : NAN,
        .variance = x != NULL ? x->variance : NAN,
        .accepted_uncut = x != NULL ? x->accepted_uncut : -1,
        .n_by_rule = x != NULL ? x->n : 0,
        .propose_ns = s->propose_ns,
        .verify_ns = s->verify_ns,
        .advance_ns = s->advance_ns,
        .at_ns = s->at_ns,
        .batch = s->batch,
        .round = r->round,
        .experts = s->experts,
        .n_trials = (int)(g->n_trials - before),
    };
}

static void record_end(void *self, const struct ending *e)
{
    struct recording *g = recording_of(self, e->sequence);
    if (g == NULL)
        return;
    g->token = xrealloc(g->token, ((size_t)e->n + 1) * sizeof(*g->token));
    memcpy(g->token, e->token, (size_t)e->n * sizeof(*g->token));
    g->n = e->n;
    g->prefill_ns = e->prefill_ns;
    g->shared = e->shared;
    g->decode_ns = e->decode_ns;
    g->wall_ns = e->wall_ns;
    g->stop = stop_name(e->why);
    g->state = DONE;
}

struct recorder *recorder_create(int slots, bool trials)
{
    struct recorder *r = xcalloc(1, sizeof(*r));
    r->slots = slots;
    r->trials = trials;
    r->recording = xcalloc((size_t)slots, sizeof(*r->recording));
    return r;
}

void recorder_destroy(struct recorder *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < r->slots; i++) {
        free(r->recording[i].step);
        free(r->recording[i].trial);
        free(r->recording[i].expected);
        free(r->recording[i].source);
        free(r->recording[i].by_source);
        free(r->recording[i].token);
        free_drafts(&r->recording[i]);
        free(r->recording[i].draft);
    }
    for (int i = 0; r->parts > 0 && i < 1 << r->parts; i++)
        free(r->source_name[i]);
    free(r->source_name);
    expecter_destroy(r->expecter);
    for (int i = 0; i < r->n_pending; i++)
        free(r->pending[i].rows.s);
    free(r->recording);
    free(r->pending);
    free(r);
}

struct listener recorder_listener(struct recorder *r)
{
    return (struct listener){ record_step, record_end, r };
}

struct step_observer recorder_observer(struct recorder *r)
{
    return (struct step_observer){ .verified = observe, .self = r };
}

void recorder_set_expecter(struct recorder *r, struct expecter *e)
{
    r->expecter = e;
}

void recorder_set_rows(struct recorder *r, int entries)
{
    r->rows = entries;
}

void recorder_set_drafter(struct recorder *r, const struct drafter *d)
{
    r->parts = d->parts;
    r->source_name = d->parts > 0 ? xcalloc((size_t)1 << d->parts, sizeof(*r->source_name)) : NULL;
    for (int i = 0; d->parts > 0 && i < 1 << d->parts; i++) {
        struct text t = { 0 };
        for (int k = 0; k < d->parts; k++)
            if (i >> k & 1)
                text_printf(&t, "%s%s", t.n > 0 ? "+" : "", d->part[k]);
        r->source_name[i] = t.s;
    }
}

void recorder_set_round(struct recorder *r, int round)
{
    r->round = round;
}

int64_t recorder_tokens(const struct recorder *r)
{
    return r->tokens;
}

void recorder_begin(struct recorder *r, int64_t sequence)
{
    int i = 0;
    while (i < r->slots && r->recording[i].state != FREE)
        i++;
    assert(i < r->slots);
    struct recording *g = &r->recording[i];
    g->state = RECORDING;
    g->sequence = sequence;
    g->n_steps = g->n_trials = g->n_expected = g->n_sources = 0;
    free_drafts(g);
}

// The draft tokens of a step by source. left: tokens of the text that earlier steps did not add (results/facts.c).
static int count_sources(const struct recorder *r, const uint8_t *source, const struct step_row *s, int left,
                         struct source_row *to)
{
    int drafted[1 << 8] = { 0 }, accepted[1 << 8] = { 0 }, n = 0;
    for (int i = 0; i < s->drafted; i++)
        drafted[source[i]]++;
    for (int i = 0; i < s->accepted && i < left; i++)
        accepted[source[s->drafted + i]]++;
    for (int i = 1; i < 1 << r->parts; i++)
        if (drafted[i] > 0)
            to[n++] = (struct source_row){ r->source_name[i], drafted[i], accepted[i] };
    return n;
}

// Sets by_source of all steps.
static void take_sources(const struct recorder *r, struct recording *g)
{
    array_reserve(g->by_source, g->by_source_capacity, g->n_sources); // a row has at least one draft token
    const uint8_t *source = g->source;
    struct source_row *row = g->by_source;
    for (size_t i = 0, begun = 0; i < g->n_steps; i++) {
        struct step_row *s = &g->step[i];
        const int left = (int)begun < g->n ? g->n - (int)begun : 0;
        s->by_source = row;
        s->n_by_source = s->drafted > 0 ? count_sources(r, source, s, left, row) : 0;
        row += s->n_by_source;
        source += s->drafted + s->accepted;
        begun += (size_t)s->accepted + 1;
    }
}

int64_t recorder_take(struct recorder *r, struct sequence_row *to)
{
    for (int i = 0; i < r->slots; i++) {
        struct recording *g = &r->recording[i];
        if (g->state != DONE)
            continue;
        g->state = FREE;
        size_t trial = 0, expected = 0;
        for (size_t s = 0; s < g->n_steps; s++) { // the arrays are not reallocated any more
            g->step[s].trial = g->trial != NULL ? g->trial + trial : NULL;
            g->step[s].by_rule = g->expected != NULL ? g->expected + expected : NULL;
            g->step[s].draft = g->n_drafts > 0 ? &g->draft[s] : NULL;
            trial += (size_t)g->step[s].n_trials;
            expected += (size_t)g->step[s].n_by_rule;
        }
        if (r->parts > 0)
            take_sources(r, g);
        *to = (struct sequence_row){
            .new_tokens = g->n,
            .shared_tokens = g->shared,
            .prefill_ns = g->prefill_ns,
            .decode_ns = g->decode_ns,
            .wall_ns = g->wall_ns,
            .token = g->token,
            .stop = g->stop,
            .step = g->step,
            .n_steps = (int)g->n_steps,
        };
        return g->sequence;
    }
    return -1;
}
