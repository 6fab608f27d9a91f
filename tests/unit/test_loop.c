// test_loop.c - every value that the decode loop passes to drafter, stop function and listener: a drafter and stops that check
// and count their calls, on a small target.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 32, NODES = 4, SEED = 3 };

static const int32_t prompt[] = {
    5, 9, 7, 5, 9, 7, 5, 9, 11, 3, 8, 2, 6, 4, 10, 12, 5, 9, 7, 5, 9, 7, 5, 9, 11, 3, 8, 2
};

// ---- a drafter that proposes one token and checks its requests

static struct {
    int limit, prompt;                 // of every text
    int requests, advances, forgotten; // calls
    int stops, fresh, new;             // of the stop function: calls, its last two arguments
    int begun;                         // new tokens before this step
    int64_t number;                    // of the last text
    bool fails_to_propose, fails_to_advance;
    int ends;
    struct speclab_end ending;
} seen;

static bool check_and_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    for (int i = 0; i < n; i++) {
        const int new = r[i].n - seen.prompt, left = seen.limit - new, space = LENGTH - r[i].n;
        assert_int_equal(r[i].depth, (left < space ? left : space) - 1); // the last token is the target's own
        assert_int_equal(r[i].draft->n, 1);
        assert_int_equal(r[i].draft->capacity, space + 1 < NODES ? space + 1 : NODES);
        assert_int_equal(r[i].draft->token[0], r[i].token[r[i].n - 1]);
        assert_int_equal(r[i].draft->parent[0], -1);
        assert_int_equal(r[i].draft->proposal[0], DETERMINISTIC);
        assert_true(r[i].draft->q == NULL && r[i].draft->on_device == NULL && r[i].forced == NULL);
        assert_int_equal(r[i].rng->root, r[i].n - 1);
        assert_int_equal(philox_of(r[i].rng)->seed, SEED);
        assert_int_equal(philox_of(r[i].rng)->sequence, seen.number);
        seen.begun = new;
        if (r[i].depth > 0)
            draft_add(r[i].draft, 0, 7, DETERMINISTIC);
    }
    seen.requests++;
    if (!seen.fails_to_propose)
        return true;
    static struct rows rows;
    r[0].draft->q = &rows; // of a step that failed
    return fail(err, "cannot propose");
}

static bool check_and_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    for (int i = 0; i < n; i++) {
        assert_true(a[i].length <= LENGTH);
        if (a[i].node != NULL) {
            assert_int_equal(a[i].node[0], 0);
            assert_memory_equal(a[i].sequence + a[i].length - a[i].n, a[i].token, (size_t)a[i].n * sizeof(int32_t));
        }
        seen.advances++;
    }
    return seen.fails_to_advance && a[0].node != NULL ? fail(err, "cannot advance") : true;
}

static void check_and_forget(struct drafter *d, int slot)
{
    seen.forgotten++;
}

static int check_and_continue(void *self, const int32_t *token, int n, int fresh)
{
    assert_true(token[n - 1] >= 0 && fresh >= 1);
    seen.stops++;
    seen.new = n;
    seen.fresh = fresh;
    assert_int_equal(n - fresh, seen.begun);
    return 0;
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct speclab_decoder *const *d = self;
    assert_int_equal(s->slot, speclab_decoder_slot(*d, s->sequence));
    assert_int_equal(s->batch, speclab_decoder_active(*d));
}

static void on_end(void *self, const struct speclab_end *e)
{
    seen.ends++;
    seen.ending = *e;
}

struct loop {
    struct pair *pair;
    struct drafter_type type;
    const struct drafter_type *real;
    struct speclab_decoder *decoder;
};

// checked: with the functions above instead of the drafter's own.
static void open_loop(struct loop *l, const char *drafter, bool checked, int slots)
{
    struct error err = { "" };
    memset(&seen, 0, sizeof(seen));
    l->pair = pair_open(pair_target, pair_draft, drafter, "{temperature: 1}", rule_named("rejection"), slots, LENGTH);
    l->real = l->pair->drafter->type;
    if (checked) {
        l->type = *l->real;
        l->type.propose = check_and_propose;
        l->type.advance = check_and_advance;
        l->type.forget = check_and_forget;
        l->pair->drafter->type = &l->type;
        assert_int_equal(l->pair->drafter->nodes, NODES);
    }
    l->decoder = decoder_create(l->pair->verifier, l->pair->drafter, slots, SEED,
                                (struct speclab_listener){ .step = on_step, .end = on_end, .self = &l->decoder }, &err);
    assert_ok(l->decoder != NULL, err);
}

static void close_loop(struct loop *l)
{
    speclab_decoder_destroy(l->decoder);
    l->pair->drafter->type = l->real;
    pair_close(l->pair);
}

static void start(struct loop *l, int64_t number, int n, int limit, const struct stops *stops)
{
    struct error err = { "" };
    seen.number = number;
    seen.prompt = n;
    seen.limit = limit;
    if (!decoder_start(l->decoder,
                       &(struct speclab_request){ .sequence = number, .prompt = prompt, .n = n, .max_tokens = limit },
                       stops, NULL, &err))
        fail_msg("%s", err.text);
}

// ---- requests

TEST(requests_are_bounded_by_limit_and_context)
{
    static const int shapes[][2] = { { 4, 9 }, { 1, 1 }, { 20, 30 }, { 28, 2 }, { 27, 5 } }; // prompt, limit
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const int n = shapes[i][0], limit = shapes[i][1], max = limit < LENGTH - n ? limit : LENGTH - n;
        const struct stops stops = { .string = check_and_continue };
        struct error err;
        struct loop l;
        open_loop(&l, "ngram:tokens=3", true, 1);
        start(&l, (int64_t)i, n, limit, &stops);
        while (speclab_decoder_active(l.decoder) > 0)
            assert_true(speclab_decoder_step(l.decoder, &err));
        assert_int_equal(seen.ends, 1);
        assert_int_equal(seen.ending.n, max);
        assert_int_equal(seen.ending.why, limit <= LENGTH - n ? SPECLAB_STOP_LIMIT : SPECLAB_STOP_CONTEXT);
        assert_int_equal(seen.new, max);
        assert_int_equal(seen.stops, seen.requests);
        assert_true(seen.requests <= max && seen.forgotten == 1);
        assert_true(seen.ending.prefill_ns > 0 && seen.ending.decode_ns > 0);
        assert_true(seen.ending.wall_ns >= seen.ending.decode_ns && seen.ending.wall_ns < 60000000000);
        close_loop(&l);
        assert_int_equal(seen.forgotten, 1);
    }
}

// ---- failures

TEST(a_drafter_that_fails_ends_the_step_with_its_message)
{
    for (int advance = 0; advance < 2; advance++) {
        struct error err = { "" };
        struct loop l;
        open_loop(&l, "ngram:tokens=3", true, 1);
        start(&l, 1, 4, 12, NULL);
        seen.fails_to_propose = !advance;
        seen.fails_to_advance = advance;
        assert_false(speclab_decoder_step(l.decoder, &err));
        assert_string_equal(err.text, advance ? "cannot advance" : "cannot propose");
        if (!advance) // the next step does not see the draft of the failed one
            assert_false(speclab_decoder_step(l.decoder, &err));
        close_loop(&l);
        assert_int_equal(seen.forgotten, 1); // of a sequence that has not ended
        assert_int_equal(seen.ends, 0);
    }
}

TEST(a_decoder_must_fit_its_verifier)
{
    struct error err = { "" };
    struct pair *p =
        pair_open(pair_target, pair_draft, "ngram:tokens=3", "{temperature: 1}", rule_named("rejection"), 2, LENGTH);
    const struct speclab_listener listener = { .end = on_end };
    assert_null(decoder_create(p->verifier, p->drafter, 3, 1, listener, &err));
    assert_string_equal(err.text, "decoder: 3 slots and drafts of 4 nodes requested, the verifier has 2 and 4");
    p->drafter->nodes = 5;
    assert_null(decoder_create(p->verifier, p->drafter, 1, 1, listener, &err));
    assert_string_equal(err.text, "decoder: 1 slots and drafts of 5 nodes requested, the verifier has 2 and 4");
    p->drafter->nodes = 4;
    struct speclab_decoder *d = decoder_create(p->verifier, p->drafter, 2, 1, listener, &err);
    assert_non_null(d);
    assert_false(
        decoder_start(d, &(struct speclab_request){ .sequence = 1, .prompt = prompt, .n = LENGTH, .max_tokens = 1 },
                      NULL, NULL, &err));
    assert_string_equal(err.text, "the prompt has 32 tokens, and the context is 32: no new token fits");
    speclab_decoder_destroy(d);
    speclab_decoder_destroy(NULL);
    pair_close(p);
}

TEST(a_pass_must_fit_its_target)
{
    struct error err = { "" };
    struct pair *p =
        pair_open(pair_target, pair_draft, "ngram:tokens=3", "{temperature: 1}", rule_named("rejection"), 2, LENGTH);
    struct verifier_setup s = *verifier_setup(p->verifier);
    const int rows = model_rows(p->target);
    s.nodes = rows / 2 + 1;
    s.slots = 2;
    if (s.nodes <= MAX_NODES) {
        assert_null(verifier_create(&s, &err));
        char *message = xformat("a pass over 2 slots with drafts of %d nodes has %d rows; the target was opened for %d",
                                s.nodes, 2 * s.nodes, rows);
        assert_string_equal(err.text, message);
        free(message);
    }
    s.nodes = rows / 2;
    struct verifier *v = verifier_create(&s, &err);
    assert_non_null(v);
    verifier_destroy(v);
    verifier_destroy(NULL);
    pair_close(p);
}

// ---- slots

TEST(a_slot_is_found_by_its_sequence_while_that_is_active)
{
    struct error err;
    struct loop l;
    open_loop(&l, "none", false, 2);
    assert_true(speclab_decoder_step(l.decoder, &err)); // nothing to do
    assert_int_equal(speclab_decoder_active(l.decoder), 0);
    assert_int_equal(speclab_decoder_slot(l.decoder, 0), -1); // though no slot has a number yet
    assert_true(speclab_decoder_has_free_slot(l.decoder));
    start(&l, 70, 4, 1, NULL);
    start(&l, 71, 4, 3, NULL);
    assert_false(speclab_decoder_has_free_slot(l.decoder));
    assert_int_equal(speclab_decoder_slot(l.decoder, 70), 0);
    assert_int_equal(speclab_decoder_slot(l.decoder, 71), 1);
    assert_int_equal(speclab_decoder_slot(l.decoder, 72), -1);
    assert_true(speclab_decoder_step(l.decoder, &err));
    assert_int_equal(speclab_decoder_slot(l.decoder, 70), -1);
    assert_int_equal(speclab_decoder_slot(l.decoder, 71), 1);
    assert_int_equal(speclab_decoder_active(l.decoder), 1);
    close_loop(&l);
}

RUN_TESTS(pair_models_make, pair_models_remove)
