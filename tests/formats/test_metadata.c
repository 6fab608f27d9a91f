// test_metadata.c - checkpoints that differ in one value of their metadata at a time: detects a reader that ignores a value, or
// that takes a usual value for the stored one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "models/tokenizers/chat_template.h"
#include "models/config.h"
#include "tests/formats/gguf_edit.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/support/small_tokenizer.h"

static struct error err;

// ---- a GGUF file with replaced keys

// The configuration of a copy of the small file with these keys; the caller calls config_free().
static struct model_config config_with(const char *values, ...) __attribute__((format(printf, 1, 2)));
static struct model_config config_with(const char *values, ...)
{
    char set[1000], *good = test_path("good.gguf"), *path = test_path("with.gguf");
    va_list args;
    va_start(args, values);
    vsnprintf(set, sizeof(set), values, args);
    va_end(args);
    if (access(good, R_OK) != 0)
        small_write_gguf(good, &small_minimal);
    gguf_edit(good, path, set, NULL);
    struct model_config c;
    assert_ok(config_read(path, &c, &err), err);
    free(good);
    free(path);
    return c;
}

// 2^32 - 1, which some converters write for "none"; for comparison 269, the last id of the vocabulary.
TEST(an_id_of_32_ones_is_no_token)
{
    static const char *const ends[] = { "eos", "eot", "eom" };
    for (int none = 0; none < 2; none++) {
        const unsigned id = none ? UINT32_MAX : 269;
        struct model_config c;
        for (int i = 0; i < 3; i++) {
            c = config_with("{'tokenizer.ggml.%s': null, 'tokenizer.ggml.%s_token_id': %u}",
                            i == 0 ? "none" : "eos_token_id", ends[i], id);
            if (!none)
                assert_int_equal(c.end[0], 269);
            assert_int_equal(c.n_end, none ? 2 : 3); // <|endoftext|> and <|im_end|> by their names
            config_free(&c);
        }
        c = config_with("{'tokenizer.ggml.bos_token_id': %u, 'tokenizer.ggml.pre': 'llama-bpe', "
                        "'tokenizer.ggml.add_bos_token': null}",
                        id);
        assert_int_equal(c.bos, none ? -1 : 269);
        assert_int_equal(c.add_bos, !none);
        config_free(&c);
    }
}

// llama.cpp's defaults for files without add_bos_token (src/llama-vocab.cpp): SentencePiece models, and these kinds of BPE, put
// bos first.
TEST(without_add_bos_token_the_default_is_llama_cpps)
{
    static const char kinds[] =
        "llama - 1, llama default 1, gpt2 - 0, gpt2 llama-bpe 1, gpt2 llama3 1, gpt2 llama-v3 1, gpt2 falcon3 1, gpt2 tekken 1, "
        "gpt2 falcon 0, gpt2 gpt-2 0, gpt2 gpt2 0, gpt2 mpt 0, gpt2 olmo 0, gpt2 jais 0, gpt2 smollm 0, gpt2 starcoder 0, "
        "gpt2 refact 0, gpt2 command-r 0, gpt2 codeshell 0, gpt2 exaone 0, gpt2 dbrx 0, gpt2 smaug-bpe 0, gpt2 qwen2 0, "
        "gpt2 stablelm2 0, gpt2 deepseek-r1-qwen 0, gpt2 megrez 0";
    static const char *const given[] = { "false", "true", "null" };
    int n = 0;
    for (const char *at = kinds; at != NULL; at = strchr(at + 1, ','), n++)
        for (int i = 0; i < 3; i++) {
            char model[16], pre[32], quoted[40];
            int bos;
            assert_int_equal(sscanf(at + (*at == ','), "%15s %31s %d", model, pre, &bos), 3);
            snprintf(quoted, sizeof(quoted), *pre == '-' ? "null" : "'%s'", pre);
            struct model_config c = config_with("{'tokenizer.ggml.model': '%s', 'tokenizer.ggml.pre': %s, "
                                                "'tokenizer.ggml.add_bos_token': %s}",
                                                model, quoted, given[i]);
            if (c.add_bos != (i == 2 ? bos : i))
                fail_msg("%s, %s, add_bos_token %s: begins with bos: %d", model, pre, given[i], c.add_bos);
            assert_int_equal(c.bos, SMALL_IM_START);
            config_free(&c);
        }
    assert_int_equal(n, 26);
}

TEST(each_key_that_names_a_token_is_read_from_gguf)
{
    for (int id = 3; id < 270; id += 89) {
        const int expected[] = { id + 1, id + 2, id - 1, SMALL_ENDOFTEXT, SMALL_IM_END };
        struct model_config c = config_with("{'tokenizer.ggml.bos_token_id': %d, 'tokenizer.ggml.eos_token_id': %d, "
                                            "'tokenizer.ggml.eot_token_id': %d, 'tokenizer.ggml.eom_token_id': %d, "
                                            "'tokenizer.chat_template': 'another'}",
                                            id, id + 1, id + 2, id - 1);
        assert_int_equal(c.bos, id);
        assert_int_equal(c.n_end, id - 1 == SMALL_IM_END ? 4 : 5); // duplicate ids are not added
        assert_memory_equal(c.end, expected, (size_t)c.n_end * sizeof(int));
        assert_string_equal(c.chat_template, "another");
        config_free(&c);
    }
}

// ---- a Hugging Face directory

static struct model_config read_config(const char *directory)
{
    struct model_config c;
    assert_ok(config_read(directory, &c, &err), err);
    return c;
}

// Without the tokenizer's files config.json alone gives the tokens that begin and end a text. With them the tokenizer's bos
// token has precedence, and the end tokens of all files are added up.
TEST(each_file_that_names_a_token_is_read_from_a_directory)
{
    char *directory = test_path("named"), *config = test_path("named/config.json"),
         *generation = test_path("named/generation_config.json"), *settings = test_path("named/tokenizer_config.json"),
         *tokenizer = test_path("named/tokenizer.json"), *jinja = test_path("named/chat_template.jinja");
    small_write_hf(directory, &small_minimal);
    json_file_set(config, "{'bos_token_id': 41, 'eos_token_id': [42, 43]}");
    file_write(generation, "{\"bos_token_id\": 1, \"eos_token_id\": [44, 43]}");
    json_file_set(settings,
                  "{'bos_token': '<|endoftext|>', 'eos_token': '<|im_start|>', 'add_bos_token': true, 'chat_template': "
                  "[{'name': 'rag', 'template': 'no'}, {'name': 'default', 'template': 'yes'}]}");
    struct model_config c = read_config(directory);
    static const int all[] = { 44, 43, 42, SMALL_IM_START, SMALL_ENDOFTEXT, SMALL_IM_END };
    assert_int_equal(c.n_end, 6);
    assert_memory_equal(c.end, all, sizeof(all));
    assert_true(c.add_bos && c.bos == SMALL_ENDOFTEXT);
    assert_string_equal(c.chat_template, "yes");
    config_free(&c);

    file_write(settings, "{\"bos_token\": {\"content\": \"<|im_end|>\"}, \"add_bos_token\": false}");
    c = read_config(directory);
    assert_true(!c.add_bos && c.bos == SMALL_IM_END && c.n_end == 5 && c.chat_template == NULL);
    config_free(&c);

    unlink(settings);
    unlink(tokenizer);
    file_write(jinja, "newer");
    c = read_config(directory);
    assert_true(!c.add_bos && c.bos == 41 && c.n_end == 3 && c.end[0] == 44 && c.end[1] == 43 && c.end[2] == 42);
    assert_string_equal(c.chat_template, "newer");
    config_free(&c);

    unlink(generation);
    json_file_set(config, "{'bos_token_id': null, 'eos_token_id': 269}");
    c = read_config(directory);
    assert_true(!c.add_bos && c.bos == -1 && c.n_end == 1 && c.end[0] == 269);
    config_free(&c);
    free(jinja);
    free(tokenizer);
    free(settings);
    free(generation);
    free(config);
    free(directory);
}

// If tokenizer.json has a template that puts a token first, that token begins a text, whatever other files name, add_bos_token included:
// transformers 5.23 does so. Without such a template add_bos_token decides.
TEST(a_template_of_the_tokenizer_sets_the_first_token)
{
#define PIECE "{'Sequence': {'id': 'A', 'type_id': 0}}"
#define TOKEN "{'SpecialToken': {'id': '<|im_end|>', 'type_id': 0}}"
#define TEMPLATE(SINGLE) "{'type': 'TemplateProcessing', 'single': [" SINGLE "], 'pair': [], 'special_tokens': {}}"
#define SEQUENCE(PROCESSORS) "{'type': 'Sequence', 'processors': [{'type': 'ByteLevel'}" PROCESSORS "]}"
    static const char adds_bos[] = "{'add_bos_token': true}", no[] = "{'add_bos_token': false}";
    static const struct {
        const char *post, *settings;
        bool adds;
        int bos;
    } cases[] = {
        { "null", "{}", false, 41 },
        { "null", adds_bos, true, 41 },
        { "null", no, false, 41 },
        { TEMPLATE(TOKEN ", " PIECE), "{}", true, SMALL_IM_END },
        { TEMPLATE(TOKEN ", " PIECE), "{'bos_token': '<|endoftext|>'}", true, SMALL_IM_END },
        { TEMPLATE(TOKEN ", " PIECE), "{'bos_token': '<|endoftext|>', 'add_bos_token': false}", true, SMALL_IM_END },
        { TEMPLATE(TOKEN ", " PIECE), adds_bos, true, SMALL_IM_END },
        { TEMPLATE(PIECE ", " TOKEN), adds_bos, true, 41 },
        { TEMPLATE(PIECE ", " TOKEN), "{}", false, 41 },
        { SEQUENCE(", " TEMPLATE(TOKEN ", " PIECE)), "{}", true, SMALL_IM_END },
        { SEQUENCE(""), "{}", false, 41 },
    };
    char *directory = test_path("template"), *config = test_path("template/config.json"),
         *settings = test_path("template/tokenizer_config.json"), *tokenizer = test_path("template/tokenizer.json");
    small_write_hf(directory, &small_minimal);
    json_file_set(config, "{'bos_token_id': 41}");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *post = xformat("{'post_processor': %s}", cases[i].post);
        json_file_set(tokenizer, post);
        file_write(settings, "{}");
        json_file_set(settings, cases[i].settings);
        struct model_config c = read_config(directory);
        if (c.add_bos != cases[i].adds || c.bos != cases[i].bos)
            fail_msg("case %zu: begins with bos: %d, %d; not %d, %d", i, c.add_bos, c.bos, cases[i].adds, cases[i].bos);
        config_free(&c);
        free(post);
    }
    free(directory);
    free(config);
    free(settings);
    free(tokenizer);
}

// ---- sizes and numbers, in both

static void assert_config(const char *path, const struct small_model *t)
{
    struct model_config c = read_config(path);
    assert_true(c.layers == t->layers && c.width == t->width && c.hidden == t->hidden && c.heads == t->heads);
    assert_true(c.kv_heads == t->kv_heads && c.head_dim == t->head_dim && c.vocab == t->vocab);
    assert_true(c.context == t->context && c.tied == t->tied && c.attention_bias == t->bias);
    assert_true(c.norm_eps == (float)t->eps && c.rope.theta == t->theta);
    assert_true(c.rope.scaling == (c.gguf && t->rope == ROPE_LLAMA3 ? ROPE_TABLE : t->rope));
    if (t->rope != ROPE_PLAIN && c.rope.scaling != ROPE_TABLE)
        assert_true(c.rope.factor == t->factor);
    if (c.rope.scaling == ROPE_LLAMA3)
        assert_true(c.rope.low == t->low && c.rope.high == t->high && c.rope.original == t->original);
    config_free(&c);
}

TEST(each_number_of_a_model_is_read_from_both_formats)
{
#define USUAL .context = 77, .theta = 10000, .eps = 1e-5
#define SIZES(...) \
    { \
        SMALL_SIZES(__VA_ARGS__), USUAL \
    }
#define WITH(...) \
    { \
        SMALL_SIZES(40, 16, 24, 1, 4, 2, 4), __VA_ARGS__ \
    }
    static const struct small_model models[] = {
        SIZES(40, 16, 24, 1, 4, 2, 4),
        SIZES(40, 16, 24, 2, 4, 2, 4),
        SIZES(40, 24, 24, 1, 4, 2, 6),
        SIZES(40, 16, 24, 1, 4, 2, 8),
        SIZES(40, 16, 32, 1, 4, 2, 4),
        SIZES(40, 16, 24, 1, 2, 2, 8),
        SIZES(40, 16, 24, 1, 4, 4, 4),
        SIZES(40, 16, 24, 1, 4, 1, 4),
        SIZES(41, 16, 24, 1, 4, 2, 4),
        WITH(.context = 78, .theta = 10000, .eps = 1e-5),
        WITH(USUAL, .tied = true),
        WITH(USUAL, .bias = true),
        WITH(.context = 77, .theta = 10000, .eps = 0.25),
        WITH(.context = 77, .theta = 500, .eps = 1e-5),
        WITH(USUAL, .rope = ROPE_LINEAR, .factor = 3),
        WITH(USUAL, .rope = ROPE_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 32),
        WITH(USUAL, .rope = ROPE_LLAMA3, .factor = 8, .low = 2, .high = 5, .original = 33),
    };
    char *directory = test_path("numbers"), *file = test_path("numbers.gguf");
    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
        for (int new_spelling = 0; new_spelling < 2; new_spelling++) {
            struct small_model t = models[i];
            t.new_spelling = new_spelling;
            small_write_hf(directory, &t);
            small_write_gguf(file, &t);
            assert_config(directory, &t);
            assert_config(file, &t);
        }
    free(directory);
    free(file);
}

// ---- targets

// chat_end: the end token of a chat template; NULL: it has none.
static int end_ids(struct speclab_target *t, const char *chat_end, int32_t *end)
{
    struct speclab_decoder *d = decoder_read(NULL, NULL, NULL, &err);
    t->chat = (struct chat_format){ .kind = chat_end != NULL ? CHAT_CHATML : CHAT_NONE, .end = chat_end };
    assert_ok(decoder_open(d, t, 1, 8, &err), err);
    const int n = d->n_end;
    memcpy(end, d->end, (size_t)n * sizeof(*end));
    speclab_decoder_destroy(d);
    return n;
}

// Opens a target and checks the ids of a prompt, of an appended text, and the end tokens. first: the token that begins a text;
// -1: none.
static void expect_target(const char *path, int first, const int32_t *ends, int n)
{
    struct speclab_target *t =
        speclab_target_open(path, &(struct speclab_target_options){ .chat = "none", .threads = 1, .rows = 8 }, &err);
    struct ids ids = { 0 };
    int32_t end[TARGET_ENDS];
    if (t == NULL || !target_encode(t, ENCODE_BOS, "ab", 2, &ids, &err))
        fail_msg("%s", err.text);
    const int32_t a = SMALL_FIRST_BYTE + 'a', b = SMALL_FIRST_BYTE + 'b';
    const int begins = first >= 0;
    assert_int_equal(ids.n, 2 + begins);
    assert_true(!begins || ids.id[0] == first);
    assert_true(ids.id[begins] == a && ids.id[begins + 1] == b);
    assert_true(target_encode(t, 0, "a", 1, &ids, &err)); // an appended text has no bos
    assert_true(ids.n == (size_t)(3 + begins) && ids.id[ids.n - 1] == a);
    assert_int_equal(end_ids(t, NULL, end), n);
    assert_memory_equal(end, ends, (size_t)n * sizeof(*end));
    assert_int_equal(end_ids(t, "<|im_start|>", end), n + 1); // the chat format's, which the checkpoint does not name
    assert_int_equal(end[n], SMALL_IM_START);
    for (int i = 0; i < n; i++) { // one that the checkpoint names, too, is not added again
        size_t bytes;
        const char *name = tokenizer_token(t->tokenizer, ends[i], &bytes);
        char *known = xstrndup(name, bytes);
        assert_int_equal(end_ids(t, known, end), n);
        assert_memory_equal(end, ends, (size_t)n * sizeof(*end));
        free(known);
    }
    free(ids.id);
    speclab_target_close(t);
}

TEST(a_target_begins_and_ends_texts_as_its_checkpoint_says)
{
    static const int32_t ends[] = { 77, SMALL_IM_END, SMALL_ENDOFTEXT };
    char *with = test_path("with.gguf"), *directory = test_path("begins"),
         *settings = test_path("begins/tokenizer_config.json"),
         *generation = test_path("begins/generation_config.json");
    small_write_hf(directory, &small_minimal);
    file_write(generation, "{\"eos_token_id\": [77, 2]}");
    for (int adds = 0; adds < 2; adds++) {
        struct model_config c = config_with("{'tokenizer.ggml.bos_token_id': %d, 'tokenizer.ggml.eos_token_id': 77, "
                                            "'tokenizer.ggml.eot_token_id': %d, 'tokenizer.ggml.add_bos_token': %s}",
                                            SMALL_IM_END, SMALL_IM_END, adds ? "true" : "false");
        config_free(&c);
        expect_target(with, adds ? SMALL_IM_END : -1, ends, 3);
        file_write(settings, "{\"bos_token\": \"<|im_end|>\"}");
        json_file_set(settings, adds ? "{'add_bos_token': true}" : "{'add_bos_token': false}");
        expect_target(directory, adds ? SMALL_IM_END : -1, ends, 3);
    }
    free(with);
    free(directory);
    free(settings);
    free(generation);
}

RUN_TESTS(NULL, NULL)
