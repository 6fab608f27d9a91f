#include "commands/exact/exact_run.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/observed_cell.h"
#include "drafters/drafter.h"
#include "core/interrupt.h"
#include "core/files/mapped.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "results/query.h"
#include "results/store/store_schema.h"
#include "verifier/target_cache.h"

struct accepted {    // the root and the accepted tokens of a slot in a step, with their nodes
    int n, position; // position: the first one's in the text; n 0: the slot was not in the step
    int32_t token[MAX_NODES], node[MAX_NODES];
};

struct bits {
    struct observed_cell *c;
    const struct exact_plan *plan;
    struct kv_cache *cache;      // fed one token at a time
    struct tensor row;           // (1, vocab)
    float **scored;              // (slots) (nodes, vocab) logits of this step's drafts
    struct accepted *accepted;   // (slots) of this step
    float *single;               // (vocab) logits of decoding one token, on the host
    int64_t sequence[MAX_SLOTS]; // number of the text in each slot
    int64_t started;             // texts
    struct logit_comparison result;
};

// ---- one token at a time

static bool feed_prompt(struct bits *b, int slot, const int32_t *token, int n, struct error *err)
{
    struct states unused;
    bool ok = true;
    kv_truncate(b->cache, slot, 0);
    for (int i = 0; i < n && ok; i += TARGET_CHUNK)
        ok = model_append(b->c->loaded->target->model, b->cache, slot, token + i,
                          n - i < TARGET_CHUNK ? n - i : TARGET_CHUNK, NULL, &unused, err);
    return ok;
}

// Sets b->single to the logits after `token`.
static bool logits_after(struct bits *b, int slot, int32_t token, struct error *err)
{
    struct states states;
    if (!model_append(b->c->loaded->target->model, b->cache, slot, &token, 1, NULL, &states, err))
        return false;
    model_logits(b->c->loaded->target->model, b->row, states.last);
    struct backend *k = b->c->loaded->target->backend;
    if (!k->sync(k, err))
        return false;
    k->download(k, b->single, b->row.data, tensor_bytes(b->row));
    return true;
}

// ---- verification passes

static void scored(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    struct bits *b = self;
    const size_t vocab = (size_t)b->row.width;
    for (int node = 0; node <= s->drafted; node++)
        memcpy(b->scored[s->slot] + (size_t)node * vocab, speclab_rows_logits(rows, node), vocab * sizeof(float));
}

// Called within the step, while the model is in use: the comparison follows after the step.
static void decided(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    (void)rows;
    struct accepted *a = &((struct bits *)self)->accepted[s->slot];
    a->n = s->decided;
    a->position = s->position + 1;
    for (int i = 0; i < a->n; i++) {
        a->node[i] = s->node[i];
        a->token[i] = s->draft[a->node[i]];
    }
}

// Both caches follow the emitted text, even if decoding one token at a time would have chosen another: the comparison
// continues after a difference.
static bool compare(struct bits *b, int slot, struct error *err)
{
    struct accepted *a = &b->accepted[slot];
    const int vocab = (int)b->row.width;
    for (int i = 0; i < a->n; i++) {
        if (!logits_after(b, slot, a->token[i], err))
            return false;
        comparison_add(&b->result, b->single, b->scored[slot] + (size_t)a->node[i] * (size_t)vocab, vocab,
                       b->sequence[slot], a->position + i);
    }
    a->n = 0;
    return true;
}

static bool start_next(struct bits *b, struct error *err)
{
    struct ids ids = { 0 };
    int slot;
    bool ok =
        observed_cell_start(b->c, b->started, &slot, &ids, err) && feed_prompt(b, slot, ids.id, (int)ids.n - 1, err);
    if (ok)
        b->sequence[slot] = b->started++;
    free(ids.id);
    return ok;
}

static bool decode_until_enough(struct bits *b, struct error *err)
{
    bool ok = true;
    while (ok && b->result.rows < b->plan->tokens) {
        while (ok && speclab_decoder_has_free_slot(b->c->decoder))
            ok = start_next(b, err);
        ok = ok && interrupt_check(b->plan->stop, err) && speclab_decoder_step(b->c->decoder, err);
        for (int slot = 0; slot < b->c->slots && ok; slot++)
            ok = compare(b, slot, err);
    }
    return ok;
}

// ---- a cell

static bool open_bits(struct bits *b, struct error *err)
{
    const struct speclab_listener listener = { .self = b, .decided = decided, .scored = scored };
    if (!observed_cell_open(b->c, listener, err))
        return false;
    struct loaded_experiment *o = b->c->loaded;
    struct model *m = o->target->model;
    const int vocab = model_shape(m)->vocab;
    struct kv_shape shape = model_kv_shape(m, b->c->slots, o->context + 1, TARGET_CHUNK);
    shape.type = o->target->cache;
    b->cache = kv_create(o->target->backend, &shape, err);
    b->row = rows_on(o->target->backend, 1, vocab);
    if (b->cache == NULL || b->row.data == NULL)
        return b->cache == NULL ? false : fail(err, "out of memory for a row of logits");
    b->single = xcalloc((size_t)vocab, sizeof(*b->single));
    b->accepted = xcalloc((size_t)b->c->slots, sizeof(*b->accepted));
    b->scored = xcalloc((size_t)b->c->slots, sizeof(*b->scored));
    for (int i = 0; i < b->c->slots; i++)
        b->scored[i] = xcalloc((size_t)b->c->decoder->drafter->nodes * (size_t)vocab, sizeof(**b->scored));
    b->result = comparison_start(rounding_limit(model_activations(m), o->target->cache));
    return true;
}

static void close_bits(struct bits *b)
{
    struct backend *k = b->c->loaded->target->backend;
    kv_destroy(b->cache);
    if (b->row.data != NULL)
        k->release(k, b->row.data);
    for (int i = 0; i < b->c->slots && b->scored != NULL; i++)
        free(b->scored[i]);
    free(b->scored);
    free(b->accepted);
    free(b->single);
    free(b);
}

static void print(const struct bits *b)
{
    const struct experiment *e = b->c->e;
    const struct logit_comparison *c = &b->result;
    FILE *to = b->plan->out;
    fprintf(to, "%s, %s, %s, batch %d\n  %lld rows of logits of verification passes against one token at a time: ",
            e->drafter.entry[b->c->cell.drafter].shown, e->rule.entry[b->c->cell.rule].shown,
            e->sampling.entry[b->c->cell.sampling].shown, b->c->slots, (long long)c->rows);
    if (c->different == 0)
        fprintf(to, "all bits are equal\n");
    else
        fprintf(
            to,
            "%lld differ, by at most %.3g,\n  which is %.3g of the row's spread (limit of rounding at this precision: "
            "%g); %lld differ by more than rounding.\n  In %lld rows the top 2 tokens are close enough to swap; the "
            "argmax differs in %lld\n",
            (long long)c->different, c->largest, c->share, c->limit, (long long)c->bugs, (long long)c->ties,
            (long long)c->turned);
    if (c->first.sequence >= 0)
        fprintf(to, "  First: text %lld, position %d, logits differ by %.3g, top 2 logits %.3g apart: a %s\n",
                (long long)c->first.sequence, c->first.position, c->first.moved, c->first.apart,
                c->first.bug ? "bug" : "tie");
    if (b->c->loaded->target->backend->varies)
        fprintf(to, "  (Device %s: the bits of a row depend on the other rows of a pass and need not be equal.)\n",
                b->c->loaded->chosen->device);
    fprintf(to, "  Verdict: %s.\n", agreement_names[comparison_result(c)]);
    fflush(to);
}

bool bits_store(struct store *s, const struct exact_row *r, const struct logit_comparison *c, struct error *err)
{
    const struct shown_settings shown = { r->experiment, r->settings, NULL, r->sampling, r->drafter, r->rule };
    return mapped_unchanged(err) && schema_fits(&shown, err) &&
           row_insert(s, "exact_bits", NULL, err, COLUMN("experiment", r->experiment), COLUMN("cell", r->cell),
                      COLUMN("settings", r->settings), COLUMN("target", r->target), COLUMN("drafter", r->drafter),
                      COLUMN("rule", r->rule), COLUMN("sampling", r->sampling), COLUMN("machine", r->machine),
                      COLUMN("revision", r->revision), COLUMN("verdict", agreement_names[comparison_result(c)]),
                      COLUMN("compared", c->rows), COLUMN("different", c->different), COLUMN("ties", c->ties),
                      COLUMN("argmax_changed", c->turned), COLUMN("bugs", c->bugs), COLUMN("largest", c->largest),
                      { "started", sql_expression(SQL_NOW) });
}

struct all {
    struct store *store;
    const struct exact_plan *plan;
    enum agreement worst;
};

static bool one_of_all(void *self, struct observed_cell *c, struct error *err)
{
    struct all *all = self;
    struct bits *b = xcalloc(1, sizeof(*b));
    b->c = c;
    b->plan = all->plan;
    bool ok = open_bits(b, err) && decode_until_enough(b, err);
    if (ok) {
        print(b);
        all->worst = comparison_result(&b->result) > all->worst ? comparison_result(&b->result) : all->worst;
        struct identity identity = cell_identity(c->loaded, c->cell, c->decoder->drafter);
        const struct exact_row row = exact_row_of(c, &identity);
        ok = bits_store(all->store, &row, &b->result, err);
        identity_free(&identity);
    }
    close_bits(b);
    return ok;
}

bool bits_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum agreement *worst,
              struct error *err)
{
    struct all all = { s, plan, BITWISE_EQUAL };
    const struct observed_cells cells = { e, "exact", store_path(s), plan->out, plan->stop };
    bool ok = each_observed_cell(&cells, one_of_all, &all, err);
    *worst = all.worst;
    return ok;
}
