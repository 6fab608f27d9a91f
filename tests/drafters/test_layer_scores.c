// test_layer_scores.c - the scores of sets of layers against passes in caches of their own.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/texts.h"
#include "commands/inspect_layers.h"
#include "core/error.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"

// ---- scores

static struct speclab_target *target;

static int open_target(void **state)
{
    struct error err;
    if (pair_models_make(state) != 0)
        return -1;
    target = speclab_target_open(pair_target, &(struct speclab_target_options){ .activations = "f32", .chat = "none" },
                                 &err);
    assert_ok(target != NULL, err);
    return 0;
}

static int close_target(void **state)
{
    speclab_target_close(target);
    return pair_models_remove(state);
}

// Softmax of the logits after `root`, which follows a text of n tokens that the whole target has read.
static void plain_row(const int32_t *text, int n, const int *layer, int layers, double *p)
{
    static const struct taps none;
    const int vocab = model_shape(target->model)->vocab;
    int32_t slot[64] = { 0 }, parent[64], keep[64];
    struct error err;
    struct states states;
    struct kv_shape shape = model_kv_shape(target->model, 1, 65, 64);
    shape.type = target->cache;
    struct kv_cache *cache = kv_create(target->backend, &shape, &err);
    for (int i = 0; i < 64; i++) {
        parent[i] = i - 1;
        keep[i] = i;
    }
    if (n > 0) {
        const struct pass before = { .n = n, .token = text, .slot = slot, .parent = parent };
        assert_ok(model_forward(target->model, cache, &before, &none, &states, &err), err);
        kv_keep(cache, 0, keep, n);
    }
    const struct pass root = { .n = 1, .token = text + n, .slot = slot, .parent = parent };
    assert_ok(model_forward_some(target->model, cache, &root, layer, layers, &states, &err), err);
    struct tensor logits = rows_on(target->backend, 1, vocab);
    model_logits(target->model, logits, states.last);
    assert_ok(target->backend->sync(target->backend, &err), err);
    const float *x = target->backend->host(target->backend, logits.data);
    double sum = 0;
    for (int i = 0; i < vocab; i++)
        sum += p[i] = i < target->used_vocab ? exp((double)x[i]) : 0;
    for (int i = 0; i < vocab; i++)
        p[i] /= sum;
    target->backend->release(target->backend, logits.data);
    kv_destroy(cache);
}

static double rank_of(const double *p, int vocab, int x)
{
    int before = 0;
    for (int i = 0; i < vocab; i++)
        before += p[i] > p[x] || (p[i] == p[x] && i < x);
    return before;
}

TEST(scores_are_those_of_passes_in_caches_of_their_own)
{
    enum { TEXTS = 5, TOKENS = 40, POSITIONS = 3 };
    static const int lengths[TEXTS] = { 3, 40, 2, 17, 29 };
    int64_t offset[TEXTS + 1] = { 0 };
    int32_t id[TEXTS * TOKENS];
    uint8_t mask[TEXTS * TOKENS] = { 0 };
    const int vocab = model_shape(target->model)->vocab, layers = model_shape(target->model)->layers;
    for (int t = 0; t < TEXTS; t++) {
        offset[t + 1] = offset[t] + lengths[t];
        for (int i = 0; i < lengths[t]; i++) {
            id[offset[t] + i] = (t * 31 + i * i * 7) % 250;
            mask[offset[t] + i] = t != 2 && i >= lengths[t] / 2; // the third has no answer
        }
    }
    const struct texts texts = { .n = TEXTS, .offset = offset, .id = id, .mask = mask };
    struct error err;
    struct layer_scores *s = layer_scores_open(target, &texts, 1, POSITIONS, &err); // without the first
    assert_non_null(s);
    assert_int_equal(layer_scores_positions(s), 9);

    int all[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const struct layer_choice sets[] = { { layers, all }, { layers - 1, all + 1 } }; // the second without layer 0
    struct layer_score got[2];
    assert_ok(layer_scores_of(s, sets, 2, got, NULL, &err), err);
    assert_true(got[0].match == 1);

    double match[2] = { 0 }, overlap[2] = { 0 }, *p = xcalloc((size_t)vocab, sizeof(*p)),
           *q = xcalloc((size_t)vocab, sizeof(*q));
    for (int t = 1; t < TEXTS; t++) {
        int root[TOKENS], roots = 0;
        for (int i = 0; i + 1 < lengths[t]; i++)
            if (mask[offset[t] + i + 1])
                root[roots++] = i;
        for (int i = 0; i < POSITIONS && roots > 0; i++) {
            const int at = root[i * roots / POSITIONS];
            plain_row(id + offset[t], at, all, layers, p);
            for (int k = 0; k < 2; k++) {
                plain_row(id + offset[t], at, all + k, layers - k, q);
                for (int x = 0; x < vocab; x++) {
                    const double pr = rank_of(p, vocab, x), qr = rank_of(q, vocab, x);
                    match[k] += pr == 0 && qr == 0;
                    overlap[k] += pr < 64 && qr < 64 ? fmin(p[x], q[x]) : 0;
                }
            }
        }
    }
    for (int k = 0; k < 2; k++) {
        assert_true(fabs(got[k].match - match[k] / 9) < 1e-12);
        if (fabs(got[k].overlap - overlap[k] / 9) > 1e-6)
            fail_msg("set %d: %.9f, plainly %.9f", k, got[k].overlap, overlap[k] / 9);
    }
    free(p);
    free(q);
    layer_scores_close(s);

    const struct texts nothing = { .n = 1, .offset = offset + 2, .id = id, .mask = mask + TEXTS * TOKENS - 2 };
    int64_t two[] = { 0, 2 };
    struct texts silent = nothing;
    silent.offset = two;
    assert_null(layer_scores_open(target, &silent, 0, POSITIONS, &err));
    assert_string_equal(err.text, "there are no answers to choose by: expected conversations with loss_mask 1");
}

RUN_TESTS(open_target, close_target)
