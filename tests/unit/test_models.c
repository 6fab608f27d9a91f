// test_models.c - the forward pass: against logits of transformers, and bit for bit against itself in other batches.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/paths.h"
#include "tests/support/tests.h"
#include "tests/device/reference_operations.h"
#include "tests/support/model_runner.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static int number(const struct json *config, const char *key)
{
    return (int)json_int(json_get(config, key));
}

static struct small_model small_model_of(const struct json *j)
{
    const struct json *c = json_get(j, "config"), *scaling = json_get(c, "rope_scaling");
    struct small_model t = { .vocab = number(c, "vocab_size"),
                             .width = number(c, "hidden_size"),
                             .hidden = number(c, "intermediate_size"),
                             .layers = number(c, "num_hidden_layers"),
                             .heads = number(c, "num_attention_heads"),
                             .kv_heads = number(c, "num_key_value_heads"),
                             .context = number(c, "max_position_embeddings") };
    t.head_dim = json_is_int(json_get(c, "head_dim")) ? number(c, "head_dim") : t.width / t.heads;
    t.tied = json_bool(json_get(c, "tie_word_embeddings"));
    t.bias = json_bool(json_get(c, "attention_bias"));
    t.theta = json_number(json_get(c, "rope_theta"));
    t.eps = json_number(json_get(c, "rms_norm_eps"));
    t.seed = (uint64_t)json_int(json_get(j, "seed"));
    if (json_is_object(scaling)) {
        const char *kind = json_text(json_get(scaling, json_get(scaling, "rope_type") != NULL ? "rope_type" : "type"));
        t.rope = strcmp(kind, "llama3") == 0 ? ROPE_LLAMA3 : ROPE_LINEAR;
        t.factor = json_number(json_get(scaling, "factor"));
        t.low = json_number(json_get(scaling, "low_freq_factor"));
        t.high = json_number(json_get(scaling, "high_freq_factor"));
        t.original = number(scaling, "original_max_position_embeddings");
    }
    return t;
}

// Replaces the config.json of the small model by that of the golden case.
static void write_config(const char *directory, const struct json *config)
{
    char *path = xformat("%s/config.json", directory), *text = json_write(config);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
    free(text);
}

static void check_logits(const char *path, const char *name, const struct json *j)
{
    struct runner r = runner_open(path, 2, NULL, 1);
    const struct json *tokens = json_get(j, "tokens"), *rows = json_get(j, "rows");
    int n = (int)json_count(tokens);
    int32_t token[64];
    for (int i = 0; i < n; i++)
        token[i] = (int32_t)json_int(json_at(tokens, (size_t)i));
    const float *logits = runner_pass(&r, n, token, NULL, NULL);
    double worst = 0;
    for (size_t k = 0; k < json_count(rows); k++) {
        const struct json *expected = json_at(json_get(j, "logits"), k);
        double row[512];
        assert_int_equal(json_count(expected), r.vocab);
        for (int v = 0; v < r.vocab; v++)
            row[v] = json_number(json_at(expected, (size_t)v));
        double d = reference_distance(logits + json_int(json_at(rows, k)) * r.vocab, row, r.vocab);
        worst = d > worst ? d : worst;
    }
    printf("    %-8s %s: max |difference| / max |reference| %.2g\n", name,
           strstr(path, "gguf") != NULL ? "gguf" : "safetensors", worst);
    if (!(worst <= 1e-5))
        fail_msg("%s: logits differ from transformers' by %g", path, worst);
    runner_close(&r);
}

TEST(logits_of_small_models_equal_those_of_transformers)
{
    static const char *const names[] = { "mha", "gqa", "odd", "one", "headdim", "llama3", "linear", "bias" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct json *j = golden_json("logits_%s.json", names[i]);
        struct small_model t = small_model_of(j);
        char *directory = xformat("%s/%s", test_directory(), names[i]),
             *file = xformat("%s/%s.gguf", test_directory(), names[i]);
        small_write_hf(directory, &t);
        small_write_gguf(file, &t);
        write_config(directory, json_get(j, "config"));
        for (void *at = json_first(json_get(j, "check")); at != NULL; at = json_next(json_get(j, "check"), at)) {
            int64_t rows, width;
            float *w = small_tensor(&t, json_key(at), &rows, &width);
            assert_non_null(w);
            for (size_t k = 0; k < json_count(json_value(at)); k++)
                if ((float)json_number(json_at(json_value(at), k)) != w[k])
                    fail_msg("%s: %s[%zu] is %.9g, expected %.9g: the weights differ from those of the golden case",
                             names[i], json_key(at), k, (double)w[k], json_number(json_at(json_value(at), k)));
            free(w);
        }
        check_logits(directory, names[i], j);
        check_logits(file, names[i], j);
        json_free(j);
        free(directory);
        free(file);
    }
}

// ---- bits

static uint64_t random_state = 3;

static int32_t any_token(int vocab)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((random_state >> 33) % (uint64_t)vocab);
}

static char *small_file(enum type type, int width)
{
    struct small_model t = small_default;
    t.type = type;
    t.width = width;
    t.hidden = width == 256 ? 512 : 96;
    t.head_dim = width / t.heads;
    t.context = RUNNER_LENGTH;
    char *path = xformat("%s/bits_%s.gguf", test_directory(), type_facts[type].name);
    small_write_gguf(path, &t);
    return path;
}

// Activations and cache types; int8 only for quantized weights, q8_0 only if a head is a multiple of the block.
static const struct precision {
    enum activations activations;
    enum type cache;
} precisions[] = {
    { ACTIVATIONS_F32, F32 }, { ACTIVATIONS_BF16, BF16 }, { ACTIVATIONS_INT8, F32 }, { ACTIVATIONS_INT8, Q8_0 }
};

static int precisions_for(enum type t)
{
    return !type_is_quantized(t) ? 2 : type_facts[t].block == 256 ? 4 : 3;
}

TEST(a_row_has_the_same_bits_alone_and_in_batches_of_up_to_64)
{
    enum { TEXT = 96, FROM = 30 };
    for (int t = 0; t < TYPES && type_facts[t].ggml >= 0; t++)
        for (int w = 0; w < precisions_for((enum type)t); w++) {
            char *path = small_file((enum type)t, type_facts[t].block == 256 ? 256 : 64);
            struct runner r = runner_open_as(path, 2, NULL, 1, precisions[w].activations, precisions[w].cache);
            int32_t token[TEXT];
            for (int i = 0; i < TEXT; i++)
                token[i] = any_token(r.vocab);
            kv_truncate(r.cache, 0, 0);
            float *alone = runner_one_by_one(&r, token, TEXT);
            for (int n = 2; n <= 64; n += n < 18 ? 1 : 7 + t % 3) {
                kv_truncate(r.cache, 0, FROM);
                const float *logits = runner_pass(&r, n, token + FROM, NULL, NULL);
                for (int i = 0; i < n; i++)
                    runner_same_bits(logits + i * r.vocab, alone + (FROM + i) * r.vocab, r.vocab, type_facts[t].name,
                                     n);
            }
            free(alone);
            runner_close(&r);
            free(path);
        }
}

static void check_prompts_and_slots(struct precision precision)
{
    enum { TEXT = 2000 };
    char *path = small_file(Q4_1, 64);
    struct runner r = runner_open_as(path, 2, NULL, 4, precision.activations, precision.cache),
                  other = runner_open_as(path, 3, NULL, 4, precision.activations, precision.cache);
    static int32_t token[TEXT], token_of_row[128], slot[128], parent[128];
    for (int i = 0; i < TEXT; i++)
        token[i] = any_token(r.vocab);
    kv_truncate(r.cache, 0, 0);
    float *alone = runner_one_by_one(&r, token, TEXT);

    kv_truncate(r.cache, 0, 0); // a prompt of 2,000 in chunks of 600
    for (int at = 0; at < TEXT; at += RUNNER_ROWS) {
        int n = TEXT - at < RUNNER_ROWS ? TEXT - at : RUNNER_ROWS;
        const float *logits = runner_pass(&r, n, token + at, NULL, NULL);
        for (int i = 0; i < n; i++)
            runner_same_bits(logits + i * r.vocab, alone + (at + i) * r.vocab, r.vocab, "prompt", n);
        kv_truncate(r.cache, 0, at);
        runner_prefill(&r, 0, token + at, n);
    }
    for (int s = 0; s < 4; s++) { // four slots of 32 rows, with prefixes of different lengths, on three threads
        kv_truncate(other.cache, s, 0);
        runner_prefill(&other, s, token, 100 * s + 7);
        for (int i = 0; i < 32; i++) {
            token_of_row[32 * s + i] = token[100 * s + 7 + i];
            slot[32 * s + i] = s;
            parent[32 * s + i] = i - 1;
        }
    }
    const float *logits = runner_pass(&other, 128, token_of_row, slot, parent);
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 32; i++)
            runner_same_bits(logits + (32 * s + i) * r.vocab, alone + (100 * s + 7 + i) * r.vocab, r.vocab, "slots",
                             128);
    free(alone);
    runner_close(&r);
    runner_close(&other);
    free(path);
}

TEST(a_row_has_the_same_bits_in_prompts_slots_threads_and_single_row_passes)
{
    for (int w = 0; w < 3; w++)
        check_prompts_and_slots(precisions[w]);
}

static void check_paths(enum type type, struct precision precision)
{
    char *path = small_file(type, type == Q4_K ? 256 : 64);
    struct runner r = runner_open_as(path, 2, NULL, 1, precision.activations, precision.cache);
    for (int round = 0; round < 20; round++) {
        enum { NODES = 40 };
        int32_t prompt[64], token[NODES], parent[NODES], text[128], kept[NODES];
        int prefix = 1 + (int)any_token(60);
        for (int i = 0; i < prefix; i++)
            prompt[i] = any_token(r.vocab);
        for (int i = 0; i < NODES; i++) {
            token[i] = any_token(r.vocab);
            parent[i] = i == 0 ? -1 : any_token(i);
        }
        kv_truncate(r.cache, 0, 0);
        runner_prefill(&r, 0, prompt, prefix);
        float *tree = xmalloc((size_t)NODES * (size_t)r.vocab * sizeof(float));
        memcpy(tree, runner_pass(&r, NODES, token, NULL, parent), (size_t)NODES * (size_t)r.vocab * sizeof(float));

        int node = (int)any_token(NODES), depth = 0, n = 0; // a path, root first
        for (int at = node; at >= 0; at = parent[at])
            depth++;
        for (int at = node, i = depth - 1; at >= 0; at = parent[at], i--)
            kept[i] = at;
        memcpy(text, prompt, sizeof(prompt[0]) * (size_t)prefix);
        for (int i = 0; i < depth; i++)
            text[prefix + i] = token[kept[i]];
        int32_t after = any_token(r.vocab);
        kv_keep(r.cache, 0, kept, depth); // the accepted path
        float *next = xmalloc((size_t)r.vocab * sizeof(float));
        memcpy(next, runner_pass(&r, 1, &after, NULL, NULL), (size_t)r.vocab * sizeof(float));

        text[prefix + depth] = after;
        kv_truncate(r.cache, 0, 0);
        float *alone = runner_one_by_one(&r, text, prefix + depth + 1);
        for (n = 0; n < depth; n++)
            runner_same_bits(tree + kept[n] * r.vocab, alone + (prefix + n) * r.vocab, r.vocab, "tree", NODES);
        // as after the same text row by row
        runner_same_bits(next, alone + (prefix + depth) * r.vocab, r.vocab, "after a kept path", 1);
        free(tree), free(next), free(alone);
    }
    runner_close(&r);
    free(path);
}

TEST(a_path_through_a_tree_has_the_bits_of_a_chain)
{
    for (int w = 0; w < 4; w++) {
        check_paths(Q4_K, precisions[w]);
        if (w < 2)
            check_paths(BF16, precisions[w]);
    }
}

TEST(taps_return_the_hidden_states_between_layers)
{
    char *path = small_file(F32, 64);
    struct runner r = runner_open(path, 1, NULL, 1);
    const struct model_shape *s = model_shape(r.model);
    const int32_t token[] = { 5, 9, 5 }, slot[3] = { 0 }, parent[] = { -1, 0, 1 };
    struct taps taps = { 3, { 0, FINAL_STATE, s->layers } };
    struct states states;
    struct error err;
    struct pass p = { .n = 3, .token = token, .slot = slot, .parent = parent };
    assert_true(model_forward(r.model, r.cache, &p, &taps, &states, &err));
    assert_int_equal(states.tapped.rows, 3);
    assert_int_equal(states.tapped.width, 3 * s->width);
    float *embedded = xcalloc(3 * (size_t)s->width, sizeof(float));
    r.backend->take(r.backend, tensor_of(embedded, F32, 3, s->width), model_embedding(r.model), token);
    for (int i = 0; i < 3; i++) {
        const float *row = (const float *)states.tapped.data + i * 3 * s->width;
        assert_memory_equal(row, embedded + i * s->width, (size_t)s->width * sizeof(float));
        assert_memory_equal(row + s->width, (const float *)states.last.data + i * s->width,
                            (size_t)s->width * sizeof(float));
        double squares = 0, normed = 0; // the last norm rescales rows, so the two differ
        for (int k = 0; k < s->width; k++) {
            squares += (double)row[2 * s->width + k] * (double)row[2 * s->width + k];
            normed += (double)row[s->width + k] * (double)row[s->width + k];
        }
        assert_true(squares > 0 && normed > 0 && squares != normed);
    }
    free(embedded);
    runner_close(&r);
    free(path);
}

// ---- the real model

static double log_p_of(const float *logits, int vocab, int token)
{
    float max = logits[0];
    double total = 0;
    for (int v = 1; v < vocab; v++)
        max = fmaxf(max, logits[v]);
    for (int v = 0; v < vocab; v++)
        total += exp((double)logits[v] - (double)max);
    return (double)logits[token] - (double)max - log(total);
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static void check_greedy(struct runner *r, const struct json *j, int *near_ties)
{
    const struct json *prompt = json_get(j, "prompt_ids"), *new = json_get(j, "new_ids"),
                      *log_p = json_get(j, "logprobs");
    int n = (int)json_count(prompt);
    int32_t token[RUNNER_ROWS];
    for (int i = 0; i < n; i++)
        token[i] = (int32_t)json_int(json_at(prompt, (size_t)i));
    kv_truncate(r->cache, 0, 0);
    if (json_is_array(log_p)) {
        const float *logits = runner_pass(r, n, token, NULL, NULL);
        for (int i = 0; i + 1 < n; i++) {
            double expected = json_number(json_at(log_p, (size_t)i)),
                   got = log_p_of(logits + (size_t)i * (size_t)r->vocab, r->vocab, token[i + 1]);
            if (!(fabs(got - expected) < 2e-4))
                fail_msg("%s: log-probability of token %d is %g, expected %g", json_text(json_get(j, "name")), i + 1,
                         got, expected);
        }
        kv_truncate(r->cache, 0, 0);
    }
    runner_prefill(r, 0, token, n - 1);
    int32_t last = token[n - 1];
    const int32_t row = 0;
    for (size_t i = 0; i < json_count(new); i++) {
        const float *logits = runner_pass(r, 1, &last, NULL, NULL);
        int expected = (int)json_int(json_at(new, i));
        if (argmax(logits, r->vocab) != expected) {
            double margin = json_number(json_at(json_get(j, "margin"), i));
            if (margin >= 1e-3)
                fail_msg("%s: token %zu is %d, expected %d, with a margin of %g", json_text(json_get(j, "name")), i,
                         argmax(logits, r->vocab), expected, margin);
            ++*near_ties; // continues with the expected token
        }
        kv_keep(r->cache, 0, &row, 1);
        last = expected;
    }
}

#if defined(__SANITIZE_ADDRESS__)
enum { PROMPTS = 1 }; // a pass takes ten times as long under the sanitizers; the release build runs all twenty
#else
enum { PROMPTS = 20 };
#endif

TEST(smollm2_generates_the_tokens_of_transformers)
{
    struct error err;
    char *path = model_path("smollm2-135m-instruct", NULL, &err), *cases = xformat("%s/greedy_smollm2.jsonl", CASES),
         *line = NULL;
    if (path == NULL) {
        printf("    skipped: smollm2-135m-instruct is not in the model cache (./run model smollm2-135m-instruct)\n");
        free(cases);
        skip();
    }
    struct runner r = runner_open(path, 0, NULL, 1);
    FILE *f = fopen(cases, "r");
    assert_non_null(f);
    size_t capacity = 0;
    int prompts = 0, near_ties = 0;
    while (prompts < PROMPTS && getline(&line, &capacity, f) > 0) {
        struct json *j = json_parse(line, strlen(line), cases, &err);
        assert_non_null(j);
        check_greedy(&r, j, &near_ties);
        prompts++;
        json_free(j);
    }
    printf("    %d prompts of 64 greedy tokens, %d near-ties decided differently\n", prompts, near_ties);
    assert_int_equal(prompts, PROMPTS);
    fclose(f);
    free(line);
    free(path);
    free(cases);
    runner_close(&r);
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
