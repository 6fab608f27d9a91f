// test_layer_drafts.c - drafts by the target's own layers, against passes over the same text that know nothing of drafts.
//
// The first layers on the target's cache draft what a model drafts that has these layers alone. Other layers are compared with a cache that a
// full pass filled, followed by a chain of passes through the chosen ones. The oracle's q is the target's p, mixed as it says.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "tests/formats/derived_model.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 200, HISTORIES = 200, TOKENS = 4 };

struct drafted {
    struct philox rng;
    struct own_draft own;
};

static struct request request(struct drafted *m, const int32_t *text, int n)
{
    m->rng = philox_source(5, 9);
    m->rng.rng.root = n - 1;
    return (struct request){
        .n = n, .token = text, .rng = &m->rng.rng, .draft = own_draft_begin(&m->own, text[n - 1], 64), .depth = 50
    };
}

// Feeds the text to the pair's target and drafter, in random parts, and proposes.
static void draft_after(struct pair *p, const int32_t *text, int n, struct drafted *m)
{
    struct error err;
    for (int upto = 2 + below(n - 1);; upto = upto + 1 + below(n) < n ? upto + 1 + below(n - upto) : n) {
        pair_feed(p, 0, text, upto, NULL);
        if (upto == n)
            break;
    }
    struct request r = request(m, text, n);
    assert_ok(p->type->propose(p->drafter, &r, 1, &err), err);
    assert_int_equal(kv_pending(verifier_cache(p->verifier), 0), 0);
    assert_int_equal(kv_length(verifier_cache(p->verifier), 0), n - 1);
}

static void forget(struct pair *p)
{
    verifier_forget(p->verifier, 0);
    if (p->type->forget != NULL)
        p->type->forget(p->drafter, 0);
}

static int random_text(int32_t *text, int vocab)
{
    const int n = 2 + below(60);
    for (int i = 0; i < n; i++)
        text[i] = below(vocab);
    return n;
}

TEST(the_first_layers_draft_as_a_model_of_them_alone)
{
    static const char *const shapes[] = { "tokens=4", "tokens=4,pick=greedy", "widths=[3,2,1]",
                                          "nodes=9,top=3,tokens=4,pick=greedy" };
    int32_t text[LENGTH];
    struct drafted a, b;
    char *first = test_path("first.gguf"), *whole = test_path("whole.gguf"); // of pair_target's numbers
    small_write_gguf(whole, &small_default);
    derived_write(whole, first, &(const struct derived){ .keep = (const int[]){ 0 }, .n = 1, .type = F32 });
    for (int s = 0; s < 4; s++) {
        char *exits = xformat("early_exit:exit_layer=1,%s", shapes[s]),
             *small = xformat("small:model=%s,activations=f32,%s", first, shapes[s]);
        struct pair *p = pair_open(pair_target, pair_draft, exits, "{temperature: 0.9}", rules[0], 1, LENGTH);
        struct pair *of = pair_open(pair_target, pair_draft, small, "{temperature: 0.9}", rules[0], 1, LENGTH);
        const int vocab = model_shape(p->target)->vocab;
        for (int h = 0; h < HISTORIES / 4; h++) {
            const int n = random_text(text, vocab);
            draft_after(p, text, n, &a);
            draft_after(of, text, n, &b);
            assert_true(a.own.draft.n > 1);
            assert_int_equal(a.own.draft.n, b.own.draft.n);
            for (int i = 1; i < a.own.draft.n; i++) {
                assert_int_equal(a.own.token[i], b.own.token[i]);
                assert_int_equal(a.own.parent[i], b.own.parent[i]);
                if (a.own.proposal[i] != DETERMINISTIC)
                    assert_memory_equal(a.own.draft.q->row(a.own.draft.q, a.own.parent[i]),
                                        b.own.draft.q->row(b.own.draft.q, b.own.parent[i]),
                                        (size_t)vocab * sizeof(float));
            }
            forget(p);
            forget(of);
        }
        pair_close(p);
        pair_close(of);
        free(exits);
        free(small);
    }
    free(first);
    free(whole);
}

// Logits after text and draft tokens: a full pass over all but the root, then a chain through `layer`.
static void plain_logits(struct pair *p, struct kv_cache *c, const int32_t *text, int n, const int *layer, int layers,
                         const int32_t *drafted, int k, float *out)
{
    int32_t slot[LENGTH] = { 0 }, parent[LENGTH], row[LENGTH];
    struct states states;
    struct error err;
    struct backend *b = p->backend;
    kv_truncate(c, 0, 0);
    for (int i = 0; i < LENGTH; i++) {
        parent[i] = i - 1;
        row[i] = i;
    }
    const struct pass prefix = { .n = n - 1, .token = text, .slot = slot, .parent = parent };
    if (n > 1) {
        assert_ok(model_forward(p->target, c, &prefix, NULL, &states, &err), err);
        kv_keep(c, 0, row, n - 1);
    }
    int32_t chain[TOKENS + 1];
    chain[0] = text[n - 1];
    for (int i = 0; i < k; i++)
        chain[1 + i] = drafted[i];
    const struct pass pass = { .n = 1 + k, .token = chain, .slot = slot, .parent = parent };
    assert_ok(model_forward_some(p->target, c, &pass, layer, layers, &states, &err), err);
    struct tensor logits = rows_on(b, 1 + k, model_shape(p->target)->vocab);
    model_logits(p->target, logits, states.last);
    assert_ok(b->sync(b, &err), err);
    b->download(b, out, tensor_rows(logits, k, 1).data, (size_t)logits.width * sizeof(float));
    b->release(b, logits.data);
}

static struct kv_cache *own_cache(struct pair *p)
{
    struct error err;
    struct kv_shape shape = model_kv_shape(p->target, 1, LENGTH, LENGTH);
    struct kv_cache *c = kv_create(p->backend, &shape, &err);
    assert_ok(c != NULL, err);
    return c;
}

TEST(other_layers_draft_as_passes_through_them)
{
    static const struct {
        const char *name;
        int n, layer[3];
    } kept[] = { { "1", 1, { 1 } }, { "[0,2]", 2, { 0, 2 } }, { "1-2", 2, { 1, 2 } }, { "0-2", 3, { 0, 1, 2 } } };
    int32_t text[LENGTH];
    struct drafted a;
    for (int s = 0; s < 4; s++) {
        char *skip = xformat("layer_skip:keep=%s,tokens=%d,pick=greedy", kept[s].name, TOKENS);
        struct pair *p = pair_open(pair_target, pair_draft, skip, "{temperature: 0}", rules[0], 1, LENGTH);
        const int vocab = model_shape(p->target)->vocab;
        const int used = verifier_setup(p->verifier)->used_vocab;
        struct kv_cache *c = own_cache(p);
        float *row = xcalloc((size_t)vocab, sizeof(float));
        for (int h = 0; h < HISTORIES / 4; h++) {
            const int n = random_text(text, vocab);
            draft_after(p, text, n, &a);
            assert_int_equal(a.own.draft.n, 1 + TOKENS);
            for (int k = 0; k < TOKENS; k++) {
                int best = 0;
                plain_logits(p, c, text, n, kept[s].layer, kept[s].n, a.own.token + 1, k, row);
                for (int x = 1; x < used; x++)
                    best = row[x] > row[best] ? x : best;
                assert_int_equal(a.own.token[1 + k], best);
            }
            forget(p);
        }
        free(row);
        kv_destroy(c);
        pair_close(p);
        free(skip);
    }
}

// Below a threshold of the path's probability a node has no children; above it drafts are those without a threshold.
TEST(a_draft_ends_behind_an_improbable_path)
{
    static const char *const shapes[] = { "tokens: 6", "tokens: 6, pick: greedy", "widths: [2, 2, 2]" };
    int32_t text[LENGTH];
    struct drafted a, b;
    int ended = 0;
    for (int s = 0; s < 3; s++) {
        char *cut =
            xformat("adaptive:by=confidence,threshold=0.05,of={kind: early_exit, exit_layer: 2, %s}", shapes[s]);
        char *uncut = xformat("adaptive:by=confidence,threshold=0,of={kind: early_exit, exit_layer: 2, %s}", shapes[s]);
        struct pair *p = pair_open(pair_target, pair_draft, cut, "{temperature: 0.9}", rules[0], 1, LENGTH);
        struct pair *of = pair_open(pair_target, pair_draft, uncut, "{temperature: 0.9}", rules[0], 1, LENGTH);
        for (int h = 0; h < HISTORIES / 3; h++) {
            double path[64] = { 1 };
            const int n = random_text(text, model_shape(p->target)->vocab);
            draft_after(p, text, n, &a);
            draft_after(of, text, n, &b);
            for (int i = 1; i < b.own.draft.n && s == 0; i++) { // a chain: the same tokens, as far as it goes
                path[i] = path[i - 1] * (double)b.own.draft.q->row(b.own.draft.q, i - 1)[b.own.token[i]];
                assert_int_equal(i < a.own.draft.n, path[i - 1] >= 0.05);
                if (i < a.own.draft.n)
                    assert_int_equal(a.own.token[i], b.own.token[i]);
            }
            for (int i = 1; i < a.own.draft.n && s == 2; i++) { // a tree's later draws have other addresses
                path[i] =
                    path[a.own.parent[i]] * (double)a.own.draft.q->row(a.own.draft.q, a.own.parent[i])[a.own.token[i]];
                assert_true(path[a.own.parent[i]] >= 0.05 * (1 - 1e-6));
            }
            assert_true(a.own.draft.n >= 2 && a.own.draft.n <= b.own.draft.n);
            ended += a.own.draft.n < b.own.draft.n;
            forget(p);
            forget(of);
        }
        pair_close(p);
        pair_close(of);
        free(cut);
        free(uncut);
    }
    assert_true(ended > 50);
}

TEST(the_oracle_is_wrong_at_its_rates)
{
    static const int all[] = { 0, 1, 2 };
    static const double wrong[TOKENS] = { 0.5, 0.125, 0, 0 };
    int32_t text[LENGTH];
    struct drafted a;
    for (int greedy = 0; greedy < 2; greedy++) {
        struct pair *p = pair_open(pair_target, pair_draft, "oracle:tokens=4,wrong=[0.5,0.125,0]",
                                   greedy ? "{temperature: 0}" : "{temperature: 0.9}", rules[0], 1, LENGTH);
        const int vocab = model_shape(p->target)->vocab;
        const int used = verifier_setup(p->verifier)->used_vocab;
        struct kv_cache *c = own_cache(p);
        float *row = xcalloc((size_t)vocab, sizeof(float));
        int32_t before[LENGTH + TOKENS];
        for (int h = 0; h < HISTORIES / 2; h++) {
            const int n = random_text(text, vocab);
            draft_after(p, text, n, &a);
            assert_int_equal(a.own.draft.n, 1 + TOKENS);
            assert_true(p->drafter->untimed_ns > 0);
            for (int k = 0; k < TOKENS; k++) {
                double accepted = 0, least = 1;
                memcpy(before, text, (size_t)n * sizeof(*text));
                memcpy(before + n, a.own.token + 1, (size_t)k * sizeof(*text));
                plain_logits(p, c, text, n, all, 3, a.own.token + 1, k, row);
                sampling_row(&p->sampling, row, vocab, used, &(const struct path){ n + k, before, 0 });
                const float *q = a.own.draft.q->row(a.own.draft.q, k);
                for (int x = 0; x < used; x++) {
                    accepted += fmin((double)row[x], (double)q[x]);
                    least = fmin(least, (double)row[x]);
                }
                assert_true(fabs(accepted - (1 - wrong[k] * (1 - least))) < 1e-5);
            }
            forget(p);
        }
        free(row);
        kv_destroy(c);
        pair_close(p);
    }
}

RUN_TESTS(pair_models_make, pair_models_remove)
