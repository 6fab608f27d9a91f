// test_library.c - the library's interface (engine/speclab.h): what is decoded through it is what the target alone decodes, and every
// mistake of a caller is an error with a sentence.
#include "tests/support/tests.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "engine/speclab.h"
#include "tests/support/file_write.h"
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
    speclab_target_close(target);
    test_directory_remove();
    return 0;
}

// place: what the sentence names; found: what it says was found there.
static void expect_error(const struct speclab_error *error, const char *place, const char *found)
{
    if (strstr(error->text, place) == NULL || strstr(error->text, found) == NULL)
        fail_msg("expected an error with \"%s\" and \"%s\", found \"%s\"", place, found, error->text);
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
static struct texts decode_on(struct speclab_target *one, struct speclab_decoder_options o)
{
    struct texts t = { .accepted = 0 };
    struct speclab_error error;
    o.listener = (struct speclab_listener){ .step = on_step, .end = on_end, .self = &t };
    struct speclab_decoder *d = speclab_decoder_create(one, &o, &error);
    assert_ok(d != NULL, error);
    for (int next = 0; next < SEQUENCES || speclab_decoder_active(d) > 0;) {
        for (; next < SEQUENCES && speclab_decoder_has_free_slot(d); next++) {
            int32_t prompt[PROMPT];
            for (int i = 0; i < PROMPT; i++)
                prompt[i] = 10 + next + i % 2;
            const struct speclab_request r = {
                .sequence = next, .prompt = prompt, .n = PROMPT, .max_tokens = TOKENS, .ignore_end = true
            };
            assert_ok(speclab_decoder_start(d, &r, &error), error);
        }
        assert_ok(speclab_decoder_step(d, &error), error);
    }
    speclab_decoder_destroy(d);
    return t;
}

static struct texts decode(struct speclab_decoder_options o)
{
    return decode_on(target, o);
}

TEST(every_drafter_decodes_the_targets_own_tokens)
{
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

TEST(a_seed_and_a_sequence_name_the_sampled_tokens)
{
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

static const struct speclab_decoder_options of_a_thread = { .drafter = "ngram", .slots = 2, .seed = 5 };

static void *decode_on_own_target(void *texts)
{
    struct speclab_error error;
    char *path = test_path("library.gguf");
    struct speclab_target *own = speclab_target_open(path, NULL, &error);
    free(path);
    if (own != NULL)
        *(struct texts *)texts = decode_on(own, of_a_thread);
    speclab_target_close(own);
    return NULL;
}

TEST(targets_of_several_threads_share_nothing)
{
    enum { THREADS = 3 };
    static struct texts texts[THREADS];
    pthread_t thread[THREADS];
    const struct texts expected = decode(of_a_thread);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, decode_on_own_target, &texts[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_memory_equal(texts[i].token, expected.token, sizeof(expected.token));
}

TEST(a_text_is_encoded_and_decoded)
{
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
    const size_t before = plain.n;
    const struct speclab_message wrong = { "user", "ab\xFF" };
    assert_false(speclab_encode(target, wrong.content, &plain, &error));
    assert_non_null(strstr(error.text, "UTF-8"));
    assert_false(speclab_encode_chat(target, &wrong, 1, &plain, &error));
    assert_int_equal(plain.n, before);
    assert_true(speclab_encode(target, "red, green", &plain, &error)); // is appended
    assert_int_equal(plain.n, 2 * before);
    assert_memory_equal(plain.id + before, plain.id, before * sizeof(int32_t));
    free(text);
    free(plain.id);
    free(chat.id);
}

TEST(wrong_messages_are_errors)
{
    const struct speclab_message role = { "wizard", "red" }, no_role = { NULL, "red" }, no_content = { "user", NULL };
    const struct {
        const struct speclab_message *message;
        int n;
        const char *place, *found;
    } wrong[] = {
        { &role, -1, "messages: ", "-1" },         { NULL, 1, "messages: ", "NULL" },
        { &role, 1, "message 0: ", "\"wizard\"" }, { &no_role, 1, "message 0: ", "\"\"" },
        { &no_content, 1, "message 0: ", "NULL" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct speclab_error error = { "" };
        struct speclab_tokens tokens = { NULL, 0 };
        assert_false(speclab_encode_chat(target, wrong[i].message, wrong[i].n, &tokens, &error));
        expect_error(&error, wrong[i].place, wrong[i].found);
        assert_int_equal(tokens.n, 0);
    }
}

// ---- stop strings

enum { BESIDE = 9 }; // a sequence without stop strings, decoded in the other slot

struct last { // of the one sequence that has ended
    char text[4096], reason[16];
    size_t bytes;
    int n;
};

static void keep_end(void *self, const struct speclab_end *e)
{
    struct last *l = self;
    if (e->sequence == BESIDE) {
        assert_string_equal(e->reason, "limit");
        return;
    }
    assert_non_null(e->text);
    assert_int_equal(strlen(e->text), e->bytes);
    assert_true(e->bytes < sizeof(l->text));
    memcpy(l->text, e->text, e->bytes + 1);
    snprintf(l->reason, sizeof(l->reason), "%s", e->reason);
    l->bytes = e->bytes;
    l->n = e->n;
    char *whole = speclab_text(target, e->token, (size_t)e->n, NULL);
    assert_int_equal(strncmp(whole, e->text, e->bytes), 0);
    free(whole);
}

// Tokens without NUL bytes, drawn at random: the same for every drafter, by the rule match.
static struct last decode_until(const char *drafter, const char *const *stop, int n_stop)
{
    struct last last = { "", "", 0, 0 };
    struct speclab_error error = { "" };
    const struct speclab_decoder_options o = { .drafter = drafter,
                                               .rule = "match",
                                               .sampling = "temperature=1,logit_bias={3:-99}",
                                               .slots = 2,
                                               .seed = 3,
                                               .listener = { NULL, keep_end, &last } };
    struct speclab_decoder *d = speclab_decoder_create(target, &o, &error);
    assert_ok(d != NULL, error);
    char *copy[2] = { NULL, NULL };
    for (int i = 0; i < n_stop; i++)
        copy[i] = xstrdup(stop[i]);
    const int32_t prompt[] = { 10, 11, 10, 11 };
    const struct speclab_request beside = {
        .sequence = BESIDE, .prompt = prompt, .n = 3, .max_tokens = 40, .ignore_end = true
    };
    const struct speclab_request r = { .prompt = prompt,
                                       .n = 4,
                                       .max_tokens = 300,
                                       .ignore_end = true,
                                       .stop = (const char *const *)copy,
                                       .n_stop = n_stop };
    assert_true(speclab_decoder_start(d, &beside, &error) && speclab_decoder_start(d, &r, &error));
    for (int i = 0; i < n_stop; i++) { // the decoder has copied them
        memset(copy[i], '?', strlen(copy[i]));
        free(copy[i]);
    }
    while (speclab_decoder_active(d) > 0)
        assert_true(speclab_decoder_step(d, &error));
    speclab_decoder_destroy(d);
    return last;
}

TEST(a_text_ends_before_the_first_stop_string)
{
    const struct last whole = decode_until("none", NULL, 0);
    assert_string_equal(whole.reason, "limit");
    assert_int_equal(whole.n, 300);
    int tried = 0;
    for (size_t at = 3; at + 2 < whole.bytes; at++) {
        char word[3] = { whole.text[at], whole.text[at + 1], '\0' };
        if (word[0] <= ' ' || word[0] > '~' || word[1] <= ' ' || word[1] > '~')
            continue;
        const char *const stop[] = { "not in the text", word };
        const size_t first = (size_t)(strstr(whole.text, word) - whole.text);
        const char *const drafters[] = { "none", "ngram:tokens=3,longest=2" };
        for (int i = 0; i < 2; i++) {
            const struct last cut = decode_until(drafters[i], stop, 2);
            assert_string_equal(cut.reason, "string");
            assert_int_equal(cut.bytes, first);
            assert_memory_equal(cut.text, whole.text, first);
            assert_true(cut.n <= whole.n);
        }
        tried++;
    }
    assert_true(tried > 3);
}

// Token bytes that are not UTF-8 become U+FFFD in the text only.
TEST(a_replacement_character_is_no_stop_string)
{
    const char *const stop = "\xEF\xBF\xBD";
    const struct last whole = decode_until("none", NULL, 0), same = decode_until("none", &stop, 1);
    assert_non_null(strstr(whole.text, stop));
    assert_string_equal(same.reason, "limit");
    assert_string_equal(same.text, whole.text);
}

TEST(an_end_token_ends_a_text_unless_it_is_ignored)
{
    struct last last = { "", "", 0, 0 };
    struct speclab_error error;
    const struct speclab_decoder_options o = { .sampling = "temperature=0,logit_bias={2:1000}", // always <|im_end|>
                                               .listener = { NULL, keep_end, &last } };
    struct speclab_decoder *d = speclab_decoder_create(target, &o, &error);
    assert_non_null(d);
    const int32_t prompt = 10;
    struct speclab_request r = { .prompt = &prompt, .n = 1, .max_tokens = 5 };
    for (int ignored = 0; ignored < 2; ignored++) {
        r.ignore_end = ignored == 1;
        assert_true(speclab_decoder_start(d, &r, &error));
        while (speclab_decoder_active(d) > 0)
            assert_true(speclab_decoder_step(d, &error));
        assert_string_equal(last.reason, ignored ? "limit" : "end");
        assert_int_equal(last.n, ignored ? 5 : 1);
        assert_string_equal(last.text, ""); // special tokens have no text
    }
    speclab_decoder_destroy(d);
}

// ---- the options of a target

TEST(the_chat_of_a_target_is_a_choice)
{
    struct speclab_error error = { "" };
    char *path = test_path("library.gguf");
    const struct speclab_message m = { "user", "red" };
    struct speclab_tokens plain = { NULL, 0 }, unchanged = { NULL, 0 };
    assert_true(speclab_target_has_chat(target, &error));
    struct speclab_target *none = speclab_target_open(path, &(struct speclab_target_options){ .chat = "none" }, &error);
    assert_non_null(none);
    assert_true(speclab_target_has_chat(none, &error));
    assert_true(speclab_encode(none, "red", &plain, &error) && speclab_encode_chat(none, &m, 1, &unchanged, &error));
    assert_int_equal(plain.n, unchanged.n);
    assert_memory_equal(plain.id, unchanged.id, plain.n * sizeof(int32_t));
    speclab_target_close(none);
    free(plain.id);
    free(unchanged.id);
    free(path);
}

TEST(a_text_begins_with_bos_where_the_tokenizer_adds_it)
{
    struct speclab_error error = { "" };
    char *path = test_path("bos"), *settings = test_path("bos/tokenizer_config.json");
    small_write_hf(path, &small_default);
    file_write(settings, "{\"bos_token\": \"<|im_end|>\", \"add_bos_token\": true}");
    struct speclab_target *t = speclab_target_open(path, NULL, &error);
    assert_non_null(t);
    struct speclab_tokens tokens = { NULL, 0 };
    assert_false(speclab_encode(t, "\xFF", &tokens, &error)); // leaves no BOS
    assert_int_equal(tokens.n, 0);
    assert_true(speclab_encode(t, "a", &tokens, &error));
    assert_int_equal(tokens.n, 2);
    assert_int_equal(tokens.id[0], 2); // <|im_end|>
    free(tokens.id);
    speclab_target_close(t);
    free(path);
    free(settings);
}

TEST(a_model_without_a_tokenizer_decodes_token_ids)
{
    struct speclab_error error = { "" };
    struct small_model shape = small_default;
    shape.tokenizer = false;
    char *path = test_path("ids.gguf");
    small_write_gguf(path, &shape);
    struct speclab_target *t = speclab_target_open(path, NULL, &error);
    assert_non_null(t);
    const struct speclab_message m = { "user", "red" };
    struct speclab_tokens tokens = { NULL, 0 };
    assert_false(speclab_target_has_chat(t, &error));
    assert_non_null(strstr(error.text, "tokenizer"));
    assert_false(speclab_encode(t, "red", &tokens, &error));
    assert_false(speclab_encode_chat(t, &m, 1, &tokens, &error));
    assert_int_equal(tokens.n, 0);
    assert_null(speclab_text(t, (int32_t[]){ 5 }, 1, NULL));
    struct speclab_decoder *d = speclab_decoder_create(t, NULL, &error);
    const char *const stop = "x";
    struct speclab_request r = { .prompt = (int32_t[]){ 5 }, .n = 1, .max_tokens = 3, .stop = &stop, .n_stop = 1 };
    assert_false(speclab_decoder_start(d, &r, &error));
    assert_non_null(strstr(error.text, "tokenizer"));
    r.n_stop = 0;
    assert_true(speclab_decoder_start(d, &r, &error));
    while (speclab_decoder_active(d) > 0)
        assert_true(speclab_decoder_step(d, &error));
    speclab_decoder_destroy(d);
    speclab_target_close(t);
    free(path);
}

static void keep_sentence(void *self, const char *sentence)
{
    snprintf(self, 256, "%s", sentence);
}

TEST(packed_weights_are_written_and_read_again)
{
    char said[256] = "", *path = test_path("packed.gguf");
    small_write_gguf(path, &small_default);
    const struct speclab_target_options o = { .packed_cache = true, .log = keep_sentence, .log_self = said };
    const char *const expected[] = { "packed weights written to ", "packed weights read from " };
    for (int i = 0; i < 2; i++) {
        struct speclab_error error = { "" };
        struct speclab_target *t = speclab_target_open(path, &o, &error);
        assert_non_null(t);
        assert_int_equal(strncmp(said, expected[i], strlen(expected[i])), 0);
        speclab_target_close(t);
    }
    free(path);
}

// ---- mistakes

TEST(wrong_options_are_errors)
{
    static const struct {
        struct speclab_decoder_options o;
        const char *place, *found;
        bool without_a_model; // it is found without one
    } wrong[] = {
        { { .drafter = "nonsense" }, "drafter", "nonsense", true },
        { { .drafter = "ngram:tokens=0" }, "tokens", "0", true },
        { { .drafter = "ngram:lenght=2" }, "drafter", "lenght", true },
        { { .drafter = "ngram:tokens=2,tokens=3" }, "drafter: \"tokens\"", "\"ngram:tokens=2,tokens=3\"", true },
        { { .drafter = ":tokens=2" }, "drafter: ", "\":tokens=2\"", true },
        { { .rule = "nonsense" }, "rule", "nonsense", true },
        { { .rule = "match:x=1" }, "rule", "x", true },
        { { .sampling = "temprature=1" }, "sampling", "temprature", true },
        { { .sampling = "top_p=2" }, "top_p", "2", true },
        { { .sampling = "kind=1" }, "kind", "", true },
        { { .sampling = "top_p=0.5,top_k" }, "sampling: ", "\"top_k\"", true },
        { { .slots = 100000 }, "slots: expected at most 256", "100000", false },
        { { .slots = -1 }, "slots: ", "-1", false },
        { { .length = 1 << 30 }, "512, the model's context", "1073741824", false },
        { { .length = -1 }, "length: ", "-1", false },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct speclab_error error = { "" }, same = { "" };
        assert_null(speclab_decoder_create(target, &wrong[i].o, &error));
        expect_error(&error, wrong[i].place, wrong[i].found);
        if (!wrong[i].without_a_model)
            continue;
        assert_false(speclab_decoder_options_check(&wrong[i].o, &same));
        assert_string_equal(error.text, same.text);
    }
    assert_true(speclab_decoder_options_check(&(struct speclab_decoder_options){ .rule = "match" }, NULL));
}

TEST(wrong_options_of_a_target_are_errors)
{
    char *path = test_path("library.gguf");
    static const struct {
        struct speclab_target_options o;
        const char *place, *found;
    } wrong[] = {
        { { .activations = "f8" }, "activations: expected one of ", "\"f8\"" },
        { { .cache = "f3" }, "cache: expected one of ", "\"f3\"" },
        { { .chat = "jinja" }, "chat format", "\"jinja\"" },
        { { .threads = -2 }, "threads: ", "-2" },
        { { .threads = 5000 }, "threads: expected at most 1024", "5000" },
        { { .rows = -1 }, "rows: ", "-1" },
        { { .device = "tpu" }, "device", "\"tpu\"" },
    };
    struct speclab_error error;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_null(speclab_target_open(path, &wrong[i].o, &error));
        expect_error(&error, wrong[i].place, wrong[i].found);
    }
    assert_null(speclab_target_open("/no/such/model.gguf", NULL, &error));
    expect_error(&error, "/no/such/model.gguf", "");
    free(path);
}

TEST(wrong_requests_are_errors)
{
    struct speclab_error error = { "" };
    const int32_t good[] = { 5, 6 }, bad[] = { 5, 1 << 20 }, padding[] = { 5, 6, SMALL_TOKENS };
    const char *const empty[] = { "x", "" }, *const missing[] = { NULL }, *const latin[] = { "x", "caf\xE9" };
    const struct speclab_decoder_options two = { .slots = 2 };
    struct speclab_decoder *d = speclab_decoder_create(target, &two, &error);
    assert_non_null(d);
    assert_true(speclab_decoder_is_lossless(d));
    const struct {
        struct speclab_request r;
        const char *what;
    } wrong[] = {
        { { .prompt = good, .n = 0, .max_tokens = 4 }, "prompt" },
        { { .prompt = good, .n = 2, .max_tokens = 0 }, "max_tokens" },
        { { .prompt = bad, .n = 2, .max_tokens = 4 }, "token 1" },
        { { .prompt = padding, .n = 3, .max_tokens = 4 }, "token 2 is 270, expected an id from 0 to 269" },
        { { .sequence = -1, .prompt = good, .n = 2, .max_tokens = 4 }, "sequence" },
        { { .sequence = 1LL << 32, .prompt = good, .n = 2, .max_tokens = 4 }, "sequence" },
        { { .prompt = good, .n = 2, .max_tokens = 4, .stop = empty, .n_stop = 2 }, "stop string 1" },
        { { .prompt = good, .n = 2, .max_tokens = 4, .stop = missing, .n_stop = 1 }, "stop string 0" },
        { { .prompt = good, .n = 2, .max_tokens = 4, .stop = latin, .n_stop = 2 },
          "stop string 1 is not UTF-8: byte 0xE9 at offset 3" },
        { { .prompt = good, .n = 2, .max_tokens = 4, .n_stop = -1 }, "n_stop" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_false(speclab_decoder_start(d, &wrong[i].r, &error));
        expect_error(&error, wrong[i].what, "");
        assert_false(speclab_decoder_start(d, &wrong[i].r, NULL)); // without a place for the sentence
        assert_int_equal(speclab_decoder_active(d), 0);
    }
    struct speclab_request r = { .prompt = good, .n = 2, .max_tokens = 4, .ignore_end = true };
    assert_true(speclab_decoder_start(d, &r, &error));
    assert_true(speclab_decoder_has_free_slot(d));
    assert_false(speclab_decoder_start(d, &r, &error)); // the number is in use
    assert_non_null(strstr(error.text, "sequence"));
    r.sequence = 1;
    assert_true(speclab_decoder_start(d, &r, &error));
    assert_false(speclab_decoder_has_free_slot(d));
    r.sequence = 2;
    assert_false(speclab_decoder_start(d, &r, &error));
    assert_non_null(strstr(error.text, "slot"));
    speclab_decoder_destroy(d); // with active sequences
    struct speclab_decoder_options lossy = { .rule = "lenient" };
    d = speclab_decoder_create(target, &lossy, &error);
    assert_false(speclab_decoder_is_lossless(d));
    speclab_decoder_destroy(d);
}

RUN_TESTS(set_up, tear_down)
