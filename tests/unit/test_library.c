// test_library.c - the library's interface (engine/speclab.h): what is decoded through it is what the target alone decodes, and every
// mistake of a caller is an error with a sentence.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "engine/speclab.h"
#include "tests/support/small_model.h"

enum { SEQUENCES = 5, TOKENS = 24, PROMPT = 6 };

static struct speclab_target *target;

struct texts {
    int32_t token[SEQUENCES][TOKENS], streamed[SEQUENCES][TOKENS];
    int n[SEQUENCES], n_streamed[SEQUENCES];
    int accepted;
};

static int set_up(void **state)
{
    (void)state;
    struct speclab_error error = { "" };
    char *path = test_path("library.gguf");
    small_write_gguf(path, &small_default);
    target = speclab_target_open(path, NULL, &error);
    if (target == NULL)
        print_error("%s\n", error.text);
    free(path);
    return target != NULL ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    speclab_target_close(target);
    test_directory_remove();
    return 0;
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct texts *t = self;
    assert_true(s->accepted <= s->drafted && s->n <= s->accepted + 1);
    assert_true(t->n_streamed[s->sequence] + s->n <= TOKENS);
    memcpy(t->streamed[s->sequence] + t->n_streamed[s->sequence], s->token, (size_t)s->n * sizeof(int32_t));
    t->n_streamed[s->sequence] += s->n;
    t->accepted += s->accepted;
}

static void on_end(void *self, const struct speclab_end *e)
{
    struct texts *t = self;
    assert_string_equal(e->reason, "limit");
    memcpy(t->token[e->sequence], e->token, (size_t)e->n * sizeof(int32_t));
    t->n[e->sequence] = e->n;
}

// SEQUENCES prompts decoded with as many slots as the options say; a slot is used again as soon as it is free.
static struct texts decode(struct speclab_decoder_options o)
{
    struct texts t = { .accepted = 0 };
    struct speclab_error error;
    o.listener = (struct speclab_listener){ on_step, on_end, &t };
    struct speclab_decoder *d = speclab_decoder_create(target, &o, &error);
    if (d == NULL)
        fail_msg("%s", error.text);
    for (int next = 0; next < SEQUENCES || speclab_decoder_active(d) > 0;) {
        for (; next < SEQUENCES && speclab_decoder_has_free_slot(d); next++) {
            int32_t prompt[PROMPT];
            for (int i = 0; i < PROMPT; i++)
                prompt[i] = 10 + next + i % 2;
            const struct speclab_request r = { next, prompt, PROMPT, TOKENS, true };
            if (!speclab_decoder_start(d, &r, &error))
                fail_msg("%s", error.text);
        }
        if (!speclab_decoder_step(d, &error))
            fail_msg("%s", error.text);
    }
    speclab_decoder_destroy(d);
    return t;
}

static void every_drafter_decodes_the_targets_own_tokens(void **state)
{
    (void)state;
    const struct texts none = decode((struct speclab_decoder_options){ .sampling = "temperature=0" });
    const char *const drafters[] = { "ngram", "ngram:tokens=3,longest=2" };
    for (int i = 0; i < 2; i++)
        for (int slots = 1; slots <= 3; slots++) {
            const struct texts t = decode((struct speclab_decoder_options){
                .drafter = drafters[i], .sampling = "temperature=0", .slots = slots, .length = 64 });
            assert_true(t.accepted > 0 && none.accepted == 0);
            for (int k = 0; k < SEQUENCES; k++) {
                assert_int_equal(t.n[k], TOKENS);
                assert_int_equal(t.n_streamed[k], TOKENS);
                assert_memory_equal(t.token[k], none.token[k], sizeof(none.token[k]));
                assert_memory_equal(t.streamed[k], none.token[k], sizeof(none.token[k]));
            }
        }
}

static void a_seed_and_a_sequence_name_the_sampled_tokens(void **state)
{
    (void)state;
    const struct speclab_decoder_options seven = { .drafter = "ngram",
                                                   .sampling = "temperature=1,top_p=0.9",
                                                   .seed = 7 };
    struct speclab_decoder_options eight = seven, batched = seven;
    eight.seed = 8;
    batched.slots = 3;
    const struct texts a = decode(seven), b = decode(batched), c = decode(eight);
    assert_memory_equal(a.token, b.token, sizeof(a.token));
    assert_memory_not_equal(a.token, c.token, sizeof(a.token));
}

static void a_text_is_encoded_and_decoded(void **state)
{
    (void)state;
    struct speclab_error error = { "" };
    struct speclab_tokens plain = { NULL, 0 }, chat = { NULL, 0 };
    size_t bytes;
    assert_true(speclab_encode(target, "red, green", &plain, &error));
    char *text = speclab_text(target, plain.id, plain.n, &bytes);
    assert_string_equal(text, "red, green");
    assert_int_equal(bytes, strlen(text));
    const struct speclab_message m = { "user", "red" };
    assert_true(speclab_encode_chat(target, &m, 1, &chat, &error));
    assert_true(chat.n > plain.n); // the template's own tokens
    free(text);
    free(plain.id);
    free(chat.id);
}

static void refused(struct speclab_decoder_options o, const char *what)
{
    struct speclab_error error = { "" };
    struct speclab_decoder *d = speclab_decoder_create(target, &o, &error);
    if (d != NULL || strstr(error.text, what) == NULL)
        fail_msg("expected an error with \"%s\", found \"%s\"", what, error.text);
}

static void wrong_options_are_errors(void **state)
{
    (void)state;
    struct speclab_error error = { "" };
    refused((struct speclab_decoder_options){ .drafter = "nonsense" }, "nonsense");
    refused((struct speclab_decoder_options){ .drafter = "ngram:tokens=0" }, "tokens");
    refused((struct speclab_decoder_options){ .drafter = "ngram:lenght=2" }, "lenght");
    refused((struct speclab_decoder_options){ .rule = "nonsense" }, "nonsense");
    refused((struct speclab_decoder_options){ .sampling = "temprature=1" }, "temprature");
    refused((struct speclab_decoder_options){ .slots = 100000 }, "100000");
    refused((struct speclab_decoder_options){ .length = 1 << 30 }, "context");
    const struct speclab_target_options activations = { .activations = "f8" }, device = { .device = "tpu" };
    assert_null(speclab_target_open("x", &activations, &error));
    assert_non_null(strstr(error.text, "expected one of default, f32, bf16, int8, found \"f8\""));
    assert_null(speclab_target_open("/no/such/model.gguf", NULL, &error));
    assert_non_null(strstr(error.text, "/no/such/model.gguf"));
    char *path = test_path("library.gguf");
    assert_null(speclab_target_open(path, &device, &error));
    assert_non_null(strstr(error.text, "tpu"));
    free(path);
}

static void wrong_requests_are_errors(void **state)
{
    (void)state;
    struct speclab_error error = { "" };
    const int32_t good[] = { 5, 6 }, bad[] = { 5, 1 << 20 };
    struct speclab_decoder *d = speclab_decoder_create(target, NULL, &error);
    assert_non_null(d);
    assert_true(speclab_decoder_is_lossless(d));
    const struct {
        struct speclab_request r;
        const char *what;
    } wrong[] = {
        { { 0, good, 0, 4, false }, "prompt" },           { { 0, good, 2, 0, false }, "max_tokens" },
        { { 0, bad, 2, 4, false }, "token 1" },           { { -1, good, 2, 4, false }, "sequence" },
        { { 1LL << 32, good, 2, 4, false }, "sequence" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_false(speclab_decoder_start(d, &wrong[i].r, &error));
        assert_non_null(strstr(error.text, wrong[i].what));
        assert_int_equal(speclab_decoder_active(d), 0);
    }
    const struct speclab_request r = { 0, good, 2, 4, true };
    assert_true(speclab_decoder_start(d, &r, &error));
    assert_false(speclab_decoder_has_free_slot(d));
    assert_false(speclab_decoder_start(d, &r, &error));
    assert_non_null(strstr(error.text, "slot"));
    speclab_decoder_destroy(d);
    struct speclab_decoder_options lossy = { .rule = "lenient" };
    d = speclab_decoder_create(target, &lossy, &error);
    assert_false(speclab_decoder_is_lossless(d));
    speclab_decoder_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drafter_decodes_the_targets_own_tokens),
        cmocka_unit_test(a_seed_and_a_sequence_name_the_sampled_tokens),
        cmocka_unit_test(a_text_is_encoded_and_decoded),
        cmocka_unit_test(wrong_options_are_errors),
        cmocka_unit_test(wrong_requests_are_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
