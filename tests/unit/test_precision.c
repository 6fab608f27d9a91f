// test_precision.c - types of activations and caches: names, enumerators and sizes in bytes.
#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/check.h"

static const char *const kv_type_names[] = { "default", "f32", "bf16", "q8_0", NULL };

static void names_and_enumerators_of_precisions_agree(void **unused)
{
    static const struct {
        const char *choices;
        const char *const *names;
    } lists[] = { { ACTIVATIONS_CHOICES, activations_names }, { KV_CHOICES, kv_type_names } };
    for (int l = 0; l < 2; l++) {
        const char *at = lists[l].choices;
        for (const char *const *name = lists[l].names; *name != NULL; name++) {
            assert_int_equal(strncmp(at, *name, strlen(*name)), 0);
            at += strlen(*name);
            assert_int_equal(*at, name[1] != NULL ? '|' : '\0');
            at++;
        }
    }
    for (int k = KV_F32; kv_type_names[k] != NULL; k++)
        assert_string_equal(type_facts[kv_type_resolve((enum kv_type)k)].name, kv_type_names[k]);
    assert_string_equal(activations_names[ACTIVATIONS_INT8], "int8");
    assert_string_equal(activations_names[ACTIVATIONS_BF16], "bf16");
}

static void a_quantized_cache_needs_heads_that_are_multiples_of_the_block(void **unused)
{
    struct error err = { "" };
    struct backend *b = backend_cpu(1, &err);
    struct kv_shape shape = {
        .layers = 2, .width = 96, .head_dim = 32, .slots = 2, .length = 10, .pending = 4, .type = Q8_0
    };
    static const struct {
        enum type type;
        size_t row;
    } types[] = { { F32, 4 * 96 }, { BF16, 2 * 96 }, { Q8_0, 3 * 34 } };
    for (int i = 0; i < 3; i++) {
        shape.type = types[i].type;
        assert_int_equal(kv_bytes(&shape), 2 * 2 * 2 * 10 * types[i].row);
        struct kv_cache *c = kv_create(b, &shape, &err);
        assert_non_null(c);
        assert_int_equal(kv_keys(c, 1).type, types[i].type);
        assert_int_equal(tensor_bytes(kv_values(c, 0)), 20 * types[i].row);
        kv_destroy(c);
    }
    shape.head_dim = 48; // a row of 96 is three blocks, a head is one and a half
    assert_null(kv_create(b, &shape, &err));
    assert_string_equal(err.text,
                        "cache: q8_0 has blocks of 32 numbers, and the heads here have 48 (expected f32 or bf16)");
    b->destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_enumerators_of_precisions_agree),
        cmocka_unit_test(a_quantized_cache_needs_heads_that_are_multiples_of_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
