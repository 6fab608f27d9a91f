// test_decode.c - the loop: whatever is drafted, however many slots there are, the text is the target's own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/check.h"
#include "tests/pairs.h"
#include "tests/saying.h"
#include "tests/tiny.h"
#include "verifier/rule.h"

enum { LENGTH = 128, LIMIT = 40 };

static char *target_path, *draft_path;
static struct prompts_given prompts;

// Prompts of several lengths, the shortest a single token.
static void make_prompts(int vocab)
{
    static const int lengths[] = { 1, 5, 30, 80, 2, 17, 50 };
    prompts.n = sizeof(lengths) / sizeof(lengths[0]);
    for (int i = 0; i < prompts.n; i++) {
        uint64_t s = (uint64_t)i * 77 + 5;
        prompts.length[i] = lengths[i];
        for (int k = 0; k < lengths[i]; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            prompts.token[i][k] = (int32_t)((s >> 33) % (uint64_t)vocab);
        }
    }
}

static struct saying_setup setup(const char *drafter, const char *sampling, const char *rule, int slots)
{
    return (struct saying_setup){ target_path, draft_path, &prompts, drafter, sampling, rule, NULL, slots, LIMIT, LENGTH };
}

static void against_none(const char *sampling, const char *rule, const struct stops *stops, int limit)
{
    static const int slots[] = { 1, 2, 5 };
    struct saying_setup s = setup("none", sampling, rule, 1);
    s.stops = stops;
    s.limit = limit;
    struct saying *plain = say(&s);
    assert_int_equal(plain->drafted, 0);
    for (int i = 0; i < pair_count(); i++)
        for (size_t k = 0; k < sizeof(slots) / sizeof(slots[0]); k++) {
            s.drafter = pair_drafter(i);
            s.slots = slots[k];
            struct saying *other = say(&s);
            same_text(plain, other, &s);
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
    struct saying_setup s = setup("none", "{temperature: 1}", "match", 1);
    struct saying *plain = say(&s);
    int32_t ends[] = { plain->token[1][9], plain->token[3][20] };
    struct stops stops = { .n = 2, .token = ends };
    s.stops = &stops;
    struct saying *ended = say(&s);
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
    struct saying_setup s = setup("none", "{temperature: 1}", "match", 1);
    s.stops = &stops;
    struct saying *plain = say(&s);
    int stopped = 0;
    for (int i = 0; i < prompts.n; i++)
        stopped += plain->why[i] == STOP_STRING;
    assert_true(stopped > 0);
    static const char *const drafters[] = { "ngram", "small:model=%s,tokens=6,pick=likeliest", "small:model=%s,widths=[3,2,1]" };
    for (int i = 0; i < 3; i++) {
        s.drafter = drafters[i];
        s.draft = target_path;
        s.slots = 2;
        struct saying *other = say(&s);
        same_text(plain, other, &s);
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
        struct saying_setup s = setup(cases[i][0], cases[i][1], cases[i][2], 3);
        s.draft = target_path;
        struct saying *own = say(&s);
        if (own->accepted != own->drafted)
            fail_msg("%s, %s, %s: %d of %d accepted", s.drafter, s.sampling, s.rule, own->accepted, own->drafted);
        assert_true(own->drafted > 0);
        free(own);
    }
}

static void nothing(void *self, const struct ending *e)
{
    (void)self, (void)e;
}

static void a_prompt_that_fills_the_context_is_refused(void **unused)
{
    (void)unused;
    struct error err;
    struct pair *p = pair_open(target_path, draft_path, "none", "{temperature: 0}", rule_named("rejection"), 1, 16);
    struct decoder *d = decoder_create(p->verifier, p->drafter, 1, 0, (struct listener){ .done = nothing }, &err);
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
    make_prompts(t.vocab);
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
