// test_types.c - the table of types (core/tensor.h): what readers derive from a row, computed another way.
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "core/quantize.h"
#include "core/tensor.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/row_kernels.h"
#include "models/finite.h"
#include "models/formats/gguf_value.h"
#include "tests/support/tests.h"

TEST(names_and_numbers_of_gguf_files_follow_from_a_row)
{
    for (int t = 0; t < TYPES; t++) {
        const struct type_facts *f = &type_facts[t];
        enum type found;
        assert_int_equal(strlen(f->name), strlen(f->file_name));
        for (size_t i = 0; i < strlen(f->name); i++)
            assert_int_equal(toupper(f->name[i]), f->file_name[i]);
        assert_int_equal(type_from_ggml(f->ggml, &found), f->ggml >= 0);
        if (f->ggml < 0)
            continue;
        assert_int_equal(found, t);
        assert_string_equal(gguf_type_name(f->ggml), f->file_name);
    }
    assert_string_equal(gguf_type_name(10), "Q2_K"); // is known by name only
    assert_string_equal(gguf_type_name(1000), "unknown type");
    assert_string_equal(gguf_type_name(-1), "unknown type");
}

// A block consists of its numbers and of what its scaling stores.
TEST(the_bytes_of_a_block_are_its_numbers_and_scales)
{
    for (int t = 0; t < TYPES; t++) {
        const struct type_facts *f = &type_facts[t];
        const int groups = f->block / 32, of_codes = f->numbers == NUMBERS_IQ4 ? 2 + groups / 2 : 2 * groups;
        const int scales[] = {
            [SCALING_NONE] = 0,
            [SCALING_HALF] = 2,
            [SCALING_MIN] = 4,
            [SCALING_SUPER] = 4 + groups * 2 * 6 / 8,
            [SCALING_SUB_BLOCK] = 2 + of_codes, // six bits of 32 codes, or a byte of 16 integers
            [SCALING_POWER] = 1,
            [SCALING_FLOAT] = 4,
        };
        assert_int_equal(f->bytes, f->block * f->bits / 8 + scales[f->scaling]);
    }
}

// Every two bytes of a block are made an infinite half in turn.
TEST(a_block_is_finite_if_its_numbers_are)
{
    const struct cpu_kernels *cpu = cpu_kernels_choose(NULL);
    for (int t = 0; t < TYPES; t++) {
        const struct type_facts *f = &type_facts[t];
        int infinite = 0;
        if (f->scaling == SCALING_NONE || f->scaling == SCALING_POWER || f->scaling == SCALING_FLOAT)
            continue;
        for (int at = 0; at + 2 <= f->bytes; at += 2) {
            uint8_t block[256] = { 0 };
            float number[256];
            bool finite = true;
            block[at + 1] = 0x7C;
            cpu->rows->dequantize(number, block, (enum type)t, f->block);
            for (int i = 0; i < f->block; i++)
                finite = finite && isfinite(number[i]);
            const struct tensor row = tensor_of(block, (enum type)t, 1, f->block);
            assert_int_equal(first_row_not_finite(&row), finite ? -1 : 0);
            infinite += !finite;
        }
        assert_int_equal(infinite, f->scaling == SCALING_MIN || f->scaling == SCALING_SUPER ? 2 : 1);
    }
}

TEST(choices_name_types)
{
    assert_int_equal(type_chosen(QUANTIZE_CHOICES, QUANTIZE_NONE), TYPES);
    assert_int_equal(type_chosen(QUANTIZE_CHOICES, QUANTIZE_Q8_0), Q8_0);
    assert_int_equal(type_chosen(QUANTIZE_CHOICES, QUANTIZE_Q4_0), Q4_0);
    for (int i = 0; i < 7; i++) { // every one of them is converted to
        const enum type type = type_chosen(CONVERTED_CHOICES, i);
        float x[256] = { 1 }, back[256];
        uint8_t block[1024];
        assert_int_not_equal(type, TYPES);
        assert_true(quantize_floats(type, x, 256, block));
        cpu_kernels_choose(NULL)->rows->dequantize(back, block, type, 256);
        assert_true(fabsf(back[0] - 1) < 0.01f && fabsf(back[1]) < 0.01f);
    }
    assert_int_equal(type_chosen(CONVERTED_CHOICES, 7), TYPES);
}

RUN_TESTS(NULL, NULL)
