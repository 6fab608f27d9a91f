#include "commands/exact/bits_run.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/environment.h"
#include "experiments/observed_cell.h"
#include "drafters/drafter.h"
#include "core/interrupt.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "results/exact_rows.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

struct said { // of a slot in one step: what was fed and stood, and nodes of the draft
    int n, place;
    int32_t token[MAX_NODES], node[MAX_NODES];
};

struct bits {
    struct exact_cell c;
    const struct bits_plan *plan;
    struct kv_cache *cache; // what is fed one by one
    struct tensor one;      // (1, vocab)
    float **scored;         // (slots) (nodes, vocab) logits of the drafts of this step
    struct said *said;      // (slots) in this step; n 0: it was not in it
    float *mine;            // (vocab) logits of one row, on the host
    int64_t of[MAX_SLOTS];  // the text in each slot
    int64_t started;
    struct compared seen;
};

// ---- one by one

// n tokens behind the slot's text.
static bool feed(struct bits *b, int slot, const int32_t *token, int n, struct states *out, struct error *err)
{
    int32_t slots[VERIFIER_CHUNK], parent[VERIFIER_CHUNK], kept[VERIFIER_CHUNK];
    for (int i = 0; i < n; i++) {
        slots[i] = slot;
        parent[i] = i - 1;
        kept[i] = i;
    }
    const struct pass pass = { .n = n, .token = token, .slot = slots, .parent = parent };
    struct model *m = b->c.opened->target.model;
    if (!model_forward(m, b->cache, &pass, NULL, out, err) || !model_backend(m)->sync(model_backend(m), err))
        return false;
    kv_keep(b->cache, slot, kept, n);
    return true;
}

static bool feed_prompt(struct bits *b, int slot, const int32_t *token, int n, struct error *err)
{
    struct states ignored;
    bool ok = true;
    kv_cut(b->cache, slot, 0);
    for (int i = 0; i < n && ok; i += VERIFIER_CHUNK)
        ok = feed(b, slot, token + i, n - i < VERIFIER_CHUNK ? n - i : VERIFIER_CHUNK, &ignored, err);
    return ok;
}

static void download(struct bits *b, float *to, struct tensor from)
{
    struct backend *k = b->c.opened->target.backend;
    k->download(k, to, from.data, (size_t)from.rows * (size_t)from.width * sizeof(*to));
}

static bool logits_after(struct bits *b, int slot, int32_t token, struct error *err)
{
    struct states states;
    if (!feed(b, slot, &token, 1, &states, err))
        return false;
    model_logits(b->c.opened->target.model, b->one, states.last);
    struct backend *k = b->c.opened->target.backend;
    if (!k->sync(k, err))
        return false;
    download(b, b->mine, b->one);
    return true;
}

// ---- on the way

static void scored(void *self, const struct request *r, struct tensor logits)
{
    struct bits *b = self;
    download(b, b->scored[r->slot], logits);
}

// The step is not over, and the model is in use: comparing waits until it is.
static void verified(void *self, const struct verified *j)
{
    struct said *said = &((struct bits *)self)->said[j->request->slot];
    said->n = j->verification->n;
    said->place = j->request->n;
    for (int i = 0; i < said->n; i++) {
        said->node[i] = j->verification->node[i];
        said->token[i] = j->request->draft->token[said->node[i]];
    }
}

// The text goes on as it was emitted, whatever one by one would have said: after a difference it is compared all the
// same.
static bool compare(struct bits *b, int slot, struct error *err)
{
    struct said *said = &b->said[slot];
    const int vocab = (int)b->one.width;
    for (int i = 0; i < said->n; i++) {
        if (!logits_after(b, slot, said->token[i], err))
            return false;
        compared_add(&b->seen, b->mine, b->scored[slot] + (size_t)said->node[i] * (size_t)vocab, vocab, b->of[slot],
                     said->place + i);
    }
    said->n = 0;
    return true;
}

static void done(void *self, const struct ending *e)
{
    (void)self, (void)e;
}

static bool start_next(struct bits *b, struct decoder *d, struct error *err)
{
    struct ids ids = { 0 };
    int slot;
    bool ok =
        exact_cell_start(&b->c, d, b->started, &slot, &ids, err) && feed_prompt(b, slot, ids.id, (int)ids.n - 1, err);
    if (ok)
        b->of[slot] = b->started++;
    free(ids.id);
    return ok;
}

static bool decode_until_enough(struct bits *b, struct decoder *d, struct error *err)
{
    bool ok = true;
    while (ok && b->seen.rows < b->plan->tokens) {
        while (ok && decoder_has_free_slot(d))
            ok = start_next(b, d, err);
        ok = ok && interrupt_is_none(b->plan->stop, err) && decoder_step(d, err);
        for (int slot = 0; slot < b->c.slots && ok; slot++)
            ok = compare(b, slot, err);
    }
    return ok;
}

// ---- a cell

static bool open_bits(struct bits *b, struct error *err)
{
    const struct step_observer observer = { scored, verified, b };
    if (!exact_cell_open(&b->c, observer, err))
        return false;
    struct loaded_experiment *o = b->c.opened;
    struct model *m = o->target.model;
    const int vocab = model_shape(m)->vocab;
    struct kv_shape shape = model_kv_shape(m, b->c.slots, o->context + 1, VERIFIER_CHUNK);
    shape.type = o->target.cache;
    b->cache = kv_create(o->target.backend, &shape, err);
    b->one = rows_on(o->target.backend, 1, vocab);
    if (b->cache == NULL || b->one.data == NULL)
        return b->cache == NULL ? false : fail(err, "no room for a row of logits");
    b->mine = xcalloc((size_t)vocab, sizeof(*b->mine));
    b->said = xcalloc((size_t)b->c.slots, sizeof(*b->said));
    b->scored = xcalloc((size_t)b->c.slots, sizeof(*b->scored));
    for (int i = 0; i < b->c.slots; i++)
        b->scored[i] = xcalloc((size_t)b->c.pairing.drafter->nodes * (size_t)vocab, sizeof(**b->scored));
    b->seen = compared_nothing(rounding_limit(model_activations(m), o->target.cache));
    return true;
}

static void close_bits(struct bits *b)
{
    struct backend *k = b->c.opened->target.backend;
    kv_destroy(b->cache);
    if (b->one.data != NULL)
        k->release(k, b->one.data);
    for (int i = 0; i < b->c.slots && b->scored != NULL; i++)
        free(b->scored[i]);
    free(b->scored);
    free(b->said);
    free(b->mine);
    exact_cell_close(&b->c);
    free(b);
}

static void print(const struct bits *b)
{
    const struct experiment *e = b->c.e;
    const struct compared *c = &b->seen;
    FILE *to = b->plan->out;
    fprintf(to, "%s, %s, %s, batch %d\n  %lld rows of logits of verifying passes beside those of one token at a time: ",
            e->drafter.entry[b->c.cell.drafter].shown, e->rule.entry[b->c.cell.rule].shown,
            e->sampling.entry[b->c.cell.sampling].shown, b->c.slots, (long long)c->rows);
    if (c->different == 0)
        fprintf(to, "every bit is the same\n");
    else
        fprintf(
            to,
            "%lld differ, by %.3g at most, which\n  is %.3g of that row's spread (rounding, as the target is set: up "
            "to %g); %lld by more than rounding does. In %lld of them the\n  first two are near enough to turn; the "
            "likeliest token differs in %lld\n",
            (long long)c->different, c->largest, c->share, c->limit, (long long)c->bugs, (long long)c->ties,
            (long long)c->turned);
    if (c->first.sequence >= 0)
        fprintf(to, "  The first: text %lld, place %d, logits off by %.3g, the first two %.3g apart: a %s\n",
                (long long)c->first.sequence, c->first.place, c->first.moved, c->first.apart,
                c->first.bug ? "bug" : "tie");
    if (b->c.opened->target.backend->varies)
        fprintf(to,
                "  (Device %s: a row's bits depend on what is beside it in the pass; equal ones are not promised.)\n",
                e->device);
    fprintf(to, "  Verdict: %s.\n", same_names[compared_same(c)]);
    fflush(to);
}

static bool keep(const struct bits *b, struct store *s, struct error *err)
{
    const struct experiment *e = b->c.e;
    const struct compared *c = &b->seen;
    struct identity identity = cell_identity(b->c.opened, b->c.cell, b->c.pairing.drafter);
    const struct exact_bits_row row = {
        .experiment = e->name,
        .cell = identity.hash,
        .settings = identity.settings,
        .target = e->target,
        .drafter = e->drafter.entry[b->c.cell.drafter].shown,
        .rule = e->rule.entry[b->c.cell.rule].shown,
        .sampling = e->sampling.entry[b->c.cell.sampling].shown,
        .machine = identity.machine,
        .revision = speclab_revision(),
        .verdict = same_names[compared_same(c)],
        .rows = c->rows,
        .different = c->different,
        .ties = c->ties,
        .turned = c->turned,
        .bugs = c->bugs,
        .largest = c->largest,
    };
    bool ok = store_exact_bits(s, &row, err);
    identity_free(&identity);
    return ok;
}

struct all {
    const struct experiment *e;
    struct store *store;
    const struct bits_plan *plan;
    enum same worst;
};

static bool one_of_all(void *self, struct loaded_experiment *opened, struct cell cell, struct error *err)
{
    struct all *all = self;
    struct bits *b = xcalloc(1, sizeof(*b));
    *b = (struct bits){ .c = { .e = all->e, .opened = opened, .cell = cell }, .plan = all->plan };
    bool ok = open_bits(b, err);
    struct decoder *d = !ok ? NULL
                            : decoder_create(b->c.pairing.verifier, b->c.pairing.drafter, b->c.slots, all->e->seed,
                                             (struct listener){ .done = done }, err);
    ok = ok && d != NULL && decode_until_enough(b, d, err);
    decoder_destroy(d);
    if (ok) {
        print(b);
        all->worst = compared_same(&b->seen) > all->worst ? compared_same(&b->seen) : all->worst;
        ok = keep(b, all->store, err);
    }
    close_bits(b);
    return ok;
}

bool bits_run(const struct experiment *e, struct store *s, const struct bits_plan *plan, enum same *worst,
              struct error *err)
{
    struct all all = { e, s, plan, SAME_BITS };
    bool ok = each_exact_cell(e, one_of_all, &all, err);
    *worst = all.worst;
    return ok;
}
