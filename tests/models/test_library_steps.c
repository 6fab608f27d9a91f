// test_library_steps.c - what the library's interface (engine/speclab.h) reports of a step, and decoders that share a target.
#include "tests/support/tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "engine/speclab.h"
#include "tests/support/small_model.h"

enum { TEXTS = 3, TOKENS = 24, PROMPT = 6 };

static struct speclab_target *target;

static int set_up(void **state)
{
    struct speclab_error error = { "" };
    char *path = test_path("library.gguf");
    small_write_gguf(path, &small_default);
    target = speclab_target_open(path, NULL, &error);
    free(path);
    return target != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    speclab_target_close(target);
    test_directory_remove();
    return 0;
}

// ---- what a step reports

struct kept { // what is kept of a step
    int nodes, path;
    int32_t draft[64], parent[64], node[64], token[64];
    double p[64];
};

static struct kept kept_of(const struct speclab_step *s)
{
    struct kept k;
    memset(&k, 0, sizeof(k));
    k.nodes = s->drafted + 1;
    k.path = s->decided;
    memcpy(k.draft, s->draft, (size_t)k.nodes * sizeof(*s->draft));
    memcpy(k.parent, s->parent, (size_t)k.nodes * sizeof(*s->parent));
    memcpy(k.p, s->p, (size_t)k.nodes * sizeof(*s->p));
    memcpy(k.node, s->node, (size_t)k.path * sizeof(*s->node));
    memcpy(k.token, s->token, (size_t)k.path * sizeof(*s->token));
    return k;
}

struct report {
    int decided, steps, tested, drawn, vocab;
    struct kept kept; // between `decided` and `step`
    int scored, compared;
    double *expected; // (nodes, vocab) the softmax of the logits that `scored` had
};

static double sum_of(const float *row, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)row[i];
    return sum;
}

static void on_scored(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    struct report *t = self;
    t->scored++;
    assert_true(t->scored == t->decided + 1 && s->decided == 0 && s->draft[0] >= 0 && s->position >= PROMPT - 1);
    assert_true(speclab_rows_p(rows, 0) == NULL && speclab_rows_q(rows, 0) == NULL);
    t->expected = xrealloc(t->expected, (size_t)((s->drafted + 1) * t->vocab) * sizeof(double));
    for (int i = 0; i <= s->drafted; i++) {
        const float *logits = speclab_rows_logits(rows, i);
        double *to = t->expected + i * t->vocab, sum = 0;
        for (int x = 0; x < t->vocab; x++)
            sum += to[x] = exp((double)logits[x]);
        for (int x = 0; x < t->vocab; x++)
            to[x] /= sum;
    }
}

static void on_decided(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    struct report *t = self;
    t->decided++;
    assert_null(speclab_rows_logits(rows, 0));
    for (int i = 0; i <= s->drafted && t->expected != NULL; i++)
        for (int x = 0; x < t->vocab; x++, t->compared++)
            assert_true(fabs(t->expected[i * t->vocab + x] - (double)speclab_rows_p(rows, i)[x]) < 1e-6);
    t->kept = kept_of(s);
    for (int i = 0; i <= s->drafted; i++) {
        const float *p = speclab_rows_p(rows, i);
        assert_true(fabs(sum_of(p, t->vocab) - 1) < 1e-3);
        assert_true(i == 0 || isnan(s->p[i]) || s->parent[i] != 0 ||
                    fabs(s->p[i] - (double)speclab_rows_p(rows, 0)[s->draft[i]]) < 1e-6);
        t->tested += i > 0 && !isnan(s->p[i]);
    }
    for (int i = 1; i <= s->drafted; i++) {
        const float *q = speclab_rows_q(rows, s->parent[i]);
        assert_int_equal(q != NULL, s->proposal[i] != 0); // a draft has one kind here
        assert_true(q == NULL || (fabs(sum_of(q, t->vocab) - 1) < 1e-3 && q[s->draft[i]] > 0));
        t->drawn += q != NULL;
    }
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct report *t = self;
    t->steps++;
    assert_int_equal(t->decided, t->steps);
    const struct kept now = kept_of(s);
    assert_memory_equal(&now, &t->kept, sizeof(now));
    assert_true(s->position >= PROMPT - 1);
    assert_true(s->n <= s->decided && s->accepted <= s->n && s->depth <= s->drafted);
    for (int i = 1; i < s->decided; i++) // a path, whose tokens are the draft's
        assert_true(s->parent[s->node[i]] == s->node[i - 1] && s->draft[s->node[i]] == s->token[i - 1]);
}

// Steps until every text has ended, and frees the decoder.
static void finish(struct speclab_decoder *d)
{
    struct speclab_error error;
    while (speclab_decoder_active(d) > 0)
        assert_ok(speclab_decoder_step(d, &error), error);
    speclab_decoder_destroy(d);
}

static void start_text(struct speclab_decoder *d, int number, const char *sampling)
{
    struct speclab_error error;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 10 + number + i % 2;
    const struct speclab_request r = { .sequence = number,
                                       .prompt = prompt,
                                       .n = PROMPT,
                                       .max_tokens = TOKENS,
                                       .ignore_end = true,
                                       .sampling = sampling };
    assert_ok(speclab_decoder_start(d, &r, &error), error);
}

TEST(a_step_reports_its_draft_its_decision_and_their_rows)
{
    char *path = test_path("library.gguf");
    char *itself = xformat("small:model=%s,tokens=3", path); // its own draft model: q is p
    const char *const drafters[] = { "ngram:tokens=3", itself };
    for (int run = 0; run < 4; run++) { // twice with the logits as well
        const int i = run % 2;
        struct speclab_error error;
        struct report report = { .vocab = speclab_target_vocab(target) };
        const struct speclab_decoder_options o = { .drafter = drafters[i],
                                                   .seed = 3,
                                                   .listener = { .step = on_step,
                                                                 .self = &report,
                                                                 .decided = on_decided,
                                                                 .scored = run < 2 ? NULL : on_scored } };
        struct speclab_decoder *d = speclab_decoder_create(target, &o, &error);
        assert_ok(d != NULL, error);
        start_text(d, 1, NULL);
        finish(d);
        assert_true(report.steps > 1 && report.tested > 0 && (report.drawn > 0) == (i == 1));
        assert_int_equal(report.scored, run < 2 ? 0 : report.steps);
        assert_true((report.compared > report.steps * report.vocab) == (run >= 2));
        free(report.expected);
    }
    free(itself);
    free(path);
}

// ---- decoders that share a target

struct texts {
    int32_t token[TEXTS][TOKENS];
    int n[TEXTS];
};

static void on_end(void *self, const struct speclab_end *e)
{
    struct texts *t = self;
    t->n[e->sequence] = e->n;
    memcpy(t->token[e->sequence], e->token, (size_t)e->n * sizeof(*e->token));
}

static struct texts decode_alone(const char *drafter, const char *sampling, int number)
{
    struct speclab_error error;
    struct texts t = { .n = { 0 } };
    const struct speclab_decoder_options o = {
        .drafter = drafter, .sampling = sampling, .seed = 9, .listener = { .end = on_end, .self = &t }
    };
    struct speclab_decoder *d = speclab_decoder_create(target, &o, &error);
    assert_ok(d != NULL, error);
    start_text(d, number, NULL);
    finish(d);
    assert_int_equal(t.n[number], TOKENS);
    return t;
}

// Two decoders on one target, a few steps each in turn, and in each a sequence with a sampling of its own: the texts are those of decoders alone.
TEST(decoders_on_a_target_take_turns)
{
    static const char *const drafters[] = { "ngram", "none" };
    struct speclab_error error;
    struct texts together[2] = { { .n = { 0 } } };
    struct speclab_decoder *d[2];
    for (int i = 0; i < 2; i++) {
        const struct speclab_decoder_options o = { .drafter = drafters[i],
                                                   .sampling = "temperature=0",
                                                   .slots = 2,
                                                   .seed = 9,
                                                   .listener = { .end = on_end, .self = &together[i] } };
        d[i] = speclab_decoder_create(target, &o, &error);
        assert_ok(d[i] != NULL, error);
    }
    for (int i = 0; i < 2; i++) {
        start_text(d[i], 0, NULL);
        start_text(d[i], 1, "temperature=1,top_p=0.9");
        assert_int_equal(speclab_decoder_slot(d[i], 1), 1);
        assert_ok(speclab_decoder_pause(d[i], &error), error);
    }
    for (int turn = 0; speclab_decoder_active(d[0]) + speclab_decoder_active(d[1]) > 0; turn++) {
        for (int k = 0; k < 3; k++)
            assert_ok(speclab_decoder_step(d[turn % 2], &error), error);
        assert_ok(speclab_decoder_pause(d[turn % 2], &error), error);
    }
    for (int i = 0; i < 2; i++) {
        const struct texts greedy = decode_alone(drafters[i], "temperature=0", 0),
                           sampled = decode_alone(drafters[i], "temperature=1,top_p=0.9", 1);
        assert_memory_equal(together[i].token[0], greedy.token[0], sizeof(greedy.token[0]));
        assert_memory_equal(together[i].token[1], sampled.token[1], sizeof(sampled.token[1]));
        start_text(d[i], 2, NULL);
        speclab_decoder_drop(d[i]);
        assert_int_equal(speclab_decoder_active(d[i]), 0);
        assert_int_equal(together[i].n[2], 0); // dropped without a report
    }
    const struct speclab_request wrong = {
        .prompt = (int32_t[]){ 1 }, .n = 1, .max_tokens = 1, .sampling = "temperature=cold"
    };
    assert_false(speclab_decoder_start(d[0], &wrong, &error));
    assert_non_null(strstr(error.text, "temperature"));
    assert_true(speclab_decoder_has_free_slot(d[0]));
    for (int i = 0; i < 2; i++)
        speclab_decoder_destroy(d[i]);
}

// ---- scores

struct drawn { // log-probabilities of a text's tokens, of the rows from which they were drawn
    double log_p[40];
    int32_t token[40];
    int n;
};

static void keep_drawn(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    struct drawn *t = self;
    t->token[t->n] = s->token[0];
    t->log_p[t->n++] = log((double)speclab_rows_p(rows, 0)[s->token[0]]);
}

TEST(a_score_is_the_logarithm_of_the_probability_that_a_token_was_drawn_with)
{
    enum { NEW = 30 };
    struct drawn t = { .n = 0 };
    struct speclab_error error;
    char *path = test_path("library.gguf"); // without a tokenizer no id is padding, so p has all ids, too
    struct speclab_target *ids =
        speclab_target_open(path, &(struct speclab_target_options){ .ids_only = true }, &error);
    assert_ok(ids != NULL, error);
    free(path);
    const struct speclab_decoder_options o = { .sampling = "temperature=1",
                                               .seed = 3,
                                               .listener = { .decided = keep_drawn, .self = &t } };
    struct speclab_decoder *d = speclab_decoder_create(ids, &o, &error);
    assert_ok(d != NULL, error);
    int32_t text[PROMPT + NEW] = { 4, 9, 9, 2, 7, 5 };
    assert_ok(
        speclab_decoder_start(d,
                              &(struct speclab_request){
                                  .sequence = 1, .prompt = text, .n = PROMPT, .max_tokens = NEW, .ignore_end = true },
                              &error),
        error);
    finish(d);
    assert_int_equal(t.n, NEW);
    memcpy(text + PROMPT, t.token, sizeof(*text) * NEW);
    double score[PROMPT + NEW], all[PROMPT + NEW];
    assert_ok(speclab_score(ids, text, PROMPT + NEW, PROMPT, score, &error), error);
    assert_ok(speclab_score(ids, text, PROMPT + NEW, 1, all, &error), error);
    for (int i = 0; i < NEW; i++) {
        assert_true(fabs(score[i] - t.log_p[i]) < 1e-5);
        assert_true(score[i] == all[PROMPT - 1 + i]);
    }
    speclab_target_close(ids);
}

TEST(what_cannot_be_scored_is_an_error)
{
    static int32_t text[100000] = { 1, 2, 1 << 29 };
    double score[3];
    struct speclab_error error;
    assert_int_equal(speclab_interface(), SPECLAB_VERSION);
    assert_ok(speclab_score(target, text, 0, 1, score, &error) && speclab_score(target, text, 1, 1, score, &error),
              error);
    assert_false(speclab_score(target, text, 3, 1, score, &error));
    assert_non_null(strstr(error.text, "text: token 2 is 536870912, expected an id from 0 to "));
    assert_false(speclab_score(target, text, 2, 0, score, &error));
    assert_non_null(strstr(error.text, "scored from token 1 or later, found 2 and 0"));
    assert_false(speclab_score(target, text, 100000, 1, score, NULL));
}

RUN_TESTS(set_up, tear_down)
