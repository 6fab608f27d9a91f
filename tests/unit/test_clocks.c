// test_clocks.c - which time counts as which, on a clock that only the test advances.
//
// The program defines its own clock_ns() in place of core/clock.c; the CPU's stamps, the decode loop and the verifier all read
// it. Times are therefore computed, not measured: each part of a step takes its own power of ten.
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
    DECIDING = 100,
    ADVANCING = 1000,
    APPENDING = 10000,
    REPORTING = 100000,
    OBSERVING = 1000000,
    PROMPT = 4,
    LIMIT = 5,
};

static int64_t now;

int64_t clock_ns(void)
{
    return now;
}

double clock_seconds(void) // else core/clock.c would be linked for it
{
    return (double)now / 1e9;
}

// ---- parts that take time

static struct {
    struct backend real;
    const struct drafter_type *drafter;
    struct rule rule;
} slow;

static void slow_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor frequency)
{
    now += PASS; // called once per pass
    slow.real.angles(b, out, s, frequency);
}

static bool slow_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    now += PROPOSING;
    return slow.drafter->propose(d, r, n, err);
}

static bool slow_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    now += ADVANCING;
    return true;
}

static void slow_verify(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                        struct rng *rng, struct verification *out)
{
    now += DECIDING;
    const struct rule *match = rule_named("match");
    match->verify(match, d, p, options, rng, out);
}

static int slow_stops(void *self, const int32_t *token, int n, int fresh)
{
    now += APPENDING;
    return 0;
}

// ---- observers

struct observed {
    int scored, verified, steps, ends;
    int64_t decode_ns;
};

static void on_scored(void *self, const struct request *r, struct tensor logits)
{
    ((struct observed *)self)->scored++;
    now += OBSERVING;
}

static void on_verified(void *self, const struct verified *j)
{
    ((struct observed *)self)->verified++;
    now += OBSERVING;
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct observed *h = self;
    const bool last = s->position == PROMPT + LIMIT - 2;
    h->steps++;
    assert_int_equal(s->propose_ns, PROPOSING);
    assert_int_equal(s->verify_ns, PASS + s->batch * DECIDING);
    assert_int_equal(s->advance_ns, s->batch * APPENDING + (last ? 0 : ADVANCING));
    h->decode_ns += (s->propose_ns + s->verify_ns + s->advance_ns) / s->batch;
    now += REPORTING;
}

static void on_end(void *self, const struct speclab_end *e)
{
    struct observed *h = self;
    h->ends++;
    assert_int_equal(e->n, LIMIT);
    assert_int_equal(e->prefill_ns, PASS + ADVANCING);
    assert_int_equal(e->decode_ns,
                     LIMIT * (PROPOSING + PASS) + LIMIT * (DECIDING + APPENDING) + (LIMIT - 1) * ADVANCING);
}

// Decodes one text of LIMIT tokens, one token per step.
static struct observed decode(bool scored, bool verified)
{
    static const int32_t prompt[PROMPT] = { 5, 9, 7, 5 };
    const struct stops stops = { .string = slow_stops };
    struct observed o = { 0 };
    struct error err;
    slow.rule = *rule_named("match");
    slow.rule.verify = slow_verify;
    struct pair *p = pair_open(pair_target, pair_draft, "none", "{temperature: 1}", &slow.rule, 1, 64);
    slow.real = *p->backend;
    p->backend->angles = slow_angles;
    slow.drafter = p->drafter->type;
    struct drafter_type type = *p->drafter->type;
    type.propose = slow_propose;
    type.advance = slow_advance;
    p->drafter->type = &type;
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.observer = (struct step_observer){ scored ? on_scored : NULL, verified ? on_verified : NULL, &o };
    struct verifier *v = verifier_create(&with, &err);
    struct speclab_decoder *d = decoder_create(
        v, p->drafter, 1, 1, (struct speclab_listener){ .step = on_step, .end = on_end, .self = &o }, &err);
    assert_true(
        decoder_start(d, &(struct speclab_request){ .sequence = 0, .prompt = prompt, .n = PROMPT, .max_tokens = LIMIT },
                      &stops, NULL, &err));
    const int64_t began = now;
    while (speclab_decoder_active(d) > 0)
        assert_true(speclab_decoder_step(d, &err));
    assert_int_equal(now - began, o.decode_ns + LIMIT * REPORTING + (int64_t)(o.scored + o.verified) * OBSERVING);
    speclab_decoder_destroy(d);
    verifier_destroy(v);
    pair_close(p);
    assert_int_equal(o.steps, LIMIT);
    assert_int_equal(o.ends, 1);
    return o;
}

static void the_time_of_a_step_is_the_sum_of_its_parts(void **unused)
{
    const struct observed s = decode(false, false);
    assert_int_equal(s.scored + s.verified, 0);
}

static void time_of_observers_is_not_counted(void **unused)
{
    for (int scored = 0; scored < 2; scored++)
        for (int verified = 0; verified < 2; verified++) {
            const struct observed s = decode(scored, verified);
            assert_int_equal(s.scored, scored * LIMIT);
            assert_int_equal(s.verified, verified * LIMIT);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_of_a_step_is_the_sum_of_its_parts),
        cmocka_unit_test(time_of_observers_is_not_counted),
    };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
