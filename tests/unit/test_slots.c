// test_slots.c - reused slots: the results and records of the second and third sequence of a slot equal those of a sequence in an
// unused slot.
//
// Verifier, drafter, decode loop, expectations and recorder all keep state per slot. One set of them decodes several sequences;
// for each sequence a newly created set decodes that one alone.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/expectation.h"
#include "experiments/recorder.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/device/emulated.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 72, TEXTS = 7 };

// Long before short and short before long, so that rows of an earlier sequence remain in the cache after those of a later one.
static const struct {
    int prompt, limit;
} texts[TEXTS] = { { 30, 9 }, { 5, 4 }, { 1, 7 }, { 17, 8 }, { 9, 5 }, { 4, 3 }, { 2, 2 } };

static int32_t token_of(int text, int at)
{
    return text % 2 == 0 ? at * (at + text) % 7 + 3 : (at * 37 + text * 11) % 270; // with and without repetitions
}

struct rig { // a pair with a recorder
    struct pair *pair;
    struct recorder *recorder;
    struct verifier *verifier;
    struct speclab_decoder *decoder;
};

static struct rig rig_open(pair_device *device, const char *drafter, const char *sampling, int slots)
{
    struct error err;
    struct rig r = { .pair = pair_open_on(device, NULL, pair_target, pair_draft, drafter, sampling,
                                          rule_named("rejection"), slots, LENGTH) };
    struct pair *p = r.pair;
    r.recorder = recorder_create(slots, true, 0);
    r.verifier = verifier_create(verifier_setup(p->verifier), &err);
    assert_non_null(r.verifier);
    recorder_set_drafter(r.recorder, p->drafter,
                         expecter_create(p->rule, p->rule_options, drafter_makes(p->type, p->options),
                                         p->drafter->nodes, model_shape(p->target)->vocab));
    r.decoder = decoder_create(r.verifier, p->drafter, slots, 21, recorder_listener(r.recorder, true), &err);
    assert_non_null(r.decoder);
    return r;
}

static void rig_close(struct rig *r)
{
    speclab_decoder_destroy(r->decoder);
    verifier_destroy(r->verifier);
    recorder_destroy(r->recorder);
    pair_close(r->pair);
}

static void start(struct rig *r, int text)
{
    int32_t token[LENGTH];
    struct error err;
    for (int i = 0; i < texts[text].prompt; i++)
        token[i] = token_of(text, i);
    recorder_begin(r->recorder, text);
    if (!decoder_start(
            r->decoder,
            &(struct speclab_request){
                .sequence = text, .prompt = token, .n = texts[text].prompt, .max_tokens = texts[text].limit },
            NULL, NULL, &err))
        fail_msg("%s", err.text);
}

static void put(struct text *to, double x)
{
    text_printf(to, isnan(x) ? " nan" : " %a", x);
}

// The sources of a step's draft tokens add up to its draft tokens, and of the accepted ones to those in the text; trials agree.
static void expect_sources(const struct sequence_row *row, bool has_parts)
{
    for (int k = 0, left = row->new_tokens; k < row->n_steps; k++) {
        const struct step_row *s = &row->step[k];
        int drafted = 0, accepted = 0, accepted_trials = 0;
        for (int i = 0; i < s->n_by_source; i++) {
            drafted += s->by_source[i].drafted;
            accepted += s->by_source[i].accepted;
        }
        for (int i = 0; i < s->n_trials; i++) {
            assert_true((s->trial[i].source != NULL) == has_parts);
            bool listed = false;
            for (int j = 0; j < s->n_by_source; j++)
                listed |= s->by_source[j].source == s->trial[i].source;
            assert_true(listed == has_parts);
            accepted_trials += s->trial[i].accepted;
        }
        assert_int_equal(drafted, has_parts ? s->drafted : 0);
        assert_int_equal(accepted, has_parts ? s->accepted < left ? s->accepted : left : 0);
        assert_true(accepted_trials >= accepted);
        left -= s->accepted < left ? s->accepted + 1 : left;
    }
}

// Everything that was recorded except times, as text.
static char *record_text(const struct sequence_row *row)
{
    struct text t = { 0 };
    text_printf(&t, "%d tokens, %s:", row->new_tokens, row->stop);
    for (int i = 0; i < row->new_tokens; i++)
        text_printf(&t, " %d", row->token[i]);
    for (int k = 0; k < row->n_steps; k++) {
        const struct step_row *s = &row->step[k];
        text_printf(&t, "\n%d drafted, depth %d, %d accepted", s->drafted, s->depth, s->accepted);
        put(&t, s->expected);
        put(&t, s->variance);
        for (int i = 0; i < s->n_by_rule; i++) {
            text_printf(&t, "; %s %d", s->by_rule[i].rule, s->by_rule[i].lossless);
            put(&t, s->by_rule[i].accepted);
            put(&t, s->by_rule[i].first);
        }
        for (int i = 0; i < s->n_trials; i++) {
            const struct trial_row *r = &s->trial[i];
            text_printf(&t, "; trial %d %d %d %d %d %d %s", r->node, r->depth, r->rank, r->token, r->proposal,
                        r->accepted, r->source != NULL ? r->source : "");
            put(&t, r->p);
            put(&t, r->q);
        }
        for (int i = 0; i < s->n_by_source; i++)
            text_printf(&t, "; %s %d %d", s->by_source[i].source, s->by_source[i].drafted, s->by_source[i].accepted);
    }
    return t.s;
}

static void step(struct rig *r)
{
    struct error err;
    assert_ok(speclab_decoder_step(r->decoder, &err), err);
}

static char *alone(pair_device *device, const char *drafter, const char *sampling, int text)
{
    struct rig r = rig_open(device, drafter, sampling, 1);
    struct sequence_row row;
    start(&r, text);
    while (speclab_decoder_active(r.decoder) > 0)
        step(&r);
    assert_int_equal(recorder_take(r.recorder, &row), text);
    char *record = record_text(&row);
    rig_close(&r);
    return record;
}

// Decodes texts from..to in this many slots; a free slot takes the next text.
static void check(pair_device *device, const char *drafter, const char *sampling, int slots, int from, int to)
{
    char *expected[TEXTS];
    struct rig r = rig_open(device, drafter, sampling, slots);
    int64_t which;
    int next = from, taken = from, steps = 0;
    for (int i = from; i < to; i++)
        expected[i] = alone(device, drafter, sampling, i);
    while (taken < to) {
        for (; next < to && speclab_decoder_has_free_slot(r.decoder); next++)
            start(&r, next);
        step(&r);
        for (struct sequence_row row; (which = recorder_take(r.recorder, &row)) >= 0; taken++) {
            char *record = record_text(&row);
            expect_sources(&row, r.pair->drafter->parts > 0);
            if (strcmp(record, expected[which]) != 0)
                fail_msg("%s, %s, %d slots: text %d, the %dth to end, was recorded as\n%s\nand alone as\n%s", drafter,
                         sampling, slots, (int)which, taken - from + 1, record, expected[which]);
            steps += row.n_steps;
            free(record);
        }
    }
    assert_true(steps > to - from);
    for (int i = from; i < to; i++)
        free(expected[i]);
    rig_close(&r);
}

TEST(a_reused_slot_gives_the_records_of_an_unused_one)
{
    for (int i = 0; i < pair_count(); i++) {
        const int slots = 1 + i % 3;
        if (pair_remembers(pair_drafter(i)) == DRAFTS_OF_OTHERS)
            continue;
        check(NULL, pair_drafter(i),
              i % 2 == 0 ? "{repetition_penalty: 1.3, temperature: 0.9}" : "{temperature: 1, top_p: 0.95}", slots, 0,
              slots + 2);
    }
}

#if defined(EMULATED_DEVICE)
static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}

// Few tokens, as an emulated device is slow.
TEST(a_reused_slot_gives_the_records_of_an_unused_one_on_a_device)
{
    check(open_emulated, "small:model=%s,tokens=1", "{temperature: 0.9}", 1, TEXTS - 2, TEXTS);
}
#endif

RUN_TESTS(pair_models_make, pair_models_remove)
