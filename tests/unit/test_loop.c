// test_loop.c - what the decode loop asks of a drafter, of a verifier and of whoever listens, number by number: a drafter
// and stops that only look and write down, on a little target.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "decode/decode.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 32, NODES = 4 };

static const int32_t prompt[] = {
    5, 9, 7, 5, 9, 7, 5, 9, 11, 3, 8, 2, 6, 4, 10, 12, 5, 9, 7, 5, 9, 7, 5, 9, 11, 3, 8, 2
};

// ---- a drafter that guesses one token, and looks at what it is asked

static struct {
    int limit, prompt;          // of every text
    int asked, told, forgotten; // calls
    int stops, fresh, new,
        begun; // of the stop function: calls, its last two numbers; tokens there were before this step
    bool fails_to_propose, fails_to_advance;
    int ends;
    struct ending ending;
} seen;

static bool look_and_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)d;
    for (int i = 0; i < n; i++) {
        const int new = r[i].n - seen.prompt, left = seen.limit - new, space = LENGTH - r[i].n;
        assert_int_equal(r[i].depth, (left < space ? left : space) - 1); // the rest is the target's own token
        assert_int_equal(r[i].draft->n, 1);
        assert_int_equal(r[i].draft->capacity, space + 1 < NODES ? space + 1 : NODES);
        assert_int_equal(r[i].draft->token[0], r[i].token[r[i].n - 1]);
        assert_int_equal(r[i].draft->parent[0], -1);
        assert_int_equal(r[i].draft->proposal[0], DETERMINISTIC);
        assert_true(r[i].draft->q == NULL && r[i].draft->there == NULL && r[i].forced == NULL);
        assert_int_equal(r[i].rng->root, r[i].n - 1);
        seen.begun = new;
        if (r[i].depth > 0)
            draft_add(r[i].draft, 0, 7, DETERMINISTIC);
    }
    seen.asked++;
    return seen.fails_to_propose ? fail(err, "no guesses today") : true;
}

static bool look_and_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)d;
    for (int i = 0; i < n; i++) {
        assert_true(a[i].length <= LENGTH);
        if (a[i].node != NULL) {
            assert_int_equal(a[i].node[0], 0);
            assert_memory_equal(a[i].sequence + a[i].length - a[i].n, a[i].token, (size_t)a[i].n * sizeof(int32_t));
        }
        seen.told++;
    }
    return seen.fails_to_advance && a[0].node != NULL ? fail(err, "not listening") : true;
}

static void look_and_forget(struct drafter *d, int slot)
{
    (void)d, (void)slot;
    seen.forgotten++;
}

static int look_and_go_on(void *self, const int32_t *token, int n, int fresh)
{
    (void)self;
    assert_true(token[n - 1] >= 0 && fresh >= 1);
    seen.stops++;
    seen.new = n;
    seen.fresh = fresh;
    assert_int_equal(n - fresh, seen.begun);
    return 0;
}

static void hear_step(void *self, const struct step *s)
{
    (void)self;
    assert_true(s->draft->q == NULL); // the rows are the next step's by now
    assert_int_equal(s->advance->slot, 0);
    assert_int_equal(s->batch, 1);
    assert_ptr_equal(s->advance->token, s->verification->token);
    assert_ptr_equal(s->advance->node, s->verification->node);
    assert_int_equal(s->advance->n, s->verification->n);
}

static void hear_end(void *self, const struct ending *e)
{
    (void)self;
    seen.ends++;
    seen.ending = *e;
}

struct loop {
    struct pair *pair;
    struct drafter_type type;
    const struct drafter_type *real;
    struct decoder *decoder;
};

// watched: by the functions above; otherwise the drafter's own.
static void open_loop(struct loop *l, const char *drafter, bool watched, int slots)
{
    struct error err = { "" };
    memset(&seen, 0, sizeof(seen));
    l->pair = pair_open(pair_target, pair_draft, drafter, "{temperature: 1}", rule_named("rejection"), slots, LENGTH);
    l->real = l->pair->drafter->type;
    if (watched) {
        l->type = *l->real;
        l->type.propose = look_and_propose;
        l->type.advance = look_and_advance;
        l->type.forget = look_and_forget;
        l->pair->drafter->type = &l->type;
        assert_int_equal(l->pair->drafter->nodes, NODES);
    }
    l->decoder = decoder_create(l->pair->verifier, l->pair->drafter, slots, 3,
                                (struct listener){ hear_step, hear_end, NULL }, &err);
    if (l->decoder == NULL)
        fail_msg("%s", err.text);
}

static void close_loop(struct loop *l)
{
    decoder_destroy(l->decoder);
    l->pair->drafter->type = l->real;
    pair_close(l->pair);
}

static void start(struct loop *l, int64_t number, int n, int limit, const struct stops *stops)
{
    struct error err = { "" };
    seen.prompt = n;
    seen.limit = limit;
    if (!decoder_start(l->decoder, &(struct assignment){ number, prompt, n, limit, stops }, &err))
        fail_msg("%s", err.text);
}

// ---- what it asks

static void a_drafter_is_asked_for_what_can_still_be_used(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 4, 9 }, { 1, 1 }, { 20, 30 }, { 28, 2 }, { 27, 5 } }; // prompt, limit
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const int n = shapes[i][0], limit = shapes[i][1], most = limit < LENGTH - n ? limit : LENGTH - n;
        const struct stops stops = { .string = look_and_go_on };
        struct error err;
        struct loop l;
        open_loop(&l, "ngram:tokens=3", true, 1);
        start(&l, (int64_t)i, n, limit, &stops);
        while (decoder_active(l.decoder) > 0)
            assert_true(decoder_step(l.decoder, &err));
        assert_int_equal(seen.ends, 1);
        assert_int_equal(seen.ending.n, most);
        assert_int_equal(seen.ending.why, limit <= LENGTH - n ? STOP_LIMIT : STOP_CONTEXT);
        assert_int_equal(seen.new, most);
        assert_int_equal(seen.stops, seen.asked);
        assert_true(seen.asked <= most && seen.forgotten == 1);
        assert_true(seen.ending.prefill_ns > 0 && seen.ending.decode_ns > 0);
        assert_true(seen.ending.wall_ns >= seen.ending.decode_ns && seen.ending.wall_ns < 60000000000);
        close_loop(&l);
        assert_int_equal(seen.forgotten, 1);
    }
}

static void what_is_reported_has_no_rows_of_q(void **state)
{
    (void)state;
    struct error err;
    struct loop l;
    open_loop(&l, "small:model=%s,tokens=3,pick=sampled", false, 1);
    start(&l, 1, 4, 12, NULL);
    while (decoder_active(l.decoder) > 0)
        assert_true(decoder_step(l.decoder, &err));
    assert_int_equal(seen.ends, 1);
    close_loop(&l);
}

// ---- what goes wrong

static void a_drafter_that_fails_ends_the_step_with_its_sentence(void **state)
{
    (void)state;
    for (int advance = 0; advance < 2; advance++) {
        struct error err = { "" };
        struct loop l;
        open_loop(&l, "ngram:tokens=3", true, 1);
        start(&l, 1, 4, 12, NULL);
        seen.fails_to_propose = !advance;
        seen.fails_to_advance = advance;
        assert_false(decoder_step(l.decoder, &err));
        assert_string_equal(err.text, advance ? "not listening" : "no guesses today");
        close_loop(&l);
        assert_int_equal(seen.forgotten, 1); // of a sequence that has not ended
        assert_int_equal(seen.ends, 0);
    }
}

static void a_decoder_is_no_larger_than_its_verifier(void **state)
{
    (void)state;
    struct error err = { "" };
    struct pair *p =
        pair_open(pair_target, pair_draft, "ngram:tokens=3", "{temperature: 1}", rule_named("rejection"), 2, LENGTH);
    const struct listener listener = { .done = hear_end };
    assert_null(decoder_create(p->verifier, p->drafter, 3, 1, listener, &err));
    assert_string_equal(err.text, "decoder: 3 slots and drafts of 4 nodes asked of a verifier for 2 and 4");
    p->drafter->nodes = 5;
    assert_null(decoder_create(p->verifier, p->drafter, 1, 1, listener, &err));
    assert_string_equal(err.text, "decoder: 1 slots and drafts of 5 nodes asked of a verifier for 2 and 4");
    p->drafter->nodes = 4;
    struct decoder *d = decoder_create(p->verifier, p->drafter, 2, 1, listener, &err);
    assert_non_null(d);
    assert_false(decoder_start(d, &(struct assignment){ 1, prompt, LENGTH, 1, NULL }, &err));
    assert_string_equal(err.text, "the prompt has 32 tokens, and the context is 32: there is no room for a new one");
    decoder_destroy(d);
    decoder_destroy(NULL);
    pair_close(p);
}

static void a_pass_is_no_larger_than_its_target_allows(void **state)
{
    (void)state;
    struct error err = { "" };
    struct pair *p =
        pair_open(pair_target, pair_draft, "ngram:tokens=3", "{temperature: 1}", rule_named("rejection"), 2, LENGTH);
    struct verifier_setup s = *verifier_setup(p->verifier);
    const int rows = model_rows(p->target);
    s.nodes = rows / 2 + 1;
    s.slots = 2;
    if (s.nodes <= MAX_NODES) {
        assert_null(verifier_create(&s, &err));
        char *says = xformat("a pass over 2 slots with drafts of %d nodes has %d rows; the target was opened for %d",
                             s.nodes, 2 * s.nodes, rows);
        assert_string_equal(err.text, says);
        free(says);
    }
    s.nodes = rows / 2;
    struct verifier *v = verifier_create(&s, &err);
    assert_non_null(v);
    verifier_destroy(v);
    verifier_destroy(NULL);
    pair_close(p);
}

// ---- slots

static void a_slot_is_found_by_its_sequence_as_long_as_that_lives(void **state)
{
    (void)state;
    struct error err;
    struct loop l;
    open_loop(&l, "none", false, 2);
    assert_true(decoder_step(l.decoder, &err)); // nothing to do
    assert_int_equal(decoder_active(l.decoder), 0);
    assert_int_equal(decoder_slot(l.decoder, 0), -1); // though no slot has a number yet
    assert_true(decoder_has_free_slot(l.decoder));
    start(&l, 70, 4, 1, NULL);
    start(&l, 71, 4, 3, NULL);
    assert_false(decoder_has_free_slot(l.decoder));
    assert_int_equal(decoder_slot(l.decoder, 70), 0);
    assert_int_equal(decoder_slot(l.decoder, 71), 1);
    assert_int_equal(decoder_slot(l.decoder, 72), -1);
    decoder_destroy(l.decoder);
    struct listener quiet = { NULL, hear_end, NULL };
    l.decoder = decoder_create(l.pair->verifier, l.pair->drafter, 2, 3, quiet, &err);
    start(&l, 70, 4, 1, NULL);
    start(&l, 71, 4, 3, NULL);
    assert_true(decoder_step(l.decoder, &err));
    assert_int_equal(decoder_slot(l.decoder, 70), -1);
    assert_int_equal(decoder_slot(l.decoder, 71), 1);
    assert_int_equal(decoder_active(l.decoder), 1);
    close_loop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drafter_is_asked_for_what_can_still_be_used),
        cmocka_unit_test(what_is_reported_has_no_rows_of_q),
        cmocka_unit_test(a_drafter_that_fails_ends_the_step_with_its_sentence),
        cmocka_unit_test(a_decoder_is_no_larger_than_its_verifier),
        cmocka_unit_test(a_pass_is_no_larger_than_its_target_allows),
        cmocka_unit_test(a_slot_is_found_by_its_sequence_as_long_as_that_lives),
    };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
