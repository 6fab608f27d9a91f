// test_formats.c - checkpoints round-trip through files, and both formats hold the same model.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/formats/gguf_write.h"
#include "tests/formats/safetensors_write.h"
#include "models/formats/shards.h"
#include "models/architectures.h"
#include "models/layer_tensors.h"
#include "models/weights.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/formats/shards_find.h"
#include "tests/formats/plain_quantize.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

TEST(a_gguf_file_gives_back_what_was_written)
{
    char *path = test_path("values.gguf");
    static const int32_t ints[] = { 3, -1, 1 << 30 };
    static const char *const texts[] = { "one", "", "three" };
    static const float matrix[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
    struct gguf_writer *w = gguf_write_begin(path, &err);
    static const struct {
        const char *key;
        enum gguf_type type;
        int64_t v;
        bool fits; // an int64
    } whole[] = { { "i8", GGUF_I8, -5, true },
                  { "u16", GGUF_U16, 65535, true },
                  { "u32", GGUF_U32, 4294967295, true },
                  { "i64", GGUF_I64, -(1LL << 40), true },
                  { "u64", GGUF_U64, -1, false } };
    for (int k = 0; k < 5; k++)
        gguf_write_int(w, whole[k].key, whole[k].type, whole[k].v);
    gguf_write_real(w, "real", 1.5f);
    gguf_write_bool(w, "yes", true);
    gguf_write_text(w, "text", "h\xc3\xa9llo");
    gguf_write_ints(w, "ints", ints, 3);
    gguf_write_texts(w, "texts", texts, 3);
    gguf_write_texts(w, "none", NULL, 0);
    gguf_write_tensor(w, "m", 2, (uint64_t[]){ 3, 2 }, type_facts[F32].ggml, matrix, sizeof(matrix));
    gguf_write_tensor(w, "v", 1, (uint64_t[]){ 3 }, type_facts[F32].ggml, matrix[1], sizeof(matrix[1]));
    assert_true(gguf_write_end(w, &err));

    struct gguf *g = gguf_open(path, &err);
    assert_non_null(g);
    assert_int_equal(gguf_values(g), 11);
    for (int k = 0; k < 5; k++) {
        int64_t v = 7;
        assert_int_equal(gguf_int(g, whole[k].key, &v), whole[k].fits);
        assert_true(v == (whole[k].fits ? whole[k].v : 7));
    }
    int64_t i = 7;
    assert_false(gguf_int(g, "real", &i));
    assert_false(gguf_int(g, "nothing", &i));
    assert_int_equal(i, 7);
    double real;
    bool yes = false;
    struct gguf_string s;
    assert_true(gguf_real(g, "real", &real) && real == 1.5);
    assert_false(gguf_real(g, "i8", &real));
    assert_true(gguf_bool(g, "yes", &yes) && yes);
    assert_true(gguf_text(g, "text", &s) && s.n == 6 && memcmp(s.s, "h\xc3\xa9llo", 6) == 0);
    const struct gguf_value *v = gguf_find(g, "ints");
    assert_int_equal(v->n, 3);
    assert_int_equal(gguf_array_int(v, 1), -1);
    assert_int_equal(gguf_array_int(v, 3), 0);
    size_t at = 0;
    for (int k = 0; k < 3; k++) {
        assert_true(gguf_next_string(gguf_find(g, "texts"), &at, &s));
        assert_true(s.n == strlen(texts[k]) && memcmp(s.s, texts[k], s.n) == 0);
    }
    assert_false(gguf_next_string(gguf_find(g, "texts"), &at, &s));
    at = 0;
    assert_false(gguf_next_string(gguf_find(g, "none"), &at, &s));
    assert_false(gguf_next_string(gguf_find(g, "ints"), &at, &s));

    assert_int_equal(gguf_tensors(g), 2);
    const struct gguf_tensor *t = gguf_tensor(g, "m");
    assert_true(t->known && t->tensor.rows == 2 && t->tensor.width == 3 && t->bytes == sizeof(matrix));
    assert_memory_equal(t->tensor.data, matrix, sizeof(matrix));
    assert_int_equal(gguf_tensor(g, "v")->tensor.rows, 1);
    assert_null(gguf_tensor(g, "x"));
    gguf_close(g);
    free(path);
}

TEST(a_safetensors_file_gives_back_what_was_written)
{
    char *path = test_path("values.safetensors");
    static const float matrix[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
    static const int64_t ids[] = { 5, -6 };
    struct safetensor t[] = {
        { .name = "z", .dtype = "F32", .dims = 2, .dim = { 2, 3 }, .data = matrix, .bytes = sizeof(matrix) },
        { .name = "a", .dtype = "I64", .dims = 1, .dim = { 2 }, .data = ids, .bytes = sizeof(ids) },
        { .name = "empty", .dtype = "BF16", .dims = 2, .dim = { 0, 4 }, .data = matrix, .bytes = 0 },
        { .name = "scalar", .dtype = "F32", .dims = 0, .data = matrix, .bytes = 4 },
    };
    assert_true(safetensors_write(path, t, 4, json_object_of(JSON("format", "pt")), &err));
    struct shards *s = shards_open(path, &err);
    assert_ok(s != NULL, err);
    assert_int_equal(shards_count(s), 4);
    assert_string_equal(shards_at(s, 0)->name, "a"); // sorted
    assert_string_equal(shards_at(s, 3)->name, "z");
    const struct safetensor *z = shards_find(s, "z");
    assert_true(z->dims == 2 && z->dim[0] == 2 && z->dim[1] == 3);
    assert_string_equal(z->dtype, "F32");
    assert_memory_equal(z->data, matrix, sizeof(matrix));
    assert_memory_equal(shards_find(s, "a")->data, ids, sizeof(ids));
    assert_int_equal(shards_find(s, "empty")->bytes, 0);
    assert_null(shards_find(s, "b"));
    assert_int_equal(shards_files(s), 1);
    shards_close(s);
    free(path);
}

static const struct small_model shapes[] = {
    { SMALL_SIZES(50, 32, 48, 2, 4, 2, 8), .seed = 3 },
    { SMALL_SIZES(41, 24, 40, 1, 3, 3, 12), .tied = true, .bias = true, .seed = 4 },
    { SMALL_SIZES(33, 16, 20, 2, 4, 1, 4), .rope = ROPE_LINEAR, .factor = 4, .new_spelling = true, .seed = 5 },
    { SMALL_SIZES(300, 32, 64, 12, 4, 2, 16), .rope = ROPE_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 64,
      .theta = 500000, .context = 256, .tokenizer = true, .tied = true, .new_spelling = true, .shards = 3, .seed = 6 },
    { SMALL_SIZES(280, 32, 64, 2, 4, 4, 8), .rope = ROPE_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 64,
      .tokenizer = true, .sharp = true, .bias = true, .seed = 7 },
};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

TEST(both_formats_give_the_same_tensors)
{
    for (int k = 0; k < SHAPES; k++) {
        char *directory = xformat("%s/same-%d", test_directory(), k),
             *file = xformat("%s/same-%d.gguf", test_directory(), k);
        small_write_hf(directory, &shapes[k]);
        small_write_gguf(file, &shapes[k]);
        struct checkpoint hf = checkpoint_open(directory), gguf = checkpoint_open(file);
        const size_t n = hf.weights->n;
        struct shards *files = shards_open(directory, &err);
        assert_ok(files != NULL, err);
        assert_int_equal(shards_files(files), shapes[k].shards > 1 ? shapes[k].shards : 1);
        shards_close(files);
        for (size_t i = 0; i < n; i++) {
            const char *name = hf.weights->weight[i].name;
            const int64_t rows = hf.weights->weight[i].tensor.rows, width = hf.weights->weight[i].tensor.width;
            struct tensor a = checkpoint_tensor(&hf, name, rows, width),
                          b = checkpoint_tensor(&gguf, name, rows, width);
            assert_int_equal(a.type, F32);
            assert_int_equal(b.type, F32);
            assert_memory_equal(a.data, b.data, tensor_bytes(a));
            int64_t r, w;
            float *made = small_tensor(&shapes[k], name, &r, &w);
            assert_true(r == rows && w == width);
            assert_memory_equal(a.data, made, tensor_bytes(a));
            free(made);
        }
        int expected = 2 + !shapes[k].tied + shapes[k].layers * (shapes[k].bias ? 13 : 9);
        assert_int_equal(n, expected);
        assert_null(weights_unused(hf.weights, 0));
        bool table = gguf.config.rope.scaling == ROPE_TABLE;
        assert_true(table == (shapes[k].rope == ROPE_LLAMA3));
        if (table) {
            assert_string_equal(weights_unused(gguf.weights, 0), "rope_freqs.weight");
            checkpoint_tensor(&gguf, "rope_freqs.weight", 1, shapes[k].head_dim / 2);
        }
        assert_null(weights_unused(gguf.weights, 0));
        checkpoint_close(&hf);
        checkpoint_close(&gguf);
        free(directory);
        free(file);
    }
}

TEST(every_type_of_block_is_found_in_a_gguf_file)
{
    static const enum type types[] = { F32,  F16,  BF16, Q8_0, Q4_0,   Q4_1,   Q5_0,
                                       Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4 };
    for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++) {
        struct small_model t = { SMALL_SIZES(40, 256, 320, 1, 4, 2, 64), .type = types[k], .seed = 9 };
        char *path = xformat("%s/%s.gguf", test_directory(), type_facts[types[k]].name);
        small_write_gguf(path, &t);
        struct checkpoint o = checkpoint_open(path);
        assert_int_equal(checkpoint_tensor(&o, "lm_head.weight", 40, 256).type, types[k]);
        bool whole = 320 % type_facts[types[k]].block == 0; // for rows of 320; otherwise F32, as in mixed files
        assert_int_equal(checkpoint_tensor(&o, "model.layers.0.mlp.down_proj.weight", 256, 320).type,
                         whole ? types[k] : F32);
        assert_int_equal(checkpoint_tensor(&o, "model.norm.weight", 1, 256).type, F32);

        // A row of the permuted matrix, quantized separately: permutation moves blocks unchanged.
        int64_t rows, width;
        const char *name = "model.layers.0.self_attn.k_proj.weight";
        struct tensor moved = checkpoint_tensor(&o, name, 128, 256);
        float *v = small_tensor(&t, name, &rows, &width);
        size_t bytes = type_row_bytes(types[k], width);
        uint8_t *row = xmalloc(bytes);
        for (int64_t r = 0; r < rows; r++) {
            plain_quantize_row(types[k], v + r * width, width, row);
            assert_memory_equal(row, (uint8_t *)moved.data + (size_t)r * bytes, bytes);
        }
        free(row);
        free(v);
        checkpoint_close(&o);
        free(path);
    }
}

TEST(a_number_that_is_not_finite_is_refused)
{
    static const struct {
        enum type type;
        long at; // offset in the block of the high byte of a number
        int block;
    } pokes[] = {
        { F32, 3, 1000 }, { F16, 1, 77 },    { BF16, 1, 9 },   { Q8_0, 1, 3 },   { Q4_0, 1, 0 },  { Q4_1, 1, 5 },
        { Q4_1, 3, 5 },   { Q5_0, 1, 1 },    { Q5_1, 3, 2 },   { Q4_K, 1, 9 },   { Q4_K, 3, 9 },  { Q5_K, 1, 8 },
        { Q5_K, 3, 7 },   { Q6_K, 209, 39 }, { IQ4_NL, 1, 3 }, { IQ4_XS, 1, 9 }, { MXFP4, 1, 7 },
    };
    for (size_t k = 0; k < sizeof(pokes) / sizeof(*pokes); k++) {
        enum type type = pokes[k].type;
        struct small_model t = { SMALL_SIZES(40, 256, 256, 1, 4, 2, 64), .type = type };
        char *path = test_path("poked.gguf");
        small_write_gguf(path, &t);
        struct gguf *g = gguf_open(path, &err);
        const uint8_t *embedding = gguf_tensor(g, "token_embd.weight")->tensor.data;
        // The mapping gives the tensor's offset in the file.
        const struct gguf_value *first = gguf_value_at(g, 0);
        long place = (long)(embedding - (const uint8_t *)first->key.s) + 24 + 8;
        gguf_close(g);
        FILE *f = fopen(path, "r+");
        assert_int_equal(fseek(f, place + pokes[k].block * (long)type_facts[type].bytes + pokes[k].at - 1, SEEK_SET),
                         0);
        fwrite(type == MXFP4 ? "\xff\x00" : type == F32 || type == BF16 ? "\x80\x7f" : "\x00\x7c", 1, 2, f);
        fclose(f);

        struct checkpoint o = checkpoint_open(path);
        struct tensor to;
        assert_false(weights_get(o.weights, "model.embed_tokens.weight", 40, 256, &to, &err));
        print_message("%s\n", err.text);
        char *where = xformat("row %d ", pokes[k].block * type_facts[type].block / 256);
        assert_non_null(strstr(err.text, where));
        assert_non_null(strstr(err.text, path));
        free(where);
        checkpoint_tensor(&o, "lm_head.weight", 40, 256);
        checkpoint_close(&o);
        free(path);
    }
}

TEST(an_unaligned_tensor_is_copied)
{
    struct small_model t = shapes[0];
    char *directory = test_path("crooked");
    small_write_hf(directory, &t);
    char *path = xformat("%s/model.safetensors", directory);
    struct shards *s = shards_open(path, &err);
    size_t n = shards_count(s);
    struct safetensor *list = xcalloc(n + 1, sizeof(*list));
    list[0] = (struct safetensor){ .name = "odd", .dtype = "U8", .dims = 1, .dim = { 3 }, .data = "abc", .bytes = 3 };
    for (size_t i = 0; i < n; i++)
        list[i + 1] = *shards_at(s, i);
    char *other = xformat("%s/other", directory);
    assert_true(safetensors_write(other, list, n + 1, NULL, &err));
    shards_close(s);
    assert_int_equal(rename(other, path), 0);

    struct checkpoint o = checkpoint_open(directory);
    const char *name = "model.layers.1.mlp.up_proj.weight";
    int64_t rows, width;
    float *v = small_tensor(&t, name, &rows, &width);
    struct tensor moved = checkpoint_tensor(&o, name, rows, width);
    assert_int_equal((uintptr_t)moved.data % 4, 0);
    assert_memory_equal(moved.data, v, tensor_bytes(moved));
    struct tensor to;
    assert_false(weights_get(o.weights, "odd", 1, 3, &to, &err));
    print_message("%s\n", err.text);
    free(v);
    checkpoint_close(&o);
    free(list);
    free(other);
    free(path);
    free(directory);
}

TEST(a_tensor_of_another_shape_or_name_is_refused)
{
    char *path = xformat("%s/same-0.gguf", test_directory());
    struct checkpoint o = checkpoint_open(path);
    struct tensor to;
    assert_false(weights_get(o.weights, "model.embed_tokens.weight", 50, 64, &to, &err));
    print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, "expected 50 rows of 64, found 50 of 32"));
    assert_false(weights_get(o.weights, "model.layers.2.self_attn.q_proj.weight", 1, 1, &to, &err));
    print_message("%s\n", err.text);
    assert_true(weights_has(o.weights, "lm_head.weight"));
    assert_false(weights_has(o.weights, "output.weight"));
    checkpoint_close(&o);
    free(path);
}

TEST(the_hash_sees_a_changed_weight)
{
    char *path = test_path("hashed.gguf");
    struct hash seen[4];
    for (int k = 0; k < 4; k++) {
        struct small_model t = shapes[0];
        t.seed += k == 1;
        t.type = k == 2 ? F16 : F32;
        small_write_gguf(path, &t);
        struct checkpoint o = checkpoint_open(path);
        seen[k] = weights_hash(o.weights);
        checkpoint_close(&o);
    }
    assert_true(hash_equal(seen[0], seen[3]));
    assert_false(hash_equal(seen[0], seen[1]) || hash_equal(seen[0], seen[2]) || hash_equal(seen[1], seen[2]));
    free(path);
}

TEST(rows_of_q_and_k_are_put_back_only_where_the_architecture_has_them_moved)
{
    static const struct architecture halves = { .name = "llama", .gguf_rope = GGUF_ROPE_NEOX };
    char *directory = test_path("rows"), *file = test_path("rows.gguf");
    const struct small_model t = { SMALL_SIZES(50, 32, 48, 1, 4, 2, 8), .bias = true, .seed = 3 };
    static const char *const moved[] = { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.q_proj.bias",
                                         "self_attn.k_proj.bias" };
    small_write_hf(directory, &t);
    small_write_gguf(file, &t);
    struct checkpoint hf = checkpoint_open(directory), pairs = checkpoint_open(file), raw = checkpoint_open(file);
    weights_close(raw.weights);
    raw.config.architecture = &halves;
    raw.weights = weights_open(&raw.config, &err);
    assert_non_null(raw.weights);
    struct gguf *g = gguf_open(file, &err);
    for (size_t i = 0; i < sizeof(moved) / sizeof(*moved); i++) {
        char *name = xformat("model.layers.0.%s", moved[i]),
             *stored = weights_gguf_name(architecture_of_model_type("llama"), name);
        const struct weight *w = weights_find(hf.weights, name);
        assert_non_null(w);
        const int64_t rows = w->tensor.rows, width = w->tensor.width;
        const struct tensor a = checkpoint_tensor(&hf, name, rows, width),
                            b = checkpoint_tensor(&pairs, name, rows, width),
                            c = checkpoint_tensor(&raw, name, rows, width);
        assert_memory_equal(a.data, b.data, tensor_bytes(a));
        assert_memory_equal(c.data, gguf_tensor(g, stored)->tensor.data, tensor_bytes(a));
        assert_memory_not_equal(a.data, c.data, tensor_bytes(a));
        free(name);
        free(stored);
    }
    gguf_close(g);
    checkpoint_close(&hf);
    checkpoint_close(&pairs);
    checkpoint_close(&raw);
    free(directory);
    free(file);
}

RUN_TESTS(NULL, NULL)
