// test_decode.c - the loop: whatever is drafted, however many slots there are, the text is the target's own.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"
#include "tests/support/pairings.h"
#include "tests/support/decoded_texts.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 128, LIMIT = 40 };

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

static struct decoded_texts_setup setup(const char *drafter, const char *sampling, const char *rule, int slots)
{
    return (struct decoded_texts_setup){ pair_target, pair_draft, &prompts, drafter, sampling, rule,
                                         NULL,        slots,      LIMIT,    LENGTH,  NULL,     NULL };
}

static void against_none(const char *sampling, const char *rule, const struct stops *stops, int limit)
{
    static const int slots[] = { 1, 2, 5 };
    struct decoded_texts_setup s = setup("none", sampling, rule, 1);
    s.stops = stops;
    s.limit = limit;
    struct decoded_texts *plain = say(&s);
    assert_int_equal(plain->drafted, 0);
    for (int i = 0; i < pair_count(); i++)
        for (size_t k = 0; k < sizeof(slots) / sizeof(slots[0]); k++) {
            s.drafter = pair_drafter(i);
            s.slots = slots[k];
            struct decoded_texts *other = say(&s);
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

// Every rule that calls itself exact, over drafts of every kind that it takes, where p is one token of 288.
static void greedy_text_is_nones_text_under_every_exact_rule(void **unused)
{
    (void)unused;
    static struct prompts_given few;
    few = prompts;
    few.n = 3;
    struct decoded_texts_setup s = setup("none", "{temperature: 0}", "rejection", 1);
    s.prompts = &few;
    s.limit = 14;
    struct decoded_texts *plain = say(&s);
    s.slots = 2;
    for (int r = 0; rules[r] != NULL; r++) {
        int fit = 0, accepted = 0;
        for (int i = 0; i < pair_count() && rules[r]->exact; i++) {
            s.drafter = pair_drafter(i);
            s.rule = rules[r]->name;
            if (!pair_fits(s.drafter, rules[r]))
                continue;
            struct decoded_texts *other = say(&s);
            same_text(plain, other, &s);
            fit += other->drafted > 0;
            accepted += other->accepted;
            free(other);
        }
        assert_true(!rules[r]->exact || (fit > 2 && accepted > 10));
    }
    free(plain);
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

// A prompt of 12 in a context of 20 has 8 places: a limit that is met there too is the reason, as all of it was said, and an
// end of text at that place comes before both.
static void at_the_last_place_of_the_context_the_limit_is_the_reason(void **unused)
{
    (void)unused;
    static struct prompts_given one = { .n = 1, .length = { 12 } };
    static const struct {
        int limit, n;
        enum stop_reason why;
    } cases[] = { { 7, 7, STOP_LIMIT }, { 8, 8, STOP_LIMIT }, { 9, 8, STOP_CONTEXT }, { 100, 8, STOP_CONTEXT } };
    static const char *const drafters[] = { "none", "ngram", "small:model=%s,tokens=6,pick=greedy",
                                            "small:model=%s,widths=[3,2,1]" };
    for (int k = 0; k < 12; k++)
        one.token[0][k] = 7 * k % 5;
    for (int d = 0; d < 4; d++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            struct decoded_texts_setup s = setup(drafters[d], "{temperature: 1}", "match", 1);
            s.prompts = &one;
            s.limit = cases[i].limit;
            s.length = 20;
            struct decoded_texts *said = say(&s);
            assert_int_equal(said->n[0], cases[i].n);
            assert_int_equal(said->why[0], cases[i].why);
            const struct stops last = { .n = 1, .token = &said->token[0][cases[i].n - 1] };
            s.stops = &last;
            struct decoded_texts *ended = say(&s);
            assert_int_equal(ended->why[0], STOP_TOKEN);
            free(said);
            free(ended);
        }
}

static void tokens_that_end_a_text_end_it(void **unused)
{
    (void)unused;
    struct decoded_texts_setup s = setup("none", "{temperature: 1}", "match", 1);
    struct decoded_texts *plain = say(&s);
    int32_t ends[] = { plain->token[1][9], plain->token[3][20] };
    struct stops stops = { .n = 2, .token = ends };
    s.stops = &stops;
    struct decoded_texts *ended = say(&s);
    int by[2] = { 0 };
    for (int i = 0; i < prompts.n; i++) { // what was said without them, up to the first of either
        int n = 0, which = -1;
        for (; n < plain->n[i] && which < 0; n++)
            which = plain->token[i][n] == ends[0] ? 0 : plain->token[i][n] == ends[1] ? 1 : -1;
        assert_int_equal(ended->n[i], n);
        assert_int_equal(ended->why[i], which >= 0 ? STOP_TOKEN : plain->why[i]);
        assert_memory_equal(ended->token[i], plain->token[i], (size_t)n * sizeof(int32_t));
        if (which >= 0)
            by[which]++;
    }
    assert_true(by[0] > 0 && by[1] > 0);
    against_none("{temperature: 1}", "match", &stops, LIMIT);
    free(plain);
    free(ended);
}

// Stops in front of the second of two neighbouring tokens of which the sum is divisible by 23: a stop "string" that may
// span steps.
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
    struct decoded_texts_setup s = setup("none", "{temperature: 1}", "match", 1);
    s.stops = &stops;
    struct decoded_texts *plain = say(&s);
    s.stops = NULL;
    struct decoded_texts *free_one = say(&s);
    s.stops = &stops;
    int stopped = 0;
    for (int i = 0; i < prompts.n; i++) { // what is said without them, up to there
        int n = 1;
        while (n < free_one->n[i] && (free_one->token[i][n - 1] + free_one->token[i][n]) % 23 != 0)
            n++;
        assert_int_equal(plain->n[i], n);
        assert_int_equal(plain->why[i], n < free_one->n[i] ? STOP_STRING : free_one->why[i]);
        assert_memory_equal(plain->token[i], free_one->token[i], (size_t)n * sizeof(int32_t));
        stopped += n < free_one->n[i];
    }
    assert_true(stopped > 1);
    free(free_one);
    static const char *const drafters[] = { "ngram", "small:model=%s,tokens=6,pick=greedy",
                                            "small:model=%s,widths=[3,2,1]" };
    for (int i = 0; i < 3; i++) {
        s.drafter = drafters[i];
        s.draft = pair_target;
        s.slots = 2;
        struct decoded_texts *other = say(&s);
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
        { "small:model=%s,tokens=5,pick=greedy", "{temperature: 0}", "match" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoded_texts_setup s = setup(cases[i][0], cases[i][1], cases[i][2], 3);
        s.draft = pair_target;
        struct decoded_texts *own = say(&s);
        if (own->accepted != own->drafted)
            fail_msg("%s, %s, %s: %d of %d accepted", s.drafter, s.sampling, s.rule, own->accepted, own->drafted);
        assert_true(own->drafted > 0);
        free(own);
    }
}

// One slot or five: every sequence has its own chance, so drafts drawn and judged at random come out as they do alone.
static void a_text_does_not_depend_on_its_neighbours(void **unused)
{
    (void)unused;
    for (int i = 0; i < pair_count(); i++) {
        struct decoded_texts_setup s = setup(pair_drafter(i), "{temperature: 1}", "rejection", 1);
        struct decoded_texts *alone = say(&s);
        s.slots = 5;
        struct decoded_texts *among = say(&s);
        same_text(alone, among, &s);
        assert_int_equal(among->accepted, alone->accepted);
        free(alone);
        free(among);
    }
}

// Ids that only one of the two models has rows for: drafts are fewer or poorer, the text is the same.
static void a_draft_vocabulary_of_another_size_changes_no_text(void **unused)
{
    (void)unused;
    static const int vocab[] = { 272, 300 }; // the target's is 288, the tokenizer's 270
    static const char *const drafters[] = { "small:model=%s", "small:model=%s,widths=[3,2]",
                                            "small:model=%s,tokens=3,pick=coupled",
                                            "small:model=%s,nodes=9,top=64,tokens=1,pick=greedy" };
    for (size_t v = 0; v < sizeof(vocab) / sizeof(vocab[0]); v++) {
        struct tiny t = tiny_usual;
        t.vocab = vocab[v];
        char *path = xformat("%s/of_%d", tiny_directory(), t.vocab);
        tiny_write_hf(path, &t);
        struct decoded_texts_setup s = setup("none", "{repetition_penalty: 1.1, temperature: 1}", "match", 1);
        s.draft = path;
        struct decoded_texts *plain = say(&s);
        for (size_t i = 0; i < sizeof(drafters) / sizeof(drafters[0]); i++) {
            s.drafter = drafters[i];
            s.slots = 3;
            struct decoded_texts *other = say(&s);
            same_text(plain, other, &s);
            assert_true(other->accepted > 0);
            free(other);
        }
        free(plain);
        free(path);
    }
}

// A prompt goes into both caches by stretches of 256. The drafter is the target: where either cache had a wrong row at
// the edge of a stretch, guesses would fall.
static void prompts_at_the_edges_of_a_stretch_are_taken_in_whole(void **unused)
{
    (void)unused;
    static struct prompts_given edges = { .n = 7, .length = { 255, 256, 257, 258, 512, 513, 514 } };
    for (int i = 0; i < edges.n; i++)
        for (int k = 0; k < edges.length[i]; k++)
            edges.token[i][k] = (k * k + 31 * k + i) % 270;
    struct tiny t = tiny_usual;
    t.context = 1024;
    char *path = xformat("%s/long", tiny_directory());
    tiny_write_hf(path, &t);
    static const char *const drafters[] = { "small:model=%s,tokens=5", "small:model=%s,widths=[2,1],pick=greedy" };
    for (int i = 0; i < 2; i++) {
        struct decoded_texts_setup s = { path, path, &edges, drafters[i], "{temperature: 0}", "rejection", NULL, 3,
                                         12,   528,  NULL,   NULL };
        struct decoded_texts *own = say(&s);
        for (int k = 0; k < edges.n; k++)
            assert_int_equal(own->n[k], 12);
        if (i == 0)
            assert_int_equal(own->accepted, own->drafted);
        assert_int_equal(own->steps, edges.n * (i == 0 ? 2 : 4));
        free(own);
    }
    free(path);
}

struct crowd {
    int steps, done;
};

static void all_of_it_stood(void *self, const struct step *s)
{
    ((struct crowd *)self)->steps++;
    if (s->advance->n != s->draft->n)
        fail_msg("sequence %d, place %d: %d of %d guesses stood", (int)s->sequence, s->position, s->advance->n - 1,
                 s->draft->n - 1);
}

static void count_one(void *self, const struct ending *e)
{
    ((struct crowd *)self)->done++;
    assert_int_equal(e->n, 8);
}

// Each slot has two tokens that the draft model has not seen, the last guess and the target's own: more rows than one
// pass of the draft model takes.
static void as_many_slots_as_there_may_be_are_all_drafted_for(void **unused)
{
    (void)unused;
    struct error err;
    struct crowd crowd = { 0 };
    struct pair *p = pair_open(pair_target, pair_target, "small:model=%s,tokens=1", "{temperature: 0}",
                               rule_named("rejection"), MAX_SLOTS, 32);
    struct decoder *d = decoder_create(p->verifier, p->drafter, MAX_SLOTS, 0,
                                       (struct listener){ all_of_it_stood, count_one, &crowd }, &err);
    for (int i = 0; i < MAX_SLOTS; i++) {
        int32_t token[] = { i, 7 * i % 270, 3 };
        assert_true(decoder_start(d, &(struct assignment){ i, token, 1 + i % 3, 8, NULL }, &err));
    }
    assert_false(decoder_has_free_slot(d));
    while (decoder_active(d) > 0)
        assert_true(decoder_step(d, &err));
    assert_int_equal(crowd.done, MAX_SLOTS);
    assert_int_equal(crowd.steps, 4 * MAX_SLOTS);
    decoder_destroy(d);
    pair_close(p);
}

// Two slots with the same tree. In the first one the tree's second branch is the target's own text, in the other its
// first.
static void the_features_of_an_advance_are_the_states_that_predicted_its_tokens(void **unused)
{
    (void)unused;
    struct error err;
    struct decoded_texts_setup s = setup("none", "{temperature: 0}", "rejection", 1);
    struct decoded_texts *plain = say(&s);
    struct pair *p = pair_open(pair_target, pair_draft, "none", "{temperature: 0}", rule_named("rejection"), 2, LENGTH);
    const struct model_shape *shape = model_shape(p->target);
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.taps = (struct taps){ 2, { 0, FINAL_STATE } };
    with.nodes = 5;
    struct verifier *v = verifier_create(&with, &err);
    struct request r[2];
    struct draft draft[2];
    struct advance a[2];
    struct philox rng = philox_source(1, 1);
    int32_t token[2][5], parent[] = { -1, 0, 0, 1, 2 };
    uint8_t proposal[5] = { DETERMINISTIC };
    for (int i = 0; i < 2; i++) {
        const int32_t *text = plain->token[2];
        int right = i == 0 ? 2 : 1; // child of the root that stands; its own child stands too
        while (verifier_prefill(v, i, prompts.token[2], prompts.length[2], &a[i], &err) && a[i].n > 0)
            ;
        token[i][0] = prompts.token[2][prompts.length[2] - 1];
        token[i][right] = text[0];
        token[i][right + 2] = text[1];
        token[i][3 - right] = token[i][5 - right] = text[0] == 9 ? 8 : 9;
        draft[i] = (struct draft){ 5, 5, token[i], parent, proposal, NULL, NULL };
        r[i] = (struct request){ i, prompts.length[2], prompts.token[2], &rng.rng, &draft[i], 4, NULL };
    }
    assert_true(verifier_verify(v, r, 2, a, &err));
    float *logits = xcalloc((size_t)shape->vocab, sizeof(float));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(a[i].n, 3);
        assert_int_equal(a[i].node[1], i == 0 ? 2 : 1);
        assert_int_equal(a[i].features.rows, 3);
        for (int k = 0; k < 3; k++) {
            float *row = (float *)a[i].features.data + k * 2 * shape->width,
                  *embedded = xcalloc((size_t)shape->width, sizeof(float));
            model_embed(p->target, tensor_of(embedded, F32, 1, shape->width),
                        &(struct pass){ .n = 1, .token = &token[i][a[i].node[k]] });
            assert_memory_equal(row, embedded, (size_t)shape->width * sizeof(float));
            model_logits(p->target, tensor_of(logits, F32, 1, shape->vocab),
                         tensor_of(row + shape->width, F32, 1, shape->width));
            assert_int_equal(row_best(logits, with.used_vocab), a[i].token[k]);
            assert_int_equal(a[i].token[k], plain->token[2][k]);
            free(embedded);
        }
    }
    free(logits);
    free(plain);
    verifier_destroy(v);
    pair_close(p);
}

static void nothing(void *self, const struct ending *e)
{
    (void)self, (void)e;
}

static void a_prompt_that_fills_the_context_is_refused(void **unused)
{
    (void)unused;
    struct error err;
    struct pair *p = pair_open(pair_target, pair_draft, "none", "{temperature: 0}", rule_named("rejection"), 1, 16);
    struct decoder *d = decoder_create(p->verifier, p->drafter, 1, 0, (struct listener){ .done = nothing }, &err);
    int32_t token[16] = { 0 };
    assert_false(decoder_start(d, &(struct assignment){ 0, token, 16, 4, NULL }, &err));
    assert_non_null(strstr(err.text, "16 tokens"));
    assert_true(decoder_has_free_slot(d));
    assert_true(decoder_start(d, &(struct assignment){ 0, token, 15, 4, NULL }, &err));
    decoder_destroy(d);
    pair_close(p);
}

int main(void)
{
    make_prompts(tiny_usual.vocab);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_nones_text_for_every_drafter_tree_and_slot_count),
        cmocka_unit_test(greedy_text_is_nones_text_under_every_exact_rule),
        cmocka_unit_test(seed_coupled_text_is_nones_text_at_temperature_one),
        cmocka_unit_test(the_length_of_the_context_ends_a_text_at_the_same_token),
        cmocka_unit_test(at_the_last_place_of_the_context_the_limit_is_the_reason),
        cmocka_unit_test(tokens_that_end_a_text_end_it),
        cmocka_unit_test(stop_strings_cut_the_text_where_they_begin),
        cmocka_unit_test(a_drafter_that_is_the_target_is_always_right),
        cmocka_unit_test(a_text_does_not_depend_on_its_neighbours),
        cmocka_unit_test(a_draft_vocabulary_of_another_size_changes_no_text),
        cmocka_unit_test(prompts_at_the_edges_of_a_stretch_are_taken_in_whole),
        cmocka_unit_test(as_many_slots_as_there_may_be_are_all_drafted_for),
        cmocka_unit_test(the_features_of_an_advance_are_the_states_that_predicted_its_tokens),
        cmocka_unit_test(a_prompt_that_fills_the_context_is_refused),
    };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
