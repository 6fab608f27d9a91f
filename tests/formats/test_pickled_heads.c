// test_pickled_heads.c - heads in PyTorch files equal those in safetensors files.
#include <stdlib.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/heads/head.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_heads.h"
#include "tests/formats/torch_copy.h"
#include "tests/support/small_model.h"

static const struct head_shape shape = { .width = 64,
                                         .vocab = 96,
                                         .layers = 8,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .hidden = 96,
                                         .medusa_heads = 3,
                                         .seed = 3 };

static void a_pickled_head_is_the_same_head(void **unused)
{
    static const struct {
        void (*write)(const char *directory, const struct head_shape *s);
        const char *file;
        enum head_kind kind;
    } list[] = { { heads_write_medusa, "medusa_lm_head.pt", HEAD_MEDUSA },
                 { heads_write_eagle, "pytorch_model.bin", HEAD_EAGLE },
                 { heads_write_eagle3, "pytorch_model.bin", HEAD_EAGLE3 } };
    const struct model_shape target = { .layers = shape.layers, .width = shape.width, .vocab = shape.vocab };
    for (size_t i = 0; i < 3; i++) {
        char *plain = xformat("%s/plain%zu", test_directory(), i),
             *pickled = xformat("%s/pickled%zu", test_directory(), i);
        char *file = xformat("%s/%s", pickled, list[i].file), *config = xformat("%s/config.json", pickled);
        struct error err = { "" };
        struct head a, b;
        list[i].write(plain, &shape);
        assert_int_equal(mkdir(pickled, 0777), 0);
        pickled_checkpoint(plain, file);
        assert_ok(head_open(&a, plain, list[i].kind, "test", &err), err);
        char *text = json_write(a.config);
        file_write(config, text);
        free(text);
        assert_ok(head_open(&b, pickled, list[i].kind, "test", &err), err);
        assert_true(hash_equal(head_hash(&a), head_hash(&b))); // covers names, types, shapes and numbers
        head_close(&b);
        if (!head_open(&b, file, list[i].kind, "test", &err)) // opened by the file's own path
            fail_msg("%s", err.text);
        assert_true(hash_equal(head_hash(&a), head_hash(&b)));
        head_close(&a);
        head_close(&b);
        enum head_kind kind;
        struct head_facts f;
        assert_ok(head_fits(pickled, &target, &kind, &f, &err), err);
        assert_int_equal(kind, list[i].kind);
        free(plain);
        free(pickled);
        free(file);
        free(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_pickled_head_is_the_same_head) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
