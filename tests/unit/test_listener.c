// test_listener.c - whoever listens to the loop: what it is told of a step, when, and on whose time.
//
// On a device that is watched the order of calls and the times are computed, not measured: a CPU whose table has been
// written over, with a clock that goes on only where a test says so.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/support/check.h"
#include "tests/device/emulated.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

#if defined(EMULATED_DEVICE)
static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}
#endif

// ---- a device that is watched

enum { EMPTY = 2, PROPOSING = 3, PASS = 1000, JUDGING = 20, APPENDING = 7, ADVANCING = 500, LISTENING = 1000000 };

static struct {
    struct backend real; // as it was
    const struct drafter_type *drafter;
    struct rule rule;
    int64_t now, at[MAX_STAMPS];
    bool known[MAX_STAMPS];
    struct text log;
} watched;

static void note(char what, int64_t takes)
{
    text_add(&watched.log, &what, 1);
    watched.now += takes;
}

static void watched_stamp(struct backend *b, int number)
{
    (void)b;
    watched.at[number] = watched.now;
    watched.known[number] = false;
}

static bool watched_sync(struct backend *b, struct error *err)
{
    note('s', 0);
    memset(watched.known, true, sizeof(watched.known));
    return watched.real.sync(b, err);
}

static int64_t watched_between(struct backend *b, int from, int to)
{
    (void)b;
    assert_true(watched.known[from] && watched.known[to]);
    return watched.at[to] - watched.at[from];
}

static void watched_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor frequency)
{
    note('q', PASS); // once a pass
    watched.real.angles(b, out, s, frequency);
}

static bool watched_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    note('p', PROPOSING);
    return watched.drafter->propose(d, r, n, err);
}

static bool watched_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)d, (void)a, (void)n, (void)err;
    note('a', ADVANCING);
    return true;
}

static void watched_judge(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                          struct verification *out)
{
    note('j', JUDGING);
    rule_named("match")->verify(d, p, options, rng, out);
    out->empty = EMPTY;
}

static int watched_stops(void *self, const int32_t *token, int n, int fresh)
{
    (void)self, (void)token, (void)n, (void)fresh;
    watched.now += APPENDING;
    return 0;
}

static struct pair *open_watched(bool queues, struct drafter_type *type)
{
    watched.rule = *rule_named("match");
    watched.rule.verify = watched_judge;
    struct pair *p = pair_open(pair_target, pair_draft, "none", "{temperature: 1}", &watched.rule, 2, 64);
    watched.real = *p->backend;
    p->backend->queues = queues;
    p->backend->stamp = watched_stamp;
    p->backend->sync = watched_sync;
    p->backend->between = watched_between;
    p->backend->angles = watched_angles;
    watched.drafter = p->drafter->type;
    *type = *p->drafter->type;
    type->propose = watched_propose;
    type->advance = watched_advance;
    p->drafter->type = type;
    return p;
}

// ---- in what order, and on whose time

enum { PROMPT = 4, LIMIT = 5 };

struct heard {
    int steps, ends;
    int64_t decode_ns[2]; // of each sequence, by the steps' own times
};

static void hear_step(void *self, const struct step *s)
{
    struct heard *h = self;
    const bool last = s->position == PROMPT + LIMIT - 2;
    note((char)('0' + h->steps++), LISTENING);
    assert_int_equal(s->verification->empty, EMPTY);
    assert_int_equal(s->propose_ns, PROPOSING);
    assert_int_equal(s->verify_ns, PASS + s->batch * JUDGING);
    assert_int_equal(s->advance_ns, s->batch * APPENDING + (last ? 0 : ADVANCING));
    h->decode_ns[s->sequence] += (s->propose_ns + s->verify_ns + s->advance_ns) / s->batch;
}

static void hear_end(void *self, const struct ending *e)
{
    struct heard *h = self;
    h->ends++;
    note('e', LISTENING);
    assert_int_equal(e->n, LIMIT);
    assert_int_equal(e->decode_ns, h->decode_ns[e->sequence]);
}

// The starts and all steps of texts of five tokens, spaces between them: p propose, q a pass is queued, s a wait, j a draft is judged,
// a advance, a number: that step of one of the texts is reported, e: an end is.
static void expect_order(bool queues, int sequences, const char *order)
{
    static const int32_t prompt[PROMPT] = { 5, 9, 7, 5 };
    const struct stops stops = { .string = watched_stops };
    struct drafter_type type;
    struct heard heard = { 0 };
    struct error err;
    struct pair *p = open_watched(queues, &type);
    struct decoder *d =
        decoder_create(p->verifier, p->drafter, 2, 1, (struct listener){ hear_step, hear_end, &heard }, &err);
    for (int i = 0; i < sequences; i++)
        assert_true(decoder_start(d, &(struct assignment){ i, prompt, PROMPT, LIMIT, &stops }, &err));
    note(' ', LISTENING);
    while (decoder_active(d) > 0) {
        assert_true(decoder_step(d, &err));
        note(' ', LISTENING); // whoever runs the loop takes his time as well
    }
    text_puts(&watched.log, "");
    assert_string_equal(watched.log.s, order);
    assert_int_equal(heard.ends, sequences);
    free(watched.log.s);
    watched.log = (struct text){ 0 };
    decoder_destroy(d);
    pair_close(p);
}

static void steps_are_reported_while_the_device_works_and_on_nobodys_time(void **unused)
{
    (void)unused;
    expect_order(true, 1, "sqsas pqsja pqsja pq0sja pq1sja pq2sjs34se ");
    expect_order(true, 2, "sqsassqsas pqsjja pqsjja pq01sjja pq23sjja pq45sjjs6789see ");
}

static void where_nothing_is_queued_a_step_is_reported_at_its_end(void **unused)
{
    (void)unused;
    expect_order(false, 1, "sqsas pqsjas0s pqsjas1s pqsjas2s pqsjas3s pqsjs4se ");
}

// ---- all of it, and as it was judged

enum { TEXTS = 6, SLOTS = 3 };
static const int limits[TEXTS] = { 9, 2, 6, 1, 4, 7 };

struct told {
    struct text verified[SLOTS], reported[SLOTS]; // what came of the steps in each slot, in words
    int kept[TEXTS];
    int64_t decode_ns[TEXTS];
    int32_t token[TEXTS][16];
    bool ended[TEXTS];
};

static void put_in_words(struct text *to, int position, const struct draft *d, const struct verification *j)
{
    text_printf(to, "%d, empty %d:", position, j->empty);
    for (int i = 0; i < d->n; i++)
        text_printf(to, " %d<%d %d %a/%a", d->token[i], d->parent[i], d->proposal[i], j->trial_p[i], j->trial_q[i]);
    for (int i = 0; i < j->n; i++)
        text_printf(to, ", %d: %d", j->node[i], j->token[i]);
    text_puts(to, "\n");
}

static void tell_verified(void *self, const struct verified *j)
{
    const struct request *r = j->request;
    put_in_words(&((struct told *)self)->verified[r->slot], r->n - 1, r->draft, j->verification);
}

static void tell_step(void *self, const struct step *s)
{
    struct told *t = self;
    const struct verification *j = s->verification;
    assert_false(t->ended[s->sequence]);
    assert_null(s->draft->q);
    put_in_words(&t->reported[s->advance->slot], s->position, s->draft, j);
    assert_int_equal(s->advance->n, j->n);
    assert_memory_equal(s->advance->token, j->token, (size_t)j->n * sizeof(*j->token));
    assert_memory_equal(s->advance->node, j->node, (size_t)j->n * sizeof(*j->node));
    for (int i = 0; i < s->kept; i++)
        t->token[s->sequence][t->kept[s->sequence]++] = j->token[i];
    t->decode_ns[s->sequence] += (s->propose_ns + s->verify_ns + s->advance_ns) / s->batch;
}

static void tell_end(void *self, const struct ending *e)
{
    struct told *t = self;
    assert_false(t->ended[e->sequence]);
    t->ended[e->sequence] = true;
    assert_int_equal(e->n, limits[e->sequence]);
    assert_int_equal(e->n, t->kept[e->sequence]);
    assert_memory_equal(e->token, t->token[e->sequence], (size_t)e->n * sizeof(int32_t));
    assert_int_equal(e->decode_ns, t->decode_ns[e->sequence]);
    assert_true(e->wall_ns >= e->decode_ns);
}

// Texts of different lengths; another begins as soon as a slot is free.
static void tell(pair_device *device, bool queues, const char *drafter)
{
    static const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9, 7 };
    struct told t = { 0 };
    struct error err = { "" };
    struct pair *p = pair_open_on(device, NULL, pair_target, pair_draft, drafter, "{temperature: 1}",
                                  rule_named("rejection"), SLOTS, 64);
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.observer = (struct step_observer){ .verified = tell_verified, .self = &t };
    struct verifier *v = verifier_create(&with, &err);
    p->backend->queues = queues;
    struct decoder *d = decoder_create(v, p->drafter, SLOTS, 1, (struct listener){ tell_step, tell_end, &t }, &err);
    for (int next = 0; next < TEXTS || decoder_active(d) > 0;) {
        for (; next < TEXTS && decoder_has_free_slot(d); next++)
            assert_true(decoder_start(d, &(struct assignment){ next, prompt, 3 + next, limits[next], NULL }, &err));
        if (!decoder_step(d, &err))
            fail_msg("%s", err.text);
    }
    for (int i = 0; i < TEXTS; i++)
        assert_true(t.ended[i]);
    for (int i = 0; i < SLOTS; i++) {
        assert_string_equal(t.reported[i].s, t.verified[i].s);
        free(t.reported[i].s);
        free(t.verified[i].s);
    }
    decoder_destroy(d);
    verifier_destroy(v);
    pair_close(p);
}

static void every_step_is_reported_once_before_its_texts_end_and_as_it_was_judged(void **unused)
{
    (void)unused;
    static const char *const drafters[] = { "ngram", "small:model=%s,widths=[3,2,1]",
                                            "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy" };
    for (int i = 0; i < 3; i++) {
        tell(NULL, false, drafters[i]);
        tell(NULL, true, drafters[i]);
    }
#if defined(EMULATED_DEVICE)
    tell(open_emulated, true, "ngram");
    tell(open_emulated, true, "eagle:weights=%s.eagle,widths=[2,1]");
#endif
}

#if defined(EMULATED_DEVICE)

// ---- waits

static struct {
    const struct drafter_type *drafter;
    int advances, fail_at; // fail_at: something that this advance queues fails; 0: nothing
} advancing;

static bool advance_without_waiting(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    const int64_t before = emulated_syncs();
    if (++advancing.advances == advancing.fail_at)
        emulated_fail_next(1);
    const bool well = advancing.drafter->advance(d, a, n, err);
    assert_int_equal(emulated_syncs(), before);
    return well;
}

static struct pair *open_advancing(const char *drafter, struct drafter_type *type)
{
    struct pair *p = pair_open_on(open_emulated, NULL, pair_target, pair_draft, drafter, "{temperature: 0}",
                                  rule_named("rejection"), 2, 64);
    advancing.drafter = p->drafter->type;
    advancing.advances = advancing.fail_at = 0;
    *type = *p->drafter->type;
    if (type->advance != NULL)
        type->advance = advance_without_waiting;
    p->drafter->type = type;
    return p;
}

static void count_end(void *self, const struct ending *e)
{
    (void)e;
    ++*(int *)self;
}

// Two texts of these lengths.
static struct decoder *start_two(struct pair *p, int first, int second, const struct stops *stops, int *ends)
{
    static const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9, 7 };
    struct error err = { "" };
    struct decoder *d = decoder_create(p->verifier, p->drafter, 2, 1, (struct listener){ NULL, count_end, ends }, &err);
    *ends = 0;
    if (!decoder_start(d, &(struct assignment){ 0, prompt, 9, first, stops }, &err) ||
        !decoder_start(d, &(struct assignment){ 1, prompt, 5, second, NULL }, &err))
        fail_msg("%s", err.text);
    return d;
}

static void no_drafters_advance_waits_for_the_device(void **unused)
{
    (void)unused;
    for (int i = 0; i < pair_count(); i++) {
        struct drafter_type type;
        struct error err = { "" };
        int ends;
        struct pair *p = open_advancing(pair_drafter(i), &type);
        struct decoder *d = start_two(p, 4, 4, NULL, &ends);
        while (decoder_active(d) > 0)
            if (!decoder_step(d, &err))
                fail_msg("%s: %s", pair_drafter(i), err.text);
        assert_true(type.advance == NULL || advancing.advances > 2);
        decoder_destroy(d);
        pair_close(p);
    }
}

// Drafts grow, are scored and judged without the host, which reads the rulings of all at once; where a text ends, it waits
// until all is done and its times are read.
static void a_step_waits_once(void **unused)
{
    (void)unused;
    for (int i = 0; i < pair_count(); i++) {
        struct drafter_type type;
        struct error err = { "" };
        int ends;
        struct pair *p = open_advancing(pair_drafter(i), &type);
        struct decoder *d = start_two(p, 9, 4, NULL, &ends);
        while (decoder_active(d) > 0) {
            const int before = ends;
            const int64_t syncs = emulated_syncs();
            assert_true(decoder_step(d, &err));
            if (emulated_syncs() - syncs != 1 + (ends > before ? 2 : 0))
                fail_msg("%s: %d waits in a step", pair_drafter(i), (int)(emulated_syncs() - syncs));
        }
        assert_int_equal(ends, 2);
        decoder_destroy(d);
        pair_close(p);
    }
}

// ---- what goes wrong

static void a_prompt_that_fails_in_the_drafter_is_an_error_of_its_start(void **unused)
{
    (void)unused;
    static const int32_t prompt[] = { 5, 9, 7 };
    struct drafter_type type;
    struct error err = { "" };
    int ends = 0;
    struct pair *p = open_advancing("eagle:weights=%s.eagle", &type);
    struct decoder *d =
        decoder_create(p->verifier, p->drafter, 2, 1, (struct listener){ NULL, count_end, &ends }, &err);
    advancing.fail_at = 1;
    assert_false(decoder_start(d, &(struct assignment){ 0, prompt, 3, 4, NULL }, &err));
    assert_non_null(strstr(err.text, "cuda:0: "));
    assert_int_equal(decoder_active(d), 0);
    decoder_destroy(d);
    pair_close(p);
}

static void what_an_advance_queued_and_failed_is_an_error_of_the_next_step(void **unused)
{
    (void)unused;
    struct drafter_type type;
    struct error err = { "" };
    int ends;
    struct pair *p = open_advancing("eagle:weights=%s.eagle", &type);
    struct decoder *d = start_two(p, 9, 9, NULL, &ends);
    advancing.fail_at = advancing.advances + 1;
    assert_true(decoder_step(d, &err));
    assert_false(decoder_step(d, &err));
    assert_non_null(strstr(err.text, "cuda:0: "));
    assert_int_equal(ends, 0);
    decoder_destroy(d);
    pair_close(p);
}

// The runtime says at the next launch once more what it said of a wait.
static void launch_something(struct backend *b)
{
    struct error err;
    struct tensor x = rows_on(b, 1, 8);
    b->add(b, x, x);
    b->sync(b, &err);
    b->release(b, x.data);
}

static bool some_sync_fails(struct backend *b, int calls)
{
    struct error err;
    bool failed = false;
    for (int i = 0; i < calls; i++)
        failed = !b->sync(b, &err) || failed;
    return failed;
}

static int fail_at_the_end(void *self, const int32_t *token, int n, int fresh)
{
    (void)token, (void)fresh;
    if (n == 2)
        emulated_fail_next(*(int *)self);
    return 0;
}

// Whichever of the calls it is that follow the judgement which ends a text: the other's advance, stamps, the wait, the
// reading of times. Where all is well the failure is still to come.
static void no_failure_at_the_end_of_a_text_is_lost(void **unused)
{
    (void)unused;
    struct drafter_type type;
    struct error err = { "" };
    struct pair *p = open_advancing("medusa:weights=%s.medusa,tokens=1", &type);
    int call = 0, ends = 0;
    const struct stops stops = { .string = fail_at_the_end, .self = &call };
    for (bool failed = true; failed;) {
        struct decoder *d = start_two(p, 2, 9, &stops, &ends);
        failed = false;
        call++;
        while (!failed && ends == 0)
            failed = !decoder_step(d, &err);
        assert_int_equal(ends, !failed);
        if (!failed && !some_sync_fails(p->backend, call))
            fail_msg("failure of call %d is lost", call);
        emulated_fail_next(0);
        launch_something(p->backend);
        decoder_destroy(d);
    }
    assert_true(call > 10);
    pair_close(p);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_reported_while_the_device_works_and_on_nobodys_time),
        cmocka_unit_test(where_nothing_is_queued_a_step_is_reported_at_its_end),
        cmocka_unit_test(every_step_is_reported_once_before_its_texts_end_and_as_it_was_judged),
#if defined(EMULATED_DEVICE)
        cmocka_unit_test(no_drafters_advance_waits_for_the_device),
        cmocka_unit_test(a_step_waits_once),
        cmocka_unit_test(a_prompt_that_fails_in_the_drafter_is_an_error_of_its_start),
        cmocka_unit_test(what_an_advance_queued_and_failed_is_an_error_of_the_next_step),
        cmocka_unit_test(no_failure_at_the_end_of_a_text_is_lost),
#endif
    };
    return cmocka_run_group_tests(tests, pair_models_make_bf16, pair_models_remove);
}
