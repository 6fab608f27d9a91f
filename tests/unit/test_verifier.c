// test_verifier.c - what a verifier says it will take, and what it does with a device that fails or only some of whose
// operations are there: a processor's backend in which a few operations are the test's own.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/device_verification.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
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

static void a_verifier_takes_its_cache_and_two_tables_of_rows(void **state)
{
    (void)state;
    struct pair *p = open_rule("rejection");
    struct verifier_setup s = setup_of(p);
    s.cache = BF16;
    const size_t vocab = (size_t)tiny_usual.vocab, width = (size_t)tiny_usual.width, rows = SLOTS * NODES;
    // Keys and values of LENGTH places and of what may be pending: a stretch of a prompt.
    struct kv_shape shape = model_kv_shape(
        p->target, SLOTS, LENGTH, VERIFIER_CHUNK < model_rows(p->target) ? VERIFIER_CHUNK : model_rows(p->target));
    shape.type = BF16;
    assert_int_equal(verifier_cache_bytes(&s), kv_bytes(&shape));
    assert_int_equal(verifier_bytes(&s), kv_bytes(&shape) + rows * (vocab + 2 * width) * sizeof(float));
    assert_int_equal(verifier_verify_bytes(&s), 0); // the host judges
    pair_close(p);
}

static struct verify_request asked;
static struct device_draft asked_there;

static size_t ask_for_bytes(struct backend *b, const struct verify_request *j)
{
    (void)b;
    asked = *j;
    asked_there = *j->there;
    return 100;
}

static void a_device_is_asked_what_the_largest_drafts_take(void **state)
{
    (void)state;
    for (int i = 0; rules[i] != NULL; i++) {
        struct pair *p = open_rule("rejection");
        struct verifier_setup s = setup_of(p);
        s.rule = rules[i];
        p->backend->verify_bytes = ask_for_bytes;
        const bool has_body = rules[i]->device_rule != DEVICE_NONE;
        const bool forks = (rules[i]->takes & (TAKES_TREES | TAKES_CHAINS)) != 0;
        assert_int_equal(verifier_verify_bytes(&s), has_body ? SLOTS * 100 : 0);
        if (has_body) {
            assert_int_equal(asked.device_rule, rules[i]->device_rule);
            assert_int_equal(asked.n, NODES);
            assert_int_equal(asked_there.most, NODES);
            assert_int_equal(asked_there.max_depth, NODES - 1);
            assert_int_equal(asked_there.branches, forks);
            assert_int_equal(asked.p.rows, NODES);
            assert_int_equal(asked.p.width, tiny_usual.vocab);
            assert_null(asked.p.data);
        }
        p->backend->verify_bytes = NULL;
        pair_close(p);
    }
}

// ---- a device that fails

static int until_failure; // waits that go well before one does not
static bool (*real_sync)(struct backend *b, struct error *err);
static int scored;

static bool sync_fails(struct backend *b, struct error *err)
{
    return until_failure-- > 0 ? real_sync(b, err) : fail(err, "the device fell silent");
}

static void count_scored(void *self, const struct request *r, struct tensor logits)
{
    (void)self, (void)r;
    assert_int_equal(logits.rows, 1);
    scored++;
}

// Takes in a prompt and verifies a bare root, with a device that fails at its wait number `at`, from 0: what failed.
static const char *verify(struct verifier *v, int at)
{
    static struct error err;
    static const int32_t text[] = { 5, 9, 7, 5 };
    int32_t token[NODES] = { 5 }, parent[NODES] = { -1 };
    uint8_t proposal[NODES] = { DETERMINISTIC };
    struct draft d = { 1, NODES, token, parent, proposal, NULL, NULL };
    struct philox source = philox_source(1, 2);
    const struct request r = { .slot = 1, .n = 4, .token = text, .rng = &source.rng, .draft = &d };
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
        return strcmp(err.text, "the device fell silent") == 0 ? "judge" : err.text;
    assert_int_equal(a.n, 1);
    assert_int_equal(a.slot, 1);
    assert_string_equal(err.text, "");
    return "nothing";
}

static void a_device_that_fails_is_noticed_at_every_wait(void **state)
{
    (void)state;
    for (int watched = 0; watched < 2; watched++) {
        struct error err;
        struct pair *p = open_rule("rejection");
        struct verifier_setup s = setup_of(p);
        s.observer = (struct step_observer){ .scored = watched ? count_scored : NULL };
        struct verifier *v = verifier_create(&s, &err);
        assert_non_null(v);
        real_sync = p->backend->sync;
        p->backend->sync = sync_fails;
        assert_string_equal(verify(v, 0), "prefill");
        assert_int_equal(scored, 0);
        verifier_forget(v, 1);
        // Whoever looks on costs two waits more, and sees nothing of a pass that failed.
        const int waits = watched ? 3 : 1;
        for (int at = 0; at < waits; at++) {
            assert_string_equal(verify(v, 1 + at), "judge");
            assert_int_equal(scored, at == 2);
            verifier_forget(v, 1);
        }
        assert_string_equal(verify(v, 1 + waits), "nothing");
        assert_int_equal(scored, watched);
        p->backend->sync = real_sync;
        verifier_destroy(v);
        pair_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verifier_takes_its_cache_and_two_tables_of_rows),
        cmocka_unit_test(a_device_is_asked_what_the_largest_drafts_take),
        cmocka_unit_test(a_device_that_fails_is_noticed_at_every_wait),
    };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
