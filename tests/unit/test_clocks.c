// test_clocks.c - whose time is whose, on a clock that goes on only where the test says so.
//
// The program has its own clock_ns(), which takes the place of core/clock.c: the CPU's stamps, the decode loop and the
// verifier all read it. So times are computed, not measured: each part of a step takes a power of ten of its own.
#include <stdlib.h>

#include "core/clock.h"
#include "core/error.h"
#include "kernels/backend.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

enum {
    PASS = 1,
    PROPOSING = 10,
    JUDGING = 100,
    ADVANCING = 1000,
    APPENDING = 10000,
    REPORTING = 100000,
    SEEING = 1000000,
    PROMPT = 4,
    LIMIT = 5,
};

static int64_t now;

int64_t clock_ns(void)
{
    return now;
}

// ---- parts that take time

static struct {
    struct backend real;
    const struct drafter_type *drafter;
    struct rule rule;
} slow;

static void slow_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor frequency)
{
    now += PASS; // once a pass
    slow.real.angles(b, out, s, frequency);
}

static bool slow_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    now += PROPOSING;
    return slow.drafter->propose(d, r, n, err);
}

static bool slow_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)d, (void)a, (void)n, (void)err;
    now += ADVANCING;
    return true;
}

static void slow_judge(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                       struct verification *out)
{
    now += JUDGING;
    rule_named("match")->verify(d, p, options, rng, out);
}

static int slow_stops(void *self, const int32_t *token, int n, int fresh)
{
    (void)self, (void)token, (void)n, (void)fresh;
    now += APPENDING;
    return 0;
}

// ---- observers

struct seen {
    int scored, verified, steps, ends;
    int64_t decode_ns;
};

static void see_scored(void *self, const struct request *r, struct tensor logits)
{
    (void)r, (void)logits;
    ((struct seen *)self)->scored++;
    now += SEEING;
}

static void see_verified(void *self, const struct verified *j)
{
    (void)j;
    ((struct seen *)self)->verified++;
    now += SEEING;
}

static void hear_step(void *self, const struct step *s)
{
    struct seen *h = self;
    const bool last = s->position == PROMPT + LIMIT - 2;
    h->steps++;
    assert_int_equal(s->propose_ns, PROPOSING);
    assert_int_equal(s->verify_ns, PASS + s->batch * JUDGING);
    assert_int_equal(s->advance_ns, s->batch * APPENDING + (last ? 0 : ADVANCING));
    h->decode_ns += (s->propose_ns + s->verify_ns + s->advance_ns) / s->batch;
    now += REPORTING;
}

static void hear_end(void *self, const struct ending *e)
{
    struct seen *h = self;
    h->ends++;
    assert_int_equal(e->n, LIMIT);
    assert_int_equal(e->prefill_ns, PASS + ADVANCING);
    assert_int_equal(e->decode_ns,
                     LIMIT * (PROPOSING + PASS) + LIMIT * (JUDGING + APPENDING) + (LIMIT - 1) * ADVANCING);
}

// One text of LIMIT tokens, a token a step.
static struct seen decode(bool scored, bool verified)
{
    static const int32_t prompt[PROMPT] = { 5, 9, 7, 5 };
    const struct stops stops = { .string = slow_stops };
    struct seen seen = { 0 };
    struct error err;
    slow.rule = *rule_named("match");
    slow.rule.verify = slow_judge;
    struct pair *p = pair_open(pair_target, pair_draft, "none", "{temperature: 1}", &slow.rule, 1, 64);
    slow.real = *p->backend;
    p->backend->angles = slow_angles;
    slow.drafter = p->drafter->type;
    struct drafter_type type = *p->drafter->type;
    type.propose = slow_propose;
    type.advance = slow_advance;
    p->drafter->type = &type;
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.observer = (struct step_observer){ scored ? see_scored : NULL, verified ? see_verified : NULL, &seen };
    struct verifier *v = verifier_create(&with, &err);
    struct decoder *d = decoder_create(v, p->drafter, 1, 1, (struct listener){ hear_step, hear_end, &seen }, &err);
    assert_true(decoder_start(d, &(struct assignment){ 0, prompt, PROMPT, LIMIT, &stops }, &err));
    const int64_t began = now;
    while (decoder_active(d) > 0)
        assert_true(decoder_step(d, &err));
    assert_int_equal(now - began, seen.decode_ns + LIMIT * REPORTING + (int64_t)(seen.scored + seen.verified) * SEEING);
    decoder_destroy(d);
    verifier_destroy(v);
    pair_close(p);
    assert_int_equal(seen.steps, LIMIT);
    assert_int_equal(seen.ends, 1);
    return seen;
}

static void a_step_takes_what_its_parts_take(void **unused)
{
    (void)unused;
    const struct seen s = decode(false, false);
    assert_int_equal(s.scored + s.verified, 0);
}

static void what_an_observer_takes_is_in_no_time(void **unused)
{
    (void)unused;
    for (int scored = 0; scored < 2; scored++)
        for (int verified = 0; verified < 2; verified++) {
            const struct seen s = decode(scored, verified);
            assert_int_equal(s.scored, scored * LIMIT);
            assert_int_equal(s.verified, verified * LIMIT);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_takes_what_its_parts_take),
        cmocka_unit_test(what_an_observer_takes_is_in_no_time),
    };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
