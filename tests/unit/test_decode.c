// test_decode.c - the decode loop: the text is that of ordinary decoding for every drafter, rule and number of slots.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/support/decode_prompts.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 128, LIMIT = 40 };

static struct prompt_set prompts;

// Prompts of several lengths from one token on.
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

static struct decode_setup setup(const char *drafter, const char *sampling, const char *rule, int slots)
{
    return (struct decode_setup){ pair_target, pair_draft, &prompts, drafter, sampling, rule,
                                  NULL,        slots,      LIMIT,    LENGTH,  NULL,     NULL };
}

static void compare_with_none(const char *sampling, const char *rule, const struct stops *stops, int limit)
{
    static const int slots[] = { 1, 2, 5 };
    struct decode_setup s = setup("none", sampling, rule, 1);
    s.stops = stops;
    s.limit = limit;
    struct decode_result *plain = decode_prompts(&s);
    assert_int_equal(plain->drafted, 0);
    for (int i = 0; i < pair_count(); i++)
        for (size_t k = 0; k < sizeof(slots) / sizeof(slots[0]); k++) {
            s.drafter = pair_drafter(i);
            s.slots = slots[k];
            struct decode_result *other = decode_prompts(&s);
            assert_same_texts(plain, other, &s);
            assert_int_equal(other->kept, plain->kept);
            free(other);
        }
    free(plain);
}

TEST(greedy_text_equals_ordinary_decoding_for_every_drafter_and_slot_count)
{
    compare_with_none("{temperature: 0}", "rejection", NULL, LIMIT);
    compare_with_none("{repetition_penalty: 1.2, frequency_penalty: 0.3, presence_penalty: 0.2, temperature: 0}",
                      "rejection", NULL, LIMIT);
    compare_with_none("{temperature: 0}", "match", NULL, LIMIT);
}

// Every exact rule with every drafter whose drafts it takes, at temperature 0.
TEST(greedy_text_equals_ordinary_decoding_under_every_exact_rule)
{
    static struct prompt_set few;
    few = prompts;
    few.n = 3;
    struct decode_setup s = setup("none", "{temperature: 0}", "rejection", 1);
    s.prompts = &few;
    s.limit = 14;
    struct decode_result *plain = decode_prompts(&s);
    s.slots = 2;
    for (int r = 0; rules[r] != NULL; r++) {
        int fit = 0, accepted = 0;
        for (int i = 0; i < pair_count() && rules[r]->exact; i++) {
            s.drafter = pair_drafter(i);
            s.rule = rules[r]->name;
            if (!pair_fits(s.drafter, rules[r]))
                continue;
            struct decode_result *other = decode_prompts(&s);
            assert_same_texts(plain, other, &s);
            fit += other->drafted > 0;
            accepted += other->accepted;
            free(other);
        }
        assert_true(!rules[r]->exact || (fit > 2 && accepted > 10));
    }
    free(plain);
}

TEST(text_under_match_equals_ordinary_decoding_at_temperature_one)
{
    compare_with_none("{temperature: 1}", "match", NULL, LIMIT);
    compare_with_none("{repetition_penalty: 1.3, frequency_penalty: 0.4, temperature: 0.7, top_k: 50, top_p: 0.9}",
                      "match", NULL, LIMIT);
}

// That texts end where they should is enumerated in test_decode_law.c; here every drafter meets ends within its drafts.
TEST(end_of_text_tokens_end_a_text_at_the_same_token)
{
    struct decode_setup s = setup("none", "{temperature: 1}", "match", 1);
    struct decode_result *plain = decode_prompts(&s);
    const int32_t ends[] = { plain->token[1][9], plain->token[3][20] };
    compare_with_none("{temperature: 1}", "match", &(const struct stops){ .n = 2, .token = ends }, LIMIT);
    free(plain);
}

TEST(the_context_ends_a_text_at_the_same_token)
{
    compare_with_none("{temperature: 0}", "rejection", NULL, LENGTH * 2);
}

TEST(every_token_of_a_drafter_equal_to_the_target_is_accepted)
{
    static const char *const cases[][3] = {
        { "small:model=%s,tokens=5", "{temperature: 1}", "rejection" },
        { "small:model=%s,tokens=5", "{temperature: 0}", "rejection" },
        { "small:model=%s,tokens=5", "{temperature: 0.8, top_p: 0.9}", "rejection" },
        { "small:model=%s,tokens=5,pick=coupled", "{temperature: 1}", "match" },
        { "small:model=%s,tokens=5,pick=greedy", "{temperature: 0}", "match" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decode_setup s = setup(cases[i][0], cases[i][1], cases[i][2], 3);
        s.draft = pair_target;
        struct decode_result *own = decode_prompts(&s);
        if (own->accepted != own->drafted)
            fail_msg("%s, %s, %s: %d of %d accepted", s.drafter, s.sampling, s.rule, own->accepted, own->drafted);
        assert_true(own->drafted > 0);
        free(own);
    }
}

// Every sequence has its own random stream, so sampled drafts and acceptance tests are the same with one slot and with five.
TEST(a_text_does_not_depend_on_other_slots)
{
    for (int i = 0; i < pair_count(); i++) {
        struct decode_setup s = setup(pair_drafter(i), "{temperature: 1}", "rejection", 1);
        if (pair_remembers(pair_drafter(i)) == DRAFTS_OF_OTHERS)
            continue;
        struct decode_result *alone = decode_prompts(&s);
        s.slots = 5;
        struct decode_result *among = decode_prompts(&s);
        assert_same_texts(alone, among, &s);
        assert_int_equal(among->accepted, alone->accepted);
        free(alone);
        free(among);
    }
}

// One of the two models has rows for ids that the other lacks: drafts get shorter or worse, the text is the same.
TEST(a_draft_vocabulary_of_another_size_changes_no_text)
{
    static const int vocab[] = { 272, 300 }; // target: 288, tokenizer: 270
    static const char *const drafters[] = { "small:model=%s", "small:model=%s,widths=[3,2]",
                                            "small:model=%s,tokens=3,pick=coupled",
                                            "small:model=%s,nodes=9,top=64,tokens=1,pick=greedy" };
    for (size_t v = 0; v < sizeof(vocab) / sizeof(vocab[0]); v++) {
        struct small_model t = small_default;
        t.vocab = vocab[v];
        char *path = xformat("%s/of_%d", test_directory(), t.vocab);
        small_write_hf(path, &t);
        struct decode_setup s = setup("none", "{repetition_penalty: 1.1, temperature: 1}", "match", 1);
        s.draft = path;
        struct decode_result *plain = decode_prompts(&s);
        for (size_t i = 0; i < sizeof(drafters) / sizeof(drafters[0]); i++) {
            s.drafter = drafters[i];
            s.slots = 3;
            struct decode_result *other = decode_prompts(&s);
            assert_same_texts(plain, other, &s);
            assert_true(other->accepted > 0);
            free(other);
        }
        free(plain);
        free(path);
    }
}

// A prompt is processed in chunks of 256 for both caches. The drafter is the target: a wrong row in either cache at a chunk
// boundary would lead to rejected tokens.
TEST(prompts_at_chunk_boundaries_are_processed_completely)
{
    static struct prompt_set edges = { .n = 7, .length = { 255, 256, 257, 258, 512, 513, 514 } };
    for (int i = 0; i < edges.n; i++)
        for (int k = 0; k < edges.length[i]; k++)
            edges.token[i][k] = (k * k + 31 * k + i) % 270;
    struct small_model t = small_default;
    t.context = 1024;
    char *path = xformat("%s/long", test_directory());
    small_write_hf(path, &t);
    static const char *const drafters[] = { "small:model=%s,tokens=5", "small:model=%s,widths=[2,1],pick=greedy" };
    for (int i = 0; i < 2; i++) {
        struct decode_setup s = { path, path, &edges, drafters[i], "{temperature: 0}", "rejection", NULL, 3,
                                  12,   528,  NULL,   NULL };
        struct decode_result *own = decode_prompts(&s);
        for (int k = 0; k < edges.n; k++)
            assert_int_equal(own->n[k], 12);
        if (i == 0)
            assert_int_equal(own->accepted, own->drafted);
        assert_int_equal(own->steps, edges.n * (i == 0 ? 2 : 4));
        free(own);
    }
    free(path);
}

struct counts {
    int steps, done;
};

static void expect_all_accepted(void *self, const struct speclab_step *s)
{
    ((struct counts *)self)->steps++;
    if (s->decided != s->drafted + 1)
        fail_msg("sequence %d, position %d: %d of %d draft tokens accepted", (int)s->sequence, s->position,
                 s->decided - 1, s->drafted);
}

static void count_ending(void *self, const struct speclab_end *e)
{
    ((struct counts *)self)->done++;
    assert_int_equal(e->n, 8);
}

// Each slot has two tokens that the draft model has not processed, the last draft token and the target's own: more rows than
// one pass of the draft model takes.
TEST(the_maximum_number_of_slots_is_drafted_for)
{
    struct error err;
    struct counts counts = { 0 };
    struct pair *p = pair_open(pair_target, pair_target, "small:model=%s,tokens=1", "{temperature: 0}",
                               rule_named("rejection"), MAX_SLOTS, 32);
    struct speclab_decoder *d = decoder_create(
        p->verifier, p->drafter, MAX_SLOTS, 0,
        (struct speclab_listener){ .step = expect_all_accepted, .end = count_ending, .self = &counts }, &err);
    for (int i = 0; i < MAX_SLOTS; i++) {
        int32_t token[] = { i, 7 * i % 270, 3 };
        assert_true(decoder_start(
            d, &(struct speclab_request){ .sequence = i, .prompt = token, .n = 1 + i % 3, .max_tokens = 8 }, NULL, NULL,
            &err));
    }
    assert_false(speclab_decoder_has_free_slot(d));
    while (speclab_decoder_active(d) > 0)
        assert_true(speclab_decoder_step(d, &err));
    assert_int_equal(counts.done, MAX_SLOTS);
    assert_int_equal(counts.steps, 4 * MAX_SLOTS);
    speclab_decoder_destroy(d);
    pair_close(p);
}

int main(void)
{
    make_prompts(small_default.vocab);
    return tests_run(pair_models_make, pair_models_remove);
}
