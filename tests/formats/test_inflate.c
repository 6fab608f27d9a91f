// test_inflate.c - an inflated model computes the same function: equal logits up to rounding, whatever sizes are enlarged.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/gguf.h"
#include "commands/checkpoint/inflate.h"
#include "commands/checkpoint/quantize.h"
#include "commands/checkpoint/writer.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static struct error err;

static const struct small_model usual = {
    .vocab = 288,
    .width = 64,
    .hidden = 96,
    .layers = 2,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 32,
    .sharp = true,
    .tokenizer = true,
    .seed = 21,
};

// All sizes of `usual` enlarged at once, including groups of heads.
static const struct sizes all = { .width = 160, .hidden = 224, .heads = 12, .kv_heads = 3, .layers = 5 };

static void inflate(const char *from, const struct sizes *s, const char *to)
{
    assert_ok(inflate_model(from, s, to, one_cpu, NULL, NULL, &err), err);
}

enum { TOKENS = 24 };

static float *logits_of(const char *path, size_t *n)
{
    int32_t token[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        token[i] = (i * 37 + 5) % 250;
    struct runner r = runner_open(path, 1, NULL, 1);
    const float *logits = runner_pass(&r, TOKENS, token, NULL, NULL);
    *n = (size_t)TOKENS * (size_t)r.vocab;
    float *copy = xmalloc(*n * sizeof(*copy));
    memcpy(copy, logits, *n * sizeof(*copy));
    runner_close(&r);
    return copy;
}

static bool same_bits(const char *a, const char *b)
{
    size_t n, m;
    float *x = logits_of(a, &n), *y = logits_of(b, &m);
    bool same = n == m && memcmp(x, y, n * sizeof(*x)) == 0;
    free(x);
    free(y);
    return same;
}

// Largest difference relative to the largest logit.
static double distance(const char *a, const char *b)
{
    size_t n, m;
    float *x = logits_of(a, &n), *y = logits_of(b, &m);
    assert_int_equal(n, m);
    double most = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)x[i] - (double)y[i]);
        most = d <= most ? most : d; // also for NaN
        largest = fmax(largest, fabs((double)x[i]));
    }
    free(x);
    free(y);
    return most / largest;
}

static void same_function(const struct small_model *t, bool gguf, const struct sizes *s, const char *what)
{
    char *from = xformat("%s/small_%s%s", test_directory(), what, gguf ? ".gguf" : ""),
         *to = xformat("%s/large_%s%s", test_directory(), what, gguf ? ".gguf" : "");
    gguf ? small_write_gguf(from, t) : small_write_hf(from, t);
    inflate(from, s, to);
    double d = distance(from, to);
    print_message("%s: %.2g\n", what, d);
    assert_true(d <= 1e-5);
    struct checkpoint c = checkpoint_open(to);
    assert_int_equal(c.config.width, s->width != 0 ? s->width : t->width);
    assert_int_equal(c.config.hidden, s->hidden != 0 ? s->hidden : t->hidden);
    assert_int_equal(c.config.heads, s->heads != 0 ? s->heads : t->heads);
    assert_int_equal(c.config.kv_heads, s->kv_heads != 0 ? s->kv_heads : t->kv_heads);
    assert_int_equal(c.config.layers, s->layers != 0 ? s->layers : t->layers);
    assert_int_equal(c.config.head_dim, t->head_dim);
    assert_int_equal(c.config.tied, t->tied);
    assert_non_null(c.config.inflated);
    checkpoint_close(&c);
    free(from);
    free(to);
}

static void enlarging_one_size_preserves_the_function(void **state)
{
    static const struct {
        const char *what;
        struct sizes sizes;
    } alone[] = {
        { "width", { .width = 96 } },
        { "hidden", { .hidden = 128 } },
        { "heads", { .heads = 6 } },
        { "kv_heads", { .heads = 8, .kv_heads = 4 } },
        { "layers", { .layers = 3 } },
        { "thrice", { .layers = 7 } },
        { "all", { .width = 160, .hidden = 224, .heads = 12, .kv_heads = 3, .layers = 5 } },
    };
    for (size_t i = 0; i < sizeof(alone) / sizeof(*alone); i++)
        for (int gguf = 0; gguf < 2; gguf++) {
            struct small_model t = usual;
            t.bias = true;
            same_function(&t, gguf, &alone[i].sizes, alone[i].what);
        }
}

static void every_gguf_type_preserves_the_function(void **state)
{
    for (int type = 0; type < TYPES && type_facts[type].ggml >= 0; type++) {
        struct small_model t = usual;
        struct sizes s = all;
        t.type = (enum type)type;
        t.tied = type % 2 == 1;
        if (type_facts[type].block == 256) { // a group of heads is one block, before and after
            t.width = t.hidden = 256;
            t.heads = 8;
            t.kv_heads = 1;
            s = (struct sizes){ .width = 512, .hidden = 768, .heads = 16, .kv_heads = 2, .layers = 3 };
        }
        same_function(&t, true, &s, type_facts[type].name);
    }
}

static void every_directory_type_preserves_the_function(void **state)
{
    static const enum type types[] = { F32, F16, BF16 };
    static const char *const what[] = { "hf_f32", "hf_f16", "hf_bf16" };
    for (int i = 0; i < 3; i++) {
        struct small_model t = usual;
        t.type = types[i];
        t.tied = i == 1;
        t.bias = i == 2;
        t.shards = 1 + i;
        t.new_spelling = i == 2;
        same_function(&t, false, &all, what[i]);
    }
}

static void every_kind_of_attention_and_rope_preserves_the_function(void **state)
{
    struct small_model t[5] = { usual, usual, usual, usual, usual };
    static const char *const what[] = { "mha", "mqa", "llama3", "linear", "headdim" };
    t[0].kv_heads = 4;
    t[1].kv_heads = 1;
    t[2].rope = ROPE_LLAMA3;
    t[2].factor = 8;
    t[2].low = 1;
    t[2].high = 4;
    t[2].original = 64;
    t[3].rope = ROPE_LINEAR;
    t[3].factor = 4;
    t[4].head_dim = 6; // not a multiple of a block size: allowed for f32
    static const struct sizes sizes[] = {
        { .width = 100, .hidden = 101, .heads = 10, .kv_heads = 5, .layers = 3 },
        { .width = 65, .hidden = 97, .heads = 15, .kv_heads = 3, .layers = 4 },
        { .width = 96, .hidden = 100, .heads = 9, .kv_heads = 3, .layers = 3 },
        { .width = 96, .hidden = 100, .heads = 9, .kv_heads = 3, .layers = 3 },
        { .width = 81, .hidden = 97, .heads = 9, .kv_heads = 3, .layers = 3 },
    };
    for (int i = 0; i < 5; i++)
        for (int gguf = 0; gguf < 2; gguf++)
            same_function(&t[i], gguf, &sizes[i], what[i]);
}

// Halved gains and a quarter of eps are exact, so that all bits are equal, also with int8 activations.
static void four_times_the_width_preserves_every_bit(void **state)
{
    static const enum type types[] = { F32, BF16, Q8_0, Q4_1 };
    static const struct sizes sizes = { .width = 256, .hidden = 224, .heads = 12, .kv_heads = 3, .layers = 5 };
    char *lines = test_path("lines.jsonl");
    file_write(lines, "{\"text\": \"the inning and then he ran on and on in the rain 123\"}\n");
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        struct small_model t = usual;
        t.type = types[i];
        char *from = xformat("%s/four_%zu.gguf", test_directory(), i),
             *to = xformat("%s/large_%zu.gguf", test_directory(), i);
        small_write_gguf(from, &t);
        inflate(from, &sizes, to);
        assert_true(same_bits(from, to));
        if (child_is_present()) {
            struct child_result a = child_run("score %s %s", from, lines), b = child_run("score %s %s", to, lines);
            child_expect_success(&a, "score");
            assert_string_equal(a.out, b.out);
            child_result_free(&a);
            child_result_free(&b);
        }
        free(from);
        free(to);
    }
    free(lines);
}

static void a_model_inflated_twice_names_the_original(void **state)
{
    char *small = test_path("small_all.gguf"), *large = test_path("large_all.gguf"), *twice = test_path("twice.gguf"),
         *bf16 = test_path("twice_bf16.gguf");
    inflate(large, &(const struct sizes){ .width = 200, .heads = 15, .layers = 6 }, twice);
    assert_true(distance(small, twice) <= 1e-5);
    struct quantize_summary done;
    assert_true(quantize_model(twice, BF16, bf16, one_cpu, NULL, &done, &err)); // keeps the mark
    static const char mark[] = "small_all.gguf (width 64, hidden 96, 4 heads on 2, 2 layers)";
    struct checkpoint a = checkpoint_open(twice), b = checkpoint_open(bf16), c = checkpoint_open(small);
    assert_string_equal(a.config.inflated, mark);
    assert_string_equal(b.config.inflated, mark);
    assert_null(c.config.inflated);
    checkpoint_close(&a);
    checkpoint_close(&b);
    checkpoint_close(&c);
    struct gguf *g = gguf_open(twice, &err);
    struct gguf_string name;
    assert_true(gguf_text(g, "general.name", &name));
    assert_true(name.n == 15 && memcmp(name.s, "tiny (inflated)", 15) == 0);
    gguf_close(g);
    free(small);
    free(large);
    free(twice);
    free(bf16);
}

static void an_inflated_directory_that_becomes_a_gguf_file_stays_marked(void **state)
{
    char *small = test_path("small_hf_f32"), *large = test_path("large_hf_f32"), *to = test_path("large_hf.gguf");
    struct quantize_summary done;
    assert_true(quantize_model(large, BF16, to, one_cpu, NULL, &done, &err));
    assert_true(distance(small, to) <= 0.05); // its matrices are bf16 now
    struct checkpoint a = checkpoint_open(large), b = checkpoint_open(to);
    assert_string_equal(a.config.inflated, b.config.inflated);
    assert_int_equal(strncmp(a.config.inflated, "small_hf_f32 (width 64", 22), 0);
    checkpoint_close(&a);
    checkpoint_close(&b);
    free(small);
    free(large);
    free(to);
}

// Added layers cost as much as real ones: their weights are nonzero except where zeros are required.
static void added_layers_are_copies_that_write_nothing(void **state)
{
    char *path = test_path("large_all.gguf");
    struct checkpoint c = checkpoint_open(path);
    static const struct {
        const char *name;
        int rows, width;
        bool silent;
    } parts[] = {
        { "self_attn.q_proj.weight", 384, 160, false }, { "self_attn.k_proj.weight", 96, 160, false },
        { "self_attn.v_proj.weight", 96, 160, false },  { "mlp.gate_proj.weight", 224, 160, false },
        { "mlp.up_proj.weight", 224, 160, false },      { "input_layernorm.weight", 1, 160, false },
        { "self_attn.q_proj.bias", 1, 384, false },     { "self_attn.o_proj.weight", 160, 384, true },
        { "self_attn.o_proj.bias", 1, 160, true },      { "mlp.down_proj.weight", 160, 224, true },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        for (int layer = 2; layer < 5; layer++) {
            char *name = xformat("model.layers.%d.%s", layer, parts[i].name),
                 *origin = xformat("model.layers.%d.%s", layer % 2, parts[i].name);
            struct tensor t = checkpoint_tensor(&c, name, parts[i].rows, parts[i].width),
                          o = checkpoint_tensor(&c, origin, parts[i].rows, parts[i].width);
            const float *x = t.data;
            if (!parts[i].silent)
                assert_memory_equal(t.data, o.data, tensor_bytes(t));
            for (int64_t k = 0; k < t.rows * t.width && parts[i].silent; k++)
                assert_true(x[k] == 0);
            free(name);
            free(origin);
        }
    // Added rows are copies: the heads of an added group, and hidden units.
    struct tensor k = checkpoint_tensor(&c, "model.layers.0.self_attn.k_proj.weight", 96, 160),
                  up = checkpoint_tensor(&c, "model.layers.0.mlp.up_proj.weight", 224, 160);
    assert_memory_equal(tensor_rows(k, 64, 32).data, tensor_rows(k, 0, 32).data, (size_t)32 * 160 * sizeof(float));
    assert_memory_equal(tensor_rows(up, 96, 96).data, tensor_rows(up, 0, 96).data, (size_t)96 * 160 * sizeof(float));
    checkpoint_close(&c);
    free(path);
}

static void refused(const char *from, struct sizes s, const char *to, const char *with)
{
    char *part = xformat("%s.part", to);
    bool exists = access(to, F_OK) == 0;
    if (inflate_model(from, &s, to, one_cpu, NULL, NULL, &err))
        fail_msg("%s to %s was not refused", from, to);
    print_message("%s\n", err.text);
    expect_contains(err.text, with);
    assert_true((access(to, F_OK) == 0) == exists);
    assert_int_not_equal(access(part, F_OK), 0);
    free(part);
}

static void impossible_sizes_are_refused(void **state)
{
    static const struct {
        struct sizes sizes;
        const char *with;
    } wrong[] = {
        { { .width = 63 }, "width 63: the model has 64" },
        { { .hidden = 1 }, "hidden 1: the model has 96" },
        { { .heads = 2 }, "heads 2: the model has 4" },
        { { .kv_heads = 1 }, "kv-heads 1: the model has 2" },
        { { .layers = 1 }, "layers 1: the model has 2" },
        { { .heads = 5 }, "heads 5: expected a multiple of the 2" },
        { { .kv_heads = 3 }, "heads 4: expected a multiple of the 3" },
        { { .heads = 6, .kv_heads = 6 }, "groups are of 1, and the model's are of 2" },
        { { .heads = 1 << 20, .kv_heads = 2 }, "with 32 numbers each, at most" },
        { { 0 }, "nothing would become larger" },
        { { 64, 96, 4, 2, 2 }, "nothing would become larger" },
        { { .width = 100 }, "output.weight: its rows would have 100 numbers, which is not a multiple" },
        { { .width = 100 }, "the block size 32 of q4_0 (128 is)" },
        { { .width = 1 << 22, .hidden = 1 << 22, .layers = 1000 }, "not enough disk space: " },
        { { .hidden = 100 }, "blk.0.ffn_down.weight: its rows would have 100 numbers" },
    };
    struct small_model t = usual;
    t.type = Q4_0;
    char *from = test_path("q4.gguf"), *to = test_path("none.gguf"), *hf = test_path("small_hf_f32"),
         *directory = test_path("none"), *odd = test_path("odd.gguf");
    small_write_gguf(from, &t);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        refused(from, wrong[i].sizes, to, wrong[i].with);
    t.head_dim = 16; // a group of two heads is a block, a group of three is not
    t.heads = 6;
    small_write_gguf(odd, &t);
    refused(odd, (struct sizes){ .heads = 8 }, to, "a group of 3 heads of 16 is not a multiple");
    refused(from, (struct sizes){ .layers = 3 }, directory, "expected an output name that ends with .gguf");
    refused(hf, (struct sizes){ .layers = 3 }, to, "expected a directory as output");
    refused(from, (struct sizes){ .layers = 3 }, from, "onto itself");
    refused(from, (struct sizes){ .layers = 3 }, odd, "not overwritten");
    refused(from, (struct sizes){ .layers = 3 }, "/nonexistent/x.gguf", "/nonexistent/x.gguf");
    free(from);
    free(to);
    free(hf);
    free(directory);
    free(odd);
}

static void unknown_tensors_are_not_enlarged(void **state)
{
    char *hf = test_path("small_hf_f32"), *from = test_path("more"), *to = test_path("none");
    struct small_model t = usual;
    t.layers = 3;
    small_write_hf(from, &t);
    char *config = xformat("%s/config.json", from);
    struct text whole = checkpoint_bytes(config);
    text_add(&whole, "", 1);
    char *at = strstr(whole.s, "\"num_hidden_layers\":3");
    assert_non_null(at);
    at[strlen("\"num_hidden_layers\":")] = '2';
    file_write(config, whole.s);
    refused(from, (struct sizes){ .width = 96 }, to, "num_hidden_layers is 2, but the file has tensors of 3 layers");
    at[strlen("\"num_hidden_layers\":")] = '4';
    file_write(config, whole.s);
    refused(from, (struct sizes){ .width = 96 }, to, "there is no tensor model.layers.3.input_layernorm.weight");
    free(whole.s);
    free(config);
    free(hf);
    free(from);
    free(to);
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
    for (int gguf = 0; gguf < 2; gguf++) {
        char *from = test_path(gguf ? "q4.gguf" : "small_hf_f32"), *to = test_path(gguf ? "none.gguf" : "none");
        file_size_limit(100000);
        refused(from, all, to, "File too large");
        file_size_limit(-1);
        free(from);
        free(to);
    }
}

// A killed run, here by the system at 100,000 bytes, leaves nothing under the requested name. The next run overwrites a
// partial file; a partial directory is an error that names it.
static void a_killed_run_leaves_no_partial_model(void **state)
{
    static const struct rlimit little = { 100000, 100000 };
    static const struct sizes sizes = { .width = 160, .layers = 9 };
    for (int gguf = 0; gguf < 2; gguf++) {
        char *from = test_path(gguf ? "q4.gguf" : "small_hf_f32"), *to = test_path(gguf ? "half.gguf" : "half"),
             *part = xformat("%s.part", to);
        int status;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGXFSZ, SIG_DFL);
            if (setrlimit(RLIMIT_FSIZE, &little) == 0)
                inflate_model(from, &sizes, to, one_cpu, NULL, NULL, &err);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
        assert_int_not_equal(access(to, F_OK), 0);
        assert_int_equal(access(part, F_OK), 0);
        if (gguf) {
            inflate(from, &sizes, to);
            assert_true(distance(from, to) <= 1e-5);
        } else {
            assert_false(inflate_model(from, &sizes, to, one_cpu, NULL, NULL, &err));
            assert_non_null(strstr(err.text, "half.part: cannot be created: File exists (left by a killed run"));
        }
        free(from);
        free(to);
        free(part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enlarging_one_size_preserves_the_function),
        cmocka_unit_test(every_gguf_type_preserves_the_function),
        cmocka_unit_test(every_directory_type_preserves_the_function),
        cmocka_unit_test(every_kind_of_attention_and_rope_preserves_the_function),
        cmocka_unit_test(four_times_the_width_preserves_every_bit),
        cmocka_unit_test(a_model_inflated_twice_names_the_original),
        cmocka_unit_test(an_inflated_directory_that_becomes_a_gguf_file_stays_marked),
        cmocka_unit_test(added_layers_are_copies_that_write_nothing),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(unknown_tensors_are_not_enlarged),
        cmocka_unit_test(a_full_disk_leaves_nothing_behind),
        cmocka_unit_test(a_killed_run_leaves_no_partial_model),
    };
    return cmocka_run_group_tests(tests, cpu_set_up, cpu_tear_down);
}
