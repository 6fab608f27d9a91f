// test_verifier.c - the memory that a verifier reports, and how it handles a device that fails or lacks some operations: a CPU
// backend with a few replaced functions.
#include <stdlib.h>
#include <string.h>

#include "core/grid.h"
#include "core/error.h"
#include "kernels/device_step/device_step.h"
#include "kernels/device_step/verification.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/target_cache.h"
#include "verifier/decisions.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 3, LENGTH = 48, NODES = 7 };

static struct pair *open_rule(const char *rule)
{
    return pair_open(pair_target, pair_draft, "ngram:tokens=3", "{temperature: 1}", rule_named(rule), SLOTS, LENGTH);
}

static struct verifier_setup setup_of(struct pair *p)
{
    struct verifier_setup s = *verifier_setup(p->verifier);
    s.nodes = NODES;
    s.taps = (struct taps){ 2, { 0, 1 } };
    return s;
}

// ---- memory

TEST(a_verifier_reports_its_cache_logits_and_features)
{
    struct pair *p = open_rule("rejection");
    struct verifier_setup s = setup_of(p);
    const size_t vocab = (size_t)small_default.vocab, width = (size_t)small_default.width, rows = SLOTS * NODES;
    // Keys and values of LENGTH positions and of pending rows: a chunk of a prompt.
    struct kv_shape shape = model_kv_shape(p->target, SLOTS, LENGTH,
                                           TARGET_CHUNK < model_rows(p->target) ? TARGET_CHUNK : model_rows(p->target));
    static const struct {
        enum type type;
        size_t numbers, bytes; // a block's
    } types[] = { { F32, 1, 4 }, { BF16, 1, 2 }, { Q8_0, 32, 34 } };
    for (int i = 0; i < 3; i++) {
        s.cache = shape.type = types[i].type;
        const size_t row = (size_t)shape.width / types[i].numbers * types[i].bytes;
        assert_int_equal(kv_bytes(&shape), 2 * (size_t)shape.layers * SLOTS * (size_t)shape.length * row);
        assert_int_equal(verifier_cache_bytes(&s), kv_bytes(&shape));
        assert_int_equal(verifier_bytes(&s), kv_bytes(&shape) + rows * (vocab + 2 * width) * sizeof(float));
    }
    assert_int_equal(verifier_verify_bytes(&s), 0); // verification runs on the host
    pair_close(p);
}

static struct verify_request last_request;
static struct device_draft last_draft;

static const struct rule_body *any_body(struct backend *b, const char *name)
{
    return (const struct rule_body *)name; // never dereferenced
}

static size_t record_verify_bytes(struct backend *b, const struct verify_request *j)
{
    last_request = *j;
    last_draft = *j->on_device;
    return 100;
}

TEST(memory_on_a_device_is_that_of_the_largest_drafts)
{
    for (int i = 0; rules[i] != NULL; i++) {
        struct pair *p = open_rule("rejection");
        struct verifier_setup s = setup_of(p);
        s.rule = rules[i];
        p->backend->step = &(const struct device_step){ .rule_body = any_body, .verify_bytes = record_verify_bytes };
        const bool has_body = rules[i]->device_body != NULL;
        const bool branches = (rules[i]->takes & (TAKES_TREES | TAKES_CHAINS)) != 0;
        const size_t of_rows = NODES * (ROW_PARTS * sizeof(struct part_sum) + sizeof(int32_t)); // sums and tokens
        assert_int_equal(verifier_verify_bytes(&s), has_body ? SLOTS * (100 + of_rows) : 0);
        if (has_body) {
            assert_ptr_equal(last_request.body, any_body(p->backend, rules[i]->device_body));
            assert_int_equal(last_request.n, NODES);
            assert_int_equal(last_draft.max_nodes, NODES);
            assert_int_equal(last_draft.max_depth, NODES - 1);
            assert_int_equal(last_draft.branches, branches);
            assert_int_equal(last_request.p.rows, NODES);
            assert_int_equal(last_request.p.width, small_default.vocab);
            assert_null(last_request.p.data);
        }
        p->backend->step = NULL;
        pair_close(p);
    }
}

// ---- a device without enough memory

static int until_none; // allocations that succeed before all fail
static void *(*real_alloc)(struct backend *b, size_t bytes);

static void *alloc_some(struct backend *b, size_t bytes)
{
    return until_none-- > 0 ? real_alloc(b, bytes) : NULL;
}

// The first thing that does not fit is named: the cache, two tensors for each layer, then the rows of a pass.
TEST(an_allocation_that_fails_is_an_error)
{
    struct pair *p = open_rule("rejection");
    const struct verifier_setup s = setup_of(p);
    const int of_cache = 2 * small_default.layers;
    real_alloc = p->backend->alloc;
    p->backend->alloc = alloc_some;
    for (int n = 0; n <= of_cache + 2; n++) {
        struct error err = { "" };
        until_none = n;
        struct verifier *v = verifier_create(&s, &err);
        assert_int_equal(v != NULL, n == of_cache + 2);
        if (v == NULL)
            assert_non_null(strstr(err.text, n < of_cache ? "cpu: not enough memory for a cache of "
                                                          : "cpu: not enough memory for the logits of 21 rows"));
        verifier_destroy(v);
    }
    p->backend->alloc = real_alloc;
    pair_close(p);
}

// ---- a device that fails

// The number of nodes comes from the device: one that failed may give any.
TEST(a_draft_of_an_impossible_size_is_fetched_as_its_root)
{
    struct error err;
    struct backend *b = backend_cpu(1, &err);
    static const int32_t sizes[][2] = { { 1, 1 }, { 3, 3 }, { NODES, NODES }, { 0, 1 }, { -1, 1 }, { NODES + 1, 1 } };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const int32_t tokens[NODES] = { 4, 5, 6 }, parents[NODES] = { -1, 0, 1 };
        const uint8_t proposals[NODES] = { DETERMINISTIC, SAMPLED };
        int32_t tag[NODES];
        struct own_draft own;
        const struct device_draft on_device = { .max_nodes = NODES,
                                                .n = &sizes[i][0],
                                                .token = tokens,
                                                .parent = parents,
                                                .proposal = proposals,
                                                .tag = tokens,
                                                .tag_on_host = tag };
        struct draft *d = own_draft_begin(&own, 0, NODES);
        d->on_device = &on_device;
        draft_fetch(b, d);
        assert_int_equal(d->n, sizes[i][1]);
        assert_memory_equal(own.token, tokens, (size_t)d->n * sizeof(*tokens));
        assert_memory_equal(own.parent, parents, (size_t)d->n * sizeof(*parents));
        assert_memory_equal(tag, tokens, (size_t)d->n * sizeof(*tag));
        assert_memory_equal(own.proposal, proposals, (size_t)d->n);
    }
    b->destroy(b);
}

static int until_failure; // waits that succeed before one fails, and those after it succeed
static bool (*real_sync)(struct backend *b, struct error *err);
static int scored;

static bool sync_fails(struct backend *b, struct error *err)
{
    return until_failure-- != 0 ? real_sync(b, err) : fail(err, "the device is lost");
}

static void count_scored(void *self, const struct request *r, struct tensor logits)
{
    assert_int_equal(logits.rows, 1);
    scored++;
}

// Prefills a prompt and verifies a draft of the root alone, on a device that fails at wait number `at`, from 0. Returns what
// failed.
static const char *verify(struct verifier *v, int at)
{
    static struct error err;
    static const int32_t text[] = { 5, 9, 7, 5 };
    struct own_draft own;
    struct philox source = philox_source(1, 2);
    const struct request r = {
        .slot = 1, .n = 4, .token = text, .rng = &source.rng, .draft = own_draft_begin(&own, 5, NODES)
    };
    struct advance a;
    err.text[0] = '\0';
    until_failure = at;
    scored = 0;
    source.rng.root = 3;
    for (a.n = 1; a.n > 0;)
        if (!verifier_prefill(v, 1, text, 4, &a, &err))
            return "prefill";
    if (!verifier_score(v, &r, 1, &err))
        return "score";
    if (!verifier_accept(v, &r, 1, &a, &err))
        return strcmp(err.text, "the device is lost") == 0 ? "accept" : err.text;
    assert_int_equal(a.n, 1);
    assert_int_equal(a.slot, 1);
    assert_string_equal(err.text, "");
    return "nothing";
}

TEST(a_device_failure_is_reported_at_every_wait)
{
    for (int observed = 0; observed < 2; observed++) {
        struct error err;
        struct pair *p = open_rule("rejection");
        struct verifier_setup s = setup_of(p);
        s.observer = (struct step_observer){ .scored = observed ? count_scored : NULL };
        struct verifier *v = verifier_create(&s, &err);
        assert_non_null(v);
        real_sync = p->backend->sync;
        p->backend->sync = sync_fails;
        assert_string_equal(verify(v, 0), "prefill");
        assert_int_equal(scored, 0);
        verifier_forget(v, 1);
        // An observer adds two waits, and is not called for a pass that failed.
        const int waits = observed ? 3 : 1;
        for (int at = 0; at < waits; at++) {
            assert_string_equal(verify(v, 1 + at), "accept");
            assert_int_equal(scored, at == 2);
            verifier_forget(v, 1);
        }
        assert_string_equal(verify(v, 1 + waits), "nothing");
        assert_int_equal(scored, observed);
        p->backend->sync = real_sync;
        verifier_destroy(v);
        pair_close(p);
    }
}

RUN_TESTS(pair_models_make, pair_models_remove)
