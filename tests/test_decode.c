// test_decode.c - the loop: whatever is drafted, however many slots there are, the text is the target's own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "sampling/rng.h"
#include "tests/check.h"
#include "tests/pairs.h"
#include "tests/tiny.h"
#include "verifier/rule.h"

enum { LENGTH = 128, PROMPTS = 7, LIMIT = 40 };

static char *target_path, *draft_path;

struct saying {                  // what became of each prompt
    int n[PROMPTS];
    int32_t token[PROMPTS][LENGTH];
    enum stop_reason why[PROMPTS];
    int steps, accepted, drafted, kept;
    int64_t decode_ns;
};

static void on_step(void *self, const struct step *s)
{
    struct saying *to = self;
    to->steps++;
    to->drafted += s->draft->n - 1;
    to->accepted += s->advance->n - 1;
    to->kept += s->kept;
    assert_true(s->kept >= 0 && s->kept <= s->advance->n && s->batch >= 1);
    assert_true(s->judgement->n == s->advance->n);
}

static void on_done(void *self, const struct ending *e)
{
    struct saying *to = self;
    to->n[e->sequence] = e->n;
    to->why[e->sequence] = e->why;
    to->decode_ns += e->decode_ns;
    memcpy(to->token[e->sequence], e->token, (size_t)e->n * sizeof(int32_t));
    assert_true(e->prefill_ns >= 0 && e->decode_ns > 0 && e->wall_ns >= e->decode_ns);
}

// Prompts of several lengths: one token, and one too long for a stretch of prefill among them.
static int prompt(int i, int32_t *token, int vocab)
{
    static const int lengths[PROMPTS] = { 1, 5, 30, 80, 2, 17, 50 };
    uint64_t s = (uint64_t)i * 77 + 5;
    for (int k = 0; k < lengths[i]; k++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        token[k] = (int32_t)((s >> 33) % (uint64_t)vocab);
    }
    return lengths[i];
}

static struct saying *say(const char *drafter, const char *sampling, const char *rule, int slots, const struct stops *stops, int limit,
                          const char *draft)
{
    struct error err;
    struct saying *to = xcalloc(1, sizeof(*to));
    struct pair *p = pair_open(target_path, draft, drafter, sampling, rule_named(rule), slots, LENGTH);
    struct listener listener = { on_step, on_done, to };
    struct decoder *d = decoder_create(p->verifier, p->drafter, slots, 21, listener, &err);
    assert_non_null(d);
    for (int next = 0; next < PROMPTS || decoder_live(d) > 0;) {
        while (next < PROMPTS && decoder_has_room(d)) {
            int32_t token[LENGTH];
            struct assignment a = { next, token, prompt(next, token, model_shape(p->target)->vocab), limit, stops };
            if (!decoder_start(d, &a, &err))
                fail_msg("%s", err.text);
            next++;
        }
        if (!decoder_step(d, &err))
            fail_msg("%s", err.text);
    }
    decoder_destroy(d);
    pair_close(p);
    return to;
}

static void same_text(const struct saying *a, const struct saying *b, const char *drafter, const char *sampling, int slots)
{
    for (int i = 0; i < PROMPTS; i++) {
        int n = a->n[i] < b->n[i] ? a->n[i] : b->n[i];
        for (int k = 0; k < n; k++)
            if (a->token[i][k] != b->token[i][k])
                fail_msg("%s, %s, %d slots: prompt %d parts at token %d", drafter, sampling, slots, i, k);
        if (a->n[i] != b->n[i] || a->why[i] != b->why[i])
            fail_msg("%s, %s, %d slots: prompt %d has %d tokens (%s), not %d (%s)", drafter, sampling, slots, i, b->n[i],
                     stop_name(b->why[i]), a->n[i], stop_name(a->why[i]));
    }
}

static void against_none(const char *sampling, const char *rule, const struct stops *stops, int limit)
{
    static const int slots[] = { 1, 2, 5 };
    struct saying *plain = say("none", sampling, rule, 1, stops, limit, draft_path);
    assert_int_equal(plain->drafted, 0);
    for (int i = 0; i < pair_count(); i++)
        for (size_t s = 0; s < sizeof(slots) / sizeof(slots[0]); s++) {
            struct saying *other = say(pair_drafter(i), sampling, rule, slots[s], stops, limit, draft_path);
            same_text(plain, other, pair_drafter(i), sampling, slots[s]);
            assert_int_equal(other->kept, plain->kept);
            free(other);
        }
    free(plain);
}

static void greedy_text_is_nones_text_for_every_drafter_tree_and_slot_count(void **unused)
{
    (void)unused;
    against_none("{temperature: 0}", "rejection", NULL, LIMIT);
    against_none("{repetition_penalty: 1.2, temperature: 0}", "rejection", NULL, LIMIT);
    against_none("{temperature: 0}", "match", NULL, LIMIT);
}

static void seed_coupled_text_is_nones_text_at_temperature_one(void **unused)
{
    (void)unused;
    against_none("{temperature: 1}", "match", NULL, LIMIT);
    against_none("{repetition_penalty: 1.3, temperature: 0.7, top_k: 50, top_p: 0.9}", "match", NULL, LIMIT);
}

static void the_length_of_the_context_ends_a_text_at_the_same_token(void **unused)
{
    (void)unused;
    against_none("{temperature: 0}", "rejection", NULL, LENGTH * 2);
}

static void tokens_that_end_a_text_end_it(void **unused)
{
    (void)unused;
    struct saying *plain = say("none", "{temperature: 1}", "match", 1, NULL, LIMIT, draft_path);
    int32_t ends[] = { plain->token[1][9], plain->token[3][20] };
    struct stops stops = { .n = 2, .token = ends };
    struct saying *ended = say("none", "{temperature: 1}", "match", 1, &stops, LIMIT, draft_path);
    assert_true(ended->n[1] <= 10 && ended->why[1] == STOP_TOKEN);
    int32_t last = ended->token[1][ended->n[1] - 1];
    assert_true(last == ends[0] || last == ends[1]);
    for (int k = 0; k < ended->n[1]; k++)
        assert_int_equal(ended->token[1][k], plain->token[1][k]);
    against_none("{temperature: 1}", "match", &stops, LIMIT);
    free(plain);
    free(ended);
}

// Stops in front of the second of two neighbouring tokens of which the sum is divisible by 23: a stop "string" that may span steps.
static int stop_at_sum(void *self, const int32_t *token, int n, int fresh)
{
    (void)self;
    for (int i = n - fresh > 0 ? n - fresh : 1; i < n; i++)
        if ((token[i - 1] + token[i]) % 23 == 0)
            return i;
    return 0;
}

static void stop_strings_cut_the_text_where_they_begin(void **unused)
{
    (void)unused;
    struct stops stops = { .string = stop_at_sum };
    struct saying *plain = say("none", "{temperature: 1}", "match", 1, &stops, LIMIT, draft_path);
    int stopped = 0;
    for (int i = 0; i < PROMPTS; i++)
        stopped += plain->why[i] == STOP_STRING;
    assert_true(stopped > 0);
    static const char *const drafters[] = { "ngram", "small:model=%s,tokens=6,pick=likeliest", "small:model=%s,widths=[3,2,1]" };
    for (int i = 0; i < 3; i++) {
        struct saying *other = say(drafters[i], "{temperature: 1}", "match", 2, &stops, LIMIT, target_path);
        same_text(plain, other, drafters[i], "stop strings", 2);
        free(other);
    }
    free(plain);
}

static void a_drafter_that_is_the_target_is_always_right(void **unused)
{
    (void)unused;
    static const char *const cases[][3] = {
        { "small:model=%s,tokens=5", "{temperature: 1}", "rejection" },
        { "small:model=%s,tokens=5", "{temperature: 0}", "rejection" },
        { "small:model=%s,tokens=5", "{temperature: 0.8, top_p: 0.9}", "rejection" },
        { "small:model=%s,tokens=5,pick=coupled", "{temperature: 1}", "match" },
        { "small:model=%s,tokens=5,pick=likeliest", "{temperature: 0}", "match" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct saying *s = say(cases[i][0], cases[i][1], cases[i][2], 3, NULL, LIMIT, target_path);
        if (s->accepted != s->drafted)
            fail_msg("%s, %s, %s: %d of %d accepted", cases[i][0], cases[i][1], cases[i][2], s->accepted, s->drafted);
        assert_true(s->drafted > 0);
        free(s);
    }
}

static void a_prompt_that_fills_the_context_is_refused(void **unused)
{
    (void)unused;
    struct error err;
    struct saying ignored;
    struct pair *p = pair_open(target_path, draft_path, "none", "{temperature: 0}", rule_named("rejection"), 1, 16);
    struct decoder *d = decoder_create(p->verifier, p->drafter, 1, 0, (struct listener){ on_step, on_done, &ignored }, &err);
    int32_t token[16] = { 0 };
    assert_false(decoder_start(d, &(struct assignment){ 0, token, 16, 4, NULL }, &err));
    assert_non_null(strstr(err.text, "16 tokens"));
    assert_true(decoder_has_room(d));
    assert_true(decoder_start(d, &(struct assignment){ 0, token, 15, 4, NULL }, &err));
    decoder_destroy(d);
    pair_close(p);
}

int main(void)
{
    struct tiny t = tiny_usual;
    target_path = xformat("%s/target", tiny_directory());
    tiny_write_hf(target_path, &t);
    t.layers = 1;                            // the target's own first layer: it is right now and then
    draft_path = xformat("%s/draft.gguf", tiny_directory());
    tiny_write_gguf(draft_path, &t);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_nones_text_for_every_drafter_tree_and_slot_count),
        cmocka_unit_test(seed_coupled_text_is_nones_text_at_temperature_one),
        cmocka_unit_test(the_length_of_the_context_ends_a_text_at_the_same_token),
        cmocka_unit_test(tokens_that_end_a_text_end_it),
        cmocka_unit_test(stop_strings_cut_the_text_where_they_begin),
        cmocka_unit_test(a_drafter_that_is_the_target_is_always_right),
        cmocka_unit_test(a_prompt_that_fills_the_context_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(target_path);
    free(draft_path);
    tiny_clean();
    return failed;
}
