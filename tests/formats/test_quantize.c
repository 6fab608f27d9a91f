// test_quantize.c - quantized blocks equal gguf-py's.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/quantize.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"

static size_t bytes_of_hex(const char *hex, void *to)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++)
        sscanf(hex + 2 * i, "%2hhx", (unsigned char *)to + i);
    return n;
}

static void same_bytes(const uint8_t *got, const uint8_t *expected, size_t n, const char *type, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != expected[i])
            fail_msg("%s, %s: byte %zu is %02x, not %02x", type, what, i, got[i], expected[i]);
}

TEST(blocks_are_byte_for_byte_those_of_gguf_py)
{
    static const struct {
        const char *key;
        enum type type;
    } types[] = { { "Q8_0", Q8_0 }, { "Q4_0", Q4_0 }, { "BF16", BF16 }, { "MXFP4", MXFP4 } };
    struct json *j = golden_json("quantized.json"), *list = json_get(j, "blocks");
    assert_true(json_count(list) > 20);
    for (size_t i = 0; i < json_count(list); i++)
        for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
            const struct json *block = json_at(list, i);
            float x[32];
            uint8_t expected[64], got[64];
            assert_int_equal(bytes_of_hex(json_text(json_get(block, "x")), x), sizeof(x));
            size_t n = bytes_of_hex(json_text(json_get(block, types[t].key)), expected);
            assert_int_equal(n, type_row_bytes(types[t].type, 32));
            assert_true(quantize_floats(types[t].type, x, 32, got));
            same_bytes(got, expected, n, types[t].key, json_text(json_get(block, "what")));
        }
    json_free(j);
}

TEST(bf16_keeps_infinities_and_nans)
{
    struct json *j = golden_json("quantized.json");
    const struct json *odd = json_at(json_get(j, "odd"), 0);
    float x[32];
    uint8_t expected[64], got[64];
    bytes_of_hex(json_text(json_get(odd, "x")), x);
    size_t n = bytes_of_hex(json_text(json_get(odd, "BF16")), expected);
    assert_int_equal(n, 64);
    assert_false(quantize_floats(BF16, x, 32, got)); // and reports them
    same_bytes(got, expected, n, "BF16", "odd numbers");
    json_free(j);
}

TEST(numbers_outside_the_range_of_a_type_are_reported)
{
    static const float odd[] = { INFINITY, -INFINITY, NAN, 3.4e38f };
    uint8_t to[256];
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        float x[64] = { 1, -2 };
        x[37] = odd[i];
        assert_false(quantize_floats(Q8_0, x, 64, to)); // 3.4e38 / 127 exceeds the largest half
        assert_false(quantize_floats(Q4_0, x, 64, to));
        assert_false(quantize_floats(BF16, x, 64, to)); // 3.4e38 rounds up to infinity
        assert_true(quantize_floats(F32, x, 64, to) == (i == 3));
    }
    // The scale is so small that its reciprocal is infinite: zeros, since the scale is zero as a half anyway.
    float x[32] = { 1e-40f, -1e-40f };
    assert_true(quantize_floats(Q8_0, x, 32, to));
    for (int i = 0; i < 34; i++)
        assert_int_equal(to[i], 0);
}

RUN_TESTS(NULL, NULL)
