#include "commands/heads_run.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "decode/decode.h"
#include "drafters/drafter.h"
#include "experiments/observed_cell.h"
#include "core/interrupt.h"
#include "models/model.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "verifier/verifier.h"

struct heads {
    struct exact_cell c;
    const struct heads_plan *plan;
    struct heads_seen seen;
    int32_t *text; // (context + 1)
    int n, prompt; // of the text at hand
    struct draft draft;
    bool asked; // the drafter answers
};

// ---- the target's own text

static void done(void *self, const struct ending *e)
{
    struct heads *h = self;
    memcpy(h->text + h->n, e->token, (size_t)e->n * sizeof(int32_t));
    h->n += e->n;
}

static bool write_text(struct heads *h, int64_t number, struct error *err)
{
    struct ids prompt = { 0 };
    int slot;
    struct decoder *d = decoder_create(h->c.pairing.verifier, h->c.pairing.drafter, h->c.slots, h->c.e->seed,
                                       (struct listener){ NULL, done, h }, err);
    bool ok = d != NULL && exact_cell_start(&h->c, d, number, &slot, &prompt, err);
    if (ok) {
        memcpy(h->text, prompt.id, prompt.n * sizeof(int32_t));
        h->n = h->prompt = (int)prompt.n;
    }
    while (ok && decoder_active(d) > 0)
        ok = interrupt_is_none(h->plan->stop, err) && decoder_step(d, err);
    decoder_destroy(d);
    free(prompt.id);
    return ok;
}

// ---- read once more

// The text's first n tokens go into both caches.
static bool read_up_to(struct heads *h, int n, struct error *err)
{
    const struct pairing *p = &h->c.pairing;
    for (;;) {
        struct advance a;
        if (!verifier_prefill(p->verifier, 0, h->text, n, &a, err))
            return false;
        if (a.n == 0)
            return true;
        a.sequence = h->text;
        a.length = (int)(a.token - h->text) + a.n;
        if (p->drafter->type->advance != NULL && !p->drafter->type->advance(p->drafter, &a, 1, err))
            return false;
    }
}

static void count(struct heads *h, const int *rank, int n)
{
    for (int d = 0; d < n && rank[d] != RANK_NOT_REQUESTED; d++) {
        h->asked = true;
        h->seen.depth = d + 1 > h->seen.depth ? d + 1 : h->seen.depth;
        h->seen.places[d]++;
        h->seen.unknown += d == 0 && rank[d] >= model_shape(h->c.opened->target.model)->vocab;
        if (rank[d] < HEADS_RANKS)
            h->seen.ranked[d][rank[d]]++;
    }
}

// What the drafter thinks of the tokens behind the first n.
static bool ask(struct heads *h, int n, struct error *err)
{
    const struct pairing *p = &h->c.pairing;
    int rank[HEADS_DEPTH];
    const int most = h->n - n < HEADS_DEPTH ? h->n - n : HEADS_DEPTH;
    const struct forced forced = { most, h->text + n, rank };
    struct philox chance = philox_source(h->c.e->seed, 0);
    chance.rng.root = n - 1;
    for (int d = 0; d < HEADS_DEPTH; d++)
        rank[d] = RANK_NOT_REQUESTED;
    h->draft.n = 1;
    h->draft.capacity = p->drafter->nodes;
    h->draft.token[0] = h->text[n - 1];
    h->draft.parent[0] = -1;
    h->draft.proposal[0] = DETERMINISTIC;
    h->draft.q = NULL;
    struct request r = {
        .n = n, .token = h->text, .rng = &chance.rng, .draft = &h->draft, .depth = most, .forced = &forced
    };
    if (!p->drafter->type->propose(p->drafter, &r, 1, err))
        return false;
    count(h, rank, most);
    return true;
}

static void forget(struct heads *h)
{
    const struct pairing *p = &h->c.pairing;
    verifier_forget(p->verifier, 0);
    if (p->drafter->type->forget != NULL)
        p->drafter->type->forget(p->drafter, 0);
}

static bool examine(struct heads *h, struct error *err)
{
    bool ok = true;
    for (int n = h->prompt; n < h->n && ok && h->seen.places[0] < h->plan->tokens; n++) {
        ok = interrupt_is_none(h->plan->stop, err) && read_up_to(h, n, err) && ask(h, n, err);
        if (!h->asked && n > h->prompt) // behind a single token a head has no state yet
            break;
    }
    forget(h);
    return ok;
}

// ---- a drafter

static void print(const struct heads *h)
{
    const struct heads_seen *s = &h->seen;
    const struct experiment *e = h->c.e;
    FILE *to = h->plan->out;
    fprintf(to, "%s, %s\n", e->drafter.entry[h->c.cell.drafter].shown, e->sampling.entry[h->c.cell.sampling].shown);
    if (!h->asked) {
        fprintf(to, "  it has no rows of its own: nothing to examine\n");
        return;
    }
    fprintf(to,
            "  %lld places of %lld texts of the target's own; share of those where its token was among the so many\n"
            "  likeliest, after so many right ones (n-alpha: n right ones were the drafter's own states)\n"
            "  right  places    1       2       3       4       5      10\n",
            (long long)s->places[0], (long long)s->texts);
    double deep = 0, all = 1;
    for (int d = 0; d < s->depth; d++) {
        double sum = 0;
        fprintf(to, "  %5d %7lld", d, (long long)s->places[d]);
        for (int r = 0; r < HEADS_RANKS; r++) {
            sum += (double)s->ranked[d][r];
            if (r < 5 || r == HEADS_RANKS - 1)
                fprintf(to, "  %.4f", sum / (double)s->places[d]);
        }
        fprintf(to, "\n");
        deep += all *= (double)s->ranked[d][0] / (double)s->places[d];
    }
    fprintf(to, "  A chain of the likeliest would go %.2f tokens deep on average, were these independent.\n", deep);
    if (s->unknown > 0)
        fprintf(to, "  Of %.2f %% of the places its vocabulary has no such token.\n",
                100 * (double)s->unknown / (double)s->places[0]);
    fflush(to);
}

static bool run_cell(struct heads *h, struct error *err)
{
    if (!exact_cell_open(&h->c, (struct step_observer){ 0 }, err))
        return false;
    const int nodes = h->c.pairing.drafter->nodes;
    h->text = xcalloc((size_t)h->c.opened->context + MAX_NODES + 1, sizeof(int32_t));
    h->draft.token = xcalloc((size_t)nodes, sizeof(int32_t));
    h->draft.parent = xcalloc((size_t)nodes, sizeof(int32_t));
    h->draft.proposal = xcalloc((size_t)nodes, sizeof(uint8_t));
    bool ok = true, more = true;
    // Without chance a prompt says the same again.
    const int64_t most = sampling_is_greedy(&h->c.pairing.sampling) ? h->c.e->prompts.n : INT64_MAX;
    for (int64_t number = 0; ok && more && number < most; number++) {
        ok = write_text(h, number, err) && examine(h, err);
        h->seen.texts++;
        const bool too_short = h->n <= h->prompt + 1 && number + 1 < h->c.e->prompts.n; // to know whether it answers
        more = (h->asked || too_short) && h->seen.places[0] < h->plan->tokens;
    }
    if (ok)
        print(h);
    if (ok && h->asked && h->plan->each != NULL)
        ok = h->plan->each(h->plan->self, h->c.e->drafter.entry[h->c.cell.drafter].shown, &h->seen, err);
    return ok;
}

struct all {
    const struct experiment *e;
    const struct heads_plan *plan;
};

static bool one_of_all(void *self, struct loaded_experiment *opened, struct cell cell, struct error *err)
{
    const struct all *all = self;
    if (cell.rule != 0 || cell.batch != 0)
        return true;
    struct heads *h = xcalloc(1, sizeof(*h));
    *h = (struct heads){ .c = { .e = all->e, .opened = opened, .cell = cell }, .plan = all->plan };
    bool ok = run_cell(h, err);
    exact_cell_close(&h->c);
    free(h->text);
    free(h->draft.token);
    free(h->draft.parent);
    free(h->draft.proposal);
    free(h);
    return ok;
}

bool heads_run(const struct experiment *e, const struct heads_plan *plan, struct error *err)
{
    struct all all = { e, plan };
    return each_exact_cell(e, one_of_all, &all, err);
}
