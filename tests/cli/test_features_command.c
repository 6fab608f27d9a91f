// test_features_command.c - `features` from outside: shards in a folder and in a stream, continued folders, mistakes.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "core/files/mapped.h"
#include "models/formats/safetensors.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

enum { TEXTS = 9 };

// Text i has 5 + 7 i tokens, the last half of which the target wrote.
static char *write_texts(void)
{
    struct text t = { 0 };
    char *path = test_path("texts.jsonl");
    for (int i = 0; i < TEXTS; i++) {
        const int n = 5 + 7 * i;
        for (int list = 0; list < 2; list++) {
            text_printf(&t, list == 0 ? "{\"id\": \"%d\", \"input_ids\": [" : "], \"loss_mask\": [", i);
            for (int k = 0; k < n; k++)
                text_printf(&t, "%s%d", k > 0 ? "," : "", list == 0 ? (11 * i + 5 * k) % 250 : k >= n / 2);
        }
        text_puts(&t, "]}\n\n"); // blank lines are skipped
    }
    file_write(path, t.s);
    free(t.s);
    return path;
}

static struct mapping opened(const char *path, struct tensor_list *tensors)
{
    struct error err;
    struct mapping file;
    assert_ok(file_map(path, &file, &err) && safetensors_read(path, &file, 0, tensors, &err), err);
    return file;
}

static const struct safetensor *tensor_named(const struct tensor_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->at[i].name, name) == 0)
            return &l->at[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

static char *shard_at(const char *folder, int i)
{
    return xformat("%s/features-%05d.safetensors", folder, i);
}

static void expect_metadata(const struct json *j, const char *key, const char *value)
{
    assert_string_equal(json_text(json_get(j, key)), value);
}

// A draft model reads tokens, so there are no states; it is made of the target's layers.
static void a_draft_model_gets_layers_and_no_states(void **state)
{
    char *texts = write_texts(), *folder = test_path("small"), *path = xformat("%s/target.safetensors", folder);
    struct child_result r =
        child_run("features %s %s --kind small --limit 3 --top-k 4 --out %s", models.hf, texts, folder);
    child_expect_success(&r, "features --kind small");
    child_result_free(&r);
    struct tensor_list list = { 0 };
    struct mapping file = opened(path, &list);
    int64_t rows, width;
    int layers = 0;
    for (size_t i = 0; i < list.n; i++) {
        if (strncmp(list.at[i].name, "layers.", 7) != 0)
            continue;
        char *name = xformat("model.%s", list.at[i].name);
        float *expected = small_tensor(&small_default, name, &rows, &width);
        assert_non_null(expected);
        assert_int_equal(list.at[i].dims, rows > 1 ? 2 : 1);
        assert_int_equal(list.at[i].bytes, (size_t)(rows * width) * sizeof(float));
        assert_memory_equal(list.at[i].data, expected, list.at[i].bytes);
        layers++;
        free(expected);
        free(name);
    }
    assert_int_equal(list.n, layers + 3);
    assert_int_equal(layers, 9 * small_default.layers);
    tensor_list_free(&list);
    file_unmap(&file);
    free(path);
    path = shard_at(folder, 0);
    file = opened(path, &list);
    for (size_t i = 0; i < list.n; i++)
        assert_string_not_equal(list.at[i].name, "states");
    struct json *metadata = safetensors_metadata(&file);
    static const char *const settings[][2] = { { "kind", "small" }, { "activations", "f32" }, { "cache", "f32" },
                                               { "device", "cpu" }, { "top_k", "4" },         { "type", "f32" } };
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        expect_metadata(metadata, settings[i][0], settings[i][1]);
    json_free(metadata);
    assert_int_equal(tensor_named(&list, "top_p")->dim[1], 4);
    tensor_list_free(&list);
    file_unmap(&file);
    free(path);
    free(folder);
    free(texts);
}

static void shards_hold_whole_conversations(void **state)
{
    char *texts = write_texts(), *folder = test_path("shards");
    struct child_result r =
        child_run("features %s %s --layers 0,1,3 --top-k 4 --shard-tokens 60 --limit 8 --context 50 --out %s",
                  models.hf, texts, folder);
    child_expect_success(&r, "features");
    assert_string_equal(r.out, "");
    assert_non_null(strstr(r.err, "8 conversations, 1 cut at 50 tokens; 232 tokens computed")); // 5 + 12 + .. + 47 + 50
    child_result_free(&r);
    int64_t conversations = 0;
    for (int i = 0; conversations < 8; i++) {
        char *path = shard_at(folder, i), first[24];
        struct tensor_list list = { 0 };
        struct mapping file = opened(path, &list);
        struct json *metadata = safetensors_metadata(&file);
        const struct safetensor *offsets = tensor_named(&list, "offsets"), *ids = tensor_named(&list, "input_ids"),
                                *mask = tensor_named(&list, "loss_mask"), *states = tensor_named(&list, "states"),
                                *top = tensor_named(&list, "top_ids"), *p = tensor_named(&list, "top_p");
        const int64_t *offset = offsets->data, n = offsets->dim[0] - 1;
        snprintf(first, sizeof(first), "%lld", (long long)conversations);
        expect_metadata(metadata, "format", "speclab-features-1");
        expect_metadata(metadata, "kind", "eagle3");
        expect_metadata(metadata, "layers", "0,1,3");
        expect_metadata(metadata, "first", first);
        assert_int_equal(offset[0], 0);
        for (int64_t s = 0; s < n; s++) {
            const int64_t number = conversations + s, whole = 5 + 7 * number, length = offset[s + 1] - offset[s];
            assert_int_equal(length, whole > 50 ? 50 : whole);
            for (int64_t k = 0; k < length; k++) {
                assert_int_equal(((const int32_t *)ids->data)[offset[s] + k], (11 * number + 5 * k) % 250);
                assert_int_equal(((const uint8_t *)mask->data)[offset[s] + k], k >= whole / 2);
            }
        }
        assert_true(offset[n] >= 60 || conversations + n == 8);
        assert_true(offset[n - 1] < 60);
        assert_int_equal(states->dim[0], offset[n]);
        assert_int_equal(states->dim[1], 3 * small_default.width);
        assert_int_equal(top->dim[1], 4);
        const float *row = p->data;
        for (int64_t k = 0; k < offset[n]; k++, row += 4)
            assert_true(row[0] >= row[1] && row[1] >= row[2] && row[2] >= row[3] && row[3] > 0 &&
                        row[0] + row[1] + row[2] + row[3] <= 1.0001f);
        conversations += n;
        json_free(metadata);
        tensor_list_free(&list);
        file_unmap(&file);
        free(path);
    }
    assert_int_equal(conversations, 8);
    free(texts);
    free(folder);
}

// The stream is target.safetensors and the shards, each after its length, and a length of 0.
static void a_stream_has_the_bytes_of_the_folder(void **state)
{
    struct error err;
    char *texts = write_texts(), *folder = test_path("beside"), *out = test_path("stream"), *target;
    struct child_result r =
        child_run("features %s %s --kind medusa --type bf16 --shard-tokens 100 --out %s", models.hf, texts, folder);
    child_expect_success(&r, "features --out");
    child_result_free(&r);
    r = child_run_to(out, "features %s %s --kind medusa --type bf16 --shard-tokens 100 --stream", models.hf, texts);
    child_expect_success(&r, "features --stream");
    child_result_free(&r);
    struct mapping stream;
    assert_ok(file_map(out, &stream, &err), err);
    size_t at = 0;
    target = xformat("%s/target.safetensors", folder);
    for (int i = -1;; i++) {
        uint64_t n;
        char *path = i < 0 ? xstrdup(target) : shard_at(folder, i);
        struct mapping file = { 0 };
        assert_true(at + sizeof(n) <= stream.n);
        memcpy(&n, stream.at + at, sizeof(n));
        at += sizeof(n);
        if (n == 0) {
            assert_false(file_exists(path));
            free(path);
            break;
        }
        assert_ok(file_map(path, &file, &err), err);
        assert_int_equal(n, file.n);
        assert_true(at + n <= stream.n);
        assert_memory_equal(stream.at + at, file.at, (size_t)n);
        at += (size_t)n;
        file_unmap(&file);
        free(path);
    }
    assert_int_equal(at, stream.n);
    file_unmap(&stream);
    free(texts);
    free(folder);
    free(out);
    free(target);
}

static void a_folder_is_continued(void **state)
{
    struct error err;
    char *texts = write_texts(), *folder = test_path("continued"), *words, *second = shard_at(folder, 1);
    words = xformat("features %s %s --layers 1,2 --shard-tokens 60 --out %s", models.hf, texts, folder);
    struct child_result r = child_run("%s", words);
    child_expect_success(&r, "features");
    child_result_free(&r);
    struct mapping file;
    assert_ok(file_map(second, &file, &err), err);
    uint8_t *before = xmalloc(file.n);
    const size_t n = file.n;
    memcpy(before, file.at, n);
    file_unmap(&file);
    assert_int_equal(unlink(second), 0); // as if the run had been killed before it
    r = child_run("%s", words);
    child_expect_success(&r, "features");
    assert_null(strstr(r.err, "shard 0:"));
    assert_non_null(strstr(r.err, "shard 1:"));
    assert_null(strstr(r.err, "shard 2:"));
    child_result_free(&r);
    assert_ok(file_map(second, &file, &err), err);
    assert_int_equal(file.n, n);
    assert_memory_equal(file.at, before, n);
    file_unmap(&file);
    // Other settings, other texts, a damaged shard.
    static const char *const other[][2] = { { "--layers 1,3", "made with layers \"1,2\", not \"1,3\"" },
                                            { "--layers 1,2 --top-k 5", "made with top_k \"32\", not \"5\"" },
                                            { "--layers 1,2 --type bf16", "made with type \"f32\", not \"bf16\"" } };
    for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++) {
        char *more = xformat("features %s %s %s --shard-tokens 60 --out %s", models.hf, texts, other[i][0], folder);
        child_expect_error(1, other[i][1], more);
        free(more);
    }
    char *fewer = xformat("%s --limit 2", words);
    child_expect_error(1, "only 2 conversations, and the finished shards have more", fewer);
    free(fewer);
    file_write_bytes(second, before, n - 5);
    child_expect_error(1, "features-00001.safetensors: tensor", words);
    file_write_bytes(second, before, n);
    file_write(texts, "{\"input_ids\": [1], \"loss_mask\": [1]}\n");
    child_expect_error(1, "made with data", words);
    free(before);
    free(texts);
    free(folder);
    free(words);
    free(second);
}

static void a_draft_model_of_what_cannot_be_copied_is_refused(void **state)
{
    char *texts = write_texts(), *folder = test_path("layers"), *model = test_path("table.gguf");
    struct small_model scaled = small_default;
    scaled.rope = ROPE_LLAMA3;
    scaled.factor = 8, scaled.low = 1, scaled.high = 4, scaled.original = 64;
    small_write_gguf(model, &scaled);
    char *words = xformat("features %s %s --kind small --out %s", model, texts, folder);
    child_expect_error(1, "its RoPE is scaled by a table", words);
    free(words);
    // A folder that was begun for a head has no layers.
    words = xformat("features %s %s --kind medusa --limit 1 --top-k 4 --out %s", models.hf, texts, folder);
    struct child_result r = child_run("%s", words);
    child_expect_success(&r, "features --kind medusa");
    child_result_free(&r);
    free(words);
    char *shard = shard_at(folder, 0);
    assert_int_equal(unlink(shard), 0);
    words = xformat("features %s %s --kind small --limit 1 --top-k 4 --out %s", models.hf, texts, folder);
    child_expect_error(1, "there are no layers", words);
    free(words);
    free(shard);
    free(model);
    free(folder);
    free(texts);
}

static void mistakes_get_one_sentence(void **state)
{
    static const struct {
        const char *line, *with;
    } lines[] = {
        { "{\"input_ids\": [1, 2], \"loss_mask\": [1]}", "expected a list of 2 entries" },
        { "{\"input_ids\": [1, 2]}", "expected a list of 2 entries" },
        { "{\"input_ids\": [1, 2], \"loss_mask\": [0, 2]}", "entry 2: expected 0 or 1" },
        { "{\"input_ids\": [1, 288], \"loss_mask\": [0, 1]}", "entry 2: expected a token id" },
        { "{\"input_ids\": [], \"loss_mask\": []}", "expected at least one token" },
        { "{\"input_ids\": 7, \"loss_mask\": []}", "expected a list of token ids" },
        { "{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}]}",
          "expected \"input_ids\" and \"loss_mask\"" },
        { "[1, 2]", "expected a JSON object" },
        { "{\"input_ids\": [1", "not valid JSON" },
        { "\n", "there are no conversations" },
    };
    char *path = test_path("bad.jsonl"), *folder = test_path("bad");
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        char *words = xformat("features %s %s --layers 1 --out %s", models.hf, path, folder);
        file_write(path, lines[i].line);
        child_expect_error(1, lines[i].with, words);
        free(words);
    }
    static const struct mistake mistakes[] = {
        { 2, "features %s bad.jsonl", "expected either --out DIR or --stream" },
        { 2, "features %s bad.jsonl --stream --out x", "expected either --out DIR or --stream" },
        { 2, "features %s bad.jsonl --kind eagle --layers 1 --out x", "--layers is for --kind eagle3, not eagle" },
        { 2, "features %s bad.jsonl --kind eagle4 --out x", "eagle4" },
        { 1, "features %s bad.jsonl --out x", "has only 3 layers" },
        { 1, "features %s bad.jsonl --layers 4 --out x", "numbers from 0 to 3" },
        { 1, "features %s bad.jsonl --layers 1,,2 --out x", "numbers from 0 to 3" },
        { 1, "features %s bad.jsonl --layers 1 --context 100000 --out x", "the context of" },
        { 1, "features %s bad.jsonl --layers 1 --top-k 600 --out x", "the vocabulary of" },
        { 1, "features %s no-such.jsonl --layers 1 --out x", "no-such.jsonl" },
        { 1, "features %s /dev/null --layers 1 --out x", "expected a file" },
        { 1, "features no-such-model bad.jsonl --layers 1 --out x", "no-such-model" },
    };
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), models.hf);
    free(path);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_hold_whole_conversations),
        cmocka_unit_test(a_draft_model_gets_layers_and_no_states),
        cmocka_unit_test(a_stream_has_the_bytes_of_the_folder),
        cmocka_unit_test(a_folder_is_continued),
        cmocka_unit_test(a_draft_model_of_what_cannot_be_copied_is_refused),
        cmocka_unit_test(mistakes_get_one_sentence),
    };
    return run_with_models(tests);
}
