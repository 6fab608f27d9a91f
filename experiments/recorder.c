// recorder.c - records steps. Each slot has arrays of steps, trials, expectations and drafts with their rows, which are
// reused for the slot's next sequence.
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
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

#define LIST(type) \
    struct { \
        type *at; \
        size_t n, capacity; \
    }
#define list_add(list, ...) \
    do { \
        array_reserve((list).at, (list).capacity, (list).n + 1); \
        (list).at[(list).n++] = __VA_ARGS__; \
    } while (0)

struct recording { // what is recorded about one sequence
    enum { FREE, RECORDING, DONE } state;
    int64_t sequence;
    LIST(struct step_row) step;
    // The lists are in the order of the steps.
    LIST(struct trial_row) trial;
    LIST(struct expected_row) expected;
    LIST(uint8_t) source;              // sources of each step's draft tokens, then of its accepted ones
    LIST(struct source_row) by_source; // filled by recorder_take
    LIST(struct draft_row) draft;      // one for each step, with its own arrays; empty unless rows are recorded
    int32_t *token;                    // (n)
    int n;
    int64_t prefill_ns, decode_ns, wall_ns;
    int shared;
    const char *stop;
};

struct pending_step {     // a verified step that is not yet reported; reused by the next step with this draft
    const int32_t *draft; // its tokens
    struct expectation expectation;
    struct text rows; // rows that are not yet compressed
};

struct recorder {
    int slots;
    bool trials;
    int round;
    int64_t tokens;
    struct expecter *expecter;    // NULL: expectations are not recorded
    int rows;                     // entries of a row that are recorded, ROWS_FULL or ROWS_NONE
    int vocab;                    // size of the rows
    struct pending_step *pending; // (n_pending)
    int n_pending;
    struct recording *recording; // (slots)
    int parts;                   // number of the drafter's parts
    char **source_name;          // (2^parts) names by the bits of draft.source
};

static struct recording *recording_of(struct recorder *r, int64_t sequence)
{
    for (int i = 0; i < r->slots; i++)
        if (r->recording[i].state == RECORDING && r->recording[i].sequence == sequence)
            return &r->recording[i];
    return NULL; // a warm-up or a filler is not recorded
}

static bool is_on_path(const struct speclab_step *s, int node)
{
    for (int i = 1; i < s->decided; i++)
        if (s->node[i] == node)
            return true;
    return false;
}

static void record_sources(struct recording *g, const struct speclab_step *s)
{
    for (int node = 1; node <= s->drafted; node++)
        list_add(g->source, s->source[node]);
    for (int i = 1; i <= s->accepted; i++)
        list_add(g->source, s->source[s->node[i]]);
}

// Records all acceptance tests of a step, even beyond the end of a text: these are raw facts, and views cut them.
static void record_trials(const struct recorder *r, struct recording *g, const struct speclab_step *s)
{
    const struct draft d = step_draft(s);
    for (int node = 1; node < d.n; node++) {
        if (isnan(s->p[node]))
            continue;
        bool deterministic = d.proposal[node] == DETERMINISTIC;
        list_add(g->trial,
                 (struct trial_row){ node, draft_depth(&d, node), draft_rank(&d, node), d.token[node], d.proposal[node],
                                     s->p[node], deterministic ? NAN : s->q[node], is_on_path(s, node),
                                     r->parts > 0 ? r->source_name[d.source[node]] : NULL });
    }
}

static struct pending_step *pending_of(const struct recorder *r, const int32_t *draft)
{
    for (int i = 0; i < r->n_pending; i++)
        if (r->pending[i].draft == draft)
            return &r->pending[i];
    return NULL;
}

// Returns the token that the rule `match` draws after a node, which cannot be computed from rows with missing entries.
static struct drawn draw_of(const struct recorder *r, const struct verified *j, int node)
{
    struct rng *rng = j->request->rng;
    const struct address at = { FOR_TOKEN, rng->root + draft_depth(j->request->draft, node) + 1, 0 };
    return r->rows == ROWS_FULL || rng->pick_row == NULL
               ? (struct drawn){ -1, -1 }
               : (struct drawn){ at.position, rng->pick_row(rng, j->p->row(j->p, node), r->vocab, at) };
}

// Packs p of every node, then q of every node with children that were drawn from it.
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

static void record_decided(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    struct recorder *r = self;
    struct pending_step *p = pending_of(r, s->draft);
    if (p == NULL) {
        r->pending = xrealloc(r->pending, (size_t)(r->n_pending + 1) * sizeof(*r->pending));
        p = &r->pending[r->n_pending++];
        *p = (struct pending_step){ .draft = s->draft };
    }
    if (r->expecter != NULL)
        expect(r->expecter, rows->of, &p->expectation);
    if (r->rows != ROWS_NONE)
        pack_rows(r, rows->of, &p->rows);
}

static void *copy_of(const void *from, size_t bytes)
{
    return memcpy(xmalloc(bytes + 1), from, bytes);
}

static void record_draft(const struct recorder *r, struct recording *g, const struct speclab_step *s,
                         const struct text *rows)
{
    const size_t nodes = (size_t)s->drafted + 1, ids = nodes * sizeof(int32_t);
    struct draft_row to = { .position = s->position,
                            .n = s->drafted + 1,
                            .token = copy_of(s->draft, ids),
                            .parent = copy_of(s->parent, ids),
                            .proposal = copy_of(s->proposal, nodes),
                            .n_out = s->decided,
                            .out = copy_of(s->token, (size_t)s->decided * sizeof(int32_t)),
                            .entries = r->rows == ROWS_FULL ? 0 : r->rows };
    to.rows = rows_pack(rows, r->vocab, &to.bytes);
    list_add(g->draft, to);
}

static void free_drafts(struct recording *g)
{
    for (size_t i = 0; i < g->draft.n; i++) {
        const struct draft_row *d = &g->draft.at[i];
        free((void *)d->token);
        free((void *)d->parent);
        free((void *)d->proposal);
        free((void *)d->out);
        free((void *)d->rows);
    }
    g->draft.n = 0;
}

static void record_step(void *self, const struct speclab_step *s)
{
    struct recorder *r = self;
    struct recording *g = recording_of(r, s->sequence);
    r->tokens += s->n;
    if (g == NULL)
        return;
    size_t before = g->trial.n;
    if (r->trials)
        record_trials(r, g, s);
    if (r->parts > 0)
        record_sources(g, s);
    const struct pending_step *p = pending_of(r, s->draft);
    const struct expectation *x = p != NULL && r->expecter != NULL ? &p->expectation : NULL;
    for (int i = 0; x != NULL && i < x->n; i++)
        list_add(g->expected, x->by[i]);
    if (r->rows != ROWS_NONE)
        record_draft(r, g, s, &p->rows);
    const struct step_row row = {
        .drafted = s->drafted,
        .depth = s->depth,
        .accepted = s->accepted,
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
        .n_trials = (int)(g->trial.n - before),
    };
    list_add(g->step, row);
}

static void record_end(void *self, const struct speclab_end *e)
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
    g->stop = e->reason;
    g->state = DONE;
}

struct recorder *recorder_create(int slots, bool trials, int rows)
{
    struct recorder *r = xcalloc(1, sizeof(*r));
    *r = (struct recorder){
        .slots = slots, .trials = trials, .rows = rows, .recording = xcalloc((size_t)slots, sizeof(*r->recording))
    };
    return r;
}

void recorder_destroy(struct recorder *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < r->slots; i++) {
        free(r->recording[i].step.at);
        free(r->recording[i].trial.at);
        free(r->recording[i].expected.at);
        free(r->recording[i].source.at);
        free(r->recording[i].by_source.at);
        free(r->recording[i].token);
        free_drafts(&r->recording[i]);
        free(r->recording[i].draft.at);
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

struct speclab_listener recorder_listener(struct recorder *r, bool observes)
{
    return (struct speclab_listener){
        .step = record_step, .end = record_end, .self = r, .decided = observes ? record_decided : NULL
    };
}

void recorder_set_drafter(struct recorder *r, const struct drafter *d, struct expecter *e)
{
    r->expecter = e;
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
    g->step.n = g->trial.n = g->expected.n = g->source.n = 0;
    free_drafts(g);
}

// Counts the draft tokens of a step by source. left: tokens of the text that earlier steps did not add (facts.c).
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
    array_reserve(g->by_source.at, g->by_source.capacity, g->source.n); // each row has at least one draft token
    const uint8_t *source = g->source.at;
    struct source_row *row = g->by_source.at;
    for (size_t i = 0, begun = 0; i < g->step.n; i++) {
        struct step_row *s = &g->step.at[i];
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
    for (struct recording *g = r->recording; g < r->recording + r->slots; g++) {
        if (g->state != DONE)
            continue;
        g->state = FREE;
        size_t trial = 0, expected = 0;
        for (size_t i = 0; i < g->step.n; i++) { // the arrays are not reallocated from here on
            struct step_row *s = &g->step.at[i];
            s->trial = g->trial.at != NULL ? g->trial.at + trial : NULL;
            s->by_rule = g->expected.at != NULL ? g->expected.at + expected : NULL;
            s->draft = g->draft.n > 0 ? &g->draft.at[i] : NULL;
            trial += (size_t)s->n_trials;
            expected += (size_t)s->n_by_rule;
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
            .step = g->step.at,
            .n_steps = (int)g->step.n,
        };
        return g->sequence;
    }
    return -1;
}
