// test_listener.c - listeners of the decode loop: what is reported of a step, when, and which time counts.
//
// The order of calls and the times are computed, not measured, on an instrumented device: a CPU backend with replaced functions, and a
// clock that only the test advances, in place of core/clock.c.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/device/emulated.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

#if defined(EMULATED_DEVICE)
static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}
#endif

// ---- an instrumented device

enum { EMPTY = 2, PROPOSING = 3, PASS = 1000, DECIDING = 20, APPENDING = 7, ADVANCING = 500, LISTENING = 1000000 };

static struct {
    struct backend real;                // the CPU's functions
    const struct drafter_type *drafter; // NULL: there is no such device
    struct rule rule;
    int64_t now, at[MAX_STAMPS];
    bool known[MAX_STAMPS];
    struct text log;
} logging;

int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return logging.drafter != NULL ? logging.now : t.tv_sec * 1000000000 + t.tv_nsec;
}

double clock_seconds(void) // else core/clock.c would be linked for it
{
    return (double)clock_ns() / 1e9;
}

static void log_call(char what, int64_t takes)
{
    text_add(&logging.log, &what, 1);
    logging.now += takes;
}

static void log_stamp(struct backend *b, int number)
{
    logging.at[number] = logging.now;
    logging.known[number] = false;
}

static bool log_sync(struct backend *b, struct error *err)
{
    log_call('s', 0);
    memset(logging.known, true, sizeof(logging.known));
    return logging.real.sync(b, err);
}

static int64_t log_between(struct backend *b, int from, int to)
{
    assert_true(logging.known[from] && logging.known[to]);
    return logging.at[to] - logging.at[from];
}

static void log_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor frequency)
{
    log_call('q', PASS); // called once per pass
    logging.real.angles(b, out, s, frequency);
}

static bool log_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    log_call('p', PROPOSING);
    return logging.drafter->propose(d, r, n, err);
}

static bool log_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    log_call('a', ADVANCING);
    return true;
}

static void log_verify(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                       struct rng *rng, struct verification *out)
{
    log_call('j', DECIDING);
    const struct rule *match = rule_named("match");
    match->verify(match, d, p, options, rng, out);
    out->empty = EMPTY;
}

static int log_stops(void *self, const int32_t *token, int n, int fresh)
{
    logging.now += APPENDING;
    return 0;
}

static struct pair *open_logging(bool queues, struct drafter_type *type)
{
    logging.rule = *rule_named("match");
    logging.rule.verify = log_verify;
    struct pair *p = pair_open(pair_target, pair_draft, "none", "{temperature: 1}", &logging.rule, 2, 64);
    logging.real = *p->backend;
    p->backend->queues = queues;
    p->backend->stamp = log_stamp;
    p->backend->sync = log_sync;
    p->backend->between = log_between;
    p->backend->angles = log_angles;
    logging.drafter = p->drafter->type;
    *type = *p->drafter->type;
    type->propose = log_propose;
    type->advance = log_advance;
    p->drafter->type = type;
    return p;
}

// ---- order and times

enum { PROMPT = 4, LIMIT = 5 };

struct heard {
    int steps, ends, scored, verified;
    int64_t decode_ns[2]; // per sequence, from the times of its steps
};

static void log_step(void *self, const struct speclab_step *s)
{
    struct heard *h = self;
    const bool last = s->position == PROMPT + LIMIT - 2;
    log_call((char)('0' + h->steps++), LISTENING);
    assert_int_equal(s->empty, EMPTY);
    assert_int_equal(s->propose_ns, PROPOSING);
    assert_int_equal(s->verify_ns, PASS + s->batch * DECIDING);
    assert_int_equal(s->advance_ns, s->batch * APPENDING + (last ? 0 : ADVANCING));
    h->decode_ns[s->sequence] += (s->propose_ns + s->verify_ns + s->advance_ns) / s->batch;
}

static void log_end(void *self, const struct speclab_end *e)
{
    struct heard *h = self;
    h->ends++;
    log_call('e', LISTENING);
    assert_int_equal(e->n, LIMIT);
    assert_int_equal(e->prefill_ns, PASS + ADVANCING);
    assert_int_equal(e->decode_ns, h->decode_ns[e->sequence]);
}

static void hear_scored(void *self, const struct request *r, struct tensor logits)
{
    ((struct heard *)self)->scored++;
    logging.now += LISTENING;
}

static void hear_verified(void *self, const struct verified *j)
{
    ((struct heard *)self)->verified++;
    logging.now += LISTENING;
}

// The start and all steps of texts of five tokens, separated by spaces: p propose, q a pass is queued, s a wait, j a draft is
// verified, a advance, a digit: the report of that step of one of the texts, e: the report of an end.
static void expect_order(bool queues, int sequences, bool observed, const char *order)
{
    static const int32_t prompt[PROMPT] = { 5, 9, 7, 5 };
    const struct stops stops = { .string = log_stops };
    struct drafter_type type;
    struct heard heard = { 0 };
    struct error err;
    struct pair *p = open_logging(queues, &type);
    struct verifier_setup with = *verifier_setup(p->verifier);
    if (observed)
        with.observer = (struct step_observer){ hear_scored, hear_verified, &heard };
    struct verifier *v = verifier_create(&with, &err);
    struct speclab_decoder *d = decoder_create(
        v, p->drafter, 2, 1, (struct speclab_listener){ .step = log_step, .end = log_end, .self = &heard }, &err);
    for (int i = 0; i < sequences; i++)
        assert_true(decoder_start(
            d, &(struct speclab_request){ .sequence = i, .prompt = prompt, .n = PROMPT, .max_tokens = LIMIT }, &stops,
            NULL, &err));
    log_call(' ', LISTENING);
    while (speclab_decoder_active(d) > 0) {
        assert_true(speclab_decoder_step(d, &err));
        log_call(' ', LISTENING); // time of the caller between steps
    }
    text_puts(&logging.log, "");
    assert_true(order == NULL || strcmp(logging.log.s, order) == 0);
    assert_int_equal(heard.ends, sequences);
    assert_true(heard.scored == heard.verified && heard.scored == (observed ? sequences * LIMIT : 0));
    free(logging.log.s);
    logging.log = (struct text){ 0 };
    speclab_decoder_destroy(d);
    verifier_destroy(v);
    pair_close(p);
    logging.drafter = NULL;
}

TEST(steps_are_reported_while_the_device_works_and_their_time_is_not_counted)
{
    expect_order(true, 1, false, "sqsas pqsja pqsja pq0sja pq1sja pq2sjs34se ");
    expect_order(true, 2, false, "sqsassqsas pqsjja pqsjja pq01sjja pq23sjja pq45sjjs6789see ");
}

TEST(without_a_queue_a_step_is_reported_at_its_end)
{
    expect_order(false, 1, false, "sqsas pqsjas0s pqsjas1s pqsjas2s pqsjas3s pqsjs4se ");
}

TEST(time_of_observers_is_not_counted)
{
    for (int queues = 0; queues < 2; queues++)
        for (int sequences = 1; sequences < 3; sequences++)
            expect_order(queues, sequences, true, NULL);
}

// ---- every step is reported, with its decision

enum { TEXTS = 6, SLOTS = 3 };
static const int limits[TEXTS] = { 9, 2, 6, 1, 4, 7 };

struct reports {
    struct text verified[SLOTS], reported[SLOTS]; // the steps of each slot as text
    int kept[TEXTS];
    int64_t decode_ns[TEXTS];
    int32_t token[TEXTS][16];
    bool ended[TEXTS];
};

static void describe_step(struct text *to, int position, const struct draft *d, const struct verification *j)
{
    text_printf(to, "%d, empty %d:", position, j->empty);
    for (int i = 0; i < d->n; i++)
        text_printf(to, " %d<%d %d %a/%a", d->token[i], d->parent[i], d->proposal[i], j->trial_p[i], j->trial_q[i]);
    for (int i = 0; i < j->n; i++)
        text_printf(to, ", %d: %d", j->node[i], j->token[i]);
    text_puts(to, "\n");
}

static void on_verified(void *self, const struct verified *j)
{
    const struct request *r = j->request;
    describe_step(&((struct reports *)self)->verified[r->slot], r->n - 1, r->draft, j->verification);
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct reports *t = self;
    const struct draft draft = step_draft(s);
    const struct verification j = { .n = s->decided,
                                    .token = (int32_t *)(uintptr_t)s->token,
                                    .node = (int32_t *)(uintptr_t)s->node,
                                    .empty = s->empty,
                                    .trial_p = (double *)(uintptr_t)s->p,
                                    .trial_q = (double *)(uintptr_t)s->q };
    assert_false(t->ended[s->sequence]);
    describe_step(&t->reported[s->slot], s->position, &draft, &j);
    for (int i = 0; i < s->n; i++)
        t->token[s->sequence][t->kept[s->sequence]++] = s->token[i];
    t->decode_ns[s->sequence] += (s->propose_ns + s->verify_ns + s->advance_ns) / s->batch;
}

static void on_end(void *self, const struct speclab_end *e)
{
    struct reports *t = self;
    assert_false(t->ended[e->sequence]);
    t->ended[e->sequence] = true;
    assert_int_equal(e->n, limits[e->sequence]);
    assert_int_equal(e->n, t->kept[e->sequence]);
    assert_memory_equal(e->token, t->token[e->sequence], (size_t)e->n * sizeof(int32_t));
    assert_int_equal(e->decode_ns, t->decode_ns[e->sequence]);
    assert_true(e->wall_ns >= e->decode_ns);
}

// Texts of different lengths; the next one starts as soon as a slot is free.
static void check_reports(pair_device *device, bool queues, const char *drafter)
{
    static const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9, 7 };
    struct reports t = { 0 };
    struct error err = { "" };
    struct pair *p = pair_open_on(device, NULL, pair_target, pair_draft, drafter, "{temperature: 1}",
                                  rule_named("rejection"), SLOTS, 64);
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.observer = (struct step_observer){ .verified = on_verified, .self = &t };
    struct verifier *v = verifier_create(&with, &err);
    p->backend->queues = queues;
    struct speclab_decoder *d = decoder_create(
        v, p->drafter, SLOTS, 1, (struct speclab_listener){ .step = on_step, .end = on_end, .self = &t }, &err);
    for (int next = 0; next < TEXTS || speclab_decoder_active(d) > 0;) {
        for (; next < TEXTS && speclab_decoder_has_free_slot(d); next++)
            assert_true(
                decoder_start(d,
                              &(struct speclab_request){
                                  .sequence = next, .prompt = prompt, .n = 3 + next, .max_tokens = limits[next] },
                              NULL, NULL, &err));
        assert_ok(speclab_decoder_step(d, &err), err);
    }
    for (int i = 0; i < TEXTS; i++)
        assert_true(t.ended[i]);
    for (int i = 0; i < SLOTS; i++) {
        assert_string_equal(t.reported[i].s, t.verified[i].s);
        free(t.reported[i].s);
        free(t.verified[i].s);
    }
    speclab_decoder_destroy(d);
    verifier_destroy(v);
    pair_close(p);
}

TEST(every_step_is_reported_once_before_the_end_with_its_decision)
{
    static const char *const drafters[] = { "ngram", "small:model=%s,widths=[3,2,1]",
                                            "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy" };
    for (int i = 0; i < 3; i++) {
        check_reports(NULL, false, drafters[i]);
        check_reports(NULL, true, drafters[i]);
    }
#if defined(EMULATED_DEVICE)
    check_reports(open_emulated, true, "ngram");
    check_reports(open_emulated, true, "eagle:weights=%s.eagle,widths=[2,1]");
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
    const bool ok = advancing.drafter->advance(d, a, n, err);
    assert_int_equal(emulated_syncs(), before);
    return ok;
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

static void count_end(void *self, const struct speclab_end *e)
{
    ++*(int *)self;
}

// Two texts of these lengths.
static struct speclab_decoder *start_two(struct pair *p, int first, int second, const struct stops *stops, int *ends)
{
    static const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9, 7 };
    struct error err = { "" };
    struct speclab_decoder *d = decoder_create(p->verifier, p->drafter, 2, 1,
                                               (struct speclab_listener){ .end = count_end, .self = ends }, &err);
    *ends = 0;
    if (!decoder_start(d, &(struct speclab_request){ .sequence = 0, .prompt = prompt, .n = 9, .max_tokens = first },
                       stops, NULL, &err) ||
        !decoder_start(d, &(struct speclab_request){ .sequence = 1, .prompt = prompt, .n = 5, .max_tokens = second },
                       NULL, NULL, &err))
        fail_msg("%s", err.text);
    return d;
}

TEST(advance_never_waits_for_the_device)
{
    for (int i = 0; i < pair_count(); i++) {
        struct drafter_type type;
        struct error err = { "" };
        int ends;
        struct pair *p = open_advancing(pair_drafter(i), &type);
        struct speclab_decoder *d = start_two(p, 4, 4, NULL, &ends);
        while (speclab_decoder_active(d) > 0)
            if (!speclab_decoder_step(d, &err))
                fail_msg("%s: %s", pair_drafter(i), err.text);
        assert_true(type.advance == NULL || advancing.advances > 2);
        speclab_decoder_destroy(d);
        pair_close(p);
    }
}

// Drafting, scoring and verification run without the host, which reads all decisions in one wait. When a text ends, it also waits
// for the queue and for the times.
TEST(a_step_waits_once)
{
    for (int i = 0; i < pair_count(); i++) {
        struct drafter_type type;
        struct error err = { "" };
        int ends;
        // Built on the host, level by level; or the host reads what the target says of the draft.
        if (strstr(pair_drafter(i), "vocabulary=") != NULL || strncmp(pair_drafter(i), "union", 5) == 0 ||
            strstr(pair_drafter(i), "confidence") != NULL || pair_uses_target(pair_drafter(i)))
            continue;
        struct pair *p = open_advancing(pair_drafter(i), &type);
        struct speclab_decoder *d = start_two(p, 9, 4, NULL, &ends);
        while (speclab_decoder_active(d) > 0) {
            const int before = ends;
            const int64_t syncs = emulated_syncs();
            assert_true(speclab_decoder_step(d, &err));
            if (emulated_syncs() - syncs != 1 + (ends > before ? 2 : 0))
                fail_msg("%s: %d waits in a step", pair_drafter(i), (int)(emulated_syncs() - syncs));
        }
        assert_int_equal(ends, 2);
        speclab_decoder_destroy(d);
        pair_close(p);
    }
}

// ---- failures

TEST(a_prompt_that_fails_in_the_drafter_is_an_error_of_decoder_start)
{
    static const int32_t prompt[] = { 5, 9, 7 };
    struct drafter_type type;
    struct error err = { "" };
    int ends = 0;
    struct pair *p = open_advancing("eagle:weights=%s.eagle", &type);
    struct speclab_decoder *d = decoder_create(p->verifier, p->drafter, 2, 1,
                                               (struct speclab_listener){ .end = count_end, .self = &ends }, &err);
    advancing.fail_at = 1;
    assert_false(decoder_start(d, &(struct speclab_request){ .sequence = 0, .prompt = prompt, .n = 3, .max_tokens = 4 },
                               NULL, NULL, &err));
    assert_non_null(strstr(err.text, "cuda:0: "));
    assert_int_equal(speclab_decoder_active(d), 0);
    speclab_decoder_destroy(d);
    pair_close(p);
}

TEST(a_failure_queued_by_advance_is_an_error_of_the_next_step)
{
    struct drafter_type type;
    struct error err = { "" };
    int ends;
    struct pair *p = open_advancing("eagle:weights=%s.eagle", &type);
    struct speclab_decoder *d = start_two(p, 9, 9, NULL, &ends);
    advancing.fail_at = advancing.advances + 1;
    assert_true(speclab_decoder_step(d, &err));
    assert_false(speclab_decoder_step(d, &err));
    assert_non_null(strstr(err.text, "cuda:0: "));
    assert_int_equal(ends, 0);
    speclab_decoder_destroy(d);
    pair_close(p);
}

// The runtime reports an error of a wait once more at the next launch.
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
    if (n == 2)
        emulated_fail_next(*(int *)self);
    return 0;
}

// Any call after the decision that ends a text may fail: the advance of the other text, stamps, the wait, reading of times. If
// the step succeeds, the failure must still come.
TEST(no_failure_at_the_end_of_a_text_is_lost)
{
    struct drafter_type type;
    struct error err = { "" };
    struct pair *p = open_advancing("medusa:weights=%s.medusa,tokens=1", &type);
    int call = 0, ends = 0;
    const struct stops stops = { .string = fail_at_the_end, .self = &call };
    for (bool failed = true; failed;) {
        struct speclab_decoder *d = start_two(p, 2, 9, &stops, &ends);
        failed = false;
        call++;
        while (!failed && ends == 0)
            failed = !speclab_decoder_step(d, &err);
        assert_int_equal(ends, !failed);
        if (!failed && !some_sync_fails(p->backend, call))
            fail_msg("failure of call %d is lost", call);
        emulated_fail_next(0);
        launch_something(p->backend);
        speclab_decoder_destroy(d);
    }
    assert_true(call > 10);
    pair_close(p);
}
#endif

RUN_TESTS(pair_models_make_bf16, pair_models_remove)
