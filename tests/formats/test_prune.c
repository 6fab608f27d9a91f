// test_prune.c - a pruned model has the kept layers and everything else unchanged, or is not written at all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/gguf.h"
#include "commands/checkpoint/prune.h"
#include "tests/support/file_write.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/small_model.h"
#include "models/layer_list.h"

static struct error err;

// Twelve layers, so that the order of names differs from that of numbers; in three files.
static const struct small_model large_model = {
    .vocab = 300,
    .width = 32,
    .hidden = 64,
    .layers = 12,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .context = 256,
    .theta = 500000,
    .eps = 1e-6,
    .rope = ROPE_LLAMA3,
    .factor = 8,
    .low = 1,
    .high = 4,
    .original = 64,
    .tied = true,
    .tokenizer = true,
    .new_spelling = true,
    .shards = 3,
    .seed = 6,
};

static void layers_are_listed_in_ranges(void **state)
{
    static const int expected[] = { 0, 1, 2, 5, 7, 8 };
    int n;
    int *keep = layer_list_parse("0-2,5,7-8", 9, &n, &err);
    assert_int_equal(n, 6);
    assert_memory_equal(keep, expected, sizeof(expected));
    free(keep);
    static const char *const bad[] = { "",      "x",    "1,",  ",1",  "1-",
                                       "-1",    "1--2", "3-2", "2,2", "2,1",
                                       "0-3,3", "9",    "0-9", "1 2", "99999999999999999999",
                                       "1.5",   "0-2;4" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_null(layer_list_parse(bad[i], 9, &n, &err));
        print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, bad[i]));
    }
}

static void a_pruned_model_has_the_layers_of_the_larger(void **state)
{
    static const int keep[] = { 0, 1, 4, 11 };
    struct small_model t = large_model;
    for (int gguf = 0; gguf < 2; gguf++) {
        char *from = xformat("%s/large%s", test_directory(), gguf ? ".gguf" : ""),
             *to = xformat("%s/small%s", test_directory(), gguf ? ".gguf" : "");
        gguf ? small_write_gguf(from, &t) : small_write_hf(from, &t);
        assert_ok(prune_model(from, keep, 4, to, NULL, &err), err);
        struct checkpoint large = checkpoint_open(from), small = checkpoint_open(to);
        assert_int_equal(small.config.layers, 4);
        assert_int_equal(small.config.rope.scaling, large.config.rope.scaling);
        assert_int_equal(small.config.n_end, large.config.n_end);
        assert_string_equal(small.config.chat_template, large.config.chat_template);
        const char *name, *type;
        int64_t rows, width;
        size_t bytes, n = 0;
        for (; weights_list(small.weights, n, &name, &type, &rows, &width, &bytes); n++) {
            int layer, end = 0;
            bool numbered = sscanf(name, "model.layers.%d%n", &layer, &end) == 1;
            char *origin = numbered ? xformat("model.layers.%d%s", keep[layer], name + end) : xstrdup(name);
            struct tensor a = checkpoint_tensor(&small, name, rows, width),
                          b = checkpoint_tensor(&large, origin, rows, width);
            assert_memory_equal(a.data, b.data, bytes);
            free(origin);
        }
        assert_int_equal(n, 2 + 4 * 9 + gguf);
        checkpoint_close(&large);
        checkpoint_close(&small);

        assert_false(prune_model(from, keep, 4, to, NULL, &err)); // exists already
        print_message("%s\n", err.text);
        assert_false(prune_model(from, keep, 4, from, NULL, &err));
        print_message("%s\n", err.text);
        assert_false(prune_model(from, (const int[]){ 3, 12 }, 2, "x", NULL, &err));
        print_message("%s\n", err.text);
        assert_false(prune_model(from, (const int[]){ 3, 3 }, 2, "x", NULL, &err));
        print_message("%s\n", err.text);
        assert_false(prune_model(from, keep, 4, "/nonexistent/folder/small", NULL, &err));
        print_message("%s\n", err.text);
        free(from);
        free(to);
    }
}

static void a_pruned_gguf_file_keeps_its_metadata(void **state)
{
    char *path = test_path("small.gguf"), *origin = test_path("large.gguf");
    struct gguf *small = gguf_open(path, &err), *large = gguf_open(origin, &err);
    assert_non_null(small);
    assert_non_null(large);
    assert_int_equal(gguf_values(small), gguf_values(large));
    for (size_t i = 0; i < gguf_values(large); i++) {
        const struct gguf_value *a = gguf_value_at(large, i), *b = gguf_value_at(small, i);
        assert_true(a->key.n == b->key.n && memcmp(a->key.s, b->key.s, a->key.n) == 0 && a->type == b->type);
        bool changed = memcmp(a->key.s, "llama.block_count", 17) == 0 || memcmp(a->key.s, "general.name", 12) == 0;
        bool same = a->n == b->n && a->raw_bytes == b->raw_bytes && memcmp(a->raw, b->raw, a->raw_bytes) == 0;
        assert_true(same != changed);
    }
    struct gguf_string name;
    assert_true(gguf_text(small, "general.name", &name));
    assert_true(name.n == 22 && memcmp(name.s, "tiny (layers 0-1,4,11)", 22) == 0);
    gguf_close(small);
    gguf_close(large);
    free(path);
    free(origin);
}

// Some files list the key-value heads of each layer, even if all are equal.
static void lists_with_one_entry_for_each_layer_are_pruned_too(void **state)
{
    static const int keep[] = { 3, 7 };
    static const int32_t heads[12] = { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
                         uneven[12] = { 2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2 };
    char *origin = test_path("large.gguf"), *from = test_path("listed.gguf"), *to = test_path("pruned.gguf");
    struct gguf *g = gguf_open(origin, &err);
    for (int bad = 0; bad < 2; bad++) {
        struct gguf_writer *w = gguf_write_begin(from, &err);
        for (size_t i = 0; i < gguf_values(g); i++)
            if (gguf_value_at(g, i) != gguf_find(g, "llama.attention.head_count_kv"))
                gguf_write_copy(w, gguf_value_at(g, i));
        gguf_write_ints(w, "llama.attention.head_count_kv", bad ? uneven : heads, 12);
        gguf_write_int(w, "general.alignment", GGUF_U32, 64);
        for (size_t i = 0; i < gguf_tensors(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            char *name = xstrndup(t->name.s, t->name.n);
            gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
            free(name);
        }
        assert_true(gguf_write_end(w, NULL, NULL, &err));
        bool ok = prune_model(from, keep, 2, to, NULL, &err);
        assert_true(ok == !bad);
    }
    print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, "layers that differ"));
    gguf_close(g);

    g = gguf_open(to, &err);
    int64_t alignment;
    assert_true(gguf_int(g, "general.alignment", &alignment) && alignment == 64);
    assert_int_equal(gguf_find(g, "llama.attention.head_count_kv")->n, 2);
    gguf_close(g);
    struct checkpoint small = checkpoint_open(to), large = checkpoint_open(origin);
    assert_int_equal(small.config.kv_heads, 2);
    assert_memory_equal(checkpoint_tensor(&small, "model.layers.1.self_attn.k_proj.weight", 32, 32).data,
                        checkpoint_tensor(&large, "model.layers.7.self_attn.k_proj.weight", 32, 32).data, 32 * 32 * 4);
    checkpoint_close(&small);
    checkpoint_close(&large);
    free(origin);
    free(from);
    free(to);
}

static void a_model_that_lacks_layers_is_not_pruned(void **state)
{
    static const int keep[] = { 0, 12 };
    char *from = test_path("short"), *config = xformat("%s/config.json", from), *to = test_path("none");
    small_write_hf(from, &large_model);
    struct json *j = json_read(config, &err);
    assert_non_null(j);
    json_set(j, "num_hidden_layers", json_new_int(13));
    char *text = json_write(j);
    FILE *f = fopen(config, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_false(prune_model(from, keep, 2, to, NULL, &err));
    assert_non_null(strstr(err.text, "there is no tensor model.layers.12.input_layernorm.weight"));
    assert_int_not_equal(access(to, F_OK), 0);
    free(text);
    json_free(j);
    free(to);
    free(config);
    free(from);
}

// A limit on the file size simulates a full disk.
static void a_full_disk_leaves_nothing_behind(void **state)
{
    static const int keep[] = { 0, 11 };
    for (int gguf = 0; gguf < 2; gguf++) {
        char *from = test_path(gguf ? "large.gguf" : "large"), *to = test_path("none"), *part = test_path("none.part");
        file_size_limit(20000);
        bool ok = prune_model(from, keep, 2, to, NULL, &err);
        file_size_limit(-1);
        assert_false(ok);
        print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, "File too large"));
        assert_int_not_equal(access(to, F_OK), 0);
        assert_int_not_equal(access(part, F_OK), 0);
        free(from);
        free(to);
        free(part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_listed_in_ranges),
        cmocka_unit_test(a_pruned_model_has_the_layers_of_the_larger),
        cmocka_unit_test(a_pruned_gguf_file_keeps_its_metadata),
        cmocka_unit_test(lists_with_one_entry_for_each_layer_are_pruned_too),
        cmocka_unit_test(a_full_disk_leaves_nothing_behind),
        cmocka_unit_test(a_model_that_lacks_layers_is_not_pruned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
