// test_medusa2.c - Medusa-2: a model that was trained together with its heads, in one directory that opens as a target and as
// heads.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/heads/medusa.h"
#include "models/model.h"
#include "tests/formats/safetensors_write.h"
#include "models/formats/shards.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

enum { MAX_TENSORS = 96 };

// Writes the tensors of both, those of the heads with the prefix `medusa_head.`, and the model's configuration with Medusa's
// class.
static void write_both(const char *model, const char *heads, const char *to)
{
    struct error err;
    struct shards *m = shards_open(model, &err), *h = shards_open(heads, &err);
    assert_true(m != NULL && h != NULL);
    struct safetensor all[MAX_TENSORS];
    size_t n = 0, own = shards_count(m);
    assert_true(own + shards_count(h) <= MAX_TENSORS);
    for (size_t i = 0; i < own; i++)
        all[n++] = *shards_at(m, i);
    for (size_t i = 0; i < shards_count(h); i++) {
        all[n] = *shards_at(h, i);
        all[n].name = xformat("medusa_head.%s", all[n].name);
        n++;
    }
    assert_int_equal(mkdir(to, 0777), 0);
    char *file = xformat("%s/model.safetensors", to), *from = xformat("%s/config.json", model),
         *config = xformat("%s/config.json", to);
    assert_true(safetensors_write(file, all, n, NULL, &err));
    struct json *j = json_read(from, &err);
    assert_non_null(j);
    struct json *classes = json_new_array();
    json_push(classes, json_new_text("MedusaModelLlama"));
    json_set(j, "architectures", classes);
    json_set(j, "medusa_num_heads", json_new_int(5));
    char *text = json_write(j);
    file_write(config, text);
    for (size_t i = own; i < n; i++)
        free((void *)(uintptr_t)all[i].name);
    json_free(j);
    free(text);
    free(file);
    free(from);
    free(config);
    shards_close(m);
    shards_close(h);
}

TEST(one_directory_holds_a_target_and_its_heads)
{
    struct error err = { "" };
    struct small_model t = small_default;
    char *model = test_path("model"), *heads = test_path("heads"), *both = test_path("both");
    small_write_hf(model, &t);
    const struct head_shape s = head_shape_of(model);
    heads_write_medusa(heads, &s);
    write_both(model, heads, both);
    struct backend *b = backend_cpu(1, &err);
    struct model *target = model_open(both, b, ACTIVATIONS_F32, 4, &err);
    assert_ok(target != NULL, err);
    const char *unused_name = model_unused(target, 0); // the model does not use the heads
    assert_true(unused_name != NULL && strncmp(unused_name, "medusa_head.", 12) == 0);
    struct medusa *inside = medusa_open(both, target, b, ACTIVATIONS_F32, QUANTIZE_NONE, 2, &err);
    assert_ok(inside != NULL, err);
    struct medusa *alone = medusa_open(heads, target, b, ACTIVATIONS_F32, QUANTIZE_NONE, 2, &err);
    assert_ok(alone != NULL, err);
    assert_int_equal(medusa_facts(inside)->heads, s.medusa_heads);
    assert_int_equal(medusa_facts(inside)->vocab, t.vocab);
    float *hidden = xcalloc((size_t)t.width, sizeof(*hidden)), *logits[2];
    for (int i = 0; i < t.width; i++)
        hidden[i] = (float)(i % 7) - 3;
    for (int head = 0; head < s.medusa_heads; head++) {
        for (int k = 0; k < 2; k++) {
            logits[k] = xcalloc((size_t)t.vocab, sizeof(float));
            medusa_logits(k == 0 ? inside : alone, head, tensor_of(logits[k], F32, 1, t.vocab),
                          tensor_of(hidden, F32, 1, t.width));
        }
        assert_true(b->sync(b, &err));
        assert_memory_equal(logits[0], logits[1], (size_t)t.vocab * sizeof(float));
        free(logits[0]);
        free(logits[1]);
    }
    free(hidden);
    medusa_close(inside);
    medusa_close(alone);
    model_close(target);
    b->destroy(b);
    free(model);
    free(heads);
    free(both);
}

int main(void)
{
    const int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
