// test_pickled_model.c - a target in PyTorch files equals that in safetensors files: its numbers, its hash, and checkpoints
// derived from it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "commands/checkpoint/prune.h"
#include "commands/checkpoint/quantize.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/formats/torch_copy.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_model.h"

// Writes a model as two directories with the same base name; free() the paths.
static void make_both(const struct small_model *t, const char *name, char **plain, char **pickled)
{
    static const char *const places[] = { "plain", "pickled" };
    for (int i = 0; i < 2; i++) {
        char *place = test_path(places[i]);
        assert_true(mkdir(place, 0777) == 0 || errno == EEXIST);
        *(i == 0 ? plain : pickled) = xformat("%s/%s", place, name);
        free(place);
    }
    small_write_hf(*plain, t);
    pickled_model(*plain, *pickled);
}

static void same_file(const char *a, const char *b, const char *name)
{
    char *in_a = xformat("%s%s", a, name), *in_b = xformat("%s%s", b, name);
    struct text x = checkpoint_bytes(in_a), y = checkpoint_bytes(in_b);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.s, y.s, x.n);
    free(x.s);
    free(y.s);
    free(in_a);
    free(in_b);
}

static void a_pickled_target_is_the_same_target(void **unused)
{
    static const struct {
        enum type type;
        int shards;
        bool tied;
    } list[] = { { F32, 1, false }, { F16, 1, true }, { BF16, 3, false } };
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
        char name[16], *plain, *pickled;
        snprintf(name, sizeof(name), "model%zu", i);
        struct small_model t = small_default;
        t.type = list[i].type;
        t.shards = list[i].shards;
        t.tied = list[i].tied;
        make_both(&t, name, &plain, &pickled);
        struct runner a = runner_open(plain, 1, NULL, 1), b = runner_open(pickled, 1, NULL, 1);
        assert_true(hash_equal(model_hash(a.model), model_hash(b.model)));
        const int32_t token[] = { 1, 77, 5, 200, 31 };
        const float *p = runner_pass(&a, 5, token, NULL, NULL), *q = runner_pass(&b, 5, token, NULL, NULL);
        assert_memory_equal(p, q, 5 * (size_t)a.vocab * sizeof(float));
        runner_close(&a);
        runner_close(&b);
        free(plain);
        free(pickled);
    }
}

static void derived_checkpoints_are_the_same(void **unused)
{
    struct error err = { "" };
    struct small_model t = small_default;
    const int keep[] = { 0, 2 };
    char *from[2], *pruned[2], *quantized[2];
    t.shards = 2;
    make_both(&t, "origin", &from[0], &from[1]);
    struct backend *cpu = backend_cpu(1, &err);
    assert_non_null(cpu);
    for (int i = 0; i < 2; i++) {
        struct quantize_summary done = { 0 };
        pruned[i] = xformat("%s_pruned", from[i]);
        quantized[i] = xformat("%s.gguf", from[i]);
        assert_ok(prune_model(from[i], keep, 2, pruned[i], NULL, &err) &&
                      quantize_model(from[i], Q8_0, quantized[i], cpu, NULL, &done, &err),
                  err);
        free(done.unchanged_names);
    }
    same_file(pruned[0], pruned[1], "/model.safetensors");
    same_file(pruned[0], pruned[1], "/config.json");
    same_file(pruned[0], pruned[1], "/tokenizer.json");
    same_file(quantized[0], quantized[1], "");
    cpu->destroy(cpu);
    for (int i = 0; i < 2; i++) {
        free(from[i]);
        free(pruned[i]);
        free(quantized[i]);
    }
}

static void a_truncated_target_is_refused(void **unused)
{
    struct error err = { "" };
    char *plain, *pickled;
    struct small_model t = small_default;
    make_both(&t, "cut", &plain, &pickled);
    char *file = xformat("%s/pytorch_model.bin", pickled);
    struct text bytes = checkpoint_bytes(file);
    file_write_bytes(file, bytes.s, bytes.n - 100);
    struct model_config c;
    assert_true(config_read(pickled, &c, &err));
    assert_null(weights_open(&c, &err));
    assert_error_mentions(&err, file, "");
    config_free(&c);
    free(bytes.s);
    free(file);
    free(plain);
    free(pickled);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_pickled_target_is_the_same_target),
                                        cmocka_unit_test(derived_checkpoints_are_the_same),
                                        cmocka_unit_test(a_truncated_target_is_refused) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
